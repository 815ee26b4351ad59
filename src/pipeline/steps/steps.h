/* steps.h: the rows of the table of steps. */
#ifndef PIPELINE_STEPS_STEPS_H
#define PIPELINE_STEPS_STEPS_H

#include "pipeline/step.h"

extern const step_kind step_abstain;
extern const step_kind step_argmax;
extern const step_kind step_arithmetic;
extern const step_kind step_audio_features;
extern const step_kind step_bucketize;
extern const step_kind step_byte_window;
extern const step_kind step_calibrate;
extern const step_kind step_cast;
extern const step_kind step_chat_template;
extern const step_kind step_choose;
extern const step_kind step_clip;
extern const step_kind step_concat;
extern const step_kind step_constant;
extern const step_kind step_crop;
extern const step_kind step_ctc;
extern const step_kind step_date_parts;
extern const step_kind step_db_text_boxes;
extern const step_kind step_decode_audio;
extern const step_kind step_decode_boxes;
extern const step_kind step_decode_image;
extern const step_kind step_decode_text;
extern const step_kind step_filter;
extern const step_kind step_for_each;
extern const step_kind step_generate;
extern const step_kind step_hash;
extern const step_kind step_image_size;
extern const step_kind step_impute;
extern const step_kind step_join;
extern const step_kind step_jpeg_round_trip;
extern const step_kind step_l2_normalize;
extern const step_kind step_label;
extern const step_kind step_length;
extern const step_kind step_log1p;
extern const step_kind step_lookup;
extern const step_kind step_min_max;
extern const step_kind step_missing_indicator;
extern const step_kind step_mix_down;
extern const step_kind step_model;
extern const step_kind step_nms;
extern const step_kind step_normalize;
extern const step_kind step_normalize_image;
extern const step_kind step_one_hot;
extern const step_kind step_ordinal;
extern const step_kind step_overlap_add;
extern const step_kind step_pad;
extern const step_kind step_perspective_crop;
extern const step_kind step_pick;
extern const step_kind step_polynomial;
extern const step_kind step_pool;
extern const step_kind step_quantile;
extern const step_kind step_record;
extern const step_kind step_regex_replace;
extern const step_kind step_rename;
extern const step_kind step_resample;
extern const step_kind step_reshape;
extern const step_kind step_resize;
extern const step_kind step_robust;
extern const step_kind step_round;
extern const step_kind step_samples;
extern const step_kind step_scale_boxes;
extern const step_kind step_scan;
extern const step_kind step_select;
extern const step_kind step_sigmoid;
extern const step_kind step_softmax;
extern const step_kind step_sort_boxes;
extern const step_kind step_span;
extern const step_kind step_split;
extern const step_kind step_standardize;
extern const step_kind step_stft;
extern const step_kind step_stitch;
extern const step_kind step_threshold;
extern const step_kind step_timestamps;
extern const step_kind step_token_classes;
extern const step_kind step_tokenize;
extern const step_kind step_top_k;
extern const step_kind step_turn;
extern const step_kind step_windows;

#endif

/* table.c: all steps. A new one is a file of this folder and a row here. */
#include "pipeline/steps/steps.h"

#include <string.h>

/* One a line, in the order of the alphabet: clang-format would fill lines. */
/* clang-format off */
const step_kind *const STEP_KINDS[] = {
    &step_abstain,
    &step_argmax,
    &step_arithmetic,
    &step_bucketize,
    &step_byte_window,
    &step_calibrate,
    &step_cast,
    &step_chat_template,
    &step_choose,
    &step_clip,
    &step_concat,
    &step_constant,
    &step_ctc,
    &step_date_parts,
    &step_db_text_boxes,
    &step_decode_boxes,
    &step_decode_text,
    &step_filter,
    &step_for_each,
    &step_generate,
    &step_hash,
    &step_impute,
    &step_join,
    &step_l2_normalize,
    &step_label,
    &step_length,
    &step_log1p,
    &step_lookup,
    &step_min_max,
    &step_missing_indicator,
    &step_model,
    &step_nms,
    &step_normalize,
    &step_one_hot,
    &step_ordinal,
    &step_overlap_add,
    &step_pick,
    &step_polynomial,
    &step_pool,
    &step_quantile,
    &step_record,
    &step_regex_replace,
    &step_rename,
    &step_reshape,
    &step_robust,
    &step_round,
    &step_scale_boxes,
    &step_scan,
    &step_select,
    &step_sigmoid,
    &step_softmax,
    &step_sort_boxes,
    &step_span,
    &step_split,
    &step_standardize,
    &step_stitch,
    &step_threshold,
    &step_timestamps,
    &step_token_classes,
    &step_tokenize,
    &step_top_k,
    &step_windows,
#if CHURON_MEDIA
    &step_audio_features,
    &step_crop,
    &step_decode_audio,
    &step_decode_image,
    &step_image_size,
    &step_jpeg_round_trip,
    &step_mix_down,
    &step_normalize_image,
    &step_pad,
    &step_perspective_crop,
    &step_resample,
    &step_resize,
    &step_samples,
    &step_stft,
    &step_turn,
#endif
    NULL,
};
/* clang-format on */

const step_kind *step_kind_find(const char *name) {
    for (size_t i = 0; STEP_KINDS[i]; i++) {
        if (strcmp(STEP_KINDS[i]->name, name) == 0) return STEP_KINDS[i];
    }
    return NULL;
}

/* media_part.h: what steps over images and audio share. */
#ifndef PIPELINE_STEPS_MEDIA_PART_H
#define PIPELINE_STEPS_MEDIA_PART_H

#include "pipeline/steps/elements.h"

#define KINDS_IMAGE (KIND(CELL_IMAGE) | KIND(CELL_TENSOR))

/* Moves a tensor of the media room into the run's arena and frees it. */
MUST_USE status media_adopt(cell *out, cell_kind kind, arena *a, tensor *t, error *err);
/* keys[key] is an image, or a tensor of u8 or float32 [height, width, channels]: refused otherwise. */
MUST_USE status expect_image(const step_build *b, size_t key, error *err);
/* The type of an image of the same kind, order and channels with another size (-1: open). */
cell_type image_type_sized(const cell_type *t, int64_t height, int64_t width);
/* keys[key] is audio, or a tensor float32 [samples] or [channels, samples]. */
MUST_USE status expect_signal(const step_build *b, size_t key, error *err);

#endif

/* taps.h: the weights of resizing along one axis, for resize.c alone. */
#ifndef MEDIA_TAPS_H
#define MEDIA_TAPS_H

#include "kernel/kernel.h"
#include "media/resize.h"

/* Output i of [0, n) is a sum over inputs first[i] .. first[i] + count[i] - 1. */
typedef struct taps {
    size_t n, per;           /* per: the largest count, rounded up to RESIZE_TAPS */
    uint32_t *first, *count; /* [n] */
    double *weight;          /* [n, per], 0 from count on */
    float *f32;              /* [n, per], or NULL */
    int32_t *fixed;          /* [n, per], or NULL; upper and lower follow it when split */
    int16_t *upper, *lower;
} taps;

typedef enum taps_form { TAPS_F64, TAPS_F32, TAPS_PILLOW_U8, TAPS_OPENCV_U8 } taps_form;

enum { OPENCV_BITS = 11 };

/* Outputs from..to-1 of an axis of `in` made `out` long. */
MUST_USE status taps_make(taps *t, resize_rule rule, resize_filter filter, bool area, taps_form form,
                          size_t in, size_t out, size_t from, size_t to, error *err);
void taps_free(taps *t);

#endif

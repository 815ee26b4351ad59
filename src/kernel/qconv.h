/* qconv.h: 2-D convolution of 8-bit images whose channels lie together, [batch][height][width][channels], to
 * 8 bits, with exact sums.
 *
 * X is uint8, or int8 that is moved by 128 on the way; W is int8, or uint8 likewise. A pixel's channels of
 * all taps of a kernel row are one run of bytes, so that a row of output pixels is a product of described
 * rows (qgemm.h) without patches. Where there is padding, or a run is no multiple of four bytes, the input
 * rows of a strip of output rows are copied first, the zero point around them. Depthwise: qimage.h. Sums are
 * exact modulo 2^32: neither strips nor threads can change a bit.
 *
 * y = (float)(sum + bias) * scale[channel], to nearest, ties to even, + y_zero, to [y_low, y_high]. */
#ifndef KERNEL_QCONV_H
#define KERNEL_QCONV_H

#include "base/stop.h"
#include "kernel/qgemm.h"
#include "kernel/qimage.h"

typedef struct qconv {
    size_t in_channels, out_channels, groups;
    size_t in_h, in_w, out_h, out_w;
    size_t kernel_h, kernel_w, stride_h, stride_w, dilation_h, dilation_w;
    size_t pad_top, pad_left;
    bool x_signed, w_signed, y_signed;
    int32_t x_zero, y_zero; /* as the types have them */
    int32_t y_low, y_high;  /* limits of y, likewise */
    bool w_zeros;           /* some weight has a zero point other than 0 */
} qconv;

/* Everything that is made of constants: filled by qconv_pack in memory of the caller, 64-byte aligned. */
typedef struct qconv_packed {
    int8_t *w;
    int32_t *offset, *w_zero; /* [qconv_columns] */
    float *scale;
} qconv_packed;

bool qconv_suits(const qconv *c); /* can be done; sizes of the image are not read */
bool qconv_is_depthwise(const qconv *c);
size_t qconv_columns(const qconv *c);      /* output channels, filled up */
size_t qconv_packed_bytes(const qconv *c); /* of w, a multiple of 64; 0: too large */
/* weights: ONNX's [out, in/groups, kernel_h, kernel_w] bytes; w_zero, bias (or NULL), scale: [out]. */
void qconv_pack(const qconv *c, const uint8_t *weights, const int32_t *w_zero, const int32_t *bias,
                const float *scale, const qconv_packed *out);

typedef struct qconv_job {
    const qconv *c;
    const qconv_packed *packed;
    const uint8_t *in;
    uint8_t *out;
    size_t batch;
    const uint8_t *add; /* laid out as out, joined to the result by `pair` (a: the result); or NULL */
    qpair pair;
    stop_flag *stop; /* between units; or NULL */
} qconv_job;

size_t qconv_units(const qconv *c, size_t batch);
size_t qconv_scratch(const qconv *c); /* bytes for one thread, a multiple of 64 */
void qconv_run(const kernels *k, const qconv_job *job, size_t unit0, size_t unit1, void *scratch);

#endif

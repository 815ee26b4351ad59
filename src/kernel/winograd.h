/* winograd.h: 3x3 convolutions of stride 1 with a quarter of the multiplications: F(4x4, 3x3).
 *
 * 4x4 results come from a 6x6 patch: patch and weights are transformed to 36 points each, at each point the
 * channels are one matrix product over all patches, and the 36 sums are transformed back. Weights are
 * transformed at packing, in double. The rounding error is about twice that of the direct chain (docs/
 * performance.md has the figures); an infinity in a patch makes NaN of its 16 results.
 *
 * Per result a fixed order of sums: transforms as winograd_body.h writes them, the chain over channels
 * ascending. Neither batch, patches nor threads change a bit.
 * S. Winograd 1980; A. Lavin and S. Gray, Fast Algorithms for Convolutional Neural Networks, 2015. */
#ifndef KERNEL_WINOGRAD_H
#define KERNEL_WINOGRAD_H

#include "kernel/conv.h"

enum { WINOGRAD_POINTS = 36, WINOGRAD_IN = 6, WINOGRAD_OUT = 4 };

/* 3x3, stride and dilation 1, one group, blocked input and result. */
bool winograd_can(const conv *c);
size_t winograd_packed_floats(const conv *c);
/* From ONNX's [out_channels, in_channels, 3, 3]: panels [p0, p1) of 16 output channels. */
void winograd_pack(const conv *c, const float *weights, size_t p0, size_t p1, float *out);
/* As conv_units, conv_scratch_floats and conv_run. */
size_t winograd_units(const conv *c, size_t batch);
size_t winograd_scratch_floats(const conv *c);
void winograd_run(const kernels *k, const conv_job *job, size_t unit0, size_t unit1, float *scratch);

#endif

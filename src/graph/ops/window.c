/* window.c: see window.h. */
#include "graph/ops/window.h"

dim window_count(op_shapes *s, bool up, dim in, size_t pad, size_t end, size_t kernel, size_t stride) {
    const dim room = dim_sub(s, dim_add(s, in, (dim)(pad + end)), (dim)kernel);
    if (!up) return dim_add(s, dim_div_floor(s, room, (dim)stride), 1);
    dim out = dim_add(s, dim_div_ceil(s, room, (dim)stride), 1);
    if (dim_known(out) && dim_known(in) && (out - 1) * (dim)stride >= in + (dim)pad) out--;
    return out;
}

void window_inside(size_t o, size_t stride, size_t pad, size_t kernel, size_t in, size_t *from, size_t *to) {
    const size_t begin = o * stride, end = begin + kernel;
    *from = begin > pad ? begin - pad : 0;
    *to = end > pad ? end - pad : 0;
    if (*to > in) *to = in;
    if (*from > *to) *from = *to;
}

void window_whole(size_t n, size_t stride, size_t pad, size_t kernel, size_t in, size_t *from, size_t *to) {
    *from = (pad + stride - 1) / stride;
    *to = in + pad >= kernel ? (in + pad - kernel) / stride + 1 : 0;
    if (*to > n) *to = n;
    if (*from > *to) *from = *to;
}

size_t window_padded(size_t o, size_t stride, size_t pad, size_t end, size_t kernel, size_t in) {
    const size_t begin = o * stride, most = in + pad + end;
    return (begin + kernel < most ? begin + kernel : most) - begin;
}

size_t window_taps(size_t width, size_t step, size_t y0, size_t y1, size_t x0, size_t x1, ptrdiff_t *taps) {
    size_t n = 0;
    for (size_t y = y0; y < y1; y++) {
        for (size_t x = x0; x < x1; x++) taps[n++] = (ptrdiff_t)((y * width + x) * step);
    }
    return n;
}

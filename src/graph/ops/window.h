/* window.h: where the windows of a pool lie, along one axis at a time. All sizes in pixels; window o begins
 * `pad` before pixel o * stride. No state. */
#ifndef GRAPH_OPS_WINDOW_H
#define GRAPH_OPS_WINDOW_H

#include "graph/op.h"

/* How many windows there are. up: ceil mode, without a last one that would begin in the padding behind. */
dim window_count(op_shapes *s, bool up, dim in, size_t pad, size_t end, size_t kernel, size_t stride);
/* The pixels of window o: [*from, *to), empty where it lies in the padding. */
void window_inside(size_t o, size_t stride, size_t pad, size_t kernel, size_t in, size_t *from, size_t *to);
/* The windows of which every pixel is inside: [*from, *to) of n. */
void window_whole(size_t n, size_t stride, size_t pad, size_t kernel, size_t in, size_t *from, size_t *to);
/* What window o counts where padding counts: it is clipped behind the far padding (ceil mode reaches beyond).
 */
size_t window_padded(size_t o, size_t stride, size_t pad, size_t end, size_t kernel, size_t in);
/* Offsets from the image's beginning of rows [y0, y1) and columns [x0, x1), `step` from pixel to pixel; how
 * many. */
size_t window_taps(size_t width, size_t step, size_t y0, size_t y1, size_t x0, size_t x1, ptrdiff_t *taps);

#endif

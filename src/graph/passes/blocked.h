/* blocked.h: what the files of the pass "blocked-layout" share. Functions that lower a node leave it alone
 * where they cannot. */
#ifndef GRAPH_PASSES_BLOCKED_H
#define GRAPH_PASSES_BLOCKED_H

#include "graph/ops/blocked.h"
#include "graph/passes/passes.h"

static const float LAYOUT_MOST_FILL = 1e6f;

typedef struct layout {
    rewriter *w;
    ir_value **twin; /* [n_values]: by slot of the planar value */
    float *fill;     /* [n_values]: most that the magnitude of what fills up the twin can be */
} layout;

/* An f32 image of one or two axes with a known number of channels. */
bool layout_is_image(const ir_value *v);
size_t layout_channels(const ir_value *image);
float layout_fill(const layout *l, const ir_value *v);
ir_value *layout_twin(const layout *l, const ir_value *v); /* NULL: there is none */
MUST_USE status layout_new_twin(layout *l, ir_value *image, ir_value **out, error *err);
/* The twin of v, made by ToBlocked in front of `at` if there is none. */
MUST_USE status layout_need_twin(layout *l, op_node *at, ir_value *v, ir_value **out, error *err);

/* Two spatial numbers of an attribute: [h, w], or [w] of images of one axis, for which h is `alone`. */
bool layout_two_ints(const op_node *n, const char *name, size_t axes, int64_t absent, int64_t alone,
                     size_t out[2]);
/* Padding [top, left, bottom, right] around input 0; auto_pad SAME with a stride needs the image's sizes. */
bool layout_read_padding(const op_node *n, size_t axes, const size_t reach[2], const size_t stride[2],
                         size_t pad[4]);

/* Whether a convolution in blocked layout should be done with fewer multiplications. */
bool layout_worth_winograd(const layout *l, const op_node *n, const conv *c);
/* Before anything is lowered. */
MUST_USE status layout_learn_channels(ir_graph *g, error *err);
/* Concat of images whose blocks do not stay whole. */
MUST_USE status layout_join_channels(layout *l, op_node *n, error *err);
/* Split and Slice of channels; Reshape, Transpose and Reshape that shuffle channels. */
MUST_USE status layout_move_channels(layout *l, op_node *n, error *err);
/* Pad with a constant, around the image. */
MUST_USE status layout_pad_pixels(layout *l, op_node *n, error *err);
/* LRN. */
MUST_USE status layout_normalize(layout *l, op_node *n, error *err);
/* Is n a Resize or Upsample, nearest, that repeats every pixel so many times? */
bool layout_reads_repeat(const op_node *n, size_t *high, size_t *wide);
/* Resize and Upsample to a multiple, nearest. */
MUST_USE status layout_repeat_pixels(layout *l, op_node *n, error *err);

#endif

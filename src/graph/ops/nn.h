/* nn.h: what the operators of networks share: elements as f32 or f64, spatial windows, broadcast of leading
 * dimensions, loops over rows.
 *
 * Arithmetic is done in f64 for f64 tensors and in f32 for f32, f16 and bf16 (converted once on the way in
 * and rounded once on the way out). Scratch belongs to the run. */
#ifndef GRAPH_OPS_NN_H
#define GRAPH_OPS_NN_H

#include "graph/op.h"

#define NN_F3          (ELEM_BIT(ELEM_F32) | ELEM_BIT(ELEM_F64) | ELEM_BIT(ELEM_F16))
#define NN_I8          (ELEM_BIT(ELEM_I8) | ELEM_BIT(ELEM_U8))
#define NN_TABLE(name) const op_table ops_##name = {rows, sizeof rows / sizeof *rows}

/* The zeroed state of a node, which mem_free releases; NULL: no memory, and *err says so. */
void *nn_state(op_node *n, size_t bytes, error *err);

/* ---- elements --------------------------------------------------------------------------------------- */

static inline elem real_work(elem type) {
    return type == ELEM_F64 ? ELEM_F64 : ELEM_F32;
}
/* Input i as elements of `work` (F32 or F64): the tensor's own memory if it has them, else a converted copy
 * in scratch. Real types only. Absent input: NULL. */
MUST_USE status real_in(op_run *r, size_t i, elem work, const void **out, error *err);
MUST_USE status real_of(op_run *r, const tensor *t, elem work, const void **out, error *err);
/* Memory for output i as elements of `work`: the output's own or scratch, which real_done converts. *t and
 * *data are NULL if the output is absent; output 0 may not be, unless the second form asks. */
MUST_USE status real_out(op_run *r, size_t i, elem work, tensor **t, void **data, error *err);
MUST_USE status real_out_optional(op_run *r, size_t i, elem work, tensor **t, void **data, error *err);
MUST_USE status nn_need_first(const op_run *r, error *err); /* output 0 is there */
/* t may be NULL; the second form converts f16 in vectors. */
void real_done(const tensor *t, elem work, const void *data);
void real_out_done(op_run *r, const tensor *t, elem work, const void *data);
/* Element i of a real tensor; of integers within 2^53. */
double real_at(const tensor *t, size_t i);
int64_t int_at(const tensor *t, size_t i); /* of an int32 or int64 tensor */

/* ---- shapes ----------------------------------------------------------------------------------------- */

/* Dimensions of input i if its rank is known; an error if that is outside [least, most]. */
MUST_USE status nn_rank(op_shapes *s, size_t i, size_t least, size_t most, const char *what, bool *known,
                        size_t *rank, const dim **dims, error *err);
/* Broadcast of two lists of dimensions, right-aligned. out: the longer length, which is returned in *n. */
MUST_USE status nn_broadcast(op_shapes *s, const dim *a, size_t na, const dim *b, size_t nb, dim *out,
                             size_t *n, error *err);
/* For every element of the broadcast shape `dims`, in order, the offset (in elements) into a tensor of shape
 * from[nf], right-aligned: strides with 0 where it repeats. */
void nn_broadcast_strides(const int64_t *from, size_t nf, size_t rank, int64_t *strides);
static inline int64_t nn_product(const int64_t *dims, size_t n) {
    int64_t p = 1;
    for (size_t i = 0; i < n; i++) p *= dims[i];
    return p;
}

/* ---- spatial windows -------------------------------------------------------------------------------- */

enum { WINDOW_MAX = 3 };
enum window_pad { PAD_NOTSET, PAD_SAME_UPPER, PAD_SAME_LOWER, PAD_VALID };

/* Attributes of convolutions and pools, as the model has them; n 0: none said. Every number is within
 * [0, 2^31], so that sums and products of two stay inside int64. */
typedef struct window {
    size_t n_kernel, n_stride, n_dilation, n_pad; /* lengths said, 0: absent */
    int64_t kernel[WINDOW_MAX], stride[WINDOW_MAX], dilation[WINDOW_MAX];
    int64_t pad[2 * WINDOW_MAX]; /* all begins, then all ends */
    int auto_pad;
    bool ceil;
} window;

/* The window against one input size: always three axes, the leading ones trivial. */
typedef struct geometry {
    int64_t in[WINDOW_MAX], out[WINDOW_MAX], kernel[WINDOW_MAX], stride[WINDOW_MAX], dilation[WINDOW_MAX];
    int64_t pad[WINDOW_MAX];     /* before the first element */
    int64_t pad_end[WINDOW_MAX]; /* after the last */
    int64_t in_size, out_size, kernel_size;
} geometry;

/* Reads kernel_shape, strides, dilations (if the version has them), pads, auto_pad (likewise). */
MUST_USE status window_prepare(op_node *n, window *w, bool kernel_required, bool dilations, bool auto_pad,
                               error *err);
/* The sizes of n spatial axes after the window. kernel: from the attribute or the weights. */
MUST_USE status window_shape(op_shapes *s, const window *w, size_t n, const dim *in, const dim *kernel,
                             dim *out, error *err);
/* The same numbers for a run. n <= WINDOW_MAX. out: the sizes that were inferred. */
void window_geometry(const window *w, size_t n, const int64_t *in, const int64_t *out, const int64_t *kernel,
                     geometry *g);

#endif

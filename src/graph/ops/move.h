/* move.h: moving elements: the one strided copy behind Transpose, Concat, Slice, Expand, Tile, Pad and the
 * like.
 *
 * Elements are bytes of a size (1, 2, 4, 8, 16) and mean nothing here. Strings are moved as their
 * descriptors; strings_own afterwards gives the output bytes of its own. */
#ifndef GRAPH_OPS_MOVE_H
#define GRAPH_OPS_MOVE_H

#include "graph/op.h"

enum { MOVE_MAX_RANK = 2 * TENSOR_MAX_RANK };

/* for all i: to[sum i*to_stride] = from[sum i*from_stride]. Strides in elements; those of `from` may be 0 or
 * negative, those of `to` make every element distinct. */
typedef struct move {
    size_t rank;
    size_t dims[MOVE_MAX_RANK];
    ptrdiff_t to[MOVE_MAX_RANK], from[MOVE_MAX_RANK];
} move;

static inline void move_dim(move *m, int64_t size, ptrdiff_t to, ptrdiff_t from) {
    m->dims[m->rank] = (size_t)size;
    m->to[m->rank] = to;
    m->from[m->rank++] = from;
}

/* Row-major strides of a shape, in elements. */
void move_strides(const int64_t *dims, size_t rank, ptrdiff_t *strides);
/* The copy, split over the pool if it is large. */
void move_run(op_run *r, const move *m, void *to, const void *from, size_t size);
/* The copy on this thread. */
void move_copy(const move *m, void *to, const void *from, size_t size);
/* Sets n elements to one value, split over the pool if they are many. */
void move_fill_run(op_run *r, void *to, const void *element, size_t n, size_t size);
/* The same on this thread. */
void move_fill(void *to, const void *element, size_t n, size_t size);
/* The elements of a string tensor point to bytes elsewhere: they are copied into t's own storage. Other
 * types: nothing. */
MUST_USE status strings_own(tensor *t, error *err);
/* Element i of an int32 or int64 tensor. */
int64_t index_at(const tensor *t, size_t i);
static inline size_t tensor_elem_size(const tensor *t) {
    return elem_describe(t->type)->bytes;
}
/* Product of dims[from, to). */
size_t dims_product(const int64_t *dims, size_t from, size_t to);
/* output 0 gets the elements of input 0 in their order (a view that the executor did not make). */
MUST_USE status run_view(op_run *r, error *err);
/* About nanoseconds for moving so many bytes. */
static inline double move_work(size_t bytes) {
    return (double)bytes * 0.1;
}

#endif

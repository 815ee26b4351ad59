/* qimage.h: operators that passes put into a graph: images of 8-bit integers whose channels lie together,
 * [N, H, W, C] (of one spatial axis: H is 1), and tables of functions. No model can name them: they are in no
 * table that op_find looks through, and their states are made by the passes (mem_alloc, handed to the node).
 *
 * Types, scales and zero points stay what they were, so that operators of elements work on such values as
 * they are. */
#ifndef GRAPH_OPS_QIMAGE_H
#define GRAPH_OPS_QIMAGE_H

#include "graph/op.h"
#include "kernel/qconv.h"

enum { QIMAGE_RANK = 4 };

/* "ToLast", "FromLast": of 8 or 32 bits an element. */
typedef struct qimage_layout {
    size_t channels, rank; /* of the other side */
} qimage_layout;
extern const op_def op_to_last, op_from_last;

/* "QuantizedConv": X, and optionally what is added to the result (`pair`: a is the result). */
typedef struct qimage_conv {
    qconv c; /* sizes of the image are filled in when it runs */
    size_t end_h, end_w;
    qconv_packed packed;
    bool adds;
    qpair pair;
} qimage_conv;
extern const op_def op_qimage_conv;
void qimage_conv_free(void *state);
/* Memory for the packed weights of st->c. */
MUST_USE status qimage_conv_room(qimage_conv *st, error *err);

/* "QuantizedPool"; global: over the whole image. */
typedef struct qimage_pool {
    bool average, global, ceil, count_padding;
    size_t kernel_h, kernel_w, stride_h, stride_w, pad_top, pad_left, end_h, end_w;
    int32_t x_zero, y_zero;
    float factor;
} qimage_pool;
extern const op_def op_qimage_pool;
enum { QIMAGE_POOL_TAPS = 1024 }; /* of a window at most, except of a global one */

/* "Join": channels of the inputs side by side, each through a table of 256 bytes, or as they are. */
enum { QIMAGE_MOST_INPUTS = 256 };
typedef struct qimage_join {
    size_t n_inputs;
    uint8_t (*tables)[256]; /* [n_inputs] */
    bool *moves;            /* [n_inputs]: the table changes something */
} qimage_join;
extern const op_def op_qimage_join;
void qimage_join_free(void *state);

/* "Pick": channel c of the result is channel from[c]. */
typedef struct qimage_pick {
    size_t in_channels, channels;
    uint32_t *from; /* [channels] */
} qimage_pick;
extern const op_def op_qimage_pick;
void qimage_pick_free(void *state);

/* "RepeatPixels": every pixel high times down and wide times across. */
typedef struct qimage_repeat {
    size_t high, wide;
} qimage_repeat;
extern const op_def op_qimage_repeat;

/* "Table": y = table[c][x] with c the index along `axis`, or one table for all (axis SIZE_MAX). X of any
 * shape, 8 bits. */
typedef struct qimage_table {
    size_t axis, n; /* tables */
    elem type;      /* of Y */
    uint8_t *bytes; /* [n, 256] by the bits of X */
} qimage_table;
extern const op_def op_qimage_table;
void qimage_table_free(void *state);

#endif

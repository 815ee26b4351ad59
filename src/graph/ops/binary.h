/* binary.h: functions of two elements, one loop for each function and element type.
 *
 * Integers wrap as two's complement; a division of the smallest integer by -1 gives the smallest integer, its
 * remainder is 0. f16 and bf16 are computed in f32 and rounded once. Loops of float maxima and minima give
 * NaN if either is NaN. `out` may be `a` or `b`. */
#ifndef GRAPH_OPS_BINARY_H
#define GRAPH_OPS_BINARY_H

#include "graph/op.h"

typedef enum binary_op {
    BINARY_ADD,
    BINARY_SUB,
    BINARY_MUL,
    BINARY_DIV, /* integers: toward zero; the divisor is not 0 */
    BINARY_MAX,
    BINARY_MIN,
    BINARY_MOD,  /* sign of the divisor */
    BINARY_FMOD, /* sign of the dividend */
    BINARY_POW,
    BINARY_PRELU, /* a < 0 ? a * b : a */
    BINARY_AND,   /* bitwise; for bool the logical ones */
    BINARY_OR,
    BINARY_XOR,
    BINARY_SHIFT_LEFT,
    BINARY_SHIFT_RIGHT,
    BINARY_EQUAL, /* the last three give bool */
    BINARY_LESS,
    BINARY_LESS_EQUAL,
    BINARY_COUNT
} binary_op;

/* Which operand is one element for the whole run. */
typedef enum binary_form { BINARY_BOTH, BINARY_A_ONE, BINARY_B_ONE } binary_form;

typedef void (*binary_loop)(const void *a, const void *b, void *out, size_t n, binary_form form);

/* NULL: not defined for this type. Strings: EQUAL only. */
binary_loop binary_find(binary_op op, elem type);
/* The same for f16 and bf16, which the loops do not know: `type` says which. */
void binary_apply(binary_op op, elem type, const void *a, const void *b, void *out, size_t n,
                  binary_form form);
bool binary_known(binary_op op, elem type);
/* out = op(a, b), or op(b, a) if `swap`, with broadcasting; axis SIZE_MAX, or where b's first dimension lies
 * in a's (operator sets before 7). */
void binary_run(op_run *r, binary_op op, const tensor *a, const tensor *b, tensor *out, size_t axis,
                bool swap);

#endif

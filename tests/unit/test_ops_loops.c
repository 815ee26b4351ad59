/* test_ops_loops.c: the loop nests that elementwise and moving operators share, against the plainest loops.
 */
#include "base/mem.h"
#include "graph/ops/binary.h"
#include "graph/ops/broadcast.h"
#include "graph/ops/move.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static uint64_t seed = 1;
static size_t below(size_t n) {
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (size_t)(seed >> 33) % n;
}

/* ---- broadcast ---------------------------------------------------------------------------------------- */

typedef struct visit {
    const broadcast *plan;
    size_t n, *at[3], *times;
} visit;

static void note(void *ctx, size_t at, const size_t *in_at, size_t n) {
    visit *v = ctx;
    for (size_t i = 0; i < n; i++) {
        v->times[at + i]++;
        for (size_t k = 0; k < v->n; k++)
            v->at[k][at + i] = in_at[k] + i * v->plan->strides[k][v->plan->rank - 1];
    }
}

/* Every element of the output is visited once, in whatever ranges, and each operand where numpy has it. */
static void broadcast_visits(void **state) {
    (void)state;
    enum { MOST = 4096 };
    static size_t at[3][MOST], times[MOST];
    for (size_t round = 0; round < 400; round++) {
        tensor out = {.rank = (uint32_t)below(5), .count = 1}, in[3];
        for (size_t d = 0; d < out.rank; d++) {
            out.dims[d] = (int64_t)(1 + below(5));
            out.count *= (size_t)out.dims[d];
        }
        const tensor *ins[3];
        for (size_t k = 0; k < 3; k++) {
            in[k] = (tensor){.rank = out.rank ? (uint32_t)below(out.rank + 1) : 0};
            for (size_t d = 0; d < in[k].rank; d++)
                in[k].dims[d] = below(3) ? out.dims[d + out.rank - in[k].rank] : 1;
            ins[k] = &in[k];
        }
        broadcast plan;
        broadcast_plan(&plan, &out, ins, 3);
        visit v = {&plan, 3, {at[0], at[1], at[2]}, times};
        memset(times, 0, sizeof times);
        for (size_t from = 0; from < out.count;) {
            size_t to = from + 1 + below(out.count - from);
            broadcast_walk(&plan, from, to, note, &v);
            from = to;
        }
        for (size_t i = 0; i < out.count; i++) {
            assert_int_equal(times[i], 1);
            for (size_t k = 0; k < 3; k++) {
                size_t expected = 0, stride = 1, rest = i;
                for (size_t d = out.rank; d-- > 0;) {
                    size_t index = rest % (size_t)out.dims[d];
                    rest /= (size_t)out.dims[d];
                    if (d + in[k].rank < out.rank) continue;
                    size_t size = (size_t)in[k].dims[d + in[k].rank - out.rank];
                    if (size > 1) expected += index * stride;
                    stride *= size;
                }
                assert_int_equal(at[k][i], expected);
            }
        }
    }
}

/* ---- move --------------------------------------------------------------------------------------------- */

static void naive(const move *m, size_t d, char *to, const char *from, size_t size) {
    if (d == m->rank) {
        memcpy(to, from, size);
        return;
    }
    for (size_t i = 0; i < m->dims[d]; i++)
        naive(m, d + 1, to + (ptrdiff_t)i * m->to[d] * (ptrdiff_t)size,
              from + (ptrdiff_t)i * m->from[d] * (ptrdiff_t)size, size);
}

/* Permutations, repeated and reversed dimensions, of every element size, within guards on both sides. */
static void moves(void **state) {
    (void)state;
    enum { MOST = 40000, GUARD = 64 };
    static char from[MOST * 16], to[MOST * 16 + 2 * GUARD], expected[MOST * 16 + 2 * GUARD];
    for (size_t i = 0; i < sizeof from; i++) from[i] = (char)below(256);
    for (size_t round = 0; round < 600; round++) {
        size_t rank = 1 + below(4), count = 1, order[4], size = (size_t)1 << below(5), source = 1;
        int64_t dims[4];
        for (size_t d = 0; d < rank; d++) {
            dims[d] = (int64_t)(round % 7 == 0 && d == 0 ? 0 : 1 + below(rank < 3 ? 60 : 12));
            count *= (size_t)dims[d];
            order[d] = d;
        }
        for (size_t d = rank; d > 1; d--) {
            size_t other = below(d), kept = order[d - 1];
            order[d - 1] = order[other];
            order[other] = kept;
        }
        ptrdiff_t strides[4], in_strides[4], offset = 0;
        move_strides(dims, rank, strides);
        for (size_t d = rank; d-- > 0;) { /* the input's dimensions lie in another order */
            in_strides[order[d]] = (ptrdiff_t)source;
            source *= dims[order[d]] ? (size_t)dims[order[d]] : 1;
        }
        move m = {0};
        for (size_t d = 0; d < rank; d++) {
            size_t how = below(6);
            ptrdiff_t stride = how == 0 ? 0 : in_strides[d];
            if (how == 1 && dims[d] > 0) {
                offset += stride * (ptrdiff_t)(dims[d] - 1);
                stride = -stride;
            }
            move_dim(&m, dims[d], strides[d], stride);
        }
        memset(to, 0x55, sizeof to);
        memset(expected, 0x55, sizeof expected);
        assert_true(count <= MOST && source <= MOST);
        move_copy(&m, to + GUARD, from + offset * (ptrdiff_t)size, size);
        naive(&m, 0, expected + GUARD, from + offset * (ptrdiff_t)size, size);
        assert_memory_equal(to, expected, sizeof to);
    }
}

/* ---- strings ------------------------------------------------------------------------------------------ */

static void strings_become_own(void **state) {
    (void)state;
    tensor from, to;
    error err;
    assert_int_equal(tensor_alloc(&from, ELEM_STRING, 1, (int64_t[]){3}, &err), CHURON_OK);
    assert_int_equal(tensor_string_set(&from, 0, "one", 3, &err), CHURON_OK);
    assert_int_equal(tensor_string_set(&from, 2, "three", 5, &err), CHURON_OK);
    assert_int_equal(tensor_alloc(&to, ELEM_STRING, 1, (int64_t[]){3}, &err), CHURON_OK);
    memcpy(to.data, from.data, 3 * sizeof(tensor_string));
    assert_int_equal(strings_own(&to, &err), CHURON_OK);
    tensor_free(&from);
    const tensor_string *s = to.data;
    assert_memory_equal(s[0].data, "one", 3);
    assert_int_equal(s[1].len, 0);
    assert_memory_equal(s[2].data, "three", 5);
    tensor_free(&to);
}

/* ---- pairs -------------------------------------------------------------------------------------------- */

/* In place, and with a scalar on either side, as apart. */
static void pairs_in_place(void **state) {
    (void)state;
    enum { N = 1037 };
    static const elem types[] = {ELEM_F32, ELEM_F16, ELEM_BF16, ELEM_F64, ELEM_I8, ELEM_U64};
    static double x[N], y[N];
    static uint64_t a[N], b[N], apart[N], over[N];
    for (size_t i = 0; i < N; i++) {
        x[i] = (double)below(50);
        y[i] = 1 + (double)below(20);
    }
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        size_t size = elem_describe(types[t])->bytes;
        elem_from_f64(types[t], x, a, N, true);
        elem_from_f64(types[t], y, b, N, true);
        for (int op = BINARY_ADD; op < BINARY_AND; op++) {
            if (!binary_known((binary_op)op, types[t])) continue;
            for (int form = BINARY_BOTH; form <= BINARY_B_ONE; form++) {
                binary_apply((binary_op)op, types[t], a, b, apart, N, (binary_form)form);
                memcpy(over, form == BINARY_A_ONE ? b : a, sizeof over);
                binary_apply((binary_op)op, types[t], form == BINARY_A_ONE ? a : over,
                             form == BINARY_A_ONE ? over : b, over, N, (binary_form)form);
                assert_memory_equal(apart, over, N * size);
            }
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(broadcast_visits),
        cmocka_unit_test(moves),
        cmocka_unit_test(strings_become_own),
        cmocka_unit_test(pairs_in_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

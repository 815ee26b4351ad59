/* distance.c: CDist of com.microsoft, which exports of nearest neighbours and Gaussian processes hold:
 * distances of every row of A to every row of B. They are sums of squared differences in double, so that near
 * rows keep their digits (the way over |a|^2 - 2ab + |b|^2 loses them). */
#include "base/mem.h"
#include "graph/ops/nn.h"
#include "graph/ops/ops.h"

#include <math.h>

typedef struct distance_state {
    int squared;
} distance_state;

static status distance_prepare(op_node *n, error *err) {
    static const char *const metrics[] = {"euclidean", "sqeuclidean", NULL};
    distance_state *st = nn_state(n, sizeof *st, err);
    if (!st) return CHURON_NO_MEMORY;
    return op_attr_choice(n, "metric", metrics, 1, &st->squared, err);
}

static status distance_infer(op_shapes *s, error *err) {
    bool ka, kb;
    size_t rank;
    const dim *a, *b;
    TRY(nn_rank(s, 0, 2, 2, "A", &ka, &rank, &a, err));
    TRY(nn_rank(s, 1, 2, 2, "B", &kb, &rank, &b, err));
    if (ka && kb) TRY(shapes_same(s, a[1], b[1], "columns of A and B", NULL, err));
    return shapes_out(s, 0, 2, (dim[]){ka ? a[0] : dim_fresh(s), kb ? b[0] : dim_fresh(s)}, err);
}

typedef struct distance_job {
    const double *a, *b;
    double *c;
    size_t n, columns;
    bool root;
} distance_job;

static void distance_rows(void *ctx, size_t from, size_t to) {
    const distance_job *j = ctx;
    for (size_t i = from; i < to; i++)
        for (size_t k = 0; k < j->n; k++) {
            const double *a = j->a + i * j->columns, *b = j->b + k * j->columns;
            double sum = 0;
            for (size_t d = 0; d < j->columns; d++) sum += (a[d] - b[d]) * (a[d] - b[d]);
            j->c[i * j->n + k] = j->root ? sqrt(sum) : sum;
        }
}

static status distance_run(op_run *r, error *err) {
    const distance_state *st = run_state(r);
    const tensor *a = run_in(r, 0), *b = run_in(r, 1);
    const void *pa, *pb;
    void *to;
    tensor *c;
    TRY(real_in(r, 0, ELEM_F64, &pa, err));
    TRY(real_in(r, 1, ELEM_F64, &pb, err));
    TRY(real_out(r, 0, ELEM_F64, &c, &to, err));
    distance_job j = {.a = pa,
                      .b = pb,
                      .c = to,
                      .n = (size_t)b->dims[0],
                      .columns = (size_t)a->dims[1],
                      .root = !st->squared};
    run_parallel(r, (size_t)a->dims[0], 0.6 * (double)c->count * (double)j.columns, distance_rows, &j);
    real_out_done(r, c, ELEM_F64, to);
    return CHURON_OK;
}

static const op_def rows[] = {
    {.domain = "com.microsoft",
     .name = "CDist",
     .since = 1,
     .signature = "TT>T",
     .vars = {{'T', ELEM_BIT(ELEM_F32) | ELEM_BIT(ELEM_F64)}},
     .prepare = distance_prepare,
     .release = mem_free,
     .infer = distance_infer,
     .run = distance_run},
};
NN_TABLE(distance);

/* product.c: see product.h. */
#include "graph/ops/product.h"

#include "base/mem.h"

#include <string.h>

void product_free(void *state) {
    product *st = state;
    if (!st) return;
    int_pack_free(&st->q8);
    mem_free(st->b_zero);
    mem_free(st->b_scale);
    mem_free(st->bias);
    mem_free(st);
}

/* ---- weights ---------------------------------------------------------------------------------------- */

static const tensor *source(const op_node *n, const void *state) {
    const product *st = state;
    (void)n;
    return st->source.data ? &st->source : NULL;
}

enum { PIECE_BYTES = 4 << 20 }; /* of weights that are packed before their memory goes */

typedef struct pack_job {
    const float *from;
    float *to;
    size_t k, n;
    size_t k0, p0; /* first row, of all panels; or first panel, of all rows */
} pack_job;

static void pack_across(void *ctx, size_t from, size_t to) {
    const pack_job *j = ctx;
    gemm_pack(j->from, 1, j->k, j->k, j->n, j->p0 + from, j->p0 + to, j->to);
}

/* Rows are read along. */
static void pack_rows(void *ctx, size_t from, size_t to) {
    const pack_job *j = ctx;
    const size_t whole = j->n / GEMM_PANEL, rest = j->n % GEMM_PANEL;
    for (size_t i = j->k0 + from; i < j->k0 + to; i++) {
        const float *row = j->from + i * j->n;
        float *at = j->to + i * GEMM_PANEL;
        for (size_t p = 0; p < whole; p++, row += GEMM_PANEL, at += j->k * GEMM_PANEL)
            memcpy(at, row, GEMM_PANEL * sizeof *at);
        if (rest) {
            memcpy(at, row, rest * sizeof *at);
            memset(at + rest, 0, (GEMM_PANEL - rest) * sizeof *at);
        }
    }
}

static status pack(op_node *n, op_pack *p, error *err) {
    product *st = pack_state(p);
    const size_t floats = gemm_packed_floats(st->k, st->n);
    st->b = pack_memory(p, floats * sizeof(float));
    if (!st->b) return op_error(n, err, CHURON_NO_MEMORY, "no memory for %zu bytes of weights", 4 * floats);
    pack_job j = {.from = st->source.data, .to = st->b, .k = st->k, .n = st->n};
    const size_t each = st->across ? st->k * GEMM_PANEL : st->n,
                 all = st->across ? gemm_panels(st->n) : st->k;
    const size_t step = each * sizeof(float) < PIECE_BYTES ? PIECE_BYTES / (each * sizeof(float)) : 1;
    for (size_t i = 0; i < all; i += step) {
        const size_t m = all - i < step ? all - i : step;
        j.p0 = j.k0 = i;
        if (st->across || m == all) pack_expect(p, st->b + i * each, m * each * sizeof(float));
        pack_parallel(p, m, m * each * sizeof(float), st->across ? pack_across : pack_rows, &j);
        const size_t begin = i * each, end = (i + m) * each < st->k * st->n ? (i + m) * each : st->k * st->n;
        pack_done(p, j.from + begin, (end - begin) * sizeof(float));
    }
    st->source = (tensor){0};
    return CHURON_OK;
}

const op_packing product_packing = {.source = source, .pack = pack};

/* ---- the operator ----------------------------------------------------------------------------------- */

status product_infer(op_shapes *s, error *err) {
    const product *st = shapes_state(s);
    size_t rank;
    const dim *in;
    if (!shapes_in(s, 0, &rank, &in)) {
        shapes_out_unknown(s, 0);
        return CHURON_OK;
    }
    if (rank < 2 || (st->transposed && rank != 2)) {
        return op_error(shapes_node(s), err, CHURON_INVALID, "X: expected a matrix, got rank %zu", rank);
    }
    TRY(shapes_same(s, in[st->transposed ? 0 : rank - 1], (dim)st->k, "inner dimensions of the product", NULL,
                    err));
    dim out[TENSOR_MAX_RANK];
    memcpy(out, in, rank * sizeof *in);
    if (st->transposed) out[0] = in[1];
    out[rank - 1] = (dim)st->n;
    return shapes_out(s, 0, rank, out, err);
}

enum { ROWS = 168, PANELS = 4, EACH = 3 }; /* least of a unit that is shared out; units of a member */
enum { ACTIVATED = 1 << 14 };              /* values that are still near when their function is applied */

typedef struct job {
    const product *st;
    const kernels *k;
    gemm g;
    size_t m, row_units, panel_units, units, scratch_floats;
    float *scratch;
    stop_flag *stop;
} job;

/* Units for so many members. Rows that are read into the kernel's order (`transposed`) are so once a unit. */
static void cut(job *j, size_t members) {
    const size_t panels = gemm_panels(j->g.n), most = (panels + PANELS - 1) / PANELS;
    j->row_units = members > 1 || j->st->activate ? (j->m + ROWS - 1) / ROWS : 1;
    j->panel_units = members > 1 ? (members * EACH + j->row_units - 1) / j->row_units : 1;
    const size_t parts = j->m * panels * GEMM_PANEL / j->row_units / ACTIVATED;
    if (j->st->activate && !j->st->transposed && parts > j->panel_units) j->panel_units = parts;
    if (j->panel_units > most) j->panel_units = most;
    j->units = j->row_units * j->panel_units;
}

static void run_unit(const job *j, size_t unit, float *scratch) {
    const size_t rows = unit / j->panel_units, panels = unit % j->panel_units, all = gemm_panels(j->g.n);
    const size_t m0 = j->m * rows / j->row_units, m1 = j->m * (rows + 1) / j->row_units;
    const size_t p0 = all * panels / j->panel_units, p1 = all * (panels + 1) / j->panel_units;
    gemm_run(j->k, &j->g, m0, m1, p0, p1, scratch);
    if (!j->st->activate) return;
    const size_t from = p0 * GEMM_PANEL, to = p1 * GEMM_PANEL < j->g.n ? p1 * GEMM_PANEL : j->g.n;
    for (size_t i = m0; i < m1; i++) {
        float *y = j->g.c + i * j->g.c_row + from;
        j->k->unary(j->st->function, j->st->p, j->st->q, y, y, to - from);
    }
}

static void member(void *ctx, const pool_member *me) {
    const job *j = ctx;
    size_t from, to;
    pool_split(me, j->units, 1, &from, &to);
    float *scratch = j->scratch + me->index * j->scratch_floats;
    for (size_t i = from; i < to && !stop_now(j->stop); i++) run_unit(j, i, scratch);
}

static status run(op_run *r, error *err) {
    const product *st = run_state(r);
    const tensor *x = run_in(r, 0), *add = run_in(r, 1);
    tensor *y;
    TRY(run_out(r, 0, &y, err));
    if (y->count == 0) return CHURON_OK;
    if (add && add->count != y->count) {
        return run_error(r, err, CHURON_INVALID, "addend: expected %zu elements, got %zu", y->count,
                         add->count);
    }
    job j = {.st = st, .k = run_kernels(r), .m = y->count / st->n, .stop = run_stop(r)};
    j.g = (gemm){.n = st->n,
                 .k = st->k,
                 .a = x->data,
                 .a_row = st->transposed ? 1 : st->k,
                 .a_k = st->transposed ? j.m : 1,
                 .n_runs = 1,
                 .run = st->k,
                 .b = st->b,
                 .c = y->data,
                 .c_row = st->n,
                 .c_panel = GEMM_PANEL,
                 .bias = st->bias,
                 .add = add ? add->data : NULL,
                 .add_row = st->n,
                 .add_panel = GEMM_PANEL,
                 .low = st->low,
                 .high = st->high,
                 .stop = j.stop};
    j.scratch_floats = (gemm_scratch_floats(st->k) + 15) / 16 * 16;
    pool *team = run_pool(r);
    size_t members = (double)j.m * (double)st->n * (double)st->k > 400e3 ? pool_threads(team) : 1;
    cut(&j, members);
    if (j.units < 2) members = 1;
    void *scratch;
    TRY(run_scratch(r, members * j.scratch_floats * sizeof(float), &scratch, err));
    j.scratch = scratch;
    if (members > 1) {
        pool_run(team, member, &j);
    } else {
        member(&j, &(pool_member){.pool = team, .index = 0, .count = 1});
    }
    return CHURON_OK;
}

const op_def op_product = {.domain = "churon",
                           .name = "Product",
                           .since = 1,
                           .signature = "T=T>T",
                           .vars = {{'T', ELEM_BIT(ELEM_F32)}},
                           .release = product_free,
                           .infer = product_infer,
                           .run = run};

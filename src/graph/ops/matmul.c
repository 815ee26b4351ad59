/* matmul.c: MatMul, Gemm and their relatives of com.microsoft: FusedMatMul, FusedGemm, and the f32, f64 and
 * 64-bit integer products behind them. 32-bit and 64-bit integers wrap around. */
#include "graph/ops/matmul.h"

#include "base/mem.h"
#include "graph/ops/ops.h"
#include "graph/ops/unary.h"
#include "kernel/gemm64.h"

#include <string.h>

/* ---- batched products ------------------------------------------------------------------------------- */

typedef struct matmul_state {
    float alpha, beta;
    bool trans_a, trans_b, batch_a, batch_b; /* batch: the first axis moves before the last but one */
    bool is_gemm;
    gemm_act act;
    bool has_behind; /* a function that the product itself does not apply */
    unary_op behind;
    float p0, p1;
    gemm_packed packed; /* constant B of one matrix */
} matmul_state;

static void swap_i64(int64_t *a, int64_t *b) {
    int64_t t = *a;
    *a = *b, *b = t;
}

/* `left`: a vector is a row, else a column. */
matmul_operand matmul_operand_of(const int64_t *dims, size_t rank, bool left, bool trans, bool batch) {
    matmul_operand o = {0};
    int64_t d[TENSOR_MAX_RANK + 1], s[TENSOR_MAX_RANK + 1];
    size_t n = 0;
    if (rank == 1 && left) d[n++] = 1;
    for (size_t i = 0; i < rank; i++) d[n++] = dims[i];
    if (rank == 1 && !left) d[n++] = 1;
    int64_t step = 1;
    for (size_t i = n; i-- > 0;) s[i] = step, step *= d[i];
    if (batch && n > 2) { /* [m, batch…, k] */
        for (size_t i = 0; i + 2 < n; i++) swap_i64(&d[i], &d[i + 1]), swap_i64(&s[i], &s[i + 1]);
    }
    o.rank = n - 2;
    for (size_t i = 0; i + 2 < n; i++) o.dims[i] = d[i], o.strides[i] = s[i];
    o.rows = d[n - 2], o.cols = d[n - 1], o.row_stride = s[n - 2], o.col_stride = s[n - 1];
    if (trans && rank > 1) swap_i64(&o.rows, &o.cols), swap_i64(&o.row_stride, &o.col_stride);
    return o;
}

/* Axes of an matmul_operand at inference: where the batch axes, rows and columns are. */
static void arrange_dims(const dim *dims, size_t rank, bool left, bool trans, bool batch, dim *lead,
                         size_t *n_lead, dim *rows, dim *cols) {
    dim d[TENSOR_MAX_RANK + 1];
    size_t n = 0;
    if (rank == 1 && left) d[n++] = 1;
    for (size_t i = 0; i < rank; i++) d[n++] = dims[i];
    if (rank == 1 && !left) d[n++] = 1;
    if (batch && n > 2)
        for (size_t i = 0; i + 2 < n; i++) swap_i64(&d[i], &d[i + 1]);
    *n_lead = n - 2;
    for (size_t i = 0; i + 2 < n; i++) lead[i] = d[i];
    *rows = d[n - 2], *cols = d[n - 1];
    if (trans && rank > 1) swap_i64(rows, cols);
}

static status infer_with(op_shapes *s, size_t a, size_t b, const matmul_state *st, error *err) {
    bool known_a, known_b;
    size_t ra, rb, na, nb, n;
    const dim *da, *db;
    TRY(nn_rank(s, a, 1, TENSOR_MAX_RANK, "A", &known_a, &ra, &da, err));
    TRY(nn_rank(s, b, 1, TENSOR_MAX_RANK, "B", &known_b, &rb, &db, err));
    if (!known_a || !known_b) {
        shapes_out_unknown(s, 0);
        return CHURON_OK;
    }
    dim lead_a[TENSOR_MAX_RANK], lead_b[TENSOR_MAX_RANK], out[TENSOR_MAX_RANK + 1], rows, inner_a, inner_b,
        cols;
    arrange_dims(da, ra, true, st && st->trans_a, st && st->batch_a, lead_a, &na, &rows, &inner_a);
    arrange_dims(db, rb, false, st && st->trans_b, st && st->batch_b, lead_b, &nb, &inner_b, &cols);
    TRY(shapes_same(s, inner_a, inner_b, "columns of A and rows of B", NULL, err));
    TRY(nn_broadcast(s, lead_a, na, lead_b, nb, out, &n, err));
    if (ra > 1) out[n++] = rows;
    if (rb > 1) out[n++] = cols;
    return shapes_out(s, 0, n, out, err);
}

status matmul_infer_at(op_shapes *s, size_t a, size_t b, error *err) {
    return infer_with(s, a, b, NULL, err);
}

static status matmul_infer(op_shapes *s, error *err) {
    return infer_with(s, 0, 1, shapes_state(s), err);
}

matmul_walk matmul_walk_of(const matmul_operand *a, const matmul_operand *b) {
    matmul_walk w = {.rank = a->rank > b->rank ? a->rank : b->rank, .count = 1};
    for (size_t i = 0; i < w.rank; i++) {
        size_t la = w.rank - a->rank, lb = w.rank - b->rank;
        int64_t x = i < la ? 1 : a->dims[i - la], y = i < lb ? 1 : b->dims[i - lb];
        w.dims[i] = x == 1 ? y : x;
        w.step_a[i] = x == 1 ? 0 : a->strides[i - la];
        w.step_b[i] = y == 1 ? 0 : b->strides[i - lb];
        w.count *= (size_t)w.dims[i];
    }
    return w;
}

void matmul_walk_at(const matmul_walk *w, size_t index, size_t *a, size_t *b) {
    int64_t oa = 0, ob = 0;
    for (size_t i = w->rank; i-- > 0;) {
        int64_t d = (int64_t)(index % (size_t)w->dims[i]);
        index /= (size_t)w->dims[i];
        oa += d * w->step_a[i], ob += d * w->step_b[i];
    }
    *a = (size_t)oa, *b = (size_t)ob;
}

static status product_f32(op_run *r, const matmul_operand *a, const matmul_operand *b, const matmul_walk *w,
                          const float *pa, const float *pb, float *pc, const gemm_packed *ready,
                          const gemm_epilogue *e, error *err) {
    void *memory;
    size_t m = (size_t)a->rows, n = (size_t)b->cols, k = (size_t)a->cols;
    gemm_call call = {.m = m,
                      .n = n,
                      .k = k,
                      .a = pa,
                      .a_row = (size_t)a->row_stride,
                      .a_col = (size_t)a->col_stride,
                      .b = pb,
                      .b_row = (size_t)b->row_stride,
                      .b_col = (size_t)b->col_stride,
                      .packed = ready,
                      .c = pc,
                      .ldc = n};
    if (b->rank == 0 && a->col_stride == 1 && a->row_stride == (int64_t)k) { /* rows of all batches at once */
        call.m = m * w->count;
        return gemm_f32(r, &call, 1, e, err);
    }
    TRY(run_scratch(r, w->count * sizeof(gemm_call), &memory, err));
    gemm_call *calls = memory;
    for (size_t i = 0; i < w->count; i++) {
        size_t oa, ob;
        matmul_walk_at(w, i, &oa, &ob);
        calls[i] = call;
        calls[i].a = pa + oa, calls[i].b = pb + ob, calls[i].c = pc + i * m * n;
    }
    return gemm_f32(r, calls, w->count, e, err);
}

/* Parts of f64 products: tiles of rows, or of columns where rows are few, of all batches in order. */
typedef struct product_job {
    const kernels *kernels;
    stop_flag *stop;
    const matmul_operand *a, *b;
    const matmul_walk *walk;
    const double *pa, *pb;
    double *pc;
    bool by_rows;
    size_t tiles; /* of one product */
} product_job;

static void product_part(void *ctx, size_t from, size_t to) {
    const product_job *j = ctx;
    const size_t m = (size_t)j->a->rows, n = (size_t)j->b->cols, k = (size_t)j->a->cols;
    for (size_t end; from < to && !stop_now(j->stop); from = end) {
        const size_t i = from / j->tiles, next = (i + 1) * j->tiles;
        size_t oa, ob, m0 = 0, m1 = m, n0 = 0, n1 = n;
        end = next < to ? next : to;
        size_t *low = j->by_rows ? &m0 : &n0, *high = j->by_rows ? &m1 : &n1;
        const size_t tile = j->by_rows ? GEMM64_ROWS : GEMM64_PANEL, last = (end - i * j->tiles) * tile;
        *low = (from - i * j->tiles) * tile;
        if (last < *high) *high = last;
        matmul_walk_at(j->walk, i, &oa, &ob);
        gemm_f64(j->kernels, j->stop, m1 - m0, n1 - n0, k, j->pa + oa + m0 * (size_t)j->a->row_stride,
                 (size_t)j->a->row_stride, (size_t)j->a->col_stride,
                 j->pb + ob + n0 * (size_t)j->b->col_stride, (size_t)j->b->row_stride,
                 (size_t)j->b->col_stride, j->pc + i * m * n + m0 * n + n0, n);
    }
}

static void product_f64(op_run *r, const matmul_operand *a, const matmul_operand *b, const matmul_walk *w,
                        const double *pa, const double *pb, double *pc) {
    size_t m = (size_t)a->rows, n = (size_t)b->cols, k = (size_t)a->cols;
    product_job j = {.kernels = run_kernels(r),
                     .stop = run_stop(r),
                     .a = a,
                     .b = b,
                     .walk = w,
                     .pa = pa,
                     .pb = pb,
                     .pc = pc};
    j.by_rows = m > 2 * GEMM64_ROWS || w->count > 1;
    j.tiles = j.by_rows ? (m + GEMM64_ROWS - 1) / GEMM64_ROWS : (n + GEMM64_PANEL - 1) / GEMM64_PANEL;
    run_parallel(r, w->count * j.tiles, (double)(w->count * m) * (double)n * (double)k / 16, product_part,
                 &j);
}

static uint64_t wide_at(const tensor *t, size_t i) {
    switch (t->type) {
    case ELEM_I32: return (uint64_t)((const int32_t *)t->data)[i];
    case ELEM_U32: return ((const uint32_t *)t->data)[i];
    default: return ((const uint64_t *)t->data)[i];
    }
}

static void wide_set(tensor *t, size_t i, uint64_t v) {
    if (t->type == ELEM_I32 || t->type == ELEM_U32)
        ((uint32_t *)t->data)[i] = (uint32_t)v;
    else
        ((uint64_t *)t->data)[i] = v;
}

static void product_int(op_run *r, const matmul_operand *a, const matmul_operand *b, const matmul_walk *w,
                        const tensor *ta, const tensor *tb, tensor *tc) {
    enum { LOOK = 1 << 16 }; /* products between looks at the stop */
    size_t m = (size_t)a->rows, n = (size_t)b->cols, k = (size_t)a->cols, at = 0, work = 0;
    for (size_t batch = 0; batch < w->count; batch++) {
        size_t oa, ob;
        matmul_walk_at(w, batch, &oa, &ob);
        for (size_t i = 0; i < m; i++)
            for (size_t j = 0; j < n; j++, at++) {
                uint64_t sum = 0;
                if ((work += k) >= LOOK) {
                    if (stop_now(run_stop(r))) return;
                    work = 0;
                }
                for (size_t p = 0; p < k; p++)
                    sum += wide_at(ta, oa + i * (size_t)a->row_stride + p * (size_t)a->col_stride) *
                           wide_at(tb, ob + p * (size_t)b->row_stride + j * (size_t)b->col_stride);
                wide_set(tc, at, sum);
            }
    }
}

static status matmul_run(op_run *r, error *err) {
    const matmul_state *st = run_state(r);
    const tensor *a = run_in(r, 0), *b = run_in(r, 1);
    matmul_operand oa = matmul_operand_of(a->dims, a->rank, true, st && st->trans_a, st && st->batch_a);
    matmul_operand ob = matmul_operand_of(b->dims, b->rank, false, st && st->trans_b, st && st->batch_b);
    matmul_walk w = matmul_walk_of(&oa, &ob);
    tensor *c;
    if (!(ELEM_BIT(a->type) & ELEMS_FLOAT)) {
        TRY(run_out(r, 0, &c, err));
        product_int(r, &oa, &ob, &w, a, b, c);
        return CHURON_OK;
    }
    elem work = real_work(a->type);
    const void *pa, *pb;
    void *pc;
    TRY(real_in(r, 0, work, &pa, err));
    TRY(real_in(r, 1, work, &pb, err));
    TRY(real_out(r, 0, work, &c, &pc, err));
    float alpha = st ? st->alpha : 1;
    if (work == ELEM_F64) {
        product_f64(r, &oa, &ob, &w, pa, pb, pc);
        for (size_t i = 0; alpha != 1 && i < c->count; i++) ((double *)pc)[i] *= (double)alpha;
    } else {
        gemm_epilogue e = {.alpha = alpha, .beta = 1};
        const gemm_packed *ready = st && st->packed.memory && work == b->type ? &st->packed : NULL;
        TRY(product_f32(r, &oa, &ob, &w, pa, pb, pc, ready, alpha == 1 ? NULL : &e, err));
    }
    real_out_done(r, c, work, pc);
    return CHURON_OK;
}

static void matmul_release(void *state) {
    matmul_state *st = state;
    if (st) gemm_pack_free(&st->packed);
    mem_free(st);
}

static const tensor *matmul_source(const op_node *n, const void *state) {
    const matmul_state *st = state;
    const tensor *b = op_constant(n, 1);
    return st && !st->packed.memory && b && b->type == ELEM_F32 && b->rank == 2 ? b : NULL;
}

static status matmul_pack(op_node *n, op_pack *p, error *err) {
    matmul_state *st = pack_state(p);
    const tensor *b = op_constant(n, 1);
    const matmul_operand o = matmul_operand_of(b->dims, 2, false, st->trans_b, false);
    return gemm_pack_create(&st->packed, b->data, (size_t)o.rows, (size_t)o.cols, (size_t)o.row_stride,
                            (size_t)o.col_stride, err);
}

static const op_packing matmul_packing = {.source = matmul_source, .pack = matmul_pack};

static status matmul_keep(op_node *n, matmul_state local, error *err) {
    matmul_state *st = mem_alloc(sizeof *st);
    if (!st) return error_no_memory(err, "state of a product", sizeof *st);
    *st = local;
    op_set_state(n, st);
    op_set_packing(n, &matmul_packing);
    return CHURON_OK;
}

static status matmul_prepare(op_node *n, error *err) {
    return matmul_keep(n, (matmul_state){.alpha = 1, .beta = 1}, err);
}

static status fused_matmul_prepare(op_node *n, error *err) {
    matmul_state st = {.beta = 1};
    TRY(op_attr_float(n, "alpha", 1, &st.alpha, err));
    TRY(op_attr_bool(n, "transA", false, &st.trans_a, err));
    TRY(op_attr_bool(n, "transB", false, &st.trans_b, err));
    TRY(op_attr_bool(n, "transBatchA", false, &st.batch_a, err));
    TRY(op_attr_bool(n, "transBatchB", false, &st.batch_b, err));
    return matmul_keep(n, st, err);
}

/* ---- Gemm ------------------------------------------------------------------------------------------- */

static status gemm_prepare(op_node *n, error *err) {
    matmul_state st = {.is_gemm = true};
    TRY(op_attr_float(n, "alpha", 1, &st.alpha, err));
    TRY(op_attr_float(n, "beta", 1, &st.beta, err));
    TRY(op_attr_bool(n, "transA", false, &st.trans_a, err));
    TRY(op_attr_bool(n, "transB", false, &st.trans_b, err));
    if (op_version(n) < 7) op_attr_ignore(n, "broadcast"); /* equal shapes broadcast to themselves */
    return matmul_keep(n, st, err);
}

static status fused_gemm_prepare(op_node *n, error *err) {
    static const char *const names[] = {
        "",    "Relu", "Sigmoid",  "Tanh",     "LeakyRelu",       "Clip", "HardSigmoid",
        "Elu", "Selu", "Softplus", "Softsign", "ThresholdedRelu", NULL};
    static const unary_op behind[] = {FUNC_ELU, FUNC_SELU, FUNC_SOFTPLUS, FUNC_SOFTSIGN,
                                      FUNC_THRESHOLDED_RELU};
    matmul_state st = {.is_gemm = true};
    int act;
    TRY(op_attr_float(n, "alpha", 1, &st.alpha, err));
    TRY(op_attr_float(n, "beta", 1, &st.beta, err));
    TRY(op_attr_bool(n, "transA", false, &st.trans_a, err));
    TRY(op_attr_bool(n, "transB", false, &st.trans_b, err));
    TRY(op_attr_choice(n, "activation", names, 0, &act, err));
    st.act = act <= GEMM_HARD_SIGMOID ? (gemm_act)act : GEMM_NONE;
    if (act > GEMM_HARD_SIGMOID) st.has_behind = true, st.behind = behind[act - GEMM_HARD_SIGMOID - 1];
    const bool hard = st.act == GEMM_HARD_SIGMOID, selu = st.has_behind && st.behind == FUNC_SELU;
    const float alpha = hard ? 0.2F : selu ? 1.6732632F : st.has_behind ? 1 : 0.01F;
    TRY(op_attr_float(n, "activation_alpha", alpha, &st.p0, err));
    TRY(op_attr_float(n, "activation_beta", hard ? 0.5F : 0, &st.p1, err));
    if (selu) TRY(op_attr_float(n, "activation_gamma", 1.0507009F, &st.p1, err));
    op_attr_ignore(n, "activation_gamma");
    return matmul_keep(n, st, err);
}

static status gemm_infer(op_shapes *s, error *err) {
    const matmul_state *st = shapes_state(s);
    bool known_a, known_b, known_c = false;
    size_t ra, rb, rc = 0;
    const dim *a, *b, *c = NULL;
    TRY(nn_rank(s, 0, 2, 2, "A", &known_a, &ra, &a, err));
    TRY(nn_rank(s, 1, 2, 2, "B", &known_b, &rb, &b, err));
    dim m = known_a ? a[st->trans_a] : dim_fresh(s), n = known_b ? b[!st->trans_b] : dim_fresh(s);
    if (known_a && known_b)
        TRY(shapes_same(s, a[!st->trans_a], b[st->trans_b], "columns of A and rows of B", NULL, err));
    if (op_has_input(shapes_node(s), 2)) TRY(nn_rank(s, 2, 0, 2, "C", &known_c, &rc, &c, err));
    for (size_t i = 0; i < rc; i++) {
        dim want = rc - i == 1 ? n : m;
        if (c[i] != 1) TRY(shapes_same(s, c[i], want, "C and the product", NULL, err));
    }
    return shapes_out(s, 0, 2, (dim[]){m, n}, err);
}

/* A vector C of m rows, as models before version 7 hold it without `broadcast`, is no case: it is [m,1]. */
static void bias_strides(const tensor *c, size_t *row, size_t *col) {
    int64_t strides[2];
    nn_broadcast_strides(c->dims, c->rank, 2, strides);
    *row = (size_t)strides[0], *col = (size_t)strides[1];
}

static void gemm_run_int(op_run *r, const matmul_state *st, const matmul_operand *oa,
                         const matmul_operand *ob, const tensor *a, const tensor *b, const tensor *c,
                         tensor *y) {
    matmul_walk w = {.count = 1};
    product_int(r, oa, ob, &w, a, b, y);
    size_t row = 0, col = 0, cols = (size_t)ob->cols;
    if (c) bias_strides(c, &row, &col);
    for (size_t i = 0; i < y->count; i++) {
        uint64_t v = wide_at(y, i), add = c ? wide_at(c, i / cols * row + i % cols * col) : 0;
        if (st->alpha != 1) v = (uint64_t)(int64_t)((double)st->alpha * (double)(int64_t)v);
        if (st->beta != 1) add = (uint64_t)(int64_t)((double)st->beta * (double)(int64_t)add);
        wide_set(y, i, v + add);
    }
}

static status gemm_run(op_run *r, error *err) {
    const matmul_state *st = run_state(r);
    const tensor *a = run_in(r, 0), *b = run_in(r, 1), *c = run_in(r, 2);
    matmul_operand oa = matmul_operand_of(a->dims, 2, true, st->trans_a, false);
    matmul_operand ob = matmul_operand_of(b->dims, 2, false, st->trans_b, false);
    tensor *y;
    if (!(ELEM_BIT(a->type) & ELEMS_FLOAT)) {
        TRY(run_out(r, 0, &y, err));
        gemm_run_int(r, st, &oa, &ob, a, b, c, y);
        return CHURON_OK;
    }
    elem work = real_work(a->type);
    const void *pa, *pb, *pc;
    void *py;
    TRY(real_in(r, 0, work, &pa, err));
    TRY(real_in(r, 1, work, &pb, err));
    TRY(real_in(r, 2, work, &pc, err));
    TRY(real_out(r, 0, work, &y, &py, err));
    size_t row = 0, col = 0;
    if (c) bias_strides(c, &row, &col);
    matmul_walk w = {.count = 1};
    if (work == ELEM_F64) {
        double *d = py;
        const double *bias = pc;
        size_t n = (size_t)ob.cols;
        product_f64(r, &oa, &ob, &w, pa, pb, d);
        for (size_t i = 0; i < y->count; i++)
            d[i] = (double)st->alpha * d[i] + (bias ? (double)st->beta * bias[i / n * row + i % n * col] : 0);
    } else {
        gemm_epilogue e = {.alpha = st->alpha,
                           .beta = st->beta,
                           .bias = pc,
                           .bias_row = row,
                           .bias_col = col,
                           .act = st->act,
                           .p0 = st->p0,
                           .p1 = st->p1};
        const gemm_packed *ready = st->packed.memory && work == b->type ? &st->packed : NULL;
        TRY(product_f32(r, &oa, &ob, &w, pa, pb, py, ready, &e, err));
    }
    if (st->has_behind) unary_apply(run_kernels(r), st->behind, work, py, py, y->count, st->p0, st->p1);
    real_out_done(r, y, work, py);
    return CHURON_OK;
}

/* ---- rows ------------------------------------------------------------------------------------------- */

#define WIDE (ELEM_BIT(ELEM_I32) | ELEM_BIT(ELEM_I64) | ELEM_BIT(ELEM_U32) | ELEM_BIT(ELEM_U64))
#define MATMUL(first, last, types)                                                                           \
    {                                                                                                        \
        .domain = "", .name = "MatMul", .since = first, .until = last, .signature = "TT>T",                  \
        .vars = {{'T', types}}, .prepare = matmul_prepare, .release = matmul_release, .infer = matmul_infer, \
        .run = matmul_run                                                                                    \
    }
#define GEMM(first, last, sign, types)                                                                       \
    {                                                                                                        \
        .domain = "", .name = "Gemm", .since = first, .until = last, .signature = sign,                      \
        .vars = {{'T', types}}, .prepare = gemm_prepare, .release = matmul_release, .infer = gemm_infer,     \
        .run = gemm_run                                                                                      \
    }

#define FUSED_MATMUL(op)                                                                                     \
    {                                                                                                        \
        .domain = "com.microsoft", .name = op, .since = 1, .signature = "TT>T",                              \
        .vars = {{'T', ELEMS_FLOAT}}, .prepare = fused_matmul_prepare, .release = matmul_release,            \
        .infer = matmul_infer, .run = matmul_run                                                             \
    }

static const op_def rows[] = {
    MATMUL(1, 8, NN_F3),
    MATMUL(9, 12, NN_F3 | WIDE),
    MATMUL(13, 0, ELEMS_FLOAT | WIDE),
    GEMM(1, 8, "TTT>T", NN_F3),
    GEMM(9, 10, "TTT>T", NN_F3 | WIDE),
    GEMM(11, 12, "TT=T>T", NN_F3 | WIDE),
    GEMM(13, 0, "TT=T>T", ELEMS_FLOAT | WIDE),
    FUSED_MATMUL("FusedMatMul"),
    FUSED_MATMUL("TransposeMatMul"), /* its older name */
    {.domain = "com.microsoft",
     .name = "FusedGemm",
     .since = 1,
     .signature = "TT=T>T",
     .vars = {{'T', ELEM_BIT(ELEM_F32) | ELEM_BIT(ELEM_F16)}},
     .prepare = fused_gemm_prepare,
     .release = matmul_release,
     .infer = gemm_infer,
     .run = gemm_run},
};
NN_TABLE(matmul);

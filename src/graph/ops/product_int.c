/* product_int.c: "QuantizedProduct" of product.h. */
#include "graph/ops/product.h"

#include "graph/ops/quant.h"

typedef struct epilogue {
    const product *st;
    const kernels *k;
    float *y;
} epilogue;

static void activate(void *ctx, size_t m0, size_t m1, size_t j0, size_t j1) {
    const epilogue *e = ctx;
    for (size_t i = m0; i < m1; i++) {
        float *y = e->y + i * e->st->n + j0;
        e->k->unary(e->st->function, e->st->p, e->st->q, y, y, j1 - j0);
    }
}

/* X as rows of uint8 that may be read to a multiple of four values. */
static status describe_rows(op_run *r, const product *st, const tensor *x, size_t m, qgemm *g, error *err) {
    const bool is_signed = x->type == ELEM_I8;
    float scale;
    int32_t zero;
    void *memory;
    TRY(quant_scalar(r, 1, 2, "scale and zero point of X", &scale, &zero, err));
    TRY(run_scratch(r, m * (2 * sizeof(int32_t) + sizeof(float)), &memory, err));
    int32_t *zeros = memory, *rest = zeros + m;
    float *scales = (float *)(rest + m);
    for (size_t i = 0; i < m; i++) {
        zeros[i] = zero + (is_signed ? 128 : 0);
        scales[i] = scale;
    }
    g->a = x->data;
    g->a_row = qgemm_padded(st->k);
    if (is_signed || st->k % QGEMM_QUAD != 0) {
        TRY(run_scratch(r, m * g->a_row, &memory, err));
        qgemm_rows(x->data, is_signed, st->k, m, st->k, memory);
        g->a = memory;
    }
    if (g->b_zero) qgemm_rest(g->a, g->a_row, m, st->k, zeros, rest);
    g->a_zero = zeros;
    g->a_rest = rest;
    g->a_scale = scales;
    return CHURON_OK;
}

static status run(op_run *r, error *err) {
    const product *st = run_state(r);
    const tensor *x = run_in(r, 0), *add = run_in(r, 3);
    tensor *y;
    TRY(run_out(r, 0, &y, err));
    if (y->count == 0) return CHURON_OK;
    if (add && add->count != y->count) {
        return run_error(r, err, CHURON_INVALID, "addend: expected %zu elements, got %zu", y->count,
                         add->count);
    }
    const size_t m = y->count / st->n;
    qgemm g = {.n = st->n,
               .k = st->k,
               .b = st->q8.b,
               .b_sums = st->q8.sums,
               .b_zero = st->b_zero,
               .y = y->data,
               .c_row = st->n,
               .b_scale = st->b_scale,
               .bias = st->bias,
               .add = add ? add->data : NULL,
               .add_row = st->n,
               .low = st->low,
               .high = st->high};
    TRY(describe_rows(r, st, x, m, &g, err));
    epilogue e = {.st = st, .k = run_kernels(r), .y = y->data};
    gemm_int_share(r, &g, m, st->activate ? activate : NULL, &e);
    return CHURON_OK;
}

const op_def op_product_int = {.domain = "churon",
                               .name = "QuantizedProduct",
                               .since = 1,
                               .signature = "UfU=f>f",
                               .vars = {{'U', NN_I8}},
                               .release = product_free,
                               .infer = product_infer,
                               .run = run};

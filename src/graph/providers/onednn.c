/* onednn.c: plans: see onednn_call.h. */
#include "base/fp.h"
#include "base/mem.h"
#include "graph/providers/onednn_call.h"

#include <math.h>
#include <omp.h>
#include <string.h>

status onednn_claim(rewriter *w, op_node *n, size_t threads, error *err) {
    if (node_is(n, "Conv")) return onednn_claim_conv(w, n, threads, err);
    if (node_is(n, "MatMul") || node_is(n, "Gemm")) return onednn_claim_matmul(w, n, threads, err);
    return CHURON_OK;
}

status onednn_check(dnnl_status_t got, const char *what, error *err) {
    static const char *const words[] = {
        "success",       "out of memory", "invalid arguments", "not supported by it",
        "iterator ends", "runtime error", "not required"};
    if (got == dnnl_success) return CHURON_OK;
    const size_t at = (size_t)got;
    return error_set(err, got == dnnl_out_of_memory ? CHURON_NO_MEMORY : CHURON_INTERNAL, "oneDNN: %s: %s",
                     what, at < sizeof words / sizeof *words ? words[at] : "unknown status");
}

status onednn_dense(dnnl_memory_desc_t *m, size_t rank, const int64_t *dims, const int64_t *strides,
                    error *err) {
    dnnl_dims_t sizes = {0}, steps = {0};
    int64_t step = 1;
    for (size_t i = rank; i-- > 0;) {
        sizes[i] = dims[i];
        steps[i] = strides ? strides[i] : step;
        step *= dims[i];
    }
    return onednn_check(dnnl_memory_desc_init_by_strides(m, (int)rank, sizes, dnnl_f32, steps), "memory",
                        err);
}

status onednn_any(dnnl_memory_desc_t *m, size_t rank, const int64_t *dims, error *err) {
    dnnl_dims_t sizes = {0};
    for (size_t i = 0; i < rank; i++) sizes[i] = dims[i];
    return onednn_check(dnnl_memory_desc_init_by_tag(m, (int)rank, sizes, dnnl_f32, dnnl_format_tag_any),
                        "memory", err);
}

/* ---- threads ---------------------------------------------------------------------------------------- */

/* OpenMP's number of threads is the calling thread's own setting. Its workers take over the floating-point
 * environment of the thread that starts them. */
typedef struct setting {
    int threads;
    fp_env env;
} setting;

static setting enter(size_t threads) {
    const setting was = {omp_get_max_threads(), fp_enter(FP_FLUSH_SUBNORMALS)};
    omp_set_num_threads((int)threads);
    return was;
}

static void leave(const setting *was) {
    omp_set_num_threads(was->threads);
    fp_leave(&was->env);
}

/* ---- executing -------------------------------------------------------------------------------------- */

typedef struct operand {
    int what; /* DNNL_ARG_* */
    const dnnl_memory_desc_t *form;
    void *data;
} operand;

enum { MOST_OPERANDS = 5 };

static status execute(dnnl_engine_t engine, dnnl_primitive_t primitive, const operand *operands, size_t n,
                      error *err) {
    dnnl_exec_arg_t args[MOST_OPERANDS];
    dnnl_stream_t stream = NULL;
    size_t made = 0;
    status st = onednn_check(dnnl_stream_create(&stream, engine, dnnl_stream_default_flags), "stream", err);
    for (; made < n && st == CHURON_OK; made += st == CHURON_OK) {
        args[made].arg = operands[made].what;
        st = onednn_check(
            dnnl_memory_create(&args[made].memory, operands[made].form, engine, operands[made].data),
            "memory", err);
    }
    if (st == CHURON_OK)
        st = onednn_check(dnnl_primitive_execute(primitive, stream, (int)n, args), "run", err);
    if (st == CHURON_OK) st = onednn_check(dnnl_stream_wait(stream), "run", err);
    while (made > 0) (void)dnnl_memory_destroy(args[--made].memory);
    if (stream) (void)dnnl_stream_destroy(stream);
    return st;
}

static status reorder(dnnl_engine_t engine, dnnl_primitive_t primitive, const dnnl_memory_desc_t *from_form,
                      const void *from, const dnnl_memory_desc_t *to_form, void *to, void *scratch,
                      error *err) {
    dnnl_memory_desc_t room;
    const_dnnl_primitive_desc_t d;
    TRY(onednn_check(dnnl_primitive_get_primitive_desc(primitive, &d), "reorder", err));
    room = *dnnl_primitive_desc_query_md(d, dnnl_query_scratchpad_md, 0);
    const operand operands[] = {{DNNL_ARG_FROM, from_form, (void *)(uintptr_t)from},
                                {DNNL_ARG_TO, to_form, to},
                                {DNNL_ARG_SCRATCHPAD, &room, scratch}};
    return execute(engine, primitive, operands, 3, err);
}

/* ---- plans ------------------------------------------------------------------------------------------ */

static void plan_free(onednn_plan *p) {
    if (!p) return;
    if (p->product) (void)dnnl_primitive_destroy(p->product);
    if (p->x_reorder) (void)dnnl_primitive_destroy(p->x_reorder);
    if (p->y_reorder) (void)dnnl_primitive_destroy(p->y_reorder);
    if (p->owns_weights) mem_free(p->weights);
    mem_free(p);
}

static status make_reorder(onednn_plan *p, dnnl_engine_t engine, const_dnnl_primitive_attr_t attr,
                           const dnnl_memory_desc_t *from, const dnnl_memory_desc_t *to,
                           dnnl_primitive_t *out, error *err) {
    dnnl_primitive_desc_t d;
    *out = NULL;
    if (dnnl_memory_desc_equal(from, to)) return CHURON_OK;
    TRY(onednn_check(dnnl_reorder_primitive_desc_create(&d, from, engine, to, engine, attr), "reorder", err));
    const size_t room =
        dnnl_memory_desc_get_size(dnnl_primitive_desc_query_md(d, dnnl_query_scratchpad_md, 0));
    if (room > p->scratch_bytes) p->scratch_bytes = room;
    const status st = onednn_check(dnnl_primitive_create(out, d), "reorder", err);
    (void)dnnl_primitive_desc_destroy(d);
    return st;
}

/* Weights in the plan's order: those of an older plan if it has the same one. */
static status take_weights(const onednn_product *o, onednn_plan *p, const_dnnl_primitive_attr_t attr,
                           error *err) {
    for (size_t i = 0; i < o->n_plans; i++) {
        if (!dnnl_memory_desc_equal(&o->plans[i]->weights_form, &p->weights_form)) continue;
        p->weights = o->plans[i]->weights;
        return CHURON_OK;
    }
    dnnl_primitive_t primitive;
    TRY(make_reorder(p, o->engine, attr, &o->weights_dense, &p->weights_form, &primitive, err));
    p->weights_bytes = dnnl_memory_desc_get_size(&p->weights_form);
    p->weights = mem_aligned(64, p->weights_bytes);
    p->owns_weights = p->weights != NULL;
    void *scratch = mem_aligned(64, p->scratch_bytes + 64);
    status st = p->weights && scratch ? CHURON_OK : ir_no_memory(err);
    if (st == CHURON_OK && primitive) {
        st = reorder(o->engine, primitive, &o->weights_dense, o->weights, &p->weights_form, p->weights,
                     scratch, err);
    } else if (st == CHURON_OK) {
        memcpy(p->weights, o->weights, p->weights_bytes);
    }
    mem_free(scratch);
    if (primitive) (void)dnnl_primitive_destroy(primitive);
    return st;
}

static status plan_fill(const onednn_product *o, const onednn_call *c, const_dnnl_primitive_desc_t d,
                        const_dnnl_primitive_attr_t attr, onednn_plan *p, error *err) {
    p->x = *dnnl_primitive_desc_query_md(d, dnnl_query_src_md, 0);
    p->y = *dnnl_primitive_desc_query_md(d, dnnl_query_dst_md, 0);
    p->weights_form = *dnnl_primitive_desc_query_md(d, dnnl_query_weights_md, 0);
    p->scratch_bytes =
        dnnl_memory_desc_get_size(dnnl_primitive_desc_query_md(d, dnnl_query_scratchpad_md, 0));
    p->x_dense = c->x;
    p->y_dense = c->y;
    TRY(make_reorder(p, o->engine, attr, &c->x, &p->x, &p->x_reorder, err));
    TRY(make_reorder(p, o->engine, attr, &p->y, &c->y, &p->y_reorder, err));
    p->x_bytes = p->x_reorder ? dnnl_memory_desc_get_size(&p->x) : 0;
    p->y_bytes = p->y_reorder ? dnnl_memory_desc_get_size(&p->y) : 0;
    TRY(onednn_check(dnnl_primitive_create(&p->product, d), "product", err));
    return take_weights(o, p, attr, err);
}

/* What is said of the product beside its operands; of reorders only where scratch comes from. */
static status say(dnnl_primitive_attr_t *attr, const onednn_product *o, error *err) {
    dnnl_post_ops_t ops = NULL;
    TRY(onednn_check(dnnl_primitive_attr_create(attr), "attributes", err));
    /* Scratch is the run's: a primitive is used by any number of sessions at once. */
    TRY(onednn_check(dnnl_primitive_attr_set_scratchpad_mode(*attr, dnnl_scratchpad_mode_user), "attributes",
                     err));
    if (!o || (isinf(o->low) && isinf(o->high))) return CHURON_OK;
    const bool relu = o->low == 0.0f && isinf(o->high);
    status st = onednn_check(dnnl_post_ops_create(&ops), "attributes", err);
    if (st == CHURON_OK)
        st =
            onednn_check(dnnl_post_ops_append_eltwise(ops, 1.0f, relu ? dnnl_eltwise_relu : dnnl_eltwise_clip,
                                                      relu ? 0.0f : o->low, relu ? 0.0f : o->high),
                         "attributes", err);
    if (st == CHURON_OK) st = onednn_check(dnnl_primitive_attr_set_post_ops(*attr, ops), "attributes", err);
    if (ops) (void)dnnl_post_ops_destroy(ops);
    return st;
}

static status plan_make(const onednn_product *o, const onednn_call *c, onednn_plan **out, error *err) {
    dnnl_primitive_attr_t attr = NULL, plain = NULL;
    dnnl_primitive_desc_t d = NULL;
    onednn_plan *p = mem_calloc(1, sizeof *p);
    *out = NULL;
    if (!p) return ir_no_memory(err);
    memcpy(p->key, c->key, sizeof p->key);
    p->threads = c->threads;
    status st = say(&attr, o, err);
    if (st == CHURON_OK) st = say(&plain, NULL, err);
    if (st == CHURON_OK)
        st = onednn_check(dnnl_primitive_desc_create(&d, &c->operation, attr, o->engine, NULL), "product",
                          err);
    if (st == CHURON_OK) st = plan_fill(o, c, d, plain, p, err);
    if (d) (void)dnnl_primitive_desc_destroy(d);
    if (attr) (void)dnnl_primitive_attr_destroy(attr);
    if (plain) (void)dnnl_primitive_attr_destroy(plain);
    if (st != CHURON_OK) {
        plan_free(p);
        return st;
    }
    *out = p;
    return CHURON_OK;
}

/* *kept: it is in the list; else the caller frees it. */
static status find_plan(onednn_product *o, const onednn_call *c, onednn_plan **out, bool *kept, error *err) {
    *kept = true;
    *out = NULL;
    status st = CHURON_OK;
    pthread_mutex_lock(&o->lock);
    for (size_t i = 0; i < o->n_plans && !*out; i++) {
        onednn_plan *p = o->plans[i];
        if (p->threads == c->threads && memcmp(p->key, c->key, sizeof p->key) == 0) *out = p;
    }
    if (!*out) {
        st = plan_make(o, c, out, err);
        *kept = st == CHURON_OK && o->n_plans < ONEDNN_PLANS;
        if (*kept) o->plans[o->n_plans++] = *out;
    }
    pthread_mutex_unlock(&o->lock);
    return st;
}

status onednn_prepare(onednn_product *o, const onednn_call *c, error *err) {
    onednn_plan *p;
    bool kept;
    const setting was = enter(c->threads);
    const status st = find_plan(o, c, &p, &kept, err);
    leave(&was);
    if (st == CHURON_OK && !kept) plan_free(p);
    return st;
}

static status run_plan(op_run *r, const onednn_product *o, const onednn_plan *p, const float *x, float *y,
                       error *err) {
    void *x_form = (void *)(uintptr_t)x, *y_form = y, *scratch;
    dnnl_memory_desc_t room;
    const_dnnl_primitive_desc_t d;
    if (p->x_reorder) TRY(run_scratch(r, p->x_bytes, &x_form, err));
    if (p->y_reorder) TRY(run_scratch(r, p->y_bytes, &y_form, err));
    TRY(run_scratch(r, p->scratch_bytes + 64, &scratch, err));
    if (p->x_reorder) TRY(reorder(o->engine, p->x_reorder, &p->x_dense, x, &p->x, x_form, scratch, err));
    TRY(onednn_check(dnnl_primitive_get_primitive_desc(p->product, &d), "product", err));
    room = *dnnl_primitive_desc_query_md(d, dnnl_query_scratchpad_md, 0);
    const operand operands[] = {{DNNL_ARG_SRC, &p->x, x_form},
                                {DNNL_ARG_WEIGHTS, &p->weights_form, p->weights},
                                {DNNL_ARG_DST, &p->y, y_form},
                                {DNNL_ARG_SCRATCHPAD, &room, scratch},
                                {DNNL_ARG_BIAS, &o->bias_form, o->bias}};
    TRY(execute(o->engine, p->product, operands, o->bias ? 5 : 4, err));
    return p->y_reorder ? reorder(o->engine, p->y_reorder, &p->y, y_form, &p->y_dense, y, scratch, err)
                        : CHURON_OK;
}

status onednn_execute(op_run *r, onednn_product *o, const onednn_call *c, const float *x, float *y,
                      error *err) {
    onednn_plan *p;
    bool kept;
    const setting was = enter(c->threads);
    status st = find_plan(o, c, &p, &kept, err);
    if (st == CHURON_OK) st = run_plan(r, o, p, x, y, err);
    leave(&was);
    if (p && !kept) plan_free(p);
    return st;
}

/* ---- products --------------------------------------------------------------------------------------- */

status onednn_product_begin(onednn_product *o, const float *bias, size_t n, bool row, error *err) {
    const int64_t dims[] = {1, (int64_t)n};
    o->low = -INFINITY;
    o->high = INFINITY;
    if (pthread_mutex_init(&o->lock, NULL) != 0) return ir_no_memory(err);
    o->has_lock = true;
    TRY(onednn_check(dnnl_engine_create(&o->engine, dnnl_cpu, 0), "engine", err));
    if (!bias) return CHURON_OK;
    TRY(onednn_dense(&o->bias_form, row ? 2 : 1, row ? dims : dims + 1, NULL, err));
    o->bias = mem_aligned(64, n * sizeof(float));
    if (!o->bias) return ir_no_memory(err);
    memcpy(o->bias, bias, n * sizeof(float));
    return CHURON_OK;
}

void onednn_product_end(onednn_product *o) {
    for (size_t i = 0; i < o->n_plans; i++) plan_free(o->plans[i]);
    if (o->engine) (void)dnnl_engine_destroy(o->engine);
    if (o->has_lock) pthread_mutex_destroy(&o->lock);
    mem_free(o->scaled);
    mem_free(o->bias);
}

ir_value *onednn_take_limits(rewriter *w, const op_node *n, onednn_product *p) {
    ir_value *y = n->outputs[0];
    op_node *next = rewrite_only_reader(w, y);
    node_function f;
    if (!next || next->inputs[0] != y || !node_reads_function(next, &f) || !f.limits) return y;
    p->low = f.low;
    p->high = f.high;
    rewrite_remove(w, next);
    return next->outputs[0];
}

size_t onednn_packed_bytes(const op_node *n) {
    onednn_product *o = n->state;
    size_t bytes = 0;
    pthread_mutex_lock(&o->lock);
    for (size_t i = 0; i < o->n_plans; i++)
        bytes += o->plans[i]->owns_weights ? o->plans[i]->weights_bytes : 0;
    pthread_mutex_unlock(&o->lock);
    return bytes;
}

double onednn_operations(const op_node *n, const tensor *y) {
    return ((const onednn_product *)n->state)->operations * (double)y->count;
}

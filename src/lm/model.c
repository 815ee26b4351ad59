/* model.c: see model.h.
 *
 * Every tensor the decoder needs is named in one place, visit_model, which runs twice: once to check shapes
 * and add up sizes, once to pack. A tensor of the file that nobody asked for is refused by name: it would
 * belong to something that this decoder does not compute. */
#include "lm/model.h"

#include "base/mem.h"

#include <stdio.h>
#include <string.h>

typedef struct loader {
    const gguf *g;
    lm_model *m;
    pool *p;
    error *err;
    bool packing;   /* second visit */
    size_t at;      /* bytes used of m->weights */
    bool *used;     /* [n_tensors] */
    uint32_t layer; /* named by visit_layer for the messages */
} loader;

static size_t aligned(size_t n) {
    return (n + 63) & ~(size_t)63;
}

static void mark_used(loader *l, const gguf_tensor *t) {
    for (size_t i = 0; i < gguf_n_tensors(l->g); i++) {
        if (gguf_tensor_at(l->g, i) == t) l->used[i] = true;
    }
}

static status find(loader *l, const char *name, uint64_t cols, uint64_t rows, bool required,
                   const gguf_tensor **out) {
    const gguf_tensor *t = gguf_tensor_find(l->g, name);
    *out = t;
    if (!t) {
        if (!required) return CHURON_OK;
        return error_set(l->err, CHURON_CORRUPT, "%s: expected this tensor (architecture %s), got none", name,
                         l->m->config.architecture);
    }
    if (t->dims[0] != cols || t->dims[1] != rows || t->dims[2] != 1 || t->dims[3] != 1) {
        return error_set(
            l->err, CHURON_CORRUPT, "%s: expected shape [%llu, %llu], got [%llu, %llu, %llu, %llu]", name,
            (unsigned long long)cols, (unsigned long long)rows, (unsigned long long)t->dims[0],
            (unsigned long long)t->dims[1], (unsigned long long)t->dims[2], (unsigned long long)t->dims[3]);
    }
    mark_used(l, t);
    return CHURON_OK;
}

typedef struct pack_job {
    const packed *w;
    const void *source;
} pack_job;

static void pack_member(void *ctx, const pool_member *me) {
    const pack_job *job = ctx;
    size_t from, to;
    pool_split(me, pack_n_groups(job->w), 1, &from, &to);
    pack_groups(job->w, job->source, from, to);
}

static status matrix(loader *l, const char *name, uint64_t cols, uint64_t rows, bool required, packed *out) {
    const gguf_tensor *t;
    TRY(find(l, name, cols, rows, required, &t));
    if (!t) return CHURON_OK;
    size_t bytes = pack_bytes(t->type, (size_t)rows, (size_t)cols);
    bool quantized = !dtype_is_float(t->type);
    if (bytes == 0 || (quantized && cols % ACT_BLOCK != 0)) {
        return error_set(
            l->err, CHURON_UNSUPPORTED, "%s: expected row length a multiple of %zu for %s, got %llu", name,
            dtype_describe(t->type)->block < 32 && quantized ? (size_t)32 : dtype_describe(t->type)->block,
            dtype_name(t->type), (unsigned long long)cols);
    }
    if (l->packing) {
        pack_init(out, t->type, (size_t)rows, (size_t)cols, (uint8_t *)l->m->weights + l->at);
        pack_job job = {out, t->data};
        pool_run(l->p, pack_member, &job);
        file_map_drop(t->map, t->offset, t->bytes);
    }
    if (cols > l->m->max_cols) l->m->max_cols = (size_t)cols;
    if (!size_add(l->at, aligned(bytes), &l->at)) {
        return error_set(l->err, CHURON_CORRUPT, "%s: the sizes of the tensors overflow", name);
    }
    return CHURON_OK;
}

static status vector(loader *l, const char *name, uint64_t n, bool required, const float **out) {
    const gguf_tensor *t;
    TRY(find(l, name, n, 1, required, &t));
    if (!t) return CHURON_OK;
    if (!dtype_is_float(t->type)) {
        return error_set(l->err, CHURON_UNSUPPORTED, "%s: expected F32, F16 or BF16, got %s", name,
                         dtype_name(t->type));
    }
    if (l->packing) {
        float *to = (float *)(void *)((uint8_t *)l->m->weights + l->at);
        dtype_to_f32(t->type, t->data, to, (size_t)n);
        *out = to;
    }
    l->at += aligned((size_t)n * sizeof(float));
    return CHURON_OK;
}

static const char *in_layer(const loader *l, const char *suffix, char name[64]) {
    snprintf(name, 64, "blk.%u.%s", l->layer, suffix);
    return name;
}

static status visit_layer(loader *l, lm_layer *y) {
    const lm_config *c = &l->m->config;
    const uint64_t n = c->n_embd, ff = c->n_ff;
    const uint64_t q = (uint64_t)c->n_head * c->head_dim_k, k = (uint64_t)c->n_head_kv * c->head_dim_k;
    const uint64_t v = (uint64_t)c->n_head_kv * c->head_dim_v, o = (uint64_t)c->n_head * c->head_dim_v;
    char name[64];
    TRY(vector(l, in_layer(l, "attn_norm.weight", name), n, true, &y->attn_norm));
    TRY(matrix(l, in_layer(l, "attn_q.weight", name), n, q, true, &y->wq));
    TRY(matrix(l, in_layer(l, "attn_k.weight", name), n, k, true, &y->wk));
    TRY(matrix(l, in_layer(l, "attn_v.weight", name), n, v, true, &y->wv));
    TRY(matrix(l, in_layer(l, "attn_output.weight", name), o, n, true, &y->wo));
    TRY(vector(l, in_layer(l, "attn_q.bias", name), q, false, &y->bq));
    TRY(vector(l, in_layer(l, "attn_k.bias", name), k, false, &y->bk));
    TRY(vector(l, in_layer(l, "attn_v.bias", name), v, false, &y->bv));
    TRY(vector(l, in_layer(l, "attn_output.bias", name), n, false, &y->bo));
    if (c->qk_norm) {
        TRY(vector(l, in_layer(l, "attn_q_norm.weight", name), c->head_dim_k, true, &y->q_norm));
        TRY(vector(l, in_layer(l, "attn_k_norm.weight", name), c->head_dim_k, true, &y->k_norm));
    }
    if (c->post_norms) {
        TRY(vector(l, in_layer(l, "post_attention_norm.weight", name), n, true, &y->attn_post_norm));
        TRY(vector(l, in_layer(l, "post_ffw_norm.weight", name), n, true, &y->ffn_post_norm));
    }
    TRY(vector(l, in_layer(l, "ffn_norm.weight", name), n, true, &y->ffn_norm));
    TRY(matrix(l, in_layer(l, "ffn_gate.weight", name), n, ff, true, &y->w_gate));
    TRY(matrix(l, in_layer(l, "ffn_up.weight", name), n, ff, true, &y->w_up));
    TRY(matrix(l, in_layer(l, "ffn_down.weight", name), ff, n, true, &y->w_down));
    TRY(vector(l, in_layer(l, "ffn_gate.bias", name), ff, false, &y->b_gate));
    TRY(vector(l, in_layer(l, "ffn_up.bias", name), ff, false, &y->b_up));
    return vector(l, in_layer(l, "ffn_down.bias", name), n, false, &y->b_down);
}

static status visit_model(loader *l) {
    lm_model *m = l->m;
    const lm_config *c = &m->config;
    TRY(matrix(l, "token_embd.weight", c->n_embd, c->n_vocab, true, &m->token_embd));
    for (l->layer = 0; l->layer < c->n_layer; l->layer++) TRY(visit_layer(l, &m->layers[l->layer]));
    TRY(vector(l, "output_norm.weight", c->n_embd, true, &m->output_norm));
    TRY(vector(l, "rope_freqs.weight", c->n_rot / 2, false, &m->rope_factors));
    if (c->tied_output) {
        m->output = m->token_embd;
        return CHURON_OK;
    }
    return matrix(l, "output.weight", c->n_embd, c->n_vocab, true, &m->output);
}

static status refuse_unused(const loader *l) {
    for (size_t i = 0; i < gguf_n_tensors(l->g); i++) {
        if (l->used[i]) continue;
        const gguf_tensor *t = gguf_tensor_at(l->g, i);
        return error_set(l->err, CHURON_UNSUPPORTED,
                         "%.*s: expected only tensors that the architecture %s uses, got this one too",
                         (int)(t->name.len < 64 ? t->name.len : 64), t->name.data, l->m->config.architecture);
    }
    return CHURON_OK;
}

static status check_rope_factors(const lm_model *m, error *err) {
    for (size_t i = 0; m->rope_factors && i < m->config.n_rot / 2; i++) {
        float f = m->rope_factors[i];
        if (!(f > 0.0f && f <= 1e6f)) {
            return error_set(err, CHURON_CORRUPT,
                             "rope_freqs.weight[%zu]: expected a positive number, got %g", i, (double)f);
        }
    }
    return CHURON_OK;
}

/* Makes the model of the loader's file without its weights: after this every tensor that it needs is known to
 * be there, to have the right shape and a type that can be packed, and l->at is the sum of the packed sizes.
 */
static status measure(loader *l) {
    lm_model *m = mem_calloc(1, sizeof *m);
    if (!m) return error_no_memory(l->err, "model", sizeof *m);
    l->m = m;
    TRY(lm_config_read(l->g, &m->config, l->err));
    m->layers = mem_calloc(m->config.n_layer, sizeof *m->layers);
    l->used = mem_calloc(gguf_n_tensors(l->g), sizeof *l->used);
    if (!m->layers || !l->used)
        return error_no_memory(l->err, "model", m->config.n_layer * sizeof *m->layers);
    TRY(visit_model(l));
    return refuse_unused(l);
}

status lm_model_check(const gguf *g, size_t *bytes, error *err) {
    loader l = {.g = g, .err = err};
    const status st = measure(&l);
    *bytes = l.at;
    mem_free(l.used);
    lm_model_free(l.m);
    return st;
}

status lm_model_load(lm_model **out, const gguf *g, const kernels *k, pool *p, error *err) {
    *out = NULL;
    status st = CHURON_OK;
    loader l = {.g = g, .p = p, .err = err};
    TRY_GOTO(measure(&l));
    lm_model *m = l.m;
    m->k = k;
    m->weights_bytes = l.at;
    m->weights = mem_pages(l.at);
    if (!m->weights) {
        st = error_no_memory(err, "weights", l.at);
        goto cleanup;
    }
    l.packing = true;
    l.at = 0;
    TRY_GOTO(visit_model(&l));
    TRY_GOTO(check_rope_factors(m, err));
    *out = m;
    l.m = NULL;
cleanup:
    mem_free(l.used);
    lm_model_free(l.m);
    return st;
}

void lm_model_free(lm_model *m) {
    if (!m) return;
    mem_pages_free(m->weights, m->weights_bytes);
    mem_free(m->layers);
    mem_free(m);
}

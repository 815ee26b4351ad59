/* model.h: a decoder's weights, packed for the kernels. Immutable after load, shared by every sequence. */
#ifndef LM_MODEL_H
#define LM_MODEL_H

#include "base/pool.h"
#include "kernel/kernel.h"
#include "lm/config.h"

typedef struct lm_layer {
    const float *attn_norm, *ffn_norm;           /* [n_embd] */
    const float *attn_post_norm, *ffn_post_norm; /* [n_embd] or NULL */
    const float *q_norm, *k_norm;                /* [head_dim] or NULL */
    const float *bq, *bk, *bv, *bo;              /* biases of the matrices below, each may be NULL */
    const float *b_gate, *b_up, *b_down;
    packed wq, wk, wv;   /* [n_head*head_dim, n_embd] … */
    packed wo;           /* [n_embd, n_head*head_dim_v] */
    packed w_gate, w_up; /* [n_ff, n_embd] */
    packed w_down;       /* [n_embd, n_ff] */
} lm_layer;

typedef struct lm_model {
    lm_config config;
    const kernels *k;
    lm_layer *layers;  /* [n_layer] */
    packed token_embd; /* [n_vocab, n_embd] */
    packed output;     /* [n_vocab, n_embd]; the same memory as token_embd when tied */
    const float *output_norm;
    const float *rope_factors; /* [n_rot/2] or NULL: llama3 frequency divisors */
    size_t max_cols;           /* widest matrix input */
    void *weights;
    size_t weights_bytes;
} lm_model;

/* Packs with `pool`'s threads, tensor by tensor, giving the mapping's pages back: resident memory peaks at
 * the packed size plus one tensor. `g` may be freed afterwards. */
MUST_USE status lm_model_load(lm_model **out, const gguf *g, const kernels *k, pool *p, error *err);
void lm_model_free(lm_model *m);
/* Everything that lm_model_load checks of the tensors (names, shapes, types) without reading one; *bytes:
 * what they take when packed. */
MUST_USE status lm_model_check(const gguf *g, size_t *bytes, error *err);

#endif

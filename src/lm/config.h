/* config.h: one decoder described by numbers and switches; architecture names map onto it in a table.
 *
 * lm_config_read takes every number from the file, checks them against each other and against the tensors'
 * shapes, and names the key that is wrong. Nothing later has to doubt them. */
#ifndef LM_CONFIG_H
#define LM_CONFIG_H

#include "format/gguf.h"

typedef enum rope_scaling { ROPE_NONE, ROPE_LINEAR, ROPE_YARN, ROPE_LLAMA3 } rope_scaling;
typedef enum activation { ACT_SILU, ACT_GELU_TANH } activation;

typedef struct lm_config {
    char architecture[32];
    uint32_t n_vocab, n_layer, n_embd, n_ff;
    uint32_t n_head, n_head_kv, head_dim_k, head_dim_v;
    uint32_t context_trained;
    float norm_eps;
    /* rotary position embedding */
    uint32_t n_rot;
    bool rope_interleaved; /* pairs (2i, 2i+1): llama family in GGUF; else halves */
    float rope_base;
    float rope_base_local; /* gemma3's sliding-window layers; 0: rope_base */
    rope_scaling scaling;
    float rope_factor;              /* linear, yarn: context multiple */
    uint32_t rope_original_context; /* yarn */
    float yarn_attn_factor;         /* extra factor on cos and sin, over the usual 0.1*ln(factor)+1 */
    float yarn_beta_fast, yarn_beta_slow, yarn_ext_factor;
    uint32_t no_rope_every; /* smollm3: every n-th layer has no rotary embedding; 0: all have */
    /* variations */
    activation act;
    float embd_scale;        /* gemma: sqrt(n_embd); else 1 */
    float attn_scale;        /* of q.k */
    float attn_soft_cap;     /* gemma2; 0: none */
    float final_soft_cap;    /* gemma2; 0: none */
    uint32_t window;         /* sliding window in tokens; 0: none */
    uint32_t window_pattern; /* every n-th layer is global, the others see the window; 1: all layers have the
                                window */
    bool qk_norm;            /* qwen3, gemma3: RMS norm of each head of q and k */
    bool post_norms;         /* gemma2/3: norms after attention and after MLP */
    bool attn_bias;          /* qwen2 */
    bool tied_output;        /* no output matrix: token_embd is used */
    uint64_t parameters;     /* of all tensors */
} lm_config;

MUST_USE status lm_config_read(const gguf *g, lm_config *out, error *err);
/* Architectures that lm_config_read knows, NULL-terminated. Static. */
const char *const *lm_architectures(void);
bool lm_layer_has_window(const lm_config *c, uint32_t layer);
bool lm_layer_has_rope(const lm_config *c, uint32_t layer);

#endif

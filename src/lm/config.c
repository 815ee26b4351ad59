/* config.c: see config.h. The key names are those of GGUF; where an architecture differs from the llama form
 * the difference is one field of the table, so that the forward pass never asks for a name. */
#include "lm/config.h"

#include "tensor/dtype.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct arch_row {
    const char *name;
    bool rope_interleaved;
    activation act;
    bool embd_scaled; /* embeddings times sqrt(n_embd) */
    bool qk_norm;     /* attn_q_norm, attn_k_norm must be there */
    bool post_norms;  /* post_attention_norm, post_ffw_norm must be there */
    bool always_tied; /* has no output matrix of its own */
    uint32_t no_rope_every;
    uint32_t window_default, window_pattern; /* pattern 0: the architecture has no sliding window */
    bool local_rope;           /* windowed layers: own base (10000 unless the file says), no scaling */
    float attn_cap, final_cap; /* defaults of the soft-cap keys; < 0: no such key */
    uint32_t wide_layers; /* with this many layers attn_scale is 1/sqrt(n_embd/n_head) (the 27B gemmas) */
} arch_row;

static const arch_row arch_table[] = {
    /* Early Mistral files are "llama" with a window over all layers. */
    {.name = "llama", .rope_interleaved = true, .window_pattern = 1, .attn_cap = -1, .final_cap = -1},
    {.name = "qwen2", .attn_cap = -1, .final_cap = -1},
    {.name = "qwen3", .qk_norm = true, .attn_cap = -1, .final_cap = -1},
    {.name = "smollm3", .rope_interleaved = true, .no_rope_every = 4, .attn_cap = -1, .final_cap = -1},
    {.name = "gemma",
     .act = ACT_GELU_TANH,
     .embd_scaled = true,
     .always_tied = true,
     .attn_cap = -1,
     .final_cap = -1},
    {.name = "gemma2",
     .act = ACT_GELU_TANH,
     .embd_scaled = true,
     .post_norms = true,
     .always_tied = true,
     .window_default = 4096,
     .window_pattern = 2,
     .attn_cap = 50.0f,
     .final_cap = 30.0f,
     .wide_layers = 46},
    {.name = "gemma3",
     .act = ACT_GELU_TANH,
     .embd_scaled = true,
     .qk_norm = true,
     .post_norms = true,
     .window_pattern = 6,
     .local_rope = true,
     .attn_cap = -1,
     .final_cap = 0.0f,
     .wide_layers = 62},
};
enum { N_ARCH = sizeof arch_table / sizeof *arch_table };

const char *const *lm_architectures(void) {
    static const char *const names[N_ARCH + 1] = {"llama", "qwen2",  "qwen3",  "smollm3",
                                                  "gemma", "gemma2", "gemma3", NULL};
    return names;
}

bool lm_layer_has_window(const lm_config *c, uint32_t layer) {
    return c->window > 0 && c->window_pattern > 0 &&
           (c->window_pattern == 1 || (layer + 1) % c->window_pattern != 0);
}

bool lm_layer_has_rope(const lm_config *c, uint32_t layer) {
    return c->no_rope_every == 0 || (layer + 1) % c->no_rope_every != 0;
}

typedef struct reader {
    const gguf *g;
    const char *arch;
    char key[128];
    error *err;
} reader;

static const char *key_of(reader *r, const char *suffix) {
    snprintf(r->key, sizeof r->key, "%s.%s", r->arch, suffix);
    return r->key;
}

static status get_u32(reader *r, const char *suffix, uint32_t min, uint32_t max, uint32_t *out) {
    TRY(gguf_get_u32(r->g, key_of(r, suffix), out, r->err));
    if (*out < min || *out > max) {
        return error_set(r->err, CHURON_CORRUPT, "%s: expected %u..%u, got %u", r->key, min, max, *out);
    }
    return CHURON_OK;
}

static status get_u32_or(reader *r, const char *suffix, uint32_t fallback, uint32_t min, uint32_t max,
                         uint32_t *out) {
    TRY(gguf_get_u32_or(r->g, key_of(r, suffix), fallback, out, r->err));
    if (*out < min || *out > max) {
        return error_set(r->err, CHURON_CORRUPT, "%s: expected %u..%u, got %u", r->key, min, max, *out);
    }
    return CHURON_OK;
}

static status get_f32_or(reader *r, const char *suffix, float fallback, float min, float max, float *out) {
    TRY(gguf_get_f32_or(r->g, key_of(r, suffix), fallback, out, r->err));
    if (!(*out >= min && *out <= max)) {
        return error_set(r->err, CHURON_CORRUPT, "%s: expected %g..%g, got %g", r->key, (double)min,
                         (double)max, (double)*out);
    }
    return CHURON_OK;
}

/* Some files give one number for each layer: they must all be the same here. */
static status get_u32_uniform(reader *r, const char *suffix, uint32_t fallback, uint32_t *out) {
    const gguf_value *v = gguf_find(r->g, key_of(r, suffix));
    if (!v || v->type != GGUF_ARRAY) return get_u32_or(r, suffix, fallback, 1, 1u << 20, out);
    if (v->item == GGUF_STRING || v->item == GGUF_F32 || v->item == GGUF_F64 || v->count == 0) {
        return error_set(r->err, CHURON_CORRUPT, "%s: expected integers, got an array of %llu %s", r->key,
                         (unsigned long long)v->count, gguf_type_name(v->item));
    }
    int64_t first = gguf_item_int(v, 0);
    for (uint64_t i = 1; i < v->count; i++) {
        if (gguf_item_int(v, i) != first) {
            return error_set(r->err, CHURON_UNSUPPORTED,
                             "%s: expected one value for all layers, got %lld and %lld", r->key,
                             (long long)first, (long long)gguf_item_int(v, i));
        }
    }
    if (first < 1 || first > 1 << 20) {
        return error_set(r->err, CHURON_CORRUPT, "%s: expected 1..1048576, got %lld", r->key,
                         (long long)first);
    }
    *out = (uint32_t)first;
    return CHURON_OK;
}

static const arch_row *find_arch(gguf_string name) {
    for (size_t i = 0; i < N_ARCH; i++) {
        if (strlen(arch_table[i].name) == name.len && memcmp(arch_table[i].name, name.data, name.len) == 0) {
            return &arch_table[i];
        }
    }
    return NULL;
}

static status read_architecture(const gguf *g, const arch_row **row, error *err) {
    gguf_string name;
    TRY(gguf_get_string_or_null(g, "general.architecture", &name, err));
    if (!name.data) {
        return error_set(err, CHURON_CORRUPT, "general.architecture: expected a string, got nothing");
    }
    *row = find_arch(name);
    if (*row) return CHURON_OK;
    char known[128] = "";
    size_t at = 0;
    for (size_t i = 0; i < N_ARCH; i++) {
        at += (size_t)snprintf(known + at, sizeof known - at, "%s%s", i ? ", " : "", arch_table[i].name);
    }
    return error_set(err, CHURON_UNSUPPORTED, "general.architecture: expected one of %s, got \"%.*s\"", known,
                     (int)(name.len < 64 ? name.len : 64), name.data);
}

static status read_sizes(reader *r, lm_config *c) {
    TRY(get_u32(r, "context_length", 1, 1u << 27, &c->context_trained));
    TRY(get_u32(r, "embedding_length", 1, 1u << 20, &c->n_embd));
    TRY(get_u32(r, "block_count", 1, 4096, &c->n_layer));
    TRY(get_u32_uniform(r, "feed_forward_length", 0, &c->n_ff));
    TRY(get_u32_uniform(r, "attention.head_count", 0, &c->n_head));
    TRY(get_u32_uniform(r, "attention.head_count_kv", c->n_head, &c->n_head_kv));
    if (c->n_head % c->n_head_kv != 0) {
        return error_set(r->err, CHURON_CORRUPT, "%s: expected a divisor of head_count %u, got %u", r->key,
                         c->n_head, c->n_head_kv);
    }
    uint32_t head = c->n_embd / c->n_head;
    TRY(get_u32_or(r, "attention.key_length", head, 1, 512, &c->head_dim_k));
    TRY(get_u32_or(r, "attention.value_length", head, 1, 512, &c->head_dim_v));
    if (c->head_dim_k % 16 != 0 || c->head_dim_v % 16 != 0) {
        return error_set(r->err, CHURON_UNSUPPORTED,
                         "attention head size: expected multiples of 16, got %u (key) and %u (value)",
                         c->head_dim_k, c->head_dim_v);
    }
    TRY(get_f32_or(r, "attention.layer_norm_rms_epsilon", -1.0f, 0.0f, 1.0f, &c->norm_eps));
    return CHURON_OK;
}

static status read_rope(reader *r, const arch_row *row, lm_config *c) {
    c->rope_interleaved = row->rope_interleaved;
    c->no_rope_every = row->no_rope_every;
    TRY(get_u32_or(r, "rope.dimension_count", c->head_dim_k, 2, c->head_dim_k, &c->n_rot));
    if (c->n_rot % 2 != 0) {
        return error_set(r->err, CHURON_CORRUPT, "%s: expected an even number, got %u", r->key, c->n_rot);
    }
    TRY(get_f32_or(r, "rope.freq_base", 10000.0f, 1.0f, 1e12f, &c->rope_base));
    c->rope_base_local = 0.0f;
    if (row->local_rope) {
        TRY(get_f32_or(r, "rope.freq_base_swa", 10000.0f, 1.0f, 1e12f, &c->rope_base_local));
    }
    /* A factor without a type is linear; "rope.scale_linear" is the old name of the factor. */
    float factor;
    TRY(get_f32_or(r, "rope.scale_linear", 0.0f, 0.0f, 1e6f, &factor));
    TRY(get_f32_or(r, "rope.scaling.factor", factor, 0.0f, 1e6f, &factor));
    c->rope_factor = factor == 0.0f ? 1.0f : factor;
    gguf_string type;
    TRY(gguf_get_string_or_null(r->g, key_of(r, "rope.scaling.type"), &type, r->err));
    if (!type.data || (type.len == 6 && memcmp(type.data, "linear", 6) == 0)) {
        c->scaling = c->rope_factor == 1.0f ? ROPE_NONE : ROPE_LINEAR;
    } else if (type.len == 4 && memcmp(type.data, "none", 4) == 0) {
        c->scaling = ROPE_NONE;
    } else if (type.len == 4 && memcmp(type.data, "yarn", 4) == 0) {
        c->scaling = ROPE_YARN;
    } else {
        return error_set(r->err, CHURON_UNSUPPORTED, "%s: expected none, linear or yarn, got \"%.*s\"",
                         r->key, (int)(type.len < 40 ? type.len : 40), type.data);
    }
    if (c->scaling == ROPE_NONE) c->rope_factor = 1.0f;
    TRY(get_u32_or(r, "rope.scaling.original_context_length", c->context_trained, 1, 1u << 27,
                   &c->rope_original_context));
    TRY(get_f32_or(r, "rope.scaling.attn_factor", 1.0f, 1e-6f, 1e6f, &c->yarn_attn_factor));
    TRY(get_f32_or(r, "rope.scaling.yarn_ext_factor", 1.0f, 0.0f, 1e6f, &c->yarn_ext_factor));
    TRY(get_f32_or(r, "rope.scaling.yarn_beta_fast", 32.0f, 1e-6f, 1e6f, &c->yarn_beta_fast));
    TRY(get_f32_or(r, "rope.scaling.yarn_beta_slow", 1.0f, 1e-6f, 1e6f, &c->yarn_beta_slow));
    return CHURON_OK;
}

static status read_window(reader *r, const arch_row *row, lm_config *c) {
    c->window = c->window_pattern = 0;
    if (row->window_pattern == 0) return CHURON_OK;
    TRY(get_u32_or(r, "attention.sliding_window", row->window_default, 0, 1u << 27, &c->window));
    if (c->window == 0) return CHURON_OK;
    c->window_pattern = row->window_pattern;
    /* The pattern may be a number, or one boolean a layer (true: windowed): the latter must be such a
     * pattern. */
    const gguf_value *v = gguf_find(r->g, key_of(r, "attention.sliding_window_pattern"));
    if (!v) return CHURON_OK;
    if (v->type != GGUF_ARRAY) { /* n: the last of each n layers is global; 0: none is */
        TRY(get_u32_or(r, "attention.sliding_window_pattern", 1, 0, 4096, &c->window_pattern));
        if (c->window_pattern == 1) c->window = 0;
        if (c->window_pattern == 0) c->window_pattern = 1;
        return CHURON_OK;
    }
    if (v->item != GGUF_BOOL || v->count < c->n_layer) {
        return error_set(r->err, CHURON_CORRUPT, "%s: expected %u booleans, got %llu %s", r->key, c->n_layer,
                         (unsigned long long)v->count, gguf_type_name(v->item));
    }
    uint32_t n = 1;
    while (n <= c->n_layer && gguf_item_int(v, n - 1) != 0) n++;
    c->window_pattern = n > c->n_layer ? 1 : n;
    for (uint32_t i = 0; i < c->n_layer; i++) {
        bool windowed = gguf_item_int(v, i) != 0;
        bool expected = n > c->n_layer ? true : n == 1 ? false : (i + 1) % n != 0;
        if (windowed != expected) {
            return error_set(r->err, CHURON_UNSUPPORTED,
                             "%s: expected every n-th layer to be global, got another pattern at layer %u",
                             r->key, i);
        }
    }
    if (n == 1) c->window = 0; /* every layer is global */
    return CHURON_OK;
}

static status read_variations(reader *r, const arch_row *row, lm_config *c) {
    c->act = row->act;
    c->qk_norm = row->qk_norm;
    c->post_norms = row->post_norms;
    c->embd_scale = row->embd_scaled ? sqrtf((float)c->n_embd) : 1.0f;
    float per_head = row->wide_layers && c->n_layer == row->wide_layers ? (float)(c->n_embd / c->n_head)
                                                                        : (float)c->head_dim_k;
    TRY(get_f32_or(r, "attention.scale", 1.0f / sqrtf(per_head), 1e-9f, 1e9f, &c->attn_scale));
    c->attn_soft_cap = c->final_soft_cap = 0.0f;
    if (row->attn_cap >= 0) {
        TRY(get_f32_or(r, "attn_logit_softcapping", row->attn_cap, 0.0f, 1e6f, &c->attn_soft_cap));
    }
    if (row->final_cap >= 0) {
        TRY(get_f32_or(r, "final_logit_softcapping", row->final_cap, 0.0f, 1e6f, &c->final_soft_cap));
    }
    return CHURON_OK;
}

/* Keys of what this decoder does not do: present and set, they would give silently wrong answers. */
static status refuse_unsupported(reader *r) {
    static const char *const keys[] = {"expert_count", "expert_used_count", "attention.kv_lora_rank",
                                       "ssm.state_size"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        uint32_t v;
        TRY(gguf_get_u32_or(r->g, key_of(r, keys[i]), 0, &v, r->err));
        if (v != 0) {
            return error_set(r->err, CHURON_UNSUPPORTED, "%s: expected 0 (no such layers), got %u", r->key,
                             v);
        }
    }
    float log_multiplier;
    TRY(get_f32_or(r, "rope.scaling.yarn_log_multiplier", 0.0f, -1e6f, 1e6f, &log_multiplier));
    if (log_multiplier != 0.0f) {
        return error_set(r->err, CHURON_UNSUPPORTED, "%s: expected 0, got %g", r->key,
                         (double)log_multiplier);
    }
    bool causal;
    TRY(gguf_get_bool_or(r->g, key_of(r, "attention.causal"), true, &causal, r->err));
    if (!causal) {
        return error_set(r->err, CHURON_UNSUPPORTED, "%s: expected true (a decoder), got false", r->key);
    }
    return CHURON_OK;
}

static status read_vocabulary(const gguf *g, lm_config *c, error *err) {
    const gguf_tensor *t = gguf_tensor_find(g, "token_embd.weight");
    if (!t) return error_set(err, CHURON_CORRUPT, "token_embd.weight: expected this tensor, got none");
    if (t->n_dims < 2 || t->dims[0] != c->n_embd || t->dims[1] < 1 || t->dims[1] > 1u << 24 ||
        t->dims[2] != 1 || t->dims[3] != 1) {
        return error_set(err, CHURON_CORRUPT,
                         "token_embd.weight: expected shape [%u, vocabulary], got [%llu, %llu]", c->n_embd,
                         (unsigned long long)t->dims[0], (unsigned long long)t->dims[1]);
    }
    c->n_vocab = (uint32_t)t->dims[1];
    const gguf_value *tokens = gguf_find(g, "tokenizer.ggml.tokens");
    if (tokens && tokens->type == GGUF_ARRAY && tokens->count != c->n_vocab) {
        return error_set(err, CHURON_CORRUPT,
                         "token_embd.weight: expected %llu rows (tokenizer.ggml.tokens), got %u",
                         (unsigned long long)tokens->count, c->n_vocab);
    }
    return CHURON_OK;
}

status lm_config_read(const gguf *g, lm_config *out, error *err) {
    lm_config c = {0};
    const arch_row *row;
    TRY(read_architecture(g, &row, err));
    snprintf(c.architecture, sizeof c.architecture, "%s", row->name);
    reader r = {.g = g, .arch = row->name, .err = err};
    TRY(refuse_unsupported(&r));
    TRY(read_sizes(&r, &c));
    TRY(read_rope(&r, row, &c));
    TRY(read_window(&r, row, &c));
    TRY(read_variations(&r, row, &c));
    TRY(read_vocabulary(g, &c, err));
    c.tied_output = row->always_tied || !gguf_tensor_find(g, "output.weight");
    if (c.scaling == ROPE_NONE && gguf_tensor_find(g, "rope_freqs.weight")) c.scaling = ROPE_LLAMA3;
    c.attn_bias = gguf_tensor_find(g, "blk.0.attn_q.bias") != NULL;
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const gguf_tensor *t = gguf_tensor_at(g, i);
        c.parameters += t->dims[0] * t->dims[1] * t->dims[2] * t->dims[3];
    }
    *out = c;
    return CHURON_OK;
}

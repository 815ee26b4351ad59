/* attention_core.h: scaled dot-product attention for all its operators: y = softmax(cap(q k^T * scale) +
 * bias) v.
 *
 * Everything is said by strides, so that no caller transposes. Heads of a group share keys and values: query
 * head h reads head h / (q_heads / kv_heads). A query sees the keys of its window that the mask does not take
 * away; one that sees none gets zeros. Rows are computed for themselves: results depend neither on the batch
 * nor on threads. For f16 and bf16 models `round` says after which type every step is rounded, as their
 * definition in steps has it. */
#ifndef GRAPH_OPS_ATTENTION_CORE_H
#define GRAPH_OPS_ATTENTION_CORE_H

#include "graph/ops/nn.h"

typedef struct attention_view {
    const void *data; /* of the work type; element (b, h, t, d) at b*batch + h*head + t*time + d */
    size_t batch, head, time;
} attention_view;

enum attention_tap { ATTENTION_SCORES, ATTENTION_CAPPED, ATTENTION_BIASED, ATTENTION_PROBABILITIES };

typedef struct attention_call {
    elem work; /* F32, F64 */
    size_t batch, q_heads, kv_heads, q_len, kv_len, head_k, head_v;
    attention_view q, k, v, y; /* y: written */
    double scale;              /* of q.k */
    bool split_scale;          /* sqrt(scale) goes to q and to k, as ONNX has it; else scale to q */
    double soft_cap;           /* 0: none */
    /* Added to the scores, of the work type: (b, h, i, j) at b*bias_step[0] + … ; keys from bias_keys on are
     * not seen. NULL: none. */
    const void *bias;
    size_t bias_step[4], bias_keys;
    const int64_t *valid; /* [batch]: keys that exist; NULL: all */
    /* Query i of batch b stands at offset + i (offsets[b] + i): it sees keys up to itself if causal, and
     * within [left, right] of it where those are not -1. */
    bool causal;
    int64_t offset, left, right;
    const int64_t *offsets;    /* [batch]; NULL: offset */
    const float *sink;         /* [q_heads]: a score without a value in each softmax; NULL: none */
    elem round, softmax_round; /* F16, BF16: steps are rounded to it; else not */
    void *tap;                 /* [batch, q_heads, q_len, kv_len] of the work type; NULL: not wanted */
    enum attention_tap tap_at;
} attention_call;

MUST_USE status attention_run(op_run *r, const attention_call *c, error *err);

/* Rotates the first n_rot of n values of a head at a position: pairs (2i, 2i+1) if interleaved, else (i, i +
 * n_rot/2); cosine, sine: [n_rot/2]. x and y may be the same. f32; rounding: see attention_call. */
void attention_rotate(const float *x, float *y, size_t n, size_t n_rot, const float *cosine,
                      const float *sine, bool interleaved, elem round);
float attention_round(elem type, float v);

#endif

/* sampler.c: see sampler.h. */
#include "lm/sampler.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct sampler {
    sampler_params p;
    size_t n_vocab, n_seen, max_context;
    logit_bias *bias;
    int32_t *seen; /* [max_context + 1] */
    token_logprob *top;
    uint32_t *index; /* [n_vocab] */
    float *value;    /* [n_vocab] */
};

sampler_params sampler_defaults(void) {
    return (sampler_params){.temperature = 0.8f,
                            .top_p = 1.0f,
                            .typical_p = 1.0f,
                            .repeat_penalty = 1.0f,
                            .repeat_last_n = 64,
                            .dry_base = 1.75f,
                            .dry_allowed_length = 2,
                            .xtc_threshold = 0.1f};
}

static status check_range(const char *field, float v, float min, float max, error *err) {
    if (v >= min && v <= max) return CHURON_OK;
    return error_set(err, CHURON_INVALID, "%s: expected %g..%g, got %g", field, (double)min, (double)max,
                     (double)v);
}

status sampler_check(const sampler_params *p, size_t n_vocab, error *err) {
    TRY(check_range("temperature", p->temperature, 0.0f, 1e6f, err));
    TRY(check_range("top_p", p->top_p, 0.0f, 1.0f, err));
    TRY(check_range("min_p", p->min_p, 0.0f, 1.0f, err));
    TRY(check_range("repetition_penalty", p->repeat_penalty, 1e-6f, 1e6f, err));
    TRY(check_range("frequency_penalty", p->frequency_penalty, -1e6f, 1e6f, err));
    TRY(check_range("presence_penalty", p->presence_penalty, -1e6f, 1e6f, err));
    if (p->typical_p != 1.0f || p->dry_multiplier != 0.0f || p->xtc_probability != 0.0f) {
        return error_set(err, CHURON_UNSUPPORTED,
                         "typical_p, dry_multiplier, xtc_probability: expected off, got on");
    }
    for (size_t i = 0; i < p->n_bias; i++) {
        if (p->bias[i].id < 0 || (size_t)p->bias[i].id >= n_vocab || isnan(p->bias[i].bias)) {
            return error_set(err, CHURON_INVALID, "logit_bias: expected ids 0..%zu, got %d", n_vocab - 1,
                             p->bias[i].id);
        }
    }
    if (p->n_logprobs > TOP_MAX) {
        return error_set(err, CHURON_INVALID, "top_logprobs: expected at most %d, got %zu", TOP_MAX,
                         p->n_logprobs);
    }
    return CHURON_OK;
}

status sampler_create(sampler **out, const sampler_params *p, size_t n_vocab, size_t max_context,
                      error *err) {
    *out = NULL;
    TRY(sampler_check(p, n_vocab, err));
    sampler *s = mem_calloc(1, sizeof *s);
    if (!s) return error_no_memory(err, "sampler", sizeof *s);
    s->p = *p;
    s->n_vocab = n_vocab;
    s->max_context = max_context;
    s->bias = mem_alloc(p->n_bias * sizeof *s->bias);
    s->seen = mem_alloc((max_context + 1) * sizeof *s->seen);
    s->top = mem_alloc((p->n_logprobs + 1) * sizeof *s->top);
    s->index = mem_alloc(n_vocab * sizeof *s->index);
    s->value = mem_alloc(n_vocab * sizeof *s->value);
    if (!s->bias || !s->seen || !s->top || !s->index || !s->value) {
        sampler_free(s);
        return error_no_memory(err, "sampler", n_vocab * sizeof(float));
    }
    if (p->n_bias) memcpy(s->bias, p->bias, p->n_bias * sizeof *s->bias);
    *out = s;
    return CHURON_OK;
}

void sampler_free(sampler *s) {
    if (!s) return;
    mem_free(s->bias);
    mem_free(s->seen);
    mem_free(s->top);
    mem_free(s->index);
    mem_free(s->value);
    mem_free(s);
}

void sampler_accept(sampler *s, int32_t id) {
    if (s->n_seen <= s->max_context) s->seen[s->n_seen++] = id;
}

double sampler_uniform(uint64_t seed, uint64_t index, uint32_t stream) {
    uint32_t c[4] = {(uint32_t)index, (uint32_t)(index >> 32), stream, 0};
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)0xD2511F53u * c[0], b = (uint64_t)0xCD9E8D57u * c[2];
        uint32_t next[4] = {(uint32_t)(b >> 32) ^ c[1] ^ k0, (uint32_t)b, (uint32_t)(a >> 32) ^ c[3] ^ k1,
                            (uint32_t)a};
        memcpy(c, next, sizeof c);
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return (double)(((uint64_t)c[0] << 32 | c[1]) >> 11) * 0x1p-53;
}

static void penalize(const sampler *s, float *logits) {
    const sampler_params *p = &s->p;
    size_t from = s->n_seen > p->repeat_last_n ? s->n_seen - p->repeat_last_n : 0;
    for (size_t i = from; i < s->n_seen; i++) {
        const int32_t id = s->seen[i];
        size_t count = 0;
        bool first = true;
        for (size_t j = from; j < s->n_seen; j++) {
            if (s->seen[j] != id) continue;
            first = first && j >= i;
            count++;
        }
        if (!first) continue;
        float l = logits[id];
        l = l > 0 ? l / p->repeat_penalty : l * p->repeat_penalty;
        logits[id] = l - (float)count * p->frequency_penalty - p->presence_penalty;
    }
}

status sampler_next(sampler *s, const kernels *k, float *logits, uint64_t index, sampled *out, error *err) {
    const sampler_params *p = &s->p;
    *out = (sampled){.id = -1, .logprob = NAN};
    float max = 0, lse = 0;
    const bool logprobs = p->want_logprobs || p->n_logprobs;
    if (logprobs) {
        k->log_sum_exp(logits, s->n_vocab, &max, &lse);
        k->top_k(logits, s->n_vocab, p->n_logprobs, s->index, s->value);
        for (size_t i = 0; i < p->n_logprobs; i++) {
            s->top[i] = (token_logprob){(int32_t)s->index[i], s->value[i] - max - lse};
        }
        memcpy(s->value, logits, s->n_vocab * sizeof *logits);
    }
    for (size_t i = 0; i < p->n_bias; i++) logits[s->bias[i].id] += s->bias[i].bias;
    if (p->repeat_penalty != 1.0f || p->frequency_penalty != 0.0f || p->presence_penalty != 0.0f)
        penalize(s, logits);
    static _Thread_local uint32_t ids[TOP_MAX];
    static _Thread_local float values[TOP_MAX];
    size_t n = p->temperature == 0.0f ? 1 : p->top_k && p->top_k < TOP_MAX ? p->top_k : TOP_MAX;
    if (n > s->n_vocab) n = s->n_vocab;
    k->top_k(logits, s->n_vocab, n, ids, values);
    if (!(values[0] > -INFINITY))
        return error_set(err, CHURON_INTERNAL, "logits: expected numbers, got none");
    double weight[TOP_MAX], total = 0;
    for (size_t i = 0; i < n; i++) {
        weight[i] = n == 1 ? 1.0 : exp(((double)values[i] - (double)values[0]) / (double)p->temperature);
        total += weight[i];
    }
    double sum = 0;
    size_t kept = 0;
    while (kept < n && (kept == 0 || (sum < (double)p->top_p * total && weight[kept] >= (double)p->min_p))) {
        sum += weight[kept++];
    }
    double u = sampler_uniform(p->seed, index, 0) * sum;
    size_t i = 0;
    while (i + 1 < kept && u >= weight[i]) u -= weight[i++];
    out->id = (int32_t)ids[i];
    if (logprobs) {
        out->logprob = s->value[out->id] - max - lse;
        out->top = s->top;
        out->n_top = p->n_logprobs;
    }
    return CHURON_OK;
}

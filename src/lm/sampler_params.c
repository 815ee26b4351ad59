/* sampler_params.c: what may be asked of a sampler, and its generator. */
#include "lm/sampler.h"

#include <math.h>

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

static status check_range(const char *name, float value, float least, float most, error *err) {
    if (value >= least && value <= most) return CHURON_OK; /* not so for NaN */
    return error_set(err, CHURON_INVALID, "%s: expected %g..%g, got %g", name, (double)least, (double)most,
                     (double)value);
}

static status check_least(const char *name, float value, float least, error *err) {
    if (value >= least && !isinf(value)) return CHURON_OK;
    return error_set(err, CHURON_INVALID, "%s: expected %g or more, got %g", name, (double)least,
                     (double)value);
}

static status check_finite(const char *name, float value, error *err) {
    if (isfinite(value)) return CHURON_OK;
    return error_set(err, CHURON_INVALID, "%s: expected a finite number, got %g", name, (double)value);
}

static status check_positive(const char *name, float value, error *err) {
    if (value > 0.0f && !isinf(value)) return CHURON_OK;
    return error_set(err, CHURON_INVALID, "%s: expected more than 0, got %g", name, (double)value);
}

static status check_bias(const sampler_params *p, size_t n_vocab, error *err) {
    if (p->n_bias > 0 && p->bias == NULL) {
        return error_set(err, CHURON_INVALID, "logit_bias: expected %zu entries, got none", p->n_bias);
    }
    for (size_t i = 0; i < p->n_bias; i++) {
        const logit_bias *b = &p->bias[i];
        if (b->id < 0 || (size_t)b->id >= n_vocab) {
            return error_set(err, CHURON_INVALID, "logit_bias: expected a token id of 0..%zu, got %d",
                             n_vocab - 1, (int)b->id);
        }
        if (!isfinite(b->bias) && b->bias != -INFINITY) {
            return error_set(err, CHURON_INVALID, "logit_bias of %d: expected a number or -inf, got %g",
                             (int)b->id, (double)b->bias);
        }
    }
    return CHURON_OK;
}

status sampler_check(const sampler_params *p, size_t n_vocab, error *err) {
    TRY(check_least("temperature", p->temperature, 0.0f, err));
    TRY(check_range("top_p", p->top_p, 0.0f, 1.0f, err));
    TRY(check_range("min_p", p->min_p, 0.0f, 1.0f, err));
    TRY(check_range("typical_p", p->typical_p, 0.0f, 1.0f, err));
    TRY(check_positive("repeat_penalty", p->repeat_penalty, err));
    TRY(check_finite("frequency_penalty", p->frequency_penalty, err));
    TRY(check_finite("presence_penalty", p->presence_penalty, err));
    TRY(check_least("dry_multiplier", p->dry_multiplier, 0.0f, err));
    TRY(check_range("xtc_probability", p->xtc_probability, 0.0f, 1.0f, err));
    TRY(check_range("xtc_threshold", p->xtc_threshold, 0.0f, 1.0f, err));
    if (p->dry_multiplier > 0.0f) {
        TRY(check_least("dry_base", p->dry_base, 1.0f, err));
        if (p->dry_allowed_length < 1) {
            return error_set(err, CHURON_INVALID, "dry_allowed_length: expected 1 or more, got 0");
        }
        if (p->n_dry_breakers > 0 && p->dry_breakers == NULL) {
            return error_set(err, CHURON_INVALID, "dry_sequence_breakers: expected %zu ids, got none",
                             p->n_dry_breakers);
        }
    }
    if (p->n_logprobs > TOP_MAX) {
        return error_set(err, CHURON_INVALID, "logprobs: expected 0..%d, got %zu", (int)TOP_MAX,
                         p->n_logprobs);
    }
    return check_bias(p, n_vocab, err);
}

/* ---- Philox-4x32-10: J. Salmon, M. Moraes, R. Dror, D. Shaw, Parallel random numbers: as easy as 1, 2, 3 -
 */

void sampler_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]) {
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3], k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        uint64_t a = UINT64_C(0xd2511f53) * c0, b = UINT64_C(0xcd9e8d57) * c2;
        c0 = (uint32_t)(b >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)b;
        c2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)a;
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

double sampler_uniform(uint64_t seed, uint64_t index, uint32_t stream) {
    uint32_t counter[4] = {(uint32_t)index, (uint32_t)(index >> 32), stream, 0}, out[4];
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    sampler_philox(counter, key, out);
    return (double)(((uint64_t)out[0] << 32 | out[1]) >> 11) * 0x1p-53;
}

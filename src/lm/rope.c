/* rope.c: see rope.h. YaRN: Peng et al., "YaRN: Efficient Context Window Extension of Large Language Models"
 * (2023). Llama 3's divisors come with the file. Angles are computed in double: at position 100,000 a float
 * product is wrong in the third digit of the angle. */
#include "lm/rope.h"

#include "base/mem.h"

#include <math.h>
#include <string.h>

static const double two_pi = 6.283185307179586476925286766559;

/* Pair at which a wavelength makes `rotations` turns over the original context. */
static double yarn_pair(const lm_config *c, double rotations) {
    return (double)c->n_rot * log((double)c->rope_original_context / (rotations * two_pi)) /
           (2.0 * log((double)c->rope_base));
}

static void apply_yarn(const lm_config *c, rope_table *t) {
    double low = floor(yarn_pair(c, c->yarn_beta_fast)), high = ceil(yarn_pair(c, c->yarn_beta_slow));
    if (low < 0) low = 0;
    if (high > c->n_rot - 1) high = c->n_rot - 1;
    double width = high - low > 0.001 ? high - low : 0.001;
    for (size_t i = 0; i < t->n_pairs; i++) {
        double ramp = ((double)i - low) / width;
        ramp = 1.0 - (ramp < 0 ? 0 : ramp > 1 ? 1 : ramp);
        ramp *= c->yarn_ext_factor; /* 1: extrapolate the fast pairs; 0: interpolate all */
        t->frequency[i] *= (1.0 - ramp) / c->rope_factor + ramp;
    }
    t->magnitude =
        c->yarn_ext_factor != 0.0f && c->rope_factor > 1.0f ? 0.1 * log((double)c->rope_factor) + 1.0 : 1.0;
    t->magnitude *= c->yarn_attn_factor;
}

status rope_table_create(rope_table *out, const lm_model *m, error *err) {
    const lm_config *c = &m->config;
    *out = (rope_table){.magnitude = 1.0, .n_pairs = c->n_rot / 2};
    double *memory = mem_alloc(2 * out->n_pairs * sizeof *memory);
    if (!memory) return error_no_memory(err, "rotary frequencies", 2 * out->n_pairs * sizeof *memory);
    out->frequency = memory;
    out->frequency_local = memory + out->n_pairs;
    double local_base = c->rope_base_local != 0.0f ? c->rope_base_local : c->rope_base;
    for (size_t i = 0; i < out->n_pairs; i++) {
        double exponent = -2.0 * (double)i / c->n_rot;
        double divisor = m->rope_factors ? (double)m->rope_factors[i] : 1.0;
        out->frequency[i] = pow(c->rope_base, exponent) / divisor;
        out->frequency_local[i] = pow(local_base, exponent) / divisor;
    }
    if (c->scaling == ROPE_YARN) {
        apply_yarn(c, out);
    } else if (c->scaling == ROPE_LINEAR) {
        for (size_t i = 0; i < out->n_pairs; i++) out->frequency[i] /= c->rope_factor;
        out->magnitude = c->yarn_attn_factor;
    } else {
        out->magnitude = c->yarn_attn_factor;
    }
    out->magnitude_local = c->yarn_attn_factor;
    /* Only gemma3's windowed layers have frequencies of their own; elsewhere all layers share them. */
    if (c->rope_base_local == 0.0f) {
        out->magnitude_local = out->magnitude;
        memcpy(out->frequency_local, out->frequency, out->n_pairs * sizeof *memory);
    }
    return CHURON_OK;
}

void rope_table_free(rope_table *t) {
    mem_free(t->frequency);
    *t = (rope_table){0};
}

void rope_angles(const rope_table *t, size_t position, bool local, float *cos_sin) {
    const double *f = local ? t->frequency_local : t->frequency;
    const double magnitude = local ? t->magnitude_local : t->magnitude;
    for (size_t i = 0; i < t->n_pairs; i++) {
        double angle = (double)position * f[i];
        cos_sin[2 * i] = (float)(cos(angle) * magnitude);
        cos_sin[2 * i + 1] = (float)(sin(angle) * magnitude);
    }
}

/* test_beam.c: beam search without a model against a plain reference: widths, penalties, ways to end, stop
 * ids. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "beam_reference.h"
#include "lm/beam.h"

enum { VOCAB = 40 };

/* A model of one hash: the logits depend on the whole text; `stop_bias` makes the stop ids more or less
 * likely. */
typedef struct toy {
    uint32_t seed;
    float stop_bias;
} toy;

static void toy_logits(void *ctx, const int32_t *ids, size_t n, float *out) {
    const toy *t = ctx;
    uint32_t h = t->seed * 2654435761u + 1;
    for (size_t i = 0; i < n; i++) h = (h ^ (uint32_t)ids[i]) * 16777619u + 7;
    for (size_t i = 0; i < VOCAB; i++) {
        h = h * 1664525u + 1013904223u;
        out[i] = (float)(h >> 8) * 0x1p-22f;
    }
    out[0] += t->stop_bias;
    out[1] += t->stop_bias;
}

/* The search's beams as texts, for toy_logits. */
static void run_search(beam_search *b, toy *t, size_t width) {
    const kernels *k = kernels_for(KERNEL_REF);
    static int32_t ids[REF_MAX_WIDTH][REF_MAX_TOKENS], before[REF_MAX_WIDTH][REF_MAX_TOKENS];
    float logits[VOCAB];
    const beam_step *steps;
    do {
        const size_t n = beam_search_length(b);
        for (size_t i = 0; i < beam_search_live(b); i++) {
            toy_logits(t, ids[i], n, logits);
            assert_true(beam_search_offer(b, k, i, logits));
        }
        steps = beam_search_next(b);
        memcpy(before, ids, sizeof ids);
        for (size_t i = 0; steps && i < width; i++) {
            memcpy(ids[i], before[steps[i].from], n * sizeof **ids);
            ids[i][n] = steps[i].token;
        }
    } while (steps);
}

static void compare(const engine_beam_options *o, toy t, size_t n_stops, size_t max_tokens) {
    static const int32_t stops[] = {0, 1};
    ref_search ref = {*o, stops, n_stops, max_tokens, VOCAB, toy_logits, &t, .n_found = 0};
    ref_run(&ref);
    beam_search *b;
    error err;
    assert_int_equal(beam_search_create(&b, o, stops, n_stops, max_tokens, VOCAB, &err), CHURON_OK);
    engine_hypothesis got[REF_MAX_WIDTH];
    for (int round = 0; round < 2; round++) { /* a restart gives the same */
        run_search(b, &t, o->width);
        assert_int_equal(beam_search_is_done(b), ref.done);
        assert_int_equal(beam_search_best(b, got, REF_MAX_WIDTH), ref.n_found);
        for (size_t i = 0; i < ref.n_found; i++) {
            assert_int_equal(got[i].n, ref.found[i].n);
            assert_int_equal(got[i].stopped, ref.found[i].stopped);
            assert_memory_equal(got[i].ids, ref.found[i].ids, got[i].n * sizeof *got[i].ids);
            assert_true(fabs(got[i].score - ref.found[i].score) < 1e-4);
            assert_true(fabs(got[i].logprob - ref.found[i].sum) < 1e-4);
        }
        beam_search_restart(b);
    }
    beam_search_free(b);
}

static void test_like_the_reference(void **state) {
    (void)state;
    static const double penalties[] = {1.0, 0.0, 2.0, -1.0, 0.5};
    static const float biases[] = {-8.0f, 0.0f, 1.5f, 4.0f};
    for (uint32_t seed = 0; seed < 20; seed++) {
        for (size_t width = 2; width <= REF_MAX_WIDTH; width += 2) {
            for (size_t p = 0; p < 5; p++) {
                for (int stop = ENGINE_BEAM_HEURISTIC; stop <= ENGINE_BEAM_NEVER; stop++) {
                    const engine_beam_options o = {width, penalties[p], (engine_early_stop)stop};
                    const toy t = {seed, biases[(seed + p) % 4]};
                    compare(&o, t, seed % 3, 1 + (seed * 5 + p) % (REF_MAX_TOKENS - 1));
                }
            }
        }
    }
}

static void test_ways_to_end_differ(void **state) {
    (void)state;
    size_t lengths[3];
    for (int stop = ENGINE_BEAM_HEURISTIC; stop <= ENGINE_BEAM_NEVER; stop++) {
        const engine_beam_options o = {4, 2.0, (engine_early_stop)stop};
        const int32_t stops[] = {0};
        toy t = {3, 3.0f};
        beam_search *b;
        error err;
        assert_int_equal(beam_search_create(&b, &o, stops, 1, 20, VOCAB, &err), CHURON_OK);
        run_search(b, &t, 4);
        lengths[stop] = beam_search_length(b);
        beam_search_free(b);
    }
    assert_true(lengths[ENGINE_BEAM_FIRST] < lengths[ENGINE_BEAM_HEURISTIC] ||
                lengths[ENGINE_BEAM_HEURISTIC] < lengths[ENGINE_BEAM_NEVER]);
    assert_true(lengths[ENGINE_BEAM_FIRST] <= lengths[ENGINE_BEAM_HEURISTIC]);
    assert_true(lengths[ENGINE_BEAM_HEURISTIC] <= lengths[ENGINE_BEAM_NEVER]);
}

static void test_options_are_checked(void **state) {
    (void)state;
    beam_search *b;
    error err;
    engine_beam_options o = {1, 1.0, ENGINE_BEAM_HEURISTIC};
    assert_int_equal(beam_search_create(&b, &o, NULL, 0, 5, VOCAB, &err), CHURON_INVALID);
    o.width = 21;
    assert_int_equal(beam_search_create(&b, &o, NULL, 0, 5, VOCAB, &err), CHURON_INVALID);
    assert_string_equal(err.message,
                        "beam_width: expected 2..20 (with this vocabulary and number of stop ids), "
                        "got 21");
    o.width = 2;
    o.length_penalty = NAN;
    assert_int_equal(beam_search_create(&b, &o, NULL, 0, 5, VOCAB, &err), CHURON_INVALID);
    assert_string_equal(err.message, "length_penalty: expected -100..100, got nan");
    o.length_penalty = 1;
    for (int64_t n = 1; n < 20; n++) {
        mem_fail_at(n);
        const status st = beam_search_create(&b, &o, NULL, 0, 5, VOCAB, &err);
        mem_fail_at(0);
        assert_true(st == CHURON_OK || st == CHURON_NO_MEMORY);
        if (st == CHURON_OK) beam_search_free(b);
    }
    assert_int_equal(beam_search_create(&b, &o, NULL, 0, 5, VOCAB, &err), CHURON_OK);
    float logits[VOCAB] = {NAN};
    assert_false(beam_search_offer(b, kernels_for(KERNEL_REF), 0, logits));
    beam_search_free(b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_like_the_reference),
        cmocka_unit_test(test_ways_to_end_differ),
        cmocka_unit_test(test_options_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

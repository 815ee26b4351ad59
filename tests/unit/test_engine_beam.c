/* test_engine_beam.c: a beam search in the engine finds what a plain one finds that computes every text anew;
 * whatever else runs, also when its pages are taken; and gives all pages back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "beam_reference.h"
#include "engine_world.h"

static char path[40];

/* ---- the reference: every text computed alone ------------------------------------------------------- */

typedef struct plain_model {
    engine *e;
    const request *r;
    float *out;
} plain_model;

static void copy_logits(void *user, size_t position, const float *logits) {
    const plain_model *m = user;
    (void)position;
    memcpy(m->out, logits, TINY_VOCAB * sizeof *logits);
}

static void plain_logits(void *ctx, const int32_t *ids, size_t n, float *out) {
    plain_model *m = ctx;
    running run;
    error err;
    m->out = out;
    open_with_prompt(&run, m->e, m->r);
    assert_int_equal(engine_seq_append(run.seq, ids, n, &err), CHURON_OK);
    const engine_job_options o = {.user = m, .on_logits = copy_logits};
    submit(&run, &o);
    assert_int_equal(engine_wait(run.job), ENGINE_LENGTH);
    finish(&run);
}

/* ---- the engine's ----------------------------------------------------------------------------------- */

typedef struct beam_answer {
    ref_text text[REF_MAX_WIDTH];
    size_t n;
    engine_finish finish;
    bool ended;
} beam_answer;

static void keep_beams(void *user, const engine_hypothesis *best, size_t n) {
    beam_answer *a = user;
    assert_int_equal(a->n, 0);
    for (a->n = 0; a->n < n; a->n++) {
        ref_text *t = &a->text[a->n];
        *t = (ref_text){.n = best[a->n].n,
                        .sum = best[a->n].logprob,
                        .score = best[a->n].score,
                        .stopped = best[a->n].stopped};
        memcpy(t->ids, best[a->n].ids, t->n * sizeof *t->ids);
    }
}

static void keep_beam_end(void *user, engine_finish f, const error *err) {
    beam_answer *a = user;
    (void)err;
    a->finish = f;
    a->ended = true;
}

static const int32_t stop_ids[] = {17, 90};

static engine_job_options beam_options(const request *r, size_t width, double penalty, beam_answer *a) {
    return (engine_job_options){.max_tokens = r->max_tokens,
                                .stop_ids = stop_ids,
                                .n_stop_ids = 2,
                                .beam = {width, penalty, ENGINE_BEAM_HEURISTIC},
                                .user = a,
                                .on_beams = keep_beams,
                                .on_end = keep_beam_end};
}

static request prompt_of(uint32_t seed, size_t n, size_t max_tokens) {
    request r = {.n_prompt = n, .max_tokens = max_tokens, .sampling = sampler_defaults()};
    for (size_t i = 0; i < n; i++) r.prompt[i] = (int32_t)(lcg(&seed) % TINY_VOCAB);
    return r;
}

static running start_beam(engine *e, const request *r, size_t width, double penalty, beam_answer *a) {
    running run;
    *a = (beam_answer){.n = 0};
    open_with_prompt(&run, e, r);
    const engine_job_options o = beam_options(r, width, penalty, a);
    submit(&run, &o);
    return run;
}

static void assert_same_texts(const beam_answer *a, const beam_answer *b) {
    assert_int_equal(a->finish, b->finish);
    assert_int_equal(a->n, b->n);
    for (size_t i = 0; i < a->n; i++) {
        assert_int_equal(a->text[i].n, b->text[i].n);
        assert_memory_equal(a->text[i].ids, b->text[i].ids, a->text[i].n * sizeof(int32_t));
        assert_true(a->text[i].score == b->text[i].score && a->text[i].sum == b->text[i].sum);
    }
}

static beam_answer beam_alone(engine *e, const request *r, size_t width, double penalty) {
    beam_answer a;
    running run = start_beam(e, r, width, penalty, &a);
    (void)engine_wait(run.job);
    assert_int_equal(engine_seq_length(run.seq), r->n_prompt);
    finish(&run);
    assert_true(a.ended && (a.finish == ENGINE_STOP || a.finish == ENGINE_LENGTH));
    return a;
}

static void test_like_every_text_computed_anew(void **state) {
    (void)state;
    world w = open_world(path, NULL, 2, (engine_options){.step_tokens = 16});
    for (uint32_t i = 0; i < 8; i++) {
        const request r = prompt_of(i + 1, 1 + i * 9, 4 + i);
        const size_t width = 2 + i % 4;
        const double penalty = i % 3 ? 1.0 : 0.0;
        plain_model m = {.e = w.e, .r = &r};
        ref_search ref = {{width, penalty, ENGINE_BEAM_HEURISTIC},
                          stop_ids,
                          2,
                          r.max_tokens,
                          TINY_VOCAB,
                          plain_logits,
                          &m,
                          .n_found = 0};
        ref_run(&ref);
        const beam_answer a = beam_alone(w.e, &r, width, penalty);
        assert_int_equal(a.finish == ENGINE_STOP, ref.done);
        assert_int_equal(a.n, ref.n_found);
        for (size_t t = 0; t < a.n; t++) {
            assert_int_equal(a.text[t].n, ref.found[t].n);
            assert_memory_equal(a.text[t].ids, ref.found[t].ids, a.text[t].n * sizeof(int32_t));
            assert_true(fabs(a.text[t].score - ref.found[t].score) < 1e-4);
        }
    }
    assert_all_given_back(w.e);
    world_close(&w);
}

/* In company, with few pages, so that searches are put off and begin anew. */
static void test_the_same_under_load(void **state) {
    (void)state;
    enum { N = 5, CHATS = 6 };
    static beam_answer alone[N], a[N];
    static answer chat_alone[CHATS], chat[CHATS];
    request r[N], c[CHATS];
    world w = open_world(path, NULL, 1, (engine_options){.max_running = 4});
    for (uint32_t i = 0; i < N; i++) {
        r[i] = prompt_of(50 + i, 20 + 13 * i, 20);
        alone[i] = beam_alone(w.e, &r[i], 2 + i % 3, 1.0);
    }
    for (uint32_t i = 0; i < CHATS; i++) {
        c[i] = prompt_of(80 + i, 30 + i, 40);
        running run = start(w.e, &c[i], &chat_alone[i]);
        (void)engine_wait(run.job);
        finish(&run);
    }
    const uint64_t few = tiny_pages(&w, KV_F16, 14);
    world_close(&w);
    size_t preemptions = 0;
    for (size_t threads = 1; threads <= 2; threads++) {
        w = open_world(path, NULL, threads,
                       (engine_options){.max_running = 8, .step_tokens = 24, .kv_memory = few});
        running runs[N], chats[CHATS];
        for (size_t i = 0; i < N; i++) runs[i] = start_beam(w.e, &r[i], 2 + i % 3, 1.0, &a[i]);
        for (int s = 0; s < 8; s++) (void)engine_wait_step(runs[N - 1].job);
        for (size_t i = 0; i < CHATS; i++) {
            c[i].priority = i % 2 ? -1 : 0;
            chats[i] = start(w.e, &c[i], &chat[i]);
        }
        for (size_t i = 0; i < N; i++) {
            (void)engine_wait(runs[i].job);
            preemptions += engine_job_stats_get(runs[i].job).preemptions;
            finish(&runs[i]);
            assert_same_texts(&alone[i], &a[i]);
        }
        for (size_t i = 0; i < CHATS; i++) {
            (void)engine_wait(chats[i].job);
            finish(&chats[i]);
            assert_same(&chat_alone[i], &chat[i]);
        }
        assert_all_given_back(w.e);
        world_close(&w);
    }
    assert_true(preemptions > 0);
}

/* Beams share what they have in common: far less than a copy for each; and steps allocate nothing. */
static void test_beams_share_pages(void **state) {
    (void)state;
    world w = open_world(path, NULL, 1, (engine_options){.max_running = 8});
    const request r = prompt_of(5, 300, 20); /* 9 pages and a part */
    beam_answer a;
    running run = start_beam(w.e, &r, 8, 1.0, &a);
    const int64_t before = mem_count();
    for (int i = 0; i < 12; i++) {
        (void)engine_wait_step(run.job);
        const engine_load load = load_of(w.e);
        assert_true(load.kv_pages - load.kv_pages_free <= 10 + 8 * 2);
    }
    assert_int_equal(mem_count(), before);
    engine_cancel(run.job);
    (void)engine_wait_step(run.job);
    assert_true(a.ended && a.finish == ENGINE_CANCELLED && a.n == 0);
    assert_all_given_back(w.e);
    finish(&run);
    world_close(&w);
}

static void test_options_are_checked(void **state) {
    (void)state;
    world w = open_world(path, NULL, 1, (engine_options){.max_running = 4});
    const request r = prompt_of(5, 100, 60);
    beam_answer a = {.n = 0};
    running run;
    error err;
    open_with_prompt(&run, w.e, &r);
    engine_job_options o = beam_options(&r, 5, 1.0, &a);
    assert_int_equal(engine_submit(&run.job, run.seq, &o, &err), CHURON_INVALID);
    assert_string_equal(err.message, "beam_width: expected at most 4 (max_running), got 5");
    o.beam.width = 1;
    assert_int_equal(engine_submit(&run.job, run.seq, &o, &err), CHURON_INVALID);
    o.beam.width = 4;
    o.max_tokens = 0;
    assert_int_equal(engine_submit(&run.job, run.seq, &o, &err), CHURON_INVALID);
    engine_seq_close(run.seq);
    const uint64_t few = tiny_pages(&w, KV_F16, 11);
    world_close(&w);
    w = open_world(path, NULL, 1, (engine_options){.max_running = 4, .kv_memory = few});
    open_with_prompt(&run, w.e, &r);
    o.max_tokens = 60;
    assert_int_equal(engine_submit(&run.job, run.seq, &o, &err), CHURON_LIMIT);
    assert_string_equal(err.message, "KV cache: expected at most 11 pages for all beams, got 12");
    /* What it says will do does. */
    o.max_tokens = 29;
    submit(&run, &o);
    assert_int_not_equal(engine_wait(run.job), ENGINE_FAILED);
    assert_true(a.ended && a.n == 4);
    finish(&run);
    world_close(&w);
}

static void test_every_allocation_can_fail(void **state) {
    (void)state;
    world w = open_world(path, NULL, 1, (engine_options){.max_running = 4, .context = 128});
    const request r = prompt_of(5, 10, 3);
    bool done = false;
    for (int64_t n = 1; !done && n < 200; n++) {
        beam_answer a = {.n = 0};
        running run;
        error err;
        open_with_prompt(&run, w.e, &r);
        const engine_job_options o = beam_options(&r, 3, 1.0, &a);
        mem_fail_at(n);
        const status st = engine_submit(&run.job, run.seq, &o, &err);
        mem_fail_at(0);
        assert_true(st == CHURON_OK || st == CHURON_NO_MEMORY);
        done = st == CHURON_OK;
        if (done) (void)engine_wait(run.job);
        finish(&run);
    }
    assert_true(done);
    assert_all_given_back(w.e);
    world_close(&w);
}

static int make(void **state) {
    (void)state;
    return tiny_write(path, true, 6) ? 0 : -1;
}

static int drop(void **state) {
    (void)state;
    (void)unlink(path);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_like_every_text_computed_anew),
        cmocka_unit_test(test_the_same_under_load),
        cmocka_unit_test(test_beams_share_pages),
        cmocka_unit_test(test_options_are_checked),
        cmocka_unit_test(test_every_allocation_can_fail),
    };
    return cmocka_run_group_tests(tests, make, drop);
}

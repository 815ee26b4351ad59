/* test_engine_draft.c: guesses change the time that answers take, and nothing else: tokens, log-probabilities
 * and ends are those without, bit for bit; and draws have the distribution that the model gives. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "bundle/lm_bundle.h"
#include "lm/engine.h"
#include "tiny_model.h"

enum { MAX_TOKENS = 80, MAX_PROMPT = 300, N_TOP = 3, N_REQUESTS = 24 };

static char path_q8[40], path_other[40];

typedef struct world {
    gguf *g, *draft_g;
    const kernels *k;
    pool *p;
    lm_model *m, *draft;
    engine *e;
} world;

/* draft: path of a draft model, or NULL. */
static status world_open(world *w, size_t threads, engine_options o, const char *draft, error *err) {
    *w = (world){0};
    TRY(gguf_open(&w->g, path_q8, err));
    TRY(kernels_select(&w->k, err));
    TRY(pool_create(&w->p, threads, err));
    TRY(lm_model_load(&w->m, w->g, w->k, w->p, err));
    if (draft) {
        TRY(gguf_open(&w->draft_g, draft, err));
        TRY(lm_model_load(&w->draft, w->draft_g, w->k, w->p, err));
        o.draft = w->draft;
    }
    return engine_create(&w->e, w->m, w->p, &o, err);
}

static void world_close(world *w) {
    engine_free(w->e);
    lm_model_free(w->m);
    lm_model_free(w->draft);
    pool_free(w->p);
    gguf_free(w->g);
    gguf_free(w->draft_g);
}

static world open_world(size_t threads, engine_options o, const char *draft) {
    world w;
    error err = {0};
    if (world_open(&w, threads, o, draft, &err) != CHURON_OK) fail_msg("%s", err.message);
    return w;
}

/* ---- requests and answers --------------------------------------------------------------------------- */

typedef struct request {
    int32_t prompt[MAX_PROMPT];
    size_t n_prompt, max_tokens, halt_at; /* halt_at: the callback stops there; 0: never */
    int32_t stop_id;                      /* -1: none */
    sampler_params sampling;
} request;

typedef struct answer {
    const request *r;
    int32_t ids[MAX_TOKENS], top[MAX_TOKENS][N_TOP];
    float logprobs[MAX_TOKENS], top_logprobs[MAX_TOKENS][N_TOP];
    size_t n;
    engine_finish finish;
} answer;

static uint32_t seed = 1;

static uint32_t below(uint32_t n) {
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % n;
}

/* All tokens but the first `n` letters are banned: guesses are right now and then although the model is
 * noise. */
static void allow_letters(sampler_params *p, size_t n) {
    static logit_bias bans[27][TINY_VOCAB];
    for (int32_t id = 0; id < TINY_VOCAB; id++) {
        if (id >= 'a' && id < 'a' + (int32_t)n) continue;
        bans[n][p->n_bias++] = (logit_bias){id, -INFINITY};
    }
    p->bias = bans[n];
}

/* Prompts that repeat themselves, so that there is something to guess. */
static request make_request(uint32_t i) {
    request r = {.sampling = sampler_defaults(), .stop_id = -1};
    const uint32_t letters = 2 + i % 5;
    const size_t period = 3 + below(40);
    r.n_prompt = 20 + below(MAX_PROMPT - 20);
    for (size_t t = 0; t < r.n_prompt; t++) {
        r.prompt[t] = t < period || below(25) == 0 ? (int32_t)('a' + below(letters)) : r.prompt[t - period];
    }
    r.max_tokens = 1 + below(MAX_TOKENS);
    r.sampling.seed = i;
    r.sampling.temperature = i % 3 == 0 ? 0.0f : i % 3 == 1 ? 0.3f : 1.0f;
    r.sampling.top_k = i % 3 == 2 ? 4 : 0;
    r.sampling.top_p = i % 5 == 1 ? 0.8f : 1.0f;
    r.sampling.repeat_penalty = i % 4 == 3 ? 1.3f : 1.0f;
    r.sampling.frequency_penalty = i % 7 == 3 ? 0.4f : 0.0f;
    r.sampling.dry_multiplier = i % 8 == 5 ? 0.8f : 0.0f;
    r.sampling.repeat_last_n = 32;
    r.sampling.n_logprobs = N_TOP;
    r.sampling.want_logprobs = true;
    if (i % 4 != 3) allow_letters(&r.sampling, letters);
    if (i % 6 == 1) r.stop_id = 'b';
    if (i % 6 == 4) r.halt_at = 1 + below(30);
    return r;
}

static engine_verdict on_token(void *user, const sampled *t) {
    answer *a = user;
    assert_true(a->n < MAX_TOKENS && t->n_top == N_TOP);
    a->ids[a->n] = t->id;
    a->logprobs[a->n] = t->logprob;
    for (size_t i = 0; i < N_TOP; i++) {
        a->top[a->n][i] = t->top[i].id;
        a->top_logprobs[a->n][i] = t->top[i].logprob;
    }
    a->n++;
    return a->r->halt_at && a->n >= a->r->halt_at ? ENGINE_HALT : ENGINE_GO_ON;
}

static void on_end(void *user, engine_finish finish, const error *err) {
    answer *a = user;
    (void)err;
    a->finish = finish;
}

typedef struct running {
    engine_seq *seq;
    engine_job *job;
} running;

static status start(engine *e, const request *r, answer *a, running *out, error *err) {
    *a = (answer){.r = r};
    *out = (running){0};
    const engine_job_options o = {.sampling = r->sampling,
                                  .max_tokens = r->max_tokens,
                                  .stop_ids = &r->stop_id,
                                  .n_stop_ids = r->stop_id >= 0,
                                  .user = a,
                                  .on_token = on_token,
                                  .on_end = on_end};
    TRY(engine_seq_open(&out->seq, e, NULL, err));
    status st = engine_seq_append(out->seq, r->prompt, r->n_prompt, err);
    if (st == CHURON_OK) st = engine_submit(&out->job, out->seq, &o, err);
    if (st != CHURON_OK) engine_seq_close(out->seq);
    return st;
}

static engine_job_stats finish(running *r) {
    (void)engine_wait(r->job);
    engine_job_stats s = engine_job_stats_get(r->job);
    engine_job_free(r->job);
    engine_seq_close(r->seq);
    return s;
}

/* All at once, or one after the other. */
static engine_job_stats answer_all(engine *e, const request *r, answer *a, bool together) {
    running runs[N_REQUESTS];
    engine_job_stats sum = {0}, one;
    for (size_t i = 0; i < N_REQUESTS; i++) {
        error err;
        if (start(e, &r[i], &a[i], &runs[i], &err) != CHURON_OK) fail_msg("%s", err.message);
        if (together) continue;
        one = finish(&runs[i]);
        sum.drafted += one.drafted;
        sum.accepted += one.accepted;
    }
    for (size_t i = 0; together && i < N_REQUESTS; i++) {
        one = finish(&runs[i]);
        sum.drafted += one.drafted;
        sum.accepted += one.accepted;
    }
    engine_load load;
    engine_load_get(e, &load);
    assert_int_equal(load.kv_pages_free, load.kv_pages);
    assert_int_equal(load.drafted, sum.drafted);
    assert_int_equal(load.accepted, sum.accepted);
    assert_true(sum.accepted <= sum.drafted);
    return sum;
}

static void assert_same(const answer *a, const answer *b) {
    assert_int_equal(a->n, b->n);
    assert_int_equal(a->finish, b->finish);
    assert_memory_equal(a->ids, b->ids, a->n * sizeof *a->ids);
    assert_memory_equal(a->logprobs, b->logprobs, a->n * sizeof *a->logprobs);
    assert_memory_equal(a->top, b->top, a->n * sizeof *a->top);
    assert_memory_equal(a->top_logprobs, b->top_logprobs, a->n * sizeof *a->top_logprobs);
}

static request requests[N_REQUESTS];
static answer without[N_REQUESTS], with[N_REQUESTS];

static void make_without(kv_type type) {
    seed = 7;
    for (uint32_t i = 0; i < N_REQUESTS; i++) requests[i] = make_request(i);
    world w = open_world(1, (engine_options){.no_speculation = true, .kv_type = type}, NULL);
    engine_job_stats s = answer_all(w.e, requests, without, false);
    assert_int_equal(s.drafted, 0);
    world_close(&w);
}

static engine_job_stats check_with(size_t threads, engine_options o, const char *draft, bool together) {
    world w = open_world(threads, o, draft);
    engine_job_stats s = answer_all(w.e, requests, with, together);
    for (size_t i = 0; i < N_REQUESTS; i++) assert_same(&without[i], &with[i]);
    world_close(&w);
    return s;
}

/* ---- the same answer -------------------------------------------------------------------------------- */

static void test_same_answer(void **state) {
    (void)state;
    for (int type = 0; type < KV_TYPE_COUNT; type++) {
        const kv_type t = (kv_type)type;
        make_without(t);
        engine_job_stats s = check_with(1, (engine_options){.draft_always = true, .kv_type = t}, NULL, false);
        print_message("           %zu guesses, %zu right\n", s.drafted, s.accepted);
        assert_true(s.drafted > 500 && s.accepted > 100 && s.accepted < s.drafted);
        const engine_options settings[] = {{.draft_always = true},
                                           {.draft_always = true, .draft_tokens = 16, .step_tokens = 64},
                                           {.draft_always = true, .draft_tokens = 3, .max_running = 5},
                                           {.draft_always = true, .step_tokens = 1, .max_running = 3},
                                           {.no_prefix_cache = true}};
        for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
            engine_options o = settings[i];
            o.kv_type = t;
            s = check_with(1 + i % 2, o, NULL, true);
            assert_true(i > 2 || s.drafted > 100);
        }
    }
}

/* So few pages that jobs lose theirs in the middle of an answer. */
static void test_same_answer_when_pages_run_out(void **state) {
    (void)state;
    make_without(KV_F16);
    const uint64_t page = (uint64_t)KV_PAGE * 2 * 2 * 2 * 16 * 2;
    const engine_options o = {.draft_always = true, .max_running = 8, .kv_memory = 24 * page};
    assert_true(check_with(2, o, NULL, true).drafted > 0);
    assert_true(check_with(2, o, path_other, true).drafted > 0);
}

static void test_same_answer_with_draft_model(void **state) {
    (void)state;
    make_without(KV_F16);
    const engine_options o = {.draft_always = true, .draft_tokens = 5};
    (void)check_with(2, o, path_q8, true);
    assert_true(check_with(2, o, path_other, true).drafted > 0);
    (void)check_with(1, (engine_options){.draft_always = true, .step_tokens = 20, .max_running = 4}, path_q8,
                     true);
    (void)check_with(1, (engine_options){.max_running = 16}, path_other, true); /* as it pays */
}

/* What is greedy the model itself guesses right, every time; another model seldom. */
static void test_draft_model_guesses(void **state) {
    (void)state;
    seed = 21;
    request r = make_request(0);
    r.max_tokens = 60;
    r.sampling = sampler_defaults();
    r.sampling.temperature = 0;
    r.sampling.want_logprobs = true;
    r.sampling.n_logprobs = N_TOP;
    engine_job_stats s[2];
    answer a[2];
    for (int other = 0; other < 2; other++) {
        /* prompts without a repetition: nothing but the model guesses */
        for (size_t i = 0; i < r.n_prompt; i++) r.prompt[i] = (int32_t)(i * 7 % 251);
        world w = open_world(2, (engine_options){.draft_always = true, .draft_tokens = 5},
                             other ? path_other : path_q8);
        running run;
        error err;
        assert_int_equal(start(w.e, &r, &a[other], &run, &err), CHURON_OK);
        s[other] = finish(&run);
        world_close(&w);
    }
    assert_same(&a[0], &a[1]);
    assert_true(s[0].drafted >= 40 && s[0].accepted == s[0].drafted);
    assert_true(s[1].accepted * 3 < s[1].drafted);
}

/* A sequence that goes on, is taken back and goes on again. */
static void test_turns(void **state) {
    (void)state;
    answer a[2][3];
    for (int on = 0; on < 2; on++) {
        seed = 99;
        request r = make_request(3);
        r.n_prompt = 100;
        r.max_tokens = 30;
        world w = open_world(1, (engine_options){.no_speculation = !on, .draft_always = true, .context = 256},
                             path_q8);
        running run;
        error err;
        assert_int_equal(start(w.e, &r, &a[on][0], &run, &err), CHURON_OK);
        for (int turn = 1; turn < 3; turn++) {
            (void)engine_wait(run.job);
            engine_job_free(run.job);
            assert_int_equal(engine_seq_truncate(run.seq, turn == 1 ? 90 : 120, &err), CHURON_OK);
            assert_int_equal(engine_seq_append(run.seq, r.prompt + 3, 35, &err), CHURON_OK);
            a[on][turn] = (answer){.r = &r};
            const engine_job_options o = {.sampling = r.sampling,
                                          .max_tokens = turn == 2 ? 1000 : 40, /* up to the context */
                                          .user = &a[on][turn],
                                          .on_token = on_token,
                                          .on_end = on_end};
            if (turn == 2) assert_int_equal(engine_seq_truncate(run.seq, 200 - 45, &err), CHURON_OK);
            if (turn == 2) assert_int_equal(engine_seq_append(run.seq, r.prompt, 45, &err), CHURON_OK);
            assert_int_equal(engine_submit(&run.job, run.seq, &o, &err), CHURON_OK);
        }
        (void)finish(&run);
        world_close(&w);
    }
    for (int turn = 0; turn < 3; turn++) assert_same(&a[0][turn], &a[1][turn]);
    assert_int_equal(a[1][2].finish, ENGINE_LENGTH);
    assert_int_equal(a[1][2].n, 56);
}

/* ---- the same distribution --------------------------------------------------------------------------- */

#define HEAT 4.0f /* the model is sure of itself; no answer must be too rare to count */
enum { CHOICES = 3, LENGTH = 4, OUTCOMES = 81, ANSWERS = 25000, AT_ONCE = 16 };
static const int32_t choice[CHOICES] = {'a', 'b', 'c'};

static int index_of(int32_t id) {
    return id - 'a';
}

static void copy_choices(void *user, size_t position, const float *logits) {
    double *p = user, sum = 0;
    (void)position;
    for (int i = 0; i < CHOICES; i++)
        sum += p[i] = exp(((double)logits[choice[i]] - (double)logits['a']) / (double)HEAT);
    for (int i = 0; i < CHOICES; i++) p[i] /= sum;
}

/* Probabilities of every answer of LENGTH tokens, from the model's logits. */
static void exact_distribution(engine *e, const int32_t *prompt, size_t n, double p[OUTCOMES]) {
    for (int outcome = 0; outcome < OUTCOMES; outcome++) {
        int digits[LENGTH] = {outcome / 27, outcome / 9 % 3, outcome / 3 % 3, outcome % 3};
        p[outcome] = 1;
        for (size_t k = 0; k < LENGTH; k++) {
            engine_seq *s;
            engine_job *j;
            error err;
            double next[CHOICES];
            const engine_job_options o = {.user = next, .on_logits = copy_choices};
            assert_int_equal(engine_seq_open(&s, e, NULL, &err), CHURON_OK);
            assert_int_equal(engine_seq_append(s, prompt, n, &err), CHURON_OK);
            for (size_t i = 0; i < k; i++) {
                assert_int_equal(engine_seq_append(s, &choice[digits[i]], 1, &err), CHURON_OK);
            }
            assert_int_equal(engine_submit(&j, s, &o, &err), CHURON_OK);
            (void)engine_wait(j);
            engine_job_free(j);
            engine_seq_close(s);
            p[outcome] *= next[digits[k]];
        }
    }
}

typedef struct tally {
    int digits, n;
} tally;

static engine_verdict count_token(void *user, const sampled *t) {
    tally *c = user;
    c->digits = c->digits * CHOICES + index_of(t->id);
    c->n++;
    return ENGINE_GO_ON;
}

/* 100,000 draws with guesses: chi-squared over the 81 answers. The bound is the quantile 1 - 1e-4. */
static void test_draws_have_the_models_distribution(void **state) {
    (void)state;
    static size_t counts[OUTCOMES];
    int32_t prompt[40];
    seed = 5;
    for (size_t i = 0; i < 40; i++) prompt[i] = choice[below(CHOICES)];
    world w = open_world(2, (engine_options){.draft_always = true, .draft_tokens = 3}, NULL);
    double p[OUTCOMES], chi = 0, total = 0;
    exact_distribution(w.e, prompt, 40, p);
    for (size_t round = 0; round < ANSWERS / AT_ONCE + 1; round++) {
        running runs[AT_ONCE];
        tally tallies[AT_ONCE] = {{0}};
        for (size_t i = 0; i < AT_ONCE; i++) {
            error err;
            engine_job_options o = {.sampling = sampler_defaults(),
                                    .max_tokens = LENGTH,
                                    .user = &tallies[i],
                                    .on_token = count_token};
            o.sampling.temperature = HEAT;
            o.sampling.seed = round * AT_ONCE + i;
            allow_letters(&o.sampling, CHOICES);
            assert_int_equal(engine_seq_open(&runs[i].seq, w.e, NULL, &err), CHURON_OK);
            assert_int_equal(engine_seq_append(runs[i].seq, prompt, 40, &err), CHURON_OK);
            assert_int_equal(engine_submit(&runs[i].job, runs[i].seq, &o, &err), CHURON_OK);
        }
        for (size_t i = 0; i < AT_ONCE; i++) {
            (void)finish(&runs[i]);
            assert_int_equal(tallies[i].n, LENGTH);
            counts[tallies[i].digits]++;
            total++;
        }
    }
    engine_load load;
    engine_load_get(w.e, &load);
    for (int i = 0; i < OUTCOMES; i++) {
        const double expected = p[i] * total, d = (double)counts[i] - expected;
        assert_true(expected > 5);
        chi += d * d / expected;
    }
    print_message(
        "           chi-squared %.1f of 80 degrees of freedom, %.0f answers, %llu of %llu guesses right\n",
        chi, total, (unsigned long long)load.accepted, (unsigned long long)load.drafted);
    assert_true(chi < 133.0);
    assert_true(load.accepted > 10000 && load.drafted > load.accepted);
    world_close(&w);
}

/* ---- refusals ---------------------------------------------------------------------------------------- */

static void test_options(void **state) {
    (void)state;
    world w;
    error err;
    assert_int_equal(world_open(&w, 1, (engine_options){.draft_tokens = 17}, NULL, &err), CHURON_INVALID);
    assert_string_equal(err.message, "draft_tokens: expected 1..16, got 17");
    world_close(&w);
    /* A job may refuse guesses for itself. */
    w = open_world(1, (engine_options){.draft_always = true}, NULL);
    seed = 3;
    request r = make_request(0);
    r.max_tokens = 60;
    for (int refuses = 0; refuses < 2; refuses++) {
        answer a = {.r = &r};
        running run;
        const engine_job_options o = {.sampling = r.sampling,
                                      .max_tokens = r.max_tokens,
                                      .no_speculation = refuses,
                                      .user = &a,
                                      .on_token = on_token};
        assert_int_equal(engine_seq_open(&run.seq, w.e, NULL, &err), CHURON_OK);
        assert_int_equal(engine_seq_append(run.seq, r.prompt, r.n_prompt, &err), CHURON_OK);
        assert_int_equal(engine_submit(&run.job, run.seq, &o, &err), CHURON_OK);
        assert_true((finish(&run).drafted > 0) == !refuses);
    }
    world_close(&w);
}

/* A copy of the model whose tokens 97 and 98 are exchanged: as many tokens, but not the same. */
static void write_exchanged(char *path) {
    static const char two[] = "\1\0\0\0\0\0\0\0a\1\0\0\0\0\0\0\0b";
    str s = {0};
    tiny_bytes(&s, true, 1);
    bool found = false;
    for (size_t i = 0; i + sizeof two - 1 <= s.len && !found; i++) {
        found = memcmp(s.data + i, two, sizeof two - 1) == 0;
        if (found) s.data[i + 8] = 'b', s.data[i + 17] = 'a';
    }
    assert_true(found && !s.failed);
    strcpy(path, "/tmp/churon-tiny-XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0 && write(fd, s.data, s.len) == (ssize_t)s.len);
    close(fd);
    str_free(&s);
}

static void test_draft_model_of_another_vocabulary(void **state) {
    (void)state;
    char exchanged[40];
    write_exchanged(exchanged);
    lm_bundle *b;
    error err;
    lm_bundle_options o = {.threads = 1, .draft = exchanged, .engine = {.context = 64}};
    assert_int_equal(lm_bundle_open(&b, path_q8, &o, &err), CHURON_INVALID);
    assert_null(b);
    assert_string_equal(err.message, "draft model: expected the model's vocabulary, got another token 97");
    o.draft = "/nothing/there";
    assert_int_equal(lm_bundle_open(&b, path_q8, &o, &err), CHURON_NOT_FOUND);
    o.draft = path_other;
    assert_int_equal(lm_bundle_open(&b, path_q8, &o, &err), CHURON_OK);
    lm_bundle_close(b);
    (void)unlink(exchanged);
}

static status open_and_answer(const request *r, answer *a, error *err) {
    world w;
    running run;
    status st = world_open(&w, 1, (engine_options){.draft_always = true, .context = 512}, path_other, err);
    if (st == CHURON_OK) st = start(w.e, r, a, &run, err);
    if (st == CHURON_OK) (void)finish(&run);
    world_close(&w);
    return st;
}

static void test_every_allocation_may_fail(void **state) {
    (void)state;
    seed = 11;
    request r = make_request(6);
    r.max_tokens = 12;
    answer a, expected;
    error err;
    assert_int_equal(open_and_answer(&r, &expected, &err), CHURON_OK);
    bool done = false;
    for (int64_t n = 1; !done && n < 10000; n++) {
        int64_t before = mem_count();
        mem_fail_at(n);
        status st = open_and_answer(&r, &a, &err);
        mem_fail_at(0);
        done = mem_count() - before < n;
        if (st == CHURON_OK) {
            assert_same(&a, &expected);
        } else {
            assert_int_equal(st, CHURON_NO_MEMORY);
        }
    }
    assert_true(done);
}

static int make_models(void **state) {
    (void)state;
    return tiny_write(path_q8, true, 1) && tiny_write(path_other, true, 3) ? 0 : -1;
}

static int drop_models(void **state) {
    (void)state;
    (void)unlink(path_q8);
    (void)unlink(path_other);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_answer),
        cmocka_unit_test(test_same_answer_when_pages_run_out),
        cmocka_unit_test(test_same_answer_with_draft_model),
        cmocka_unit_test(test_draft_model_guesses),
        cmocka_unit_test(test_turns),
        cmocka_unit_test(test_draws_have_the_models_distribution),
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_draft_model_of_another_vocabulary),
        cmocka_unit_test(test_every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, make_models, drop_models);
}

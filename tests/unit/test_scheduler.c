/* test_scheduler.c: the scheduler without a model: order, priorities, shares, preemption, chunks, the bound
 * on starvation; and random events against what must always hold. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "lm/scheduler.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE = 8, MAX_JOBS = 400 };

/* A job that needs no model: after its prompt it makes `answer` tokens, one a step. */
typedef struct fake {
    sched_job job;
    size_t prompt, answer, done, pages;
    struct fake *leader;                           /* it waits while this one prefills */
    uint64_t submitted, first, ended, last_tokens; /* steps; first: when its prompt was first worked on */
    bool live;
} fake;

typedef struct world {
    scheduler *s;
    size_t n_pages, used_pages;
    fake *jobs; /* [MAX_JOBS] */
    size_t n_jobs, live;
    uint64_t step;
    /* of the last step */
    size_t prompt_tokens, decode_rows;
} world;

static fake *fake_of(const sched_job *j) {
    return (fake *)(uintptr_t)j;
}

static size_t pages_for(size_t tokens, size_t rows) {
    return (tokens + PAGE - 1) / PAGE * rows;
}

static size_t available(void *ctx) {
    const world *w = ctx;
    return w->n_pages - w->used_pages;
}

static size_t missing(void *ctx, const sched_job *j, size_t length) {
    (void)ctx;
    const size_t need = pages_for(length, j->rows);
    return need > fake_of(j)->pages ? need - fake_of(j)->pages : 0;
}

static size_t held(void *ctx, const sched_job *j) {
    (void)ctx;
    return fake_of(j)->pages;
}

static void adopt(void *ctx, sched_job *j) {
    (void)ctx;
    assert_int_equal(fake_of(j)->pages, 0);
    j->computed = 0;
}

static void started(void *ctx, sched_job *j) {
    (void)ctx;
    (void)j;
}

static bool reserve(void *ctx, sched_job *j, size_t length) {
    world *w = ctx;
    const size_t more = missing(ctx, j, length);
    assert_true(j->running);
    if (more > available(ctx)) return false;
    w->used_pages += more;
    fake_of(j)->pages += more;
    return true;
}

static void release(void *ctx, sched_job *j) {
    world *w = ctx;
    w->used_pages -= fake_of(j)->pages;
    fake_of(j)->pages = 0;
    j->computed = 0;
}

static bool waits(void *ctx, sched_job *j) {
    (void)ctx;
    const fake *leader = fake_of(j)->leader;
    return !j->promoted && leader && leader->live && leader->job.running &&
           leader->job.length - leader->job.computed > 1;
}

static void begin(world *w, size_t pages, size_t places, size_t step_tokens, double target) {
    *w = (world){.n_pages = pages, .jobs = calloc(MAX_JOBS, sizeof *w->jobs)};
    assert_non_null(w->jobs);
    const sched_memory m = {w, available, missing, held, adopt, started, reserve, release, waits};
    const sched_options o = {.places = places, .step_tokens = step_tokens, .target = target};
    error err;
    assert_int_equal(sched_create(&w->s, &o, &m, &err), CHURON_OK);
}

static void close_world(world *w) {
    assert_int_equal(w->used_pages, 0);
    sched_free(w->s);
    free(w->jobs);
}

static fake *submit(world *w, const char *tenant, int32_t priority, size_t prompt, size_t answer) {
    fake *f = NULL;
    for (size_t i = 0; i < MAX_JOBS && !f; i++) {
        if (!w->jobs[i].live) f = &w->jobs[i];
    }
    assert_non_null(f);
    sched_tenant *t;
    error err;
    assert_int_equal(sched_tenant_get(&t, w->s, tenant, &err), CHURON_OK);
    *f = (fake){
        .prompt = prompt, .answer = answer, .live = true, .submitted = w->step, .last_tokens = w->step};
    f->job = (sched_job){.tenant = t, .priority = priority, .rows = 1, .length = prompt};
    w->live++;
    sched_submit(w->s, &f->job);
    return f;
}

static void end(world *w, fake *f) {
    sched_end(w->s, &f->job);
    sched_tenant_put(f->job.tenant);
    assert_int_equal(f->pages, 0);
    f->live = false;
    f->ended = w->step;
    w->live--;
}

static void check_plan(world *w, sched_job *const *plan, size_t n, size_t places) {
    size_t rows = 0, held_pages = 0, n_running;
    sched_job *const *running = sched_running(w->s, &n_running);
    for (size_t i = 0; i < n_running; i++) {
        rows += running[i]->rows;
        held_pages += fake_of(running[i])->pages;
        assert_true(fake_of(running[i])->live);
        /* Whoever decodes gets its token in every step in which it runs. */
        if (running[i]->length - running[i]->computed == 1) assert_int_equal(running[i]->planned, 1);
    }
    assert_true(rows <= places);
    assert_int_equal(held_pages, w->used_pages);
    assert_true(w->used_pages <= w->n_pages);
    for (size_t i = 0; i < n; i++) {
        const sched_job *j = plan[i];
        assert_true(j->running && j->planned > 0 && j->computed + j->planned <= j->length);
        assert_true(fake_of(j)->pages >= pages_for(j->computed + j->planned, j->rows));
    }
}

/* One step that takes `seconds`; ends what is complete. Returns the tokens computed. */
static size_t step(world *w, size_t places, double (*cost)(size_t prompt, size_t rows)) {
    size_t n, total = 0;
    w->step++;
    w->prompt_tokens = w->decode_rows = 0;
    sched_job *const *plan = sched_plan(w->s, &n);
    check_plan(w, plan, n, places);
    fake *worked[64];
    assert_true(n <= 64);
    for (size_t i = 0; i < n; i++) {
        const sched_job *j = plan[i];
        *(j->length - j->computed == 1 ? &w->decode_rows : &w->prompt_tokens) += j->planned * j->rows;
        worked[i] = fake_of(j);
    }
    sched_done(w->s, cost ? cost(w->prompt_tokens, w->decode_rows) : 0);
    for (size_t i = 0; i < n; i++) {
        fake *f = worked[i];
        sched_job *j = &f->job;
        if (f->first == 0) f->first = w->step;
        f->last_tokens = w->step;
        total += j->planned;
        j->computed += j->planned;
        j->planned = 0;
        if (j->computed < j->length) continue;
        if (++f->done >= f->answer) {
            end(w, f);
        } else {
            j->length++;
        }
    }
    return total;
}

static void drain(world *w, size_t places, size_t most) {
    while (w->live > 0) {
        assert_true(most-- > 0);
        if (step(w, places, NULL) == 0) fail_msg("nothing was planned although %zu jobs wait", w->live);
    }
}

/* ---- order ------------------------------------------------------------------------------------------ */

static void test_first_come_first_served_by_priority(void **state) {
    (void)state;
    world w;
    begin(&w, 1000, 2, 32, 0.05);
    fake *f[6];
    for (size_t i = 0; i < 6; i++) f[i] = submit(&w, "", i == 4 ? -1 : 0, 20, 5);
    drain(&w, 2, 1000);
    assert_true(f[4]->first == 1); /* more urgent */
    for (size_t i = 0; i + 1 < 6; i++) {
        if (i != 4 && i + 1 != 4) assert_true(f[i]->first <= f[i + 1]->first);
    }
    close_world(&w);
}

static void test_urgent_job_takes_a_place_and_gives_it_back(void **state) {
    (void)state;
    world w;
    begin(&w, 1000, 2, 32, 0.05);
    fake *a = submit(&w, "", 0, 8, 50), *b = submit(&w, "", 0, 8, 50), *c = submit(&w, "", 0, 8, 50);
    for (int i = 0; i < 10; i++) (void)step(&w, 2, NULL);
    const uint64_t place = b->job.arrival;
    fake *urgent = submit(&w, "", -5, 8, 5);
    (void)step(&w, 2, NULL);
    assert_true(urgent->first == w.step);
    assert_int_equal(b->job.preemptions, 1); /* the latest of the least urgent */
    assert_int_equal(a->job.preemptions, 0);
    assert_int_equal(b->job.arrival, place);
    while (urgent->live) (void)step(&w, 2, NULL);
    (void)step(&w, 2, NULL);
    assert_true(b->job.running && c->first == 0); /* before the one that came after it */
    drain(&w, 2, 1000);
    close_world(&w);
}

static void test_pages_run_out_and_nobody_is_lost(void **state) {
    (void)state;
    world w;
    begin(&w, 24, 8, 64, 0.05);
    fake *f[8];
    for (size_t i = 0; i < 8; i++) f[i] = submit(&w, "", 0, 20, 100); /* 15 pages each */
    drain(&w, 8, 10000);
    assert_true(sched_preemptions(w.s) > 0);
    assert_int_equal(f[0]->job.preemptions, 0); /* the first is never put off */
    for (size_t i = 0; i + 1 < 8; i++) assert_true(f[i]->ended <= f[i + 1]->ended);
    close_world(&w);
}

static void test_blocked_head_is_passed_but_not_for_ever(void **state) {
    (void)state;
    world w;
    begin(&w, 100, 8, 64, 0.05);
    fake *runs = submit(&w, "", 0, 400, 300); /* holds half of the pool and more */
    for (int i = 0; i < 10; i++) (void)step(&w, 8, NULL);
    fake *big = submit(&w, "", 0, 600, 5);
    size_t passed = 0;
    for (int i = 0; i < 400 && big->first == 0; i++) {
        fake *small = submit(&w, "", 0, 8, 2);
        (void)step(&w, 8, NULL);
        passed += small->first > 0 || !small->live;
    }
    assert_true(passed > 8); /* it does not stop the others */
    assert_true(passed <= SCHED_PASSES + 8);
    (void)runs;
    drain(&w, 8, 10000);
    assert_true(big->ended > 0);
    close_world(&w);
}

/* ---- tenants ---------------------------------------------------------------------------------------- */

static void test_a_flood_does_not_starve_one(void **state) {
    (void)state;
    world w;
    begin(&w, 100000, 4, 64, 0.05);
    for (size_t i = 0; i < 100; i++) (void)submit(&w, "flood", 0, 50, 100);
    for (int i = 0; i < 20; i++) (void)step(&w, 4, NULL);
    fake *one = submit(&w, "one", 0, 50, 100);
    (void)step(&w, 4, NULL);
    assert_true(one->job.running); /* its share is half of the places */
    while (one->live) (void)step(&w, 4, NULL);
    assert_true(one->ended - one->submitted <= 110);
    assert_int_equal(one->job.preemptions, 0);
    drain(&w, 4, 100000);
    close_world(&w);
}

/* Tokens computed for tenant t in n steps in which both always have jobs waiting. */
static void share_of(double weight, size_t places, size_t tokens[2]) {
    world w;
    begin(&w, 100000, places, 64, 0.05);
    error err;
    assert_int_equal(sched_tenant_weight(w.s, "b", weight, &err), CHURON_OK);
    static const char *const names[] = {"a", "b"};
    for (size_t n = 0; n < 3000; n++) {
        for (size_t t = 0; t < 2; t++) {
            sched_tenant *x;
            assert_int_equal(sched_tenant_get(&x, w.s, names[t], &err), CHURON_OK);
            while (x->waiting < 20) (void)submit(&w, names[t], 0, 30, 30);
            sched_tenant_put(x);
        }
        (void)step(&w, places, NULL);
    }
    tokens[0] = tokens[1] = 0;
    for (size_t i = 0; i < MAX_JOBS; i++) {
        if (w.jobs[i].live) end(&w, &w.jobs[i]);
    }
    for (sched_tenant *t = sched_tenants(w.s); t; t = t->next) {
        tokens[t->name[0] - 'a'] = (size_t)(t->served * t->weight);
    }
    close_world(&w);
}

static void test_weights_divide_the_tokens(void **state) {
    (void)state;
    size_t tokens[2];
    share_of(1, 1, tokens);
    assert_true(tokens[0] * 10 > tokens[1] * 9 && tokens[1] * 10 > tokens[0] * 9);
    share_of(3, 1, tokens);
    assert_true(tokens[1] * 10 > tokens[0] * 27 && tokens[1] * 10 < tokens[0] * 33);
    share_of(3, 8, tokens);
    assert_true(tokens[1] * 10 > tokens[0] * 27 && tokens[1] * 10 < tokens[0] * 33);
}

static void idle_and_busy(const char *first, const char *second) {
    world w;
    begin(&w, 100000, 1, 64, 0.05);
    fake *early = submit(&w, "idle", 0, 8, 1);
    while (early->live) (void)step(&w, 1, NULL);
    for (size_t i = 0; i < 100; i++) { /* 20,000 tokens alone */
        fake *f = submit(&w, "busy", 0, 100, 100);
        while (f->live) (void)step(&w, 1, NULL);
    }
    /* Both come with many: they take turns from the start. */
    fake *a[60], *b[60];
    for (size_t i = 0; i < 60; i++) {
        a[i] = submit(&w, first, 0, 100, 20);
        b[i] = submit(&w, second, 0, 100, 20);
    }
    while (a[59]->first == 0 && b[59]->first == 0) {
        (void)step(&w, 1, NULL);
        size_t na = 0, nb = 0;
        for (size_t i = 0; i < 60; i++) {
            na += a[i]->first > 0;
            nb += b[i]->first > 0;
        }
        assert_true(na <= nb + 1 + (SCHED_CREDIT + 119) / 120 && nb <= na + 1 + (SCHED_CREDIT + 119) / 120);
    }
    drain(&w, 1, 100000);
    close_world(&w);
}

static void test_idle_time_is_no_hoard_and_use_no_debt(void **state) {
    (void)state;
    idle_and_busy("idle", "busy");
    idle_and_busy("busy", "idle");
}

/* ---- starvation ------------------------------------------------------------------------------------- */

static void test_the_bound_holds_under_a_flood_of_urgent_jobs(void **state) {
    (void)state;
    enum { OLD = 3, PROMPT = 40, ANSWER = 60 };
    world w;
    begin(&w, 64, 2, 16, 0.05);
    fake *old[OLD];
    uint64_t arrival[OLD];
    for (size_t i = 0; i < OLD; i++) {
        old[i] = submit(&w, "slow", 7, PROMPT, ANSWER);
        arrival[i] = old[i]->job.arrival;
    }
    uint64_t worst = 0;
    size_t left = OLD;
    for (size_t n = 0; left > 0; n++) {
        while (w.live < OLD + 8) (void)submit(&w, n % 2 ? "x" : "y", -1, 30, 20);
        (void)step(&w, 2, NULL);
        left = 0;
        for (size_t i = 0; i < OLD; i++) {
            if (!old[i]->live || old[i]->job.arrival != arrival[i]) continue;
            const uint64_t gap = w.step - old[i]->last_tokens;
            if (gap > worst) worst = gap;
            assert_true(gap <= (uint64_t)(2 + i) * SCHED_PATIENCE + SCHED_PATIENCE);
            left++;
        }
    }
    assert_true(worst > SCHED_PATIENCE / 2); /* they did wait */
    for (size_t i = 0; i < MAX_JOBS; i++) {
        if (w.jobs[i].live) end(&w, &w.jobs[i]);
    }
    close_world(&w);
}

/* ---- chunks ----------------------------------------------------------------------------------------- */

static double cost_of_small_model(size_t prompt, size_t rows) {
    return 0.006 + 0.0004 * (double)(prompt + rows);
}

static void test_chunks_keep_the_target(void **state) {
    (void)state;
    world w;
    begin(&w, 100000, 4, 512, 0.05);
    fake *chat = submit(&w, "", 0, 10, 3000);
    for (int i = 0; i < 5; i++) (void)step(&w, 4, cost_of_small_model);
    fake *doc = submit(&w, "", 0, 20000, 1);
    size_t n = 0, tokens = 0;
    for (; doc->job.length - doc->job.computed > 1000; n++) {
        (void)step(&w, 4, cost_of_small_model);
        assert_int_equal(w.decode_rows, 1);
        assert_true(w.prompt_tokens >= SCHED_LEAST_CHUNK);
        const double seconds = cost_of_small_model(w.prompt_tokens, w.decode_rows);
        if (n == 0) continue; /* nothing is measured yet */
        assert_true(seconds <= 0.06);
        if (n > 10) assert_true(seconds >= 0.035);
        tokens += w.prompt_tokens;
    }
    (void)chat;
    while (chat->live) (void)step(&w, 4, cost_of_small_model);
    /* Nobody decodes: whole chunks. */
    (void)submit(&w, "", 0, 5000, 1);
    (void)step(&w, 4, cost_of_small_model);
    assert_int_equal(w.prompt_tokens, 512);
    drain(&w, 4, 1000);
    close_world(&w);
}

/* The small model on a machine that does something else in every third step. */
static double last_cost;

static double cost_with_others(size_t prompt, size_t rows) {
    static unsigned n;
    last_cost = cost_of_small_model(prompt, rows) + (n++ % 3 == 0 ? 0.006 : 0);
    return last_cost;
}

static void test_the_target_is_a_ceiling(void **state) {
    (void)state;
    world w;
    begin(&w, 100000, 4, 512, 0.05);
    (void)submit(&w, "", 0, 10, 3000);
    for (int i = 0; i < 5; i++) (void)step(&w, 4, cost_with_others);
    fake *doc = submit(&w, "", 0, 40000, 1);
    size_t n = 0, late = 0, tokens = 0;
    for (; doc->job.length - doc->job.computed > 1000; n++) {
        (void)step(&w, 4, cost_with_others);
        if (n < 40) continue; /* it learns */
        late += last_cost > 0.05;
        tokens += w.prompt_tokens;
    }
    assert_true(n > 300);
    assert_true(late * 10 <= n - 40);
    assert_true(tokens >= (n - 40) * 80); /* of 110 if nothing disturbed it */
    drain(&w, 4, 3000);
    close_world(&w);
}

static double cost_of_slow_model(size_t prompt, size_t rows) {
    return 1.0 + 0.1 * (double)(prompt + rows);
}

static void test_prefill_always_advances(void **state) {
    (void)state;
    world w;
    begin(&w, 100000, 4, 512, 0.001);
    (void)submit(&w, "", 0, 10, 500);
    for (int i = 0; i < 5; i++) (void)step(&w, 4, cost_of_slow_model);
    fake *doc = submit(&w, "", 0, 1600, 1);
    for (int i = 0; i < 110 && doc->live; i++) (void)step(&w, 4, cost_of_slow_model);
    assert_false(doc->live);
    drain(&w, 4, 1000);
    close_world(&w);
}

static void test_followers_wait_and_others_go_on(void **state) {
    (void)state;
    world w;
    begin(&w, 100000, 8, 32, 0.05);
    fake *leader = submit(&w, "", 0, 320, 4);
    fake *follower[5], *other;
    for (size_t i = 0; i < 5; i++) {
        follower[i] = submit(&w, "", 0, 330, 4);
        follower[i]->leader = leader;
    }
    other = submit(&w, "", 0, 8, 3);
    (void)step(&w, 8, NULL);
    (void)step(&w, 8, NULL);
    assert_true(other->job.running || !other->live);
    while (leader->first == 0 || leader->job.length - leader->job.computed > 1) {
        for (size_t i = 0; i < 5; i++) assert_true(follower[i]->first == 0);
        (void)step(&w, 8, NULL);
    }
    (void)step(&w, 8, NULL);
    assert_true(follower[0]->first > 0);
    drain(&w, 8, 1000);
    close_world(&w);
}

/* ---- at random -------------------------------------------------------------------------------------- */

static uint32_t lcg(uint32_t *s) {
    *s = *s * 1664525u + 1013904223u;
    return *s >> 8;
}

static void random_events(uint32_t seed) {
    enum { PLACES = 6, POOL = 60 };
    static const char *const tenants[] = {"a", "b", "c"};
    world w;
    begin(&w, POOL, PLACES, 40, 0.05);
    uint32_t r = seed;
    const size_t longest = POOL * PAGE;
    for (size_t event = 0; event < 4000; event++) {
        const uint32_t what = lcg(&r) % 10;
        if (what < 2 && w.live < 60) {
            const size_t prompt = 1 + lcg(&r) % (lcg(&r) % 4 ? 60 : longest / 2);
            fake *f = submit(&w, tenants[lcg(&r) % 3], (int32_t)(lcg(&r) % 3), prompt, 1 + lcg(&r) % 60);
            fake *of = &w.jobs[lcg(&r) % MAX_JOBS];
            if (lcg(&r) % 4 == 0 && of->live && of != f && of->job.priority <= f->job.priority)
                f->leader = of;
        } else if (what == 2) {
            fake *f = &w.jobs[lcg(&r) % 64];
            if (f->live) end(&w, f); /* waits, prefills, decodes */
        } else if (step(&w, PLACES, cost_of_small_model) == 0) {
            assert_int_equal(w.live, 0);
        }
    }
    drain(&w, PLACES, 200000);
    assert_int_equal(sched_n_waiting(w.s), 0);
    assert_int_equal(sched_waiting_tokens(w.s), 0);
    for (sched_tenant *t = sched_tenants(w.s); t; t = t->next) {
        assert_int_equal(t->running + t->waiting + t->waiting_tokens + t->refs, 0);
    }
    close_world(&w);
}

static void test_random_events(void **state) {
    (void)state;
    for (uint32_t seed = 1; seed <= 20; seed++) random_events(seed);
}

static void test_tenants_are_bounded(void **state) {
    (void)state;
    world w;
    begin(&w, 10, 1, 8, 0.05);
    error err;
    sched_tenant *t;
    assert_int_equal(sched_tenant_weight(w.s, "kept", 2, &err), CHURON_OK);
    assert_int_equal(sched_tenant_weight(w.s, "bad", 0, &err), CHURON_INVALID);
    assert_string_equal(err.message, "weight of tenant \"bad\": expected over 0 and at most 1e9, got 0");
    for (size_t i = 0; i < SCHED_MAX_TENANTS + 500; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "t%zu", i);
        assert_int_equal(sched_tenant_get(&t, w.s, name, &err), CHURON_OK);
        sched_tenant_put(t);
    }
    size_t n = 0;
    bool kept = false;
    for (t = sched_tenants(w.s); t; t = t->next) {
        n++;
        kept |= strcmp(t->name, "kept") == 0 && t->weight == 2;
    }
    assert_int_equal(n, SCHED_MAX_TENANTS);
    assert_true(kept);
    close_world(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_first_come_first_served_by_priority),
        cmocka_unit_test(test_urgent_job_takes_a_place_and_gives_it_back),
        cmocka_unit_test(test_pages_run_out_and_nobody_is_lost),
        cmocka_unit_test(test_blocked_head_is_passed_but_not_for_ever),
        cmocka_unit_test(test_a_flood_does_not_starve_one),
        cmocka_unit_test(test_weights_divide_the_tokens),
        cmocka_unit_test(test_idle_time_is_no_hoard_and_use_no_debt),
        cmocka_unit_test(test_the_bound_holds_under_a_flood_of_urgent_jobs),
        cmocka_unit_test(test_chunks_keep_the_target),
        cmocka_unit_test(test_the_target_is_a_ceiling),
        cmocka_unit_test(test_prefill_always_advances),
        cmocka_unit_test(test_followers_wait_and_others_go_on),
        cmocka_unit_test(test_random_events),
        cmocka_unit_test(test_tenants_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_pool.c: jobs, barriers, splitting, sleeping, crowding, floating-point environment; core counting. */
#define _DEFAULT_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/cores.h"
#include "base/mem.h"
#include "base/pool.h"

#include <fenv.h>
#include <float.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

static pool *make(size_t threads) {
    pool *p;
    error err;
    if (pool_create(&p, threads, &err) != CHURON_OK) fail_msg("%s", err.message);
    assert_int_equal(pool_threads(p), threads);
    return p;
}

/* ---- jobs and barriers ------------------------------------------------------------------------------ */

enum { ROUNDS = 200, MAX_MEMBERS = 9 };

typedef struct relay {
    int value[MAX_MEMBERS * 64]; /* one per member, far apart; plain ints: the barrier orders them */
    atomic_int wrong;
    size_t rounds;
} relay;

/* Every member writes, meets, and reads what all others wrote; a second meeting protects the next write. */
static void relay_job(void *ctx, const pool_member *me) {
    relay *r = ctx;
    for (size_t round = 1; round <= r->rounds; round++) {
        r->value[me->index * 64] += (int)(round * (me->index + 1));
        int mine = (int)(round * (round + 1) / 2);
        pool_barrier(me);
        for (size_t i = 0; i < me->count; i++) {
            if (r->value[i * 64] != mine * (int)(i + 1)) atomic_fetch_add(&r->wrong, 1);
        }
        pool_barrier(me);
    }
}

static void run_relay(size_t threads, size_t jobs, size_t rounds) {
    pool *p = make(threads);
    for (size_t job = 0; job < jobs; job++) {
        relay r = {.rounds = rounds};
        pool_run(p, relay_job, &r);
        assert_int_equal(r.wrong, 0);
        for (size_t i = 0; i < threads; i++) {
            assert_int_equal(r.value[i * 64], (int)(rounds * (rounds + 1) / 2 * (i + 1)));
        }
    }
    pool_free(p);
}

static void test_barrier_orders_memory(void **state) {
    (void)state;
    run_relay(1, 10, ROUNDS);
    run_relay(2, 50, ROUNDS);
    run_relay(4, 5, ROUNDS);
}

/* More members than processors, in both forms of the meeting: slower, but it ends, and soon. */
static void test_crowded(void **state) {
    (void)state;
    double from = clock_seconds();
    run_relay(3, 5, ROUNDS);
    run_relay(5, 5, 100);
    run_relay(MAX_MEMBERS, 5, 100);
    assert_true(clock_seconds() - from < 60);
}

static void count_job(void *ctx, const pool_member *me) {
    (void)me;
    atomic_fetch_add_explicit((atomic_int *)ctx, 1, memory_order_relaxed);
}

/* Jobs without a barrier, back to back and after pauses long enough that workers sleep. */
static void test_jobs_after_sleep(void **state) {
    (void)state;
    pool *p = make(3);
    atomic_int runs = 0;
    for (int i = 0; i < 300; i++) {
        pool_run(p, count_job, &runs);
        assert_int_equal(runs, 3 * (i + 1));
        if (i % 30 == 0) nanosleep(&(struct timespec){.tv_nsec = 3000000}, NULL);
    }
    pool_free(p);
}

static void uneven_job(void *ctx, const pool_member *me) {
    if (me->index == me->count - 1) nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    pool_barrier(me);
    if (me->index == 0) *(int *)ctx += 1;
}

/* A member that is late by far more than anyone spins for; and what waiting for it costs. */
static void test_long_wait_sleeps(void **state) {
    (void)state;
    pool *p = make(2);
    int rounds = 0;
    clock_t before = clock();
    for (int i = 0; i < 10; i++) pool_run(p, uneven_job, &rounds);
    double used = (double)(clock() - before) / CLOCKS_PER_SEC;
    assert_int_equal(rounds, 10);
    assert_true(used < 0.1); /* half of the 0.2 s that it took: waiting is mostly sleep */
    pool_free(p);
}

static void test_create_and_free(void **state) {
    (void)state;
    pool_free(NULL);
    error err;
    pool *p;
    assert_int_equal(pool_create(&p, 0, &err), CHURON_INVALID);
    assert_string_equal(err.message, "threads: expected 1 to 1024, got 0");
    assert_int_equal(pool_create(&p, POOL_MAX_THREADS + 1, &err), CHURON_INVALID);
    assert_null(p);
    for (int i = 0; i < 20; i++) pool_free(make(4)); /* workers may not have started yet */
    for (int64_t n = 1;; n++) {
        mem_fail_at(n);
        status st = pool_create(&p, 3, &err);
        mem_fail_at(0);
        if (st == CHURON_OK) break;
        assert_int_equal(st, CHURON_NO_MEMORY);
        assert_null(p);
        assert_true(n < 20);
    }
    pool_free(p);
}

static void test_split(void **state) {
    (void)state;
    static const size_t units[] = {1, 2, 16, 64};
    for (size_t u = 0; u < 4; u++) {
        for (size_t n = 0; n < 300; n += n < 70 ? 1 : 37) {
            for (size_t count = 1; count <= 7; count++) {
                size_t next = 0, least = SIZE_MAX, most = 0;
                for (size_t i = 0; i < count; i++) {
                    size_t from, to;
                    pool_split(&(pool_member){.index = i, .count = count}, n, units[u], &from, &to);
                    assert_int_equal(from, next);
                    assert_true(to >= from && to <= n);
                    assert_true(from % units[u] == 0 || from == n);
                    size_t parts = (to - from + units[u] - 1) / units[u];
                    if (parts < least) least = parts;
                    if (parts > most) most = parts;
                    next = to;
                }
                assert_int_equal(next, n);
                assert_true(most - least <= 1);
            }
        }
    }
}

/* ---- floating-point environment --------------------------------------------------------------------- */

static void tiny_job(void *ctx, const pool_member *me) {
    volatile float smallest = FLT_MIN;
    volatile float half = smallest / 2;
    int *bad = ctx;
    bad[me->index] = half == 0 || fegetround() != FE_TONEAREST;
}

static void flushed_job(void *ctx, const pool_member *me) {
    volatile float smallest = FLT_MIN, half = smallest / 2, kept = 1e-40f;
    int *bad = ctx;
    bad[me->index] = half != 0 || kept * 2.0f != 0 || fegetround() != FE_TONEAREST;
}

static void test_subnormals_are_flushed_on_request(void **state) {
    (void)state;
#if defined(__x86_64__)
    const unsigned before = _mm_getcsr();
    pool *p = make(3);
    int bad[3] = {1, 1, 1};
    pool_set_subnormals(p, FP_FLUSH_SUBNORMALS);
    pool_run(p, flushed_job, bad);
    for (int i = 0; i < 3; i++) assert_int_equal(bad[i], 0);
    assert_int_equal(_mm_getcsr() & 0xffc0u, before & 0xffc0u);
    pool_set_subnormals(p, FP_KEEP_SUBNORMALS);
    pool_run(p, tiny_job, bad);
    for (int i = 0; i < 3; i++) assert_int_equal(bad[i], 0);
    pool_free(p);
#else
    skip();
#endif
}

static void test_subnormals_are_kept(void **state) {
    (void)state;
#if defined(__x86_64__)
    unsigned before = _mm_getcsr();
    unsigned odd = before | 0x8040u | 0x2000u; /* flush to zero, denormals are zero, round down */
    _mm_setcsr(odd);
    pool *p = make(3); /* workers are born in the odd environment */
    int bad[3] = {1, 1, 1};
    pool_run(p, tiny_job, bad);
    unsigned after = _mm_getcsr();
    _mm_setcsr(before);
    pool_free(p);
    for (int i = 0; i < 3; i++) assert_int_equal(bad[i], 0);
    assert_int_equal(after & 0xffc0u, odd & 0xffc0u); /* the caller has its own setting back */
#else
    skip();
#endif
}

/* ---- cores ------------------------------------------------------------------------------------------ */

static char root[256];

static void put(const char *path, const char *text) {
    char whole[1024];
    snprintf(whole, sizeof whole, "%s/%s", root, path);
    for (char *p = whole + 1; (p = strchr(p, '/')); p++) {
        *p = '\0';
        (void)mkdir(whole, 0700);
        *p = '/';
    }
    FILE *f = fopen(whole, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void new_root(void) {
    const char *tmp = getenv("TMPDIR");
    snprintf(root, sizeof root, "%s/churon-cores-XXXXXX", tmp && *tmp ? tmp : P_tmpdir);
    assert_non_null(mkdtemp(root));
}

static void drop_root(void) {
    char command[512];
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    assert_int_equal(system(command), 0);
}

static void test_siblings_count_once(void **state) {
    (void)state;
    new_root();
    static const char *const siblings[] = {"0,4", "1,5", "2-3", "2-3", "0,4", "1,5"};
    for (int i = 0; i < 6; i++) {
        char path[128];
        snprintf(path, sizeof path, "sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", i);
        put(path, siblings[i]);
    }
    const unsigned all[] = {0, 1, 2, 3, 4, 5, 6};
    assert_int_equal(cores_physical(root, all, 6), 3);
    assert_int_equal(cores_physical(root, all, 7), 4);     /* cpu6 says nothing: a core of its own */
    assert_int_equal(cores_physical(root, all + 3, 3), 3); /* 3, 4, 5: their siblings are not ours */
    drop_root();
}

static void test_quota_v2(void **state) {
    (void)state;
    new_root();
    assert_int_equal(cores_quota(root), SIZE_MAX);
    put("proc/self/cgroup", "0::/user/app\n");
    put("proc/self/mountinfo", "25 1 0:22 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw\n");
    put("sys/fs/cgroup/user/app/cpu.max", "max 100000\n");
    assert_int_equal(cores_quota(root), SIZE_MAX);
    put("sys/fs/cgroup/user/cpu.max", "350000 100000\n"); /* the group above restricts */
    assert_int_equal(cores_quota(root), 3);
    put("sys/fs/cgroup/user/app/cpu.max", "50000 100000\n"); /* half a core is one thread */
    assert_int_equal(cores_quota(root), 1);
    put("sys/fs/cgroup/user/app/cpu.max", "nonsense");
    assert_int_equal(cores_quota(root), 3);
    drop_root();
}

static void test_quota_v1_in_container(void **state) {
    (void)state;
    new_root();
    put("proc/self/cgroup", "9:name=systemd:/\n4:cpuacct,cpu:/docker/abc\n0::/\n");
    put("proc/self/mountinfo",
        "30 25 0:26 /docker/abc /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n");
    put("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "200000\n");
    put("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
    assert_int_equal(cores_quota(root), 2);
    put("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
    assert_int_equal(cores_quota(root), SIZE_MAX);
    drop_root();
}

static void test_this_machine(void **state) {
    (void)state;
    size_t cores = pool_physical_cores();
    assert_true(cores >= 1 && cores <= cores_logical());
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_barrier_orders_memory),
        cmocka_unit_test(test_crowded),
        cmocka_unit_test(test_jobs_after_sleep),
        cmocka_unit_test(test_long_wait_sleeps),
        cmocka_unit_test(test_create_and_free),
        cmocka_unit_test(test_split),
        cmocka_unit_test(test_subnormals_are_kept),
        cmocka_unit_test(test_subnormals_are_flushed_on_request),
        cmocka_unit_test(test_siblings_count_once),
        cmocka_unit_test(test_quota_v2),
        cmocka_unit_test(test_quota_v1_in_container),
        cmocka_unit_test(test_this_machine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_peer.c: reading a peer's figures; medians. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "bench/peer.h"
#include "bench/stats.h"

#include <string.h>

static void test_bench_rows(void **state) {
    (void)state;
    double rate = 0;
    error err;
    const char *good = "[{\"n_prompt\": 512, \"avg_ts\": 264.8, \"samples_ts\": [264.8]}]\n";
    assert_int_equal(peer_read_bench(good, strlen(good), &rate, &err), CHURON_OK);
    assert_true(rate == 264.8);
    static const char *const bad[] = {"",
                                      "[]",
                                      "{}",
                                      "[{\"avg_ts\": \"x\"}]",
                                      "[{\"avg_ts\": 0}]",
                                      "[{\"avg_ts\": 1}, {\"avg_ts\": 2}]",
                                      "error: no such model"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(peer_read_bench(bad[i], strlen(bad[i]), &rate, &err), CHURON_INVALID);
    }
}

static void test_batched_rows(void **state) {
    (void)state;
    double rate = 0;
    error err;
    const char *good = "loading\n{\"pl\": 16, \"speed_tg\": 199.5}\nmain: done\n";
    assert_int_equal(peer_read_batched(good, strlen(good), &rate, &err), CHURON_OK);
    assert_true(rate == 199.5);
    assert_int_equal(peer_read_batched("{\"speed_tg\": -1}", 16, &rate, &err), CHURON_INVALID);
    assert_int_equal(peer_read_batched("", 0, &rate, &err), CHURON_INVALID);
}

static void test_commands_are_run(void **state) {
    (void)state;
    double rate = 0;
    error err;
    bench_case c = {.prompt = 8, .parallel = 1};
    /* The flags that are added become arguments of the printing command's shell. */
    const char *echo = "sh -c 'test \"$2\" = \"a'\\''b\" && echo \"[{\\\"avg_ts\\\": $4}]\"' --";
    assert_int_equal(peer_time(echo, "a'b", 2, &c, &rate, &err), CHURON_OK);
    assert_true(rate == 8);
    assert_int_equal(peer_time("false", "m", 2, &c, &rate, &err), CHURON_IO);
    assert_int_equal(peer_time("/there/is/no/such/program", "m", 2, &c, &rate, &err), CHURON_IO);
}

static void test_statistics(void **state) {
    (void)state;
    double odd[] = {3, 1, 2}, even[] = {4, 1, 3, 2}, one[] = {5};
    assert_true(stats_median(odd, 3) == 2);
    assert_true(stats_median(even, 4) == 2.5);
    assert_true(stats_median(one, 1) == 5);
    assert_true(stats_sd(odd, 3) == 1);
    assert_true(stats_sd(one, 1) == 0);
}

static void test_names_of_cases(void **state) {
    (void)state;
    char name[48];
    bench_case_name(&(bench_case){.prompt = 512, .parallel = 1}, name);
    assert_string_equal(name, "pp512");
    bench_case_name(&(bench_case){.gen = 128, .parallel = 1}, name);
    assert_string_equal(name, "tg128");
    bench_case_name(&(bench_case){.gen = 128, .depth = 4096, .parallel = 1}, name);
    assert_string_equal(name, "tg128@4096");
    bench_case_name(&(bench_case){.gen = 128, .parallel = 16}, name);
    assert_string_equal(name, "tg128x16");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bench_rows),       cmocka_unit_test(test_batched_rows),
        cmocka_unit_test(test_commands_are_run), cmocka_unit_test(test_statistics),
        cmocka_unit_test(test_names_of_cases),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_args.c: option tables: what is taken, what is refused and in which words. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "cli/args.h"
#include "cli/settings.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef struct target {
    bool flag, given;
    uint64_t n, bytes;
    double x;
    const char *text;
    arg_list list;
    arg_common common;
    char *args[32];
    size_t n_args;
    char said[1024]; /* on stderr */
} target;

/* Parses a command line with stderr taken into t->said. */
static arg_outcome parse(target *t, int argc, char **argv) {
    const arg_option options[] = {
        {.name = "flag", .kind = ARG_FLAG, .target = &t->flag, .help = "h", .shortcut = 'f'},
        {.name = "max-tokens",
         .kind = ARG_UINT,
         .target = &t->n,
         .value = "N",
         .help = "h",
         .umin = 1,
         .umax = 100,
         .given = &t->given},
        {.name = "memory", .kind = ARG_BYTES, .target = &t->bytes, .value = "B", .help = "h"},
        {.name = "temperature",
         .kind = ARG_DOUBLE,
         .target = &t->x,
         .value = "X",
         .help = "h",
         .max = HUGE_VAL},
        {.name = "text", .kind = ARG_STRING, .target = &t->text, .value = "T", .help = "h", .shortcut = 't'},
        {.name = "stop", .kind = ARG_LIST, .target = &t->list, .value = "T", .help = "h"},
    };
    const arg_command c = {.name = "try",
                           .synopsis = "ONE [TWO]",
                           .summary = "s",
                           .example = "e",
                           .options = options,
                           .n_options = sizeof options / sizeof *options,
                           .min_args = 1,
                           .max_args = 2};
    FILE *heard = tmpfile();
    assert_non_null(heard);
    fflush(stderr);
    int saved = dup(STDERR_FILENO);
    assert_true(dup2(fileno(heard), STDERR_FILENO) >= 0);
    arg_outcome outcome = args_parse(&c, argc, argv, &t->common, t->args, &t->n_args);
    fflush(stderr);
    assert_true(dup2(saved, STDERR_FILENO) >= 0);
    close(saved);
    rewind(heard);
    t->said[fread(t->said, 1, sizeof t->said - 1, heard)] = '\0';
    fclose(heard);
    return outcome;
}

#define PARSE(t, ...)                                                                                        \
    parse(t, (int)(sizeof((char *[]){"try", __VA_ARGS__}) / sizeof(char *)), (char *[]){"try", __VA_ARGS__})

static void test_values_reach_their_targets(void **state) {
    (void)state;
    target t = {0};
    arg_outcome o =
        PARSE(&t, "model", "--flag", "--max-tokens", "7", "--memory=2K", "--temperature", "0.5", "-t", "-x",
              "--stop", "a", "--stop=b", "--json", "--threads", "3", "--", "--prompt");
    assert_int_equal(o, ARGS_RUN);
    assert_true(t.flag && t.given && t.common.json);
    assert_int_equal(t.n, 7);
    assert_int_equal(t.bytes, 2048);
    assert_true(t.x == 0.5);
    assert_string_equal(t.text, "-x");
    assert_int_equal(t.list.n, 2);
    assert_string_equal(t.list.items[0], "a");
    assert_string_equal(t.list.items[1], "b");
    assert_int_equal(t.common.threads, 3);
    assert_int_equal(t.n_args, 2);
    assert_string_equal(t.args[0], "model");
    assert_string_equal(t.args[1], "--prompt");
    args_list_free(&t.list);
}

static void test_wrong_usage_is_one_line_with_advice(void **state) {
    (void)state;
    static const struct {
        char *word, *value;
        const char *said;
    } wrong[] = {
        {"--max-tokens", "0", "field --max-tokens: expected a whole number from 1 to 100, got \"0\""},
        {"--max-tokens", "-1", "got \"-1\""},
        {"--max-tokens", "1e3", "got \"1e3\""},
        {"--max-tokens", "99999999999999999999999", "got \"9999"},
        {"--memory", "8X", "expected bytes"},
        {"--memory", "99999999T", "expected bytes"},
        {"--temperature", "nan", "field --temperature: expected a number of at least 0, got \"nan\""},
        {"--temperature", "inf", "got \"inf\""},
        {"--temperature", "-0.1", "got \"-0.1\""},
        {"--temperature", "1,5", "got \"1,5\""},
        {"--temperture", "1", "Did you mean --temperature?"},
        {"--temp", "1", "Did you mean --temperature?"},
        {"--zzzzzzzz", "1", "See 'churon try --help'"},
        {"-q", "1", "expected an option"},
        {"--flag=1", "x", "field --flag: expected no value, got \"1\""},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        target t = {0};
        assert_int_equal(PARSE(&t, "model", wrong[i].word, wrong[i].value), ARGS_WRONG);
        if (!strstr(t.said, wrong[i].said)) fail_msg("%s: %s", wrong[i].said, t.said);
        assert_int_equal(strncmp(t.said, "churon: error: try: ", 20), 0);
        assert_ptr_equal(strchr(t.said, '\n'), t.said + strlen(t.said) - 1);
        args_list_free(&t.list);
    }
}

static void test_arguments_are_counted(void **state) {
    (void)state;
    target t = {0};
    assert_int_equal(PARSE(&t, "--flag"), ARGS_WRONG);
    assert_non_null(strstr(t.said, "field arguments: expected ONE [TWO], got nothing"));
    assert_int_equal(PARSE(&t, "a", "b", "c"), ARGS_WRONG);
    assert_non_null(strstr(t.said, "got also \"c\""));
    assert_int_equal(PARSE(&t, "a", "--text"), ARGS_WRONG);
    assert_non_null(strstr(t.said, "field --text: expected a value, got nothing"));
    assert_int_equal(PARSE(&t, "-"), ARGS_RUN);
}

static void test_number_lists(void **state) {
    (void)state;
    size_t n;
    uint64_t *list = args_uint_list("1, 22,3", 22, &n);
    assert_non_null(list);
    assert_int_equal(n, 3);
    assert_int_equal(list[1], 22);
    mem_free(list);
    static const char *const bad[] = {"", ",", "1,", ",1", "1,,2", "a", "1,-2", "23", "1 2", "1,2x"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (args_uint_list(bad[i], 22, &n)) fail_msg("%s", bad[i]);
        assert_int_equal(n, 0);
    }
    mem_fail_at(1);
    assert_null(args_uint_list("1", 2, &n));
    mem_fail_at(0);
}

static void test_nearest_name(void **state) {
    (void)state;
    static const char *const names[] = {"run", "inspect", "version"};
    assert_int_equal(args_nearest("rnu", names, 3), 0);
    assert_int_equal(args_nearest("inpsect", names, 3), 1);
    assert_int_equal(args_nearest("ver", names, 3), 2);
    assert_int_equal(args_nearest("verify", names, 3), -1);
    assert_int_equal(args_nearest("", names, 3), -1);
    assert_int_equal(args_nearest("quantize", names, 3), -1);
}

static void test_settings_are_named_and_checked(void **state) {
    (void)state;
    sampler_params p = {.temperature = 1, .top_p = 1};
    error err;
    assert_int_equal(settings_set(&p, "top_p", "0.5", &err), CHURON_OK);
    assert_true(p.top_p == 0.5f);
    assert_int_equal(settings_set(&p, "seed", "18446744073709551615", &err), CHURON_OK);
    assert_true(p.seed == UINT64_MAX);
    assert_int_equal(settings_set(&p, "top-k", "4294967296", &err), CHURON_INVALID);
    assert_int_equal(settings_set(&p, "temperature", "nan", &err), CHURON_INVALID);
    assert_non_null(strstr(err.message, "field temperature: expected a number of at least 0, got \"nan\""));
    assert_int_equal(settings_set(&p, "temprature", "1", &err), CHURON_INVALID);
    assert_non_null(strstr(err.message, "Did you mean temperature?"));
    assert_true(p.temperature == 1);
}

static void test_list_survives_failed_allocation(void **state) {
    (void)state;
    target t = {0};
    mem_fail_at(1);
    assert_int_equal(PARSE(&t, "m", "--stop", "a"), ARGS_WRONG);
    mem_fail_at(0);
    assert_int_equal(t.list.n, 0);
    args_list_free(&t.list);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values_reach_their_targets),
        cmocka_unit_test(test_wrong_usage_is_one_line_with_advice),
        cmocka_unit_test(test_arguments_are_counted),
        cmocka_unit_test(test_number_lists),
        cmocka_unit_test(test_nearest_name),
        cmocka_unit_test(test_settings_are_named_and_checked),
        cmocka_unit_test(test_list_survives_failed_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

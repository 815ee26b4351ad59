/* test_pipeline.c: bundles from manifest to answer, on a tiny graph: what loads, what is refused and how, and
 * that a record's answer does not depend on company. */
#include "pipeline/pipeline.h"
#include "pipeline/trace.h"

#include "base/file.h"
#include "base/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[] = "/tmp/churon-pipeline-XXXXXX";

static void write_file(const char *name, const void *bytes, size_t n) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
}

static int make_folder(void **state) {
    (void)state;
    if (!mkdtemp(folder)) return 1;
    str model = {0};
    if (file_read(&model, "examples/iris.onnx", 1 << 20, NULL) != CHURON_OK) return 1;
    write_file("iris.onnx", model.data, model.len);
    str_free(&model);
    return 0;
}

static int remove_folder(void **state) {
    (void)state;
    char command[300];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

static pipeline *open_text(const char *text, error *err) {
    pipeline *p = NULL;
    write_file("bundle.yaml", text, strlen(text));
    if (pipeline_open(&p, folder, &(pipeline_options){.threads = 1}, err) != CHURON_OK) assert_null(p);
    return p;
}

static void refused(const char *text, const char *expected) {
    error err = {0};
    pipeline *p = open_text(text, &err);
    if (p || !strstr(err.message, expected)) print_error("expected '%s', got '%s'\n", expected, err.message);
    assert_null(p);
    assert_non_null(strstr(err.message, expected));
}

#define HEAD                                                                                                 \
    "churon: 1\nname: iris\nversion: 3\ntask: classification\nmodel: {file: iris.onnx}\n"                    \
    "inputs:\n  measures: {type: tensor, dtype: float32, shape: [4]}\n"

static str answer_of(pipeline_session *s, const pipeline *p, const char *record, status *st) {
    json_t *json = json_loads(record, 0, NULL);
    const json_t *records[1] = {json};
    pipeline_answer a;
    error err = {0};
    str out = {0};
    *st = pipeline_run_json(s, records, 1, NULL, NULL, &a, &err);
    if (*st != CHURON_OK) {
        str_cat(&out, err.message);
    } else if (a.st != CHURON_OK) {
        *st = a.st;
        str_cat(&out, a.message);
    } else {
        json_out j = json_out_begin(&out);
        pipeline_answer_write(&j, NULL, p, &a);
    }
    json_decref(json);
    return out;
}

static void test_answers(void **state) {
    (void)state;
    error err = {0};
    pipeline *p = open_text(HEAD, &err);
    if (!p) print_error("%s\n", err.message);
    assert_non_null(p);
    pipeline_session *s;
    assert_int_equal(pipeline_session_create(&s, p, &err), CHURON_OK);
    status st;
    str out = answer_of(s, p, "{\"measures\": [5.1, 3.5, 1.4, 0.2]}", &st);
    if (st != CHURON_OK) print_error("%s\n", str_cstr(&out));
    assert_int_equal(st, CHURON_OK);
    print_message("%s\n", str_cstr(&out));
    str_free(&out);
    pipeline_session_free(s);
    pipeline_close(p);
}

#define KINDS                                                                                                \
    "churon: 1\nname: k\nversion: 1\ninputs:\n"                                                              \
    "  a: {type: int8, min: -5, max: 5, missing: 0}\n"                                                       \
    "  b: {type: float, one_of: [1.5, 2], required: false}\n"                                                \
    "  c: {type: category, one_of: [NO, KR], required: false}\n"                                             \
    "  d: {type: date, min: 2020-01-01, required: false}\n"                                                  \
    "  e: {type: timestamp, required: false}\n"                                                              \
    "  f: {type: list, of: {type: double, min: 0}, max_length: 3, required: false}\n"                        \
    "  g: {type: bytes, required: false, max_length: 4}\n"                                                   \
    "  h: {type: bool, required: false}\n"                                                                   \
    "  t: {type: text, required: false, regex: \"[a-z]+\", min_length: 2}\n"                                 \
    "  x: {type: tensor, dtype: float32, shape: [-1, 2], required: false}\n"                                 \
    "  u: {type: uint64, required: false}\n"                                                                 \
    "steps: []\n"                                                                                            \
    "outputs: {a: {}, b: {}, c: {}, d: {}, e: {}, f: {}, g: {}, h: {}, t: {}, x: {}, u: {}}\n"

typedef struct record_case {
    const char *record, *expected; /* part of the answer, or of the refusal */
    bool refused;
} record_case;

/* Nothing is coerced, every fault is said, and what comes in well goes out as it came. */
static void test_records(void **state) {
    (void)state;
    static const record_case cases[] = {
        {"{}", "\"a\":0,\"b\":null", false},
        {"{\"a\": 5, \"b\": 1.5, \"c\": \"NO\", \"h\": false}", "\"a\":5,\"b\":1.5,\"c\":\"NO\"", false},
        {"{\"d\": \"2024-02-29\", \"e\": \"2024-02-29T23:59:59.5+09:00\"}",
         "\"d\":\"2024-02-29\",\"e\":\"2024-02-29T14:59:59.500Z\"", false},
        {"{\"f\": [1, 2.5], \"g\": {\"b64\": \"AAE=\"}}", "\"f\":[1,2.5],\"g\":{\"b64\":\"AAE=\"}", false},
        {"{\"x\": [[1, 2], [3, 0.1]]}", "\"x\":[[1,2],[3,0.1", false},
        {"{\"x\": {\"b64\": \"AACAPwAAAEA=\", \"shape\": [1, 2]}}", "\"x\":[[1,2]]", false},
        {"{\"a\": \"3\"}", "field a: expected int8, got the string '3'", true},
        {"{\"a\": 3.7}", "field a: expected int8, got 3.7", true},
        {"{\"a\": 3.0}", "field a: expected int8, got 3.0", true},
        {"{\"a\": 0.12345678901234}", "field a: expected int8, got 0.12345678901234", true},
        {"{\"a\": 300}", "field a: expected int8, got 300", true},
        {"{\"a\": 6}", "field a: expected at most 5, got 6", true},
        {"{\"a\": true}", "field a: expected int8, got true", true},
        {"{\"b\": 1.4}", "field b: expected one of 1.5, 2, got 1.39999998", true},
        {"{\"b\": \"NaN\"}", "field b: expected a finite number", true},
        {"{\"b\": 16777217}", "field b: expected float32", true},
        {"{\"b\": 1e300}", "field b: expected float32", true},
        {"{\"c\": \"no\"}", "field c: expected one of 'NO', 'KR', got 'no'", true},
        {"{\"c\": 1}", "field c: expected text, got 1", true},
        {"{\"d\": \"2023-02-29\"}", "field d: expected date (YYYY-MM-DD)", true},
        {"{\"d\": \"2019-12-31\"}", "field d: expected at least 2020-01-01, got 2019-12-31", true},
        {"{\"e\": \"2024-01-01T00:00:00\"}", "field e: expected timestamp", true},
        {"{\"f\": [1, -1]}", "field f: expected at least 0, got -1", true},
        {"{\"f\": [1, 2, 3, 4]}", "field f: expected at most 3 items, got 4", true},
        {"{\"f\": [1, null]}", "field f: item 1: expected a value, got null", true},
        {"{\"g\": \"AAE=\"}", "field g: expected bytes as {\"b64\"", true},
        {"{\"g\": {\"b64\": \"A\"}}", "field g: expected base64", true},
        {"{\"g\": {\"b64\": \"AAAAAAAA\"}}", "field g: expected at most 4 bytes, got 6", true},
        {"{\"g\": {\"file\": \"/etc/passwd\"}}", "field g: expected {\"b64\"", true},
        {"{\"h\": 1}", "field h: expected bool, got 1", true},
        {"{\"t\": \"Abc\"}", "field t: expected text that matches [a-z]+, got 'Abc'", true},
        {"{\"t\": \"abc1\"}", "field t: expected text that matches", true},
        {"{\"t\": \"a\"}", "field t: expected at least 2 characters, got 1", true},
        {"{\"x\": [[1, 2], [3]]}", "field x: expected lists of the same length (2), got another", true},
        {"{\"x\": [[1, \"2\"]]}", "field x: element 1: expected a number (float32), got the string '2'", true},
        {"{\"x\": [1, 2]}", "field x: expected float32 [?, 2] or missing, got float32 [2]", true},
        {"{\"x\": [[1, \"NaN\"]]}", "field x: element 1: expected a finite number", true},
        {"{\"x\": {\"b64\": \"AACAPw==\", \"shape\": [1, 2]}}", "expected 8 bytes in base64, got 4", true},
        {"{\"u\": -1}", "field u: expected uint64, got -1", true},
        {"{\"tt\": 1}", "field tt: expected a field of the schema, got this one", true},
        {"[1]", "record: expected an object of fields, got a list", true},
        {"{\"a\": \"x\", \"h\": 2, \"c\": 3}",
         "field a: expected int8, got the string 'x'; field c: expected text, got 3; field h: "
         "expected bool, got 2",
         true},
    };
    error err = {0};
    pipeline *p = open_text(KINDS, &err);
    if (!p) print_error("%s\n", err.message);
    assert_non_null(p);
    pipeline_session *s;
    assert_int_equal(pipeline_session_create(&s, p, &err), CHURON_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        status st;
        str out = answer_of(s, p, cases[i].record, &st);
        if ((st != CHURON_OK) != cases[i].refused || !strstr(str_cstr(&out), cases[i].expected))
            print_error("%s: %s\n", cases[i].record, str_cstr(&out));
        assert_int_equal(st != CHURON_OK, cases[i].refused);
        assert_non_null(strstr(str_cstr(&out), cases[i].expected));
        str_free(&out);
    }
    pipeline_session_free(s);
    pipeline_close(p);
}

/* A manifest that is wrong is refused with the place and what would be right. */
static void test_refused(void **state) {
    (void)state;
    refused("churon: 1\nnmae: x\n",
            "line 2, column 1: expected a known key, got 'nmae': did you mean 'name'");
    refused("churon: 2\n", "line 1, column 9: ");
    refused("churon: 1\n", "expected the key 'name'");
    refused("", "expected the key 'churon'");
    refused("churon: 1\nchuron: 1\n", "key 'churon': expected each key once");
    refused("churon: &a 1\nname: *a\n", "expected no anchor");
    refused("churon: [1\n", "line ");
    refused("churon: !!int 1\n", "expected no tag");
    refused("churon: 1\n---\nchuron: 1\n", "expected one document");
    refused("\xff\xfe", "expected UTF-8");
    refused("churon: \"1\"\n", "expected an integer");
    refused("churon: 1\nname: ../x\nversion: 1\ninputs: {}\nsteps: []\noutputs: {a: {}}\n",
            "name: expected 1 to 100 letters");
    refused("churon: 1\nname: x\nversion: 1\nmodel: {file: ../iris.onnx}\ninputs: {}\n",
            "model.file: expected a file of the bundle");
    refused("churon: 1\nname: x\nversion: 1\nmodel: {file: none.onnx}\ninputs: {}\n", "which is not there");
    refused(HEAD "task: x\n", "key 'task': expected each key once");
    refused("churon: 1\nname: x\nversion: 1\nmodel: {file: iris.onnx, sha256: "
            "0000000000000000000000000000000000000000000000000000000000000000}\ninputs: {measures: {type: "
            "tensor, "
            "dtype: float32, shape: [4]}}\n",
            "expected a file of SHA-256 0000");
    refused("churon: 1\nname: x\nversion: 1\nmodel: {file: iris.onnx}\ninputs: {measures: {type: tensor, "
            "dtype: float64, "
            "shape: [4]}}\n",
            "model: expected float32 [4] for the model's input 'measures', got float64 [4]");
    refused("churon: 1\nname: x\nversion: 1\nmodel: {file: iris.onnx}\ninputs: {measure: {type: tensor, "
            "dtype: float32, "
            "shape: [4]}}\n",
            "got 'measures': did you mean 'measure'");
    refused(HEAD "post:\n  - softmaxx: {field: probabilities}\n",
            "expected the name of a step, got 'softmaxx'");
    refused(HEAD "outputs: {probability: {}}\n", "did you mean 'probabilities'");
    refused(HEAD "tolerance: {abs: -1}\n", "tolerance.abs: expected 0 to");
    refused(HEAD "golden: nowhere.jsonl\n", "golden: expected a file of the bundle");
    refused(HEAD "steps: []\n", "expected the key 'outputs' with steps");
    static const char *const fields[][2] = {
        {"{type: integer}", "inputs.a.type: expected one of bool, int"},
        {"{tpye: int}", "did you mean 'type'"},
        {"{type: int, min: x}", "inputs.a.min: expected a value of type int64, got 'x'"},
        {"{type: int, min: 3, max: 2}", "inputs.a.max: expected at least min"},
        {"{type: int, regex: a}", "inputs.a.regex: expected this key only for text"},
        {"{type: text, regex: \"(\"}", "expected a regular expression"},
        {"{type: category}", "expected the key 'one_of' with a category"},
        {"{type: category, one_of: [a, a]}", "expected each value of one_of once"},
        {"{type: int, missing: 3, max: 2}", "inputs.a.missing: expected a value by the field's own rules"},
        {"{type: int, missing: 3, required: true}", "inputs.a.required: expected false"},
        {"{type: tensor}", "expected the key 'dtype' with a tensor"},
        {"{type: tensor, dtype: float}", "inputs.a.dtype: expected an element type"},
        {"{type: list}", "expected the key 'of' with a list"},
        {"{type: date, min: 2020-13-01}", "expected a value of type date"},
        {"7", "inputs.a: expected a map, got '7'"},
    };
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        char text[400];
        snprintf(text, sizeof text,
                 "churon: 1\nname: x\nversion: 1\ninputs: {a: %s}\nsteps: []\noutputs: {a: {}}\n",
                 fields[i][0]);
        refused(text, fields[i][1]);
    }
}

/* A record's answer is the same bytes alone and among others, good and bad ones. */
static void test_company(void **state) {
    (void)state;
    enum { N = 50 };
    error err = {0};
    pipeline *p = open_text(HEAD, &err);
    pipeline_session *s;
    assert_non_null(p);
    assert_int_equal(pipeline_session_create(&s, p, &err), CHURON_OK);
    json_t *records[N];
    pipeline_answer answers[N];
    str alone[N] = {{0}};
    for (size_t i = 0; i < N; i++) {
        const double v = 0.1 * (double)i;
        records[i] = i % 7 == 3 ? json_pack("{s:[f]}", "measures", v)
                                : json_pack("{s:[f,f,f,f]}", "measures", v, 3.5 - v, v * 2, 0.2);
        char *text = json_dumps(records[i], 0);
        status st;
        alone[i] = answer_of(s, p, text, &st);
        free(text);
    }
    assert_int_equal(pipeline_run_json(s, (const json_t *const *)records, N, NULL, NULL, answers, &err),
                     CHURON_OK);
    for (size_t i = 0; i < N; i++) {
        str out = {0};
        json_out j = json_out_begin(&out);
        if (answers[i].st == CHURON_OK) {
            pipeline_answer_write(&j, NULL, p, &answers[i]);
        } else {
            str_cat(&out, answers[i].message);
        }
        assert_string_equal(str_cstr(&out), str_cstr(&alone[i]));
        assert_int_equal(answers[i].st != CHURON_OK, i % 7 == 3);
        str_free(&out);
        str_free(&alone[i]);
        json_decref(records[i]);
    }
    pipeline_session_free(s);
    pipeline_close(p);
}

/* Whatever allocation fails: an error, and nothing that stays behind. */
static void test_no_memory(void **state) {
    (void)state;
    write_file("bundle.yaml", KINDS, strlen(KINDS));
    int64_t most = 1000000;
    for (int64_t n = 1; n <= most;
         n++) { /* the first run that nothing was taken from says how many there are */
        pipeline *p = NULL;
        pipeline_session *s = NULL;
        error err = {0};
        const int64_t before = mem_count();
        mem_fail_at(n);
        status st =
            pipeline_open_text(&p, folder, KINDS, strlen(KINDS), &(pipeline_options){.threads = 1}, &err);
        if (st == CHURON_OK) st = pipeline_session_create(&s, p, &err);
        if (st == CHURON_OK) {
            str out = answer_of(
                s, p, "{\"a\": 1, \"t\": \"abc\", \"x\": [[1, 2]], \"f\": [1], \"g\": {\"b64\": \"AAE=\"}}",
                &st);
            str_free(&out);
        } else {
            assert_non_null(strstr(err.message, "memory"));
        }
        mem_fail_at(0);
        pipeline_session_free(s);
        pipeline_close(p);
        if (st == CHURON_OK && mem_count() - before < n) most = 0;
        assert_true(n < 5000);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_answers), cmocka_unit_test(test_records),
                                       cmocka_unit_test(test_refused), cmocka_unit_test(test_company),
                                       cmocka_unit_test(test_no_memory)};
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

/* test_api_pipeline.c: bundles through churon.h: typed values, JSON, records that fail, arguments that lie.
 */
#include "churon.h"

#include "base/file.h"
#include "base/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char folder[] = "/tmp/churon-api-XXXXXX";

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

static void open_iris(churon_pipeline **p, churon_pipeline_session **s) {
    static const char text[] =
        "churon: 1\nname: iris\nversion: 3\ntask: classification\nmodel: {file: iris.onnx}\n"
        "inputs:\n  measures: {type: tensor, dtype: float32, shape: [4]}\n";
    churon_error err = {0};
    write_file("bundle.yaml", text, sizeof text - 1);
    if (churon_pipeline_open(p, folder, 1, &err) != CHURON_OK) fail_msg("%s", err.message);
    if (churon_pipeline_session_open(s, *p, false, &err) != CHURON_OK) fail_msg("%s", err.message);
}

static churon_tensor measures(float *v) {
    return (churon_tensor){.dtype = CHURON_F32, .rank = 1, .dims = {4}, .data = v, .bytes = 4 * sizeof *v};
}

static void test_describe(void **state) {
    (void)state;
    churon_pipeline *p;
    churon_pipeline_session *s;
    open_iris(&p, &s);
    churon_pipeline_info info = {.size = sizeof info};
    assert_int_equal(churon_pipeline_describe(p, &info, NULL), CHURON_OK);
    assert_string_equal(info.name, "iris");
    assert_string_equal(info.version, "3");
    assert_string_equal(info.task, "classification");
    assert_int_equal(strlen(info.digest), 64);
    assert_int_equal(info.inputs, 1);
    assert_true(info.outputs >= 1);
    churon_field f = {.size = sizeof f};
    assert_int_equal(churon_pipeline_field(p, false, 0, &f, NULL), CHURON_OK);
    assert_string_equal(f.name, "measures");
    assert_string_equal(f.type, "float32 [4]");
    assert_int_equal(f.kind, CHURON_TENSOR);
    assert_int_equal(f.dtype, CHURON_F32);
    assert_true(f.required);
    churon_error err;
    assert_int_equal(churon_pipeline_field(p, false, 1, &f, &err), CHURON_INVALID);
    f.size = 1;
    assert_int_equal(churon_pipeline_field(p, true, 0, &f, &err), CHURON_INVALID);
    assert_string_equal(err.message, "field.size: expected 40, got 1");
    churon_pipeline_close(p); /* the session keeps what it needs */
    const char *json;
    size_t n;
    static const char record[] = "{\"measures\": [5.1, 3.5, 1.4, 0.2]}";
    assert_int_equal(churon_pipeline_run_json(s, record, sizeof record - 1, 0, &json, &n, &err), CHURON_OK);
    churon_pipeline_session_close(s);
}

/* A record as values gives what it gives as JSON, alone and in company; one that fails disturbs nobody. */
static void test_values_equal_json(void **state) {
    (void)state;
    churon_pipeline *p;
    churon_pipeline_session *s;
    open_iris(&p, &s);
    churon_pipeline_info info = {.size = sizeof info};
    assert_int_equal(churon_pipeline_describe(p, &info, NULL), CHURON_OK);
    float flowers[2][4] = {{5.1F, 3.5F, 1.4F, 0.2F}, {6.7F, 3.1F, 4.7F, 1.5F}}, short_one[3] = {1, 2, 3};
    churon_tensor t[3] = {measures(flowers[0]), {0}, measures(flowers[1])};
    t[1] = (churon_tensor){
        .dtype = CHURON_F32, .rank = 1, .dims = {3}, .data = short_one, .bytes = sizeof short_one};
    churon_value in[3] = {{.kind = CHURON_TENSOR, .tensor = &t[0]},
                          {.kind = CHURON_TENSOR, .tensor = &t[1]},
                          {.kind = CHURON_TENSOR, .tensor = &t[2]}};
    churon_answer a[3];
    churon_error err;
    assert_int_equal(churon_pipeline_run(s, in, 3, 0, a, &err), CHURON_OK);
    assert_int_equal(a[0].status, CHURON_OK);
    assert_int_equal(a[1].status, CHURON_INVALID);
    assert_string_equal(a[1].message, "field measures: expected float32 [4], got float32 [3]");
    assert_int_equal(a[2].status, CHURON_OK);
    assert_ptr_equal(a[2].outputs, a[0].outputs + 2 * info.outputs);
    const int64_t label = a[2].outputs[0].kind == CHURON_INT ? a[2].outputs[0].integer : -1;

    static const char json[] = "[{\"measures\": [5.1, 3.5, 1.4, 0.2]}, {\"measures\": [1, 2, 3]}, "
                               "{\"measures\": [6.7, 3.1, 4.7, 1.5]}]";
    const char *text;
    size_t n;
    assert_int_equal(churon_pipeline_run_json(s, json, sizeof json - 1, 0, &text, &n, &err), CHURON_OK);
    assert_non_null(strstr(text, "{\"error\":\"field measures: expected float32 [4], got float32 [3]\"}"));
    char *all = strdup(text);
    static const char last[] = "{\"measures\": [6.7, 3.1, 4.7, 1.5]}";
    assert_int_equal(churon_pipeline_run_json(s, last, sizeof last - 1, 0, &text, &n, &err), CHURON_OK);
    assert_true(strlen(all) > n + 1);
    assert_memory_equal(all + strlen(all) - 1 - n, text, n); /* the same bytes at the end of the list */
    if (label >= 0) {
        char want[40];
        snprintf(want, sizeof want, ":%lld", (long long)label);
        assert_non_null(strstr(text, want));
    }
    free(all);
    static const char bad[] = "{\"measures\": [1, 2, 3]}";
    assert_int_equal(churon_pipeline_run_json(s, bad, sizeof bad - 1, 0, &text, &n, &err), CHURON_INVALID);
    assert_string_equal(err.message, "field measures: expected float32 [4], got float32 [3]");
    assert_null(text);
    churon_pipeline_session_close(s);
    churon_pipeline_close(p);
}

static void test_arguments(void **state) {
    (void)state;
    churon_pipeline *p;
    churon_pipeline_session *s, *other;
    open_iris(&p, &s);
    churon_error err;
    churon_answer a;
    float v[5] = {0};
    churon_tensor t = measures(v);
    churon_value in = {.kind = CHURON_TENSOR, .tensor = &t};
    t.bytes = 3;
    assert_int_equal(churon_pipeline_run(s, &in, 1, 0, &a, &err), CHURON_INVALID);
    assert_string_equal(err.message,
                        "inputs[0]: field measures: expected 16 bytes of data as the shape says, got 3");
    t = measures(v);
    t.data = (char *)v + 1;
    assert_int_equal(churon_pipeline_run(s, &in, 1, 0, &a, &err), CHURON_INVALID);
    t = measures(v);
    t.dtype = (churon_dtype)99;
    assert_int_equal(churon_pipeline_run(s, &in, 1, 0, &a, &err), CHURON_INVALID);
    t = measures(v);
    t.rank = 13;
    assert_int_equal(churon_pipeline_run(s, &in, 1, 0, &a, NULL), CHURON_LIMIT);
    in.tensor = NULL;
    assert_int_equal(churon_pipeline_run(s, &in, 1, 0, &a, &err), CHURON_INVALID);
    in = (churon_value){.kind = CHURON_RECORD};
    assert_int_equal(churon_pipeline_run(s, &in, 1, 0, &a, &err), CHURON_INVALID);
    in = (churon_value){.kind = CHURON_TEXT, .n = 3};
    assert_int_equal(churon_pipeline_run(s, &in, 1, 0, &a, &err), CHURON_INVALID);
    in = (churon_value){.kind = CHURON_MISSING};
    assert_int_equal(churon_pipeline_run(s, &in, 1, 0, &a, &err), CHURON_OK);
    assert_string_equal(a.message, "field measures: expected float32 [4], got none");
    assert_int_equal(churon_pipeline_run(s, &in, 1, -1, &a, &err), CHURON_INVALID);
    assert_int_equal(churon_pipeline_run(s, NULL, 0, 0, NULL, &err), CHURON_OK);
    assert_int_equal(churon_pipeline_run(s, &in, 1, 0, NULL, &err), CHURON_INVALID);
    assert_int_equal(churon_pipeline_session_open(&other, p, true, &err), CHURON_INVALID); /* no state */
    assert_null(other);
    churon_pipeline_session_close(s);
    churon_pipeline_close(p);
    assert_int_equal(churon_pipeline_open(&p, "/nowhere/bundle", 0, &err), CHURON_NOT_FOUND);
    assert_null(p);
    churon_pipeline_close(NULL);
    churon_pipeline_session_close(NULL);
}

/* The Nth allocation fails, for every N: an error, nothing lost. */
static void test_no_memory(void **state) {
    (void)state;
    churon_pipeline *p;
    churon_pipeline_session *s;
    open_iris(&p, &s);
    churon_pipeline_session_close(s);
    float v[4] = {5.1F, 3.5F, 1.4F, 0.2F};
    churon_tensor t = measures(v);
    const churon_value in = {.kind = CHURON_TENSOR, .tensor = &t};
    churon_status st = CHURON_NO_MEMORY;
    int64_t n = 0;
    while (st != CHURON_OK) {
        churon_answer a = {0};
        mem_fail_at(++n);
        st = churon_pipeline_session_open(&s, p, false, NULL);
        if (st == CHURON_OK) st = churon_pipeline_run(s, &in, 1, 0, &a, NULL);
        mem_fail_at(0);
        churon_pipeline_session_close(s);
        assert_true(n < 10000);
        assert_true(st == CHURON_OK || st == CHURON_NO_MEMORY || st == CHURON_LIMIT);
    }
    assert_true(n > 3);
    churon_pipeline_close(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_describe),
                                       cmocka_unit_test(test_values_equal_json),
                                       cmocka_unit_test(test_arguments), cmocka_unit_test(test_no_memory)};
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

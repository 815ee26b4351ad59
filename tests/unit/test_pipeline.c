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

static void test_refused(void **state) {
    (void)state;
    refused("churon: 1\nnmae: x\n", "did you mean 'name'");
    refused("churon: 2\n", "line 1, column 9");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_answers), cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

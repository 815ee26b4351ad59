/* fuzz_manifest.c: any bytes as bundle.yaml of a folder with a small model, and, behind a line "---record",
 * as a record for what was opened. */
#include "pipeline/pipeline.h"

#include <assert.h>
#include <jansson.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char MARK[] = "\n---record\n";

static const uint8_t *find(const uint8_t *data, size_t size) {
    const size_t n = sizeof MARK - 1;
    for (size_t i = 0; i + n <= size; i++) {
        if (memcmp(data + i, MARK, n) == 0) return data + i;
    }
    return NULL;
}

static void run_record(pipeline *p, const uint8_t *record, size_t n) {
    pipeline_session *s = NULL;
    pipeline_answer a = {0};
    error err = {0};
    json_t *json = json_loadb((const char *)record, n, JSON_DECODE_ANY, NULL);
    if (json && pipeline_session_create(&s, p, &err) == CHURON_OK) {
        const json_t *records[1] = {json};
        if (pipeline_run_json(s, records, 1, NULL, NULL, &a, &err) != CHURON_OK) {
            assert(err.message[0]);
        } else if (a.st != CHURON_OK) {
            assert(a.message && a.message[0]);
        } else {
            str out = {0};
            json_out j = json_out_begin(&out);
            pipeline_answer_write(&j, NULL, p, &a);
            json_t *back = json_loadb(str_cstr(&out), out.len, 0, NULL);
            assert(out.failed || back);
            json_decref(back);
            str_free(&out);
        }
    }
    pipeline_session_free(s);
    json_decref(json);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const uint8_t *mark = find(data, size);
    const size_t n = mark ? (size_t)(mark - data) : size;
    const pipeline_options o = {.threads = 1, .max_memory = 64 << 20};
    pipeline *p = NULL;
    error err = {0};
    if (pipeline_open_text(&p, "tests/fuzz/bundle", (const char *)data, n, &o, &err) == CHURON_OK) {
        if (mark) run_record(p, mark + sizeof MARK - 1, size - n - (sizeof MARK - 1));
    } else {
        assert(!p && err.message[0]);
    }
    pipeline_close(p);
    return 0;
}

/* fuzz_answer.c: any numbers, any shapes, through the steps that make answers: an answer that can be written,
 * or an error with its message. Bytes: which bundle, rows, columns, and how the others become numbers: their
 * bits, or fractions. */
#include "pipeline/pipeline.h"

#include "unit/answer_bundle.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool holds) {
    if (!holds) abort();
}

enum { MOST_ROWS = 64, MOST_COLUMNS = 64, HEAD = 4 };

static pipeline_session *session_of(size_t which) {
    static pipeline_session *sessions[N_ANSWER_BUNDLES];
    if (sessions[which]) return sessions[which];
    const char *text = ANSWER_BUNDLES[which];
    const pipeline_options o = {.threads = 1, .max_memory = 64 << 20};
    pipeline *p = NULL;
    error err = {0};
    status st = pipeline_open_text(&p, "tests/fuzz/bundle", text, strlen(text), &o, &err);
    must(st == CHURON_OK);
    st = pipeline_session_create(&sessions[which], p, &err);
    must(st == CHURON_OK);
    return sessions[which];
}

static pipeline *pipeline_of(size_t which) {
    static pipeline *pipelines[N_ANSWER_BUNDLES];
    const char *text = ANSWER_BUNDLES[which];
    error err = {0};
    if (!pipelines[which] && pipeline_open_text(&pipelines[which], "tests/fuzz/bundle", text, strlen(text),
                                                NULL, &err) != CHURON_OK)
        must(false);
    return pipelines[which];
}

static float number(const uint8_t *data, size_t size, size_t i, bool bits) {
    float v = 0;
    if (!bits) return (float)(size ? data[i % size] : 0) / 255.0f;
    for (size_t k = 0; k < sizeof v && size; k++) ((uint8_t *)&v)[k] = data[(i * sizeof v + k) % size];
    return v;
}

static void check_answer(size_t which, const pipeline_answer *a) {
    if (a->st != CHURON_OK) {
        must(a->message && a->message[0]);
        return;
    }
    str out = {0};
    json_out j = json_out_begin(&out);
    pipeline_answer_write(&j, NULL, pipeline_of(which), a);
    json_t *back = json_loadb(str_cstr(&out), out.len, 0, NULL);
    must(out.failed || back);
    json_decref(back);
    str_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static float x[MOST_ROWS * MOST_COLUMNS];
    static int64_t n[MOST_ROWS * 2];
    static const char text[] = "A t\xC3\xA9xt \xE5\xAD\x97 of no great length, in which names may lie.";
    if (size < HEAD) return 0;
    const size_t which = data[0] % N_ANSWER_BUNDLES, rows = data[1] % MOST_ROWS,
                 columns = data[2] % MOST_COLUMNS;
    const bool bits = data[3] & 1;
    const uint8_t *rest = data + HEAD;
    for (size_t i = 0; i < rows * columns; i++) x[i] = number(rest, size - HEAD, i, bits);
    for (size_t i = 0; i < 2 * rows; i++)
        n[i] = size > HEAD ? (int64_t)rest[i % (size - HEAD)] - (data[3] & 2 ? 128 : 0) : 0;
    const int64_t dims[2] = {(int64_t)rows, (int64_t)columns}, twice = 2 * (int64_t)rows;
    const tensor tx = tensor_borrow(ELEM_F32, 2, dims, x), tn = tensor_borrow(ELEM_I64, 1, &twice, n);
    const cell record[3] = {{.kind = CELL_TENSOR, .t = &tx},
                            {.kind = CELL_TENSOR, .t = &tn},
                            cell_of_text(text, sizeof text - 1)};
    pipeline_answer a = {0};
    error err = {0};
    status st = pipeline_run(session_of(which), record, 1, NULL, &a, &err);
    must(st == CHURON_OK || err.message[0]);
    if (st == CHURON_OK) check_answer(which, &a);
    return 0;
}

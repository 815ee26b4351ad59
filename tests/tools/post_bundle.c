/* post_bundle.c: records through a bundle. post_bundle FOLDER batch|single|sequence|trace: JSON lines in, a
 * line for each out: the answer, or {"error": "…"}. A bundle that does not open: {"open": "…"}. batch: all
 * records in one run; sequence: one by one with state; trace: each line is what the steps wrote. */
#include "pipeline/pipeline.h"
#include "pipeline/trace.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

enum { MOST = 4096 };

static void say(const char *key, const char *message) {
    str out = {0};
    json_out j = json_out_begin(&out);
    json_out_object(&j, NULL);
    json_out_string(&j, key, message, strlen(message));
    json_out_end_object(&j);
    printf("%s\n", str_cstr(&out));
    str_free(&out);
}

static void show(const pipeline *p, const pipeline_answer *a) {
    if (a->st != CHURON_OK) {
        say("error", a->message);
        return;
    }
    str out = {0};
    json_out j = json_out_begin(&out);
    pipeline_answer_write(&j, NULL, p, a);
    printf("%s\n", str_cstr(&out));
    str_free(&out);
}

static void run_records(pipeline_session *s, const pipeline *p, const json_t *const *records, size_t n,
                        pipeline_sequence *q, bool traced) {
    static pipeline_answer answers[MOST];
    struct trace t;
    error err = {0};
    if (traced) trace_begin(&t);
    const pipeline_run_options o = {.sequence = q, .trace = traced ? &t : NULL};
    status st = pipeline_run_json(s, records, n, NULL, &o, answers, &err);
    for (size_t i = 0; i < n && !traced; i++) {
        if (st == CHURON_OK) {
            show(p, &answers[i]);
        } else {
            say("error", err.message);
        }
    }
    if (!traced) return;
    trace_end(&t);
    printf("%s\n", str_cstr(&t.text));
    trace_free(&t);
}

int main(int argc, char **argv) {
    static const json_t *records[MOST];
    static char line[64 << 20];
    size_t n = 0;
    error err = {0};
    if (argc < 3) return 2;
    const bool batch = strcmp(argv[2], "batch") == 0;
    pipeline *p;
    pipeline_session *s = NULL;
    pipeline_sequence *q = NULL;
    if (pipeline_open(&p, argv[1], &(pipeline_options){.threads = 1}, &err) != CHURON_OK) {
        say("open", err.message);
        return 0;
    }
    while (n < MOST && fgets(line, sizeof line, stdin)) {
        records[n] = json_loads(line, JSON_ALLOW_NUL, NULL);
        if (!records[n++]) return 3;
    }
    if (pipeline_session_create(&s, p, &err) != CHURON_OK) return 4;
    if (strcmp(argv[2], "sequence") == 0 && pipeline_sequence_create(&q, p, &err) != CHURON_OK) return 5;
    if (batch) {
        run_records(s, p, records, n, NULL, false);
    } else {
        for (size_t i = 0; i < n; i++) run_records(s, p, &records[i], 1, q, strcmp(argv[2], "trace") == 0);
    }
    for (size_t i = 0; i < n; i++) json_decref((json_t *)(uintptr_t)records[i]);
    pipeline_sequence_free(q);
    pipeline_session_free(s);
    pipeline_close(p);
    return 0;
}

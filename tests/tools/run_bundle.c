/* run_bundle.c: opens a bundle and answers records: JSON lines in, JSON lines out.
 *
 *     run_bundle PATH [--batch N] [--trace] [--time N] < RECORDS
 *
 * Each line out is {"ok": {outputs}} or {"error": "…"}; with --trace also "trace" with what every step wrote.
 * --batch N runs N records at a time. --time N runs the first record N times more through pipeline_run and
 * says the microseconds of one run on standard error. A bundle that does not open: {"open": "…"}, exit
 * status 1. */
#include "base/clock.h"
#include "pipeline/pipeline.h"
#include "pipeline/trace.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct options {
    const char *path;
    size_t batch;
    long time;
    bool trace;
} options;

static void print_line(const str *line) {
    if (line->failed) exit(3);
    fwrite(line->data, 1, line->len, stdout);
    fputc('\n', stdout);
    fflush(stdout);
}

static void print_error(const char *key, const char *message) {
    str line = {0};
    json_out j = json_out_begin(&line);
    json_out_object(&j, NULL);
    json_out_cstr(&j, key, message);
    json_out_end_object(&j);
    print_line(&line);
    str_free(&line);
}

static void print_answer(const pipeline *p, const pipeline_answer *a, const struct trace *t) {
    str line = {0};
    json_out j = json_out_begin(&line);
    json_out_object(&j, NULL);
    if (a->st == CHURON_OK) {
        pipeline_answer_write(&j, "ok", p, a);
    } else {
        json_out_cstr(&j, "error", a->message);
    }
    if (t) json_out_raw(&j, "trace", str_cstr(&t->text), t->text.len);
    json_out_end_object(&j);
    print_line(&line);
    str_free(&line);
}

static void run_batch(const options *o, pipeline *p, pipeline_session *s, const json_t *const *records,
                      size_t n) {
    pipeline_answer *answers = calloc(n, sizeof *answers);
    struct trace t;
    error err = {0};
    if (!answers) exit(3);
    if (o->trace) trace_begin(&t);
    const pipeline_run_options how = {.trace = o->trace ? &t : NULL};
    const status st = pipeline_run_json(s, records, n, NULL, &how, answers, &err);
    if (o->trace) trace_end(&t);
    for (size_t i = 0; i < n; i++) {
        if (st != CHURON_OK) {
            print_error("error", err.message);
        } else {
            print_answer(p, &answers[i], o->trace ? &t : NULL);
        }
    }
    if (o->trace) trace_free(&t);
    free(answers);
}

/* The record's cells, read once and validated, as a C program would hand them over. */
static void time_runs(const options *o, pipeline *p, pipeline_session *s, const json_t *record) {
    arena memory = {0};
    error err = {0};
    pipeline_answer a;
    cell *cells = calloc(pipeline_n_inputs(p) + 1, sizeof *cells);
    if (!cells ||
        schema_read_json(&pipeline_manifest(p)->inputs, record, NULL, &memory, cells, &err) != CHURON_OK) {
        fprintf(stderr, "%s\n", err.message);
        exit(3);
    }
    double best = 1e9;
    for (int pass = 0; pass < 5; pass++) {
        const double start = clock_seconds();
        for (long i = 0; i < o->time; i++) {
            if (pipeline_run(s, cells, 1, NULL, &a, &err) != CHURON_OK || a.st != CHURON_OK) exit(3);
        }
        const double each = (clock_seconds() - start) / (double)o->time;
        if (each < best) best = each;
    }
    fprintf(stderr, "%.3f\n", best * 1e6);
    free(cells);
    arena_free(&memory);
}

static void run_all(const options *o, pipeline *p, pipeline_session *s) {
    const json_t **records = calloc(o->batch, sizeof *records);
    char *line = NULL;
    size_t room = 0, n = 0;
    bool first = true;
    ssize_t len;
    if (!records) exit(3);
    while ((len = getline(&line, &room, stdin)) > 0) {
        json_error_t je;
        records[n] =
            json_loadb(line, (size_t)len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_ANY, &je);
        if (!records[n]) {
            fprintf(stderr, "record: %s\n", je.text);
            exit(3);
        }
        if (first && o->time) time_runs(o, p, s, records[n]);
        first = false;
        if (++n < o->batch) continue;
        run_batch(o, p, s, records, n);
        while (n) json_decref((json_t *)(uintptr_t)records[--n]);
    }
    if (n) run_batch(o, p, s, records, n);
    while (n) json_decref((json_t *)(uintptr_t)records[--n]);
    free(line);
    free(records);
}

int main(int argc, char **argv) {
    options o = {.batch = 1};
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--trace") == 0) {
            o.trace = true;
        } else if (strcmp(argv[i], "--batch") == 0 && i + 1 < argc) {
            o.batch = (size_t)strtoul(argv[++i], NULL, 10);
        } else if (strcmp(argv[i], "--time") == 0 && i + 1 < argc) {
            o.time = strtol(argv[++i], NULL, 10);
        } else {
            o.path = argv[i];
        }
    }
    if (!o.path || o.batch == 0) return 2;
    pipeline *p;
    pipeline_session *s;
    error err = {0};
    if (pipeline_open(&p, o.path, &(pipeline_options){.threads = 1}, &err) != CHURON_OK ||
        pipeline_session_create(&s, p, &err) != CHURON_OK) {
        print_error("open", err.message);
        return 1;
    }
    run_all(&o, p, s);
    pipeline_session_free(s);
    pipeline_close(p);
    return 0;
}

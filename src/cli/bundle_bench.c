/* bundle_bench.c: `churon bench BUNDLE`: how long a record takes, and how much of that is not the model. */
#include "cli/bundle_records.h"
#include "cli/timeout.h"

#include "base/clock.h"
#include "base/mem.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_TOGETHER = 4096 };

typedef struct bundle_bench {
    arg_common common;
    bundle_records records;
    const char *batches;
    uint64_t reps;
    double seconds; /* to spend on measuring */
    double timeout;
} bundle_bench;

typedef struct bench_row {
    uint64_t batch;
    size_t runs;
    double median_s, p99_s, around_s; /* of a run; around: the median of what is not in models */
} bench_row;

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* The records in turn, `batch` at a time. */
static status measure(const bundle_bench *b, pipeline_session *s, uint64_t batch, bench_row *row,
                      error *err) {
    const size_t most = b->reps ? (size_t)b->reps : 100000;
    pipeline_answer *answers = mem_calloc((size_t)batch, sizeof *answers);
    const json_t **records = mem_calloc((size_t)batch, sizeof(json_t *));
    double *took = mem_calloc(most, sizeof *took), *around = mem_calloc(most, sizeof *around);
    status st = answers && records && took && around
                    ? CHURON_OK
                    : error_no_memory(err, "a measurement", most * sizeof *took);
    size_t at = 0, n = 0;
    const double begin = clock_seconds();
    for (size_t warm = 3;
         st == CHURON_OK && n < most && (n < 5 || b->reps || clock_seconds() - begin < b->seconds);) {
        for (size_t i = 0; i < batch; i++) records[i] = b->records.items[at++ % b->records.n];
        const double before = pipeline_session_model_seconds(s), started = clock_seconds();
        const pipeline_run_options o = {.deadline = timeout_deadline(b->timeout)};
        st = pipeline_run_json(s, records, (size_t)batch, &b->records.source, &o, answers, err);
        const double now = clock_seconds();
        for (size_t i = 0; st == CHURON_OK && i < batch; i++) {
            if (answers[i].st != CHURON_OK)
                st = error_set(err, answers[i].st, "record: %s", answers[i].message);
        }
        if (warm > 0) {
            warm--;
            continue;
        }
        around[n] = now - started - (pipeline_session_model_seconds(s) - before);
        took[n++] = now - started;
    }
    if (st == CHURON_OK) {
        qsort(took, n, sizeof *took, by_value);
        qsort(around, n, sizeof *around, by_value);
        *row = (bench_row){.batch = batch,
                           .runs = n,
                           .median_s = took[n / 2],
                           .p99_s = took[n - 1 - n / 100],
                           .around_s = around[n / 2]};
    }
    mem_free(answers);
    mem_free(records);
    mem_free(took);
    mem_free(around);
    return st;
}

static int print_rows(const bundle_bench *b, const pipeline *p, const bench_row *rows, size_t n) {
    str out = {0};
    json_out j = json_out_begin(&out);
    if (!b->common.json) {
        for (size_t i = 0; i < n; i++) {
            str_fmt(&out, "%4llu together: %.1f us a record (99 %%: %.1f), of them %.1f around the model\n",
                    (unsigned long long)rows[i].batch, rows[i].median_s * 1e6 / (double)rows[i].batch,
                    rows[i].p99_s * 1e6 / (double)rows[i].batch,
                    rows[i].around_s * 1e6 / (double)rows[i].batch);
        }
        (void)cli_write(str_cstr(&out), out.len);
        str_free(&out);
        return cli_finish(EXIT_YES);
    }
    json_out_object(&j, NULL);
    json_out_array(&j, "rows");
    for (size_t i = 0; i < n; i++) {
        json_out_object(&j, NULL);
        json_out_cstr(&j, "test", "record");
        json_out_uint(&j, "batch", rows[i].batch);
        json_out_uint(&j, "runs", rows[i].runs);
        json_out_double(&j, "ms_median", rows[i].median_s * 1e3);
        json_out_double(&j, "ms_p99", rows[i].p99_s * 1e3);
        json_out_double(&j, "around_model_ms", rows[i].around_s * 1e3);
        json_out_double(&j, "per_s", (double)rows[i].batch / rows[i].median_s);
        json_out_end_object(&j);
    }
    json_out_end_array(&j);
    bundle_provenance(&j, p, b->common.threads);
    json_out_end_object(&j);
    const int code = cli_print_json(&out);
    str_free(&out);
    return code;
}

static int bench_bundle(bundle_bench *b, const char *model, const uint64_t *batches, size_t n) {
    error err = {0};
    pipeline *p = NULL;
    pipeline_session *s = NULL;
    bool usage = false;
    bench_row *rows = mem_calloc(n, sizeof *rows);
    status st = rows ? bundle_open(&p, model, b->common.threads, NULL, b->timeout, &err)
                     : error_no_memory(&err, "rows", n * sizeof *rows);
    if (st == CHURON_OK) st = pipeline_session_create(&s, p, &err);
    b->records.p = p;
    usage = st == CHURON_OK;
    if (st == CHURON_OK) st = bundle_records_read(&b->records, &err);
    if (st == CHURON_OK && b->records.n == 0)
        st = error_set(&err, CHURON_INVALID, "records: expected at least one, got none");
    for (size_t i = 0; i < n && st == CHURON_OK; i++) st = measure(b, s, batches[i], &rows[i], &err);
    const int code = st == CHURON_OK ? print_rows(b, p, rows, n)
                     : usage         ? cli_fail("bench", &err)
                                     : cli_refuse("bench", &err);
    bundle_records_free(&b->records);
    pipeline_session_free(s);
    pipeline_close(p);
    mem_free(rows);
    return code;
}

int bundle_cmd_bench(int argc, char **argv) {
    bundle_bench b = {.batches = "1", .seconds = 1};
    const arg_option options[] = {
        {.name = "record",
         .kind = ARG_STRING,
         .target = &b.records.record,
         .value = "JSON",
         .help = "the record, or a list of them, taken in turn"},
        {.name = "in",
         .kind = ARG_STRING,
         .target = &b.records.input,
         .value = "FILE",
         .shortcut = 'i',
         .help = "records from .json, .jsonl or .csv, or a file that is the one field"},
        {.name = "batch",
         .kind = ARG_STRING,
         .target = &b.batches,
         .value = "1,16",
         .help = "how many records run together (default 1)"},
        {.name = "reps",
         .kind = ARG_UINT,
         .target = &b.reps,
         .value = "N",
         .umin = 1,
         .umax = 10000000,
         .help = "runs to measure (default: as many as a second has)"},
        {.name = "seconds",
         .kind = ARG_DOUBLE,
         .target = &b.seconds,
         .value = "S",
         .min = 0.01,
         .max = 3600,
         .help = "how long to measure (default 1)"},
        TIMEOUT_OPTION(&b.timeout),
    };
    const arg_command c = {
        .name = "bench",
        .synopsis = "BUNDLE [--record JSON | -i FILE]",
        .summary = "Measures how long a record takes, from JSON to its answer.",
        .example = "churon bench fraud --record '{\"amount\": 12.5, \"country\": \"KR\"}' --batch 1,100",
        .options = options,
        .n_options = sizeof options / sizeof options[0],
        .min_args = 1,
        .max_args = 1};
    size_t n_args, n = 0;
    const arg_outcome outcome = args_parse(&c, argc, argv, &b.common, argv, &n_args);
    if (outcome != ARGS_RUN) return outcome == ARGS_DONE ? cli_finish(EXIT_YES) : EXIT_USAGE;
    if (b.records.record && b.records.input)
        return args_wrong(&c, "--record", "--record or -i, one of them", "both");
    uint64_t *batches = args_uint_list(b.batches, MOST_TOGETHER, &n);
    bool good = batches != NULL;
    for (size_t i = 0; i < n && good; i++) good = batches[i] > 0;
    const int code = good ? bench_bundle(&b, argv[0], batches, n)
                          : args_wrong(&c, "--batch", "numbers from 1 to 4096", b.batches);
    mem_free(batches);
    return code;
}

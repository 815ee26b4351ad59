/* bundle_run.c: `churon run BUNDLE`: records in, answers out. */
#include "cli/bundle_records.h"
#include "cli/timeout.h"

#include "base/clock.h"
#include "pipeline/trace.h"

#include <stdio.h>
#include <string.h>

enum { TOGETHER = 256 };

typedef struct bundle_run {
    arg_common common;
    const char *model;
    bundle_records records;
    bool want_trace, sequence;
    provider_choice providers;
    pipeline *p;
    pipeline_session *session;
    pipeline_sequence *state;
    size_t failed;
    str outputs; /* JSON of the answers, with commas; or lines */
    json_out j;
    struct trace trace;
    double load_s, run_s, timeout;
} bundle_run;

/* ---- answers ---------------------------------------------------------------------------------------- */

static void give_answer(bundle_run *r, size_t i, const pipeline_answer *a) {
    char place[240];
    if (a->st == CHURON_OK) {
        pipeline_answer_write(&r->j, NULL, r->p, a);
    } else if (r->common.json) {
        json_out_object(&r->j, NULL);
        json_out_cstr(&r->j, "error", a->message);
        json_out_end_object(&r->j);
    } else {
        cli_error("run: %s: %s", bundle_records_place(&r->records, i, place, sizeof place), a->message);
    }
    if (!r->common.json && a->st == CHURON_OK) {
        str_put(&r->outputs, '\n');
        r->j = json_out_begin(&r->outputs);
    }
    r->failed += a->st != CHURON_OK;
}

static status run_records(bundle_run *r, error *err) {
    const size_t together = r->state || r->want_trace ? 1 : TOGETHER;
    pipeline_answer answers[TOGETHER];
    for (size_t i = 0; i < r->records.n; i += together) {
        const size_t n = r->records.n - i < together ? r->records.n - i : together;
        const pipeline_run_options o = {.deadline = timeout_deadline(r->timeout),
                                        .sequence = r->state,
                                        .trace = r->want_trace ? &r->trace : NULL};
        const double started = clock_seconds();
        TRY(pipeline_run_json(r->session, (const json_t *const *)&r->records.items[i], n, &r->records.source,
                              &o, answers, err));
        r->run_s += clock_seconds() - started;
        if (r->records.n == 1 && answers[0].st != CHURON_OK) {
            (void)error_set(err, answers[0].st, "%s", answers[0].message);
            if (r->records.lines[0]) error_prefix(err, "%.200s:%zu", r->records.input, r->records.lines[0]);
            return answers[0].st;
        }
        for (size_t k = 0; k < n; k++) give_answer(r, i + k, &answers[k]);
    }
    return str_check(&r->outputs, err);
}

static int print_answers(bundle_run *r) {
    if (!r->common.json) {
        (void)cli_write(str_cstr(&r->outputs), r->outputs.len);
        if (r->want_trace) {
            (void)cli_write(str_cstr(&r->trace.text), r->trace.text.len);
            (void)cli_write("\n", 1);
        }
        return cli_finish(r->failed ? EXIT_NO : EXIT_YES);
    }
    str all = {0}, list = {0};
    json_out j = json_out_begin(&all);
    json_out_object(&j, NULL);
    if (r->records.n != 1) str_put(&list, '[');
    str_add(&list, str_cstr(&r->outputs), r->outputs.len);
    if (r->records.n != 1) str_put(&list, ']');
    json_out_raw(&j, "outputs", str_cstr(&list), list.len);
    if (list.failed) all.failed = true;
    if (r->want_trace) json_out_raw(&j, "trace", str_cstr(&r->trace.text), r->trace.text.len);
    json_out_object(&j, "timing");
    json_out_double(&j, "load_s", r->load_s);
    json_out_double(&j, "run_s", r->run_s);
    json_out_uint(&j, "records", r->records.n);
    json_out_uint(&j, "failed", r->failed);
    json_out_end_object(&j);
    bundle_provenance(&j, r->p, r->common.threads);
    json_out_end_object(&j);
    int code = cli_print_json(&all);
    if (code == EXIT_YES && r->failed) code = EXIT_NO;
    str_free(&list);
    str_free(&all);
    return code;
}

static int run_bundle(bundle_run *r) {
    error err = {0};
    const double started = clock_seconds();
    bool usage = false;
    int code = EXIT_NO;
    status st = bundle_open(&r->p, r->model, r->common.threads, &r->providers, r->timeout, &err);
    if (st == CHURON_OK) st = pipeline_session_create(&r->session, r->p, &err);
    r->load_s = clock_seconds() - started;
    if (st == CHURON_OK) {
        usage = true;
        if (r->sequence) st = pipeline_sequence_create(&r->state, r->p, &err);
        r->records.p = r->p;
        if (st == CHURON_OK) st = bundle_records_read(&r->records, &err);
        if (st == CHURON_OK && r->records.n == 0) cli_note(r->common.quiet, "note: run: 0 records");
        if (st == CHURON_OK && r->want_trace && r->records.n != 1)
            st = error_set(&err, CHURON_INVALID, "field --trace: expected one record, got %zu", r->records.n);
        r->j = json_out_begin(&r->outputs);
        trace_begin(&r->trace);
        if (st == CHURON_OK) st = run_records(r, &err);
        trace_end(&r->trace);
    }
    if (st == CHURON_OK) {
        code = print_answers(r);
    } else {
        code = usage ? cli_fail("run", &err) : cli_refuse("run", &err);
    }
    bundle_records_free(&r->records);
    trace_free(&r->trace);
    pipeline_sequence_free(r->state);
    pipeline_session_free(r->session);
    pipeline_close(r->p);
    str_free(&r->outputs);
    return code;
}

int bundle_cmd_run(int argc, char **argv) {
    bundle_run r = {0};
    const arg_option options[] = {
        {.name = "record",
         .kind = ARG_STRING,
         .target = &r.records.record,
         .value = "JSON",
         .help = "a record: {\"field\": value}; a list of records runs each"},
        {.name = "in",
         .kind = ARG_STRING,
         .target = &r.records.input,
         .value = "FILE",
         .shortcut = 'i',
         .help = "records from .json, .jsonl or .csv; or the one field that is an image, audio, bytes or a "
                 "tensor"},
        {.name = "trace",
         .kind = ARG_FLAG,
         .target = &r.want_trace,
         .help = "shows the value of every step (one record)"},
        {.name = "sequence",
         .kind = ARG_FLAG,
         .target = &r.sequence,
         .help = "the records are one sequence: its state goes from each to the next"},
        PROVIDER_OPTION(&r.providers),
        TIMEOUT_OPTION(&r.timeout),
    };
    const arg_command c = {.name = "run",
                           .synopsis = "BUNDLE [PROMPT] [--record JSON | -i FILE]",
                           .summary = "Runs a bundle on records: validate, prepare, model, answer.",
                           .details = "Without --json each answer is a line of JSON.",
                           .example = "churon run fraud --record '{\"amount\": 12.5, \"country\": \"KR\"}'\n"
                                      "churon run fraud -i records.csv --json",
                           .options = options,
                           .n_options = sizeof options / sizeof options[0],
                           .min_args = 1,
                           .max_args = 2};
    size_t n_args;
    const arg_outcome outcome = args_parse(&c, argc, argv, &r.common, argv, &n_args);
    if (outcome != ARGS_RUN) return outcome == ARGS_DONE ? cli_finish(EXIT_YES) : EXIT_USAGE;
    r.model = argv[0];
    r.records.prompt = n_args > 1 ? argv[1] : NULL;
    if ((r.records.record != NULL) + (r.records.input != NULL) + (r.records.prompt != NULL) > 1)
        return args_wrong(&c, "--record", "--record, -i or PROMPT, one of them", "several");
    const int code = run_bundle(&r);
    provider_choice_free(&r.providers);
    return code;
}

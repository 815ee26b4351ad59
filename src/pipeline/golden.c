/* golden.c: see golden.h. */
#include "pipeline/golden.h"

#include "pipeline/pipeline_part.h"
#include "pipeline/trace.h"

#include "base/clock.h"
#include "base/mem.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

enum { GOLDEN_MAX = 1 << 30, KEYS = 5 };

typedef struct golden_run {
    pipeline *p;
    pipeline_session *session;
    record_source source; /* the bundle */
    void (*on_case)(void *user, const golden_result *r);
    void *user;
    golden_summary *summary;
    str *recorded;  /* the cases with their traces; NULL: not wanted */
    double seconds; /* of a case; 0: any time */
} golden_run;

static json_t *parse(const str *text) {
    return text->failed ? NULL
                        : json_loadb(str_cstr(text), text->len, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
}

/* The first step, in the order of the run, whose value is not the recorded one. */
static void compare_trace(const json_t *expected, const json_t *got, golden_result *r) {
    const tolerance *t = &(tolerance){.abs = 1e-5, .rel = 1e-5};
    const char *label;
    json_t *value_got;
    json_object_foreach((json_t *)(uintptr_t)got, label, value_got) {
        const json_t *e = json_object_get(expected, label);
        if (!e) continue;
        golden_difference d = {0};
        golden_compare(e, value_got, t, NULL, "", &d);
        if (d.differs) {
            str_cat(&r->step, label);
            str_fmt(&r->why, "%sstep '%s' left the recorded path: %s%s%s", r->why.len ? "; " : "", label,
                    str_cstr(&d.field), d.field.len ? ": " : "", str_cstr(&d.why));
        }
        golden_difference_free(&d);
        if (r->step.len) return;
    }
    json_object_foreach((json_t *)(uintptr_t)expected, label, value_got) {
        if (json_object_get(got, label)) continue;
        str_cat(&r->step, label);
        str_fmt(&r->why, "%sstep '%s' of the recorded path is not there", r->why.len ? "; " : "", label);
        return;
    }
}

static void judge(const golden_run *g, const json_t *line, const pipeline_answer *a,
                  const struct trace *trace, golden_result *r) {
    const char *refusal = json_string_value(json_object_get(line, "error"));
    if (a->st != CHURON_OK || refusal) {
        if (a->st == CHURON_OK) {
            str_fmt(&r->why, "expected a refusal with '%.100s', got an answer", refusal);
        } else if (!refusal) {
            str_fmt(&r->why, "expected an answer, got: %s", a->message);
        } else if (!strstr(a->message, refusal)) {
            str_fmt(&r->why, "expected a refusal with '%.100s', got: %s", refusal, a->message);
        }
    } else {
        str text = {0};
        json_out j = json_out_begin(&text);
        golden_difference d = {0};
        pipeline_answer_write(&j, NULL, g->p, a);
        json_t *got = parse(&text);
        if (got) {
            golden_compare_answer(g->p, json_object_get(line, "out"), got, &d);
        } else {
            str_cat(&r->why, "no memory for the answer");
        }
        r->max_abs = d.max_abs;
        r->max_rel = d.max_rel;
        if (d.differs) {
            str_cat(&r->field, str_cstr(&d.field));
            str_fmt(&r->why, "field %s: %s", str_cstr(&d.field), str_cstr(&d.why));
        }
        golden_difference_free(&d);
        json_decref(got);
        str_free(&text);
    }
    if (a->st != CHURON_OK &&
        strncmp(a->message, "step ", 5) != 0) { /* the record itself was refused: no step ran */
        r->ok = r->why.len == 0 && !r->why.failed;
        return;
    }
    const json_t *recorded = g->recorded ? NULL : json_object_get(line, "trace"); /* it is made anew */
    json_t *got = recorded ? parse(&trace->text) : NULL;
    if (got) compare_trace(recorded, got, r);
    json_decref(got);
    r->ok = r->why.len == 0 && !r->why.failed;
}

/* The case with the trace of this run, as a line. */
static status record_case(const golden_run *g, const json_t *line, const golden_result *r,
                          const struct trace *trace, error *err) {
    if (!r->ok)
        return error_set(err, CHURON_INVALID,
                         "case '%.80s': expected that it passes before its trace is recorded: %.300s",
                         r->name, str_cstr(&r->why));
    json_t *copy = json_deep_copy(line), *value_of_trace = parse(&trace->text);
    char *text = copy && value_of_trace && json_object_set(copy, "trace", value_of_trace) == 0
                     ? json_dumps(copy, JSON_COMPACT)
                     : NULL;
    if (text) str_fmt(g->recorded, "%s\n", text);
    mem_free(text);
    json_decref(copy);
    json_decref(value_of_trace);
    return text ? str_check(g->recorded, err) : error_no_memory(err, "a trace", 0);
}

static status run_case(const golden_run *g, const json_t *line, size_t number, error *err) {
    char unnamed[32];
    struct trace trace;
    pipeline_answer a = {0};
    golden_result r = {.name = json_string_value(json_object_get(line, "name"))};
    const json_t *record = json_object_get(line, "in");
    snprintf(unnamed, sizeof unnamed, "line %zu", number);
    if (!r.name) r.name = unnamed;
    trace_begin(&trace);
    const pipeline_run_options o = {.trace = &trace,
                                    .deadline = g->seconds > 0 ? clock_seconds() + g->seconds : 0};
    status st = pipeline_run_json(g->session, &record, 1, &g->source, &o, &a, err);
    trace_end(&trace);
    if (st == CHURON_OK) {
        judge(g, line, &a, &trace, &r);
        if (g->recorded) st = record_case(g, line, &r, &trace, err);
        g->summary->passed += r.ok;
        g->summary->failed += !r.ok;
        if (g->on_case) g->on_case(g->user, &r);
    }
    trace_free(&trace);
    str_free(&r.field);
    str_free(&r.step);
    str_free(&r.why);
    return st;
}

static status check_line(const json_t *line, const char *file, size_t number, error *err) {
    static const char *const keys[KEYS] = {"name", "in", "out", "error", "trace"};
    const char *key;
    json_t *item;
    if (!json_is_object(line))
        return error_set(err, CHURON_CORRUPT, "%s: line %zu: expected an object", file, number);
    json_object_foreach((json_t *)(uintptr_t)line, key, item) {
        size_t i = 0;
        while (i < KEYS && strcmp(keys[i], key) != 0) i++;
        if (i == KEYS)
            return error_set(err, CHURON_CORRUPT,
                             "%s: line %zu: expected name, in, out, error or trace, got '%.60s'", file,
                             number, key);
    }
    const json_t *out = json_object_get(line, "out"), *refusal = json_object_get(line, "error");
    const json_t *name = json_object_get(line, "name"), *recorded = json_object_get(line, "trace");
    const char *fault = NULL;
    if (!json_is_object(json_object_get(line, "in"))) fault = "in: expected an object";
    if (!out == !refusal) fault = "expected either out or error";
    if (out && !json_is_object(out)) fault = "out: expected an object";
    if (refusal && !json_string_length(refusal)) fault = "error: expected a text that is not empty";
    if (name && !json_string_length(name)) fault = "name: expected a text that is not empty";
    if (recorded && !json_is_object(recorded)) fault = "trace: expected an object of steps";
    return fault ? error_set(err, CHURON_CORRUPT, "%s: line %zu: %s", file, number, fault) : CHURON_OK;
}

static status run_lines(const golden_run *g, const str *text, error *err) {
    const char *file = g->p->m.golden;
    const char *at = str_cstr(text), *end = at + text->len;
    size_t cases = 0;
    for (size_t number = 1; at < end; number++) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        if (!stop) stop = end;
        const size_t blank = strspn(at, " \t\r");
        if (stop > at + blank) {
            json_error_t e;
            json_t *line = json_loadb(at, (size_t)(stop - at), JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &e);
            status st = line ? check_line(line, file, number, err)
                             : error_set(err, CHURON_CORRUPT, "%s: line %zu: expected JSON: %.100s", file,
                                         number, e.text);
            if (st == CHURON_OK) st = run_case(g, line, number, err);
            json_decref(line);
            TRY(st);
            cases++;
        }
        at = stop + 1;
    }
    return cases ? CHURON_OK
                 : error_set(err, CHURON_CORRUPT, "%s: expected at least one case, got none", file);
}

static status run_file(golden_run *g, error *err) {
    pipeline *p = g->p;
    str text = {0};
    if (!p->m.golden)
        return error_set(err, CHURON_NOT_FOUND,
                         "%s: expected the key 'golden' with a file of golden cases, got none", p->m.name);
    g->source.bundle = p->files;
    status st = files_read(p->files, p->m.golden, GOLDEN_MAX, &text, err);
    if (st == CHURON_OK) st = pipeline_session_create(&g->session, p, err);
    if (st == CHURON_OK) st = run_lines(g, &text, err);
    pipeline_session_free(g->session);
    str_free(&text);
    return st;
}

status golden_verify(pipeline *p, double seconds, void (*on_case)(void *user, const golden_result *r),
                     void *user, golden_summary *out, error *err) {
    *out = (golden_summary){0};
    golden_run g = {.p = p, .seconds = seconds, .on_case = on_case, .user = user, .summary = out};
    return run_file(&g, err);
}

status golden_record_traces(pipeline *p, str *out, error *err) {
    golden_summary sum = {0};
    golden_run g = {.p = p, .summary = &sum, .recorded = out};
    return run_file(&g, err);
}

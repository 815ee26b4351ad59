/* pipeline_api.c: the pipelines of the public interface (churon.h) over pipeline/pipeline.h. It adds names of
 * the store, the checks of a caller's arguments, and JSON text. */
#include "api/api_part.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/pool.h"
#include "registry/store.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>

struct churon_pipeline {
    pipeline *p;
    char **types; /* [inputs + outputs], as text */
};

enum { TYPE_TEXT = 512 };

static status need(const void *p, const char *name, error *err) {
    return p ? CHURON_OK : error_set(err, CHURON_INVALID, "%s: expected a pointer, got NULL", name);
}

static status check_size(size_t got, size_t want, const char *what, error *err) {
    if (got == want) return CHURON_OK;
    return error_set(err, CHURON_INVALID, "%s.size: expected %zu, got %zu", what, want, got);
}

/* ---- pipelines -------------------------------------------------------------------------------------- */

static const cell_type *type_at(const pipeline *p, size_t i) {
    const size_t n = pipeline_n_inputs(p);
    return i < n ? &pipeline_input(p, i)->type : pipeline_output(p, i - n).type;
}

static status write_types(churon_pipeline *c, error *err) {
    const size_t n = pipeline_n_inputs(c->p) + pipeline_n_outputs(c->p);
    c->types = mem_calloc(n + 1, sizeof *c->types);
    if (!c->types) return error_no_memory(err, "types", n * sizeof *c->types);
    for (size_t i = 0; i < n; i++) {
        char text[TYPE_TEXT];
        cell_type plain = *type_at(c->p, i);
        if (i < pipeline_n_inputs(c->p)) plain.optional = false; /* churon_field.required says it */
        c->types[i] = mem_strdup(cell_type_text(&plain, text, sizeof text));
        if (!c->types[i]) return error_no_memory(err, "types", TYPE_TEXT);
    }
    return CHURON_OK;
}

status churon_pipeline_open(churon_pipeline **out, const char *model, uint32_t threads, error *err) {
    TRY(need(out, "out", err));
    *out = NULL;
    TRY(need(model, "model", err));
    if (threads > POOL_MAX_THREADS) {
        return error_set(err, CHURON_INVALID, "threads: expected at most %d, got %" PRIu32, POOL_MAX_THREADS,
                         threads);
    }
    status st = CHURON_OK;
    str path = {0};
    churon_pipeline *c = mem_calloc(1, sizeof *c);
    if (!c) return error_no_memory(err, "pipeline", sizeof *c);
    const pipeline_options o = {.threads = threads};
    TRY_GOTO(store_resolve(model, &path, err));
    TRY_GOTO(pipeline_open(&c->p, str_cstr(&path), &o, err));
    TRY_GOTO(store_check(str_cstr(&path), pipeline_digest(c->p), err));
    TRY_GOTO(write_types(c, err));
    *out = c;
    c = NULL;
cleanup:
    str_free(&path);
    churon_pipeline_close(c);
    return st;
}

void churon_pipeline_close(churon_pipeline *c) {
    if (!c) return;
    const size_t n = c->types ? pipeline_n_inputs(c->p) + pipeline_n_outputs(c->p) : 0;
    for (size_t i = 0; i < n; i++) mem_free(c->types[i]);
    mem_free(c->types);
    pipeline_close(c->p);
    mem_free(c);
}

static const char *or_empty(const char *text) {
    return text ? text : "";
}

status churon_pipeline_describe(const churon_pipeline *c, churon_pipeline_info *info, error *err) {
    TRY(need(c, "pipeline", err));
    TRY(need(info, "info", err));
    TRY(check_size(info->size, sizeof *info, "info", err));
    const manifest *m = pipeline_manifest(c->p);
    *info = (churon_pipeline_info){.size = sizeof *info,
                                   .name = or_empty(m->name),
                                   .version = or_empty(m->version),
                                   .task = or_empty(m->task),
                                   .digest = pipeline_digest(c->p),
                                   .inputs = pipeline_n_inputs(c->p),
                                   .outputs = pipeline_n_outputs(c->p)};
    return CHURON_OK;
}

static bool has_elements(cell_kind kind) {
    return kind == CELL_INT || kind == CELL_FLOAT || kind == CELL_TENSOR || kind == CELL_IMAGE ||
           kind == CELL_AUDIO;
}

status churon_pipeline_field(const churon_pipeline *c, bool output, size_t i, churon_field *field,
                             error *err) {
    TRY(need(c, "pipeline", err));
    TRY(need(field, "field", err));
    TRY(check_size(field->size, sizeof *field, "field", err));
    const size_t n_inputs = pipeline_n_inputs(c->p), n = output ? pipeline_n_outputs(c->p) : n_inputs;
    if (i >= n) return error_set(err, CHURON_INVALID, "i: expected less than %zu, got %zu", n, i);
    const cell_type *t = type_at(c->p, output ? n_inputs + i : i);
    *field = (churon_field){.size = sizeof *field,
                            .name = output ? pipeline_output(c->p, i).name : pipeline_input(c->p, i)->name,
                            .type = c->types[output ? n_inputs + i : i],
                            .kind = (churon_kind)t->kind,
                            .dtype = has_elements(t->kind) ? (churon_dtype)t->element : CHURON_NO_DTYPE,
                            .required = !output && pipeline_input(c->p, i)->required};
    return CHURON_OK;
}

/* ---- sessions --------------------------------------------------------------------------------------- */

status churon_pipeline_session_open(churon_pipeline_session **out, churon_pipeline *c, bool sequence,
                                    error *err) {
    TRY(need(out, "out", err));
    *out = NULL;
    TRY(need(c, "pipeline", err));
    status st = CHURON_OK;
    churon_pipeline_session *s = mem_calloc(1, sizeof *s);
    if (!s) return error_no_memory(err, "session", sizeof *s);
    s->p = pipeline_ref(c->p);
    TRY_GOTO(pipeline_session_create(&s->session, s->p, err));
    if (sequence) TRY_GOTO(pipeline_sequence_create(&s->sequence, s->p, err));
    *out = s;
    s = NULL;
cleanup:
    churon_pipeline_session_close(s);
    return st;
}

void churon_pipeline_session_close(churon_pipeline_session *s) {
    if (!s) return;
    pipeline_sequence_free(s->sequence);
    pipeline_session_free(s->session);
    arena_free(&s->memory);
    str_free(&s->text);
    pipeline_close(s->p);
    mem_free(s);
}

static status run_options(const churon_pipeline_session *s, double timeout_s, pipeline_run_options *o,
                          error *err) {
    if (!(timeout_s >= 0) || isinf(timeout_s))
        return error_set(err, CHURON_INVALID, "timeout_s: expected 0 and more seconds, got %g", timeout_s);
    *o = (pipeline_run_options){.sequence = s->sequence,
                                .deadline = timeout_s > 0 ? clock_seconds() + timeout_s : 0};
    return CHURON_OK;
}

static pipeline_answer *new_answers(churon_pipeline_session *s, size_t n, error *err) {
    pipeline_answer *a = arena_array(&s->memory, n ? n : 1, sizeof *a);
    if (!a) (void)arena_refused(&s->memory, "answers", n * sizeof *a, err);
    return a;
}

status churon_pipeline_run(churon_pipeline_session *s, const churon_value *inputs, size_t n, double timeout_s,
                           churon_answer *answers, error *err) {
    TRY(need(s, "session", err));
    if (n) {
        TRY(need(answers, "answers", err));
        if (pipeline_n_inputs(s->p)) TRY(need(inputs, "inputs", err));
    }
    pipeline_run_options o;
    cell *cells;
    error own;
    if (!err) err = &own; /* a refused allocation below is told through it */
    err->code = CHURON_OK;
    arena_reset(&s->memory);
    TRY(run_options(s, timeout_s, &o, err));
    TRY(api_take_inputs(s, inputs, n, &cells, err));
    pipeline_answer *made = new_answers(s, n, err);
    if (!made) return err->code;
    TRY(pipeline_run(s->session, cells, n, &o, made, err));
    return api_give_outputs(s, made, n, answers, err);
}

/* ---- JSON ------------------------------------------------------------------------------------------- */

static void write_answer(churon_pipeline_session *s, json_out *j, const pipeline_answer *a) {
    if (a->st == CHURON_OK) {
        pipeline_answer_write(j, NULL, s->p, a);
        return;
    }
    json_out_object(j, NULL);
    json_out_cstr(j, "error", a->message);
    json_out_end_object(j);
}

static status run_parsed(churon_pipeline_session *s, const json_t *root, double timeout_s, error *err) {
    const bool many = json_is_array(root);
    const size_t n = many ? json_array_size(root) : 1;
    const json_t **records = arena_array(&s->memory, n ? n : 1, sizeof(const json_t *));
    pipeline_answer *answers = new_answers(s, n, err);
    if (!records || !answers) return arena_refused(&s->memory, "records", n * sizeof *records, err);
    for (size_t i = 0; i < n; i++) records[i] = many ? json_array_get(root, i) : root;
    pipeline_run_options o;
    TRY(run_options(s, timeout_s, &o, err));
    TRY(pipeline_run_json(s->session, records, n, NULL, &o, answers, err));
    if (!many && answers[0].st != CHURON_OK) return error_set(err, answers[0].st, "%s", answers[0].message);
    json_out j = json_out_begin(&s->text);
    if (many) json_out_array(&j, NULL);
    for (size_t i = 0; i < n; i++) write_answer(s, &j, &answers[i]);
    if (many) json_out_end_array(&j);
    return str_check(&s->text, err);
}

status churon_pipeline_run_json(churon_pipeline_session *s, const char *json, size_t len, double timeout_s,
                                const char **answer, size_t *answer_len, error *err) {
    TRY(need(s, "session", err));
    TRY(need(json, "json", err));
    TRY(need(answer, "answer", err));
    TRY(need(answer_len, "answer_len", err));
    json_error_t why;
    *answer = NULL;
    *answer_len = 0;
    arena_reset(&s->memory);
    str_clear(&s->text);
    s->text.failed = false;
    json_t *root = json_loadb(json, len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &why);
    if (!root) {
        return error_set(
            err, CHURON_INVALID,
            "json: expected a record or a list of records, got an error in line %d, column %d: %s", why.line,
            why.column, why.text);
    }
    const status st = run_parsed(s, root, timeout_s, err);
    json_decref(root);
    if (st != CHURON_OK) return st;
    *answer = str_cstr(&s->text);
    *answer_len = s->text.len;
    return CHURON_OK;
}

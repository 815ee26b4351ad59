/* run.c: steps over records. A record that fails keeps its error and is left alone by later steps. */
#include "pipeline/pipeline_part.h"
#include "pipeline/trace.h"

#include "base/clock.h"
#include "base/mem.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct pipeline_sequence {
    pipeline *p;
    arena memory[2]; /* the states lie in one; a run writes the next ones into the other */
    int current;
    cell *states; /* [n_states] */
};

status run_may_go_on(const run *r, error *err) {
    if (r->cancel && atomic_load_explicit(r->cancel, memory_order_relaxed))
        return error_set(err, CHURON_CANCELLED, "run: cancelled");
    if (r->deadline > 0 && clock_seconds() > r->deadline)
        return error_set(err, CHURON_LIMIT, "run: expected to end before its deadline, got to it");
    return CHURON_OK;
}

status run_no_memory(const run *r, const step *s, size_t bytes, error *err) {
    return arena_refused(r->memory, s->label, bytes, err);
}

/* Faults of the run itself end it; those of a record stay with the record. */
static bool ends_run(status st) {
    return st == CHURON_NO_MEMORY || st == CHURON_CANCELLED || st == CHURON_BUSY || st == CHURON_INTERNAL;
}

static status run_rows(const step *s, run *r, run_row *rows, size_t n, error *err) {
    if (s->kind->rows) {
        status st = s->kind->rows(s, r, rows, n, err);
        if (st != CHURON_OK) error_prefix(err, "step %s", s->label);
        return st;
    }
    for (size_t i = 0; i < n; i++) {
        if (rows[i].st != CHURON_OK) continue;
        rows[i].st = s->kind->row(s, r, rows[i].slots, &rows[i].err);
        if (rows[i].st == CHURON_OK) continue;
        error_prefix(&rows[i].err, "step %s", s->label);
        if (!ends_run(rows[i].st)) continue;
        if (err) *err = rows[i].err;
        return rows[i].st;
    }
    return CHURON_OK;
}

static status run_steps(const step_block *block, run *r, run_row *rows, size_t n, bool items, error *err) {
    const bool timed = r->cancel || r->deadline > 0;
    for (size_t i = 0; i < block->n; i++) {
        if (timed) TRY(run_may_go_on(r, err));
        TRY(run_rows(&block->steps[i], r, rows, n, err));
        if (r->trace) trace_step(r->trace, &block->steps[i], rows, n, items);
    }
    return CHURON_OK;
}

status run_block(const step_block *block, run *r, run_row *rows, size_t n, error *err) {
    return run_steps(block, r, rows, n, true, err);
}

status run_rows_create(run *r, const cell *outer, size_t n, run_row **out, error *err) {
    const size_t slots = r->p->n_slots;
    size_t cells, bytes;
    run_row *rows = arena_array(r->memory, n ? n : 1, sizeof *rows);
    const bool sized = size_mul(n ? n : 1, slots, &cells) && size_mul(cells, sizeof(cell), &bytes);
    cell *all = rows && sized ? arena_alloc(r->memory, bytes) : NULL;
    if (!all) return arena_refused(r->memory, "items", sized ? bytes : SIZE_MAX, err);
    for (size_t i = 0; i < n; i++) {
        rows[i].slots = all + i * slots;
        memcpy(rows[i].slots, outer, slots * sizeof(cell));
    }
    *out = rows;
    return CHURON_OK;
}

/* ---- rounding of outputs ---------------------------------------------------------------------------- */

static double rounded(double v, int digits) {
    char text[400];
    if (!isfinite(v) || fabs(v) >= 1e300) return v;
    snprintf(text, sizeof text, "%.*f", digits, v);
    return strtod(text, NULL);
}

static status round_cell(cell *c, int digits, arena *a, error *err) {
    if (c->kind == CELL_FLOAT) {
        c->number = rounded(c->number, digits);
    } else if (c->kind == CELL_TENSOR && (ELEM_BIT(c->t->type) & ELEMS_FLOAT)) {
        const tensor *t = c->t;
        const size_t bytes = elem_describe(t->type)->bytes;
        void *data;
        TRY(cell_new_tensor(c, CELL_TENSOR, a, t->type, t->rank, t->dims, &data, "an output", err));
        for (size_t i = 0; i < t->count; i++) {
            double v;
            elem_to_f64(t->type, (const char *)t->data + i * bytes, &v, 1);
            v = rounded(v, digits);
            elem_from_f64(t->type, &v, (char *)data + i * bytes, 1, true);
        }
    } else if (c->kind == CELL_LIST || c->kind == CELL_RECORD) {
        cell *items = arena_alloc(a, (c->n ? c->n : 1) * sizeof *items);
        if (!items) return arena_refused(a, "an output", c->n * sizeof *items, err);
        memcpy(items, c->items, c->n * sizeof *items);
        for (uint32_t i = 0; i < c->n; i++) TRY(round_cell(&items[i], digits, a, err));
        c->items = items;
    }
    return CHURON_OK;
}

/* ---- sessions --------------------------------------------------------------------------------------- */

status pipeline_session_create(pipeline_session **out, pipeline *p, error *err) {
    *out = NULL;
    pipeline_session *s = mem_calloc(1, sizeof *s);
    if (!s) return error_no_memory(err, "a session", sizeof *s);
    s->graphs = mem_calloc(p->m.n_models ? p->m.n_models : 1, sizeof(graph_session *));
    if (!s->graphs) {
        mem_free(s);
        return error_no_memory(err, "a session", p->m.n_models * sizeof(graph_session *));
    }
    s->memory.limit = p->max_memory;
    s->p = pipeline_ref(p);
    *out = s;
    return CHURON_OK;
}

void pipeline_session_free(pipeline_session *s) {
    if (!s) return;
    for (size_t i = 0; i < s->p->m.n_models; i++) graph_session_free(s->graphs[i]);
    mem_free(s->graphs);
    mem_free(s->rows);
    mem_free(s->slots);
    mem_free(s->inputs);
    arena_free(&s->memory);
    str_free(&s->messages);
    pipeline_close(s->p);
    mem_free(s);
}

double pipeline_session_model_seconds(const pipeline_session *s) {
    return s->model_s;
}

/* Room for n records. */
static status make_room(pipeline_session *s, size_t n, error *err) {
    if (n <= s->cap_rows) return CHURON_OK;
    const size_t slots = s->p->n_slots, inputs = s->p->m.inputs.n;
    size_t cells;
    if (!size_mul(n, slots > inputs ? slots : inputs, &cells)) return error_no_memory(err, "records", n);
    run_row *rows = mem_calloc(n, sizeof *rows);
    cell *all = mem_calloc(n > 0 && slots > 0 ? n * slots : 1, sizeof *all);
    cell *in = mem_calloc(n > 0 && inputs > 0 ? n * inputs : 1, sizeof *in);
    if (!rows || !all || !in) {
        mem_free(rows);
        mem_free(all);
        mem_free(in);
        return error_no_memory(err, "records", n * (slots + inputs) * sizeof(cell));
    }
    mem_free(s->rows);
    mem_free(s->slots);
    mem_free(s->inputs);
    s->rows = rows;
    s->slots = all;
    s->inputs = in;
    s->cap_rows = n;
    return CHURON_OK;
}

status pipeline_sequence_create(pipeline_sequence **out, pipeline *p, error *err) {
    *out = NULL;
    if (p->n_states == 0)
        return error_set(err, CHURON_INVALID,
                         "sequence: expected a bundle whose manifest has state, got '%s', which has none",
                         p->m.name);
    pipeline_sequence *q = mem_calloc(1, sizeof *q);
    cell *states = mem_calloc(p->n_states, sizeof *states);
    if (!q || !states) {
        mem_free(q);
        mem_free(states);
        return error_no_memory(err, "a sequence", p->n_states * sizeof *states);
    }
    for (size_t i = 0; i < p->n_states; i++) states[i] = p->states[i].initial;
    *q = (pipeline_sequence){.p = pipeline_ref(p), .states = states};
    *out = q;
    return CHURON_OK;
}

void pipeline_sequence_free(pipeline_sequence *q) {
    if (!q) return;
    arena_free(&q->memory[0]);
    arena_free(&q->memory[1]);
    mem_free(q->states);
    pipeline_close(q->p);
    mem_free(q);
}

static status keep_states(pipeline_sequence *q, const cell *slots, error *err) {
    arena *to = &q->memory[!q->current];
    arena_reset(to);
    for (size_t i = 0; i < q->p->n_states; i++) {
        const pipeline_state *st = &q->p->states[i];
        const tensor *t = slots[st->next].t;
        cell copy;
        if (t->rank != st->type.rank || memcmp(t->dims, st->type.dims, t->rank * sizeof *t->dims) != 0) {
            char want[120], got[120];
            cell_type is = {.kind = CELL_TENSOR, .element = t->type, .has_rank = true, .rank = t->rank};
            memcpy(is.dims, t->dims, sizeof is.dims);
            return error_set(err, CHURON_INVALID, "state '%.80s': expected %s for the next call, got %s",
                             st->name, cell_type_text(&st->type, want, sizeof want),
                             cell_type_text(&is, got, sizeof got));
        }
        TRY(cell_copy(&copy, &slots[q->p->states[i].next], to, err));
        q->states[i] = copy;
    }
    q->current = !q->current;
    return CHURON_OK;
}

/* ---- a run ------------------------------------------------------------------------------------------ */

static status write_outputs(const pipeline *p, run_row *row, arena *a, pipeline_answer *answer, error *err) {
    cell *outputs = arena_alloc(a, p->n_outputs * sizeof *outputs);
    if (!outputs) return arena_refused(a, "outputs", p->n_outputs * sizeof *outputs, err);
    for (size_t i = 0; i < p->n_outputs; i++) {
        outputs[i] = row->slots[p->output_slots[i]];
        if (p->output_rounds[i] >= 0) TRY(round_cell(&outputs[i], p->output_rounds[i], a, err));
    }
    answer->outputs = outputs;
    return CHURON_OK;
}

/* Rows whose st is CHURON_OK and whose inputs are in their slots, to answers. */
static status run_all(pipeline_session *s, size_t n, const pipeline_run_options *o, pipeline_answer *answers,
                      error *err) {
    pipeline *p = s->p;
    run r = {.p = p, .session = s, .memory = &s->memory};
    if (o) {
        r.deadline = o->deadline;
        r.cancel = o->cancel;
        r.sequence = o->sequence;
        r.trace = o->trace;
    }
    if ((r.sequence || r.trace) && n != 1)
        return error_set(err, CHURON_INVALID, "records: expected one with a sequence or a trace, got %zu", n);
    if (r.sequence && r.sequence->p != p)
        return error_set(err, CHURON_INVALID, "sequence: expected one of this pipeline, got another's");
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < p->n_states; k++)
            s->rows[i].slots[p->states[k].slot] = r.sequence ? r.sequence->states[k] : p->states[k].initial;
    }
    TRY(run_steps(&p->steps, &r, s->rows, n, false, err));
    for (size_t i = 0; i < n; i++) {
        run_row *row = &s->rows[i];
        if (row->st == CHURON_OK) TRY(write_outputs(p, row, &s->memory, &answers[i], err));
        answers[i].st = row->st;
        answers[i].message = row->st == CHURON_OK ? NULL : row->err.message;
    }
    if (r.sequence && s->rows[0].st == CHURON_OK) TRY(keep_states(r.sequence, s->rows[0].slots, err));
    return CHURON_OK;
}

static void prepare_rows(pipeline_session *s, size_t n) {
    const size_t slots = s->p->n_slots;
    for (size_t i = 0; i < n; i++) {
        s->rows[i].slots = s->slots + i * slots;
        s->rows[i].st = CHURON_OK;
    }
}

static void place_inputs(pipeline_session *s, size_t row, const cell *inputs) {
    for (size_t k = 0; k < s->p->m.inputs.n; k++) s->rows[row].slots[s->p->input_slots[k]] = inputs[k];
}

status pipeline_run(pipeline_session *s, const cell *inputs, size_t n, const pipeline_run_options *o,
                    pipeline_answer *answers, error *err) {
    const size_t n_inputs = s->p->m.inputs.n;
    arena_reset(&s->memory);
    TRY(make_room(s, n, err));
    prepare_rows(s, n);
    for (size_t i = 0; i < n; i++) {
        cell *checked = s->inputs + i * n_inputs;
        answers[i] = (pipeline_answer){.st = CHURON_OK};
        memcpy(checked, inputs + i * n_inputs, n_inputs * sizeof *checked);
        s->rows[i].st = schema_check(&s->p->m.inputs, checked, &s->memory, &s->rows[i].err);
        if (ends_run(s->rows[i].st)) {
            if (err) *err = s->rows[i].err;
            return s->rows[i].st;
        }
        place_inputs(s, i, checked);
    }
    return run_all(s, n, o, answers, err);
}

status pipeline_run_json(pipeline_session *s, const json_t *const *records, size_t n,
                         const record_source *source, const pipeline_run_options *o, pipeline_answer *answers,
                         error *err) {
    const size_t n_inputs = s->p->m.inputs.n;
    arena_reset(&s->memory);
    TRY(make_room(s, n, err));
    prepare_rows(s, n);
    for (size_t i = 0; i < n; i++) {
        cell *inputs = s->inputs + i * n_inputs;
        answers[i] = (pipeline_answer){.st = CHURON_OK};
        s->rows[i].st =
            schema_read_json(&s->p->m.inputs, records[i], source, &s->memory, inputs, &s->rows[i].err);
        if (ends_run(s->rows[i].st)) {
            if (err) *err = s->rows[i].err;
            return s->rows[i].st;
        }
        place_inputs(s, i, inputs);
    }
    return run_all(s, n, o, answers, err);
}

void pipeline_answer_write(json_out *j, const char *key, const pipeline *p, const pipeline_answer *a) {
    json_out_object(j, key);
    for (size_t i = 0; i < p->n_outputs; i++)
        cell_write(j, p->outputs[i].name, p->outputs[i].type, &a->outputs[i]);
    json_out_end_object(j);
}

/* bundle_against.c: see bundle_against.h. Labels (text, booleans, integers) are counted as changed or not,
 * with the commonest changes; numbers by how far they moved. */
#include "cli/bundle_against.h"
#include "cli/timeout.h"

#include "base/mem.h"
#include "pipeline/golden.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TOGETHER = 256, MOST_CHANGES = 10 };

typedef struct change {
    str from, to;
    size_t n;
} change;

typedef struct output_change {
    const char *name;
    bool is_number;
    size_t compared, changed; /* changed: a label that is another; a number beyond the tolerance */
    double sum, sum_abs, max_abs;
    change *changes;
    size_t n_changes, cap;
} output_change;

typedef struct slice_value {
    str text;
    size_t n, changed;
} slice_value;

typedef struct slice {
    const char *field;
    slice_value *values;
    size_t n, cap;
} slice;

typedef struct comparison {
    bundle_against *a;
    pipeline *before;
    bundle_records records;
    output_change *outputs;
    size_t n_outputs;
    slice *slices;
    size_t both, refused_now, refused_before, refused_both, changed_records;
} comparison;

static bool is_label(const cell_type *t) {
    return t->kind == CELL_TEXT || t->kind == CELL_BOOL || t->kind == CELL_INT || t->kind == CELL_DATE ||
           t->kind == CELL_TIME;
}

static status count_change(output_change *o, const json_t *from, const json_t *to, error *err) {
    char *a = from ? json_dumps(from, JSON_ENCODE_ANY) : NULL,
         *b = to ? json_dumps(to, JSON_ENCODE_ANY) : NULL;
    const char *x = a ? a : "none", *y = b ? b : "none";
    status st = CHURON_OK;
    size_t i = 0;
    while (i < o->n_changes &&
           (strcmp(o->changes[i].from.data, x) != 0 || strcmp(o->changes[i].to.data, y) != 0))
        i++;
    if (i == o->n_changes) {
        if (o->n_changes == o->cap) {
            const size_t cap = o->cap ? o->cap * 2 : 16;
            change *more = mem_realloc(o->changes, cap * sizeof *more);
            if (!more) st = error_no_memory(err, "changes", cap * sizeof *more);
            if (more) {
                o->changes = more;
                o->cap = cap;
            }
        }
        if (st == CHURON_OK) {
            change c = {0};
            str_cat(&c.from, x);
            str_cat(&c.to, y);
            st = c.from.failed || c.to.failed ? error_no_memory(err, "changes", 0) : CHURON_OK;
            if (st == CHURON_OK) {
                o->changes[o->n_changes++] = c;
            } else {
                str_free(&c.from);
                str_free(&c.to);
            }
        }
    }
    if (st == CHURON_OK) o->changes[i].n++;
    mem_free(a);
    mem_free(b);
    return st;
}

/* Sum of the movements of all numbers in two JSON values of the same form. */
static void add_movement(const json_t *from, const json_t *to, output_change *o, size_t *n) {
    if (json_is_number(from) && json_is_number(to)) {
        const double moved = json_number_value(to) - json_number_value(from);
        o->sum += moved;
        o->sum_abs += fabs(moved);
        if (fabs(moved) > o->max_abs) o->max_abs = fabs(moved);
        ++*n;
    } else if (json_is_array(from) && json_is_array(to)) {
        for (size_t i = 0; i < json_array_size(from) && i < json_array_size(to); i++)
            add_movement(json_array_get(from, i), json_array_get(to, i), o, n);
    } else if (json_is_object(from) && json_is_object(to)) {
        const char *key;
        json_t *item;
        json_object_foreach((json_t *)(uintptr_t)from, key, item)
            add_movement(item, json_object_get(to, key), o, n);
    }
}

static status compare_answers(comparison *c, const json_t *before, const json_t *now, bool *changed,
                              error *err) {
    for (size_t i = 0; i < c->n_outputs; i++) {
        output_change *o = &c->outputs[i];
        const json_t *from = json_object_get(before, o->name), *to = json_object_get(now, o->name);
        golden_difference d = {0};
        size_t n = 0;
        o->compared++;
        golden_compare(from, to, manifest_tolerance_of(pipeline_manifest(c->a->p), o->name),
                       pipeline_output(c->a->p, i).type, o->name, &d);
        const bool differs = o->is_number ? d.differs : !from || !json_equal(from, to);
        golden_difference_free(&d);
        if (o->is_number) {
            add_movement(from, to, o, &n);
        } else if (differs) {
            TRY(count_change(o, from, to, err));
        }
        o->changed += differs;
        *changed = *changed || differs;
    }
    return CHURON_OK;
}

static status count_slices(comparison *c, const json_t *record, bool changed, error *err) {
    for (size_t s = 0; s < c->a->slices.n; s++) {
        slice *sl = &c->slices[s];
        const json_t *v = json_object_get(record, sl->field);
        char *text = v ? json_dumps(v, JSON_ENCODE_ANY) : NULL;
        const char *key = text ? text : "missing";
        size_t i = 0;
        while (i < sl->n && strcmp(sl->values[i].text.data, key) != 0) i++;
        if (i == sl->n) {
            slice_value *more = sl->values;
            if (sl->n == sl->cap) {
                const size_t cap = sl->cap ? sl->cap * 2 : 16;
                more = mem_realloc(sl->values, cap * sizeof *more);
                if (more) sl->cap = cap;
            }
            slice_value made = {0};
            str_cat(&made.text, key);
            if (!more || made.text.failed) {
                str_free(&made.text);
                mem_free(text);
                return error_no_memory(err, "slices", 0);
            }
            sl->values = more;
            sl->values[sl->n++] = made;
        }
        sl->values[i].n++;
        sl->values[i].changed += changed;
        mem_free(text);
    }
    return CHURON_OK;
}

static json_t *answer_json(const pipeline *p, const pipeline_answer *a) {
    str text = {0};
    json_out j = json_out_begin(&text);
    pipeline_answer_write(&j, NULL, p, a);
    json_t *json = text.failed ? NULL : json_loadb(str_cstr(&text), text.len, JSON_ALLOW_NUL, NULL);
    str_free(&text);
    return json;
}

static status compare_record(comparison *c, const json_t *record, const pipeline_answer *before,
                             const pipeline_answer *now, error *err) {
    bool changed = (before->st == CHURON_OK) != (now->st == CHURON_OK);
    status st = CHURON_OK;
    if (before->st == CHURON_OK && now->st == CHURON_OK) {
        json_t *x = answer_json(c->before, before), *y = answer_json(c->a->p, now);
        c->both++;
        st = x && y ? compare_answers(c, x, y, &changed, err) : error_no_memory(err, "answers", 0);
        json_decref(x);
        json_decref(y);
    } else if (changed) {
        c->refused_now += now->st != CHURON_OK;
        c->refused_before += before->st != CHURON_OK;
    } else {
        c->refused_both++;
    }
    c->changed_records += changed;
    return st == CHURON_OK ? count_slices(c, record, changed, err) : st;
}

static status compare_all(comparison *c, error *err) {
    pipeline_session *before = NULL, *now = NULL;
    pipeline_answer x[TOGETHER], y[TOGETHER];
    status st = pipeline_session_create(&before, c->before, err);
    if (st == CHURON_OK) st = pipeline_session_create(&now, c->a->p, err);
    for (size_t i = 0; st == CHURON_OK && i < c->records.n; i += TOGETHER) {
        const size_t n = c->records.n - i < TOGETHER ? c->records.n - i : TOGETHER;
        const json_t *const *records = (const json_t *const *)&c->records.items[i];
        pipeline_run_options o = {.deadline = timeout_deadline(c->a->timeout)};
        st = pipeline_run_json(before, records, n, &c->records.source, &o, x, err);
        o.deadline = timeout_deadline(c->a->timeout);
        if (st == CHURON_OK) st = pipeline_run_json(now, records, n, &c->records.source, &o, y, err);
        for (size_t k = 0; k < n && st == CHURON_OK; k++)
            st = compare_record(c, records[k], &x[k], &y[k], err);
    }
    pipeline_session_free(before);
    pipeline_session_free(now);
    return st;
}

/* ---- the report ------------------------------------------------------------------------------------- */

static int by_count(const void *a, const void *b) {
    const change *x = a, *y = b;
    return x->n < y->n ? 1 : x->n > y->n ? -1 : strcmp(x->from.data, y->from.data);
}

static void write_output(json_out *j, output_change *o) {
    json_out_object(j, NULL);
    json_out_cstr(j, "name", o->name);
    json_out_cstr(j, "kind", o->is_number ? "number" : "label");
    json_out_uint(j, "compared", o->compared);
    json_out_uint(j, "changed", o->changed);
    if (o->is_number) {
        const double n = o->compared ? (double)o->compared : 1;
        json_out_double(j, "mean_shift", o->sum / n);
        json_out_double(j, "mean_abs", o->sum_abs / n);
        json_out_double(j, "max_abs", o->max_abs);
    } else {
        if (o->n_changes) qsort(o->changes, o->n_changes, sizeof *o->changes, by_count);
        json_out_array(j, "changes");
        for (size_t i = 0; i < o->n_changes && i < MOST_CHANGES; i++) {
            json_out_object(j, NULL);
            json_out_raw(j, "from", o->changes[i].from.data, o->changes[i].from.len);
            json_out_raw(j, "to", o->changes[i].to.data, o->changes[i].to.len);
            json_out_uint(j, "n", o->changes[i].n);
            json_out_end_object(j);
        }
        json_out_end_array(j);
    }
    json_out_end_object(j);
}

static int print_json(comparison *c) {
    str out = {0};
    json_out j = json_out_begin(&out);
    json_out_object(&j, NULL);
    json_out_uint(&j, "records", c->records.n);
    json_out_uint(&j, "changed", c->changed_records);
    json_out_uint(&j, "answered_by_both", c->both);
    json_out_uint(&j, "refused_only_now", c->refused_now);
    json_out_uint(&j, "refused_only_before", c->refused_before);
    json_out_uint(&j, "refused_by_both", c->refused_both);
    json_out_array(&j, "outputs");
    for (size_t i = 0; i < c->n_outputs; i++) write_output(&j, &c->outputs[i]);
    json_out_end_array(&j);
    json_out_object(&j, "slices");
    for (size_t s = 0; s < c->a->slices.n; s++) {
        json_out_array(&j, c->slices[s].field);
        for (size_t i = 0; i < c->slices[s].n; i++) {
            const slice_value *v = &c->slices[s].values[i];
            json_out_object(&j, NULL);
            if (strcmp(v->text.data, "missing") == 0) {
                json_out_null(&j, "value");
            } else {
                json_out_raw(&j, "value", v->text.data, v->text.len);
            }
            json_out_uint(&j, "n", v->n);
            json_out_uint(&j, "changed", v->changed);
            json_out_end_object(&j);
        }
        json_out_end_array(&j);
    }
    json_out_end_object(&j);
    json_out_object(&j, "before");
    json_out_cstr(&j, "bundle", pipeline_manifest(c->before)->name);
    json_out_cstr(&j, "bundle_version", pipeline_manifest(c->before)->version);
    json_out_cstr(&j, "digest", pipeline_digest(c->before));
    json_out_end_object(&j);
    bundle_provenance(&j, c->a->p, c->a->common.threads);
    json_out_end_object(&j);
    const int code = cli_print_json(&out);
    str_free(&out);
    return code;
}

static int print_text(comparison *c) {
    str out = {0};
    str_fmt(&out, "%zu of %zu records change", c->changed_records, c->records.n);
    if (c->refused_now) str_fmt(&out, "; %zu are refused only now", c->refused_now);
    if (c->refused_before) str_fmt(&out, "; %zu were refused only before", c->refused_before);
    str_put(&out, '\n');
    for (size_t i = 0; i < c->n_outputs; i++) {
        output_change *o = &c->outputs[i];
        const double n = o->compared ? (double)o->compared : 1;
        if (o->is_number) {
            str_fmt(
                &out,
                "%s: %zu of %zu beyond the tolerance; mean shift %.3g, mean distance %.3g, largest %.3g\n",
                o->name, o->changed, o->compared, o->sum / n, o->sum_abs / n, o->max_abs);
            continue;
        }
        str_fmt(&out, "%s: %zu of %zu change\n", o->name, o->changed, o->compared);
        if (o->n_changes) qsort(o->changes, o->n_changes, sizeof *o->changes, by_count);
        for (size_t k = 0; k < o->n_changes && k < MOST_CHANGES; k++)
            str_fmt(&out, "  %zu from %s to %s\n", o->changes[k].n, o->changes[k].from.data,
                    o->changes[k].to.data);
    }
    for (size_t s = 0; s < c->a->slices.n; s++) {
        for (size_t i = 0; i < c->slices[s].n; i++) {
            const slice_value *v = &c->slices[s].values[i];
            str_fmt(&out, "%s = %s: %zu of %zu change\n", c->slices[s].field, v->text.data, v->changed, v->n);
        }
    }
    (void)cli_write(str_cstr(&out), out.len);
    str_free(&out);
    return cli_finish(EXIT_YES);
}

static status prepare(comparison *c, error *err) {
    bundle_against *a = c->a;
    TRY(bundle_open(&c->before, a->other, a->common.threads, NULL, a->timeout, err));
    c->records = (bundle_records){.p = a->p, .input = a->data};
    TRY(bundle_records_read(&c->records, err));
    if (c->records.n == 0)
        return error_set(err, CHURON_INVALID,
                         "field --data: expected at least one record, got none in %.200s", a->data);
    c->n_outputs = pipeline_n_outputs(a->p);
    c->outputs = mem_calloc(c->n_outputs, sizeof *c->outputs);
    c->slices = mem_calloc(a->slices.n ? a->slices.n : 1, sizeof *c->slices);
    if (!c->outputs || !c->slices)
        return error_no_memory(err, "a comparison", c->n_outputs * sizeof *c->outputs);
    for (size_t i = 0; i < c->n_outputs; i++) {
        const pipeline_port o = pipeline_output(a->p, i);
        c->outputs[i] = (output_change){.name = o.name, .is_number = !is_label(o.type)};
    }
    for (size_t s = 0; s < a->slices.n; s++) {
        size_t i = 0;
        while (i < pipeline_n_inputs(a->p) && strcmp(pipeline_input(a->p, i)->name, a->slices.items[s]) != 0)
            i++;
        if (i == pipeline_n_inputs(a->p))
            return error_set(err, CHURON_INVALID,
                             "field --slice: expected a field of the bundle, got '%.80s'",
                             a->slices.items[s]);
        c->slices[s].field = a->slices.items[s];
    }
    return CHURON_OK;
}

static void release(comparison *c) {
    for (size_t i = 0; c->outputs && i < c->n_outputs; i++) {
        for (size_t k = 0; k < c->outputs[i].n_changes; k++) {
            str_free(&c->outputs[i].changes[k].from);
            str_free(&c->outputs[i].changes[k].to);
        }
        mem_free(c->outputs[i].changes);
    }
    for (size_t s = 0; c->slices && s < c->a->slices.n; s++) {
        for (size_t i = 0; i < c->slices[s].n; i++) str_free(&c->slices[s].values[i].text);
        mem_free(c->slices[s].values);
    }
    mem_free(c->outputs);
    mem_free(c->slices);
    bundle_records_free(&c->records);
    pipeline_close(c->before);
}

int bundle_against_run(bundle_against *a) {
    comparison c = {.a = a};
    error err = {0};
    status st = prepare(&c, &err);
    if (st == CHURON_OK) st = compare_all(&c, &err);
    int code;
    if (st != CHURON_OK) {
        code = cli_fail("verify", &err);
    } else {
        code = a->common.json ? print_json(&c) : print_text(&c);
        if (code == EXIT_YES && c.changed_records) code = EXIT_NO;
    }
    release(&c);
    return code;
}

/* trace.c: see trace.h. */
#include "pipeline/trace.h"

#include <math.h>

void trace_begin(struct trace *t) {
    *t = (struct trace){0};
    t->j = json_out_begin(&t->text);
    json_out_object(&t->j, NULL);
}

void trace_end(struct trace *t) {
    json_out_end_object(&t->j);
    t->j.to = &t->text;
}

void trace_free(struct trace *t) {
    str_free(&t->text);
    str_free(&t->prefix);
}

enum { WHOLE = 256, FIRST = 8 };

/* A tensor of many elements as what tells it from another. */
static void write_summary(json_out *j, const char *key, const tensor *t) {
    const size_t bytes = elem_describe(t->type)->bytes;
    double sum = 0, squares = 0, least = INFINITY, most = -INFINITY;
    for (size_t i = 0; i < t->count; i++) {
        double v;
        elem_to_f64(t->type, (const char *)t->data + i * bytes, &v, 1);
        sum += v;
        squares += v * v;
        if (v < least) least = v;
        if (v > most) most = v;
    }
    const double mean = sum / (double)t->count, spread = squares / (double)t->count - mean * mean;
    json_out_object(j, key);
    json_out_cstr(j, "dtype", elem_name(t->type));
    json_out_array(j, "shape");
    for (uint32_t i = 0; i < t->rank; i++) json_out_int(j, NULL, t->dims[i]);
    json_out_end_array(j);
    json_out_double(j, "mean", mean);
    json_out_double(j, "deviation", spread > 0 ? sqrt(spread) : 0);
    json_out_double(j, "min", least);
    json_out_double(j, "max", most);
    json_out_array(j, "first");
    for (size_t i = 0; i < FIRST; i++) {
        double v;
        elem_to_f64(t->type, (const char *)t->data + i * bytes, &v, 1);
        json_out_double(j, NULL, v);
    }
    json_out_end_array(j);
    json_out_end_object(j);
}

static void write_value(json_out *j, const char *key, const cell_type *type, const cell *c) {
    const bool has_tensor = c->kind == CELL_TENSOR || c->kind == CELL_IMAGE || c->kind == CELL_AUDIO;
    const elem_set real = ELEMS_ALL & ~(ELEMS_COMPLEX | ELEM_BIT(ELEM_STRING));
    if (has_tensor && c->t->count > WHOLE && (ELEM_BIT(c->t->type) & real)) {
        write_summary(j, key, c->t);
    } else if (c->kind == CELL_LIST) {
        json_out_array(j, key);
        for (uint32_t i = 0; i < c->n; i++) write_value(j, NULL, type->of, &c->items[i]);
        json_out_end_array(j);
    } else if (c->kind == CELL_RECORD) {
        json_out_object(j, key);
        for (uint32_t i = 0; i < c->n; i++)
            write_value(j, type->members[i].name, type->members[i].type, &c->items[i]);
        json_out_end_object(j);
    } else {
        cell_write(j, key, type, c);
    }
}

static void write_row(json_out *j, const char *key, const step *s, const run_row *row) {
    if (row->st != CHURON_OK) {
        json_out_null(j, key);
        return;
    }
    if (s->n_outputs == 1) {
        write_value(j, key, s->output_types[0], &row->slots[s->outputs[0]]);
        return;
    }
    json_out_object(j, key);
    for (size_t i = 0; i < s->n_outputs; i++)
        write_value(j, s->output_names[i], s->output_types[i], &row->slots[s->outputs[i]]);
    json_out_end_object(j);
}

void trace_step(struct trace *t, const step *s, const run_row *rows, size_t n, bool items) {
    if (s->n_outputs == 0) return;
    str key = {0};
    str_fmt(&key, "%s%s", str_cstr(&t->prefix), s->label);
    if (key.failed) t->text.failed = true;
    if (items) {
        json_out_array(&t->j, str_cstr(&key));
        for (size_t i = 0; i < n; i++) write_row(&t->j, NULL, s, &rows[i]);
        json_out_end_array(&t->j);
    } else if (n) {
        write_row(&t->j, str_cstr(&key), s, &rows[0]);
    }
    str_free(&key);
}

/* trace.c: see trace.h. */
#include "pipeline/trace.h"

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

static void write_row(json_out *j, const char *key, const step *s, const run_row *row) {
    if (row->st != CHURON_OK) {
        json_out_null(j, key);
        return;
    }
    if (s->n_outputs == 1) {
        cell_write(j, key, s->output_types[0], &row->slots[s->outputs[0]]);
        return;
    }
    json_out_object(j, key);
    for (size_t i = 0; i < s->n_outputs; i++)
        cell_write(j, s->output_names[i], s->output_types[i], &row->slots[s->outputs[i]]);
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

/* record_csv.c: a table as the inputs of a graph. */
#include "cli/csv.h"
#include "cli/record.h"

#include "pipeline/element.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static status put_cell(const csv *c, size_t row, size_t column, tensor *t, size_t at, error *err) {
    const char *cell = csv_cell(c, row, column);
    if (t->type == ELEM_STRING) return tensor_string_set(t, at, cell, strlen(cell), err);
    element_fault f;
    if (element_from_text(t->type, cell, (char *)t->data + at * elem_describe(t->type)->bytes, &f))
        return CHURON_OK;
    return error_set(err, CHURON_INVALID, "line %zu, column '%.80s': expected %s, got %s", csv_line(c, row),
                     c->cells[column], f.expected, f.got);
}

/* `n` columns from `first` as one tensor [rows, n], or [rows] where the graph wants rank 1. */
static status take_columns(const csv *c, size_t first, size_t n, const graph_port *p, value *out,
                           error *err) {
    if (p->type->kind != ONNX_TENSOR) {
        return error_set(err, CHURON_INVALID,
                         "input '%s': expected a sequence or a map, which a table cannot say, got a column",
                         p->name);
    }
    const int64_t dims[2] = {(int64_t)c->n_rows, (int64_t)n};
    bool flat = n == 1 && p->type->has_shape && p->type->rank == 1;
    tensor t;
    TRY(tensor_alloc(&t, p->type->type, flat ? 1 : 2, dims, err));
    for (size_t row = 0; row < c->n_rows; row++) {
        for (size_t k = 0; k < n; k++) {
            status st = put_cell(c, row, first + k, &t, row * n + k, err);
            if (st == CHURON_OK) continue;
            tensor_free(&t);
            return st;
        }
    }
    *out = value_of_tensor(t);
    return CHURON_OK;
}

/* Every column is read: one that is no input may be a misspelt one, or one too many. */
static status refuse_other_columns(const csv *c, const graph *g, error *err) {
    for (size_t k = 0; k < c->n_columns; k++) {
        size_t i = 0, n = graph_n_inputs(g);
        while (i < n && strcmp(graph_input(g, i).name, c->cells[k]) != 0) i++;
        if (i < n) continue;
        str list = {0};
        for (i = 0; i < n; i++) str_fmt(&list, "%s%.60s", i ? ", " : "", graph_input(g, i).name);
        const status st =
            error_set(err, CHURON_INVALID, "column '%.80s': expected inputs of the model (%s), got another",
                      c->cells[k], str_cstr(&list));
        str_free(&list);
        return st;
    }
    return CHURON_OK;
}

static bool is_number(const char *cell) {
    char *end;
    if (!*cell || cell[strspn(cell, "+-0123456789.eE")]) return false;
    (void)strtod(cell, &end);
    return !*end;
}

/* A table without a header would lose its first row. "0,1,2,…" is how tables of unnamed columns are written.
 */
static status refuse_numbers(const csv *c, error *err) {
    bool counted = c->n_columns > 1;
    for (size_t k = 0; k < c->n_columns; k++) {
        char number[24];
        if (!is_number(c->cells[k])) return CHURON_OK;
        snprintf(number, sizeof number, "%zu", k);
        counted = counted && strcmp(number, c->cells[k]) == 0;
    }
    if (counted) return CHURON_OK;
    return error_set(err, CHURON_INVALID, "line %zu: expected a header of names, got the number '%.80s'",
                     c->lines[0], c->cells[0]);
}

static status take_table(const csv *c, const graph *g, value *inputs, error *err) {
    size_t n = graph_n_inputs(g), named = 0, open = 0, last = 0;
    for (size_t i = 0; i < n; i++) {
        named += csv_column(c, graph_input(g, i).name) < c->n_columns;
        if (inputs[i].kind != VALUE_NONE) continue;
        open++;
        last = i;
    }
    if (named == 0) TRY(refuse_numbers(c, err));
    if (named == 0 && open == 1) {
        graph_port p = graph_input(g, last);
        return take_columns(c, 0, c->n_columns, &p, &inputs[last], err);
    }
    for (size_t i = 0; i < n; i++) {
        graph_port p = graph_input(g, i);
        const size_t at = csv_column(c, p.name);
        if (inputs[i].kind != VALUE_NONE) {
            if (at == c->n_columns) continue;
            return error_set(err, CHURON_INVALID,
                             "column '%.80s': expected the input once, got --input beside it", p.name);
        }
        if (at == c->n_columns && p.type->kind == ONNX_OPTIONAL) continue;
        if (at == c->n_columns)
            return error_set(err, CHURON_INVALID, "expected a column '%s', got none", p.name);
        TRY(take_columns(c, at, 1, &p, &inputs[i], err));
    }
    return refuse_other_columns(c, g, err);
}

status record_csv(const char *path, const graph *g, value *inputs, size_t *rows, error *err) {
    csv c = {0};
    *rows = 0;
    status st = csv_read(&c, path, err);
    if (st == CHURON_OK) {
        st = take_table(&c, g, inputs, err);
        if (st != CHURON_OK) error_prefix(err, "%s", path);
        *rows = c.n_rows;
    }
    csv_free(&c);
    return st;
}

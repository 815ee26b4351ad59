/* record_csv.c: a table as the inputs of a graph. */
#include "cli/csv.h"
#include "cli/record.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static status put_cell(const csv *c, size_t row, size_t column, tensor *t, size_t at, error *err) {
    const char *cell = c->cells[(row + 1) * c->n_columns + column];
    if (t->type == ELEM_STRING) return tensor_string_set(t, at, cell, strlen(cell), err);
    char *end, *to = (char *)t->data + at * elem_describe(t->type)->bytes;
    bool whole = (ELEM_BIT(t->type) & (ELEMS_INT | ELEM_BIT(ELEM_BOOL))) != 0;
    long long number = whole ? strtoll(cell, &end, 10) : 0;
    double real = whole ? 0 : strtod(cell, &end);
    if (!*cell && !whole) real = (double)NAN; /* an empty cell is a missing value */
    if (*end || (!*cell && whole)) {
        return error_set(err, CHURON_INVALID, "line %zu, column '%s': expected %s, got '%.40s'", row + 2,
                         c->cells[column], elem_name(t->type), cell);
    }
    if (t->type == ELEM_I64) {
        *(int64_t *)(void *)to = number;
        return CHURON_OK;
    }
    double v = whole ? (double)number : real, back;
    elem_from_f64(t->type, &v, to, 1, true);
    elem_to_f64(t->type, to, &back, 1);
    if (whole && back != v) {
        return error_set(err, CHURON_INVALID,
                         "line %zu, column '%s': expected a number that %s holds, got '%.40s'", row + 2,
                         c->cells[column], elem_name(t->type), cell);
    }
    return CHURON_OK;
}

/* `n` columns from `first` as one tensor [rows, n], or [rows] where the graph wants rank 1. */
static status take_columns(const csv *c, size_t first, size_t n, const graph_port *p, value *out,
                           error *err) {
    if (p->type->kind != ONNX_TENSOR) {
        return error_set(err, CHURON_INVALID, "input '%s': expected no tensor, got a column", p->name);
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

static status take_table(const csv *c, const graph *g, value *inputs, error *err) {
    size_t n = graph_n_inputs(g), named = 0;
    for (size_t i = 0; i < n; i++) named += csv_column(c, graph_input(g, i).name) < c->n_columns;
    if (named == 0 && n == 1) {
        graph_port p = graph_input(g, 0);
        return take_columns(c, 0, c->n_columns, &p, &inputs[0], err);
    }
    for (size_t i = 0; i < n; i++) {
        graph_port p = graph_input(g, i);
        if (inputs[i].kind != VALUE_NONE) continue;
        size_t at = csv_column(c, p.name);
        if (at == c->n_columns)
            return error_set(err, CHURON_INVALID, "expected a column '%s', got none", p.name);
        TRY(take_columns(c, at, 1, &p, &inputs[i], err));
    }
    return CHURON_OK;
}

status record_csv(const char *path, const graph *g, value *inputs, error *err) {
    csv c = {0};
    status st = csv_read(&c, path, err);
    if (st == CHURON_OK) {
        st = take_table(&c, g, inputs, err);
        if (st != CHURON_OK) error_prefix(err, "%s", path);
    }
    csv_free(&c);
    return st;
}

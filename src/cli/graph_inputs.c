/* graph_inputs.c: see graph_inputs.h. */
#include "cli/graph_inputs.h"

#include "cli/record.h"
#include "graph/passes/passes.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static bool is_name(const char *text, size_t n, const char *name) {
    return strlen(name) == n && memcmp(text, name, n) == 0;
}

static size_t input_called(const graph *g, const char *text, size_t n) {
    size_t i = 0;
    while (i < graph_n_inputs(g) && !is_name(text, n, graph_input(g, i).name)) i++;
    return i;
}

status graph_inputs_read(const graph *g, const arg_list *files, value *inputs, error *err) {
    for (size_t i = 0; files && i < files->n; i++) {
        const char *text = files->items[i], *equals = strchr(text, '=');
        size_t k = equals ? input_called(g, text, (size_t)(equals - text)) : graph_n_inputs(g);
        if (k == graph_n_inputs(g)) {
            return error_set(err, CHURON_INVALID,
                             "field --input: expected NAME=FILE.npy with the name of an input, got '%.80s'",
                             text);
        }
        graph_port p = graph_input(g, k);
        if (inputs[k].kind != VALUE_NONE)
            return error_set(err, CHURON_INVALID,
                             "field --input: expected each input once, got '%.80s' again", p.name);
        TRY(record_npy(equals + 1, p.name, p.type, &inputs[k], err));
    }
    return CHURON_OK;
}

/* "1x3x224x224"; nothing: a scalar. */
static status read_shape(const char *text, const char *name, int64_t *dims, size_t *rank, error *err) {
    *rank = 0;
    for (const char *p = text; *p || p > text;) {
        const size_t digits = strspn(p, "0123456789");
        if (*rank == TENSOR_MAX_RANK)
            return error_set(err, CHURON_INVALID,
                             "field --shape: input '%.80s': expected at most %d dimensions, got more", name,
                             TENSOR_MAX_RANK);
        if (digits == 0 || digits > 18 || (p[digits] && p[digits] != 'x')) {
            return error_set(
                err, CHURON_INVALID,
                "field --shape: input '%.80s': expected dimensions such as 1x3x224x224, each of 1 "
                "to 18 digits, got '%.*s' as dimension %zu",
                name, (int)(strcspn(p, "x") < 40 ? strcspn(p, "x") : 40), p, *rank);
        }
        dims[(*rank)++] = strtoll(p, NULL, 10);
        if (!p[digits]) break;
        p += digits + 1;
    }
    return CHURON_OK;
}

static status given_shape(const arg_list *shapes, const char *name, int64_t *dims, size_t *rank, bool *given,
                          error *err) {
    *given = false;
    for (size_t i = 0; shapes && i < shapes->n; i++) {
        const char *text = shapes->items[i], *equals = strrchr(text, '=');
        if (!equals || !is_name(text, (size_t)(equals - text), name)) continue;
        if (*given)
            return error_set(err, CHURON_INVALID,
                             "field --shape: expected each input once, got '%.80s' again", name);
        TRY(read_shape(equals + 1, name, dims, rank, err));
        *given = true;
    }
    return CHURON_OK;
}

static status check_shapes(const graph *g, const arg_list *shapes, error *err) {
    for (size_t i = 0; shapes && i < shapes->n; i++) {
        const char *text = shapes->items[i], *equals = strrchr(text, '=');
        if (equals && input_called(g, text, (size_t)(equals - text)) < graph_n_inputs(g)) continue;
        return error_set(err, CHURON_INVALID,
                         "field --shape: expected NAME=1x3x224x224 with the name of an input, got '%.80s'",
                         text);
    }
    return CHURON_OK;
}

static void fill(tensor *t, uint64_t *random) {
    size_t bytes = elem_describe(t->type)->bytes;
    if (ELEM_BIT(t->type) & ELEMS_COMPLEX) memset(t->data, 0, tensor_bytes(t));
    if (t->type == ELEM_STRING || (ELEM_BIT(t->type) & ELEMS_COMPLEX)) return;
    for (size_t i = 0; i < t->count; i++) {
        *random = *random * 6364136223846793005u + 1442695040888963407u;
        double v = ELEM_BIT(t->type) & ELEMS_FLOAT ? (double)(*random >> 40) / (double)(1 << 24) : 1;
        elem_from_f64(t->type, &v, (char *)t->data + i * bytes, 1, true);
    }
}

static status make_up(const graph_port *p, const graph_inputs_options *o, uint64_t *random, value *out,
                      error *err) {
    int64_t dims[TENSOR_MAX_RANK];
    size_t rank = 0;
    bool given;
    if (p->type->kind == ONNX_OPTIONAL) return CHURON_OK;
    if (p->type->kind != ONNX_TENSOR) {
        return error_set(err, CHURON_UNSUPPORTED, "input '%s': expected a tensor, got another kind of value",
                         p->name);
    }
    TRY(given_shape(o->shapes, p->name, dims, &rank, &given, err));
    if (!given && !p->type->has_shape) {
        return error_set(err, CHURON_INVALID, "input '%s': its rank is not said: give --shape '%s=…'",
                         p->name, p->name);
    }
    for (size_t k = 0; !given && k < p->type->rank; k++) {
        int64_t said = p->type->dims[k].value;
        dims[k] = said >= 0 ? said : k == 0 && o->batch ? (int64_t)o->batch : 1;
        rank = k + 1;
    }
    tensor t;
    const status st = tensor_alloc(&t, p->type->type, rank, dims, err);
    if (st != CHURON_OK) {
        error_prefix(err, "input '%.80s'", p->name);
        return st;
    }
    fill(&t, random);
    *out = value_of_tensor(t);
    return CHURON_OK;
}

static bool made_up(const graph_port *p, const graph_inputs_options *o) {
    for (size_t i = 0; o->files && i < o->files->n; i++) {
        const char *text = o->files->items[i], *equals = strchr(text, '=');
        if (equals && is_name(text, (size_t)(equals - text), p->name)) return false;
    }
    for (size_t i = 0; o->shapes && i < o->shapes->n; i++) {
        const char *text = o->shapes->items[i], *equals = strrchr(text, '=');
        if (equals && is_name(text, (size_t)(equals - text), p->name)) return false;
    }
    for (size_t k = 0; p->type->kind == ONNX_TENSOR && k < p->type->rank; k++) {
        if (p->type->dims[k].value < 0 && !(k == 0 && o->batch)) return true;
    }
    return false;
}

void graph_inputs_hint(const graph *g, const graph_inputs_options *o, error *err) {
    str hint = {0};
    for (size_t i = 0; i < graph_n_inputs(g); i++) {
        const graph_port p = graph_input(g, i);
        if (!made_up(&p, o)) continue;
        str_fmt(&hint, "%s--shape %.60s=", hint.len ? " " : "", p.name);
        for (size_t k = 0; k < p.type->rank; k++) {
            const onnx_dim *d = &p.type->dims[k];
            if (d->value >= 0) {
                str_fmt(&hint, "%s%" PRId64, k ? "x" : "", d->value);
            } else {
                str_fmt(&hint, "%s%s", k ? "x" : "", k == 0 ? "1" : "N");
            }
        }
    }
    if (hint.len) {
        const error was = *err;
        (void)error_set(err, was.code, "%.300s. Open dimensions were made 1: say them with %s", was.message,
                        str_cstr(&hint));
    }
    str_free(&hint);
}

status graph_passes_check(const arg_list *given, error *err) {
    enum { MOST = 64 };
    const char *known[MOST] = {"all"};
    size_t n, n_known = 1;
    const pass *list = pass_list(&n);
    for (size_t i = 0; i < n && n_known < MOST; i++) known[n_known++] = list[i].name;
    for (size_t i = 0; i < given->n; i++) {
        size_t k = 0;
        while (k < n_known && strcmp(known[k], given->items[i]) != 0) k++;
        if (k < n_known) continue;
        const int near = args_nearest(given->items[i], known, n_known);
        return error_set(
            err, CHURON_INVALID, "field --no-pass: expected a pass or 'all', got '%.80s'. %s%s%s",
            given->items[i], near < 0 ? "" : "Did you mean '",
            near < 0 ? "See 'churon inspect MODEL.onnx --passes'" : known[near], near < 0 ? "." : "'?");
    }
    return CHURON_OK;
}

status graph_inputs_make(const graph *g, const graph_inputs_options *o, value *inputs, error *err) {
    uint64_t random = 1;
    TRY(graph_inputs_read(g, o->files, inputs, err));
    TRY(check_shapes(g, o->shapes, err));
    for (size_t i = 0; i < graph_n_inputs(g); i++) {
        graph_port p = graph_input(g, i);
        if (inputs[i].kind == VALUE_NONE) TRY(make_up(&p, o, &random, &inputs[i], err));
    }
    return CHURON_OK;
}

/* graph_trace.c: see graph_trace.h. */
#include "cli/graph_trace.h"

#include "base/mem.h"
#include "cli/timeout.h"

#include <math.h>
#include <string.h>

enum { MOST_KEPT = 1 << 30 }; /* bytes of values of one run */

/* Each number is moved by up to so many unit roundoffs: about what a sum in another order does. */
static const double ROUNDINGS = 4;
/* The widest of a handful of noisy runs, of a number that hears many noises, is less than one in this many of
 * what can be about once in a hundred million. */
static const double FACTOR = 32;

void node_trace_free(node_trace *t) {
    for (size_t i = 0; t->outputs && i < graph_n_outputs(t->g); i++) value_free(&t->outputs[i]);
    for (size_t i = 0; i < t->n; i++) tensor_free(&t->values[i].t);
    mem_free(t->outputs);
    mem_free(t->values);
    names_free(&t->index);
    graph_close(t->g);
    *t = (node_trace){0};
}

/* ---- noise ------------------------------------------------------------------------------------------ */

static double unit_roundoff(elem e) {
    return e == ELEM_F64 ? 0x1p-53 : e == ELEM_F32 ? 0x1p-24 : e == ELEM_F16 ? 0x1p-11 : 0x1p-8;
}

static void disturb(tensor *t, uint64_t *state) {
    const double width = ROUNDINGS * unit_roundoff(t->type);
    const size_t bytes = elem_describe(t->type)->bytes;
    for (size_t i = 0; i < t->count; i++) {
        double v;
        char *at = (char *)t->data + i * bytes;
        *state = *state * 6364136223846793005u + 1442695040888963407u;
        elem_to_f64(t->type, at, &v, 1);
        v *= *state >> 63 ? 1 + width : 1 - width; /* all of it: a number that hears one noise always moves */
        elem_from_f64(t->type, &v, at, 1, true);
    }
}

/* ---- keeping ---------------------------------------------------------------------------------------- */

static void keep(node_trace *t, const graph_event *e, size_t i) {
    const value *v = e->outputs[i];
    const char *name = e->output_names[i];
    if (!v || !name || v->kind != VALUE_TENSOR || names_get(&t->index, name, strlen(name))) return;
    if (t->only && !names_get(t->only, name, strlen(name))) return;
    if (t->bytes + tensor_bytes(&v->t) > MOST_KEPT) return;
    if (t->n == t->cap) {
        size_t cap = t->cap ? t->cap * 2 : 256;
        kept_value *more = mem_realloc(t->values, cap * sizeof *more);
        t->failed = t->failed || !more;
        if (!more) return;
        t->values = more;
        t->cap = cap;
    }
    kept_value *k = &t->values[t->n];
    *k = (kept_value){.node = e->name, .op = e->op, .name = name};
    if (tensor_copy(&k->t, &v->t, NULL) != CHURON_OK) {
        t->failed = true;
        return;
    }
    t->n++;
    t->bytes += tensor_bytes(&v->t);
    if (!names_set(&t->index, name, strlen(name), (void *)(uintptr_t)t->n)) t->failed = true;
}

/* What a node has just made and shares with nobody is the run's own, and nobody has read it yet. */
static void on_node(void *user, const graph_event *e) {
    node_trace *t = user;
    for (size_t i = 0; i < e->n_outputs; i++) {
        const value *v = e->outputs[i];
        if (t->noise && v && v->kind == VALUE_TENSOR && (ELEM_BIT(v->t.type) & ELEMS_FLOAT) &&
            tensor_is_unique(&v->t)) {
            tensor own = v->t;
            disturb(&own, &t->noise);
        }
        if (t->keeps) keep(t, e, i);
    }
}

/* Inputs of the run: those given, or copies with noise. */
static status take_inputs(node_trace *t, const value *given, value **out, error *err) {
    const size_t n = graph_n_inputs(t->g);
    *out = mem_calloc(n + 1, sizeof **out);
    if (!*out) return error_no_memory(err, "inputs", n * sizeof **out);
    for (size_t i = 0; i < n; i++) {
        const value *v = &given[i];
        if (t->noise && v->kind == VALUE_TENSOR && (ELEM_BIT(v->t.type) & ELEMS_FLOAT)) {
            tensor copy;
            TRY(tensor_copy(&copy, &v->t, err));
            disturb(&copy, &t->noise);
            (*out)[i] = value_of_tensor(copy);
        } else {
            (*out)[i] = value_share(v);
        }
    }
    return CHURON_OK;
}

status node_trace_run(node_trace *t, const char *path, const graph_options *o, const value *inputs,
                      error *err) {
    graph_session *s = NULL;
    value *own = NULL;
    graph_options load = *o;
    load.deadline = timeout_deadline(t->timeout);
    TRY(graph_open(&t->g, path, &load, err));
    t->outputs = mem_calloc(graph_n_outputs(t->g) + 1, sizeof(value));
    status st = t->outputs ? graph_session_create(&s, t->g, err) : error_no_memory(err, "values", 0);
    if (st == CHURON_OK) st = take_inputs(t, inputs, &own, err);
    const graph_run_options run = {.deadline = timeout_deadline(t->timeout),
                                   .on_node = t->keeps || t->noise ? on_node : NULL,
                                   .user = t};
    if (st == CHURON_OK) st = graph_run(s, own, t->outputs, &run, err);
    if (st == CHURON_OK && t->failed) st = error_no_memory(err, "values of nodes", 0);
    for (size_t i = 0; own && i < graph_n_inputs(t->g); i++) value_free(&own[i]);
    mem_free(own);
    graph_session_free(s);
    return st;
}

const tensor *node_trace_find(const node_trace *t, const char *name) {
    const uintptr_t at = (uintptr_t)names_get(&t->index, name, strlen(name));
    return at ? &t->values[at - 1].t : NULL;
}

/* ---- what noise explains ---------------------------------------------------------------------------- */

static bool same_shape(const tensor *a, const tensor *b) {
    bool same = a->type == b->type && a->rank == b->rank;
    for (size_t i = 0; same && i < a->rank; i++) same = a->dims[i] == b->dims[i];
    return same;
}

static const char *element_at(const tensor *t, size_t i) {
    return (const char *)t->data + i * elem_describe(t->type)->bytes;
}

static bool differs(const tensor *a, const tensor *b, size_t i) {
    if (a->type != ELEM_STRING)
        return memcmp(element_at(a, i), element_at(b, i), elem_describe(a->type)->bytes) != 0;
    const tensor_string *x = (const tensor_string *)a->data + i, *y = (const tensor_string *)b->data + i;
    return x->len != y->len || (x->len && memcmp(x->data, y->data, x->len) != 0);
}

static double number_at(const tensor *t, size_t i) {
    double v;
    elem_to_f64(t->type, element_at(t, i), &v, 1);
    return v;
}

/* How far noise moved element i; infinite where it is finite in one run and not in another. */
static double spread(const tensor *want, const tensor *const *noisy, size_t n, size_t i) {
    double most = 0;
    const double w = number_at(want, i);
    for (size_t r = 0; r < n; r++) {
        const double v = number_at(noisy[r], i), apart = fabs(v - w);
        if (v == w || (isnan(v) && isnan(w))) continue;
        if (!isfinite(apart)) return (double)INFINITY;
        if (apart > most) most = apart;
    }
    return most;
}

static bool number_explained(const tensor *want, const tensor *got, tolerance t, const tensor *const *noisy,
                             size_t n, size_t i, double *moved) {
    const double w = number_at(want, i), g = number_at(got, i), apart = fabs(w - g);
    if (w == g || (isnan(w) && isnan(g)) || apart <= t.atol + t.rtol * fabs(w)) return true;
    const double by = spread(want, noisy, n, i);
    if (by > *moved) *moved = by;
    return isinf(by) || apart <= t.atol + t.rtol * fabs(w) + FACTOR * by;
}

bool node_trace_explains(const tensor *want, const tensor *got, tolerance t, const tensor *const *noisy,
                         size_t n, double *moved) {
    *moved = 0;
    for (size_t r = 0; r < n; r++) { /* its size follows from data that noise changes */
        if (!noisy[r] || !same_shape(want, noisy[r])) {
            *moved = (double)INFINITY;
            return true;
        }
    }
    if (n == 0 || !same_shape(want, got)) return false;
    const bool is_number = (ELEM_BIT(want->type) & ELEMS_FLOAT) != 0;
    for (size_t i = 0; i < want->count; i++) {
        bool good = false;
        if (is_number) {
            good = number_explained(want, got, t, noisy, n, i, moved);
        } else {
            good = !differs(want, got, i);
            /* another integer or text than noise gives may follow from it all the same */
            for (size_t r = 0; r < n && !good && !(ELEM_BIT(want->type) & ELEMS_COMPLEX); r++)
                good = differs(want, noisy[r], i);
        }
        if (!good) return false;
    }
    return true;
}

/* graph_api.c: the graphs of the public interface (churon.h) over graph/graph.h. It adds the checks of a
 * caller's arguments and where outputs go. */
#include "base/clock.h"
#include "base/mem.h"
#include "graph/graph.h"

#include <inttypes.h>
#include <stddef.h>
#include <string.h>

struct churon_session {
    graph *g;
    graph_session *session;
    value *inputs, *outputs; /* [n_inputs], [n_outputs]: of the newest run */
    bool *wanted;            /* [n_outputs] */
};

_Static_assert((int)CHURON_MAX_RANK == (int)TENSOR_MAX_RANK, "the public limit is the tensor's");
_Static_assert((int)CHURON_BF16 == (int)ELEM_BF16 && (int)CHURON_STRING == (int)ELEM_STRING, "one numbering");
_Static_assert(sizeof(churon_text) == sizeof(tensor_string) &&
                   offsetof(churon_text, len) == offsetof(tensor_string, len),
               "one layout");

static status need(const void *p, const char *name, error *err) {
    return p ? CHURON_OK : error_set(err, CHURON_INVALID, "%s: expected a pointer, got NULL", name);
}

static status check_size(size_t got, size_t want, const char *what, error *err) {
    if (got == want) return CHURON_OK;
    return error_set(err, CHURON_INVALID, "%s.size: expected %zu, got %zu", what, want, got);
}

/* A churon_graph is a counted graph under its public name. */
static graph *inside(const churon_graph *g) {
    return (graph *)(uintptr_t)g;
}

/* ---- graphs ----------------------------------------------------------------------------------------- */

status churon_graph_open(churon_graph **out, const char *path, const churon_graph_options *options,
                         error *err) {
    TRY(need(out, "out", err));
    *out = NULL;
    TRY(need(path, "path", err));
    graph_options o = {0};
    if (options) {
        TRY(check_size(options->size, sizeof *options, "options", err));
        if (options->threads > POOL_MAX_THREADS) {
            return error_set(err, CHURON_INVALID, "options.threads: expected at most %d, got %" PRIu32,
                             POOL_MAX_THREADS, options->threads);
        }
        o = (graph_options){.threads = options->threads, .max_memory = options->max_memory};
    }
    graph *g;
    TRY(graph_open(&g, path, &o, err));
    *out = (churon_graph *)g;
    return CHURON_OK;
}

void churon_graph_close(churon_graph *g) {
    if (g) graph_close(inside(g));
}

size_t churon_graph_inputs(const churon_graph *g) {
    return g ? graph_n_inputs(inside(g)) : 0;
}

size_t churon_graph_outputs(const churon_graph *g) {
    return g ? graph_n_outputs(inside(g)) : 0;
}

static status describe(graph_port p, churon_port *out, error *err) {
    const onnx_type *t = p.type->kind == ONNX_OPTIONAL && p.type->of ? p.type->of : p.type;
    *out = (churon_port){.size = sizeof *out, .name = p.name};
    if (t->kind != ONNX_TENSOR) return CHURON_OK;
    out->dtype = (churon_dtype)t->type;
    out->has_rank = t->has_shape;
    if (!t->has_shape) return CHURON_OK;
    if (t->rank > CHURON_MAX_RANK) {
        return error_set(err, CHURON_LIMIT, "port '%s': expected at most %d dimensions, got %zu", p.name,
                         CHURON_MAX_RANK, t->rank);
    }
    out->rank = (uint32_t)t->rank;
    for (size_t i = 0; i < t->rank; i++) {
        out->dims[i] = t->dims[i].value >= 0 ? t->dims[i].value : -1;
        out->dim_names[i] = t->dims[i].value >= 0 ? NULL : t->dims[i].param;
    }
    return CHURON_OK;
}

static status describe_at(const churon_graph *g, size_t i, bool input, churon_port *port, error *err) {
    TRY(need(g, "graph", err));
    TRY(need(port, "port", err));
    TRY(check_size(port->size, sizeof *port, "port", err));
    const size_t n = input ? churon_graph_inputs(g) : churon_graph_outputs(g);
    if (i >= n) return error_set(err, CHURON_INVALID, "i: expected less than %zu, got %zu", n, i);
    return describe(input ? graph_input(inside(g), i) : graph_output(inside(g), i), port, err);
}

status churon_graph_input(const churon_graph *g, size_t i, churon_port *port, error *err) {
    return describe_at(g, i, true, port, err);
}

status churon_graph_output(const churon_graph *g, size_t i, churon_port *port, error *err) {
    return describe_at(g, i, false, port, err);
}

/* ---- sessions --------------------------------------------------------------------------------------- */

static void clear(value *v, size_t n) {
    for (size_t i = 0; v && i < n; i++) value_free(&v[i]);
}

status churon_session_open(churon_session **out, churon_graph *g, error *err) {
    TRY(need(out, "out", err));
    *out = NULL;
    TRY(need(g, "graph", err));
    status st = CHURON_OK;
    churon_session *s = mem_calloc(1, sizeof *s);
    if (!s) return error_no_memory(err, "session", sizeof *s);
    s->g = graph_ref(inside(g));
    const size_t n = graph_n_inputs(s->g), k = graph_n_outputs(s->g);
    s->inputs = mem_calloc(n + 1, sizeof *s->inputs);
    s->outputs = mem_calloc(k + 1, sizeof *s->outputs);
    s->wanted = mem_calloc(k + 1, sizeof *s->wanted);
    if (!s->inputs || !s->outputs || !s->wanted) {
        st = error_no_memory(err, "session", n + k);
        goto cleanup;
    }
    TRY_GOTO(graph_session_create(&s->session, s->g, err));
    *out = s;
    s = NULL;
cleanup:
    churon_session_close(s);
    return st;
}

void churon_session_close(churon_session *s) {
    if (!s) return;
    clear(s->outputs, graph_n_outputs(s->g));
    graph_session_free(s->session);
    mem_free(s->inputs);
    mem_free(s->outputs);
    mem_free(s->wanted);
    graph_close(s->g);
    mem_free(s);
}

/* ---- runs ------------------------------------------------------------------------------------------- */

static status take_input(const churon_tensor *t, const char *name, value *out, error *err) {
    *out = (value){0};
    if (t->dtype == CHURON_NO_DTYPE) return CHURON_OK;
    size_t count;
    TRY(tensor_count((elem)t->dtype, t->rank, t->dims, &count, name, err));
    const size_t bytes = count * elem_describe((elem)t->dtype)->bytes;
    if (t->bytes != bytes) {
        return error_set(err, CHURON_INVALID, "input '%s': bytes: expected %zu as its shape says, got %zu",
                         name, bytes, t->bytes);
    }
    if (count) TRY(need(t->data, name, err));
    size_t alignment = elem_describe((elem)t->dtype)->bytes;
    if (alignment > sizeof(double)) alignment = sizeof(double);
    if ((uintptr_t)t->data % alignment) {
        return error_set(err, CHURON_INVALID,
                         "input '%s': data: expected an address that is a multiple of %zu", name, alignment);
    }
    *out = value_of_tensor(tensor_borrow((elem)t->dtype, t->rank, t->dims, t->data));
    return CHURON_OK;
}

static status choose_outputs(churon_session *s, const bool *wanted, error *err) {
    for (size_t i = 0; i < graph_n_outputs(s->g); i++) {
        const graph_port p = graph_output(s->g, i);
        const bool dense = p.type->kind == ONNX_TENSOR;
        s->wanted[i] = wanted ? wanted[i] : dense;
        if (s->wanted[i] && !dense) {
            return error_set(err, CHURON_UNSUPPORTED,
                             "output '%s': expected a tensor, got another kind of value", p.name);
        }
    }
    return CHURON_OK;
}

/* What outputs are; CHURON_LIMIT if one does not fit where its caller wants it. */
static status describe_outputs(churon_session *s, churon_tensor *outputs, error *err) {
    status st = CHURON_OK;
    for (size_t i = 0; i < graph_n_outputs(s->g); i++) {
        churon_tensor *o = &outputs[i];
        const size_t room = o->bytes;
        if (o->lent) o->data = NULL; /* by the run before: it is no more */
        o->lent = false;
        o->dtype = CHURON_NO_DTYPE;
        o->rank = 0;
        o->bytes = 0;
        if (s->outputs[i].kind != VALUE_TENSOR) continue;
        const tensor *t = &s->outputs[i].t;
        o->dtype = (churon_dtype)t->type;
        o->rank = t->rank;
        memcpy(o->dims, t->dims, sizeof o->dims);
        o->bytes = tensor_bytes(t);
        if (o->data && o->bytes > room && st == CHURON_OK) {
            st = error_set(err, CHURON_LIMIT, "output '%s': bytes: expected room for %zu, got %zu",
                           graph_output(s->g, i).name, o->bytes, room);
        }
    }
    return st;
}

static void hand_over(churon_session *s, churon_tensor *outputs) {
    for (size_t i = 0; i < graph_n_outputs(s->g); i++) {
        if (s->outputs[i].kind != VALUE_TENSOR) continue;
        if (!outputs[i].data) {
            outputs[i].data = s->outputs[i].t.data;
            outputs[i].lent = true;
        } else if (outputs[i].bytes) {
            memcpy(outputs[i].data, s->outputs[i].t.data, outputs[i].bytes);
        }
    }
}

status churon_session_run(churon_session *s, const churon_tensor *inputs, churon_tensor *outputs,
                          const churon_run_options *options, error *err) {
    TRY(need(s, "session", err));
    const size_t n = graph_n_inputs(s->g), k = graph_n_outputs(s->g);
    if (n) TRY(need(inputs, "inputs", err));
    if (k) TRY(need(outputs, "outputs", err));
    graph_run_options o = {.wanted = s->wanted};
    if (options) {
        TRY(check_size(options->size, sizeof *options, "options", err));
        if (!(options->timeout_s >= 0)) {
            return error_set(err, CHURON_INVALID, "options.timeout_s: expected 0 or more, got %g",
                             options->timeout_s);
        }
        if (options->timeout_s > 0) o.deadline = clock_seconds() + options->timeout_s;
    }
    TRY(choose_outputs(s, options ? options->wanted : NULL, err));
    for (size_t i = 0; i < n; i++) TRY(take_input(&inputs[i], graph_input(s->g, i).name, &s->inputs[i], err));
    clear(s->outputs, k);
    TRY(graph_run(s->session, s->inputs, s->outputs, &o, err));
    TRY(describe_outputs(s, outputs, err));
    hand_over(s, outputs);
    return CHURON_OK;
}

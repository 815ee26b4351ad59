/* graph.c: see graph.h. */
#include "graph/bucket.h"
#include "graph/cost.h"
#include "graph/passes/passes.h"
#include "graph/providers/provider.h"
#include "graph/rows.h"
#include "graph/weights.h"

#include "base/clock.h"
#include "base/mem.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

struct graph {
    atomic_uint references;
    ir_program program;
    onnx_model *owned; /* NULL: the caller's */
    size_t threads;
    uint64_t max_memory;
    bool described;                                         /* without weights: it does not run */
    onnx_type *input_types, *output_types, *declared_types; /* in the program's memory */
    graph_rows *rows;                                       /* [n_outputs]; likewise */
};

/* Owner: the thread that runs. */
struct graph_session {
    graph *graph;
    exec x;
    stop_flag stop; /* of the run */
};

/* ---- loading ---------------------------------------------------------------------------------------- */

static uint64_t free_memory(void) {
    unsigned long long kb = 0;
    FILE *f = fopen("/proc/meminfo", "r");
    if (!f) return UINT64_MAX;
    char line[128];
    bool found = false;
    while (!found && fgets(line, sizeof line, f)) found = sscanf(line, "MemAvailable: %llu kB", &kb) == 1;
    (void)fclose(f);
    return found ? (uint64_t)kb * 1024 : UINT64_MAX;
}

static status port_types(graph *g, ir_value *const *values, size_t n, onnx_type **out, error *err) {
    *out = arena_array(&g->program.memory, n, sizeof **out);
    if (!*out) return ir_no_memory(err);
    for (size_t i = 0; i < n; i++) TRY(ir_value_type(values[i], &(*out)[i], err));
    return CHURON_OK;
}

/* The file's description does not stay. */
static status keep_declared(graph *g, error *err) {
    ir_program *p = &g->program;
    const ir_graph *m = p->main;
    g->declared_types = arena_array(&p->memory, m->n_outputs, sizeof *g->declared_types);
    if (!g->declared_types) return ir_no_memory(err);
    for (size_t i = 0; i < m->n_outputs; i++) {
        const onnx_type *t = &m->source->outputs[i].type;
        onnx_type *to = &g->declared_types[i];
        *to = (onnx_type){.kind = t->kind, .type = t->type};
        if (t->kind != ONNX_TENSOR || !t->has_shape) continue;
        onnx_dim *dims = arena_array(&p->memory, t->rank ? t->rank : 1, sizeof *dims);
        if (!dims) return ir_no_memory(err);
        for (size_t k = 0; k < t->rank; k++) dims[k] = (onnx_dim){.value = t->dims[k].value};
        to->has_shape = true;
        to->rank = t->rank;
        to->dims = dims;
    }
    return CHURON_OK;
}

static status load(graph *g, const onnx_model *m, const graph_options *o, bool spend, error *err) {
    ir_program *p = &g->program;
    p->model = spend ? (onnx_model *)(uintptr_t)m : NULL;
    TRY(ir_import(p, m, err));
    TRY(ir_order(p, err));
    TRY(ir_infer(p, err));
    g->rows = arena_array(&p->memory, p->main->n_outputs + 1, sizeof *g->rows);
    if (!g->rows) return ir_no_memory(err);
    TRY(rows_find(p, g->rows, err));
    TRY(keep_declared(g, err));
    TRY(passes_run(p, o, err));
    if (!o->describe_only) TRY(weights_pack(p, g->threads, err));
    TRY(exec_plan(p, err));
    TRY(port_types(g, p->main->inputs, p->main->n_inputs, &g->input_types, err));
    return port_types(g, p->main->outputs, p->main->n_outputs, &g->output_types, err);
}

/* `spend`: the model is read from a file and serves this graph alone. started: of the loading. */
static status make(graph **out, const onnx_model *m, const graph_options *o, bool spend, double started,
                   error *err) {
    graph_options full = o ? *o : (graph_options){0};
    *out = NULL;
    graph *g = mem_calloc(1, sizeof *g);
    if (!g) return ir_no_memory(err);
    atomic_init(&g->references, 1);
    if (!full.threads) full.threads = pool_physical_cores();
    if (!full.max_memory) full.max_memory = free_memory() / 2;
    g->threads = full.threads;
    g->max_memory = full.max_memory;
    g->program.symbols.memory = &g->program.memory;
    g->program.seeded = full.seeded;
    g->program.seed = full.seed;
    stop_flag limit;
    if (full.deadline != 0 || full.cancel) {
        stop_init(&limit, started, full.deadline, full.cancel);
        g->program.stop = &limit;
    }
    g->described = full.describe_only;
    status st = load(g, m, &full, spend, err);
    if (st != CHURON_OK && stop_seen(g->program.stop)) error_prefix(err, "load");
    g->program.stop = NULL;
    if (st != CHURON_OK) {
        graph_close(g);
        return st;
    }
    *out = g;
    return CHURON_OK;
}

status graph_from_onnx(graph **out, const onnx_model *m, const graph_options *o, error *err) {
    return make(out, m, o, false, clock_seconds(), err);
}

status graph_open(graph **out, const char *path, const graph_options *o, error *err) {
    const double started = clock_seconds();
    *out = NULL;
    onnx_model *m;
    TRY(onnx_open(&m, path, err));
    status st = make(out, m, o, true, started, err);
    if (st != CHURON_OK) {
        onnx_close(m);
        return st;
    }
    (*out)->owned = m;
    return CHURON_OK;
}

graph *graph_ref(graph *g) {
    atomic_fetch_add_explicit(&g->references, 1, memory_order_relaxed);
    return g;
}

void graph_close(graph *g) {
    /* Release: what this owner did happens before the end; acquire: the last one sees all of it. */
    if (!g || atomic_fetch_sub_explicit(&g->references, 1, memory_order_acq_rel) != 1) return;
    ir_release(&g->program);
    onnx_close(g->owned);
    mem_free(g);
    mem_trim(); /* what is left of the graph in the heap goes back to the system */
}

size_t graph_n_inputs(const graph *g) {
    return g->program.main->n_inputs;
}

size_t graph_n_outputs(const graph *g) {
    return g->program.main->n_outputs;
}

graph_port graph_input(const graph *g, size_t i) {
    return (graph_port){.name = g->program.main->inputs[i]->name, .type = &g->input_types[i]};
}

graph_port graph_output(const graph *g, size_t i) {
    return (graph_port){.name = g->program.main->outputs[i]->name, .type = &g->output_types[i]};
}

graph_rows graph_output_rows(const graph *g, size_t i) {
    return g->rows[i];
}

bool graph_rows_independent(const graph *g) {
    bool all = true;
    for (size_t i = 0; i < graph_n_outputs(g); i++) all = all && g->rows[i] == ROWS_APART;
    return all;
}

const onnx_type *graph_output_declared(const graph *g, size_t i) {
    return &g->declared_types[i];
}

/* Bytes of a value as far as its shape is known; dimensions that are not count as 1. */
static uint64_t inferred_bytes(const ir_value *v, bool *known) {
    if (v->type.kind != ONNX_TENSOR || !v->has_rank) {
        *known = false;
        return 0;
    }
    uint64_t bytes = elem_describe(v->type.type)->bytes;
    for (size_t i = 0; i < v->rank; i++) {
        if (!dim_known(v->dims[i])) *known = false;
        uint64_t d = dim_known(v->dims[i]) ? (uint64_t)v->dims[i] : 1;
        bytes = d && bytes > (UINT64_MAX >> 8) / d ? UINT64_MAX >> 8 : bytes * d;
    }
    return bytes;
}

graph_summary graph_describe(const graph *g) {
    const ir_program *p = &g->program;
    graph_summary sum = {.activations_known = true};
    for (size_t i = 0; i < p->n_graphs; i++) {
        const ir_graph *ig = p->graphs[i];
        for (size_t k = 0; k < ig->n_nodes; k++) {
            sum.n_nodes += !exec_step_is_constant(&ig->steps[k]);
            sum.constants += cost_packed_bytes(ig->nodes[k]);
        }
        for (size_t k = 0; k < ig->n_values; k++) {
            const ir_value *v = ig->values[k];
            if (v->is_constant && v->readers) sum.constants += tensor_bytes(&v->constant);
        }
    }
    const ir_graph *top = p->main;
    uint64_t live = 0;
    for (size_t i = 0; i < top->n_nodes; i++) {
        const exec_step *s = &top->steps[i];
        if (exec_step_is_constant(s)) continue;
        bool shares = (s->node->def->flags & OP_VIEW) != 0;
        for (size_t k = shares ? 1 : 0; k < s->n_out; k++) {
            if (s->out[k] != IR_NO_SLOT)
                live += inferred_bytes(top->values[s->out[k]], &sum.activations_known);
        }
        if (live > sum.activations) sum.activations = live;
        for (size_t k = 0; k < s->n_frees; k++) {
            const ir_value *v = top->values[s->frees[k]];
            bool known = true;
            uint64_t bytes =
                v->producer && !(v->producer->def->flags & OP_VIEW) ? inferred_bytes(v, &known) : 0;
            live -= bytes < live ? bytes : live;
        }
    }
    return sum;
}

size_t graph_provider_nodes(const graph *g, const char *name) {
    size_t count = 0;
    for (size_t i = 0; i < g->program.n_graphs; i++) {
        const ir_graph *ig = g->program.graphs[i];
        for (size_t k = 0; k < ig->n_nodes; k++)
            count +=
                !exec_step_is_constant(&ig->steps[k]) && strcmp(provider_of(ig->nodes[k])->name, name) == 0;
    }
    return count;
}

uint64_t graph_providers(const graph *g) {
    size_t n;
    const provider *list = provider_list(&n);
    uint64_t set = 0;
    for (size_t i = 0; i < n; i++) set |= (uint64_t)(graph_provider_nodes(g, list[i].name) > 0) << i;
    return set;
}

void graph_provider_names(uint64_t set, str *out) {
    size_t n;
    const provider *list = provider_list(&n);
    const char *before = "";
    for (size_t i = n; i-- > 0;) { /* cpu, which takes what is left, last */
        if (!(set >> i & 1) && (i || *before)) continue;
        str_fmt(out, "%s%s", before, list[i].name);
        before = ",";
    }
}

uint64_t graph_session_peak(const graph_session *s) {
    return s->x.peak;
}

/* ---- inputs ----------------------------------------------------------------------------------------- */

static status check_tensor(const char *name, const onnx_type *want, const tensor *t, error *err) {
    if (want->type != ELEM_NONE && t->type != want->type) {
        return error_set(err, CHURON_INVALID, "input '%s': expected elements of %s, got %s", name,
                         elem_name(want->type), elem_name(t->type));
    }
    if (!want->has_shape) return CHURON_OK;
    if (want->rank != t->rank) {
        return error_set(err, CHURON_INVALID, "input '%s': expected rank %zu, got %" PRIu32, name, want->rank,
                         t->rank);
    }
    for (size_t i = 0; i < want->rank; i++) {
        if (want->dims[i].value >= 0 && want->dims[i].value != t->dims[i]) {
            return error_set(err, CHURON_INVALID,
                             "input '%s': expected dimension %zu to be %" PRId64 ", got %" PRId64, name, i,
                             want->dims[i].value, t->dims[i]);
        }
    }
    return CHURON_OK;
}

static const char *value_kind_name(value_kind k) {
    static const char *const words[] = {"nothing", "a tensor", "a sequence", "a map"};
    return words[k];
}

static status check_value(const char *name, const onnx_type *want, const value *v, error *err) {
    if (want->kind == ONNX_OPTIONAL) {
        return v->kind == VALUE_NONE || !want->of ? CHURON_OK : check_value(name, want->of, v, err);
    }
    value_kind kind = want->kind == ONNX_TENSOR     ? VALUE_TENSOR
                      : want->kind == ONNX_SEQUENCE ? VALUE_SEQUENCE
                                                    : VALUE_MAP;
    if (v->kind != kind) {
        return error_set(err, CHURON_INVALID, "input '%s': expected %s, got %s", name, value_kind_name(kind),
                         value_kind_name(v->kind));
    }
    if (kind == VALUE_TENSOR) return check_tensor(name, want, &v->t, err);
    if (kind == VALUE_MAP) {
        onnx_type keys = {.kind = ONNX_TENSOR, .type = want->type};
        return check_tensor(name, &keys, &v->t, err);
    }
    for (size_t i = 0; i < value_count(v) && want->of; i++)
        TRY(check_value(name, want->of, value_item(v, i), err));
    return CHURON_OK;
}

/* ---- outputs ---------------------------------------------------------------------------------------- */

static bool owns_all(const value *v) {
    if (v->kind == VALUE_TENSOR) return v->t.storage != NULL;
    if (v->kind == VALUE_MAP && !v->t.storage) return false;
    for (size_t i = 0; i < value_n_items(v); i++) {
        const value *item = value_item(v, i);
        if (item->kind != VALUE_NONE && !owns_all(item)) return false;
    }
    return true;
}

/* Another reference to v, or a copy of what it borrows. */
static status owned_value(value *out, const value *v, error *err) {
    *out = (value){.kind = VALUE_NONE};
    if (v->kind == VALUE_NONE) return CHURON_OK;
    if (owns_all(v)) {
        *out = value_share(v);
        return CHURON_OK;
    }
    if (v->kind == VALUE_TENSOR) {
        tensor t;
        TRY(tensor_copy(&t, &v->t, err));
        *out = value_of_tensor(t);
        return CHURON_OK;
    }
    size_t n = value_n_items(v);
    TRY(value_list_create(out, v->kind, n, err));
    status st = v->kind == VALUE_MAP ? tensor_copy(&out->t, &v->t, err) : CHURON_OK;
    for (size_t i = 0; i < n && st == CHURON_OK; i++)
        st = owned_value(value_item(out, i), value_item(v, i), err);
    if (st != CHURON_OK) value_free(out);
    return st;
}

/* ---- sessions --------------------------------------------------------------------------------------- */

status graph_session_create(graph_session **out, graph *g, error *err) {
    *out = NULL;
    if (g->described)
        return error_set(err, CHURON_INTERNAL, "graph: expected one with weights, got a description");
    graph_session *s = mem_calloc(1, sizeof *s);
    if (!s) return ir_no_memory(err);
    status st = exec_init(&s->x, &g->program, g->threads, g->max_memory, err);
    if (st != CHURON_OK) {
        mem_free(s);
        return st;
    }
    s->graph = graph_ref(g);
    *out = s;
    return CHURON_OK;
}

void graph_session_free(graph_session *s) {
    if (!s) return;
    exec_free(&s->x, &s->graph->program);
    graph_close(s->graph);
    mem_free(s);
}

/* The caller's tensors stay the caller's: without storage nothing writes into them or keeps them. */
static value borrowed(const value *v) {
    if (v->kind != VALUE_TENSOR) return value_share(v);
    value b = *v;
    b.t.storage = NULL;
    return b;
}

static status take_outputs(graph_session *s, value *outputs, const bool *wanted, error *err) {
    const ir_graph *g = s->graph->program.main;
    const exec_frame *f = &s->x.frames[0];
    for (size_t i = 0; i < g->n_outputs; i++) {
        if (wanted && !wanted[i]) continue;
        status st = owned_value(&outputs[i], &f->slots[g->outputs[i]->slot], err);
        if (st == CHURON_OK) continue;
        for (size_t k = 0; k < i; k++) value_free(&outputs[k]);
        memset(outputs, 0, g->n_outputs * sizeof *outputs);
        return st;
    }
    return CHURON_OK;
}

status graph_run(graph_session *s, const value *inputs, value *outputs, const graph_run_options *o,
                 error *err) {
    const ir_graph *g = s->graph->program.main;
    exec *x = &s->x;
    for (size_t i = 0; i < g->n_outputs; i++) outputs[i] = (value){.kind = VALUE_NONE};
    for (size_t i = 0; i < g->n_inputs; i++) {
        TRY(check_value(g->inputs[i]->name, &s->graph->input_types[i], &inputs[i], err));
    }
    x->options = o;
    x->stop = NULL;
    if (o && (o->deadline != 0 || o->cancel)) {
        stop_init(&s->stop, clock_seconds(), o->deadline, o->cancel);
        x->stop = &s->stop;
    }
    TRY(exec_choose(x, g, o ? o->wanted : NULL, err));
    bool watch;
    bucket *b = bucket_find(x, g, inputs, &watch);
    bucket_enter(x, g, b && b->planned ? b : NULL);
    x->live = x->peak = x->entered ? x->entered->n_pages : 0;
    if (watch) {
        b->notes = mem_calloc(g->n_values + 1, sizeof *b->notes);
        for (size_t i = 0; b->notes && i < g->n_values; i++) b->notes[i].root = (int32_t)i;
        x->watched = b->notes ? b : NULL;
    }
    for (size_t i = 0; i < g->n_inputs; i++) {
        exec_set(x, &x->frames[0], (int32_t)g->inputs[i]->slot, borrowed(&inputs[i]));
    }
    const fp_env was = fp_enter(FP_FLUSH_SUBNORMALS);
    status st = exec_graph(x, g, err);
    fp_leave(&was);
    if (st == CHURON_OK) st = take_outputs(s, outputs, o ? o->wanted : NULL, err);
    bucket_end(x, g, st == CHURON_OK);
    exec_clear(x, g);
    if (watch) mem_trim(); /* what runs held before the arena was laid out */
    x->options = NULL;
    return st;
}

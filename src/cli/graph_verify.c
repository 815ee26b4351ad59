/* graph_verify.c: `churon verify MODEL.onnx`: where two ways of computing a graph first differ: without and
 * with passes, or this model and another. */
#include "cli/graph_inputs.h"
#include "cli/graph_providers.h"
#include "cli/timeout.h"

#include "base/mem.h"
#include "graph/compare.h"
#include "graph/names.h"
#include "graph/passes/passes.h"
#include "registry/store.h"

#include <math.h>
#include <string.h>

enum { MOST_KEPT = 1 << 30 }; /* bytes of values of one run */

typedef struct kept_value {
    const char *node, *op, *name; /* of its graph, which stays */
    tensor t;
} kept_value;

/* What the nodes of one run gave, each value once. */
typedef struct trace {
    graph *g;
    value *outputs;
    kept_value *values;
    size_t n, cap;
    names index;
    uint64_t bytes;
    bool keeps, failed;
} trace;

typedef struct graph_verify {
    arg_common common;
    const char *model, *against;
    bool passes, nodes;
    tolerance tolerance;
    arg_list files, shapes;
    provider_choice providers;
    double timeout;
    uint64_t batch;
    value *inputs;
    size_t n_inputs;
    trace a, b; /* the plain way, the other way */
    json_out json;
    str text;
    bool same;
} graph_verify;

/* ---- traces ----------------------------------------------------------------------------------------- */

static void trace_free(trace *t) {
    for (size_t i = 0; t->outputs && i < graph_n_outputs(t->g); i++) value_free(&t->outputs[i]);
    for (size_t i = 0; i < t->n; i++) tensor_free(&t->values[i].t);
    mem_free(t->outputs);
    mem_free(t->values);
    names_free(&t->index);
    graph_close(t->g);
    *t = (trace){0};
}

static void keep(trace *t, const graph_event *e, size_t i) {
    const value *v = e->outputs[i];
    const char *name = e->output_names[i];
    if (!v || !name || v->kind != VALUE_TENSOR || names_get(&t->index, name, strlen(name))) return;
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

static void on_node(void *user, const graph_event *e) {
    trace *t = user;
    for (size_t i = 0; i < e->n_outputs; i++) keep(t, e, i);
}

/* Loads a model and runs it on the inputs. */
static status trace_run(const graph_verify *v, trace *t, const char *path, const graph_options *o,
                        error *err) {
    graph_session *s = NULL;
    graph_options load = *o;
    load.deadline = timeout_deadline(v->timeout);
    TRY(graph_open(&t->g, path, &load, err));
    t->outputs = mem_calloc(graph_n_outputs(t->g) + 1, sizeof(value));
    status st = t->outputs ? graph_session_create(&s, t->g, err) : error_no_memory(err, "values", 0);
    const graph_run_options run = {
        .deadline = timeout_deadline(v->timeout), .on_node = t->keeps ? on_node : NULL, .user = t};
    if (st == CHURON_OK) st = graph_run(s, v->inputs, t->outputs, &run, err);
    if (st == CHURON_OK && t->failed) st = error_no_memory(err, "values of nodes", 0);
    graph_session_free(s);
    return st;
}

/* ---- comparing -------------------------------------------------------------------------------------- */

static void write_comparison(graph_verify *v, const char *name, comparison c, const str *why) {
    if (v->common.json) {
        json_out_object(&v->json, NULL);
        json_out_cstr(&v->json, "name", name);
        json_out_bool(&v->json, "ok", c.same);
        json_out_double(&v->json, "max_abs", c.max_abs);
        json_out_double(&v->json, "max_rel", c.max_rel);
        if (why->len) json_out_cstr(&v->json, "why", why->data);
        json_out_end_object(&v->json);
    } else {
        str_fmt(&v->text, "%s %s: max_abs %.3g, max_rel %.3g%s%s\n", c.same ? "same     " : "DIFFERENT", name,
                c.max_abs, c.max_rel, why->len ? ": " : "", str_cstr(why));
    }
}

/* Outputs by name; all of a must be in b. */
static bool compare_outputs(graph_verify *v, const trace *a, const trace *b, const char *as, bool each) {
    comparison all = {.same = true};
    str first = {0};
    for (size_t i = 0; i < graph_n_outputs(a->g); i++) {
        const char *name = graph_output(a->g, i).name;
        size_t k = 0, n = graph_n_outputs(b->g);
        while (k < n && strcmp(graph_output(b->g, k).name, name) != 0) k++;
        str why = {0};
        comparison c = {.same = false};
        if (k < n) {
            c = compare_values(&a->outputs[i], &b->outputs[k], v->tolerance, name, &why);
        } else {
            str_fmt(&why, "%s: the other model has no such output", name);
        }
        if (each) write_comparison(v, name, c, &why);
        if (!c.same && !first.len) str_cat(&first, str_cstr(&why));
        all.same = all.same && c.same;
        if (c.max_abs > all.max_abs) all.max_abs = c.max_abs;
        if (c.max_rel > all.max_rel) all.max_rel = c.max_rel;
        str_free(&why);
    }
    if (!each) write_comparison(v, as, all, &first);
    str_free(&first);
    return all.same;
}

static bool same_shape(const tensor *a, const tensor *b) {
    bool same = a->type == b->type && a->rank == b->rank;
    for (size_t i = 0; same && i < a->rank; i++) same = a->dims[i] == b->dims[i];
    return same;
}

/* The first value of b, in the order of its nodes, that a has too and that is not the same. What a pass keeps
 * in another form (images in blocks) has no like in a. */
static void compare_nodes(graph_verify *v) {
    bool found = false;
    if (v->common.json) json_out_array(&v->json, "nodes");
    for (size_t i = 0; i < v->b.n; i++) {
        const kept_value *x = &v->b.values[i];
        uintptr_t at = (uintptr_t)names_get(&v->a.index, x->name, strlen(x->name));
        if (!at || !same_shape(&x->t, &v->a.values[at - 1].t)) continue;
        value want = value_of_tensor(v->a.values[at - 1].t), got = value_of_tensor(x->t);
        str why = {0}, name = {0};
        comparison c = compare_values(&want, &got, v->tolerance, x->name, &why);
        str_fmt(&name, "%s (%s)", x->node, x->op);
        bool first = !c.same && !found;
        found = found || !c.same;
        if (v->nodes || first) write_comparison(v, str_cstr(&name), c, &why);
        str_free(&why);
        str_free(&name);
    }
    if (v->common.json) json_out_end_array(&v->json);
    v->same = v->same && !found;
}

/* ---- ways ------------------------------------------------------------------------------------------- */

enum { MOST_PASSES = 64 };

/* All passes but those of which another bit may come out, and but `kept`. */
static size_t leave_out(const char *kept, const char *list_of[MOST_PASSES]) {
    size_t n, k = 0;
    const pass *list = pass_list(&n);
    for (size_t i = 0; i < n && k < MOST_PASSES; i++) {
        if (!pass_moves_steps(&list[i]) && (!kept || strcmp(kept, list[i].name) != 0))
            list_of[k++] = list[i].name;
    }
    return k;
}

/* How far apart values are that a pass may move by steps of the quantized values that they come from: a few
 * steps of 8 bits, or that part of the largest magnitude. */
static comparison compare_steps(const value *a, const value *b) {
    enum { STEPS = 3 };
    const double part = 0.02;
    comparison c = {.same = false};
    if (a->kind != b->kind) return c;
    if (a->kind != VALUE_TENSOR) { /* their items; nothing and nothing are the same */
        c.same = value_n_items(a) == value_n_items(b) && value_count(a) == value_count(b);
        for (size_t i = 0; c.same && i < value_n_items(a); i++) {
            const comparison item = compare_steps(value_item(a, i), value_item(b, i));
            c.same = item.same;
            if (item.max_abs > c.max_abs) c.max_abs = item.max_abs;
        }
        return c;
    }
    if (!same_shape(&a->t, &b->t)) return c;
    const elem type = a->t.type;
    if (!(ELEM_BIT(type) & (ELEMS_FLOAT | ELEM_BIT(ELEM_U8) | ELEM_BIT(ELEM_I8)))) {
        c.same = true; /* what follows from a step, an index of the largest for one, may be anything */
        return c;
    }
    double largest = 0;
    for (size_t i = 0; i < a->t.count; i++) {
        double x, y;
        const size_t size = elem_describe(type)->bytes;
        elem_to_f64(type, (const char *)a->t.data + i * size, &x, 1);
        elem_to_f64(type, (const char *)b->t.data + i * size, &y, 1);
        const double apart = fabs(x - y);
        if (apart > c.max_abs) c.max_abs = apart;
        if (fabs(x) > largest) largest = fabs(x);
    }
    const bool is_float = (ELEM_BIT(type) & ELEMS_FLOAT) != 0;
    c.same = c.max_abs <= (is_float ? part * largest : STEPS);
    return c;
}

/* A pass of which another bit may come out, against none at all. */
static status compare_pass_of_steps(graph_verify *v, const char *path, const char *name, error *err) {
    static const char *const all[] = {"all"};
    const char *left_out[MOST_PASSES];
    size_t n, k = 0;
    const pass *list = pass_list(&n);
    for (size_t i = 0; i < n && k < MOST_PASSES; i++) {
        if (strcmp(list[i].name, name) != 0) left_out[k++] = list[i].name;
    }
    graph_options none = {.threads = (size_t)v->common.threads, .no_pass = all, .n_no_pass = 1};
    graph_options one = {.threads = (size_t)v->common.threads, .no_pass = left_out, .n_no_pass = k};
    trace a = {0}, b = {0};
    comparison worst = {.same = true};
    str why = {0};
    status st = trace_run(v, &a, path, &none, err);
    if (st == CHURON_OK) st = trace_run(v, &b, path, &one, err);
    for (size_t i = 0; st == CHURON_OK && i < graph_n_outputs(a.g); i++) {
        const comparison c = compare_steps(&a.outputs[i], &b.outputs[i]);
        if (!c.same && worst.same)
            str_fmt(&why, "%s: more than a few steps apart", graph_output(a.g, i).name);
        worst.same = worst.same && c.same;
        if (c.max_abs > worst.max_abs) worst.max_abs = c.max_abs;
    }
    if (st == CHURON_OK) {
        write_comparison(v, name, worst, &why);
        v->same = v->same && worst.same;
    }
    str_free(&why);
    trace_free(&a);
    trace_free(&b);
    return st;
}

/* Each pass alone against none. */
static status compare_passes(graph_verify *v, const char *path, error *err) {
    size_t n;
    const pass *list = pass_list(&n);
    if (v->common.json) json_out_array(&v->json, "passes");
    status st = CHURON_OK;
    for (size_t i = 0; i < n && st == CHURON_OK; i++) {
        const char *left_out[MOST_PASSES];
        if (pass_moves_steps(&list[i])) {
            st = compare_pass_of_steps(v, path, list[i].name, err);
            continue;
        }
        const size_t k = leave_out(list[i].name, left_out);
        trace alone = {0};
        graph_options o = {.threads = (size_t)v->common.threads, .no_pass = left_out, .n_no_pass = k};
        st = trace_run(v, &alone, path, &o, err);
        if (st == CHURON_OK && !compare_outputs(v, &v->a, &alone, list[i].name, false)) v->same = false;
        trace_free(&alone);
    }
    if (v->common.json) json_out_end_array(&v->json);
    return st;
}

static status make_inputs(graph_verify *v, const char *path, error *err) {
    static const char *const all[] = {"all"};
    graph_options o = {
        .threads = 1, .no_pass = all, .n_no_pass = 1, .deadline = timeout_deadline(v->timeout)};
    graph *g;
    TRY(graph_open(&g, path, &o, err));
    graph_inputs_options from = {.files = &v->files, .shapes = &v->shapes, .batch = v->batch};
    v->n_inputs = graph_n_inputs(g);
    v->inputs = mem_calloc(v->n_inputs + 1, sizeof(value));
    status st = v->inputs ? graph_inputs_make(g, &from, v->inputs, err) : error_no_memory(err, "values", 0);
    graph_close(g);
    return st;
}

static status same_inputs(const graph *a, const graph *b, error *err) {
    bool same = graph_n_inputs(a) == graph_n_inputs(b);
    for (size_t i = 0; same && i < graph_n_inputs(a); i++)
        same = strcmp(graph_input(a, i).name, graph_input(b, i).name) == 0;
    return same ? CHURON_OK
                : error_set(err, CHURON_INVALID,
                            "field --against: expected a model with the same inputs, got others");
}

static status verify_ways(graph_verify *v, const char *path, const char *other, error *err) {
    const char *left_out[MOST_PASSES];
    const size_t k = leave_out(NULL, left_out);
    graph_options plain = {.threads = (size_t)v->common.threads, .no_pass = left_out, .n_no_pass = k};
    graph_options full = {
        .threads = (size_t)v->common.threads, .providers = v->providers.names, .n_providers = v->providers.n};
    TRY(make_inputs(v, path, err));
    v->a.keeps = v->b.keeps = true;
    TRY(trace_run(v, &v->a, path, &plain, err));
    if (other) {
        graph *g;
        graph_options load = full;
        load.deadline = timeout_deadline(v->timeout);
        TRY(graph_open(&g, other, &load, err));
        status st = same_inputs(v->a.g, g, err);
        graph_close(g);
        TRY(st);
    }
    TRY(trace_run(v, &v->b, other ? other : path, &full, err));
    if (v->common.json) json_out_array(&v->json, "outputs");
    v->same = compare_outputs(v, &v->a, &v->b, NULL, true);
    if (v->common.json) json_out_end_array(&v->json);
    compare_nodes(v);
    return v->passes ? compare_passes(v, path, err) : CHURON_OK;
}

static int verify_graph(graph_verify *v) {
    error err;
    str path = {0}, other = {0};
    int code = EXIT_NO;
    status st;
    v->json = json_out_begin(&v->text);
    if (v->common.json) json_out_object(&v->json, NULL);
    TRY_GOTO(provider_choice_read(&v->providers, &err));
    TRY_GOTO(store_resolve(v->model, &path, &err));
    if (v->against) TRY_GOTO(store_resolve(v->against, &other, &err));
    TRY_GOTO(verify_ways(v, str_cstr(&path), v->against ? str_cstr(&other) : NULL, &err));
    if (v->common.json) {
        json_out_bool(&v->json, "same", v->same);
        json_out_end_object(&v->json);
        code = cli_print_json(&v->text);
    } else {
        (void)cli_write(str_cstr(&v->text), v->text.len);
        code = cli_finish(EXIT_YES);
    }
    if (!v->same) code = EXIT_NO;
cleanup:
    if (st != CHURON_OK) code = cli_fail("verify", &err);
    for (size_t i = 0; v->inputs && i < v->n_inputs; i++) value_free(&v->inputs[i]);
    mem_free(v->inputs);
    trace_free(&v->a);
    trace_free(&v->b);
    str_free(&v->text);
    str_free(&path);
    str_free(&other);
    return code;
}

int graph_cmd_verify(int argc, char **argv) {
    graph_verify v = {.tolerance = {.rtol = 1e-3, .atol = 1e-5}};
    const arg_option options[] = {
        {.name = "passes",
         .kind = ARG_FLAG,
         .target = &v.passes,
         .help = "each pass alone against none as well"},
        {.name = "nodes",
         .kind = ARG_FLAG,
         .target = &v.nodes,
         .help = "every node, not only the first that differs"},
        {.name = "against",
         .kind = ARG_STRING,
         .target = &v.against,
         .value = "MODEL",
         .help = "another model with the same inputs"},
        {.name = "input",
         .kind = ARG_LIST,
         .target = &v.files,
         .value = "NAME=FILE.npy",
         .help = "an input; others are made up"},
        {.name = "shape",
         .kind = ARG_LIST,
         .target = &v.shapes,
         .value = "NAME=1x3x224x224",
         .help = "shape of an input that is made up"},
        {.name = "batch",
         .kind = ARG_UINT,
         .target = &v.batch,
         .value = "N",
         .umin = 1,
         .umax = 1 << 24,
         .help = "first dimension of inputs where the model leaves it open"},
        {.name = "rtol",
         .kind = ARG_DOUBLE,
         .target = &v.tolerance.rtol,
         .value = "R",
         .help = "relative difference that is allowed",
         .max = 1e9},
        {.name = "atol",
         .kind = ARG_DOUBLE,
         .target = &v.tolerance.atol,
         .value = "A",
         .help = "absolute difference that is allowed",
         .max = 1e9},
        PROVIDER_OPTION(&v.providers),
        TIMEOUT_OPTION(&v.timeout),
    };
    const arg_command c = {
        .name = "verify",
        .synopsis = "MODEL.onnx",
        .summary = "Compares a graph as it is written with the same graph after all passes, or with another.",
        .details = "Exit status 1 if they differ; the first node that differs is named.",
        .example = "churon verify resnet50.onnx --passes\nchuron verify a.onnx --against b.onnx --nodes",
        .options = options,
        .n_options = sizeof options / sizeof options[0],
        .min_args = 1,
        .max_args = 1};
    size_t n_args;
    int code = EXIT_USAGE;
    arg_outcome outcome = args_parse(&c, argc, argv, &v.common, argv, &n_args);
    if (outcome == ARGS_DONE) {
        code = cli_finish(EXIT_YES);
    } else if (outcome == ARGS_RUN) {
        v.model = argv[0];
        code = verify_graph(&v);
    }
    args_list_free(&v.files);
    args_list_free(&v.shapes);
    provider_choice_free(&v.providers);
    return code;
}

/* graph_verify.c: `churon verify MODEL.onnx`: where two ways of computing a graph first differ: without and
 * with passes, or this model and another. */
#include "cli/graph_inputs.h"
#include "cli/graph_providers.h"
#include "cli/graph_trace.h"
#include "cli/timeout.h"

#include "base/mem.h"
#include "graph/passes/passes.h"
#include "registry/store.h"

#include <math.h>
#include <string.h>

enum { NOISY = 6 }; /* runs with noise, when there is a difference to explain */

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
    const char *path;
    node_trace a, b;         /* the plain way, the other way */
    node_trace noisy[NOISY]; /* [n_noisy]: the plain way, disturbed */
    size_t n_noisy;
    names unlike; /* values of nodes that differ before anything is explained */
    json_out json;
    str text;
    graph_inputs_options from;
    bool same, usage; /* usage: a fault would be one of the command line */
} graph_verify;

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

/* ---- noise ------------------------------------------------------------------------------------------ */

/* The plain way again, with noise, keeping the values of these nodes (NULL: none); once. */
static status run_noisy(graph_verify *v, const names *only, error *err) {
    const char *left_out[MOST_PASSES];
    const size_t k = leave_out(NULL, left_out);
    const graph_options o = {
        .threads = (size_t)v->common.threads, .no_pass = left_out, .n_no_pass = k, .seeded = true};
    for (size_t i = v->n_noisy; i < NOISY; i++) {
        v->noisy[i] =
            (node_trace){.keeps = only != NULL, .only = only, .noise = i + 1, .timeout = v->timeout};
        v->n_noisy++;
        TRY(node_trace_run(&v->noisy[i], v->path, &o, v->inputs, err));
    }
    return CHURON_OK;
}

/* Takes a difference back that noise explains: then *why ends with how far noise moved the value. */
static void explain(const graph_verify *v, const tensor *want, const tensor *got, const tensor *const *noisy,
                    comparison *c, str *why) {
    double moved;
    if (!node_trace_explains(want, got, v->tolerance, noisy, v->n_noisy, &moved)) return;
    c->same = true;
    if (isinf(moved)) {
        str_cat(why, "; not compared: roundings alone move it anywhere");
    } else if (moved > 0) {
        str_fmt(why, "; roundings alone move it by %.3g", moved);
    } else {
        str_cat(why, "; roundings alone change it");
    }
}

static void explain_output(graph_verify *v, size_t i, const value *got, comparison *c, str *why) {
    const tensor *noisy[NOISY];
    if (v->a.outputs[i].kind != VALUE_TENSOR || got->kind != VALUE_TENSOR) return;
    for (size_t r = 0; r < v->n_noisy; r++)
        noisy[r] = v->noisy[r].outputs[i].kind == VALUE_TENSOR ? &v->noisy[r].outputs[i].t : NULL;
    explain(v, &v->a.outputs[i].t, &got->t, noisy, c, why);
}

static void explain_node(graph_verify *v, const kept_value *x, const tensor *want, comparison *c, str *why) {
    const tensor *noisy[NOISY];
    for (size_t r = 0; r < v->n_noisy; r++) noisy[r] = node_trace_find(&v->noisy[r], x->name);
    explain(v, want, &x->t, noisy, c, why);
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
        str_cat(&v->text, c.same ? "same      " : "DIFFERENT ");
        cli_text(&v->text, name, SIZE_MAX);
        str_fmt(&v->text, ": max_abs %.3g, max_rel %.3g%s", c.max_abs, c.max_rel, why->len ? ": " : "");
        cli_text(&v->text, str_cstr(why), SIZE_MAX);
        str_put(&v->text, '\n');
    }
}

/* Outputs of the plain way by name; all must be in b. `as`: the name of the pass that b is of, for one line
 * about all of them. */
static status compare_outputs(graph_verify *v, const node_trace *b, const char *as, error *err) {
    const node_trace *a = &v->a;
    comparison all = {.same = true};
    str first = {0}, explained = {0};
    status st = CHURON_OK;
    for (size_t i = 0; i < graph_n_outputs(a->g) && st == CHURON_OK; i++) {
        const char *name = graph_output(a->g, i).name;
        size_t k = 0, n = graph_n_outputs(b->g);
        while (k < n && strcmp(graph_output(b->g, k).name, name) != 0) k++;
        str why = {0};
        comparison c = {.same = false};
        if (k < n) {
            c = compare_values(&a->outputs[i], &b->outputs[k], v->tolerance, name, &why);
            if (!c.same) st = run_noisy(v, NULL, err);
            if (!c.same && st == CHURON_OK) explain_output(v, i, &b->outputs[k], &c, &why);
        } else {
            str_fmt(&why, "%s: the other model has no such output", name);
        }
        if (!as) write_comparison(v, name, c, &why);
        if (!c.same && !first.len) str_cat(&first, str_cstr(&why));
        if (c.same && !explained.len) str_cat(&explained, str_cstr(&why));
        all.same = all.same && c.same;
        if (c.max_abs > all.max_abs) all.max_abs = c.max_abs;
        if (c.max_rel > all.max_rel) all.max_rel = c.max_rel;
        str_free(&why);
    }
    if (as) write_comparison(v, as, all, first.len ? &first : &explained);
    str_free(&first);
    str_free(&explained);
    v->same = v->same && all.same;
    return st;
}

static bool same_shape(const tensor *a, const tensor *b) {
    bool same = a->type == b->type && a->rank == b->rank;
    for (size_t i = 0; same && i < a->rank; i++) same = a->dims[i] == b->dims[i];
    return same;
}

/* Value i of b and the plain way's of that name; NULL: it has none in this form (images in blocks). */
static const tensor *plain_value(const graph_verify *v, size_t i) {
    const tensor *t = node_trace_find(&v->a, v->b.values[i].name);
    return t && same_shape(t, &v->b.values[i].t) ? t : NULL;
}

static comparison compare_node(const graph_verify *v, size_t i, const tensor *plain, str *why) {
    const value want = value_of_tensor(*plain), got = value_of_tensor(v->b.values[i].t);
    return compare_values(&want, &got, v->tolerance, v->b.values[i].name, why);
}

/* What differs, so that the noisy runs keep it. */
static status find_unlike(graph_verify *v, error *err) {
    for (size_t i = 0; i < v->b.n; i++) {
        const char *name = v->b.values[i].name;
        const tensor *plain = plain_value(v, i);
        if (!plain || compare_node(v, i, plain, NULL).same) continue;
        if (!names_set(&v->unlike, name, strlen(name), v)) return error_no_memory(err, "names", 0);
    }
    return v->unlike.n ? run_noisy(v, &v->unlike, err) : CHURON_OK;
}

/* The first value of b, in the order of its nodes, that a has too and that is not the same; with --nodes all
 * of them. */
static void compare_nodes(graph_verify *v) {
    bool found = false;
    if (v->common.json) json_out_array(&v->json, "nodes");
    for (size_t i = 0; i < v->b.n; i++) {
        const kept_value *x = &v->b.values[i];
        const tensor *plain = plain_value(v, i);
        if (!plain) continue;
        str why = {0}, name = {0};
        comparison c = compare_node(v, i, plain, &why);
        if (!c.same) explain_node(v, x, plain, &c, &why);
        str_fmt(&name, "%s (%s)", x->node, x->op);
        const bool first = !c.same && !found;
        found = found || !c.same;
        if (v->nodes || first) write_comparison(v, str_cstr(&name), c, &why);
        str_free(&why);
        str_free(&name);
    }
    if (v->common.json) json_out_end_array(&v->json);
    v->same = v->same && !found;
}

/* ---- ways ------------------------------------------------------------------------------------------- */

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
    graph_options none = {
        .threads = (size_t)v->common.threads, .no_pass = all, .n_no_pass = 1, .seeded = true};
    graph_options one = {
        .threads = (size_t)v->common.threads, .no_pass = left_out, .n_no_pass = k, .seeded = true};
    node_trace a = {.timeout = v->timeout}, b = {.timeout = v->timeout};
    comparison worst = {.same = true};
    str why = {0};
    status st = node_trace_run(&a, path, &none, v->inputs, err);
    if (st == CHURON_OK) st = node_trace_run(&b, path, &one, v->inputs, err);
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
    node_trace_free(&a);
    node_trace_free(&b);
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
        node_trace alone = {.timeout = v->timeout};
        graph_options o = {
            .threads = (size_t)v->common.threads, .no_pass = left_out, .n_no_pass = k, .seeded = true};
        st = node_trace_run(&alone, path, &o, v->inputs, err);
        if (st == CHURON_OK) st = compare_outputs(v, &alone, list[i].name, err);
        node_trace_free(&alone);
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
    v->usage = true;
    v->n_inputs = graph_n_inputs(g);
    v->inputs = mem_calloc(v->n_inputs + 1, sizeof(value));
    status st =
        v->inputs ? graph_inputs_make(g, &v->from, v->inputs, err) : error_no_memory(err, "values", 0);
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
    graph_options plain = {
        .threads = (size_t)v->common.threads, .no_pass = left_out, .n_no_pass = k, .seeded = true};
    graph_options full = {.threads = (size_t)v->common.threads,
                          .providers = v->providers.names,
                          .n_providers = v->providers.n,
                          .seeded = true};
    v->usage = false; /* until the model is loaded */
    TRY(make_inputs(v, path, err));
    v->a.keeps = v->b.keeps = true;
    v->a.timeout = v->b.timeout = v->timeout;
    status st = node_trace_run(&v->a, path, &plain, v->inputs, err);
    if (st == CHURON_INVALID && v->a.g) graph_inputs_hint(v->a.g, &v->from, err);
    TRY(st);
    v->usage = false; /* no fault of the inputs from here on */
    if (other) {
        graph *g;
        graph_options load = full;
        load.deadline = timeout_deadline(v->timeout);
        st = graph_open(&g, other, &load, err);
        if (st != CHURON_OK) cli_name_file(err, other);
        TRY(st);
        st = same_inputs(v->a.g, g, err);
        v->usage = st != CHURON_OK;
        graph_close(g);
        TRY(st);
    }
    TRY(node_trace_run(&v->b, other ? other : path, &full, v->inputs, err));
    TRY(find_unlike(v, err));
    if (v->common.json) json_out_array(&v->json, "outputs");
    v->same = true;
    TRY(compare_outputs(v, &v->b, NULL, err));
    if (v->common.json) json_out_end_array(&v->json);
    compare_nodes(v);
    return v->passes ? compare_passes(v, path, err) : CHURON_OK;
}

static int verify_graph(graph_verify *v) {
    error err;
    str path = {0}, other = {0};
    int code = EXIT_NO;
    status st;
    v->usage = true;
    v->from = (graph_inputs_options){.files = &v->files, .shapes = &v->shapes, .batch = v->batch};
    v->json = json_out_begin(&v->text);
    if (v->common.json) json_out_object(&v->json, NULL);
    TRY_GOTO(provider_choice_read(&v->providers, &err));
    TRY_GOTO(store_resolve(v->model, &path, &err));
    if (v->against) TRY_GOTO(store_resolve(v->against, &other, &err));
    v->path = str_cstr(&path);
    TRY_GOTO(verify_ways(v, v->path, v->against ? str_cstr(&other) : NULL, &err));
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
    if (st != CHURON_OK) code = v->usage ? cli_fail("verify", &err) : cli_refuse("verify", &err);
    for (size_t i = 0; v->inputs && i < v->n_inputs; i++) value_free(&v->inputs[i]);
    mem_free(v->inputs);
    node_trace_free(&v->a);
    node_trace_free(&v->b);
    for (size_t i = 0; i < v->n_noisy; i++) node_trace_free(&v->noisy[i]);
    names_free(&v->unlike);
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

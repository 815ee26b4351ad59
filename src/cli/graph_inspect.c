/* graph_inspect.c: `churon inspect MODEL.onnx`. What a file says is shown even when this version cannot run
 * it; then the reason is shown too. */
#include "cli/graph_cli.h"
#include "cli/graph_providers.h"

#include "base/mem.h"
#include "graph/graph.h"
#include "graph/names.h"
#include "graph/passes/passes.h"
#include "graph/providers/provider.h"
#include "registry/store.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct op_count {
    const char *op, *domain;
    size_t n;
} op_count;

typedef struct graph_inspection {
    const char *path;
    char digest[DIGEST_HEX];
    onnx_model *m;
    graph *g; /* NULL: it does not run */
    error why_not;
    op_count *ops;
    size_t n_ops, cap_ops;
    names index;
    uint64_t parameters, weights_bytes;
    uint64_t types[ELEM_COUNT];
    bool failed; /* no memory */
} graph_inspection;

/* ---- counting --------------------------------------------------------------------------------------- */

static void count_op(graph_inspection *in, const onnx_node *node) {
    uintptr_t at = (uintptr_t)names_get(&in->index, node->op, strlen(node->op));
    if (at && strcmp(in->ops[at - 1].domain, node->domain) == 0) {
        in->ops[at - 1].n++;
        return;
    }
    if (in->n_ops == in->cap_ops) {
        size_t cap = in->cap_ops ? in->cap_ops * 2 : 64;
        op_count *more = mem_realloc(in->ops, cap * sizeof *more);
        in->failed = in->failed || !more;
        if (!more) return;
        in->ops = more;
        in->cap_ops = cap;
    }
    in->ops[in->n_ops++] = (op_count){.op = node->op, .domain = node->domain, .n = 1};
    if (!names_set(&in->index, node->op, strlen(node->op), (void *)(uintptr_t)in->n_ops)) in->failed = true;
}

static void count_tensor(graph_inspection *in, const onnx_tensor *t) {
    in->parameters += t->count;
    size_t bytes = elem_file_bytes(t->type, t->count);
    in->weights_bytes += bytes == SIZE_MAX ? 0 : bytes;
    if (t->type < ELEM_COUNT) in->types[t->type]++;
}

static void count_graph(graph_inspection *in, const onnx_graph *g) {
    for (size_t i = 0; i < g->n_initializers; i++) count_tensor(in, &g->initializers[i]);
    for (size_t i = 0; i < g->n_sparse; i++) count_tensor(in, &g->sparse_initializers[i].values);
    for (size_t i = 0; i < g->n_nodes; i++) {
        const onnx_node *n = &g->nodes[i];
        count_op(in, n);
        for (size_t a = 0; a < n->n_attrs; a++) {
            const onnx_attr *attr = &n->attrs[a];
            if (attr->type == ONNX_ATTR_GRAPH || attr->type == ONNX_ATTR_GRAPHS) {
                for (size_t k = 0; k < attr->n; k++) count_graph(in, attr->graphs[k]);
            }
        }
    }
}

static int by_count(const void *a, const void *b) {
    const op_count *x = a, *y = b;
    if (x->n != y->n) return x->n < y->n ? 1 : -1;
    return strcmp(x->op, y->op);
}

/* ---- ports ------------------------------------------------------------------------------------------ */

/* Inputs with an initializer are constants. */
static bool is_initializer(const graph_inspection *in, const char *name) {
    const onnx_graph *g = &in->m->graph;
    for (size_t i = 0; i < g->n_initializers; i++) {
        if (strcmp(g->initializers[i].name, name) == 0) return true;
    }
    return false;
}

static size_t n_ports(const graph_inspection *in, bool outputs) {
    if (in->g) return outputs ? graph_n_outputs(in->g) : graph_n_inputs(in->g);
    return outputs ? in->m->graph.n_outputs : in->m->graph.n_inputs;
}

/* False: an initializer. */
static bool port_at(const graph_inspection *in, bool outputs, size_t i, graph_port *p) {
    if (in->g) {
        *p = outputs ? graph_output(in->g, i) : graph_input(in->g, i);
        return true;
    }
    const onnx_value_info *v = outputs ? &in->m->graph.outputs[i] : &in->m->graph.inputs[i];
    *p = (graph_port){.name = v->name, .type = &v->type};
    return outputs || !is_initializer(in, v->name);
}

/* ---- JSON ------------------------------------------------------------------------------------------- */

static void write_ports(json_out *j, const graph_inspection *in, bool outputs) {
    json_out_array(j, outputs ? "outputs" : "inputs");
    for (size_t i = 0; i < n_ports(in, outputs); i++) {
        graph_port p;
        if (!port_at(in, outputs, i, &p)) continue;
        json_out_object(j, NULL);
        json_out_cstr(j, "name", p.name);
        graph_type_json(j, p.type);
        json_out_end_object(j);
    }
    json_out_end_array(j);
}

static int64_t main_opset(const onnx_model *m) {
    for (size_t i = 0; i < m->n_opsets; i++) {
        if (!m->opsets[i].domain[0]) return m->opsets[i].version;
    }
    return m->n_opsets ? 0 : 1;
}

/* Those of this build; nodes only of a model that runs. */
static void write_providers(json_out *j, const graph_inspection *in) {
    size_t n;
    const provider *list = provider_list(&n);
    json_out_array(j, "providers");
    for (size_t i = 0; i < n; i++) {
        if (list[i].option) continue;
        json_out_object(j, NULL);
        json_out_cstr(j, "name", list[i].name);
        if (in->g) json_out_uint(j, "nodes", graph_provider_nodes(in->g, list[i].name));
        json_out_end_object(j);
    }
    json_out_end_array(j);
}

static void add_providers(str *out, const graph_inspection *in) {
    size_t n;
    const provider *list = provider_list(&n);
    str_fmt(out, "%-16s", "providers");
    for (size_t i = 0; i < n; i++) {
        if (list[i].option) continue;
        const size_t nodes = graph_provider_nodes(in->g, list[i].name);
        str_fmt(out, "%s%s %zu node%s", i ? ", " : "", list[i].name, nodes, nodes == 1 ? "" : "s");
    }
    str_put(out, '\n');
}

static void write_memory(json_out *j, const graph_inspection *in) {
    if (!in->g) {
        json_out_null(j, "memory");
        return;
    }
    graph_summary s = graph_describe(in->g);
    json_out_object(j, "memory");
    json_out_uint(j, "weights", s.constants);
    json_out_null(j, "kv_per_token");
    json_out_uint(j, "scratch", s.activations);
    json_out_bool(j, "scratch_is_exact", s.activations_known);
    json_out_uint(j, "total", s.constants + s.activations);
    json_out_end_object(j);
}

static void write_file_facts(json_out *j, const graph_inspection *in) {
    const onnx_model *m = in->m;
    str text = {0};
    str_fmt(&text, "ONNX IR %" PRId64, m->ir_version);
    json_out_cstr(j, "format", str_cstr(&text));
    json_out_cstr(j, "path", in->path);
    str_clear(&text);
    str_fmt(&text, "%s%s%s", m->producer_name ? m->producer_name : "",
            m->producer_version && m->producer_version[0] ? " " : "",
            m->producer_version ? m->producer_version : "");
    json_out_cstr(j, "architecture", "graph");
    json_out_cstr(j, "name", m->graph.name);
    json_out_cstr(j, "producer", str_cstr(&text));
    json_out_bool(j, "runs", in->g != NULL);
    json_out_cstr(j, "why_not", in->g ? NULL : in->why_not.message);
    str_free(&text);
}

static int print_json(const graph_inspection *in) {
    const onnx_model *m = in->m;
    str out = {0};
    json_out j = json_out_begin(&out);
    json_out_object(&j, NULL);
    write_file_facts(&j, in);
    json_out_uint(&j, "parameters", in->parameters);
    write_ports(&j, in, false);
    write_ports(&j, in, true);
    json_out_object(&j, "operators");
    for (size_t i = 0; i < in->n_ops; i++) {
        str name = {0};
        str_fmt(&name, "%s%s%s", in->ops[i].domain, in->ops[i].domain[0] ? "." : "", in->ops[i].op);
        json_out_uint(&j, str_cstr(&name), in->ops[i].n);
        str_free(&name);
    }
    json_out_end_object(&j);
    json_out_int(&j, "opset", main_opset(m));
    json_out_object(&j, "opsets");
    for (size_t i = 0; i < m->n_opsets; i++) {
        json_out_int(&j, m->opsets[i].domain[0] ? m->opsets[i].domain : "ai.onnx", m->opsets[i].version);
    }
    json_out_end_object(&j);
    json_out_uint(&j, "functions", m->n_functions);
    json_out_uint(&j, "weights_bytes", in->weights_bytes);
    json_out_uint(&j, "file_bytes", m->file_bytes);
    json_out_object(&j, "types");
    for (size_t t = 1; t < ELEM_COUNT; t++) {
        if (in->types[t]) json_out_uint(&j, elem_name((elem)t), in->types[t]);
    }
    json_out_end_object(&j);
    write_providers(&j, in);
    json_out_null(&j, "context_length");
    write_memory(&j, in);
    json_out_cstr(&j, "digest", in->digest);
    json_out_object(&j, "metadata");
    for (size_t i = 0; i < m->n_metadata; i++) json_out_cstr(&j, m->metadata[i].key, m->metadata[i].value);
    json_out_end_object(&j);
    json_out_end_object(&j);
    int code = cli_print_json(&out);
    str_free(&out);
    return code;
}

/* ---- text ------------------------------------------------------------------------------------------- */

static void add_bytes(str *out, uint64_t bytes) {
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    double v = (double)bytes;
    size_t unit = 0;
    for (; v >= 1024 && unit < 4; unit++) v /= 1024;
    str_fmt(out, unit ? "%.1f %s" : "%.0f %s", v, units[unit]);
}

static void add_ports(str *out, const graph_inspection *in, bool outputs) {
    for (size_t i = 0; i < n_ports(in, outputs); i++) {
        graph_port p;
        if (!port_at(in, outputs, i, &p)) continue;
        str_fmt(out, "%-16s", outputs ? "output" : "input");
        cli_text(out, p.name, SIZE_MAX);
        str_cat(out, ": ");
        graph_type_text(p.type, out);
        str_put(out, '\n');
    }
}

static int print_text(const graph_inspection *in) {
    const onnx_model *m = in->m;
    str out = {0};
    const char *slash = strrchr(in->path, '/');
    str_fmt(&out, "%-16s", "file");
    cli_text(&out, slash ? slash + 1 : in->path, SIZE_MAX);
    str_fmt(&out, ", ONNX IR %" PRId64 ", operator set %" PRId64 ", ", m->ir_version, main_opset(m));
    add_bytes(&out, m->file_bytes);
    str_fmt(&out, "\n%-16s", "model");
    cli_text(&out, m->graph.name, SIZE_MAX);
    if (m->producer_name && m->producer_name[0]) {
        str_cat(&out, " by ");
        cli_text(&out, m->producer_name, SIZE_MAX);
    }
    str_fmt(&out, ", %" PRIu64 " parameters\n%-16s%s", in->parameters, "runs", in->g ? "yes" : "no: ");
    if (!in->g) cli_text(&out, in->why_not.message, SIZE_MAX);
    str_put(&out, '\n');
    add_ports(&out, in, false);
    add_ports(&out, in, true);
    str_fmt(&out, "%-16s", "operators");
    for (size_t i = 0; i < in->n_ops; i++) {
        str_fmt(&out, "%s%zu × ", i ? ", " : "", in->ops[i].n);
        cli_text(&out, in->ops[i].op, SIZE_MAX);
    }
    str_put(&out, '\n');
    if (in->g) {
        add_providers(&out, in);
        graph_summary s = graph_describe(in->g);
        str_fmt(&out, "%-16s", "memory");
        str_cat(&out, "weights ");
        add_bytes(&out, s.constants);
        str_cat(&out, ", values ");
        add_bytes(&out, s.activations);
        str_cat(&out, s.activations_known ? "\n" : " and what depends on the inputs' sizes\n");
    }
    for (size_t i = 0; i < m->n_metadata; i++) {
        str_cat(&out, "  ");
        cli_text(&out, m->metadata[i].key, 60);
        str_cat(&out, " = ");
        cli_text(&out, m->metadata[i].value, 200);
        str_put(&out, '\n');
    }
    error err;
    int code = EXIT_NO;
    if (str_check(&out, &err) == CHURON_OK) {
        (void)cli_write(out.data, out.len);
        code = cli_finish(EXIT_YES);
    } else {
        code = cli_refuse("inspect", &err);
    }
    str_free(&out);
    return code;
}

/* ---- the command ------------------------------------------------------------------------------------ */

static int inspect_graph(const char *model, const arg_common *common, provider_choice *providers) {
    graph_inspection in = {0};
    error err;
    str path = {0};
    graph_options o = {.threads = 1, .describe_only = true};
    int code = EXIT_NO;
    bool usage;
    status st;
    usage = true;
    TRY_GOTO(provider_choice_read(providers, &err));
    usage = false;
    o.providers = providers->names;
    o.n_providers = providers->n;
    TRY_GOTO(store_resolve(model, &path, &err));
    in.path = str_cstr(&path);
    TRY_GOTO(onnx_describe(&in.m, in.path, &err));
    if (common->json) TRY_GOTO(store_digest(in.path, in.digest, &err));
    count_graph(&in, &in.m->graph);
    st = graph_from_onnx(&in.g, in.m, &o, &in.why_not);
    if (st == CHURON_NO_MEMORY || in.failed) TRY_GOTO(error_no_memory(&err, "graph", 0));
    st = CHURON_OK;
    if (in.n_ops) qsort(in.ops, in.n_ops, sizeof *in.ops, by_count);
    for (size_t i = 0; in.g && i < graph_n_outputs(in.g); i++)
        (void)graph_note_declared("inspect", in.g, i, graph_output(in.g, i).type, common->quiet);
    code = common->json ? print_json(&in) : print_text(&in);
cleanup:
    if (st != CHURON_OK) code = usage ? cli_fail("inspect", &err) : cli_refuse("inspect", &err);
    graph_close(in.g);
    onnx_close(in.m);
    names_free(&in.index);
    mem_free(in.ops);
    str_free(&path);
    return code;
}

/* What passes there are and what they do. */
static int print_passes(const arg_common *common) {
    size_t n;
    const pass *list = pass_list(&n);
    str out = {0};
    json_out j = json_out_begin(&out);
    if (common->json) {
        json_out_object(&j, NULL);
        json_out_array(&j, "passes");
    }
    for (size_t i = 0; i < n; i++) {
        if (common->json) {
            json_out_object(&j, NULL);
            json_out_cstr(&j, "name", list[i].name);
            json_out_cstr(&j, "what", list[i].what);
            json_out_end_object(&j);
        } else {
            str_fmt(&out, "%-24s%s\n", list[i].name, list[i].what);
        }
    }
    int code = EXIT_YES;
    if (common->json) {
        json_out_end_array(&j);
        json_out_end_object(&j);
        code = cli_print_json(&out);
    } else {
        (void)cli_write(str_cstr(&out), out.len);
        code = cli_finish(EXIT_YES);
    }
    str_free(&out);
    return code;
}

int graph_cmd_inspect(int argc, char **argv) {
    arg_common common = {0};
    bool passes = false;
    provider_choice providers = {0};
    const arg_option options[] = {{.name = "passes",
                                   .kind = ARG_FLAG,
                                   .target = &passes,
                                   .help = "the changes that make graphs faster, instead"},
                                  PROVIDER_OPTION(&providers)};
    const arg_command c = {.name = "inspect",
                           .synopsis = "MODEL.onnx",
                           .summary = "Shows what is in a graph (ONNX): inputs, outputs, operators, memory.",
                           .example = "churon inspect resnet50.onnx --json",
                           .options = options,
                           .n_options = sizeof options / sizeof *options,
                           .min_args = 1,
                           .max_args = 1};
    size_t n_args;
    arg_outcome outcome = args_parse(&c, argc, argv, &common, argv, &n_args);
    if (outcome != ARGS_RUN) return outcome == ARGS_DONE ? cli_finish(EXIT_YES) : EXIT_USAGE;
    const int code = passes ? print_passes(&common) : inspect_graph(argv[0], &common, &providers);
    provider_choice_free(&providers);
    return code;
}

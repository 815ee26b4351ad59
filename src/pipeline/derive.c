/* derive.c: the bundle of a bare model file: its bundle.yaml as a person would begin it. */
#include "pipeline/pipeline_part.h"

#include "format/onnx.h"

#include <inttypes.h>
#include <string.h>

/* The file's name without its ending, of the characters that a bundle's name may have. */
static void write_name(str *out, const char *name) {
    const char *slash = strrchr(name, '/');
    if (slash) name = slash + 1;
    const char *dot = strrchr(name, '.');
    size_t n = dot && dot != name ? (size_t)(dot - name) : strlen(name);
    if (n > 100) n = 100;
    const size_t before = out->len;
    for (size_t i = 0; i < n; i++) {
        const char c = name[i];
        const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (plain || (out->len > before && (c == '.' || c == '_' || c == '-'))) {
            str_put(out, c);
        } else if (out->len > before) {
            str_put(out, '-');
        }
    }
    if (out->len == before) str_cat(out, "model");
}

static bool is_initializer(const onnx_graph *g, const char *name) {
    for (size_t i = 0; i < g->n_initializers; i++) {
        if (strcmp(g->initializers[i].name, name) == 0) return true;
    }
    return false;
}

/* Where nothing proves that records keep apart, a vector is one record, as it is for who runs the file; more
 * dimensions have the record's row in front as long as outputs have it too. A file that is no graph is told
 * of when it is loaded. */
static bool keeps_rows(const onnx_model *m) {
    graph *g;
    error err;
    bool rows = true;
    if (graph_from_onnx(&g, m, &(graph_options){.threads = 1, .describe_only = true}, &err) != CHURON_OK)
        return true;
    if (!graph_rows_independent(g)) {
        for (size_t i = 0; i < graph_n_outputs(g); i++)
            rows = rows && graph_output_rows(g, i) != ROWS_NOT_SAID;
        for (size_t i = 0; i < graph_n_inputs(g); i++) rows = rows && graph_input(g, i).type->rank > 1;
    }
    graph_close(g);
    return rows;
}

/* Rows of all inputs lie along an open first dimension. */
static bool has_rows(const onnx_graph *g) {
    size_t n = 0;
    for (size_t i = 0; i < g->n_inputs; i++) {
        const onnx_type *t = &g->inputs[i].type;
        if (is_initializer(g, g->inputs[i].name)) continue;
        if (t->kind != ONNX_TENSOR || !t->has_shape || t->rank == 0 || t->dims[0].value >= 0) return false;
        n++;
    }
    return n > 0;
}

static const char *scalar_name(elem e) {
    switch (e) {
    case ELEM_BOOL: return "bool";
    case ELEM_STRING: return "string";
    case ELEM_F32: return "float";
    case ELEM_F64: return "double";
    case ELEM_I8:
    case ELEM_I16:
    case ELEM_I32:
    case ELEM_I64:
    case ELEM_U8:
    case ELEM_U16:
    case ELEM_U32:
    case ELEM_U64: return elem_name(e);
    default: return NULL;
    }
}

static status write_input(str *out, const onnx_value_info *v, bool rows, error *err) {
    const onnx_type *t = &v->type;
    const bool optional = t->kind == ONNX_OPTIONAL;
    if (optional && t->of) t = t->of;
    if (t->kind != ONNX_TENSOR || t->type == ELEM_NONE)
        return error_set(err, CHURON_UNSUPPORTED,
                         "input '%.100s': expected a tensor, got a sequence or a map: write a bundle for it",
                         v->name);
    const size_t from = rows;
    const bool scalar =
        rows && scalar_name(t->type) && (t->rank == 1 || (t->rank == 2 && t->dims[1].value == 1));
    str_cat(out, "  ");
    str_json(out, v->name, strlen(v->name));
    if (scalar) {
        str_fmt(out, ": {type: %s", scalar_name(t->type));
    } else {
        str_fmt(out, ": {type: tensor, dtype: %s", elem_name(t->type));
        if (t->has_shape) {
            str_cat(out, ", shape: [");
            for (size_t i = from; i < t->rank; i++)
                str_fmt(out, "%s%" PRId64, i > from ? ", " : "", t->dims[i].value);
            str_put(out, ']');
        }
    }
    if ((ELEM_BIT(t->type) & (ELEMS_FLOAT | ELEMS_F8)) != 0) str_cat(out, ", allow_nan: true");
    str_cat(out, optional ? ", required: false}\n" : "}\n");
    return CHURON_OK;
}

static status derive_graph(const files *f, const char *file, str *out, error *err) {
    files_view view;
    onnx_model *m = NULL;
    TRY(files_map(f, file, &view, err));
    status st = onnx_parse(&m, view.data, view.size, NULL, err);
    if (st != CHURON_OK) { /* with external data: beside the file */
        str path = {0};
        uint64_t offset;
        error other = {0};
        if (files_locate(f, file, &path, &offset, &other) == CHURON_OK && offset == 0)
            st = onnx_open(&m, str_cstr(&path), err);
        str_free(&path);
    }
    if (st == CHURON_OK) {
        const bool rows = has_rows(&m->graph) && keeps_rows(m);
        str_cat(out, "task: graph\nmodel: {file: ");
        str_json(out, file, strlen(file));
        str_fmt(out, "}\nbatch: %s\ninputs:\n", rows ? "true" : "false");
        bool any = false;
        for (size_t i = 0; i < m->graph.n_inputs && st == CHURON_OK; i++) {
            if (is_initializer(&m->graph, m->graph.inputs[i].name)) continue;
            any = true;
            st = write_input(out, &m->graph.inputs[i], rows, err);
        }
        if (!any) str_cat(out, "  {}\n");
    }
    onnx_close(m);
    files_unmap(&view);
    return st;
}

status derive_manifest(const files *f, const char *file, str *out, error *err) {
    files_view view;
    TRY(files_map(f, file, &view, err));
    const bool gguf = view.size >= 4 && memcmp(view.data, "GGUF", 4) == 0;
    files_unmap(&view);
    str_cat(out, "churon: 1\nname: ");
    write_name(out, file);
    str_cat(out, "\nversion: \"1\"\n");
    if (!gguf) return derive_graph(f, file, out, err);
    str_cat(out, "task: generation\nmodel: {file: ");
    str_json(out, file, strlen(file));
    str_cat(out, "}\ninputs:\n  prompt: {type: text}\nsteps:\n  - generate: {prompt: prompt, into: "
                 "text}\noutputs:\n  text: {}\n");
    return CHURON_OK;
}

/* export.c: giving a version in the form of another registry; see exchange.h. */
#include "registry/exchange.h"

#include "base/disk.h"
#include "base/file.h"
#include "bundle/pack.h"
#include "format/onnx.h"
#include "registry/db.h"
#include "registry/place.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- writing ---------------------------------------------------------------------------------------- */

static status write_text(const char *dir, const char *name, const str *text, error *err) {
    str path = {0};
    sink s = {.fd = -1};
    str_fmt(&path, "%s/%s", dir, name);
    status st = str_check(text, err);
    if (st == CHURON_OK) st = str_check(&path, err);
    if (st == CHURON_OK) st = sink_open(&s, str_cstr(&path), false, err);
    if (st == CHURON_OK) st = sink_write(&s, text->data, text->len, err);
    if (st == CHURON_OK) st = sink_close(&s, err);
    sink_drop(&s);
    str_free(&path);
    return st;
}

static status open_version(const registry *r, const version_row *v, files **out, error *err) {
    str path = {0};
    store_entry e = {0};
    status st = store_load(&e, str_cstr(&r->home), v->name, v->version, err);
    if (st == CHURON_OK) st = store_content_path(&e, &path, err);
    if (st == CHURON_OK) st = files_open(out, str_cstr(&path), err);
    str_free(&path);
    store_entry_free(&e);
    return st;
}

/* The version's files below `dir`, which is made. */
static status write_files(const registry *r, const version_row *v, const char *dir, error *err) {
    files *f;
    TRY(open_version(r, v, &f, err));
    status st = pack_extract(f, dir, err);
    files_close(f);
    return st;
}

static status write_pack(const registry *r, const version_row *v, const char *to, error *err) {
    files *f;
    pack_result made;
    TRY(open_version(r, v, &f, err));
    status st = pack_write(f, to, NULL, &made, err);
    files_close(f);
    return st;
}

/* ---- the ONNX model of a version -------------------------------------------------------------------- */

typedef struct onnx_found {
    onnx_model *model;
    char name[FILES_PATH_MAX + 1]; /* of its file in the version */
} onnx_found;

/* The version's model, if it is ONNX and lies in one file: mlflow and triton know nothing else. */
static status find_onnx(const registry *r, const version_row *v, onnx_found *out, error *err) {
    str folder = {0}, path = {0};
    files *f = NULL;
    const char *name = NULL;
    size_t n = 0;
    str_fmt(&folder, "%s/models/%s/%s", str_cstr(&r->home), v->name, v->version);
    status st = str_check(&folder, err);
    if (st == CHURON_OK) st = files_open(&f, str_cstr(&folder), err);
    for (size_t i = 0; st == CHURON_OK && i < files_count(f); i++) {
        const char *p = files_at(f, i)->path;
        size_t len = strlen(p);
        if (len > 5 && strcmp(p + len - 5, ".onnx") == 0) {
            name = p;
            n++;
        }
    }
    if (st == CHURON_OK && n != 1) {
        st = error_set(err, CHURON_UNSUPPORTED, "%s:%s: expected one ONNX model, got %zu", v->name,
                       v->version, n);
    }
    if (st == CHURON_OK) {
        snprintf(out->name, sizeof out->name, "%s", name);
        str_fmt(&path, "%s/%s", str_cstr(&folder), name);
        st = str_check(&path, err);
    }
    if (st == CHURON_OK) st = onnx_open(&out->model, str_cstr(&path), err);
    files_close(f);
    str_free(&folder);
    str_free(&path);
    return st;
}

typedef struct type_name {
    elem type;
    const char *numpy, *triton;
} type_name;

static const type_name types[] = {
    {ELEM_F32, "float32", "TYPE_FP32"},  {ELEM_F64, "float64", "TYPE_FP64"},
    {ELEM_F16, "float16", "TYPE_FP16"},  {ELEM_BF16, "bfloat16", "TYPE_BF16"},
    {ELEM_I8, "int8", "TYPE_INT8"},      {ELEM_I16, "int16", "TYPE_INT16"},
    {ELEM_I32, "int32", "TYPE_INT32"},   {ELEM_I64, "int64", "TYPE_INT64"},
    {ELEM_U8, "uint8", "TYPE_UINT8"},    {ELEM_U16, "uint16", "TYPE_UINT16"},
    {ELEM_U32, "uint32", "TYPE_UINT32"}, {ELEM_U64, "uint64", "TYPE_UINT64"},
    {ELEM_BOOL, "bool", "TYPE_BOOL"},    {ELEM_STRING, "str", "TYPE_STRING"},
};

static const type_name *type_of(const onnx_type *t) {
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (t->kind == ONNX_TENSOR && types[i].type == t->type) return &types[i];
    }
    return NULL;
}

/* Is the value given by an initializer (old models list those as inputs)? */
static bool is_given(const onnx_graph *g, const char *name) {
    for (size_t i = 0; i < g->n_initializers; i++) {
        if (strcmp(g->initializers[i].name, name) == 0) return true;
    }
    return false;
}

static void put_dims(str *to, const onnx_type *t) {
    for (size_t i = 0; i < t->rank; i++) str_fmt(to, "%s%lld", i ? ", " : "", (long long)t->dims[i].value);
}

/* ---- MLflow ----------------------------------------------------------------------------------------- */

/* [{"name", "type": "tensor", "tensor-spec": {"dtype", "shape"}}], as MLflow's signatures have it. */
static void mlflow_specs(const onnx_graph *g, const onnx_value_info *values, size_t n, str *to) {
    bool first = true;
    str_put(to, '[');
    for (size_t i = 0; i < n; i++) {
        const type_name *t = type_of(&values[i].type);
        if (!t || is_given(g, values[i].name)) continue;
        if (!first) str_cat(to, ", ");
        first = false;
        str_cat(to, "{\"name\": ");
        str_json(to, values[i].name, strlen(values[i].name));
        str_fmt(to, ", \"type\": \"tensor\", \"tensor-spec\": {\"dtype\": \"%s\", \"shape\": [", t->numpy);
        put_dims(to, &values[i].type);
        str_cat(to, "]}}");
    }
    str_put(to, ']');
}

/* A text as a YAML scalar in single quotes. */
static void put_quoted(str *to, const str *text) {
    str_put(to, '\'');
    for (size_t i = 0; i < text->len; i++) {
        if (text->data[i] == '\'') str_put(to, '\'');
        str_put(to, text->data[i]);
    }
    str_put(to, '\'');
}

static void mlmodel_text(const version_row *v, const onnx_found *m, str *to) {
    const onnx_graph *g = &m->model->graph;
    str in = {0}, out = {0}, file = {0};
    char time[40] = "";
    time_t added = (time_t)v->added;
    struct tm tm;
    if (gmtime_r(&added, &tm)) (void)strftime(time, sizeof time, "%Y-%m-%d %H:%M:%S.000000", &tm);
    mlflow_specs(g, g->inputs, g->n_inputs, &in);
    mlflow_specs(g, g->outputs, g->n_outputs, &out);
    str_cat(&file, m->name);
    str_cat(to, "flavors:\n  onnx:\n    code: null\n    data: ");
    put_quoted(to, &file);
    str_cat(to, "\n    providers:\n    - CPUExecutionProvider\n    onnx_session_options: null\n"
                "  python_function:\n    data: ");
    put_quoted(to, &file);
    str_cat(to, "\n    env:\n      virtualenv: python_env.yaml\n    loader_module: mlflow.onnx\n");
    str_fmt(to, "metadata:\n  churon_name: '%s'\n  churon_version: '%s'\n  churon_digest: '%s'\n", v->name,
            v->version, v->digest);
    str_cat(to, "signature:\n  inputs: ");
    put_quoted(to, &in);
    str_cat(to, "\n  outputs: ");
    put_quoted(to, &out);
    str_fmt(to, "\n  params: null\nutc_time_created: '%s'\n", time);
    if (in.failed || out.failed || file.failed) to->failed = true;
    str_free(&in);
    str_free(&out);
    str_free(&file);
}

static status write_mlflow(const registry *r, const version_row *v, const onnx_found *m, const char *to,
                           error *err) {
    str text = {0}, env = {0}, needs = {0};
    TRY(write_files(r, v, to, err));
    mlmodel_text(v, m, &text);
    str_cat(&env, "python: '3.10'\nbuild_dependencies:\n- pip\ndependencies:\n- -r requirements.txt\n");
    str_cat(&needs, "mlflow\nonnx\nonnxruntime\n");
    status st = write_text(to, "MLmodel", &text, err);
    if (st == CHURON_OK) st = write_text(to, "python_env.yaml", &env, err);
    if (st == CHURON_OK) st = write_text(to, "requirements.txt", &needs, err);
    str_free(&text);
    str_free(&env);
    str_free(&needs);
    return st;
}

/* ---- Triton ----------------------------------------------------------------------------------------- */

static status triton_values(const onnx_graph *g, const char *field, const onnx_value_info *values, size_t n,
                            str *to, error *err) {
    for (size_t i = 0; i < n; i++) {
        const type_name *t = type_of(&values[i].type);
        if (is_given(g, values[i].name)) continue;
        if (!t || !values[i].type.has_shape || values[i].type.rank == 0) {
            return error_set(err, CHURON_UNSUPPORTED,
                             "%s: expected a tensor of known rank (Triton has no other), got another value",
                             values[i].name);
        }
        str_fmt(to, "%s {\n  name: ", field);
        str_json(to, values[i].name, strlen(values[i].name));
        str_fmt(to, "\n  data_type: %s\n  dims: [ ", t->triton);
        put_dims(to, &values[i].type);
        str_cat(to, " ]\n}\n");
    }
    return CHURON_OK;
}

/* Triton expects model.onnx; a model that lies deeper keeps its place. */
static const char *triton_name(const onnx_found *m) {
    return strchr(m->name, '/') ? m->name : "model.onnx";
}

static status config_text(const version_row *v, const onnx_found *m, str *to, error *err) {
    const onnx_graph *g = &m->model->graph;
    str_fmt(to, "name: \"%s\"\nplatform: \"onnxruntime_onnx\"\nmax_batch_size: 0\ndefault_model_filename: ",
            v->name);
    str_json(to, triton_name(m), strlen(triton_name(m)));
    str_put(to, '\n');
    TRY(triton_values(g, "input", g->inputs, g->n_inputs, to, err));
    return triton_values(g, "output", g->outputs, g->n_outputs, to, err);
}

static status rename_model(const char *dir, const onnx_found *m, error *err) {
    str from = {0}, to = {0};
    str_fmt(&from, "%s/%s", dir, m->name);
    str_fmt(&to, "%s/%s", dir, triton_name(m));
    status st = str_check(&from, err);
    if (st == CHURON_OK) st = str_check(&to, err);
    if (st == CHURON_OK && rename(str_cstr(&from), str_cstr(&to)) != 0) {
        st = error_set(err, CHURON_IO, "%s: cannot be renamed", str_cstr(&from));
    }
    str_free(&from);
    str_free(&to);
    return st;
}

/* TO/NAME/config.pbtxt, TO/NAME/VERSION/files; Triton's versions are numbers. */
static status write_triton(const registry *r, const version_row *v, const onnx_found *m, const char *to,
                           error *err) {
    str dir = {0}, below = {0}, text = {0};
    bool number = strspn(v->version, "0123456789") == strlen(v->version) && v->version[0] != '0';
    str_fmt(&dir, "%s/%s", to, v->name);
    str_fmt(&below, "%s/%s", str_cstr(&dir), number ? v->version : "1");
    status st = str_check(&dir, err);
    if (st == CHURON_OK) st = str_check(&below, err);
    if (st == CHURON_OK) st = config_text(v, m, &text, err);
    if (st == CHURON_OK) st = write_files(r, v, str_cstr(&below), err);
    if (st == CHURON_OK) st = rename_model(str_cstr(&below), m, err);
    if (st == CHURON_OK) st = write_text(str_cstr(&dir), "config.pbtxt", &text, err);
    str_free(&dir);
    str_free(&below);
    str_free(&text);
    return st;
}

/* ---- which one -------------------------------------------------------------------------------------- */

static status write_as(registry *r, const version_row *v, const char *format, const char *to, error *err) {
    onnx_found m = {0};
    if (strcmp(format, "plain") == 0) return write_files(r, v, to, err);
    if (strcmp(format, "pack") == 0) return write_pack(r, v, to, err);
    bool mlflow = strcmp(format, "mlflow") == 0;
    if (!mlflow && strcmp(format, "triton") != 0) {
        return error_set(err, CHURON_INVALID, "format: expected plain, pack, mlflow or triton, got \"%.60s\"",
                         format);
    }
    TRY(find_onnx(r, v, &m, err));
    status st = mlflow ? write_mlflow(r, v, &m, to, err) : write_triton(r, v, &m, to, err);
    onnx_close(m.model);
    return st;
}

status registry_export(registry *r, const char *ref, const char *format, const char *to, str *json,
                       error *err) {
    version_row v;
    TRY(db_version(r, ref, &v, err));
    if (v.removed)
        return error_set(err, CHURON_INVALID,
                         "VERSION: expected one that is there, got %s, which was removed", ref);
    TRY(db_may(r, v.name, "read", err));
    TRY(write_as(r, &v, format, to, err));
    json_out j = json_out_begin(json);
    char line[2 * STORE_NAME_MAX + 32];
    snprintf(line, sizeof line, "%s:%s as %s", v.name, v.version, format);
    json_out_object(&j, NULL);
    json_out_cstr(&j, "name", v.name);
    json_out_cstr(&j, "version", v.version);
    json_out_cstr(&j, "digest", v.digest);
    json_out_cstr(&j, "format", format);
    json_out_cstr(&j, "path", to);
    json_out_cstr(&j, "line", line);
    json_out_end_object(&j);
    return str_check(json, err);
}

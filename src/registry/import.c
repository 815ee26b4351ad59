/* import.c: taking in what other registries wrote; see exchange.h. */
#include "registry/exchange.h"

#include "base/file.h"
#include "base/mem.h"
#include "bundle/files.h"
#include "format/onnx.h"
#include "registry/db.h"
#include "registry/place.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

enum { TEXT_MAX = 1 << 20, NOTES_MAX = 1500, VERSIONS_MAX = 1000 };

/* Adds one source and appends it to the answer. */
static status take(registry *r, const char *source, const registry_add_options *o, json_out *j, error *err) {
    registry_added got;
    TRY(registry_add(r, source, o, &got, err));
    json_out_object(j, NULL);
    json_out_cstr(j, "name", got.entry.name);
    json_out_cstr(j, "version", got.entry.version);
    json_out_cstr(j, "digest", got.entry.digest);
    json_out_bool(j, "already", got.already);
    json_out_end_object(j);
    store_entry_free(&got.entry);
    return CHURON_OK;
}

static bool has_file(const char *dir, const char *name) {
    str path = {0};
    str_fmt(&path, "%s/%s", dir, name);
    bool there = !path.failed && file_exists(str_cstr(&path)) && !file_is_dir(str_cstr(&path));
    str_free(&path);
    return there;
}

static status read_text(const char *dir, const char *name, str *text, error *err) {
    str path = {0};
    str_fmt(&path, "%s/%s", dir, name);
    status st = str_check(&path, err);
    if (st == CHURON_OK) st = file_read(text, str_cstr(&path), TEXT_MAX, err);
    if (st == CHURON_OK &&
        (utf8_validate(str_cstr(text), text->len) != text->len || strlen(str_cstr(text)) != text->len)) {
        st = error_set(err, CHURON_CORRUPT, "%s: expected UTF-8 text, got other bytes", str_cstr(&path));
    }
    str_free(&path);
    return st;
}

/* ---- ONNX ------------------------------------------------------------------------------------------- */

/* What a model says about itself, as far as it goes into the notes. */
static status onnx_notes(const char *path, str *notes, str *licence, error *err) {
    onnx_model *m;
    TRY(onnx_open(&m, path, err));
    for (size_t i = 0; i < m->graph.n_initializers; i++) {
        if (!m->graph.initializers[i].external) continue;
        onnx_close(m);
        return error_set(err, CHURON_UNSUPPORTED,
                         "%s: expected a model in one file, got one with external data: add its folder",
                         path);
    }
    str_fmt(notes, "ONNX IR %lld", (long long)m->ir_version);
    if (m->producer_name && *m->producer_name)
        str_fmt(notes, ", made by %.100s %.50s", m->producer_name, m->producer_version);
    if (m->model_version) str_fmt(notes, ", model version %lld", (long long)m->model_version);
    for (size_t i = 0; i < m->n_metadata && notes->len < NOTES_MAX; i++) {
        const onnx_property *p = &m->metadata[i];
        bool is_licence = strcmp(p->key, "license") == 0 || strcmp(p->key, "licence") == 0;
        if (is_licence && !licence->len) str_fmt(licence, "%.200s", p->value);
        if (!is_licence) str_fmt(notes, "\n%.100s: %.300s", p->key, p->value);
    }
    onnx_close(m);
    TRY(str_check(licence, err));
    return str_check(notes, err);
}

static status import_onnx(registry *r, const char *path, const char *name, json_out *j, error *err) {
    str notes = {0}, licence = {0};
    status st = onnx_notes(path, &notes, &licence, err);
    if (st == CHURON_OK) {
        const registry_add_options o = {
            .name = name, .notes = str_cstr(&notes), .licence = licence.len ? str_cstr(&licence) : NULL};
        st = take(r, path, &o, j, err);
    }
    str_free(&notes);
    str_free(&licence);
    return st;
}

/* ---- MLflow ----------------------------------------------------------------------------------------- */

/* The value of a key of a mapping, or NULL. */
static yaml_node_t *member(yaml_document_t *doc, const yaml_node_t *map, const char *key) {
    if (!map || map->type != YAML_MAPPING_NODE) return NULL;
    for (yaml_node_pair_t *p = map->data.mapping.pairs.start; p < map->data.mapping.pairs.top; p++) {
        const yaml_node_t *k = yaml_document_get_node(doc, p->key);
        if (k && k->type == YAML_SCALAR_NODE && strcmp((const char *)k->data.scalar.value, key) == 0) {
            return yaml_document_get_node(doc, p->value);
        }
    }
    return NULL;
}

static const char *scalar(yaml_document_t *doc, const yaml_node_t *map, const char *key) {
    const yaml_node_t *n = member(doc, map, key);
    return n && n->type == YAML_SCALAR_NODE ? (const char *)n->data.scalar.value : "";
}

static status take_mlflow(registry *r, const char *dir, const char *name, yaml_document_t *doc, json_out *j,
                          error *err) {
    static const char *const about[] = {"mlflow_version", "utc_time_created", "model_uuid"};
    const yaml_node_t *root = yaml_document_get_root_node(doc);
    const yaml_node_t *flavour = member(doc, member(doc, root, "flavors"), "onnx");
    const char *data = scalar(doc, flavour, "data"), *run = scalar(doc, root, "run_id"), *expected;
    if (!flavour)
        return error_set(err, CHURON_UNSUPPORTED, "%s/MLmodel: flavors: expected onnx, got none of that name",
                         dir);
    if (!files_path_ok(data, strlen(data), &expected)) {
        return error_set(err, CHURON_CORRUPT, "%s/MLmodel: flavors.onnx.data: expected %s, got \"%.200s\"",
                         dir, expected, data);
    }
    str notes = {0}, source = {0};
    str_cat(&notes, "MLflow model");
    for (size_t i = 0; i < sizeof about / sizeof *about; i++) {
        const char *said = scalar(doc, root, about[i]);
        if (*said) str_fmt(&notes, "\n%s: %.200s", about[i], said);
    }
    str_fmt(&source, "mlflow:%.200s", *run ? run : dir);
    status st = str_check(&notes, err);
    if (st == CHURON_OK) st = str_check(&source, err);
    if (st == CHURON_OK) {
        const registry_add_options o = {.name = name,
                                        .notes = str_cstr(&notes),
                                        .source = str_cstr(&source),
                                        .main = data,
                                        .trained_on = *run ? str_cstr(&source) : NULL};
        st = take(r, dir, &o, j, err);
    }
    str_free(&notes);
    str_free(&source);
    return st;
}

static status import_mlflow(registry *r, const char *dir, const char *name, json_out *j, error *err) {
    str text = {0};
    yaml_parser_t parser;
    yaml_document_t doc;
    status st = read_text(dir, "MLmodel", &text, err);
    if (st == CHURON_OK && !yaml_parser_initialize(&parser)) {
        st = error_no_memory(err, "YAML", sizeof parser);
    } else if (st == CHURON_OK) {
        yaml_parser_set_input_string(&parser, (const unsigned char *)str_cstr(&text), text.len);
        if (yaml_parser_load(&parser, &doc)) {
            st = take_mlflow(r, dir, name, &doc, j, err);
            yaml_document_delete(&doc);
        } else {
            st = error_set(err, CHURON_CORRUPT, "%s/MLmodel: line %zu: expected YAML: %s", dir,
                           parser.problem_mark.line + 1, parser.problem ? parser.problem : "it ended");
        }
        yaml_parser_delete(&parser);
    }
    str_free(&text);
    return st;
}

/* ---- Triton ----------------------------------------------------------------------------------------- */

/* The text value of a field at the top of config.pbtxt ("name: \"x\"", nesting left out); "" if it is not
 * there. */
static void pbtxt_field(const char *p, const char *field, char out[STORE_NAME_MAX + 1]) {
    size_t n = strlen(field);
    int depth = 0;
    bool begins = true; /* a word may begin here */
    out[0] = '\0';
    for (; *p; p++) {
        if (*p == '#') {
            p += strcspn(p, "\n");
            if (!*p) return;
        }
        if (*p == '"') { /* a string that is no value asked for */
            for (p++; *p && *p != '"'; p++) {
                if (*p == '\\' && p[1]) p++;
            }
            if (!*p) return;
        }
        if (strchr("{[", *p)) depth++;
        if (strchr("}]", *p)) depth--;
        if (begins && depth == 0 && strncmp(p, field, n) == 0) {
            const char *v = p + n + strspn(p + n, " \t");
            if (*v == ':') {
                v += 1 + strspn(v + 1, " \t\"");
                snprintf(out, STORE_NAME_MAX + 1, "%.*s", (int)strcspn(v, "\"\n"), v);
                return;
            }
        }
        begins = !isalnum((unsigned char)*p) && *p != '_';
    }
}

static int by_number(const void *a, const void *b) {
    const unsigned long *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

/* The numbered folders of a Triton model that hold an ONNX model. */
static size_t triton_versions(const char *dir, const char *file, unsigned long out[VERSIONS_MAX]) {
    size_t n = 0;
    DIR *d = opendir(dir);
    for (const struct dirent *e; d && n < VERSIONS_MAX && (e = readdir(d));) {
        char model[280];
        if (e->d_name[0] == '0' || strspn(e->d_name, "0123456789") != strlen(e->d_name) ||
            strlen(e->d_name) > 9)
            continue;
        snprintf(model, sizeof model, "%s/%s", e->d_name, file);
        if (has_file(dir, model)) out[n++] = strtoul(e->d_name, NULL, 10);
    }
    if (d) closedir(d);
    qsort(out, n, sizeof *out, by_number);
    return n;
}

static status take_triton(registry *r, const char *dir, const char *name, unsigned long version,
                          const char *platform, const char *file, json_out *j, error *err) {
    char number[24];
    str source = {0}, notes = {0};
    snprintf(number, sizeof number, "%lu", version);
    str_fmt(&source, "%s/%s", dir, number);
    str_fmt(&notes, "Triton model, %s", platform);
    status st = str_check(&source, err);
    if (st == CHURON_OK) st = str_check(&notes, err);
    if (st == CHURON_OK) {
        const registry_add_options o = {
            .name = name, .version = number, .main = file, .notes = str_cstr(&notes)};
        st = take(r, str_cstr(&source), &o, j, err);
    }
    str_free(&source);
    str_free(&notes);
    return st;
}

static status import_triton(registry *r, const char *dir, const char *name, json_out *j, error *err) {
    unsigned long versions[VERSIONS_MAX];
    char own[STORE_NAME_MAX + 1], platform[STORE_NAME_MAX + 1], file[STORE_NAME_MAX + 1];
    const char *expected;
    str text = {0};
    status st = read_text(dir, "config.pbtxt", &text, err);
    pbtxt_field(str_cstr(&text), "name", own);
    pbtxt_field(str_cstr(&text), "platform", platform);
    if (!platform[0]) pbtxt_field(str_cstr(&text), "backend", platform);
    pbtxt_field(str_cstr(&text), "default_model_filename", file);
    str_free(&text);
    TRY(st);
    if (!file[0]) snprintf(file, sizeof file, "model.onnx");
    if (!files_path_ok(file, strlen(file), &expected)) {
        return error_set(err, CHURON_CORRUPT,
                         "%s/config.pbtxt: default_model_filename: expected %s, got \"%.100s\"", dir,
                         expected, file);
    }
    if (platform[0] && strncmp(platform, "onnxruntime", 11) != 0) {
        return error_set(err, CHURON_UNSUPPORTED,
                         "%s/config.pbtxt: platform: expected onnxruntime_onnx, got \"%.100s\"", dir,
                         platform);
    }
    if (!name && own[0]) name = own;
    char from_folder[STORE_NAME_MAX + 1];
    place_name_from(dir, true, from_folder);
    size_t n = triton_versions(dir, file, versions);
    if (!n)
        return error_set(err, CHURON_NOT_FOUND, "%s: expected a numbered folder with model.onnx, got none",
                         dir);
    for (size_t i = 0; i < n; i++) {
        TRY(take_triton(r, dir, name ? name : from_folder, versions[i],
                        platform[0] ? platform : "onnxruntime", file, j, err));
    }
    return CHURON_OK;
}

/* Folders of a repository that have a config.pbtxt. */
static status import_repository(registry *r, const char *dir, json_out *j, size_t *found, error *err) {
    status st = CHURON_OK;
    str path = {0};
    DIR *d = opendir(dir);
    *found = 0;
    for (const struct dirent *e; d && st == CHURON_OK && (e = readdir(d));) {
        if (e->d_name[0] == '.') continue;
        str_clear(&path);
        str_fmt(&path, "%s/%s", dir, e->d_name);
        st = str_check(&path, err);
        if (st != CHURON_OK || !has_file(str_cstr(&path), "config.pbtxt")) continue;
        (*found)++;
        st = import_triton(r, str_cstr(&path), NULL, j, err);
    }
    if (d) closedir(d);
    str_free(&path);
    return st;
}

/* ---- which one -------------------------------------------------------------------------------------- */

static status import_folder(registry *r, const char *dir, const char *name, const char **format, json_out *j,
                            error *err) {
    if (has_file(dir, "MLmodel")) {
        *format = "mlflow";
        return import_mlflow(r, dir, name, j, err);
    }
    if (has_file(dir, "config.pbtxt")) {
        *format = "triton";
        return import_triton(r, dir, name, j, err);
    }
    if (has_file(dir, "config.json") || has_file(dir, "bundle.yaml")) {
        *format = has_file(dir, "bundle.yaml") ? "bundle" : "huggingface";
        const registry_add_options o = {.name = name};
        return take(r, dir, &o, j, err);
    }
    size_t found;
    *format = "triton";
    TRY(import_repository(r, dir, j, &found, err));
    if (found) return CHURON_OK;
    return error_set(
        err, CHURON_UNSUPPORTED,
        "%s: expected MLmodel, config.pbtxt, config.json or bundle.yaml in the folder, got none of them",
        dir);
}

status registry_import(registry *r, const char *path, const char *name, str *json, error *err) {
    const char *format = "onnx";
    size_t n = strlen(path);
    json_out j = json_out_begin(json);
    json_out_object(&j, NULL);
    json_out_array(&j, "added");
    status st;
    if (file_is_dir(path)) {
        st = import_folder(r, path, name, &format, &j, err);
    } else if (n > 5 && strcmp(path + n - 5, ".onnx") == 0) {
        st = import_onnx(r, path, name, &j, err);
    } else {
        const registry_add_options o = {.name = name};
        format = "file";
        st = take(r, path, &o, &j, err);
    }
    json_out_end_array(&j);
    json_out_cstr(&j, "format", format);
    json_out_end_object(&j);
    return st == CHURON_OK ? str_check(json, err) : st;
}

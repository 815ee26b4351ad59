/* graph_kind.c: which of a command's arguments is a model, and of what kind; types of ports as text. */
#include "cli/bundle_cli.h"
#include "cli/graph_cli.h"

#include "base/file.h"
#include "bundle/pack.h"
#include "registry/store.h"

#include <inttypes.h>
#include <string.h>

typedef enum file_kind { KIND_OTHER, KIND_GGUF, KIND_ONNX, KIND_BUNDLE } file_kind;

static bool ends_with(const char *text, const char *end) {
    size_t n = strlen(text), k = strlen(end);
    return n >= k && strcmp(text + n - k, end) == 0;
}

/* A ModelProto begins with its ir_version (field 1, a small number) and one of the fields that follow. */
static bool looks_like_onnx(const uint8_t *p, size_t n) {
    if (n < 4 || p[0] != 0x08 || p[1] >= 0x80) return false;
    return strchr("\x12\x1a\x22\x28\x32\x3a\x42\x72", p[2]) != NULL && p[2] != 0;
}

static bool holds_manifest(const char *path) {
    str manifest_path = {0};
    str_fmt(&manifest_path, "%s/bundle.yaml", path);
    const bool there = !manifest_path.failed && file_exists(str_cstr(&manifest_path));
    str_free(&manifest_path);
    return there;
}

static file_kind kind_of(const char *path) {
    file_map map;
    if (file_is_dir(path)) return holds_manifest(path) ? KIND_BUNDLE : KIND_OTHER;
    if (file_map_open(&map, path, NULL) != CHURON_OK) return KIND_OTHER;
    file_kind kind = KIND_OTHER;
    if (map.size >= 4 && memcmp(map.data, "GGUF", 4) == 0) {
        kind = KIND_GGUF;
    } else if ((map.data && pack_has_magic(map.data, map.size)) || ends_with(path, ".churon")) {
        kind = KIND_BUNDLE;
    } else if (ends_with(path, ".onnx") || (map.data && looks_like_onnx(map.data, map.size))) {
        kind = KIND_ONNX;
    }
    file_map_close(&map);
    return kind;
}

static file_kind kind_of_model(const char *model) {
    str path = {0};
    file_kind kind = KIND_OTHER;
    if (file_exists(model) || file_is_dir(model)) {
        kind = kind_of(model);
    } else if (strlen(model) < 256 && store_resolve(model, &path, NULL) == CHURON_OK) {
        kind = kind_of(str_cstr(&path));
    } else if (ends_with(model,
                         ".onnx")) { /* nothing of that name: the command that it is meant for says so */
        kind = KIND_ONNX;
    } else if (ends_with(model, ".churon")) {
        kind = KIND_BUNDLE;
    }
    str_free(&path);
    return kind;
}

/* Of the first argument that is a model. */
static file_kind kind_asked(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        if (argv[i][0] == '-' || argv[i][0] == '{' || !argv[i][0]) continue;
        const file_kind kind = kind_of_model(argv[i]);
        if (kind != KIND_OTHER) return kind;
    }
    return KIND_OTHER;
}

bool graph_is_asked(int argc, char **argv) {
    return kind_asked(argc, argv) == KIND_ONNX;
}

bool bundle_is_asked(int argc, char **argv) {
    return kind_asked(argc, argv) == KIND_BUNDLE;
}

bool bundle_is_path(const char *model) {
    return kind_of_model(model) == KIND_BUNDLE;
}

/* ---- types ------------------------------------------------------------------------------------------ */

void graph_type_text(const onnx_type *t, str *out) {
    switch (t->kind) {
    case ONNX_TENSOR:
        str_cat(out, elem_name(t->type));
        if (!t->has_shape) break;
        str_cat(out, " [");
        for (size_t i = 0; i < t->rank; i++) {
            if (i) str_cat(out, ", ");
            if (t->dims[i].value >= 0) {
                str_fmt(out, "%" PRId64, t->dims[i].value);
            } else {
                cli_text(out, t->dims[i].param ? t->dims[i].param : "?", SIZE_MAX);
            }
        }
        str_put(out, ']');
        break;
    case ONNX_SEQUENCE:
    case ONNX_OPTIONAL:
        str_cat(out, t->kind == ONNX_SEQUENCE ? "sequence of " : "optional ");
        if (t->of) graph_type_text(t->of, out);
        break;
    case ONNX_MAP:
        str_fmt(out, "map of %s to ", elem_name(t->type));
        if (t->of) graph_type_text(t->of, out);
        break;
    default: str_cat(out, "unknown");
    }
}

bool graph_note_declared(const char *command, const graph *g, size_t i, const onnx_type *got, bool quiet) {
    const onnx_type *declared = graph_output_declared(g, i);
    if (!declared->has_shape || got->kind != ONNX_TENSOR || !got->has_shape) return false;
    bool other = declared->rank != got->rank;
    for (size_t k = 0; !other && k < got->rank; k++) {
        const int64_t a = declared->dims[k].value, b = got->dims[k].value;
        other = a >= 0 && b >= 0 && a != b;
    }
    if (!other) return false;
    str was = {0}, is = {0};
    graph_type_text(declared, &was);
    graph_type_text(got, &is);
    cli_note(quiet, "note: %s: output '%.80s': the file declares %.200s, it is %.200s", command,
             graph_output(g, i).name, str_cstr(&was), str_cstr(&is));
    str_free(&was);
    str_free(&is);
    return true;
}

void graph_type_json(json_out *j, const onnx_type *t) {
    if (t->kind != ONNX_TENSOR) {
        str text = {0};
        graph_type_text(t, &text);
        json_out_cstr(j, "dtype", str_cstr(&text));
        json_out_null(j, "shape");
        str_free(&text);
        return;
    }
    json_out_cstr(j, "dtype", elem_name(t->type));
    if (!t->has_shape) {
        json_out_null(j, "shape");
        return;
    }
    json_out_array(j, "shape");
    for (size_t i = 0; i < t->rank; i++) {
        if (t->dims[i].value >= 0) {
            json_out_int(j, NULL, t->dims[i].value);
        } else {
            json_out_cstr(j, NULL, t->dims[i].param);
        }
    }
    json_out_end_array(j);
}

/* onnx.c: opens a model: maps the file, reads ModelProto, owns what came of it; see onnx.h. */
#include "format/onnx.h"

#include "base/mem.h"
#include "format/guess.h"
#include "format/onnx_read.h"

#include <inttypes.h>
#include <string.h>

enum { NEWEST_IR = 14 };

typedef struct opened {
    onnx_model model; /* first: what the caller holds is a pointer to it */
    arena_chunk *chunks;
    onnx_files *files;
    file_map map;
} opened;

/* ---- ModelProto ------------------------------------------------------------------------------------- */

enum model_field {
    M_IR = 1,
    M_PRODUCER = 2,
    M_PRODUCER_VERSION = 3,
    M_DOMAIN = 4,
    M_VERSION = 5,
    M_GRAPH = 7,
    M_OPSET = 8,
    M_METADATA = 14,
    M_TRAINING = 20,
    M_FUNCTION = 25
};

typedef struct model_lists {
    onnx_opset *opsets;
    onnx_function *functions;
    onnx_property *metadata;
} model_lists;

static status read_model_field(onnx_reader *r, const wire_field *f, onnx_model *m, model_lists *l) {
    switch (f->number) {
    case M_PRODUCER: return wire_string(r, f, "producer_name", &m->producer_name);
    case M_PRODUCER_VERSION: return wire_string(r, f, "producer_version", &m->producer_version);
    case M_DOMAIN: return wire_string(r, f, "domain", &m->domain);
    case M_VERSION: return wire_int(r, f, "model_version", &m->model_version);
    case M_TRAINING: m->training_info = true; break;
    case M_GRAPH: ONNX_INSIDE(r, f, "graph", SIZE_MAX, onnx_read_graph, &m->graph); break;
    case M_OPSET:
        ONNX_INSIDE(r, f, "opset_import", m->n_opsets, onnx_read_opset, &l->opsets[m->n_opsets]);
        m->n_opsets++;
        break;
    case M_METADATA:
        ONNX_INSIDE(r, f, "metadata_props", m->n_metadata, onnx_read_property, &l->metadata[m->n_metadata]);
        m->n_metadata++;
        break;
    case M_FUNCTION:
        ONNX_INSIDE(r, f, "functions", m->n_functions, onnx_read_function, &l->functions[m->n_functions]);
        m->n_functions++;
        break;
    default: break;
    }
    return CHURON_OK;
}

/* The version is read first: what a newer format means by its fields is not known. */
static status read_version(onnx_reader *r, wire m, onnx_model *out) {
    bool said = false;
    while (m.at < m.end) {
        wire_field f;
        TRY(wire_next(r, &m, &f));
        if (f.number != M_IR) continue;
        TRY(wire_int(r, &f, "ir_version", &out->ir_version));
        said = true;
    }
    if (!said) return onnx_fail(r, CHURON_CORRUPT, "ir_version: expected 1..%d, got none", NEWEST_IR);
    if (out->ir_version < 1 || out->ir_version > NEWEST_IR) {
        return onnx_fail(r, out->ir_version < 1 ? CHURON_CORRUPT : CHURON_UNSUPPORTED,
                         "ir_version: expected 1..%d, got %" PRId64, NEWEST_IR, out->ir_version);
    }
    return CHURON_OK;
}

static status read_model(onnx_reader *r, wire m, onnx_model *out) {
    size_t counts[WIRE_COUNTED];
    model_lists l = {0};
    out->producer_name = out->producer_version = out->domain = "";
    TRY(wire_count(r, m, counts));
    TRY(read_version(r, m, out));
    if (counts[M_GRAPH] != 1) {
        return onnx_fail(r, CHURON_CORRUPT, "graph: expected one, got %zu", counts[M_GRAPH]);
    }
    TRY(onnx_take(r, counts[M_OPSET], sizeof *l.opsets, &l.opsets));
    TRY(onnx_take(r, counts[M_FUNCTION], sizeof *l.functions, &l.functions));
    TRY(onnx_take(r, counts[M_METADATA], sizeof *l.metadata, &l.metadata));
    while (m.at < m.end) {
        wire_field f;
        TRY(wire_next(r, &m, &f));
        TRY(read_model_field(r, &f, out, &l));
    }
    out->opsets = l.opsets;
    out->functions = l.functions;
    out->metadata = l.metadata;
    return CHURON_OK;
}

/* ---- opening ---------------------------------------------------------------------------------------- */

/* What descriptions of a file may take: a message of two bytes becomes a structure of hundreds. */
static uint64_t memory_limit(size_t file_bytes) {
    return ((uint64_t)64 << 20) + (uint64_t)file_bytes * 16;
}

/* What is no message at all is told by what it seems to be instead of by the first odd byte. */
static status say_what_it_is(onnx_reader *r, wire m, status st) {
    const size_t n = (size_t)(m.end - m.at);
    const char *what = n ? format_guess(m.at, n) : "an empty file";
    if (st != CHURON_CORRUPT || !what) return st;
    return error_set(r->err, CHURON_CORRUPT, "expected an ONNX model, got %s", what);
}

static status parse(opened *o, wire m, const char *folder, bool describe, error *err) {
    size_t n = (size_t)(m.end - m.at);
    onnx_reader r = {.err = err,
                     .limit = memory_limit(n),
                     .folder = folder,
                     .describe = describe,
                     .map = o->map.data ? &o->map : NULL};
    o->model.file_bytes = n;
    status st = n ? read_model(&r, m, &o->model) : CHURON_CORRUPT;
    if (st != CHURON_OK) st = say_what_it_is(&r, m, st);
    o->chunks = r.chunks;
    o->files = r.files;
    return st;
}

status onnx_parse(onnx_model **out, const void *bytes, size_t n, const char *folder, error *err) {
    static const uint8_t nothing[1];
    *out = NULL;
    opened *o = mem_calloc(1, sizeof *o);
    if (!o) return error_no_memory(err, "model", sizeof *o);
    const uint8_t *p = n ? bytes : nothing;
    status st = parse(o, (wire){p, p + n}, folder, false, err);
    if (st != CHURON_OK) {
        onnx_close(&o->model);
        return st;
    }
    *out = &o->model;
    return CHURON_OK;
}

/* The part of a path before its last '/', "." if there is none. The caller frees. */
static char *folder_of(const char *path) {
    const char *slash = strrchr(path, '/');
    if (!slash) return mem_strdup(".");
    return slash == path ? mem_strdup("/") : mem_strndup(path, (size_t)(slash - path));
}

static status open_file(onnx_model **out, const char *path, bool describe, error *err) {
    *out = NULL;
    status st;
    char *folder = NULL;
    opened *o = mem_calloc(1, sizeof *o);
    if (!o) return error_no_memory(err, "model", sizeof *o);
    TRY_GOTO(file_map_open(&o->map, path, err));
    folder = folder_of(path);
    if (!folder) {
        st = error_no_memory(err, "folder of the model", strlen(path));
        goto cleanup;
    }
    static const uint8_t nothing[1];
    const uint8_t *p = o->map.data ? o->map.data : nothing;
    st = parse(o, (wire){p, p + o->map.size}, folder, describe, err);
    if (st != CHURON_OK) {
        error_prefix(err, "%s", path);
        goto cleanup;
    }
    *out = &o->model;
    o = NULL;
cleanup:
    mem_free(folder);
    if (o) onnx_close(&o->model);
    return st;
}

status onnx_open(onnx_model **out, const char *path, error *err) {
    return open_file(out, path, false, err);
}

status onnx_describe(onnx_model **out, const char *path, error *err) {
    return open_file(out, path, true, err);
}

void onnx_let_go(onnx_model *m, const void *at, size_t bytes, bool forever) {
    const opened *o = (const opened *)m;
    file_map_drop_at(&o->map, at, bytes);
    onnx_files_drop(o->files, at, bytes);
    if (forever) onnx_forget(o->chunks, at, bytes);
}

void onnx_let_files_go(onnx_model *m) {
    const opened *o = (const opened *)m;
    file_map_drop(&o->map, 0, o->map.size);
    onnx_files_drop(o->files, NULL, 0);
}

void onnx_close(onnx_model *m) {
    if (!m) return;
    opened *o = (opened *)m;
    onnx_free_chunks(o->chunks);
    onnx_files_close(o->files);
    file_map_close(&o->map);
    mem_free(o);
}

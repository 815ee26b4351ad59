/* model.c: the models of a bundle, opened from where the bundle has them. */
#include "pipeline/pipeline_part.h"

#include "bundle/lm_bundle.h"

#include <stdio.h>
#include <string.h>

static status check_digest(const pipeline *p, const manifest_model *m, const files_view *view, error *err) {
    if (!m->sha256) return CHURON_OK;
    const files_entry *e = files_find(p->files, m->file);
    char hex[DIGEST_HEX];
    if (e && *e->digest) {
        memcpy(hex, e->digest, sizeof hex);
    } else {
        TRY(digest_bytes(view->data, view->size, hex, err));
    }
    if (strcmp(hex, m->sha256) == 0) return CHURON_OK;
    return error_set(err, CHURON_CORRUPT,
                     "%s: model '%s': expected a file of SHA-256 %.16s…, got %.16s… (%s)", p->m.file, m->name,
                     m->sha256, hex, m->file);
}

/* Of a folder: where external data of a model may lie; NULL for packs. */
static status open_graph(pipeline *p, const manifest_model *m, pipeline_model *out, error *err) {
    str path = {0};
    uint64_t offset;
    status st = files_locate(p->files, m->file, &path, &offset, err);
    const graph_options o = {.threads = p->threads,
                             .max_memory = p->max_memory,
                             .providers = p->providers,
                             .n_providers = p->n_providers,
                             .deadline = p->load_deadline};
    if (st == CHURON_OK && offset == 0 && files_kind_of(p->files) != FILES_PACK) {
        st = graph_open(&out->graph, str_cstr(&path), &o, err);
    } else if (st == CHURON_OK) {
        st = onnx_parse(&out->onnx, out->view.data, out->view.size, NULL, err);
        if (st == CHURON_OK) st = graph_from_onnx(&out->graph, out->onnx, &o, err);
    }
    str_free(&path);
    return st;
}

static status open_lm(pipeline *p, const manifest_model *m, pipeline_model *out, error *err) {
    str path = {0};
    uint64_t offset;
    status st = files_locate(p->files, m->file, &path, &offset, err);
    const bool inside = files_kind_of(p->files) == FILES_PACK;
    const lm_bundle_options o = {
        .threads = p->threads, .offset = inside ? offset : 0, .size = inside ? out->view.size : 0};
    if (st == CHURON_OK) st = lm_bundle_open(&out->lm, str_cstr(&path), &o, err);
    str_free(&path);
    return st;
}

static status open_model(pipeline *p, const manifest_model *m, pipeline_model *out, error *err) {
    out->name = m->name;
    TRY(files_map(p->files, m->file, &out->view, err));
    TRY(check_digest(p, m, &out->view, err));
    const bool is_gguf = out->view.size >= 4 && memcmp(out->view.data, "GGUF", 4) == 0;
    const bool lm = m->kind ? strcmp(m->kind, "lm") == 0 : is_gguf;
    return lm ? open_lm(p, m, out, err) : open_graph(p, m, out, err);
}

status pipeline_models_open(pipeline *p, error *err) {
    p->models = arena_array(&p->memory, p->m.n_models ? p->m.n_models : 1, sizeof *p->models);
    if (!p->models) return arena_refused(&p->memory, "models", p->m.n_models * sizeof *p->models, err);
    for (size_t i = 0; i < p->m.n_models; i++) {
        status st = open_model(p, &p->m.models[i], &p->models[i], err);
        if (st == CHURON_OK) continue;
        error_prefix(err, "model '%s'", p->m.models[i].name);
        return st;
    }
    p->providers = NULL;
    p->n_providers = 0;
    return CHURON_OK;
}

void pipeline_models_close(pipeline *p) {
    for (size_t i = 0; p->models && i < p->m.n_models; i++) {
        graph_close(p->models[i].graph);
        onnx_close(p->models[i].onnx);
        lm_bundle_close(p->models[i].lm);
        files_unmap(&p->models[i].view);
    }
}

void pipeline_provider_names(const pipeline *p, str *out) {
    uint64_t set = 0;
    for (size_t i = 0; i < p->m.n_models; i++)
        if (p->models[i].graph) set |= graph_providers(p->models[i].graph);
    graph_provider_names(set, out);
}

graph *pipeline_graph(const pipeline *p, size_t i) {
    return i < p->m.n_models ? p->models[i].graph : NULL;
}

status pipeline_graph_session(run *r, size_t model, graph_session **out, error *err) {
    graph_session **at = &r->session->graphs[model];
    if (!*at) TRY(graph_session_create(at, r->p->models[model].graph, err));
    *out = *at;
    return CHURON_OK;
}

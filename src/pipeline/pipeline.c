/* pipeline.c: see pipeline.h. */
#include "pipeline/pipeline_part.h"

#include "base/mem.h"

#include <string.h>

enum { MANIFEST_MAX = YAML_MAX_BYTES };

static const char MANIFEST[] = "bundle.yaml";

/* A bare model file, or the only model of a folder without bundle.yaml. */
static status derive(pipeline *p, error *err) {
    const files_entry *model = NULL;
    for (size_t i = 0; i < files_count(p->files); i++) {
        const files_entry *e = files_at(p->files, i);
        const size_t n = strlen(e->path);
        const bool is_model = files_kind_of(p->files) == FILES_SINGLE ||
                              (n > 5 && strcmp(e->path + n - 5, ".onnx") == 0) ||
                              (n > 5 && strcmp(e->path + n - 5, ".gguf") == 0);
        if (!is_model) continue;
        if (model)
            return error_set(
                err, CHURON_NOT_FOUND,
                "%s: expected bundle.yaml or exactly one model, got several models and no bundle.yaml",
                files_path_of(p->files));
        model = e;
    }
    if (!model)
        return error_set(err, CHURON_NOT_FOUND,
                         "%s: expected bundle.yaml or a model (.onnx, .gguf), got neither",
                         files_path_of(p->files));
    p->derived = true;
    return derive_manifest(p->files, model->path, &p->text, err);
}

/* From p->files and p->text on. */
static status compile(pipeline *p, error *err) {
    TRY(str_check(&p->text, err));
    TRY(manifest_read(&p->m, str_cstr(&p->text), p->text.len, p->files, &p->memory, err));
    TRY(pipeline_models_open(p, err));
    return pipeline_compile(p, err);
}

static status load(pipeline *p, const char *path, error *err) {
    TRY(files_open(&p->files, path, err));
    if (files_find(p->files, MANIFEST)) {
        TRY(files_read(p->files, MANIFEST, MANIFEST_MAX, &p->text, err));
    } else {
        TRY(derive(p, err));
    }
    TRY(files_verify(p->files, false, err));
    TRY(files_digest(p->files, p->digest, err));
    return compile(p, err);
}

static pipeline *create(const pipeline_options *o) {
    pipeline *p = mem_calloc(1, sizeof *p);
    if (!p) return NULL;
    atomic_init(&p->references, 1);
    p->threads = o ? o->threads : 0;
    p->providers = o ? o->providers : NULL;
    p->n_providers = o ? o->n_providers : 0;
    p->load_deadline = o ? o->deadline : 0;
    p->max_memory = o && o->max_memory ? o->max_memory : (uint64_t)4 << 30;
    return p;
}

status pipeline_open_text(pipeline **out, const char *path, const char *text, size_t n,
                          const pipeline_options *o, error *err) {
    *out = NULL;
    pipeline *p = create(o);
    if (!p) return error_no_memory(err, path, sizeof *p);
    str_add(&p->text, text, n);
    status st = files_open(&p->files, path, err);
    if (st == CHURON_OK) st = compile(p, err);
    if (st != CHURON_OK) {
        pipeline_close(p);
        return st;
    }
    *out = p;
    return CHURON_OK;
}

status pipeline_open(pipeline **out, const char *path, const pipeline_options *o, error *err) {
    *out = NULL;
    pipeline *p = create(o);
    if (!p) return error_no_memory(err, path, sizeof *p);
    status st = load(p, path, err);
    if (st != CHURON_OK) {
        pipeline_close(p);
        return st;
    }
    *out = p;
    return CHURON_OK;
}

pipeline *pipeline_ref(pipeline *p) {
    atomic_fetch_add_explicit(&p->references, 1, memory_order_relaxed);
    return p;
}

void pipeline_close(pipeline *p) {
    /* Release: what this owner did happens before the end; acquire: the last one sees all of it. */
    if (!p || atomic_fetch_sub_explicit(&p->references, 1, memory_order_acq_rel) != 1) return;
    for (size_t i = 0; i < p->n_all; i++) {
        if (p->all[i]->kind->release) p->all[i]->kind->release(p->all[i]);
    }
    mem_free(p->all);
    pipeline_models_close(p);
    manifest_release(&p->m);
    files_close(p->files);
    str_free(&p->text);
    arena_free(&p->memory);
    mem_free(p);
}

const manifest *pipeline_manifest(const pipeline *p) {
    return &p->m;
}
const char *pipeline_digest(const pipeline *p) {
    return p->digest;
}
size_t pipeline_n_inputs(const pipeline *p) {
    return p->m.inputs.n;
}
size_t pipeline_n_outputs(const pipeline *p) {
    return p->n_outputs;
}
const input_field *pipeline_input(const pipeline *p, size_t i) {
    return &p->m.inputs.fields[i];
}
pipeline_port pipeline_output(const pipeline *p, size_t i) {
    return p->outputs[i];
}
const char *pipeline_manifest_text(const pipeline *p, size_t *n) {
    *n = p->text.len;
    return str_cstr(&p->text);
}
bool pipeline_is_derived(const pipeline *p) {
    return p->derived;
}
size_t pipeline_n_steps(const pipeline *p) {
    return p->steps.n;
}
const char *pipeline_step_label(const pipeline *p, size_t i) {
    return p->steps.steps[i].label;
}

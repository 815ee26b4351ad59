/* pipeline_part.h: what the files of the pipeline share. */
#ifndef PIPELINE_PIPELINE_PART_H
#define PIPELINE_PIPELINE_PART_H

#include "base/digest.h"
#include "graph/graph.h"
#include "pipeline/pipeline.h"

struct lm_bundle;

typedef struct pipeline_model {
    const char *name;
    graph *graph; /* or */
    struct lm_bundle *lm;
    files_view view; /* what the graph reads */
    struct onnx_model *onnx;
} pipeline_model;

/* A value that a sequence carries: the slot of what came in, the slot of what goes on. */
typedef struct pipeline_state {
    const char *name;
    cell_type type;
    int32_t slot, next;
    cell initial;
} pipeline_state;

struct pipeline {
    atomic_size_t references;
    files *files;
    arena memory; /* all that was read and compiled */
    str text;     /* of bundle.yaml */
    manifest m;
    char digest[DIGEST_HEX];
    pipeline_model *models; /* [m.n_models] */
    step_block steps;
    size_t n_slots;
    int32_t *input_slots; /* [m.inputs.n] */
    pipeline_port *outputs;
    int32_t *output_slots; /* [n_outputs] */
    int *output_rounds;    /* digits, -1: as they are */
    size_t n_outputs;
    pipeline_state *states;
    size_t n_states;
    step **all; /* every step, of blocks too: released one by one */
    size_t n_all, cap_all;
    size_t threads;
    const char *const *providers; /* [n_providers]; while it opens */
    size_t n_providers;
    double load_deadline; /* 0: none */
    uint64_t max_memory;
    bool derived; /* there is no bundle.yaml: made from a bare model file */
};

struct pipeline_session {
    pipeline *p;
    arena memory;           /* of the run */
    graph_session **graphs; /* [n_models], made when first needed */
    run_row *rows;          /* [cap_rows] */
    cell *slots;            /* [cap_rows * n_slots] */
    cell *inputs;           /* of runs from JSON */
    size_t cap_rows;
    double model_s; /* seconds in models since it was made */
    str messages;   /* of answers that failed */
};

/* compile.c */
MUST_USE status pipeline_compile(pipeline *p, error *err);
/* model.c */
MUST_USE status pipeline_models_open(pipeline *p, error *err);
void pipeline_models_close(pipeline *p);
MUST_USE status pipeline_graph_session(run *r, size_t model, graph_session **out, error *err);
/* derive.c: the manifest of a bare model file, as text. */
MUST_USE status derive_manifest(const files *f, const char *name, str *out, error *err);

#endif

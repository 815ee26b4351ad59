/* graph.h: ONNX models as something that runs.
 *
 * A graph is loaded once: imported from the description (format/onnx.h), checked whole (every fault of names,
 * types, operators and cycles is reported, operators that are missing all at once), shapes inferred, passes
 * applied, weights packed. It is immutable after that and counted. A session is what one run at a time needs:
 * an arena for each bucket of input shapes. Threads: any number of sessions on one graph at once; a session
 * belongs to one thread at a time. */
#ifndef GRAPH_GRAPH_H
#define GRAPH_GRAPH_H

#include "base/pool.h"
#include "base/str.h"
#include "format/onnx.h"

#include <stdatomic.h>

typedef struct graph graph;
typedef struct graph_session graph_session;

typedef struct graph_options {
    size_t threads;             /* of each session; 0: physical cores */
    const char *const *no_pass; /* names of passes that are left out; "all": every one */
    size_t n_no_pass;
    uint64_t max_memory;          /* bytes that a run may hold; 0: half of what is free */
    const char *const *providers; /* names, the preferred first; what they leave, and none: cpu */
    size_t n_providers;
    double deadline;           /* of the loading, clock_seconds(): over it CHURON_LIMIT; 0: none */
    const atomic_bool *cancel; /* likewise: CHURON_CANCELLED; NULL: never */
    bool describe_only;        /* weights are not packed: no session can be made */
    /* Random operators without a seed of their own draw from this one: the k-th time that a node draws in a
     * graph that was opened so, it draws the same numbers, whatever the passes. False: others each time. */
    bool seeded;
    uint64_t seed;
} graph_options;

MUST_USE status graph_open(graph **out, const char *path, const graph_options *o, error *err);
MUST_USE status graph_from_onnx(graph **out, const onnx_model *m, const graph_options *o,
                                error *err); /* m stays */
graph *graph_ref(graph *g);
void graph_close(graph *g);

typedef struct graph_port {
    const char *name;
    const onnx_type *type; /* dims: value or name; inferred where the file says nothing */
} graph_port;
size_t graph_n_inputs(const graph *g); /* without initializers that are inputs too */
size_t graph_n_outputs(const graph *g);
graph_port graph_input(const graph *g, size_t i);
graph_port graph_output(const graph *g, size_t i);
/* What the file declares of output i, its open dimensions -1 without names. Kind and element type are those
 * of the port; dimensions are not checked: files are often wrong about them, and run everywhere. */
const onnx_type *graph_output_declared(const graph *g, size_t i);

/* Of an output, when records lie along the open first dimension of every input. */
typedef enum graph_rows {
    ROWS_NOT_SAID,
    ROWS_COUNTED, /* its first dimension is theirs; a row may follow from other records too */
    ROWS_APART    /* row k follows from row k of the inputs alone: proven operator by operator */
} graph_rows;
graph_rows graph_output_rows(const graph *g, size_t i);
bool graph_rows_independent(const graph *g); /* all outputs are ROWS_APART: records may run together */

typedef struct graph_summary {
    size_t n_nodes;         /* that run, of bodies too */
    size_t constants;       /* bytes of constants that the graph reads or made itself */
    uint64_t activations;   /* most bytes of values at once, as far as shapes were inferred */
    bool activations_known; /* false: some shape depends on an input or on data; counted with 1 */
} graph_summary;
graph_summary graph_describe(const graph *g);
/* Nodes that run which the provider of this name executes. */
size_t graph_provider_nodes(const graph *g, const char *name);
/* The providers that execute its nodes, bit by bit, and their names with the preferred first: "onednn,cpu"
 * (appended; cpu for a graph without nodes). Sets of several graphs are or-ed. */
uint64_t graph_providers(const graph *g);
void graph_provider_names(uint64_t set, str *out);
/* Most bytes that the newest run of a session held beside its inputs. */
uint64_t graph_session_peak(const graph_session *s);

MUST_USE status graph_session_create(graph_session **out, graph *g, error *err);
void graph_session_free(graph_session *s);

/* A node that has just run. Values are borrowed until the call returns; NULL where absent. */
typedef struct graph_event {
    const char *name, *op;
    double seconds;
    double operations; /* multiplications and additions of matrix products and convolutions; else 0 */
    const value *const *inputs, *const *outputs;
    const char *const *output_names; /* NULL where absent */
    size_t n_inputs, n_outputs;
} graph_event;

typedef struct graph_run_options {
    double deadline;           /* clock_seconds(): over it CHURON_LIMIT, within 50 ms or so; 0: none */
    const atomic_bool *cancel; /* set by any thread: the run ends with CHURON_CANCELLED; NULL: never */
    const bool *wanted;        /* [n_outputs]; NULL: all */
    /* Optional: called after each node, of bodies too (verify --nodes, bench's slowest nodes). */
    void (*on_node)(void *user, const graph_event *e);
    void *user;
} graph_run_options;

/* inputs [n_inputs], checked against the ports by name, type, rank and what dims say; outputs [n_outputs] are
 * the caller's to free. Inputs are borrowed during the call. */
MUST_USE status graph_run(graph_session *s, const value *inputs, value *outputs, const graph_run_options *o,
                          error *err);

#endif

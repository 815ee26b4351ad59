/* oip.h: the Open Inference Protocol, version 2 over REST, for one graph or one bundle: requests in JSON or
 * with tensors in binary behind the JSON, answers likewise, and what a client may ask about the model.
 *
 * Datatypes are BOOL, UINT8..UINT64, INT8..INT64, FP16, FP32, FP64, BF16 and BYTES; FP16 and BF16 travel in
 * binary only. Ports of other kinds (sequences, maps, low-bit types) have no name in the protocol: a model
 * with such an input is refused, such an output is left out and an error if it is asked for.
 *
 * An oip_model is immutable; the other functions may run on any thread, one request to a thread. Errors name
 * the field, what was expected and what came. */
#ifndef SERVE_API_OIP_H
#define SERVE_API_OIP_H

#include "graph/graph.h"
#include "pipeline/pipeline.h"

typedef struct oip_port {
    const char *name;     /* of the graph, which outlives this */
    const char *datatype; /* "FP32"; NULL: none in the protocol */
    elem type;
    const onnx_type *of;
    bool optional; /* an input that may be left out */
} oip_port;

typedef struct oip_model {
    graph *g;            /* NULL: a bundle's, see oip_fields_create */
    const char *name;    /* borrowed */
    const char *version; /* borrowed; NULL: "1" */
    bool has_sequences;  /* sequence_id and its kin are known */
    oip_port *inputs, *outputs;
    size_t n_inputs, n_outputs;
} oip_model;

MUST_USE status oip_model_create(oip_model *out, graph *g, const char *name, error *err);
void oip_model_free(oip_model *m);
const char *oip_datatype(elem type); /* NULL: none */
/* The fields of a bundle as ports: a tensor each, whose first dimension is the number of records. Numbers and
 * booleans are [n] of their type, tensors [n, …], texts, dates and times BYTES [n], bytes and the files of
 * images and audio BYTES [n]; lists and records of an answer are JSON texts, BYTES [n]. A bundle with a list
 * as an input: CHURON_UNSUPPORTED. Ports live in `memory`. */
MUST_USE status oip_fields_create(oip_model *out, const pipeline *p, const char *name, arena *memory,
                                  error *err);

/* Bodies of GET /v2/models/M and …/config. */
void oip_write_metadata(const oip_model *m, str *out);
void oip_write_config(const oip_model *m, str *out);
/* {"error": message} */
void oip_write_error(str *out, const char *message);

typedef struct oip_wanted { /* an output of the answer */
    size_t output;
    bool binary;
} oip_wanted;

/* One request, read. Zero-initialise. */
typedef struct oip_request {
    value *inputs; /* [n_inputs] */
    str id;
    bool has_id;
    oip_wanted *wanted; /* [n_wanted], in the answer's order */
    size_t n_wanted;
    bool *outputs;       /* [n_outputs], for graph_run */
    uint64_t timeout_us; /* parameters.timeout; 0: none */
    str sequence_id;     /* parameters.sequence_id, numbers as text */
    bool has_sequence, sequence_start, sequence_end, provenance;
} oip_request;

/* body[len] with a zero behind it; its first json_len bytes are JSON, the rest tensors in the order of the
 * inputs that have parameters.binary_data_size. Nothing of the body is borrowed. On an error *out is what
 * oip_request_free takes. */
MUST_USE status oip_request_read(oip_request *out, const oip_model *m, const char *body, size_t len,
                                 size_t json_len, error *err);
void oip_request_free(oip_request *r, const oip_model *m);

/* Of a bundle: the request's tensors as records, cells [*n][fields] in the arena, borrowing from the request.
 * A value that is no date or time: CHURON_INVALID, as for every record that is refused: "record I: …". */
MUST_USE status oip_fields_read(const oip_model *m, const pipeline *p, const oip_request *r, arena *a,
                                cell **records, size_t *n, error *err);
/* And n answers, all of them good, as tensors: outputs [n_outputs], freed by the caller. */
MUST_USE status oip_fields_write(const oip_model *m, const pipeline *p, const pipeline_answer *answers,
                                 size_t n, value *outputs, error *err);

/* Appends the answer. *json_len: bytes of its JSON when tensors follow in binary, else 0. `parameters`: JSON
 * of the answer's, or NULL. */
MUST_USE status oip_answer_write(str *out, size_t *json_len, const oip_model *m, const oip_request *r,
                                 const value *outputs, const char *parameters, error *err);

#endif

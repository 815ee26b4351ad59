/* onnx.h: an .onnx file as a checked description. Hostile bytes in, structures out; computes nothing.
 *
 * A bounded reader of the protobuf wire format over the mapped file: raw tensor data stays where it is (no
 * copy), everything else goes into one arena. Nesting depth, counts and sizes are bounded; every length is
 * checked against what is there; an error names the path (graph.node[12].attribute[0].t.dims[1]), what was
 * expected and what came. Fields of the newest published schema (IR 13 and the draft after it); unknown
 * fields are skipped as protobuf says. Immutable after open; any thread. Strings are zero-terminated, valid
 * UTF-8 where the schema says string. */
#ifndef FORMAT_ONNX_H
#define FORMAT_ONNX_H

#include "base/file.h"
#include "tensor/tensor.h"

typedef struct onnx_model onnx_model;
typedef struct onnx_graph onnx_graph;
typedef struct onnx_type onnx_type;

typedef struct onnx_bytes {
    const char *data; /* zero-terminated behind len */
    size_t len;
} onnx_bytes;

typedef struct onnx_dim {
    int64_t value;     /* >= 0, or -1: not said */
    const char *param; /* a name, or NULL */
} onnx_dim;

typedef enum onnx_kind {
    ONNX_UNKNOWN,
    ONNX_TENSOR,
    ONNX_SPARSE,
    ONNX_SEQUENCE,
    ONNX_MAP,
    ONNX_OPTIONAL,
    ONNX_OPAQUE
} onnx_kind;

struct onnx_type {
    onnx_kind kind;
    elem type; /* TENSOR, SPARSE: of elements; MAP: of keys */
    bool has_shape;
    size_t rank;
    const onnx_dim *dims;
    const onnx_type *of; /* SEQUENCE, OPTIONAL: of items; MAP: of values */
};

typedef struct onnx_value_info {
    const char *name;
    onnx_type type;
} onnx_value_info;

/* Elements as the file has them: in `raw`, or in one of the typed lists (decoded), or outside. */
typedef struct onnx_tensor {
    const char *name;
    elem type;
    size_t rank;
    const int64_t *dims;
    size_t count;    /* product, checked against TENSOR_MAX_BYTES */
    tensor contents; /* borrowed from the model; data NULL only if external and not loaded */
    bool external;
    const char *location;
    uint64_t offset, length; /* length UINT64_MAX: not said */
} onnx_tensor;

typedef struct onnx_sparse {
    onnx_tensor values, indices;
    size_t rank;
    const int64_t *dims;
} onnx_sparse;

typedef enum onnx_attr_type { /* AttributeProto.AttributeType */
                              ONNX_ATTR_FLOAT = 1,
                              ONNX_ATTR_INT,
                              ONNX_ATTR_STRING,
                              ONNX_ATTR_TENSOR,
                              ONNX_ATTR_GRAPH,
                              ONNX_ATTR_FLOATS,
                              ONNX_ATTR_INTS,
                              ONNX_ATTR_STRINGS,
                              ONNX_ATTR_TENSORS,
                              ONNX_ATTR_GRAPHS,
                              ONNX_ATTR_SPARSE,
                              ONNX_ATTR_SPARSES,
                              ONNX_ATTR_TYPE,
                              ONNX_ATTR_TYPES
} onnx_attr_type;

typedef struct onnx_attr {
    const char *name,
        *reference; /* reference: name of the function's attribute that it stands for, or NULL */
    onnx_attr_type type;
    size_t n; /* items of the list forms; 1 for single ones */
    union {
        float f;
        int64_t i;
        onnx_bytes s;
        const float *floats;
        const int64_t *ints;
        const onnx_bytes *strings;
        const onnx_tensor *tensors;      /* also the single one: [1] */
        const onnx_graph *const *graphs; /* likewise */
        const onnx_sparse *sparses;      /* likewise */
        const onnx_type *types;          /* likewise */
    };
} onnx_attr;

typedef struct onnx_node {
    const char *op, *domain, *name, *overload;  /* "" where absent; domain "ai.onnx" is said as "" */
    const char *const *inputs, *const *outputs; /* "": absent */
    size_t n_inputs, n_outputs, n_attrs;
    const onnx_attr *attrs;
} onnx_node;

struct onnx_graph {
    const char *name;
    const onnx_node *nodes;
    const onnx_value_info *inputs, *outputs, *values;
    const onnx_tensor *initializers;
    const onnx_sparse *sparse_initializers; /* named by their values tensor */
    size_t n_nodes, n_inputs, n_outputs, n_values, n_initializers, n_sparse;
};

typedef struct onnx_opset {
    const char *domain; /* ai.onnx: "" */
    int64_t version;
} onnx_opset;

typedef struct onnx_function {
    const char *name, *domain, *overload;
    const char *const *inputs, *const *outputs, *const *attributes; /* names */
    const onnx_attr *defaults;                                      /* attributes with a default */
    const onnx_node *nodes;
    const onnx_opset *opsets;
    size_t n_inputs, n_outputs, n_attributes, n_defaults, n_nodes, n_opsets;
} onnx_function;

typedef struct onnx_property {
    const char *key, *value;
} onnx_property;

struct onnx_model {
    int64_t ir_version, model_version;
    const char *producer_name, *producer_version, *domain;
    onnx_graph graph;
    const onnx_opset *opsets;
    const onnx_function *functions;
    const onnx_property *metadata;
    size_t n_opsets, n_functions, n_metadata;
    bool training_info; /* has TrainingInfoProto: not read further */
    uint64_t file_bytes;
};

/* External data is mapped too: its paths are confined to the model's folder (no absolute path, no "..", no
 * symbolic link that leaves it), its sizes checked against the file. */
MUST_USE status onnx_open(onnx_model **out, const char *path, error *err);
/* onnx_open for who looks at the description only: tensors of more than a few MiB whose elements would have
 * to be copied out of the file read as zeros. */
MUST_USE status onnx_describe(onnx_model **out, const char *path, error *err);
/* The same from memory, which must stay; external data is refused unless `folder` is given. */
MUST_USE status onnx_parse(onnx_model **out, const void *bytes, size_t n, const char *folder, error *err);
void onnx_close(onnx_model *m);
/* Elements in a mapped file leave the process's memory until they are read again. Those that had to be copied
 * out of it stay, or, if `forever`, are lost. `at` points anywhere: nothing else is touched. */
void onnx_let_go(onnx_model *m, const void *at, size_t bytes, bool forever);
/* The same for all pages of mapped files. */
void onnx_let_files_go(onnx_model *m);

/* One value file of a test case (TensorProto, SequenceProto or OptionalProto as `type` says). The caller
 * frees. */
MUST_USE status onnx_value_read(value *out, const char *path, const onnx_type *type, error *err);

#endif

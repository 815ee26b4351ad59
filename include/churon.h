/* churon.h: the public interface of Churon (추론), one library from a model file to its answer.
 *
 * Ownership: a function whose first argument is `T **out` gives the caller a new object, which the matching
 * close/free function takes back (NULL is allowed there). A returned pointer is borrowed; its lifetime is
 * written beside the function. Text is UTF-8 with an explicit length; nothing needs a terminating zero.
 *
 * Errors: every call that can fail returns a status and, if `err` is not NULL, fills it with one line that
 * names what was wrong, what was expected and what came. The library never prints, exits or aborts.
 *
 * Threads: models and graphs are immutable and may be used by many threads at once. A sequence or a session
 * belongs to one thread at a time. Sequences that generate at the same time on different threads are decoded
 * together, and each gets the same bytes as it would alone.
 */
#ifndef CHURON_H
#define CHURON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define CHURON_API      __attribute__((visibility("default")))
#define CHURON_MUST_USE __attribute__((warn_unused_result))
#else
#define CHURON_API
#define CHURON_MUST_USE
#endif

#define CHURON_VERSION "0.1.0"

/* The version of the library that is running, e.g. "0.1.0". Static. */
CHURON_API const char *churon_version(void);

/* ---- status and error ------------------------------------------------------------------------------- */

typedef enum churon_status {
    CHURON_OK = 0,
    CHURON_INVALID = 1,     /* an argument or a request is wrong; the message names the field */
    CHURON_CORRUPT = 2,     /* a file is damaged or contradicts itself */
    CHURON_UNSUPPORTED = 3, /* well-formed, but not something this version can do */
    CHURON_NOT_FOUND = 4,   /* no such file, model or name */
    CHURON_LIMIT = 5,       /* over a declared limit (context, size, steps); the message has both numbers */
    CHURON_NO_MEMORY = 6,   /* an allocation failed; nothing was changed */
    CHURON_IO = 7,          /* the operating system refused; the message has its reason */
    CHURON_BUSY = 8,        /* a bounded queue is full; try again later */
    CHURON_CANCELLED = 9,   /* stopped by the caller */
    CHURON_INTERNAL = 10    /* a defect of Churon itself */
} churon_status;

typedef struct churon_error {
    churon_status code;
    char message[508]; /* zero-terminated, one line */
} churon_error;

/* A short lower-case name, e.g. "corrupt". Static. */
CHURON_API const char *churon_status_name(churon_status status);

/* ---- model ------------------------------------------------------------------------------------------ */

typedef struct churon_model churon_model;

typedef struct churon_model_options {
    size_t size;            /* sizeof(churon_model_options) */
    uint32_t threads;       /* 0: physical cores */
    uint32_t context;       /* tokens a sequence may hold; 0: what the model was trained with */
    uint32_t max_sequences; /* sequences that may decode together; 0: 16 */
    uint64_t kv_memory; /* bytes for the KV cache; 0: what max_sequences of `context` need, at most half of
                           the memory that is free */
} churon_model_options;

typedef struct churon_model_info {
    size_t size;              /* sizeof(churon_model_info), set by the caller */
    const char *architecture; /* "llama"; borrowed, lives as long as the model */
    const char *name;         /* general.name of the file, or "" */
    uint64_t parameters;
    uint64_t weights_bytes; /* resident bytes of the packed weights */
    uint32_t n_vocab;
    uint32_t n_layer;
    uint32_t n_embd;
    uint32_t context;         /* tokens that a sequence may hold */
    uint32_t context_trained; /* tokens that the model was trained with */
    int32_t bos, eos;         /* -1: none */
    const char *isa;          /* instruction set in use: "ref", "avx2", "avx512" */
    uint32_t threads;
} churon_model_info;

/* Opens a model file (GGUF): maps it, checks every description in it, packs the weights for this machine.
 * `options` may be NULL. */
CHURON_API CHURON_MUST_USE churon_status churon_model_open(churon_model **out, const char *path,
                                                           const churon_model_options *options,
                                                           churon_error *err);
/* Gives the model back. Sequences keep it alive until they are closed. */
CHURON_API void churon_model_close(churon_model *model);
CHURON_API CHURON_MUST_USE churon_status churon_model_describe(const churon_model *model,
                                                               churon_model_info *info, churon_error *err);

/* ---- text ------------------------------------------------------------------------------------------- */

/* Text to token ids. Writes at most `capacity` ids and sets *n to the number that the text has; when that is
 * more than `capacity` the status is CHURON_LIMIT. `special`: add bos/eos as the model's file asks (no second
 * bos where the text begins with one), and read special tokens such as <|im_start|> in the text as one token
 * (otherwise they are plain text). */
CHURON_API CHURON_MUST_USE churon_status churon_tokenize(const churon_model *model, const char *text,
                                                         size_t text_len, bool special, int32_t *ids,
                                                         size_t capacity, size_t *n, churon_error *err);

/* Token ids to bytes. Sets *len to the number of bytes; CHURON_LIMIT when that is more than `capacity`.
 * Special tokens give no text unless `special` is set. */
CHURON_API CHURON_MUST_USE churon_status churon_detokenize(const churon_model *model, const int32_t *ids,
                                                           size_t n, bool special, char *text,
                                                           size_t capacity, size_t *len, churon_error *err);

typedef struct churon_message {
    const char *role; /* "system", "user", "assistant"; zero-terminated */
    const char *content;
    size_t content_len;
} churon_message;

/* Messages through the model's chat template, ending where the assistant's answer begins. Sets *len;
 * CHURON_LIMIT when that is more than `capacity`. Tokenize the result with `special` set. */
CHURON_API CHURON_MUST_USE churon_status churon_chat_prompt(const churon_model *model,
                                                            const churon_message *messages, size_t n,
                                                            char *text, size_t capacity, size_t *len,
                                                            churon_error *err);

/* ---- sequence --------------------------------------------------------------------------------------- */

typedef struct churon_sequence churon_sequence;

CHURON_API CHURON_MUST_USE churon_status churon_sequence_open(churon_sequence **out, churon_model *model,
                                                              churon_error *err);
CHURON_API void churon_sequence_close(churon_sequence *seq);

/* Appends tokens. They are computed by the next call of _logits or _generate. Over the context:
 * CHURON_LIMIT with both numbers, and nothing is appended. */
CHURON_API CHURON_MUST_USE churon_status churon_sequence_feed(churon_sequence *seq, const int32_t *ids,
                                                              size_t n, churon_error *err);
/* Tokens in the sequence, fed and generated. */
CHURON_API size_t churon_sequence_length(const churon_sequence *seq);
/* Forgets everything after the first `length` tokens (0: start anew). */
CHURON_API CHURON_MUST_USE churon_status churon_sequence_truncate(churon_sequence *seq, size_t length,
                                                                  churon_error *err);

/* Logits of the token after the last one: f32 [n_vocab], borrowed, valid until the next call on this
 * sequence. */
CHURON_API CHURON_MUST_USE churon_status churon_sequence_logits(churon_sequence *seq, const float **logits,
                                                                size_t *n_vocab, churon_error *err);

/* ---- generation ------------------------------------------------------------------------------------- */

/* Steps run in this order: logit bias, repetition, frequency and presence penalties, DRY, temperature, top-k,
 * typical, top-p, min-p, XTC, draw. Fill with churon_generate_options_init, then change what you need. */
typedef struct churon_generate_options {
    size_t size;          /* sizeof(churon_generate_options) */
    size_t max_tokens;    /* 0: up to the context */
    uint64_t seed;        /* a request's draws depend on nothing else */
    float temperature;    /* 0: greedy */
    uint32_t top_k;       /* 0: off */
    float top_p;          /* 1: off */
    float min_p;          /* 0: off */
    float typical_p;      /* 1: off */
    float repeat_penalty; /* 1: off; over the last `repeat_last_n` tokens */
    uint32_t repeat_last_n;
    float frequency_penalty; /* 0: off */
    float presence_penalty;  /* 0: off */
    float dry_multiplier;    /* 0: off */
    float dry_base;
    uint32_t dry_allowed_length;
    float xtc_probability; /* 0: off */
    float xtc_threshold;
    bool ignore_eos;
    const char *const *stop; /* strings that end the answer; not part of it */
    size_t n_stop;
} churon_generate_options;

typedef enum churon_finish {
    CHURON_FINISH_NONE = 0,
    CHURON_FINISH_STOP = 1,      /* end-of-sequence token, stop id or stop string */
    CHURON_FINISH_LENGTH = 2,    /* max_tokens or the end of the context */
    CHURON_FINISH_CANCELLED = 3, /* the callback said so */
    CHURON_FINISH_ERROR = 4
} churon_finish;

typedef struct churon_generation {
    size_t size; /* sizeof(churon_generation), set by the caller */
    churon_finish finish;
    size_t prompt_tokens; /* computed before the first token of the answer */
    size_t tokens;        /* generated */
    double prefill_s, decode_s;
} churon_generation;

/* Called with text as it becomes certain: whole characters, never part of a stop string. Return false to stop
 * within one step. Runs on the thread that called churon_sequence_generate. */
typedef bool (*churon_text_fn)(void *user, const char *text, size_t len);

CHURON_API void churon_generate_options_init(const churon_model *model, churon_generate_options *options);

/* Continues the sequence. The generated tokens become part of it. `options`, `on_text` and `result` may be
 * NULL. */
CHURON_API CHURON_MUST_USE churon_status churon_sequence_generate(churon_sequence *seq,
                                                                  const churon_generate_options *options,
                                                                  churon_text_fn on_text, void *user,
                                                                  churon_generation *result,
                                                                  churon_error *err);

/* ---- graphs (ONNX) ---------------------------------------------------------------------------------- */

/* A graph is immutable and may be used by many threads at once; a session, which holds what a run needs,
 * belongs to one thread at a time. Results depend neither on threads nor on what else runs. */
typedef struct churon_graph churon_graph;
typedef struct churon_session churon_session;

enum { CHURON_MAX_RANK = 12 };

/* Element types, with ONNX's numbers. Types of fewer than 8 bits take a byte an element. */
typedef enum churon_dtype {
    CHURON_NO_DTYPE = 0, /* no tensor: a sequence, a map, an optional, or absent */
    CHURON_F32 = 1,
    CHURON_U8 = 2,
    CHURON_I8 = 3,
    CHURON_U16 = 4,
    CHURON_I16 = 5,
    CHURON_I32 = 6,
    CHURON_I64 = 7,
    CHURON_STRING = 8, /* churon_text */
    CHURON_BOOL = 9,   /* a byte, 0 or 1 */
    CHURON_F16 = 10,
    CHURON_F64 = 11,
    CHURON_U32 = 12,
    CHURON_U64 = 13,
    CHURON_C64 = 14,  /* float[2] */
    CHURON_C128 = 15, /* double[2] */
    CHURON_BF16 = 16  /* 17 and up: float8 and the types below 8 bits, as ONNX numbers them */
} churon_dtype;

typedef struct churon_text { /* an element of a string tensor */
    const char *data;
    size_t len;
} churon_text;

typedef struct churon_graph_options {
    size_t size;         /* sizeof(churon_graph_options) */
    uint32_t threads;    /* of each session; 0: physical cores */
    uint64_t max_memory; /* bytes that a run may hold; 0: half of what is free */
} churon_graph_options;

typedef struct churon_port { /* an input or an output */
    size_t size;             /* sizeof(churon_port), set by the caller */
    const char *name;        /* borrowed, as are dim_names; live as long as the graph */
    churon_dtype dtype;
    bool has_rank; /* false: any shape */
    uint32_t rank;
    int64_t dims[CHURON_MAX_RANK];          /* -1: open */
    const char *dim_names[CHURON_MAX_RANK]; /* of open dimensions, or NULL */
} churon_port;

/* A dense tensor, elements in row-major order. Nothing is owned by the struct. Zero-initialise. */
typedef struct churon_tensor {
    churon_dtype dtype;
    uint32_t rank; /* 0: a scalar, one element */
    int64_t dims[CHURON_MAX_RANK];
    void *data;   /* aligned to its elements */
    size_t bytes; /* that data holds; of strings, those of the churon_text array */
    bool lent;    /* set by churon_session_run: data is the session's, and nobody's after its next run */
} churon_tensor;

typedef struct churon_run_options {
    size_t size;        /* sizeof(churon_run_options) */
    double timeout_s;   /* 0: none. Over it: CHURON_LIMIT, inside a node too */
    const bool *wanted; /* [outputs]; NULL: every output that is a tensor */
} churon_run_options;

/* Opens an .onnx file: checks all of it, infers shapes, packs weights. `options` may be NULL. Operators that
 * this version lacks: CHURON_UNSUPPORTED, all of them listed. */
CHURON_API CHURON_MUST_USE churon_status churon_graph_open(churon_graph **out, const char *path,
                                                           const churon_graph_options *options,
                                                           churon_error *err);
/* Gives the graph back. Sessions keep it alive until they are closed. */
CHURON_API void churon_graph_close(churon_graph *graph);

CHURON_API size_t churon_graph_inputs(const churon_graph *graph); /* their number; 0 for NULL */
CHURON_API size_t churon_graph_outputs(const churon_graph *graph);
CHURON_API CHURON_MUST_USE churon_status churon_graph_input(const churon_graph *graph, size_t i,
                                                            churon_port *port, churon_error *err);
CHURON_API CHURON_MUST_USE churon_status churon_graph_output(const churon_graph *graph, size_t i,
                                                             churon_port *port, churon_error *err);

CHURON_API CHURON_MUST_USE churon_status churon_session_open(churon_session **out, churon_graph *graph,
                                                             churon_error *err);
CHURON_API void churon_session_close(churon_session *session);

/* Runs the graph. inputs [churon_graph_inputs] in the graph's order are borrowed during the call and never
 * written; dtype CHURON_NO_DTYPE leaves an optional input out. outputs [churon_graph_outputs]:
 * - data not NULL: the caller's memory of `bytes`, into which the elements are copied. Too little of it:
 *   CHURON_LIMIT; dtype, dims and bytes then say what it takes, and no data was written.
 * - data NULL, or lent by a run before: data is lent by the session until its next run or close.
 * Either way dtype, rank, dims and bytes are set: put the room back into bytes before the next run. Outputs
 * that are not wanted or are no tensors get CHURON_NO_DTYPE and 0 bytes. Strings' bytes are always lent. */
CHURON_API CHURON_MUST_USE churon_status churon_session_run(churon_session *session,
                                                            const churon_tensor *inputs,
                                                            churon_tensor *outputs,
                                                            const churon_run_options *options,
                                                            churon_error *err);

/* ---- pipelines (bundles) ---------------------------------------------------------------------------- */
/* A bundle: models, input schema and steps as one. Immutable, for many threads; its sessions belong to one
 * thread at a time. In libraries built with CHURON_PIPELINE only. */
typedef struct churon_pipeline churon_pipeline;
typedef struct churon_pipeline_session churon_pipeline_session;

typedef enum churon_kind {
    CHURON_MISSING,
    CHURON_FLAG,   /* .flag */
    CHURON_INT,    /* .integer; of uint64: its bits */
    CHURON_FLOAT,  /* .number; of float32: one that float32 has */
    CHURON_TEXT,   /* .text [n], UTF-8 */
    CHURON_BYTES,  /* .text [n]; as an input of an image or audio field: a file's */
    CHURON_DATE,   /* .integer: days since 1970-01-01 */
    CHURON_TIME,   /* .integer: microseconds since 1970-01-01T00:00:00Z */
    CHURON_IMAGE,  /* .tensor: u8 [height, width, channels] */
    CHURON_AUDIO,  /* .tensor: f32 [channels, samples], and .rate */
    CHURON_TENSOR, /* .tensor */
    CHURON_LIST,   /* .items [n] */
    CHURON_RECORD  /* .items [n], in the order of its type; outputs only */
} churon_kind;

typedef struct churon_value { /* owns nothing */
    churon_kind kind;
    size_t n;
    union {
        bool flag;
        int64_t integer;
        double number;
        const char *text;
        const churon_tensor *tensor;
        const struct churon_value *items;
    };
    double rate; /* AUDIO: samples a second */
} churon_value;

typedef struct churon_field { /* an input or an output; strings live as long as the pipeline */
    size_t size;              /* sizeof(churon_field), set by the caller */
    const char *name;
    const char *type; /* "float32 [3, 224, 224]", "text", "list of record {label: text, score: float32}" */
    churon_kind kind;
    churon_dtype dtype; /* of INT, FLOAT, TENSOR, IMAGE, AUDIO */
    bool required;      /* an input that may not be MISSING */
} churon_field;

typedef struct churon_pipeline_info { /* strings live as long as the pipeline */
    size_t size;                      /* sizeof(churon_pipeline_info), set by the caller */
    const char *name, *version, *task;
    const char *digest; /* of all the bundle's files: SHA-256 in hex */
    size_t inputs, outputs;
} churon_pipeline_info;

typedef struct churon_answer { /* what became of one record; lent until the session's next run */
    churon_status status;
    const char *message;         /* unless CHURON_OK: all faults of the record, one line */
    const churon_value *outputs; /* [info.outputs]; all answers' in one array */
} churon_answer;

/* A folder with bundle.yaml, a .churon file, a model file, or a name of the store. threads: a session's. */
CHURON_API CHURON_MUST_USE churon_status churon_pipeline_open(churon_pipeline **out, const char *model,
                                                              uint32_t threads, churon_error *err);
CHURON_API void churon_pipeline_close(churon_pipeline *p); /* sessions keep it alive */
CHURON_API CHURON_MUST_USE churon_status churon_pipeline_describe(const churon_pipeline *p,
                                                                  churon_pipeline_info *info,
                                                                  churon_error *err);
CHURON_API CHURON_MUST_USE churon_status churon_pipeline_field(const churon_pipeline *p, bool output,
                                                               size_t i, churon_field *field,
                                                               churon_error *err);

/* `sequence`: its records, one a run, share the state that the manifest names. */
CHURON_API CHURON_MUST_USE churon_status churon_pipeline_session_open(churon_pipeline_session **out,
                                                                      churon_pipeline *p, bool sequence,
                                                                      churon_error *err);
CHURON_API void churon_pipeline_session_close(churon_pipeline_session *session);

/* inputs [n][info.inputs], borrowed during the call, tensors not copied; answers [n]. A record that fails
 * does not disturb the others; the status is that of the run. timeout_s 0: none. */
CHURON_API CHURON_MUST_USE churon_status churon_pipeline_run(churon_pipeline_session *session,
                                                             const churon_value *inputs, size_t n,
                                                             double timeout_s, churon_answer *answers,
                                                             churon_error *err);
/* JSON to JSON: a record (an object) gives its answer, as HTTP gives it; a list of records a list, with
 * {"error": message} for a record that failed. *answer [*answer_len] is lent until the next run. */
CHURON_API CHURON_MUST_USE churon_status churon_pipeline_run_json(churon_pipeline_session *session,
                                                                  const char *json, size_t len,
                                                                  double timeout_s, const char **answer,
                                                                  size_t *answer_len, churon_error *err);

#ifdef __cplusplus
}
#endif
#endif

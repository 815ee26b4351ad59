/* cell.h: the values of a record, and their types.
 *
 * A record is named values in and named values out. While it is inside a pipeline each value is a cell; what
 * a cell may be at each place is known when the bundle is loaded, as its type. A record's cells live in the
 * arena of the run that made them: cells are copied by assignment, nothing is freed alone.
 *
 * Types are immutable and live as long as the pipeline that they belong to. */
#ifndef PIPELINE_CELL_H
#define PIPELINE_CELL_H

#include "base/arena.h"
#include "base/json_out.h"
#include "tensor/tensor.h"

typedef enum cell_kind {
    CELL_MISSING, /* no value: only where the type is optional */
    CELL_BOOL,
    CELL_INT,
    CELL_FLOAT,
    CELL_TEXT,  /* UTF-8 */
    CELL_BYTES, /* any bytes */
    CELL_DATE,  /* days since 1970-01-01, proleptic Gregorian */
    CELL_TIME,  /* microseconds since 1970-01-01T00:00:00Z */
    CELL_IMAGE, /* a tensor u8 [height, width, channels] */
    CELL_AUDIO, /* a tensor f32 [channels, samples] and its rate */
    CELL_TENSOR,
    CELL_LIST,
    CELL_RECORD,
    CELL_KINDS
} cell_kind;

typedef struct cell cell;
struct cell {
    cell_kind kind;
    uint32_t n; /* LIST: items; RECORD: members */
    union {
        bool flag;
        int64_t integer;   /* INT, DATE, TIME */
        double number;     /* FLOAT; of a float32 type: a number that float32 has */
        const tensor *t;   /* IMAGE, AUDIO, TENSOR; elements borrowed from the arena or from the caller */
        const cell *items; /* LIST [n]; RECORD [n]: in the order of its type's members */
    };
    union {
        size_t len;  /* TEXT, BYTES */
        double rate; /* AUDIO: samples a second */
    };
    const char *bytes; /* TEXT, BYTES: [len]; no terminating zero */
};

typedef enum cell_order { ORDER_RGB, ORDER_BGR, ORDER_GRAY, ORDER_RGBA } cell_order;

typedef struct cell_type cell_type;
typedef struct cell_member {
    const char *name;
    const cell_type *type;
} cell_member;

struct cell_type {
    cell_kind kind;
    bool optional; /* may be missing */
    elem element; /* INT: I8 … U64 (64: default); FLOAT: F32 or F64; TENSOR, IMAGE, AUDIO: of the elements */
    cell_order order;              /* IMAGE */
    bool has_rank;                 /* TENSOR: false: any shape */
    uint32_t rank;                 /* TENSOR */
    int64_t dims[TENSOR_MAX_RANK]; /* TENSOR, IMAGE (height, width, channels), AUDIO (channels, samples); -1:
                                      any */
    double rate;                   /* AUDIO: samples a second that are certain; 0: any */
    const cell_type *of;           /* LIST */
    const cell_member *members;    /* RECORD [n_members] */
    size_t n_members;
};

/* Ready-made types: static. */
extern const cell_type CELL_TYPE_BOOL, CELL_TYPE_INT, CELL_TYPE_DOUBLE, CELL_TYPE_TEXT, CELL_TYPE_BYTES;

/* "float32 [3, 224, 224]", "list of text", "int64 or missing": for messages. Into buf, which is returned. */
const char *cell_type_text(const cell_type *t, char *buf, size_t room);
/* A number: BOOL is none, INT and FLOAT are. */
static inline bool cell_type_is_number(const cell_type *t) {
    return t->kind == CELL_INT || t->kind == CELL_FLOAT;
}
/* Value of an INT, FLOAT or BOOL (0, 1) as a double. */
static inline double cell_number(const cell *c) {
    return c->kind == CELL_INT ? (double)c->integer : c->kind == CELL_BOOL ? (double)c->flag : c->number;
}

/* Equal as types of a model's port: kind, element, rank and dims where both know them. */
bool cell_type_accepts(const cell_type *wanted, const cell_type *got);

/* ---- making cells ----------------------------------------------------------------------------------- */

static inline cell cell_of_int(int64_t v) {
    return (cell){.kind = CELL_INT, .integer = v};
}
static inline cell cell_of_float(double v) {
    return (cell){.kind = CELL_FLOAT, .number = v};
}
static inline cell cell_of_bool(bool v) {
    return (cell){.kind = CELL_BOOL, .flag = v};
}
static inline cell cell_of_text(const char *bytes, size_t n) { /* borrows */
    return (cell){.kind = CELL_TEXT, .len = n, .bytes = bytes};
}
/* A new tensor in the arena, elements not initialised, 64-byte aligned. Checks the shape as tensor_count
 * does; `what` names it in the error. *data is where its elements go. For strings use tensor_string views. */
MUST_USE status cell_new_tensor(cell *out, cell_kind kind, arena *a, elem type, size_t rank,
                                const int64_t *dims, void **data, const char *what, error *err);
/* A view of memory that outlives the run's use of it. */
MUST_USE status cell_borrow_tensor(cell *out, cell_kind kind, arena *a, const tensor *t, error *err);
/* A list of n items, all missing; *items are the caller's to fill. */
MUST_USE status cell_new_list(cell *out, arena *a, size_t n, cell **items, error *err);
/* A copy with all that it refers to in another arena (state of a sequence, traces). */
MUST_USE status cell_copy(cell *out, const cell *from, arena *a, error *err);

/* ---- as JSON ---------------------------------------------------------------------------------------- */

/* Numbers as base/json_out writes them (float32 with the digits that float32 needs); NaN and infinities as
 * "NaN", "Infinity", "-Infinity"; bytes as {"b64": "…"}; images as {"shape", "dtype", "b64"} of their raw
 * elements; dates and times as ISO 8601 text; missing as null. */
void cell_write(json_out *j, const char *key, const cell_type *type, const cell *c);

#endif

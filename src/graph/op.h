/* op.h: the operator table: what an operator is called, what it takes, how its shapes follow, what it
 * computes.
 *
 * One row an operator and version range. Adding an operator means one row in the table of its file under ops/
 * and the functions that the row names; nothing else knows it. The shape rule is written once and used twice:
 * when a graph is loaded, with dimensions that may be symbols, and when it runs, with numbers; so what was
 * inferred and what is computed cannot differ. Type constraints are checked by the loader from the row: a
 * kernel never sees a type that its row does not name.
 *
 * Attributes keep the semantics of the version that the model asks for: a row per version range with another
 * meaning, never an approximation. */
#ifndef GRAPH_OP_H
#define GRAPH_OP_H

#include "base/pool.h"
#include "base/stop.h"
#include "format/onnx.h"
#include "kernel/kernel.h"
#include "tensor/tensor.h"

typedef struct op_def op_def;
typedef struct op_node op_node;     /* a node of a loaded graph, as its operator sees it */
typedef struct op_shapes op_shapes; /* shape inference of one node */
typedef struct op_run op_run;       /* one execution of one node */
typedef struct op_pack op_pack;     /* the packing of one node's weights */

/* ---- dimensions ------------------------------------------------------------------------------------- */

/* A dimension, or a value of a shape computation: DIM_IS_KNOWN ones are numbers; others are names of
 * expressions that the graph keeps. Arithmetic gives a number where both sides are, a simplified expression
 * otherwise. Equal names are equal expressions at inference; at run time only numbers exist and every
 * equality is checked on them. */
typedef int64_t dim;
#define DIM_SYMBOL_BASE INT64_MIN /* symbol k is DIM_SYMBOL_BASE + k, k < 2^32 */
static inline bool dim_known(dim d) {
    return d >= DIM_SYMBOL_BASE + ((int64_t)1 << 32);
}
/* A number as a position, a step or a size: those that would be taken for symbols become the least number
 * that is none, which lies as far before every array as they do. Not for data: they would change. */
static inline dim dim_position(int64_t v) {
    return dim_known(v) ? v : DIM_SYMBOL_BASE + ((int64_t)1 << 32);
}

dim dim_fresh(op_shapes *s); /* a new symbol: nothing is known about it (data-dependent dimensions) */
dim dim_add(op_shapes *s, dim a, dim b);
dim dim_sub(op_shapes *s, dim a, dim b);
dim dim_mul(op_shapes *s, dim a, dim b);
dim dim_div_floor(op_shapes *s, dim a, dim b); /* b is not 0 */
dim dim_div_ceil(op_shapes *s, dim a, dim b);
dim dim_max(op_shapes *s, dim a, dim b);
dim dim_min(op_shapes *s, dim a, dim b);

/* ---- the row ---------------------------------------------------------------------------------------- */

enum { OP_MAX_VARS = 6 };

/* A set of types that one letter of a signature stands for. */
typedef struct op_var {
    char letter; /* 'T', 'U', … upper case */
    elem_set types;
} op_var;

enum op_flags {
    OP_VIEW = 1, /* output 0 has input 0's elements in their order: it shares them (Reshape, Squeeze, …) */
    OP_INPLACE =
        2, /* output 0 may be written over input 0 when that has the same size and is not needed again */
    OP_INPLACE_1 = 4,     /* the same for input 1 */
    OP_RANDOM = 8,        /* no two runs are alike unless seeded: never folded, never merged */
    OP_OWN_INFERENCE = 16 /* types too are the business of infer (control flow, sequences, optionals) */
};

struct op_def {
    const char *domain, *name; /* ai.onnx: "" */
    int since, until;          /* operator-set versions [since, until]; until 0: still the newest */
    uint32_t flags;
    /* Types, one character a place: a letter of `vars`; '#' any tensor; 'i' int64, 'b' bool, 'f' float32, 's'
     * string;
     * '?' a value of any kind (infer checks); after a letter '*': any number more of the same type, '+': any
     * number more, each of its own type from the set; '=' before '>' : what follows in the inputs is
     * optional. Outputs follow
     * '>'; a digit k for an output: the type of input k; '@': infer sets the type.
     *   Add "TT>T"   Concat "T*>T"   Clip "T=TT>T"   Shape "#>i"   Cast "#>@"   Where "bTT>T"   Identity
     * "?>@" */
    const char *signature;
    op_var vars[OP_MAX_VARS];
    /* Reads and checks the attributes once, when the graph is loaded; may keep a state (op_set_state) that
     * release frees; may pack constant inputs. NULL: no attributes. An attribute that prepare does not ask
     * for is refused. */
    status (*prepare)(op_node *n, error *err);
    void (*release)(void *state);
    /* Sets the shape of every output. */
    status (*infer)(op_shapes *s, error *err);
    /* Optional: values of a small int64 output (at most OP_MAX_VALUES) from those of the inputs, at
     * inference. */
    status (*propagate)(op_shapes *s, error *err);
    /* Computes the outputs. */
    status (*run)(op_run *r, error *err);
};

enum { OP_MAX_VALUES = 64 };

/* Of operators that bring constant weights into the order that run reads, once, when the graph is final
 * (weights.h); folding and inference come before that. */
typedef struct op_packing {
    /* The constant that this node still has to pack, NULL if there is none. The state borrows it until then;
     * a node that has it among its inputs too keeps it, any other lets go of it. */
    const tensor *(*source)(const op_node *n, const void *state);
    status (*pack)(op_node *n, op_pack *p, error *err);
} op_packing;

/* A file's table, listed in ops/ops.h. */
typedef struct op_table {
    const op_def *rows;
    size_t n;
} op_table;

/* The row for an operator of a domain whose operator set has this version; NULL if there is none. */
const op_def *op_find(const char *domain, const char *name, int64_t version);
/* Versions that exist in the table for a name (for "expected" in errors): appended as text. */
void op_versions(const char *domain, const char *name, str *out);

/* ---- in prepare ------------------------------------------------------------------------------------- */

int64_t op_version(const op_node *n);      /* of the operator set that the model asks for */
const char *op_name_of(const op_node *n);  /* of the node */
const char *op_operator(const op_node *n); /* "Add" */
size_t op_n_inputs(const op_node *n);      /* with absent ones in the middle */
size_t op_n_outputs(const op_node *n);
bool op_has_input(const op_node *n, size_t i);
bool op_has_output(const op_node *n, size_t i);
elem op_input_type(const op_node *n, size_t i); /* ELEM_NONE: absent or no tensor */
elem op_output_type(const op_node *n, size_t i);
const tensor *op_constant(const op_node *n, size_t i); /* input i if it is constant, else NULL */

/* Attributes: the value, or the default if absent; a wrong type, or a value out of [least, most], is an error
 * that names node, operator and attribute. The lists and strings are borrowed from the model. */
MUST_USE status op_attr_int(op_node *n, const char *name, int64_t absent, int64_t least, int64_t most,
                            int64_t *out, error *err);
MUST_USE status op_attr_bool(op_node *n, const char *name, bool absent, bool *out, error *err);
MUST_USE status op_attr_float(op_node *n, const char *name, float absent, float *out, error *err);
MUST_USE status op_attr_ints(op_node *n, const char *name, const int64_t **out, size_t *count,
                             error *err); /* absent: NULL, 0 */
MUST_USE status op_attr_floats(op_node *n, const char *name, const float **out, size_t *count, error *err);
MUST_USE status op_attr_string(op_node *n, const char *name, const char *absent, const char **out,
                               error *err);
MUST_USE status op_attr_strings(op_node *n, const char *name, const onnx_bytes **out, size_t *count,
                                error *err);
/* One of the strings of a NULL-terminated list: its number; absent: `absent`. */
MUST_USE status op_attr_choice(op_node *n, const char *name, const char *const *choices, int absent, int *out,
                               error *err);
MUST_USE status op_attr_tensor(op_node *n, const char *name, const tensor **out,
                               error *err); /* absent: NULL */
MUST_USE status op_attr_type(op_node *n, const char *name, const onnx_type **out, error *err);
bool op_attr_present(const op_node *n, const char *name);
void op_attr_ignore(op_node *n, const char *name); /* it has no meaning for the answer */
/* Number of the body that a graph attribute holds, for op_body_*; an error if it is absent. */
MUST_USE status op_attr_body(op_node *n, const char *name, size_t *out, error *err);

void op_set_state(op_node *n, void *state);                 /* freed by the row's release */
void op_set_packing(op_node *n, const op_packing *packing); /* rows of the table; of passes: weights.c */
/* error_set with the node's name, operator and line in front. Returns code. */
status op_error(const op_node *n, error *err, status code, const char *fmt, ...) PRINTF_LIKE(4, 5);

/* ---- in pack ---------------------------------------------------------------------------------------- */

void *pack_state(const op_pack *p);
/* Memory for what is packed: 64-byte aligned, not initialised, the program's, which frees it. Weights lie
 * there one behind the other, in blocks of 2 to 16 MiB on huge pages where the system grants them, since a
 * processor that walks page tables for every 4 KiB reads slower; larger ones on ordinary pages, since
 * hundreds of megabytes of huge pages took the system seconds to find. NULL: no memory. */
void *pack_memory(op_pack *p, size_t bytes);
/* Before all of these bytes, which nobody has written yet, are written: pages at once cost a third of pages
 * one by one. */
void pack_expect(const op_pack *p, void *to, size_t bytes);
/* Bytes of the constant that this packing has read and will not read again: their memory may go. Large
 * matrices say so piece by piece; what was not said is said at the end. */
void pack_done(op_pack *p, const void *from, size_t bytes);
/* fn for all of [0, n) on the threads of the graph, if so many bytes of weights pay for it. */
void pack_parallel(op_pack *p, size_t n, size_t bytes, void (*fn)(void *ctx, size_t from, size_t to),
                   void *ctx);

/* What elements are to be multiplied with, one factor after the other; each product is rounded to f32. Row r,
 * of `each` elements, is multiplied with by[r % n]. */
typedef struct op_factors op_factors;
struct op_factors {
    const op_factors *before; /* NULL: none */
    const double *by;
    size_t n, rows, each;
};
void factors_multiply(const op_factors *f, const float *from, size_t row0, size_t row1, float *to);
/* All rows into the packing's scratch memory; NULL: no memory. */
const float *pack_multiplied(op_pack *p, const op_factors *f, const float *from);

/* ---- in infer and propagate ------------------------------------------------------------------------- */

const op_node *shapes_node(const op_shapes *s);
void *shapes_state(const op_shapes *s);
bool shapes_running(const op_shapes *s); /* every dimension is a number */
/* False if the rank is not known at inference (never at run time). dims borrowed until the end of infer. */
bool shapes_in(const op_shapes *s, size_t i, size_t *rank, const dim **dims);
elem shapes_in_type(const op_shapes *s, size_t i);
/* The elements of an int64 or int32 input that holds a shape, axes, …: false if they are not known (at run
 * time they always are). May be symbols at inference. Numbers that would be taken for symbols come as
 * dim_position has them, and then shapes_out_values, whose values must be exact, says nothing. */
bool shapes_in_values(const op_shapes *s, size_t i, size_t *n, const dim **values);
/* False: some number was changed to be a dim, by shapes_in_values or by arithmetic that left 62 bits. */
bool shapes_exact(const op_shapes *s);
/* shapes_in_values of positions that do not become output values themselves: shapes_out_values is not held
 * back. */
bool shapes_in_positions(const op_shapes *s, size_t i, size_t *n, const dim **values);
/* The elements of an input of any type: the constant at inference, the tensor at run time; NULL if it is not
 * known or absent. */
const tensor *shapes_in_tensor(const op_shapes *s, size_t i);
MUST_USE status shapes_out(op_shapes *s, size_t i, size_t rank, const dim *dims,
                           error *err);                  /* checks limits */
void shapes_out_unknown(op_shapes *s, size_t i);         /* rank unknown (at inference only) */
void shapes_out_type(op_shapes *s, size_t i, elem type); /* for '@' */
void shapes_out_values(op_shapes *s, size_t i, size_t n, const dim *values); /* propagate */
/* Two dimensions must be equal. Unequal numbers are an error naming both; at inference the better known one
 * goes to *out (may be NULL). */
MUST_USE status shapes_same(op_shapes *s, dim a, dim b, const char *what, dim *out, error *err);
/* Numpy's broadcast of inputs; usual rules for infer: */
MUST_USE status shapes_broadcast(op_shapes *s, size_t from, size_t to, size_t *rank, dim *dims,
                                 error *err);              /* unknown: rank SIZE_MAX */
MUST_USE status infer_same(op_shapes *s, error *err);      /* output 0 as input 0 */
MUST_USE status infer_broadcast(op_shapes *s, error *err); /* output 0: broadcast of all inputs */
/* axis in [-rank, rank-1] to [0, rank-1]; the error names the attribute. */
MUST_USE status op_axis(const op_node *n, int64_t axis, size_t rank, const char *name, size_t *out,
                        error *err);

/* For OP_OWN_INFERENCE: whole types, nested ones included. */
MUST_USE status shapes_in_value_type(const op_shapes *s, size_t i, const onnx_type **out, error *err);
MUST_USE status shapes_out_value_type(op_shapes *s, size_t i, const onnx_type *type, error *err); /* copied */

/* ---- in run ----------------------------------------------------------------------------------------- */

const op_node *run_node(const op_run *r);
void *run_state(const op_run *r);
pool *run_pool(
    const op_run *r); /* one member if the model runs alone; kernels decide by work whether to use it */
const kernels *run_kernels(const op_run *r);
const tensor *run_in(const op_run *r, size_t i); /* NULL if absent */
/* Output with the shape of infer, memory ready, not initialised; NULL *out if the output is absent. */
MUST_USE status run_out(op_run *r, size_t i, tensor **out, error *err);
/* Output whose shape depends on data. */
MUST_USE status run_out_shaped(op_run *r, size_t i, elem type, size_t rank, const int64_t *dims, tensor **out,
                               error *err);
/* Values of other kinds. The output takes over the reference of v. */
const value *run_in_value(const op_run *r, size_t i);
void run_out_value(op_run *r, size_t i, value v);
void run_out_tensor(op_run *r, size_t i,
                    tensor t); /* takes over the reference: for results that exist already */
/* 64-byte aligned scratch until the end of this run; not initialised. */
MUST_USE status run_scratch(op_run *r, size_t bytes, void **out, error *err);
/* Seconds left, cancellation: loops that may be long ask now and then. CHURON_LIMIT or CHURON_CANCELLED. */
MUST_USE status run_check(op_run *r, error *err);
/* The same for loops that cannot fail, on any thread: they ask stop_now of it and just leave; the executor
 * throws the outputs away and says why. NULL: the run has no end set. */
stop_flag *run_stop(const op_run *r);
/* Runs body `body` (op_attr_body) with its formal inputs; captured values are bound by the executor. Inputs
 * stay the caller's; outputs are the caller's to free. */
size_t run_body_n_inputs(const op_run *r, size_t body);
size_t run_body_n_outputs(const op_run *r, size_t body);
MUST_USE status run_body(op_run *r, size_t body, const value *inputs, size_t n, value *outputs,
                         size_t n_outputs, error *err);
/* Splits [0, n) over the pool if `work` (about nanoseconds in all) pays for it; fn gets its part, or its part
 * in pieces if the run may end early. The parts differ with the thread count and the pieces with the work:
 * what an element gets must not. When the run ends early some of [0, n) is left out: run_check before
 * anything that was computed is used as an index or a size. */
void run_parallel(op_run *r, size_t n, double work, void (*fn)(void *ctx, size_t from, size_t to), void *ctx);
status run_error(const op_run *r, error *err, status code, const char *fmt, ...) PRINTF_LIKE(4, 5);

#endif

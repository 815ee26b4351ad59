/* template_internal.h: what the files template_*.c share. Nothing outside src/text/template_*.c includes it.
 *
 * The way of a template: template_lex.c cuts the source into tokens, template_parse.c and template_expr.c
 * make a tree, template_scope.c resolves every name to a slot in the way that Jinja2's compiler does, and
 * template_exec.c walks the tree. Values are 16 bytes and passed by value; what they point to lives in an
 * arena (the template's, the context's or the rendering's) and is never changed once it can be seen by a
 * template, namespaces, cyclers and the like excepted.
 *
 * Functions that can fail return a status and take the rendering as first argument; their message begins with
 * the line that is being evaluated. */
#ifndef TEXT_TEMPLATE_INTERNAL_H
#define TEXT_TEMPLATE_INTERNAL_H

#include "base/mem.h"
#include "base/str.h"
#include "text/template.h"

#define TPL_MAX_SOURCE  ((size_t)4 << 20)   /* bytes of a template */
#define TPL_MAX_NESTING 200                 /* depth of one expression or of blocks in blocks */
#define TPL_MAX_WORK    ((size_t)100000000) /* steps of the analysis of names */
#define TPL_MAX_MEMORY  ((size_t)256 << 20) /* bytes that one rendering may take beside its output */
#define TPL_MAX_DEPTH   1000                /* default depth of a rendering */
#define TPL_MAX_RANGE   100000              /* items of a range(), as in Jinja2's sandbox */

/* ---- values ----------------------------------------------------------------------------------------- */

typedef enum tpl_kind {
    TPL_MISSING = 0, /* an empty slot; never seen by a template */
    TPL_UNDEFINED,
    TPL_NONE,
    TPL_BOOL,
    TPL_INT,
    TPL_FLOAT,
    TPL_STRING,
    TPL_LIST,
    TPL_TUPLE,
    TPL_DICT,
    TPL_RANGE,
    TPL_VIEW, /* dict.keys(), .values(), .items(): `sub` says which, `dict` of what */
    TPL_ITER, /* a generator: used up by reading */
    TPL_NAMESPACE,
    TPL_MACRO,
    TPL_FUNCTION, /* a global function: `sub` says which */
    TPL_METHOD,   /* a method bound to its object */
    TPL_LOOP,
    TPL_CYCLER,
    TPL_JOINER
} tpl_kind;

enum { TPL_KEYS, TPL_VALUES, TPL_ITEMS }; /* sub of TPL_VIEW */

enum {
    TPL_ASCII = 1,  /* string: every byte is below 0x80 (when not set: unknown) */
    TPL_MARKUP = 2, /* string: marked safe; adding to it escapes */
    TPL_GROUP = 4   /* tuple: made by groupby, has .grouper and .list */
};

typedef struct tpl_list {
    size_t n, cap;
    tvalue *v;
    tarena *arena; /* where it grows */
} tpl_list;

typedef struct tpl_dict tpl_dict;
typedef struct tpl_iter tpl_iter;
typedef struct tpl_node tpl_node;
typedef struct tpl_frame tpl_frame;
typedef struct tpl_rt tpl_rt;

typedef struct tpl_range {
    int64_t start, stop, step, n;
} tpl_range;

struct tvalue {
    uint8_t kind, flags;
    uint16_t sub;
    uint32_t len; /* bytes of a string */
    union {
        bool b;
        int64_t i;
        double f;
        const char *s; /* not zero-terminated */
        tpl_list *list;
        tpl_dict *dict; /* also of a namespace and a view */
        const tpl_range *range;
        const struct tpl_undefined *undefined;
        tpl_iter *iter;
        struct tpl_macro *macro;
        const struct tpl_bound *bound;
        struct tpl_loop *loop;
        struct tpl_cycler *cycler;
        struct tpl_joiner *joiner;
    };
};

typedef struct tpl_undefined {
    const char *hint; /* the whole message, or NULL: made from obj and name */
    tvalue obj;       /* TPL_MISSING: a variable */
    tvalue name;
} tpl_undefined;

typedef struct tpl_macro {
    const tpl_node *def;
    tpl_frame *closure;
} tpl_macro;

typedef struct tpl_bound {
    tvalue self;
    const struct tpl_method *method; /* NULL: loop.cycle and the like, `sub` of the value says which */
} tpl_bound;

typedef struct tpl_cycler {
    tpl_list *items;
    size_t pos;
} tpl_cycler;

typedef struct tpl_joiner {
    tvalue sep;
    bool used;
} tpl_joiner;

typedef struct tpl_entry {
    tvalue key, value;
    uint32_t hash;
} tpl_entry;

struct tpl_dict {
    size_t n, cap;
    tpl_entry *entries; /* in the order of insertion */
    uint32_t *index;    /* [index_cap] open addressing, entry + 1; NULL while the dict is small */
    size_t index_cap;
    tarena *arena;
};

static inline tvalue tpl_none(void) {
    return (tvalue){.kind = TPL_NONE};
}
static inline tvalue tpl_bool(bool b) {
    return (tvalue){.kind = TPL_BOOL, .b = b};
}
static inline tvalue tpl_int(int64_t i) {
    return (tvalue){.kind = TPL_INT, .i = i};
}
static inline tvalue tpl_float(double f) {
    return (tvalue){.kind = TPL_FLOAT, .f = f};
}
/* A string of zero-terminated ASCII that lives for ever. */
tvalue tpl_static(const char *z);
static inline bool tpl_is_str(tvalue v) {
    return v.kind == TPL_STRING;
}
static inline bool tpl_is_seq(tvalue v) {
    return v.kind == TPL_LIST || v.kind == TPL_TUPLE;
}
bool tpl_str_is(tvalue v, const char *z);
/* bool counts as int, as in Python. */
static inline bool tpl_as_int(tvalue v, int64_t *out) {
    if (v.kind == TPL_INT) {
        *out = v.i;
        return true;
    }
    if (v.kind == TPL_BOOL) {
        *out = v.b;
        return true;
    }
    return false;
}
bool tpl_as_double(tvalue v, double *out); /* int, bool, float */
bool tpl_truth(tvalue v);                  /* a loop object counts as true; see tpl_is_true */
const char *tpl_type_name(tvalue v);       /* Python's, e.g. "str" */

/* ---- memory (template_value.c) ---------------------------------------------------------------------- */

typedef struct tpl_chunk tpl_chunk;

struct tarena {
    tpl_chunk *nodes, *text; /* two stacks of chunks, so that text can grow in place */
    size_t used, cap;        /* bytes taken from the heap, and how many it may be */
    bool over;               /* an allocation was refused because of cap */
    bool bad_text;           /* a string was not UTF-8 or too long: rendering refuses the context */
    size_t bad_offset;
};

void *tpl_alloc(tarena *a, size_t bytes); /* 16-byte aligned, zeroed; NULL when there is none */
char *tpl_text(tarena *a, size_t bytes);
/* Grows the text at [p, p+n) to n+more in place if it is the newest one; otherwise false. */
bool tpl_text_extend(tarena *a, const char *p, size_t n, size_t more);
void tpl_text_shrink(tarena *a, const char *p, size_t cap, size_t n);
tarena *tpl_arena_new(size_t cap);

bool tpl_list_push(tpl_list *list, tvalue v);
tpl_list *tpl_list_new(tarena *a, size_t cap);
tpl_dict *tpl_dict_new(tarena *a);
tpl_dict *tpl_dict_copy(tarena *a, const tpl_dict *d);
uint32_t tpl_hash_bytes(const char *p, size_t n);
bool tpl_hash(tvalue v, uint32_t *hash); /* false: not hashable, or too much */
/* The value of a key, or NULL. The key must be hashable. */
const tvalue *tpl_dict_find(const tpl_dict *d, tvalue key, uint32_t hash);
const tvalue *tpl_dict_get(const tpl_dict *d, const char *key, size_t n);
bool tpl_dict_put(tpl_dict *d, tvalue key, uint32_t hash, tvalue v); /* false: no memory */

/* ---- the tree --------------------------------------------------------------------------------------- */

typedef enum tpl_op {
    /* expressions */
    TPL_N_CONST,
    TPL_N_NAME,
    TPL_N_NSREF,
    TPL_N_TUPLE,
    TPL_N_LIST,
    TPL_N_DICT,
    TPL_N_COND,
    TPL_N_OR,
    TPL_N_AND,
    TPL_N_NOT,
    TPL_N_COMPARE,
    TPL_N_OPERAND,
    TPL_N_ADD,
    TPL_N_SUB,
    TPL_N_MUL,
    TPL_N_DIV,
    TPL_N_FLOORDIV,
    TPL_N_MOD,
    TPL_N_POW,
    TPL_N_NEG,
    TPL_N_POS,
    TPL_N_CONCAT,
    TPL_N_GETATTR,
    TPL_N_GETITEM,
    TPL_N_SLICE,
    TPL_N_CALL,
    TPL_N_FILTER,
    TPL_N_TEST,
    TPL_N_KEYWORD,
    /* statements */
    TPL_N_DATA,
    TPL_N_OUTPUT,
    TPL_N_SET,
    TPL_N_SETBLOCK,
    TPL_N_FOR,
    TPL_N_IF,
    TPL_N_MACRO,
    TPL_N_CALLBLOCK,
    TPL_N_GENERATION,
    TPL_N_FILTERBLOCK,
    TPL_N_WITH,
    TPL_N_BREAK,
    TPL_N_CONTINUE
} tpl_op;

typedef enum tpl_cmp { TPL_EQ, TPL_NE, TPL_LT, TPL_LE, TPL_GT, TPL_GE, TPL_IN, TPL_NOT_IN } tpl_cmp;
typedef enum tpl_ctx { TPL_LOAD, TPL_STORE, TPL_PARAM } tpl_ctx;

/* How a slot is filled when its scope is entered. */
typedef enum tpl_fill { TPL_FILL_PARAM, TPL_FILL_RESOLVE, TPL_FILL_ALIAS, TPL_FILL_MISSING } tpl_fill;

typedef struct tpl_slot {
    uint32_t slot;   /* in the frame of the function that the scope is in */
    uint8_t fill;    /* tpl_fill */
    uint16_t hops;   /* ALIAS: how many functions out */
    uint32_t source; /* ALIAS: the slot there */
    tvalue name;     /* RESOLVE: the variable of the context */
    uint32_t hash;
} tpl_slot;

typedef struct tpl_scope {
    size_t n;
    tpl_slot *slots;
} tpl_scope;

/* A macro, a call block, a loop filter, a recursive loop or the template itself: what has its own frame. */
typedef struct tpl_func {
    uint32_t n_slots;
    tpl_scope scope;
    bool kwargs, varargs, caller; /* takes these without naming them */
    bool explicit_caller;
    uint32_t kwargs_slot, varargs_slot, caller_slot;
} tpl_func;

/* Lists are chained by `next`. Which of the links a node uses is written where it is made. */
struct tpl_node {
    uint8_t op;
    uint8_t sub; /* tpl_cmp, tpl_ctx, or a flag of the node */
    uint16_t depth;
    uint32_t line;
    uint32_t n; /* how many in list a */
    tpl_node *next;
    tpl_node *a, *b, *c, *d, *e;
    tvalue
        value; /* CONST: the value; NAME, NSREF, GETATTR, FILTER, TEST, MACRO, KEYWORD: a name; DATA: text */
    union {
        struct { /* NAME, NSREF */
            uint16_t hops;
            uint32_t slot;
            tpl_undefined undefined;
        } ref;
        struct { /* CALL, FILTER, TEST, CALLBLOCK */
            tpl_node *args, *kwargs, *dyn_args, *dyn_kwargs;
            uint32_t n_args, n_kwargs;
            const void *def; /* FILTER: tpl_filter, TEST: tpl_test; NULL: there is none of that name */
        } call;
        struct { /* FOR, MACRO, CALLBLOCK, GENERATION, SETBLOCK, FILTERBLOCK, WITH */
            tpl_scope scope, else_scope;
            tpl_func *func;      /* of a macro, or of a recursive loop */
            tpl_func *test_func; /* FOR with a filter: its own function */
            tpl_node *test_target;
            uint32_t loop_slot;
            bool extended; /* the body uses `loop` */
        } block;
    };
};

struct template {
    tarena *arena;
    tpl_node *body;
    tpl_func root;
};

/* ---- parsing ---------------------------------------------------------------------------------------- */

typedef enum tpl_tok {
    TPL_T_EOF,
    TPL_T_DATA,
    TPL_T_VARIABLE_BEGIN,
    TPL_T_VARIABLE_END,
    TPL_T_BLOCK_BEGIN,
    TPL_T_BLOCK_END,
    TPL_T_NAME,
    TPL_T_STRING,
    TPL_T_INTEGER,
    TPL_T_FLOAT,
    TPL_T_ADD,
    TPL_T_SUB,
    TPL_T_DIV,
    TPL_T_FLOORDIV,
    TPL_T_MUL,
    TPL_T_MOD,
    TPL_T_POW,
    TPL_T_TILDE,
    TPL_T_LBRACKET,
    TPL_T_RBRACKET,
    TPL_T_LPAREN,
    TPL_T_RPAREN,
    TPL_T_LBRACE,
    TPL_T_RBRACE,
    TPL_T_EQ,
    TPL_T_NE,
    TPL_T_GT,
    TPL_T_GE,
    TPL_T_LT,
    TPL_T_LE,
    TPL_T_ASSIGN,
    TPL_T_DOT,
    TPL_T_COLON,
    TPL_T_PIPE,
    TPL_T_COMMA,
    TPL_T_SEMICOLON
} tpl_tok;

typedef struct tpl_token {
    uint8_t type;
    uint32_t line;
    tvalue value; /* NAME, STRING, DATA: text; INTEGER, FLOAT: the number */
} tpl_token;

typedef struct tpl_tokens {
    tpl_token *v; /* from the heap; the last one is TPL_T_EOF */
    size_t n, cap;
} tpl_tokens;

typedef struct tpl_parser {
    tarena *arena;
    const tpl_token *tok; /* the current one */
    size_t nesting;
    error *err;
} tpl_parser;

MUST_USE status tpl_lex(tpl_tokens *out, tarena *arena, const char *source, size_t len, error *err);
const char *tpl_token_name(tpl_tok type);

MUST_USE status tpl_syntax(tpl_parser *p, const char *fmt, ...) PRINTF_LIKE(2, 3); /* at the current line */
MUST_USE status tpl_unsupported(tpl_parser *p, const char *fmt, ...) PRINTF_LIKE(2, 3);
MUST_USE status tpl_parser_memory(tpl_parser *p);
MUST_USE status tpl_expect(tpl_parser *p, tpl_tok type);
bool tpl_at_name(const tpl_parser *p, const char *name);
bool tpl_skip_name(tpl_parser *p, const char *name);
bool tpl_skip(tpl_parser *p, tpl_tok type);
MUST_USE status tpl_nest(tpl_parser *p);
MUST_USE status tpl_node_new(tpl_parser *p, tpl_op op, uint32_t line, tpl_node **out);

/* A comma-separated list without parentheses is a tuple. */
enum {
    TPL_NO_COND = 1,
    TPL_PARENTHESES = 2,
    TPL_UNTIL_IN = 4,
    TPL_UNTIL_RECURSIVE = 8,
    TPL_SIMPLE = 16,
    TPL_NSREFS = 32
};
MUST_USE status tpl_parse_tuple(tpl_parser *p, unsigned how, tpl_node **out);
MUST_USE status tpl_parse_expression(tpl_parser *p, tpl_node **out);
MUST_USE status tpl_parse_filters(tpl_parser *p, tpl_node *node, bool inline_start, tpl_node **out);
MUST_USE status tpl_parse_target(tpl_parser *p, unsigned how, tpl_node **out);
MUST_USE status tpl_parse_target_name(tpl_parser *p, tpl_node **out);
MUST_USE status tpl_parse_body(tpl_parser *p, tpl_node **body);

/* Resolves the names of the whole tree; sets the scopes and functions of t. */
MUST_USE status tpl_resolve(template *t, error *err);

/* ---- rendering -------------------------------------------------------------------------------------- */

struct tpl_frame {
    tpl_frame *up;
    tvalue slots[];
};

struct tpl_rt {
    const template *t;
    tarena *arena;
    const tpl_dict *context;
    str *out;
    size_t base; /* length of *out before */
    template_limits limits;
    size_t steps, depth;
    uint32_t line;
    tvalue block_value; /* what the innermost filter of a filter or set block works on */
    int64_t now;
    error *err;
};

typedef struct tpl_args {
    tvalue *v;
    size_t n;
    tvalue *names; /* of the keyword arguments */
    tvalue *kw;
    size_t n_kw;
} tpl_args;

MUST_USE status tpl_fail(tpl_rt *rt, const char *fmt, ...) PRINTF_LIKE(2, 3);   /* CHURON_INVALID */
MUST_USE status tpl_refuse(tpl_rt *rt, const char *fmt, ...) PRINTF_LIKE(2, 3); /* CHURON_UNSUPPORTED */
MUST_USE status tpl_limit(tpl_rt *rt, const char *fmt, ...) PRINTF_LIKE(2, 3);
MUST_USE status tpl_memory(tpl_rt *rt); /* the arena gave NULL */
MUST_USE status tpl_steps(tpl_rt *rt, size_t n);
MUST_USE status tpl_enter(tpl_rt *rt); /* one level deeper; undone by rt->depth-- */

/* template_exec.c, template_eval.c */
MUST_USE status tpl_eval(tpl_rt *rt, const tpl_node *n, tpl_frame *f, tvalue *out);
MUST_USE status tpl_assign(tpl_rt *rt, const tpl_node *target, tpl_frame *f, tvalue v);
MUST_USE status tpl_call_macro(tpl_rt *rt, tpl_macro *m, const tpl_args *args, tvalue *out);
MUST_USE status tpl_loop_recurse(tpl_rt *rt, struct tpl_loop *loop, tvalue items, tvalue *out);
MUST_USE status tpl_call(tpl_rt *rt, tvalue callee, const tpl_args *args, tvalue *out);
/* The filter of a for statement: its frame, and whether an item passes. */
MUST_USE status tpl_open_loop_test(tpl_rt *rt, const tpl_node *loop, tpl_frame *outer, tpl_frame **f);
MUST_USE status tpl_loop_test(tpl_rt *rt, const tpl_node *loop, tpl_frame *f, tvalue item, bool *keep);
MUST_USE status tpl_frame_new(tpl_rt *rt, uint32_t n_slots, tpl_frame *up, tpl_frame **out);
MUST_USE status tpl_unpack(tpl_rt *rt, tvalue v, size_t n, tvalue *items);
/* Arguments of a call, a filter or a test. */
MUST_USE status tpl_eval_args(tpl_rt *rt, const tpl_node *n, tpl_frame *f, tpl_args *out);
/* Sets out[i] to the argument of names[i], TPL_MISSING when it was not given. */
MUST_USE status tpl_bind(tpl_rt *rt, const char *what, const tpl_args *args, const char *const *names,
                         size_t n, size_t required, tvalue *out);

/* template_ops.c */
/* The truth of any value: that of a loop object is its length, which may read its iterable to the end. */
MUST_USE status tpl_is_true(tpl_rt *rt, tvalue v, bool *out);
MUST_USE status tpl_binary(tpl_rt *rt, tpl_op op, tvalue a, tvalue b, tvalue *out);
MUST_USE status tpl_negate(tpl_rt *rt, tpl_op op, tvalue a, tvalue *out);
MUST_USE status tpl_compare(tpl_rt *rt, tpl_cmp op, tvalue a, tvalue b, bool *out);
MUST_USE status tpl_equal(tpl_rt *rt, tvalue a, tvalue b, bool *out);
MUST_USE status tpl_contains(tpl_rt *rt, tvalue item, tvalue in, bool *out);
MUST_USE status tpl_undefined_error(tpl_rt *rt, tvalue v);
int tpl_compare_numbers(tvalue a, tvalue b); /* -1, 0, 1; 2: not comparable (NaN) */
bool tpl_same_number(tvalue a, tvalue b);

/* template_attr.c */
MUST_USE status tpl_getattr(tpl_rt *rt, tvalue obj, tvalue name, tvalue *out);
MUST_USE status tpl_getitem(tpl_rt *rt, tvalue obj, tvalue key, tvalue *out);
MUST_USE status tpl_slice(tpl_rt *rt, tvalue obj, tvalue start, tvalue stop, tvalue step, tvalue *out);
MUST_USE status tpl_length(tpl_rt *rt, tvalue v, size_t *n, bool *sized);
MUST_USE status tpl_undef(tpl_rt *rt, const char *hint, tvalue obj, tvalue name, tvalue *out);
MUST_USE status tpl_item(tpl_rt *rt, tvalue seq, size_t i, tvalue *out);
/* An object's own attribute, without falling back to its items. *found false: there is none. */
MUST_USE status tpl_own_attr(tpl_rt *rt, tvalue obj, tvalue name, tvalue *out, bool *found);

typedef status (*tpl_method_fn)(tpl_rt *rt, tvalue self, const tpl_args *args, tvalue *out);
typedef struct tpl_method {
    const char *name;
    tpl_method_fn fn; /* NULL: exists in Python, not here */
    bool mutates;     /* refused by the sandbox */
} tpl_method;
extern const tpl_method tpl_str_methods[], tpl_list_methods[], tpl_tuple_methods[], tpl_dict_methods[],
    tpl_range_methods[];

/* template_iter.c */
MUST_USE status tpl_iterate(tpl_rt *rt, tvalue v, tpl_iter **out);
MUST_USE status tpl_next(tpl_rt *rt, tpl_iter *it, tvalue *out, bool *more);
/* The generator over those of `items` that pass the filter of a for statement. */
MUST_USE status tpl_filter_loop(tpl_rt *rt, const tpl_node *loop, tpl_frame *outer, tvalue items,
                                tvalue *out);
MUST_USE status tpl_to_list(tpl_rt *rt, tvalue v, tpl_list **out);
MUST_USE status tpl_push(tpl_rt *rt, tpl_list *list, tvalue v);
bool tpl_iterable(tvalue v);
bool tpl_sized(tvalue v);

/* template_loop.c: the object `loop`. */
typedef struct tpl_loop {
    tpl_iter *it;
    tvalue iterable;
    int64_t index0, depth0;
    int64_t length; /* -1: not known yet */
    tvalue before, current, after;
    tvalue changed; /* the arguments of the last loop.changed(), TPL_MISSING before */
    const tpl_node *node;
    tpl_frame *outer; /* the frame that a recursive call starts from */
} tpl_loop;
MUST_USE status tpl_loop_next(tpl_rt *rt, tpl_loop *l, tvalue *out, bool *more);
MUST_USE status tpl_loop_attr(tpl_rt *rt, tpl_loop *l, tvalue self, tvalue name, tvalue *out, bool *found);
MUST_USE status tpl_loop_method(tpl_rt *rt, tpl_loop *l, unsigned which, const tpl_args *args, tvalue *out);
MUST_USE status tpl_loop_length(tpl_rt *rt, tpl_loop *l, int64_t *out);

/* template_text.c: building strings in the rendering's arena. */
typedef struct tpl_buf {
    tpl_rt *rt;
    char *p;
    size_t n, cap;
    bool not_ascii;
    status st; /* the first failure; later appends do nothing */
} tpl_buf;
tpl_buf tpl_buf_begin(tpl_rt *rt);
void tpl_buf_add(tpl_buf *b, const char *p, size_t n);
void tpl_buf_put(tpl_buf *b, char c);
void tpl_buf_cat(tpl_buf *b, const char *z);
void tpl_buf_cp(tpl_buf *b, uint32_t cp);
void tpl_buf_value(tpl_buf *b, tvalue string);
void tpl_buf_fill(tpl_buf *b, uint32_t cp, size_t n);
MUST_USE status tpl_buf_end(tpl_buf *b, tvalue *out);

bool tpl_is_ascii(const char *p, size_t n);
tvalue tpl_view(const char *p, size_t n, uint8_t flags); /* flags: TPL_MARKUP is kept, TPL_ASCII if known */
/* The bytes [from, to) of a string, sharing them. */
tvalue tpl_sub(tvalue s, size_t from, size_t to);
tvalue tpl_rest(tvalue s, size_t from, size_t to); /* the same, without looking whether it became ASCII */
size_t tpl_codepoints(tvalue s);
uint32_t tpl_cp_at(const char *p, const char *end, size_t *n); /* the text is valid UTF-8 */
size_t tpl_byte_of(tvalue s, size_t codepoint);                /* byte offset; len when past the end */
/* First (or last) occurrence at or after `from` bytes; SIZE_MAX: none. */
size_t tpl_find(tvalue s, tvalue what, size_t from);
size_t tpl_rfind(tvalue s, tvalue what, size_t end);
tvalue tpl_strip(tvalue s, const tvalue *chars, bool left, bool right); /* chars NULL: white space */
MUST_USE status tpl_replace(tpl_rt *rt, tvalue s, tvalue old, tvalue with, int64_t count, tvalue *out);
MUST_USE status tpl_splitlines(tpl_rt *rt, tvalue s, bool keep, tpl_list **out);
MUST_USE status tpl_escape(tpl_rt *rt, tvalue s, tvalue *out); /* HTML; gives markup, takes markup as it is */
MUST_USE status tpl_repeat(tpl_rt *rt, tvalue s, int64_t times, tvalue *out);
MUST_USE status tpl_concat(tpl_rt *rt, tvalue a, tvalue b, tvalue *out);
MUST_USE status tpl_join(tpl_rt *rt, tvalue sep, const tvalue *v, size_t n, tvalue *out);

/* template_case.c: Python's str methods on letters. */
bool tpl_cp_space(uint32_t cp);
bool tpl_cp_linebreak(uint32_t cp);
bool tpl_cp_printable(uint32_t cp);
bool tpl_cp_word(uint32_t cp); /* \w of Python's re */
bool tpl_cp_alpha(uint32_t cp);
bool tpl_cp_digit(uint32_t cp); /* str.isdigit */
bool tpl_cp_decimal(uint32_t cp);
bool tpl_cp_lower(uint32_t cp);
/* A capital sigma at [p, after) of the text [start, end) ends its word. */
bool tpl_final_sigma(const char *start, const char *end, const char *p, const char *after);
bool tpl_cp_upper(uint32_t cp);
bool tpl_cp_title(uint32_t cp);
typedef enum tpl_case {
    TPL_CASE_UPPER,
    TPL_CASE_LOWER,
    TPL_CASE_TITLE,
    TPL_CASE_CAPITAL,
    TPL_CASE_SWAP
} tpl_case;
bool tpl_all_cased(tvalue s, bool upper); /* str.isupper, str.islower */
MUST_USE status tpl_recase(tpl_rt *rt, tvalue s, tpl_case how, tvalue *out);
/* Appends one character in upper case (or title case), as Python does it: it may become three. */
void tpl_buf_upper(tpl_buf *b, uint32_t cp, bool title);

/* template_repr.c: values as text. */
MUST_USE status tpl_str(tpl_rt *rt, tvalue v, tvalue *out); /* str(v); a string is given back, markup kept */
void tpl_buf_str(tpl_buf *b, tvalue v);
void tpl_buf_repr(tpl_buf *b, tvalue v);
void tpl_buf_repr_text(tpl_buf *b, tvalue s, bool ascii);
size_t tpl_float_repr(double v, char out[40]);
/* printf's conversion `conv` (e, f, g) with the decimal point of the C locale; returns the length. */
size_t tpl_float_format(double v, char conv, int precision, bool alternate, char out[512]);
/* Reads what Python's float() reads; false: ValueError. */
bool tpl_float_parse(tvalue s, double *out);
/* Digits of |v| > 0, shortest that reads back; returns how many, *exp10 of the first one. */
size_t tpl_float_digits(double v, char digits[20], int *exp10);

/* template_json.c */
MUST_USE status tpl_filter_tojson(tpl_rt *rt, tvalue v, const tpl_args *args, tvalue *out);

/* template_wrap.c */
MUST_USE status tpl_filter_wordwrap(tpl_rt *rt, tvalue in, const tpl_args *args, tvalue *out);

/* template_format.c: `%`, and str.format. */
MUST_USE status tpl_printf(tpl_rt *rt, tvalue format, tvalue args, tvalue *out);
MUST_USE status tpl_format(tpl_rt *rt, tvalue format, const tpl_args *args, tvalue *out);

/* template_filters*.c, template_tests.c */
typedef status (*tpl_filter_fn)(tpl_rt *rt, tvalue in, const tpl_args *args, tvalue *out);
typedef struct tpl_filter {
    const char *name;
    tpl_filter_fn fn; /* NULL: exists in Jinja2, not here */
} tpl_filter;
typedef status (*tpl_test_fn)(tpl_rt *rt, tvalue in, tvalue arg, bool *out);
typedef struct tpl_test {
    const char *name;
    tpl_test_fn fn;
    uint8_t args; /* 0 or 1 */
    const char *arg_name;
} tpl_test;
extern const tpl_filter tpl_text_filters[], tpl_sequence_filters[];
const tpl_filter *tpl_filter_find(tvalue name);
const tpl_test *tpl_test_find(tvalue name);
MUST_USE status tpl_run_test(tpl_rt *rt, const tpl_test *t, tvalue in, const tpl_args *args, bool *out);
MUST_USE status tpl_filter_call(tpl_rt *rt, tvalue name, tvalue in, const tpl_args *args, tvalue *out);

/* attribute="a.b.0", as the sequence filters take it. */
typedef struct tpl_path {
    bool none;
    tpl_list *parts; /* strings and ints */
    tvalue fallback; /* for undefined parts; TPL_MISSING: none */
    bool fold;       /* strings in lower case */
} tpl_path;
MUST_USE status tpl_path_make(tpl_rt *rt, tvalue attribute, tpl_path *out);
MUST_USE status tpl_path_get(tpl_rt *rt, const tpl_path *path, tvalue item, tvalue *out);
MUST_USE status tpl_sort(tpl_rt *rt, tpl_list *items, tpl_list *keys, bool reverse);

/* template_globals.c */
bool tpl_global(tvalue name, tvalue *out);
MUST_USE status tpl_call_function(tpl_rt *rt, unsigned which, const tpl_args *args, tvalue *out);
MUST_USE status tpl_object_attr(tpl_rt *rt, tvalue obj, tvalue name, tvalue *out, bool *found);
MUST_USE status tpl_object_method(tpl_rt *rt, tvalue obj, unsigned which, const tpl_args *args, tvalue *out);
MUST_USE status tpl_strftime(tpl_rt *rt, tvalue format, tvalue *out); /* template_time.c */

#endif

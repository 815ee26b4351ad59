/* text_regex.c: operators with regular expressions, by PCRE2: RegexFullMatch; Tokenizer of com.microsoft.
 *
 * The standard asks for RE2's syntax; PCRE2 takes all of it. RE2 cannot take exponential time, PCRE2 can: the
 * steps of a match are bounded, and a match that needs more is an error, never a wrong answer. */
#include "base/mem.h"
#include "graph/ops/ml.h"
#include "graph/ops/ops.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <string.h>

enum { MATCH_STEPS = 10000000, MAX_PATTERNS = 256 };

/* ---- patterns --------------------------------------------------------------------------------------- */

static void *take(PCRE2_SIZE n, void *unused) {
    (void)unused;
    return mem_alloc(n);
}

static void give(void *p, void *unused) {
    (void)unused;
    mem_free(p);
}

static status compile(op_node *n, const char *name, const char *pattern, size_t len, pcre2_code **out,
                      error *err) {
    int code;
    PCRE2_SIZE at;
    pcre2_general_context *memory = pcre2_general_context_create(take, give, NULL);
    pcre2_compile_context *context = memory ? pcre2_compile_context_create(memory) : NULL;
    *out = NULL;
    if (context) {
        *out =
            pcre2_compile((PCRE2_SPTR)pattern, len,
                          PCRE2_UTF | PCRE2_MATCH_INVALID_UTF | PCRE2_NEVER_BACKSLASH_C, &code, &at, context);
    }
    pcre2_compile_context_free(context);
    pcre2_general_context_free(memory);
    if (*out) return CHURON_OK;
    if (!context || code == PCRE2_ERROR_NOMEMORY || code == PCRE2_ERROR_HEAP_FAILED) {
        return error_no_memory(err, "a pattern", len);
    }
    PCRE2_UCHAR why[160];
    if (pcre2_get_error_message(code, why, sizeof why) < 0) why[0] = '\0';
    return op_error(n, err, CHURON_INVALID,
                    "attribute '%s': expected a regular expression, got '%.60s': %s at %zu", name, pattern,
                    (const char *)why, (size_t)at);
}

/* What a run of one thread needs to match. */
typedef struct matcher {
    pcre2_match_context *context;
    pcre2_match_data *data;
} matcher;

static void matcher_free(matcher *m) {
    pcre2_match_data_free(m->data);
    pcre2_match_context_free(m->context);
}

static status matcher_create(matcher *m, error *err) {
    *m = (matcher){0};
    pcre2_general_context *memory = pcre2_general_context_create(take, give, NULL);
    if (memory) {
        m->context = pcre2_match_context_create(memory);
        m->data = pcre2_match_data_create(1, memory);
    }
    pcre2_general_context_free(memory);
    if (m->context && m->data) {
        (void)pcre2_set_match_limit(m->context, MATCH_STEPS);
        return CHURON_OK;
    }
    matcher_free(m);
    return error_no_memory(err, "matching", 0);
}

/* The first match at or after `from`. options: PCRE2_ANCHORED, PCRE2_ENDANCHORED. */
static status match(op_run *r, const matcher *m, const pcre2_code *code, const tensor_string *s, size_t from,
                    uint32_t options, bool *found, size_t *start, size_t *end, error *err) {
    const char *text = s->len ? s->data : "";
    int n = pcre2_match(code, (PCRE2_SPTR)text, s->len, from, options, m->data, m->context);
    *found = n >= 0;
    if (n == PCRE2_ERROR_NOMATCH) return CHURON_OK;
    if (n == PCRE2_ERROR_NOMEMORY || n == PCRE2_ERROR_HEAPLIMIT)
        return error_no_memory(err, "matching", s->len);
    if (n < 0) {
        return run_error(r, err, CHURON_LIMIT, "a match: expected at most %d steps, got more (error %d)",
                         MATCH_STEPS, n);
    }
    const PCRE2_SIZE *at = pcre2_get_ovector_pointer(m->data);
    *start = at[0];
    *end = at[1] < at[0] ? at[0] : at[1]; /* \K may put the start behind the end */
    return CHURON_OK;
}

/* ---- RegexFullMatch --------------------------------------------------------------------------------- */

typedef struct full_match {
    pcre2_code *code;
} full_match;

static void full_match_release(void *state) {
    full_match *st = state;
    if (st) pcre2_code_free(st->code);
    mem_free(st);
}

static status full_match_prepare(op_node *n, error *err) {
    full_match *st = nn_state(n, sizeof *st, err);
    if (!st) return CHURON_NO_MEMORY;
    const char *pattern;
    TRY(op_attr_string(n, "pattern", "", &pattern, err));
    return compile(n, "pattern", pattern, strlen(pattern), &st->code, err);
}

static status full_match_run(op_run *r, error *err) {
    const full_match *st = run_state(r);
    const tensor *x = run_in(r, 0);
    const tensor_string *in = x->data;
    tensor *y;
    matcher m;
    TRY(run_out(r, 0, &y, err));
    TRY(matcher_create(&m, err));
    status done = CHURON_OK;
    for (size_t i = 0; i < x->count && done == CHURON_OK; i++) {
        bool found = false;
        size_t start, end;
        done = run_check(r, err);
        if (done == CHURON_OK) {
            done = match(r, &m, st->code, &in[i], 0, PCRE2_ANCHORED | PCRE2_ENDANCHORED, &found, &start, &end,
                         err);
        }
        ((uint8_t *)y->data)[i] = found;
    }
    matcher_free(&m);
    return done;
}

/* ---- Tokenizer -------------------------------------------------------------------------------------- */

typedef struct token_list {
    tensor_string *at;
    size_t n, cap;
} token_list;

typedef struct tokenizer_op {
    pcre2_code *codes[MAX_PATTERNS];
    size_t n_codes;
    bool is_token;   /* the one pattern matches tokens, else patterns match what is between them */
    bool characters; /* every character is a token */
    bool mark;
    const char *pad;
    int64_t least; /* characters of a token */
} tokenizer_op;

static void tokenizer_release(void *state) {
    tokenizer_op *st = state;
    if (!st) return;
    for (size_t i = 0; i < st->n_codes; i++) pcre2_code_free(st->codes[i]);
    mem_free(st);
}

static status tokenizer_prepare(op_node *n, error *err) {
    tokenizer_op *st = nn_state(n, sizeof *st, err);
    if (!st) return CHURON_NO_MEMORY;
    const char *token;
    const onnx_bytes *separators;
    size_t count;
    TRY(op_attr_bool(n, "mark", false, &st->mark, err));
    TRY(op_attr_string(n, "pad_value", "", &st->pad, err));
    TRY(op_attr_int(n, "mincharnum", 1, 1, INT32_MAX, &st->least, err));
    TRY(op_attr_string(n, "tokenexp", NULL, &token, err));
    TRY(op_attr_strings(n, "separators", &separators, &count, err));
    if ((token != NULL) == (count > 0) || count > MAX_PATTERNS) {
        return op_error(n, err, CHURON_INVALID,
                        "expected either the attribute 'tokenexp' or 1 to %d 'separators', got %zu and %s",
                        MAX_PATTERNS, count, token ? "both" : "no tokenexp");
    }
    if (token) {
        st->is_token = true;
        TRY(compile(n, "tokenexp", token, strlen(token), &st->codes[0], err));
        st->n_codes = 1;
        return CHURON_OK;
    }
    st->characters = count == 1 && separators[0].len == 0;
    for (size_t i = 0; i < count && !st->characters; i++) {
        TRY(compile(n, "separators", separators[i].data, separators[i].len, &st->codes[i], err));
        st->n_codes++;
    }
    return CHURON_OK;
}

static status tokenizer_infer(op_shapes *s, error *err) {
    size_t rank;
    const dim *x;
    bool known;
    TRY(nn_rank(s, 0, 1, 2, "X", &known, &rank, &x, err));
    if (!known) {
        shapes_out_unknown(s, 0);
        return CHURON_OK;
    }
    dim out[3] = {x[0], rank == 2 ? x[1] : 0, dim_fresh(s)};
    if (rank == 1) out[1] = out[2];
    return shapes_out(s, 0, rank + 1, out, err);
}

static size_t char_bytes(const char *p, const char *end) {
    size_t n = utf8_decode(p, end, NULL);
    return n ? n : 1;
}

static int64_t count_chars(const char *p, size_t n) {
    int64_t count = 0;
    for (const char *end = p + n; p < end; p += char_bytes(p, end)) count++;
    return count;
}

static status add_token(token_list *l, const char *p, size_t n, int64_t least, error *err) {
    if (n == 0 || count_chars(p, n) < least) return CHURON_OK;
    if (l->n == l->cap) {
        size_t cap = l->cap ? 2 * l->cap : 64;
        tensor_string *grown = mem_realloc(l->at, cap * sizeof *grown);
        if (!grown) return error_no_memory(err, "tokens", cap * sizeof *grown);
        l->at = grown;
        l->cap = cap;
    }
    l->at[l->n++] = (tensor_string){p, n};
    return CHURON_OK;
}

/* What lies between matches of a separator, or the matches themselves. */
static status cut(op_run *r, const matcher *m, const tokenizer_op *st, const pcre2_code *code,
                  tensor_string s, token_list *to, error *err) {
    size_t last = 0, from = 0, start, end;
    while (from <= s.len) {
        bool found;
        TRY(match(r, m, code, &s, from, 0, &found, &start, &end, err));
        if (!found) break;
        if (st->is_token) {
            TRY(add_token(to, s.data + start, end - start, st->least, err));
        } else {
            TRY(add_token(to, s.data + last, start - last, st->least, err));
            last = end;
        }
        from = end > start ? end : end + (end < s.len ? char_bytes(s.data + end, s.data + s.len) : 1);
    }
    return st->is_token ? CHURON_OK : add_token(to, s.data + last, s.len - last, st->least, err);
}

/* Appends the tokens of one string to `out`. a, b: lists for passing tokens from separator to separator. */
static status tokenize(op_run *r, const matcher *m, const tokenizer_op *st, const tensor_string *s,
                       token_list *out, token_list *a, token_list *b, error *err) {
    if (st->characters) {
        for (size_t at = 0; at < s->len;) {
            size_t n = char_bytes(s->data + at, s->data + s->len);
            TRY(add_token(out, s->data + at, n, st->least, err));
            at += n;
        }
        return CHURON_OK;
    }
    a->n = 0;
    TRY(add_token(a, s->data, s->len, 0, err));
    for (size_t k = 0; k < st->n_codes; k++) {
        b->n = 0;
        for (size_t i = 0; i < a->n; i++) TRY(cut(r, m, st, st->codes[k], a->at[i], b, err));
        token_list swap = *a;
        *a = *b;
        *b = swap;
    }
    for (size_t i = 0; i < a->n; i++) TRY(add_token(out, a->at[i].data, a->at[i].len, st->least, err));
    return CHURON_OK;
}

/* Lists of all strings behind each other: string i has tokens [ends[i - 1], ends[i]). */
static status write_tokens(op_run *r, const tokenizer_op *st, const token_list *all, const size_t *ends,
                           error *err) {
    const tensor *x = run_in(r, 0);
    size_t most = 0;
    for (size_t i = 0; i < x->count; i++) {
        size_t n = ends[i] - (i ? ends[i - 1] : 0);
        most = n > most ? n : most;
    }
    if (st->mark && most) most += 2;
    int64_t dims[3] = {x->dims[0], x->rank == 2 ? x->dims[1] : (int64_t)most, (int64_t)most};
    tensor *y;
    TRY(run_out_shaped(r, 0, ELEM_STRING, x->rank + 1, dims, &y, err));
    for (size_t i = 0; most && i < x->count; i++) {
        size_t k = i * most, from = i ? ends[i - 1] : 0;
        if (st->mark) TRY(tensor_string_set(y, k++, "\x02", 1, err));
        for (size_t t = from; t < ends[i]; t++) {
            TRY(tensor_string_set(y, k++, all->at[t].data, all->at[t].len, err));
        }
        if (st->mark) TRY(tensor_string_set(y, k++, "\x03", 1, err));
        while (k < (i + 1) * most) TRY(tensor_string_set(y, k++, st->pad, strlen(st->pad), err));
    }
    return CHURON_OK;
}

static status tokenizer_run(op_run *r, error *err) {
    const tokenizer_op *st = run_state(r);
    const tensor *x = run_in(r, 0);
    const tensor_string *in = x->data;
    token_list all = {0}, a = {0}, b = {0};
    matcher m;
    void *scratch;
    TRY(run_scratch(r, x->count * sizeof(size_t), &scratch, err));
    size_t *ends = scratch;
    TRY(matcher_create(&m, err));
    status done = CHURON_OK;
    for (size_t i = 0; i < x->count && done == CHURON_OK; i++) {
        done = run_check(r, err);
        if (done == CHURON_OK) done = tokenize(r, &m, st, &in[i], &all, &a, &b, err);
        ends[i] = all.n;
    }
    if (done == CHURON_OK) done = write_tokens(r, st, &all, ends, err);
    mem_free(all.at);
    mem_free(a.at);
    mem_free(b.at);
    matcher_free(&m);
    return done;
}

static const op_def rows[] = {
    {.domain = "",
     .name = "RegexFullMatch",
     .since = 20,
     .signature = "s>b",
     .prepare = full_match_prepare,
     .release = full_match_release,
     .infer = infer_same,
     .run = full_match_run},
    {.domain = "com.microsoft",
     .name = "Tokenizer",
     .since = 1,
     .signature = "s>s",
     .prepare = tokenizer_prepare,
     .release = tokenizer_release,
     .infer = tokenizer_infer,
     .run = tokenizer_run},
};

NN_TABLE(text_regex);

/* text_ops.c: operators on strings without patterns: StringNormalizer, StringSplit, StringConcat. Characters
 * are Unicode code points; bytes that are not UTF-8 are left as they are. */
#include "base/mem.h"
#include "graph/ops/ml.h"
#include "graph/ops/ops.h"

#include <string.h>
#include <utf8proc.h>

/* ---- StringNormalizer ------------------------------------------------------------------------------- */

enum { CASE_NONE, CASE_LOWER, CASE_UPPER };

typedef struct string_normalizer {
    int change;
    bool sensitive;
    ml_map stop;
    onnx_bytes *words; /* of the map, lower-cased if it is not sensitive */
    size_t n_words;
    str text; /* that they lie in */
} string_normalizer;

static void normalizer_release(void *state) {
    string_normalizer *st = state;
    if (!st) return;
    ml_map_free(&st->stop);
    mem_free(st->words);
    str_free(&st->text);
    mem_free(st);
}

static void add_cased(str *to, const char *p, size_t n, int change) {
    const char *end = p + n;
    while (p < end) {
        uint32_t cp;
        char out[4];
        size_t len = utf8_decode(p, end, &cp);
        if (len == 0 || change == CASE_NONE) {
            len = len ? len : 1;
            str_add(to, p, len);
        } else {
            int32_t mapped =
                change == CASE_LOWER ? utf8proc_tolower((int32_t)cp) : utf8proc_toupper((int32_t)cp);
            str_add(to, out, utf8_encode((uint32_t)mapped, out));
        }
        p += len;
    }
}

static status normalizer_prepare(op_node *n, error *err) {
    static const char *const changes[] = {"NONE", "LOWER", "UPPER", NULL};
    string_normalizer *st = nn_state(n, sizeof *st, err);
    if (!st) return CHURON_NO_MEMORY;
    const onnx_bytes *words;
    op_attr_ignore(n, "locale"); /* characters have the case that Unicode says, in every country */
    TRY(op_attr_choice(n, "case_change_action", changes, CASE_NONE, &st->change, err));
    TRY(op_attr_bool(n, "is_case_sensitive", false, &st->sensitive, err));
    TRY(op_attr_strings(n, "stopwords", &words, &st->n_words, err));
    if (st->n_words == 0) return CHURON_OK;
    st->words = mem_alloc(st->n_words * sizeof *st->words);
    if (!st->words) return error_no_memory(err, "words", st->n_words * sizeof *st->words);
    size_t *starts = mem_alloc(st->n_words * sizeof *starts);
    if (!starts) return error_no_memory(err, "words", st->n_words * sizeof *starts);
    for (size_t i = 0; i < st->n_words; i++) {
        starts[i] = st->text.len;
        add_cased(&st->text, words[i].data, words[i].len, st->sensitive ? CASE_NONE : CASE_LOWER);
    }
    str_put(&st->text, '\0');
    for (size_t i = 0; i < st->n_words && !st->text.failed; i++) {
        size_t end = i + 1 < st->n_words ? starts[i + 1] : st->text.len - 1;
        st->words[i] = (onnx_bytes){st->text.data + starts[i], end - starts[i]};
    }
    mem_free(starts);
    TRY(str_check(&st->text, err));
    return ml_map_strings(&st->stop, st->words, st->n_words, err);
}

static status normalizer_infer(op_shapes *s, error *err) {
    const string_normalizer *st = shapes_state(s);
    bool known;
    dim n, c;
    size_t rank;
    const dim *x;
    TRY(ml_rows(s, &known, &n, &c, err));
    if (!known || !shapes_in(s, 0, &rank, &x)) return infer_same(s, err);
    if (rank == 2 && dim_known(n) && n != 1) {
        return op_error(shapes_node(s), err, CHURON_INVALID, "X: expected [C] or [1, C], got %lld rows",
                        (long long)n);
    }
    dim width = st->n_words || (dim_known(c) && c == 0) ? dim_fresh(s) : c;
    return shapes_out(s, 0, rank, rank == 2 ? (dim[]){1, width} : (dim[]){width}, err);
}

static bool is_stop_word(const string_normalizer *st, const tensor_string *s, str *work) {
    if (st->n_words == 0) return false;
    if (st->sensitive) return ml_map_string(&st->stop, s->data, s->len) != SIZE_MAX;
    str_clear(work);
    add_cased(work, s->data, s->len, CASE_LOWER);
    return ml_map_string(&st->stop, str_cstr(work), work->len) != SIZE_MAX;
}

static status normalize(op_run *r, const string_normalizer *st, str *work, error *err) {
    const tensor *x = run_in(r, 0);
    const tensor_string *in = x->data;
    void *scratch;
    TRY(run_scratch(r, x->count * sizeof(size_t), &scratch, err));
    size_t *kept = scratch, n = 0;
    for (size_t i = 0; i < x->count; i++) {
        if (!is_stop_word(st, &in[i], work)) kept[n++] = i;
    }
    TRY(str_check(work, err));
    /* Nothing left is one empty string: there are no tensors of no words behind this operator. */
    int64_t width = n ? (int64_t)n : 1, dims[2] = {1, width};
    tensor *y;
    TRY(run_out_shaped(r, 0, ELEM_STRING, x->rank, x->rank == 2 ? dims : dims + 1, &y, err));
    for (size_t i = 0; i < n; i++) {
        str_clear(work);
        add_cased(work, in[kept[i]].data, in[kept[i]].len, st->change);
        TRY(str_check(work, err));
        TRY(tensor_string_set(y, i, str_cstr(work), work->len, err));
    }
    return CHURON_OK;
}

static status normalizer_run(op_run *r, error *err) {
    str work = {0};
    status done = normalize(r, run_state(r), &work, err);
    str_free(&work);
    return done;
}

/* ---- StringSplit ------------------------------------------------------------------------------------ */

typedef struct splitter {
    const char *delimiter;
    size_t len;   /* 0: runs of white space */
    int64_t most; /* cuts; -1: any number */
} splitter;

static status split_prepare(op_node *n, error *err) {
    splitter *st = nn_state(n, sizeof *st, err);
    if (!st) return CHURON_NO_MEMORY;
    TRY(op_attr_string(n, "delimiter", "", &st->delimiter, err));
    st->len = strlen(st->delimiter);
    return op_attr_int(n, "maxsplit", -1, -1, INT64_MAX, &st->most, err);
}

static status split_infer(op_shapes *s, error *err) {
    size_t rank;
    const dim *x;
    dim out[TENSOR_MAX_RANK + 1];
    bool known = shapes_in(s, 0, &rank, &x);
    if (!known) {
        shapes_out_unknown(s, 0);
        if (op_has_output(shapes_node(s), 1)) shapes_out_unknown(s, 1);
        return CHURON_OK;
    }
    memcpy(out, x, rank * sizeof *x);
    out[rank] = dim_fresh(s);
    TRY(shapes_out(s, 0, rank + 1, out, err));
    return op_has_output(shapes_node(s), 1) ? shapes_out(s, 1, rank, out, err) : CHURON_OK;
}

static bool is_space(uint32_t c) {
    return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
           c == 0x3000;
}

/* Length of the white-space character at p, 0 if there is none. */
static size_t space_at(const char *p, const char *end) {
    uint32_t cp;
    size_t n = p < end ? utf8_decode(p, end, &cp) : 0;
    return n && is_space(cp) ? n : 0;
}

typedef struct pieces {
    const splitter *st;
    const char *at, *end;
    int64_t left; /* cuts that may be made; -1: any number */
    bool done;
} pieces;

static pieces pieces_of(const splitter *st, const tensor_string *s) {
    return (pieces){st, s->data, s->data + s->len, st->most, false};
}

static bool next_word(pieces *p, tensor_string *out) {
    size_t n;
    while ((n = space_at(p->at, p->end)) > 0) p->at += n;
    if (p->at == p->end) return false;
    const char *from = p->at;
    if (p->left == 0) {
        p->at = p->end;
    } else {
        while (p->at < p->end && !space_at(p->at, p->end)) {
            n = utf8_decode(p->at, p->end, NULL);
            p->at += n ? n : 1;
        }
        if (p->left > 0) p->left--;
    }
    *out = (tensor_string){from, (size_t)(p->at - from)};
    return true;
}

static bool next_piece(pieces *p, tensor_string *out) {
    size_t len = p->st->len;
    if (len == 0) return next_word(p, out);
    if (p->done) return false;
    const char *from = p->at, *cut = from;
    while ((size_t)(p->end - cut) >= len && memcmp(cut, p->st->delimiter, len) != 0) cut++;
    if ((size_t)(p->end - cut) < len || p->left == 0) {
        p->done = true;
        cut = p->end;
    } else {
        p->at = cut + len;
        if (p->left > 0) p->left--;
    }
    *out = (tensor_string){from, (size_t)(cut - from)};
    return true;
}

static status split_run(op_run *r, error *err) {
    const splitter *st = run_state(r);
    const tensor *x = run_in(r, 0);
    const tensor_string *in = x->data;
    tensor *y, *counts;
    tensor_string piece;
    int64_t dims[TENSOR_MAX_RANK + 1], most = 0;
    TRY(run_out(r, 1, &counts, err));
    for (size_t i = 0; i < x->count; i++) {
        int64_t n = 0;
        for (pieces p = pieces_of(st, &in[i]); next_piece(&p, &piece);) n++;
        if (counts) ((int64_t *)counts->data)[i] = n;
        most = n > most ? n : most;
    }
    memcpy(dims, x->dims, x->rank * sizeof *dims);
    dims[x->rank] = most;
    TRY(run_out_shaped(r, 0, ELEM_STRING, x->rank + 1, dims, &y, err));
    for (size_t i = 0; y && i < x->count; i++) {
        size_t k = i * (size_t)most;
        for (pieces p = pieces_of(st, &in[i]); next_piece(&p, &piece);) {
            TRY(tensor_string_set(y, k++, piece.data, piece.len, err));
        }
    }
    return CHURON_OK;
}

/* ---- StringConcat ----------------------------------------------------------------------------------- */

static status concat_run(op_run *r, error *err) {
    const tensor *x = run_in(r, 0), *y = run_in(r, 1);
    tensor *z;
    TRY(run_out(r, 0, &z, err));
    int64_t step_x[TENSOR_MAX_RANK], step_y[TENSOR_MAX_RANK], at[TENSOR_MAX_RANK] = {0};
    size_t rank = z->rank, i_x = 0, i_y = 0;
    nn_broadcast_strides(x->dims, x->rank, rank, step_x);
    nn_broadcast_strides(y->dims, y->rank, rank, step_y);
    for (size_t i = 0; i < z->count; i++) {
        const tensor_string *a = (const tensor_string *)x->data + i_x,
                            *b = (const tensor_string *)y->data + i_y;
        char *to = NULL;
        TRY(tensor_string_bytes(z, a->len + b->len, &to, err));
        if (a->len) memcpy(to, a->data, a->len);
        if (b->len) memcpy(to + a->len, b->data, b->len);
        ((tensor_string *)z->data)[i] = (tensor_string){to, a->len + b->len};
        for (size_t d = rank; d-- > 0;) {
            i_x += (size_t)step_x[d];
            i_y += (size_t)step_y[d];
            if (++at[d] < z->dims[d]) break;
            i_x -= (size_t)(step_x[d] * z->dims[d]);
            i_y -= (size_t)(step_y[d] * z->dims[d]);
            at[d] = 0;
        }
    }
    return CHURON_OK;
}

static const op_def rows[] = {
    {.domain = "",
     .name = "StringNormalizer",
     .since = 10,
     .signature = "s>s",
     .prepare = normalizer_prepare,
     .release = normalizer_release,
     .infer = normalizer_infer,
     .run = normalizer_run},
    {.domain = "",
     .name = "StringSplit",
     .since = 20,
     .signature = "s>si",
     .prepare = split_prepare,
     .release = mem_free,
     .infer = split_infer,
     .run = split_run},
    {.domain = "",
     .name = "StringConcat",
     .since = 20,
     .signature = "ss>s",
     .infer = infer_broadcast,
     .run = concat_run},
};

NN_TABLE(text_ops);

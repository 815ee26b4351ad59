/* bytes.c: bytes as a model's numbers, and as text. */
#include "base/str.h"
#include "pipeline/steps/elements.h"
#include "pipeline/steps/steps.h"

#include <string.h>

/* ---- byte_window ------------------------------------------------------------------------------------ */

enum { WINDOW_FIELD, WINDOW_INTO, WINDOW_BEGIN, WINDOW_END, WINDOW_BLOCK, WINDOW_STRIP, WINDOW_PAD };

typedef struct window_state {
    size_t begin, end, block; /* block 0: no limit */
    bool strip;
    int32_t pad;
} window_state;

static const key_spec WINDOW_KEYS[] = {
    {"field", KEY_FIELD, .required = true, .doc = "Bytes"},
    {"into", KEY_INTO, .doc = "Name of the result, int32 [begin + end]; left out: that of the field"},
    {"begin", KEY_INT, .least = 0, .most = 1e6, .fallback = "0",
     .doc = "How many of the first bytes; padding stands behind them"},
    {"end", KEY_INT, .least = 0, .most = 1e6, .fallback = "0",
     .doc = "How many of the last bytes, which come next; padding stands before them"},
    {"block", KEY_INT, .least = 1, .most = 1e9,
     .doc = "Only so many bytes from either end are looked at; left out: all"},
    {"strip", KEY_BOOL, .fallback = "false",
     .doc =
         "Leaves out ASCII white space where the block at the start begins and where that at the end ends"},
    {"pad", KEY_INT, .least = -2147483648.0, .most = 2147483647, .fallback = "0",
     .doc = "The number that stands where there are no bytes"},
    {0}};

static status check_window(step_build *b, error *err) {
    const key_value *v = b->values;
    window_state *s;
    TRY(step_expect(b, WINDOW_FIELD, KIND(CELL_BYTES), false, err));
    TRY(step_state(b, sizeof *s, &s, err));
    *s = (window_state){.begin = (size_t)v[WINDOW_BEGIN].integer,
                        .end = (size_t)v[WINDOW_END].integer,
                        .block = v[WINDOW_BLOCK].given ? (size_t)v[WINDOW_BLOCK].integer : 0,
                        .strip = v[WINDOW_STRIP].flag,
                        .pad = (int32_t)v[WINDOW_PAD].integer};
    if (s->begin + s->end == 0) return step_fault(b, "begin", err, "expected begin or end above 0, got none");
    const int64_t dims[1] = {(int64_t)(s->begin + s->end)};
    const cell_type type = tensor_type(ELEM_I32, 1, dims);
    b->s->in = v[WINDOW_FIELD].slot;
    return step_output(b, WINDOW_INTO, WINDOW_FIELD, &type, err);
}

/* As isspace in the C locale, whatever the locale is. */
static bool is_space(char c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static status row_window(const step *st, run *r, cell *slots, error *err) {
    const window_state *s = st->state;
    const cell *in = &slots[st->in];
    const size_t block = s->block && s->block < in->len ? s->block : in->len;
    const int64_t dims[1] = {(int64_t)(s->begin + s->end)};
    size_t from = 0, to = in->len;
    while (s->strip && from < block && is_space(in->bytes[from])) from++;
    while (s->strip && to > in->len - block && is_space(in->bytes[to - 1])) to--;
    const size_t first = block - from < s->begin ? block - from : s->begin;
    const size_t left = to - (in->len - block), last = left < s->end ? left : s->end;
    void *data;
    TRY(cell_new_tensor(&slots[st->out], CELL_TENSOR, r->memory, ELEM_I32, 1, dims, &data, st->label, err));
    int32_t *out = data;
    for (size_t i = 0; i < s->begin; i++) out[i] = i < first ? (unsigned char)in->bytes[from + i] : s->pad;
    out += s->begin;
    for (size_t i = 0; i < s->end; i++)
        out[i] = i + last < s->end ? s->pad : (unsigned char)in->bytes[to - (s->end - i)];
    return CHURON_OK;
}

const step_kind step_byte_window = {
    .name = "byte_window",
    .group = "text",
    .doc = "The first and the last bytes as numbers from 0 to 255, padded: what models of raw files take.",
    .reference = "the magika package's features",
    .keys = WINDOW_KEYS,
    .check = check_window,
    .row = row_window};

/* ---- decode_text ------------------------------------------------------------------------------------ */

enum { DECODE_FIELD, DECODE_INTO, DECODE_FIRST, DECODE_INVALID };

typedef struct decode_state {
    size_t first; /* 0: all */
    bool missing;
} decode_state;

static const key_spec DECODE_KEYS[] = {
    {"field", KEY_FIELD, .required = true, .doc = "Bytes"},
    {"into", KEY_INTO, .doc = "Name of the result; left out: that of the field"},
    {"first", KEY_INT, .least = 1, .most = 1e9,
     .doc = "Only so many bytes are decoded, a character that is cut there being none; left out: all"},
    {"invalid", KEY_CHOICE, .choices = "error|missing", .fallback = "error",
     .doc = "What is no UTF-8: error: a fault of the record; missing: there is no text"},
    {0}};

static status check_decode(step_build *b, error *err) {
    const key_value *v = b->values;
    decode_state *s;
    TRY(step_expect(b, DECODE_FIELD, KIND(CELL_BYTES), false, err));
    TRY(step_state(b, sizeof *s, &s, err));
    s->first = v[DECODE_FIRST].given ? (size_t)v[DECODE_FIRST].integer : 0;
    s->missing = v[DECODE_INVALID].integer == 1;
    const cell_type type = text_type(s->missing);
    b->s->in = v[DECODE_FIELD].slot;
    return step_output(b, DECODE_INTO, DECODE_FIELD, &type, err);
}

static status row_decode(const step *st, run *r, cell *slots, error *err) {
    const decode_state *s = st->state;
    const cell *in = &slots[st->in];
    const size_t n = s->first && s->first < in->len ? s->first : in->len;
    const size_t good = utf8_validate(in->bytes, n);
    (void)r;
    slots[st->out] = cell_of_text(in->bytes, n);
    if (good == n) return CHURON_OK;
    if (!s->missing)
        return error_set(err, CHURON_INVALID, "expected UTF-8, got the byte 0x%02x at %zu",
                         (unsigned char)in->bytes[good], good);
    slots[st->out] = (cell){.kind = CELL_MISSING};
    return CHURON_OK;
}

const step_kind step_decode_text = {.name = "decode_text",
                                    .group = "text",
                                    .doc = "The text that bytes are in UTF-8.",
                                    .reference = "Python's bytes.decode",
                                    .keys = DECODE_KEYS,
                                    .check = check_decode,
                                    .row = row_decode};

/* ---- length ----------------------------------------------------------------------------------------- */

enum { LENGTH_FIELD, LENGTH_INTO };

static const key_spec LENGTH_KEYS[] = {
    {"field", KEY_FIELD, .required = true, .doc = "Bytes, a text, a list or a tensor"},
    {"into", KEY_INTO, .required = true, .doc = "Name of the number, int64"},
    {0}};

static status check_length(step_build *b, error *err) {
    TRY(step_expect(b, LENGTH_FIELD, KIND(CELL_BYTES) | KIND(CELL_TEXT) | KIND(CELL_LIST) | KIND(CELL_TENSOR),
                    false, err));
    b->s->in = b->values[LENGTH_FIELD].slot;
    return step_output(b, LENGTH_INTO, LENGTH_FIELD, &CELL_TYPE_INT, err);
}

static status row_length(const step *st, run *r, cell *slots, error *err) {
    const cell *in = &slots[st->in];
    size_t n = in->kind == CELL_BYTES ? in->len : 0;
    (void)r;
    if (in->kind == CELL_TEXT) {
        for (size_t i = 0; i < in->len; i++) n += ((unsigned char)in->bytes[i] & 0xc0) != 0x80;
    } else if (in->kind == CELL_TENSOR && in->t->rank == 0) {
        return error_set(err, CHURON_INVALID, "expected a tensor of at least one dimension, got a scalar");
    } else if (in->kind != CELL_BYTES) {
        n = walk_count(in);
    }
    slots[st->out] = cell_of_int((int64_t)n);
    return CHURON_OK;
}

const step_kind step_length = {
    .name = "length",
    .group = "flow",
    .doc =
        "How many: bytes, characters (code points) of a text, items of a list, a tensor's first dimension.",
    .reference = "Python's len",
    .keys = LENGTH_KEYS,
    .check = check_length,
    .row = row_length};

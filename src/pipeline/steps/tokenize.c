/* tokenize.c: text to the ids that a model takes. */
#include "pipeline/pipeline_part.h"
#include "pipeline/steps/steps.h"
#include "pipeline/text_tokenizer.h"

#include "bundle/lm_bundle.h"

#include <string.h>

enum {
    KEY_FIELD_,
    KEY_PAIR,
    KEY_FILE_,
    KEY_MODEL_,
    KEY_OUTPUTS,
    KEY_ADD_SPECIAL,
    KEY_SPECIAL_IN_TEXT,
    KEY_MAX_LENGTH,
    KEY_CUT_SIDE,
    KEY_STRATEGY,
    KEY_PADDING,
    KEY_MULTIPLE,
    KEY_PAD_SIDE,
    KEY_PAD_ID,
    KEY_PAD_TYPE
};

typedef enum token_output {
    OUT_IDS,
    OUT_MASK,
    OUT_TYPES,
    OUT_SPECIAL,
    OUT_OFFSETS,
    OUT_OFFSETS_BYTES,
    OUTPUTS
} token_output;

static const char *const OUTPUT_NAMES[OUTPUTS] = {"input_ids",           "attention_mask", "token_type_ids",
                                                  "special_tokens_mask", "offsets",        "offsets_bytes"};

typedef struct tokenize_state {
    text_tokenizer t;
    text_lengths lengths;
    int32_t pair;           /* slot; -1: one text */
    int32_t slots[OUTPUTS]; /* -1: not wanted */
    bool add_special, special_in_text;
    size_t n_special; /* of the template */
} tokenize_state;

static const key_spec KEYS[] = {
    {"field", KEY_FIELD, .required = true, .doc = "A text"},
    {"pair", KEY_FIELD, .doc = "A second text behind it"},
    {"file", KEY_FILE, .doc = "A tokenizer.json in the bundle"},
    {"model", KEY_TEXT, .doc = "Instead of file: a language model of the bundle, whose tokenizer is used"},
    {"outputs", KEY_NAMES,
     .doc = "A map from input_ids, attention_mask, token_type_ids, special_tokens_mask, offsets (first and "
            "behind the last "
            "character of each token) and offsets_bytes to names of new values; left out: the first three, "
            "under their own "
            "names"},
    {"add_special", KEY_BOOL, .fallback = "true",
     .doc = "The special tokens that the file puts around texts"},
    {"special_in_text", KEY_BOOL, .fallback = "true",
     .doc = "Special tokens that stand in the text are read as such, as the reference does; false: they are "
            "plain text "
            "(language models' control tokens only)"},
    {"max_length", KEY_INT, .least = 0, .most = 1e9,
     .doc = "Most tokens, special ones included; more are cut off; 0: no limit; left out: as the file says"},
    {"truncation_side", KEY_CHOICE, .choices = "right|left",
     .doc = "Where tokens are cut off; left out: as the file says"},
    {"truncation_strategy", KEY_CHOICE, .choices = "longest_first|only_first|only_second",
     .doc = "Of two texts which is cut; longest_first: the longer one until they are of one length, then "
            "both; left out: as "
            "the file says"},
    {"padding", KEY_CHOICE, .fallback = "file", .choices = "file|none|max_length",
     .doc = "max_length: shorter ones are filled up to max_length"},
    {"pad_to_multiple", KEY_INT, .least = 0, .most = 1e6,
     .doc = "Filled up to a multiple of this; 0: no; left out: as the file says"},
    {"pad_side", KEY_CHOICE, .choices = "right|left",
     .doc = "Where padding goes; left out: as the file says"},
    {"pad_id", KEY_INT, .least = 0, .most = 2147483647.0,
     .doc = "Id of the padding; left out: as the file says, or that of [PAD], or 0"},
    {"pad_type_id", KEY_INT, .least = 0, .most = 1000,
     .doc = "token_type_ids of the padding; left out: as the file says"},
    {0}};

/* ---- check ------------------------------------------------------------------------------------------ */

static status open_file(step_build *b, tokenize_state *s, const char *path, error *err) {
    files_view view;
    TRY(files_map(b->p->files, path, &view, err));
    const status st = text_tokenizer_from_json(&s->t, path, view.data, view.size, err);
    files_unmap(&view);
    if (st != CHURON_OK) error_prefix(err, "%s: line %u: tokenize.file", b->reader->file, b->node->line);
    return st;
}

static status open_tokenizer(step_build *b, tokenize_state *s, error *err) {
    const key_value *file = &b->values[KEY_FILE_], *model = &b->values[KEY_MODEL_];
    if (file->given == model->given)
        return step_fault(b, NULL, err, "expected either the key 'file' or the key 'model'");
    if (file->given) return open_file(b, s, file->text, err);
    for (size_t i = 0; i < b->p->m.n_models; i++) {
        if (strcmp(b->p->models[i].name, model->text) != 0 || !b->p->models[i].lm) continue;
        return text_tokenizer_from_lm(&s->t, lm_bundle_tokenizer(b->p->models[i].lm), err);
    }
    return step_fault(b, "model", err, "expected the name of a language model, got '%.80s'", model->text);
}

static size_t count_special(const token_template *t) {
    size_t n = 0;
    for (size_t i = 0; i < t->n; i++) n += t->pieces[i].id >= 0;
    return n;
}

static status read_lengths(step_build *b, tokenize_state *s, error *err) {
    const key_value *v = b->values;
    text_lengths *l = &s->lengths;
    *l = s->t.lengths;
    if (v[KEY_MAX_LENGTH].given) l->max_length = (size_t)v[KEY_MAX_LENGTH].integer;
    if (v[KEY_CUT_SIDE].given) l->cut_left = v[KEY_CUT_SIDE].integer == 1;
    if (v[KEY_STRATEGY].given) l->strategy = (cut_strategy)v[KEY_STRATEGY].integer;
    if (v[KEY_PADDING].integer == 1) l->pad_to = l->pad_multiple = 0;
    if (v[KEY_PADDING].integer == 2) l->pad_to = l->max_length;
    if (v[KEY_MULTIPLE].given) l->pad_multiple = (size_t)v[KEY_MULTIPLE].integer;
    if (v[KEY_PAD_SIDE].given) l->pad_left = v[KEY_PAD_SIDE].integer == 1;
    if (v[KEY_PAD_ID].given) l->pad_id = (int32_t)v[KEY_PAD_ID].integer;
    if (v[KEY_PAD_TYPE].given) l->pad_type_id = (int32_t)v[KEY_PAD_TYPE].integer;
    if (v[KEY_PADDING].integer == 2 && l->max_length == 0)
        return step_fault(b, "padding", err, "expected a max_length with it, got none");
    if (l->max_length && l->max_length < s->n_special)
        return step_fault(b, "max_length", err, "expected at least %zu, the special tokens, got %zu",
                          s->n_special, l->max_length);
    if (l->strategy == CUT_ONLY_SECOND && s->pair < 0 && v[KEY_STRATEGY].given)
        return step_fault(b, "truncation_strategy", err,
                          "expected the key 'pair' with only_second, got none");
    if ((size_t)l->pad_id >= s->t.n_tokens)
        return step_fault(b, "pad_id", err, "expected less than %zu, the number of tokens, got %d",
                          s->t.n_tokens, (int)l->pad_id);
    return CHURON_OK;
}

static size_t padded(const text_lengths *l, size_t n) {
    if (n < l->pad_to) n = l->pad_to;
    return l->pad_multiple && n % l->pad_multiple ? n + l->pad_multiple - n % l->pad_multiple : n;
}

static status add_output(step_build *b, tokenize_state *s, token_output which, const char *name, bool spare,
                         error *err) {
    const text_lengths *l = &s->lengths;
    const bool pairs = which == OUT_OFFSETS || which == OUT_OFFSETS_BYTES;
    cell_type type = {
        .kind = CELL_TENSOR, .element = ELEM_I64, .has_rank = true, .rank = pairs ? 2 : 1, .dims = {-1, 2}};
    if (l->pad_to && l->max_length && l->max_length <= l->pad_to) type.dims[0] = (int64_t)padded(l, 1);
    if (pairs && !text_tokenizer_has_offsets(&s->t))
        return step_fault(b, "outputs", err, "expected a WordPiece tokenizer for %s, got another",
                          OUTPUT_NAMES[which]);
    TRY(step_output_named(b, name, &type, &s->slots[which], err));
    if (spare) step_output_spare(b);
    return CHURON_OK;
}

static status add_outputs(step_build *b, tokenize_state *s, error *err) {
    const key_value *names = &b->values[KEY_OUTPUTS];
    for (size_t i = 0; i < OUTPUTS; i++) s->slots[i] = -1;
    for (size_t i = 0; i < 3 && !names->given; i++)
        TRY(add_output(b, s, (token_output)i, OUTPUT_NAMES[i], true, err));
    for (size_t k = 0; k < names->n; k++) {
        size_t i = 0;
        while (i < OUTPUTS && strcmp(OUTPUT_NAMES[i], names->texts[k]) != 0) i++;
        if (i == OUTPUTS) {
            const char *near = keys_nearest(names->texts[k], OUTPUT_NAMES, OUTPUTS);
            return step_fault(b, "outputs", err, "expected an output such as '%s', got '%.60s'",
                              near ? near : "input_ids", names->texts[k]);
        }
        TRY(add_output(b, s, (token_output)i, names->others[k], false, err));
    }
    return names->given && names->n == 0 ? step_fault(b, "outputs", err, "expected at least one, got none")
                                         : CHURON_OK;
}

static status check(step_build *b, error *err) {
    tokenize_state *s;
    TRY(step_expect(b, KEY_FIELD_, 1u << CELL_TEXT, false, err));
    if (b->values[KEY_PAIR].given) TRY(step_expect(b, KEY_PAIR, 1u << CELL_TEXT, false, err));
    TRY(step_state(b, sizeof *s, &s, err));
    TRY(open_tokenizer(b, s, err));
    b->s->in = b->values[KEY_FIELD_].slot;
    s->pair = b->values[KEY_PAIR].given ? b->values[KEY_PAIR].slot : -1;
    s->add_special = b->values[KEY_ADD_SPECIAL].flag;
    s->special_in_text = b->values[KEY_SPECIAL_IN_TEXT].flag;
    if (s->pair >= 0 && s->t.pair.n == 0)
        return step_fault(
            b, "pair", err,
            "expected a tokenizer that says what stands around two texts, got one that does not");
    if (s->add_special) s->n_special = count_special(s->pair < 0 ? &s->t.single : &s->t.pair);
    TRY(read_lengths(b, s, err));
    return add_outputs(b, s, err);
}

static void release(step *st) {
    tokenize_state *s = st->state;
    if (s) text_tokenizer_free(&s->t);
}

/* ---- running ---------------------------------------------------------------------------------------- */

/* How many of n[0] and n[1] tokens stay when there may be `most`. */
static status cut(const tokenize_state *s, size_t most, size_t n[2], error *err) {
    const size_t total = n[0] + n[1];
    if (total <= most) return CHURON_OK;
    if (s->lengths.strategy != CUT_LONGEST_FIRST && s->pair >= 0) {
        const size_t which = s->lengths.strategy == CUT_ONLY_SECOND, other = n[!which];
        if (most <= other)
            return error_set(err, CHURON_INVALID,
                             "expected fewer than %zu tokens of the text that is not cut, got %zu", most,
                             other);
        n[which] = most - other;
        return CHURON_OK;
    }
    if (s->pair < 0) {
        n[0] = most;
        return CHURON_OK;
    }
    /* the longer one first, then both alike; of an odd rest the one that was longer gets one more */
    const size_t small = n[0] <= n[1] ? 0 : 1;
    size_t few = n[small], many = few > most ? few : (most - few > few ? most - few : few);
    if (few + many > most) {
        few = most / 2;
        many = few + most % 2;
    }
    n[small] = few;
    n[!small] = many;
    return CHURON_OK;
}

typedef struct token_writer {
    int64_t *out[OUTPUTS]; /* NULL: not wanted */
    size_t at;
} token_writer;

static void write_token(token_writer *w, int64_t id, int64_t type, bool special, bool real) {
    if (w->out[OUT_IDS]) w->out[OUT_IDS][w->at] = id;
    if (w->out[OUT_MASK]) w->out[OUT_MASK][w->at] = real;
    if (w->out[OUT_TYPES]) w->out[OUT_TYPES][w->at] = type;
    if (w->out[OUT_SPECIAL]) w->out[OUT_SPECIAL][w->at] = special;
    for (size_t k = OUT_OFFSETS; k <= OUT_OFFSETS_BYTES; k++) {
        if (w->out[k]) w->out[k][2 * w->at] = w->out[k][2 * w->at + 1] = 0;
    }
    w->at++;
}

/* Characters up to byte `to`; *at and *n move on together. */
static int64_t count_chars(const cell *text, size_t to, size_t *at, int64_t *n) {
    if (to < *at) *at = 0, *n = 0;
    for (; *at < to; (*at)++) *n += ((unsigned char)text->bytes[*at] & 0xc0) != 0x80;
    return *n;
}

static void write_text(token_writer *w, const cell *text, const token_span *spans, size_t n, int64_t type) {
    size_t at = 0;
    int64_t chars = 0;
    for (size_t i = 0; i < n; i++) {
        const size_t here = w->at;
        write_token(w, spans[i].id, type, false, true);
        if (w->out[OUT_OFFSETS_BYTES]) {
            w->out[OUT_OFFSETS_BYTES][2 * here] = spans[i].begin;
            w->out[OUT_OFFSETS_BYTES][2 * here + 1] = spans[i].end;
        }
        if (w->out[OUT_OFFSETS]) {
            w->out[OUT_OFFSETS][2 * here] = count_chars(text, spans[i].begin, &at, &chars);
            w->out[OUT_OFFSETS][2 * here + 1] = count_chars(text, spans[i].end, &at, &chars);
        }
    }
}

static status make_outputs(const step *st, run *r, const tokenize_state *s, size_t n, cell *slots,
                           token_writer *w, error *err) {
    const int64_t dims[2] = {(int64_t)n, 2};
    for (size_t k = 0; k < OUTPUTS; k++) {
        void *data;
        if (s->slots[k] < 0) continue;
        TRY(cell_new_tensor(&slots[s->slots[k]], CELL_TENSOR, r->memory, ELEM_I64, k >= OUT_OFFSETS ? 2 : 1,
                            dims, &data, st->label, err));
        w->out[k] = data;
    }
    return CHURON_OK;
}

/* Tokens of both texts in *spans, those of the first up to `split`. */
static status assemble(const step *st, run *r, cell *slots, const token_spans *spans, size_t split,
                       error *err) {
    const tokenize_state *s = st->state;
    const text_lengths *l = &s->lengths;
    const token_template *t = s->pair < 0 ? &s->t.single : &s->t.pair;
    const cell *texts[2] = {&slots[st->in], s->pair < 0 ? NULL : &slots[s->pair]};
    const size_t all[2] = {split, spans->len - split};
    size_t n[2] = {all[0], all[1]};
    token_writer w = {0};
    if (l->max_length) TRY(cut(s, l->max_length - s->n_special, n, err));
    const size_t real = n[0] + n[1] + s->n_special, total = padded(l, real);
    TRY(make_outputs(st, r, s, total, slots, &w, err));
    for (size_t i = real; i < total && l->pad_left; i++)
        write_token(&w, l->pad_id, l->pad_type_id, true, false);
    for (size_t i = 0; i < t->n; i++) {
        const template_piece p = t->pieces[i];
        if (p.id >= 0) {
            if (s->add_special) write_token(&w, p.id, p.type_id, true, true);
            continue;
        }
        const size_t which = p.id == -2;
        const token_span *first =
            (which ? spans->items + split : spans->items) + (l->cut_left ? all[which] - n[which] : 0);
        /* without special tokens the second text is 1, whatever the template says */
        if (n[which])
            write_text(&w, texts[which], first, n[which], s->add_special ? p.type_id : (int64_t)which);
    }
    for (size_t i = real; i < total && !l->pad_left; i++)
        write_token(&w, l->pad_id, l->pad_type_id, true, false);
    return CHURON_OK;
}

static status row(const step *st, run *r, cell *slots, error *err) {
    const tokenize_state *s = st->state;
    const cell *first = &slots[st->in];
    token_spans spans = {0};
    status result = text_tokenizer_encode(&s->t, first->bytes, first->len, s->special_in_text, &spans, err);
    const size_t split = spans.len;
    if (result == CHURON_OK && s->pair >= 0) {
        const cell *second = &slots[s->pair];
        result = text_tokenizer_encode(&s->t, second->bytes, second->len, s->special_in_text, &spans, err);
    }
    if (result == CHURON_OK) result = assemble(st, r, slots, &spans, split, err);
    token_spans_free(&spans);
    return result;
}

const step_kind step_tokenize = {.name = "tokenize",
                                 .group = "text",
                                 .doc = "The tokens of one text or two as int64 tensors: ids, 1 for tokens "
                                        "and 0 for padding, and which text each is of. "
                                        "First tokens are cut off, then special ones added, then padding.",
                                 .reference = "tokenizers (Tokenizer.from_file, encode)",
                                 .keys = KEYS,
                                 .check = check,
                                 .row = row,
                                 .release = release};

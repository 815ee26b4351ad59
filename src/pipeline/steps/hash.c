/* hash.c: features by the hash of their names. MurmurHash3 (x86, 32 bits) is Austin Appleby's, in the public
 * domain. */
#include "pipeline/steps/steps.h"
#include "pipeline/steps/vector.h"

#include <stdlib.h>
#include <string.h>

enum { KEY_FIELDS_, KEY_INTO_, KEY_N, KEY_SIGN, KEY_DTYPE };

enum { MAX_FEATURES = 1 << 22 };

typedef struct hash_state {
    size_t n, n_fields;
    const int32_t *slots;
    const char *const *names;
    bool alternate;
    elem element;
} hash_state;

static const key_spec HASH_KEYS[] = {
    {"fields", KEY_FIELDS, .required = true,
     .doc = "Texts (the feature NAME=TEXT with the value 1), numbers (the feature NAME with that value) and "
            "lists of texts "
            "(each a feature with the value 1)"},
    {"into", KEY_INTO, .required = true, .doc = "Name of the result"},
    {"n_features", KEY_INT, .required = true, .least = 1, .most = MAX_FEATURES,
     .doc = "Length of the result"},
    {"alternate_sign", KEY_BOOL, .fallback = "true", .doc = "The sign of the hash is that of the feature"},
    {"dtype", KEY_CHOICE, .fallback = "float64", .choices = "float64|float32", .doc = "Of the result"},
    {0}};

static uint32_t rotate(uint32_t x, int k) {
    return x << k | x >> (32 - k);
}

static uint32_t scramble(uint32_t k) {
    return rotate(k * 0xcc9e2d51u, 15) * 0x1b873593u;
}

/* Of name, '=' and text behind each other; without text (NULL) of the name alone. */
typedef struct hasher {
    uint32_t h, block;
    size_t len;
} hasher;

static void hasher_add(hasher *s, const char *bytes, size_t n) {
    for (size_t i = 0; i < n; i++) {
        s->block |= (uint32_t)(unsigned char)bytes[i] << 8 * (s->len & 3);
        if ((++s->len & 3) != 0) continue;
        s->h = rotate(s->h ^ scramble(s->block), 13) * 5 + 0xe6546b64u;
        s->block = 0;
    }
}

static int32_t hasher_end(const hasher *s) {
    uint32_t h = s->h ^ scramble(s->block) ^ (uint32_t)s->len;
    h = (h ^ h >> 16) * 0x85ebca6bu;
    h = (h ^ h >> 13) * 0xc2b2ae35u;
    h ^= h >> 16;
    int32_t out;
    memcpy(&out, &h, sizeof out);
    return out;
}

static void add_feature(const hash_state *s, const hasher *name, double amount, double *out) {
    const int64_t h = hasher_end(name);
    const size_t at = (size_t)(llabs(h) % (int64_t)s->n);
    out[at] += s->alternate && h < 0 ? -amount : amount;
}

static status check_hash(step_build *b, error *err) {
    const key_value *fields = &b->values[KEY_FIELDS_];
    hash_state *s;
    TRY(step_state(b, sizeof *s, &s, err));
    *s = (hash_state){.n = (size_t)b->values[KEY_N].integer,
                      .n_fields = fields->n,
                      .slots = fields->slots,
                      .names = fields->texts,
                      .alternate = b->values[KEY_SIGN].flag,
                      .element = elem_named(b->values[KEY_DTYPE].text, ELEMS_ALL)};
    if (s->n_fields == 0) return step_fault(b, "fields", err, "expected at least one field, got none");
    for (size_t i = 0; i < s->n_fields; i++) {
        const cell_type *t = fields->types[i];
        vector_form form;
        const bool texts = t->kind == CELL_LIST && t->of->kind == CELL_TEXT && !t->of->optional;
        const bool number = vector_form_of(t, &form) && form.single;
        char got[160];
        if (t->optional || !(number || texts || t->kind == CELL_TEXT))
            return step_fault(b, "fields", err,
                              "expected texts, numbers and lists of texts, got '%.60s', which is %s",
                              fields->texts[i], cell_type_text(t, got, sizeof got));
    }
    const cell_type type = {
        .kind = CELL_TENSOR, .element = s->element, .has_rank = true, .rank = 1, .dims = {(int64_t)s->n}};
    return step_output(b, KEY_INTO_, KEY_FIELDS_, &type, err);
}

static status row_hash(const step *st, run *r, cell *slots, error *err) {
    const hash_state *s = st->state;
    double *out;
    TRY(vector_room(st, r, s->n, &out, err));
    memset(out, 0, s->n * sizeof *out);
    for (size_t i = 0; i < s->n_fields; i++) {
        const cell *c = &slots[s->slots[i]];
        hasher h = {0};
        if (c->kind == CELL_LIST) {
            for (uint32_t k = 0; k < c->n; k++) {
                h = (hasher){0};
                hasher_add(&h, c->items[k].bytes, c->items[k].len);
                add_feature(s, &h, 1, out);
            }
            continue;
        }
        hasher_add(&h, s->names[i], strlen(s->names[i]));
        if (c->kind == CELL_TEXT) {
            hasher_add(&h, "=", 1);
            hasher_add(&h, c->bytes, c->len);
            add_feature(s, &h, 1, out);
        } else {
            const double *amount;
            double one;
            size_t n;
            TRY(vector_read(st, r, c, &one, &amount, &n, err));
            if (*amount != 0) add_feature(s, &h, *amount, out);
        }
    }
    return vector_store_row(st, r, s->element, out, s->n, &slots[st->out], err);
}

const step_kind step_hash = {.name = "hash",
                             .group = "tabular",
                             .doc = "A vector of n_features zeros to which each feature adds its value, at "
                                    "|h| modulo n_features, h being the "
                                    "MurmurHash3 (32 bits, seed 0) of its name as a signed number.",
                             .reference = "scikit-learn FeatureHasher",
                             .keys = HASH_KEYS,
                             .check = check_hash,
                             .row = row_hash};

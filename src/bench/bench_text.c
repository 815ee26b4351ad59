/* bench_text.c: see bench_text.h. */
#include "bench/bench_text.h"

#include "base/clock.h"
#include "base/mem.h"

#include <math.h>
#include <string.h>

/* splitmix64: small, and the same everywhere. */
typedef struct generator {
    uint64_t state;
} generator;

static uint64_t next_u64(generator *g) {
    uint64_t z = g->state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static size_t below(generator *g, size_t n) {
    return (size_t)(next_u64(g) % n);
}

static double uniform(generator *g) {
    return (double)(next_u64(g) >> 11) * 0x1p-53;
}

/* ---- prose ------------------------------------------------------------------------------------------ */

static const char *const common[] = {
    "the",     "of",      "and",   "to",    "in",     "a",     "is",     "that",  "for",   "it",   "as",
    "was",     "with",    "be",    "on",    "not",    "he",    "by",     "but",   "at",    "are",  "this",
    "have",    "from",    "or",    "had",   "an",     "they",  "which",  "one",   "you",   "were", "her",
    "all",     "she",     "there", "would", "their",  "we",    "him",    "been",  "has",   "when", "who",
    "will",    "more",    "no",    "if",    "out",    "so",    "said",   "what",  "up",    "its",  "about",
    "into",    "than",    "them",  "can",   "only",   "other", "new",    "some",  "could", "time", "these",
    "two",     "may",     "then",  "do",    "first",  "any",   "my",     "now",   "such",  "like", "our",
    "over",    "man",     "me",    "even",  "most",   "made",  "after",  "also",  "did",   "many", "before",
    "must",    "through", "back",  "years", "where",  "much",  "your",   "way",   "well",  "down", "should",
    "because", "each",    "just",  "those", "people", "too",   "little", "state", "good",
};

static const char *const syllables[] = {
    "ba", "ren", "tion", "ly",  "com",  "ter", "per", "ver", "al",  "ing", "est",  "ra",  "mi",   "no",
    "so", "lu",  "vent", "ous", "ment", "ist", "er",  "dis", "pro", "con", "tain", "gen", "port", "sub",
};

static const char *const contractions[] = {" don't", " it's", " we're", " I'll", " they've", " she'd"};

#define COUNT(array) (sizeof(array) / sizeof *(array))

enum { RARE_WORDS = 20000 };

/* The word of this number: always the same letters. */
static void put_rare(str *out, uint64_t number) {
    generator g = {number * 7919 + 1};
    for (size_t n = 2 + below(&g, 3); n > 0; n--) str_cat(out, syllables[below(&g, COUNT(syllables))]);
}

/* Zipf's law: the rank's logarithm is uniform. */
static size_t zipf(generator *g, size_t n) {
    size_t rank = (size_t)exp(uniform(g) * log((double)n + 1)) - 1;
    return rank < n ? rank : n - 1;
}

static void put_sentence(generator *g, str *out) {
    size_t begin = out->len;
    for (size_t words = 4 + below(g, 19), i = 0; i < words; i++) {
        if (i) str_put(out, ' ');
        if (uniform(g) < 0.75) {
            str_cat(out, common[zipf(g, COUNT(common))]);
        } else {
            put_rare(out, zipf(g, RARE_WORDS));
        }
        double r = uniform(g);
        if (r < 0.07) str_put(out, ',');
        if (r > 0.99) str_fmt(out, " %zu", below(g, 2030));
        if (r > 0.98 && r <= 0.99) str_cat(out, contractions[below(g, COUNT(contractions))]);
    }
    if (out->len > begin) out->data[begin] = (char)(out->data[begin] - 'a' + 'A');
    static const char *const ends[] = {". ", ". ", ". ", ". ", "? ", "! ", ".\n\n", ".\n"};
    str_cat(out, ends[below(g, COUNT(ends))]);
}

/* ---- the rest --------------------------------------------------------------------------------------- */

static const struct {
    const char *name, *unit; /* unit NULL: made, not repeated */
} kinds[] = {
    {"prose", NULL},
    {"letter", "a"},
    {"spaces", " "},
    {"ab", "ab"},
    {"newlines", "\n"},
    {"digits", "0"},
    {"hyphens", "-"},
    {"emoji",
     "\xf0\x9f\x91\xa8\xe2\x80\x8d\xf0\x9f\x91\xa9\xf0\x9f\x8f\xbd"}, /* man, joiner, woman, skin tone */
    {"accents", "e\xcc\x81"},
    {"marks", "\xcc\x81\xcc\xa3"}, /* above, below: out of canonical order */
    {"specials", "<|im_start"},
    {"han", NULL},
    {"hangul", NULL},
};

size_t bench_text_n_kinds(void) {
    return COUNT(kinds);
}

const char *bench_text_kind(size_t i) {
    return kinds[i].name;
}

static void put_random(generator *g, uint32_t first, uint32_t n, str *out) {
    char c[4];
    size_t len = utf8_encode(first + (uint32_t)below(g, n), c);
    str_add(out, c, len);
}

static bool put_unit(const char *kind, generator *g, str *out) {
    for (size_t i = 0; i < COUNT(kinds); i++) {
        if (strcmp(kinds[i].name, kind) != 0) continue;
        if (kinds[i].unit) {
            str_cat(out, kinds[i].unit);
        } else if (i == 0) {
            put_sentence(g, out);
        } else if (strcmp(kind, "han") == 0) {
            put_random(g, 0x4e00, 0x5000, out);
        } else {
            put_random(g, 0xac00, 11172, out);
        }
        return true;
    }
    return false;
}

status bench_text_make(const char *kind, size_t bytes, str *out, error *err) {
    generator g = {1};
    size_t begin = out->len;
    (void)str_reserve(out, bytes + 1024);
    while (out->len - begin < bytes && !out->failed) {
        if (!put_unit(kind, &g, out)) return error_set(err, CHURON_INVALID, "text: unknown kind %s", kind);
    }
    TRY(str_check(out, err));
    out->len = begin + bytes;
    return CHURON_OK;
}

status bench_tokenizer_once(const tokenizer *t, const str *text, double *seconds, size_t *n_tokens,
                            error *err) {
    token_list ids = {0};
    double start = clock_seconds();
    status st = tokenizer_encode(t, text->data, text->len, (tokenize_options){0}, &ids, err);
    if (seconds) *seconds = clock_seconds() - start;
    if (n_tokens) *n_tokens = ids.len;
    token_list_free(&ids);
    return st;
}

status bench_tokenizer(const tokenizer *t, size_t bytes, size_t reps, bench_tokenizer_result *out,
                       error *err) {
    *out = (bench_tokenizer_result){.bytes = bytes};
    str text = {0};
    status st;
    TRY_GOTO(bench_text_make("prose", bytes, &text, err));
    for (size_t i = 0; i < reps; i++) {
        double seconds;
        TRY_GOTO(bench_tokenizer_once(t, &text, &seconds, &out->tokens, err));
        if (seconds > 0 && (double)bytes / seconds > out->bytes_per_s)
            out->bytes_per_s = (double)bytes / seconds;
    }
    st = CHURON_OK;
cleanup:
    str_free(&text);
    return st;
}

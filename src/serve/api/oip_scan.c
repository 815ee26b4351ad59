/* oip_scan.c: see oip_scan.h. */
#include "serve/api/oip_scan.h"

#include <errno.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- places ----------------------------------------------------------------------------------------- */

/* What stands at the cursor, for errors: a few bytes of it. */
static const char *found(const oip_scan *s, char out[32]) {
    if (s->p >= s->end) return "the end";
    size_t n = (size_t)(s->end - s->p), k = 0;
    out[k++] = '\'';
    for (size_t i = 0; i < n && i < 24; i++) {
        char c = s->p[i];
        if (i > 0 && strchr(",]} \t\r\n", c)) break;
        out[k++] = c >= 0x20 && c < 0x7f ? c : '?';
    }
    out[k++] = '\'';
    out[k] = '\0';
    return out;
}

static status expected(const oip_scan *s, const char *what, const char *wanted, error *err) {
    char text[32];
    return error_set(err, CHURON_INVALID, "%s: expected %s, got %s", what, wanted, found(s, text));
}

static inline void blanks(oip_scan *s) {
    while (s->p < s->end && (*s->p == ' ' || *s->p == '\n' || *s->p == '\t' || *s->p == '\r')) s->p++;
}

char oip_peek(oip_scan *s) {
    blanks(s);
    return s->p < s->end ? *s->p : '\0';
}

bool oip_take(oip_scan *s, char c) {
    blanks(s);
    if (s->p >= s->end || *s->p != c) return false;
    s->p++;
    return true;
}

status oip_expect(oip_scan *s, char c, const char *what, error *err) {
    const char wanted[] = {'\'', c, '\'', '\0'};
    return oip_take(s, c) ? CHURON_OK : expected(s, what, wanted, err);
}

status oip_next_item(oip_scan *s, bool *first, bool *more, const char *what, error *err) {
    *more = true;
    if (oip_take(s, ']')) {
        *more = false;
        return CHURON_OK;
    }
    if (!*first) {
        if (!oip_take(s, ',')) return expected(s, what, "',' or ']'", err);
        if (oip_peek(s) == ']') return expected(s, what, "a value", err);
    }
    *first = false;
    return CHURON_OK;
}

status oip_next_member(oip_scan *s, bool *first, str *key, bool *more, const char *what, error *err) {
    *more = true;
    if (oip_take(s, '}')) {
        *more = false;
        return CHURON_OK;
    }
    if (!*first && !oip_take(s, ',')) return expected(s, what, "',' or '}'", err);
    *first = false;
    if (oip_peek(s) != '"') return expected(s, what, "a member's name", err);
    TRY(oip_string(s, key, what, err));
    return oip_expect(s, ':', what, err);
}

/* ---- strings ---------------------------------------------------------------------------------------- */

static bool hex4(const char *p, uint32_t *out) {
    *out = 0;
    for (int i = 0; i < 4; i++) {
        char c = p[i];
        uint32_t v = c >= '0' && c <= '9'   ? (uint32_t)(c - '0')
                     : c >= 'a' && c <= 'f' ? (uint32_t)(c - 'a') + 10
                     : c >= 'A' && c <= 'F' ? (uint32_t)(c - 'A') + 10
                                            : 16;
        if (v == 16) return false;
        *out = *out << 4 | v;
    }
    return true;
}

/* A \u escape behind its u, with the second half of a pair. */
static bool unicode_escape(oip_scan *s, str *out) {
    uint32_t cp, low;
    if (s->end - s->p < 4 || !hex4(s->p, &cp)) return false;
    s->p += 4;
    if (cp >= 0xdc00 && cp <= 0xdfff) return false;
    if (cp >= 0xd800 && cp <= 0xdbff) {
        if (s->end - s->p < 6 || s->p[0] != '\\' || s->p[1] != 'u' || !hex4(s->p + 2, &low)) return false;
        if (low < 0xdc00 || low > 0xdfff) return false;
        cp = 0x10000 + ((cp - 0xd800) << 10) + (low - 0xdc00);
        s->p += 6;
    }
    char bytes[4];
    str_add(out, bytes, utf8_encode(cp, bytes));
    return true;
}

static bool escape(oip_scan *s, str *out) {
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    if (s->p >= s->end) return false;
    const char c = *s->p++;
    if (c == 'u') return unicode_escape(s, out);
    const char *at = c ? strchr(from, c) : NULL;
    if (at) str_put(out, to[at - from]);
    return at != NULL;
}

status oip_string(oip_scan *s, str *out, const char *what, error *err) {
    str_clear(out);
    if (!oip_take(s, '"')) return expected(s, what, "a string", err);
    for (;;) {
        const char *from = s->p;
        while (s->p < s->end && *s->p != '"' && *s->p != '\\' && (unsigned char)*s->p >= 0x20) s->p++;
        if (s->p > from) {
            const size_t n = (size_t)(s->p - from);
            if (utf8_validate(from, n) != n)
                return error_set(err, CHURON_INVALID, "%s: expected UTF-8, got other bytes", what);
            str_add(out, from, n);
        }
        if (s->p >= s->end) return expected(s, what, "a string's closing quote", err);
        const char c = *s->p++;
        if (c == '"') return str_check(out, err);
        if (c != '\\')
            return error_set(err, CHURON_INVALID, "%s: expected a string, got a control character", what);
        if (!escape(s, out))
            return error_set(err, CHURON_INVALID, "%s: expected a JSON escape, got another", what);
    }
}

/* ---- words and numbers ------------------------------------------------------------------------------ */

static bool word(oip_scan *s, const char *w) {
    const size_t n = strlen(w);
    if ((size_t)(s->end - s->p) < n || memcmp(s->p, w, n) != 0) return false;
    s->p += n;
    return true;
}

status oip_bool(oip_scan *s, bool *out, const char *what, error *err) {
    blanks(s);
    if (word(s, "true")) {
        *out = true;
    } else if (word(s, "false")) {
        *out = false;
    } else {
        return expected(s, what, "true or false", err);
    }
    return CHURON_OK;
}

static inline bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

/* Magnitude of an integer. False: none, or not in 64 bits, or it goes on as a fraction. */
static bool magnitude(oip_scan *s, uint64_t *out) {
    const char *p = s->p;
    uint64_t v = 0;
    if (p >= s->end || !is_digit(*p)) return false;
    if (*p == '0') {
        p++;
    } else {
        for (; p < s->end && is_digit(*p); p++) {
            const uint64_t d = (uint64_t)(*p - '0');
            if (v > (UINT64_MAX - d) / 10) return false;
            v = v * 10 + d;
        }
    }
    if (p < s->end && (*p == '.' || *p == 'e' || *p == 'E' || is_digit(*p))) return false;
    s->p = p;
    *out = v;
    return true;
}

status oip_i64(oip_scan *s, int64_t *out, const char *what, error *err) {
    blanks(s);
    oip_scan at = *s;
    const bool negative = at.p < at.end && *at.p == '-';
    if (negative) at.p++;
    uint64_t v;
    if (!magnitude(&at, &v) || v > (uint64_t)INT64_MAX + negative) {
        return expected(s, what, "an integer of 64 bits", err);
    }
    *out = negative ? (int64_t)(0 - v) : (int64_t)v;
    s->p = at.p;
    return CHURON_OK;
}

status oip_u64(oip_scan *s, uint64_t *out, const char *what, error *err) {
    blanks(s);
    oip_scan at = *s;
    if (!magnitude(&at, out)) return expected(s, what, "an integer of 64 bits, 0 or more", err);
    s->p = at.p;
    return CHURON_OK;
}

static const double powers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

typedef struct decimal {
    uint64_t digits; /* of all significant digits, if `exact` */
    int64_t exponent;
    bool negative, exact;
} decimal;

/* A run of digits, at least one; those after the 19th significant one are counted only. */
static bool take_digits(oip_scan *s, decimal *d, int64_t step, int *significant) {
    const char *from = s->p;
    for (; s->p < s->end && is_digit(*s->p); s->p++) {
        const uint64_t v = (uint64_t)(*s->p - '0');
        if (*significant > 0 || v) ++*significant;
        if (*significant <= 19) {
            d->digits = d->digits * 10 + v;
        } else {
            d->exact = false;
        }
        d->exponent += step;
    }
    return s->p > from;
}

/* JSON's grammar of numbers. */
static bool take_decimal(oip_scan *s, decimal *d) {
    *d = (decimal){.exact = true};
    int significant = 0;
    if (s->p < s->end && *s->p == '-') {
        d->negative = true;
        s->p++;
    }
    if (s->p < s->end && *s->p == '0') {
        s->p++;
        if (s->p < s->end && is_digit(*s->p)) return false;
    } else if (!take_digits(s, d, 0, &significant)) {
        return false;
    }
    if (s->p < s->end && *s->p == '.') {
        s->p++;
        if (!take_digits(s, d, -1, &significant)) return false;
    }
    if (s->p < s->end && (*s->p == 'e' || *s->p == 'E')) {
        s->p++;
        const bool down = s->p < s->end && *s->p == '-';
        if (s->p < s->end && (*s->p == '-' || *s->p == '+')) s->p++;
        if (s->p >= s->end || !is_digit(*s->p)) return false;
        int64_t e = 0;
        for (; s->p < s->end && is_digit(*s->p); s->p++) {
            if (e < 1000000) e = e * 10 + (*s->p - '0');
        }
        d->exponent += down ? -e : e;
    }
    return true;
}

status oip_double(oip_scan *s, double *out, const char *what, error *err) {
    blanks(s);
    const oip_scan at = *s;
    if (s->p < s->end &&
        (*s->p == 'N' || *s->p == 'I' || (*s->p == '-' && s->end - s->p > 1 && s->p[1] == 'I'))) {
        if (word(s, "NaN")) {
            *out = (double)NAN;
        } else if (word(s, "Infinity")) {
            *out = (double)INFINITY;
        } else if (word(s, "-Infinity")) {
            *out = -(double)INFINITY;
        } else {
            return expected(s, what, "a number", err);
        }
        return CHURON_OK;
    }
    decimal d;
    if (!take_decimal(s, &d)) return expected(&at, what, "a number", err);
    /* Both factors are exact doubles, so that their product or quotient is rounded once (Clinger, "How to
     * read floating point numbers accurately", 1990). */
    if (d.exact && d.digits <= (uint64_t)1 << 53 && d.exponent >= -22 && d.exponent <= 22) {
        double v = (double)d.digits;
        v = d.exponent < 0 ? v / powers[-d.exponent] : v * powers[d.exponent];
        *out = d.negative ? -v : v;
        return CHURON_OK;
    }
    *out = strtod(at.p, NULL); /* ends where the grammar did, at the latest at the zero behind the bytes */
    return isfinite(*out) ? CHURON_OK : expected(&at, what, "a number in the range of float64", err);
}

/* ---- what is passed over ---------------------------------------------------------------------------- */

static status skip_plain(oip_scan *s, str *scratch, const char *what, error *err) {
    const char c = oip_peek(s);
    double ignored;
    if (c == '"') return oip_string(s, scratch, what, err);
    if (c == 't' || c == 'f' || c == 'n') {
        return word(s, "true") || word(s, "false") || word(s, "null") ? CHURON_OK
                                                                      : expected(s, what, "a value", err);
    }
    return oip_double(s, &ignored, what, err);
}

static status skip_value(oip_scan *s, str *scratch, int depth, const char *what, error *err) {
    const bool object = oip_peek(s) == '{';
    if (!object && oip_peek(s) != '[') return skip_plain(s, scratch, what, err);
    if (depth == OIP_MAX_DEPTH) {
        return error_set(err, CHURON_LIMIT, "%s: expected at most %d levels of nesting, got more", what,
                         OIP_MAX_DEPTH);
    }
    s->p++;
    for (bool first = true, more;;) {
        TRY(object ? oip_next_member(s, &first, scratch, &more, what, err)
                   : oip_next_item(s, &first, &more, what, err));
        if (!more) return CHURON_OK;
        TRY(skip_value(s, scratch, depth + 1, what, err));
    }
}

status oip_skip(oip_scan *s, const char *what, error *err) {
    str scratch = {0};
    const status st = skip_value(s, &scratch, 0, what, err);
    str_free(&scratch);
    return st;
}

/* ---- elements --------------------------------------------------------------------------------------- */

static status whole_number(oip_scan *s, int64_t min, int64_t max, int64_t *out, const char *what,
                           error *err) {
    blanks(s);
    const oip_scan at = *s;
    if (oip_i64(s, out, what, NULL) == CHURON_OK && *out >= min && *out <= max) return CHURON_OK;
    char text[32];
    return error_set(err, CHURON_INVALID, "%s: expected an integer of %" PRId64 " to %" PRId64 ", got %s",
                     what, min, max, found(&at, text));
}

static status single_float(oip_scan *s, float *out, const char *what, error *err) {
    blanks(s);
    const oip_scan at = *s;
    double v;
    TRY(oip_double(s, &v, what, err));
    *out = (float)v;
    if (isfinite(v) && !isfinite(*out)) return expected(&at, what, "a number in the range of float32", err);
    return CHURON_OK;
}

#define WHOLE(type, min, max)                                                                                \
    do {                                                                                                     \
        int64_t whole_;                                                                                      \
        TRY(whole_number(s, min, max, &whole_, what, err));                                                  \
        ((type *)t->data)[i] = (type)whole_;                                                                 \
        return CHURON_OK;                                                                                    \
    } while (0)

static status element(oip_scan *s, tensor *t, size_t i, str *scratch, const char *what, error *err) {
    bool truth;
    switch (t->type) {
    case ELEM_F32: return single_float(s, &((float *)t->data)[i], what, err);
    case ELEM_F64: return oip_double(s, &((double *)t->data)[i], what, err);
    case ELEM_I64: return oip_i64(s, &((int64_t *)t->data)[i], what, err);
    case ELEM_U64: return oip_u64(s, &((uint64_t *)t->data)[i], what, err);
    case ELEM_I32: WHOLE(int32_t, INT32_MIN, INT32_MAX);
    case ELEM_U32: WHOLE(uint32_t, 0, UINT32_MAX);
    case ELEM_I16: WHOLE(int16_t, INT16_MIN, INT16_MAX);
    case ELEM_U16: WHOLE(uint16_t, 0, UINT16_MAX);
    case ELEM_I8: WHOLE(int8_t, INT8_MIN, INT8_MAX);
    case ELEM_U8: WHOLE(uint8_t, 0, UINT8_MAX);
    case ELEM_BOOL:
        TRY(oip_bool(s, &truth, what, err));
        ((uint8_t *)t->data)[i] = truth;
        return CHURON_OK;
    case ELEM_STRING:
        TRY(oip_string(s, scratch, what, err));
        return tensor_string_set(t, i, scratch->data ? scratch->data : "", scratch->len, err);
    default:
        return error_set(err, CHURON_INVALID, "%s: expected the binary form for %s, got JSON", what,
                         elem_name(t->type));
    }
}
#undef WHOLE

/* The walk through brackets. Level 1 is the outermost array. */
typedef struct walk {
    const tensor *t;
    const char *what;
    size_t level, leaf, deepest; /* leaf: level of the elements, 0 before the first */
    size_t n, items[TENSOR_MAX_RANK + 1];
} walk;

static status open_level(walk *w, error *err) {
    const size_t rank = w->t->rank ? w->t->rank : 1;
    if (w->leaf ? w->level >= w->leaf : w->level >= rank) {
        return error_set(err, CHURON_INVALID,
                         "%s: expected numbers flat or nested as the shape of rank %zu, got "
                         "other nesting",
                         w->what, (size_t)w->t->rank);
    }
    w->items[w->level++]++;
    w->items[w->level] = 0;
    w->deepest = w->level > w->deepest ? w->level : w->deepest;
    return CHURON_OK;
}

static status close_level(walk *w, error *err) {
    const size_t level = w->level--;
    if (w->deepest < 2 || w->items[level] == (uint64_t)w->t->dims[level - 1]) return CHURON_OK;
    return error_set(err, CHURON_INVALID,
                     "%s: expected %" PRId64 " items in dimension %zu as the shape says, got %zu", w->what,
                     w->t->dims[level - 1], level - 1, w->items[level]);
}

static status place_element(walk *w, error *err) {
    if (!w->leaf && (w->level == 1 ? w->deepest == 1 : w->level == w->t->rank)) w->leaf = w->level;
    if (w->level != w->leaf) {
        return error_set(err, CHURON_INVALID,
                         "%s: expected numbers flat or nested as the shape of rank %zu, got "
                         "other nesting",
                         w->what, (size_t)w->t->rank);
    }
    if (w->n == w->t->count) {
        return error_set(err, CHURON_INVALID, "%s: expected %zu elements as the shape says, got more",
                         w->what, w->t->count);
    }
    w->n++;
    w->items[w->level]++;
    return CHURON_OK;
}

static status walk_elements(oip_scan *s, walk *w, tensor *t, str *scratch, error *err) {
    bool fresh = true; /* behind an opening bracket */
    for (;;) {
        const char c = oip_peek(s);
        bool closes = c == ']' && fresh;
        if (c == '[') {
            TRY(open_level(w, err));
            s->p++;
            fresh = true;
            continue;
        }
        if (!closes) {
            TRY(place_element(w, err));
            TRY(element(s, t, w->n - 1, scratch, w->what, err));
        }
        for (;;) { /* behind a value, or before the bracket of an empty array */
            if (oip_take(s, ']')) {
                TRY(close_level(w, err));
                if (w->level == 0) return CHURON_OK;
            } else if (oip_take(s, ',')) {
                fresh = false;
                break;
            } else {
                return expected(s, w->what, "',' or ']'", err);
            }
        }
    }
}

status oip_elements(oip_scan *s, tensor *t, const char *what, error *err) {
    TRY(oip_expect(s, '[', what, err));
    walk w = {.t = t, .what = what, .level = 1, .deepest = 1};
    str scratch = {0};
    const status st = walk_elements(s, &w, t, &scratch, err);
    str_free(&scratch);
    TRY(st);
    if (w.n == t->count) return CHURON_OK;
    return error_set(err, CHURON_INVALID, "%s: expected %zu elements as the shape says, got %zu", what,
                     t->count, w.n);
}

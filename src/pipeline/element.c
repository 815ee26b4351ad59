/* element.c: see element.h. */
#include "pipeline/element.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Types whose memory holds an integer of as many bits. */
#define WHOLE (ELEMS_INT | ELEM_BIT(ELEM_I4) | ELEM_BIT(ELEM_U4) | ELEM_BIT(ELEM_I2) | ELEM_BIT(ELEM_U2))

/* ---- what is shown ---------------------------------------------------------------------------------- */

const char *element_json_kind(const json_t *j) {
    if (!j) return "nothing";
    switch (json_typeof(j)) {
    case JSON_OBJECT: return "an object";
    case JSON_ARRAY: return "a list";
    case JSON_STRING: return "a string";
    case JSON_INTEGER: return "an integer";
    case JSON_REAL: return "a number with a fraction or exponent";
    case JSON_NULL: return "null";
    default: return json_is_true(j) ? "true" : "false";
    }
}

/* As few digits as give the same number again, and a point, as in the text that it came from. */
static void real_text(double v, char *buf, size_t room) {
    char digits[40];
    for (int n = 6; n <= 17; n++) {
        snprintf(digits, sizeof digits, "%.*g", n, v);
        if (strtod(digits, NULL) == v) break;
    }
    snprintf(buf, room, "%s%s", digits, strpbrk(digits, ".en") ? "" : ".0");
}

void element_json_text(const json_t *j, char *buf, size_t room) {
    if (json_is_string(j)) {
        const size_t n = json_string_length(j);
        snprintf(buf, room, "the string '%.*s'", (int)(n < 60 ? n : 60), json_string_value(j));
    } else if (json_is_integer(j)) {
        snprintf(buf, room, "%" JSON_INTEGER_FORMAT, json_integer_value(j));
    } else if (json_is_real(j)) {
        real_text(json_real_value(j), buf, room);
    } else {
        snprintf(buf, room, "%s", element_json_kind(j));
    }
}

/* ---- numbers of a type ------------------------------------------------------------------------------ */

/* Least and greatest of an integer type as far as int64 has them. */
static void int_range(elem e, int64_t *least, int64_t *most) {
    const unsigned bits = elem_describe(e)->bits;
    const bool with_sign = (ELEM_BIT(e) & (ELEMS_SIGNED | ELEM_BIT(ELEM_I4) | ELEM_BIT(ELEM_I2))) != 0;
    *least = !with_sign ? 0 : bits == 64 ? INT64_MIN : -((int64_t)1 << (bits - 1));
    *most = bits == 64 ? INT64_MAX : ((int64_t)1 << (with_sign ? bits - 1 : bits)) - 1;
}

static void int_expected(elem e, element_fault *f) {
    int64_t least, most;
    int_range(e, &least, &most);
    if (e == ELEM_U64) {
        snprintf(f->expected, sizeof f->expected, "0 to %" PRIu64, UINT64_MAX);
    } else {
        snprintf(f->expected, sizeof f->expected, "%" PRId64 " to %" PRId64, least, most);
    }
}

static bool put_int(elem e, int64_t v, void *to) {
    int64_t least, most;
    int_range(e, &least, &most);
    if (v < least || v > most) return false;
    memcpy(to, &v, elem_describe(e)->bytes); /* little-endian: the low bytes come first */
    return true;
}

/* The largest finite number of a float type. */
static double greatest(elem e) {
    static const struct {
        elem type;
        double most;
    } small[] = {{ELEM_F16, 65504},        {ELEM_F8E4M3FN, 448},      {ELEM_F8E4M3FNUZ, 240},
                 {ELEM_F8E5M2, 57344},     {ELEM_F8E5M2FNUZ, 57344},  {ELEM_F4E2M1, 6},
                 {ELEM_F6E2M3, 7.5},       {ELEM_F6E3M2, 28},         {ELEM_F8E8M0, 0x1p127},
                 {ELEM_BF16, 0x1.fep+127}, {ELEM_F32, 0x1.fffffep127}};
    for (size_t i = 0; i < sizeof small / sizeof *small; i++) {
        if (small[i].type == e) return small[i].most;
    }
    return 0x1.fffffffffffffp1023;
}

static bool put_float(elem e, double v, void *to) {
    double back;
    elem_from_f64(e, &v, to, 1, !isinf(v)); /* infinities only where the type has them */
    elem_to_f64(e, to, &back, 1);
    if (isnan(v)) return isnan(back);
    if (isinf(v)) return back == v;
    /* Where the type saturates, what lies beyond is refused as where it has infinities. */
    const double most = greatest(e);
    if (!isfinite(back) || (fabs(v) > most && fabs(back) >= most && fabs(v) - most > most * 0x1p-9))
        return false;
    return v == 0 ? back == 0 : signbit(back) == signbit(v);
}

bool element_from_double(elem e, double v, void *to) {
    if (ELEM_BIT(e) & (WHOLE | ELEM_BIT(ELEM_BOOL))) {
        if (!(v >= -0x1p63 && v < 0x1p63) || v != trunc(v)) return false;
        if (e != ELEM_BOOL) return put_int(e, (int64_t)v, to);
        *(uint8_t *)to = v != 0;
        return v == 0 || v == 1;
    }
    return put_float(e, v, to);
}

status element_convert(const tensor *t, elem e, void *to, const char *what, error *err) {
    const size_t from_bytes = elem_describe(t->type)->bytes, to_bytes = elem_describe(e)->bytes;
    for (size_t i = 0; i < t->count; i++) {
        double v;
        elem_to_f64(t->type, (const char *)t->data + i * from_bytes, &v, 1);
        if (element_from_double(e, v, (char *)to + i * to_bytes)) continue;
        return error_set(err, CHURON_INVALID,
                         "%.200s: element %zu: expected a number that %s holds, got %.9g", what, i,
                         elem_name(e), v);
    }
    return CHURON_OK;
}

/* An integer that a float type has to hold exactly. */
static bool put_exact(elem e, int64_t v, void *to) {
    double back;
    if (!put_float(e, (double)v, to)) return false;
    elem_to_f64(e, to, &back, 1);
    return back >= -0x1p63 && back < 0x1p63 && (int64_t)back == v;
}

static void float_expected(elem e, bool whole, double v, element_fault *f) {
    const double most = greatest(e);
    if (whole && fabs(v) <= most) {
        snprintf(f->expected, sizeof f->expected,
                 "an integer that %s holds exactly, or a number with a point", elem_name(e));
    } else {
        snprintf(f->expected, sizeof f->expected, "a number in the range of %s (at most %.9g)", elem_name(e),
                 most);
    }
}

/* ---- JSON ------------------------------------------------------------------------------------------- */

static bool named_number(const char *s, double *out) {
    if (strcmp(s, "NaN") == 0) {
        *out = (double)NAN;
    } else if (strcmp(s, "Infinity") == 0) {
        *out = (double)INFINITY;
    } else if (strcmp(s, "-Infinity") == 0) {
        *out = -(double)INFINITY;
    } else {
        return false;
    }
    return true;
}

static bool float_from_json(elem e, const json_t *j, void *to, element_fault *f) {
    double v = 0;
    const char *name = json_string_value(j);
    bool good = false;
    if (json_is_integer(j)) {
        v = (double)json_integer_value(j);
        good = put_exact(e, json_integer_value(j), to);
    } else if (json_is_real(j) || (name && named_number(name, &v))) {
        if (!name) v = json_real_value(j);
        good = put_float(e, v, to);
    } else {
        snprintf(f->expected, sizeof f->expected, "a number (%s)", elem_name(e));
        return false;
    }
    if (!good) float_expected(e, json_is_integer(j), v, f);
    return good;
}

static bool complex_from_json(elem e, const json_t *j, void *to, element_fault *f) {
    const elem part = e == ELEM_C64 ? ELEM_F32 : ELEM_F64;
    if (!json_is_array(j) || json_array_size(j) != 2) {
        snprintf(f->expected, sizeof f->expected, "[real, imaginary] (%s)", elem_name(e));
        return false;
    }
    for (size_t k = 0; k < 2; k++) {
        if (!float_from_json(part, json_array_get(j, k), (char *)to + k * elem_describe(part)->bytes, f)) {
            element_json_text(json_array_get(j, k), f->got, sizeof f->got);
            return false;
        }
    }
    return true;
}

bool element_from_json(elem e, const json_t *j, void *to, element_fault *f) {
    bool good;
    *f = (element_fault){0};
    if (e == ELEM_BOOL) {
        good = json_is_boolean(j);
        *(uint8_t *)to = json_is_true(j);
        snprintf(f->expected, sizeof f->expected, "true or false (bool)");
    } else if (ELEM_BIT(e) & ELEMS_COMPLEX) {
        good = complex_from_json(e, j, to, f);
    } else if (ELEM_BIT(e) & WHOLE) {
        good = json_is_integer(j) && put_int(e, json_integer_value(j), to);
        if (json_is_integer(j)) {
            int_expected(e, f);
        } else {
            snprintf(f->expected, sizeof f->expected, "an integer (%s)", elem_name(e));
        }
    } else {
        good = float_from_json(e, j, to, f);
    }
    if (!good && !*f->got) element_json_text(j, f->got, sizeof f->got);
    return good;
}

/* ---- text ------------------------------------------------------------------------------------------- */

static bool bool_from_text(const char *s, void *to) {
    static const char *const words[] = {"0", "1", "false", "true", "False", "True", "FALSE", "TRUE"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strcmp(words[i], s) != 0) continue;
        *(uint8_t *)to = i % 2;
        return true;
    }
    return false;
}

static bool int_from_text(elem e, const char *s, void *to, element_fault *f) {
    const char *digits = s + (*s == '-' || *s == '+');
    if (!*digits || digits[strspn(digits, "0123456789")]) {
        snprintf(f->expected, sizeof f->expected, "an integer (%s)", elem_name(e));
        return false;
    }
    int_expected(e, f);
    errno = 0;
    if (e == ELEM_U64) {
        const uint64_t v = strtoull(digits, NULL, 10);
        if (errno || (*s == '-' && v != 0)) return false;
        memcpy(to, &v, sizeof v);
        return true;
    }
    const long long v = strtoll(s, NULL, 10);
    return errno == 0 && put_int(e, v, to);
}

static bool float_from_text(elem e, const char *s, void *to, element_fault *f) {
    const char *word = s + (*s == '-' || *s == '+');
    double v;
    char *end;
    if (strcasecmp(word, "nan") == 0) {
        v = (double)NAN;
    } else if (strcasecmp(word, "inf") == 0 || strcasecmp(word, "infinity") == 0) {
        v = *s == '-' ? -(double)INFINITY : (double)INFINITY;
    } else {
        const bool decimal = *s && s[strspn(s, "+-0123456789.eE")] == '\0';
        v = decimal ? strtod(s, &end) : 0;
        if (!decimal || *end || end == s) {
            snprintf(f->expected, sizeof f->expected,
                     *s ? "a number (%s)" : "a number (%s), or NaN where none is known", elem_name(e));
            return false;
        }
        if (!isfinite(v)) {
            float_expected(e, false, v, f);
            return false;
        }
    }
    if (put_float(e, v, to)) return true;
    float_expected(e, false, v, f);
    return false;
}

bool element_from_text(elem e, const char *text, void *to, element_fault *f) {
    enum { LONGEST = 400 };
    char s[LONGEST + 1];
    *f = (element_fault){0};
    text += strspn(text, " \t");
    size_t n = strlen(text);
    while (n > 0 && (text[n - 1] == ' ' || text[n - 1] == '\t')) n--;
    snprintf(f->got, sizeof f->got, n ? "'%.*s'" : "nothing", (int)(n < 60 ? n : 60), text);
    snprintf(s, sizeof s, "%.*s", (int)(n < LONGEST ? n : LONGEST), text);
    if (e == ELEM_BOOL) {
        snprintf(f->expected, sizeof f->expected, "true or false (bool)");
        return n <= LONGEST && bool_from_text(s, to);
    }
    snprintf(f->expected, sizeof f->expected, "a number (%s)", elem_name(e));
    if (n > LONGEST || ELEM_BIT(e) & ELEMS_COMPLEX) return false;
    return ELEM_BIT(e) & WHOLE ? int_from_text(e, s, to, f) : float_from_text(e, s, to, f);
}

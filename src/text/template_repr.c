/* template_repr.c: str() and repr() of Python: the quotes and escapes of strings in lists, and the shortest
 * digits of a float. What Python shows with an address (functions, generators) cannot be shown: an error. */
#include "text/template_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- floats ----------------------------------------------------------------------------------------- */

/* The value of 0.DIGITS * 10^(exp10+1), read without a decimal point, which locales change. */
static double digits_value(const char *digits, size_t n, int exp10) {
    char text[48];
    (void)snprintf(text, sizeof text, "%.*se%d", (int)n, digits, exp10 - (int)n + 1);
    return strtod(text, NULL);
}

/* v rounded to n digits. */
static void rounded_digits(double v, size_t n, char digits[20], int *exp10) {
    char text[40];
    (void)snprintf(text, sizeof text, "%.*e", (int)n - 1, v);
    const char *e = strchr(text, 'e');
    size_t k = 0;
    for (const char *p = text; p < e; p++) {
        if (*p >= '0' && *p <= '9') digits[k++] = *p;
    }
    *exp10 = (int)strtol(e + 1, NULL, 10); /* of our own making: -324 to 308 */
}

/* One more in the last of n digits; false when that carries into a new one. */
static bool next_up(char *digits, size_t n) {
    for (size_t i = n; i-- > 0;) {
        if (digits[i] != '9') {
            digits[i]++;
            return true;
        }
        digits[i] = '0';
    }
    return false;
}

size_t tpl_float_digits(double v, char digits[20], int *exp10) {
    int exponent;
    /* At a power of two the neighbours are not equally far, and n digits may name v although the nearest n
     * digits do not. */
    bool power = frexp(v, &exponent) == 0.5;
    for (size_t n = 1; n <= 17; n++) {
        rounded_digits(v, n, digits, exp10);
        bool good = digits_value(digits, n, *exp10) == v;
        if (!good && power) good = next_up(digits, n) && digits_value(digits, n, *exp10) == v;
        if (!good && n < 17) continue;
        while (n > 1 && digits[n - 1] == '0') n--;
        return n;
    }
    return 17;
}

size_t tpl_float_repr(double v, char out[40]) {
    if (isnan(v)) return memcpy(out, "nan", 4), (size_t)3;
    if (isinf(v)) return v < 0 ? (memcpy(out, "-inf", 5), (size_t)4) : (memcpy(out, "inf", 4), (size_t)3);
    char digits[20] = "0";
    int exp10 = 0;
    size_t n = 1, k = 0;
    if (v != 0) n = tpl_float_digits(fabs(v), digits, &exp10);
    if (signbit(v)) out[k++] = '-';
    if (exp10 < -4 || exp10 >= 16) {
        out[k++] = digits[0];
        if (n > 1) out[k++] = '.';
        memcpy(out + k, digits + 1, n - 1);
        k += n - 1;
        return k + (size_t)snprintf(out + k, 8, "e%c%02d", exp10 < 0 ? '-' : '+', abs(exp10));
    }
    if (exp10 < 0) {
        memcpy(out + k, "0.0000", 6);
        k += 1 + (size_t)-exp10;
        memcpy(out + k, digits, n);
        return k + n;
    }
    for (size_t i = 0; i < n || i <= (size_t)exp10 + 1; i++) {
        if (i == (size_t)exp10 + 1) out[k++] = '.';
        out[k++] = i < n ? digits[i] : '0';
    }
    return k;
}

size_t tpl_float_format(double v, char conv, int precision, bool alternate, char out[512]) {
    char text[512];
    size_t k = 0;
    if (!isfinite(v)) return tpl_float_repr(v, out);
    if (conv == 'e') {
        (void)snprintf(text, sizeof text, alternate ? "%#.*e" : "%.*e", precision, v);
    } else if (conv == 'f') {
        (void)snprintf(text, sizeof text, alternate ? "%#.*f" : "%.*f", precision, v);
    } else {
        (void)snprintf(text, sizeof text, alternate ? "%#.*g" : "%.*g", precision, v);
    }
    for (const char *p = text; *p; p++) {
        bool own = (*p >= '0' && *p <= '9') || *p == 'e' || *p == '+' || *p == '-';
        if (own)
            out[k++] = *p;
        else if (k && out[k - 1] != '.') /* a locale's point may have several bytes */
            out[k++] = '.';
    }
    return k;
}

/* ---- reading floats --------------------------------------------------------------------------------- */

static bool lower_is(const char *p, size_t n, const char *z) {
    if (n != strlen(z)) return false;
    for (size_t i = 0; i < n; i++) {
        if ((p[i] | 0x20) != z[i]) return false;
    }
    return true;
}

typedef struct decimal {
    char text[800]; /* digits, more than any double needs to be read right */
    size_t n;
    int64_t exp10; /* of the last digit */
    bool any;
} decimal;

static void add_digit(decimal *d, char c, bool fraction) {
    d->any = true;
    if (d->n < sizeof d->text - 32 && (c != '0' || d->n > 0)) {
        d->text[d->n++] = c;
        d->exp10 -= fraction;
    } else if (d->n > 0) {
        if (c != '0' && d->text[d->n - 1] == '0') d->text[d->n - 1] = '1'; /* more than exactly half */
        d->exp10 += !fraction;
    } else {
        d->exp10 -= fraction;
    }
}

/* Digits with underscores between them; returns the end. NULL: an underscore that stands wrong. */
static const char *read_digits(const char *p, const char *end, decimal *d, bool fraction) {
    const char *start = p;
    while (p < end) {
        if (*p == '_') {
            if (p == start || p + 1 >= end || p[1] < '0' || p[1] > '9' || p[-1] == '_') return NULL;
        } else if (*p >= '0' && *p <= '9') {
            add_digit(d, *p, fraction);
        } else {
            break;
        }
        p++;
    }
    return p;
}

bool tpl_float_parse(tvalue s, double *out) {
    s = tpl_strip(s, NULL, true, true);
    const char *p = s.s, *end = s.s + s.len;
    double sign = 1;
    if (p < end && (*p == '+' || *p == '-')) sign = *p++ == '-' ? -1 : 1;
    size_t n = (size_t)(end - p);
    if (lower_is(p, n, "inf") || lower_is(p, n, "infinity")) return *out = sign * HUGE_VAL, true;
    if (lower_is(p, n, "nan")) return *out = NAN, true;
    decimal d = {.n = 0};
    if (!(p = read_digits(p, end, &d, false))) return false;
    if (p < end && *p == '.' && !(p = read_digits(p + 1, end, &d, true))) return false;
    if (!d.any) return false;
    int64_t exponent = 0;
    if (p < end && (*p == 'e' || *p == 'E')) {
        bool minus = ++p < end && *p == '-';
        if (p < end && (*p == '-' || *p == '+')) p++;
        const char *start = p;
        for (;
             p < end && ((*p >= '0' && *p <= '9') || (*p == '_' && p > start && p + 1 < end && p[1] != '_'));
             p++) {
            if (*p != '_' && exponent < 100000000) exponent = exponent * 10 + (*p - '0');
        }
        if (p == start || p[-1] == '_') return false;
        if (minus) exponent = -exponent;
    }
    if (p != end) return false;
    if (d.n == 0) return *out = sign * 0.0, true;
    exponent += d.exp10;
    if (exponent > 100000) exponent = 100000;
    if (exponent < -100000) exponent = -100000;
    (void)snprintf(d.text + d.n, 24, "e%lld", (long long)exponent);
    *out = sign * strtod(d.text, NULL);
    return true;
}

/* ---- strings ---------------------------------------------------------------------------------------- */

static void escaped_cp(tpl_buf *b, uint32_t cp) {
    char text[16];
    (void)snprintf(text, sizeof text,
                   cp <= 0xff     ? "\\x%02x"
                   : cp <= 0xffff ? "\\u%04x"
                                  : "\\U%08x",
                   (unsigned)cp);
    tpl_buf_cat(b, text);
}

void tpl_buf_repr_text(tpl_buf *b, tvalue s, bool ascii) {
    char quote = s.len && memchr(s.s, '\'', s.len) && !memchr(s.s, '"', s.len) ? '"' : '\'';
    const char *p = s.s, *end = s.s + s.len;
    tpl_buf_put(b, quote);
    for (size_t n; p < end && b->st == CHURON_OK; p += n) {
        uint32_t cp = tpl_cp_at(p, end, &n);
        if (cp == (uint32_t)quote || cp == '\\') {
            tpl_buf_put(b, '\\');
            tpl_buf_put(b, (char)cp);
        } else if (cp == '\n' || cp == '\r' || cp == '\t') {
            tpl_buf_cat(b, cp == '\n' ? "\\n" : cp == '\r' ? "\\r" : "\\t");
        } else if (cp < 0x20 || cp == 0x7f || (cp >= 0x80 && (ascii || !tpl_cp_printable(cp)))) {
            escaped_cp(b, cp);
        } else {
            tpl_buf_add(b, p, n);
        }
    }
    tpl_buf_put(b, quote);
}

/* ---- containers ------------------------------------------------------------------------------------- */

static void repr_items(tpl_buf *b, const tpl_list *list, bool tuple) {
    tpl_buf_put(b, tuple ? '(' : '[');
    for (size_t i = 0; i < list->n && b->st == CHURON_OK; i++) {
        if (i) tpl_buf_cat(b, ", ");
        tpl_buf_repr(b, list->v[i]);
    }
    if (tuple && list->n == 1) tpl_buf_put(b, ',');
    tpl_buf_put(b, tuple ? ')' : ']');
}

static void repr_dict(tpl_buf *b, const tpl_dict *d) {
    tpl_buf_put(b, '{');
    for (size_t i = 0; i < d->n && b->st == CHURON_OK; i++) {
        if (i) tpl_buf_cat(b, ", ");
        tpl_buf_repr(b, d->entries[i].key);
        tpl_buf_cat(b, ": ");
        tpl_buf_repr(b, d->entries[i].value);
    }
    tpl_buf_put(b, '}');
}

static void repr_view(tpl_buf *b, tvalue v) {
    tpl_buf_cat(b, tpl_type_name(v));
    tpl_buf_cat(b, "([");
    for (size_t i = 0; i < v.dict->n && b->st == CHURON_OK; i++) {
        const tpl_entry *e = &v.dict->entries[i];
        if (i) tpl_buf_cat(b, ", ");
        if (v.sub == TPL_ITEMS) tpl_buf_put(b, '(');
        if (v.sub != TPL_VALUES) tpl_buf_repr(b, e->key);
        if (v.sub == TPL_ITEMS) tpl_buf_cat(b, ", ");
        if (v.sub != TPL_KEYS) tpl_buf_repr(b, e->value);
        if (v.sub == TPL_ITEMS) tpl_buf_put(b, ')');
    }
    tpl_buf_cat(b, "])");
}

static void put_int(tpl_buf *b, int64_t v) {
    char text[24];
    (void)snprintf(text, sizeof text, "%lld", (long long)v);
    tpl_buf_cat(b, text);
}

static void repr_range(tpl_buf *b, const tpl_range *r) {
    tpl_buf_cat(b, "range(");
    put_int(b, r->start);
    tpl_buf_cat(b, ", ");
    put_int(b, r->stop);
    if (r->step != 1) {
        tpl_buf_cat(b, ", ");
        put_int(b, r->step);
    }
    tpl_buf_put(b, ')');
}

static void repr_loop(tpl_buf *b, tpl_loop *l) {
    int64_t length = 0;
    if (b->st == CHURON_OK) b->st = tpl_loop_length(b->rt, l, &length);
    tpl_buf_cat(b, "<LoopContext ");
    put_int(b, l->index0 + 1);
    tpl_buf_put(b, '/');
    put_int(b, length);
    tpl_buf_put(b, '>');
}

static void repr_float(tpl_buf *b, double v) {
    char text[40];
    tpl_buf_add(b, text, tpl_float_repr(v, text));
}

static void repr_macro(tpl_buf *b, const tpl_macro *m) {
    tpl_buf_cat(b, "<Macro ");
    if (m->def->op == TPL_N_MACRO)
        tpl_buf_repr_text(b, m->def->value, false);
    else
        tpl_buf_cat(b, "anonymous");
    tpl_buf_put(b, '>');
}

static void repr_nested(tpl_buf *b, tvalue v) {
    switch ((tpl_kind)v.kind) {
    case TPL_LIST:
    case TPL_TUPLE: repr_items(b, v.list, v.kind == TPL_TUPLE); break;
    case TPL_VIEW: repr_view(b, v); break;
    case TPL_NAMESPACE:
        tpl_buf_cat(b, "<Namespace ");
        repr_dict(b, v.dict);
        tpl_buf_put(b, '>');
        break;
    default: repr_dict(b, v.dict); break;
    }
}

void tpl_buf_repr(tpl_buf *b, tvalue v) {
    if (b->st != CHURON_OK) return;
    if ((b->st = tpl_steps(b->rt, 1)) != CHURON_OK) return;
    switch ((tpl_kind)v.kind) {
    case TPL_MISSING:
    case TPL_UNDEFINED: tpl_buf_cat(b, "Undefined"); break;
    case TPL_NONE: tpl_buf_cat(b, "None"); break;
    case TPL_BOOL: tpl_buf_cat(b, v.b ? "True" : "False"); break;
    case TPL_INT: put_int(b, v.i); break;
    case TPL_FLOAT: repr_float(b, v.f); break;
    case TPL_STRING:
        if (v.flags & TPL_MARKUP) tpl_buf_cat(b, "Markup(");
        tpl_buf_repr_text(b, v, false);
        if (v.flags & TPL_MARKUP) tpl_buf_put(b, ')');
        break;
    case TPL_RANGE: repr_range(b, v.range); break;
    case TPL_MACRO: repr_macro(b, v.macro); break;
    case TPL_LOOP: repr_loop(b, v.loop); break;
    case TPL_LIST:
    case TPL_TUPLE:
    case TPL_DICT:
    case TPL_VIEW:
    case TPL_NAMESPACE:
        if ((b->st = tpl_enter(b->rt)) != CHURON_OK) return;
        repr_nested(b, v);
        b->rt->depth--;
        break;
    default: b->st = tpl_refuse(b->rt, "a %s has no text of its own", tpl_type_name(v)); break;
    }
}

void tpl_buf_str(tpl_buf *b, tvalue v) {
    if (v.kind == TPL_STRING) {
        tpl_buf_value(b, v);
    } else if (v.kind != TPL_UNDEFINED) {
        tpl_buf_repr(b, v);
    }
}

status tpl_str(tpl_rt *rt, tvalue v, tvalue *out) {
    switch ((tpl_kind)v.kind) {
    case TPL_STRING: *out = v; return CHURON_OK;
    case TPL_UNDEFINED: *out = tpl_static(""); return CHURON_OK;
    case TPL_NONE: *out = tpl_static("None"); return CHURON_OK;
    case TPL_BOOL: *out = tpl_static(v.b ? "True" : "False"); return CHURON_OK;
    default: break;
    }
    tpl_buf b = tpl_buf_begin(rt);
    tpl_buf_repr(&b, v);
    return tpl_buf_end(&b, out);
}

/* template_filters.c: filters on text and numbers, and the table of all filters. */
#include "text/template_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef tvalue T;
typedef const tpl_args A;

#define NAMES(...) static const char *const names[] = {__VA_ARGS__}

static status no_arguments(tpl_rt *rt, const char *what, A *a) {
    return tpl_bind(rt, what, a, NULL, 0, 0, NULL);
}

static bool given(T v) {
    return v.kind != TPL_MISSING;
}

static status int_argument(tpl_rt *rt, const char *what, T v, int64_t absent, int64_t *out) {
    *out = absent;
    if (!given(v) || tpl_as_int(v, out)) return CHURON_OK;
    return tpl_fail(rt, "%s: expected an integer, got %s", what, tpl_type_name(v));
}

/* ---- case and space --------------------------------------------------------------------------------- */

static status recase(tpl_rt *rt, const char *what, T in, A *a, tpl_case how, T *out) {
    TRY(no_arguments(rt, what, a));
    TRY(tpl_str(rt, in, &in));
    return tpl_recase(rt, in, how, out);
}

static status upper(tpl_rt *rt, T in, A *a, T *out) {
    return recase(rt, "upper", in, a, TPL_CASE_UPPER, out);
}

static status lower(tpl_rt *rt, T in, A *a, T *out) {
    return recase(rt, "lower", in, a, TPL_CASE_LOWER, out);
}

static status capitalize(tpl_rt *rt, T in, A *a, T *out) {
    return recase(rt, "capitalize", in, a, TPL_CASE_CAPITAL, out);
}

static bool between_words(uint32_t cp) {
    return tpl_cp_space(cp) || cp == '-' || cp == '(' || cp == '{' || cp == '[' || cp == '<';
}

/* Jinja2's title is not Python's: words end at white space and - ( { [ < only. */
static status title(tpl_rt *rt, T in, A *a, T *out) {
    TRY(no_arguments(rt, "title", a));
    TRY(tpl_str(rt, in, &in));
    tpl_buf b = tpl_buf_begin(rt);
    size_t at = 0;
    while (at < in.len) {
        size_t n, from = at;
        uint32_t cp = tpl_cp_at(in.s + at, in.s + in.len, &n);
        at += n;
        if (between_words(cp)) {
            tpl_buf_add(&b, in.s + from, n);
            continue;
        }
        tpl_buf_upper(&b, cp, false);
        from = at;
        while (at < in.len && !between_words(tpl_cp_at(in.s + at, in.s + in.len, &n))) at += n;
        T rest;
        TRY(tpl_recase(rt, tpl_sub(in, from, at), TPL_CASE_LOWER, &rest));
        tpl_buf_value(&b, rest);
    }
    return tpl_buf_end(&b, out);
}

static status trim(tpl_rt *rt, T in, A *a, T *out) {
    NAMES("chars");
    T chars;
    TRY(tpl_bind(rt, "trim", a, names, 1, 0, &chars));
    TRY(tpl_str(rt, in, &in));
    bool some = given(chars) && chars.kind != TPL_NONE;
    if (some && chars.kind != TPL_STRING)
        return tpl_fail(rt, "trim: expected a string, got %s", tpl_type_name(chars));
    *out = tpl_strip(in, some ? &chars : NULL, true, true);
    size_t gone = (in.len - out->len) / 8;
    return tpl_steps(rt, gone * (some ? 1 + chars.len : 1) + (in.flags & TPL_ASCII ? 0 : in.len / 64));
}

static status center(tpl_rt *rt, T in, A *a, T *out) {
    NAMES("width");
    T width;
    int64_t w;
    TRY(tpl_bind(rt, "center", a, names, 1, 0, &width));
    TRY(int_argument(rt, "center", width, 80, &w));
    TRY(tpl_str(rt, in, &in));
    int64_t n = (int64_t)tpl_codepoints(in), room = w > n ? w - n : 0, left = room / 2 + (room & w & 1);
    tpl_buf b = tpl_buf_begin(rt);
    tpl_buf_fill(&b, ' ', (size_t)left);
    tpl_buf_value(&b, in);
    tpl_buf_fill(&b, ' ', (size_t)(room - left));
    TRY(tpl_buf_end(&b, out));
    out->flags |= in.flags & TPL_MARKUP;
    return tpl_steps(rt, (size_t)room / 4);
}

static status indent(tpl_rt *rt, T in, A *a, T *out) {
    NAMES("width", "first", "blank");
    T v[3], by, newline = tpl_static("\n"), whole;
    TRY(tpl_bind(rt, "indent", a, names, 3, 0, v));
    if (in.kind == TPL_UNDEFINED) return tpl_undefined_error(rt, in);
    if (in.kind != TPL_STRING) return tpl_fail(rt, "indent: expected a string, got %s", tpl_type_name(in));
    if (given(v[0]) && v[0].kind == TPL_STRING) {
        by = v[0];
    } else {
        int64_t n;
        TRY(int_argument(rt, "indent", v[0], 4, &n));
        TRY(tpl_repeat(rt, tpl_static(" "), n, &by));
    }
    TRY(tpl_concat(rt, in, newline, &whole));
    tpl_list *lines;
    TRY(tpl_splitlines(rt, whole, false, &lines));
    tpl_buf b = tpl_buf_begin(rt);
    if (given(v[1]) && tpl_truth(v[1])) tpl_buf_value(&b, by);
    for (size_t i = 0; i < lines->n && b.st == CHURON_OK; i++) {
        if (i) tpl_buf_value(&b, newline);
        if (i && (lines->v[i].len || (given(v[2]) && tpl_truth(v[2])))) tpl_buf_value(&b, by);
        tpl_buf_value(&b, lines->v[i]);
    }
    TRY(tpl_buf_end(&b, out));
    out->flags |= in.flags & TPL_MARKUP;
    return tpl_steps(rt, out->len / 64);
}

/* ---- other text ------------------------------------------------------------------------------------- */

static status string(tpl_rt *rt, T in, A *a, T *out) {
    TRY(no_arguments(rt, "string", a));
    return tpl_str(rt, in, out);
}

static status replace(tpl_rt *rt, T in, A *a, T *out) {
    NAMES("old", "new", "count");
    T v[3];
    int64_t n = -1;
    TRY(tpl_bind(rt, "replace", a, names, 3, 2, v));
    TRY(tpl_str(rt, in, &in));
    TRY(tpl_str(rt, v[0], &v[0]));
    TRY(tpl_str(rt, v[1], &v[1]));
    if (given(v[2]) && v[2].kind != TPL_NONE) TRY(int_argument(rt, "replace", v[2], -1, &n));
    TRY(tpl_replace(rt, in, v[0], v[1], n, out));
    out->flags &= (uint8_t)~TPL_MARKUP;
    return CHURON_OK;
}

static status format(tpl_rt *rt, T in, A *a, T *out) {
    TRY(tpl_str(rt, in, &in));
    if (a->n && a->n_kw)
        return tpl_fail(rt, "format: can't handle positional and keyword arguments at the same time");
    if (!a->n_kw) {
        tpl_list *list = tpl_list_new(rt->arena, a->n);
        if (!list) return tpl_memory(rt);
        for (size_t i = 0; i < a->n; i++) TRY(tpl_push(rt, list, a->v[i]));
        return tpl_printf(rt, in, (T){.kind = TPL_TUPLE, .list = list}, out);
    }
    tpl_dict *d = tpl_dict_new(rt->arena);
    if (!d) return tpl_memory(rt);
    for (size_t i = 0; i < a->n_kw; i++) {
        if (!tpl_dict_put(d, a->names[i], tpl_hash_bytes(a->names[i].s, a->names[i].len), a->kw[i]))
            return tpl_memory(rt);
    }
    return tpl_printf(rt, in, (T){.kind = TPL_DICT, .dict = d}, out);
}

static status escape(tpl_rt *rt, T in, A *a, T *out) {
    TRY(no_arguments(rt, "escape", a));
    TRY(tpl_str(rt, in, &in));
    return tpl_escape(rt, in, out);
}

static status forceescape(tpl_rt *rt, T in, A *a, T *out) {
    TRY(no_arguments(rt, "forceescape", a));
    TRY(tpl_str(rt, in, &in));
    in.flags &= (uint8_t)~TPL_MARKUP;
    return tpl_escape(rt, in, out);
}

static status safe(tpl_rt *rt, T in, A *a, T *out) {
    TRY(no_arguments(rt, "safe", a));
    TRY(tpl_str(rt, in, out));
    out->flags |= TPL_MARKUP;
    return CHURON_OK;
}

static status striptags(tpl_rt *rt, T in, A *a, T *out) {
    TRY(no_arguments(rt, "striptags", a));
    TRY(tpl_str(rt, in, &in));
    if (memchr(in.s, '&', in.len)) return tpl_refuse(rt, "striptags of a text with '&' is not supported");
    in.flags &= (uint8_t)~TPL_MARKUP;
    tpl_buf b = tpl_buf_begin(rt);
    size_t at = 0;
    for (;;) {
        size_t open = tpl_find(in, tpl_static("<"), at);
        if (open == SIZE_MAX) break;
        bool comment = in.len - open >= 4 && memcmp(in.s + open, "<!--", 4) == 0;
        size_t close = tpl_find(in, tpl_static(comment ? "-->" : ">"), open + (comment ? 4 : 0));
        if (close == SIZE_MAX) break;
        tpl_buf_add(&b, in.s + at, open - at);
        at = close + (comment ? 3 : 1);
    }
    tpl_buf_add(&b, in.s + at, in.len - at);
    T text, list;
    TRY(tpl_buf_end(&b, &text));
    tpl_args none = {0};
    TRY(tpl_str_methods[1].fn(rt, text, &none, &list)); /* split */
    return tpl_join(rt, tpl_static(" "), list.list->v, list.list->n, out);
}

static status truncate(tpl_rt *rt, T in, A *a, T *out) {
    NAMES("length", "killwords", "end", "leeway");
    T v[4], end;
    int64_t length, leeway = 5;
    TRY(tpl_bind(rt, "truncate", a, names, 4, 0, v));
    TRY(int_argument(rt, "truncate", v[0], 255, &length));
    if (given(v[3]) && v[3].kind != TPL_NONE) TRY(int_argument(rt, "truncate", v[3], 5, &leeway));
    end = given(v[2]) ? v[2] : tpl_static("...");
    if (in.kind != TPL_STRING || end.kind != TPL_STRING)
        return tpl_refuse(rt, "truncate of anything but strings");
    if ((in.flags | end.flags) & TPL_MARKUP)
        return tpl_refuse(rt, "truncate of a string that is marked safe");
    int64_t tail = (int64_t)tpl_codepoints(end), n = (int64_t)tpl_codepoints(in);
    if (length < tail)
        return tpl_fail(rt, "expected length >= %lld, got %lld", (long long)tail, (long long)length);
    if (leeway < 0) return tpl_fail(rt, "expected leeway >= 0, got %lld", (long long)leeway);
    TRY(tpl_steps(rt, in.len / 64));
    *out = in;
    if (n - leeway <= length) return CHURON_OK;
    T cut = tpl_sub(in, 0, tpl_byte_of(in, (size_t)(length - tail)));
    size_t space = given(v[1]) && tpl_truth(v[1]) ? SIZE_MAX : tpl_rfind(cut, tpl_static(" "), cut.len);
    if (space != SIZE_MAX) cut = tpl_sub(cut, 0, space);
    return tpl_concat(rt, cut, end, out);
}

static status wordcount(tpl_rt *rt, T in, A *a, T *out) {
    TRY(no_arguments(rt, "wordcount", a));
    TRY(tpl_str(rt, in, &in));
    int64_t words = 0;
    bool in_word = false;
    for (size_t at = 0, n; at < in.len; at += n) {
        bool word = tpl_cp_word(tpl_cp_at(in.s + at, in.s + in.len, &n));
        words += word && !in_word;
        in_word = word;
    }
    *out = tpl_int(words);
    return tpl_steps(rt, in.len / 8);
}

/* ---- URLs and XML ----------------------------------------------------------------------------------- */

static status quote(tpl_buf *b, T v, bool query) {
    TRY(tpl_str(b->rt, v, &v));
    for (size_t i = 0; i < v.len; i++) {
        char c = v.s[i];
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                     (c && strchr("_.-~", c));
        if (plain || (c == '/' && !query)) {
            tpl_buf_put(b, c);
        } else if (c == ' ' && query) {
            tpl_buf_put(b, '+');
        } else {
            char text[4];
            (void)snprintf(text, sizeof text, "%%%02X", (unsigned)(unsigned char)c);
            tpl_buf_cat(b, text);
        }
    }
    return b->st == CHURON_OK ? tpl_steps(b->rt, v.len / 16) : b->st;
}

static status urlencode(tpl_rt *rt, T in, A *a, T *out) {
    TRY(no_arguments(rt, "urlencode", a));
    tpl_buf b = tpl_buf_begin(rt);
    if (in.kind == TPL_STRING || !tpl_iterable(in)) {
        TRY(quote(&b, in, false));
        return tpl_buf_end(&b, out);
    }
    if (in.kind == TPL_DICT) in = (T){.kind = TPL_VIEW, .sub = TPL_ITEMS, .dict = in.dict};
    tpl_list *items = NULL;
    TRY(tpl_to_list(rt, in, &items));
    for (size_t i = 0; i < items->n; i++) {
        T pair[2];
        TRY(tpl_unpack(rt, items->v[i], 2, pair));
        if (i) tpl_buf_put(&b, '&');
        TRY(quote(&b, pair[0], true));
        tpl_buf_put(&b, '=');
        TRY(quote(&b, pair[1], true));
    }
    return tpl_buf_end(&b, out);
}

static status xmlattr(tpl_rt *rt, T in, A *a, T *out) {
    NAMES("autospace");
    T space, k, v;
    TRY(tpl_bind(rt, "xmlattr", a, names, 1, 0, &space));
    if (in.kind == TPL_UNDEFINED) return tpl_undefined_error(rt, in);
    if (in.kind != TPL_DICT) return tpl_fail(rt, "xmlattr: expected a dict, got %s", tpl_type_name(in));
    tpl_buf b = tpl_buf_begin(rt);
    bool any = false;
    for (size_t i = 0; i < in.dict->n; i++) {
        const tpl_entry *e = &in.dict->entries[i];
        if (e->value.kind == TPL_NONE || e->value.kind == TPL_UNDEFINED) continue;
        if (e->key.kind != TPL_STRING)
            return tpl_fail(rt, "xmlattr: expected a string as name, got %s", tpl_type_name(e->key));
        for (size_t j = 0; j < e->key.len; j++) {
            char c = e->key.s[j];
            if (c == ' ' || (c >= 9 && c <= 13) || c == '/' || c == '>' || c == '=') {
                return tpl_fail(rt, "Invalid character in attribute name");
            }
        }
        TRY(tpl_escape(rt, e->key, &k));
        TRY(tpl_str(rt, e->value, &v));
        TRY(tpl_escape(rt, v, &v));
        if (any || !given(space) || tpl_truth(space)) tpl_buf_put(&b, ' ');
        any = true;
        tpl_buf_value(&b, k);
        tpl_buf_cat(&b, "=\"");
        tpl_buf_value(&b, v);
        tpl_buf_put(&b, '"');
        TRY(tpl_steps(rt, 1));
    }
    return tpl_buf_end(&b, out);
}

/* ---- numbers ---------------------------------------------------------------------------------------- */

static status absolute(tpl_rt *rt, T in, A *a, T *out) {
    TRY(no_arguments(rt, "abs", a));
    int64_t i;
    if (tpl_as_int(in, &i)) return tpl_negate(rt, i < 0 ? TPL_N_NEG : TPL_N_POS, in, out);
    if (in.kind != TPL_FLOAT) return tpl_fail(rt, "bad operand type for abs(): '%s'", tpl_type_name(in));
    *out = tpl_float(fabs(in.f));
    return CHURON_OK;
}

static int digit_of(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'z') return c - 'a' + 10;
    if (c >= 'A' && c <= 'Z') return c - 'A' + 10;
    return 99;
}

typedef enum parsed { PARSED, NOT_A_NUMBER, TOO_LARGE } parsed;

/* Python's int(text, base). */
static parsed parse_int(T s, int64_t base, int64_t *out) {
    s = tpl_strip(s, NULL, true, true);
    const char *p = s.s, *end = s.s + s.len;
    bool minus = p < end && *p == '-';
    if (p < end && (*p == '-' || *p == '+')) p++;
    if (base != 0 && (base < 2 || base > 36)) return NOT_A_NUMBER;
    if (end - p > 1 && *p == '0') {
        char c = p[1] | 0x20;
        int prefix = c == 'x' ? 16 : c == 'o' ? 8 : c == 'b' ? 2 : 0;
        bool zeros_only = base == 0 && !prefix;
        if (prefix && (base == prefix || base == 0)) {
            base = prefix;
            p += 2;
            if (p < end && *p == '_') p++;
        }
        for (const char *q = p; zeros_only && q < end; q++) {
            if (*q != '0' && *q != '_') return NOT_A_NUMBER;
        }
    }
    if (base == 0) base = 10;
    uint64_t v = 0;
    bool large = false, any = false;
    for (; p < end; p++) {
        if (*p == '_' && any && p + 1 < end && p[-1] != '_') continue;
        int d = digit_of(*p);
        if (d >= base) return NOT_A_NUMBER;
        any = true;
        if (v > ((uint64_t)INT64_MAX - (uint64_t)d) / (uint64_t)base) large = true;
        v = v * (uint64_t)base + (uint64_t)d;
    }
    if (!any) return NOT_A_NUMBER;
    *out = minus ? -(int64_t)(v & INT64_MAX) : (int64_t)(v & INT64_MAX);
    return large ? TOO_LARGE : PARSED;
}

static bool has_foreign_digits(T s) {
    for (size_t at = 0, n; at < s.len; at += n) {
        uint32_t cp = tpl_cp_at(s.s + at, s.s + s.len, &n);
        if (cp >= 0x80 && tpl_cp_decimal(cp)) return true;
    }
    return false;
}

static status truncated(tpl_rt *rt, double d, T *out) {
    if (!(d > -9.2e18 && d < 9.2e18)) return tpl_refuse(rt, "an integer of more than 64 bits");
    *out = tpl_int((int64_t)d);
    return CHURON_OK;
}

static status to_int(tpl_rt *rt, T in, A *a, T *out) {
    NAMES("default", "base");
    T v[2];
    TRY(tpl_bind(rt, "int", a, names, 2, 0, v));
    T absent = given(v[0]) ? v[0] : tpl_int(0);
    int64_t base = 10, i;
    bool has_base = !given(v[1]) || tpl_as_int(v[1], &base);
    if (in.kind == TPL_UNDEFINED) return tpl_undefined_error(rt, in);
    if (in.kind == TPL_STRING) {
        if (has_foreign_digits(in)) return tpl_refuse(rt, "int: digits that are not ASCII are not supported");
        TRY(tpl_steps(rt, in.len / 16));
        parsed p = has_base ? parse_int(in, base, &i) : NOT_A_NUMBER;
        if (p == TOO_LARGE) return tpl_refuse(rt, "an integer of more than 64 bits");
        if (p == PARSED) return *out = tpl_int(i), CHURON_OK;
        double d;
        if (tpl_float_parse(in, &d) && isfinite(d)) return truncated(rt, d, out);
    } else if (tpl_as_int(in, &i)) {
        return *out = tpl_int(i), CHURON_OK;
    } else if (in.kind == TPL_FLOAT && !isnan(in.f)) {
        return truncated(rt, in.f, out);
    }
    *out = absent;
    return CHURON_OK;
}

static status to_float(tpl_rt *rt, T in, A *a, T *out) {
    NAMES("default");
    T absent;
    double d;
    TRY(tpl_bind(rt, "float", a, names, 1, 0, &absent));
    if (in.kind == TPL_UNDEFINED) return tpl_undefined_error(rt, in);
    if (in.kind == TPL_STRING && has_foreign_digits(in)) {
        return tpl_refuse(rt, "float: digits that are not ASCII are not supported");
    }
    bool good = in.kind == TPL_STRING ? tpl_float_parse(in, &d) : tpl_as_double(in, &d);
    if (good && !isfinite(d)) return tpl_fail(rt, "a number that is not finite");
    *out = good ? tpl_float(d) : given(absent) ? absent : tpl_float(0);
    return tpl_steps(rt, in.kind == TPL_STRING ? in.len / 16 : 0);
}

static status round_to_side(tpl_rt *rt, T in, int64_t precision, bool up, T *out) {
    T scale, scaled;
    TRY(tpl_binary(rt, TPL_N_POW, tpl_int(10), tpl_int(precision), &scale));
    TRY(tpl_binary(rt, TPL_N_MUL, in, scale, &scaled));
    if (scaled.kind == TPL_FLOAT) TRY(truncated(rt, up ? ceil(scaled.f) : floor(scaled.f), &scaled));
    return tpl_binary(rt, TPL_N_DIV, scaled, scale, out);
}

static status round_number(tpl_rt *rt, T in, A *a, T *out) {
    NAMES("precision", "method");
    T v[2];
    int64_t precision, i;
    TRY(tpl_bind(rt, "round", a, names, 2, 0, v));
    TRY(int_argument(rt, "round", v[0], 0, &precision));
    bool up = given(v[1]) && tpl_str_is(v[1], "ceil"), down = given(v[1]) && tpl_str_is(v[1], "floor");
    if (given(v[1]) && !up && !down && !tpl_str_is(v[1], "common"))
        return tpl_fail(rt, "method must be common, ceil or floor");
    bool integer = tpl_as_int(in, &i);
    if (!integer && in.kind != TPL_FLOAT)
        return tpl_fail(rt, "round: expected a number, got %s", tpl_type_name(in));
    if (up || down) return round_to_side(rt, in, precision, up, out);
    if (precision < 0 || precision > 100)
        return tpl_refuse(rt, "round: a precision of %lld is not supported", (long long)precision);
    if (integer) return *out = tpl_int(i), CHURON_OK;
    char text[512];
    size_t n = tpl_float_format(in.f, 'f', (int)precision, false, text);
    *out = in;
    double d;
    if (isfinite(in.f) && tpl_float_parse(tpl_view(text, n, TPL_ASCII), &d)) *out = tpl_float(d);
    return CHURON_OK;
}

static status filesizeformat(tpl_rt *rt, T in, A *a, T *out) {
    NAMES("binary");
    static const char *const units[] = {"kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"};
    static const char *const binary_units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"};
    T binary, number;
    TRY(tpl_bind(rt, "filesizeformat", a, names, 1, 0, &binary));
    tpl_args none = {0};
    if (in.kind == TPL_UNDEFINED) return tpl_undefined_error(rt, in);
    TRY(to_float(rt, in, &none, &number));
    if (in.kind != TPL_STRING && in.kind != TPL_FLOAT && in.kind != TPL_INT && in.kind != TPL_BOOL) {
        return tpl_fail(rt, "filesizeformat: expected a number, got %s", tpl_type_name(in));
    }
    double d, bytes = number.f, base = given(binary) && tpl_truth(binary) ? 1024 : 1000, unit = base;
    if (in.kind == TPL_STRING && !tpl_float_parse(in, &d))
        return tpl_fail(rt, "could not convert string to float");
    char text[520];
    if (bytes == 1) return *out = tpl_static("1 Byte"), CHURON_OK;
    tpl_buf b = tpl_buf_begin(rt);
    if (bytes < base) {
        T whole;
        TRY(truncated(rt, bytes, &whole));
        tpl_buf_str(&b, whole);
        tpl_buf_cat(&b, " Bytes");
        return tpl_buf_end(&b, out);
    }
    size_t i = 0;
    for (; i < 8; i++) {
        unit *= base;
        if (bytes < unit || i == 7) break;
    }
    tpl_buf_add(&b, text, tpl_float_format(base * bytes / unit, 'f', 1, false, text));
    tpl_buf_put(&b, ' ');
    tpl_buf_cat(&b, base == 1024 ? binary_units[i] : units[i]);
    return tpl_buf_end(&b, out);
}

const tpl_filter tpl_text_filters[] = {
    {"trim", trim},
    {"tojson", tpl_filter_tojson},
    {"string", string},
    {"upper", upper},
    {"lower", lower},
    {"capitalize", capitalize},
    {"title", title},
    {"replace", replace},
    {"indent", indent},
    {"safe", safe},
    {"center", center},
    {"format", format},
    {"escape", escape},
    {"e", escape},
    {"forceescape", forceescape},
    {"striptags", striptags},
    {"truncate", truncate},
    {"wordcount", wordcount},
    {"urlencode", urlencode},
    {"xmlattr", xmlattr},
    {"int", to_int},
    {"float", to_float},
    {"abs", absolute},
    {"round", round_number},
    {"filesizeformat", filesizeformat},
    {"wordwrap", tpl_filter_wordwrap},
    {"urlize", NULL},
    {"pprint", NULL},
    {"random", NULL},
    {NULL, NULL},
};

static const tpl_filter *find_in(const tpl_filter *f, tvalue name) {
    while (f->name && !tpl_str_is(name, f->name)) f++;
    return f->name ? f : NULL;
}

const tpl_filter *tpl_filter_find(tvalue name) {
    const tpl_filter *f = find_in(tpl_text_filters, name);
    return f ? f : find_in(tpl_sequence_filters, name);
}

status tpl_filter_call(tpl_rt *rt, tvalue name, tvalue in, const tpl_args *args, tvalue *out) {
    const tpl_filter *f = name.kind == TPL_STRING ? tpl_filter_find(name) : NULL;
    int len = (int)(name.kind == TPL_STRING ? name.len > 60 ? 60 : name.len : 0);
    if (!f) return tpl_fail(rt, "No filter named '%.*s' found", len, len ? name.s : "");
    if (!f->fn) return tpl_refuse(rt, "filter '%s' is not supported", f->name);
    return f->fn(rt, in, args, out);
}

/* template_strmethod.c: methods of strings, as Python's str has them. */
#include "text/template_internal.h"

#include <string.h>

typedef tvalue T;

static status arity(tpl_rt *rt, const char *what, const tpl_args *a, size_t min, size_t max) {
    if (a->n_kw) return tpl_fail(rt, "%s() takes no keyword arguments", what);
    if (a->n < min || a->n > max) return tpl_fail(rt, "%s() got %zu arguments", what, a->n);
    return CHURON_OK;
}

static status need_string(tpl_rt *rt, const char *what, T v) {
    if (v.kind == TPL_STRING) return CHURON_OK;
    return tpl_fail(rt, "%s() needs a string, not '%s'", what, tpl_type_name(v));
}

static status need_int(tpl_rt *rt, const char *what, T v, int64_t *out) {
    if (tpl_as_int(v, out)) return CHURON_OK;
    return tpl_fail(rt, "%s() needs an integer, not '%s'", what, tpl_type_name(v));
}

/* ---- case and padding ------------------------------------------------------------------------------- */

static status upper(tpl_rt *rt, T s, const tpl_args *a, T *out) {
    TRY(arity(rt, "upper", a, 0, 0));
    return tpl_recase(rt, s, TPL_CASE_UPPER, out);
}

static status lower(tpl_rt *rt, T s, const tpl_args *a, T *out) {
    TRY(arity(rt, "lower", a, 0, 0));
    return tpl_recase(rt, s, TPL_CASE_LOWER, out);
}

static status title(tpl_rt *rt, T s, const tpl_args *a, T *out) {
    TRY(arity(rt, "title", a, 0, 0));
    return tpl_recase(rt, s, TPL_CASE_TITLE, out);
}

static status capitalize(tpl_rt *rt, T s, const tpl_args *a, T *out) {
    TRY(arity(rt, "capitalize", a, 0, 0));
    return tpl_recase(rt, s, TPL_CASE_CAPITAL, out);
}

static status swapcase(tpl_rt *rt, T s, const tpl_args *a, T *out) {
    TRY(arity(rt, "swapcase", a, 0, 0));
    return tpl_recase(rt, s, TPL_CASE_SWAP, out);
}

static status pad(tpl_rt *rt, const char *what, T s, const tpl_args *a, int side, T *out) {
    TRY(arity(rt, what, a, 1, 2));
    int64_t width = 0;
    TRY(need_int(rt, what, a->v[0], &width));
    T fill = a->n > 1 ? a->v[1] : tpl_static(" ");
    TRY(need_string(rt, what, fill));
    if (tpl_codepoints(fill) != 1)
        return tpl_fail(rt, "the fill character must be exactly one character long");
    int64_t n = (int64_t)tpl_codepoints(s), room = width > n ? width - n : 0;
    size_t k;
    uint32_t cp = tpl_cp_at(fill.s, fill.s + fill.len, &k);
    int64_t left = side < 0 ? 0 : side > 0 ? room : room / 2 + (room & width & 1);
    tpl_buf b = tpl_buf_begin(rt);
    tpl_buf_fill(&b, cp, (size_t)left);
    tpl_buf_value(&b, s);
    tpl_buf_fill(&b, cp, (size_t)(room - left));
    TRY(tpl_buf_end(&b, out));
    out->flags |= s.flags & TPL_MARKUP;
    return tpl_steps(rt, (size_t)room / 4);
}

static status center(tpl_rt *rt, T s, const tpl_args *a, T *out) {
    return pad(rt, "center", s, a, 0, out);
}

static status ljust(tpl_rt *rt, T s, const tpl_args *a, T *out) {
    return pad(rt, "ljust", s, a, -1, out);
}

static status rjust(tpl_rt *rt, T s, const tpl_args *a, T *out) {
    return pad(rt, "rjust", s, a, 1, out);
}

static status zfill(tpl_rt *rt, T s, const tpl_args *a, T *out) {
    TRY(arity(rt, "zfill", a, 1, 1));
    int64_t width = 0;
    TRY(need_int(rt, "zfill", a->v[0], &width));
    int64_t n = (int64_t)tpl_codepoints(s), room = width > n ? width - n : 0;
    size_t sign = s.len && (s.s[0] == '+' || s.s[0] == '-');
    tpl_buf b = tpl_buf_begin(rt);
    tpl_buf_add(&b, s.s, sign);
    tpl_buf_fill(&b, '0', (size_t)room);
    tpl_buf_add(&b, s.s + sign, s.len - sign);
    TRY(tpl_buf_end(&b, out));
    out->flags |= s.flags & TPL_MARKUP;
    return tpl_steps(rt, (size_t)room / 4);
}

/* ---- stripping -------------------------------------------------------------------------------------- */

static status strip_sides(tpl_rt *rt, const char *what, T s, const tpl_args *a, bool left, bool right,
                          T *out) {
    TRY(arity(rt, what, a, 0, 1));
    bool given = a->n && a->v[0].kind != TPL_NONE;
    if (given) TRY(need_string(rt, what, a->v[0]));
    *out = tpl_strip(s, given ? &a->v[0] : NULL, left, right);
    size_t gone = (s.len - out->len) / 8;
    return tpl_steps(rt, gone * (given ? 1 + a->v[0].len : 1) + (s.flags & TPL_ASCII ? 0 : s.len / 64));
}

static status strip(tpl_rt *rt, T s, const tpl_args *a, T *out) {
    return strip_sides(rt, "strip", s, a, true, true, out);
}

static status lstrip(tpl_rt *rt, T s, const tpl_args *a, T *out) {
    return strip_sides(rt, "lstrip", s, a, true, false, out);
}

static status rstrip(tpl_rt *rt, T s, const tpl_args *a, T *out) {
    return strip_sides(rt, "rstrip", s, a, false, true, out);
}

static bool has_prefix(T s, T p) {
    return s.len >= p.len && memcmp(s.s, p.s, p.len) == 0;
}

static bool has_suffix(T s, T p) {
    return s.len >= p.len && memcmp(s.s + s.len - p.len, p.s, p.len) == 0;
}

static status removeprefix(tpl_rt *rt, T s, const tpl_args *a, T *out) {
    TRY(arity(rt, "removeprefix", a, 1, 1));
    TRY(need_string(rt, "removeprefix", a->v[0]));
    *out = tpl_sub(s, has_prefix(s, a->v[0]) ? a->v[0].len : 0, s.len);
    return CHURON_OK;
}

static status removesuffix(tpl_rt *rt, T s, const tpl_args *a, T *out) {
    TRY(arity(rt, "removesuffix", a, 1, 1));
    TRY(need_string(rt, "removesuffix", a->v[0]));
    *out = tpl_sub(s, 0, has_suffix(s, a->v[0]) ? s.len - a->v[0].len : s.len);
    return CHURON_OK;
}

/* ---- searching -------------------------------------------------------------------------------------- */

/* The part of s that start and end (arguments 1 and 2) select, as Python's str.find adjusts them. *empty:
 * start lies behind end, so that not even "" is found. */
static status window(tpl_rt *rt, const char *what, T s, const tpl_args *a, T *part, int64_t *first,
                     bool *empty) {
    int64_t n = (int64_t)tpl_codepoints(s), from = 0, to = n;
    if (a->n > 1 && a->v[1].kind != TPL_NONE) TRY(need_int(rt, what, a->v[1], &from));
    if (a->n > 2 && a->v[2].kind != TPL_NONE) TRY(need_int(rt, what, a->v[2], &to));
    if (to > n) to = n;
    if (to < 0) to = to < -n ? 0 : to + n;
    if (from < 0) from = from < -n ? 0 : from + n;
    *empty = from > to;
    *first = from;
    if (*empty) {
        *part = tpl_sub(s, 0, 0);
        return CHURON_OK;
    }
    size_t begin = tpl_byte_of(s, (size_t)from), end = tpl_byte_of(s, (size_t)to);
    *part = tpl_sub(s, begin, end);
    return tpl_steps(rt, s.flags & TPL_ASCII ? 0 : s.len / 64);
}

static status search(tpl_rt *rt, const char *what, T s, const tpl_args *a, bool backwards, int64_t *at) {
    TRY(arity(rt, what, a, 1, 3));
    TRY(need_string(rt, what, a->v[0]));
    T part;
    int64_t first;
    bool empty;
    TRY(window(rt, what, s, a, &part, &first, &empty));
    size_t hit = empty       ? SIZE_MAX
                 : backwards ? tpl_rfind(part, a->v[0], part.len)
                             : tpl_find(part, a->v[0], 0);
    *at = hit == SIZE_MAX ? -1 : first + (int64_t)tpl_codepoints(tpl_sub(part, 0, hit));
    return tpl_steps(rt, s.len / 64);
}

static status find(tpl_rt *rt, T s, const tpl_args *a, T *out) {
    int64_t at;
    TRY(search(rt, "find", s, a, false, &at));
    *out = tpl_int(at);
    return CHURON_OK;
}

static status rfind(tpl_rt *rt, T s, const tpl_args *a, T *out) {
    int64_t at;
    TRY(search(rt, "rfind", s, a, true, &at));
    *out = tpl_int(at);
    return CHURON_OK;
}

static status index_of(tpl_rt *rt, T s, const tpl_args *a, T *out) {
    TRY(find(rt, s, a, out));
    return out->i < 0 ? tpl_fail(rt, "substring not found") : CHURON_OK;
}

static status rindex_of(tpl_rt *rt, T s, const tpl_args *a, T *out) {
    TRY(rfind(rt, s, a, out));
    return out->i < 0 ? tpl_fail(rt, "substring not found") : CHURON_OK;
}

static status count(tpl_rt *rt, T s, const tpl_args *a, T *out) {
    TRY(arity(rt, "count", a, 1, 3));
    TRY(need_string(rt, "count", a->v[0]));
    T part;
    int64_t first, n = 0;
    bool empty;
    TRY(window(rt, "count", s, a, &part, &first, &empty));
    if (!empty && a->v[0].len == 0) n = (int64_t)tpl_codepoints(part) + 1;
    for (size_t at = 0; !empty && a->v[0].len; n++) {
        at = tpl_find(part, a->v[0], at);
        if (at == SIZE_MAX) break;
        at += a->v[0].len;
    }
    *out = tpl_int(n);
    return CHURON_OK;
}

static status at_end(tpl_rt *rt, const char *what, T s, const tpl_args *a, bool suffix, T *out) {
    TRY(arity(rt, what, a, 1, 3));
    T part, one = a->v[0];
    int64_t first;
    bool empty, yes = false;
    TRY(window(rt, what, s, a, &part, &first, &empty));
    size_t n = one.kind == TPL_TUPLE ? one.list->n : 1;
    for (size_t i = 0; i < n && !yes; i++) {
        T what_for = one.kind == TPL_TUPLE ? one.list->v[i] : one;
        TRY(need_string(rt, what, what_for));
        yes = !empty && (suffix ? has_suffix(part, what_for) : has_prefix(part, what_for));
    }
    *out = tpl_bool(yes);
    return tpl_steps(rt, n);
}

static status startswith(tpl_rt *rt, T s, const tpl_args *a, T *out) {
    return at_end(rt, "startswith", s, a, false, out);
}

static status endswith(tpl_rt *rt, T s, const tpl_args *a, T *out) {
    return at_end(rt, "endswith", s, a, true, out);
}

/* ---- splitting and joining -------------------------------------------------------------------------- */

static status give_list(tpl_list *list, T *out) {
    *out = (T){.kind = TPL_LIST, .list = list};
    return CHURON_OK;
}

static void reverse(tpl_list *list) {
    for (size_t i = 0; i < list->n / 2; i++) {
        T t = list->v[i];
        list->v[i] = list->v[list->n - 1 - i];
        list->v[list->n - 1 - i] = t;
    }
}

/* Bytes of white space (or of other characters) at the start or end of s. */
static size_t run(T s, bool space, bool backwards) {
    const char *p = s.s, *end = s.s + s.len;
    while (p < end) {
        const char *q = p;
        size_t n;
        if (backwards) {
            q = end - 1;
            while (q > p && ((unsigned char)*q & 0xc0) == 0x80) q--;
        }
        if (tpl_cp_space(tpl_cp_at(q, end, &n)) != space) break;
        if (backwards)
            end = q;
        else
            p += n;
    }
    return s.len - (size_t)(end - p);
}

static status split_spaces(tpl_rt *rt, T s, int64_t max, bool backwards, tpl_list *list) {
    for (;;) {
        size_t gap = run(s, true, backwards);
        s = backwards ? tpl_rest(s, 0, s.len - gap) : tpl_rest(s, gap, s.len);
        if (s.len == 0) return CHURON_OK;
        size_t word = max-- == 0 ? s.len : run(s, false, backwards);
        TRY(tpl_push(rt, list, backwards ? tpl_sub(s, s.len - word, s.len) : tpl_sub(s, 0, word)));
        s = backwards ? tpl_rest(s, 0, s.len - word) : tpl_rest(s, word, s.len);
    }
}

static status split_by(tpl_rt *rt, T s, T sep, int64_t max, bool backwards, tpl_list *list) {
    if (sep.len == 0) return tpl_fail(rt, "empty separator");
    while (max-- != 0) {
        size_t at = backwards ? tpl_rfind(s, sep, s.len) : tpl_find(s, sep, 0);
        if (at == SIZE_MAX) break;
        TRY(tpl_push(rt, list, backwards ? tpl_sub(s, at + sep.len, s.len) : tpl_sub(s, 0, at)));
        s = backwards ? tpl_rest(s, 0, at) : tpl_rest(s, at + sep.len, s.len);
    }
    return tpl_push(rt, list, tpl_sub(s, 0, s.len));
}

static status split_any(tpl_rt *rt, T s, const tpl_args *a, bool backwards, T *out) {
    static const char *const names[] = {"sep", "maxsplit"};
    T v[2];
    TRY(tpl_bind(rt, backwards ? "rsplit()" : "split()", a, names, 2, 0, v));
    int64_t max = -1;
    if (v[1].kind != TPL_MISSING) TRY(need_int(rt, "split", v[1], &max));
    if (max < 0) max = -1;
    TRY(tpl_steps(rt, s.len / 64));
    tpl_list *list = tpl_list_new(rt->arena, 0);
    if (!list) return tpl_memory(rt);
    if (v[0].kind == TPL_MISSING || v[0].kind == TPL_NONE) {
        TRY(split_spaces(rt, s, max, backwards, list));
    } else {
        TRY(need_string(rt, "split", v[0]));
        TRY(split_by(rt, s, v[0], max, backwards, list));
    }
    if (backwards) reverse(list);
    return give_list(list, out);
}

static status split(tpl_rt *rt, T s, const tpl_args *a, T *out) {
    return split_any(rt, s, a, false, out);
}

static status rsplit(tpl_rt *rt, T s, const tpl_args *a, T *out) {
    return split_any(rt, s, a, true, out);
}

static status splitlines(tpl_rt *rt, T s, const tpl_args *a, T *out) {
    static const char *const names[] = {"keepends"};
    T keep;
    TRY(tpl_bind(rt, "splitlines()", a, names, 1, 0, &keep));
    int64_t yes = 0;
    if (keep.kind != TPL_MISSING) TRY(need_int(rt, "splitlines", keep, &yes));
    tpl_list *list = NULL;
    TRY(tpl_splitlines(rt, s, yes != 0, &list));
    return give_list(list, out);
}

static status partition_any(tpl_rt *rt, T s, const tpl_args *a, bool backwards, T *out) {
    TRY(arity(rt, "partition", a, 1, 1));
    T sep = a->v[0];
    TRY(need_string(rt, "partition", sep));
    if (sep.len == 0) return tpl_fail(rt, "empty separator");
    size_t at = backwards ? tpl_rfind(s, sep, s.len) : tpl_find(s, sep, 0);
    size_t from = at, to = at;
    if (at == SIZE_MAX) {
        from = to = backwards ? 0 : s.len;
    } else {
        to = at + sep.len;
    }
    tpl_list *list = tpl_list_new(rt->arena, 3);
    if (!list) return tpl_memory(rt);
    TRY(tpl_push(rt, list, tpl_sub(s, 0, from)));
    TRY(tpl_push(rt, list, tpl_sub(s, from, to)));
    TRY(tpl_push(rt, list, tpl_sub(s, to, s.len)));
    *out = (T){.kind = TPL_TUPLE, .list = list};
    return tpl_steps(rt, s.len / 64);
}

static status partition(tpl_rt *rt, T s, const tpl_args *a, T *out) {
    return partition_any(rt, s, a, false, out);
}

static status rpartition(tpl_rt *rt, T s, const tpl_args *a, T *out) {
    return partition_any(rt, s, a, true, out);
}

static status join(tpl_rt *rt, T s, const tpl_args *a, T *out) {
    TRY(arity(rt, "join", a, 1, 1));
    tpl_list *items = NULL;
    TRY(tpl_to_list(rt, a->v[0], &items));
    tpl_list *parts = tpl_list_new(rt->arena, items->n);
    if (!parts) return tpl_memory(rt);
    for (size_t i = 0; i < items->n; i++) {
        T item = items->v[i];
        if (item.kind != TPL_STRING && !(s.flags & TPL_MARKUP)) {
            return tpl_fail(rt, "sequence item %zu: expected str instance, %s found", i, tpl_type_name(item));
        }
        if (s.flags & TPL_MARKUP) {
            TRY(tpl_str(rt, item, &item));
            TRY(tpl_escape(rt, item, &item));
        }
        TRY(tpl_push(rt, parts, item));
    }
    TRY(tpl_join(rt, s, parts->v, parts->n, out));
    out->flags |= s.flags & TPL_MARKUP;
    return CHURON_OK;
}

static status replace(tpl_rt *rt, T s, const tpl_args *a, T *out) {
    TRY(arity(rt, "replace", a, 2, 3));
    T with = a->v[1];
    TRY(need_string(rt, "replace", a->v[0]));
    if (s.flags & TPL_MARKUP) {
        TRY(tpl_str(rt, with, &with));
        TRY(tpl_escape(rt, with, &with));
    }
    TRY(need_string(rt, "replace", with));
    int64_t n = -1;
    if (a->n > 2) TRY(need_int(rt, "replace", a->v[2], &n));
    TRY(tpl_replace(rt, s, a->v[0], with, n, out));
    out->flags |= s.flags & TPL_MARKUP;
    return CHURON_OK;
}

static status format(tpl_rt *rt, T s, const tpl_args *a, T *out) {
    return tpl_format(rt, s, a, out);
}

/* ---- predicates ------------------------------------------------------------------------------------- */

typedef bool (*cp_test)(uint32_t cp);

static status all_of(tpl_rt *rt, T s, const tpl_args *a, cp_test test, bool when_empty, T *out) {
    TRY(arity(rt, "is...", a, 0, 0));
    bool yes = s.len ? true : when_empty;
    const char *p = s.s, *end = s.s + s.len;
    for (size_t n; p < end && yes; p += n) yes = test(tpl_cp_at(p, end, &n));
    *out = tpl_bool(yes);
    return tpl_steps(rt, s.len / 8);
}

static bool is_alnum(uint32_t cp) {
    return cp != '_' && tpl_cp_word(cp);
}

static bool is_ascii(uint32_t cp) {
    return cp < 0x80;
}

#define PREDICATE(name, test, when_empty)                                                                    \
    static status name(tpl_rt *rt, T s, const tpl_args *a, T *out) {                                         \
        return all_of(rt, s, a, test, when_empty, out);                                                      \
    }

PREDICATE(all_alnum, is_alnum, false)
PREDICATE(all_alpha, tpl_cp_alpha, false)
PREDICATE(all_ascii, is_ascii, true)
PREDICATE(all_decimal, tpl_cp_decimal, false)
PREDICATE(all_digit, tpl_cp_digit, false)
PREDICATE(all_printable, tpl_cp_printable, true)
PREDICATE(all_space, tpl_cp_space, false)

bool tpl_all_cased(T s, bool upper_case) {
    bool any = false;
    const char *p = s.s, *end = s.s + s.len;
    for (size_t n; p < end; p += n) {
        uint32_t cp = tpl_cp_at(p, end, &n);
        if (tpl_cp_title(cp) || (upper_case ? tpl_cp_lower(cp) : tpl_cp_upper(cp))) return false;
        any |= upper_case ? tpl_cp_upper(cp) : tpl_cp_lower(cp);
    }
    return any;
}

static status all_lower(tpl_rt *rt, T s, const tpl_args *a, T *out) {
    TRY(arity(rt, "islower", a, 0, 0));
    *out = tpl_bool(tpl_all_cased(s, false));
    return tpl_steps(rt, s.len / 8);
}

static status all_upper(tpl_rt *rt, T s, const tpl_args *a, T *out) {
    TRY(arity(rt, "isupper", a, 0, 0));
    *out = tpl_bool(tpl_all_cased(s, true));
    return tpl_steps(rt, s.len / 8);
}

static status all_title(tpl_rt *rt, T s, const tpl_args *a, T *out) {
    TRY(arity(rt, "istitle", a, 0, 0));
    bool any = false, in_word = false, yes = true;
    const char *p = s.s, *end = s.s + s.len;
    for (size_t n; p < end && yes; p += n) {
        uint32_t cp = tpl_cp_at(p, end, &n);
        bool big = tpl_cp_upper(cp) || tpl_cp_title(cp), small = tpl_cp_lower(cp);
        if ((big && in_word) || (small && !in_word)) yes = false;
        in_word = big || small;
        any |= in_word;
    }
    *out = tpl_bool(yes && any);
    return tpl_steps(rt, s.len / 8);
}

const tpl_method tpl_str_methods[] = {
    {"strip", strip, false},
    {"split", split, false},
    {"startswith", startswith, false},
    {"endswith", endswith, false},
    {"replace", replace, false},
    {"lstrip", lstrip, false},
    {"rstrip", rstrip, false},
    {"upper", upper, false},
    {"lower", lower, false},
    {"title", title, false},
    {"capitalize", capitalize, false},
    {"swapcase", swapcase, false},
    {"join", join, false},
    {"format", format, false},
    {"find", find, false},
    {"rfind", rfind, false},
    {"index", index_of, false},
    {"rindex", rindex_of, false},
    {"count", count, false},
    {"rsplit", rsplit, false},
    {"splitlines", splitlines, false},
    {"partition", partition, false},
    {"rpartition", rpartition, false},
    {"removeprefix", removeprefix, false},
    {"removesuffix", removesuffix, false},
    {"center", center, false},
    {"ljust", ljust, false},
    {"rjust", rjust, false},
    {"zfill", zfill, false},
    {"isalnum", all_alnum, false},
    {"isalpha", all_alpha, false},
    {"isascii", all_ascii, false},
    {"isdecimal", all_decimal, false},
    {"isdigit", all_digit, false},
    {"isprintable", all_printable, false},
    {"isspace", all_space, false},
    {"islower", all_lower, false},
    {"isupper", all_upper, false},
    {"istitle", all_title, false},
    {"casefold", NULL, false},
    {"encode", NULL, false},
    {"expandtabs", NULL, false},
    {"format_map", NULL, false},
    {"isidentifier", NULL, false},
    {"isnumeric", NULL, false},
    {"maketrans", NULL, false},
    {"translate", NULL, false},
    {NULL, NULL, false},
};

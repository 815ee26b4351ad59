/* template_attr.c: `a.b`, `a[b]` and slices in the way of Jinja2's sandbox. A dot looks for an attribute (of
 * dicts, lists and strings: a method) and then for an item; brackets the other way round. What is not there
 * is an undefined value; methods that would change a list or a dict are undefined values too, which fail when
 * used. */
#include "text/template_internal.h"

#include <string.h>

status tpl_undef(tpl_rt *rt, const char *hint, tvalue obj, tvalue name, tvalue *out) {
    tpl_undefined *u = tpl_alloc(rt->arena, sizeof *u);
    if (!u) return tpl_memory(rt);
    *u = (tpl_undefined){.hint = hint, .obj = obj, .name = name};
    *out = (tvalue){.kind = TPL_UNDEFINED, .undefined = u};
    return CHURON_OK;
}

status tpl_length(tpl_rt *rt, tvalue v, size_t *n, bool *sized) {
    *sized = true;
    switch ((tpl_kind)v.kind) {
    case TPL_UNDEFINED: *n = 0; return CHURON_OK;
    case TPL_STRING: *n = tpl_codepoints(v); return tpl_steps(rt, v.flags & TPL_ASCII ? 0 : v.len / 64);
    case TPL_LIST:
    case TPL_TUPLE: *n = v.list->n; return CHURON_OK;
    case TPL_DICT:
    case TPL_VIEW: *n = v.dict->n; return CHURON_OK;
    case TPL_RANGE: *n = (size_t)v.range->n; return CHURON_OK;
    case TPL_LOOP: {
        int64_t length;
        TRY(tpl_loop_length(rt, v.loop, &length));
        *n = (size_t)length;
        return CHURON_OK;
    }
    default:
        *n = 0;
        *sized = false;
        return CHURON_OK;
    }
}

/* ---- attributes ------------------------------------------------------------------------------------- */

static const tpl_method *find_method(const tpl_method *m, tvalue name) {
    while (m->name && !tpl_str_is(name, m->name)) m++;
    return m->name ? m : NULL;
}

static const tpl_method *methods_of(tvalue v) {
    switch ((tpl_kind)v.kind) {
    case TPL_STRING: return tpl_str_methods;
    case TPL_LIST: return tpl_list_methods;
    case TPL_TUPLE: return tpl_tuple_methods;
    case TPL_DICT: return tpl_dict_methods;
    case TPL_RANGE: return tpl_range_methods;
    default: return NULL;
    }
}

/* What numbers, views, generators and macros have in Python, and nothing here does. */
static bool is_foreign_attr(tvalue v, tvalue name) {
    static const char *const number[] = {
        "real", "imag",     "numerator",  "denominator", "conjugate",  "as_integer_ratio", "bit_length",
        "hex",  "to_bytes", "from_bytes", "fromhex",     "is_integer", "bit_count",        NULL};
    static const char *const view[] = {"mapping", "isdisjoint", NULL};
    static const char *const generator[] = {
        "send", "throw", "close", "gi_frame", "gi_code", "gi_running", "gi_yieldfrom", "gi_suspended", NULL};
    static const char *const macro[] = {
        "name", "arguments", "catch_kwargs", "catch_varargs", "caller", "explicit_caller", NULL};
    const char *const *list = NULL;
    if (v.kind == TPL_BOOL || v.kind == TPL_INT || v.kind == TPL_FLOAT) list = number;
    if (v.kind == TPL_VIEW) list = view;
    if (v.kind == TPL_ITER) list = generator;
    if (v.kind == TPL_MACRO) list = macro;
    while (list && *list && !tpl_str_is(name, *list)) list++;
    return list && *list;
}

static status bind_method(tpl_rt *rt, tvalue obj, const tpl_method *m, tvalue *out) {
    tpl_bound *b = tpl_alloc(rt->arena, sizeof *b);
    if (!b) return tpl_memory(rt);
    *b = (tpl_bound){.self = obj, .method = m};
    *out = (tvalue){.kind = TPL_METHOD, .bound = b};
    return CHURON_OK;
}

status tpl_own_attr(tpl_rt *rt, tvalue obj, tvalue name, tvalue *out, bool *found) {
    *found = false;
    if (name.len >= 2 && memcmp(name.s, "__", 2) == 0) {
        return tpl_refuse(rt, "attribute '%.*s' is unsafe", (int)(name.len > 60 ? 60 : name.len), name.s);
    }
    if (obj.kind == TPL_LOOP) return tpl_loop_attr(rt, obj.loop, obj, name, out, found);
    if (obj.kind >= TPL_NAMESPACE) {
        TRY(tpl_object_attr(rt, obj, name, out, found));
        if (*found) return CHURON_OK;
    }
    if (obj.kind == TPL_TUPLE && (obj.flags & TPL_GROUP)) {
        *found = tpl_str_is(name, "grouper") || tpl_str_is(name, "list");
        if (*found) *out = obj.list->v[tpl_str_is(name, "list")];
        if (*found) return CHURON_OK;
    }
    if (is_foreign_attr(obj, name)) {
        return tpl_refuse(rt, "attribute '%.*s' of '%s' is not supported", (int)name.len, name.s,
                          tpl_type_name(obj));
    }
    const tpl_method *methods = methods_of(obj), *m = methods ? find_method(methods, name) : NULL;
    if (!m) return CHURON_OK;
    *found = true;
    if (m->mutates)
        return tpl_undef(rt, "access to a method that changes its object is unsafe", obj, name, out);
    if (!m->fn) {
        return tpl_refuse(rt, "method '%s' of '%s' is not supported", m->name, tpl_type_name(obj));
    }
    return bind_method(rt, obj, m, out);
}

/* ---- items ------------------------------------------------------------------------------------------ */

status tpl_item(tpl_rt *rt, tvalue v, size_t i, tvalue *out) {
    if (v.kind == TPL_RANGE) {
        *out = tpl_int(v.range->start + (int64_t)i * v.range->step);
        return CHURON_OK;
    }
    if (v.kind != TPL_STRING) {
        *out = v.list->v[i];
        return CHURON_OK;
    }
    if (!(v.flags & TPL_ASCII)) TRY(tpl_steps(rt, i / 64));
    size_t from = tpl_byte_of(v, i), n;
    (void)tpl_cp_at(v.s + from, v.s + v.len, &n);
    *out = tpl_sub(v, from, from + n);
    return CHURON_OK;
}

/* obj[key] of Python where it succeeds. */
static status own_item(tpl_rt *rt, tvalue obj, tvalue key, tvalue *out, bool *found) {
    *found = false;
    if (obj.kind == TPL_DICT) {
        uint32_t hash;
        const tvalue *v = tpl_hash(key, &hash) ? tpl_dict_find(obj.dict, key, hash) : NULL;
        if (v) *out = *v;
        *found = v != NULL;
        return CHURON_OK;
    }
    int64_t i;
    if (!tpl_as_int(key, &i)) return CHURON_OK;
    if (obj.kind != TPL_STRING && !tpl_is_seq(obj) && obj.kind != TPL_RANGE) return CHURON_OK;
    size_t n;
    bool sized;
    TRY(tpl_length(rt, obj, &n, &sized));
    if (i < 0) i += (int64_t)n;
    if (i < 0 || i >= (int64_t)n) return CHURON_OK;
    *found = true;
    return tpl_item(rt, obj, (size_t)i, out);
}

status tpl_getattr(tpl_rt *rt, tvalue obj, tvalue name, tvalue *out) {
    if (obj.kind == TPL_UNDEFINED) return tpl_undefined_error(rt, obj);
    bool found;
    TRY(tpl_own_attr(rt, obj, name, out, &found));
    if (found) return CHURON_OK;
    TRY(own_item(rt, obj, name, out, &found));
    return found ? CHURON_OK : tpl_undef(rt, NULL, obj, name, out);
}

status tpl_getitem(tpl_rt *rt, tvalue obj, tvalue key, tvalue *out) {
    if (obj.kind == TPL_UNDEFINED) return tpl_undefined_error(rt, obj);
    bool found;
    TRY(own_item(rt, obj, key, out, &found));
    if (found) return CHURON_OK;
    if (key.kind == TPL_STRING && !(key.len >= 2 && memcmp(key.s, "__", 2) == 0)) {
        TRY(tpl_own_attr(rt, obj, key, out, &found));
        if (found) return CHURON_OK;
    }
    return tpl_undef(rt, NULL, obj, key, out);
}

/* ---- slices ----------------------------------------------------------------------------------------- */

static status slice_bound(tpl_rt *rt, tvalue v, int64_t absent, int64_t *out) {
    *out = absent;
    if (v.kind == TPL_NONE) return CHURON_OK;
    if (v.kind == TPL_UNDEFINED || !tpl_as_int(v, out)) {
        return tpl_refuse(rt, "slice indices must be integers or None, not %s", tpl_type_name(v));
    }
    return CHURON_OK;
}

static int64_t clamp(int64_t v, int64_t n, int64_t low, int64_t high) {
    if (v < 0) v = v < -n ? low : v + n;
    return v < low ? low : v > high ? high : v;
}

/* Python's slice.indices: the first index, the one to stop before, and how many there are. */
static status indices(tpl_rt *rt, int64_t n, tvalue start, tvalue stop, int64_t step, int64_t *first,
                      int64_t *end, int64_t *count) {
    int64_t low = step < 0 ? -1 : 0, high = step < 0 ? n - 1 : n, from, to;
    TRY(slice_bound(rt, start, 0, &from));
    TRY(slice_bound(rt, stop, 0, &to));
    from = start.kind == TPL_NONE ? (step < 0 ? high : low) : clamp(from, n, low, high);
    to = stop.kind == TPL_NONE ? (step < 0 ? low : high) : clamp(to, n, low, high);
    *first = from;
    *end = to;
    *count = 0;
    if (step > 0 && from < to) *count = (to - from - 1) / step + 1;
    if (step < 0 && from > to) *count = (from - to - 1) / -step + 1;
    return CHURON_OK;
}

/* Every step-th character; the byte offsets of all characters are looked up first. */
static status slice_string(tpl_rt *rt, tvalue s, int64_t n, int64_t first, int64_t count, int64_t step,
                           tvalue *out) {
    if (count == 0) {
        *out = tpl_sub(s, 0, 0);
        return CHURON_OK;
    }
    if (step == 1) {
        size_t from = tpl_byte_of(s, (size_t)first);
        tvalue rest = tpl_sub(s, from, s.len);
        size_t len = tpl_byte_of(rest, (size_t)count);
        if (!(s.flags & TPL_ASCII)) TRY(tpl_steps(rt, (from + len) / 64));
        *out = tpl_sub(s, from, from + len);
        return CHURON_OK;
    }
    TRY(tpl_steps(rt, (size_t)(n + count) / 4));
    uint32_t *offset = tpl_alloc(rt->arena, ((size_t)n + 1) * sizeof *offset);
    if (!offset) return tpl_memory(rt);
    size_t k = 0;
    for (uint32_t i = 0; i < s.len; i++) {
        if (((unsigned char)s.s[i] & 0xc0) != 0x80) offset[k++] = i;
    }
    offset[k] = s.len;
    tpl_buf b = tpl_buf_begin(rt);
    for (int64_t i = 0; i < count; i++) {
        size_t at = (size_t)(first + i * step);
        tpl_buf_add(&b, s.s + offset[at], offset[at + 1] - offset[at]);
    }
    TRY(tpl_buf_end(&b, out));
    out->flags |= s.flags & TPL_MARKUP;
    return CHURON_OK;
}

static status slice_range(tpl_rt *rt, tvalue v, int64_t first, int64_t end, int64_t count, int64_t step,
                          tvalue *out) {
    tvalue a, b, c, base = tpl_int(v.range->start), by = tpl_int(v.range->step);
    TRY(tpl_binary(rt, TPL_N_MUL, by, tpl_int(first), &a));
    TRY(tpl_binary(rt, TPL_N_ADD, a, base, &a));
    TRY(tpl_binary(rt, TPL_N_MUL, by, tpl_int(end), &b));
    TRY(tpl_binary(rt, TPL_N_ADD, b, base, &b));
    TRY(tpl_binary(rt, TPL_N_MUL, by, tpl_int(step), &c));
    tpl_range *r = tpl_alloc(rt->arena, sizeof *r);
    if (!r) return tpl_memory(rt);
    *r = (tpl_range){.start = a.i, .stop = b.i, .step = c.i, .n = count};
    *out = (tvalue){.kind = TPL_RANGE, .range = r};
    return CHURON_OK;
}

status tpl_slice(tpl_rt *rt, tvalue obj, tvalue start, tvalue stop, tvalue step, tvalue *out) {
    if (obj.kind == TPL_UNDEFINED) return tpl_undefined_error(rt, obj);
    if (obj.kind != TPL_STRING && !tpl_is_seq(obj) && obj.kind != TPL_RANGE) {
        return tpl_refuse(rt, "'%s' object cannot be sliced", tpl_type_name(obj));
    }
    size_t n;
    bool sized;
    int64_t by, first, end, count;
    TRY(tpl_length(rt, obj, &n, &sized));
    TRY(slice_bound(rt, step, 1, &by));
    if (by == 0) return tpl_fail(rt, "slice step cannot be zero");
    if (by < -INT64_MAX) by = -INT64_MAX;
    TRY(indices(rt, (int64_t)n, start, stop, by, &first, &end, &count));
    if (obj.kind == TPL_RANGE) return slice_range(rt, obj, first, end, count, by, out);
    if (count <= 1) by = 1;
    if (obj.kind == TPL_STRING) return slice_string(rt, obj, (int64_t)n, first, count, by, out);
    TRY(tpl_steps(rt, (size_t)count));
    tpl_list *list = tpl_list_new(rt->arena, (size_t)count);
    if (!list) return tpl_memory(rt);
    while (list->n < (size_t)count) list->v[list->n] = obj.list->v[first + (int64_t)list->n * by], list->n++;
    *out = (tvalue){.kind = obj.kind, .list = list};
    return CHURON_OK;
}

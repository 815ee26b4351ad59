/* template_seqfilters.c: filters on sequences and mappings. Those that are generators in Jinja2 are so here.
 */
#include "text/template_iter.h"

#include <string.h>

typedef tvalue T;
typedef const tpl_args A;

#define NAMES(...) static const char *const names[] = {__VA_ARGS__}

static status no_arguments(tpl_rt *rt, const char *what, A *a) {
    return tpl_bind(rt, what, a, NULL, 0, 0, NULL);
}

static bool yes(T v) {
    return v.kind != TPL_MISSING && tpl_truth(v);
}

static T or_none(T v) {
    return v.kind == TPL_MISSING ? tpl_none() : v;
}

/* ---- attribute paths -------------------------------------------------------------------------------- */

static bool is_index(const char *p, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (p[i] < '0' || p[i] > '9') return false;
    }
    return n > 0;
}

static status add_part(tpl_rt *rt, tpl_list *parts, T text) {
    if (!is_index(text.s, text.len)) return tpl_push(rt, parts, text);
    int64_t v = 0;
    for (size_t i = 0; i < text.len; i++) {
        if (v > (INT64_MAX - 9) / 10) return tpl_refuse(rt, "an integer of more than 64 bits");
        v = v * 10 + (text.s[i] - '0');
    }
    return tpl_push(rt, parts, tpl_int(v));
}

status tpl_path_make(tpl_rt *rt, T attribute, tpl_path *out) {
    *out = (tpl_path){.fallback = tpl_none()};
    if (!(out->parts = tpl_list_new(rt->arena, 1))) return tpl_memory(rt);
    if (attribute.kind == TPL_MISSING || attribute.kind == TPL_NONE) return CHURON_OK;
    if (attribute.kind != TPL_STRING) return tpl_push(rt, out->parts, attribute);
    size_t from = 0;
    for (;;) {
        size_t dot = tpl_find(attribute, tpl_static("."), from);
        size_t end = dot == SIZE_MAX ? attribute.len : dot;
        TRY(add_part(rt, out->parts, tpl_sub(attribute, from, end)));
        if (dot == SIZE_MAX) return CHURON_OK;
        from = dot + 1;
    }
}

static status folded(tpl_rt *rt, bool fold, T *v) {
    return fold && v->kind == TPL_STRING ? tpl_recase(rt, *v, TPL_CASE_LOWER, v) : CHURON_OK;
}

status tpl_path_get(tpl_rt *rt, const tpl_path *path, T item, T *out) {
    for (size_t i = 0; i < path->parts->n; i++) {
        TRY(tpl_getitem(rt, item, path->parts->v[i], &item));
        if (item.kind == TPL_UNDEFINED && path->fallback.kind != TPL_NONE) item = path->fallback;
    }
    TRY(folded(rt, path->fold, &item));
    *out = item;
    return CHURON_OK;
}

/* ---- sorting ---------------------------------------------------------------------------------------- */

typedef struct sorting {
    tpl_rt *rt;
    const T *keys;
    size_t *order, *room;
} sorting;

static status merge(sorting *s, size_t from, size_t middle, size_t to) {
    size_t i = from, j = middle, k = from;
    while (i < middle && j < to) {
        bool less;
        TRY(tpl_compare(s->rt, TPL_LT, s->keys[s->order[j]], s->keys[s->order[i]], &less));
        TRY(tpl_steps(s->rt, 1));
        s->room[k++] = less ? s->order[j++] : s->order[i++];
    }
    while (i < middle) s->room[k++] = s->order[i++];
    while (j < to) s->room[k++] = s->order[j++];
    memcpy(s->order + from, s->room + from, (to - from) * sizeof *s->order);
    return CHURON_OK;
}

static void reverse_list(T *v, size_t n) {
    for (size_t i = 0; i < n / 2; i++) {
        T t = v[i];
        v[i] = v[n - 1 - i];
        v[n - 1 - i] = t;
    }
}

/* A stable merge sort, from the bottom up. Reversed order keeps equal items as they stand, as in Python. */
status tpl_sort(tpl_rt *rt, tpl_list *items, tpl_list *keys, bool reverse) {
    size_t n = items->n;
    if (n < 2) return CHURON_OK;
    if (reverse) {
        reverse_list(items->v, n);
        reverse_list(keys->v, n);
    }
    sorting s = {.rt = rt, .keys = keys->v, .order = tpl_alloc(rt->arena, 2 * n * sizeof(size_t))};
    T *sorted = tpl_alloc(rt->arena, n * sizeof *sorted);
    if (!s.order || !sorted) return tpl_memory(rt);
    s.room = s.order + n;
    for (size_t i = 0; i < n; i++) s.order[i] = i;
    for (size_t width = 1; width < n; width *= 2) {
        for (size_t from = 0; from + width < n; from += 2 * width) {
            TRY(merge(&s, from, from + width, from + 2 * width < n ? from + 2 * width : n));
        }
    }
    for (size_t i = 0; i < n; i++) sorted[i] = items->v[s.order[i]];
    memcpy(items->v, sorted, n * sizeof *sorted);
    if (reverse) reverse_list(items->v, n);
    return CHURON_OK;
}

/* The paths of attribute="a,b.c". */
static status multi_path(tpl_rt *rt, T attribute, bool fold, tpl_path **paths, size_t *n) {
    size_t count = 1;
    for (size_t i = 0; attribute.kind == TPL_STRING && i < attribute.len; i++) count += attribute.s[i] == ',';
    if (!(*paths = tpl_alloc(rt->arena, count * sizeof **paths))) return tpl_memory(rt);
    size_t from = 0;
    for (size_t i = 0; i < count; i++) {
        T part = attribute;
        if (attribute.kind == TPL_STRING) {
            size_t comma = tpl_find(attribute, tpl_static(","), from);
            size_t end = comma == SIZE_MAX ? attribute.len : comma;
            part = tpl_sub(attribute, from, end);
            from = end + 1;
        }
        TRY(tpl_path_make(rt, part, &(*paths)[i]));
        (*paths)[i].fold = fold;
    }
    *n = count;
    return CHURON_OK;
}

static status sort(tpl_rt *rt, T in, A *a, T *out) {
    NAMES("reverse", "case_sensitive", "attribute");
    T v[3];
    TRY(tpl_bind(rt, "sort", a, names, 3, 0, v));
    tpl_path *paths = NULL;
    size_t n = 0;
    TRY(multi_path(rt, v[2], !yes(v[1]), &paths, &n));
    tpl_list *items = NULL, *keys = tpl_list_new(rt->arena, 0);
    if (!keys) return tpl_memory(rt);
    TRY(tpl_to_list(rt, in, &items));
    for (size_t i = 0; i < items->n; i++) {
        tpl_list *key = tpl_list_new(rt->arena, n);
        if (!key) return tpl_memory(rt);
        for (size_t k = 0; k < n; k++) {
            T one;
            TRY(tpl_path_get(rt, &paths[k], items->v[i], &one));
            TRY(tpl_push(rt, key, one));
        }
        TRY(tpl_push(rt, keys, (T){.kind = TPL_LIST, .list = key}));
    }
    TRY(tpl_sort(rt, items, keys, yes(v[0])));
    *out = (T){.kind = TPL_LIST, .list = items};
    return CHURON_OK;
}

static status path_keys(tpl_rt *rt, const tpl_path *path, const tpl_list *items, tpl_list **out) {
    tpl_list *keys = tpl_list_new(rt->arena, items->n);
    if (!keys) return tpl_memory(rt);
    for (size_t i = 0; i < items->n; i++) {
        T key;
        TRY(tpl_path_get(rt, path, items->v[i], &key));
        TRY(tpl_push(rt, keys, key));
    }
    *out = keys;
    return CHURON_OK;
}

static status groupby(tpl_rt *rt, T in, A *a, T *out) {
    NAMES("attribute", "default", "case_sensitive");
    T v[3];
    TRY(tpl_bind(rt, "groupby", a, names, 3, 1, v));
    tpl_path path;
    TRY(tpl_path_make(rt, v[0], &path));
    path.fallback = or_none(v[1]);
    path.fold = !yes(v[2]);
    tpl_list *items = NULL, *keys = NULL, *groups = tpl_list_new(rt->arena, 0);
    if (!groups) return tpl_memory(rt);
    TRY(tpl_to_list(rt, in, &items));
    TRY(path_keys(rt, &path, items, &keys));
    TRY(tpl_sort(rt, items, keys, false));
    TRY(path_keys(rt, &path, items, &keys));
    tpl_list *group = NULL;
    path.fold = false;
    for (size_t i = 0; i < items->n; i++) {
        bool same = false;
        if (i) TRY(tpl_equal(rt, keys->v[i], keys->v[i - 1], &same));
        if (!same) {
            T key;
            tpl_list *pair = tpl_list_new(rt->arena, 2);
            group = tpl_list_new(rt->arena, 0);
            if (!pair || !group) return tpl_memory(rt);
            TRY(tpl_path_get(rt, &path, items->v[i], &key));
            TRY(tpl_push(rt, pair, key));
            TRY(tpl_push(rt, pair, (T){.kind = TPL_LIST, .list = group}));
            TRY(tpl_push(rt, groups, (T){.kind = TPL_TUPLE, .flags = TPL_GROUP, .list = pair}));
        }
        TRY(tpl_push(rt, group, items->v[i]));
    }
    *out = (T){.kind = TPL_LIST, .list = groups};
    return CHURON_OK;
}

static status dictsort(tpl_rt *rt, T in, A *a, T *out) {
    NAMES("case_sensitive", "by", "reverse");
    T v[3];
    TRY(tpl_bind(rt, "dictsort", a, names, 3, 0, v));
    bool by_value = v[1].kind != TPL_MISSING && tpl_str_is(v[1], "value");
    if (v[1].kind != TPL_MISSING && !by_value && !tpl_str_is(v[1], "key")) {
        return tpl_fail(rt, "You can only sort by either \"key\" or \"value\"");
    }
    if (in.kind == TPL_UNDEFINED) return tpl_undefined_error(rt, in);
    if (in.kind != TPL_DICT) return tpl_fail(rt, "dictsort: expected a dict, got %s", tpl_type_name(in));
    tpl_list *items = NULL, *keys = tpl_list_new(rt->arena, in.dict->n);
    if (!keys) return tpl_memory(rt);
    TRY(tpl_to_list(rt, (T){.kind = TPL_VIEW, .sub = TPL_ITEMS, .dict = in.dict}, &items));
    for (size_t i = 0; i < items->n; i++) {
        T key = items->v[i].list->v[by_value];
        TRY(folded(rt, !yes(v[0]), &key));
        TRY(tpl_push(rt, keys, key));
    }
    TRY(tpl_sort(rt, items, keys, yes(v[2])));
    *out = (T){.kind = TPL_LIST, .list = items};
    return CHURON_OK;
}

/* ---- one value from many ---------------------------------------------------------------------------- */

static status length(tpl_rt *rt, T in, A *a, T *out) {
    TRY(no_arguments(rt, "length", a));
    size_t n;
    bool sized;
    TRY(tpl_length(rt, in, &n, &sized));
    if (!sized) return tpl_fail(rt, "object of type '%s' has no len()", tpl_type_name(in));
    *out = tpl_int((int64_t)n);
    return CHURON_OK;
}

static status first(tpl_rt *rt, T in, A *a, T *out) {
    TRY(no_arguments(rt, "first", a));
    tpl_iter *it = NULL;
    bool more = false;
    TRY(tpl_iterate(rt, in, &it));
    TRY(tpl_next(rt, it, out, &more));
    if (more) return CHURON_OK;
    return tpl_undef(rt, "No first item, sequence was empty.", (T){0}, tpl_none(), out);
}

static bool reversible(T v) {
    return tpl_iterable(v) && v.kind != TPL_ITER && v.kind != TPL_LOOP;
}

static status last(tpl_rt *rt, T in, A *a, T *out) {
    TRY(no_arguments(rt, "last", a));
    if (!reversible(in)) return tpl_fail(rt, "'%s' object is not reversible", tpl_type_name(in));
    tpl_iter *it = NULL;
    bool more = false;
    TRY(tpl_iter_new(rt, TPL_I_REVERSED, in, &it, NULL));
    TRY(tpl_next(rt, it, out, &more));
    if (more) return CHURON_OK;
    return tpl_undef(rt, "No last item, sequence was empty.", (T){0}, tpl_none(), out);
}

static status extreme(tpl_rt *rt, T in, A *a, bool largest, T *out) {
    NAMES("case_sensitive", "attribute");
    T v[2];
    TRY(tpl_bind(rt, largest ? "max" : "min", a, names, 2, 0, v));
    tpl_path path;
    TRY(tpl_path_make(rt, v[1], &path));
    path.fold = !yes(v[0]);
    tpl_iter *it = NULL;
    TRY(tpl_iterate(rt, in, &it));
    T best = {.kind = TPL_MISSING}, best_key = tpl_none();
    for (;;) {
        T item, key;
        bool more, better = true;
        TRY(tpl_next(rt, it, &item, &more));
        if (!more) break;
        TRY(tpl_path_get(rt, &path, item, &key));
        if (best.kind != TPL_MISSING) TRY(tpl_compare(rt, largest ? TPL_GT : TPL_LT, key, best_key, &better));
        if (!better) continue;
        best = item;
        best_key = key;
    }
    *out = best;
    if (best.kind != TPL_MISSING) return CHURON_OK;
    return tpl_undef(rt, "No aggregated item, sequence was empty.", (T){0}, tpl_none(), out);
}

static status max(tpl_rt *rt, T in, A *a, T *out) {
    return extreme(rt, in, a, true, out);
}

static status min(tpl_rt *rt, T in, A *a, T *out) {
    return extreme(rt, in, a, false, out);
}

static status sum(tpl_rt *rt, T in, A *a, T *out) {
    NAMES("attribute", "start");
    T v[2];
    TRY(tpl_bind(rt, "sum", a, names, 2, 0, v));
    tpl_path path;
    TRY(tpl_path_make(rt, v[0], &path));
    T total = v[1].kind == TPL_MISSING ? tpl_int(0) : v[1];
    tpl_iter *it = NULL;
    TRY(tpl_iterate(rt, in, &it));
    if (total.kind == TPL_STRING) return tpl_fail(rt, "sum() can't sum strings [use ''.join(seq) instead]");
    for (;;) {
        T item;
        bool more = false;
        TRY(tpl_next(rt, it, &item, &more));
        if (!more) break;
        TRY(tpl_path_get(rt, &path, item, &item));
        TRY(tpl_binary(rt, TPL_N_ADD, total, item, &total));
    }
    *out = total;
    return CHURON_OK;
}

static status join(tpl_rt *rt, T in, A *a, T *out) {
    NAMES("d", "attribute");
    T v[2], sep = tpl_static("");
    TRY(tpl_bind(rt, "join", a, names, 2, 0, v));
    if (v[0].kind != TPL_MISSING) TRY(tpl_str(rt, v[0], &sep));
    tpl_path path;
    TRY(tpl_path_make(rt, v[1], &path));
    tpl_list *items = NULL;
    TRY(tpl_to_list(rt, in, &items));
    tpl_list *parts = tpl_list_new(rt->arena, items->n);
    if (!parts) return tpl_memory(rt);
    for (size_t i = 0; i < items->n; i++) {
        T item;
        TRY(tpl_path_get(rt, &path, items->v[i], &item));
        TRY(tpl_str(rt, item, &item));
        TRY(tpl_push(rt, parts, item));
    }
    return tpl_join(rt, sep, parts->v, parts->n, out);
}

/* ---- many from many --------------------------------------------------------------------------------- */

static status list(tpl_rt *rt, T in, A *a, T *out) {
    TRY(no_arguments(rt, "list", a));
    tpl_list *items = NULL;
    TRY(tpl_to_list(rt, in, &items));
    *out = (T){.kind = TPL_LIST, .list = items};
    return CHURON_OK;
}

static status reverse(tpl_rt *rt, T in, A *a, T *out) {
    TRY(no_arguments(rt, "reverse", a));
    if (in.kind == TPL_STRING) return tpl_slice(rt, in, tpl_none(), tpl_none(), tpl_int(-1), out);
    tpl_iter *it = NULL;
    if (reversible(in)) return tpl_iter_new(rt, TPL_I_REVERSED, in, &it, out);
    if (!tpl_iterable(in)) return tpl_fail(rt, "reverse: argument must be iterable");
    TRY(list(rt, in, a, out));
    reverse_list(out->list->v, out->list->n);
    return CHURON_OK;
}

static status items(tpl_rt *rt, T in, A *a, T *out) {
    TRY(no_arguments(rt, "items", a));
    tpl_iter *it = NULL;
    return tpl_iter_new(rt, TPL_I_ITEMS, in, &it, out);
}

static status unique(tpl_rt *rt, T in, A *a, T *out) {
    NAMES("case_sensitive", "attribute");
    T v[2];
    TRY(tpl_bind(rt, "unique", a, names, 2, 0, v));
    tpl_iter *it = NULL;
    TRY(tpl_iter_new(rt, TPL_I_UNIQUE, in, &it, out));
    TRY(tpl_path_make(rt, v[1], &it->path));
    it->path.fold = !yes(v[0]);
    return CHURON_OK;
}

static status chunks(tpl_rt *rt, const char *what, tpl_iter_op op, T in, const T *count, T fill, T *out) {
    tpl_iter *it = NULL;
    TRY(tpl_iter_new(rt, op, in, &it, out));
    it->fill = or_none(fill);
    if (tpl_as_int(*count, &it->count) && (op == TPL_I_SLICE || it->count > 0)) return CHURON_OK;
    return tpl_refuse(rt, "%s: expected a positive integer, got %s", what, tpl_type_name(*count));
}

static status batch(tpl_rt *rt, T in, A *a, T *out) {
    NAMES("linecount", "fill_with");
    T v[2];
    TRY(tpl_bind(rt, "batch", a, names, 2, 1, v));
    return chunks(rt, "batch", TPL_I_BATCH, in, &v[0], v[1], out);
}

static status slice(tpl_rt *rt, T in, A *a, T *out) {
    NAMES("slices", "fill_with");
    T v[2];
    TRY(tpl_bind(rt, "slice", a, names, 2, 1, v));
    return chunks(rt, "slice", TPL_I_SLICE, in, &v[0], v[1], out);
}

static const T *keyword(A *a, const char *name) {
    for (size_t i = 0; i < a->n_kw; i++) {
        if (tpl_str_is(a->names[i], name)) return &a->kw[i];
    }
    return NULL;
}

static status map(tpl_rt *rt, T in, A *a, T *out) {
    tpl_iter *it = NULL;
    TRY(tpl_iter_new(rt, TPL_I_MAP, in, &it, out));
    const T *attribute = keyword(a, "attribute"), *fallback = keyword(a, "default");
    if (a->n == 0 && attribute) {
        it->by_path = true;
        if (a->n_kw > 1u + (fallback != NULL)) it->bad = "map: unexpected keyword argument";
        TRY(tpl_path_make(rt, *attribute, &it->path));
        if (fallback) it->path.fallback = *fallback;
        return CHURON_OK;
    }
    it->args = *a;
    if (a->n == 0) {
        it->bad = "map requires a filter argument";
        return CHURON_OK;
    }
    it->name = a->v[0];
    it->args.v++;
    it->args.n--;
    return CHURON_OK;
}

static status choose(tpl_rt *rt, T in, A *a, bool by_attribute, bool negate, T *out) {
    tpl_iter *it = NULL;
    TRY(tpl_iter_new(rt, TPL_I_SELECT, in, &it, out));
    it->negate = negate;
    it->by_path = by_attribute;
    it->args = *a;
    if (by_attribute) {
        if (a->n == 0) {
            it->bad = "Missing parameter for attribute name";
            return CHURON_OK;
        }
        TRY(tpl_path_make(rt, a->v[0], &it->path));
        it->args.v++;
        it->args.n--;
    }
    if (it->args.n == 0) return CHURON_OK;
    it->named = true;
    it->name = it->args.v[0];
    it->test = it->name.kind == TPL_STRING ? tpl_test_find(it->name) : NULL;
    it->args.v++;
    it->args.n--;
    return CHURON_OK;
}

static status select(tpl_rt *rt, T in, A *a, T *out) {
    return choose(rt, in, a, false, false, out);
}

static status reject(tpl_rt *rt, T in, A *a, T *out) {
    return choose(rt, in, a, false, true, out);
}

static status selectattr(tpl_rt *rt, T in, A *a, T *out) {
    return choose(rt, in, a, true, false, out);
}

static status rejectattr(tpl_rt *rt, T in, A *a, T *out) {
    return choose(rt, in, a, true, true, out);
}

/* ---- any value -------------------------------------------------------------------------------------- */

static status fallback_value(tpl_rt *rt, T in, A *a, T *out) {
    NAMES("default_value", "boolean");
    T v[2];
    TRY(tpl_bind(rt, "default", a, names, 2, 0, v));
    *out = in;
    if (in.kind == TPL_UNDEFINED || (yes(v[1]) && !tpl_truth(in))) {
        *out = v[0].kind == TPL_MISSING ? tpl_static("") : v[0];
    }
    return CHURON_OK;
}

static status attr(tpl_rt *rt, T in, A *a, T *out) {
    NAMES("name");
    T name;
    bool found;
    TRY(tpl_bind(rt, "attr", a, names, 1, 1, &name));
    if (in.kind == TPL_UNDEFINED) return tpl_undefined_error(rt, in);
    if (name.kind != TPL_STRING) return tpl_fail(rt, "attr: expected a string, got %s", tpl_type_name(name));
    TRY(tpl_own_attr(rt, in, name, out, &found));
    return found ? CHURON_OK : tpl_undef(rt, NULL, in, name, out);
}

const tpl_filter tpl_sequence_filters[] = {
    {"length", length},
    {"count", length},
    {"default", fallback_value},
    {"d", fallback_value},
    {"join", join},
    {"items", items},
    {"dictsort", dictsort},
    {"list", list},
    {"map", map},
    {"select", select},
    {"reject", reject},
    {"selectattr", selectattr},
    {"rejectattr", rejectattr},
    {"first", first},
    {"last", last},
    {"reverse", reverse},
    {"sort", sort},
    {"unique", unique},
    {"groupby", groupby},
    {"batch", batch},
    {"slice", slice},
    {"max", max},
    {"min", min},
    {"sum", sum},
    {"attr", attr},
    {NULL, NULL},
};

/* template_method.c: methods of lists, tuples, dicts and ranges. */
#include "text/template_internal.h"

#include <string.h>

static status no_keywords(tpl_rt *rt, const char *what, const tpl_args *args, size_t min, size_t max) {
    if (args->n_kw) return tpl_fail(rt, "%s() takes no keyword arguments", what);
    if (args->n < min || args->n > max) return tpl_fail(rt, "%s() got %zu arguments", what, args->n);
    return CHURON_OK;
}

/* ---- dict ------------------------------------------------------------------------------------------- */

static status dict_get(tpl_rt *rt, tvalue self, const tpl_args *args, tvalue *out) {
    TRY(no_keywords(rt, "get", args, 1, 2));
    uint32_t hash;
    if (!tpl_hash(args->v[0], &hash)) return tpl_fail(rt, "unhashable type: '%s'", tpl_type_name(args->v[0]));
    const tvalue *v = tpl_dict_find(self.dict, args->v[0], hash);
    *out = v ? *v : args->n > 1 ? args->v[1] : tpl_none();
    return CHURON_OK;
}

static status view(tpl_rt *rt, tvalue self, const tpl_args *args, unsigned which, tvalue *out) {
    TRY(no_keywords(rt, "a view of a dict", args, 0, 0));
    *out = (tvalue){.kind = TPL_VIEW, .sub = (uint16_t)which, .dict = self.dict};
    return CHURON_OK;
}

static status dict_items(tpl_rt *rt, tvalue self, const tpl_args *args, tvalue *out) {
    return view(rt, self, args, TPL_ITEMS, out);
}

static status dict_keys(tpl_rt *rt, tvalue self, const tpl_args *args, tvalue *out) {
    return view(rt, self, args, TPL_KEYS, out);
}

static status dict_values(tpl_rt *rt, tvalue self, const tpl_args *args, tvalue *out) {
    return view(rt, self, args, TPL_VALUES, out);
}

static status dict_copy(tpl_rt *rt, tvalue self, const tpl_args *args, tvalue *out) {
    TRY(no_keywords(rt, "copy", args, 0, 0));
    TRY(tpl_steps(rt, self.dict->n));
    tpl_dict *copy = tpl_dict_copy(rt->arena, self.dict);
    if (!copy) return tpl_memory(rt);
    *out = (tvalue){.kind = TPL_DICT, .dict = copy};
    return CHURON_OK;
}

const tpl_method tpl_dict_methods[] = {
    {"get", dict_get, false},       {"items", dict_items, false}, {"keys", dict_keys, false},
    {"values", dict_values, false}, {"copy", dict_copy, false},   {"fromkeys", NULL, false},
    {"clear", NULL, true},          {"pop", NULL, true},          {"popitem", NULL, true},
    {"setdefault", NULL, true},     {"update", NULL, true},       {NULL, NULL, false},
};

/* ---- list, tuple, range ----------------------------------------------------------------------------- */

static status list_copy(tpl_rt *rt, tvalue self, const tpl_args *args, tvalue *out) {
    TRY(no_keywords(rt, "copy", args, 0, 0));
    return tpl_slice(rt, self, tpl_none(), tpl_none(), tpl_none(), out);
}

static status seq_count(tpl_rt *rt, tvalue self, const tpl_args *args, tvalue *out) {
    TRY(no_keywords(rt, "count", args, 1, 1));
    tpl_list *items = NULL;
    TRY(tpl_to_list(rt, self, &items));
    int64_t n = 0;
    for (size_t i = 0; i < items->n; i++) {
        bool same;
        TRY(tpl_equal(rt, items->v[i], args->v[0], &same));
        n += same;
    }
    *out = tpl_int(n);
    return CHURON_OK;
}

static status index_bound(tpl_rt *rt, const tpl_args *args, size_t which, int64_t n, int64_t *out) {
    if (which >= args->n) return CHURON_OK;
    if (!tpl_as_int(args->v[which], out)) return tpl_fail(rt, "index() needs integers");
    if (*out < 0) *out = *out < -n ? 0 : *out + n;
    if (*out > n) *out = n;
    return CHURON_OK;
}

static status seq_index(tpl_rt *rt, tvalue self, const tpl_args *args, tvalue *out) {
    TRY(no_keywords(rt, "index", args, 1, self.kind == TPL_RANGE ? 1 : 3));
    tpl_list *items = NULL;
    TRY(tpl_to_list(rt, self, &items));
    int64_t from = 0, to = (int64_t)items->n;
    TRY(index_bound(rt, args, 1, to, &from));
    TRY(index_bound(rt, args, 2, to, &to));
    for (int64_t i = from; i < to; i++) {
        bool same;
        TRY(tpl_equal(rt, items->v[i], args->v[0], &same));
        if (!same) continue;
        *out = tpl_int(i);
        return CHURON_OK;
    }
    return tpl_fail(rt, "the value is not in the %s", tpl_type_name(self));
}

const tpl_method tpl_list_methods[] = {
    {"append", NULL, true},      {"clear", NULL, true},  {"copy", list_copy, false},
    {"count", seq_count, false}, {"extend", NULL, true}, {"index", seq_index, false},
    {"insert", NULL, true},      {"pop", NULL, true},    {"remove", NULL, true},
    {"reverse", NULL, true},     {"sort", NULL, true},   {NULL, NULL, false},
};

const tpl_method tpl_tuple_methods[] = {
    {"count", seq_count, false},
    {"index", seq_index, false},
    {NULL, NULL, false},
};

const tpl_method tpl_range_methods[] = {
    {"count", seq_count, false}, {"index", seq_index, false}, {"start", NULL, false},
    {"stop", NULL, false},       {"step", NULL, false},       {NULL, NULL, false},
};

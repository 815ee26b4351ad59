/* template_globals.c: the functions that every template has (range, dict, namespace, cycler, joiner,
 * raise_exception, strftime_now) and the objects that they make. */
#include "text/template_internal.h"

#include <string.h>

enum { F_RANGE, F_DICT, F_NAMESPACE, F_CYCLER, F_JOINER, F_RAISE, F_STRFTIME, F_LIPSUM, F_COUNT };
enum { M_NEXT, M_RESET, M_FROMKEYS };

static const char *const NAMES[F_COUNT] = {"range",           "dict",         "namespace", "cycler", "joiner",
                                           "raise_exception", "strftime_now", "lipsum"};

bool tpl_global(tvalue name, tvalue *out) {
    for (unsigned i = 0; i < F_COUNT; i++) {
        if (!tpl_str_is(name, NAMES[i])) continue;
        *out = (tvalue){.kind = TPL_FUNCTION, .sub = (uint16_t)i};
        return true;
    }
    return false;
}

/* ---- range ------------------------------------------------------------------------------------------ */

static status make_range(tpl_rt *rt, const tpl_args *args, tvalue *out) {
    int64_t v[3] = {0, 0, 1};
    if (args->n_kw || args->n < 1 || args->n > 3) return tpl_fail(rt, "range() takes 1 to 3 integers");
    for (size_t i = 0; i < args->n; i++) {
        if (args->v[i].kind == TPL_UNDEFINED) return tpl_undefined_error(rt, args->v[i]);
        if (!tpl_as_int(args->v[i], &v[args->n == 1 ? 1 : i])) {
            return tpl_fail(rt, "'%s' object cannot be interpreted as an integer", tpl_type_name(args->v[i]));
        }
    }
    int64_t start = v[0], stop = v[1], step = v[2];
    if (step == 0) return tpl_fail(rt, "range() arg 3 must not be zero");
    uint64_t n = 0, by = step > 0 ? (uint64_t)step : (uint64_t)0 - (uint64_t)step;
    if (step > 0 && start < stop) n = ((uint64_t)stop - (uint64_t)start - 1) / by + 1;
    if (step < 0 && start > stop) n = ((uint64_t)start - (uint64_t)stop - 1) / by + 1;
    if (n > TPL_MAX_RANGE)
        return tpl_limit(rt, "range of %llu items, at most %d", (unsigned long long)n, TPL_MAX_RANGE);
    tpl_range *r = tpl_alloc(rt->arena, sizeof *r);
    if (!r) return tpl_memory(rt);
    *r = (tpl_range){.start = start, .stop = stop, .step = step, .n = (int64_t)n};
    *out = (tvalue){.kind = TPL_RANGE, .range = r};
    return CHURON_OK;
}

/* ---- dict and namespace ----------------------------------------------------------------------------- */

static status put(tpl_rt *rt, tpl_dict *d, tvalue key, tvalue v) {
    uint32_t hash;
    if (!tpl_hash(key, &hash)) return tpl_fail(rt, "unhashable type: '%s'", tpl_type_name(key));
    TRY(tpl_steps(rt, 1));
    return tpl_dict_put(d, key, hash, v) ? CHURON_OK : tpl_memory(rt);
}

static status add_pairs(tpl_rt *rt, tpl_dict *d, tvalue from) {
    if (from.kind == TPL_DICT) {
        for (size_t i = 0; i < from.dict->n; i++)
            TRY(put(rt, d, from.dict->entries[i].key, from.dict->entries[i].value));
        return CHURON_OK;
    }
    tpl_list *items = NULL;
    TRY(tpl_to_list(rt, from, &items));
    for (size_t i = 0; i < items->n; i++) {
        tvalue pair[2];
        TRY(tpl_unpack(rt, items->v[i], 2, pair));
        TRY(put(rt, d, pair[0], pair[1]));
    }
    return CHURON_OK;
}

static status make_dict(tpl_rt *rt, const tpl_args *args, tpl_dict **out) {
    if (args->n > 1) return tpl_fail(rt, "dict() takes at most 1 positional argument");
    tpl_dict *d = tpl_dict_new(rt->arena);
    if (!d) return tpl_memory(rt);
    if (args->n && args->v[0].kind == TPL_UNDEFINED) return tpl_refuse(rt, "dict() of an undefined value");
    if (args->n) TRY(add_pairs(rt, d, args->v[0]));
    for (size_t i = 0; i < args->n_kw; i++) TRY(put(rt, d, args->names[i], args->kw[i]));
    *out = d;
    return CHURON_OK;
}

static status make_namespace(tpl_rt *rt, const tpl_args *args, tvalue *out) {
    tpl_dict *d;
    TRY(make_dict(rt, args, &d));
    for (size_t i = 0; i < d->n; i++) {
        tvalue k = d->entries[i].key;
        if (k.kind == TPL_STRING && k.len && k.s[0] == '_') {
            return tpl_fail(rt, "a namespace cannot have the attribute '%.*s': it begins with an underscore",
                            (int)(k.len > 60 ? 60 : k.len), k.s);
        }
    }
    *out = (tvalue){.kind = TPL_NAMESPACE, .dict = d};
    return CHURON_OK;
}

static status fromkeys(tpl_rt *rt, const tpl_args *args, tvalue *out) {
    if (args->n_kw || args->n < 1 || args->n > 2) return tpl_fail(rt, "fromkeys() takes 1 or 2 arguments");
    tpl_list *keys;
    TRY(tpl_to_list(rt, args->v[0], &keys));
    tpl_dict *d = tpl_dict_new(rt->arena);
    if (!d) return tpl_memory(rt);
    for (size_t i = 0; i < keys->n; i++) TRY(put(rt, d, keys->v[i], args->n > 1 ? args->v[1] : tpl_none()));
    *out = (tvalue){.kind = TPL_DICT, .dict = d};
    return CHURON_OK;
}

/* ---- cycler and joiner ------------------------------------------------------------------------------ */

static status make_cycler(tpl_rt *rt, const tpl_args *args, tvalue *out) {
    if (args->n_kw) return tpl_fail(rt, "cycler() takes no keyword arguments");
    if (!args->n) return tpl_fail(rt, "at least one item has to be provided");
    tpl_cycler *c = tpl_alloc(rt->arena, sizeof *c);
    if (!c || !(c->items = tpl_list_new(rt->arena, args->n))) return tpl_memory(rt);
    for (size_t i = 0; i < args->n; i++) TRY(tpl_push(rt, c->items, args->v[i]));
    *out = (tvalue){.kind = TPL_CYCLER, .cycler = c};
    return CHURON_OK;
}

static status make_joiner(tpl_rt *rt, const tpl_args *args, tvalue *out) {
    static const char *const names[] = {"sep"};
    tvalue sep;
    TRY(tpl_bind(rt, "joiner()", args, names, 1, 0, &sep));
    tpl_joiner *j = tpl_alloc(rt->arena, sizeof *j);
    if (!j) return tpl_memory(rt);
    j->sep = sep.kind == TPL_MISSING ? tpl_static(", ") : sep;
    *out = (tvalue){.kind = TPL_JOINER, .joiner = j};
    return CHURON_OK;
}

static status bind(tpl_rt *rt, tvalue obj, unsigned which, tvalue *out) {
    tpl_bound *b = tpl_alloc(rt->arena, sizeof *b);
    if (!b) return tpl_memory(rt);
    b->self = obj;
    *out = (tvalue){.kind = TPL_METHOD, .sub = (uint16_t)which, .bound = b};
    return CHURON_OK;
}

static status cycler_attr(tpl_rt *rt, tvalue obj, tvalue name, tvalue *out, bool *found) {
    *found = true;
    if (tpl_str_is(name, "next")) return bind(rt, obj, M_NEXT, out);
    if (tpl_str_is(name, "reset")) return bind(rt, obj, M_RESET, out);
    if (tpl_str_is(name, "current")) {
        *out = obj.cycler->items->v[obj.cycler->pos];
    } else if (tpl_str_is(name, "pos")) {
        *out = tpl_int((int64_t)obj.cycler->pos);
    } else if (tpl_str_is(name, "items")) {
        *out = (tvalue){.kind = TPL_TUPLE, .list = obj.cycler->items};
    } else {
        *found = false;
    }
    return CHURON_OK;
}

status tpl_object_attr(tpl_rt *rt, tvalue obj, tvalue name, tvalue *out, bool *found) {
    *found = false;
    switch ((tpl_kind)obj.kind) {
    case TPL_NAMESPACE: {
        const tvalue *v = tpl_dict_get(obj.dict, name.s, name.len);
        *found = v != NULL;
        if (v) *out = *v;
        return CHURON_OK;
    }
    case TPL_CYCLER: return cycler_attr(rt, obj, name, out, found);
    case TPL_JOINER:
        *found = tpl_str_is(name, "sep") || tpl_str_is(name, "used");
        if (*found) *out = tpl_str_is(name, "sep") ? obj.joiner->sep : tpl_bool(obj.joiner->used);
        return CHURON_OK;
    case TPL_FUNCTION:
        *found = obj.sub == F_DICT && tpl_str_is(name, "fromkeys");
        if (*found) return bind(rt, obj, M_FROMKEYS, out);
        if (obj.sub == F_CYCLER) return tpl_refuse(rt, "attributes of the class cycler are not supported");
        return CHURON_OK;
    default: return CHURON_OK;
    }
}

status tpl_object_method(tpl_rt *rt, tvalue obj, unsigned which, const tpl_args *args, tvalue *out) {
    if (obj.kind == TPL_LOOP) return tpl_loop_method(rt, obj.loop, which, args, out);
    if (which == M_FROMKEYS) return fromkeys(rt, args, out);
    if (args->n || args->n_kw) return tpl_fail(rt, "methods of a cycler take no arguments");
    tpl_cycler *c = obj.cycler;
    *out = tpl_none();
    if (which == M_NEXT) *out = c->items->v[c->pos];
    c->pos = which == M_NEXT ? (c->pos + 1) % c->items->n : 0;
    return CHURON_OK;
}

/* ---- calls ------------------------------------------------------------------------------------------ */

static status raise_exception(tpl_rt *rt, const tpl_args *args) {
    static const char *const names[] = {"message"};
    tvalue message;
    TRY(tpl_bind(rt, "raise_exception()", args, names, 1, 1, &message));
    TRY(tpl_str(rt, message, &message));
    return tpl_fail(rt, "%.*s", (int)(message.len > 400 ? 400 : message.len), message.s);
}

static status strftime_now(tpl_rt *rt, const tpl_args *args, tvalue *out) {
    static const char *const names[] = {"format"};
    tvalue format;
    TRY(tpl_bind(rt, "strftime_now()", args, names, 1, 1, &format));
    return tpl_strftime(rt, format, out);
}

status tpl_call_function(tpl_rt *rt, unsigned which, const tpl_args *args, tvalue *out) {
    switch (which) {
    case F_RANGE: return make_range(rt, args, out);
    case F_DICT: {
        tpl_dict *d;
        TRY(make_dict(rt, args, &d));
        *out = (tvalue){.kind = TPL_DICT, .dict = d};
        return CHURON_OK;
    }
    case F_NAMESPACE: return make_namespace(rt, args, out);
    case F_CYCLER: return make_cycler(rt, args, out);
    case F_JOINER: return make_joiner(rt, args, out);
    case F_RAISE: return raise_exception(rt, args);
    case F_STRFTIME: return strftime_now(rt, args, out);
    default: return tpl_refuse(rt, "%s() is not supported", which < F_COUNT ? NAMES[which] : "?");
    }
}

/* template_iter.c: iteration. A generator (map, select, ...) is read once, lazily, item by item, as in
 * Python: an error in an item that nobody reads does not happen. */
#include "text/template_iter.h"

#include <string.h>

bool tpl_iterable(tvalue v) {
    switch ((tpl_kind)v.kind) {
    case TPL_UNDEFINED:
    case TPL_STRING:
    case TPL_LIST:
    case TPL_TUPLE:
    case TPL_DICT:
    case TPL_RANGE:
    case TPL_VIEW:
    case TPL_ITER:
    case TPL_LOOP: return true;
    default: return false;
    }
}

bool tpl_sized(tvalue v) {
    return tpl_iterable(v) && v.kind != TPL_ITER;
}

status tpl_push(tpl_rt *rt, tpl_list *list, tvalue v) {
    TRY(tpl_steps(rt, 1));
    return tpl_list_push(list, v) ? CHURON_OK : tpl_memory(rt);
}

status tpl_iter_new(tpl_rt *rt, tpl_iter_op op, tvalue src, tpl_iter **it, tvalue *out) {
    *it = tpl_alloc(rt->arena, sizeof **it);
    if (!*it) return tpl_memory(rt);
    (*it)->op = op;
    (*it)->src = src;
    if (out) *out = (tvalue){.kind = TPL_ITER, .iter = *it};
    return CHURON_OK;
}

status tpl_iterate(tpl_rt *rt, tvalue v, tpl_iter **out) {
    if (v.kind == TPL_ITER) {
        *out = v.iter;
        return CHURON_OK;
    }
    if (!tpl_iterable(v) || v.kind == TPL_LOOP)
        return tpl_fail(rt, "'%s' object is not iterable", tpl_type_name(v));
    return tpl_iter_new(rt, TPL_I_PLAIN, v, out, NULL);
}

status tpl_filter_loop(tpl_rt *rt, const tpl_node *loop, tpl_frame *outer, tvalue items, tvalue *out) {
    tpl_iter *it = NULL;
    TRY(tpl_iter_new(rt, TPL_I_LOOP_TEST, items, &it, out));
    TRY(tpl_open_loop_test(rt, loop, outer, &it->frame));
    it->loop = loop;
    return CHURON_OK;
}

static status pair(tpl_rt *rt, tvalue a, tvalue b, tvalue *out) {
    tpl_list *list = tpl_list_new(rt->arena, 2);
    if (!list) return tpl_memory(rt);
    list->v[0] = a;
    list->v[1] = b;
    list->n = 2;
    *out = (tvalue){.kind = TPL_TUPLE, .list = list};
    return CHURON_OK;
}

static status dict_item(tpl_rt *rt, const tpl_dict *d, unsigned which, size_t i, tvalue *out) {
    const tpl_entry *e = &d->entries[i];
    if (which == TPL_ITEMS) return pair(rt, e->key, e->value, out);
    *out = which == TPL_KEYS ? e->key : e->value;
    return CHURON_OK;
}

/* The next of a container; it->at is an index, or an offset into a string. */
static status next_plain(tpl_rt *rt, tpl_iter *it, tvalue *out, bool *more) {
    tvalue v = it->src;
    size_t n = v.kind == TPL_STRING                       ? v.len
               : tpl_is_seq(v)                            ? v.list->n
               : v.kind == TPL_RANGE                      ? (size_t)v.range->n
               : v.kind == TPL_DICT || v.kind == TPL_VIEW ? v.dict->n
                                                          : 0;
    *more = it->at < n;
    if (!*more) return CHURON_OK;
    size_t i = it->at++;
    switch ((tpl_kind)v.kind) {
    case TPL_STRING: {
        size_t bytes;
        (void)tpl_cp_at(v.s + i, v.s + v.len, &bytes);
        it->at = i + bytes;
        *out = tpl_sub(v, i, i + bytes);
        out->flags &= (uint8_t)~TPL_MARKUP;
        return CHURON_OK;
    }
    case TPL_RANGE: *out = tpl_int(v.range->start + (int64_t)i * v.range->step); return CHURON_OK;
    case TPL_DICT: return dict_item(rt, v.dict, TPL_KEYS, i, out);
    case TPL_VIEW: return dict_item(rt, v.dict, v.sub, i, out);
    default: *out = v.list->v[i]; return CHURON_OK;
    }
}

static status next_reversed(tpl_rt *rt, tpl_iter *it, tvalue *out, bool *more) {
    size_t n;
    bool sized;
    TRY(tpl_length(rt, it->src, &n, &sized));
    *more = it->at < n;
    if (!*more) return CHURON_OK;
    size_t i = n - 1 - it->at++;
    tvalue v = it->src;
    if (v.kind == TPL_DICT) return dict_item(rt, v.dict, TPL_KEYS, i, out);
    if (v.kind == TPL_VIEW) return dict_item(rt, v.dict, v.sub, i, out);
    return tpl_item(rt, v, i, out);
}

static status keeps(tpl_rt *rt, tpl_iter *it, tvalue item, bool *keep) {
    if (it->by_path) TRY(tpl_path_get(rt, &it->path, item, &item));
    if (!it->named) {
        TRY(tpl_is_true(rt, item, keep));
        *keep = *keep != it->negate;
        return CHURON_OK;
    }
    if (!it->test) {
        int len = (int)(it->name.kind == TPL_STRING ? it->name.len > 60 ? 60 : it->name.len : 0);
        return tpl_fail(rt, "No test named '%.*s' found", len, len ? it->name.s : "");
    }
    TRY(tpl_run_test(rt, it->test, item, &it->args, keep));
    *keep = *keep != it->negate;
    return CHURON_OK;
}

static status next_selected(tpl_rt *rt, tpl_iter *it, tvalue *out, bool *more) {
    for (;;) {
        bool keep;
        TRY(tpl_next(rt, it->from, out, more));
        if (!*more) return CHURON_OK;
        if (it->op == TPL_I_LOOP_TEST) {
            TRY(tpl_loop_test(rt, it->loop, it->frame, *out, &keep));
        } else {
            TRY(keeps(rt, it, *out, &keep));
        }
        if (keep) return CHURON_OK;
    }
}

static status next_mapped(tpl_rt *rt, tpl_iter *it, tvalue *out, bool *more) {
    tvalue item;
    TRY(tpl_next(rt, it->from, &item, more));
    if (!*more) return CHURON_OK;
    if (it->by_path) return tpl_path_get(rt, &it->path, item, out);
    return tpl_filter_call(rt, it->name, item, &it->args, out);
}

static status next_unique(tpl_rt *rt, tpl_iter *it, tvalue *out, bool *more) {
    for (;;) {
        TRY(tpl_next(rt, it->from, out, more));
        if (!*more) return CHURON_OK;
        tvalue key;
        uint32_t hash;
        TRY(tpl_path_get(rt, &it->path, *out, &key));
        if (!tpl_hash(key, &hash)) return tpl_fail(rt, "unhashable type: '%s'", tpl_type_name(key));
        if (tpl_dict_find(it->seen, key, hash)) continue;
        return tpl_dict_put(it->seen, key, hash, tpl_none()) ? CHURON_OK : tpl_memory(rt);
    }
}

static status next_batch(tpl_rt *rt, tpl_iter *it, tvalue *out, bool *more) {
    tpl_list *batch = tpl_list_new(rt->arena, 0);
    if (!batch) return tpl_memory(rt);
    bool one_more = true;
    /* With a size of zero or less no batch is ever full: everything is one batch. */
    while (one_more && !(it->count > 0 && batch->n == (size_t)it->count)) {
        tvalue item;
        TRY(tpl_next(rt, it->from, &item, &one_more));
        if (one_more) TRY(tpl_push(rt, batch, item));
    }
    *more = batch->n > 0;
    while (*more && it->fill.kind != TPL_NONE && (int64_t)batch->n < it->count)
        TRY(tpl_push(rt, batch, it->fill));
    *out = (tvalue){.kind = TPL_LIST, .list = batch};
    return CHURON_OK;
}

static status next_slice(tpl_rt *rt, tpl_iter *it, tvalue *out, bool *more) {
    int64_t n = (int64_t)it->src.list->n, slice = (int64_t)it->at++;
    *more = slice < it->count;
    if (!*more) return CHURON_OK;
    int64_t each = n / it->count, extra = n % it->count;
    int64_t start = slice * each + (slice < extra ? slice : extra);
    int64_t end = start + each + (slice < extra ? 1 : 0);
    tpl_list *part = tpl_list_new(rt->arena, (size_t)(end - start) + 1);
    if (!part) return tpl_memory(rt);
    for (int64_t i = start; i < end; i++) TRY(tpl_push(rt, part, it->src.list->v[i]));
    if (it->fill.kind != TPL_NONE && slice >= extra) TRY(tpl_push(rt, part, it->fill));
    *out = (tvalue){.kind = TPL_LIST, .list = part};
    return CHURON_OK;
}

/* What a Python generator does when it is first read. */
static status start(tpl_rt *rt, tpl_iter *it) {
    it->started = true;
    switch (it->op) {
    case TPL_I_PLAIN:
    case TPL_I_REVERSED: return CHURON_OK;
    case TPL_I_SELECT:
    case TPL_I_MAP:
        if (!tpl_truth(it->src)) {
            it->done = true;
            return CHURON_OK;
        }
        if (it->bad) return tpl_fail(rt, "%s", it->bad);
        break;
    case TPL_I_SLICE: {
        tpl_list *list = NULL;
        TRY(tpl_to_list(rt, it->src, &list));
        it->src = (tvalue){.kind = TPL_LIST, .list = list};
        if (it->count == 0) return tpl_fail(rt, "integer division or modulo by zero");
        if (it->count < 0) it->done = true;
        return CHURON_OK;
    }
    case TPL_I_ITEMS:
        if (it->src.kind == TPL_UNDEFINED) {
            it->done = true;
            return CHURON_OK;
        }
        if (it->src.kind != TPL_DICT) return tpl_fail(rt, "can only get item pairs from a mapping");
        it->src = (tvalue){.kind = TPL_VIEW, .sub = TPL_ITEMS, .dict = it->src.dict};
        return CHURON_OK;
    case TPL_I_UNIQUE:
        if (!(it->seen = tpl_dict_new(rt->arena))) return tpl_memory(rt);
        break;
    default: break;
    }
    return tpl_iterate(rt, it->src, &it->from);
}

static status advance(tpl_rt *rt, tpl_iter *it, tvalue *out, bool *more) {
    switch (it->op) {
    case TPL_I_PLAIN:
    case TPL_I_ITEMS: return next_plain(rt, it, out, more);
    case TPL_I_REVERSED: return next_reversed(rt, it, out, more);
    case TPL_I_SELECT:
    case TPL_I_LOOP_TEST: return next_selected(rt, it, out, more);
    case TPL_I_MAP: return next_mapped(rt, it, out, more);
    case TPL_I_UNIQUE: return next_unique(rt, it, out, more);
    case TPL_I_BATCH: return next_batch(rt, it, out, more);
    case TPL_I_SLICE: return next_slice(rt, it, out, more);
    }
    return error_set(rt->err, CHURON_INTERNAL, "iterator %d", (int)it->op);
}

status tpl_next(tpl_rt *rt, tpl_iter *it, tvalue *out, bool *more) {
    *more = false;
    if (it->op == TPL_I_PLAIN) return next_plain(rt, it, out, more);
    if (it->running) return tpl_fail(rt, "generator already executing");
    TRY(tpl_steps(rt, 1));
    TRY(tpl_enter(rt));
    if (!it->started) TRY(start(rt, it));
    it->running = true;
    if (!it->done) TRY(advance(rt, it, out, more));
    it->running = false;
    if (!*more) it->done = true;
    rt->depth--;
    return CHURON_OK;
}

status tpl_to_list(tpl_rt *rt, tvalue v, tpl_list **out) {
    tpl_iter *it = NULL;
    TRY(tpl_iterate(rt, v, &it));
    tpl_list *list = tpl_list_new(rt->arena, 0);
    if (!list) return tpl_memory(rt);
    for (;;) {
        tvalue item;
        bool more;
        TRY(tpl_next(rt, it, &item, &more));
        if (!more) break;
        TRY(tpl_push(rt, list, item));
    }
    *out = list;
    return CHURON_OK;
}

status tpl_unpack(tpl_rt *rt, tvalue v, size_t n, tvalue *items) {
    if (!tpl_iterable(v)) return tpl_fail(rt, "cannot unpack non-iterable %s object", tpl_type_name(v));
    tpl_iter *it = NULL;
    TRY(tpl_iterate(rt, v, &it));
    for (size_t i = 0; i <= n; i++) {
        tvalue item;
        bool more;
        TRY(tpl_next(rt, it, &item, &more));
        if (!more && i < n) return tpl_fail(rt, "not enough values to unpack (expected %zu, got %zu)", n, i);
        if (more && i == n) return tpl_fail(rt, "too many values to unpack (expected %zu)", n);
        if (more) items[i] = item;
    }
    return CHURON_OK;
}

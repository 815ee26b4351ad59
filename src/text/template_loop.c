/* template_loop.c: the object `loop` of a for statement. Its length, last and nextitem read ahead in the
 * iterable, but only when a template asks for them. */
#include "text/template_iter.h"

#include <string.h>

enum { CYCLE, CHANGED };

status tpl_loop_next(tpl_rt *rt, tpl_loop *l, tvalue *out, bool *more) {
    if (l->after.kind != TPL_MISSING) {
        *out = l->after;
        l->after.kind = TPL_MISSING;
        *more = true;
    } else {
        TRY(tpl_next(rt, l->it, out, more));
        if (!*more) return CHURON_OK;
    }
    l->index0++;
    l->before = l->current;
    l->current = *out;
    return CHURON_OK;
}

/* The next item without going on; kind TPL_MISSING: there is none. */
static status peek(tpl_rt *rt, tpl_loop *l, tvalue *out) {
    if (l->after.kind == TPL_MISSING) {
        tvalue item;
        bool more;
        TRY(tpl_next(rt, l->it, &item, &more));
        if (more) l->after = item;
    }
    *out = l->after;
    return CHURON_OK;
}

status tpl_loop_length(tpl_rt *rt, tpl_loop *l, int64_t *out) {
    if (l->length < 0) {
        size_t n;
        bool sized;
        TRY(tpl_length(rt, l->iterable, &n, &sized));
        if (!sized) {
            tpl_list *rest;
            TRY(tpl_to_list(rt, (tvalue){.kind = TPL_ITER, .iter = l->it}, &rest));
            tvalue list = {.kind = TPL_LIST, .list = rest};
            TRY(tpl_iterate(rt, list, &l->it));
            n = rest->n + (size_t)(l->index0 + 1) + (l->after.kind != TPL_MISSING);
        }
        l->length = (int64_t)n;
    }
    *out = l->length;
    return CHURON_OK;
}

static status method(tpl_rt *rt, tvalue self, unsigned which, tvalue *out) {
    tpl_bound *b = tpl_alloc(rt->arena, sizeof *b);
    if (!b) return tpl_memory(rt);
    b->self = self;
    *out = (tvalue){.kind = TPL_METHOD, .sub = (uint16_t)which, .bound = b};
    return CHURON_OK;
}

static status neighbour(tpl_rt *rt, tpl_loop *l, bool next, tvalue *out) {
    tvalue item = {.kind = TPL_MISSING};
    if (next) {
        TRY(peek(rt, l, &item));
    } else if (l->index0 != 0) {
        item = l->before;
    }
    if (item.kind == TPL_MISSING) {
        return tpl_undef(rt, next ? "there is no next item" : "there is no previous item", (tvalue){0},
                         tpl_none(), out);
    }
    *out = item;
    return CHURON_OK;
}

status tpl_loop_attr(tpl_rt *rt, tpl_loop *l, tvalue self, tvalue name, tvalue *out, bool *found) {
    static const char *const names[] = {"index",   "index0",   "revindex", "revindex0", "first",
                                        "last",    "length",   "depth",    "depth0",    "cycle",
                                        "changed", "previtem", "nextitem"};
    enum {
        INDEX,
        INDEX0,
        REVINDEX,
        REVINDEX0,
        FIRST,
        LAST,
        LENGTH,
        DEPTH,
        DEPTH0,
        A_CYCLE,
        A_CHANGED,
        PREV,
        NEXT,
        COUNT
    };
    unsigned which = 0;
    while (which < COUNT && !tpl_str_is(name, names[which])) which++;
    *found = which < COUNT;
    int64_t length;
    tvalue next;
    switch (which) {
    case INDEX: *out = tpl_int(l->index0 + 1); break;
    case INDEX0: *out = tpl_int(l->index0); break;
    case REVINDEX:
    case REVINDEX0:
    case LENGTH:
        TRY(tpl_loop_length(rt, l, &length));
        *out = tpl_int(which == LENGTH ? length : length - l->index0 - (which == REVINDEX0));
        break;
    case FIRST: *out = tpl_bool(l->index0 == 0); break;
    case LAST:
        TRY(peek(rt, l, &next));
        *out = tpl_bool(next.kind == TPL_MISSING);
        break;
    case DEPTH: *out = tpl_int(l->depth0 + 1); break;
    case DEPTH0: *out = tpl_int(l->depth0); break;
    case A_CYCLE: return method(rt, self, CYCLE, out);
    case A_CHANGED: return method(rt, self, CHANGED, out);
    case PREV: return neighbour(rt, l, false, out);
    case NEXT: return neighbour(rt, l, true, out);
    default: break;
    }
    return CHURON_OK;
}

static status changed(tpl_rt *rt, tpl_loop *l, const tpl_args *args, tvalue *out) {
    tpl_list *list = tpl_list_new(rt->arena, args->n);
    if (!list) return tpl_memory(rt);
    for (size_t i = 0; i < args->n; i++) TRY(tpl_push(rt, list, args->v[i]));
    tvalue now = {.kind = TPL_TUPLE, .list = list};
    bool same = false;
    if (l->changed.kind != TPL_MISSING) TRY(tpl_equal(rt, l->changed, now, &same));
    if (!same) l->changed = now;
    *out = tpl_bool(!same);
    return CHURON_OK;
}

status tpl_loop_method(tpl_rt *rt, tpl_loop *l, unsigned which, const tpl_args *args, tvalue *out) {
    if (args->n_kw)
        return tpl_fail(rt, "loop.%s() takes no keyword arguments", which == CYCLE ? "cycle" : "changed");
    if (which == CHANGED) return changed(rt, l, args, out);
    if (args->n == 0) return tpl_fail(rt, "no items for cycling given");
    *out = args->v[(size_t)l->index0 % args->n];
    return CHURON_OK;
}

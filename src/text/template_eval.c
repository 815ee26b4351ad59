/* template_eval.c: expressions, calls and their arguments. */
#include "text/template_internal.h"

#include <string.h>

/* ---- arguments -------------------------------------------------------------------------------------- */

static status add_dynamic(tpl_rt *rt, tpl_args *args, tvalue v) {
    tpl_list *list = NULL;
    TRY(tpl_to_list(rt, v, &list));
    tvalue *all = tpl_alloc(rt->arena, (args->n + list->n + 1) * sizeof *all);
    if (!all) return tpl_memory(rt);
    if (args->n) memcpy(all, args->v, args->n * sizeof *all);
    if (list->n) memcpy(all + args->n, list->v, list->n * sizeof *all);
    args->v = all;
    args->n += list->n;
    return CHURON_OK;
}

static status add_dynamic_keywords(tpl_rt *rt, tpl_args *args, tvalue v) {
    if (v.kind == TPL_UNDEFINED) return tpl_undefined_error(rt, v);
    if (v.kind != TPL_DICT)
        return tpl_fail(rt, "argument after ** must be a mapping, not %s", tpl_type_name(v));
    size_t n = args->n_kw + v.dict->n;
    TRY(tpl_steps(rt, n));
    tvalue *names = tpl_alloc(rt->arena, (n + 1) * 2 * sizeof *names);
    if (!names) return tpl_memory(rt);
    tvalue *kw = names + n + 1;
    for (size_t i = 0; i < args->n_kw; i++) {
        names[i] = args->names[i];
        kw[i] = args->kw[i];
        if (tpl_dict_get(v.dict, names[i].s, names[i].len))
            return tpl_fail(rt, "got multiple values for a keyword argument");
    }
    for (size_t i = 0; i < v.dict->n; i++) {
        if (v.dict->entries[i].key.kind != TPL_STRING) return tpl_fail(rt, "keywords must be strings");
        names[args->n_kw + i] = v.dict->entries[i].key;
        kw[args->n_kw + i] = v.dict->entries[i].value;
    }
    args->names = names;
    args->kw = kw;
    args->n_kw = n;
    return CHURON_OK;
}

status tpl_eval_args(tpl_rt *rt, const tpl_node *n, tpl_frame *f, tpl_args *out) {
    *out = (tpl_args){0};
    size_t total = n->call.n_args + 2 * (size_t)n->call.n_kwargs;
    tvalue *room = total ? tpl_alloc(rt->arena, total * sizeof *room) : NULL;
    if (total && !room) return tpl_memory(rt);
    TRY(tpl_steps(rt, total));
    out->v = room;
    for (const tpl_node *arg = n->call.args; arg; arg = arg->next) TRY(tpl_eval(rt, arg, f, &room[out->n++]));
    out->names = total ? room + n->call.n_args : NULL;
    out->kw = total ? out->names + n->call.n_kwargs : NULL;
    for (const tpl_node *k = n->call.kwargs; k; k = k->next) {
        out->names[out->n_kw] = k->value;
        TRY(tpl_eval(rt, k->a, f, &out->kw[out->n_kw]));
        out->n_kw++;
    }
    tvalue v;
    if (n->call.dyn_args) {
        TRY(tpl_eval(rt, n->call.dyn_args, f, &v));
        TRY(add_dynamic(rt, out, v));
    }
    if (n->call.dyn_kwargs) {
        TRY(tpl_eval(rt, n->call.dyn_kwargs, f, &v));
        TRY(add_dynamic_keywords(rt, out, v));
    }
    return CHURON_OK;
}

status tpl_bind(tpl_rt *rt, const char *what, const tpl_args *args, const char *const *names, size_t n,
                size_t required, tvalue *out) {
    if (args->n > n) return tpl_fail(rt, "%s takes at most %zu arguments (%zu given)", what, n, args->n);
    for (size_t i = 0; i < n; i++) out[i] = i < args->n ? args->v[i] : (tvalue){.kind = TPL_MISSING};
    for (size_t k = 0; k < args->n_kw; k++) {
        size_t i = 0;
        while (i < n && !tpl_str_is(args->names[k], names[i])) i++;
        int len = (int)(args->names[k].len > 60 ? 60 : args->names[k].len);
        if (i == n)
            return tpl_fail(rt, "%s got an unexpected keyword argument '%.*s'", what, len, args->names[k].s);
        if (out[i].kind != TPL_MISSING)
            return tpl_fail(rt, "%s got multiple values for argument '%s'", what, names[i]);
        out[i] = args->kw[k];
    }
    for (size_t i = 0; i < required; i++) {
        if (out[i].kind == TPL_MISSING) return tpl_fail(rt, "%s misses the argument '%s'", what, names[i]);
    }
    return CHURON_OK;
}

/* ---- calls ------------------------------------------------------------------------------------------ */

status tpl_call(tpl_rt *rt, tvalue callee, const tpl_args *args, tvalue *out) {
    switch ((tpl_kind)callee.kind) {
    case TPL_UNDEFINED: return tpl_undefined_error(rt, callee);
    case TPL_MACRO: return tpl_call_macro(rt, callee.macro, args, out);
    case TPL_FUNCTION: return tpl_call_function(rt, callee.sub, args, out);
    case TPL_METHOD:
        if (callee.bound->method) return callee.bound->method->fn(rt, callee.bound->self, args, out);
        return tpl_object_method(rt, callee.bound->self, callee.sub, args, out);
    case TPL_LOOP:
        if (args->n != 1 || args->n_kw) return tpl_fail(rt, "loop() takes one argument");
        return tpl_loop_recurse(rt, callee.loop, args->v[0], out);
    case TPL_JOINER:
        if (args->n || args->n_kw) return tpl_fail(rt, "a joiner takes no arguments");
        *out = callee.joiner->used ? callee.joiner->sep : tpl_static("");
        callee.joiner->used = true;
        return CHURON_OK;
    default: return tpl_fail(rt, "'%s' object is not callable", tpl_type_name(callee));
    }
}

static status eval_call(tpl_rt *rt, const tpl_node *n, tpl_frame *f, tvalue *out) {
    tvalue callee;
    TRY(tpl_eval(rt, n->a, f, &callee));
    tpl_args args;
    TRY(tpl_eval_args(rt, n, f, &args));
    rt->line = n->line;
    return tpl_call(rt, callee, &args, out);
}

static status eval_filter(tpl_rt *rt, const tpl_node *n, tpl_frame *f, tvalue *out) {
    tvalue in = rt->block_value;
    if (n->a) TRY(tpl_eval(rt, n->a, f, &in));
    tpl_args args;
    TRY(tpl_eval_args(rt, n, f, &args));
    rt->line = n->line;
    const tpl_filter *def = n->call.def;
    if (!def)
        return tpl_fail(rt, "No filter named '%.*s' found", (int)(n->value.len > 60 ? 60 : n->value.len),
                        n->value.s);
    return def->fn(rt, in, &args, out);
}

static status eval_test(tpl_rt *rt, const tpl_node *n, tpl_frame *f, tvalue *out) {
    tvalue in;
    TRY(tpl_eval(rt, n->a, f, &in));
    tpl_args args;
    TRY(tpl_eval_args(rt, n, f, &args));
    rt->line = n->line;
    const tpl_test *def = n->call.def;
    if (!def)
        return tpl_fail(rt, "No test named '%.*s' found", (int)(n->value.len > 60 ? 60 : n->value.len),
                        n->value.s);
    bool yes;
    TRY(tpl_run_test(rt, def, in, &args, &yes));
    *out = tpl_bool(yes);
    return CHURON_OK;
}

/* ---- the rest --------------------------------------------------------------------------------------- */

static status eval_items(tpl_rt *rt, const tpl_node *n, tpl_frame *f, tvalue *out) {
    TRY(tpl_steps(rt, n->n));
    tpl_list *list = tpl_list_new(rt->arena, n->n);
    if (!list) return tpl_memory(rt);
    for (const tpl_node *item = n->a; item; item = item->next) {
        tvalue v;
        TRY(tpl_eval(rt, item, f, &v));
        TRY(tpl_push(rt, list, v));
    }
    *out = (tvalue){.kind = n->op == TPL_N_LIST ? TPL_LIST : TPL_TUPLE, .list = list};
    return CHURON_OK;
}

static status eval_dict(tpl_rt *rt, const tpl_node *n, tpl_frame *f, tvalue *out) {
    TRY(tpl_steps(rt, n->n));
    tpl_dict *d = tpl_dict_new(rt->arena);
    if (!d) return tpl_memory(rt);
    for (const tpl_node *item = n->a; item; item = item->next->next) {
        tvalue k, v;
        uint32_t hash;
        TRY(tpl_eval(rt, item, f, &k));
        TRY(tpl_eval(rt, item->next, f, &v));
        if (!tpl_hash(k, &hash)) return tpl_fail(rt, "unhashable type: '%s'", tpl_type_name(k));
        if (!tpl_dict_put(d, k, hash, v)) return tpl_memory(rt);
    }
    *out = (tvalue){.kind = TPL_DICT, .dict = d};
    return CHURON_OK;
}

static status eval_comparison(tpl_rt *rt, const tpl_node *n, tpl_frame *f, tvalue *out) {
    tvalue left, right;
    TRY(tpl_eval(rt, n->a, f, &left));
    bool yes = true;
    for (const tpl_node *operand = n->b; operand && yes; operand = operand->next) {
        TRY(tpl_steps(rt, 1));
        TRY(tpl_eval(rt, operand->a, f, &right));
        rt->line = operand->line;
        TRY(tpl_compare(rt, operand->sub, left, right, &yes));
        left = right;
    }
    *out = tpl_bool(yes);
    return CHURON_OK;
}

/* The parts as one string; when the first is the newest text of the arena, the others are put behind it. */
static status eval_concat(tpl_rt *rt, const tpl_node *n, tpl_frame *f, tvalue *out) {
    tvalue few[8], *parts = few;
    if (n->n > 8 && !(parts = tpl_alloc(rt->arena, n->n * sizeof *parts))) return tpl_memory(rt);
    size_t i = 0, rest = 0;
    TRY(tpl_steps(rt, n->n));
    for (const tpl_node *part = n->a; part; part = part->next, i++) {
        TRY(tpl_eval(rt, part, f, &parts[i]));
    }
    for (i = 0; i < n->n; i++) {
        TRY(tpl_str(rt, parts[i], &parts[i]));
        if (i) rest += parts[i].len;
    }
    if (rest > rt->limits.max_output || parts[0].len > rt->limits.max_output - rest) {
        return tpl_limit(rt, "a string of more than %zu bytes", rt->limits.max_output);
    }
    TRY(tpl_steps(rt, rest / 64));
    uint8_t flags = parts[0].flags & TPL_ASCII;
    char *to;
    const char *p = parts[0].s;
    size_t at = parts[0].len;
    if (parts[0].len && tpl_text_extend(rt->arena, p, at, rest)) {
        to = (char *)(uintptr_t)p; /* only the free end behind it is written */
    } else {
        TRY(tpl_steps(rt, at / 64));
        if (!(to = tpl_text(rt->arena, at + rest + 1))) return tpl_memory(rt);
        tpl_text_shrink(rt->arena, to, at + rest + 1, at + rest);
        if (at) memcpy(to, p, at);
    }
    for (i = 1; i < n->n; i++) {
        if (parts[i].len) memcpy(to + at, parts[i].s, parts[i].len);
        at += parts[i].len;
        flags &= parts[i].flags;
    }
    *out = (tvalue){.kind = TPL_STRING, .flags = flags, .len = (uint32_t)at, .s = to};
    return CHURON_OK;
}

static status eval_bound(tpl_rt *rt, const tpl_node *n, tpl_frame *f, tvalue *out) {
    *out = tpl_none();
    return n ? tpl_eval(rt, n, f, out) : CHURON_OK;
}

static status eval_subscript(tpl_rt *rt, const tpl_node *n, tpl_frame *f, tvalue *out) {
    tvalue object, key, stop, step;
    TRY(tpl_eval(rt, n->a, f, &object));
    if (n->b->op != TPL_N_SLICE) {
        TRY(tpl_eval(rt, n->b, f, &key));
        rt->line = n->line;
        return tpl_getitem(rt, object, key, out);
    }
    TRY(eval_bound(rt, n->b->a, f, &key));
    TRY(eval_bound(rt, n->b->b, f, &stop));
    TRY(eval_bound(rt, n->b->c, f, &step));
    rt->line = n->line;
    return tpl_slice(rt, object, key, stop, step, out);
}

static status eval_condition(tpl_rt *rt, const tpl_node *n, tpl_frame *f, tvalue *out) {
    tvalue test;
    TRY(tpl_eval(rt, n->a, f, &test));
    bool yes;
    TRY(tpl_is_true(rt, test, &yes));
    if (yes) return tpl_eval(rt, n->b, f, out);
    if (n->c) return tpl_eval(rt, n->c, f, out);
    return tpl_undef(rt, "the inline if-expression evaluated to false and no else section was defined",
                     (tvalue){0}, tpl_none(), out);
}

static status eval_name(const tpl_node *n, tpl_frame *f, tvalue *out) {
    for (uint16_t k = 0; k < n->ref.hops; k++) f = f->up;
    *out = f->slots[n->ref.slot];
    if (out->kind == TPL_MISSING) *out = (tvalue){.kind = TPL_UNDEFINED, .undefined = &n->ref.undefined};
    return CHURON_OK;
}

static status eval_node(tpl_rt *rt, const tpl_node *n, tpl_frame *f, tvalue *out) {
    tvalue a, b;
    bool yes;
    switch ((tpl_op)n->op) {
    case TPL_N_TUPLE:
    case TPL_N_LIST: return eval_items(rt, n, f, out);
    case TPL_N_DICT: return eval_dict(rt, n, f, out);
    case TPL_N_COND: return eval_condition(rt, n, f, out);
    case TPL_N_OR:
    case TPL_N_AND:
        TRY(tpl_eval(rt, n->a, f, out));
        TRY(tpl_is_true(rt, *out, &yes));
        return yes == (n->op == TPL_N_OR) ? CHURON_OK : tpl_eval(rt, n->b, f, out);
    case TPL_N_NOT:
        TRY(tpl_eval(rt, n->a, f, &a));
        TRY(tpl_is_true(rt, a, &yes));
        *out = tpl_bool(!yes);
        return CHURON_OK;
    case TPL_N_COMPARE: return eval_comparison(rt, n, f, out);
    case TPL_N_ADD:
    case TPL_N_SUB:
    case TPL_N_MUL:
    case TPL_N_DIV:
    case TPL_N_FLOORDIV:
    case TPL_N_MOD:
    case TPL_N_POW:
        TRY(tpl_eval(rt, n->a, f, &a));
        TRY(tpl_eval(rt, n->b, f, &b));
        rt->line = n->line;
        return tpl_binary(rt, n->op, a, b, out);
    case TPL_N_NEG:
    case TPL_N_POS:
        TRY(tpl_eval(rt, n->a, f, &a));
        rt->line = n->line;
        return tpl_negate(rt, n->op, a, out);
    case TPL_N_CONCAT: return eval_concat(rt, n, f, out);
    case TPL_N_GETATTR:
        TRY(tpl_eval(rt, n->a, f, &a));
        rt->line = n->line;
        return tpl_getattr(rt, a, n->value, out);
    case TPL_N_GETITEM: return eval_subscript(rt, n, f, out);
    case TPL_N_CALL: return eval_call(rt, n, f, out);
    case TPL_N_FILTER: return eval_filter(rt, n, f, out);
    case TPL_N_TEST: return eval_test(rt, n, f, out);
    default: return error_set(rt->err, CHURON_INTERNAL, "line %u: expression %d", n->line, n->op);
    }
}

status tpl_eval(tpl_rt *rt, const tpl_node *n, tpl_frame *f, tvalue *out) {
    if (n->op == TPL_N_CONST) {
        *out = n->value;
        return CHURON_OK;
    }
    if (n->op == TPL_N_NAME) return eval_name(n, f, out);
    rt->line = n->line;
    TRY(tpl_steps(rt, 1));
    TRY(tpl_enter(rt));
    TRY(eval_node(rt, n, f, out));
    rt->depth--;
    return CHURON_OK;
}

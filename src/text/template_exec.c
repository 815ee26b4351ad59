/* template_exec.c: statements: loops, conditions, assignments, macros and blocks; and template_render.
 *
 * All output goes to the caller's string; what a macro or a block captures is cut off its end again. */
#include "text/template_internal.h"

#include <stdio.h>
#include <string.h>

typedef enum flow { FLOW_ON, FLOW_BREAK, FLOW_CONTINUE } flow;

/* ---- failures --------------------------------------------------------------------------------------- */

static status fail(tpl_rt *rt, status code, const char *fmt, va_list ap) {
    char text[440];
    (void)vsnprintf(text, sizeof text, fmt, ap);
    return error_set(rt->err, code, "line %u: %s", rt->line, text);
}

status tpl_fail(tpl_rt *rt, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    status st = fail(rt, CHURON_INVALID, fmt, ap);
    va_end(ap);
    return st;
}

status tpl_refuse(tpl_rt *rt, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    status st = fail(rt, CHURON_UNSUPPORTED, fmt, ap);
    va_end(ap);
    return st;
}

status tpl_limit(tpl_rt *rt, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    status st = fail(rt, CHURON_LIMIT, fmt, ap);
    va_end(ap);
    return st;
}

status tpl_memory(tpl_rt *rt) {
    if (rt->arena->over)
        return tpl_limit(rt, "rendering takes more than %zu bytes of memory", rt->arena->cap);
    return error_no_memory(rt->err, "rendering a template", sizeof(tvalue));
}

status tpl_steps(tpl_rt *rt, size_t n) {
    if (n <= rt->limits.max_steps - rt->steps) {
        rt->steps += n;
        return CHURON_OK;
    }
    return tpl_limit(rt, "rendering takes more than %zu steps", rt->limits.max_steps);
}

status tpl_enter(tpl_rt *rt) {
    if (++rt->depth <= rt->limits.max_depth) return CHURON_OK;
    return tpl_limit(rt, "nested deeper than %zu", rt->limits.max_depth);
}

/* ---- output ----------------------------------------------------------------------------------------- */

static status emit(tpl_rt *rt, const char *p, size_t n) {
    if (n > rt->limits.max_output - (rt->out->len - rt->base)) {
        return tpl_limit(rt, "output of more than %zu bytes", rt->limits.max_output);
    }
    str_add(rt->out, p, n);
    TRY(str_check(rt->out, rt->err));
    return tpl_steps(rt, n / 64);
}

static status emit_value(tpl_rt *rt, tvalue v) {
    if (v.kind != TPL_STRING) TRY(tpl_str(rt, v, &v));
    return emit(rt, v.s, v.len);
}

/* The output from `start` on as a value; it is cut off. */
static status captured(tpl_rt *rt, size_t start, tvalue *out) {
    size_t n = rt->out->len - start;
    char *p = tpl_text(rt->arena, n ? n : 1);
    if (!p) return tpl_memory(rt);
    if (n) memcpy(p, rt->out->data + start, n);
    rt->out->len = start;
    *out = tpl_view(p, n, 0);
    return tpl_steps(rt, n / 64);
}

/* ---- scopes and frames ------------------------------------------------------------------------------ */

status tpl_frame_new(tpl_rt *rt, uint32_t n_slots, tpl_frame *up, tpl_frame **out) {
    *out = tpl_alloc(rt->arena, sizeof **out + n_slots * sizeof(tvalue));
    if (!*out) return tpl_memory(rt);
    (*out)->up = up;
    return tpl_steps(rt, n_slots / 8);
}

static status enter_scope(tpl_rt *rt, const tpl_scope *s, tpl_frame *f) {
    for (size_t i = 0; i < s->n; i++) {
        const tpl_slot *slot = &s->slots[i];
        tvalue v = {.kind = TPL_MISSING};
        switch ((tpl_fill)slot->fill) {
        case TPL_FILL_PARAM: continue;
        case TPL_FILL_MISSING: break;
        case TPL_FILL_ALIAS: {
            const tpl_frame *from = f;
            for (uint16_t k = 0; k < slot->hops; k++) from = from->up;
            v = from->slots[slot->source];
            break;
        }
        case TPL_FILL_RESOLVE: {
            const tvalue *known = tpl_dict_find(rt->context, slot->name, slot->hash);
            if (known) {
                v = *known;
            } else if (!tpl_global(slot->name, &v)) {
                v.kind = TPL_MISSING;
            }
            break;
        }
        }
        f->slots[slot->slot] = v;
    }
    return tpl_steps(rt, s->n / 4);
}

static void leave_scope(const tpl_scope *s, tpl_frame *f) {
    for (size_t i = 0; i < s->n; i++) f->slots[s->slots[i].slot] = (tvalue){.kind = TPL_MISSING};
}

/* ---- assignment ------------------------------------------------------------------------------------- */

static tvalue named(const tpl_node *n, tpl_frame *f) {
    for (uint16_t k = 0; k < n->ref.hops; k++) f = f->up;
    return f->slots[n->ref.slot];
}

static status assign_attr(tpl_rt *rt, const tpl_node *n, tpl_frame *f, tvalue v) {
    tvalue object = named(n, f), name = n->a->value;
    if (object.kind != TPL_NAMESPACE) return tpl_fail(rt, "cannot assign attribute on non-namespace object");
    if (name.len && name.s[0] == '_') {
        return tpl_fail(rt, "a namespace cannot have the attribute '%.*s': it begins with an underscore",
                        (int)name.len, name.s);
    }
    return tpl_dict_put(object.dict, name, tpl_hash_bytes(name.s, name.len), v) ? CHURON_OK : tpl_memory(rt);
}

status tpl_assign(tpl_rt *rt, const tpl_node *target, tpl_frame *f, tvalue v) {
    if (target->op == TPL_N_NAME) {
        for (uint16_t k = 0; k < target->ref.hops; k++) f = f->up;
        f->slots[target->ref.slot] = v;
        return CHURON_OK;
    }
    if (target->op == TPL_N_NSREF) return assign_attr(rt, target, f, v);
    TRY(tpl_steps(rt, target->n));
    tvalue *items = tpl_alloc(rt->arena, (target->n ? target->n : 1) * sizeof *items);
    if (!items) return tpl_memory(rt);
    TRY(tpl_unpack(rt, v, target->n, items));
    size_t i = 0;
    for (const tpl_node *item = target->a; item; item = item->next) TRY(tpl_assign(rt, item, f, items[i++]));
    return CHURON_OK;
}

/* Namespaces are looked at before the value is computed. */
static status check_namespaces(tpl_rt *rt, const tpl_node *target, tpl_frame *f) {
    if (target->op == TPL_N_NSREF && named(target, f).kind != TPL_NAMESPACE) {
        return tpl_fail(rt, "cannot assign attribute on non-namespace object");
    }
    for (const tpl_node *item = target->op == TPL_N_TUPLE ? target->a : NULL; item; item = item->next) {
        TRY(check_namespaces(rt, item, f));
    }
    return CHURON_OK;
}

/* ---- statements ------------------------------------------------------------------------------------- */

static status exec_body(tpl_rt *rt, const tpl_node *n, tpl_frame *f, flow *to);

/* A loop over `items` in frame `f`, where its body lives; `outer` is the frame around the statement. */
static status run_for(tpl_rt *rt, const tpl_node *n, tpl_frame *f, tpl_frame *outer, tvalue items,
                      int64_t depth0, flow *to) {
    tpl_iter *it = NULL;
    if (n->c) {
        TRY(tpl_filter_loop(rt, n, outer, items, &items));
    }
    TRY(tpl_iterate(rt, items, &it));
    tpl_loop *loop = NULL;
    if (n->block.extended) {
        loop = tpl_alloc(rt->arena, sizeof *loop);
        if (!loop) return tpl_memory(rt);
        *loop = (tpl_loop){.it = it, .iterable = items, .index0 = -1, .depth0 = depth0, .length = -1};
        loop->node = n->sub ? n : NULL;
        loop->outer = outer;
        f->slots[n->block.loop_slot] = (tvalue){.kind = TPL_LOOP, .loop = loop};
    }
    bool finished_one = false;
    for (;;) {
        tvalue item;
        bool more;
        rt->line = n->line;
        TRY(loop ? tpl_loop_next(rt, loop, &item, &more) : tpl_next(rt, it, &item, &more));
        if (!more) break;
        TRY(tpl_steps(rt, 1));
        TRY(tpl_assign(rt, n->a, f, item));
        TRY(enter_scope(rt, &n->block.scope, f));
        flow inner = FLOW_ON;
        TRY(exec_body(rt, n->d, f, &inner));
        /* As in Jinja2, an iteration that was cut short does not keep the else part from running. */
        if (inner == FLOW_ON) finished_one = true;
        if (inner == FLOW_BREAK) break;
    }
    leave_scope(&n->block.scope, f);
    if (!n->e || finished_one) return CHURON_OK;
    TRY(enter_scope(rt, &n->block.else_scope, f));
    TRY(exec_body(rt, n->e, f, to));
    leave_scope(&n->block.else_scope, f);
    return CHURON_OK;
}

static status exec_for(tpl_rt *rt, const tpl_node *n, tpl_frame *f, flow *to) {
    tvalue items;
    TRY(tpl_eval(rt, n->b, f, &items));
    tpl_frame *own = f;
    if (n->sub) TRY(tpl_frame_new(rt, n->block.func->n_slots, f, &own));
    return run_for(rt, n, own, f, items, 0, to);
}

status tpl_loop_recurse(tpl_rt *rt, tpl_loop *loop, tvalue items, tvalue *out) {
    if (!loop->node)
        return tpl_fail(rt, "the loop must have the 'recursive' marker to be called recursively");
    TRY(tpl_enter(rt));
    tpl_frame *own;
    TRY(tpl_frame_new(rt, loop->node->block.func->n_slots, loop->outer, &own));
    size_t start = rt->out->len;
    flow to = FLOW_ON;
    TRY(run_for(rt, loop->node, own, loop->outer, items, loop->depth0 + 1, &to));
    rt->depth--;
    return captured(rt, start, out);
}

status tpl_loop_test(tpl_rt *rt, const tpl_node *loop, tpl_frame *f, tvalue item, bool *keep) {
    TRY(tpl_assign(rt, loop->block.test_target, f, item));
    tvalue v;
    TRY(tpl_eval(rt, loop->c, f, &v));
    return tpl_is_true(rt, v, keep);
}

status tpl_open_loop_test(tpl_rt *rt, const tpl_node *loop, tpl_frame *outer, tpl_frame **f) {
    TRY(tpl_frame_new(rt, loop->block.test_func->n_slots, outer, f));
    TRY(enter_scope(rt, &loop->block.test_func->scope, *f));
    return CHURON_OK;
}

static status exec_if(tpl_rt *rt, const tpl_node *n, tpl_frame *f, flow *to) {
    tvalue test;
    bool yes;
    TRY(tpl_eval(rt, n->a, f, &test));
    TRY(tpl_is_true(rt, test, &yes));
    if (yes) return exec_body(rt, n->b, f, to);
    for (const tpl_node *elif = n->c; elif; elif = elif->next) {
        TRY(tpl_steps(rt, 1));
        TRY(tpl_eval(rt, elif->a, f, &test));
        TRY(tpl_is_true(rt, test, &yes));
        if (yes) return exec_body(rt, elif->b, f, to);
    }
    return exec_body(rt, n->d, f, to);
}

static status exec_set(tpl_rt *rt, const tpl_node *n, tpl_frame *f) {
    TRY(check_namespaces(rt, n->a, f));
    tvalue v;
    TRY(tpl_eval(rt, n->b, f, &v));
    rt->line = n->line;
    return tpl_assign(rt, n->a, f, v);
}

/* SETBLOCK and FILTERBLOCK: the body, captured and filtered. */
static status exec_capture(tpl_rt *rt, const tpl_node *n, tpl_frame *f, flow *to) {
    TRY(enter_scope(rt, &n->block.scope, f));
    size_t start = rt->out->len;
    flow inner = FLOW_ON;
    TRY(exec_body(rt, n->c, f, &inner));
    if (inner != FLOW_ON) { /* a break leaves the block and what it had written */
        rt->out->len = start;
        *to = inner;
        return CHURON_OK;
    }
    tvalue v;
    TRY(captured(rt, start, &v));
    if (n->b) {
        rt->block_value = v;
        TRY(tpl_eval(rt, n->b, f, &v));
    }
    rt->line = n->line;
    TRY(n->op == TPL_N_SETBLOCK ? tpl_assign(rt, n->a, f, v) : emit_value(rt, v));
    leave_scope(&n->block.scope, f);
    return CHURON_OK;
}

static status exec_with(tpl_rt *rt, const tpl_node *n, tpl_frame *f, flow *to) {
    TRY(enter_scope(rt, &n->block.scope, f));
    const tpl_node *value = n->b;
    for (const tpl_node *target = n->a; target; target = target->next, value = value->next) {
        tvalue v;
        TRY(tpl_steps(rt, 1));
        TRY(tpl_eval(rt, value, f, &v));
        TRY(tpl_assign(rt, target, f, v));
    }
    TRY(exec_body(rt, n->d, f, to));
    leave_scope(&n->block.scope, f);
    return CHURON_OK;
}

static status new_macro(tpl_rt *rt, const tpl_node *n, tpl_frame *f, tvalue *out) {
    tpl_macro *m = tpl_alloc(rt->arena, sizeof *m);
    if (!m) return tpl_memory(rt);
    *m = (tpl_macro){.def = n, .closure = f};
    *out = (tvalue){.kind = TPL_MACRO, .macro = m};
    return CHURON_OK;
}

static status exec_call_block(tpl_rt *rt, const tpl_node *n, tpl_frame *f) {
    const tpl_node *call = n->a;
    tvalue caller, callee, v;
    TRY(new_macro(rt, n, f, &caller));
    TRY(tpl_eval(rt, call->a, f, &callee));
    tpl_args args;
    TRY(tpl_eval_args(rt, call, f, &args));
    tvalue *names = tpl_alloc(rt->arena, (args.n_kw + 1) * 2 * sizeof *names);
    if (!names) return tpl_memory(rt);
    tvalue *kw = names + args.n_kw + 1;
    for (size_t i = 0; i < args.n_kw; i++) {
        if (tpl_str_is(args.names[i], "caller")) return tpl_fail(rt, "two values for 'caller'");
        names[i] = args.names[i];
        kw[i] = args.kw[i];
    }
    names[args.n_kw] = tpl_static("caller");
    kw[args.n_kw++] = caller;
    args.names = names;
    args.kw = kw;
    TRY(tpl_call(rt, callee, &args, &v));
    return emit_value(rt, v);
}

static status exec_generation(tpl_rt *rt, const tpl_node *n, tpl_frame *f) {
    tvalue m = {0}, v;
    TRY(new_macro(rt, n, f, &m));
    tpl_args none = {0};
    TRY(tpl_call_macro(rt, m.macro, &none, &v));
    return emit_value(rt, v);
}

static status exec_statement(tpl_rt *rt, const tpl_node *n, tpl_frame *f, flow *to) {
    tvalue v;
    switch ((tpl_op)n->op) {
    case TPL_N_DATA: return emit(rt, n->value.s, n->value.len);
    case TPL_N_OUTPUT:
        TRY(tpl_eval(rt, n->a, f, &v));
        rt->line = n->line;
        return emit_value(rt, v);
    case TPL_N_SET: return exec_set(rt, n, f);
    case TPL_N_FOR: return exec_for(rt, n, f, to);
    case TPL_N_IF: return exec_if(rt, n, f, to);
    case TPL_N_MACRO: TRY(new_macro(rt, n, f, &v)); return tpl_assign(rt, n->a, f, v);
    case TPL_N_CALLBLOCK: return exec_call_block(rt, n, f);
    case TPL_N_GENERATION: return exec_generation(rt, n, f);
    case TPL_N_SETBLOCK:
    case TPL_N_FILTERBLOCK: return exec_capture(rt, n, f, to);
    case TPL_N_WITH: return exec_with(rt, n, f, to);
    case TPL_N_BREAK: *to = FLOW_BREAK; return CHURON_OK;
    case TPL_N_CONTINUE: *to = FLOW_CONTINUE; return CHURON_OK;
    default: return error_set(rt->err, CHURON_INTERNAL, "line %u: statement %d", n->line, n->op);
    }
}

static status exec_body(tpl_rt *rt, const tpl_node *n, tpl_frame *f, flow *to) {
    if (!n) return CHURON_OK;
    TRY(tpl_enter(rt));
    for (; n && *to == FLOW_ON; n = n->next) {
        rt->line = n->line;
        TRY(tpl_steps(rt, 1));
        TRY(exec_statement(rt, n, f, to));
    }
    rt->depth--;
    return CHURON_OK;
}

/* ---- macros ----------------------------------------------------------------------------------------- */

static bool take_keyword(const tpl_args *args, bool *used, tvalue name, tvalue *out) {
    for (size_t i = 0; i < args->n_kw; i++) {
        if (used[i] || args->names[i].len != name.len || memcmp(args->names[i].s, name.s, name.len) != 0)
            continue;
        used[i] = true;
        *out = args->kw[i];
        return true;
    }
    return false;
}

static status macro_rest(tpl_rt *rt, const tpl_node *def, const tpl_args *args, const bool *used,
                         tpl_frame *f) {
    const tpl_func *fn = def->block.func;
    int len = (int)(def->value.len > 60 ? 60 : def->value.len);
    tpl_dict *rest = fn->kwargs ? tpl_dict_new(rt->arena) : NULL;
    if (fn->kwargs && !rest) return tpl_memory(rt);
    for (size_t i = 0; i < args->n_kw; i++) {
        tvalue k = args->names[i];
        if (used[i]) continue;
        if (!rest) {
            return tpl_fail(rt, "macro '%.*s' takes no keyword argument '%.*s'", len,
                            def->value.s ? def->value.s : "", (int)(k.len > 60 ? 60 : k.len), k.s);
        }
        if (!tpl_dict_put(rest, k, tpl_hash_bytes(k.s, k.len), args->kw[i])) return tpl_memory(rt);
    }
    if (rest) f->slots[fn->kwargs_slot] = (tvalue){.kind = TPL_DICT, .dict = rest};
    size_t extra = args->n > def->n ? args->n - def->n : 0;
    if (extra && !fn->varargs) {
        return tpl_fail(rt, "macro '%.*s' takes not more than %u argument(s)", len,
                        def->value.s ? def->value.s : "", def->n);
    }
    if (!fn->varargs) return CHURON_OK;
    tpl_list *list = tpl_list_new(rt->arena, extra);
    if (!list) return tpl_memory(rt);
    for (size_t i = 0; i < extra; i++) TRY(tpl_push(rt, list, args->v[def->n + i]));
    f->slots[fn->varargs_slot] = (tvalue){.kind = TPL_TUPLE, .list = list};
    return CHURON_OK;
}

static status macro_arguments(tpl_rt *rt, const tpl_node *def, const tpl_args *args, tpl_frame *f) {
    const tpl_func *fn = def->block.func;
    bool *used = tpl_alloc(rt->arena, args->n_kw + 1);
    if (!used) return tpl_memory(rt);
    TRY(tpl_steps(rt, def->n + args->n_kw * (def->n / 16)));
    size_t i = 0;
    for (const tpl_node *arg = def->b; arg; arg = arg->next, i++) {
        tvalue *slot = &f->slots[arg->ref.slot];
        if (i < args->n) {
            *slot = args->v[i];
        } else if (!take_keyword(args, used, arg->value, slot)) {
            slot->kind = TPL_MISSING;
        }
    }
    if (fn->caller) {
        tvalue *slot = &f->slots[fn->caller_slot];
        if (!take_keyword(args, used, tpl_static("caller"), slot) || slot->kind == TPL_NONE) {
            TRY(tpl_undef(rt, "No caller defined", (tvalue){0}, tpl_static("caller"), slot));
        }
    }
    return macro_rest(rt, def, args, used, f);
}

static status macro_defaults(tpl_rt *rt, const tpl_node *def, tpl_frame *f) {
    size_t n_defaults = 0, i = 0;
    for (const tpl_node *d = def->c; d; d = d->next) n_defaults++;
    const tpl_node *value = def->c;
    for (const tpl_node *arg = def->b; arg; arg = arg->next, i++) {
        bool has_default = i >= def->n - n_defaults;
        tvalue v;
        if (f->slots[arg->ref.slot].kind == TPL_MISSING) {
            TRY(has_default ? tpl_eval(rt, value, f, &v)
                            : tpl_undef(rt, "a parameter was not provided", (tvalue){0}, arg->value, &v));
            f->slots[arg->ref.slot] = v;
        }
        if (has_default) value = value->next;
    }
    return CHURON_OK;
}

status tpl_call_macro(tpl_rt *rt, tpl_macro *m, const tpl_args *args, tvalue *out) {
    const tpl_node *def = m->def;
    TRY(tpl_enter(rt));
    tpl_frame *f;
    TRY(tpl_frame_new(rt, def->block.func->n_slots, m->closure, &f));
    TRY(macro_arguments(rt, def, args, f));
    TRY(enter_scope(rt, &def->block.func->scope, f));
    TRY(macro_defaults(rt, def, f));
    size_t start = rt->out->len;
    flow to = FLOW_ON;
    TRY(exec_body(rt, def->d, f, &to));
    rt->depth--;
    return captured(rt, start, out);
}

/* ---- rendering -------------------------------------------------------------------------------------- */

static status render(tpl_rt *rt) {
    tpl_frame *f;
    TRY(tpl_frame_new(rt, rt->t->root.n_slots, NULL, &f));
    TRY(enter_scope(rt, &rt->t->root.scope, f));
    flow to = FLOW_ON;
    return exec_body(rt, rt->t->body, f, &to);
}

status template_render(const template *t, tvalue *context, int64_t now, const template_limits *limits,
                       str *out, error *err) {
    if (!context) return error_no_memory(err, "template context", sizeof *context);
    if (context->kind != TPL_DICT) {
        return error_set(err, CHURON_INVALID, "template context: expected a dict, got %s",
                         tpl_type_name(*context));
    }
    if (context->dict->arena->bad_text) {
        return error_set(err, CHURON_INVALID,
                         "template context: expected UTF-8, got an invalid byte at offset %zu of a text",
                         context->dict->arena->bad_offset);
    }
    tpl_rt rt = {
        .t = t, .context = context->dict, .out = out, .base = out->len, .now = now, .line = 1, .err = err};
    if (limits) rt.limits = *limits;
    if (!rt.limits.max_steps) rt.limits.max_steps = 10000000;
    if (!rt.limits.max_depth) rt.limits.max_depth = TPL_MAX_DEPTH;
    if (!rt.limits.max_output) rt.limits.max_output = (size_t)64 << 20;
    if (rt.limits.max_output > UINT32_MAX / 2) rt.limits.max_output = UINT32_MAX / 2;
    if (out->failed) return str_check(out, err);
    rt.arena = tpl_arena_new(TPL_MAX_MEMORY);
    if (!rt.arena) return error_no_memory(err, "rendering a template", sizeof *rt.arena);
    status st = render(&rt);
    tarena_free(rt.arena);
    if (st != CHURON_OK) {
        out->len = rt.base;
        out->failed = false;
    }
    if (out->data) out->data[out->len] = '\0';
    return st;
}

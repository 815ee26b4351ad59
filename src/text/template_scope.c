/* template_scope.c: which variable a name means. Jinja2 compiles a template to Python functions and decides
 * this from the text alone: a scope (template, loop body, macro, block) that assigns a name has its own
 * variable of it, filled when the scope is entered with the outer one's value, with the context's, or with
 * nothing; a name that is only read belongs to the innermost scope outside that has it, else to the context.
 * Here the same rules give every name a slot in the frame of a function (macro, call block, recursive loop,
 * loop filter, template), so that rendering does no look-ups and every corner (a block that reads what it
 * sets, a macro that reads a later `set`) comes out as in Jinja2.
 *
 * A scope is analysed whole before what lies in it is resolved. */
#include "text/template_internal.h"

#include <string.h>

typedef struct function {
    struct function *outer;
    tpl_func *func;
    struct ident {
        tvalue name;
        uint32_t hash, level;
    } * idents; /* the slots: one per name and level */
    size_t cap;
} function;

typedef struct symbol {
    tvalue name;
    uint32_t hash, slot;
    tpl_fill fill;
    const struct symbol *from; /* of an ALIAS */
    function *fn;
} symbol;

typedef struct symbols {
    struct symbols *outer;
    function *fn;
    uint32_t level;
    symbol **v;
    size_t n, cap;
} symbols;

typedef struct resolver {
    tarena *arena; /* of the template */
    tarena *tmp;
    size_t work;
    error *err;
} resolver;

/* Where a statement stands. */
typedef struct place {
    symbols *s;
    bool soft; /* inside an if: an unknown filter is an error only when it runs */
    bool loop; /* break and continue are allowed */
} place;

static status out_of_memory(resolver *r) {
    if (r->arena->over || r->tmp->over) {
        return error_set(r->err, CHURON_LIMIT, "template: more than %zu bytes of memory", TPL_MAX_MEMORY);
    }
    return error_no_memory(r->err, "template names", sizeof(symbol));
}

static status work(resolver *r, size_t n) {
    r->work += n;
    if (r->work <= TPL_MAX_WORK) return CHURON_OK;
    return error_set(r->err, CHURON_LIMIT, "template: analysing its names takes more than %zu steps",
                     TPL_MAX_WORK);
}

static bool same_name(tvalue a, tvalue b) {
    return a.len == b.len && memcmp(a.s, b.s, a.len) == 0;
}

/* ---- symbols ---------------------------------------------------------------------------------------- */

static status slot_of(resolver *r, function *fn, tvalue name, uint32_t hash, uint32_t level, uint32_t *slot) {
    uint32_t n = fn->func->n_slots;
    TRY(work(r, n));
    for (uint32_t i = 0; i < n; i++) {
        const struct ident *id = &fn->idents[i];
        if (id->hash == hash && id->level == level && same_name(id->name, name)) {
            *slot = i;
            return CHURON_OK;
        }
    }
    if (n == fn->cap) {
        size_t cap = fn->cap ? fn->cap * 2 : 16;
        struct ident *grown = tpl_alloc(r->tmp, cap * sizeof *grown);
        if (!grown) return out_of_memory(r);
        if (n) memcpy(grown, fn->idents, n * sizeof *grown);
        fn->idents = grown;
        fn->cap = cap;
    }
    fn->idents[n] = (struct ident){.name = name, .hash = hash, .level = level};
    fn->func->n_slots = n + 1;
    *slot = n;
    return CHURON_OK;
}

static status find_here(resolver *r, const symbols *s, tvalue name, uint32_t hash, symbol **out) {
    TRY(work(r, s->n));
    *out = NULL;
    for (size_t i = 0; i < s->n && !*out; i++) {
        if (s->v[i]->hash == hash && same_name(s->v[i]->name, name)) *out = s->v[i];
    }
    return CHURON_OK;
}

static status find(resolver *r, const symbols *s, tvalue name, uint32_t hash, symbol **out) {
    *out = NULL;
    for (; s && !*out; s = s->outer) TRY(find_here(r, s, name, hash, out));
    return CHURON_OK;
}

static status define(resolver *r, symbols *s, tvalue name, uint32_t hash, tpl_fill fill, const symbol *from) {
    if (s->n == s->cap) {
        size_t cap = s->cap ? s->cap * 2 : 8;
        symbol **grown = tpl_alloc(r->tmp, cap * sizeof(symbol *));
        if (!grown) return out_of_memory(r);
        if (s->n) memcpy(grown, s->v, s->n * sizeof(symbol *));
        s->v = grown;
        s->cap = cap;
    }
    symbol *one = tpl_alloc(r->tmp, sizeof *one);
    if (!one) return out_of_memory(r);
    *one = (symbol){.name = name, .hash = hash, .fill = fill, .from = from, .fn = s->fn};
    s->v[s->n++] = one;
    return slot_of(r, s->fn, name, hash, s->level, &one->slot);
}

static status on_load(resolver *r, symbols *s, tvalue name) {
    uint32_t hash = tpl_hash_bytes(name.s, name.len);
    symbol *known;
    TRY(find(r, s, name, hash, &known));
    return known ? CHURON_OK : define(r, s, name, hash, TPL_FILL_RESOLVE, NULL);
}

/* `branch`: inside an if, so that it may not happen. */
static status on_store(resolver *r, symbols *s, tvalue name, bool branch) {
    uint32_t hash = tpl_hash_bytes(name.s, name.len);
    symbol *known;
    TRY(find_here(r, s, name, hash, &known));
    if (known) return CHURON_OK;
    TRY(find(r, s->outer, name, hash, &known));
    if (known) return define(r, s, name, hash, TPL_FILL_ALIAS, known);
    return define(r, s, name, hash, branch ? TPL_FILL_RESOLVE : TPL_FILL_MISSING, NULL);
}

static status on_param(resolver *r, symbols *s, tvalue name, uint32_t *slot) {
    uint32_t hash = tpl_hash_bytes(name.s, name.len);
    symbol *known;
    TRY(find_here(r, s, name, hash, &known));
    if (!known) {
        TRY(define(r, s, name, hash, TPL_FILL_PARAM, NULL));
        known = s->v[s->n - 1];
    }
    known->fill = TPL_FILL_PARAM;
    if (slot) *slot = known->slot;
    return CHURON_OK;
}

/* ---- analysis of one scope -------------------------------------------------------------------------- */

static status see_expr(resolver *r, symbols *s, const tpl_node *n, bool branch);

static status see_list(resolver *r, symbols *s, const tpl_node *n, bool branch) {
    for (; n; n = n->next) TRY(see_expr(r, s, n, branch));
    return CHURON_OK;
}

static bool has_call(const tpl_node *n) {
    return n->op == TPL_N_CALL || n->op == TPL_N_FILTER || n->op == TPL_N_TEST;
}

static status see_expr(resolver *r, symbols *s, const tpl_node *n, bool branch) {
    if (!n) return CHURON_OK;
    switch ((tpl_op)n->op) {
    case TPL_N_NAME:
        if (n->sub == TPL_PARAM) return on_param(r, s, n->value, NULL);
        return n->sub == TPL_STORE ? on_store(r, s, n->value, branch) : on_load(r, s, n->value);
    case TPL_N_NSREF: return on_load(r, s, n->value);
    case TPL_N_TUPLE:
    case TPL_N_LIST:
    case TPL_N_DICT:
    case TPL_N_CONCAT: return see_list(r, s, n->a, branch);
    default: break;
    }
    TRY(see_expr(r, s, n->a, branch));
    TRY(n->op == TPL_N_COMPARE ? see_list(r, s, n->b, branch) : see_expr(r, s, n->b, branch));
    TRY(see_expr(r, s, n->c, branch));
    if (!has_call(n)) return CHURON_OK;
    TRY(see_list(r, s, n->call.args, branch));
    TRY(see_list(r, s, n->call.kwargs, branch));
    TRY(see_expr(r, s, n->call.dyn_args, branch));
    return see_expr(r, s, n->call.dyn_kwargs, branch);
}

static status see_params(resolver *r, symbols *s, const tpl_node *target) {
    if (target->op == TPL_N_NAME) return on_param(r, s, target->value, NULL);
    for (const tpl_node *item = target->a; item; item = item->next) TRY(see_params(r, s, item));
    return CHURON_OK;
}

/* Statements of a scope; those inside of inner scopes are theirs. */
static status see_body(resolver *r, symbols *s, const tpl_node *n, bool branch) {
    for (; n; n = n->next) {
        TRY(work(r, 1));
        switch ((tpl_op)n->op) {
        case TPL_N_OUTPUT:
        case TPL_N_CALLBLOCK: TRY(see_expr(r, s, n->a, branch)); break;
        case TPL_N_SET:
            TRY(see_expr(r, s, n->b, branch));
            TRY(see_expr(r, s, n->a, branch));
            break;
        case TPL_N_SETBLOCK: TRY(see_expr(r, s, n->a, branch)); break;
        case TPL_N_FOR:
        case TPL_N_FILTERBLOCK: TRY(see_expr(r, s, n->b, branch)); break;
        case TPL_N_WITH: TRY(see_list(r, s, n->b, branch)); break;
        case TPL_N_MACRO: TRY(on_store(r, s, n->value, branch)); break;
        case TPL_N_IF:
            TRY(see_expr(r, s, n->a, branch));
            TRY(see_body(r, s, n->b, true));
            TRY(see_body(r, s, n->c, true));
            TRY(see_body(r, s, n->d, true));
            break;
        default: break;
        }
    }
    return CHURON_OK;
}

/* ---- what a name is first used for ------------------------------------------------------------------ */

typedef enum use { UNUSED, LOADED, STORED } use;

static status first_use(resolver *r, const tpl_node *n, const char *name, use *out);

static status first_in_list(resolver *r, const tpl_node *n, const char *name, use *out) {
    for (; n && *out == UNUSED; n = n->next) TRY(first_use(r, n, name, out));
    return CHURON_OK;
}

/* Children in the order of Jinja2's node fields, as links of a node and which of them are lists. */
static status first_in_statement(resolver *r, const tpl_node *n, const char *name, use *out) {
    const tpl_node *order[5] = {n->a, n->b, n->c, n->d, n->e};
    switch ((tpl_op)n->op) {
    case TPL_N_FOR: order[2] = n->d, order[3] = n->e, order[4] = n->c; break;
    case TPL_N_FILTERBLOCK: order[0] = n->c, order[1] = n->b, order[2] = NULL; break;
    case TPL_N_MACRO: order[0] = NULL; break;
    default: break;
    }
    for (size_t i = 0; i < 5; i++) TRY(first_in_list(r, order[i], name, out));
    return CHURON_OK;
}

static status first_use(resolver *r, const tpl_node *n, const char *name, use *out) {
    if (!n || *out != UNUSED) return CHURON_OK;
    TRY(work(r, 1));
    if (n->op == TPL_N_NAME) {
        if (tpl_str_is(n->value, name)) *out = n->sub == TPL_LOAD ? LOADED : STORED;
        return CHURON_OK;
    }
    if (n->op == TPL_N_NSREF) return CHURON_OK;
    if (n->op >= TPL_N_DATA) return first_in_statement(r, n, name, out);
    TRY(n->op == TPL_N_TUPLE || n->op == TPL_N_LIST || n->op == TPL_N_DICT || n->op == TPL_N_CONCAT
            ? first_in_list(r, n->a, name, out)
            : first_use(r, n->a, name, out));
    TRY(n->op == TPL_N_COMPARE ? first_in_list(r, n->b, name, out) : first_use(r, n->b, name, out));
    TRY(first_use(r, n->c, name, out));
    if (!has_call(n)) return CHURON_OK;
    TRY(first_in_list(r, n->call.args, name, out));
    TRY(first_in_list(r, n->call.kwargs, name, out));
    TRY(first_use(r, n->call.dyn_args, name, out));
    return first_use(r, n->call.dyn_kwargs, name, out);
}

static status loads(resolver *r, const tpl_node *body, const char *name, bool *out) {
    use u = UNUSED;
    TRY(first_in_list(r, body, name, &u));
    *out = u == LOADED;
    return CHURON_OK;
}

static bool target_has(const tpl_node *target, const char *name) {
    if (target->op == TPL_N_NAME) return target->sub == TPL_STORE && tpl_str_is(target->value, name);
    if (target->op != TPL_N_TUPLE) return false;
    for (const tpl_node *item = target->a; item; item = item->next) {
        if (target_has(item, name)) return true;
    }
    return false;
}

/* Is `loop` assigned anywhere inside of a for statement? */
static status stores_loop(resolver *r, const tpl_node *n, bool *out) {
    for (; n && !*out; n = n->next) {
        TRY(work(r, 1));
        tpl_op op = n->op;
        if (op == TPL_N_SET || op == TPL_N_SETBLOCK || op == TPL_N_FOR) *out |= target_has(n->a, "loop");
        if (op == TPL_N_SETBLOCK || op == TPL_N_FILTERBLOCK || op == TPL_N_IF) TRY(stores_loop(r, n->c, out));
        if (op == TPL_N_IF) TRY(stores_loop(r, n->b, out));
        if (op > TPL_N_SETBLOCK) TRY(stores_loop(r, n->d, out));
        if (op == TPL_N_FOR) TRY(stores_loop(r, n->e, out));
    }
    return CHURON_OK;
}

/* ---- resolution ------------------------------------------------------------------------------------- */

static status resolve_body(resolver *r, place at, tpl_node *n);

static status resolve_name(resolver *r, const symbols *s, tpl_node *n) {
    symbol *known;
    TRY(find(r, s, n->value, tpl_hash_bytes(n->value.s, n->value.len), &known));
    if (!known) {
        return error_set(r->err, CHURON_UNSUPPORTED, "line %u: name '%.*s' in the filter of a set block",
                         n->line, (int)(n->value.len > 60 ? 60 : n->value.len), n->value.s);
    }
    uint16_t hops = 0;
    for (const function *fn = s->fn; fn != known->fn; fn = fn->outer) hops++;
    n->ref.hops = hops;
    n->ref.slot = known->slot;
    n->ref.undefined.name = n->value;
    return CHURON_OK;
}

static status resolve_expr(resolver *r, place at, tpl_node *n);

static status resolve_list(resolver *r, place at, tpl_node *n) {
    for (; n; n = n->next) TRY(resolve_expr(r, at, n));
    return CHURON_OK;
}

static status resolve_call(resolver *r, place at, tpl_node *n) {
    if (n->op != TPL_N_CALL && !n->call.def && !at.soft) {
        return error_set(r->err, CHURON_INVALID, "line %u: no %s named '%.*s'", n->line,
                         n->op == TPL_N_FILTER ? "filter" : "test",
                         (int)(n->value.len > 60 ? 60 : n->value.len), n->value.s);
    }
    TRY(resolve_list(r, at, n->call.args));
    TRY(resolve_list(r, at, n->call.kwargs));
    TRY(resolve_expr(r, at, n->call.dyn_args));
    return resolve_expr(r, at, n->call.dyn_kwargs);
}

static status resolve_expr(resolver *r, place at, tpl_node *n) {
    if (!n) return CHURON_OK;
    switch ((tpl_op)n->op) {
    case TPL_N_NAME:
    case TPL_N_NSREF: return resolve_name(r, at.s, n);
    case TPL_N_TUPLE:
    case TPL_N_LIST:
    case TPL_N_DICT:
    case TPL_N_CONCAT: return resolve_list(r, at, n->a);
    case TPL_N_COND: at.soft = true; break;
    default: break;
    }
    TRY(resolve_expr(r, at, n->a));
    TRY(n->op == TPL_N_COMPARE ? resolve_list(r, at, n->b) : resolve_expr(r, at, n->b));
    TRY(resolve_expr(r, at, n->c));
    return has_call(n) ? resolve_call(r, at, n) : CHURON_OK;
}

static status inner_symbols(resolver *r, symbols *outer, function *fn, symbols **out) {
    symbols *s = tpl_alloc(r->tmp, sizeof *s);
    if (!s) return out_of_memory(r);
    *s = (symbols){.outer = outer, .fn = fn, .level = outer ? outer->level + 1 : 0};
    *out = s;
    return CHURON_OK;
}

static status inner_function(resolver *r, function *outer, tpl_func **func, function **out) {
    function *fn = tpl_alloc(r->tmp, sizeof *fn);
    if (!fn) return out_of_memory(r);
    if (!*func && !(*func = tpl_alloc(r->arena, sizeof **func))) return out_of_memory(r);
    *fn = (function){.outer = outer, .func = *func};
    *out = fn;
    return CHURON_OK;
}

/* The analysed scope as the list of what to do on entering it. */
static status make_scope(resolver *r, const symbols *s, tpl_scope *out) {
    out->n = s->n;
    if (!s->n) return CHURON_OK;
    if (!(out->slots = tpl_alloc(r->arena, s->n * sizeof *out->slots))) return out_of_memory(r);
    for (size_t i = 0; i < s->n; i++) {
        const symbol *one = s->v[i];
        tpl_slot *slot = &out->slots[i];
        *slot =
            (tpl_slot){.slot = one->slot, .fill = (uint8_t)one->fill, .name = one->name, .hash = one->hash};
        if (one->fill != TPL_FILL_ALIAS) continue;
        slot->source = one->from->slot;
        for (const function *fn = s->fn; fn != one->from->fn; fn = fn->outer) slot->hops++;
    }
    return CHURON_OK;
}

static status copy_target(resolver *r, const tpl_node *n, tpl_node **out) {
    tpl_node *copy = tpl_alloc(r->arena, sizeof *copy);
    if (!copy) return out_of_memory(r);
    *copy = *n;
    *out = copy;
    tpl_node **end = &copy->a;
    for (const tpl_node *item = n->op == TPL_N_TUPLE ? n->a : NULL; item; item = item->next) {
        TRY(copy_target(r, item, end));
        end = &(*end)->next;
    }
    return CHURON_OK;
}

/* The filter of a loop is a function of its own. */
static status resolve_loop_test(resolver *r, place at, tpl_node *n) {
    function *fn = NULL;
    symbols *s = NULL;
    TRY(inner_function(r, at.s->fn, &n->block.test_func, &fn));
    TRY(inner_symbols(r, at.s, fn, &s));
    TRY(see_params(r, s, n->a));
    TRY(see_expr(r, s, n->c, false));
    TRY(copy_target(r, n->a, &n->block.test_target));
    place in = {.s = s};
    TRY(resolve_expr(r, in, n->block.test_target));
    TRY(resolve_expr(r, in, n->c));
    return make_scope(r, s, &n->block.test_func->scope);
}

static status resolve_for(resolver *r, place at, tpl_node *n) {
    bool stores = target_has(n->a, "loop");
    TRY(stores_loop(r, n->d, &stores));
    TRY(stores_loop(r, n->e, &stores));
    if (stores)
        return error_set(r->err, CHURON_INVALID, "line %u: cannot assign to 'loop' in a for loop", n->line);
    TRY(loads(r, n->d, "loop", &n->block.extended));
    n->block.extended |= n->sub;
    if (n->c) TRY(resolve_loop_test(r, at, n));
    function *fn = at.s->fn;
    if (n->sub) TRY(inner_function(r, fn, &n->block.func, &fn));
    symbols *body = NULL, *other = NULL;
    TRY(inner_symbols(r, at.s, fn, &body));
    TRY(inner_symbols(r, at.s, fn, &other));
    if (n->block.extended) TRY(on_param(r, body, tpl_static("loop"), &n->block.loop_slot));
    TRY(see_params(r, body, n->a));
    TRY(see_body(r, body, n->d, false));
    TRY(see_body(r, other, n->e, false));
    TRY(resolve_expr(r, at, n->b));
    place in_body = {.s = body, .loop = true};
    TRY(resolve_expr(r, in_body, n->a));
    TRY(resolve_body(r, in_body, n->d));
    /* The else part stands outside of the loop; a recursive loop is a function, so nothing is around it. */
    place in_else = {.s = other, .loop = at.loop && !n->sub};
    TRY(resolve_body(r, in_else, n->e));
    TRY(make_scope(r, body, &n->block.scope));
    return make_scope(r, other, &n->block.else_scope);
}

static status special_parameter(resolver *r, symbols *s, const tpl_node *n, const char *name, bool *takes,
                                uint32_t *slot) {
    TRY(loads(r, n->d, name, takes));
    for (const tpl_node *arg = n->b; arg && *takes; arg = arg->next) {
        if (tpl_str_is(arg->value, name)) *takes = false;
    }
    return *takes ? on_param(r, s, tpl_static(name), slot) : CHURON_OK;
}

/* A parameter named caller that the body uses as the special one must have a default. */
static status check_caller(resolver *r, tpl_node *n) {
    size_t n_defaults = 0, i = 0;
    bool used;
    for (const tpl_node *d = n->c; d; d = d->next) n_defaults++;
    TRY(loads(r, n->d, "caller", &used));
    for (const tpl_node *arg = n->b; arg; arg = arg->next, i++) {
        if (!tpl_str_is(arg->value, "caller")) continue;
        n->block.func->explicit_caller = true;
        if (used && i < n->n - n_defaults) {
            return error_set(r->err, CHURON_INVALID, "line %u: parameter 'caller' must have a default",
                             n->line);
        }
    }
    return CHURON_OK;
}

/* MACRO, CALLBLOCK and GENERATION */
static status resolve_macro(resolver *r, place at, tpl_node *n) {
    function *fn = NULL;
    symbols *s = NULL;
    TRY(inner_function(r, at.s->fn, &n->block.func, &fn));
    tpl_func *f = n->block.func;
    TRY(inner_symbols(r, at.s, fn, &s));
    TRY(see_list(r, s, n->b, false));
    TRY(see_list(r, s, n->c, false));
    TRY(see_body(r, s, n->d, false));
    TRY(check_caller(r, n));
    TRY(special_parameter(r, s, n, "caller", &f->caller, &f->caller_slot));
    TRY(special_parameter(r, s, n, "kwargs", &f->kwargs, &f->kwargs_slot));
    TRY(special_parameter(r, s, n, "varargs", &f->varargs, &f->varargs_slot));
    place in = {.s = s};
    TRY(resolve_list(r, in, n->b));
    TRY(resolve_list(r, in, n->c));
    TRY(resolve_body(r, in, n->d));
    TRY(make_scope(r, s, &f->scope));
    return n->op == TPL_N_GENERATION ? CHURON_OK : resolve_expr(r, at, n->a);
}

static status resolve_block(resolver *r, place at, tpl_node *n) {
    symbols *s = NULL;
    TRY(inner_symbols(r, at.s, at.s->fn, &s));
    place in = {.s = s, .loop = at.loop};
    if (n->op == TPL_N_WITH) {
        TRY(see_list(r, s, n->a, false));
        TRY(see_body(r, s, n->d, false));
        TRY(resolve_list(r, in, n->a));
        TRY(resolve_list(r, at, n->b));
        TRY(resolve_body(r, in, n->d));
        return make_scope(r, s, &n->block.scope);
    }
    TRY(see_body(r, s, n->c, false));
    if (n->op == TPL_N_FILTERBLOCK) TRY(see_expr(r, s, n->b, false));
    TRY(resolve_body(r, in, n->c));
    if (n->op == TPL_N_SETBLOCK) TRY(resolve_expr(r, at, n->a));
    TRY(resolve_expr(r, in, n->b));
    return make_scope(r, s, &n->block.scope);
}

static status resolve_if(resolver *r, place at, tpl_node *n) {
    at.soft = true;
    TRY(resolve_expr(r, at, n->a));
    TRY(resolve_body(r, at, n->b));
    TRY(resolve_body(r, at, n->c));
    return resolve_body(r, at, n->d);
}

static status resolve_body(resolver *r, place at, tpl_node *n) {
    for (; n; n = n->next) {
        switch ((tpl_op)n->op) {
        case TPL_N_OUTPUT: TRY(resolve_expr(r, at, n->a)); break;
        case TPL_N_SET:
            TRY(resolve_expr(r, at, n->b));
            TRY(resolve_expr(r, at, n->a));
            break;
        case TPL_N_FOR: TRY(resolve_for(r, at, n)); break;
        case TPL_N_IF: TRY(resolve_if(r, at, n)); break;
        case TPL_N_MACRO:
        case TPL_N_CALLBLOCK:
        case TPL_N_GENERATION: TRY(resolve_macro(r, at, n)); break;
        case TPL_N_SETBLOCK:
        case TPL_N_FILTERBLOCK:
        case TPL_N_WITH: TRY(resolve_block(r, at, n)); break;
        case TPL_N_BREAK:
        case TPL_N_CONTINUE:
            if (!at.loop) {
                return error_set(r->err, CHURON_INVALID, "line %u: '%s' outside of a loop", n->line,
                                 n->op == TPL_N_BREAK ? "break" : "continue");
            }
            break;
        default: break;
        }
    }
    return CHURON_OK;
}

static status resolve_all(resolver *r, template *t) {
    bool self;
    TRY(loads(r, t->body, "self", &self));
    if (self) return error_set(r->err, CHURON_UNSUPPORTED, "template: the name 'self' is not supported");
    tpl_func *root = &t->root;
    function *fn = NULL;
    symbols *s = NULL;
    TRY(inner_function(r, NULL, &root, &fn));
    TRY(inner_symbols(r, NULL, fn, &s));
    TRY(see_body(r, s, t->body, false));
    place at = {.s = s};
    TRY(resolve_body(r, at, t->body));
    return make_scope(r, s, &t->root.scope);
}

status tpl_resolve(template *t, error *err) {
    resolver r = {.arena = t->arena, .tmp = tpl_arena_new(TPL_MAX_MEMORY), .err = err};
    if (!r.tmp) return error_no_memory(err, "template names", sizeof *r.tmp);
    status st = resolve_all(&r, t);
    tarena_free(r.tmp);
    return st;
}

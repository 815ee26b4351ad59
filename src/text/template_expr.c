/* template_expr.c: expressions to trees, with Jinja2's precedences: if-else, or, and, not, comparisons, + -,
 * ~, * / // %, ** (from the left), unary, then calls, subscripts, filters and tests. */
#include "text/template_internal.h"

#include <stdio.h>
#include <string.h>

/* ---- helpers ---------------------------------------------------------------------------------------- */

static status parse_error(tpl_parser *p, status code, const char *fmt, va_list ap) {
    char text[300];
    (void)vsnprintf(text, sizeof text, fmt, ap);
    return error_set(p->err, code, "line %u: %s", p->tok->line, text);
}

status tpl_syntax(tpl_parser *p, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    status st = parse_error(p, CHURON_INVALID, fmt, ap);
    va_end(ap);
    return st;
}

status tpl_unsupported(tpl_parser *p, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    status st = parse_error(p, CHURON_UNSUPPORTED, fmt, ap);
    va_end(ap);
    return st;
}

status tpl_parser_memory(tpl_parser *p) {
    if (p->arena->over) {
        return error_set(p->err, CHURON_LIMIT, "template: more than %zu bytes of memory", TPL_MAX_MEMORY);
    }
    return error_no_memory(p->err, "template", sizeof(tpl_node));
}

status tpl_nest(tpl_parser *p) {
    if (++p->nesting <= TPL_MAX_NESTING) return CHURON_OK;
    return error_set(p->err, CHURON_LIMIT, "line %u: nested deeper than %d", p->tok->line, TPL_MAX_NESTING);
}

status tpl_node_new(tpl_parser *p, tpl_op op, uint32_t line, tpl_node **out) {
    *out = tpl_alloc(p->arena, sizeof **out);
    if (!*out) return tpl_parser_memory(p);
    (*out)->op = (uint8_t)op;
    (*out)->line = line;
    (*out)->depth = 1;
    return CHURON_OK;
}

/* Makes `child` part of `n`: evaluation recurses, so the depth of a tree is bounded here. */
static status hang(tpl_parser *p, tpl_node *n, const tpl_node *child) {
    if (child && child->depth >= n->depth) n->depth = (uint16_t)(child->depth + 1);
    if (n->depth <= TPL_MAX_NESTING) return CHURON_OK;
    return error_set(p->err, CHURON_LIMIT, "line %u: an expression of more than %d levels", n->line,
                     TPL_MAX_NESTING);
}

bool tpl_at_name(const tpl_parser *p, const char *name) {
    return p->tok->type == TPL_T_NAME && tpl_str_is(p->tok->value, name);
}

bool tpl_skip_name(tpl_parser *p, const char *name) {
    if (!tpl_at_name(p, name)) return false;
    p->tok++;
    return true;
}

bool tpl_skip(tpl_parser *p, tpl_tok type) {
    if (p->tok->type != type) return false;
    p->tok++;
    return true;
}

status tpl_expect(tpl_parser *p, tpl_tok type) {
    if (tpl_skip(p, type)) return CHURON_OK;
    return tpl_syntax(p, "expected %s, got %s", tpl_token_name(type), tpl_token_name(p->tok->type));
}

typedef struct chain {
    tpl_node *first, **end;
    uint32_t n;
} chain;

static void chain_begin(chain *c) {
    *c = (chain){.first = NULL, .end = &c->first};
}

static status chain_add(tpl_parser *p, chain *c, tpl_node *parent, tpl_node *n) {
    *c->end = n;
    c->end = &n->next;
    c->n++;
    return hang(p, parent, n);
}

/* ---- primary expressions ---------------------------------------------------------------------------- */

static status parse_condition(tpl_parser *p, tpl_node **out);
static status parse_or(tpl_parser *p, tpl_node **out);
static status parse_unary(tpl_parser *p, bool with_filter, tpl_node **out);
static status parse_primary(tpl_parser *p, unsigned how, tpl_node **out);

static status constant(tpl_parser *p, uint32_t line, tvalue v, tpl_node **out) {
    TRY(tpl_node_new(p, TPL_N_CONST, line, out));
    (*out)->value = v;
    return CHURON_OK;
}

static bool constant_name(tvalue name, tvalue *v) {
    if (tpl_str_is(name, "true") || tpl_str_is(name, "True")) return *v = tpl_bool(true), true;
    if (tpl_str_is(name, "false") || tpl_str_is(name, "False")) return *v = tpl_bool(false), true;
    if (tpl_str_is(name, "none") || tpl_str_is(name, "None")) return *v = tpl_none(), true;
    return false;
}

static status parse_name(tpl_parser *p, unsigned how, tpl_node **out) {
    const tpl_token *t = p->tok++;
    tvalue v;
    if (constant_name(t->value, &v)) return constant(p, t->line, v, out);
    if ((how & TPL_NSREFS) && tpl_skip(p, TPL_T_DOT)) {
        TRY(tpl_node_new(p, TPL_N_NSREF, t->line, out));
        TRY(tpl_node_new(p, TPL_N_CONST, t->line, &(*out)->a));
        (*out)->a->value = p->tok->value;
        (*out)->value = t->value;
        return tpl_expect(p, TPL_T_NAME);
    }
    TRY(tpl_node_new(p, TPL_N_NAME, t->line, out));
    (*out)->value = t->value;
    (*out)->sub = TPL_LOAD;
    return CHURON_OK;
}

static status parse_string(tpl_parser *p, tpl_node **out) {
    const tpl_token *t = p->tok++;
    tvalue v = t->value;
    if (p->tok->type == TPL_T_STRING) {
        size_t n = 0;
        for (const tpl_token *k = t; k->type == TPL_T_STRING; k++) n += k->value.len;
        char *to = tpl_text(p->arena, n ? n : 1);
        if (!to) return tpl_parser_memory(p);
        size_t at = 0;
        for (p->tok = t; p->tok->type == TPL_T_STRING; p->tok++) {
            memcpy(to + at, p->tok->value.s, p->tok->value.len);
            at += p->tok->value.len;
        }
        v = tpl_view(to, n, 0);
    }
    return constant(p, t->line, v, out);
}

static status parse_list(tpl_parser *p, tpl_node **out) {
    TRY(tpl_node_new(p, TPL_N_LIST, p->tok->line, out));
    TRY(tpl_expect(p, TPL_T_LBRACKET));
    chain items;
    chain_begin(&items);
    while (p->tok->type != TPL_T_RBRACKET) {
        if (items.n) TRY(tpl_expect(p, TPL_T_COMMA));
        if (p->tok->type == TPL_T_RBRACKET) break;
        tpl_node *item;
        TRY(tpl_parse_expression(p, &item));
        TRY(chain_add(p, &items, *out, item));
    }
    (*out)->a = items.first;
    (*out)->n = items.n;
    return tpl_expect(p, TPL_T_RBRACKET);
}

/* DICT: a = key, value, key, value ... */
static status parse_dict(tpl_parser *p, tpl_node **out) {
    TRY(tpl_node_new(p, TPL_N_DICT, p->tok->line, out));
    TRY(tpl_expect(p, TPL_T_LBRACE));
    chain items;
    chain_begin(&items);
    while (p->tok->type != TPL_T_RBRACE) {
        if (items.n) TRY(tpl_expect(p, TPL_T_COMMA));
        if (p->tok->type == TPL_T_RBRACE) break;
        tpl_node *item;
        TRY(tpl_parse_expression(p, &item));
        TRY(chain_add(p, &items, *out, item));
        TRY(tpl_expect(p, TPL_T_COLON));
        TRY(tpl_parse_expression(p, &item));
        TRY(chain_add(p, &items, *out, item));
    }
    (*out)->a = items.first;
    (*out)->n = items.n;
    return tpl_expect(p, TPL_T_RBRACE);
}

static status parse_primary(tpl_parser *p, unsigned how, tpl_node **out) {
    switch ((tpl_tok)p->tok->type) {
    case TPL_T_NAME: return parse_name(p, how, out);
    case TPL_T_STRING: return parse_string(p, out);
    case TPL_T_INTEGER:
    case TPL_T_FLOAT: return p->tok++, constant(p, p->tok[-1].line, p->tok[-1].value, out);
    case TPL_T_LPAREN:
        p->tok++;
        TRY(tpl_parse_tuple(p, TPL_PARENTHESES, out));
        return tpl_expect(p, TPL_T_RPAREN);
    case TPL_T_LBRACKET: return parse_list(p, out);
    case TPL_T_LBRACE: return parse_dict(p, out);
    default: return tpl_syntax(p, "expected an expression, got %s", tpl_token_name(p->tok->type));
    }
}

static bool is_tuple_end(const tpl_parser *p, unsigned how) {
    tpl_tok t = p->tok->type;
    if (t == TPL_T_VARIABLE_END || t == TPL_T_BLOCK_END || t == TPL_T_RPAREN) return true;
    return ((how & TPL_UNTIL_IN) && tpl_at_name(p, "in")) ||
           ((how & TPL_UNTIL_RECURSIVE) && tpl_at_name(p, "recursive"));
}

status tpl_parse_tuple(tpl_parser *p, unsigned how, tpl_node **out) {
    TRY(tpl_nest(p));
    tpl_node *tuple;
    TRY(tpl_node_new(p, TPL_N_TUPLE, p->tok->line, &tuple));
    chain items;
    chain_begin(&items);
    bool is_tuple = false;
    for (;;) {
        if (items.n) TRY(tpl_expect(p, TPL_T_COMMA));
        if (is_tuple_end(p, how)) break;
        tpl_node *item;
        if (how & TPL_SIMPLE) {
            TRY(parse_primary(p, how, &item));
        } else if (how & TPL_NO_COND) {
            TRY(parse_or(p, &item));
        } else {
            TRY(parse_condition(p, &item));
        }
        TRY(chain_add(p, &items, tuple, item));
        if (p->tok->type != TPL_T_COMMA) break;
        is_tuple = true;
    }
    p->nesting--;
    if (!is_tuple && items.n) {
        *out = items.first;
        return CHURON_OK;
    }
    if (!is_tuple && !(how & TPL_PARENTHESES)) {
        return tpl_syntax(p, "expected an expression, got %s", tpl_token_name(p->tok->type));
    }
    tuple->a = items.first;
    tuple->n = items.n;
    *out = tuple;
    return CHURON_OK;
}

/* ---- calls, subscripts, filters, tests -------------------------------------------------------------- */

static status parse_keyword(tpl_parser *p, tpl_node *call, chain *kwargs) {
    tpl_node *k;
    TRY(tpl_node_new(p, TPL_N_KEYWORD, p->tok->line, &k));
    k->value = p->tok->value;
    for (const tpl_node *other = kwargs->first; other; other = other->next) {
        if (other->value.len == k->value.len && memcmp(other->value.s, k->value.s, k->value.len) == 0) {
            return tpl_syntax(p, "keyword argument '%.*s' twice", (int)k->value.len, k->value.s);
        }
    }
    p->tok += 2;
    TRY(tpl_parse_expression(p, &k->a));
    TRY(hang(p, k, k->a));
    return chain_add(p, kwargs, call, k);
}

static status parse_arguments(tpl_parser *p, tpl_node *n) {
    chain args, kwargs;
    chain_begin(&args);
    chain_begin(&kwargs);
    TRY(tpl_nest(p));
    TRY(tpl_expect(p, TPL_T_LPAREN));
    for (bool comma = false; p->tok->type != TPL_T_RPAREN; comma = true) {
        if (comma) TRY(tpl_expect(p, TPL_T_COMMA));
        if (comma && p->tok->type == TPL_T_RPAREN) break;
        bool wrong = false;
        if (tpl_skip(p, TPL_T_MUL)) {
            wrong = n->call.dyn_args || n->call.dyn_kwargs;
            TRY(tpl_parse_expression(p, &n->call.dyn_args));
            TRY(hang(p, n, n->call.dyn_args));
        } else if (tpl_skip(p, TPL_T_POW)) {
            wrong = n->call.dyn_kwargs;
            TRY(tpl_parse_expression(p, &n->call.dyn_kwargs));
            TRY(hang(p, n, n->call.dyn_kwargs));
        } else if (p->tok->type == TPL_T_NAME && p->tok[1].type == TPL_T_ASSIGN) {
            wrong = n->call.dyn_kwargs;
            TRY(parse_keyword(p, n, &kwargs));
        } else {
            wrong = n->call.dyn_args || n->call.dyn_kwargs || kwargs.n;
            tpl_node *arg;
            TRY(tpl_parse_expression(p, &arg));
            TRY(chain_add(p, &args, n, arg));
        }
        if (wrong) return tpl_syntax(p, "wrong order of the arguments of a call");
    }
    p->nesting--;
    n->call.args = args.first;
    n->call.n_args = args.n;
    n->call.kwargs = kwargs.first;
    n->call.n_kwargs = kwargs.n;
    return tpl_expect(p, TPL_T_RPAREN);
}

static status parse_call(tpl_parser *p, tpl_node *callee, tpl_node **out) {
    TRY(tpl_node_new(p, TPL_N_CALL, p->tok->line, out));
    (*out)->a = callee;
    TRY(hang(p, *out, callee));
    return parse_arguments(p, *out);
}

static status optional_bound(tpl_parser *p, tpl_node *slice, tpl_node **out) {
    tpl_tok t = p->tok->type;
    if (t == TPL_T_COLON || t == TPL_T_RBRACKET || t == TPL_T_COMMA) return CHURON_OK;
    TRY(tpl_parse_expression(p, out));
    return hang(p, slice, *out);
}

/* SLICE: a, b, c = start, stop, step, each possibly NULL */
static status parse_subscript_item(tpl_parser *p, tpl_node **out) {
    tpl_node *start = NULL;
    uint32_t line = p->tok->line;
    if (p->tok->type != TPL_T_COLON) {
        TRY(tpl_parse_expression(p, &start));
        if (p->tok->type != TPL_T_COLON) {
            *out = start;
            return CHURON_OK;
        }
    }
    TRY(tpl_expect(p, TPL_T_COLON));
    TRY(tpl_node_new(p, TPL_N_SLICE, line, out));
    (*out)->a = start;
    TRY(hang(p, *out, start));
    TRY(optional_bound(p, *out, &(*out)->b));
    if (tpl_skip(p, TPL_T_COLON)) TRY(optional_bound(p, *out, &(*out)->c));
    return CHURON_OK;
}

static status parse_brackets(tpl_parser *p, tpl_node *n) {
    tpl_node *tuple;
    TRY(tpl_node_new(p, TPL_N_TUPLE, p->tok->line, &tuple));
    chain items;
    chain_begin(&items);
    bool slice = false;
    while (p->tok->type != TPL_T_RBRACKET) {
        if (items.n) TRY(tpl_expect(p, TPL_T_COMMA));
        tpl_node *item;
        TRY(parse_subscript_item(p, &item));
        slice |= item->op == TPL_N_SLICE;
        TRY(chain_add(p, &items, tuple, item));
    }
    if (slice && items.n > 1) return tpl_syntax(p, "a slice among several subscripts");
    tuple->a = items.first;
    tuple->n = items.n;
    n->b = items.n == 1 ? items.first : tuple;
    TRY(hang(p, n, n->b));
    return tpl_expect(p, TPL_T_RBRACKET);
}

static status parse_subscript(tpl_parser *p, tpl_node *object, tpl_node **out) {
    const tpl_token *t = p->tok++;
    const tpl_token *attr = p->tok;
    bool by_name = t->type == TPL_T_DOT && attr->type == TPL_T_NAME;
    TRY(tpl_node_new(p, by_name ? TPL_N_GETATTR : TPL_N_GETITEM, t->line, out));
    (*out)->a = object;
    TRY(hang(p, *out, object));
    if (t->type == TPL_T_LBRACKET) return parse_brackets(p, *out);
    if (by_name) {
        (*out)->value = attr->value;
        if (attr->value.len >= 2 && memcmp(attr->value.s, "__", 2) == 0) {
            return tpl_unsupported(p, "attribute '%.*s' is unsafe", (int)attr->value.len, attr->value.s);
        }
        p->tok++;
        return CHURON_OK;
    }
    if (attr->type != TPL_T_INTEGER) return tpl_syntax(p, "expected a name or a number after '.'");
    p->tok++;
    return constant(p, attr->line, attr->value, &(*out)->b);
}

static status parse_postfix(tpl_parser *p, tpl_node *n, tpl_node **out) {
    for (;;) {
        if (p->tok->type == TPL_T_DOT || p->tok->type == TPL_T_LBRACKET) {
            TRY(parse_subscript(p, n, &n));
        } else if (p->tok->type == TPL_T_LPAREN) {
            TRY(parse_call(p, n, &n));
        } else {
            *out = n;
            return CHURON_OK;
        }
    }
}

static status parse_dotted(tpl_parser *p, tvalue *out) {
    *out = p->tok->value;
    TRY(tpl_expect(p, TPL_T_NAME));
    if (p->tok->type == TPL_T_DOT) return tpl_unsupported(p, "a filter or test name with a dot");
    return CHURON_OK;
}

/* FILTER: a = what it is applied to (NULL: the body of a block), call = its arguments */
status tpl_parse_filters(tpl_parser *p, tpl_node *node, bool inline_start, tpl_node **out) {
    while (inline_start || p->tok->type == TPL_T_PIPE) {
        if (!inline_start) p->tok++;
        inline_start = false;
        tpl_node *n;
        TRY(tpl_node_new(p, TPL_N_FILTER, p->tok->line, &n));
        TRY(parse_dotted(p, &n->value));
        n->a = node;
        TRY(hang(p, n, node));
        if (p->tok->type == TPL_T_LPAREN) TRY(parse_arguments(p, n));
        const tpl_filter *def = tpl_filter_find(n->value);
        if (def && !def->fn)
            return tpl_unsupported(p, "filter '%.*s' is not supported", (int)n->value.len, n->value.s);
        n->call.def = def;
        node = n;
    }
    *out = node;
    return CHURON_OK;
}

static bool starts_argument(const tpl_parser *p) {
    switch ((tpl_tok)p->tok->type) {
    case TPL_T_NAME: return !tpl_at_name(p, "else") && !tpl_at_name(p, "or") && !tpl_at_name(p, "and");
    case TPL_T_STRING:
    case TPL_T_INTEGER:
    case TPL_T_FLOAT:
    case TPL_T_LBRACKET:
    case TPL_T_LBRACE: return true;
    default: return false;
    }
}

static status parse_test(tpl_parser *p, tpl_node *node, tpl_node **out) {
    uint32_t line = p->tok++->line;
    bool negated = tpl_skip_name(p, "not");
    tpl_node *n;
    TRY(tpl_node_new(p, TPL_N_TEST, line, &n));
    TRY(parse_dotted(p, &n->value));
    n->a = node;
    TRY(hang(p, n, node));
    if (p->tok->type == TPL_T_LPAREN) {
        TRY(parse_arguments(p, n));
    } else if (starts_argument(p)) {
        if (tpl_at_name(p, "is")) return tpl_syntax(p, "tests cannot be chained with 'is'");
        TRY(tpl_nest(p));
        TRY(parse_primary(p, 0, &n->call.args));
        TRY(parse_postfix(p, n->call.args, &n->call.args));
        p->nesting--;
        n->call.n_args = 1;
        TRY(hang(p, n, n->call.args));
    }
    n->call.def = tpl_test_find(n->value);
    *out = n;
    if (!negated) return CHURON_OK;
    TRY(tpl_node_new(p, TPL_N_NOT, line, out));
    (*out)->a = n;
    return hang(p, *out, n);
}

static status parse_filters_and_tests(tpl_parser *p, tpl_node *n, tpl_node **out) {
    for (;;) {
        if (p->tok->type == TPL_T_PIPE) {
            TRY(tpl_parse_filters(p, n, false, &n));
        } else if (tpl_at_name(p, "is")) {
            TRY(parse_test(p, n, &n));
        } else if (p->tok->type == TPL_T_LPAREN) {
            TRY(parse_call(p, n, &n));
        } else {
            *out = n;
            return CHURON_OK;
        }
    }
}

/* ---- operators -------------------------------------------------------------------------------------- */

static status binary(tpl_parser *p, tpl_op op, uint32_t line, tpl_node *a, tpl_node *b, tpl_node **out) {
    TRY(tpl_node_new(p, op, line, out));
    (*out)->a = a;
    (*out)->b = b;
    TRY(hang(p, *out, a));
    return hang(p, *out, b);
}

static status parse_unary(tpl_parser *p, bool with_filter, tpl_node **out) {
    tpl_tok t = p->tok->type;
    if (t == TPL_T_SUB || t == TPL_T_ADD) {
        tpl_node *n;
        TRY(tpl_node_new(p, t == TPL_T_SUB ? TPL_N_NEG : TPL_N_POS, p->tok->line, &n));
        p->tok++;
        TRY(tpl_nest(p));
        TRY(parse_unary(p, false, &n->a));
        p->nesting--;
        TRY(hang(p, n, n->a));
        *out = n;
    } else {
        TRY(parse_primary(p, 0, out));
    }
    TRY(parse_postfix(p, *out, out));
    return with_filter ? parse_filters_and_tests(p, *out, out) : CHURON_OK;
}

static status parse_power(tpl_parser *p, tpl_node **out) {
    TRY(parse_unary(p, true, out));
    for (uint32_t line = p->tok->line; tpl_skip(p, TPL_T_POW); line = p->tok->line) {
        tpl_node *right;
        TRY(parse_unary(p, true, &right));
        TRY(binary(p, TPL_N_POW, line, *out, right, out));
    }
    return CHURON_OK;
}

static status parse_product(tpl_parser *p, tpl_node **out) {
    TRY(parse_power(p, out));
    for (;;) {
        tpl_op op;
        switch ((tpl_tok)p->tok->type) {
        case TPL_T_MUL: op = TPL_N_MUL; break;
        case TPL_T_DIV: op = TPL_N_DIV; break;
        case TPL_T_FLOORDIV: op = TPL_N_FLOORDIV; break;
        case TPL_T_MOD: op = TPL_N_MOD; break;
        default: return CHURON_OK;
        }
        uint32_t line = p->tok++->line;
        tpl_node *right;
        TRY(parse_power(p, &right));
        TRY(binary(p, op, line, *out, right, out));
    }
}

static status parse_concat(tpl_parser *p, tpl_node **out) {
    tpl_node *first;
    TRY(parse_product(p, &first));
    *out = first;
    if (p->tok->type != TPL_T_TILDE) return CHURON_OK;
    TRY(tpl_node_new(p, TPL_N_CONCAT, p->tok->line, out));
    chain parts;
    chain_begin(&parts);
    TRY(chain_add(p, &parts, *out, first));
    while (tpl_skip(p, TPL_T_TILDE)) {
        tpl_node *part;
        TRY(parse_product(p, &part));
        TRY(chain_add(p, &parts, *out, part));
    }
    (*out)->a = parts.first;
    (*out)->n = parts.n;
    return CHURON_OK;
}

static status parse_sum(tpl_parser *p, tpl_node **out) {
    TRY(parse_concat(p, out));
    while (p->tok->type == TPL_T_ADD || p->tok->type == TPL_T_SUB) {
        tpl_op op = p->tok->type == TPL_T_ADD ? TPL_N_ADD : TPL_N_SUB;
        uint32_t line = p->tok++->line;
        tpl_node *right;
        TRY(parse_concat(p, &right));
        TRY(binary(p, op, line, *out, right, out));
    }
    return CHURON_OK;
}

static bool comparison(tpl_parser *p, tpl_cmp *op) {
    switch ((tpl_tok)p->tok->type) {
    case TPL_T_EQ: *op = TPL_EQ; break;
    case TPL_T_NE: *op = TPL_NE; break;
    case TPL_T_LT: *op = TPL_LT; break;
    case TPL_T_LE: *op = TPL_LE; break;
    case TPL_T_GT: *op = TPL_GT; break;
    case TPL_T_GE: *op = TPL_GE; break;
    default:
        if (tpl_at_name(p, "in")) {
            *op = TPL_IN;
            break;
        }
        if (!tpl_at_name(p, "not") || p->tok[1].type != TPL_T_NAME || !tpl_str_is(p->tok[1].value, "in"))
            return false;
        p->tok++;
        *op = TPL_NOT_IN;
    }
    p->tok++;
    return true;
}

/* COMPARE: a = the first operand, b = OPERANDs (sub = comparison, a = operand) */
static status parse_comparison(tpl_parser *p, tpl_node **out) {
    tpl_node *first;
    TRY(parse_sum(p, &first));
    *out = first;
    chain operands;
    chain_begin(&operands);
    tpl_node *n = NULL;
    for (tpl_cmp op;;) {
        uint32_t line = p->tok->line;
        if (!comparison(p, &op)) break;
        if (!n) {
            TRY(tpl_node_new(p, TPL_N_COMPARE, line, &n));
            n->a = first;
            TRY(hang(p, n, first));
        }
        tpl_node *operand;
        TRY(tpl_node_new(p, TPL_N_OPERAND, line, &operand));
        operand->sub = (uint8_t)op;
        TRY(parse_sum(p, &operand->a));
        TRY(hang(p, operand, operand->a));
        TRY(chain_add(p, &operands, n, operand));
    }
    if (n) {
        n->b = operands.first;
        *out = n;
    }
    return CHURON_OK;
}

static status parse_not(tpl_parser *p, tpl_node **out) {
    if (!tpl_at_name(p, "not")) return parse_comparison(p, out);
    tpl_node *n;
    TRY(tpl_node_new(p, TPL_N_NOT, p->tok->line, &n));
    p->tok++;
    TRY(tpl_nest(p));
    TRY(parse_not(p, &n->a));
    p->nesting--;
    *out = n;
    return hang(p, n, n->a);
}

static status parse_and(tpl_parser *p, tpl_node **out) {
    TRY(parse_not(p, out));
    for (uint32_t line = p->tok->line; tpl_skip_name(p, "and"); line = p->tok->line) {
        tpl_node *right;
        TRY(parse_not(p, &right));
        TRY(binary(p, TPL_N_AND, line, *out, right, out));
    }
    return CHURON_OK;
}

static status parse_or(tpl_parser *p, tpl_node **out) {
    TRY(tpl_nest(p));
    TRY(parse_and(p, out));
    for (uint32_t line = p->tok->line; tpl_skip_name(p, "or"); line = p->tok->line) {
        tpl_node *right;
        TRY(parse_and(p, &right));
        TRY(binary(p, TPL_N_OR, line, *out, right, out));
    }
    p->nesting--;
    return CHURON_OK;
}

/* COND: a = test, b = when true, c = when false or NULL */
static status parse_condition(tpl_parser *p, tpl_node **out) {
    TRY(parse_or(p, out));
    for (uint32_t line = p->tok->line; tpl_skip_name(p, "if"); line = p->tok->line) {
        tpl_node *n;
        TRY(tpl_node_new(p, TPL_N_COND, line, &n));
        n->b = *out;
        TRY(hang(p, n, n->b));
        TRY(parse_or(p, &n->a));
        TRY(hang(p, n, n->a));
        if (tpl_skip_name(p, "else")) {
            TRY(tpl_nest(p));
            TRY(parse_condition(p, &n->c));
            p->nesting--;
            TRY(hang(p, n, n->c));
        }
        *out = n;
    }
    return CHURON_OK;
}

status tpl_parse_expression(tpl_parser *p, tpl_node **out) {
    return parse_condition(p, out);
}

/* ---- targets ---------------------------------------------------------------------------------------- */

/* Turns an expression into what is assigned to; false: it cannot be. */
static bool make_target(tpl_node *n) {
    switch ((tpl_op)n->op) {
    case TPL_N_NAME: n->sub = TPL_STORE; return true;
    case TPL_N_NSREF: return true;
    case TPL_N_TUPLE:
        for (tpl_node *item = n->a; item; item = item->next) {
            if (!make_target(item)) return false;
        }
        return true;
    default: return false;
    }
}

status tpl_parse_target(tpl_parser *p, unsigned how, tpl_node **out) {
    TRY(tpl_parse_tuple(p, how | TPL_SIMPLE, out));
    return make_target(*out) ? CHURON_OK : tpl_syntax(p, "cannot assign to this expression");
}

status tpl_parse_target_name(tpl_parser *p, tpl_node **out) {
    const tpl_token *t = p->tok;
    tvalue v;
    TRY(tpl_expect(p, TPL_T_NAME));
    if (constant_name(t->value, &v)) {
        p->tok = t;
        return tpl_syntax(p, "cannot assign to '%.*s'", (int)t->value.len, t->value.s);
    }
    TRY(tpl_node_new(p, TPL_N_NAME, t->line, out));
    (*out)->value = t->value;
    (*out)->sub = TPL_STORE;
    return CHURON_OK;
}

/* template_parse.c: statements to trees, and template_parse itself. */
#include "text/template_internal.h"

#include <string.h>

/* ---- bodies ----------------------------------------------------------------------------------------- */

static status parse_statement(tpl_parser *p, tpl_node **out);

/* Statements up to a tag that begins with one of `ends` (NULL-terminated; NULL: up to the end of the
 * template). The parser then stands at that name. */
static status parse_until(tpl_parser *p, const char *const *ends, tpl_node **body) {
    tpl_node **end = body;
    *body = NULL;
    while (p->tok->type != TPL_T_EOF) {
        tpl_node *n = NULL;
        uint32_t line = p->tok->line;
        switch ((tpl_tok)p->tok->type) {
        case TPL_T_DATA:
            TRY(tpl_node_new(p, TPL_N_DATA, line, &n));
            n->value = p->tok++->value;
            break;
        case TPL_T_VARIABLE_BEGIN:
            p->tok++;
            TRY(tpl_node_new(p, TPL_N_OUTPUT, line, &n));
            TRY(tpl_parse_tuple(p, 0, &n->a));
            TRY(tpl_expect(p, TPL_T_VARIABLE_END));
            break;
        default:
            TRY(tpl_expect(p, TPL_T_BLOCK_BEGIN));
            for (size_t i = 0; ends && ends[i]; i++) {
                if (tpl_at_name(p, ends[i])) return CHURON_OK;
            }
            TRY(parse_statement(p, &n));
            TRY(tpl_expect(p, TPL_T_BLOCK_END));
        }
        *end = n;
        while (*end) end = &(*end)->next; /* {% print a, b %} is several */
    }
    return ends ? tpl_syntax(p, "unexpected end of the template, expected '%s'", ends[0]) : CHURON_OK;
}

status tpl_parse_body(tpl_parser *p, tpl_node **body) {
    return parse_until(p, NULL, body);
}

/* The rest of an opening tag, and its body. */
static status parse_block(tpl_parser *p, const char *const *ends, tpl_node **body) {
    (void)tpl_skip(p, TPL_T_COLON);
    TRY(tpl_expect(p, TPL_T_BLOCK_END));
    TRY(tpl_nest(p));
    TRY(parse_until(p, ends, body));
    p->nesting--;
    return CHURON_OK;
}

static status parse_block_to(tpl_parser *p, const char *end, tpl_node **body) {
    const char *const ends[] = {end, NULL};
    TRY(parse_block(p, ends, body));
    p->tok++;
    return CHURON_OK;
}

/* ---- statements ------------------------------------------------------------------------------------- */

/* SET: a = target, b = value. SETBLOCK: a = target, b = filter or NULL, c = body */
static status parse_set(tpl_parser *p, uint32_t line, tpl_node **out) {
    tpl_node *target;
    TRY(tpl_parse_target(p, TPL_NSREFS, &target));
    bool simple = tpl_skip(p, TPL_T_ASSIGN);
    TRY(tpl_node_new(p, simple ? TPL_N_SET : TPL_N_SETBLOCK, line, out));
    (*out)->a = target;
    if (simple) return tpl_parse_tuple(p, 0, &(*out)->b);
    TRY(tpl_parse_filters(p, NULL, false, &(*out)->b));
    return parse_block_to(p, "endset", &(*out)->c);
}

/* FOR: a = target, b = what is iterated, c = filter or NULL, d = body, e = else; sub = recursive */
static status parse_for(tpl_parser *p, uint32_t line, tpl_node **out) {
    static const char *const ends[] = {"endfor", "else", NULL};
    tpl_node *n;
    TRY(tpl_node_new(p, TPL_N_FOR, line, &n));
    TRY(tpl_parse_target(p, TPL_UNTIL_IN, &n->a));
    if (!tpl_skip_name(p, "in")) return tpl_syntax(p, "expected 'in', got %s", tpl_token_name(p->tok->type));
    TRY(tpl_parse_tuple(p, TPL_NO_COND | TPL_UNTIL_RECURSIVE, &n->b));
    if (tpl_skip_name(p, "if")) TRY(tpl_parse_expression(p, &n->c));
    n->sub = tpl_skip_name(p, "recursive");
    TRY(parse_block(p, ends, &n->d));
    if (tpl_skip_name(p, "else")) {
        TRY(parse_block_to(p, "endfor", &n->e));
    } else {
        p->tok++;
    }
    *out = n;
    return CHURON_OK;
}

/* IF: a = test, b = body, c = the IFs of its elifs, d = else */
static status parse_if(tpl_parser *p, uint32_t line, tpl_node **out) {
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    tpl_node *whole, **elif;
    TRY(tpl_node_new(p, TPL_N_IF, line, &whole));
    elif = &whole->c;
    for (tpl_node *n = whole;;) {
        TRY(tpl_parse_tuple(p, TPL_NO_COND, &n->a));
        TRY(parse_block(p, ends, &n->b));
        if (tpl_at_name(p, "elif")) {
            uint32_t at = p->tok++->line;
            TRY(tpl_node_new(p, TPL_N_IF, at, &n));
            *elif = n;
            elif = &n->next;
            continue;
        }
        if (tpl_skip_name(p, "else")) {
            TRY(parse_block_to(p, "endif", &whole->d));
        } else {
            p->tok++;
        }
        break;
    }
    *out = whole;
    return CHURON_OK;
}

/* Parameters of a macro or a call block: b = names (sub PARAM), c = defaults of the last ones; n = how many
 * names */
static status parse_signature(tpl_parser *p, tpl_node *n) {
    tpl_node **arg = &n->b, **def = &n->c;
    TRY(tpl_expect(p, TPL_T_LPAREN));
    while (p->tok->type != TPL_T_RPAREN) {
        if (n->n) TRY(tpl_expect(p, TPL_T_COMMA));
        TRY(tpl_parse_target_name(p, arg));
        (*arg)->sub = TPL_PARAM;
        for (const tpl_node *other = n->b; other != *arg; other = other->next) {
            if (other->value.len == (*arg)->value.len &&
                memcmp(other->value.s, (*arg)->value.s, other->value.len) == 0) {
                return tpl_syntax(p, "parameter '%.*s' twice", (int)other->value.len, other->value.s);
            }
        }
        if (tpl_skip(p, TPL_T_ASSIGN)) {
            TRY(tpl_parse_expression(p, def));
            def = &(*def)->next;
        } else if (n->c) {
            return tpl_syntax(p, "a parameter without default after one with");
        }
        arg = &(*arg)->next;
        if (++n->n > 255) return tpl_unsupported(p, "more than 255 parameters");
    }
    p->tok++;
    return CHURON_OK;
}

/* MACRO: value = name, a = the name as target, b and c = signature, d = body */
static status parse_macro(tpl_parser *p, uint32_t line, tpl_node **out) {
    TRY(tpl_node_new(p, TPL_N_MACRO, line, out));
    TRY(tpl_parse_target_name(p, &(*out)->a));
    (*out)->value = (*out)->a->value;
    TRY(parse_signature(p, *out));
    return parse_block_to(p, "endmacro", &(*out)->d);
}

/* CALLBLOCK: a = the CALL, b and c = signature, d = body */
static status parse_call_block(tpl_parser *p, uint32_t line, tpl_node **out) {
    TRY(tpl_node_new(p, TPL_N_CALLBLOCK, line, out));
    if (p->tok->type == TPL_T_LPAREN) TRY(parse_signature(p, *out));
    TRY(tpl_parse_expression(p, &(*out)->a));
    if ((*out)->a->op != TPL_N_CALL) return tpl_syntax(p, "expected a call after 'call'");
    return parse_block_to(p, "endcall", &(*out)->d);
}

/* FILTERBLOCK: b = filter, c = body */
static status parse_filter_block(tpl_parser *p, uint32_t line, tpl_node **out) {
    TRY(tpl_node_new(p, TPL_N_FILTERBLOCK, line, out));
    TRY(tpl_parse_filters(p, NULL, true, &(*out)->b));
    return parse_block_to(p, "endfilter", &(*out)->c);
}

static void make_parameter(tpl_node *n) {
    n->sub = TPL_PARAM;
    if (n->op != TPL_N_TUPLE) return;
    for (tpl_node *item = n->a; item; item = item->next) make_parameter(item);
}

/* WITH: a = targets, b = values, d = body */
static status parse_with(tpl_parser *p, uint32_t line, tpl_node **out) {
    TRY(tpl_node_new(p, TPL_N_WITH, line, out));
    tpl_node **target = &(*out)->a, **value = &(*out)->b;
    while (p->tok->type != TPL_T_BLOCK_END) {
        if ((*out)->a) TRY(tpl_expect(p, TPL_T_COMMA));
        TRY(tpl_parse_target(p, 0, target));
        make_parameter(*target);
        target = &(*target)->next;
        TRY(tpl_expect(p, TPL_T_ASSIGN));
        TRY(tpl_parse_expression(p, value));
        value = &(*value)->next;
    }
    return parse_block_to(p, "endwith", &(*out)->d);
}

static status parse_print(tpl_parser *p, uint32_t line, tpl_node **out) {
    *out = NULL;
    for (tpl_node **end = out; p->tok->type != TPL_T_BLOCK_END; end = &(*end)->next) {
        if (*out) TRY(tpl_expect(p, TPL_T_COMMA));
        TRY(tpl_node_new(p, TPL_N_OUTPUT, line, end));
        TRY(tpl_parse_expression(p, &(*end)->a));
    }
    return CHURON_OK;
}

static status parse_generation(tpl_parser *p, uint32_t line, tpl_node **out) {
    TRY(tpl_node_new(p, TPL_N_GENERATION, line, out));
    return parse_block_to(p, "endgeneration", &(*out)->d);
}

static status parse_break(tpl_parser *p, uint32_t line, tpl_node **out) {
    return tpl_node_new(p, TPL_N_BREAK, line, out);
}

static status parse_continue(tpl_parser *p, uint32_t line, tpl_node **out) {
    return tpl_node_new(p, TPL_N_CONTINUE, line, out);
}

static const struct {
    const char *name;
    status (*parse)(tpl_parser *p, uint32_t line, tpl_node **out); /* NULL: refused */
} STATEMENTS[] = {
    {"if", parse_if},
    {"set", parse_set},
    {"for", parse_for},
    {"macro", parse_macro},
    {"generation", parse_generation},
    {"break", parse_break},
    {"continue", parse_continue},
    {"call", parse_call_block},
    {"filter", parse_filter_block},
    {"with", parse_with},
    {"print", parse_print},
    {"block", NULL},
    {"extends", NULL},
    {"include", NULL},
    {"from", NULL},
    {"import", NULL},
    {"autoescape", NULL},
};

static status parse_statement(tpl_parser *p, tpl_node **out) {
    if (p->tok->type != TPL_T_NAME)
        return tpl_syntax(p, "expected the name of a tag, got %s", tpl_token_name(p->tok->type));
    for (size_t i = 0; i < sizeof STATEMENTS / sizeof STATEMENTS[0]; i++) {
        if (!tpl_at_name(p, STATEMENTS[i].name)) continue;
        if (!STATEMENTS[i].parse)
            return tpl_unsupported(p, "tag '%s' is not supported in a chat template", STATEMENTS[i].name);
        uint32_t line = p->tok++->line;
        return STATEMENTS[i].parse(p, line, out);
    }
    return tpl_syntax(p, "unknown tag '%.*s'", (int)(p->tok->value.len > 60 ? 60 : p->tok->value.len),
                      p->tok->value.s);
}

/* ---- the template ----------------------------------------------------------------------------------- */

void template_free(template *t) {
    if (!t) return;
    tarena_free(t->arena);
    mem_free(t);
}

status template_parse(template **out, const char *source, size_t len, error *err) {
    *out = NULL;
    tpl_tokens tokens = {0};
    status st = CHURON_OK;
    template *t = mem_calloc(1, sizeof *t);
    if (!t || !(t->arena = tpl_arena_new(TPL_MAX_MEMORY))) {
        st = error_no_memory(err, "template", sizeof *t);
        goto cleanup;
    }
    TRY_GOTO(tpl_lex(&tokens, t->arena, source, len, err));
    tpl_parser p = {.arena = t->arena, .tok = tokens.v, .err = err};
    TRY_GOTO(tpl_parse_body(&p, &t->body));
    TRY_GOTO(tpl_resolve(t, err));
    *out = t;
    t = NULL;
cleanup:
    template_free(t);
    mem_free(tokens.v);
    return st;
}

/* template_lex.c: template source to tokens, as Jinja2's lexer does it with trim_blocks and lstrip_blocks:
 * the newline after a block or comment goes, and so does the white space between the start of a line and one;
 * `-` takes all white space on its side, `+` keeps it. */
#include "text/template_internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct lexer {
    tarena *arena;
    tpl_tokens *out;
    const char *src, *at, *end;
    uint32_t line;
    bool line_starting; /* the last thing matched ended with a newline, or nothing was matched yet */
    error *err;
} lexer;

static status lex_error(lexer *l, const char *fmt, ...) PRINTF_LIKE(2, 3);
static status lex_error(lexer *l, const char *fmt, ...) {
    char text[200];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return error_set(l->err, CHURON_INVALID, "line %u: %s", l->line, text);
}

static status no_memory(lexer *l) {
    if (l->arena->over)
        return error_set(l->err, CHURON_LIMIT, "template: more than %zu bytes of memory", TPL_MAX_MEMORY);
    return error_no_memory(l->err, "template", sizeof(tpl_token));
}

static status add(lexer *l, tpl_tok type, uint32_t line, tvalue value) {
    tpl_tokens *t = l->out;
    if (t->n == t->cap) {
        size_t cap = t->cap ? t->cap * 2 : 256;
        tpl_token *grown = mem_realloc(t->v, cap * sizeof *grown);
        if (!grown) return error_no_memory(l->err, "template tokens", cap * sizeof *grown);
        t->v = grown;
        t->cap = cap;
    }
    t->v[t->n++] = (tpl_token){.type = (uint8_t)type, .line = line, .value = value};
    return CHURON_OK;
}

static bool starts(const lexer *l, const char *p, const char *z) {
    size_t n = strlen(z);
    return (size_t)(l->end - p) >= n && memcmp(p, z, n) == 0;
}

static const char *skip_space(const lexer *l, const char *p) {
    while (p < l->end) {
        size_t n;
        if (!tpl_cp_space(tpl_cp_at(p, l->end, &n))) break;
        p += n;
    }
    return p;
}

/* Moves to `to`, counting lines. */
static void advance(lexer *l, const char *to) {
    for (const char *p = l->at; p < to; p++) l->line += *p == '\n';
    if (to > l->at) l->line_starting = to[-1] == '\n';
    l->at = to;
}

/* The end tag `%}` or `#}` at p, with what it takes along; NULL when there is none. */
static const char *match_end(const lexer *l, const char *p, const char *tag) {
    if (p < l->end && *p == '+' && starts(l, p + 1, tag)) return p + 3;
    if (p < l->end && *p == '-' && starts(l, p + 1, tag)) return skip_space(l, p + 3);
    if (!starts(l, p, tag)) return NULL;
    p += 2;
    return p < l->end && *p == '\n' ? p + 1 : p;
}

/* `{% raw %}` at p: its end, or NULL. */
static const char *match_raw(const lexer *l, const char *p) {
    if (!starts(l, p, "{%")) return NULL;
    p += 2;
    if (p < l->end && (*p == '-' || *p == '+')) p++;
    p = skip_space(l, p);
    if (!starts(l, p, "raw")) return NULL;
    p = skip_space(l, p + 3);
    if (starts(l, p, "-%}")) return skip_space(l, p + 3);
    return starts(l, p, "%}") ? p + 2 : NULL;
}

static const char *match_endraw(const lexer *l, const char *p) {
    if (!starts(l, p, "{%")) return NULL;
    p += 2;
    if (p < l->end && (*p == '-' || *p == '+')) p++;
    p = skip_space(l, p);
    return starts(l, p, "endraw") ? match_end(l, skip_space(l, p + 6), "%}") : NULL;
}

/* The text [from, to) before a tag whose first character after `{%` is `sign`. */
static status add_data(lexer *l, const char *from, const char *to, char sign, bool variable) {
    const char *keep = to;
    if (sign == '-') {
        tvalue text = {.kind = TPL_STRING, .len = (uint32_t)(to - from), .s = from};
        keep = from + tpl_strip(text, NULL, false, true).len;
    } else if (sign != '+' && !variable) {
        const char *line = to;
        while (line > from && line[-1] != '\n') line--;
        if ((line > from || l->line_starting) && skip_space(l, line) >= to) keep = line;
    }
    if (keep > from) TRY(add(l, TPL_T_DATA, l->line, tpl_view(from, (size_t)(keep - from), 0)));
    return CHURON_OK;
}

/* ---- inside a tag ----------------------------------------------------------------------------------- */

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

static bool is_name_start(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

/* (\d+_)*\d+ at p: its end, or p. */
static const char *match_digits(const lexer *l, const char *p) {
    if (p >= l->end || !is_digit(*p)) return p;
    while (p < l->end && (is_digit(*p) || (*p == '_' && p + 1 < l->end && is_digit(p[1])))) p++;
    return p;
}

static const char *match_float(const lexer *l, const char *p) {
    if (p > l->src && p[-1] == '.') return NULL;
    const char *q = match_digits(l, p);
    if (q == p) return NULL;
    const char *whole = q;
    if (q + 1 < l->end && *q == '.' && is_digit(q[1])) q = match_digits(l, q + 1);
    const char *mantissa = q;
    if (q < l->end && (*q == 'e' || *q == 'E')) {
        q++;
        if (q < l->end && (*q == '+' || *q == '-')) q++;
        const char *exponent = match_digits(l, q);
        if (exponent > q) return exponent;
    }
    return mantissa > whole ? mantissa : NULL;
}

static int digit_value(char c) {
    if (is_digit(c)) return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return 99;
}

/* digits of `base`, one underscore allowed before each */
static const char *match_base(const lexer *l, const char *p, int base) {
    for (;;) {
        const char *q = p < l->end && *p == '_' ? p + 1 : p;
        if (q >= l->end || digit_value(*q) >= base) return p;
        p = q + 1;
    }
}

static const char *match_integer(const lexer *l, const char *p, int *base, const char **digits) {
    *base = 10;
    *digits = p;
    if (p + 1 < l->end && *p == '0') {
        char c = p[1] | 0x20;
        int b = c == 'b' ? 2 : c == 'o' ? 8 : c == 'x' ? 16 : 0;
        if (b) {
            const char *q = match_base(l, p + 2, b);
            if (q > p + 2) {
                *base = b;
                *digits = p + 2;
                return q;
            }
        }
    }
    return *p == '0' ? match_base(l, p, 1) : match_base(l, p, 10);
}

static status lex_number(lexer *l, bool *found) {
    *found = true;
    const char *p = l->at, *end = match_float(l, p);
    uint32_t line = l->line;
    if (end) {
        double f;
        tvalue text = {.kind = TPL_STRING, .len = (uint32_t)(end - p), .s = p};
        if (!tpl_float_parse(text, &f) || !isfinite(f)) {
            return lex_error(l, "number %.*s is out of range", (int)(end - p > 40 ? 40 : end - p), p);
        }
        advance(l, end);
        return add(l, TPL_T_FLOAT, line, tpl_float(f));
    }
    if (!is_digit(*p)) {
        *found = false;
        return CHURON_OK;
    }
    int base;
    const char *digits;
    end = match_integer(l, p, &base, &digits);
    int64_t v = 0;
    for (; digits < end; digits++) {
        if (*digits == '_') continue;
        int d = digit_value(*digits);
        if (v > (INT64_MAX - d) / base) {
            return error_set(l->err, CHURON_UNSUPPORTED, "line %u: integer %.*s has more than 64 bits", line,
                             (int)(end - p > 40 ? 40 : end - p), p);
        }
        v = v * base + d;
    }
    advance(l, end);
    return add(l, TPL_T_INTEGER, line, tpl_int(v));
}

/* The value of `n` digits at p, or -1. */
static int64_t escape_digits(const char *p, const char *end, size_t n, int base) {
    int64_t v = 0;
    for (size_t i = 0; i < n; i++) {
        if (p + i >= end || digit_value(p[i]) >= base) return -1;
        v = v * base + digit_value(p[i]);
    }
    return v;
}

/* One escape at p (after the backslash); returns its end. *cp -1: a line end, which stands for nothing;
 * -2: no escape (the backslash stays); -3: broken. */
static const char *read_escape(const char *p, const char *end, int64_t *cp) {
    static const char letters[] = "\\'\"abfnrtv", values[] = "\\'\"\a\b\f\n\r\t\v";
    char c = *p;
    const char *letter = c ? strchr(letters, c) : NULL;
    if (letter) {
        *cp = values[letter - letters];
        return p + 1;
    }
    if (c == '\n') {
        *cp = -1;
        return p + 1;
    }
    if (c >= '0' && c <= '7') {
        size_t n = 1;
        while (n < 3 && p + n < end && p[n] >= '0' && p[n] <= '7') n++;
        *cp = escape_digits(p, end, n, 8);
        return p + n;
    }
    size_t n = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (n) {
        *cp = escape_digits(p + 1, end, n, 16);
        if (*cp < 0 || *cp > 0x10ffff) *cp = -3;
        return p + 1 + n;
    }
    *cp = c == 'N' ? -3 : -2;
    return p;
}

/* A backslash before a character that is not ASCII: Python sees the escape of that character in its place. */
static size_t escaped_character(const char *p, const char *end, char *to) {
    static const char hex[] = "0123456789abcdef";
    size_t n;
    uint32_t cp = tpl_cp_at(p, end, &n);
    int digits = cp <= 0xff ? 2 : cp <= 0xffff ? 4 : 8;
    to[0] = '\\';
    to[1] = digits == 2 ? 'x' : digits == 4 ? 'u' : 'U';
    for (int i = 0; i < digits; i++) to[2 + i] = hex[cp >> (4 * (digits - 1 - i)) & 15];
    return (size_t)digits + 2;
}

static status unescape(lexer *l, const char *p, const char *end, tvalue *out) {
    if (!memchr(p, '\\', (size_t)(end - p))) {
        *out = tpl_view(p, (size_t)(end - p), 0);
        return CHURON_OK;
    }
    size_t room = (size_t)(end - p) * 3 + 16, n = 0; /* 3 > 10/4, the most that escaped_character makes */
    char *to = tpl_text(l->arena, room);
    if (!to) return no_memory(l);
    while (p < end) {
        if (*p != '\\') {
            to[n++] = *p++;
            continue;
        }
        p++;
        if ((unsigned char)*p >= 0x80) {
            size_t skip;
            (void)tpl_cp_at(p, end, &skip);
            n += escaped_character(p, end, to + n);
            p += skip;
            continue;
        }
        int64_t cp;
        p = read_escape(p, end, &cp);
        if (cp == -3) return lex_error(l, "a string has an escape that is not supported or broken");
        if (cp >= 0xd800 && cp <= 0xdfff) return lex_error(l, "a string has half of a surrogate pair");
        if (cp == -2) to[n++] = '\\';
        if (cp >= 0) n += utf8_encode((uint32_t)cp, to + n);
    }
    tpl_text_shrink(l->arena, to, room, n);
    *out = tpl_view(to, n, 0);
    return CHURON_OK;
}

static status lex_string(lexer *l) {
    char quote = *l->at;
    const char *p = l->at + 1;
    while (p < l->end && *p != quote) p += *p == '\\' ? 2 : 1;
    if (p >= l->end) return lex_error(l, "a string has no end");
    tvalue v;
    TRY(unescape(l, l->at + 1, p, &v));
    uint32_t line = l->line;
    advance(l, p + 1);
    return add(l, TPL_T_STRING, line, v);
}

static const struct {
    char text[3];
    uint8_t type;
} OPERATORS[] = {
    {"//", TPL_T_FLOORDIV}, {"**", TPL_T_POW},      {"==", TPL_T_EQ},    {"!=", TPL_T_NE},
    {">=", TPL_T_GE},       {"<=", TPL_T_LE},       {"+", TPL_T_ADD},    {"-", TPL_T_SUB},
    {"/", TPL_T_DIV},       {"*", TPL_T_MUL},       {"%", TPL_T_MOD},    {"~", TPL_T_TILDE},
    {"[", TPL_T_LBRACKET},  {"]", TPL_T_RBRACKET},  {"(", TPL_T_LPAREN}, {")", TPL_T_RPAREN},
    {"{", TPL_T_LBRACE},    {"}", TPL_T_RBRACE},    {">", TPL_T_GT},     {"<", TPL_T_LT},
    {"=", TPL_T_ASSIGN},    {".", TPL_T_DOT},       {":", TPL_T_COLON},  {"|", TPL_T_PIPE},
    {",", TPL_T_COMMA},     {";", TPL_T_SEMICOLON},
};

typedef struct brackets {
    char open[TPL_MAX_NESTING]; /* the closing ones that are awaited */
    size_t n;
} brackets;

static status lex_operator(lexer *l, brackets *b) {
    size_t i = 0, count = sizeof OPERATORS / sizeof OPERATORS[0];
    while (i < count && !starts(l, l->at, OPERATORS[i].text)) i++;
    if (i == count) {
        size_t n;
        uint32_t cp = tpl_cp_at(l->at, l->end, &n);
        status code =
            cp < 0x80 ? CHURON_INVALID : CHURON_UNSUPPORTED; /* Jinja2 allows names of other letters */
        return error_set(l->err, code, "line %u: unexpected character U+%04X in an expression", l->line,
                         (unsigned)cp);
    }
    char c = *l->at;
    char close = c == '{' ? '}' : c == '(' ? ')' : c == '[' ? ']' : '\0';
    if (close) {
        if (b->n == sizeof b->open) {
            return error_set(l->err, CHURON_LIMIT, "line %u: brackets nested deeper than %d", l->line,
                             TPL_MAX_NESTING);
        }
        b->open[b->n++] = close;
    }
    if (c == '}' || c == ')' || c == ']') {
        if (b->n == 0) return lex_error(l, "unexpected '%c'", c);
        if (b->open[--b->n] != c) return lex_error(l, "unexpected '%c', expected '%c'", c, b->open[b->n]);
    }
    uint32_t line = l->line;
    advance(l, l->at + strlen(OPERATORS[i].text));
    return add(l, OPERATORS[i].type, line, tpl_none());
}

/* Tokens up to the end of the tag, or to the end of the source: the parser reports that. */
static status lex_tag(lexer *l, bool block) {
    brackets b = {.n = 0};
    while (l->at < l->end) {
        if (b.n == 0) {
            const char *end = NULL;
            if (block) {
                end = match_end(l, l->at, "%}");
            } else if (starts(l, l->at, "}}")) {
                end = l->at + 2;
            } else if (starts(l, l->at, "-}}")) {
                end = skip_space(l, l->at + 3);
            }
            if (end) {
                TRY(add(l, block ? TPL_T_BLOCK_END : TPL_T_VARIABLE_END, l->line, tpl_none()));
                advance(l, end);
                return CHURON_OK;
            }
        }
        const char *p = skip_space(l, l->at);
        if (p > l->at) {
            advance(l, p);
            continue;
        }
        bool number;
        TRY(lex_number(l, &number));
        if (number) continue;
        if (is_name_start(*p)) {
            while (p < l->end && (is_name_start(*p) || is_digit(*p))) p++;
            if (p < l->end && (unsigned char)*p >= 0x80)
                return error_set(l->err, CHURON_UNSUPPORTED,
                                 "line %u: a name has a character that is not ASCII", l->line);
            TRY(add(l, TPL_T_NAME, l->line, tpl_view(l->at, (size_t)(p - l->at), TPL_ASCII)));
            advance(l, p);
        } else if (*p == '"' || *p == '\'') {
            TRY(lex_string(l));
        } else {
            TRY(lex_operator(l, &b));
        }
    }
    return CHURON_OK;
}

/* ---- outside of tags -------------------------------------------------------------------------------- */

static status lex_comment(lexer *l) {
    for (const char *p = l->at; p < l->end; p++) {
        const char *end = match_end(l, p, "#}");
        if (end) {
            advance(l, end);
            return CHURON_OK;
        }
    }
    return lex_error(l, "a comment has no end");
}

static status lex_raw(lexer *l) {
    for (const char *p = l->at; p < l->end; p++) {
        const char *end = match_endraw(l, p);
        if (!end) continue;
        TRY(add_data(l, l->at, p, p[2], false));
        advance(l, end);
        return CHURON_OK;
    }
    return lex_error(l, "a raw block has no end");
}

static status lex_all(lexer *l) {
    while (l->at < l->end) {
        const char *p = l->at;
        while (p < l->end && !(*p == '{' && p + 1 < l->end && (p[1] == '{' || p[1] == '%' || p[1] == '#')))
            p++;
        if (p == l->end) {
            TRY(add(l, TPL_T_DATA, l->line, tpl_view(l->at, (size_t)(p - l->at), 0)));
            advance(l, p);
            break;
        }
        char kind = p[1], sign = p + 2 < l->end ? p[2] : '\0';
        TRY(add_data(l, l->at, p, sign, kind == '{'));
        const char *raw = match_raw(l, p);
        if (raw) {
            advance(l, raw);
            TRY(lex_raw(l));
            continue;
        }
        advance(l, p);
        uint32_t line = l->line;
        advance(l, p + 2 + (sign == '-' || sign == '+'));
        if (kind == '#') {
            TRY(lex_comment(l));
            continue;
        }
        TRY(add(l, kind == '{' ? TPL_T_VARIABLE_BEGIN : TPL_T_BLOCK_BEGIN, line, tpl_none()));
        TRY(lex_tag(l, kind == '%'));
    }
    return add(l, TPL_T_EOF, l->line, tpl_none());
}

/* A copy with \n for every kind of line end, without one at the very end. */
static char *normalized(tarena *a, const char *source, size_t len, size_t *n) {
    char *to = tpl_text(a, len ? len : 1);
    if (!to) return NULL;
    size_t k = 0;
    for (size_t i = 0; i < len; i++) {
        if (source[i] == '\r') {
            to[k++] = '\n';
            if (i + 1 < len && source[i + 1] == '\n') i++;
        } else {
            to[k++] = source[i];
        }
    }
    if (k && to[k - 1] == '\n') k--;
    *n = k;
    return to;
}

status tpl_lex(tpl_tokens *out, tarena *arena, const char *source, size_t len, error *err) {
    if (len > TPL_MAX_SOURCE) {
        return error_set(err, CHURON_LIMIT, "template: %zu bytes, at most %zu", len, TPL_MAX_SOURCE);
    }
    size_t good = utf8_validate(source, len);
    if (good != len) {
        return error_set(err, CHURON_INVALID, "template: expected UTF-8, got byte 0x%02X at offset %zu",
                         (unsigned)(unsigned char)source[good], good);
    }
    lexer l = {.arena = arena, .out = out, .line = 1, .line_starting = true, .err = err};
    size_t n = 0;
    l.src = normalized(arena, source, len, &n);
    if (!l.src) return no_memory(&l);
    l.at = l.src;
    l.end = l.src + n;
    return lex_all(&l);
}

const char *tpl_token_name(tpl_tok type) {
    switch (type) {
    case TPL_T_EOF: return "the end of the template";
    case TPL_T_DATA: return "text";
    case TPL_T_VARIABLE_BEGIN: return "'{{'";
    case TPL_T_VARIABLE_END: return "'}}'";
    case TPL_T_BLOCK_BEGIN: return "'{%'";
    case TPL_T_BLOCK_END: return "'%}'";
    case TPL_T_NAME: return "a name";
    case TPL_T_STRING: return "a string";
    case TPL_T_INTEGER: return "an integer";
    case TPL_T_FLOAT: return "a number";
    default: break;
    }
    for (size_t i = 0; i < sizeof OPERATORS / sizeof OPERATORS[0]; i++) {
        if (OPERATORS[i].type == type) return OPERATORS[i].text;
    }
    return "?";
}

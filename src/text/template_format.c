/* template_format.c: "..." % values, and "...".format(values), with the formats that Python defines for
 * strings, integers and floats. Rare ones (locale-aware numbers, zero padding with grouping) are refused. */
#include "text/template_internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_PRECISION = 100 };

/* ---- common ----------------------------------------------------------------------------------------- */

/* Digits of |v| in a base; returns how many. */
static size_t int_digits(int64_t v, unsigned base, bool upper, char out[72]) {
    const char *letters = upper ? "0123456789ABCDEF" : "0123456789abcdef";
    uint64_t u = v < 0 ? (uint64_t)0 - (uint64_t)v : (uint64_t)v;
    char reversed[72];
    size_t n = 0;
    do {
        reversed[n++] = letters[u % base];
        u /= base;
    } while (u);
    for (size_t i = 0; i < n; i++) out[i] = reversed[n - 1 - i];
    return n;
}

static size_t upper_case(char *p, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (p[i] >= 'a' && p[i] <= 'z') p[i] = (char)(p[i] - 32);
    }
    return n;
}

static char low(char c) {
    return c >= 'A' && c <= 'Z' ? (char)(c + 32) : c;
}

static tvalue first_codepoints(tvalue s, int64_t n) {
    return n < 0 || (uint64_t)n >= s.len ? s : tpl_sub(s, 0, tpl_byte_of(s, (size_t)n));
}

/* ---- % ---------------------------------------------------------------------------------------------- */

typedef struct conversion {
    bool left, plus, blank, alternate, zero;
    int64_t width, precision; /* -1: none */
    char type;
} conversion;

typedef struct printer {
    tpl_rt *rt;
    tpl_buf b;
    const char *p, *end;
    tvalue args;
    size_t next; /* argument */
    bool mapping;
} printer;

static status next_argument(printer *f, tvalue *out) {
    if (f->args.kind == TPL_TUPLE) {
        if (f->next >= f->args.list->n) return tpl_fail(f->rt, "not enough arguments for format string");
        *out = f->args.list->v[f->next++];
        return CHURON_OK;
    }
    if (f->next++) return tpl_fail(f->rt, "not enough arguments for format string");
    *out = f->args;
    return CHURON_OK;
}

/* A number or `*`; -1 when there is none. */
static status read_count(printer *f, int64_t *out) {
    *out = -1;
    if (f->p < f->end && *f->p == '*') {
        tvalue v;
        f->p++;
        TRY(next_argument(f, &v));
        if (!tpl_as_int(v, out)) return tpl_fail(f->rt, "* wants int");
        return CHURON_OK;
    }
    while (f->p < f->end && *f->p >= '0' && *f->p <= '9') {
        *out = (*out < 0 ? 0 : *out) * 10 + (*f->p++ - '0');
        if (*out > INT32_MAX)
            return tpl_limit(f->rt, "a width in a format string of more than %d", INT32_MAX);
    }
    return CHURON_OK;
}

static status read_conversion(printer *f, conversion *c) {
    for (; f->p < f->end; f->p++) {
        if (*f->p == '-')
            c->left = true;
        else if (*f->p == '+')
            c->plus = true;
        else if (*f->p == ' ')
            c->blank = true;
        else if (*f->p == '#')
            c->alternate = true;
        else if (*f->p == '0')
            c->zero = true;
        else
            break;
    }
    bool star = f->p < f->end && *f->p == '*';
    TRY(read_count(f, &c->width));
    if (star && c->width < 0) {
        c->left = true;
        c->width = c->width < -INT32_MAX ? INT32_MAX : -c->width;
    }
    c->precision = -1;
    if (f->p < f->end && *f->p == '.') {
        f->p++;
        TRY(read_count(f, &c->precision));
        if (c->precision < 0) c->precision = 0;
    }
    if (f->p < f->end && (*f->p == 'h' || *f->p == 'l' || *f->p == 'L')) f->p++;
    if (f->p >= f->end) return tpl_fail(f->rt, "incomplete format");
    c->type = *f->p++;
    return CHURON_OK;
}

/* sign and prefix, then zeros or spaces, then the digits */
static void put_padded_number(tpl_buf *b, const conversion *c, const char *lead, const char *digits,
                              size_t n) {
    size_t used = strlen(lead) + n,
           room = c->width > 0 && (uint64_t)c->width > used ? (size_t)c->width - used : 0;
    if (!c->left && !c->zero) tpl_buf_fill(b, ' ', room);
    tpl_buf_cat(b, lead);
    if (!c->left && c->zero) tpl_buf_fill(b, '0', room);
    tpl_buf_add(b, digits, n);
    if (c->left) tpl_buf_fill(b, ' ', room);
}

static const char *sign_of(bool negative, bool plus, bool blank) {
    return negative ? "-" : plus ? "+" : blank ? " " : "";
}

static status print_int(printer *f, const conversion *c, tvalue v) {
    int64_t i;
    bool decimal = c->type == 'd' || c->type == 'i' || c->type == 'u';
    if (v.kind == TPL_UNDEFINED) return tpl_undefined_error(f->rt, v);
    if (v.kind == TPL_FLOAT && decimal && v.f > -9.2e18 && v.f < 9.2e18) {
        i = (int64_t)v.f;
    } else if (!tpl_as_int(v, &i)) {
        return tpl_fail(f->rt, "%%%c format: a number is required, not %s", c->type, tpl_type_name(v));
    }
    char digits[72 + MAX_PRECISION], lead[8];
    unsigned base = decimal ? 10 : c->type == 'o' ? 8 : 16;
    size_t n = int_digits(i, base, c->type == 'X', digits);
    if (c->precision > MAX_PRECISION) return tpl_refuse(f->rt, "a precision above %d", MAX_PRECISION);
    if (c->precision > (int64_t)n) {
        size_t zeros = (size_t)c->precision - n;
        memmove(digits + zeros, digits, n);
        memset(digits, '0', zeros);
        n += zeros;
    }
    (void)snprintf(lead, sizeof lead, "%s%s", sign_of(i < 0, c->plus, c->blank),
                   !c->alternate || decimal ? ""
                   : c->type == 'o'         ? "0o"
                   : c->type == 'x'         ? "0x"
                                            : "0X");
    put_padded_number(&f->b, c, lead, digits, n);
    return f->b.st;
}

static status print_float(printer *f, const conversion *c, tvalue v) {
    double d;
    if (v.kind == TPL_UNDEFINED) return tpl_undefined_error(f->rt, v);
    if (!tpl_as_double(v, &d)) return tpl_fail(f->rt, "must be real number, not %s", tpl_type_name(v));
    if (c->precision > MAX_PRECISION) return tpl_refuse(f->rt, "a precision above %d", MAX_PRECISION);
    char digits[512];
    size_t n = tpl_float_format(fabs(d), low(c->type), c->precision < 0 ? 6 : (int)c->precision, c->alternate,
                                digits);
    if (low(c->type) != c->type) upper_case(digits, n);
    put_padded_number(&f->b, c, sign_of(signbit(d), c->plus, c->blank), digits, n);
    return f->b.st;
}

static status print_text(printer *f, const conversion *c, tvalue v) {
    tvalue s;
    if (c->type == 's') {
        TRY(tpl_str(f->rt, v, &s));
    } else if (c->type == 'c') {
        int64_t cp;
        char text[4];
        if (v.kind == TPL_STRING && tpl_codepoints(v) == 1) {
            s = v;
        } else if (tpl_as_int(v, &cp) && cp >= 0 && cp <= 0x10ffff && (cp < 0xd800 || cp > 0xdfff)) {
            tpl_buf one = tpl_buf_begin(f->rt);
            tpl_buf_add(&one, text, utf8_encode((uint32_t)cp, text));
            TRY(tpl_buf_end(&one, &s));
        } else {
            return tpl_fail(f->rt, "%%c requires int or char");
        }
    } else {
        tpl_buf one = tpl_buf_begin(f->rt);
        if (c->type == 'a') return tpl_refuse(f->rt, "format %%a is not supported");
        tpl_buf_repr(&one, v);
        TRY(tpl_buf_end(&one, &s));
    }
    if (c->type != 'c') s = first_codepoints(s, c->precision);
    size_t n = tpl_codepoints(s), room = c->width > 0 && (uint64_t)c->width > n ? (size_t)c->width - n : 0;
    if (!c->left) tpl_buf_fill(&f->b, ' ', room);
    tpl_buf_value(&f->b, s);
    if (c->left) tpl_buf_fill(&f->b, ' ', room);
    return f->b.st;
}

/* (name) after the percent sign: the argument, or kind TPL_MISSING when there is no name. */
static status read_key(printer *f, tvalue *out) {
    out->kind = TPL_MISSING;
    if (f->p >= f->end || *f->p != '(') return CHURON_OK;
    if (!f->mapping) return tpl_fail(f->rt, "format requires a mapping");
    const char *start = ++f->p;
    for (int open = 1; open > 0; f->p++) {
        if (f->p >= f->end) return tpl_fail(f->rt, "incomplete format key");
        open += *f->p == '(' ? 1 : *f->p == ')' ? -1 : 0;
    }
    if (f->args.kind != TPL_DICT) return tpl_fail(f->rt, "format requires a mapping");
    const tvalue *v = tpl_dict_get(f->args.dict, start, (size_t)(f->p - 1 - start));
    if (!v) return tpl_fail(f->rt, "the mapping of a format has no such key");
    *out = *v;
    return CHURON_OK;
}

static status print_one(printer *f) {
    conversion c = {.width = -1};
    tvalue v;
    TRY(read_key(f, &v));
    TRY(read_conversion(f, &c));
    if (c.type == '%') {
        tpl_buf_put(&f->b, '%');
        return f->b.st;
    }
    if (!c.type || !strchr("diuxXoeEfFgGcrsa", c.type)) {
        return tpl_fail(f->rt, "unsupported format character U+%04X", (unsigned)(unsigned char)c.type);
    }
    if (v.kind == TPL_MISSING) TRY(next_argument(f, &v));
    if (strchr("diuxXo", c.type)) return print_int(f, &c, v);
    return strchr("eEfFgG", c.type) ? print_float(f, &c, v) : print_text(f, &c, v);
}

status tpl_printf(tpl_rt *rt, tvalue format, tvalue args, tvalue *out) {
    if (format.flags & TPL_MARKUP)
        return tpl_refuse(rt, "'%%' on a string that is marked safe is not supported");
    printer f = {.rt = rt, .b = tpl_buf_begin(rt), .p = format.s, .end = format.s + format.len, .args = args};
    f.mapping = args.kind == TPL_DICT || args.kind == TPL_LIST || args.kind == TPL_RANGE ||
                args.kind == TPL_UNDEFINED;
    while (f.p < f.end) {
        const char *percent = memchr(f.p, '%', (size_t)(f.end - f.p));
        const char *stop = percent ? percent : f.end;
        tpl_buf_add(&f.b, f.p, (size_t)(stop - f.p));
        f.p = stop;
        if (!percent) break;
        f.p++;
        TRY(tpl_steps(rt, 1));
        TRY(print_one(&f));
    }
    size_t given = args.kind == TPL_TUPLE ? args.list->n : 1;
    if (f.next < given && !f.mapping)
        return tpl_fail(rt, "not all arguments converted during string formatting");
    TRY(tpl_buf_end(&f.b, out));
    return tpl_steps(rt, out->len / 64);
}

/* ---- str.format: the format of one value ------------------------------------------------------------ */

typedef struct spec {
    uint32_t fill;
    char align; /* '<', '>', '^', '=' or 0 */
    char sign;  /* '+', '-', ' ' or 0 */
    bool alternate;
    char group; /* ',', '_' or 0 */
    int64_t width, precision;
    char type;
} spec;

static bool is_align(char c) {
    return c == '<' || c == '>' || c == '^' || c == '=';
}

static bool spec_count(const char **p, const char *end, int64_t *out) {
    *out = -1;
    while (*p < end && **p >= '0' && **p <= '9') {
        *out = (*out < 0 ? 0 : *out) * 10 + (*(*p)++ - '0');
        if (*out > INT32_MAX) return false;
    }
    return true;
}

static status read_spec(tpl_rt *rt, tvalue s, spec *o) {
    const char *p = s.s, *end = s.s + s.len;
    *o = (spec){.fill = ' ', .width = -1, .precision = -1};
    size_t n = 0;
    uint32_t cp = p < end ? tpl_cp_at(p, end, &n) : 0;
    bool filled = n && p + n < end && is_align(p[n]);
    if (filled) {
        o->fill = cp;
        p += n;
    }
    if (p < end && is_align(*p)) o->align = *p++;
    if (p < end && (*p == '+' || *p == '-' || *p == ' ')) o->sign = *p++;
    if (p < end && *p == '#') o->alternate = true, p++;
    if (!filled && p < end && *p == '0') {
        o->fill = '0';
        if (!o->align) o->align = '0'; /* after the sign for numbers, the usual side for strings */
        p++;
    }
    bool good = spec_count(&p, end, &o->width);
    if (p < end && (*p == ',' || *p == '_')) o->group = *p++;
    if (p < end && *p == '.') {
        p++;
        good = good && spec_count(&p, end, &o->precision) && o->precision >= 0;
    }
    if (p < end) o->type = *p++;
    if (!good || p < end) return tpl_fail(rt, "invalid format specifier");
    return CHURON_OK;
}

static status put_aligned(tpl_buf *b, const spec *o, char usual, const char *lead, tvalue body) {
    size_t used = strlen(lead) + tpl_codepoints(body);
    size_t room = o->width > 0 && (uint64_t)o->width > used ? (size_t)o->width - used : 0;
    char align = o->align ? o->align : usual;
    size_t left = align == '>' ? room : align == '^' ? room / 2 : 0;
    tpl_buf_fill(b, o->fill, left);
    tpl_buf_cat(b, lead);
    if (align == '=') tpl_buf_fill(b, o->fill, room);
    tpl_buf_value(b, body);
    if (align != '=') tpl_buf_fill(b, o->fill, room - left);
    return b->st;
}

static status format_string(tpl_rt *rt, tpl_buf *b, spec o, tvalue v) {
    if (o.type && o.type != 's') return tpl_fail(rt, "unknown format code '%c' for a string", o.type);
    if (o.sign || o.alternate || o.group || o.align == '=')
        return tpl_fail(rt, "this format is not allowed for a string");
    if (o.align == '0') o.align = '<';
    return put_aligned(b, &o, '<', "", first_codepoints(v, o.precision));
}

/* Separators every `every` digits in the leading digits of p. */
static size_t grouped(const char *p, size_t n, char separator, size_t every, char *out) {
    size_t whole = 0, k = 0;
    while (whole < n &&
           ((p[whole] >= '0' && p[whole] <= '9') || (every == 4 && p[whole] >= 'A' && p[whole] <= 'f')))
        whole++;
    for (size_t i = 0; i < n; i++) {
        if (i && i < whole && (whole - i) % every == 0) out[k++] = separator;
        out[k++] = p[i];
    }
    return k;
}

static status put_number(tpl_rt *rt, tpl_buf *b, spec o, bool negative, const char *prefix,
                         const char *digits, size_t n, size_t every) {
    char with_groups[1024], lead[8];
    if (o.align == '0') o.align = '=';
    if (o.group) {
        if (o.fill == '0' && o.align == '=')
            return tpl_refuse(rt, "zero padding with grouping is not supported");
        n = grouped(digits, n, o.group, every, with_groups);
        digits = with_groups;
    }
    (void)snprintf(lead, sizeof lead, "%s%s", sign_of(negative, o.sign == '+', o.sign == ' '), prefix);
    return put_aligned(b, &o, '>', lead, tpl_view(digits, n, TPL_ASCII));
}

static status format_float(tpl_rt *rt, tpl_buf *b, spec o, double v) {
    char digits[520];
    size_t n;
    if (o.precision > MAX_PRECISION) return tpl_refuse(rt, "a precision above %d", MAX_PRECISION);
    if (o.alternate || (!o.type && o.precision >= 0))
        return tpl_refuse(rt, "this format of a float is not supported");
    int precision = o.precision < 0 ? 6 : (int)o.precision;
    if (!o.type) {
        n = tpl_float_repr(fabs(v), digits);
    } else if (strchr("eEfFgG", o.type)) {
        n = tpl_float_format(fabs(v), low(o.type), precision, false, digits);
        if (low(o.type) != o.type) upper_case(digits, n);
    } else if (o.type == '%') {
        n = tpl_float_format(fabs(v) * 100, 'f', precision, false, digits);
        digits[n++] = '%';
    } else {
        return tpl_fail(rt, "unknown format code '%c' for a float", o.type);
    }
    return put_number(rt, b, o, signbit(v), "", digits, n, 3);
}

static status format_int(tpl_rt *rt, tpl_buf *b, spec o, int64_t v) {
    if (o.type && strchr("eEfFgG%", o.type)) return format_float(rt, b, o, (double)v);
    unsigned base = !o.type || o.type == 'd' ? 10
                    : o.type == 'b'          ? 2
                    : o.type == 'o'          ? 8
                    : low(o.type) == 'x'     ? 16
                                             : 0;
    if (o.type == 'c' || o.type == 'n') return tpl_refuse(rt, "format '%c' is not supported", o.type);
    if (!base) return tpl_fail(rt, "unknown format code '%c' for an integer", o.type);
    if (o.precision >= 0) return tpl_fail(rt, "precision not allowed in integer format specifier");
    if (o.group == ',' && base != 10) return tpl_fail(rt, "cannot specify ',' with '%c'", o.type);
    char digits[72];
    size_t n = int_digits(v, base, o.type == 'X', digits);
    const char *prefix = !o.alternate || base == 10 ? ""
                         : base == 2                ? "0b"
                         : base == 8                ? "0o"
                         : o.type == 'X'            ? "0X"
                                                    : "0x";
    return put_number(rt, b, o, v < 0, prefix, digits, n, base == 10 ? 3 : 4);
}

static status format_value(tpl_rt *rt, tpl_buf *b, tvalue v, tvalue text) {
    if (text.len == 0) {
        tpl_buf_str(b, v);
        return b->st;
    }
    spec o;
    TRY(read_spec(rt, text, &o));
    switch ((tpl_kind)v.kind) {
    case TPL_STRING: return format_string(rt, b, o, v);
    case TPL_BOOL: return format_int(rt, b, o, v.b);
    case TPL_INT: return format_int(rt, b, o, v.i);
    case TPL_FLOAT: return format_float(rt, b, o, v.f);
    default: return tpl_fail(rt, "unsupported format string passed to %s.__format__", tpl_type_name(v));
    }
}

/* ---- str.format: fields ----------------------------------------------------------------------------- */

typedef struct formatter {
    tpl_rt *rt;
    const tpl_args *args;
    int64_t next; /* automatic numbering; -1: fields are numbered by hand */
} formatter;

static bool all_digits(const char *p, const char *end) {
    if (p == end) return false;
    while (p < end && *p >= '0' && *p <= '9') p++;
    return p == end;
}

static status field_number(formatter *f, const char *p, const char *end, int64_t *out) {
    int64_t n = 0;
    if (!spec_count(&p, end, &n)) return tpl_fail(f->rt, "too many decimal digits in format string");
    *out = n;
    return CHURON_OK;
}

/* The first part of a field's name: an argument by number or by name. */
static status field_argument(formatter *f, const char *p, const char *end, tvalue *out) {
    if (all_digits(p, end)) {
        int64_t n = 0;
        TRY(field_number(f, p, end, &n));
        if ((uint64_t)n >= f->args->n)
            return tpl_fail(f->rt, "format: there is no argument %lld", (long long)n);
        *out = f->args->v[n];
        return CHURON_OK;
    }
    for (size_t i = 0; i < f->args->n_kw; i++) {
        tvalue k = f->args->names[i];
        if (k.len == (size_t)(end - p) && memcmp(k.s, p, k.len) == 0) {
            *out = f->args->kw[i];
            return CHURON_OK;
        }
    }
    return tpl_fail(f->rt, "format: there is no argument '%.*s'", (int)(end - p > 60 ? 60 : end - p), p);
}

static status field_value(formatter *f, const char *p, const char *end, tvalue *out) {
    const char *q = p;
    while (q < end && *q != '.' && *q != '[') q++;
    if (q == p && q < end) return tpl_fail(f->rt, "format: a field without the name of an argument");
    TRY(field_argument(f, p, q, out));
    while (q < end) {
        char kind = *q++;
        const char *start = q;
        if (kind == '.') {
            while (q < end && *q != '.' && *q != '[') q++;
            if (q == start) return tpl_fail(f->rt, "Empty attribute in format string");
            TRY(tpl_getattr(f->rt, *out, tpl_view(start, (size_t)(q - start), 0), out));
            continue;
        }
        if (kind != '[') return tpl_fail(f->rt, "Only '.' or '[' may follow ']' in format field specifier");
        while (q < end && *q != ']') q++;
        if (q == end) return tpl_fail(f->rt, "Missing ']' in format string");
        if (q == start) return tpl_fail(f->rt, "Empty attribute in format string");
        tvalue key = tpl_view(start, (size_t)(q - start), 0);
        if (all_digits(start, q)) {
            int64_t n = 0;
            TRY(field_number(f, start, q, &n));
            key = tpl_int(n);
        }
        q++;
        TRY(tpl_getitem(f->rt, *out, key, out));
    }
    return CHURON_OK;
}

static status convert(formatter *f, char how, tvalue *v) {
    if (how == 's') return tpl_str(f->rt, *v, v);
    if (how != 'r')
        return tpl_refuse(f->rt, "format conversion '!%c' is not supported",
                          how >= 0x20 && how < 0x7f ? how : '?');
    tpl_buf b = tpl_buf_begin(f->rt);
    tpl_buf_repr(&b, *v);
    return tpl_buf_end(&b, v);
}

static status expand(formatter *f, tvalue text, int depth, tvalue *out);

/* One replacement field, the text between its braces. */
static status put_field(formatter *f, tpl_buf *b, const char *p, const char *end, int depth) {
    const char *name_end = p;
    bool in_brackets = false;
    while (name_end < end && (in_brackets || (*name_end != '!' && *name_end != ':'))) {
        if (*name_end == '{' || (*name_end == '}' && !in_brackets))
            return tpl_fail(f->rt, "unexpected '{' in field name");
        in_brackets = *name_end == '[' ? true : *name_end == ']' ? false : in_brackets;
        name_end++;
    }
    const char *q = name_end;
    char how = '\0';
    if (q < end && *q == '!') {
        if (q + 1 >= end) return tpl_fail(f->rt, "end of string while looking for conversion specifier");
        how = q[1];
        q += 2;
        if (q < end && *q != ':') return tpl_fail(f->rt, "expected ':' after conversion specifier");
    }
    if (q < end) q++;
    char number[24];
    const char *name = p;
    if (name_end == p) {
        if (f->next < 0)
            return tpl_fail(f->rt,
                            "cannot switch from manual field specification to automatic field numbering");
        name_end = number + snprintf(number, sizeof number, "%lld", (long long)f->next++);
        name = number;
    } else if (all_digits(p, name_end)) {
        if (f->next > 0)
            return tpl_fail(f->rt,
                            "cannot switch from manual field specification to automatic field numbering");
        f->next = -1;
    }
    tvalue v, spec_text;
    TRY(field_value(f, name, name_end, &v));
    if (how) TRY(convert(f, how, &v));
    TRY(expand(f, tpl_view(q, (size_t)(end - q), 0), depth - 1, &spec_text));
    return format_value(f->rt, b, v, spec_text);
}

/* The end of the field that begins at p, or NULL. */
static const char *field_end(const char *p, const char *end) {
    int open = 1;
    bool in_brackets = false, in_spec = false;
    for (; p < end; p++) {
        if (!in_spec && *p == '[') in_brackets = true;
        if (!in_spec && *p == ']') in_brackets = false;
        if (in_brackets) continue;
        if (*p == ':' || *p == '!') in_spec = true;
        if (*p == '{') open++;
        if (*p == '}' && --open == 0) return p;
    }
    return NULL;
}

static status expand(formatter *f, tvalue text, int depth, tvalue *out) {
    if (depth < 0) return tpl_fail(f->rt, "Max string recursion exceeded");
    tpl_buf b = tpl_buf_begin(f->rt);
    const char *p = text.s, *end = text.s + text.len;
    while (p < end) {
        const char *q = p;
        while (q < end && *q != '{' && *q != '}') q++;
        tpl_buf_add(&b, p, (size_t)(q - p));
        if (q == end) break;
        if (q + 1 < end && q[1] == *q) {
            tpl_buf_put(&b, *q);
            p = q + 2;
            continue;
        }
        if (*q == '}') return tpl_fail(f->rt, "Single '}' encountered in format string");
        const char *close = field_end(q + 1, end);
        if (!close) return tpl_fail(f->rt, "expected '}' before end of string");
        TRY(tpl_steps(f->rt, 1));
        TRY(put_field(f, &b, q + 1, close, depth));
        p = close + 1;
    }
    TRY(tpl_buf_end(&b, out));
    return tpl_steps(f->rt, out->len / 64);
}

status tpl_format(tpl_rt *rt, tvalue format, const tpl_args *args, tvalue *out) {
    if (format.flags & TPL_MARKUP)
        return tpl_refuse(rt, "format() of a string that is marked safe is not supported");
    formatter f = {.rt = rt, .args = args};
    return expand(&f, format, 2, out);
}

/* symbols.c: see symbols.h. */
#include "graph/symbols.h"

#include <inttypes.h>
#include <string.h>

enum { MAX_TERMS = 12, MAX_FACTORS = 6, MAX_SYMBOLS = 1 << 24 };

/* coefficient * product of atoms, which are in ascending order. */
typedef struct term {
    int64_t coefficient;
    uint32_t n;
    uint32_t atoms[MAX_FACTORS + 1]; /* one more: no padding, terms are compared as bytes */
} term;

typedef struct poly {
    size_t n;
    term terms[MAX_TERMS];
} poly;

typedef enum atom_kind {
    ATOM_NONE,
    ATOM_FRESH,
    ATOM_NAME,
    ATOM_FLOOR,
    ATOM_CEIL,
    ATOM_MAX,
    ATOM_MIN
} atom_kind;

struct symbol {
    atom_kind kind; /* NONE: a sum */
    const char *name;
    dim a, b;          /* FLOOR, CEIL, MAX, MIN */
    const term *terms; /* [n_terms]; of an atom: itself */
    size_t n_terms;
};

void symbols_free(symbols *s) {
    names_free(&s->index);
}

static dim dim_of(size_t index) {
    return DIM_SYMBOL_BASE + (int64_t)index;
}

static size_t index_of(dim d) {
    return (size_t)(d - DIM_SYMBOL_BASE);
}

static dim failed(symbols *s) {
    s->failed = true;
    return 0;
}

static dim add_symbol(symbols *s, symbol sym) {
    if (s->n >= MAX_SYMBOLS || !arena_grow(s->memory, (void **)&s->items, s->n, &s->cap, sizeof(symbol))) {
        return failed(s);
    }
    if (sym.kind != ATOM_NONE) {
        term *t = arena_array(s->memory, 1, sizeof *t);
        if (!t) return failed(s);
        *t = (term){.coefficient = 1, .n = 1, .atoms = {(uint32_t)s->n}};
        sym.terms = t;
        sym.n_terms = 1;
    }
    s->items[s->n] = sym;
    return dim_of(s->n++);
}

dim symbols_fresh(symbols *s) {
    return add_symbol(s, (symbol){.kind = ATOM_FRESH});
}

/* The symbol that is kept under these bytes, or a new one. The stored pointer is the index + 1. */
static dim interned(symbols *s, const void *key, size_t len, symbol sym) {
    void *known = names_get(&s->index, key, len);
    if (known) return dim_of((size_t)(uintptr_t)known - 1);
    dim d = add_symbol(s, sym);
    if (s->failed) return 0;
    const char *copy = arena_strndup(s->memory, key, len);
    if (!copy || !names_set(&s->index, copy, len, (void *)(uintptr_t)(index_of(d) + 1))) return failed(s);
    return d;
}

dim symbols_named(symbols *s, const char *name) {
    return interned(s, name, strlen(name), (symbol){.kind = ATOM_NAME, .name = name});
}

static dim atom_of(symbols *s, atom_kind kind, dim a, dim b) {
    struct { /* begins with a byte that no name of a file begins with */
        char mark[8];
        int64_t kind, a, b;
    } key = {.mark = "\1atom", .kind = kind, .a = a, .b = b};
    return interned(s, &key, sizeof key, (symbol){.kind = kind, .a = a, .b = b});
}

/* ---- sums of products ------------------------------------------------------------------------------- */

static void poly_of(const symbols *s, dim d, poly *p) {
    p->n = 0;
    if (dim_known(d)) {
        if (d != 0) p->terms[p->n++] = (term){.coefficient = d};
        return;
    }
    const symbol *sym = &s->items[index_of(d)];
    memcpy(p->terms, sym->terms, sym->n_terms * sizeof(term));
    p->n = sym->n_terms;
}

static int term_order(const term *a, const term *b) {
    if (a->n != b->n) return a->n < b->n ? -1 : 1;
    for (size_t i = 0; i < a->n; i++) {
        if (a->atoms[i] != b->atoms[i]) return a->atoms[i] < b->atoms[i] ? -1 : 1;
    }
    return 0;
}

/* p += t, in order. False: beyond the bounds. */
static bool poly_add_term(poly *p, const term *t) {
    size_t at = 0;
    while (at < p->n && term_order(&p->terms[at], t) < 0) at++;
    if (at < p->n && term_order(&p->terms[at], t) == 0) {
        int64_t a = p->terms[at].coefficient, b = t->coefficient;
        if ((b > 0 && a > INT64_MAX / 2 - b) || (b < 0 && a < -(INT64_MAX / 2) - b)) return false;
        p->terms[at].coefficient = a + b;
        if (a + b == 0) {
            memmove(&p->terms[at], &p->terms[at + 1], (p->n - at - 1) * sizeof(term));
            p->n--;
        }
        return true;
    }
    if (p->n == MAX_TERMS) return false;
    memmove(&p->terms[at + 1], &p->terms[at], (p->n - at) * sizeof(term));
    p->terms[at] = *t;
    p->n++;
    return true;
}

static bool coefficient_mul(int64_t a, int64_t b, int64_t *out) {
    const int64_t most = INT64_MAX / 4;
    if (a != 0 && (b > most / (a < 0 ? -a : a) || b < -(most / (a < 0 ? -a : a)))) return false;
    *out = a * b;
    return true;
}

static bool term_mul(const term *a, const term *b, term *out) {
    if (a->n + b->n > MAX_FACTORS || a->coefficient < -INT64_MAX) return false;
    *out = (term){.n = a->n + b->n};
    if (!coefficient_mul(a->coefficient, b->coefficient, &out->coefficient)) return false;
    size_t i = 0, j = 0, k = 0;
    while (i < a->n || j < b->n) {
        bool first = j == b->n || (i < a->n && a->atoms[i] <= b->atoms[j]);
        out->atoms[k++] = first ? a->atoms[i++] : b->atoms[j++];
    }
    return true;
}

/* a / b where b is one product that divides a. */
static bool term_div(const term *a, const term *b, term *out) {
    if (b->coefficient == 0 || a->coefficient % b->coefficient != 0) return false;
    *out = (term){.coefficient = a->coefficient / b->coefficient};
    size_t j = 0;
    for (size_t i = 0; i < a->n; i++) {
        if (j < b->n && a->atoms[i] == b->atoms[j]) {
            j++;
        } else {
            out->atoms[out->n++] = a->atoms[i];
        }
    }
    return j == b->n;
}

static dim dim_of_poly(symbols *s, const poly *p) {
    if (p->n == 0) return 0;
    const term *t = &p->terms[0];
    if (p->n == 1 && t->n == 0) return dim_known(t->coefficient) ? t->coefficient : symbols_fresh(s);
    if (p->n == 1 && t->n == 1 && t->coefficient == 1) return dim_of(t->atoms[0]);
    term *terms = arena_array(s->memory, p->n, sizeof *terms);
    if (!terms) return failed(s);
    memcpy(terms, p->terms, p->n * sizeof *terms);
    return interned(s, terms, p->n * sizeof *terms, (symbol){.terms = terms, .n_terms = p->n});
}

dim symbols_add(symbols *s, dim a, dim b) {
    if (s->failed) return 0;
    poly p, q;
    poly_of(s, a, &p);
    poly_of(s, b, &q);
    for (size_t i = 0; i < q.n; i++) {
        if (!poly_add_term(&p, &q.terms[i])) return symbols_fresh(s);
    }
    return dim_of_poly(s, &p);
}

dim symbols_mul(symbols *s, dim a, dim b) {
    if (s->failed) return 0;
    poly p, q, product = {.n = 0};
    poly_of(s, a, &p);
    poly_of(s, b, &q);
    for (size_t i = 0; i < p.n; i++) {
        for (size_t j = 0; j < q.n; j++) {
            term t;
            if (!term_mul(&p.terms[i], &q.terms[j], &t) || !poly_add_term(&product, &t))
                return symbols_fresh(s);
        }
    }
    return dim_of_poly(s, &product);
}

dim symbols_sub(symbols *s, dim a, dim b) {
    return symbols_add(s, a, symbols_mul(s, b, -1));
}

dim symbols_div(symbols *s, dim a, dim b, bool up) {
    if (s->failed) return 0;
    if (a == b) return 1;
    poly p, q, quotient = {.n = 0};
    poly_of(s, a, &p);
    poly_of(s, b, &q);
    bool exact = q.n == 1;
    for (size_t i = 0; exact && i < p.n; i++) {
        term t;
        exact = term_div(&p.terms[i], &q.terms[0], &t) && poly_add_term(&quotient, &t);
    }
    return exact ? dim_of_poly(s, &quotient) : atom_of(s, up ? ATOM_CEIL : ATOM_FLOOR, a, b);
}

static dim extreme(symbols *s, dim a, dim b, bool most) {
    if (s->failed) return 0;
    dim difference = symbols_sub(s, a, b);
    if (dim_known(difference)) return (difference >= 0) == most ? a : b;
    return atom_of(s, most ? ATOM_MAX : ATOM_MIN, a < b ? a : b, a < b ? b : a);
}

dim symbols_most(symbols *s, dim a, dim b) {
    return extreme(s, a, b, true);
}

dim symbols_least(symbols *s, dim a, dim b) {
    return extreme(s, a, b, false);
}

/* ---- text ------------------------------------------------------------------------------------------- */

static void write_dim(const symbols *s, dim d, str *out, int depth);

static void write_atom(const symbols *s, uint32_t index, str *out, int depth) {
    static const char *const words[] = {
        [ATOM_FLOOR] = "floor", [ATOM_CEIL] = "ceil", [ATOM_MAX] = "max", [ATOM_MIN] = "min"};
    const symbol *sym = &s->items[index];
    if (sym->kind == ATOM_NAME) {
        str_cat(out, sym->name);
    } else if (sym->kind == ATOM_FRESH || sym->kind == ATOM_NONE || depth > 4) {
        str_put(out, '?');
    } else {
        bool quotient = sym->kind == ATOM_FLOOR || sym->kind == ATOM_CEIL;
        str_fmt(out, "%s(", words[sym->kind]);
        write_dim(s, sym->a, out, depth + 1);
        str_cat(out, quotient ? "/" : ", ");
        poly b;
        poly_of(s, sym->b, &b);
        bool brackets = quotient && b.n > 1;
        if (brackets) str_put(out, '(');
        write_dim(s, sym->b, out, depth + 1);
        str_cat(out, brackets ? "))" : ")");
    }
}

static void write_dim(const symbols *s, dim d, str *out, int depth) {
    poly p;
    poly_of(s, d, &p);
    if (p.n == 0) str_put(out, '0');
    for (size_t i = 0; i < p.n; i++) { /* the constant comes first in order, last in text */
        const term *t = &p.terms[p.n - 1 - i];
        int64_t c = t->coefficient;
        if (i > 0 && c > 0) str_put(out, '+');
        if (t->n == 0) {
            str_fmt(out, "%" PRId64, c);
        } else if (c == -1) {
            str_put(out, '-');
        } else if (c != 1) {
            str_fmt(out, "%" PRId64 "*", c);
        }
        for (size_t k = 0; k < t->n; k++) {
            if (k > 0) str_put(out, '*');
            write_atom(s, t->atoms[k], out, depth);
        }
    }
}

void symbols_text(const symbols *s, dim d, str *out) {
    write_dim(s, d, out, 0);
}

static bool mentions(const symbols *s, dim d, size_t atom, int depth, int *left) {
    if (dim_known(d)) return false;
    const symbol *sym = &s->items[index_of(d)];
    for (size_t t = 0; t < sym->n_terms; t++) {
        for (size_t i = 0; i < sym->terms[t].n; i++) {
            const size_t a = sym->terms[t].atoms[i];
            const symbol *of = &s->items[a];
            if (a == atom) return true;
            if (of->kind == ATOM_FRESH || of->kind == ATOM_NAME) continue;
            if (depth == 0 || --*left < 0) return true;
            if (mentions(s, of->a, atom, depth - 1, left) || mentions(s, of->b, atom, depth - 1, left))
                return true;
        }
    }
    return false;
}

bool symbols_mention(const symbols *s, dim d, dim atom) {
    enum { DEPTH = 100, VISITS = 1000 };
    int left = VISITS;
    return !dim_known(atom) && mentions(s, d, index_of(atom), DEPTH, &left);
}

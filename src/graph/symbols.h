/* symbols.h: dimensions that are not numbers yet, as simplified expressions.
 *
 * An expression is a sum of products with integer coefficients over atoms: names from the file, dimensions of
 * which nothing is known, and quotients, maxima and minima of expressions. Equal expressions have equal
 * numbers (they are interned), so (N*4)/4 is N and a-a is 0. What grows beyond a bound becomes a dimension of
 * which nothing is known: always right, only less told. Owner: the graph while it is built. */
#ifndef GRAPH_SYMBOLS_H
#define GRAPH_SYMBOLS_H

#include "base/arena.h"
#include "base/str.h"
#include "graph/names.h"
#include "graph/op.h"

typedef struct symbol symbol;

typedef struct symbols { /* zero-initialise, set memory; free with symbols_free */
    arena *memory;
    symbol *items; /* [n] */
    size_t n, cap;
    names index;
    bool failed; /* an allocation failed: results were numbers that mean nothing */
} symbols;

void symbols_free(symbols *s);
dim symbols_fresh(symbols *s);
dim symbols_named(symbols *s, const char *name); /* name is borrowed */
dim symbols_add(symbols *s, dim a, dim b);
dim symbols_sub(symbols *s, dim a, dim b);
dim symbols_mul(symbols *s, dim a, dim b);
dim symbols_div(symbols *s, dim a, dim b, bool up);
dim symbols_most(symbols *s, dim a, dim b);
dim symbols_least(symbols *s, dim a, dim b);
/* Whether d may change with the atom (a name, or a dimension of which nothing is known): true where that
 * would be long to find out. */
bool symbols_mention(const symbols *s, dim d, dim atom);
void symbols_text(const symbols *s, dim d, str *out); /* "N", "4*N+1", "floor(N/2)", "?" */

#endif

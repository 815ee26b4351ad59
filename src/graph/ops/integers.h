/* integers.h: any integer type, bool included, by way of int64. uint64 keeps its bits. */
#ifndef GRAPH_OPS_INTEGERS_H
#define GRAPH_OPS_INTEGERS_H

#include "tensor/elem.h"

bool integers_hold(elem e); /* e is an integer type or bool */
void integers_load(elem e, const void *from, int64_t *to, size_t n);
/* Keeps the low bits; bool: not 0. */
void integers_store(elem e, const int64_t *from, void *to, size_t n);
/* The lowest `bits` (below 64) of v, extended by their sign or by zeros. */
int64_t integers_low_bits(int64_t v, unsigned bits, bool with_sign);

#endif

/* select.c: the k largest values of a long row, by a running threshold. */
#include "kernel/ref/ref.h"
#include "kernel/vector.h"

#include <string.h>

uint64_t select_key(float value, uint32_t index) {
    uint32_t bits;
    value += 0.0f; /* -0 becomes +0: they compare equal, so the index decides */
    memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7fffffffu) > 0x7f800000u) {
        bits = 0;
    } else {
        bits = bits >> 31 ? ~bits : bits | 0x80000000u;
    }
    return (uint64_t)bits << 32 | (uint32_t)~index;
}

float select_value(uint64_t key) {
    uint32_t bits = (uint32_t)(key >> 32);
    float value;
    bits = bits == 0 ? 0x7fc00000u : bits >> 31 ? bits & 0x7fffffffu : ~bits;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static void swap(uint64_t *a, uint64_t *b) {
    uint64_t t = *a;
    *a = *b;
    *b = t;
}

/* Quickselect, descending, with the median of three as pivot. */
uint64_t select_largest(uint64_t *keys, size_t n, size_t k) {
    size_t from = 0, to = n; /* the border at k lies in [from, to) */
    while (to - from > 1) {
        uint64_t *a = &keys[from], *b = &keys[from + (to - from) / 2], *c = &keys[to - 1];
        if (*a < *b) swap(a, b);
        if (*b < *c) swap(b, c);
        if (*a < *b) swap(a, b);
        uint64_t pivot = *b;
        size_t i = from, j = to - 1;
        for (;;) {
            while (keys[i] > pivot) i++;
            while (keys[j] < pivot) j--;
            if (i >= j) break;
            swap(&keys[i++], &keys[j--]);
        }
        /* keys[from .. j] >= pivot >= keys[j+1 ..]; the pivot itself is in one of them */
        size_t middle = j + 1;
        if (middle >= to) middle = to - 1;
        if (k - 1 < middle) {
            to = middle;
        } else {
            from = middle;
        }
    }
    return keys[k - 1];
}

/* Merge sort from runs of 16 that insertion has sorted; every merge is without branches on the data. */
void select_sort(uint64_t *keys, uint64_t *spare, size_t n) {
    enum { RUN = 16 };
    for (size_t run = 0; run < n; run += RUN) {
        size_t end = run + RUN < n ? run + RUN : n;
        for (size_t i = run + 1; i < end; i++) {
            uint64_t key = keys[i];
            size_t j = i;
            for (; j > run && keys[j - 1] < key; j--) keys[j] = keys[j - 1];
            keys[j] = key;
        }
    }
    uint64_t *from = keys, *to = spare;
    for (size_t width = RUN; width < n; width *= 2) {
        for (size_t start = 0; start < n; start += 2 * width) {
            size_t i = start, middle = start + width < n ? start + width : n;
            size_t j = middle, end = middle + width < n ? middle + width : n;
            for (size_t out = start; out < end; out++) {
                bool left = i < middle && (j >= end || from[i] > from[j]);
                to[out] = left ? from[i] : from[j];
                i += left;
                j += !left;
            }
        }
        uint64_t *t = from;
        from = to;
        to = t;
    }
    if (from != keys) memcpy(keys, from, n * sizeof *keys);
}

void top_k_ref(const float *x, size_t n, size_t k, uint32_t *index, float *value) {
    if (k == 0) return;
    uint64_t keys[SELECT_ROOM], spare[TOP_MAX];
    size_t count = 0, limit = 2 * k + 64;
    uint64_t least = 0; /* keys up to this one are out */
    for (size_t i = 0; i < n; i++) {
        uint64_t key = select_key(x[i], (uint32_t)i);
        if (key <= least) continue;
        keys[count++] = key;
        if (count < limit) continue;
        least = select_largest(keys, count, k);
        count = k;
    }
    select_largest(keys, count, k);
    select_sort(keys, spare, k);
    for (size_t i = 0; i < k; i++) {
        index[i] = select_index(keys[i]);
        value[i] = x[index[i]];
    }
}

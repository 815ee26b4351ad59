/* select.c: the k largest values of a long row, by a running threshold. */
#include "kernel/select.h"
#include "kernel/ref/ref.h"

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

static void insertion_sort(uint64_t *keys, size_t n) {
    for (size_t i = 1; i < n; i++) {
        uint64_t key = keys[i];
        size_t j = i;
        for (; j > 0 && keys[j - 1] < key; j--) keys[j] = keys[j - 1];
        keys[j] = key;
    }
}

/* from [n] is two descending runs, the second beginning at `middle`. No branch on the data. */
static void merge(const uint64_t *from, size_t middle, size_t n, uint64_t *to) {
    size_t i = 0, j = middle;
    for (size_t out = 0; out < n; out++) {
        bool left = i < middle && (j >= n || from[i] > from[j]);
        to[out] = left ? from[i] : from[j];
        i += left;
        j += !left;
    }
}

static void merge_sort(uint64_t *keys, uint64_t *spare, size_t n) {
    enum { RUN = 16 };
    for (size_t run = 0; run < n; run += RUN) insertion_sort(keys + run, n - run < RUN ? n - run : RUN);
    uint64_t *from = keys, *to = spare;
    for (size_t width = RUN; width < n; width *= 2) {
        for (size_t start = 0; start < n; start += 2 * width) {
            size_t left = n - start, middle = left < width ? left : width;
            merge(from + start, middle, left < 2 * width ? left : 2 * width, to + start);
        }
        uint64_t *t = from;
        from = to;
        to = t;
    }
    if (from != keys) memcpy(keys, from, n * sizeof *keys);
}

/* From the least to the most significant digit of 11 bits, all counts in one pass; the index part sorts too,
 * unless the keys were made in the order of their index, which a stable sort keeps. */
static void radix_sort(uint64_t *keys, uint64_t *spare, size_t n, unsigned low) {
    enum { BITS = 11, DIGITS = 1 << BITS, PASSES = 6 };
    uint32_t start[PASSES][DIGITS];
    unsigned passes = (64 - low + BITS - 1) / BITS;
    memset(start, 0, sizeof start);
    for (size_t i = 0; i < n; i++) {
        uint64_t key = ~keys[i] >> low;
        for (unsigned p = 0; p < passes; p++) start[p][key >> (p * BITS) & (DIGITS - 1)]++;
    }
    uint64_t *from = keys, *to = spare;
    for (unsigned p = 0; p < passes; p++) {
        uint32_t sum = 0;
        for (size_t d = 0; d < DIGITS; d++) {
            uint32_t count = start[p][d];
            start[p][d] = sum;
            sum += count;
        }
        for (size_t i = 0; i < n; i++) {
            to[start[p][~from[i] >> low >> (p * BITS) & (DIGITS - 1)]++] = from[i];
        }
        uint64_t *t = from;
        from = to;
        to = t;
    }
    if (from != keys) memcpy(keys, from, n * sizeof *keys);
}

void select_sort(uint64_t *keys, uint64_t *spare, size_t n) {
    if (n <= TOP_MAX || n > UINT32_MAX) {
        merge_sort(keys, spare, n);
        return;
    }
    bool by_index = true;
    for (size_t i = 1; i < n; i++) by_index &= (uint32_t)keys[i] < (uint32_t)keys[i - 1];
    radix_sort(keys, spare, n, by_index ? 32 : 0);
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

/* history.c: see history.h. */
#include "lm/history.h"

#include "base/mem.h"

#include <string.h>

status history_open(history *h, size_t max, error *err) {
    *h = (history){.max = max, .n_slots = 16};
    size_t bytes;
    if (max > UINT32_MAX / 8 || !size_mul(max, sizeof(history_entry), &bytes)) {
        return error_set(err, CHURON_LIMIT, "context: expected at most %u tokens, got %zu", UINT32_MAX / 8,
                         max);
    }
    while (h->n_slots < 2 * max) h->n_slots *= 2;
    h->tokens = mem_alloc(2 * max * sizeof *h->tokens);
    h->run = mem_alloc(max * sizeof *h->run);
    h->entries = mem_alloc(bytes);
    h->slots = mem_calloc(h->n_slots, sizeof *h->slots);
    if (h->tokens != NULL && h->run != NULL && h->entries != NULL && h->slots != NULL) return CHURON_OK;
    history_close(h);
    return error_no_memory(err, "sampler history", max * 32);
}

void history_close(history *h) {
    mem_free(h->tokens);
    mem_free(h->run);
    mem_free(h->entries);
    mem_free(h->slots);
    *h = (history){0};
}

void history_accept(history *h, int32_t id) {
    if (h->max == 0) return;
    if (h->length == h->max) {
        h->start++;
        h->length--;
    }
    if (h->start + h->length == 2 * h->max) {
        memmove(h->tokens, h->tokens + h->start, h->length * sizeof *h->tokens);
        h->start = 0;
    }
    h->tokens[h->start + h->length++] = id;
}

/* ---- the table --------------------------------------------------------------------------------------- */

static size_t slot_of(const history *h, int32_t id) {
    size_t slot = ((uint32_t)id * 2654435769u >> 7) & (h->n_slots - 1);
    while (h->slots[slot] != 0 && h->entries[h->slots[slot] - 1].id != id)
        slot = (slot + 1) & (h->n_slots - 1);
    return slot;
}

/* Only the slots of the last answer are reset: the table may be far larger than the window. */
static void forget(history *h) {
    if (h->n_entries * 4 > h->n_slots) {
        memset(h->slots, 0, h->n_slots * sizeof *h->slots);
    } else { /* backwards: an entry's path leads only over older ones */
        for (size_t i = h->n_entries; i > 0; i--) h->slots[slot_of(h, h->entries[i - 1].id)] = 0;
    }
    h->n_entries = 0;
}

static uint32_t *value_of(history *h, int32_t id) {
    size_t slot = slot_of(h, id);
    if (h->slots[slot] == 0) {
        h->entries[h->n_entries] = (history_entry){id, 0};
        h->slots[slot] = (uint32_t)++h->n_entries;
    }
    return &h->entries[h->slots[slot] - 1].value;
}

void history_counts(history *h, size_t last_n) {
    forget(h);
    size_t n = last_n < h->length ? last_n : h->length;
    const int32_t *t = h->tokens + h->start + h->length - n;
    for (size_t i = 0; i < n; i++) (*value_of(h, t[i]))++;
}

/* ---- repetitions ------------------------------------------------------------------------------------- */

static bool is_breaker(int32_t id, const int32_t *breakers, size_t n) {
    size_t from = 0, to = n;
    while (from < to) {
        size_t middle = from + (to - from) / 2;
        if (breakers[middle] == id) return true;
        if (breakers[middle] < id) {
            from = middle + 1;
        } else {
            to = middle;
        }
    }
    return false;
}

/* z[k], k >= 1: the length of the longest run of tokens that ends both the n tokens before `end` and those
 * before end - k (Gusfield's Z algorithm, on the reversed text). */
static void run_lengths(const int32_t *end, size_t n, uint32_t *z) {
    size_t left = 0, right = 0; /* the match that reaches furthest: reversed positions [left, right) */
    for (size_t k = 1; k < n; k++) {
        size_t length = 0;
        if (k < right) {
            length = z[k - left];
            if (length > right - k) length = right - k;
        }
        while (k + length < n && end[-1 - (ptrdiff_t)length] == end[-1 - (ptrdiff_t)(k + length)]) length++;
        z[k] = (uint32_t)length;
        if (k + length > right) {
            left = k;
            right = k + length;
        }
    }
}

void history_repeats(history *h, size_t last_n, size_t least, const int32_t *breakers, size_t n_breakers) {
    forget(h);
    size_t n = last_n < h->length ? last_n : h->length, limit = 0;
    const int32_t *end = h->tokens + h->start + h->length;
    while (limit < n && !is_breaker(end[-1 - (ptrdiff_t)limit], breakers, n_breakers)) limit++;
    if (limit < least || n <= least) return;
    run_lengths(end, n, h->run);
    for (size_t k = 1; k < n; k++) {
        size_t length = h->run[k] < limit ? h->run[k] : limit;
        int32_t next = end[-(ptrdiff_t)k];
        if (length < least || is_breaker(next, breakers, n_breakers)) continue;
        uint32_t *value = value_of(h, next);
        if (*value < length) *value = (uint32_t)length;
    }
}

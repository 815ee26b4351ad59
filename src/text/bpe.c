/* bpe.c: see bpe.h. */
#include "text/bpe.h"

#include "base/mem.h"

#include <string.h>

enum {
    SCAN_MAX = 28, /* symbols up to which scanning for the lowest rank beats a heap */
    WINDOW = 1024, /* symbols of a window */
    DIRECT_MAX = 2 * WINDOW,
    OVERLAP = 128, /* how far before its end a window is trusted */
    N_MEMOS = 16   /* windows remembered: long repetitive text is seldom computed twice */
};

status bpe_merges_init(bpe_merges *m, size_t n, error *err) {
    *m = (bpe_merges){0};
    size_t slots = 16;
    while (slots / 2 < n) slots *= 2;
    size_t bytes;
    if (!size_mul(slots, sizeof *m->slots, &bytes) || !(m->slots = mem_pages(bytes))) {
        return error_no_memory(err, "merges", slots);
    }
    m->mask = slots - 1;
    return CHURON_OK;
}

void bpe_merges_free(bpe_merges *m) {
    mem_pages_free(m->slots, (m->mask + 1) * sizeof *m->slots);
    *m = (bpe_merges){0};
}

bool bpe_merges_add(bpe_merges *m, int32_t left, int32_t right, uint32_t rank, int32_t id) {
    uint64_t pair = bpe_pair(left, right);
    size_t i = bpe_hash(pair) & m->mask;
    for (; m->slots[i].pair != 0; i = (i + 1) & m->mask) {
        if (m->slots[i].pair == pair) return false;
    }
    m->slots[i] = (bpe_merge){pair, rank, id};
    m->count++;
    return true;
}

/* ---- scanning --------------------------------------------------------------------------------------- */

static inline void look_up(const bpe_merges *m, int32_t left, int32_t right, uint32_t *rank, int32_t *id) {
    const bpe_merge *found = bpe_find(m, left, right);
    *rank = found ? found->rank : BPE_NO_RANK;
    *id = found ? found->id : -1;
}

/* Merges ids[n] in place, n <= SCAN_MAX; returns how many are left. */
static size_t merge_by_scan(const bpe_merges *m, int32_t *ids, size_t n) {
    uint32_t rank[SCAN_MAX]; /* of the pair (i, i+1) */
    int32_t becomes[SCAN_MAX];
    for (size_t i = 0; i + 1 < n; i++) look_up(m, ids[i], ids[i + 1], &rank[i], &becomes[i]);
    while (n > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++) {
            if (rank[i] < rank[best]) best = i;
        }
        if (rank[best] == BPE_NO_RANK) break;
        ids[best] = becomes[best];
        n--;
        for (size_t i = best + 1; i < n; i++) ids[i] = ids[i + 1];
        for (size_t i = best; i + 1 < n; i++) {
            rank[i] = rank[i + 1];
            becomes[i] = becomes[i + 1];
        }
        if (best + 1 < n) look_up(m, ids[best], ids[best + 1], &rank[best], &becomes[best]);
        if (best > 0) look_up(m, ids[best - 1], ids[best], &rank[best - 1], &becomes[best - 1]);
    }
    return n;
}

/* ---- the heap --------------------------------------------------------------------------------------- */

typedef struct symbol {
    int32_t id;
    int32_t becomes; /* of the pair with the next one */
    uint32_t rank;   /* of that pair; BPE_NO_RANK too once the symbol is merged into the one before */
    uint32_t prev, next;
} symbol;

/* What a window became, for the next window with the same symbols. */
typedef struct memo {
    const int32_t *symbols; /* [WINDOW], part of the sequence in work; NULL: unused */
    size_t n_tokens, n_sure;
    size_t sure_end; /* where the first token that is not sure begins */
    int32_t ids[WINDOW];
} memo;

struct bpe_scratch {
    symbol *symbols; /* [cap] */
    uint64_t *heap;  /* [3 * cap]: rank << 32 | position */
    int32_t *ids;    /* [cap]: the tokens */
    uint32_t *starts;
    size_t cap, n_heap, n_tokens;
    bool went_down; /* a merge made a pair of lower rank */
    memo *memos;
};

void bpe_scratch_free(bpe_scratch *s) {
    if (!s) return;
    mem_free(s->symbols);
    mem_free(s->heap);
    mem_free(s->ids);
    mem_free(s->starts);
    mem_free(s->memos);
    mem_free(s);
}

static status scratch_reserve(bpe_scratch **scratch, size_t n, error *err) {
    if (!*scratch && !(*scratch = mem_calloc(1, sizeof **scratch))) {
        return error_no_memory(err, "merging", sizeof **scratch);
    }
    bpe_scratch *s = *scratch;
    if (n <= s->cap) return CHURON_OK;
    if (n > UINT32_MAX / 2) {
        return error_set(err, CHURON_LIMIT, "text: a piece of %zu symbols, at most %u can be merged", n,
                         UINT32_MAX / 2);
    }
    size_t cap = n < 256 ? 256 : n;
    mem_free(s->symbols);
    mem_free(s->heap);
    mem_free(s->ids);
    mem_free(s->starts);
    s->symbols = mem_alloc(cap * sizeof *s->symbols);
    s->heap = mem_alloc(3 * cap * sizeof *s->heap);
    s->ids = mem_alloc(cap * sizeof *s->ids);
    s->starts = mem_alloc(cap * sizeof *s->starts);
    s->cap = cap;
    if (s->symbols && s->heap && s->ids && s->starts) return CHURON_OK;
    s->cap = 0;
    return error_no_memory(err, "merging", cap * 52);
}

static void sift_down(uint64_t *heap, size_t n, size_t i) {
    uint64_t v = heap[i];
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= n) break;
        if (child + 1 < n && heap[child + 1] < heap[child]) child++;
        if (heap[child] >= v) break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = v;
}

static void heap_push(bpe_scratch *s, uint64_t v) {
    size_t i = s->n_heap++;
    while (i > 0 && s->heap[(i - 1) / 2] > v) {
        s->heap[i] = s->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    s->heap[i] = v;
}

static uint64_t heap_pop(bpe_scratch *s) {
    uint64_t top = s->heap[0];
    s->heap[0] = s->heap[--s->n_heap];
    if (s->n_heap) sift_down(s->heap, s->n_heap, 0);
    return top;
}

/* The pair that begins at symbol i changed while `current` merged. */
static inline void renew(const bpe_merges *m, bpe_scratch *s, uint32_t i, uint32_t current) {
    symbol *a = &s->symbols[i];
    if (a->next == UINT32_MAX) {
        a->rank = BPE_NO_RANK;
        return;
    }
    look_up(m, a->id, s->symbols[a->next].id, &a->rank, &a->becomes);
    if (a->rank == BPE_NO_RANK) return;
    if (a->rank < current) s->went_down = true;
    heap_push(s, (uint64_t)a->rank << 32 | i);
}

/* Merges symbols[n], n > 0; the tokens are in s->ids and s->starts. */
static void merge_by_heap(const bpe_merges *m, bpe_scratch *s, const int32_t *symbols, size_t n) {
    s->n_heap = 0;
    s->went_down = false;
    for (uint32_t i = 0; i < n; i++) {
        symbol *a = &s->symbols[i];
        *a = (symbol){symbols[i], -1, BPE_NO_RANK, i - 1, i + 1 < n ? i + 1 : UINT32_MAX};
        if (i + 1 == n) break;
        look_up(m, symbols[i], symbols[i + 1], &a->rank, &a->becomes);
        if (a->rank != BPE_NO_RANK) s->heap[s->n_heap++] = (uint64_t)a->rank << 32 | i;
    }
    for (size_t i = s->n_heap / 2; i-- > 0;) sift_down(s->heap, s->n_heap, i);
    while (s->n_heap) {
        uint64_t top = heap_pop(s);
        uint32_t i = (uint32_t)top, rank = (uint32_t)(top >> 32);
        symbol *a = &s->symbols[i];
        if (a->rank != rank) continue; /* merged or changed since */
        symbol *b = &s->symbols[a->next];
        a->id = a->becomes;
        a->next = b->next;
        b->rank = BPE_NO_RANK;
        if (b->next != UINT32_MAX) s->symbols[b->next].prev = i;
        renew(m, s, i, rank);
        if (i > 0) renew(m, s, a->prev, rank);
    }
    s->n_tokens = 0;
    for (uint32_t i = 0; i != UINT32_MAX; i = s->symbols[i].next) {
        s->ids[s->n_tokens] = s->symbols[i].id;
        s->starts[s->n_tokens++] = i;
    }
}

/* ---- windows ---------------------------------------------------------------------------------------- */

static status merge_whole(const bpe_merges *m, bpe_scratch **scratch, const int32_t *symbols, size_t n,
                          token_list *out, error *err) {
    TRY(scratch_reserve(scratch, n, err));
    merge_by_heap(m, *scratch, symbols, n);
    return token_list_append(out, (*scratch)->ids, (*scratch)->n_tokens, err);
}

static memo *memo_for(bpe_scratch *s, const int32_t *symbols) {
    uint64_t h = 0;
    for (size_t i = 0; i < WINDOW; i += 2)
        h = (h ^ bpe_pair(symbols[i], symbols[i + 1])) * 0x9e3779b97f4a7c15u;
    return &s->memos[h >> 60];
}

typedef struct window {
    const int32_t *ids; /* [n_tokens], until the next window */
    size_t n_tokens;
    size_t n_sure;   /* of them; what follows the window is far enough to leave them alone */
    size_t sure_end; /* the symbol at which the first of the others begins */
} window;

static window see(const int32_t *ids, const uint32_t *starts, size_t n_tokens, size_t n) {
    size_t seen = n_tokens;
    while (seen > 0 && starts[seen - 1] + OVERLAP > n) seen--;
    size_t sure = seen > 0 ? seen - 1 : 0;
    return (window){ids, n_tokens, sure, starts[sure]};
}

/* Merges the n symbols of one window; s->went_down says whether the result may be joined to others. */
static status merge_window(const bpe_merges *m, bpe_scratch **scratch, const int32_t *symbols, size_t n,
                           window *out, error *err) {
    TRY(scratch_reserve(scratch, n, err));
    bpe_scratch *s = *scratch;
    if (n != WINDOW) {
        merge_by_heap(m, s, symbols, n);
        *out = see(s->ids, s->starts, s->n_tokens, n);
        return CHURON_OK;
    }
    memo *known = memo_for(s, symbols);
    if (known->symbols && memcmp(known->symbols, symbols, WINDOW * sizeof *symbols) == 0) {
        s->went_down = false;
        *out = (window){known->ids, known->n_tokens, known->n_sure, known->sure_end};
        return CHURON_OK;
    }
    merge_by_heap(m, s, symbols, n);
    *out = see(s->ids, s->starts, s->n_tokens, n);
    if (s->went_down) return CHURON_OK;
    known->symbols = symbols;
    known->n_tokens = out->n_tokens;
    known->n_sure = out->n_sure;
    known->sure_end = out->sure_end;
    memcpy(known->ids, s->ids, s->n_tokens * sizeof *s->ids);
    return CHURON_OK;
}

static status forget_memos(bpe_scratch **scratch, error *err) {
    TRY(scratch_reserve(scratch, WINDOW, err));
    bpe_scratch *s = *scratch;
    if (!s->memos && !(s->memos = mem_alloc(N_MEMOS * sizeof *s->memos))) {
        return error_no_memory(err, "merging", N_MEMOS * sizeof *s->memos);
    }
    for (size_t i = 0; i < N_MEMOS; i++) s->memos[i].symbols = NULL;
    return CHURON_OK;
}

typedef struct window_walk {
    size_t at;        /* symbols before are done */
    size_t out_len;   /* tokens then */
    int32_t expected; /* the token that the window before saw here; -1: none */
} window_walk;

/* n > DIRECT_MAX. Each window gives all but its last tokens; the next begins with the last of those that was
 * seen whole, and must see it too, or both are done again with windows of twice the size. Where that
 * contradicts what was joined before, the whole is done at once. */
static status merge_by_windows(const bpe_merges *m, bpe_scratch **scratch, const int32_t *symbols, size_t n,
                               token_list *out, error *err) {
    TRY(forget_memos(scratch, err));
    const size_t first_out = out->len;
    window_walk now = {0, first_out, -1}, before = now;
    size_t least = WINDOW, size = least; /* least grows with each disagreement, so there are few */
    for (;;) {
        size_t left = n - now.at;
        window w;
        TRY(merge_window(m, scratch, symbols + now.at, left < size ? left : size, &w, err));
        bool agrees = now.expected < 0 || w.ids[0] == now.expected;
        if ((*scratch)->went_down || (!agrees && now.at == before.at)) {
            out->len = first_out;
            return merge_whole(m, scratch, symbols, n, out, err);
        }
        if (!agrees) {
            now = before;
            out->len = now.out_len;
            size = least *= 2;
        } else if (left <= size) {
            return token_list_append(out, w.ids, w.n_tokens, err);
        } else if (w.n_sure == 0) {
            size *= 2;
        } else {
            before = now;
            TRY(token_list_append(out, w.ids, w.n_sure, err));
            now = (window_walk){now.at + w.sure_end, out->len, w.ids[w.n_sure]};
            size = least;
        }
    }
}

status bpe_encode(const bpe_merges *m, bpe_scratch **scratch, const int32_t *symbols, size_t n,
                  token_list *out, error *err) {
    if (n == 0) return CHURON_OK;
    if (n > DIRECT_MAX) return merge_by_windows(m, scratch, symbols, n, out, err);
    if (n > SCAN_MAX) return merge_whole(m, scratch, symbols, n, out, err);
    int32_t ids[SCAN_MAX];
    memcpy(ids, symbols, n * sizeof *ids);
    return token_list_append(out, ids, merge_by_scan(m, ids, n), err);
}

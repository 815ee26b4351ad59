#include "graph/ops/move.h"

#include "base/mem.h"

#include <string.h>

enum { TILE = 16 }; /* of a transposition: 16 elements of 4 bytes are one cache line */

void move_strides(const int64_t *dims, size_t rank, ptrdiff_t *strides) {
    ptrdiff_t stride = 1;
    for (size_t d = rank; d-- > 0;) {
        strides[d] = stride;
        stride *= dims[d] > 0 ? (ptrdiff_t)dims[d] : 1;
    }
}

size_t dims_product(const int64_t *dims, size_t from, size_t to) {
    size_t n = 1;
    for (size_t d = from; d < to; d++) n *= (size_t)dims[d];
    return n;
}

int64_t index_at(const tensor *t, size_t i) {
    return t->type == ELEM_I32 ? ((const int32_t *)t->data)[i] : ((const int64_t *)t->data)[i];
}

/* Merges neighbours that are walked as one and drops dimensions of size 1. False if there is nothing. */
static bool merge(move *m) {
    size_t rank = 0;
    for (size_t d = 0; d < m->rank; d++) {
        if (m->dims[d] == 0) return false;
        if (m->dims[d] == 1) continue;
        ptrdiff_t n = (ptrdiff_t)m->dims[d];
        if (rank > 0 && m->to[rank - 1] == m->to[d] * n && m->from[rank - 1] == m->from[d] * n) {
            m->dims[rank - 1] *= m->dims[d];
            m->to[rank - 1] = m->to[d];
            m->from[rank - 1] = m->from[d];
        } else {
            m->dims[rank] = m->dims[d];
            m->to[rank] = m->to[d];
            m->from[rank++] = m->from[d];
        }
    }
    if (rank == 0) {
        m->dims[0] = 1, m->to[0] = 1, m->from[0] = 1;
        rank = 1;
    }
    m->rank = rank;
    return true;
}

typedef struct bytes16 {
    uint64_t half[2];
} bytes16;

#define ROW(T)                                                                                               \
    {                                                                                                        \
        T *o = to;                                                                                           \
        const T *x = from;                                                                                   \
        if (st == 1 && sf == 0) {                                                                            \
            T v = *x;                                                                                        \
            for (size_t i = 0; i < n; i++) o[i] = v;                                                         \
        } else                                                                                               \
            for (ptrdiff_t i = 0; i < (ptrdiff_t)n; i++) o[i * st] = x[i * sf];                              \
    }
static void copy_row(void *to, const void *from, size_t n, ptrdiff_t st, ptrdiff_t sf, size_t size) {
    if (st == 1 && sf == 1) {
        memcpy(to, from, n * size);
        return;
    }
    switch (size) {
    case 1: ROW(uint8_t); break;
    case 2: ROW(uint16_t); break;
    case 4: ROW(uint32_t); break;
    case 8: ROW(uint64_t); break;
    default: ROW(bytes16); break;
    }
}

/* o[i, j] = x[i, j] for a tile whose rows (j) are contiguous in `to` and whose columns (i) are in `from`. */
#define TILE_COPY(T)                                                                                         \
    {                                                                                                        \
        T *o = to;                                                                                           \
        const T *x = from;                                                                                   \
        for (ptrdiff_t i = 0; i < (ptrdiff_t)ni; i++)                                                        \
            for (ptrdiff_t j = 0; j < (ptrdiff_t)nj; j++) o[i * st + j] = x[i + j * sf];                     \
    }
static void copy_tile(void *to, const void *from, size_t ni, size_t nj, ptrdiff_t st, ptrdiff_t sf,
                      size_t size) {
    switch (size) {
    case 1: TILE_COPY(uint8_t); break;
    case 2: TILE_COPY(uint16_t); break;
    case 4: TILE_COPY(uint32_t); break;
    case 8: TILE_COPY(uint64_t); break;
    default: TILE_COPY(bytes16); break;
    }
}

typedef struct walk {
    move m; /* merged; dimensions [0, outer) are walked, the others belong to one step */
    size_t outer, steps, size;
    char *to;
    const char *from;
    bool tiled; /* the last two dimensions are a transposition, the first of them walked in tiles */
    size_t tiles;
} walk;

static void step(const walk *w, size_t s) {
    const move *m = &w->m;
    size_t tile = w->tiled ? s % w->tiles : 0;
    if (w->tiled) s /= w->tiles;
    ptrdiff_t to = 0, from = 0;
    for (size_t d = w->outer; d-- > 0;) {
        ptrdiff_t i = (ptrdiff_t)(s % m->dims[d]);
        s /= m->dims[d];
        to += i * m->to[d];
        from += i * m->from[d];
    }
    size_t last = m->rank - 1;
    ptrdiff_t size = (ptrdiff_t)w->size;
    if (!w->tiled) {
        copy_row(w->to + to * size, w->from + from * size, m->dims[last], m->to[last], m->from[last],
                 w->size);
        return;
    }
    size_t i0 = tile * TILE, ni = m->dims[last - 1] - i0 < TILE ? m->dims[last - 1] - i0 : TILE;
    to += (ptrdiff_t)i0 * m->to[last - 1];
    from += (ptrdiff_t)i0 * m->from[last - 1];
    for (size_t j = 0; j < m->dims[last]; j += TILE) {
        size_t nj = m->dims[last] - j < TILE ? m->dims[last] - j : TILE;
        copy_tile(w->to + (to + (ptrdiff_t)j) * size, w->from + (from + (ptrdiff_t)j * m->from[last]) * size,
                  ni, nj, m->to[last - 1], m->from[last], w->size);
    }
}

static void steps(void *ctx, size_t begin, size_t end) {
    const walk *w = ctx;
    for (size_t s = begin; s < end; s++) step(w, s);
}

/* A dimension that is contiguous in `from` while the last is not goes beside the last, to be tiled with it.
 */
static bool find_tile(move *m) {
    size_t last = m->rank - 1;
    if (m->rank < 2 || m->to[last] != 1 || m->from[last] == 1 || m->from[last] == 0) return false;
    for (size_t d = 0; d < last; d++) {
        if (m->from[d] != 1) continue;
        move old = *m;
        for (size_t k = d; k + 2 < m->rank; k++) {
            m->dims[k] = old.dims[k + 1], m->to[k] = old.to[k + 1], m->from[k] = old.from[k + 1];
        }
        m->dims[last - 1] = old.dims[d], m->to[last - 1] = old.to[d], m->from[last - 1] = old.from[d];
        return true;
    }
    return false;
}

static bool prepare(walk *w, const move *m, void *to, const void *from, size_t size) {
    *w = (walk){.m = *m, .size = size, .to = to, .from = from};
    if (!merge(&w->m)) return false;
    w->tiled = find_tile(&w->m);
    w->outer = w->m.rank - (w->tiled ? 2 : 1);
    w->tiles = w->tiled ? (w->m.dims[w->outer] + TILE - 1) / TILE : 1;
    w->steps = w->tiles;
    for (size_t d = 0; d < w->outer; d++) w->steps *= w->m.dims[d];
    return true;
}

enum { SPLIT_BYTES = 1 << 16 };

void move_copy(const move *m, void *to, const void *from, size_t size) {
    walk w;
    if (prepare(&w, m, to, from, size)) steps(&w, 0, w.steps);
}

void move_run(op_run *r, const move *m, void *to, const void *from, size_t size) {
    walk w;
    if (!prepare(&w, m, to, from, size)) return;
    size_t count = 1;
    for (size_t d = 0; d < w.m.rank; d++) count *= w.m.dims[d];
    /* One long run: cut it so that threads can share it. */
    if (w.m.rank == 1 && count * size > SPLIT_BYTES) {
        size_t part = SPLIT_BYTES / size, whole = count / part;
        move head = {0}, tail = {0};
        move_dim(&head, (int64_t)whole, (ptrdiff_t)part * w.m.to[0], (ptrdiff_t)part * w.m.from[0]);
        move_dim(&head, (int64_t)part, w.m.to[0], w.m.from[0]);
        move_dim(&tail, (int64_t)(count - whole * part), w.m.to[0], w.m.from[0]);
        ptrdiff_t at = (ptrdiff_t)(whole * part * size);
        move_copy(&tail, (char *)to + at * w.m.to[0], (const char *)from + at * w.m.from[0], size);
        w.m = head;
        w.outer = 1;
        w.steps = whole;
    }
    run_parallel(r, w.steps, move_work(count * size) + (double)w.steps * 5, steps, &w);
}

void move_fill(void *to, const void *element, size_t n, size_t size) {
    copy_row(to, element, n, 1, 0, size);
}

typedef struct fill_job {
    char *to;
    const void *element;
    size_t size;
} fill_job;

static void fill_range(void *ctx, size_t begin, size_t end) {
    const fill_job *j = ctx;
    move_fill(j->to + begin * j->size, j->element, end - begin, j->size);
}

void move_fill_run(op_run *r, void *to, const void *element, size_t n, size_t size) {
    fill_job j = {to, element, size};
    run_parallel(r, n, move_work(n * size) * 2, fill_range, &j);
}

status strings_own(tensor *t, error *err) {
    if (t->type != ELEM_STRING) return CHURON_OK;
    tensor_string *s = t->data;
    size_t total = 0;
    for (size_t i = 0; i < t->count; i++)
        if (!size_add(total, s[i].len, &total)) return error_no_memory(err, "strings", SIZE_MAX);
    char *bytes;
    TRY(tensor_string_bytes(t, total, &bytes, err));
    for (size_t i = 0; i < t->count; i++) {
        if (s[i].len > 0) memcpy(bytes, s[i].data, s[i].len);
        s[i].data = bytes;
        bytes += s[i].len;
    }
    return CHURON_OK;
}

status run_view(op_run *r, error *err) {
    const tensor *x = run_in(r, 0);
    tensor *out;
    TRY(run_out(r, 0, &out, err));
    if (out->data == x->data) return CHURON_OK;
    move m = {0};
    move_dim(&m, (int64_t)x->count, 1, 1);
    move_run(r, &m, out->data, x->data, tensor_elem_size(x));
    return strings_own(out, err);
}

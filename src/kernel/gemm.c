/* gemm.c: how a product is cut into tiles; the same for every instruction set.
 *
 * Rows in near-equal slices, K in blocks so that a block of a panel pair stays in the first-level cache while
 * it meets the slices of a chunk of rows, which stay in the second. Sums rest in C between blocks, which
 * changes no bit. */
#include "kernel/gemm.h"

#include "base/mem.h"

#include <string.h>

enum {
    K_BLOCK = GEMM_K_BLOCK,
    CHUNK_ROWS = 168,
    LINE = 64,
    LOOK = 4 << 20 /* multiply-adds between looks at the stop */
};

size_t gemm_packed_floats(size_t k, size_t n) {
    size_t floats;
    if (n > SIZE_MAX - GEMM_PANEL || !size_mul(gemm_panels(n) * GEMM_PANEL, k, &floats)) return 0;
    return floats;
}

void gemm_pack(const float *b, size_t row, size_t col, size_t k, size_t n, size_t p0, size_t p1, float *out) {
    for (size_t p = p0; p < p1; p++) {
        const float *from = b + p * GEMM_PANEL * col;
        float *to = out + p * GEMM_PANEL * k;
        const size_t width = n - p * GEMM_PANEL < GEMM_PANEL ? n - p * GEMM_PANEL : GEMM_PANEL;
        if (row == 1 && width == GEMM_PANEL) {
            for (size_t i = 0; i < k; i++, to += GEMM_PANEL)
                for (size_t j = 0; j < GEMM_PANEL; j++) to[j] = from[i + j * col];
            continue;
        }
        for (size_t i = 0; i < k; i++, to += GEMM_PANEL) {
            if (col == 1 && width == GEMM_PANEL) {
                memcpy(to, from + i * row, GEMM_PANEL * sizeof *to);
                continue;
            }
            for (size_t j = 0; j < GEMM_PANEL; j++) to[j] = j < width ? from[i * row + j * col] : 0.0f;
        }
    }
}

size_t gemm_scratch_floats(size_t k) {
    return (k < K_BLOCK ? k : K_BLOCK) * CHUNK_ROWS + 64;
}

/* ---- rows ------------------------------------------------------------------------------------------- */

static size_t n_slices(size_t rows, size_t most) {
    return (rows + most - 1) / most;
}

/* First row of slice s of `rows` rows in `slices` near-equal slices. */
static size_t slice_begin(size_t rows, size_t slices, size_t s) {
    const size_t wide = rows % slices;
    return s * (rows / slices) + (s < wide ? s : wide);
}

/* Values [k0, k0+kn) of `width` rows from row i on, interleaved: to[j*width + t]. */
static void interleave(const gemm *g, size_t i, size_t width, size_t k0, size_t kn, float *to) {
    size_t s = k0 / g->run, j = k0 % g->run;
    while (kn > 0) {
        const size_t n = g->run - j < kn ? g->run - j : kn;
        const float *from = g->a + i * g->a_row + (g->runs ? g->runs[s] : 0) + (ptrdiff_t)(j * g->a_k);
        for (size_t t = 0; t < width; t++) {
            const float *row = from + t * g->a_row;
            for (size_t x = 0; x < n; x++) to[x * width + t] = row[x * g->a_k];
        }
        to += n * width;
        kn -= n;
        s++;
        j = 0;
    }
}

/* ---- tiles ------------------------------------------------------------------------------------------ */

typedef struct cut {
    const kernels *k;
    const gemm *g;
    gemm_rows rows;
    size_t p0, p1;        /* the panels */
    size_t m0, m, slices; /* the chunk */
    size_t k0, kn;        /* the block */
    const float *packed;  /* of the chunk and block */
    size_t work;          /* multiply-adds since the last look */
} cut;

/* What slice s fetches of the panels that are read after [p, p + panels): the next ones of this block, else
 * the first of the next block, else those behind p1, which the next call may take. */
static void fetch_ahead(const cut *c, size_t s, size_t p, size_t panels, gemm_tile *t) {
    const gemm *g = c->g;
    size_t next = p + panels, end = c->p1, k0 = c->k0;
    t->ahead = (const char *)t->b;
    if (next == end && k0 + c->kn < g->k) {
        next = c->p0;
        k0 += c->kn;
    } else if (next == end) {
        end = gemm_panels(g->n);
        k0 = 0;
    }
    const size_t n = end - next < panels ? end - next : panels;
    const size_t parts = n == 0 || c->slices < n ? 1 : c->slices / n; /* of a panel */
    if (s / parts >= n) return;
    t->ahead = (const char *)(g->b + (next + s / parts) * GEMM_PANEL * g->k + k0 * GEMM_PANEL);
    t->ahead_step = LINE / parts;
    t->ahead += s % parts * c->kn * t->ahead_step;
}

static void run_tile(const cut *c, size_t s, size_t p, size_t panels) {
    const gemm *g = c->g;
    const size_t from = slice_begin(c->m, c->slices, s), width = slice_begin(c->m, c->slices, s + 1) - from;
    const size_t i = c->m0 + from, columns = g->n - (p + panels - 1) * GEMM_PANEL;
    static const ptrdiff_t at_zero = 0;
    gemm_tile t = {
        .a_row = g->a_row,
        .n_runs = 1,
        .run = c->kn,
        .runs = &at_zero,
        .b = g->b + p * GEMM_PANEL * g->k + c->k0 * GEMM_PANEL,
        .b_panel = GEMM_PANEL * g->k,
        .c = g->c + i * g->c_row + p * g->c_panel,
        .c_row = g->c_row,
        .c_panel = g->c_panel,
        .mask = (uint16_t)(columns < GEMM_PANEL && g->c_panel == GEMM_PANEL ? (1u << columns) - 1u : 0xffffu),
        .first = c->k0 == 0,
        .last = c->k0 + c->kn == g->k,
        .half = g->half && c->rows != GEMM_ROWS_PACKED && columns <= GEMM_PANEL,
        .bias = g->bias ? g->bias + p * GEMM_PANEL : NULL,
        .add = g->add ? g->add + i * g->add_row + p * g->add_panel : NULL,
        .add_row = g->add_row,
        .add_panel = g->add_panel,
        .low = g->low,
        .high = g->high};
    if (c->rows == GEMM_ROWS_PACKED) {
        t.a = c->packed + from * c->kn;
    } else {
        t.a = g->a + i * g->a_row;
        if (g->n_runs > 1) {
            t.runs = g->runs + c->k0 / g->run;
            t.run = g->run;
            t.n_runs = c->kn / g->run;
        } else {
            t.a += (g->runs ? g->runs[0] : 0) + (ptrdiff_t)c->k0;
        }
    }
    fetch_ahead(c, s, p, panels, &t);
    c->k->gemm_tile(&t, c->rows, width, panels);
}

/* After so many panels of the chunk and block. */
static bool should_stop(cut *c, size_t panels) {
    c->work += c->m * c->kn * panels * GEMM_PANEL;
    if (c->work < LOOK) return false;
    c->work = 0;
    return stop_now(c->g->stop);
}

/* False: stopped. */
static bool run_block(cut *c) {
    const gemm_shape *shape = &c->k->gemm_shape;
    const size_t widest = (c->m + c->slices - 1) / c->slices;
    const size_t most = widest <= shape->few_rows ? shape->few_panels : shape->panels;
    for (size_t p = c->p0; p < c->p1;) {
        size_t panels = c->p1 - p < most ? c->p1 - p : most;
        if (panels == 3) panels = 2; /* there are tiles of 1, 2 and 4 panels */
        for (size_t s = 0; s < c->slices; s++) run_tile(c, s, p, panels);
        p += panels;
        if (should_stop(c, panels)) return false;
    }
    return true;
}

/* How the rows can be read where they are. One row is read as any kind. */
static gemm_rows rows_kind(const gemm *g, size_t m) {
    if (g->a_k != 1) return GEMM_ROWS_PACKED;
    return g->a_row == 16 || m == 1 ? GEMM_ROWS_16 : g->a_row == 32 ? GEMM_ROWS_32 : GEMM_ROWS_ANY;
}

/* Most rows of a tile. Rows a multiple of 2 KiB apart meet in one or two sets of the first-level cache, which
 * hold 8 lines each or more (measured: K 1024, 14 rows 60 %, 6 rows 97 % of the peak). */
static size_t most_rows(const gemm *g, gemm_rows rows, const gemm_shape *shape) {
    return rows == GEMM_ROWS_ANY && g->a_row % 512 == 0 ? shape->few_rows : shape->rows;
}

/* Values of K in a block: whole runs where rows are read in place. */
static size_t block_size(const gemm *g, gemm_rows rows) {
    const size_t blocks = (g->k + K_BLOCK - 1) / K_BLOCK;
    const size_t even = blocks ? (g->k + blocks - 1) / blocks : 1;
    if (rows == GEMM_ROWS_PACKED || g->n_runs <= 1) return even;
    const size_t runs = even / g->run;
    return (runs ? runs : 1) * g->run;
}

static void clear_rows(const gemm *g, size_t m0, size_t m1, size_t p0, size_t p1);

void gemm_run(const kernels *k, const gemm *g, size_t m0, size_t m1, size_t p0, size_t p1, float *scratch) {
    if (g->k == 0) {
        clear_rows(g, m0, m1, p0, p1);
        return;
    }
    cut c = {.k = k, .g = g, .rows = rows_kind(g, m1 - m0), .p0 = p0, .p1 = p1, .packed = scratch};
    const size_t block = block_size(g, c.rows), chunks = n_slices(m1 - m0, CHUNK_ROWS);
    for (size_t i = 0; i < chunks; i++) {
        c.m0 = m0 + slice_begin(m1 - m0, chunks, i);
        c.m = m0 + slice_begin(m1 - m0, chunks, i + 1) - c.m0;
        c.slices = n_slices(c.m, most_rows(g, c.rows, &k->gemm_shape));
        for (c.k0 = 0; c.k0 < g->k; c.k0 += c.kn) {
            c.kn = g->k - c.k0 < block ? g->k - c.k0 : block;
            for (size_t s = 0; c.rows == GEMM_ROWS_PACKED && s < c.slices; s++) {
                const size_t from = slice_begin(c.m, c.slices, s), to = slice_begin(c.m, c.slices, s + 1);
                interleave(g, c.m0 + from, to - from, c.k0, c.kn, scratch + from * c.kn);
            }
            if (!run_block(&c)) return;
        }
    }
}

/* A product over nothing is zero, and still gets what follows. */
static void clear_rows(const gemm *g, size_t m0, size_t m1, size_t p0, size_t p1) {
    for (size_t i = m0; i < m1; i++) {
        for (size_t j = p0 * GEMM_PANEL; j < p1 * GEMM_PANEL && j < g->n; j++) {
            const size_t p = j / GEMM_PANEL, lane = j % GEMM_PANEL;
            float v = g->bias ? g->bias[j] : 0.0f;
            if (g->add) v += g->add[i * g->add_row + p * g->add_panel + lane];
            v = v < g->low ? g->low : v;
            g->c[i * g->c_row + p * g->c_panel + lane] = v > g->high ? g->high : v;
        }
    }
}

/* forward.c: see forward.h. The decoder as one function that all threads execute together (SPMD).
 *
 * forward_member reads top to bottom as the model is defined. Between barriers every member works on its own
 * rows of a weight matrix, its own tokens or its own heads, split statically, or takes attention jobs from a
 * shared counter: each job writes only its own place, so who computes it does not matter.
 *
 * Shapes: R rows of the batch, E n_embd, F n_ff, Q n_head*head_dim_k, K n_head_kv*head_dim_k,
 * V n_head_kv*head_dim_v, O n_head*head_dim_v. */
#include "lm/forward.h"

#include "base/mem.h"
#include "lm/rope.h"

#include <assert.h>
#include <stdatomic.h>
#include <string.h>

/* Few rows are normalised by every member for itself: at decode that is cheaper than a barrier. */
enum { PRIVATE_ROWS = 4 };
/* Spans of up to this many rows split their attention over chunks of keys (decode), longer ones over queries.
 */
enum { DECODE_ROWS = 4, QUERY_TILE = 64, LEAST_TILE = 4 };

typedef struct member_scratch {
    activations act; /* PRIVATE_ROWS rows of max_cols */
    void *matmul;
    void *attn;
    attn_partial *partial; /* [2, QUERY_TILE*group]: a chunk's, and the running total */
    float *o;              /* [2, QUERY_TILE*group, head_dim_v] */
} member_scratch;

/* Decode: all rows of a short span against one chunk of keys. Prefill: a tile of a long span's rows against
 * all its keys. */
typedef struct attn_job {
    uint32_t span, head;
    bool decode;
    uint32_t chunk;   /* decode */
    uint32_t from, n; /* rows of the span */
    size_t partial;   /* decode: index of its first partial */
} attn_job;

typedef struct row_place {
    uint32_t span;
    uint32_t index;  /* in its span */
    size_t position; /* in its sequence */
} row_place;

struct forward {
    const lm_model *m;
    pool *p;
    kv_pool *kv;
    rope_table rope;
    size_t max_rows, max_spans, max_outputs, max_context;
    size_t qkv_cols;
    /* one block of memory; shapes for max_rows */
    void *memory;
    size_t memory_bytes;
    float *x;                      /* [R, E] residual stream */
    float *y;                      /* [R, E] a block's output */
    float *qkv;                    /* [R, Q+K+V] */
    float *attn;                   /* [R, O] */
    float *gate;                   /* [R, F] */
    float *up;                     /* [R, F] */
    activations act;               /* [R, max_cols] shared form of a matrix input */
    activations act_ff;            /* [R, F]: written while others still read act */
    float *kept;                   /* [R, E] final rows that want logits */
    float *logits;                 /* [max_outputs, n_vocab] */
    float *angles;                 /* [2][R, n_pairs, 2] cos and sin: global, local */
    row_place *rows;               /* [R] */
    const void **page_k, **page_v; /* [members][max_pages]: a job's pages of one layer and head */
    size_t *span_row;              /* [max_spans]: its first row */
    size_t *span_partial;          /* [max_spans] decode: index of its first partial */
    size_t max_pages;
    attn_job *jobs;
    size_t max_jobs;
    attn_partial *partial; /* decode: [jobs*group*DECODE_ROWS] */
    float *partial_o;
    size_t max_partials;
    member_scratch *members;
    /* the batch being run */
    const span *spans;
    size_t n_spans, n_rows, n_kept, n_jobs;
    bool need_merge; /* some span's keys fill more than one chunk */
    size_t logits_from, logits_n;
    atomic_size_t next_job; /* relaxed: the barrier before and after orders everything else */
};

/* ---- memory ----------------------------------------------------------------------------------------- */

/* Hands out 64-byte aligned pieces of one block; with base NULL it only measures. */
typedef struct carver {
    uint8_t *base;
    size_t at;
    bool overflow;
} carver;

static void *carve(carver *c, size_t count, size_t size) {
    size_t bytes;
    if (!size_mul(count, size, &bytes) || !size_add(c->at, bytes + 63, &bytes)) {
        c->overflow = true;
        return NULL;
    }
    void *p = c->base ? c->base + c->at : NULL;
    c->at = bytes & ~(size_t)63;
    return p;
}

static void carve_activations(carver *c, activations *a, size_t rows, size_t cols) {
    size_t padded = (cols + ACT_BLOCK - 1) / ACT_BLOCK * ACT_BLOCK;
    a->f32 = carve(c, rows * cols, sizeof(float));
    a->q = carve(c, rows * padded, 1);
    a->scale = carve(c, rows * (padded / ACT_BLOCK), sizeof(float));
    a->sum16 = carve(c, rows * (padded / 16), sizeof(int16_t));
}

static void lay_out(forward *f, carver *c) {
    const lm_config *g = &f->m->config;
    const size_t R = f->max_rows, E = g->n_embd, F = g->n_ff, O = (size_t)g->n_head * g->head_dim_v;
    const size_t members = pool_threads(f->p), group = g->n_head / g->n_head_kv;
    f->x = carve(c, R * E, sizeof(float));
    f->y = carve(c, R * E, sizeof(float));
    f->qkv = carve(c, R * f->qkv_cols, sizeof(float));
    f->attn = carve(c, R * O, sizeof(float));
    f->gate = carve(c, R * F, sizeof(float));
    f->up = carve(c, R * F, sizeof(float));
    carve_activations(c, &f->act, R, f->m->max_cols);
    carve_activations(c, &f->act_ff, R, F);
    f->kept = carve(c, R * E, sizeof(float));
    f->logits = carve(c, f->max_outputs * g->n_vocab, sizeof(float));
    f->angles = carve(c, 2 * R * f->rope.n_pairs * 2, sizeof(float));
    f->rows = carve(c, R, sizeof *f->rows);
    f->span_row = carve(c, f->max_spans, sizeof *f->span_row);
    f->span_partial = carve(c, f->max_spans, sizeof *f->span_partial);
    f->page_k = carve(c, members * f->max_pages, sizeof *f->page_k);
    f->page_v = carve(c, members * f->max_pages, sizeof *f->page_v);
    f->jobs = carve(c, f->max_jobs, sizeof *f->jobs);
    f->partial = carve(c, f->max_partials, sizeof *f->partial);
    f->partial_o = carve(c, f->max_partials * g->head_dim_v, sizeof(float));
    member_scratch *list = carve(c, members, sizeof *f->members);
    const size_t head_dim = g->head_dim_k > g->head_dim_v ? g->head_dim_k : g->head_dim_v;
    for (size_t i = 0; i < members; i++) {
        member_scratch s = {0};
        carve_activations(c, &s.act, PRIVATE_ROWS, f->m->max_cols);
        s.matmul = carve(c, matmul_scratch(f->m->max_cols, R), 1);
        s.attn = carve(c, attn_scratch(head_dim, group, QUERY_TILE), 1);
        s.partial = carve(c, 2 * QUERY_TILE * group, sizeof *s.partial);
        s.o = carve(c, 2 * QUERY_TILE * group * g->head_dim_v, sizeof(float));
        if (list) list[i] = s;
    }
    f->members = list;
}

status forward_create(forward **out, const lm_model *m, pool *p, kv_pool *kv, size_t max_rows,
                      size_t max_spans, size_t max_context, size_t max_outputs, error *err) {
    *out = NULL;
    status st = CHURON_OK;
    const lm_config *g = &m->config;
    forward *f = mem_calloc(1, sizeof *f);
    if (!f) return error_no_memory(err, "forward pass", sizeof *f);
    f->m = m;
    f->p = p;
    f->kv = kv;
    f->max_rows = max_rows;
    f->max_spans = max_spans;
    f->max_outputs = max_outputs;
    f->max_context = max_context;
    f->qkv_cols = (size_t)g->n_head * g->head_dim_k + (size_t)g->n_head_kv * (g->head_dim_k + g->head_dim_v);
    f->max_pages = (max_context + KV_PAGE - 1) / KV_PAGE;
    const size_t chunks = (max_context + ATTN_CHUNK - 1) / ATTN_CHUNK;
    const size_t tiles = max_rows / LEAST_TILE + max_spans + 1;
    f->max_jobs = g->n_head_kv * (max_spans * chunks + tiles);
    f->max_partials = max_spans * chunks * g->n_head * DECODE_ROWS;
    TRY_GOTO(rope_table_create(&f->rope, m, err));
    carver measure = {0};
    lay_out(f, &measure);
    f->memory_bytes = measure.at;
    f->memory = measure.overflow ? NULL : mem_pages(measure.at);
    if (!f->memory) {
        st = error_no_memory(err, "forward pass", measure.at);
        goto cleanup;
    }
    lay_out(f, &(carver){.base = f->memory});
    *out = f;
    f = NULL;
cleanup:
    forward_free(f);
    return st;
}

void forward_free(forward *f) {
    if (!f) return;
    rope_table_free(&f->rope);
    mem_pages_free(f->memory, f->memory_bytes);
    mem_free(f);
}

size_t forward_scratch_bytes(const forward *f) {
    return f->memory_bytes;
}

/* ---- matrix inputs ---------------------------------------------------------------------------------- */

/* Row t of activations whose rows have `cols` columns. */
static void quantize_row(const kernels *k, const activations *a, size_t t, const float *row) {
    k->quantize(row, a->cols, a->q + t * a->cols, a->scale + t * (a->cols / ACT_BLOCK),
                a->sum16 + t * (a->cols / 16));
}

typedef struct rows_source {
    const float *x;    /* [n, cols] */
    const float *norm; /* RMS-norm weights, or NULL: as it is */
    size_t n, cols;
} rows_source;

static void prepare_rows(const forward *f, const activations *a, rows_source s, size_t from, size_t to,
                         bool quantized) {
    const kernels *k = f->m->k;
    float *f32 = (float *)(uintptr_t)a->f32;
    for (size_t t = from; t < to; t++) {
        float *row = f32 + t * s.cols;
        if (s.norm) {
            k->rms_norm(s.x + t * s.cols, s.norm, s.cols, f->m->config.norm_eps, row);
        } else {
            memcpy(row, s.x + t * s.cols, s.cols * sizeof *row);
        }
        if (quantized) quantize_row(k, a, t, row);
    }
}

/* Rows of s, normalised and in the form that the matrix products read. Ends with everything visible to this
 * member: few rows are prepared by each member privately, many are shared out and met at a barrier. */
static activations prepare(const forward *f, const pool_member *me, rows_source s, bool quantized) {
    if (s.n <= PRIVATE_ROWS) {
        activations a = f->members[me->index].act;
        a.cols = s.cols;
        prepare_rows(f, &a, s, 0, s.n, quantized);
        return a;
    }
    activations a = f->act;
    a.cols = s.cols;
    size_t from, to;
    pool_split(me, s.n, 1, &from, &to);
    prepare_rows(f, &a, s, from, to, quantized);
    pool_barrier(me);
    return a;
}

static bool is_quantized(const packed *w) {
    return !dtype_is_float(w->type);
}

/* ---- attention -------------------------------------------------------------------------------------- */

/* Bias, head norm and rotation of one head of q or k. */
static void finish_head(const forward *f, float *head, const float *bias, const float *norm,
                        const float *angles) {
    const lm_config *c = &f->m->config;
    if (bias) f->m->k->add(head, bias, c->head_dim_k);
    if (norm) f->m->k->rms_norm(head, norm, c->head_dim_k, c->norm_eps, head);
    if (angles) f->m->k->rope(head, angles, c->n_rot, c->rope_interleaved);
}

static const float *layer_angles(const forward *f, uint32_t layer) {
    const lm_config *c = &f->m->config;
    if (!lm_layer_has_rope(c, layer)) return NULL;
    bool local = c->rope_base_local != 0.0f && lm_layer_has_window(c, layer);
    return f->angles + (local ? f->max_rows * f->rope.n_pairs * 2 : 0);
}

/* Queries are made ready, keys and values stored. Items are (row, KV head). */
static void store_kv(const forward *f, const pool_member *me, uint32_t layer) {
    const lm_config *c = &f->m->config;
    const lm_layer *y = &f->m->layers[layer];
    const size_t dk = c->head_dim_k, dv = c->head_dim_v, group = c->n_head / c->n_head_kv;
    const size_t q_cols = (size_t)c->n_head * dk, k_cols = (size_t)c->n_head_kv * dk;
    const float *angles = layer_angles(f, layer);
    size_t from, to;
    pool_split(me, f->n_rows * c->n_head_kv, 1, &from, &to);
    for (size_t item = from; item < to; item++) {
        const size_t t = item / c->n_head_kv, h = item % c->n_head_kv;
        const row_place *place = &f->rows[t];
        const float *turn = angles ? angles + t * f->rope.n_pairs * 2 : NULL;
        float *row = f->qkv + t * f->qkv_cols;
        for (size_t i = h * group; i < (h + 1) * group; i++) {
            finish_head(f, row + i * dk, y->bq ? y->bq + i * dk : NULL, y->q_norm, turn);
        }
        float *key = row + q_cols + h * dk, *value = row + q_cols + k_cols + h * dv;
        finish_head(f, key, y->bk ? y->bk + h * dk : NULL, y->k_norm, turn);
        if (y->bv) f->m->k->add(value, y->bv + h * dv, dv);
        const uint32_t page = f->spans[place->span].kv->pages[place->position / KV_PAGE];
        f->m->k->kv_store[kv_pool_type(f->kv)](kv_keys(f->kv, page, layer, (uint32_t)h),
                                               kv_values(f->kv, page, layer, (uint32_t)h),
                                               place->position % KV_PAGE, key, dk, value, dv);
    }
}

static attn_head head_of(const forward *f, const pool_member *me, uint32_t layer) {
    const lm_config *c = &f->m->config;
    return (attn_head){.head_dim_k = c->head_dim_k,
                       .head_dim_v = c->head_dim_v,
                       .group = c->n_head / c->n_head_kv,
                       .scale = c->attn_scale,
                       .soft_cap = c->attn_soft_cap,
                       .window = lm_layer_has_window(c, layer) ? c->window : 0,
                       .k_pages = f->page_k + me->index * f->max_pages,
                       .v_pages = f->page_v + me->index * f->max_pages};
}

/* Pages of one chunk, up to the last position of the span, into this member's lists. */
static void list_pages(const forward *f, const pool_member *me, const span *s, uint32_t layer, uint32_t head,
                       size_t chunk) {
    const size_t per_chunk = ATTN_CHUNK / KV_PAGE, last = (s->position + s->n - 1) / KV_PAGE;
    const void **k = f->page_k + me->index * f->max_pages, **v = f->page_v + me->index * f->max_pages;
    for (size_t i = chunk * per_chunk; i < (chunk + 1) * per_chunk && i <= last; i++) {
        k[i] = kv_keys(f->kv, s->kv->pages[i], layer, head);
        v[i] = kv_values(f->kv, s->kv->pages[i], layer, head);
    }
}

/* The first visible chunk is taken as it is, later ones are merged in ascending order: the same for one row
 * as for many. */
static void merge_partial(const kernels *k, attn_partial *total, float *o, const attn_partial *p,
                          const float *po, size_t dv) {
    if (p->sum == 0.0f) return;
    if (total->sum == 0.0f) {
        *total = *p;
        memcpy(o, po, dv * sizeof *o);
    } else {
        k->attn_merge(total, o, p, po, dv);
    }
}

static size_t last_chunk(const span *s, size_t row) {
    return (s->position + row) / ATTN_CHUNK;
}

/* First chunk that a query at this position can see. */
static size_t first_chunk(const attn_head *h, size_t position) {
    return h->window == 0 || position < h->window ? 0 : (position - h->window + 1) / ATTN_CHUNK;
}

static const float *query(const forward *f, const attn_job *job, size_t first_row) {
    const lm_config *c = &f->m->config;
    return f->qkv + (first_row + job->from) * f->qkv_cols +
           job->head * (c->n_head / c->n_head_kv) * c->head_dim_k;
}

static void write_head(const forward *f, size_t row, size_t head, const attn_partial *p, const float *o) {
    const size_t dv = f->m->config.head_dim_v;
    f->m->k->attn_finish(p, o, dv, f->attn + (row * f->m->config.n_head + head) * dv);
}

static void run_decode_job(const forward *f, const pool_member *me, const attn_job *job, uint32_t layer) {
    const span *s = &f->spans[job->span];
    attn_head h = head_of(f, me, layer);
    attn_partial *p = f->partial + job->partial;
    float *o = f->partial_o + job->partial * h.head_dim_v;
    const size_t first_row = f->span_row[job->span];
    if (job->chunk < first_chunk(&h, s->position)) {
        for (size_t i = 0; i < s->n * h.group; i++) p[i] = (attn_partial){0};
        return;
    }
    list_pages(f, me, s, layer, job->head, job->chunk);
    f->m->k->attn_chunk[kv_pool_type(f->kv)](&h, query(f, job, first_row), f->qkv_cols, s->n, s->position,
                                             job->chunk, p, o, f->members[me->index].attn);
    if (f->need_merge) return;
    for (size_t i = 0; i < s->n * h.group; i++) {
        write_head(f, first_row + i / h.group, job->head * h.group + i % h.group, &p[i],
                   o + i * h.head_dim_v);
    }
}

static void run_prefill_job(const forward *f, const pool_member *me, const attn_job *job, uint32_t layer) {
    const span *s = &f->spans[job->span];
    const member_scratch *mine = &f->members[me->index];
    attn_head h = head_of(f, me, layer);
    const size_t n = job->n * h.group, dv = h.head_dim_v, first_row = f->span_row[job->span];
    const size_t tile = QUERY_TILE * h.group;
    attn_partial *part = mine->partial, *total = mine->partial + tile;
    float *part_o = mine->o, *total_o = mine->o + tile * dv;
    for (size_t i = 0; i < n; i++) total[i] = (attn_partial){0};
    const size_t position = s->position + job->from;
    for (size_t c = first_chunk(&h, position); c <= last_chunk(s, job->from + job->n - 1); c++) {
        list_pages(f, me, s, layer, job->head, c);
        f->m->k->attn_chunk[kv_pool_type(f->kv)](&h, query(f, job, first_row), f->qkv_cols, job->n, position,
                                                 c, part, part_o, mine->attn);
        for (size_t i = 0; i < n; i++) {
            merge_partial(f->m->k, &total[i], total_o + i * dv, &part[i], part_o + i * dv, dv);
        }
    }
    for (size_t i = 0; i < n; i++) {
        write_head(f, first_row + job->from + i / h.group, job->head * h.group + i % h.group, &total[i],
                   total_o + i * dv);
    }
}

/* The chunks of short spans, merged. Items are (row, head). */
static void merge_chunks(const forward *f, const pool_member *me) {
    const lm_config *c = &f->m->config;
    const size_t dv = c->head_dim_v, group = c->n_head / c->n_head_kv;
    size_t from, to;
    pool_split(me, f->n_rows * c->n_head, 1, &from, &to);
    for (size_t item = from; item < to; item++) {
        const size_t t = item / c->n_head, head = item % c->n_head;
        const row_place *place = &f->rows[t];
        const span *s = &f->spans[place->span];
        if (s->n > DECODE_ROWS) continue;
        const size_t chunks = last_chunk(s, s->n - 1) + 1, step = s->n * group;
        const size_t first = f->span_partial[place->span] + (head / group) * chunks * step +
                             place->index * group + head % group;
        attn_partial total = f->partial[first];
        float *o = f->partial_o + first * dv;
        for (size_t i = 1; i < chunks; i++) {
            const size_t at = first + i * step;
            merge_partial(f->m->k, &total, o, &f->partial[at], f->partial_o + at * dv, dv);
        }
        write_head(f, t, head, &total, o);
    }
}

static void attend(forward *f, const pool_member *me, uint32_t layer) {
    for (;;) {
        size_t i = atomic_fetch_add_explicit(&f->next_job, 1, memory_order_relaxed);
        if (i >= f->n_jobs) break;
        const attn_job *job = &f->jobs[i];
        (job->decode ? run_decode_job : run_prefill_job)(f, me, job, layer);
    }
    pool_barrier(me);
    if (me->index == 0) atomic_store_explicit(&f->next_job, 0, memory_order_relaxed);
    if (f->need_merge) {
        merge_chunks(f, me);
        pool_barrier(me);
    }
}

/* ---- the layers ------------------------------------------------------------------------------------- */

/* y rows of this member's groups, for all tokens. */
static void product(const forward *f, const pool_member *me, const packed *w, const activations *a, size_t g0,
                    size_t g1, float *y, size_t ldy) {
    if (g0 < g1) f->m->k->matmul(w, g0, g1, a, f->n_rows, y, ldy, f->members[me->index].matmul);
}

static size_t clip(size_t v, size_t low, size_t high) {
    return v < low ? low : v > high ? high : v;
}

/* Queries, keys and values as one list of row groups, so that every member has its share of each layer. */
static void project_qkv(const forward *f, const pool_member *me, const lm_layer *y, const activations *a) {
    const packed *w[3] = {&y->wq, &y->wk, &y->wv};
    size_t from, to, first = 0, column = 0;
    pool_split(me, pack_n_groups(w[0]) + pack_n_groups(w[1]) + pack_n_groups(w[2]), 1, &from, &to);
    for (size_t i = 0; i < 3; i++) {
        const size_t n = pack_n_groups(w[i]);
        product(f, me, w[i], a, clip(from, first, first + n) - first, clip(to, first, first + n) - first,
                f->qkv + column, f->qkv_cols);
        first += n;
        column += w[i]->rows;
    }
}

/* x += W a (+ bias), through a norm where the architecture has one behind the block. */
static void project_residual(const forward *f, const pool_member *me, const packed *w, const float *bias,
                             const float *post_norm, const activations *a) {
    const kernels *k = f->m->k;
    const size_t E = f->m->config.n_embd;
    size_t g0, g1;
    pool_split(me, pack_n_groups(w), 1, &g0, &g1);
    product(f, me, w, a, g0, g1, f->y, E);
    const size_t r0 = clip(g0 * PACK_ROWS, 0, E), r1 = clip(g1 * PACK_ROWS, 0, E);
    for (size_t t = 0; t < f->n_rows; t++) {
        float *out = f->y + t * E;
        if (bias) k->add(out + r0, bias + r0, r1 - r0);
        if (!post_norm) k->add(f->x + t * E + r0, out + r0, r1 - r0);
    }
    pool_barrier(me);
    if (!post_norm) return;
    size_t from, to;
    pool_split(me, f->n_rows, 1, &from, &to);
    for (size_t t = from; t < to; t++) {
        k->rms_norm(f->y + t * E, post_norm, E, f->m->config.norm_eps, f->y + t * E);
        k->add(f->x + t * E, f->y + t * E, E);
    }
    pool_barrier(me);
}

/* act(gate) * up for this member's columns, already in the form that the next product reads. */
static void gated_mlp(const forward *f, const pool_member *me, const lm_layer *y, const activations *a) {
    const kernels *k = f->m->k;
    const size_t F = f->m->config.n_ff;
    const bool quantized = is_quantized(&y->w_down);
    size_t g0, g1;
    pool_split(me, pack_n_groups(&y->w_gate), ACT_BLOCK / PACK_ROWS, &g0, &g1);
    product(f, me, &y->w_gate, a, g0, g1, f->gate, F);
    product(f, me, &y->w_up, a, g0, g1, f->up, F);
    const size_t c0 = clip(g0 * PACK_ROWS, 0, F), n = clip(g1 * PACK_ROWS, 0, F) - c0;
    if (n == 0) return;
    for (size_t t = 0; t < f->n_rows; t++) {
        float *gate = f->gate + t * F + c0, *up = f->up + t * F + c0;
        if (y->b_gate) k->add(gate, y->b_gate + c0, n);
        if (y->b_up) k->add(up, y->b_up + c0, n);
        (f->m->config.act == ACT_SILU ? k->silu_mul : k->gelu_tanh_mul)(gate, up, gate, n);
        if (quantized) {
            k->quantize(gate, n, f->act_ff.q + t * F + c0, f->act_ff.scale + (t * F + c0) / ACT_BLOCK,
                        f->act_ff.sum16 + (t * F + c0) / 16);
        }
    }
}

static void embed(const forward *f, const pool_member *me) {
    const lm_config *c = &f->m->config;
    const size_t pairs = f->rope.n_pairs * 2;
    size_t from, to;
    pool_split(me, f->n_rows, 1, &from, &to);
    for (size_t t = from; t < to; t++) {
        const row_place *place = &f->rows[t];
        float *x = f->x + t * c->n_embd;
        f->m->k->unpack_row(&f->m->token_embd, (size_t)f->spans[place->span].tokens[place->index], x);
        if (c->embd_scale != 1.0f) f->m->k->scale(x, c->embd_scale, c->n_embd);
        rope_angles(&f->rope, place->position, false, f->angles + t * pairs);
        if (c->rope_base_local != 0.0f) {
            rope_angles(&f->rope, place->position, true, f->angles + (f->max_rows + t) * pairs);
        }
    }
    pool_barrier(me);
}

/* Final norm of the rows that want logits. */
static void keep_outputs(const forward *f, const pool_member *me) {
    const size_t E = f->m->config.n_embd;
    size_t kept = 0;
    for (size_t i = 0, first = 0; i < f->n_spans; first += f->spans[i].n, i++) {
        const span *s = &f->spans[i];
        for (size_t t = first + s->n - s->n_outputs; t < first + s->n; t++, kept++) {
            if (kept % me->count != me->index) continue;
            f->m->k->rms_norm(f->x + t * E, f->m->output_norm, E, f->m->config.norm_eps, f->kept + kept * E);
        }
    }
}

static void forward_member(void *ctx, const pool_member *me) {
    forward *f = ctx;
    const lm_config *c = &f->m->config;
    mem_guard_begin();
    embed(f, me);
    for (uint32_t layer = 0; layer < c->n_layer; layer++) {
        const lm_layer *y = &f->m->layers[layer];

        activations a = prepare(f, me, (rows_source){f->x, y->attn_norm, f->n_rows, c->n_embd},
                                is_quantized(&y->wq) || is_quantized(&y->wk) || is_quantized(&y->wv));
        project_qkv(f, me, y, &a);
        pool_barrier(me);
        store_kv(f, me, layer);
        pool_barrier(me);
        attend(f, me, layer);
        a = prepare(f, me, (rows_source){f->attn, NULL, f->n_rows, (size_t)c->n_head * c->head_dim_v},
                    is_quantized(&y->wo));
        project_residual(f, me, &y->wo, y->bo, y->attn_post_norm, &a);

        a = prepare(f, me, (rows_source){f->x, y->ffn_norm, f->n_rows, c->n_embd},
                    is_quantized(&y->w_gate) || is_quantized(&y->w_up));
        gated_mlp(f, me, y, &a);
        pool_barrier(me);
        a = f->act_ff;
        a.cols = c->n_ff;
        a.f32 = f->gate;
        project_residual(f, me, &y->w_down, y->b_down, y->ffn_post_norm, &a);
    }
    keep_outputs(f, me);
    mem_guard_end();
}

/* ---- a batch ---------------------------------------------------------------------------------------- */

static void plan_rows(forward *f) {
    f->n_rows = f->n_kept = 0;
    for (uint32_t i = 0; i < f->n_spans; i++) {
        const span *s = &f->spans[i];
        f->span_row[i] = f->n_rows;
        f->n_kept += s->n_outputs;
        for (uint32_t t = 0; t < s->n; t++) {
            f->rows[f->n_rows++] = (row_place){.span = i, .index = t, .position = s->position + t};
        }
    }
}

/* Rows of a tile of a long span, so that its jobs, all of one size, leave few threads idle at the end: three
 * heads on two threads would take as long as four (measured: a chunk of 42 rows behind 1,500 takes an eighth
 * less). Even: with a group of three, twice as many rows are whole tiles of the kernels. */
static size_t tile_rows(const forward *f, size_t n) {
    const size_t heads = f->m->config.n_head_kv, threads = pool_threads(f->p);
    const size_t least = (n + QUERY_TILE - 1) / QUERY_TILE, most = clip(n / LEAST_TILE, least, n);
    size_t best = least;
    double best_use = 0;
    for (size_t tiles = least; tiles <= most && best_use < 0.9; tiles++) {
        const size_t jobs = heads * tiles, rounds = (jobs + threads - 1) / threads;
        const double use = (double)jobs / (double)(rounds * threads);
        if (use <= best_use) continue;
        best_use = use;
        best = tiles;
    }
    const size_t rows = (n + best - 1) / best;
    return rows + rows % 2;
}

static void plan_tiles(forward *f, uint32_t i) {
    const size_t n = f->spans[i].n, tile = tile_rows(f, n);
    for (uint32_t h = 0; h < f->m->config.n_head_kv; h++) {
        for (size_t from = 0; from < n; from += tile) {
            f->jobs[f->n_jobs++] = (attn_job){.span = i,
                                              .head = h,
                                              .from = (uint32_t)from,
                                              .n = (uint32_t)(n - from < tile ? n - from : tile)};
        }
    }
}

static void plan_decode(forward *f, uint32_t i, size_t *partial) {
    const lm_config *c = &f->m->config;
    const span *s = &f->spans[i];
    const size_t chunks = last_chunk(s, s->n - 1) + 1;
    f->span_partial[i] = *partial;
    for (uint32_t h = 0; h < c->n_head_kv; h++) {
        for (uint32_t chunk = 0; chunk < chunks; chunk++) {
            f->jobs[f->n_jobs++] = (attn_job){.span = i,
                                              .head = h,
                                              .decode = true,
                                              .chunk = chunk,
                                              .n = (uint32_t)s->n,
                                              .partial = *partial};
            *partial += s->n * (c->n_head / c->n_head_kv);
        }
    }
    if (chunks > 1) f->need_merge = true;
}

/* The longest jobs first: the short ones even out who is done when. */
static void plan_attention(forward *f) {
    size_t partial = 0;
    f->n_jobs = 0;
    f->need_merge = false;
    for (uint32_t i = 0; i < f->n_spans; i++) {
        if (f->spans[i].n > DECODE_ROWS) plan_tiles(f, i);
    }
    for (uint32_t i = 0; i < f->n_spans; i++) {
        if (f->spans[i].n <= DECODE_ROWS) plan_decode(f, i, &partial);
    }
    assert(f->n_jobs <= f->max_jobs);
}

void forward_run(forward *f, const span *spans, size_t n_spans) {
    f->spans = spans;
    f->n_spans = n_spans;
    plan_rows(f);
    plan_attention(f);
    atomic_store_explicit(&f->next_job, 0, memory_order_relaxed);
    pool_run(f->p, forward_member, f);
    for (size_t i = 0; i < n_spans; i++) spans[i].kv->length = spans[i].position + spans[i].n;
}

static void logits_member(void *ctx, const pool_member *me) {
    const forward *f = ctx;
    const lm_config *c = &f->m->config;
    const packed *w = &f->m->output;
    mem_guard_begin();
    activations a =
        prepare(f, me, (rows_source){f->kept + f->logits_from * c->n_embd, NULL, f->logits_n, c->n_embd},
                is_quantized(w));
    size_t g0, g1;
    pool_split(me, pack_n_groups(w), 1, &g0, &g1);
    if (g0 < g1)
        f->m->k->matmul(w, g0, g1, &a, f->logits_n, f->logits, c->n_vocab, f->members[me->index].matmul);
    const size_t r0 = clip(g0 * PACK_ROWS, 0, c->n_vocab), r1 = clip(g1 * PACK_ROWS, 0, c->n_vocab);
    for (size_t t = 0; c->final_soft_cap != 0.0f && t < f->logits_n; t++) {
        f->m->k->soft_cap(f->logits + t * c->n_vocab + r0, c->final_soft_cap, r1 - r0);
    }
    mem_guard_end();
}

float *forward_logits(forward *f, size_t from, size_t n) {
    f->logits_from = from;
    f->logits_n = n;
    pool_run(f->p, logits_member, f);
    return f->logits;
}

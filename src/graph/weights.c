/* weights.c: see weights.h. */
#include "graph/weights.h"

#include "base/mem.h"
#include "graph/ops/blocked.h"
#include "graph/ops/product.h"

#include <string.h>

enum {
    TRIM_BYTES = 16 << 20,     /* of heap that was freed before it goes back to the system */
    PARALLEL_BYTES = 128 << 10 /* of weights that pay for waking threads */
};

/* Elements of constants, found by where they begin: several values may have them. */
typedef struct region {
    const char *data;
    size_t bytes;
    uint32_t readers; /* nodes, bodies and outputs that read them, and nodes that still pack them */
    tensor *owned;    /* the program's own, or NULL: the model's */
} region;

struct op_pack {
    ir_program *program;
    pool *team;
    region *table; /* [cap], a power of two, at most half full */
    size_t cap;
    void *state;    /* of the node that packs */
    region *source; /* what it packs; nobody else reads it if `last` */
    bool last;
    void *scratch;
    size_t scratch_bytes;
    size_t freed; /* since the heap was trimmed */
};

/* ---- regions ---------------------------------------------------------------------------------------- */

static region *find(const op_pack *w, const void *data) {
    uint64_t h = (uint64_t)(uintptr_t)data * 0x9e3779b97f4a7c15u;
    size_t i = (size_t)(h >> 32) & (w->cap - 1);
    while (w->table[i].data && w->table[i].data != data) i = (i + 1) & (w->cap - 1);
    return &w->table[i];
}

/* Strings are not elements that could leave: their bytes lie elsewhere. */
static region *region_of(const op_pack *w, const tensor *t) {
    if (!t->data || t->count == 0 || t->type == ELEM_STRING) return NULL;
    region *r = find(w, t->data);
    const size_t bytes = tensor_bytes(t);
    r->data = t->data;
    if (r->bytes < bytes) r->bytes = bytes;
    return r;
}

static void read_value(const op_pack *w, const ir_value *v) {
    region *r = v && v->is_constant ? region_of(w, &v->constant) : NULL;
    if (r) r->readers++;
}

static const op_packing *packing_of(const op_node *n) {
    if (n->def == &op_blocked_conv) return &blocked_conv_packing;
    if (n->def == &op_blocked_transpose) return &blocked_transpose_packing;
    if (n->def == &op_product) return &product_packing;
    return n->packing;
}

static const tensor *source_of(const op_node *n) {
    const op_packing *p = packing_of(n);
    return p && n->state ? p->source(n, n->state) : NULL;
}

static void read_graph(const op_pack *w, const ir_graph *g) {
    for (size_t i = 0; i < g->n_values; i++) {
        if (g->values[i]->is_constant) (void)region_of(w, &g->values[i]->constant);
    }
    for (size_t i = 0; i < g->n_outputs; i++) read_value(w, g->outputs[i]);
    for (size_t i = 0; i < g->n_nodes; i++) {
        const op_node *n = g->nodes[i];
        for (size_t k = 0; k < n->n_inputs; k++) read_value(w, n->inputs[k]);
        read_value(w, n->borrowed);
        for (size_t b = 0; b < n->n_bodies; b++) {
            for (size_t k = 0; k < n->bodies[b]->n_captures; k++)
                read_value(w, n->bodies[b]->captures[k].outer);
        }
        const tensor *source = source_of(n);
        region *r = source ? region_of(w, source) : NULL;
        if (r) r->readers++;
    }
}

static bool make_table(op_pack *w) {
    const ir_program *p = w->program;
    size_t n = p->n_constants;
    for (size_t i = 0; i < p->n_graphs; i++) n += p->graphs[i]->n_values + p->graphs[i]->n_nodes;
    for (w->cap = 64; w->cap < 2 * n; w->cap *= 2) {}
    w->table = mem_calloc(w->cap, sizeof *w->table);
    if (!w->table) return false;
    for (size_t i = 0; i < p->n_constants; i++) {
        region *r = p->constants[i].storage ? region_of(w, &p->constants[i]) : NULL;
        if (r) r->owned = &p->constants[i];
    }
    for (size_t i = 0; i < p->n_graphs; i++) read_graph(w, p->graphs[i]);
    return true;
}

/* ---- memory ----------------------------------------------------------------------------------------- */

/* Blocks double, so that a small model has small ones; what a block has not given away at the end goes back.
 */
typedef struct weights_block {
    struct weights_block *next;
    size_t bytes, used; /* with this head */
} weights_block;

enum { HEAD = 64, LEAST_BLOCK = 256 << 10, MOST_BLOCK = 16 << 20 };

void *pack_memory(op_pack *p, size_t bytes) {
    weights_block *b = p->program->weights;
    if (bytes > SIZE_MAX - 2 * HEAD) return NULL;
    bytes = (bytes + HEAD - 1) / HEAD * HEAD;
    if (!b || b->bytes - b->used < bytes) {
        size_t size = b ? 2 * b->bytes : LEAST_BLOCK;
        size = size > MOST_BLOCK ? MOST_BLOCK : size;
        size = size < bytes + HEAD ? bytes + HEAD : size;
        b = mem_pages(size);
        if (!b) return NULL;
        if (size > MOST_BLOCK) mem_pages_ordinary(b, size);
        *b = (weights_block){.next = p->program->weights, .bytes = size, .used = HEAD};
        p->program->weights = b;
    }
    char *at = (char *)b + b->used;
    b->used += bytes;
    return at;
}

void weights_free(ir_program *p) {
    for (weights_block *b = p->weights, *next; b; b = next) {
        next = b->next;
        mem_pages_free(b, b->bytes);
    }
    p->weights = NULL;
}

static void trim_blocks(const ir_program *p) {
    for (weights_block *b = p->weights; b; b = b->next) mem_forget((char *)b + b->used, b->bytes - b->used);
}

/* ---- letting go ------------------------------------------------------------------------------------- */

static void trim(op_pack *w, size_t freed) {
    w->freed += freed;
    if (w->freed < TRIM_BYTES) return;
    mem_trim();
    w->freed = 0;
}

static void let_go(op_pack *w, region *r) {
    if (r->owned) {
        tensor_free(r->owned);
        r->owned = NULL;
        trim(w, r->bytes);
    } else if (w->program->model) {
        onnx_let_go(w->program->model, r->data, r->bytes, true);
    }
}

static void let_unread_go(op_pack *w) {
    for (size_t i = 0; i < w->cap; i++) {
        if (w->table[i].data && w->table[i].readers == 0) let_go(w, &w->table[i]);
    }
}

/* Values whose elements are gone say so. */
static void clear_values(const op_pack *w) {
    for (size_t i = 0; i < w->program->n_graphs; i++) {
        const ir_graph *g = w->program->graphs[i];
        for (size_t k = 0; k < g->n_values; k++) {
            ir_value *v = g->values[k];
            if (v->is_constant && v->constant.data && v->constant.type != ELEM_STRING &&
                find(w, v->constant.data)->data && find(w, v->constant.data)->readers == 0)
                v->constant.data = NULL;
        }
    }
}

/* ---- packing ---------------------------------------------------------------------------------------- */

void *pack_state(const op_pack *p) {
    return p->state;
}

static void *scratch(op_pack *p, size_t bytes) {
    if (bytes > p->scratch_bytes) {
        mem_free(p->scratch);
        p->scratch = mem_aligned(64, bytes);
        p->scratch_bytes = p->scratch ? bytes : 0;
    }
    return p->scratch;
}

void pack_expect(const op_pack *p, void *to, size_t bytes) {
    const size_t page = 4096, before = (page - (uintptr_t)to % page) % page;
    (void)p;
    /* A block of its own has ordinary pages; huge ones come as they are touched. */
    if (bytes > MOST_BLOCK) mem_pages_populate((char *)to + before, (bytes - before) / page * page);
}

void pack_done(op_pack *p, const void *from, size_t bytes) {
    const region *r = p->source;
    if (!r || bytes == 0) return;
    if (!r->owned) {
        if (p->program->model) onnx_let_go(p->program->model, from, bytes, p->last);
    } else if (p->last && tensor_is_unique(r->owned)) {
        mem_forget((void *)(uintptr_t)from, bytes);
    }
}

typedef struct part {
    size_t n;
    void (*fn)(void *ctx, size_t from, size_t to);
    void *ctx;
} part;

static void run_part(void *ctx, const pool_member *me) {
    const part *j = ctx;
    size_t from, to;
    pool_split(me, j->n, 1, &from, &to);
    if (from < to) j->fn(j->ctx, from, to);
}

void pack_parallel(op_pack *p, size_t n, size_t bytes, void (*fn)(void *ctx, size_t from, size_t to),
                   void *ctx) {
    if (n < 2 || bytes < PARALLEL_BYTES || !p->team) {
        if (n) fn(ctx, 0, n);
        return;
    }
    part j = {.n = n, .fn = fn, .ctx = ctx};
    pool_run(p->team, run_part, &j);
}

typedef struct multiply_job {
    const op_factors *f;
    const float *from;
    float *to;
} multiply_job;

static void multiply_part(void *ctx, size_t from, size_t to) {
    const multiply_job *j = ctx;
    factors_multiply(j->f, j->from, from, to, j->to);
}

const float *pack_multiplied(op_pack *p, const op_factors *f, const float *from) {
    const size_t bytes = f->rows * f->each * sizeof(float);
    multiply_job j = {.f = f, .from = from, .to = scratch(p, bytes)};
    if (j.to) pack_parallel(p, f->rows, bytes, multiply_part, &j);
    return j.to;
}

static status pack_node(op_pack *w, op_node *n, error *err) {
    const tensor *source = source_of(n);
    if (!source) return CHURON_OK;
    region *r = source->count ? region_of(w, source) : NULL;
    w->state = n->state;
    w->source = r;
    w->last = r && r->readers == 1;
    TRY(ir_check_stop(n, err));
    TRY(packing_of(n)->pack(n, w, err));
    if (r && --r->readers == 0) let_go(w, r);
    return CHURON_OK;
}

status weights_pack(ir_program *p, size_t threads, error *err) {
    op_pack w = {.program = p};
    if (!make_table(&w)) return ir_no_memory(err);
    status st = threads > 1 ? pool_create(&w.team, threads, err) : CHURON_OK;
    if (st == CHURON_OK) let_unread_go(&w);
    for (size_t i = 0; i < p->n_graphs && st == CHURON_OK; i++) {
        for (size_t k = 0; k < p->graphs[i]->n_nodes && st == CHURON_OK; k++)
            st = pack_node(&w, p->graphs[i]->nodes[k], err);
    }
    if (st == CHURON_OK) clear_values(&w);
    trim_blocks(p);
    pool_free(w.team);
    mem_free(w.scratch);
    mem_free(w.table);
    if (p->model) onnx_let_files_go(p->model);
    mem_trim();
    return st;
}

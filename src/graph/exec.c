/* exec.c: running the nodes of a graph in order. */
#include "graph/exec.h"

#include "base/clock.h"
#include "base/mem.h"
#include "graph/bucket.h"
#include "graph/cost.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- scratch ---------------------------------------------------------------------------------------- */

enum { SCRATCH_CHUNK = 256 * 1024, SCRATCH_ALIGN = 64 };

struct exec_chunk {
    exec_chunk *older;
    size_t used, cap; /* bytes behind the header */
};

static char *chunk_bytes(exec_chunk *c) {
    return (char *)c + SCRATCH_ALIGN;
}

void *exec_scratch(exec *x, size_t bytes) {
    if (bytes > SIZE_MAX / 2) return NULL;
    bytes = (bytes + SCRATCH_ALIGN - 1) / SCRATCH_ALIGN * SCRATCH_ALIGN;
    exec_chunk *c = x->scratch;
    if (!c || c->cap - c->used < bytes) {
        size_t cap = bytes > SCRATCH_CHUNK ? bytes : SCRATCH_CHUNK;
        exec_chunk *fresh = mem_aligned(SCRATCH_ALIGN, SCRATCH_ALIGN + cap);
        if (!fresh) return NULL;
        *fresh = (exec_chunk){.older = c, .cap = cap};
        x->scratch = c = fresh;
    }
    void *p = chunk_bytes(c) + c->used;
    c->used += bytes;
    return p;
}

exec_mark exec_scratch_mark(const exec *x) {
    return (exec_mark){.chunk = x->scratch, .used = x->scratch ? x->scratch->used : 0};
}

/* One chunk above the marked one is kept: a loop that needs much finds it again. */
void exec_scratch_release(exec *x, exec_mark m) {
    while (x->scratch != m.chunk && x->scratch->older != m.chunk) {
        exec_chunk *c = x->scratch;
        x->scratch = c->older;
        mem_free(c);
    }
    if (x->scratch != m.chunk) x->scratch->used = 0;
    if (m.chunk) m.chunk->used = m.used;
}

/* ---- what a run holds ------------------------------------------------------------------------------- */

/* Bytes that a value holds by itself. */
static uint64_t value_bytes(const value *v) {
    if (v->kind == VALUE_TENSOR) return v->t.storage ? tensor_held_bytes(&v->t) : 0;
    uint64_t sum = (uint64_t)value_n_items(v) * EXEC_ITEM_BYTES;
    for (size_t i = 0; i < value_n_items(v); i++) sum += value_bytes(value_item(v, i));
    return sum;
}

void exec_set(exec *x, exec_frame *f, int32_t slot, value v) {
    value_free(&f->slots[slot]);
    x->live -= f->charged[slot];
    f->slots[slot] = v;
    f->charged[slot] = value_bytes(&v);
    x->live += f->charged[slot];
    if (x->live > x->peak) x->peak = x->live;
}

/* Strings got their contents after they were counted. */
static void count_again(exec *x, exec_frame *f, const exec_step *step) {
    for (uint32_t i = 0; i < step->n_out; i++) {
        const int32_t slot = step->out[i];
        if (slot == IR_NO_SLOT) continue;
        const value *v = &f->slots[slot];
        if (v->kind != VALUE_TENSOR || v->t.type != ELEM_STRING) continue;
        x->live -= f->charged[slot];
        f->charged[slot] = value_bytes(v);
        x->live += f->charged[slot];
        if (x->live > x->peak) x->peak = x->live;
    }
}

static void clear_slot(exec *x, exec_frame *f, int32_t slot) {
    value_free(&f->slots[slot]);
    x->live -= f->charged[slot];
    f->charged[slot] = 0;
}

void exec_clear(exec *x, const ir_graph *g) {
    exec_frame *f = &x->frames[g->number];
    const value *preset = !g->parent && x->entered ? x->entered->preset : NULL;
    for (size_t i = 0; i < g->n_values; i++) {
        if (g->values[i]->is_constant) continue;
        bool stays = preset && preset[i].kind == VALUE_TENSOR;
        if (stays && f->slots[i].t.data == preset[i].t.data && !f->slots[i].t.storage) continue;
        clear_slot(x, f, (int32_t)i);
        if (stays) f->slots[i] = preset[i];
    }
}

static status check_limit(const exec *x, const op_node *n, uint64_t bytes, error *err) {
    if (!x->limit || (bytes <= x->limit && x->live <= x->limit - bytes)) return CHURON_OK;
    return op_error(n, err, CHURON_LIMIT,
                    "memory: expected at most %" PRIu64 " bytes in all, got %" PRIu64 " held and %" PRIu64
                    " more asked for",
                    x->limit, x->live, bytes);
}

status exec_charge(const op_run *r, uint64_t bytes, error *err) {
    TRY(check_limit(r->x, r->node, bytes, err));
    r->x->live += bytes;
    return CHURON_OK;
}

void exec_uncharge(const op_run *r, uint64_t bytes) {
    r->x->live -= bytes;
}

/* ---- what an operator sees -------------------------------------------------------------------------- */

const op_node *run_node(const op_run *r) {
    return r->node;
}

void *run_state(const op_run *r) {
    return r->node->state;
}

pool *run_pool(const op_run *r) {
    return r->x->pool;
}

const kernels *run_kernels(const op_run *r) {
    return r->x->kernels;
}

const value *run_in_value(const op_run *r, size_t i) {
    return i < r->step->n_in && r->step->in[i] != IR_NO_SLOT ? &r->frame->slots[r->step->in[i]] : NULL;
}

const tensor *run_in(const op_run *r, size_t i) {
    const value *v = run_in_value(r, i);
    return v && v->kind == VALUE_TENSOR ? &v->t : NULL;
}

status run_error(const op_run *r, error *err, status code, const char *fmt, ...) {
    char text[sizeof err->message];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return op_error(r->node, err, code, "%s", text);
}

/* ---- outputs ---------------------------------------------------------------------------------------- */

static int32_t out_slot(const op_run *r, size_t i) {
    return i < r->step->n_out ? r->step->out[i] : IR_NO_SLOT;
}

static status infer_now(op_run *r, error *err) {
    if (r->inferred) return CHURON_OK;
    for (size_t i = 0; i < r->step->n_out; i++) r->shapes.out[i].state = SHAPE_UNSET;
    if (r->node->def->infer) TRY(r->node->def->infer(&r->shapes, err));
    if (r->shapes.out_of_memory) return op_error(r->node, err, CHURON_NO_MEMORY, "no memory for shapes");
    r->inferred = true;
    return CHURON_OK;
}

/* What was inferred when the graph was loaded is what the graph was planned with. */
static status check_inferred(const op_run *r, size_t i, size_t rank, const int64_t *dims, error *err) {
    const ir_value *v = r->node->outputs[i];
    if (!v->has_rank) return CHURON_OK;
    bool same = v->rank == rank;
    for (size_t k = 0; same && k < rank; k++) same = !dim_known(v->dims[k]) || v->dims[k] == dims[k];
    if (same) return CHURON_OK;
    str want = {0};
    for (size_t k = 0; k < v->rank; k++) {
        str_put(&want, k ? 'x' : ' ');
        symbols_text(&r->node->graph->program->symbols, v->dims[k], &want);
    }
    str_cat(&want, ", got");
    for (size_t k = 0; k < rank; k++) str_fmt(&want, "%c%" PRId64, k ? 'x' : ' ', dims[k]);
    status st = op_error(r->node, err, CHURON_INTERNAL, "output %zu: expected the shape that was inferred,%s",
                         i, str_cstr(&want));
    str_free(&want);
    return st;
}

/* The tensor of an input that the output may be written over, or NULL. */
static const tensor *reusable(const op_run *r, size_t i, elem type, size_t count) {
    if (i != 0) return NULL;
    for (size_t k = 0; k < 2; k++) {
        uint32_t flag = k == 0 ? OP_INPLACE : OP_INPLACE_1;
        if (!(r->node->def->flags & flag) || !(r->step->reuse & (k == 0 ? REUSE_0 : REUSE_1))) continue;
        const tensor *t = run_in(r, k);
        if (k == 1 && t && run_in(r, 0) && run_in(r, 0)->data == t->data) continue; /* read twice */
        if (t && t->type != ELEM_STRING && type != ELEM_STRING && t->count == count &&
            elem_describe(t->type)->bytes == elem_describe(type)->bytes && tensor_is_unique(t)) {
            return t;
        }
    }
    return NULL;
}

/* The place that the bucket has for an output of this shape; NULL: none. */
static tensor *preset_output(const op_run *r, int32_t slot, elem type, size_t rank, const int64_t *dims) {
    if (r->node->graph->parent || !r->x->entered || r->x->entered->preset[slot].kind != VALUE_TENSOR)
        return NULL;
    tensor *t = &r->frame->slots[slot].t;
    bool same = t->type == type && t->rank == rank && !t->storage;
    for (size_t i = 0; same && i < rank; i++) same = t->dims[i] == dims[i];
    return same ? t : NULL;
}

static void limit_strings(const exec *x, tensor *t) {
    if (t->type != ELEM_STRING || !x->limit) return;
    const uint64_t held = x->live + tensor_bytes(t);
    tensor_string_limit(t, held < x->limit ? (size_t)(x->limit - held) : 0);
}

status run_out_shaped(op_run *r, size_t i, elem type, size_t rank, const int64_t *dims, tensor **out,
                      error *err) {
    *out = NULL;
    int32_t slot = out_slot(r, i);
    if (slot == IR_NO_SLOT) return CHURON_OK;
    size_t count;
    error e;
    status st = tensor_count(type, rank, dims, &count, "output", &e);
    if (st != CHURON_OK) return op_error(r->node, err, st, "%s", e.message);
    TRY(check_inferred(r, i, rank, dims, err));
    tensor *there = preset_output(r, slot, type, rank, dims);
    if (there) {
        *out = there;
        return CHURON_OK;
    }
    tensor t;
    const tensor *over = reusable(r, i, type, count);
    if (over) {
        t = tensor_share(over);
        t.type = type;
        t.rank = (uint32_t)rank;
        if (rank) memcpy(t.dims, dims, rank * sizeof *dims);
    } else {
        TRY(check_limit(r->x, r->node, count * elem_describe(type)->bytes, err));
        st = tensor_alloc(&t, type, rank, dims, &e);
        if (st != CHURON_OK) return op_error(r->node, err, st, "%s", e.message);
        limit_strings(r->x, &t);
    }
    exec_set(r->x, r->frame, slot, value_of_tensor(t));
    *out = &r->frame->slots[slot].t;
    return CHURON_OK;
}

/* Of a shape that a former run has checked. */
static status out_of_fixed_shape(op_run *r, size_t i, tensor **out, error *err) {
    int32_t slot = r->step->out[i];
    const tensor *shape = &r->fixed[slot].t;
    error e;
    tensor t;
    TRY(check_limit(r->x, r->node, tensor_bytes(shape), err));
    status st = tensor_alloc(&t, shape->type, shape->rank, shape->dims, &e);
    if (st != CHURON_OK) return op_error(r->node, err, st, "%s", e.message);
    limit_strings(r->x, &t);
    exec_set(r->x, r->frame, slot, value_of_tensor(t));
    *out = &r->frame->slots[slot].t;
    return CHURON_OK;
}

status run_out(op_run *r, size_t i, tensor **out, error *err) {
    *out = NULL;
    int32_t slot = out_slot(r, i);
    if (slot == IR_NO_SLOT) return CHURON_OK;
    if (r->frame->slots[slot].kind == VALUE_TENSOR) { /* asked for before, or shared as a view */
        *out = &r->frame->slots[slot].t;
        return CHURON_OK;
    }
    if (r->fixed && r->fixed[slot].kind == VALUE_TENSOR) return out_of_fixed_shape(r, i, out, err);
    TRY(infer_now(r, err));
    const shape_out *o = &r->shapes.out[i];
    if (o->state != SHAPE_KNOWN) {
        return op_error(r->node, err, CHURON_INTERNAL,
                        "output %zu: its shape is not known before it is computed", i);
    }
    r->by_infer |= (uint64_t)1 << (i < 63 ? i : 63);
    return run_out_shaped(r, i, r->node->outputs[i]->type.type, o->rank, o->dims, out, err);
}

void run_out_value(op_run *r, size_t i, value v) {
    int32_t slot = out_slot(r, i);
    if (slot == IR_NO_SLOT) {
        value_free(&v);
    } else {
        exec_set(r->x, r->frame, slot, v);
    }
}

void run_out_tensor(op_run *r, size_t i, tensor t) {
    run_out_value(r, i, value_of_tensor(t));
}

status run_scratch(op_run *r, size_t bytes, void **out, error *err) {
    TRY(check_limit(r->x, r->node, bytes, err));
    *out = exec_scratch(r->x, bytes);
    return *out ? CHURON_OK
                : op_error(r->node, err, CHURON_NO_MEMORY, "no memory for %zu bytes of scratch", bytes);
}

stop_flag *run_stop(const op_run *r) {
    return r->x->stop;
}

status run_check(op_run *r, error *err) {
    error e;
    status st = stop_check(r->x->stop, &e);
    return st == CHURON_OK ? st : op_error(r->node, err, st, "%s", e.message);
}

/* What a node that was asked to leave has computed, or says to be wrong, does not count; nor does what it
 * finished too late. */
static status outcome(op_run *r, status st, error *err) {
    if (stop_now(r->x->stop)) return run_check(r, err);
    if (st == CHURON_OK) {
        count_again(r->x, r->frame, r->step);
        return check_limit(r->x, r->node, 0, err); /* lists are counted when they are there */
    }
    if (err && strncmp(err->message, "node '", 6) != 0) { /* from below, where nodes have no names */
        const error e = *err;
        return op_error(r->node, err, st, "%s", e.message);
    }
    return st;
}

/* ---- threads ---------------------------------------------------------------------------------------- */

typedef struct parallel_job {
    size_t n, each; /* each: items of a piece, between which the clock is read */
    void (*fn)(void *ctx, size_t from, size_t to);
    void *ctx;
    stop_flag *stop;
} parallel_job;

static void parallel_pieces(const parallel_job *j, size_t from, size_t to) {
    for (size_t end; from < to && !stop_now(j->stop); from = end) {
        end = to - from > j->each ? from + j->each : to;
        j->fn(j->ctx, from, end);
    }
}

static void parallel_part(void *ctx, const pool_member *me) {
    const parallel_job *j = ctx;
    size_t from, to;
    pool_split(me, j->n, 1, &from, &to);
    parallel_pieces(j, from, to);
}

/* Handing work to awake workers costs under a microsecond, to sleeping ones tens. */
static const double worth_a_team = 20000; /* ns */
/* Of a piece: what `work` says may be ten times too little. */
static const double worth_a_look = 500e3; /* ns */

static size_t piece(size_t n, double work) {
    const double pieces = work / worth_a_look;
    if (!(pieces > 1)) return n;
    if (pieces >= (double)n) return 1;
    const size_t each = (size_t)((double)n / pieces);
    return each > 64 ? each / 16 * 16 : each;
}

void run_parallel(op_run *r, size_t n, double work, void (*fn)(void *ctx, size_t from, size_t to),
                  void *ctx) {
    if (n == 0) return;
    parallel_job j = {.n = n, .each = n, .fn = fn, .ctx = ctx, .stop = run_stop(r)};
    if (j.stop) j.each = piece(n, work);
    if (n == 1 || work < worth_a_team || pool_threads(r->x->pool) == 1) {
        parallel_pieces(&j, 0, n);
    } else {
        pool_run(r->x->pool, parallel_part, &j);
    }
}

/* ---- bodies ----------------------------------------------------------------------------------------- */

size_t run_body_n_inputs(const op_run *r, size_t body) {
    return r->node->bodies[body]->n_inputs;
}

size_t run_body_n_outputs(const op_run *r, size_t body) {
    return r->node->bodies[body]->n_outputs;
}

status run_body(op_run *r, size_t body, const value *inputs, size_t n, value *outputs, size_t n_outputs,
                error *err) {
    const ir_graph *g = r->node->bodies[body];
    exec_frame *f = &r->x->frames[g->number];
    memset(outputs, 0, n_outputs * sizeof *outputs);
    if (n != g->n_inputs || n_outputs > g->n_outputs) {
        return op_error(r->node, err, CHURON_INVALID,
                        "body '%s': expected %zu inputs and %zu outputs, got %zu and %zu", g->name, n,
                        n_outputs, g->n_inputs, g->n_outputs);
    }
    TRY(run_check(r, err));
    for (size_t i = 0; i < n; i++) exec_set(r->x, f, (int32_t)g->inputs[i]->slot, value_share(&inputs[i]));
    for (size_t i = 0; i < g->n_captures; i++) {
        const ir_capture *c = &g->captures[i];
        if (c->inner->is_constant) continue;
        exec_set(r->x, f, (int32_t)c->inner->slot, value_share(&r->frame->slots[c->outer->slot]));
    }
    TRY(exec_graph(r->x, g, err));
    for (size_t i = 0; i < n_outputs; i++) outputs[i] = value_share(&f->slots[g->outputs[i]->slot]);
    exec_clear(r->x, g);
    return CHURON_OK;
}

/* ---- one node --------------------------------------------------------------------------------------- */

/* Output 0 shares the elements of input 0. */
static status share_view(op_run *r, error *err) {
    const value *in = run_in_value(r, 0);
    int32_t slot = out_slot(r, 0);
    if (slot == IR_NO_SLOT) return CHURON_OK;
    value v = value_share(in);
    if (v.kind == VALUE_TENSOR && r->shapes.out[0].state == SHAPE_KNOWN) {
        const shape_out *o = &r->shapes.out[0];
        size_t count;
        status st = tensor_count(v.t.type, o->rank, o->dims, &count, r->node->outputs[0]->name, err);
        if (st == CHURON_OK && count != v.t.count) {
            st = op_error(r->node, err, CHURON_INVALID,
                          "expected a shape of %zu elements as its input has, got %zu", v.t.count, count);
        }
        if (st == CHURON_OK) st = check_inferred(r, 0, o->rank, o->dims, err);
        if (st != CHURON_OK) {
            value_free(&v);
            return st;
        }
        v.t.rank = o->rank;
        memcpy(v.t.dims, o->dims, o->rank * sizeof o->dims[0]);
        r->by_infer |= 1;
    }
    exec_set(r->x, r->frame, slot, v);
    return CHURON_OK;
}

static status compute(op_run *r, error *err) {
    const op_def *d = r->node->def;
    if (!(d->flags & OP_OWN_INFERENCE)) TRY(infer_now(r, err));
    if (d->flags & OP_VIEW) {
        TRY(infer_now(r, err));
        TRY(share_view(r, err));
        if (!d->run || r->step->n_out == 1) return CHURON_OK;
    }
    if (!d->run) return op_error(r->node, err, CHURON_INTERNAL, "the operator has no way to run");
    return d->run(r, err);
}

enum { TOLD = 16 };

static size_t told_values(const exec_frame *f, const int32_t *slots, size_t n, const value **out) {
    if (n > TOLD) n = TOLD;
    for (size_t i = 0; i < n; i++) out[i] = slots[i] == IR_NO_SLOT ? NULL : &f->slots[slots[i]];
    return n;
}

static void tell(const op_run *r, double started) {
    const graph_run_options *o = r->x->options;
    double seconds = clock_seconds() - started;
    const value *in[TOLD], *out[TOLD];
    const char *names_of[TOLD];
    graph_event e = {
        .name = r->node->name, .op = r->node->op, .seconds = seconds, .inputs = in, .outputs = out};
    e.n_inputs = told_values(r->frame, r->step->in, r->step->n_in, in);
    e.n_outputs = told_values(r->frame, r->step->out, r->step->n_out, out);
    for (size_t i = 0; i < e.n_outputs; i++)
        names_of[i] = r->node->outputs[i] ? r->node->outputs[i]->name : NULL;
    e.output_names = names_of;
    e.operations = cost_operations(r->node, &e);
    o->on_node(o->user, &e);
}

static op_run begin_step(exec *x, const exec_step *step, exec_frame *f) {
    op_run r = {.x = x, .node = step->node, .step = step, .frame = f};
    r.shapes = (op_shapes){.node = step->node,
                           .program = step->node->graph->program,
                           .exec = x,
                           .slots = f->slots,
                           .in = step->in,
                           .out = f->shapes};
    return r;
}

/* `index`: the step's number if the run is watched, else SIZE_MAX. */
static status run_step(exec *x, const exec_step *step, exec_frame *f, size_t index, error *err) {
    op_run r = begin_step(x, step, f);
    if (x->stop) TRY(run_check(&r, err));
    bool told = x->options && x->options->on_node;
    double started = told ? clock_seconds() : 0;
    exec_mark mark = exec_scratch_mark(x);
    status st = outcome(&r, compute(&r, err), err);
    exec_scratch_release(x, mark);
    if (st != CHURON_OK) return st;
    if (told) tell(&r, started);
    if (index != SIZE_MAX) bucket_note_step(x, step->node->graph, &r, index);
    for (uint32_t i = 0; i < step->n_frees; i++) clear_slot(x, f, step->frees[i]);
    return CHURON_OK;
}

static void need_inputs(const op_node *n, bool *needed) {
    for (size_t i = 0; i < n->n_inputs; i++) {
        if (n->inputs[i]) needed[n->inputs[i]->slot] = true;
    }
    for (size_t b = 0; b < n->n_bodies; b++) {
        for (size_t i = 0; i < n->bodies[b]->n_captures; i++)
            needed[n->bodies[b]->captures[i].outer->slot] = true;
    }
}

static bool makes_needed(const op_node *n, const bool *needed) {
    for (size_t i = 0; i < n->n_outputs; i++) {
        if (n->outputs[i] && needed[n->outputs[i]->slot]) return true;
    }
    return false;
}

status exec_choose(exec *x, const ir_graph *g, const bool *wanted, error *err) {
    x->skips = false;
    for (size_t i = 0; wanted && i < g->n_outputs; i++) x->skips |= !wanted[i];
    if (!x->skips) return CHURON_OK;
    if (x->idle && memcmp(x->wanted, wanted, g->n_outputs) == 0) return CHURON_OK;
    bool *needed = mem_calloc(g->n_values + 1, 1);
    if (!x->wanted) x->wanted = mem_calloc(g->n_outputs + 1, 1);
    if (!x->idle) x->idle = mem_calloc(g->n_nodes + 1, 1);
    if (!needed || !x->wanted || !x->idle) {
        mem_free(needed);
        mem_free(x->idle);
        x->idle = NULL;
        return ir_no_memory(err);
    }
    memcpy(x->wanted, wanted, g->n_outputs);
    for (size_t i = 0; i < g->n_outputs; i++) needed[g->outputs[i]->slot] |= wanted[i];
    for (size_t i = g->n_nodes; i-- > 0;) {
        x->idle[i] = !makes_needed(g->nodes[i], needed);
        if (!x->idle[i]) need_inputs(g->nodes[i], needed);
    }
    mem_free(needed);
    return CHURON_OK;
}

static status run_all_steps(exec *x, const ir_graph *g, error *err) {
    exec_frame *f = &x->frames[g->number];
    bool watched = x->watched && !g->parent;
    for (size_t i = 0; i < g->n_nodes; i++) {
        if (exec_step_is_constant(&g->steps[i])) continue;
        /* A run that is watched leaves nothing out: all others are planned by it. */
        if (x->skips && !watched && !g->parent && x->idle[i]) continue;
        TRY(run_step(x, &g->steps[i], f, watched ? i : SIZE_MAX, err));
    }
    return CHURON_OK;
}

/* An output that shares memory of the arena although it did not in the run that was watched: it may outlive
 * what lies there. */
static status unshare(exec *x, const bucket *b, const bucket_step *s, exec_frame *f, error *err) {
    for (size_t k = 0; k < s->step->n_out && b->pages; k++) {
        int32_t slot = s->step->out[k];
        if (slot == IR_NO_SLOT || b->roots[slot] != slot) continue;
        const value *v = &f->slots[slot];
        if (v->kind != VALUE_TENSOR || v->t.storage || b->preset[slot].kind == VALUE_TENSOR) continue;
        const char *p = v->t.data;
        if (p < b->pages || p >= b->pages + b->n_pages) continue;
        tensor copy;
        TRY(tensor_copy(&copy, &v->t, err));
        exec_set(x, f, slot, value_of_tensor(copy));
    }
    return CHURON_OK;
}

static status run_planned(exec *x, const ir_graph *g, const bucket *b, error *err) {
    exec_frame *f = &x->frames[g->number];
    bool told = x->options && x->options->on_node;
    for (size_t i = 0; i < b->n_steps; i++) {
        const bucket_step *s = &b->steps[i];
        if (x->skips && x->idle[s->step->node->index]) continue;
        op_run r = begin_step(x, s->step, f);
        if (x->stop) TRY(run_check(&r, err));
        double started = told ? clock_seconds() : 0;
        exec_mark mark = exec_scratch_mark(x);
        status st;
        if (s->fast) {
            r.fixed = b->fixed;
            st = s->step->node->def->run(&r, err);
        } else {
            st = compute(&r, err);
        }
        st = outcome(&r, st, err);
        exec_scratch_release(x, mark);
        if (st == CHURON_OK && !s->fast) st = unshare(x, b, s, f, err);
        if (st != CHURON_OK) return st;
        if (told) tell(&r, started);
        for (uint32_t k = 0; k < s->n_frees; k++) clear_slot(x, f, s->frees[k]);
    }
    return CHURON_OK;
}

status exec_graph(exec *x, const ir_graph *g, error *err) {
    bool planned = !g->parent && x->entered;
    status st = planned ? run_planned(x, g, x->entered, err) : run_all_steps(x, g, err);
    if (st != CHURON_OK) exec_clear(x, g);
    return st;
}

/* ---- a constant ------------------------------------------------------------------------------------- */

/* Borrowed elements that live as long as the program: those of the model, and of constants. */
static bool stays(const op_node *n, const tensor *t) {
    if (strcmp(n->op, "Constant") == 0 && n->domain[0] == '\0') return true;
    return (n->def->flags & OP_VIEW) && n->inputs[0] && n->inputs[0]->constant.data == t->data;
}

status exec_constant_node(exec *x, op_node *n, tensor *outputs, error *err) {
    size_t n_slots = n->n_inputs + n->n_outputs;
    value *slots = mem_calloc(n_slots + 1, sizeof *slots);
    size_t *charged = mem_calloc(n_slots + 1, sizeof *charged);
    shape_out *shapes = mem_calloc(n->n_outputs + 1, sizeof *shapes);
    int32_t *places = mem_calloc(n_slots + 1, sizeof *places);
    status st = CHURON_OK;
    if (!slots || !charged || !shapes || !places) {
        st = ir_no_memory(err);
    } else {
        for (size_t i = 0; i < n->n_inputs; i++) {
            places[i] = n->inputs[i] ? (int32_t)i : IR_NO_SLOT;
            if (n->inputs[i]) slots[i] = value_of_tensor(tensor_share(&n->inputs[i]->constant));
        }
        for (size_t i = 0; i < n->n_outputs; i++) {
            places[n->n_inputs + i] = n->outputs[i] ? (int32_t)(n->n_inputs + i) : IR_NO_SLOT;
        }
        exec_step step = {.node = n,
                          .in = places,
                          .out = places + n->n_inputs,
                          .n_in = (uint32_t)n->n_inputs,
                          .n_out = (uint32_t)n->n_outputs};
        exec_frame f = {.slots = slots, .charged = charged, .shapes = shapes};
        const fp_env was = fp_enter(FP_FLUSH_SUBNORMALS);
        st = run_step(x, &step, &f, SIZE_MAX, err);
        fp_leave(&was);
        for (size_t i = 0; i < n->n_outputs && st == CHURON_OK; i++) {
            value *v = &slots[n->n_inputs + i];
            outputs[i] = (tensor){0};
            if (v->kind == VALUE_TENSOR && v->t.storage) {
                outputs[i] = tensor_share(&v->t);
            } else if (v->kind == VALUE_TENSOR && stays(n, &v->t)) {
                outputs[i] = v->t;
            } else if (v->kind == VALUE_TENSOR) {
                st = tensor_copy(&outputs[i], &v->t, err);
            }
        }
    }
    for (size_t i = 0; slots && i < n_slots; i++) value_free(&slots[i]);
    mem_free(slots);
    mem_free(charged);
    mem_free(shapes);
    mem_free(places);
    x->live = 0;
    return st;
}

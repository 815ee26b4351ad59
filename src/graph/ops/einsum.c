/* einsum.c: Einsum. Floats: operands are contracted two by two, each pair as a batched matrix product of
 * [batch, M, K] and [batch, K, N], into which gathering puts diagonals, broadcasts and permutations.
 * Integers: one walk over all indices, modulo 2^64. */
#include "base/mem.h"
#include "graph/ops/gemm.h"
#include "graph/ops/nn.h"
#include "graph/ops/ops.h"

#include <ctype.h>
#include <string.h>

/* Labels: letters, then axes of the ellipsis, the last axis of it being ELLIPSIS + TENSOR_MAX_RANK - 1. */
enum { ELLIPSIS = 52, MAX_LABELS = ELLIPSIS + TENSOR_MAX_RANK, MAX_TERMS = 17 };

typedef struct term {
    uint8_t labels[TENSOR_MAX_RANK + 1]; /* ELLIPSIS: the place of "..." */
    size_t n;
    bool ellipsis;
} term;

typedef struct einsum_state {
    term in[MAX_TERMS], out;
    size_t n_in;
} einsum_state;

/* ---- equation --------------------------------------------------------------------------------------- */

static status read_term(op_node *n, const char **text, term *t, error *err) {
    const char *p = *text;
    *t = (term){.n = 0};
    for (; *p && *p != ',' && !(p[0] == '-' && p[1] == '>'); p++) {
        uint8_t label;
        if (isspace((unsigned char)*p)) continue;
        if (*p >= 'A' && *p <= 'Z') {
            label = (uint8_t)(*p - 'A');
        } else if (*p >= 'a' && *p <= 'z') {
            label = (uint8_t)(26 + *p - 'a');
        } else if (p[0] == '.' && p[1] == '.' && p[2] == '.' && !t->ellipsis) {
            label = ELLIPSIS;
            t->ellipsis = true;
            p += 2;
        } else {
            return op_error(n, err, CHURON_INVALID,
                            "equation: a letter, '...', ',' or '->' expected, got '%c'", *p);
        }
        if (t->n - t->ellipsis + (label == ELLIPSIS) >= TENSOR_MAX_RANK)
            return op_error(n, err, CHURON_UNSUPPORTED, "equation: at most %d labels of an operand expected",
                            TENSOR_MAX_RANK);
        t->labels[t->n++] = label;
    }
    *text = p;
    return CHURON_OK;
}

/* Without "->": the ellipsis, then the letters that appear once, in order. */
static void implied_output(einsum_state *st) {
    size_t seen[ELLIPSIS + 1] = {0};
    for (size_t i = 0; i < st->n_in; i++)
        for (size_t k = 0; k < st->in[i].n; k++) seen[st->in[i].labels[k]]++;
    st->out = (term){.n = 0};
    if (seen[ELLIPSIS]) st->out.labels[st->out.n++] = ELLIPSIS, st->out.ellipsis = true;
    for (uint8_t l = 0; l < ELLIPSIS; l++)
        if (seen[l] == 1 && st->out.n < TENSOR_MAX_RANK) st->out.labels[st->out.n++] = l;
}

static status check_output(op_node *n, const einsum_state *st, error *err) {
    bool known[ELLIPSIS + 1] = {false};
    for (size_t i = 0; i < st->n_in; i++)
        for (size_t k = 0; k < st->in[i].n; k++) known[st->in[i].labels[k]] = true;
    for (size_t k = 0; k < st->out.n; k++) {
        uint8_t l = st->out.labels[k];
        if (!known[l])
            return op_error(n, err, CHURON_INVALID, "equation: output label %zu: one of the inputs' expected",
                            k);
        if (l != ELLIPSIS && memchr(st->out.labels, l, k))
            return op_error(n, err, CHURON_INVALID, "equation: output label %zu appears twice", k);
    }
    return CHURON_OK;
}

static status einsum_prepare(op_node *n, error *err) {
    einsum_state *st = nn_state(n, sizeof *st, err);
    if (!st) return CHURON_NO_MEMORY;
    const char *p;
    TRY(op_attr_string(n, "equation", "", &p, err));
    size_t inputs = op_n_inputs(n);
    if (inputs < 1 || inputs > MAX_TERMS)
        return op_error(n, err, CHURON_UNSUPPORTED, "1 to %d inputs expected, got %zu", MAX_TERMS, inputs);
    for (;;) {
        if (st->n_in == inputs)
            return op_error(n, err, CHURON_INVALID, "equation: %zu operands expected, got more", inputs);
        TRY(read_term(n, &p, &st->in[st->n_in++], err));
        if (*p != ',') break;
        p++;
    }
    if (st->n_in != inputs)
        return op_error(n, err, CHURON_INVALID, "equation: %zu operands expected, got %zu", inputs, st->n_in);
    if (!*p) {
        implied_output(st);
        return CHURON_OK;
    }
    p += 2;
    TRY(read_term(n, &p, &st->out, err));
    if (*p)
        return op_error(n, err, CHURON_INVALID, "equation: the end expected after the output, got '%c'", *p);
    return check_output(n, st, err);
}

/* ---- shapes ----------------------------------------------------------------------------------------- */

/* Labels of every axis of an operand of this rank. */
static status spread_term(const op_node *n, const term *t, size_t rank, size_t which, uint8_t *labels,
                          error *err) {
    size_t letters = t->n - t->ellipsis, at = 0;
    if (rank < letters || (!t->ellipsis && rank != letters))
        return op_error(n, err, CHURON_INVALID, "input %zu: rank %s%zu expected, got %zu", which,
                        t->ellipsis ? "at least " : "", letters, rank);
    size_t hidden = rank - letters;
    for (size_t i = 0; i < t->n; i++) {
        if (t->labels[i] != ELLIPSIS) {
            labels[at++] = t->labels[i];
            continue;
        }
        for (size_t k = 0; k < hidden; k++) labels[at++] = (uint8_t)(MAX_LABELS - hidden + k);
    }
    return CHURON_OK;
}

static size_t output_labels(const term *t, size_t hidden, uint8_t *labels) {
    size_t at = 0;
    for (size_t i = 0; i < t->n; i++) {
        if (t->labels[i] != ELLIPSIS) {
            labels[at++] = t->labels[i];
            continue;
        }
        for (size_t k = 0; k < hidden; k++) labels[at++] = (uint8_t)(MAX_LABELS - hidden + k);
    }
    return at;
}

static status einsum_infer(op_shapes *s, error *err) {
    const einsum_state *st = shapes_state(s);
    const op_node *n = shapes_node(s);
    dim sizes[MAX_LABELS];
    size_t hidden = 0;
    for (size_t l = 0; l < MAX_LABELS; l++) sizes[l] = 1;
    for (size_t i = 0; i < st->n_in; i++) {
        size_t rank, unused;
        const dim *d;
        uint8_t labels[TENSOR_MAX_RANK];
        if (!shapes_in(s, i, &rank, &d)) {
            shapes_out_unknown(s, 0);
            return CHURON_OK;
        }
        TRY(spread_term(n, &st->in[i], rank, i, labels, err));
        for (size_t k = 0; k < rank; k++)
            TRY(nn_broadcast(s, &sizes[labels[k]], 1, &d[k], 1, &sizes[labels[k]], &unused, err));
        size_t own = rank - (st->in[i].n - st->in[i].ellipsis);
        if (own > hidden) hidden = own;
    }
    uint8_t labels[2 * TENSOR_MAX_RANK];
    dim out[2 * TENSOR_MAX_RANK];
    size_t rank = output_labels(&st->out, hidden, labels);
    for (size_t k = 0; k < rank; k++) out[k] = sizes[labels[k]];
    return shapes_out(s, 0, rank, out, err);
}

/* ---- operands --------------------------------------------------------------------------------------- */

/* An array with a stride for each label that it has; label sets are bit masks. */
typedef struct operand {
    const void *data;
    uint64_t labels;
    int64_t stride[MAX_LABELS]; /* diagonals: sums of strides; broadcast: 0 */
} operand;

typedef struct plan {
    int64_t size[MAX_LABELS];
    operand in[MAX_TERMS];
    uint8_t out[2 * TENSOR_MAX_RANK];
    size_t n_out;
    elem work;
} plan;

static uint64_t bit(size_t l) {
    return (uint64_t)1 << l;
}

static status make_plan(op_run *r, const einsum_state *st, plan *p, error *err) {
    size_t hidden = 0;
    for (size_t l = 0; l < MAX_LABELS; l++) p->size[l] = 1;
    for (size_t i = 0; i < st->n_in; i++) {
        const tensor *t = run_in(r, i);
        uint8_t labels[TENSOR_MAX_RANK];
        TRY(spread_term(run_node(r), &st->in[i], t->rank, i, labels, err));
        for (size_t k = 0; k < t->rank; k++)
            if (t->dims[k] != 1) p->size[labels[k]] = t->dims[k];
        size_t own = t->rank - (st->in[i].n - st->in[i].ellipsis);
        if (own > hidden) hidden = own;
        int64_t step = 1;
        p->in[i] = (operand){.data = t->data};
        for (size_t k = t->rank; k-- > 0; step *= t->dims[k]) {
            p->in[i].labels |= bit(labels[k]);
            if (t->dims[k] != 1) p->in[i].stride[labels[k]] += step;
        }
    }
    p->n_out = output_labels(&st->out, hidden, p->out);
    return CHURON_OK;
}

static size_t list_labels(uint64_t set, uint8_t *list) {
    size_t n = 0;
    for (size_t l = 0; l < MAX_LABELS; l++)
        if (set & bit(l)) list[n++] = (uint8_t)l;
    return n;
}

static bool product_of(const plan *p, const uint8_t *list, size_t n, size_t *out) {
    *out = 1;
    for (size_t i = 0; i < n; i++)
        if (!size_mul(*out, (size_t)p->size[list[i]], out)) return false;
    return true;
}

/* Offset of the i-th index tuple of a list of labels. */
static int64_t offset_of(const plan *p, const operand *o, const uint8_t *list, size_t n, size_t i) {
    int64_t at = 0;
    for (size_t k = n; k-- > 0;) {
        size_t size = (size_t)p->size[list[k]];
        at += (int64_t)(i % size) * o->stride[list[k]];
        i /= size;
    }
    return at;
}

/* Dense copy of `count` elements in the order of `list`, one line of the last label after another. */
static status copy_lines(op_run *r, const plan *p, const operand *o, const uint8_t *list, size_t n,
                         size_t count, void *out, error *err) {
    enum { LOOK = 1 << 16 }; /* elements between looks at the stop */
    const size_t line = n ? (size_t)p->size[list[n - 1]] : 1;
    const int64_t step = n ? o->stride[list[n - 1]] : 0;
    for (size_t i = 0, since = LOOK; i < count; i += line, since += line) {
        const int64_t at = offset_of(p, o, list, n ? n - 1 : 0, i / line);
        if (since >= LOOK) {
            TRY(run_check(r, err));
            since = 0;
        }
        if (p->work == ELEM_F64) {
            const double *from = (const double *)o->data + at;
            for (size_t k = 0; k < line; k++) ((double *)out)[i + k] = from[(int64_t)k * step];
        } else {
            const float *from = (const float *)o->data + at;
            for (size_t k = 0; k < line; k++) ((float *)out)[i + k] = from[(int64_t)k * step];
        }
    }
    return CHURON_OK;
}

/* Dense copy in the order of `list`, summed over `gone`. */
static status gather(op_run *r, const plan *p, const operand *o, const uint8_t *list, size_t n, uint64_t gone,
                     void **out, size_t *count, error *err) {
    uint8_t summed[MAX_LABELS];
    size_t n_summed = list_labels(gone, summed), terms, bytes;
    if (!product_of(p, list, n, count) || !product_of(p, summed, n_summed, &terms) ||
        !size_mul(*count + 1, elem_describe(p->work)->bytes, &bytes))
        return run_error(r, err, CHURON_LIMIT, "equation: an intermediate result is too large");
    TRY(run_scratch(r, bytes, out, err));
    if (n_summed == 0) return copy_lines(r, p, o, list, n, *count, *out, err);
    for (size_t i = 0; i < *count; i++) {
        int64_t at = offset_of(p, o, list, n, i);
        if (i % 65536 == 0) TRY(run_check(r, err));
        if (p->work == ELEM_F64) {
            double sum = 0;
            for (size_t k = 0; k < terms; k++)
                sum += ((const double *)
                            o->data)[at + (k || terms > 1 ? offset_of(p, o, summed, n_summed, k) : 0)];
            ((double *)*out)[i] = sum;
        } else {
            double sum = 0;
            for (size_t k = 0; k < terms; k++)
                sum +=
                    (double)((const float *)
                                 o->data)[at + (k || terms > 1 ? offset_of(p, o, summed, n_summed, k) : 0)];
            ((float *)*out)[i] = (float)sum;
        }
    }
    return CHURON_OK;
}

/* Strides of a dense array with labels in this order. */
static void dense_operand(const plan *p, const void *data, const uint8_t *list, size_t n, operand *o) {
    int64_t step = 1;
    *o = (operand){.data = data};
    for (size_t k = n; k-- > 0; step *= p->size[list[k]]) {
        o->labels |= bit(list[k]);
        o->stride[list[k]] = p->size[list[k]] == 1 ? 0 : step;
    }
}

/* A group of labels: in the order of the output, others behind. */
typedef struct group {
    uint8_t labels[MAX_LABELS];
    size_t n, size; /* size: of the index they make together */
} group;

static bool group_of(const plan *p, uint64_t set, group *g) {
    g->n = 0;
    for (size_t k = 0; k < p->n_out; k++) {
        if (!(set & bit(p->out[k]))) continue;
        g->labels[g->n++] = p->out[k];
        set &= ~bit(p->out[k]);
    }
    g->n += list_labels(set, g->labels + g->n);
    return product_of(p, g->labels, g->n, &g->size);
}

static size_t append(uint8_t *to, size_t at, const group *g) {
    memcpy(to + at, g->labels, g->n);
    return at + g->n;
}

/* Whether the group is one index with one stride in o. An index of one value has any: 1. */
static bool one_stride(const plan *p, const operand *o, const group *g, size_t *stride) {
    int64_t next = 0; /* 0: none yet */
    *stride = 1;
    for (size_t k = g->n; k-- > 0;) {
        const int64_t size = p->size[g->labels[k]], own = o->stride[g->labels[k]];
        if (size == 1) continue;
        if (own <= 0 || (next != 0 && own != next)) return false;
        if (next == 0) *stride = (size_t)own;
        next = own * size;
    }
    return true;
}

/* An operand of a batched product. */
typedef struct matrix {
    operand at;
    void *out;       /* where it is written: at.data; NULL: it is read */
    size_t row, col; /* strides */
} matrix;

/* The operand itself where strides describe it, else a dense copy, summed over `gone`. */
static status matrix_of(op_run *r, const plan *p, const operand *o, const group *batch, const group *rows,
                        const group *cols, uint64_t gone, matrix *m, error *err) {
    *m = (matrix){.at = *o};
    if (!gone && one_stride(p, o, rows, &m->row) && one_stride(p, o, cols, &m->col)) return CHURON_OK;
    uint8_t list[MAX_LABELS];
    const size_t n = append(list, append(list, append(list, 0, batch), rows), cols);
    size_t count;
    void *copy;
    TRY(gather(r, p, o, list, n, gone, &copy, &count, err));
    dense_operand(p, copy, list, n, &m->at);
    one_stride(p, &m->at, rows, &m->row), one_stride(p, &m->at, cols, &m->col);
    return CHURON_OK;
}

/* Each product by itself; C has rows that lie together. */
static status multiply(op_run *r, const plan *p, const group *batch, const group *rows, const group *cols,
                       const group *inner, const matrix *a, const matrix *b, const matrix *c, error *err) {
    void *memory;
    const bool wide = p->work == ELEM_F64;
    TRY(run_scratch(r, wide ? 1 : (batch->size + 1) * sizeof(gemm_call), &memory, err));
    gemm_call *calls = memory;
    for (size_t i = 0; i < batch->size; i++) {
        const int64_t oa = offset_of(p, &a->at, batch->labels, batch->n, i);
        const int64_t ob = offset_of(p, &b->at, batch->labels, batch->n, i);
        const int64_t oc = offset_of(p, &c->at, batch->labels, batch->n, i);
        if (wide)
            gemm_f64(run_kernels(r), run_stop(r), rows->size, cols->size, inner->size,
                     (const double *)a->at.data + oa, a->row, a->col, (const double *)b->at.data + ob, b->row,
                     b->col, (double *)c->out + oc, c->row);
        else
            calls[i] = (gemm_call){.m = rows->size,
                                   .n = cols->size,
                                   .k = inner->size,
                                   .a = (const float *)a->at.data + oa,
                                   .a_row = a->row,
                                   .a_col = a->col,
                                   .b = (const float *)b->at.data + ob,
                                   .b_row = b->row,
                                   .b_col = b->col,
                                   .c = (float *)c->out + oc,
                                   .ldc = c->row};
    }
    return wide ? CHURON_OK : gemm_f32(r, calls, batch->size, NULL, err);
}

/* a and b become one operand with the labels of `keep`. `into`: memory in the order of the output, if these
 * are its labels and no operand is left; it is taken where the product can be written there. */
static status contract(op_run *r, const plan *p, const operand *a, const operand *b, uint64_t keep,
                       void *into, operand *out, error *err) {
    const uint64_t both = a->labels & b->labels;
    group batch, inner, rows, cols;
    matrix ma, mb, mc;
    uint8_t list[MAX_LABELS];
    size_t total, bytes;
    bool fits = group_of(p, both & keep, &batch);
    fits = group_of(p, both & ~keep, &inner) && fits;
    fits = group_of(p, a->labels & ~both & keep, &rows) && fits;
    fits = group_of(p, b->labels & ~both & keep, &cols) && fits;
    const size_t n = append(list, append(list, append(list, 0, &batch), &rows), &cols);
    if (!fits || !product_of(p, list, n, &total) ||
        !size_mul(total + 1, elem_describe(p->work)->bytes, &bytes))
        return run_error(r, err, CHURON_LIMIT, "equation: an intermediate result is too large");
    mc.out = into;
    if (into) {
        dense_operand(p, into, p->out, p->n_out, out);
        if (one_stride(p, out, &rows, &mc.row) && mc.row == 1 && rows.size > 1) { /* the other way round */
            const operand *o = a;
            const group g = rows;
            a = b, b = o, rows = cols, cols = g;
        }
        if (!one_stride(p, out, &rows, &mc.row) || !one_stride(p, out, &cols, &mc.col) || mc.col != 1)
            mc.out = NULL;
    }
    if (!mc.out) {
        TRY(run_scratch(r, bytes, &mc.out, err));
        const size_t m = append(list, append(list, append(list, 0, &batch), &rows), &cols);
        dense_operand(p, mc.out, list, m, out);
        one_stride(p, out, &rows, &mc.row);
    }
    mc.at = *out;
    TRY(matrix_of(r, p, a, &batch, &rows, &inner, a->labels & ~both & ~keep, &ma, err));
    TRY(matrix_of(r, p, b, &batch, &inner, &cols, b->labels & ~both & ~keep, &mb, err));
    if (!total) return CHURON_OK;
    return multiply(r, p, &batch, &rows, &cols, &inner, &ma, &mb, &mc, err);
}

static status einsum_float(op_run *r, const einsum_state *st, plan *p, error *err) {
    tensor *y;
    void *to, *result;
    size_t count;
    TRY(real_out(r, 0, p->work, &y, &to, err));
    for (size_t i = 0; i < st->n_in; i++) TRY(real_in(r, i, p->work, &p->in[i].data, err));
    uint64_t wanted = 0;
    for (size_t k = 0; k < p->n_out; k++) wanted |= bit(p->out[k]);
    operand total = p->in[0];
    for (size_t i = 1; i < st->n_in; i++) {
        uint64_t later = wanted;
        for (size_t k = i + 1; k < st->n_in; k++) later |= p->in[k].labels;
        operand next;
        TRY(contract(r, p, &total, &p->in[i], later, i + 1 == st->n_in ? to : NULL, &next, err));
        total = next;
    }
    if (total.data == to) {
        real_out_done(r, y, p->work, to);
        return CHURON_OK;
    }
    TRY(gather(r, p, &total, p->out, p->n_out, total.labels & ~wanted, &result, &count, err));
    memcpy(to, result, y->count * elem_describe(p->work)->bytes);
    real_out_done(r, y, p->work, to);
    return CHURON_OK;
}

/* ---- integers --------------------------------------------------------------------------------------- */

static uint64_t whole_at(const tensor *t, int64_t i) {
    switch (t->type) {
    case ELEM_I8: return (uint64_t)((const int8_t *)t->data)[i];
    case ELEM_U8: return ((const uint8_t *)t->data)[i];
    case ELEM_I16: return (uint64_t)((const int16_t *)t->data)[i];
    case ELEM_U16: return ((const uint16_t *)t->data)[i];
    case ELEM_I32: return (uint64_t)((const int32_t *)t->data)[i];
    case ELEM_U32: return ((const uint32_t *)t->data)[i];
    default: return ((const uint64_t *)t->data)[i];
    }
}

static void whole_set(tensor *t, size_t i, uint64_t v) {
    switch (elem_describe(t->type)->bytes) {
    case 1: ((uint8_t *)t->data)[i] = (uint8_t)v; break;
    case 2: ((uint16_t *)t->data)[i] = (uint16_t)v; break;
    case 4: ((uint32_t *)t->data)[i] = (uint32_t)v; break;
    default: ((uint64_t *)t->data)[i] = v; break;
    }
}

static status einsum_integer(op_run *r, const einsum_state *st, const plan *p, error *err) {
    tensor *y;
    TRY(run_out(r, 0, &y, err));
    uint64_t wanted = 0, all = 0;
    for (size_t k = 0; k < p->n_out; k++) wanted |= bit(p->out[k]);
    for (size_t i = 0; i < st->n_in; i++) all |= p->in[i].labels;
    uint8_t inner[MAX_LABELS];
    size_t n_inner = list_labels(all & ~wanted, inner), terms;
    if (!product_of(p, inner, n_inner, &terms))
        return run_error(r, err, CHURON_LIMIT, "equation: too many terms");
    for (size_t i = 0; i < y->count; i++) {
        uint64_t sum = 0;
        for (size_t k = 0; k < terms; k++) {
            uint64_t v = 1;
            if (k % 65536 == 0) TRY(run_check(r, err));
            for (size_t t = 0; t < st->n_in; t++)
                v *= whole_at(run_in(r, t), offset_of(p, &p->in[t], p->out, p->n_out, i) +
                                                offset_of(p, &p->in[t], inner, n_inner, k));
            sum += v;
        }
        whole_set(y, i, sum);
    }
    return CHURON_OK;
}

static status einsum_run(op_run *r, error *err) {
    const einsum_state *st = run_state(r);
    void *memory;
    TRY(run_scratch(r, sizeof(plan), &memory, err));
    plan *p = memory;
    p->work = real_work(run_in(r, 0)->type);
    TRY(make_plan(r, st, p, err));
    return ELEM_BIT(run_in(r, 0)->type) & ELEMS_FLOAT ? einsum_float(r, st, p, err)
                                                      : einsum_integer(r, st, p, err);
}

#define EINSUM(first, last, types)                                                                           \
    {                                                                                                        \
        .domain = "", .name = "Einsum", .since = first, .until = last, .signature = "T*>T",                  \
        .vars = {{'T', types}}, .prepare = einsum_prepare, .release = mem_free, .infer = einsum_infer,       \
        .run = einsum_run                                                                                    \
    }

static const op_def rows[] = {EINSUM(12, 27, NN_F3 | ELEMS_INT), EINSUM(28, 0, ELEMS_FLOAT | ELEMS_INT)};
NN_TABLE(einsum);

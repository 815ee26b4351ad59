/* rows.c: see rows.h. */
#include "graph/rows.h"

#include "graph/exec.h"

#include "base/mem.h"

#include <string.h>

/* What a value is to the records. */
typedef enum kind {
    FIXED, /* the same whoever is in the run */
    ROWS,  /* axis 0 has a row for each record, of that record alone */
    COUNT, /* small integers that inference knows, some of them with the number of records */
    MIXED  /* anything else */
} kind;

enum {
    MOST_RECORDS = 1000 * 1000, /* of a run */
    SPARE_COUNTS = 250,
    MOST_INTS = 64
};

typedef struct walk {
    const ir_program *p;
    kind *of; /* [main->n_values], by slot */
    dim *counts;
    size_t n_counts, cap_counts; /* symbols of the number of records */
    exec x;                      /* computes small constants: paddings and axes */
    ir_value **computed;         /* [n_computed]: constants for as long as the walk lasts */
    size_t n_computed, cap_computed;
} walk;

/* ---- what is known of values ------------------------------------------------------------------------ */

static bool is_count(const walk *w, dim d) {
    for (size_t i = 0; i < w->n_counts; i++) {
        if (w->counts[i] == d) return true;
    }
    return false;
}

static bool mentions_count(const walk *w, dim d) {
    if (dim_known(d)) return false;
    for (size_t i = 0; i < w->n_counts; i++) {
        if (symbols_mention(&w->p->symbols, d, w->counts[i])) return true;
    }
    return false;
}

static const ir_value *in(const op_node *n, size_t i) {
    return i < n->n_inputs ? n->inputs[i] : NULL;
}

static kind kind_of(const walk *w, const ir_value *v) {
    return v->is_constant ? FIXED : w->of[v->slot];
}

static bool has_rows(const walk *w, const op_node *n, size_t i) {
    return in(n, i) && kind_of(w, in(n, i)) == ROWS;
}

static bool is_fixed(const walk *w, const op_node *n, size_t i) {
    return !in(n, i) || kind_of(w, in(n, i)) == FIXED;
}

static bool fixed_from(const walk *w, const op_node *n, size_t i) {
    for (; i < n->n_inputs; i++) {
        if (!is_fixed(w, n, i)) return false;
    }
    return true;
}

/* First input with rows, all others the same for everybody. */
static bool only_first(const walk *w, const op_node *n) {
    return has_rows(w, n, 0) && fixed_from(w, n, 1);
}

static int64_t int_of(const op_node *n, const char *name, int64_t absent) {
    const ir_attr *a = ir_find_attr(n, name);
    return a && a->attr->type == ONNX_ATTR_INT ? a->attr->i : absent;
}

static bool given(const op_node *n, const char *name) {
    return ir_find_attr(n, name) != NULL;
}

static bool text_is(const op_node *n, const char *name, const char *text) {
    const ir_attr *a = ir_find_attr(n, name);
    return a && a->attr->type == ONNX_ATTR_STRING && a->attr->s.len == strlen(text) &&
           memcmp(a->attr->s.data, text, a->attr->s.len) == 0;
}

typedef struct ints {
    bool known;
    size_t n;
    int64_t at[MOST_INTS];
} ints;

static ints ints_of_value(const ir_value *v) {
    ints out = {0};
    if (v->is_constant && v->constant.count <= MOST_INTS) {
        const elem e = v->constant.type;
        out.known = e == ELEM_I64 || e == ELEM_I32;
        out.n = v->constant.count;
        for (size_t i = 0; out.known && i < out.n; i++)
            out.at[i] = e == ELEM_I64 ? ((const int64_t *)v->constant.data)[i]
                                      : ((const int32_t *)v->constant.data)[i];
    } else if (v->known && v->n_known <= MOST_INTS) {
        out.known = true;
        out.n = v->n_known;
        for (size_t i = 0; i < out.n; i++) {
            out.known = out.known && dim_known(v->known[i]);
            out.at[i] = v->known[i];
        }
    }
    return out;
}

/* Of an attribute in older operator sets, of an input in newer ones; known with n 0 where absent. */
static ints ints_of(const op_node *n, const char *name, size_t input) {
    ints out = {.known = true};
    const ir_attr *a = ir_find_attr(n, name);
    if (in(n, input)) return ints_of_value(in(n, input));
    if (!a) return out;
    out.known = a->attr->type == ONNX_ATTR_INTS && a->attr->n <= MOST_INTS;
    out.n = out.known ? a->attr->n : 0;
    if (out.n) memcpy(out.at, a->attr->ints, out.n * sizeof *out.at);
    return out;
}

static bool not_first(int64_t axis, size_t rank) {
    const int64_t at = axis < 0 ? axis + (int64_t)rank : axis;
    return at > 0 && at < (int64_t)rank;
}

/* Axes are said, and the first is not among them. */
static bool none_first(const ints *axes, size_t rank) {
    if (!axes->known || axes->n == 0) return false;
    for (size_t i = 0; i < axes->n; i++) {
        if (!not_first(axes->at[i], rank)) return false;
    }
    return true;
}

/* Rank of an input; 0 where it is not known. */
static size_t rank_of(const op_node *n, size_t i) {
    return in(n, i) && in(n, i)->has_rank ? in(n, i)->rank : 0;
}

static size_t rank_out(const op_node *n) {
    return n->n_outputs && n->outputs[0] && n->outputs[0]->has_rank ? n->outputs[0]->rank : 0;
}

/* Broadcast to this rank, the value has rows on axis 0 or is the same in each row there. */
static bool aligned(const walk *w, const ir_value *v, size_t rank) {
    if (!v) return true;
    if (kind_of(w, v) == ROWS) return v->has_rank && v->rank == rank;
    return kind_of(w, v) == FIXED && v->has_rank && (v->rank < rank || (v->rank == rank && v->dims[0] == 1));
}

static bool all_aligned(const walk *w, const op_node *n, size_t from, size_t to) {
    const size_t rank = rank_out(n);
    if (rank == 0) return false;
    for (size_t i = from; i < to && i < n->n_inputs; i++) {
        if (!aligned(w, n->inputs[i], rank)) return false;
    }
    return true;
}

/* ---- rules: does output 0 keep the rows apart? ------------------------------------------------------ */

typedef bool rule(const walk *w, const op_node *n);

static bool elementwise(const walk *w, const op_node *n) {
    if (given(n, "broadcast") || given(n, "axis")) return false; /* operator sets before 7: other places */
    return all_aligned(w, n, 0, n->n_inputs);
}

static bool dropout(const walk *w, const op_node *n) {
    if (n->version < 7 || !has_rows(w, n, 0) || !is_fixed(w, n, 1)) return false;
    const ir_value *training = in(n, 2);
    return !training || (training->is_constant && training->constant.count == 1 &&
                         *(const uint8_t *)training->constant.data == 0);
}

static bool per_sample(const walk *w, const op_node *n) {
    return only_first(w, n) && rank_of(n, 0) >= 2;
}

static bool per_row(const walk *w, const op_node *n) {
    return only_first(w, n);
}

static bool batch_norm(const walk *w, const op_node *n) {
    return n->version >= 7 && n->n_outputs == 1 && int_of(n, "training_mode", 0) == 0 && per_sample(w, n);
}

static bool mean_variance(const walk *w, const op_node *n) {
    const ints axes = ints_of(n, "axes", SIZE_MAX);
    return per_sample(w, n) && none_first(&axes, rank_of(n, 0));
}

static bool along(const walk *w, const op_node *n, int64_t absent) {
    return only_first(w, n) && not_first(int_of(n, "axis", absent), rank_of(n, 0));
}

static bool along_last(const walk *w, const op_node *n) {
    return along(w, n, -1);
}

static bool along_first(const walk *w, const op_node *n) {
    return along(w, n, 0);
}

/* Before operator set 13 the axis splits the dimensions in two. */
static bool softmax(const walk *w, const op_node *n) {
    return along(w, n, n->version < 13 ? 1 : -1);
}

static bool quantize(const walk *w, const op_node *n) {
    if (!only_first(w, n) || !in(n, 1) || !in(n, 1)->has_rank) return false;
    const ir_value *scale = in(n, 1);
    return scale->rank == 0 ||
           (scale->rank == 1 && (scale->dims[0] == 1 || not_first(int_of(n, "axis", 1), rank_of(n, 0))));
}

static bool factors(const walk *w, const op_node *n, size_t a, size_t b) {
    const size_t ra = rank_of(n, a), rb = rank_of(n, b);
    if (has_rows(w, n, a) && has_rows(w, n, b)) return ra >= 3 && ra == rb;
    if (has_rows(w, n, a) && is_fixed(w, n, b))
        return ra >= 2 && rb >= 1 && (rb <= 2 || rb < ra || (rb == ra && in(n, b)->dims[0] == 1)) && rb <= ra;
    return is_fixed(w, n, a) && has_rows(w, n, b) && rb >= 3 && ra >= 1 &&
           (ra < rb || (ra == rb && in(n, a)->dims[0] == 1));
}

static bool matmul(const walk *w, const op_node *n) {
    return factors(w, n, 0, 1) && fixed_from(w, n, 2);
}

static bool fused_matmul(const walk *w, const op_node *n) {
    return int_of(n, "transA", 0) == 0 && int_of(n, "transBatchA", 0) == 0 &&
           int_of(n, "transBatchB", 0) == 0 && (!has_rows(w, n, 1) || rank_of(n, 1) >= 3) && matmul(w, n);
}

static bool qlinear_matmul(const walk *w, const op_node *n) {
    if (!is_fixed(w, n, 1) || !is_fixed(w, n, 2) || !is_fixed(w, n, 4) || !fixed_from(w, n, 5)) return false;
    return factors(w, n, 0, 3);
}

static bool gemm(const walk *w, const op_node *n) {
    return has_rows(w, n, 0) && is_fixed(w, n, 1) && int_of(n, "transA", 0) == 0 && aligned(w, in(n, 2), 2);
}

static bool qgemm(const walk *w, const op_node *n) {
    const ir_value *bias = in(n, 6);
    return only_first(w, n) && int_of(n, "transA", 0) == 0 && (!bias || aligned(w, bias, 2));
}

/* Sums of whole records count as rows only where the summed axes are said and leave the first one. */
static bool reduce(const walk *w, const op_node *n) {
    const ints axes = ints_of(n, "axes", 1);
    return only_first(w, n) && none_first(&axes, rank_of(n, 0));
}

static bool cumsum(const walk *w, const op_node *n) {
    const ints axis = in(n, 1) ? ints_of_value(in(n, 1)) : (ints){0};
    return only_first(w, n) && none_first(&axis, rank_of(n, 0));
}

static bool gather(const walk *w, const op_node *n) {
    const int64_t axis = int_of(n, "axis", 0);
    if (has_rows(w, n, 0)) return is_fixed(w, n, 1) && not_first(axis, rank_of(n, 0));
    return is_fixed(w, n, 0) && has_rows(w, n, 1) && rank_of(n, 0) >= 1 &&
           (axis == 0 || axis == -(int64_t)rank_of(n, 0));
}

static bool all_rows(const walk *w, const op_node *n) {
    for (size_t i = 0; i < n->n_inputs; i++) {
        if (!has_rows(w, n, i)) return false;
    }
    return n->n_inputs > 0;
}

static bool elements_along(const walk *w, const op_node *n) {
    return all_rows(w, n) && not_first(int_of(n, "axis", 0), rank_of(n, 0));
}

static bool gather_nd(const walk *w, const op_node *n) {
    if (n->domain[0]) return false;
    if (all_rows(w, n)) return int_of(n, "batch_dims", 0) >= 1;
    return is_fixed(w, n, 0) && has_rows(w, n, 1) && rank_of(n, 1) >= 2 && int_of(n, "batch_dims", 0) == 0;
}

static bool concat(const walk *w, const op_node *n) {
    return all_rows(w, n) && not_first(int_of(n, "axis", n->version < 4 ? 1 : 0), rank_out(n));
}

static bool qlinear_concat(const walk *w, const op_node *n) {
    for (size_t i = 0; i < n->n_inputs; i++) {
        if (i >= 2 && i % 3 == 2 ? !has_rows(w, n, i) : !is_fixed(w, n, i)) return false;
    }
    return not_first(int_of(n, "axis", 0), rank_out(n));
}

static bool slice(const walk *w, const op_node *n) {
    const size_t rank = rank_of(n, 0);
    const ints axes = ints_of(n, "axes", 3), starts = ints_of(n, "starts", 1), ends = ints_of(n, "ends", 2),
               steps = ints_of(n, "steps", 4);
    const bool said = in(n, 3) || given(n, "axes");
    if (!only_first(w, n) || !axes.known || rank == 0) return false;
    if (said && none_first(&axes, rank)) return true;
    if (!starts.known || !ends.known || !steps.known || starts.n != ends.n) return false;
    for (size_t i = 0; i < starts.n; i++) {
        if (said && (i >= axes.n || not_first(axes.at[i], rank))) continue;
        if (!said && i > 0) continue;
        if (starts.at[i] != 0 || ends.at[i] < MOST_RECORDS || (i < steps.n && steps.at[i] != 1)) return false;
    }
    return true;
}

static bool pad(const walk *w, const op_node *n) {
    const size_t rank = rank_of(n, 0);
    const ints pads = ints_of(n, n->version < 2 ? "paddings" : "pads", 1);
    if (!only_first(w, n) || rank == 0) return false;
    if (in(n, 3)) {
        const ints axes = ints_of_value(in(n, 3));
        return none_first(&axes, rank);
    }
    return pads.known && pads.n == 2 * rank && pads.at[0] == 0 && pads.at[rank] == 0;
}

static bool squeeze(const walk *w, const op_node *n) {
    const ints axes = ints_of(n, "axes", 1);
    return only_first(w, n) && none_first(&axes, rank_of(n, 0));
}

static bool unsqueeze(const walk *w, const op_node *n) {
    const ints axes = ints_of(n, "axes", 1);
    return only_first(w, n) && none_first(&axes, rank_out(n));
}

static bool transpose(const walk *w, const op_node *n) {
    const ints perm = ints_of(n, "perm", SIZE_MAX);
    if (!only_first(w, n) || !perm.known) return false;
    return perm.n ? perm.at[0] == 0 : rank_of(n, 0) == 1;
}

static bool flatten(const walk *w, const op_node *n) {
    const int64_t axis = int_of(n, "axis", 1);
    return only_first(w, n) && (axis == 1 || axis + (int64_t)rank_of(n, 0) == 1);
}

/* Elements stay in their order: rows do where the first dimension does. */
static bool reshape(const walk *w, const op_node *n) {
    const ir_value *x = in(n, 0);
    return has_rows(w, n, 0) && (!in(n, 1) || kind_of(w, in(n, 1)) != MIXED) && !has_rows(w, n, 1) &&
           x->has_rank && x->rank > 0 && rank_out(n) > 0 && is_count(w, x->dims[0]) &&
           is_count(w, n->outputs[0]->dims[0]);
}

/* The number of records in front, and nowhere else. */
static bool counts_first(const walk *w, const ir_value *v) {
    if (!v || kind_of(w, v) != COUNT || v->n_known == 0 || !is_count(w, v->known[0])) return false;
    for (size_t i = 1; i < v->n_known; i++) {
        if (mentions_count(w, v->known[i])) return false;
    }
    return true;
}

static bool expand(const walk *w, const op_node *n) {
    const ir_value *shape = in(n, 1);
    const size_t rank = rank_out(n);
    if (!shape || rank == 0) return false;
    if (has_rows(w, n, 0))
        return rank_of(n, 0) == rank && (kind_of(w, shape) == FIXED || counts_first(w, shape));
    return counts_first(w, shape) && shape->n_known == rank && aligned(w, in(n, 0), rank);
}

static bool constant_of_shape(const walk *w, const op_node *n) {
    return counts_first(w, in(n, 0));
}

static bool tile(const walk *w, const op_node *n) {
    const ir_value *times = in(n, 1), *x = in(n, 0);
    if (!times || n->version < 6) return false;
    if (has_rows(w, n, 0)) {
        const ints by = ints_of_value(times);
        return kind_of(w, times) == FIXED && by.known && by.n > 0 && by.at[0] == 1;
    }
    return is_fixed(w, n, 0) && x->has_rank && x->rank > 0 && x->dims[0] == 1 && counts_first(w, times);
}

static bool one_hot(const walk *w, const op_node *n) {
    return only_first(w, n) && not_first(int_of(n, "axis", -1), rank_out(n));
}

static bool matrices(const walk *w, const op_node *n) {
    return only_first(w, n) && rank_of(n, 0) >= 3;
}

/* The first dimension is kept, so its scale is 1: positions along it are whole. */
static bool resize(const walk *w, const op_node *n) {
    return has_rows(w, n, 0) && rank_of(n, 0) >= 2 && !given(n, "keep_aspect_ratio_policy") &&
           !text_is(n, "coordinate_transformation_mode", "tf_crop_and_resize") &&
           !text_is(n, "coordinate_transformation_mode", "tf_half_pixel_for_nn") &&
           (fixed_from(w, n, 1) || (is_fixed(w, n, 1) && is_fixed(w, n, 2) && counts_first(w, in(n, 3))));
}

static bool recurrent(const walk *w, const op_node *n) {
    if (int_of(n, "layout", 0) != 1 || !has_rows(w, n, 0)) return false;
    for (size_t i = 1; i < n->n_inputs; i++) {
        const bool states = i == 4 || i == 5 || i == 6; /* lengths and first states */
        if (in(n, i) && (states ? !has_rows(w, n, i) : !is_fixed(w, n, i))) return false;
    }
    return true;
}

/* Inputs that have the output's rank stand beside each other row by row; the others are weights. */
static bool skip_norm(const walk *w, const op_node *n) {
    return has_rows(w, n, 0) && aligned(w, in(n, 1), rank_of(n, 0)) && fixed_from(w, n, 2) &&
           rank_of(n, 0) >= 2;
}

static bool embed_norm(const walk *w, const op_node *n) {
    for (size_t i = 0; i < n->n_inputs; i++) {
        const bool rows = i == 0 || i == 1 || i == 7 || i == 8;
        if (in(n, i) && (rows ? !has_rows(w, n, i) : !is_fixed(w, n, i))) return false;
    }
    return has_rows(w, n, 0);
}

/* com.microsoft: the batch is first; a mask of rank 1 may hold several numbers a record. */
static bool attention(const walk *w, const op_node *n) {
    const ir_value *mask = in(n, 3);
    if (!has_rows(w, n, 0) || !is_fixed(w, n, 1) || !is_fixed(w, n, 2) || in(n, 4) || in(n, 6)) return false;
    return (!mask || (kind_of(w, mask) == ROWS && rank_of(n, 3) >= 2)) &&
           (!in(n, 5) || aligned(w, in(n, 5), 4));
}

static bool multi_head(const walk *w, const op_node *n) {
    if (!has_rows(w, n, 0) || n->n_inputs > 6) return false;
    for (size_t i = 1; i < n->n_inputs; i++) {
        if (!in(n, i)) continue;
        const bool good = i == 3   ? is_fixed(w, n, i)
                          : i == 5 ? aligned(w, in(n, i), 4)
                          : i == 4 ? has_rows(w, n, i) && rank_of(n, i) >= 2
                                   : has_rows(w, n, i);
        if (!good) return false;
    }
    return true;
}

/* ai.onnx: queries, keys, values, a mask that is broadcast to four dimensions. */
static bool onnx_attention(const walk *w, const op_node *n) {
    return has_rows(w, n, 0) && has_rows(w, n, 1) && has_rows(w, n, 2) && aligned(w, in(n, 3), 4) &&
           n->n_inputs <= 4;
}

static bool rows_side_by_side(const walk *w, const op_node *n) {
    return all_rows(w, n) && rank_of(n, 0) >= 2;
}

/* Labels of records that are matrices of features; a vector could be one record. */
static bool features(const walk *w, const op_node *n) {
    return only_first(w, n) && rank_of(n, 0) >= 2;
}

/* ---- the table -------------------------------------------------------------------------------------- */

typedef struct entry {
    const char *names; /* with blanks around each */
    rule *keeps;
    bool first_only; /* other outputs than the first are not rows */
} entry;

static const entry ENTRIES[] = {
    {" Abs Acos Acosh Add And Asin Asinh Atan Atanh BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Cast "
     "CastLike Ceil Celu Clip Cos Cosh Div Elu Equal Erf Exp Floor Gelu Greater GreaterOrEqual HardSigmoid "
     "HardSwish Identity IsInf IsNaN LeakyRelu Less LessOrEqual Log Max Mean Min Mish Mod Mul Neg Not Or "
     "PRelu Pow Reciprocal Relu Round Selu Shrink Sigmoid Sign Sin Sinh Softplus Softsign Sqrt StringConcat "
     "Sub Sum Swish Tan Tanh ThresholdedRelu Where Xor BiasGelu FastGelu QuickGelu RegexFullMatch "
     "ParametricSoftplus ScaledTanh ImageScaler QLinearAdd QLinearMul QLinearSigmoid QLinearLeakyRelu "
     "QLinearWhere Binarizer LabelEncoder CategoryMapper ",
     elementwise, false},
    {" Conv ConvTranspose ConvInteger QLinearConv FusedConv MaxPool AveragePool LpPool GlobalMaxPool "
     "GlobalAveragePool GlobalLpPool QLinearAveragePool QLinearGlobalAveragePool InstanceNormalization "
     "GroupNormalization GroupNorm LRN DepthToSpace SpaceToDepth MatMulNBits ",
     per_sample, true},
    {" BatchNormalization ", batch_norm, true},
    {" MeanVarianceNormalization ", mean_variance, true},
    {" Dropout ", dropout, false},
    {" Softmax LogSoftmax Hardmax ", softmax, true},
    {" LayerNormalization RMSNormalization SimplifiedLayerNormalization TopK ", along_last, false},
    {" LpNormalization ", along_last, true},
    {" ArgMax ArgMin Split ", along_first, false},
    {" QuantizeLinear DequantizeLinear ", quantize, true},
    {" MatMul MatMulInteger ", matmul, true},
    {" FusedMatMul ", fused_matmul, true},
    {" QLinearMatMul ", qlinear_matmul, true},
    {" Gemm ", gemm, true},
    {" QGemm ", qgemm, true},
    {" ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum "
     "ReduceSumSquare ",
     reduce, true},
    {" CumSum ", cumsum, true},
    {" Gather ", gather, true},
    {" GatherElements ScatterElements ", elements_along, true},
    {" GatherND ", gather_nd, true},
    {" Concat ", concat, true},
    {" QLinearConcat ", qlinear_concat, true},
    {" Slice ", slice, true},
    {" Pad ", pad, true},
    {" Squeeze ", squeeze, true},
    {" Unsqueeze ", unsqueeze, true},
    {" Transpose ", transpose, true},
    {" Flatten ", flatten, true},
    {" Reshape ", reshape, true},
    {" Expand ", expand, true},
    {" ConstantOfShape ", constant_of_shape, true},
    {" Tile ", tile, true},
    {" OneHot ", one_hot, true},
    {" Trilu Det ", matrices, true},
    {" Resize Upsample ", resize, true},
    {" LSTM GRU RNN ", recurrent, false},
    {" GridSample ", rows_side_by_side, true},
    {" QLinearSoftmax ", along_last, true},
    {" SkipLayerNormalization SkipSimplifiedLayerNormalization ", skip_norm, false},
    {" EmbedLayerNormalization ", embed_norm, false},
    {" MultiHeadAttention ", multi_head, true},
    {" TreeEnsemble TreeEnsembleClassifier TreeEnsembleRegressor LinearClassifier LinearRegressor "
     "SVMClassifier SVMRegressor Scaler Normalizer Imputer ArrayFeatureExtractor ZipMap ",
     features, false},
    {" OneHotEncoder ", per_row, true},
    {" FeatureVectorizer ", rows_side_by_side, true},
};

/* The same names in several domains; here the meaning differs. */
static const entry *entry_of(const op_node *n) {
    static const entry microsoft = {"", attention, true}, standard = {"", onnx_attention, true};
    char name[64];
    const size_t len = strlen(n->op);
    if (len + 3 > sizeof name) return NULL;
    if (strcmp(n->op, "Attention") == 0) return n->domain[0] ? &microsoft : &standard;
    name[0] = ' ';
    memcpy(name + 1, n->op, len);
    memcpy(name + 1 + len, " ", 2);
    for (size_t i = 0; i < sizeof ENTRIES / sizeof *ENTRIES; i++) {
        if (strstr(ENTRIES[i].names, name)) return &ENTRIES[i];
    }
    return NULL;
}

/* ---- small constants --------------------------------------------------------------------------------- */

/* A few integers of constants, as exporters compute paddings; they become constants for good in a pass. */
static bool can_compute(const op_node *n) {
    const ir_value *out = n->n_outputs == 1 ? n->outputs[0] : NULL;
    if (!out || !n->def || n->n_bodies || n->n_inputs == 0 || out->is_constant ||
        (n->def->flags & (OP_RANDOM | OP_OWN_INFERENCE)) || out->type.kind != ONNX_TENSOR ||
        (out->type.type != ELEM_I64 && out->type.type != ELEM_I32))
        return false;
    for (size_t i = 0; i < out->rank && out->has_rank; i++) {
        if (dim_known(out->dims[i]) && out->dims[i] > MOST_INTS) return false;
    }
    for (size_t i = 0; i < n->n_inputs; i++) {
        const ir_value *v = n->inputs[i];
        if (v && (!v->is_constant || v->constant.count > MOST_INTS)) return false;
    }
    return true;
}

/* What cannot be computed is not known; the run says why. */
static status compute(walk *w, op_node *n, error *err) {
    ir_value *out = n->outputs[0];
    tensor t = {0};
    error why;
    const status st = exec_constant_node(&w->x, n, &t, &why);
    if (st == CHURON_NO_MEMORY) return ir_no_memory(err);
    if (st != CHURON_OK) return CHURON_OK;
    if (t.count > MOST_INTS || w->n_computed == w->cap_computed) {
        tensor_free(&t);
        return CHURON_OK;
    }
    out->is_constant = true;
    out->constant = t;
    w->computed[w->n_computed++] = out;
    return CHURON_OK;
}

static void forget_computed(walk *w) {
    while (w->n_computed > 0) { /* the last one first: views share what came before */
        ir_value *v = w->computed[--w->n_computed];
        tensor_free(&v->constant);
        v->constant = (tensor){0};
        v->is_constant = false;
    }
}

/* ---- the walk --------------------------------------------------------------------------------------- */

static bool known_domain(const char *d) {
    return d[0] == '\0' || strcmp(d, "ai.onnx.ml") == 0 || strcmp(d, "com.microsoft") == 0;
}

/* Small integers of inference: the number of records is in them or it is not. */
static kind kind_of_known(const walk *w, const ir_value *v) {
    for (size_t i = 0; i < v->n_known; i++) {
        if (mentions_count(w, v->known[i])) return COUNT;
    }
    return FIXED;
}

/* What inference says of the output must agree: as many rows as records, and nothing else counts them. */
static bool shape_agrees(const walk *w, const ir_value *v) {
    if (v->type.kind == ONNX_SEQUENCE) return true; /* a map for each record */
    if (v->type.kind != ONNX_TENSOR || !v->has_rank || v->rank == 0 || !is_count(w, v->dims[0])) return false;
    for (size_t i = 1; i < v->rank; i++) {
        if (mentions_count(w, v->dims[i])) return false;
    }
    return true;
}

/* The worst of what a node reads, captures of its bodies too. */
static kind worst_input(const walk *w, const op_node *n) {
    kind worst = FIXED;
    for (size_t i = 0; i < n->n_inputs; i++) {
        const kind k = n->inputs[i] ? kind_of(w, n->inputs[i]) : FIXED;
        if (k > worst) worst = k;
    }
    for (size_t b = 0; b < n->n_bodies; b++) {
        for (size_t i = 0; i < n->bodies[b]->n_captures; i++) {
            if (kind_of(w, n->bodies[b]->captures[i].outer) != FIXED) worst = MIXED;
        }
    }
    return worst;
}

static kind output_kind(const walk *w, const op_node *n, size_t i, bool keeps, bool first_only, kind worst) {
    const ir_value *v = n->outputs[i];
    if (worst == MIXED || (n->def && n->def->flags & OP_RANDOM)) return MIXED;
    if (worst == FIXED) return FIXED;
    if (strcmp(n->op, "Shape") == 0 || strcmp(n->op, "Size") == 0 || worst == COUNT) {
        if (v->known && n->n_bodies == 0) return kind_of_known(w, v);
    }
    return keeps && (i == 0 || !first_only) && shape_agrees(w, v) ? ROWS : MIXED;
}

/* A first dimension of which inference knows nothing, or only that it is at most so large, and which the
 * operator is known to keep: another symbol of the number of records. */
static void take_count(walk *w, const op_node *n) {
    const ir_value *v = n->outputs[0];
    if (!v->has_rank || v->rank == 0 || dim_known(v->dims[0])) return;
    if (is_count(w, v->dims[0]) || w->n_counts == w->cap_counts) return;
    w->counts[w->n_counts++] = v->dims[0];
}

static status walk_node(walk *w, op_node *n, error *err) {
    const kind worst = worst_input(w, n);
    bool keeps = false, first_only = true;
    if ((worst == ROWS || worst == COUNT) && n->n_bodies == 0 && known_domain(n->domain)) {
        const entry *e = entry_of(n);
        keeps = e && e->keeps(w, n);
        first_only = !e || e->first_only;
        if (keeps && (e->keeps == elementwise || e->keeps == pad || e->keeps == slice)) take_count(w, n);
    }
    for (size_t i = 0; i < n->n_outputs; i++) {
        if (n->outputs[i]) w->of[n->outputs[i]->slot] = output_kind(w, n, i, keeps, first_only, worst);
    }
    return worst == FIXED && can_compute(n) ? compute(w, n, err) : CHURON_OK;
}

/* The number of records stands in front of every input and nowhere else. */
static bool inputs_have_rows(const walk *w, const ir_graph *g) {
    for (size_t i = 0; i < g->n_inputs; i++) {
        const ir_value *v = g->inputs[i];
        if (v->type.kind != ONNX_TENSOR || !v->has_rank || v->rank == 0) return false;
        for (size_t d = 0; d < v->rank; d++) {
            if (d == 0 ? dim_known(v->dims[d]) : mentions_count(w, v->dims[d])) return false;
        }
    }
    return g->n_inputs > 0;
}

static status walk_graph(walk *w, const ir_graph *g, graph_rows *out, error *err) {
    for (size_t i = 0; i < g->n_inputs; i++) {
        const ir_value *v = g->inputs[i];
        w->of[v->slot] = ROWS;
        if (v->has_rank && v->rank) w->counts[w->n_counts++] = v->dims[0];
    }
    if (!inputs_have_rows(w, g)) return CHURON_OK;
    for (size_t i = 0; i < g->n_nodes; i++) {
        TRY(ir_check_stop(g->nodes[i], err));
        TRY(walk_node(w, g->nodes[i], err));
    }
    for (size_t i = 0; i < g->n_outputs; i++) {
        const ir_value *v = g->outputs[i];
        const bool counted = v->type.kind == ONNX_TENSOR && v->has_rank && v->rank && is_count(w, v->dims[0]);
        out[i] = kind_of(w, v) == ROWS ? ROWS_APART : counted ? ROWS_COUNTED : ROWS_NOT_SAID;
    }
    return CHURON_OK;
}

status rows_find(const ir_program *p, graph_rows *out, error *err) {
    const ir_graph *g = p->main;
    walk w = {.p = p, .cap_counts = g->n_inputs + SPARE_COUNTS, .cap_computed = g->n_nodes};
    memset(out, 0, g->n_outputs * sizeof *out);
    TRY(exec_init(&w.x, NULL, 1, 0, err));
    w.x.stop = p->stop;
    w.counts = mem_calloc(w.cap_counts, sizeof *w.counts);
    w.of = mem_calloc(g->n_values + 1, sizeof *w.of);
    w.computed = mem_calloc(w.cap_computed + 1, sizeof *w.computed);
    const status st = w.counts && w.of && w.computed ? walk_graph(&w, g, out, err) : ir_no_memory(err);
    forget_computed(&w);
    exec_free(&w.x, NULL);
    mem_free(w.counts);
    mem_free(w.of);
    mem_free(w.computed);
    return st;
}

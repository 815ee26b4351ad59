/* test_graph_rows.c: which outputs keep records apart. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "graph/graph.h"
#include "graph_build.h"

static const onnx_dim N44[] = {{-1, "n"}, {4, NULL}, {4, NULL}};
static float w44[16];
static int64_t first[] = {0}, second[] = {1}, flat[] = {0, -1}, merged[] = {-1, 2}, most[] = {1000000000},
               split[] = {-1, 2, 2};
static int64_t dims44[] = {4, 4}, dims1[] = {1}, dims2[] = {2}, dims3[] = {3};

/* What is said of the last node's output y, of x [n, 4] (rank 2) or [n, 4, 4]. */
static graph_rows rows_of(size_t rank, onnx_node *nodes, size_t n) {
    onnx_value_info in[] = {build_port("x", ELEM_F32, rank, N44)};
    onnx_value_info out[] = {build_port("y", ELEM_NONE, SIZE_MAX, NULL)};
    out[0].type.kind = ONNX_UNKNOWN;
    onnx_tensor constants[] = {
        build_tensor("w", ELEM_F32, 2, dims44, w44),     build_tensor("a0", ELEM_I64, 1, dims1, first),
        build_tensor("a1", ELEM_I64, 1, dims1, second),  build_tensor("flat", ELEM_I64, 1, dims2, flat),
        build_tensor("two", ELEM_I64, 1, dims2, merged), build_tensor("split", ELEM_I64, 1, dims3, split),
        build_tensor("all", ELEM_I64, 1, dims1, most),
    };
    onnx_model m = build_model((onnx_graph){.nodes = nodes,
                                            .n_nodes = n,
                                            .initializers = constants,
                                            .n_initializers = sizeof constants / sizeof *constants,
                                            .inputs = in,
                                            .n_inputs = 1,
                                            .outputs = out,
                                            .n_outputs = 1});
    error err;
    graph *g;
    if (graph_from_onnx(&g, &m, &(graph_options){.threads = 1}, &err) != CHURON_OK)
        fail_msg("%s", err.message);
    const graph_rows said = graph_output_rows(g, 0);
    assert_int_equal(graph_rows_independent(g), said == ROWS_APART);
    graph_close(g);
    build_reset();
    return said;
}

static onnx_attr int_attr(const char *name, int64_t v) {
    return (onnx_attr){.name = name, .type = ONNX_ATTR_INT, .n = 1, .i = v};
}

static graph_rows one(size_t rank, const char *op, const char *inputs) {
    onnx_node n[] = {build_node(op, inputs, "y")};
    return rows_of(rank, n, 1);
}

static graph_rows one_with(size_t rank, const char *op, const char *inputs, const char *name, int64_t v) {
    const onnx_attr a = int_attr(name, v);
    onnx_node n[] = {build_node_with(op, inputs, "y", &a, 1)};
    return rows_of(rank, n, 1);
}

static void operators_of_one_row_keep_apart(void **state) {
    (void)state;
    assert_int_equal(one(2, "Relu", "x"), ROWS_APART);
    assert_int_equal(one(2, "Mul", "x x"), ROWS_APART);
    assert_int_not_equal(one(2, "Mul", "x w"), ROWS_APART); /* a row of w for each place */
    assert_int_equal(one(3, "Mul", "x w"), ROWS_APART);
    assert_int_not_equal(one(1, "Mul", "x w"), ROWS_APART); /* records along the second dimension */
}

static void products(void **state) {
    (void)state;
    assert_int_equal(one(2, "MatMul", "x w"), ROWS_APART);
    assert_int_equal(one(2, "Gemm", "x w"), ROWS_APART);
    assert_int_equal(one(3, "MatMul", "x x"), ROWS_APART);
    assert_int_not_equal(one_with(2, "Gemm", "x x", "transB", 1), ROWS_APART); /* every row by every row */
    assert_int_not_equal(one_with(2, "Gemm", "x x", "transA", 1), ROWS_APART);
}

static void axes_decide(void **state) {
    (void)state;
    assert_int_equal(one(2, "Softmax", "x"), ROWS_APART);
    assert_int_equal(one_with(2, "Softmax", "x", "axis", 1), ROWS_APART);
    assert_int_equal(one_with(2, "Softmax", "x", "axis", 0), ROWS_COUNTED);
    assert_int_equal(one_with(2, "Softmax", "x", "axis", -2), ROWS_COUNTED);
    assert_int_equal(one(1, "Softmax", "x"), ROWS_COUNTED);
    assert_int_equal(one(2, "CumSum", "x a1"), ROWS_APART);
    assert_int_equal(one(2, "CumSum", "x a0"), ROWS_COUNTED);
    assert_int_equal(one(2, "ReduceSum", "x a1"), ROWS_APART);
    assert_int_not_equal(one(2, "ReduceSum", "x a0"), ROWS_APART);
    assert_int_not_equal(one(2, "ReduceSum", "x"), ROWS_APART);
    assert_int_equal(one_with(2, "Gather", "x a1", "axis", 1), ROWS_APART);
    assert_int_not_equal(one_with(2, "Gather", "x a1", "axis", 0), ROWS_APART);
    assert_int_equal(one_with(2, "ArgMax", "x", "axis", 1), ROWS_APART);
    assert_int_not_equal(one(2, "ArgMax", "x"), ROWS_APART);
    assert_int_equal(one_with(2, "Concat", "x x", "axis", 1), ROWS_APART);
    assert_int_not_equal(one_with(2, "Concat", "x x", "axis", 0), ROWS_APART);
    assert_int_equal(one_with(3, "Flatten", "x", "axis", 1), ROWS_APART);
    assert_int_not_equal(one_with(3, "Flatten", "x", "axis", 2), ROWS_APART);
    assert_int_not_equal(one(2, "Transpose", "x"), ROWS_APART);
}

static void shapes_decide(void **state) {
    (void)state;
    assert_int_equal(one(3, "Reshape", "x flat"), ROWS_APART);
    assert_int_equal(one(2, "Reshape", "x split"), ROWS_APART); /* -1, 2, 2 of rows of 4 */
    assert_int_not_equal(one(2, "Reshape", "x two"), ROWS_APART);
    onnx_node shape_of[] = {build_node("Shape", "x", "y")};
    assert_int_not_equal(rows_of(2, shape_of, 1), ROWS_APART);
    const onnx_attr axis = int_attr("axis", 0), end = int_attr("end", 1);
    onnx_node zeros[] = {build_node_with("Shape", "x", "s", &end, 1),
                         build_node_with("Concat", "s a1", "t", &axis, 1),
                         build_node("ConstantOfShape", "t", "e"), build_node("Add", "x e", "y")};
    assert_int_equal(rows_of(2, zeros, 4), ROWS_APART); /* zeros for as many records as there are */
}

/* Paddings that a chain of constants makes, cuts that leave the records: inference says nothing of the first
 * dimension, the operator keeps it. */
static void computed_paddings_and_long_cuts(void **state) {
    (void)state;
    const onnx_attr axis = int_attr("axis", 0);
    onnx_node columns[] = {
        build_node("Sub", "a1 a1", "z"), build_node_with("Concat", "z a1 z a1", "p", &axis, 1),
        build_node("Mul", "p p", "q"), build_node("Pad", "x q", "u"), build_node("Add", "u u", "y")};
    assert_int_equal(rows_of(2, columns, 5), ROWS_APART);
    onnx_node records[] = {build_node("Sub", "a1 a1", "z"),
                           build_node_with("Concat", "z z a1 z", "p", &axis, 1),
                           build_node("Mul", "p p", "q"), build_node("Pad", "x q", "y")};
    assert_int_not_equal(rows_of(2, records, 4), ROWS_APART);
    assert_int_equal(one(2, "Slice", "x a0 all a0"), ROWS_APART);
    assert_int_not_equal(one(2, "Slice", "x a0 a1 a0"), ROWS_APART);
    assert_int_not_equal(one(2, "Slice", "x a1 all a0"), ROWS_APART);
    assert_int_equal(one(2, "Slice", "x a1 all a1"), ROWS_APART);
}

/* Steps on the way through all records. */
static void what_sees_all_records_mixes(void **state) {
    (void)state;
    const onnx_attr keep = int_attr("keepdims", 1);
    onnx_node mean[] = {build_node_with("ReduceMean", "x a0", "m", &keep, 1), build_node("Sub", "x m", "y")};
    assert_int_equal(rows_of(2, mean, 2), ROWS_COUNTED);
    const onnx_attr none = int_attr("keepdims", 0);
    onnx_node peak[] = {build_node_with("ReduceMax", "x", "m", &none, 1), build_node("Div", "x m", "y")};
    assert_int_equal(rows_of(2, peak, 2), ROWS_COUNTED);
    onnx_node scale[] = {build_node("DynamicQuantizeLinear", "x", "q s z"),
                         build_node("DequantizeLinear", "q s z", "y")};
    assert_int_equal(rows_of(2, scale, 2), ROWS_COUNTED);
    onnx_node count[] = {build_node("Size", "x", "c"), build_node("CastLike", "c x", "f"),
                         build_node("Div", "x f", "y")};
    assert_int_equal(rows_of(2, count, 3), ROWS_COUNTED);
    const onnx_attr seed = {.name = "seed", .type = ONNX_ATTR_FLOAT, .n = 1, .f = 1};
    onnx_node noise[] = {build_node_with("RandomNormalLike", "x", "y", &seed, 1)};
    assert_int_equal(rows_of(2, noise, 1), ROWS_COUNTED);
    assert_int_not_equal(one(2, "NonZero", "x"), ROWS_APART);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(operators_of_one_row_keep_apart),
        cmocka_unit_test(products),
        cmocka_unit_test(axes_decide),
        cmocka_unit_test(shapes_decide),
        cmocka_unit_test(computed_paddings_and_long_cuts),
        cmocka_unit_test(what_sees_all_records_mixes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

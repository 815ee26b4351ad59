/* test_graph.c: loading and running graphs: names, order, functions, bodies, limits, failures. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "graph/graph.h"
#include "graph_build.h"

/* Passes have tests of their own: here the graph runs as it is written. */
static const char *const all_passes[] = {"all"};
static const graph_options one_thread = {
    .threads = 1, .max_memory = 1 << 24, .no_pass = all_passes, .n_no_pass = 1};
static const graph_options with_passes = {.threads = 1, .max_memory = 1 << 24};

/* ---- helpers ---------------------------------------------------------------------------------------- */

static graph *open_graph(const onnx_model *m) {
    error err;
    graph *g;
    if (graph_from_onnx(&g, m, &one_thread, &err) != CHURON_OK) fail_msg("%s", err.message);
    return g;
}

static void refuses(const onnx_model *m, status code, const char *part) {
    error err;
    graph *g;
    assert_int_equal(graph_from_onnx(&g, m, &one_thread, &err), code);
    assert_null(g);
    if (!strstr(err.message, part)) fail_msg("'%s' is not in: %s", part, err.message);
}

static value ints(const int64_t *data, size_t n) {
    const int64_t dims[1] = {(int64_t)n};
    return value_of_tensor(tensor_borrow(ELEM_I64, 1, dims, (void *)(uintptr_t)data));
}

static void expect_ints(const value *v, const int64_t *want, size_t n) {
    assert_int_equal(v->kind, VALUE_TENSOR);
    assert_int_equal(v->t.type, ELEM_I64);
    assert_int_equal(v->t.count, n);
    if (n) assert_memory_equal(v->t.data, want, n * sizeof *want);
}

/* Runs a graph of one input and one output. */
static void run_one(graph *g, const int64_t *in, size_t n_in, const int64_t *want, size_t n_want) {
    error err;
    graph_session *s;
    assert_int_equal(graph_session_create(&s, g, &err), CHURON_OK);
    value input = ints(in, n_in), out;
    for (int i = 0; i < 2; i++) { /* the second run finds what the first left */
        if (graph_run(s, &input, &out, NULL, &err) != CHURON_OK) fail_msg("%s", err.message);
        expect_ints(&out, want, n_want);
        assert_non_null(out.t.storage);
        value_free(&out);
    }
    graph_session_free(s);
}

#define PORT(name) build_port(name, ELEM_I64, SIZE_MAX, NULL)

/* ---- names and order -------------------------------------------------------------------------------- */

static onnx_model chain(onnx_node *nodes, size_t n, onnx_value_info *in, onnx_value_info *out) {
    *in = PORT("x");
    *out = PORT("y");
    return build_model((onnx_graph){
        .nodes = nodes, .n_nodes = n, .inputs = in, .n_inputs = 1, .outputs = out, .n_outputs = 1});
}

static void order_of_the_file_does_not_matter(void **state) {
    (void)state;
    build_reset();
    onnx_node nodes[] = {build_node("Shape", "b", "y"), build_node("Identity", "a", "b"),
                         build_node("Identity", "x", "a")};
    onnx_value_info in, out;
    onnx_model m = chain(nodes, 3, &in, &out);
    graph *g = open_graph(&m);
    run_one(g, (const int64_t[]){7, 8, 9}, 3, (const int64_t[]){3}, 1);
    graph_close(g);
}

static void an_output_may_be_an_input(void **state) {
    (void)state;
    onnx_value_info in = PORT("x"), out = PORT("x");
    onnx_model m = build_model((onnx_graph){.inputs = &in, .n_inputs = 1, .outputs = &out, .n_outputs = 1});
    graph *g = open_graph(&m);
    run_one(g, (const int64_t[]){7, 8}, 2, (const int64_t[]){7, 8}, 2);
    graph_close(g);
}

static void cycles_are_named(void **state) {
    (void)state;
    build_reset();
    onnx_node nodes[] = {build_node("Identity", "b", "a"), build_node("Identity", "a", "b"),
                         build_node("Identity", "b", "y")};
    onnx_value_info in, out;
    onnx_model m = chain(nodes, 3, &in, &out);
    refuses(&m, CHURON_CORRUPT, "cycle");
    onnx_node self[] = {build_node("Identity", "y", "y")};
    m = chain(self, 1, &in, &out);
    refuses(&m, CHURON_CORRUPT, "cycle, got one through node 'y'");
}

static void dangling_and_double_names_are_all_reported(void **state) {
    (void)state;
    build_reset();
    onnx_node nodes[] = {build_node("Identity", "nowhere", "y"), build_node("Identity", "x", "y"),
                         build_node("Identity", "lost", "z")};
    onnx_value_info in, out;
    onnx_model m = chain(nodes, 3, &in, &out);
    refuses(&m, CHURON_CORRUPT, "3 faults");
    refuses(&m, CHURON_CORRUPT, "input 0 'nowhere' is made by no node");
    refuses(&m, CHURON_CORRUPT, "value 'y' is made twice");
    refuses(&m, CHURON_CORRUPT, "input 0 'lost'");
    onnx_node none[] = {build_node("Identity", "x", "z")};
    m = chain(none, 1, &in, &out);
    refuses(&m, CHURON_CORRUPT, "output 'y'");
}

static void missing_operators_are_listed_with_their_nodes(void **state) {
    (void)state;
    build_reset();
    onnx_node nodes[] = {build_node("Frobnicate", "x", "a"), build_node("Frobnicate", "a", "b"),
                         build_node("Transmogrify", "b", "y"), build_node("ConstantOfShape", "x", "c")};
    onnx_opset old = {"", 8};
    onnx_value_info in, out;
    onnx_model m = chain(nodes, 4, &in, &out);
    m.opsets = &old;
    refuses(&m, CHURON_UNSUPPORTED, "4 nodes with missing operators");
    refuses(&m, CHURON_UNSUPPORTED, "Frobnicate (ai.onnx 8) at 'a', 'b'");
    refuses(&m, CHURON_UNSUPPORTED, "Transmogrify (ai.onnx 8) at 'y'");
    refuses(&m, CHURON_UNSUPPORTED, "ConstantOfShape (ai.onnx 8, known: 9+) at 'c'");
}

static void operator_sets_are_checked(void **state) {
    (void)state;
    build_reset();
    onnx_node nodes[] = {build_node("Identity", "x", "y")};
    onnx_value_info in, out;
    onnx_model m = chain(nodes, 1, &in, &out);
    onnx_opset future = {"", 99}, other = {"com.example", 1};
    m.opsets = &future;
    refuses(&m, CHURON_CORRUPT, "at most version");
    m.opsets = &other;
    refuses(&m, CHURON_CORRUPT, "expected its domain ai.onnx among the operator sets");
}

static void unknown_attributes_are_refused(void **state) {
    (void)state;
    build_reset();
    onnx_attr attr = {.name = "axis", .type = ONNX_ATTR_INT, .n = 1, .i = 1};
    onnx_node nodes[] = {build_node_with("Shape", "x", "y", &attr, 1)};
    onnx_value_info in, out;
    onnx_model m = chain(nodes, 1, &in, &out);
    refuses(&m, CHURON_INVALID, "attribute 'axis'");
    attr.name = "start";
    attr.type = ONNX_ATTR_FLOAT;
    refuses(&m, CHURON_INVALID, "attribute 'start': expected an int, got a float");
}

static void types_are_checked(void **state) {
    (void)state;
    build_reset();
    onnx_node nodes[] = {build_node("ConstantOfShape", "x", "y")};
    onnx_value_info in, out;
    onnx_model m = chain(nodes, 1, &in, &out);
    out.type.type = ELEM_F32;
    in.type.type = ELEM_F32;
    refuses(&m, CHURON_INVALID, "input 0 'x': expected int64, got float32");
    in.type.type = ELEM_I64;
    out.type.type = ELEM_F64;
    refuses(&m, CHURON_INVALID, "output 'y': expected float64 as declared, got float32");
    nodes[0].n_inputs = 0;
    refuses(&m, CHURON_INVALID, "input 0: expected a value, got none");
}

static void a_required_output_must_be_there(void **state) {
    (void)state;
    build_reset();
    onnx_node nodes[] = {build_node("ConstantOfShape", "x", "f"), build_node("Dropout", "f", "- y")};
    onnx_value_info in, out;
    onnx_model m = chain(nodes, 2, &in, &out);
    out.type.type = ELEM_BOOL;
    refuses(&m, CHURON_INVALID, "(Dropout): output 0: expected a name, got none");
    nodes[1] = build_node("Dropout", "f", "g y");
    graph_close(open_graph(&m));
}

/* ---- constants -------------------------------------------------------------------------------------- */

static void an_input_with_an_initializer_is_a_constant(void **state) {
    (void)state;
    build_reset();
    int64_t data[2] = {5, 6};
    const int64_t dims[1] = {2};
    onnx_tensor init = build_tensor("w", ELEM_I64, 1, dims, data);
    onnx_node nodes[] = {build_node("Identity", "w", "y")};
    onnx_value_info in[2] = {PORT("x"), PORT("w")}, out = PORT("y");
    onnx_model m = build_model((onnx_graph){.nodes = nodes,
                                            .n_nodes = 1,
                                            .inputs = in,
                                            .n_inputs = 2,
                                            .outputs = &out,
                                            .n_outputs = 1,
                                            .initializers = &init,
                                            .n_initializers = 1});
    graph *g = open_graph(&m);
    assert_int_equal(graph_n_inputs(g), 1);
    run_one(g, (const int64_t[]){1}, 1, data, 2);
    graph_close(g);
    in[1].type.type = ELEM_F32;
    refuses(&m, CHURON_CORRUPT, "input 'w': expected float32 as declared");
}

static void sparse_initializers_become_dense(void **state) {
    (void)state;
    build_reset();
    int64_t values[2] = {5, 6}, places[2] = {1, 3};
    const int64_t two[1] = {2}, four[1] = {4};
    onnx_sparse sp = {.values = build_tensor("w", ELEM_I64, 1, two, values),
                      .indices = build_tensor("", ELEM_I64, 1, two, places),
                      .rank = 1,
                      .dims = four};
    onnx_node nodes[] = {build_node("Identity", "w", "y")};
    onnx_value_info in, out;
    onnx_model m = chain(nodes, 1, &in, &out);
    m.graph.sparse_initializers = &sp;
    m.graph.n_sparse = 1;
    graph *g = open_graph(&m);
    run_one(g, (const int64_t[]){1}, 1, (const int64_t[]){0, 5, 0, 6}, 4);
    graph_close(g);
    places[1] = 4;
    refuses(&m, CHURON_CORRUPT, "w: index 1 lies outside its shape");
}

/* ---- functions -------------------------------------------------------------------------------------- */

static void functions_are_inlined_with_their_attributes(void **state) {
    (void)state;
    build_reset();
    onnx_attr inner = {.name = "start", .reference = "from", .type = ONNX_ATTR_INT, .n = 1};
    onnx_attr given = {.name = "from", .type = ONNX_ATTR_INT, .n = 1, .i = 1};
    onnx_node body[] = {build_node("Identity", "p q", "t"), build_node_with("Shape", "t", "r", &inner, 1)};
    body[0].n_inputs = 1;
    size_t n;
    const char *const *formal = build_names("p q", &n), *const *results = build_names("r", &n),
                      *const *attributes = build_names("from", &n);
    onnx_function f = {.name = "Part",
                       .domain = "",
                       .overload = "",
                       .inputs = formal,
                       .n_inputs = 2,
                       .outputs = results,
                       .n_outputs = 1,
                       .attributes = attributes,
                       .n_attributes = 1,
                       .nodes = body,
                       .n_nodes = 2,
                       .opsets = &build_opset,
                       .n_opsets = 1};
    onnx_node nodes[] = {build_node_with("Part", "x", "y", &given, 1)};
    onnx_value_info in, out;
    onnx_model m = chain(nodes, 1, &in, &out);
    m.functions = &f;
    m.n_functions = 1;
    graph *g = open_graph(&m);
    run_one(g, (const int64_t[]){1, 2}, 2, NULL, 0);
    graph_close(g);
    nodes[0].n_attrs = 0; /* the reference stands for nothing: the default of the operator */
    g = open_graph(&m);
    run_one(g, (const int64_t[]){1, 2}, 2, (const int64_t[]){2}, 1);
    graph_close(g);
    nodes[0].n_attrs = 1;
    given.name = "other";
    refuses(&m, CHURON_CORRUPT, "function Part has no attribute 'other'");
    body[0].op = "Part";
    given.name = "from";
    refuses(&m, CHURON_CORRUPT, "function Part of '' calls itself");
}

/* ---- control flow ----------------------------------------------------------------------------------- */

/* Loop over a body that gives the shape of a captured value as an item, and goes on as long as `condition`.
 */
typedef struct loop_model {
    onnx_node body[4], nodes[2];
    onnx_value_info formal[3], results[3], in, out[2];
    onnx_graph graph;
    const onnx_graph *graphs[1];
    onnx_attr attr;
    onnx_tensor trips;
    int64_t count;
} loop_model;

static onnx_model build_loop(loop_model *l, bool bounded) {
    build_reset();
    static const int64_t scalar[1] = {1};
    l->count = 3;
    l->trips = build_tensor("trips", ELEM_I64, 0, scalar, &l->count);
    l->body[0] = build_node("Identity", "go", "go_on");
    l->body[1] = build_node("Identity", "s", "s_next");
    l->body[2] = build_node("Identity", "i", "item");
    l->formal[0] = PORT("i");
    l->formal[1] = build_port("go", ELEM_BOOL, SIZE_MAX, NULL);
    l->formal[2] = PORT("s");
    l->results[0] = build_port("go_on", ELEM_BOOL, SIZE_MAX, NULL);
    l->results[1] = PORT("s_next");
    l->results[2] = PORT("item");
    l->graph = (onnx_graph){.name = "body",
                            .nodes = l->body,
                            .n_nodes = 3,
                            .inputs = l->formal,
                            .n_inputs = 3,
                            .outputs = l->results,
                            .n_outputs = 3};
    l->graphs[0] = &l->graph;
    l->attr = (onnx_attr){.name = "body", .type = ONNX_ATTR_GRAPH, .n = 1, .graphs = l->graphs};
    l->nodes[0] = build_node_with("Loop", bounded ? "trips - x" : "- - x", "last y", &l->attr, 1);
    l->in = PORT("x");
    l->out[0] = PORT("y");
    return build_model((onnx_graph){.nodes = l->nodes,
                                    .n_nodes = 1,
                                    .inputs = &l->in,
                                    .n_inputs = 1,
                                    .outputs = l->out,
                                    .n_outputs = 1,
                                    .initializers = &l->trips,
                                    .n_initializers = 1});
}

static void loops_count_and_stack(void **state) {
    (void)state;
    static loop_model l;
    onnx_model m = build_loop(&l, true);
    graph *g = open_graph(&m);
    run_one(g, (const int64_t[]){9}, 1, (const int64_t[]){0, 1, 2}, 3);
    graph_close(g);
    l.count = 0;
    g = open_graph(&m);
    run_one(g, (const int64_t[]){9}, 1, NULL, 0);
    graph_close(g);
}

static void bodies_capture_outer_values(void **state) {
    (void)state;
    static loop_model l;
    onnx_model m = build_loop(&l, true);
    l.body[2] = build_node("Identity", "x", "item");
    graph *g = open_graph(&m);
    run_one(g, (const int64_t[]){9, 8}, 2, (const int64_t[]){9, 8, 9, 8, 9, 8}, 6);
    graph_close(g);
}

static void a_loop_without_end_is_stopped(void **state) {
    (void)state;
    static loop_model l;
    onnx_model m = build_loop(&l, false);
    graph *g = open_graph(&m);
    graph_session *s;
    error err;
    assert_int_equal(graph_session_create(&s, g, &err), CHURON_OK);
    const int64_t x = 1;
    value in = ints(&x, 1), out;
    graph_run_options o = {.deadline = clock_seconds() + 0.05};
    assert_int_equal(graph_run(s, &in, &out, &o, &err), CHURON_LIMIT);
    assert_non_null(strstr(err.message, "time: expected at most 0.05 s"));
    assert_int_equal(graph_run(s, &in, &out, NULL, &err), CHURON_LIMIT); /* what it keeps reaches the limit */
    assert_non_null(strstr(err.message, "memory"));
    graph_session_free(s);
    graph_close(g);
}

/* ---- running ---------------------------------------------------------------------------------------- */

static void inputs_are_checked(void **state) {
    (void)state;
    build_reset();
    onnx_node nodes[] = {build_node("Identity", "x", "y")};
    onnx_value_info in, out;
    onnx_model m = chain(nodes, 1, &in, &out);
    const onnx_dim dims[1] = {{.value = 2}};
    in.type.has_shape = true;
    in.type.rank = 1;
    in.type.dims = dims;
    graph *g = open_graph(&m);
    graph_session *s;
    error err;
    assert_int_equal(graph_session_create(&s, g, &err), CHURON_OK);
    const int64_t data[4] = {1, 2, 3, 4};
    value v = ints(data, 3), got;
    assert_int_equal(graph_run(s, &v, &got, NULL, &err), CHURON_INVALID);
    assert_string_equal(err.message, "input 'x': expected dimension 0 to be 2, got 3");
    v = ints(data, 2);
    v.t.type = ELEM_F64;
    assert_int_equal(graph_run(s, &v, &got, NULL, &err), CHURON_INVALID);
    assert_string_equal(err.message, "input 'x': expected elements of int64, got float64");
    v = ints(data, 2);
    v.t.rank = 2;
    assert_int_equal(graph_run(s, &v, &got, NULL, &err), CHURON_INVALID);
    v.kind = VALUE_NONE;
    assert_int_equal(graph_run(s, &v, &got, NULL, &err), CHURON_INVALID);
    assert_string_equal(err.message, "input 'x': expected a tensor, got nothing");
    graph_session_free(s);
    graph_close(g);
}

static void memory_is_checked_before_it_is_taken(void **state) {
    (void)state;
    build_reset();
    onnx_node nodes[] = {build_node("ConstantOfShape", "x", "y")};
    onnx_value_info in, out;
    onnx_model m = chain(nodes, 1, &in, &out);
    out.type.type = ELEM_F32;
    graph *g = open_graph(&m);
    graph_session *s;
    error err;
    assert_int_equal(graph_session_create(&s, g, &err), CHURON_OK);
    const int64_t shapes[][2] = {{1 << 13, 1 << 13}, {INT64_MAX, INT64_MAX}, {-1, 4}};
    const status codes[] = {CHURON_LIMIT, CHURON_LIMIT, CHURON_INVALID};
    for (int i = 0; i < 3; i++) {
        value v = ints(shapes[i], 2), got;
        assert_int_equal(graph_run(s, &v, &got, NULL, &err), codes[i]);
        assert_non_null(strstr(err.message, "'y'"));
    }
    graph_session_free(s);
    graph_close(g);
}

/* y = reshape(2x + x * shape(x)[0], shape(x)), with views, values of shapes and memory that is written over.
 */
static onnx_model build_arithmetic(onnx_node nodes[8], onnx_value_info *in, onnx_value_info *out) {
    build_reset();
    nodes[0] = build_node("Add", "x x", "twice");
    nodes[1] = build_node("Shape", "x", "shape");
    nodes[2] = build_node("Identity", "shape", "count");
    nodes[3] = build_node("Mul", "x count", "product");
    nodes[4] = build_node("Identity", "twice", "view");
    nodes[5] = build_node("Add", "view product", "sum");
    nodes[6] = build_node("Neg", "sum", "negative");
    nodes[7] = build_node("Reshape", "negative shape", "y");
    return chain(nodes, 8, in, out);
}

static void expect_arithmetic(graph_session *s, const int64_t *x, size_t n, const graph_run_options *o) {
    error err;
    value in = ints(x, n), out;
    if (graph_run(s, &in, &out, o, &err) != CHURON_OK) fail_msg("%s", err.message);
    assert_int_equal(out.t.count, n);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(((int64_t *)out.t.data)[i], -(2 * x[i] + x[i] * (int64_t)n));
    }
    value_free(&out);
}

static void planned_memory_gives_the_same_answers(void **state) {
    (void)state;
    onnx_node nodes[8];
    onnx_value_info in, out;
    onnx_model m = build_arithmetic(nodes, &in, &out);
    graph *g = open_graph(&m);
    graph_session *s;
    error err;
    assert_int_equal(graph_session_create(&s, g, &err), CHURON_OK);
    int64_t x[40];
    for (int round = 0; round < 6; round++) { /* more shapes than there are buckets, each more than twice */
        for (size_t n = 1; n <= 40; n += 3) {
            for (int again = 0; again < 4; again++) {
                for (size_t i = 0; i < n; i++) x[i] = (int64_t)i * 7 + round - again;
                expect_arithmetic(s, x, n, NULL);
            }
        }
    }
    int64_t before = 0;
    for (int i = 0; i < 10; i++) {
        if (i == 5) before = mem_count();
        expect_arithmetic(s, x, 40, NULL);
    }
    assert_int_equal(mem_count() - before, 5); /* the answer, which is the caller's */
    graph_session_free(s);
    graph_close(g);
}

typedef struct seen_nodes {
    char names[256];
} seen_nodes;

static void see_node(void *user, const graph_event *e) {
    seen_nodes *seen = user;
    assert_true(strlen(seen->names) + strlen(e->name) + 2 < sizeof seen->names);
    strcat(seen->names, e->name);
    strcat(seen->names, " ");
}

static void what_follows_from_shapes_is_not_computed_again(void **state) {
    (void)state;
    onnx_node nodes[8];
    onnx_value_info in, out;
    onnx_model m = build_arithmetic(nodes, &in, &out);
    graph *g = open_graph(&m);
    graph_session *s;
    error err;
    assert_int_equal(graph_session_create(&s, g, &err), CHURON_OK);
    const int64_t x[3] = {1, 2, 3};
    for (int i = 0; i < 3; i++) {
        seen_nodes seen = {0};
        graph_run_options o = {.on_node = see_node, .user = &seen};
        expect_arithmetic(s, x, 3, &o);
        /* Both values of the shape and the view have their places; only the answer (negative, y) is made
         * anew. */
        assert_string_equal(seen.names, i < 2 ? "twice shape count product view sum negative y "
                                              : "twice product sum negative y ");
    }
    graph_session_free(s);
    graph_close(g);
}

static void planning_may_run_out_of_memory(void **state) {
    (void)state;
    onnx_node nodes[8];
    onnx_value_info in, out;
    onnx_model m = build_arithmetic(nodes, &in, &out);
    graph *g = open_graph(&m);
    const int64_t x[3] = {1, 2, 3};
    int failures = 1;
    for (int64_t at = 1; failures; at++) {
        graph_session *s;
        error err;
        failures = 0;
        assert_int_equal(graph_session_create(&s, g, &err), CHURON_OK);
        for (int i = 0; i < 5; i++) { /* a failed run leaves the session as it was */
            value input = ints(x, 3), got;
            mem_fail_at(i == (int)(at % 3) ? at / 3 + 1 : 0);
            status st = graph_run(s, &input, &got, NULL, &err);
            mem_fail_at(0);
            failures += st != CHURON_OK;
            if (st == CHURON_OK) assert_int_equal(((int64_t *)got.t.data)[2], -(2 * 3 + 3 * 3));
            if (st == CHURON_OK) value_free(&got);
            expect_arithmetic(s, x, 3, NULL);
        }
        graph_session_free(s);
        if (at > 300) break;
        failures = at < 120 ? 1 : failures;
    }
    graph_close(g);
}

/* Every allocation of loading and running fails once; what was taken is given back (seen by the sanitizer).
 */
static void every_allocation_may_fail(void **state) {
    (void)state;
    static loop_model l;
    onnx_model m = build_loop(&l, true);
    l.body[2] = build_node("Identity", "x", "item");
    const int64_t x[2] = {4, 5};
    value in = ints(x, 2), out;
    status st = CHURON_NO_MEMORY;
    for (int64_t n = 1; st != CHURON_OK; n++) {
        assert_true(n < 2000);
        error err;
        graph *g = NULL;
        graph_session *s = NULL;
        mem_fail_at(n);
        st = graph_from_onnx(&g, &m, &with_passes, &err);
        if (st == CHURON_OK) st = graph_session_create(&s, g, &err);
        if (st == CHURON_OK) st = graph_run(s, &in, &out, NULL, &err);
        mem_fail_at(0);
        if (st == CHURON_OK) {
            expect_ints(&out, (const int64_t[]){4, 5, 4, 5, 4, 5}, 6);
            value_free(&out);
        } else {
            assert_int_equal(st, CHURON_NO_MEMORY);
        }
        graph_session_free(s);
        graph_close(g);
    }
}

/* ---- outputs that nobody wants ----------------------------------------------------------------------- */

static void count_nodes(void *user, const graph_event *e) {
    (void)e;
    ++*(size_t *)user;
}

/* y = (x + x) - x, z = (x + x) * (x + x) * x: two nodes and three, one of them of both. */
static void what_only_unwanted_outputs_need_does_not_run(void **state) {
    (void)state;
    build_reset();
    onnx_node nodes[] = {build_node("Add", "x x", "a"), build_node("Mul", "a a", "b"),
                         build_node("Sub", "a x", "y"), build_node("Mul", "b x", "z")};
    static const onnx_dim any[1] = {{.value = -1, .param = "n"}};
    onnx_value_info in = build_port("x", ELEM_I64, 1, any), outs[2] = {PORT("y"), PORT("z")};
    onnx_model m = build_model((onnx_graph){
        .nodes = nodes, .n_nodes = 4, .inputs = &in, .n_inputs = 1, .outputs = outs, .n_outputs = 2});
    graph *g = open_graph(&m);
    graph_session *s;
    error err;
    assert_int_equal(graph_session_create(&s, g, &err), CHURON_OK);
    const int64_t data[2] = {3, -2}, y[2] = {3, -2}, z[2] = {108, -32};
    value input = ints(data, 2), got[2];
    static const bool both[2] = {true, true}, first[2] = {true, false}, second[2] = {false, true},
                      none[2] = {false, false};
    static const struct {
        const bool *wanted;
        size_t nodes;
    } runs[] = {{first, 2}, {first, 4}, {first, 2},  {second, 3}, {both, 4},
                {NULL, 4},  {none, 0},  {second, 3}, {first, 2},  {both, 4}};
    for (size_t i = 0; i < sizeof runs / sizeof *runs;
         i++) { /* the second one is watched: it runs everything */
        size_t count = 0;
        const bool *w = runs[i].wanted;
        const graph_run_options o = {.wanted = w, .on_node = count_nodes, .user = &count};
        if (graph_run(s, &input, got, &o, &err) != CHURON_OK) fail_msg("%s", err.message);
        assert_int_equal(count, runs[i].nodes);
        assert_int_equal(got[0].kind, !w || w[0] ? VALUE_TENSOR : VALUE_NONE);
        assert_int_equal(got[1].kind, !w || w[1] ? VALUE_TENSOR : VALUE_NONE);
        if (!w || w[0]) expect_ints(&got[0], y, 2);
        if (!w || w[1]) expect_ints(&got[1], z, 2);
        value_free(&got[0]);
        value_free(&got[1]);
    }
    graph_session_free(s);
    graph_close(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_only_unwanted_outputs_need_does_not_run),
        cmocka_unit_test(order_of_the_file_does_not_matter),
        cmocka_unit_test(an_output_may_be_an_input),
        cmocka_unit_test(cycles_are_named),
        cmocka_unit_test(dangling_and_double_names_are_all_reported),
        cmocka_unit_test(missing_operators_are_listed_with_their_nodes),
        cmocka_unit_test(operator_sets_are_checked),
        cmocka_unit_test(unknown_attributes_are_refused),
        cmocka_unit_test(types_are_checked),
        cmocka_unit_test(a_required_output_must_be_there),
        cmocka_unit_test(an_input_with_an_initializer_is_a_constant),
        cmocka_unit_test(sparse_initializers_become_dense),
        cmocka_unit_test(functions_are_inlined_with_their_attributes),
        cmocka_unit_test(loops_count_and_stack),
        cmocka_unit_test(bodies_capture_outer_values),
        cmocka_unit_test(a_loop_without_end_is_stopped),
        cmocka_unit_test(inputs_are_checked),
        cmocka_unit_test(memory_is_checked_before_it_is_taken),
        cmocka_unit_test(planned_memory_gives_the_same_answers),
        cmocka_unit_test(what_follows_from_shapes_is_not_computed_again),
        cmocka_unit_test(planning_may_run_out_of_memory),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

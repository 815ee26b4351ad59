/* test_graph_stop.c: loading and running ends when its time is over or somebody says so, inside a node too;
 * functions that multiply are counted before they are put in. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "graph/graph.h"
#include "graph_build.h"

#include <pthread.h>
#include <time.h>

enum { LONG = 4096 }; /* rows: a product of such matrices takes a second and more */

#define PORT(name) build_port(name, ELEM_F32, SIZE_MAX, NULL)

static value matrix(float *data, size_t n) {
    const int64_t dims[2] = {(int64_t)n, (int64_t)n};
    return value_of_tensor(tensor_borrow(ELEM_F32, 2, dims, data));
}

/* y = x w, both from outside. */
static graph *open_product(onnx_node *node, onnx_value_info in[2], onnx_value_info *out, size_t threads) {
    build_reset();
    *node = build_node("MatMul", "x w", "y");
    in[0] = PORT("x");
    in[1] = PORT("w");
    *out = PORT("y");
    const onnx_model m = build_model((onnx_graph){
        .nodes = node, .n_nodes = 1, .inputs = in, .n_inputs = 2, .outputs = out, .n_outputs = 1});
    error err;
    graph *g;
    const graph_options o = {.threads = threads, .max_memory = (uint64_t)1 << 30};
    if (graph_from_onnx(&g, &m, &o, &err) != CHURON_OK) fail_msg("%s", err.message);
    return g;
}

static void small_run_is_right(graph_session *s) {
    float a[4] = {1, 2, 3, 4}, b[4] = {5, 6, 7, 8};
    const value in[2] = {matrix(a, 2), matrix(b, 2)};
    value out;
    error err;
    if (graph_run(s, in, &out, NULL, &err) != CHURON_OK) fail_msg("%s", err.message);
    const float *y = out.t.data;
    assert_true(y[0] == 19 && y[1] == 22 && y[2] == 43 && y[3] == 50);
    value_free(&out);
}

static void a_deadline_ends_a_node(void **state) {
    (void)state;
    onnx_node node;
    onnx_value_info in[2], out;
    float *zeros = mem_calloc((size_t)LONG * LONG, sizeof *zeros);
    assert_non_null(zeros);
    const value given[2] = {matrix(zeros, LONG), matrix(zeros, LONG)};
    for (size_t threads = 1; threads <= 2; threads++) {
        graph *g = open_product(&node, in, &out, threads);
        graph_session *s;
        error err;
        assert_int_equal(graph_session_create(&s, g, &err), CHURON_OK);
        for (int time = 0; time < 3;
             time++) { /* the second run is watched, the third planned, unless stopped */
            value got;
            const double from = clock_seconds();
            const graph_run_options o = {.deadline = from + 0.02};
            assert_int_equal(graph_run(s, given, &got, &o, &err), CHURON_LIMIT);
            const double took = clock_seconds() - from;
            assert_int_equal(got.kind, VALUE_NONE);
            if (!strstr(err.message, "node 'y' (MatMul): time: expected at most 0.02 s, got 0."))
                fail_msg("%s", err.message);
            assert_true(took < 0.8); /* and not the second that the product takes */
        }
        small_run_is_right(s);
        small_run_is_right(s);
        small_run_is_right(s);
        graph_session_free(s);
        graph_close(g);
    }
    mem_free(zeros);
}

typedef struct canceller {
    atomic_bool flag;
} canceller;

static void *cancel_soon(void *arg) {
    canceller *c = arg;
    (void)nanosleep(&(struct timespec){.tv_nsec = 20 * 1000 * 1000}, NULL);
    atomic_store(&c->flag, true);
    return NULL;
}

static void another_thread_cancels_a_node(void **state) {
    (void)state;
    onnx_node node;
    onnx_value_info in[2], out;
    float *zeros = mem_calloc((size_t)LONG * LONG, sizeof *zeros);
    assert_non_null(zeros);
    const value given[2] = {matrix(zeros, LONG), matrix(zeros, LONG)};
    graph *g = open_product(&node, in, &out, 2);
    graph_session *s;
    error err;
    assert_int_equal(graph_session_create(&s, g, &err), CHURON_OK);
    canceller c;
    atomic_init(&c.flag, false);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, cancel_soon, &c), 0);
    value got;
    const double from = clock_seconds();
    const graph_run_options o = {.cancel = &c.flag};
    assert_int_equal(graph_run(s, given, &got, &o, &err), CHURON_CANCELLED);
    assert_string_equal(err.message, "node 'y' (MatMul): cancelled");
    assert_true(clock_seconds() - from < 0.8);
    pthread_join(thread, NULL);
    assert_int_equal(graph_run(s, given, &got, &o, &err), CHURON_CANCELLED); /* the flag is still up */
    small_run_is_right(s);
    graph_session_free(s);
    graph_close(g);
    mem_free(zeros);
}

static void a_deadline_ends_constants_at_load(void **state) {
    (void)state;
    build_reset();
    float *zeros = mem_calloc((size_t)LONG * LONG, sizeof *zeros);
    assert_non_null(zeros);
    const int64_t dims[2] = {LONG, LONG};
    onnx_tensor w = build_tensor("w", ELEM_F32, 2, dims, zeros);
    onnx_node nodes[] = {build_node("MatMul", "w w", "a"), build_node("MatMul", "a w", "b"),
                         build_node("MatMul", "b w", "c"), build_node("Add", "x c", "y")};
    onnx_value_info in = PORT("x"), out = PORT("y");
    const onnx_model m = build_model((onnx_graph){.nodes = nodes,
                                                  .n_nodes = 4,
                                                  .inputs = &in,
                                                  .n_inputs = 1,
                                                  .outputs = &out,
                                                  .n_outputs = 1,
                                                  .initializers = &w,
                                                  .n_initializers = 1});
    error err;
    graph *g;
    const double from = clock_seconds();
    graph_options o = {.threads = 1, .deadline = from + 0.2};
    assert_int_equal(graph_from_onnx(&g, &m, &o, &err), CHURON_LIMIT);
    assert_null(g);
    assert_true(clock_seconds() - from < 1.5); /* and not three seconds; packing is not interrupted */
    if (!strstr(err.message, "load: node '") || !strstr(err.message, ": time: expected at most 0.2 s"))
        fail_msg("%s", err.message);
    const atomic_bool yes = true;
    o = (graph_options){.threads = 1, .cancel = &yes};
    assert_int_equal(graph_from_onnx(&g, &m, &o, &err), CHURON_CANCELLED);
    assert_null(g);
    mem_free(zeros);
}

/* ---- functions -------------------------------------------------------------------------------------- */

enum { LEVELS = 12, CALLS = 10 };

typedef struct bomb {
    onnx_function functions[LEVELS];
    onnx_node nodes[LEVELS][CALLS], main[1];
    onnx_value_info in, out;
    onnx_attr refer, give;
    onnx_graph body;
    const onnx_graph *bodies[1];
    onnx_node body_nodes[BUILD_NODES];
} bomb;

static const char *const level_names[LEVELS] = {"F0", "F1", "F2", "F3", "F4",  "F5",
                                                "F6", "F7", "F8", "F9", "F10", "F11"};

static onnx_function function_of(const char *name, const onnx_node *nodes, size_t n) {
    onnx_function f = {.name = name, .domain = "", .overload = "", .nodes = nodes, .n_nodes = n};
    f.inputs = build_names("x", &f.n_inputs);
    f.outputs = build_names("y", &f.n_outputs);
    f.opsets = &build_opset;
    f.n_opsets = 1;
    return f;
}

static void name_ends(size_t call, char in[8], char out[8]) {
    (void)snprintf(in, 8, call ? "t%zu" : "x", call);
    (void)snprintf(out, 8, call + 1 < CALLS ? "t%zu" : "y", call + 1);
}

/* `levels` functions, each of which calls the one before ten times; the first is `innermost` ten times. */
static onnx_model build_bomb(bomb *b, size_t levels, const char *innermost) {
    build_reset();
    for (size_t level = 0; level < levels; level++) {
        for (size_t call = 0; call < CALLS; call++) {
            char in[8], out[8];
            name_ends(call, in, out);
            b->nodes[level][call] = build_node(level ? level_names[level - 1] : innermost, in, out);
        }
        b->functions[level] = function_of(level_names[level], b->nodes[level], CALLS);
    }
    b->main[0] = build_node(level_names[levels - 1], "x", "y");
    b->in = PORT("x");
    b->out = PORT("y");
    onnx_model m = build_model((onnx_graph){
        .nodes = b->main, .n_nodes = 1, .inputs = &b->in, .n_inputs = 1, .outputs = &b->out, .n_outputs = 1});
    m.functions = b->functions;
    m.n_functions = levels;
    return m;
}

static void refused_at_once(const onnx_model *m, status code, const char *part) {
    error err;
    graph *g;
    const int64_t before = mem_count();
    assert_int_equal(graph_from_onnx(&g, m, NULL, &err), code);
    assert_null(g);
    if (!strstr(err.message, part)) fail_msg("'%s' is not in: %s", part, err.message);
    assert_true(mem_count() - before < 1000);
}

static void functions_that_multiply_are_counted_first(void **state) {
    (void)state;
    static bomb b;
    onnx_model m = build_bomb(&b, LEVELS, "Neg");
    refused_at_once(&m, CHURON_LIMIT,
                    "function F5 of '': expected at most 1000000 nodes with the functions that it calls "
                    "inlined, got 1");
    /* One that is called by nobody does not matter. */
    b.main[0] = build_node("F2", "x", "y");
    error err;
    graph *g;
    if (graph_from_onnx(&g, &m, NULL, &err) != CHURON_OK) fail_msg("%s", err.message);
    assert_int_equal(graph_describe(g).n_nodes, 1000);
    graph_close(g);
    /* Around a corner, behind much that is no cycle. */
    b.nodes[3][9] = build_node("F7", "t9", "y");
    b.main[0] = build_node("F7", "x", "y");
    refused_at_once(&m, CHURON_CORRUPT, "function F7 of '' calls itself");
}

/* The functions are small, the graph that is handed down to their If is put in 20,000 times. */
static void graphs_that_are_handed_down_are_counted(void **state) {
    (void)state;
    static bomb b;
    static const char *const names[] = {"what"};
    onnx_model m = build_bomb(&b, 4, "If");
    for (size_t i = 0; i < BUILD_NODES; i++) b.body_nodes[i] = build_node("Neg", "x", "z");
    b.body = (onnx_graph){.name = "body", .nodes = b.body_nodes, .n_nodes = BUILD_NODES};
    b.bodies[0] = &b.body;
    b.refer = (onnx_attr){.name = "what", .reference = "what", .type = ONNX_ATTR_GRAPH, .n = 1};
    b.give = (onnx_attr){.name = "what", .type = ONNX_ATTR_GRAPH, .n = 1, .graphs = b.bodies};
    for (size_t level = 0; level < 4; level++) {
        b.functions[level].attributes = names;
        b.functions[level].n_attributes = 1;
        for (size_t call = 0; call < CALLS; call++) {
            b.nodes[level][call].attrs = &b.refer;
            b.nodes[level][call].n_attrs = 1;
        }
    }
    b.main[0].attrs = &b.give;
    b.main[0].n_attrs = 1;
    error err;
    graph *g;
    assert_int_not_equal(graph_from_onnx(&g, &m, NULL, &err), CHURON_LIMIT); /* 10,000 * 64 are few enough */
    b.functions[0].n_attributes = 1;
    onnx_attr both[2] = {b.refer, b.refer};
    both[0].name = "then_branch";
    both[1].name = "else_branch";
    for (size_t call = 0; call < CALLS; call++) {
        b.nodes[0][call].attrs = both;
        b.nodes[0][call].n_attrs = 2;
    }
    refused_at_once(&m, CHURON_LIMIT,
                    "model: expected at most 1000000 nodes with its functions inlined, got 1");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_deadline_ends_a_node),
        cmocka_unit_test(another_thread_cancels_a_node),
        cmocka_unit_test(a_deadline_ends_constants_at_load),
        cmocka_unit_test(functions_that_multiply_are_counted_first),
        cmocka_unit_test(graphs_that_are_handed_down_are_counted),
    };
    return cmocka_run_group_tests_name("graph stop", tests, NULL, NULL);
}

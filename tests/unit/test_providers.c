/* test_providers.c: who executes nodes: names, order of preference, agreement, failing allocations. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "graph/graph.h"
#include "graph/providers/provider.h"
#include "graph_build.h"

#include <math.h>

enum { OUT = 3 * 4 * 5 };

/* z = relu(conv(x, w, b)) m, with x [N, 2, 4, 4], w [3, 2, 1, 1], m [4, 5]; z [N, 3, 4, 5]. */
typedef struct net {
    onnx_node nodes[3];
    onnx_value_info in, out;
    onnx_tensor weights[3];
    onnx_model model;
} net;

static float w[6] = {0.5f, -1, 2, 0.25f, -0.75f, 1}, b[3] = {0.1f, -0.2f, 0.3f}, m[20], x[32];

static void build_net(net *n) {
    static const int64_t w_dims[] = {3, 2, 1, 1}, b_dims[] = {3}, m_dims[] = {4, 5};
    static const onnx_dim open[] = {{.value = -1, .param = "N"}, {.value = 2}, {.value = 4}, {.value = 4}};
    build_reset();
    for (int i = 0; i < 20; i++) m[i] = (float)(i % 7) - 3;
    for (int i = 0; i < 32; i++) x[i] = (float)(i % 11) * 0.25f - 1;
    n->nodes[0] = build_node("Conv", "x w b", "c");
    n->nodes[1] = build_node("Relu", "c", "r");
    n->nodes[2] = build_node("MatMul", "r m", "z");
    n->in = build_port("x", ELEM_F32, 4, open);
    n->out = build_port("z", ELEM_F32, SIZE_MAX, NULL);
    n->weights[0] = build_tensor("w", ELEM_F32, 4, w_dims, w);
    n->weights[1] = build_tensor("b", ELEM_F32, 1, b_dims, b);
    n->weights[2] = build_tensor("m", ELEM_F32, 2, m_dims, m);
    n->model = build_model((onnx_graph){.nodes = n->nodes,
                                        .n_nodes = 3,
                                        .inputs = &n->in,
                                        .n_inputs = 1,
                                        .outputs = &n->out,
                                        .n_outputs = 1,
                                        .initializers = n->weights,
                                        .n_initializers = 3});
}

static graph_options options_of(const char *const *chosen, size_t n) {
    return (graph_options){.threads = 1, .max_memory = 1 << 26, .providers = chosen, .n_providers = n};
}

static bool is_built(const char *name) {
    size_t n;
    const provider *list = provider_list(&n);
    for (size_t i = 0; i < n; i++) {
        if (strcmp(list[i].name, name) == 0) return !list[i].option;
    }
    return false;
}

static void expect_net(const value *z) {
    assert_int_equal(z->t.count, OUT);
    for (size_t c = 0; c < 3; c++) {
        for (size_t row = 0; row < 4; row++) {
            for (size_t k = 0; k < 5; k++) {
                double sum = 0;
                for (size_t i = 0; i < 4; i++) {
                    const size_t at = row * 4 + i;
                    const double v = (double)w[2 * c] * (double)x[at] +
                                     (double)w[2 * c + 1] * (double)x[16 + at] + (double)b[c];
                    sum += (v > 0 ? v : 0) * (double)m[i * 5 + k];
                }
                assert_true(fabs(((const float *)z->t.data)[(c * 4 + row) * 5 + k] - sum) < 1e-4);
            }
        }
    }
}

static status run_net(const net *n, const graph_options *o, error *err) {
    static const int64_t dims[] = {1, 2, 4, 4};
    graph *g = NULL;
    graph_session *s = NULL;
    value in = value_of_tensor(tensor_borrow(ELEM_F32, 4, dims, x)), out;
    status st = graph_from_onnx(&g, &n->model, o, err);
    if (st == CHURON_OK) st = graph_session_create(&s, g, err);
    if (st == CHURON_OK) st = graph_run(s, &in, &out, NULL, err);
    if (st == CHURON_OK) {
        expect_net(&out);
        value_free(&out);
    }
    graph_session_free(s);
    graph_close(g);
    return st;
}

static void wrong_names_are_refused(void **state) {
    (void)state;
    static const char *const wrong[] = {"cpu", "abacus"}, *const second[] = {"onednn"};
    net n;
    error err;
    graph *g;
    build_net(&n);
    const graph_options unknown = options_of(wrong, 2), other = options_of(second, 1);
    assert_int_equal(graph_from_onnx(&g, &n.model, &unknown, &err), CHURON_INVALID);
    assert_null(g);
    assert_non_null(strstr(err.message, "provider: expected cpu"));
    assert_non_null(strstr(err.message, "got 'abacus'"));
    if (is_built("onednn")) return;
    assert_int_equal(graph_from_onnx(&g, &n.model, &other, &err), CHURON_UNSUPPORTED);
    assert_null(g);
    assert_non_null(strstr(err.message, "CHURON_ONEDNN"));
}

static void expect_nodes(const net *n, const char *const *chosen, size_t n_chosen, size_t claimed,
                         const char *said) {
    error err;
    graph *g;
    str text = {0};
    const graph_options o = options_of(chosen, n_chosen);
    if (graph_from_onnx(&g, &n->model, &o, &err) != CHURON_OK) fail_msg("%s", err.message);
    assert_int_equal(graph_provider_nodes(g, "onednn"), claimed);
    assert_int_equal(graph_provider_nodes(g, "cpu") + claimed, graph_describe(g).n_nodes);
    graph_provider_names(graph_providers(g), &text);
    assert_string_equal(str_cstr(&text), said);
    str_free(&text);
    graph_close(g);
}

static void the_first_choice_takes_what_it_can(void **state) {
    (void)state;
    static const char *const both[] = {"onednn", "cpu"}, *const ours[] = {"cpu", "onednn"};
    net n;
    build_net(&n);
    expect_nodes(&n, NULL, 0, 0, "cpu");
    expect_nodes(&n, ours, 1, 0, "cpu");
    if (!is_built("onednn")) return;
    expect_nodes(&n, ours, 2, 0, "cpu");
    expect_nodes(&n, both, 2, 2, "onednn");
    n.nodes[1] = build_node("Sigmoid", "c", "r");
    expect_nodes(&n, both, 1, 2, "onednn,cpu");
}

/* What was taken is given back (seen by the sanitizer). */
static void every_allocation_may_fail(void **state) {
    (void)state;
    static const char *const chosen[] = {"onednn"};
    net n;
    build_net(&n);
    const graph_options o = options_of(chosen, is_built("onednn") ? 1 : 0);
    status st = CHURON_NO_MEMORY;
    for (int64_t at = 1; st != CHURON_OK; at++) {
        error err;
        assert_true(at < 2000);
        mem_fail_at(at);
        st = run_net(&n, &o, &err);
        mem_fail_at(0);
        if (st != CHURON_OK) assert_int_equal(st, CHURON_NO_MEMORY);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_names_are_refused),
        cmocka_unit_test(the_first_choice_takes_what_it_can),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

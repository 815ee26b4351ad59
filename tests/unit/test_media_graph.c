/* test_media_graph.c: ImageDecoder of a graph over this library's own files: the memory of a picture counts
 * before it is decoded, and any allocation may fail. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "graph/graph.h"
#include "graph_build.h"
#include "media/image.h"

enum { SIDE = 200 };

/* A PNG file of [SIDE, SIDE, 3], and its pixels. */
static void make_png(str *file, tensor *pixels) {
    error err;
    const int64_t dims[3] = {SIDE, SIDE, 3};
    assert_int_equal(tensor_alloc(pixels, ELEM_U8, 3, dims, &err), CHURON_OK);
    for (size_t i = 0; i < pixels->count; i++) ((uint8_t *)pixels->data)[i] = (uint8_t)(i % 7 * 30);
    *file = (str){0};
    assert_int_equal(image_encode_png(file, pixels, &err), CHURON_OK);
}

/* Opens the model of one ImageDecoder and runs it over the file. */
static status decode(const str *file, uint64_t most, value *out, error *err) {
    build_reset();
    const onnx_node node = build_node("ImageDecoder", "x", "y");
    const onnx_value_info in = build_port("x", ELEM_U8, SIZE_MAX, NULL),
                          result = build_port("y", ELEM_U8, SIZE_MAX, NULL);
    const onnx_model m = build_model((onnx_graph){
        .nodes = &node, .n_nodes = 1, .inputs = &in, .n_inputs = 1, .outputs = &result, .n_outputs = 1});
    const graph_options o = {.threads = 1, .max_memory = most};
    graph *g = NULL;
    graph_session *s = NULL;
    status st = graph_from_onnx(&g, &m, &o, err);
    if (st == CHURON_OK) st = graph_session_create(&s, g, err);
    if (st == CHURON_OK) {
        const int64_t n = (int64_t)file->len;
        const value x = value_of_tensor(tensor_borrow(ELEM_U8, 1, &n, file->data));
        st = graph_run(s, &x, out, NULL, err);
    }
    graph_session_free(s);
    graph_close(g);
    return st;
}

static void a_picture_counts_before_it_is_decoded(void **state) {
    (void)state;
    str file;
    tensor pixels;
    value y = {0};
    error err;
    make_png(&file, &pixels);
    assert_int_equal(decode(&file, 1 << 20, &y, &err), CHURON_OK);
    assert_int_equal(y.t.count, pixels.count);
    assert_memory_equal(y.t.data, pixels.data, pixels.count);
    value_free(&y);
    assert_int_equal(decode(&file, SIDE * SIDE, &y, &err), CHURON_LIMIT); /* a third of it */
    assert_non_null(strstr(err.message, "ImageDecoder"));
    assert_non_null(strstr(err.message, "memory"));
    str_free(&file);
    tensor_free(&pixels);
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    str file;
    tensor pixels;
    make_png(&file, &pixels);
    status st = CHURON_NO_MEMORY;
    for (int64_t n = 1; st != CHURON_OK && n < 10000; n++) {
        value y = {0};
        error err;
        mem_fail_at(n);
        st = decode(&file, 0, &y, &err);
        mem_fail_at(0);
        if (st == CHURON_OK)
            value_free(&y);
        else
            assert_int_equal(st, CHURON_NO_MEMORY);
    }
    assert_int_equal(st, CHURON_OK);
    str_free(&file);
    tensor_free(&pixels);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_picture_counts_before_it_is_decoded),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

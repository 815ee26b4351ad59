/* test_onnx.c: models that are right, models that lie, models that are cut off, memory that runs out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "format/onnx.h"
#include "onnx_build.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- building --------------------------------------------------------------------------------------- */

static void tensor_head(str *t, const char *name, int type, size_t rank, const int64_t *dims) {
    for (size_t i = 0; i < rank; i++) pb_int(t, 1, dims[i]);
    pb_int(t, 2, type);
    if (name) pb_text(t, 8, name);
}

static void raw_tensor(str *t, const char *name, int type, int64_t n, const void *raw, size_t bytes) {
    tensor_head(t, name, type, 1, &n);
    pb_bytes(t, 9, raw, bytes);
}

/* A model around a graph, which is freed. */
static str model_of(str *graph) {
    str m = {0}, opset = {0};
    pb_int(&m, 1, 10);
    pb_text(&m, 2, "test");
    pb_int(&opset, 2, 21);
    pb_message(&m, 8, &opset);
    pb_message(&m, 7, graph);
    return m;
}

static str model_of_tensor(str *t) {
    str g = {0};
    pb_message(&g, 5, t);
    return model_of(&g);
}

static void value_info(str *g, uint32_t field, const char *name) {
    str v = {0}, type = {0}, of = {0}, shape = {0}, dim = {0};
    pb_int(&dim, 1, 3);
    pb_message(&shape, 1, &dim);
    pb_text(&dim, 2, "batch");
    pb_message(&shape, 1, &dim);
    pb_message(&shape, 1, &dim);
    pb_int(&of, 1, 1);
    pb_message(&of, 2, &shape);
    pb_message(&type, 1, &of);
    pb_text(&v, 1, name);
    pb_message(&v, 2, &type);
    pb_message(g, field, &v);
}

static void attribute(str *node, const char *name, int type, uint32_t field, str *contents) {
    str a = {0};
    pb_text(&a, 1, name);
    pb_int(&a, 20, type);
    pb_message(&a, field, contents);
    pb_message(node, 5, &a);
}

/* A node that has every kind of attribute. */
static void rich_node(str *g) {
    str n = {0}, a = {0}, inner = {0}, sub = {0}, sparse = {0}, type = {0}, of = {0};
    float f = 0.5f;
    pb_text(&n, 1, "x");
    pb_text(&n, 1, "");
    pb_text(&n, 2, "y");
    pb_text(&n, 3, "node");
    pb_text(&n, 4, "Op");
    pb_text(&n, 7, "ai.onnx");
    pb_text(&a, 1, "f");
    pb_int(&a, 20, 1);
    pb_fixed32(&a, 2, &f);
    pb_message(&n, 5, &a);
    pb_text(&a, 1, "i");
    pb_int(&a, 20, 2);
    pb_int(&a, 3, -7);
    pb_message(&n, 5, &a);
    str_cat(&inner, "text");
    attribute(&n, "s", 3, 4, &inner);
    raw_tensor(&inner, "t", ELEM_I32, 2, "\1\0\0\0\2\0\0\0", 8);
    attribute(&n, "t", 4, 5, &inner);
    pb_text(&sub, 2, "body");
    attribute(&n, "g", 5, 6, &sub);
    pb_text(&a, 1, "ints");
    pb_int(&a, 20, 7);
    pb_int(&a, 8, 5);
    pb_bytes(&a, 8, "\1\2\xff\xff\xff\xff\xff\xff\xff\xff\xff\1", 12); /* packed: 1, 2, -1 */
    pb_message(&n, 5, &a);
    pb_text(&a, 1, "floats");
    pb_int(&a, 20, 6);
    pb_fixed32(&a, 7, &f);
    pb_bytes(&a, 7, &f, 4);
    pb_message(&n, 5, &a);
    pb_text(&a, 1, "strings");
    pb_int(&a, 20, 8);
    pb_text(&a, 9, "one");
    pb_text(&a, 9, "");
    pb_message(&n, 5, &a);
    raw_tensor(&inner, "values", ELEM_F32, 1, &f, 4);
    pb_message(&sparse, 1, &inner);
    raw_tensor(&inner, NULL, ELEM_I64, 1, "\3\0\0\0\0\0\0\0", 8);
    pb_message(&sparse, 2, &inner);
    pb_int(&sparse, 3, 9);
    attribute(&n, "sparse", 11, 22, &sparse);
    pb_int(&of, 1, ELEM_F16);
    pb_message(&type, 1, &of);
    pb_message(&of, 1, &type); /* of: Sequence{elem_type: type} */
    pb_message(&type, 4, &of);
    attribute(&n, "type", 13, 14, &type);
    pb_message(g, 1, &n);
}

static str rich_model(void) {
    str g = {0}, t = {0}, fn = {0}, n = {0}, p = {0};
    rich_node(&g);
    pb_text(&g, 2, "graph");
    raw_tensor(&t, "w", ELEM_F32, 2, "\0\0\x80\x3f\0\0\0\x40", 8);
    pb_message(&g, 5, &t);
    value_info(&g, 11, "x");
    value_info(&g, 12, "y");
    value_info(&g, 13, "z");
    str m = model_of(&g);
    pb_text(&n, 4, "Relu");
    pb_text(&fn, 1, "F");
    pb_text(&fn, 10, "local");
    pb_text(&fn, 4, "a");
    pb_text(&fn, 5, "b");
    pb_text(&fn, 6, "alpha");
    pb_message(&fn, 7, &n);
    pb_message(&m, 25, &fn);
    pb_text(&p, 1, "key");
    pb_text(&p, 2, "value");
    pb_message(&m, 14, &p);
    return m;
}

static status parse(onnx_model **m, const str *s, error *err) {
    return onnx_parse(m, str_cstr(s), s->len, NULL, err);
}

/* Parses what must fail; `part` is in the message. Frees s. */
static void refused(str *s, status want, const char *part) {
    onnx_model *m;
    error err;
    status st = parse(&m, s, &err);
    if (st != want || !strstr(err.message, part)) {
        print_message("expected %d '%s', got %d '%s'\n", want, part, st, st ? err.message : "");
    }
    assert_int_equal(st, want);
    assert_null(m);
    assert_non_null(strstr(err.message, part));
    str_free(s);
}

/* ---- what is read ----------------------------------------------------------------------------------- */

static void reads_everything(void **state) {
    (void)state;
    str s = rich_model();
    onnx_model *m;
    error err;
    assert_int_equal(parse(&m, &s, &err), CHURON_OK);
    assert_int_equal(m->ir_version, 10);
    assert_int_equal(m->opsets[0].version, 21);
    assert_string_equal(m->metadata[0].value, "value");
    const onnx_graph *g = &m->graph;
    assert_int_equal(g->n_nodes, 1);
    const onnx_node *n = &g->nodes[0];
    assert_string_equal(n->domain, "");
    assert_int_equal(n->n_inputs, 2);
    assert_string_equal(n->inputs[1], "");
    assert_int_equal(n->n_attrs, 10);
    const onnx_attr *a = n->attrs;
    assert_true(a[0].f == 0.5f && a[1].i == -7 && a[2].s.len == 4);
    assert_string_equal(a[2].s.data, "text");
    assert_int_equal(((const int32_t *)a[3].tensors->contents.data)[1], 2);
    assert_string_equal(a[4].graphs[0]->name, "body");
    assert_int_equal(a[5].n, 4);
    assert_int_equal(a[5].ints[0], 5);
    assert_int_equal(a[5].ints[3], -1);
    assert_true(a[6].n == 2 && a[6].floats[1] == 0.5f);
    assert_true(a[7].n == 2 && a[7].strings[0].len == 3 && a[7].strings[1].len == 0);
    assert_int_equal(a[8].sparses->dims[0], 9);
    assert_int_equal(a[9].types->kind, ONNX_SEQUENCE);
    assert_int_equal(a[9].types->of->type, ELEM_F16);
    const onnx_type *x = &g->inputs[0].type;
    assert_true(x->kind == ONNX_TENSOR && x->rank == 3 && x->dims[0].value == 3 && x->dims[2].value == -1);
    assert_string_equal(x->dims[1].param, "batch");
    assert_null(x->dims[2].param);
    assert_true(((const float *)g->initializers[0].contents.data)[1] == 2.0f);
    assert_string_equal(m->functions[0].domain, "local");
    assert_string_equal(m->functions[0].attributes[0], "alpha");
    assert_string_equal(m->functions[0].nodes[0].op, "Relu");
    onnx_close(m);
    str_free(&s);
}

/* Raw data at every alignment of the buffer: aligned in memory, never moved where it lies well. */
static void alignment(void **state) {
    (void)state;
    double in[3] = {1, 2, 3};
    for (size_t shift = 0; shift < 16; shift++) {
        str t = {0};
        raw_tensor(&t, "w", ELEM_F64, 3, in, sizeof in);
        str s = model_of_tensor(&t);
        char *buffer = mem_aligned(64, s.len + 16);
        memcpy(buffer + shift, s.data, s.len);
        onnx_model *m;
        error err;
        assert_int_equal(onnx_parse(&m, buffer + shift, s.len, NULL, &err), CHURON_OK);
        const char *data = m->graph.initializers[0].contents.data;
        assert_int_equal((uintptr_t)data % 8, 0);
        assert_memory_equal(data, in, sizeof in);
        bool inside = data >= buffer && data < buffer + s.len + 16;
        const char *raw = buffer + shift + s.len - sizeof in;
        assert_int_equal(inside, (uintptr_t)raw % 8 == 0);
        onnx_close(m);
        mem_free(buffer);
        str_free(&s);
    }
}

static void typed_lists(void **state) {
    (void)state;
    str t = {0};
    onnx_model *m;
    error err;
    tensor_head(&t, "w", ELEM_I4, 1, (int64_t[]){3});
    pb_int(&t, 5, 0x8f);
    pb_bytes(&t, 5, "\2", 1);
    str s = model_of_tensor(&t);
    assert_int_equal(parse(&m, &s, &err), CHURON_OK);
    assert_memory_equal(m->graph.initializers[0].contents.data, ((int8_t[]){-1, -8, 2}), 3);
    onnx_close(m);
    str_free(&s);
    tensor_head(&t, "w", ELEM_I2, 1, (int64_t[]){1});
    pb_int(&t, 5, 2);
    s = model_of_tensor(&t);
    assert_int_equal(parse(&m, &s, &err), CHURON_OK);
    assert_int_equal(*(int8_t *)m->graph.initializers[0].contents.data, -2);
    onnx_close(m);
    str_free(&s);
    tensor_head(&t, "w", ELEM_STRING, 1, (int64_t[]){2});
    pb_bytes(&t, 6, "a\0b", 3);
    pb_bytes(&t, 6, "", 0);
    s = model_of_tensor(&t);
    assert_int_equal(parse(&m, &s, &err), CHURON_OK);
    const tensor_string *strings = m->graph.initializers[0].contents.data;
    assert_int_equal(strings[0].len, 3);
    assert_memory_equal(strings[0].data, "a\0b", 3);
    assert_int_equal(strings[1].len, 0);
    onnx_close(m);
    str_free(&s);
    tensor_head(&t, "w", ELEM_F16, 1, (int64_t[]){2});
    pb_int(&t, 5, 0x3c00);
    pb_int(&t, 5, -0x8000); /* sign-extended by some writers */
    s = model_of_tensor(&t);
    assert_int_equal(parse(&m, &s, &err), CHURON_OK);
    assert_memory_equal(m->graph.initializers[0].contents.data, ((uint16_t[]){0x3c00, 0x8000}), 4);
    onnx_close(m);
    str_free(&s);
}

/* ---- what is refused -------------------------------------------------------------------------------- */

static void lying_tensors(void **state) {
    (void)state;
    str t = {0}, s;
    tensor_head(&t, "w", ELEM_F32, 2, (int64_t[]){2, -3});
    s = model_of_tensor(&t);
    refused(&s, CHURON_CORRUPT, "graph.initializer[0]: dims[1]: expected 0 or more, got -3");
    tensor_head(&t, "w", ELEM_F32, 2, (int64_t[]){INT64_MAX, INT64_MAX});
    s = model_of_tensor(&t);
    refused(&s, CHURON_LIMIT, "expected at most");
    raw_tensor(&t, "w", ELEM_F32, 3, "12345678", 8);
    s = model_of_tensor(&t);
    refused(&s, CHURON_CORRUPT, "raw_data: expected 12 bytes for 3 elements of float32, got 8");
    tensor_head(&t, "w", ELEM_F32, 1, (int64_t[]){1000000000});
    s = model_of_tensor(&t);
    refused(&s, CHURON_CORRUPT, "float_data: expected 1000000000 items");
    tensor_head(&t, "w", 29, 0, NULL);
    s = model_of_tensor(&t);
    refused(&s, CHURON_UNSUPPORTED, "data_type: expected 1..28, got 29");
    tensor_head(&t, "w", ELEM_U8, 1, (int64_t[]){1});
    pb_int(&t, 5, 256);
    s = model_of_tensor(&t);
    refused(&s, CHURON_CORRUPT, "int32_data[0]: expected a value of uint8, got 256");
    tensor_head(&t, "w", ELEM_I64, 1, (int64_t[]){1});
    pb_int(&t, 5, 1);
    s = model_of_tensor(&t);
    refused(&s, CHURON_CORRUPT, "int64_data");
    tensor_head(&t, "w", ELEM_STRING, 1, (int64_t[]){1});
    pb_text(&t, 9, "raw");
    s = model_of_tensor(&t);
    refused(&s, CHURON_CORRUPT, "expected strings in string_data, got raw_data");
    tensor_head(&t, "w", ELEM_F32, 13, (int64_t[13]){1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1});
    s = model_of_tensor(&t);
    refused(&s, CHURON_UNSUPPORTED, "dims: expected at most 12 dimensions, got 13");
}

static void lying_sparse(void **state) {
    (void)state;
    static const int64_t cases[][2] = {{3, 3}, {5, 2}, {0, 9}, {-1, 2}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        str g = {0}, sparse = {0}, t = {0};
        raw_tensor(&t, "v", ELEM_F32, 2, "12345678", 8);
        pb_message(&sparse, 1, &t);
        raw_tensor(&t, NULL, ELEM_I64, 2, cases[i], 16);
        pb_message(&sparse, 2, &t);
        pb_int(&sparse, 3, 9);
        pb_message(&g, 15, &sparse);
        str s = model_of(&g);
        refused(&s, CHURON_CORRUPT, "graph.sparse_initializer[0]: indices[");
    }
}

static void lying_messages(void **state) {
    (void)state;
    str s = {0}, g = {0}, n = {0}, a = {0};
    refused(&s, CHURON_CORRUPT, "empty file");
    str_cat(&s, "version https://git-lfs.github.com/spec/v1\n");
    refused(&s, CHURON_CORRUPT, "Git LFS");
    pb_int(&s, 1, 10);
    refused(&s, CHURON_CORRUPT, "graph: expected one, got 0");
    pb_int(&s, 1, 99);
    refused(&s, CHURON_UNSUPPORTED, "ir_version: expected 1..14, got 99");
    pb_int(&s, 1, 10);
    pb_int(&s, 7, 10);
    refused(&s, CHURON_CORRUPT, "expected a length and bytes, got a varint");
    pb_text(&n, 4, "Op\xff");
    pb_message(&g, 1, &n);
    s = model_of(&g);
    refused(&s, CHURON_CORRUPT, "graph.node[0]: op_type: expected UTF-8, got byte 0xff at 2");
    pb_bytes(&n, 4, "O\0p", 3);
    pb_message(&g, 1, &n);
    s = model_of(&g);
    refused(&s, CHURON_CORRUPT, "zero bytes");
    pb_text(&n, 4, "Op");
    pb_text(&a, 1, "axis");
    pb_int(&a, 20, 2);
    pb_int(&a, 8, 1);
    pb_message(&n, 5, &a);
    pb_message(&g, 1, &n);
    s = model_of(&g);
    refused(&s, CHURON_CORRUPT,
            "graph.node[0].attribute[0]: attribute 'axis' of type INT: expected no field ints");
}

/* Type in type, graph in graph, group in group. */
static void nesting_bombs(void **state) {
    (void)state;
    str type = {0};
    for (int i = 0; i < 200; i++) {
        str of = {0}, next = {0};
        pb_message(&of, 1, &type);
        pb_message(&next, 4, &of);
        type = next;
    }
    str v = {0}, g = {0};
    pb_message(&v, 2, &type);
    pb_message(&g, 11, &v);
    str s = model_of(&g);
    refused(&s, CHURON_LIMIT, "expected at most 100 nested messages");
    for (int i = 0; i < 60; i++) {
        str n = {0}, next = {0};
        pb_text(&n, 4, "If");
        attribute(&n, "then_branch", 5, 6, &g);
        pb_message(&next, 1, &n);
        g = next;
    }
    s = model_of(&g);
    refused(&s, CHURON_LIMIT, "expected at most 100 nested messages");
    for (int i = 0; i < 100000; i++) pb_varint(&s, 90 << 3 | 3);
    refused(&s, CHURON_LIMIT, "nested groups");
    pb_varint(&s, 90 << 3 | 3);
    pb_varint(&s, 91 << 3 | 4);
    refused(&s, CHURON_CORRUPT, "group 90: expected its end, got that of 91");
}

/* Two bytes of file become a structure of hundreds: memory stays in proportion. */
static void structure_bomb(void **state) {
    (void)state;
    str g = {0};
    for (int i = 0; i < 2000000; i++) str_add(&g, "\x7a\0", 2); /* sparse_initializer {} */
    str s = model_of(&g);
    refused(&s, CHURON_LIMIT, "expected descriptions of at most");
}

static void every_prefix(void **state) {
    (void)state;
    str s = rich_model();
    for (size_t n = 0; n < s.len; n++) {
        char *exact = mem_alloc(n);
        if (n) memcpy(exact, s.data, n);
        onnx_model *m;
        error err;
        status st = onnx_parse(&m, exact, n, NULL, &err);
        assert_true(st == CHURON_OK || (err.message[0] && !m));
        onnx_close(m);
        mem_free(exact);
    }
    str_free(&s);
}

/* Every byte wrong in every bit: an answer or an error, and nothing beyond the bytes (sanitizers). */
static void every_bit(void **state) {
    (void)state;
    str s = rich_model();
    for (size_t i = 0; i < 8 * s.len; i++) {
        s.data[i / 8] = (char)(s.data[i / 8] ^ 1 << i % 8);
        onnx_model *m;
        error err;
        if (parse(&m, &s, &err) != CHURON_OK) assert_true(err.message[0] != '\0');
        onnx_close(m);
        s.data[i / 8] = (char)(s.data[i / 8] ^ 1 << i % 8);
    }
    str_free(&s);
}

static void memory_runs_out(void **state) {
    (void)state;
    str s = rich_model(), many = {0};
    for (int i = 0; i < 2000; i++) value_info(&many, 11, "a name of some length");
    pb_message(&s, 99, &many); /* unknown, skipped */
    for (int i = 0; i < 2000; i++) value_info(&many, 11, "a name of some length");
    str big = model_of(&many);
    for (int k = 0; k < 2; k++) {
        const str *in = k ? &big : &s;
        int64_t n = 1;
        for (;; n++) {
            onnx_model *m;
            error err;
            mem_fail_at(n);
            status st = parse(&m, in, &err);
            mem_fail_at(0);
            onnx_close(m);
            if (st == CHURON_OK) break;
            assert_int_equal(st, CHURON_NO_MEMORY);
        }
        assert_true(n > 2);
    }
    str_free(&s);
    str_free(&big);
}

/* ---- files ------------------------------------------------------------------------------------------ */

static char dir[] = "/tmp/churon-onnx-XXXXXX";
static char path[128], data_path[128];

static int make_dir(void **state) {
    (void)state;
    if (!mkdtemp(dir)) return -1;
    (void)snprintf(path, sizeof path, "%s/m.onnx", dir);
    (void)snprintf(data_path, sizeof data_path, "%s/w.bin", dir);
    return 0;
}

static int drop_dir(void **state) {
    (void)state;
    (void)unlink(path);
    (void)unlink(data_path);
    return rmdir(dir);
}

static void write_file(const char *to, const void *data, size_t n) {
    FILE *f = fopen(to, "wb");
    assert_non_null(f);
    if (n) assert_int_equal(fwrite(data, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static void external_entry(str *t, const char *key, const char *text) {
    str e = {0};
    pb_text(&e, 1, key);
    pb_text(&e, 2, text);
    pb_message(t, 13, &e);
}

static status open_external(onnx_model **m, const char *location, const char *offset, const char *length,
                            error *err) {
    str t = {0};
    tensor_head(&t, "w", ELEM_F32, 1, (int64_t[]){2});
    pb_int(&t, 14, 1);
    if (location) external_entry(&t, "location", location);
    if (offset) external_entry(&t, "offset", offset);
    if (length) external_entry(&t, "length", length);
    str s = model_of_tensor(&t);
    write_file(path, s.data, s.len);
    str_free(&s);
    return onnx_open(m, path, err);
}

static void external_data(void **state) {
    (void)state;
    float w[4] = {1, 2, 3, 4};
    onnx_model *m;
    error err;
    write_file(data_path, w, sizeof w);
    assert_int_equal(open_external(&m, "w.bin", "4", "8", &err), CHURON_OK);
    assert_memory_equal(m->graph.initializers[0].contents.data, w + 1, 8);
    assert_true(m->graph.initializers[0].external);
    onnx_close(m);
    assert_int_equal(open_external(&m, "./w.bin", "3", NULL, &err), CHURON_OK); /* misaligned: copied */
    assert_int_equal((uintptr_t)m->graph.initializers[0].contents.data % 4, 0);
    assert_memory_equal(m->graph.initializers[0].contents.data, (char *)w + 3, 8);
    onnx_close(m);
    static const struct {
        const char *location, *offset, *length;
        status want;
        const char *part;
    } wrong[] = {
        {"w.bin", "12", NULL, CHURON_CORRUPT, "expected 8 bytes inside the 16 of 'w.bin', got offset 12"},
        {"w.bin", "18446744073709551615", NULL, CHURON_CORRUPT, "expected a number"},
        {"w.bin", "9223372036854775807", NULL, CHURON_CORRUPT, "got offset 9223372036854775807"},
        {"w.bin", "-4", NULL, CHURON_CORRUPT, "expected a number"},
        {"w.bin", NULL, "4", CHURON_CORRUPT, "expected 8 bytes for 2 elements of float32, got 4"},
        {NULL, NULL, NULL, CHURON_CORRUPT, "expected a location, got none"},
        {"", NULL, NULL, CHURON_INVALID, "expected a path inside the model's folder"},
        {"/etc/hostname", NULL, NULL, CHURON_INVALID, "expected a path inside the model's folder"},
        {"a/../../x", NULL, NULL, CHURON_INVALID, "expected a path inside the model's folder"},
        {"..", NULL, NULL, CHURON_INVALID, "expected a path inside the model's folder"},
        {"none.bin", NULL, NULL, CHURON_NOT_FOUND, "none.bin"},
        {".", NULL, NULL, CHURON_INVALID, "expected a"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        status st = open_external(&m, wrong[i].location, wrong[i].offset, wrong[i].length, &err);
        if (st != wrong[i].want || !strstr(err.message, wrong[i].part)) {
            print_message("case %zu: got %d '%s'\n", i, st, err.message);
        }
        assert_int_equal(st, wrong[i].want);
        assert_non_null(strstr(err.message, wrong[i].part));
    }
}

static void external_links(void **state) {
    (void)state;
    float w[2] = {1, 2};
    char link[128];
    onnx_model *m;
    error err;
    (void)snprintf(link, sizeof link, "%s/link.bin", dir);
    write_file(data_path, w, sizeof w);
    assert_int_equal(symlink("w.bin", link), 0); /* stays inside */
    assert_int_equal(open_external(&m, "link.bin", NULL, NULL, &err), CHURON_OK);
    onnx_close(m);
    assert_int_equal(unlink(link), 0);
    assert_int_equal(symlink("/etc/passwd", link), 0);
    assert_int_equal(open_external(&m, "link.bin", NULL, NULL, &err), CHURON_INVALID);
    assert_non_null(strstr(err.message, "a link out of it"));
    assert_int_equal(unlink(link), 0);
}

static void external_without_folder(void **state) {
    (void)state;
    str t = {0};
    tensor_head(&t, "w", ELEM_F32, 1, (int64_t[]){2});
    pb_int(&t, 14, 1);
    external_entry(&t, "location", "w.bin");
    str s = model_of_tensor(&t);
    refused(&s, CHURON_UNSUPPORTED, "without a folder");
}

static void value_files(void **state) {
    (void)state;
    static const onnx_type item = {.kind = ONNX_TENSOR, .type = ELEM_F32}, strings = {.kind = ONNX_TENSOR},
                           sequence = {.kind = ONNX_SEQUENCE, .of = &item},
                           optional = {.kind = ONNX_OPTIONAL, .of = &sequence},
                           map = {.kind = ONNX_MAP, .type = ELEM_STRING, .of = &item};
    float w[2] = {1, 2};
    str t = {0}, s = {0}, o = {0};
    value v;
    error err;
    tensor_head(&t, NULL, ELEM_STRING, 1, (int64_t[]){1});
    pb_text(&t, 6, "text");
    write_file(data_path, t.data, t.len);
    str_free(&t);
    assert_int_equal(onnx_value_read(&v, data_path, &strings, &err), CHURON_OK);
    assert_memory_equal(((tensor_string *)v.t.data)->data, "text", 4);
    value_free(&v);
    assert_int_equal(onnx_value_read(&v, data_path, &item, &err), CHURON_INVALID);
    raw_tensor(&t, "a", ELEM_F32, 2, w, 8);
    pb_message(&s, 3, &t);
    raw_tensor(&t, "a", ELEM_F32, 1, w, 4);
    pb_message(&s, 3, &t);
    pb_message(&o, 5, &s);
    write_file(data_path, o.data, o.len);
    str_free(&o);
    assert_int_equal(onnx_value_read(&v, data_path, &optional, &err), CHURON_OK);
    assert_int_equal(value_count(&v), 2);
    assert_memory_equal(value_item(&v, 0)->t.data, w, 8);
    value_free(&v);
    write_file(data_path, "", 0);
    assert_int_equal(onnx_value_read(&v, data_path, &optional, &err), CHURON_OK);
    assert_int_equal(v.kind, VALUE_NONE);
    pb_text(&o, 4, "k1");
    pb_text(&o, 4, "k2");
    for (int i = 0; i < 2; i++) {
        raw_tensor(&t, "a", ELEM_F32, 1, w + i, 4);
        pb_message(&s, 3, &t);
    }
    pb_message(&o, 5, &s);
    write_file(data_path, o.data, o.len);
    for (int64_t n = 1;; n++) {
        mem_fail_at(n);
        status st = onnx_value_read(&v, data_path, &map, &err);
        mem_fail_at(0);
        if (st == CHURON_OK) break;
        assert_int_equal(st, CHURON_NO_MEMORY);
    }
    assert_int_equal(value_count(&v), 2);
    assert_memory_equal(value_item(&v, 0)->t.data, w, 8);
    value_free(&v);
    str_free(&o);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_everything), cmocka_unit_test(alignment),
        cmocka_unit_test(typed_lists),      cmocka_unit_test(lying_tensors),
        cmocka_unit_test(lying_sparse),     cmocka_unit_test(lying_messages),
        cmocka_unit_test(nesting_bombs),    cmocka_unit_test(structure_bomb),
        cmocka_unit_test(every_prefix),     cmocka_unit_test(every_bit),
        cmocka_unit_test(memory_runs_out),  cmocka_unit_test(external_data),
        cmocka_unit_test(external_links),   cmocka_unit_test(external_without_folder),
        cmocka_unit_test(value_files),
    };
    return cmocka_run_group_tests(tests, make_dir, drop_dir);
}

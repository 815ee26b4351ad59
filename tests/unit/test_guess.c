/* test_guess.c: what other files than models are told to be, and that models are told to be none of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "format/guess.h"
#include "format/onnx.h"

#include <string.h>

static void known_files_are_named(void **state) {
    (void)state;
    static const struct {
        const char *bytes;
        size_t n;
        const char *expected; /* NULL: nothing */
    } cases[] = {
#define BYTES(s) s, sizeof s - 1
        {BYTES("GGUF\3\0\0\0"), "a GGUF file"},
        {BYTES("PK\3\4\0\0archive/data.pkl"), "a PyTorch checkpoint"},
        {BYTES("PK\3\4\0\0metadata.json"), "a Keras model"},
        {BYTES("PK\3\4\0\0arr_0.npy"), "a NumPy archive"},
        {BYTES("PK\3\4\0\0anything"), "a zip archive"},
        {BYTES("\x89HDF\r\n\x1a\n\0"), "an HDF5 file"},
        {BYTES("\x80\4\x95\0"), "a Python pickle"},
        {BYTES("\x40\0\0\0\0\0\0\0{\"a\":"), "a safetensors file"},
        {BYTES("\x1c\0\0\0TFL3"), "a TensorFlow Lite model"},
        {BYTES("\x1c\0\0\0ORTM"), "ONNX Runtime's own format"},
        {BYTES("\x93NUMPY\1\0"), "a NumPy array"},
        {BYTES("{L\0\0\0"), "an XGBoost model"},
        {BYTES("{\"learner\":{}}"), "an XGBoost model in JSON"},
        {BYTES("tree\nversion=v4\n"), "a LightGBM model"},
        {BYTES("  {\"a\": 1}"), "JSON text"},
        {BYTES("\n<!DOCTYPE html><html>"), "a web page"},
        {BYTES("<?xml version=\"1.0\"?><net>"), "an XML file"},
        {BYTES("version https://git-lfs.github.com/spec/v1\n"), "a Git LFS pointer"},
        {BYTES("hello, world\n"), "a text file"},
        {BYTES("안녕\n"), "a text file"},
        {BYTES("\x1f\x8b\x08"), "a gzip file"},
        {BYTES("\x08\x08\x12\x07pytorch\x1a"), NULL}, /* a model begins so */
        {BYTES("\0\1\2\3\4\5\6\7"), NULL},
        {"", 0, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *what = format_guess(cases[i].bytes, cases[i].n);
        if (!cases[i].expected != !what || (what && !strstr(what, cases[i].expected)))
            fail_msg("%zu: expected %s, got %s", i, cases[i].expected ? cases[i].expected : "nothing",
                     what ? what : "nothing");
    }
}

/* The reader of models says it; cut anywhere it reads nothing outside (sanitizers see). */
static void readers_say_it(void **state) {
    (void)state;
    static const char zip[] = "PK\3\4\0\0archive/data.pkl";
    onnx_model *m;
    error err;
    assert_int_equal(onnx_parse(&m, zip, sizeof zip - 1, NULL, &err), CHURON_CORRUPT);
    assert_non_null(strstr(err.message, "expected an ONNX model, got a PyTorch checkpoint"));
    assert_int_equal(onnx_parse(&m, "", 0, NULL, &err), CHURON_CORRUPT);
    assert_non_null(strstr(err.message, "got an empty file"));
    for (size_t n = 0; n < sizeof zip; n++) (void)format_guess(zip, n);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_files_are_named),
        cmocka_unit_test(readers_say_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

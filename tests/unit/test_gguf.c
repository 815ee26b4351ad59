/* test_gguf.c: files that are right, files that lie, files that are not files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "format/gguf.h"
#include "gguf_build.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static char dir[] = "/tmp/churon-gguf-XXXXXX";
static char file[64];

static int make_dir(void **state) {
    (void)state;
    if (!mkdtemp(dir)) return -1;
    (void)snprintf(file, sizeof file, "%s/x.gguf", dir);
    return 0;
}

static int drop_dir(void **state) {
    (void)state;
    (void)unlink(file);
    return rmdir(dir);
}

static void write_file(const char *path, const char *data, size_t n) {
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    if (n) assert_int_equal(fwrite(data, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static status open_bytes(gguf **g, const char *data, size_t n, error *err) {
    write_file(file, data, n);
    return gguf_open(g, file, err);
}

/* Reads all that a file offers: with the sanitizers, a check that nothing points outside. */
static uint64_t walk(const gguf *g) {
    uint64_t sum = gguf_version(g) + gguf_file_bytes(g);
    for (size_t i = 0; i < gguf_n_values(g); i++) {
        const gguf_value *v = gguf_value_at(g, i);
        for (uint64_t k = 0; k < v->count; k++) {
            if (v->item == GGUF_STRING) {
                gguf_string s = gguf_item_string(g, v, k);
                for (size_t c = 0; c < s.len; c++) sum += (unsigned char)s.data[c];
            } else if (v->item == GGUF_F32 || v->item == GGUF_F64) {
                sum += gguf_item_float(v, k) > 0;
            } else {
                sum += (uint64_t)gguf_item_int(v, k);
            }
        }
    }
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const gguf_tensor *t = gguf_tensor_at(g, i);
        for (size_t c = 0; c < t->bytes; c++) sum += ((const uint8_t *)t->data)[c];
        assert_ptr_equal(t->map->data + t->offset, t->data);
    }
    return sum;
}

/* ---- a file with everything ------------------------------------------------------------------------- */

static const uint64_t dims_a[] = {32, 3}, dims_b[] = {5};

static void put_everything(str *s) {
    put_header(s, 3, 2, 18);
    put_int(s, "u8", GGUF_U8, 250, 1);
    put_int(s, "i8", GGUF_I8, 0xff, 1);
    put_int(s, "u16", GGUF_U16, 65535, 2);
    put_int(s, "i16", GGUF_I16, 0x8000, 2);
    put_u32(s, "u32", 0xfffffffe);
    put_int(s, "i32", GGUF_I32, 0xffffffff, 4);
    put_int(s, "u64", GGUF_U64, UINT64_MAX, 8);
    put_int(s, "i64", GGUF_I64, (uint64_t)-5, 8);
    put_int(s, "f32", GGUF_F32, 0x3fc00000, 4);
    put_int(s, "f64", GGUF_F64, 0x7fe0000000000000, 8);
    put_int(s, "bool", GGUF_BOOL, 1, 1);
    put_string(s, "string", "text \xff");
    put_array(s, "a.string", GGUF_STRING, 3);
    put_text(s, "one");
    put_text(s, "");
    put_text(s, "three");
    put_array(s, "a.i16", GGUF_I16, 2);
    put_le(s, 0xffff, 2);
    put_le(s, 7, 2);
    put_array(s, "a.f64", GGUF_F64, 1);
    put_le(s, 0x4000000000000000, 8);
    put_array(s, "a.bool", GGUF_BOOL, 2);
    put_le(s, 1, 1);
    put_le(s, 0, 1);
    put_array(s, "a.empty", GGUF_STRING, 0);
    put_u32(s, "general.alignment", 64);
    put_tensor(s, "blk.0.a", 2, dims_a, 3, 0); /* Q4_1: 60 bytes */
    put_tensor(s, "b", 1, dims_b, 0, 64);      /* F32: 20 bytes */
    pad_to(s, 64);
    for (int i = 0; i < 84; i++) str_put(s, (char)i);
}

static void test_reads_every_type(void **state) {
    (void)state;
    str s = {0};
    put_everything(&s);
    error err;
    gguf *g;
    if (open_bytes(&g, s.data, s.len, &err) != CHURON_OK) fail_msg("%s", err.message);
    assert_int_equal(gguf_version(g), 3);
    assert_int_equal(gguf_file_bytes(g), s.len);
    assert_int_equal(gguf_n_values(g), 18);
    static const struct {
        const char *key;
        int64_t value;
    } ints[] = {{"u8", 250}, {"i8", -1},  {"u16", 65535},     {"i16", -32768}, {"u32", 0xfffffffe},
                {"i32", -1}, {"i64", -5}, {"u64", INT64_MAX}, {"bool", 1},     {"general.alignment", 64}};
    for (size_t i = 0; i < sizeof ints / sizeof *ints; i++) {
        assert_int_equal(gguf_item_int(gguf_find(g, ints[i].key), 0), ints[i].value);
    }
    float f;
    assert_int_equal(gguf_get_f32_or(g, "f32", 9, &f, &err), CHURON_OK);
    assert_true(f == 1.5f);
    gguf_string text;
    assert_int_equal(gguf_get_string_or_null(g, "string", &text, &err), CHURON_OK);
    assert_int_equal(text.len, 6);
    assert_memory_equal(text.data, "text \xff", 6);
    const gguf_value *v;
    assert_int_equal(gguf_get_array(g, "a.string", GGUF_STRING, &v, &err), CHURON_OK);
    assert_int_equal(v->count, 3);
    assert_memory_equal(gguf_item_string(g, v, 0).data, "one", 3);
    assert_int_equal(gguf_item_string(g, v, 1).len, 0);
    assert_memory_equal(gguf_item_string(g, v, 2).data, "three", 5);
    assert_int_equal(gguf_get_array(g, "a.i16", GGUF_I16, &v, &err), CHURON_OK);
    assert_int_equal(gguf_item_int(v, 0), -1);
    assert_int_equal(gguf_item_int(v, 1), 7);
    assert_int_equal(gguf_get_array(g, "a.f64", GGUF_F64, &v, &err), CHURON_OK);
    assert_true(gguf_item_float(v, 0) == 2.0);
    assert_int_equal(gguf_get_array(g, "a.empty", GGUF_STRING, &v, &err), CHURON_OK);
    assert_int_equal(v->count, 0);
    const gguf_tensor *t = gguf_tensor_find(g, "blk.0.a");
    assert_non_null(t);
    assert_int_equal(t->type, DTYPE_Q4_1);
    assert_int_equal(t->dims[0], 32);
    assert_int_equal(t->dims[1], 3);
    assert_int_equal(t->dims[2], 1);
    assert_int_equal(t->bytes, 60);
    assert_int_equal(((const uint8_t *)t->data)[59], 59);
    t = gguf_tensor_find(g, "b");
    assert_int_equal(((const uint8_t *)t->data)[0], 64);
    assert_null(gguf_tensor_find(g, "blk.0"));
    assert_null(gguf_tensor_find(g, "blk.0.aa"));
    assert_null(gguf_find(g, "a"));
    (void)walk(g);
    gguf_free(g);
    s.data[4] = 2; /* version 2 is the same */
    assert_int_equal(open_bytes(&g, s.data, s.len, &err), CHURON_OK);
    assert_int_equal(gguf_version(g), 2);
    gguf_free(g);
    str_free(&s);
}

static void test_typed_reads_name_the_key(void **state) {
    (void)state;
    str s = {0};
    put_everything(&s);
    error err;
    gguf *g;
    assert_int_equal(open_bytes(&g, s.data, s.len, &err), CHURON_OK);
    uint32_t u;
    float f;
    bool b;
    gguf_string text;
    const gguf_value *v;
    assert_int_equal(gguf_get_u32(g, "i64", &u, &err), CHURON_CORRUPT);
    assert_string_equal(err.message, "key 'i64': expected 0 to 4294967295, got -5");
    assert_int_equal(gguf_get_u32(g, "u64", &u, &err), CHURON_CORRUPT);
    assert_string_equal(err.message, "key 'u64': expected at most 4294967295, got 18446744073709551615");
    assert_int_equal(gguf_get_u32(g, "f32", &u, &err), CHURON_CORRUPT);
    assert_string_equal(err.message, "key 'f32': expected an integer, got type f32");
    assert_int_equal(gguf_get_u32(g, "none", &u, &err), CHURON_CORRUPT);
    assert_string_equal(err.message, "key 'none': expected in the file's metadata, got none");
    assert_int_equal(gguf_get_u32_or(g, "a.i16", 1, &u, &err), CHURON_CORRUPT);
    assert_string_equal(err.message, "key 'a.i16': expected an integer, got an array of i16");
    assert_int_equal(gguf_get_u32_or(g, "none", 17, &u, &err), CHURON_OK);
    assert_int_equal(u, 17);
    assert_int_equal(gguf_get_f32_or(g, "f64", 1, &f, &err), CHURON_CORRUPT);
    assert_string_equal(err.message, "key 'f64': expected a number that fits f32, got 8.98847e+307");
    assert_int_equal(gguf_get_f32_or(g, "u8", 1, &f, &err), CHURON_CORRUPT);
    assert_int_equal(gguf_get_bool_or(g, "none", true, &b, &err), CHURON_OK);
    assert_true(b);
    assert_int_equal(gguf_get_bool_or(g, "u8", true, &b, &err), CHURON_CORRUPT);
    assert_string_equal(err.message, "key 'u8': expected a bool, got type u8");
    assert_int_equal(gguf_get_string_or_null(g, "a.string", &text, &err), CHURON_CORRUPT);
    assert_int_equal(gguf_get_string_or_null(g, "none", &text, &err), CHURON_OK);
    assert_null(text.data);
    assert_int_equal(gguf_get_array(g, "a.i16", GGUF_STRING, &v, &err), CHURON_CORRUPT);
    assert_string_equal(err.message, "key 'a.i16': expected an array of string, got an array of i16");
    assert_int_equal(gguf_get_array(g, "u8", GGUF_I16, &v, &err), CHURON_CORRUPT);
    assert_null(v);
    gguf_free(g);
    str_free(&s);
}

static void test_truncated_at_every_byte(void **state) {
    (void)state;
    str s = {0};
    put_everything(&s);
    for (size_t n = 0; n < s.len; n++) {
        error err = {0};
        gguf *g;
        status st = open_bytes(&g, s.data, n, &err);
        if (st != CHURON_CORRUPT || g) fail_msg("%zu of %zu bytes: status %d", n, s.len, st);
        if (!strstr(err.message, "x.gguf: ")) fail_msg("%zu bytes: %s", n, err.message);
    }
    str_free(&s);
}

static void test_every_changed_byte_is_safe(void **state) {
    (void)state;
    str s = {0};
    put_everything(&s);
    static const unsigned char values[] = {0, 1, 0x7f, 0x80, 0xff};
    size_t header = s.len - 84;
    for (size_t at = 0; at < header; at++) {
        char kept = s.data[at];
        for (size_t k = 0; k < sizeof values; k++) {
            s.data[at] = (char)values[k];
            error err;
            gguf *g;
            if (open_bytes(&g, s.data, s.len, &err) == CHURON_OK) (void)walk(g);
            gguf_free(g);
        }
        s.data[at] = kept;
    }
    str_free(&s);
}

static void test_failing_allocations(void **state) {
    (void)state;
    str s = {0};
    put_everything(&s);
    write_file(file, s.data, s.len);
    str_free(&s);
    for (int64_t n = 1;; n++) {
        error err = {0};
        gguf *g;
        mem_fail_at(n);
        status st = gguf_open(&g, file, &err);
        mem_fail_at(0);
        if (st == CHURON_OK) {
            assert_true(n > 5);
            gguf_free(g);
            return;
        }
        assert_int_equal(st, CHURON_NO_MEMORY);
        assert_null(g);
        assert_true(n < 100);
    }
}

/* ---- lies ------------------------------------------------------------------------------------------- */

static void huge_counts(str *s) { /* 43 bytes */
    put_header(s, 3, UINT64_MAX, UINT64_MAX);
    put_zeros(s, 19);
}
static void huge_values(str *s) {
    put_header(s, 3, 0, (uint64_t)1 << 40);
    put_zeros(s, 19);
}
static void big_endian(str *s) {
    put_header(s, 0x03000000, 0, 0);
}
static void version_1(str *s) {
    put_header(s, 1, 0, 0);
}
static void version_4(str *s) {
    put_header(s, 4, 0, 0);
}
static void not_gguf(str *s) {
    str_cat(s, "PK\x03\x04, a zip file and no model");
}
static void long_string(str *s) {
    put_header(s, 3, 0, 1);
    put_key(s, "general.name", GGUF_STRING);
    put_le(s, (uint64_t)1 << 30, 8);
    put_zeros(s, 100);
}
static void wrapping_string(str *s) {
    put_header(s, 3, 0, 1);
    put_key(s, "k", GGUF_STRING);
    put_le(s, UINT64_MAX - 3, 8);
    put_zeros(s, 100);
}
static void long_key(str *s) {
    put_header(s, 3, 0, 1);
    put_le(s, 65536, 8);
    put_zeros(s, 70000);
}
static void empty_key(str *s) {
    put_header(s, 3, 0, 1);
    put_u32(s, "", 1);
    put_zeros(s, 8);
}
static void huge_array(str *s) {
    put_header(s, 3, 0, 1);
    put_array(s, "k", GGUF_U32, (uint64_t)1 << 62);
    put_zeros(s, 64);
}
static void huge_string_array(str *s) {
    put_header(s, 3, 0, 1);
    put_array(s, "tokens", GGUF_STRING, (uint64_t)1 << 61);
    put_zeros(s, 64);
}
static void torn_string_array(str *s) {
    put_header(s, 3, 0, 1);
    put_array(s, "tokens", GGUF_STRING, 3);
    put_text(s, "a");
    put_le(s, 1000, 8);
    put_zeros(s, 64);
}
static void nested_array(str *s) {
    put_header(s, 3, 0, 1);
    put_array(s, "k", GGUF_ARRAY, 1);
    put_zeros(s, 64);
}
static void bad_item_type(str *s) {
    put_header(s, 3, 0, 1);
    put_array(s, "k", 13, 1);
    put_zeros(s, 64);
}
static void bad_type(str *s) {
    put_header(s, 3, 0, 1);
    put_int(s, "k", 99, 1, 8);
}
static void bad_bool(str *s) {
    put_header(s, 3, 0, 1);
    put_int(s, "k", GGUF_BOOL, 2, 1);
    put_zeros(s, 8);
}
static void twice_a_key(str *s) {
    put_header(s, 3, 0, 3);
    put_u32(s, "a", 1);
    put_u32(s, "b", 1);
    put_u32(s, "a", 2);
}
static void alignment(str *s, uint32_t type, uint64_t v) {
    put_header(s, 3, 0, 1);
    put_int(s, "general.alignment", type, v, 4);
}
static void alignment_0(str *s) {
    alignment(s, GGUF_U32, 0);
}
static void alignment_48(str *s) {
    alignment(s, GGUF_U32, 48);
}
static void alignment_huge(str *s) {
    alignment(s, GGUF_U32, 0x80000000);
}
static void alignment_float(str *s) {
    alignment(s, GGUF_F32, 0x42000000);
}
static void tensor(str *s, uint32_t n_dims, const uint64_t *dims, uint32_t type, uint64_t offset) {
    put_header(s, 3, 1, 0);
    put_tensor(s, "blk.0.w", n_dims, dims, type, offset);
    pad_to(s, 32);
    put_zeros(s, 512);
}
static void five_dims(str *s) {
    tensor(s, 5, (const uint64_t[]){1, 1, 1, 1, 1}, 0, 0);
}
static void many_dims(str *s) {
    put_header(s, 3, 1, 0);
    put_text(s, "blk.0.w");
    put_le(s, 0xffffffff, 4);
    put_zeros(s, 512);
}
static void no_dims(str *s) {
    tensor(s, 0, NULL, 0, 0);
}
static void zero_dim(str *s) {
    tensor(s, 2, (const uint64_t[]){32, 0}, 0, 0);
}
static void negative_dim(str *s) {
    tensor(s, 1, (const uint64_t[]){(uint64_t)-32}, 0, 0);
}
static void wrapping_dims(str *s) { /* (2^42+1) * 2^22 * 4 bytes is 2^24 modulo 2^64 */
    tensor(s, 2, (const uint64_t[]){((uint64_t)1 << 42) + 1, (uint64_t)1 << 22}, 0, 0);
}
static void wrapping_blocks(str *s) {
    tensor(s, 3, (const uint64_t[]){(uint64_t)1 << 32, (uint64_t)1 << 31, 4}, 3, 0);
}
static void huge_dim(str *s) {
    tensor(s, 1, (const uint64_t[]){((uint64_t)1 << 42) + 1}, 0, 0);
}
static void half_block(str *s) {
    tensor(s, 2, (const uint64_t[]){48, 2}, 3, 0);
}
static void past_end(str *s) {
    tensor(s, 1, (const uint64_t[]){129}, 0, 0);
}
static void offset_past_end(str *s) {
    tensor(s, 1, (const uint64_t[]){1}, 0, 1024);
}
static void offset_wraps(str *s) {
    tensor(s, 1, (const uint64_t[]){64}, 0, UINT64_MAX - 31);
}
static void misaligned(str *s) {
    tensor(s, 1, (const uint64_t[]){1}, 0, 4);
}
static void type_iq2_xxs(str *s) {
    tensor(s, 1, (const uint64_t[]){256}, 16, 0);
}
static void type_mxfp4(str *s) {
    tensor(s, 1, (const uint64_t[]){32}, 39, 0);
}
static void type_unknown(str *s) {
    tensor(s, 1, (const uint64_t[]){32}, 1000, 0);
}
static void two_tensors(str *s, const char *a, uint64_t at_a, const char *b, uint64_t at_b) {
    put_header(s, 3, 2, 0);
    put_tensor(s, a, 1, (const uint64_t[]){16}, 0, at_a);
    put_tensor(s, b, 1, (const uint64_t[]){16}, 0, at_b);
    pad_to(s, 32);
    put_zeros(s, 512);
}
static void overlap(str *s) {
    two_tensors(s, "late", 64, "early", 32);
}
static void same_place(str *s) {
    two_tensors(s, "a", 64, "b", 64);
}
static void twice_a_tensor(str *s) {
    two_tensors(s, "w", 0, "w", 64);
}
static void empty_tensor_name(str *s) {
    two_tensors(s, "w", 0, "", 64);
}
static void no_data(str *s) {
    put_header(s, 3, 1, 0);
    put_tensor(s, "w", 1, (const uint64_t[]){1}, 0, 0);
}

static void test_lies_are_refused_by_name(void **state) {
    (void)state;
    static const struct {
        void (*build)(str *);
        status st;
        const char *says;
    } cases[] = {
        {huge_counts, CHURON_CORRUPT,
         "tensor count at offset 8: expected at most 0 in a file of 43 bytes, got 184467"},
        {huge_values, CHURON_CORRUPT,
         "metadata count at offset 16: expected at most 1 in a file of 43 bytes, got 1099"},
        {big_endian, CHURON_UNSUPPORTED, "expected a little-endian file, got a big-endian one"},
        {version_1, CHURON_UNSUPPORTED, "version at offset 4: expected 2 or 3, got 1"},
        {version_4, CHURON_UNSUPPORTED, "version at offset 4: expected 2 or 3, got 4"},
        {not_gguf, CHURON_CORRUPT, "magic at offset 0: expected 47475546 (GGUF), got 504b0304"},
        {long_string, CHURON_CORRUPT,
         "key 'general.name': string at offset 48: expected a string within the 100 bytes that follow, got "
         "length 1073741824"},
        {wrapping_string, CHURON_CORRUPT, "key 'k': string at offset 37"},
        {long_key, CHURON_CORRUPT, "metadata 1 of 1: key at offset 24: expected 1 to 65535 bytes, got 65536"},
        {empty_key, CHURON_CORRUPT, "key at offset 24: expected 1 to 65535 bytes, got 0"},
        {huge_array, CHURON_CORRUPT,
         "key 'k': at offset 49: expected at most 16 values of type u32, got 4611686018427387904"},
        {huge_string_array, CHURON_CORRUPT,
         "key 'tokens': at offset 54: expected at most 8 strings, got 2305843009213693952"},
        {torn_string_array, CHURON_CORRUPT,
         "key 'tokens': item 1: string at offset 63: expected a string within the 64"},
        {nested_array, CHURON_UNSUPPORTED, "got an array of arrays"},
        {bad_item_type, CHURON_CORRUPT, "key 'k': item type at offset 37: expected 0 to 12, got 13"},
        {bad_type, CHURON_CORRUPT, "key 'k': type at offset 33: expected 0 to 12, got 99"},
        {bad_bool, CHURON_CORRUPT, "key 'k': bool at offset 37: expected 0 or 1, got 2"},
        {twice_a_key, CHURON_CORRUPT, "key 'a' at offset 32: expected once, got it again at offset 66"},
        {alignment_0, CHURON_CORRUPT,
         "key 'general.alignment': expected a power of two from 8 to 1048576, got 0"},
        {alignment_48, CHURON_CORRUPT, "expected a power of two from 8 to 1048576, got 48"},
        {alignment_huge, CHURON_CORRUPT, "expected a power of two from 8 to 1048576, got 2147483648"},
        {alignment_float, CHURON_CORRUPT, "key 'general.alignment': expected an integer, got type f32"},
        {five_dims, CHURON_CORRUPT,
         "tensor 'blk.0.w': number of dimensions at offset 39: expected 1 to 4, got 5"},
        {many_dims, CHURON_CORRUPT, "expected 1 to 4, got 4294967295"},
        {no_dims, CHURON_CORRUPT, "expected 1 to 4, got 0"},
        {zero_dim, CHURON_CORRUPT, "tensor 'blk.0.w': dimension 1 at offset 51: expected 1 to 2^63-1, got 0"},
        {negative_dim, CHURON_CORRUPT,
         "dimension 0 at offset 43: expected 1 to 2^63-1, got 18446744073709551584"},
        {wrapping_dims, CHURON_CORRUPT,
         "tensor 'blk.0.w': shape: expected fewer than 2^63 values, got 4398046511105 x"},
        {wrapping_blocks, CHURON_CORRUPT, "tensor 'blk.0.w': shape: expected fewer than 2^63"},
        {huge_dim, CHURON_CORRUPT,
         "tensor 'blk.0.w': expected its 17592186044420 bytes at 0 within the 512 data bytes"},
        {half_block, CHURON_CORRUPT,
         "tensor 'blk.0.w': row length: expected a multiple of 32 for type Q4_1, got 48"},
        {past_end, CHURON_CORRUPT,
         "tensor 'blk.0.w': expected its 516 bytes at 0 within the 512 data bytes of the file"},
        {offset_past_end, CHURON_CORRUPT, "tensor 'blk.0.w': expected its 4 bytes at 1024 within the 512"},
        {offset_wraps, CHURON_CORRUPT,
         "tensor 'blk.0.w': expected its 256 bytes at 18446744073709551584 within"},
        {misaligned, CHURON_CORRUPT, "tensor 'blk.0.w': data offset: expected a multiple of 32, got 4"},
        {type_iq2_xxs, CHURON_UNSUPPORTED, "tensor 'blk.0.w': type at offset 51: expected F32, F16"},
        {type_iq2_xxs, CHURON_UNSUPPORTED, "got IQ2_XXS"},
        {type_mxfp4, CHURON_UNSUPPORTED, "got MXFP4"},
        {type_unknown, CHURON_UNSUPPORTED, "expected a known type, got number 1000"},
        {overlap, CHURON_CORRUPT,
         "tensor 'late': expected its data to begin after 'early' ends at offset 224, got offset 192"},
        {same_place, CHURON_CORRUPT, "tensor 'b': expected its data to begin after 'a' ends"},
        {twice_a_tensor, CHURON_CORRUPT, "tensor 'w': expected once, got it twice"},
        {empty_tensor_name, CHURON_CORRUPT,
         "tensor 2 of 2: tensor name at offset 57: expected 1 to 65535 bytes, got 0"},
        {no_data, CHURON_CORRUPT, "tensor 'w': expected its 4 bytes at 0 within the 0 data bytes"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        str s = {0};
        cases[i].build(&s);
        error err = {0};
        gguf *g;
        status st = open_bytes(&g, s.data, s.len, &err);
        str_free(&s);
        if (st != cases[i].st || g || !strstr(err.message, cases[i].says)) {
            fail_msg("case %zu: status %d: %s\n  expected: %s", i, st, err.message, cases[i].says);
        }
    }
}

static void test_what_is_no_file(void **state) {
    (void)state;
    error err;
    gguf *g;
    assert_int_equal(open_bytes(&g, "", 0, &err), CHURON_CORRUPT);
    assert_non_null(strstr(err.message, "header: expected at least 24 bytes, got a file of 0"));
    assert_int_equal(gguf_open(&g, dir, &err), CHURON_INVALID);
    assert_non_null(strstr(err.message, "got a directory"));
    char fifo[80];
    (void)snprintf(fifo, sizeof fifo, "%s/fifo", dir);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    assert_int_equal(gguf_open(&g, fifo, &err), CHURON_INVALID);
    assert_non_null(strstr(err.message, "got a device, pipe or socket"));
    (void)unlink(fifo);
    assert_int_equal(gguf_open(&g, fifo, &err), CHURON_NOT_FOUND);
    assert_null(g);
    gguf_free(NULL);
}

static void test_random_files(void **state) {
    (void)state;
    char bytes[600];
    uint32_t x = 1;
    for (int run = 0; run < 2000; run++) {
        str s = {0};
        put_header(&s, 3, (uint64_t)run % 3, (uint64_t)run % 5);
        for (size_t i = 0; i < sizeof bytes; i++) {
            x = x * 1664525 + 1013904223;
            bytes[i] = (x >> 24) % 3 ? (char)(x >> 16 & 7) : 0;
        }
        str_add(&s, bytes, sizeof bytes - (size_t)run % 500);
        gguf *g;
        error err;
        if (open_bytes(&g, s.data, run % 2 ? s.len : 24 + (size_t)run % 9, &err) == CHURON_OK) (void)walk(g);
        gguf_free(g);
        str_free(&s);
    }
}

/* Work that grew with the square of these counts would take minutes. */
static void test_large_counts_take_no_time(void **state) {
    (void)state;
    enum { N = 200000 };
    str s = {0};
    put_header(&s, 3, N, N + 1);
    char name[64];
    for (int i = 0; i < N; i++) {
        (void)snprintf(name, sizeof name, "a.common.prefix.of.every.key.%d", (i * 7919) % N);
        put_int(&s, name, GGUF_U8, (uint64_t)i & 0xff, 1);
    }
    put_array(&s, "tokens", GGUF_STRING, N);
    for (int i = 0; i < N; i++) put_text(&s, "t");
    for (int i = 0; i < N; i++) {
        (void)snprintf(name, sizeof name, "blk.%d.weight", (i * 7919) % N);
        put_tensor(&s, name, 1, (const uint64_t[]){1}, 0, (uint64_t)(N - 1 - i) * 32);
    }
    pad_to(&s, 32);
    str_reserve(&s, (size_t)N * 32);
    put_zeros(&s, (size_t)N * 32 - 28);
    error err;
    gguf *g;
    clock_t begin = clock();
    if (open_bytes(&g, s.data, s.len, &err) != CHURON_OK) fail_msg("%s", err.message);
    const gguf_value *tokens = gguf_find(g, "tokens");
    size_t sum = 0;
    for (int i = 0; i < N; i++) {
        (void)snprintf(name, sizeof name, "blk.%d.weight", i);
        sum += gguf_tensor_find(g, name)->bytes + gguf_item_string(g, tokens, (uint64_t)i).len;
    }
    double seconds = (double)(clock() - begin) / CLOCKS_PER_SEC;
    assert_int_equal(sum, N * 5);
    if (seconds > 20) fail_msg("%g s", seconds);
    gguf_free(g);
    str_free(&s);
}

/* ---- split models ----------------------------------------------------------------------------------- */

typedef struct part_lie { /* what to write in place of the truth; -1: the truth, -2: no key */
    int no, count, total;
} part_lie;

static void put_split_key(str *s, const char *key, uint32_t type, int64_t v, size_t bytes) {
    if (v >= 0) put_int(s, key, type, (uint64_t)v, bytes);
}

static void write_part(int no, const char *tensor_name, part_lie lie) {
    int64_t v_no = lie.no == -1 ? no : lie.no, v_count = lie.count == -1 ? 2 : lie.count;
    int64_t v_total = lie.total == -1 ? 2 : lie.total;
    str s = {0};
    put_header(&s, 3, 1, (uint64_t)(v_no >= 0) + (uint64_t)(v_count >= 0) + (uint64_t)(v_total >= 0) + 1);
    put_u32(&s, "part", (uint32_t)no);
    put_split_key(&s, "split.no", GGUF_U16, v_no, 2);
    put_split_key(&s, "split.count", GGUF_U16, v_count, 2);
    put_split_key(&s, "split.tensors.count", GGUF_I32, v_total, 4);
    put_tensor(&s, tensor_name, 1, (const uint64_t[]){1}, 0, 0);
    pad_to(&s, 32);
    put_le(&s, (uint64_t)no + 1, 4);
    char path[80];
    (void)snprintf(path, sizeof path, "%s/m-%05d-of-00002.gguf", dir, no + 1);
    write_file(path, s.data, s.len);
    str_free(&s);
}

static void test_split_models(void **state) {
    (void)state;
    const part_lie truth = {-1, -1, -1};
    char one[80], two[80];
    (void)snprintf(one, sizeof one, "%s/m-00001-of-00002.gguf", dir);
    (void)snprintf(two, sizeof two, "%s/m-00002-of-00002.gguf", dir);
    const char *paths[] = {one, two};
    error err;
    gguf *g;
    write_part(0, "a", truth);
    write_part(1, "b", truth);
    for (int i = 0; i < 2; i++) { /* from either part */
        if (gguf_open(&g, paths[i], &err) != CHURON_OK) fail_msg("%s", err.message);
        uint32_t part;
        assert_int_equal(gguf_get_u32(g, "part", &part, &err), CHURON_OK);
        assert_int_equal(part, 0);
        assert_int_equal(gguf_n_tensors(g), 2);
        assert_int_equal(*(const uint8_t *)gguf_tensor_find(g, "a")->data, 1);
        assert_int_equal(*(const uint8_t *)gguf_tensor_find(g, "b")->data, 2);
        assert_ptr_not_equal(gguf_tensor_at(g, 0)->map, gguf_tensor_at(g, 1)->map);
        (void)walk(g);
        gguf_free(g);
    }
    for (int64_t n = 1;; n++) {
        mem_fail_at(n);
        status st = gguf_open(&g, two, &err);
        mem_fail_at(0);
        if (st == CHURON_OK) break;
        assert_int_equal(st, CHURON_NO_MEMORY);
    }
    gguf_free(g);

    static const struct {
        part_lie first, second;
        const char *name, *says;
    } cases[] = {
        {{-1, -1, -1},
         {0, -1, -1},
         "b",
         "m-00002-of-00002.gguf: split.no and split.count: expected 1 of 2, got 0 of 2"},
        {{-1, -1, -1}, {-1, 3, -1}, "b", "expected 1 of 2, got 1 of 3"},
        {{-1, -1, -1}, {-2, -2, -2}, "b", "expected 1 of 2, got -1 of -1"},
        {{1, -1, -1}, {-1, -1, -1}, "b", "name of a part: expected NAME-00002-of-00002.gguf"},
        {{-1, 3, -1}, {-1, -1, -1}, "b", "name of a part: expected NAME-00001-of-00003.gguf"},
        {{-1, -1, 3}, {-1, -1, -1}, "b", "split.tensors.count: expected the 2 tensors of 2 parts, got 3"},
        {{-1, -1, -2}, {-1, -1, -1}, "b", "split.tensors.count: expected in the first part, got none"},
        {{7, -1, -1}, {-1, -1, -1}, "b", "split.no: expected less than split.count 2, got 7"},
        {{-1, -1, -1}, {-1, -1, -1}, "a", "tensor 'a': expected once, got it twice"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_part(0, "a", cases[i].first);
        write_part(1, cases[i].name, cases[i].second);
        assert_int_not_equal(gguf_open(&g, one, &err), CHURON_OK);
        assert_null(g);
        if (!strstr(err.message, cases[i].says)) fail_msg("case %zu: %s", i, err.message);
    }
    write_part(0, "a", truth);
    (void)unlink(two);
    assert_int_equal(gguf_open(&g, one, &err), CHURON_NOT_FOUND);
    assert_non_null(strstr(err.message, "m-00002-of-00002.gguf"));
    (void)unlink(one);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads_every_type),          cmocka_unit_test(test_typed_reads_name_the_key),
        cmocka_unit_test(test_truncated_at_every_byte),   cmocka_unit_test(test_every_changed_byte_is_safe),
        cmocka_unit_test(test_failing_allocations),       cmocka_unit_test(test_lies_are_refused_by_name),
        cmocka_unit_test(test_what_is_no_file),           cmocka_unit_test(test_random_files),
        cmocka_unit_test(test_large_counts_take_no_time), cmocka_unit_test(test_split_models),
    };
    return cmocka_run_group_tests(tests, make_dir, drop_dir);
}

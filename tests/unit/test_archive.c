/* test_archive.c: zip and tar.gz readers on the archives of tests/fuzz/seeds: whole, cut, and with every byte
 * changed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/mem.h"
#include "registry/pull/archive.h"

#include <stdio.h>
#include <string.h>

typedef status (*read_fn)(const uint8_t *, size_t, const archive_reader *, error *);

typedef struct taken {
    const char *end; /* of the member's name */
    str bytes, name;
    size_t members;
    uint64_t declared;
} taken;

static archive_action on_member(void *user, const archive_member *m) {
    taken *t = user;
    size_t n = strlen(m->name), k = strlen(t->end);
    t->members++;
    if (n < k || strcmp(m->name + n - k, t->end) != 0) return ARCHIVE_SKIP;
    t->declared = m->bytes;
    str_cat(&t->name, m->name);
    return ARCHIVE_TAKE;
}

static status on_bytes(void *user, const void *bytes, size_t n, error *err) {
    taken *t = user;
    str_add(&t->bytes, bytes, n);
    return str_check(&t->bytes, err);
}

static void model_bytes(str *want) {
    str_add(want, "GGUF", 4);
    for (int i = 0; i < 20 * 256; i++) str_put(want, (char)i);
}

static status read_one(read_fn read, const char *data, size_t n, taken *t, error *err) {
    const archive_reader r = {.user = t, .on_member = on_member, .on_bytes = on_bytes};
    return read((const uint8_t *)data, n, &r, err);
}

static void drop(taken *t) {
    str_free(&t->bytes);
    str_free(&t->name);
}

static void load(const char *name, str *out) {
    char path[256];
    error err;
    snprintf(path, sizeof path, "tests/fuzz/seeds/%s", name);
    if (file_read(out, path, 1 << 20, &err) != CHURON_OK) fail_msg("%s", err.message);
}

/* The member comes out whole; a cut archive is an error or gives the same bytes; a changed one never gives
 * other bytes without an error (`sums`: the format has a checksum of the contents). */
static void check_archive(read_fn read, const char *name, const char *member, bool sums) {
    str file = {0}, want = {0};
    error err;
    load(name, &file);
    model_bytes(&want);
    taken t = {.end = "model.gguf"};
    if (read_one(read, file.data, file.len, &t, &err) != CHURON_OK) fail_msg("%s: %s", name, err.message);
    assert_int_equal(t.members, 2);
    assert_int_equal(t.declared, want.len);
    assert_int_equal(t.bytes.len, want.len);
    assert_memory_equal(t.bytes.data, want.data, want.len);
    assert_string_equal(str_cstr(&t.name) + strlen(str_cstr(&t.name)) - strlen(member), member);
    drop(&t);

    size_t refused = 0;
    for (size_t n = 0; n < file.len; n++) {
        char *cut = mem_alloc(n); /* exact, so that a sanitizer sees a read past the end */
        assert_non_null(cut);
        memcpy(cut, file.data, n);
        t = (taken){.end = "model.gguf"};
        refused += read_one(read, cut, n, &t, &err) != CHURON_OK;
        drop(&t);
        mem_free(cut);
    }
    assert_true(refused + 64 >= file.len); /* only the end of a tar may go missing unnoticed */

    for (size_t i = 0; i < file.len; i++) {
        file.data[i] = (char)(file.data[i] ^ 0x41);
        t = (taken){.end = "model.gguf"};
        status st = read_one(read, file.data, file.len, &t, &err);
        if (sums && st == CHURON_OK && t.name.len) {
            if (t.bytes.len != want.len || memcmp(t.bytes.data, want.data, want.len) != 0)
                fail_msg("%s: byte %zu", name, i);
        }
        drop(&t);
        file.data[i] = (char)(file.data[i] ^ 0x41);
    }
    str_free(&file);
    str_free(&want);
}

static void test_zip(void **state) {
    (void)state;
    static const char *const names[] = {"zip/stored.zip", "zip/deflated.zip", "zip/zip64.zip",
                                        "zip/comment.zip"};
    for (size_t i = 0; i < 4; i++) check_archive(zip_read, names[i], "pkg/model.gguf", true);
}

static void test_tgz(void **state) {
    (void)state;
    char member[512] = "package/";
    check_archive(tgz_read, "tgz/ustar.tgz", "package/model.gguf", true);
    memset(member + 8, 'd', 90);
    member[98] = '/';
    memset(member + 99, 'e', 120);
    strcpy(member + 219, "/model.gguf");
    check_archive(tgz_read, "tgz/pax.tgz", member, true);
    check_archive(tgz_read, "tgz/gnu.tgz", member, true);
}

static void test_no_memory(void **state) {
    (void)state;
    static const char *const names[] = {"zip/deflated.zip", "tgz/pax.tgz"};
    static const read_fn reads[] = {zip_read, tgz_read};
    for (size_t i = 0; i < 2; i++) {
        str file = {0};
        error err;
        load(names[i], &file);
        for (int64_t n = 1;; n++) {
            taken t = {.end = "model.gguf"};
            mem_fail_at(n);
            status st = read_one(reads[i], file.data, file.len, &t, &err);
            mem_fail_at(0);
            bool done = st == CHURON_OK && !t.name.failed;
            drop(&t);
            if (done) break;
            assert_true(st == CHURON_OK || st == CHURON_NO_MEMORY);
            assert_true(n < 100);
        }
        str_free(&file);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_zip),
        cmocka_unit_test(test_tgz),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

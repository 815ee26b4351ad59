/* test_serve_keys.c: lines of a key file become tenants; what is wrong names its line and never the key. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "serve/keys.h"

#include <string.h>

static status parse(key_list *out, const char *text, error *err) {
    return keys_parse(out, text, strlen(text), "F", err);
}

static void test_lines(void **state) {
    (void)state;
    key_list l;
    assert_int_equal(parse(&l,
                           "# comment\nplain\n\n  \tspaced\t tenant=team-a  weight=2.5 admin \r\n"
                           "second tenant=team-a\nlast admin",
                           NULL),
                     CHURON_OK);
    assert_int_equal(l.n, 4);
    assert_string_equal(l.items[0].key, "plain");
    assert_string_equal(l.items[0].tenant, "#2");
    assert_true(l.items[0].weight == 1 && !l.items[0].admin);
    assert_string_equal(l.items[1].key, "spaced");
    assert_string_equal(l.items[1].tenant, "team-a");
    assert_true(l.items[1].weight == 2.5 && l.items[1].admin);
    assert_string_equal(l.items[2].key, "second");
    assert_true(l.items[2].weight == 2.5 && !l.items[2].admin); /* its tenant's */
    assert_string_equal(l.items[3].tenant, "#6");
    assert_true(l.items[3].admin);
    engine_tenant *t;
    size_t n;
    assert_int_equal(keys_tenants(&l, &t, &n, NULL), CHURON_OK);
    assert_int_equal(n, 1);
    assert_string_equal(t[0].name, "team-a");
    assert_true(t[0].weight == 2.5);
    mem_free(t);
    keys_free(&l);
}

static void test_a_later_weight_is_the_tenants_too(void **state) {
    (void)state;
    key_list l;
    assert_int_equal(parse(&l, "a tenant=t\nb tenant=t weight=3\nc tenant=t\n", NULL), CHURON_OK);
    for (size_t i = 0; i < 3; i++) assert_true(l.items[i].weight == 3);
    keys_free(&l);
}

static void test_refusals(void **state) {
    (void)state;
    static const struct {
        const char *text, *where;
    } wrong[] = {
        {"", "at least one key"},
        {"# only\n\n", "at least one key"},
        {"s3cret tenant=", "F:1: tenant"},
        {"ok\ns3cret tenant=a/b", "F:2: tenant"},
        {"s3cret tenant=#1", "F:1: tenant"},
        {"s3cret tenant=aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "F:1: tenant"},
        {"s3cret weight=0", "F:1: weight"},
        {"s3cret weight=-1", "F:1: weight"},
        {"s3cret weight=nan", "F:1: weight"},
        {"s3cret weight=1001", "F:1: weight"},
        {"s3cret weight=", "F:1: weight"},
        {"s3cret weight=1x", "F:1: weight"},
        {"s3cret weight=0x10", "F:1: weight"},
        {"s3cret weight=2 weight=2", "F:1: weight: expected once"},
        {"s3cret tenant=a tenant=b", "F:1: tenant: expected once"},
        {"same tenant=a\nother\nsame tenant=b", "F:3: key: expected once"},
        {"\xef\xbb\xbfs3cret", "F:1: key: expected visible ASCII"},
        {"s3\x01"
         "cret",
         "F:1: key: expected visible ASCII"},
        {"s3cret tenant=t weight=2\ns3cret2 tenant=t weight=3", "F:2: weight"},
        {"s3cret Admin", "F:1: expected tenant=NAME"},
        {"s3cret other s3cret", "F:1: expected tenant=NAME"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        key_list l;
        error err;
        assert_int_not_equal(parse(&l, wrong[i].text, &err), CHURON_OK);
        if (!strstr(err.message, wrong[i].where)) fail_msg("%s: %s", wrong[i].text, err.message);
        assert_null(strstr(err.message, "s3cret"));
        assert_true(l.n == 0 && !l.items);
    }
}

static void test_every_allocation_may_fail(void **state) {
    (void)state;
    for (int64_t n = 1;; n++) {
        key_list l;
        mem_fail_at(n);
        const status st = parse(&l, "a tenant=t weight=2\nb admin\n", NULL);
        mem_fail_at(0);
        if (st == CHURON_OK) {
            keys_free(&l);
            assert_true(n > 3);
            return;
        }
        assert_int_equal(st, CHURON_NO_MEMORY);
        assert_null(l.items);
    }
}

static void test_tenant_names(void **state) {
    (void)state;
    assert_true(tenant_name_is_valid("A.b_c-9", 7));
    assert_false(tenant_name_is_valid("", 0));
    assert_false(tenant_name_is_valid("#1", 2));
    assert_false(tenant_name_is_valid("a b", 3));
    assert_false(tenant_name_is_valid("a\0b", 3));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines),        cmocka_unit_test(test_a_later_weight_is_the_tenants_too),
        cmocka_unit_test(test_refusals),     cmocka_unit_test(test_every_allocation_may_fail),
        cmocka_unit_test(test_tenant_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

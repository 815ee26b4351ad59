/* test_template.c: chat templates: a typical one, errors with their line, limits, allocation failures. What
 * every construct gives is compared with Jinja2 in tests/oracle/test_template.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "text/template.h"

#include <string.h>

static const char CHATML[] =
    "{%- if messages[0].role != 'system' %}{{ '<|im_start|>system\\nYou help.<|im_end|>\\n' }}{%- endif %}\n"
    "{%- for message in messages %}\n"
    "  {%- set content = message.content | trim if message.content is string else '' %}\n"
    "{{- '<|im_start|>' ~ message['role'] ~ '\\n' ~ content ~ '<|im_end|>' }}\n"
    "{% endfor %}\n"
    "{%- if add_generation_prompt %}\n"
    "    {{- '<|im_start|>assistant\\n' }}\n"
    "{%- endif %}\n";

static tvalue *message(tarena *a, const char *role, const char *content) {
    tvalue *m = tvalue_dict(a);
    m = tvalue_dict_set(a, m, "role", tvalue_string(a, role, strlen(role)));
    return tvalue_dict_set(a, m, "content", tvalue_string(a, content, strlen(content)));
}

static tvalue *chat(tarena *a) {
    tvalue *messages = tvalue_list(a), *c = tvalue_dict(a);
    messages = tvalue_list_add(a, messages, message(a, "user", " Hello \xec\x95\x88\xeb\x85\x95 "));
    messages = tvalue_list_add(a, messages, message(a, "assistant", "Hi."));
    c = tvalue_dict_set(a, c, "messages", messages);
    c = tvalue_dict_set(a, c, "number", tvalue_float(a, 0.1));
    return tvalue_dict_set(a, c, "add_generation_prompt", tvalue_bool(a, true));
}

static status render(const char *source, const template_limits *limits, str *out, error *err) {
    template *t = NULL;
    tarena *a = NULL;
    status st = template_parse(&t, source, strlen(source), err);
    if (st == CHURON_OK) st = tarena_create(&a, err);
    if (st == CHURON_OK) st = template_render(t, chat(a), 0, limits, out, err);
    tarena_free(a);
    template_free(t);
    return st;
}

static void assert_renders(const char *source, const char *expected) {
    str out = {0};
    error err = {0};
    status st = render(source, NULL, &out, &err);
    if (st != CHURON_OK) fail_msg("%s: %s", source, err.message);
    assert_string_equal(str_cstr(&out), expected);
    str_free(&out);
}

/* Fails with the status and a message that contains `expected`; the output stays as it was. */
static void assert_fails(const char *source, const template_limits *limits, status code,
                         const char *expected) {
    str out = {0};
    error err = {0};
    str_cat(&out, "before");
    status st = render(source, limits, &out, &err);
    if (st != code || !strstr(err.message, expected)) {
        fail_msg("%.60s: expected %s '%s', got %s '%s'", source, churon_status_name(code), expected,
                 churon_status_name(st), err.message);
    }
    assert_string_equal(str_cstr(&out), "before");
    str_free(&out);
}

static void renders_a_chat(void **state) {
    (void)state;
    assert_renders(CHATML, "<|im_start|>system\nYou help.<|im_end|>\n"
                           "<|im_start|>user\nHello \xec\x95\x88\xeb\x85\x95<|im_end|>\n"
                           "<|im_start|>assistant\nHi.<|im_end|>\n"
                           "<|im_start|>assistant\n");
}

static void follows_the_scopes_of_jinja(void **state) {
    (void)state;
    assert_renders("{% set x = 1 %}{% for i in [1, 2] %}{% set x = x + 1 %}{{ x }}{% endfor %}{{ x }}",
                   "221");
    assert_renders(
        "{% set n = namespace(x=0) %}{% for i in range(4) %}{% set n.x = n.x + i %}{% endfor %}{{ n.x }}",
        "6");
    assert_renders("{% macro f() %}{{ x }}{% endmacro %}{% set x = 5 %}{{ f() }}", "5");
    assert_renders("{% set number %}[{{ number }}]{% endset %}{{ number }}", "[]");
    assert_renders("{% for i in [3] if loop is undefined %}{{ loop.index }}{% endfor %}", "1");
    assert_renders("{% for i in [1, 2] %}{% continue %}{% else %}else{% endfor %}", "else");
    assert_renders("{% for i in [1, [2, [3]]] recursive %}{{ i if i is number else loop(i) }}{% endfor %}",
                   "123");
}

static void errors_name_line_and_cause(void **state) {
    (void)state;
    assert_fails("a\n\n{{ missing.x }}", NULL, CHURON_INVALID, "line 3: 'missing' is undefined");
    assert_fails("a\n{% if x %}", NULL, CHURON_INVALID,
                 "line 2: unexpected end of the template, expected 'elif'");
    assert_fails("{{ raise_exception('roles must\nalternate') }}", NULL, CHURON_INVALID,
                 "roles must?alternate");
    assert_fails("\n{% include 'x' %}", NULL, CHURON_UNSUPPORTED, "line 2: tag 'include' is not supported");
    assert_fails("\n{{ [1]|random }}", NULL, CHURON_UNSUPPORTED, "line 2: filter 'random' is not supported");
    assert_fails("{{ 9223372036854775807 + 1 }}", NULL, CHURON_UNSUPPORTED, "more than 64 bits");
    assert_fails("{{ messages.append(1) }}", NULL, CHURON_INVALID, "unsafe");
    assert_fails("text {{ messages[0].nothing.x }}", NULL, CHURON_INVALID,
                 "'dict object' has no attribute 'nothing'");
    assert_fails("{{ '\xff' }}", NULL, CHURON_INVALID, "template: expected UTF-8, got byte 0xFF at offset 4");
}

static void repeated(char *to, const char *part, size_t times) {
    for (size_t i = 0; i < times; i++) memcpy(to + i * strlen(part), part, strlen(part));
    to[times * strlen(part)] = '\0';
}

static void work_is_bounded(void **state) {
    (void)state;
    template_limits few = {.max_steps = 1000, .max_depth = 50, .max_output = 1000};
    double start = clock_seconds();
    assert_fails("{{ range(10**9) }}", NULL, CHURON_LIMIT, "range of 1000000000 items, at most 100000");
    assert_fails("{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}", NULL,
                 CHURON_LIMIT, "more than 10000000 steps");
    assert_fails("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", NULL, CHURON_LIMIT,
                 "nested deeper than 1000");
    assert_fails("{{ 'a' * 10**9 }}", NULL, CHURON_LIMIT, "a string of more than 67108864 bytes");
    assert_fails(
        "{% set n = namespace(x='ab') %}{% for i in range(99) %}{% set n.x = n.x ~ n.x %}{% endfor %}", NULL,
        CHURON_LIMIT, "a string of more than 67108864 bytes");
    assert_fails(
        "{% set n = namespace(x=[0]) %}{% for i in range(99) %}{% set n.x = n.x + n.x %}{% endfor %}", NULL,
        CHURON_LIMIT, "more than");
    assert_fails("{% set n = namespace(x=()) %}{% for i in range(99) %}{% set n.x = (n.x, n.x) %}{% endfor "
                 "%}{{ {n.x: 1} }}",
                 NULL, CHURON_INVALID, "unhashable");
    assert_fails("{% set n = namespace(x=(), y=()) %}{% for i in range(99) %}{% set n.x = (n.x, n.x) %}"
                 "{% set n.y = (n.y, n.y) %}{% endfor %}{{ n.x == n.x }}{{ n.x == n.y }}",
                 NULL, CHURON_LIMIT, "steps");
    assert_fails("{% for i in range(100000) %}{{ 'x' * 1000 }}{% endfor %}", NULL, CHURON_LIMIT,
                 "output of more than 67108864 bytes");
    assert_fails("{% for i in range(1000) %}x{% endfor %}", &few, CHURON_LIMIT, "more than 1000 steps");
    assert_fails("{% for i in range(99) %}{{ '0123456789' }}{{ '0123456789' }}{% endfor %}", &few,
                 CHURON_LIMIT, "output of more than 1000 bytes");
    assert_fails("{% for i in [0] recursive %}{{ loop([0]) }}{% endfor %}", &few, CHURON_LIMIT,
                 "nested deeper than 50");
    static char deep[300000];
    deep[0] = '{', deep[1] = '{';
    repeated(deep + 2, "(", 100000);
    assert_fails(deep, NULL, CHURON_LIMIT, "brackets nested deeper than 200");
    repeated(deep + 2, "-", 100000);
    assert_fails(deep, NULL, CHURON_LIMIT, "nested deeper than 200");
    repeated(deep + 2, "a|e", 90000);
    memcpy(deep + 2, "a  ", 3);
    repeated(deep + 5, "|e ", 90000);
    assert_fails(deep, NULL, CHURON_LIMIT, "an expression of more than 200 levels");
    repeated(deep, "{%if a%}", 30000);
    assert_fails(deep, NULL, CHURON_LIMIT, "nested deeper than 200");
    assert_true(clock_seconds() - start < 30);
}

/* Every allocation of parsing and rendering fails once; each failure is reported as such. */
static void survives_allocation_failures(void **state) {
    (void)state;
    static const char *const sources[] = {
        CHATML,
        "{% macro f(a, b=2) %}{{ a ~ b ~ caller() }}{% endmacro %}{% call f([1, {'k': "
        "number}]|tojson(indent=2)) %}x{% endcall %}",
        "{{ messages|map(attribute='role')|list|sort|join(', ') }}{{ '%5.2f|{}' % number }}{% set x %}{{ "
        "range(300)|list }}{% "
        "endset %}{{ x|length }}{{ strftime_now('%d %b %Y') }}",
    };
    for (size_t i = 0; i < sizeof sources / sizeof sources[0]; i++) {
        bool done = false;
        for (int64_t n = 1; !done && n < 5000; n++) {
            str out = {0};
            error err = {0};
            str_cat(&out, "before");
            mem_fail_at(n);
            status st = render(sources[i], NULL, &out, &err);
            mem_fail_at(0);
            done = st == CHURON_OK;
            if (!done) {
                if (st != CHURON_NO_MEMORY)
                    fail_msg("allocation %d of source %zu: %s", (int)n, i, err.message);
                assert_string_equal(str_cstr(&out), "before");
            }
            str_free(&out);
        }
        assert_true(done);
    }
}

static void refuses_a_wrong_context(void **state) {
    (void)state;
    template *t = NULL;
    tarena *a = NULL;
    str out = {0};
    error err = {0};
    assert_int_equal(template_parse(&t, "x", 1, &err), CHURON_OK);
    assert_int_equal(tarena_create(&a, &err), CHURON_OK);
    assert_int_equal(template_render(t, tvalue_list(a), 0, NULL, &out, &err), CHURON_INVALID);
    assert_int_equal(template_render(t, NULL, 0, NULL, &out, &err), CHURON_NO_MEMORY);
    tvalue *c = tvalue_dict_set(a, tvalue_dict(a), "x", tvalue_string(a, "ab\xc0", 3));
    assert_int_equal(template_render(t, c, 0, NULL, &out, &err), CHURON_INVALID);
    assert_non_null(strstr(err.message, "offset 2"));
    assert_null(tvalue_list_add(a, NULL, tvalue_none(a)));
    assert_null(tvalue_dict_set(a, tvalue_dict(a), "x", NULL));
    str_free(&out);
    tarena_free(a);
    template_free(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(renders_a_chat),
        cmocka_unit_test(follows_the_scopes_of_jinja),
        cmocka_unit_test(errors_name_line_and_cause),
        cmocka_unit_test(work_is_bounded),
        cmocka_unit_test(survives_allocation_failures),
        cmocka_unit_test(refuses_a_wrong_context),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* template_tests.c: what stands after `is`. */
#include "text/template_internal.h"

#include <string.h>

typedef tvalue T;

#define KIND_TEST(name, condition)                                                                           \
    static status name(tpl_rt *rt, T v, T arg, bool *out) {                                                  \
        (void)rt;                                                                                            \
        (void)arg;                                                                                           \
        *out = (condition);                                                                                  \
        return CHURON_OK;                                                                                    \
    }

KIND_TEST(is_defined, v.kind != TPL_UNDEFINED)
KIND_TEST(is_undefined, v.kind == TPL_UNDEFINED)
KIND_TEST(is_none, v.kind == TPL_NONE)
KIND_TEST(is_boolean, v.kind == TPL_BOOL)
KIND_TEST(is_true, v.kind == TPL_BOOL && v.b)
KIND_TEST(is_false, v.kind == TPL_BOOL && !v.b)
KIND_TEST(is_integer, v.kind == TPL_INT)
KIND_TEST(is_float, v.kind == TPL_FLOAT)
KIND_TEST(is_number, v.kind == TPL_INT || v.kind == TPL_FLOAT || v.kind == TPL_BOOL)
KIND_TEST(is_string, v.kind == TPL_STRING)
KIND_TEST(is_mapping, v.kind == TPL_DICT)
KIND_TEST(is_sequence, v.kind == TPL_UNDEFINED || (v.kind >= TPL_STRING && v.kind <= TPL_RANGE))
KIND_TEST(is_iterable, tpl_iterable(v))
KIND_TEST(is_callable, v.kind == TPL_UNDEFINED || (v.kind >= TPL_MACRO && v.kind != TPL_CYCLER))
KIND_TEST(is_escaped, v.kind == TPL_STRING && (v.flags & TPL_MARKUP))
KIND_TEST(is_filter, v.kind == TPL_STRING && tpl_filter_find(v))
KIND_TEST(is_test, v.kind == TPL_STRING && tpl_test_find(v))

static status remainder_is(tpl_rt *rt, T v, T by, int64_t want, bool *out) {
    T r;
    TRY(tpl_binary(rt, TPL_N_MOD, v, by, &r));
    return tpl_equal(rt, r, tpl_int(want), out);
}

static status is_odd(tpl_rt *rt, T v, T arg, bool *out) {
    (void)arg;
    return remainder_is(rt, v, tpl_int(2), 1, out);
}

static status is_even(tpl_rt *rt, T v, T arg, bool *out) {
    (void)arg;
    return remainder_is(rt, v, tpl_int(2), 0, out);
}

static status is_divisibleby(tpl_rt *rt, T v, T arg, bool *out) {
    return remainder_is(rt, v, arg, 0, out);
}

static status cased(tpl_rt *rt, T v, bool upper, bool *out) {
    TRY(tpl_str(rt, v, &v));
    *out = tpl_all_cased(v, upper);
    return tpl_steps(rt, v.len / 8);
}

static status is_lower(tpl_rt *rt, T v, T arg, bool *out) {
    (void)arg;
    return cased(rt, v, false, out);
}

static status is_upper(tpl_rt *rt, T v, T arg, bool *out) {
    (void)arg;
    return cased(rt, v, true, out);
}

/* Identity. For equal numbers and strings it depends on what Python happens to share: refused. */
static status is_sameas(tpl_rt *rt, T v, T arg, bool *out) {
    *out = false;
    if (v.kind != arg.kind) return CHURON_OK;
    switch ((tpl_kind)v.kind) {
    case TPL_NONE: *out = true; return CHURON_OK;
    case TPL_BOOL: *out = v.b == arg.b; return CHURON_OK;
    case TPL_INT:
    case TPL_FLOAT:
    case TPL_STRING: {
        bool same;
        TRY(tpl_equal(rt, v, arg, &same));
        bool small = v.kind == TPL_INT && v.i >= -5 && v.i <= 256;
        if (same && !small)
            return tpl_refuse(rt, "sameas of equal values of type %s is not defined", tpl_type_name(v));
        *out = same;
        return CHURON_OK;
    }
    case TPL_UNDEFINED:
    case TPL_VIEW:
    case TPL_METHOD: return tpl_refuse(rt, "sameas of values of type %s is not supported", tpl_type_name(v));
    case TPL_FUNCTION: *out = v.sub == arg.sub; return CHURON_OK;
    default: *out = v.macro == arg.macro; return CHURON_OK;
    }
}

static status is_in(tpl_rt *rt, T v, T arg, bool *out) {
    return tpl_contains(rt, v, arg, out);
}

#define COMPARISON(name, op)                                                                                 \
    static status name(tpl_rt *rt, T v, T arg, bool *out) {                                                  \
        return tpl_compare(rt, op, v, arg, out);                                                             \
    }

COMPARISON(is_eq, TPL_EQ)
COMPARISON(is_ne, TPL_NE)
COMPARISON(is_lt, TPL_LT)
COMPARISON(is_le, TPL_LE)
COMPARISON(is_gt, TPL_GT)
COMPARISON(is_ge, TPL_GE)

static const tpl_test TESTS[] = {
    {"defined", is_defined, 0, ""},
    {"undefined", is_undefined, 0, ""},
    {"none", is_none, 0, ""},
    {"string", is_string, 0, ""},
    {"mapping", is_mapping, 0, ""},
    {"iterable", is_iterable, 0, ""},
    {"sequence", is_sequence, 0, ""},
    {"boolean", is_boolean, 0, ""},
    {"true", is_true, 0, ""},
    {"false", is_false, 0, ""},
    {"integer", is_integer, 0, ""},
    {"float", is_float, 0, ""},
    {"number", is_number, 0, ""},
    {"callable", is_callable, 0, ""},
    {"escaped", is_escaped, 0, ""},
    {"filter", is_filter, 0, ""},
    {"test", is_test, 0, ""},
    {"odd", is_odd, 0, ""},
    {"even", is_even, 0, ""},
    {"lower", is_lower, 0, ""},
    {"upper", is_upper, 0, ""},
    {"divisibleby", is_divisibleby, 1, "num"},
    {"sameas", is_sameas, 1, "other"},
    {"in", is_in, 1, "seq"},
    {"==", is_eq, 1, ""},
    {"eq", is_eq, 1, ""},
    {"equalto", is_eq, 1, ""},
    {"!=", is_ne, 1, ""},
    {"ne", is_ne, 1, ""},
    {"<", is_lt, 1, ""},
    {"lt", is_lt, 1, ""},
    {"lessthan", is_lt, 1, ""},
    {"<=", is_le, 1, ""},
    {"le", is_le, 1, ""},
    {">", is_gt, 1, ""},
    {"gt", is_gt, 1, ""},
    {"greaterthan", is_gt, 1, ""},
    {">=", is_ge, 1, ""},
    {"ge", is_ge, 1, ""},
};

const tpl_test *tpl_test_find(tvalue name) {
    for (size_t i = 0; i < sizeof TESTS / sizeof TESTS[0]; i++) {
        if (tpl_str_is(name, TESTS[i].name)) return &TESTS[i];
    }
    return NULL;
}

status tpl_run_test(tpl_rt *rt, const tpl_test *t, tvalue in, const tpl_args *args, bool *out) {
    T arg = {.kind = TPL_MISSING};
    const char *const names[] = {t->arg_name};
    TRY(tpl_bind(rt, t->name, args, names, t->args, t->args, &arg));
    return t->fn(rt, in, arg, out);
}

/* template_ops.c: operators with Python's meaning. Integers have 64 bits; what Python would compute with
 * more, and what has no finite value, is an error. */
#include "text/template_internal.h"

#include <math.h>
#include <string.h>

/* ---- classes of values ------------------------------------------------------------------------------ */

bool tpl_as_double(tvalue v, double *out) {
    int64_t i;
    if (v.kind == TPL_FLOAT) {
        *out = v.f;
        return true;
    }
    if (!tpl_as_int(v, &i)) return false;
    *out = (double)i;
    return true;
}

bool tpl_truth(tvalue v) {
    switch ((tpl_kind)v.kind) {
    case TPL_MISSING:
    case TPL_UNDEFINED:
    case TPL_NONE: return false;
    case TPL_BOOL: return v.b;
    case TPL_INT: return v.i != 0;
    case TPL_FLOAT: return v.f != 0;
    case TPL_STRING: return v.len != 0;
    case TPL_LIST:
    case TPL_TUPLE: return v.list->n != 0;
    case TPL_DICT:
    case TPL_VIEW: return v.dict->n != 0;
    case TPL_RANGE: return v.range->n != 0;
    default: return true;
    }
}

status tpl_is_true(tpl_rt *rt, tvalue v, bool *out) {
    int64_t length;
    if (v.kind == TPL_LOOP) TRY(tpl_loop_length(rt, v.loop, &length));
    *out = tpl_truth(v);
    return CHURON_OK;
}

const char *tpl_type_name(tvalue v) {
    switch ((tpl_kind)v.kind) {
    case TPL_MISSING:
    case TPL_UNDEFINED: return "Undefined";
    case TPL_NONE: return "NoneType";
    case TPL_BOOL: return "bool";
    case TPL_INT: return "int";
    case TPL_FLOAT: return "float";
    case TPL_STRING: return v.flags & TPL_MARKUP ? "Markup" : "str";
    case TPL_LIST: return "list";
    case TPL_TUPLE: return "tuple";
    case TPL_DICT: return "dict";
    case TPL_RANGE: return "range";
    case TPL_VIEW:
        return v.sub == TPL_KEYS ? "dict_keys" : v.sub == TPL_VALUES ? "dict_values" : "dict_items";
    case TPL_ITER: return "generator";
    case TPL_NAMESPACE: return "namespace";
    case TPL_MACRO: return "Macro";
    case TPL_FUNCTION: return "function";
    case TPL_METHOD: return "method";
    case TPL_LOOP: return "LoopContext";
    case TPL_CYCLER: return "Cycler";
    case TPL_JOINER: return "Joiner";
    }
    return "?";
}

/* ---- undefined values ------------------------------------------------------------------------------- */

status tpl_undefined_error(tpl_rt *rt, tvalue v) {
    const tpl_undefined *u = v.undefined;
    tvalue name = u->name;
    int len = name.kind == TPL_STRING ? (int)(name.len > 100 ? 100 : name.len) : 0;
    if (u->hint && len) return tpl_fail(rt, "%s: '%.*s'", u->hint, len, name.s);
    if (u->hint) return tpl_fail(rt, "%s", u->hint);
    if (u->obj.kind == TPL_MISSING) return tpl_fail(rt, "'%.*s' is undefined", len, name.s);
    const char *type = u->obj.kind == TPL_NONE ? "None" : tpl_type_name(u->obj);
    const char *object = u->obj.kind == TPL_NONE ? "" : " object";
    if (name.kind == TPL_STRING)
        return tpl_fail(rt, "'%s%s' has no attribute '%.*s'", type, object, len, name.s);
    if (name.kind == TPL_INT)
        return tpl_fail(rt, "%s%s has no element %lld", type, object, (long long)name.i);
    return tpl_fail(rt, "%s%s has no such element", type, object);
}

/* ---- arithmetic ------------------------------------------------------------------------------------- */

static status overflow(tpl_rt *rt) {
    return tpl_refuse(rt, "an integer of more than 64 bits");
}

static status finite(tpl_rt *rt, double d, tvalue *out) {
    if (!isfinite(d)) return tpl_fail(rt, "a number that is not finite");
    *out = tpl_float(d);
    return CHURON_OK;
}

static bool add_int(int64_t a, int64_t b, int64_t *r) {
    if (b > 0 ? a > INT64_MAX - b : a < INT64_MIN - b) return false;
    *r = a + b;
    return true;
}

static bool sub_int(int64_t a, int64_t b, int64_t *r) {
    if (b < 0 ? a > INT64_MAX + b : a < INT64_MIN + b) return false;
    *r = a - b;
    return true;
}

static bool mul_int(int64_t a, int64_t b, int64_t *r) {
    if (a > 0 ? (b > 0 ? a > INT64_MAX / b : b < INT64_MIN / a)
              : (b > 0 ? a < INT64_MIN / b : a != 0 && b < INT64_MAX / a)) {
        return false;
    }
    *r = a * b;
    return true;
}

static status pow_int(tpl_rt *rt, int64_t base, int64_t exponent, tvalue *out) {
    if (exponent < 0) {
        if (base == 0) return tpl_fail(rt, "0 cannot be raised to a negative power");
        if (base > (INT64_C(1) << 53) || base < -(INT64_C(1) << 53)) return overflow(rt);
        return finite(rt, pow((double)base, (double)exponent), out);
    }
    int64_t r = 1;
    while (exponent > 0) {
        if ((exponent & 1) && !mul_int(r, base, &r)) return overflow(rt);
        exponent >>= 1;
        if (exponent && !mul_int(base, base, &base)) return overflow(rt);
    }
    *out = tpl_int(r);
    return CHURON_OK;
}

static status div_int(tpl_rt *rt, tpl_op op, int64_t a, int64_t b, tvalue *out) {
    if (b == 0) return tpl_fail(rt, "division by zero");
    if (op == TPL_N_DIV) {
        const int64_t exact = INT64_C(1) << 53; /* above, a double is not the integer */
        if (a > exact || a < -exact || b > exact || b < -exact) return overflow(rt);
        return finite(rt, (double)a / (double)b, out);
    }
    if (a == INT64_MIN && b == -1) {
        if (op == TPL_N_FLOORDIV) return overflow(rt);
        *out = tpl_int(0);
        return CHURON_OK;
    }
    int64_t q = a / b, r = a % b;
    if (r != 0 && (r < 0) != (b < 0)) {
        q--;
        r += b;
    }
    *out = tpl_int(op == TPL_N_FLOORDIV ? q : r);
    return CHURON_OK;
}

static status int_op(tpl_rt *rt, tpl_op op, int64_t a, int64_t b, tvalue *out) {
    int64_t r = 0;
    bool good;
    switch (op) {
    case TPL_N_ADD: good = add_int(a, b, &r); break;
    case TPL_N_SUB: good = sub_int(a, b, &r); break;
    case TPL_N_MUL: good = mul_int(a, b, &r); break;
    case TPL_N_POW: return pow_int(rt, a, b, out);
    default: return div_int(rt, op, a, b, out);
    }
    if (!good) return overflow(rt);
    *out = tpl_int(r);
    return CHURON_OK;
}

/* Floor division and remainder of floats, with the sign of the divisor. */
static status divmod_float(tpl_rt *rt, tpl_op op, double a, double b, tvalue *out) {
    if (b == 0) return tpl_fail(rt, "float division by zero");
    double mod = fmod(a, b), div = (a - mod) / b;
    if (mod != 0) {
        if ((b < 0) != (mod < 0)) {
            mod += b;
            div -= 1.0;
        }
    } else {
        mod = copysign(0.0, b);
    }
    if (op == TPL_N_MOD) return finite(rt, mod, out);
    double floored = copysign(0.0, a / b);
    if (div != 0) {
        floored = floor(div);
        if (div - floored > 0.5) floored += 1.0;
    }
    return finite(rt, floored, out);
}

static status float_op(tpl_rt *rt, tpl_op op, double a, double b, tvalue *out) {
    switch (op) {
    case TPL_N_ADD: return finite(rt, a + b, out);
    case TPL_N_SUB: return finite(rt, a - b, out);
    case TPL_N_MUL: return finite(rt, a * b, out);
    case TPL_N_DIV:
        if (b == 0) return tpl_fail(rt, "float division by zero");
        return finite(rt, a / b, out);
    case TPL_N_POW:
        if (a == 0 && b < 0) return tpl_fail(rt, "0.0 cannot be raised to a negative power");
        if (a < 0 && floor(b) != b) return tpl_refuse(rt, "a complex number");
        return finite(rt, pow(a, b), out);
    default: return divmod_float(rt, op, a, b, out);
    }
}

static const char *operator_text(tpl_op op) {
    switch (op) {
    case TPL_N_ADD: return "+";
    case TPL_N_SUB: return "-";
    case TPL_N_MUL: return "*";
    case TPL_N_DIV: return "/";
    case TPL_N_FLOORDIV: return "//";
    case TPL_N_MOD: return "%";
    default: return "**";
    }
}

static status add_lists(tpl_rt *rt, tvalue a, tvalue b, tvalue *out) {
    tpl_list *list = tpl_list_new(rt->arena, a.list->n + b.list->n);
    if (!list) return tpl_memory(rt);
    TRY(tpl_steps(rt, a.list->n + b.list->n));
    for (size_t i = 0; i < a.list->n; i++) list->v[list->n++] = a.list->v[i];
    for (size_t i = 0; i < b.list->n; i++) list->v[list->n++] = b.list->v[i];
    *out = (tvalue){.kind = a.kind, .list = list};
    return CHURON_OK;
}

static status repeat_list(tpl_rt *rt, tvalue a, int64_t times, tvalue *out) {
    if (times < 0) times = 0;
    size_t n;
    if (!size_mul(a.list->n, (size_t)times, &n) || n > rt->limits.max_output / sizeof(tvalue)) {
        return tpl_limit(rt, "a list of more than %zu items", rt->limits.max_output / sizeof(tvalue));
    }
    TRY(tpl_steps(rt, n));
    tpl_list *list = tpl_list_new(rt->arena, n);
    if (!list) return tpl_memory(rt);
    while (list->n < n) list->v[list->n] = a.list->v[list->n % a.list->n], list->n++;
    *out = (tvalue){.kind = a.kind, .list = list};
    return CHURON_OK;
}

static status add_strings(tpl_rt *rt, tvalue a, tvalue b, tvalue *out) {
    uint8_t markup = (a.flags | b.flags) & TPL_MARKUP;
    if (markup) {
        TRY(tpl_escape(rt, a, &a));
        TRY(tpl_escape(rt, b, &b));
    }
    TRY(tpl_concat(rt, a, b, out));
    out->flags |= markup;
    return CHURON_OK;
}

status tpl_binary(tpl_rt *rt, tpl_op op, tvalue a, tvalue b, tvalue *out) {
    int64_t i = 0, j = 0;
    double x, y;
    bool ai = tpl_as_int(a, &i), bi = tpl_as_int(b, &j);
    if (ai && bi) return int_op(rt, op, i, j, out);
    if (tpl_as_double(a, &x) && tpl_as_double(b, &y)) return float_op(rt, op, x, y, out);
    if (op == TPL_N_MOD && a.kind == TPL_STRING) return tpl_printf(rt, a, b, out);
    if (a.kind == TPL_UNDEFINED) return tpl_undefined_error(rt, a);
    if (b.kind == TPL_UNDEFINED) return tpl_undefined_error(rt, b);
    if (op == TPL_N_ADD) {
        if (a.kind == TPL_STRING && b.kind == TPL_STRING) return add_strings(rt, a, b, out);
        if (tpl_is_seq(a) && a.kind == b.kind) return add_lists(rt, a, b, out);
    }
    if (op == TPL_N_MUL) {
        if (a.kind == TPL_STRING && bi) return tpl_repeat(rt, a, j, out);
        if (b.kind == TPL_STRING && ai) return tpl_repeat(rt, b, i, out);
        if (tpl_is_seq(a) && bi) return repeat_list(rt, a, j, out);
        if (tpl_is_seq(b) && ai) return repeat_list(rt, b, i, out);
    }
    if (a.kind == TPL_VIEW && b.kind == TPL_VIEW && op == TPL_N_SUB)
        return tpl_refuse(rt, "sets are not supported");
    return tpl_fail(rt, "unsupported operand types for %s: '%s' and '%s'", operator_text(op),
                    tpl_type_name(a), tpl_type_name(b));
}

status tpl_negate(tpl_rt *rt, tpl_op op, tvalue a, tvalue *out) {
    int64_t i;
    if (a.kind == TPL_UNDEFINED) return tpl_undefined_error(rt, a);
    if (tpl_as_int(a, &i)) {
        if (op == TPL_N_NEG && i == INT64_MIN) return overflow(rt);
        *out = tpl_int(op == TPL_N_NEG ? -i : i);
        return CHURON_OK;
    }
    if (a.kind == TPL_FLOAT) {
        *out = tpl_float(op == TPL_N_NEG ? -a.f : a.f);
        return CHURON_OK;
    }
    return tpl_fail(rt, "bad operand type for unary %s: '%s'", op == TPL_N_NEG ? "-" : "+", tpl_type_name(a));
}

/* ---- comparison ------------------------------------------------------------------------------------- */

/* An integer against a float, exactly. */
static int compare_mixed(int64_t i, double d) {
    if (isnan(d)) return 2;
    if (d >= 9223372036854775808.0) return -1;
    if (d < -9223372036854775808.0) return 1;
    double whole = floor(d);
    int64_t w = (int64_t)whole;
    if (i != w) return i < w ? -1 : 1;
    return d > whole ? -1 : 0;
}

int tpl_compare_numbers(tvalue a, tvalue b) {
    int64_t i, j;
    bool ai = tpl_as_int(a, &i), bi = tpl_as_int(b, &j);
    if (ai && bi) return i < j ? -1 : i > j;
    if (ai) return compare_mixed(i, b.f);
    if (bi) {
        int c = compare_mixed(j, a.f);
        return c == 2 ? 2 : -c;
    }
    if (isnan(a.f) || isnan(b.f)) return 2;
    return a.f < b.f ? -1 : a.f > b.f;
}

static bool is_number(tvalue v) {
    return v.kind == TPL_INT || v.kind == TPL_BOOL || v.kind == TPL_FLOAT;
}

static status equal_items(tpl_rt *rt, const tpl_list *a, const tpl_list *b, bool *out) {
    *out = a->n == b->n;
    for (size_t i = 0; i < a->n && *out; i++) TRY(tpl_equal(rt, a->v[i], b->v[i], out));
    return CHURON_OK;
}

static status equal_dicts(tpl_rt *rt, const tpl_dict *a, const tpl_dict *b, bool *out) {
    *out = a->n == b->n;
    for (size_t i = 0; i < a->n && *out; i++) {
        const tvalue *other = tpl_dict_find(b, a->entries[i].key, a->entries[i].hash);
        *out = other != NULL;
        if (other) TRY(tpl_equal(rt, a->entries[i].value, *other, out));
    }
    return CHURON_OK;
}

status tpl_equal(tpl_rt *rt, tvalue a, tvalue b, bool *out) {
    TRY(tpl_steps(rt, 1));
    if (is_number(a) || is_number(b)) {
        *out = is_number(a) && is_number(b) && tpl_compare_numbers(a, b) == 0;
        return CHURON_OK;
    }
    *out = false;
    if (a.kind != b.kind) return CHURON_OK;
    switch ((tpl_kind)a.kind) {
    case TPL_UNDEFINED:
    case TPL_NONE: *out = true; return CHURON_OK;
    case TPL_STRING:
        *out = a.len == b.len && memcmp(a.s, b.s, a.len) == 0;
        return tpl_steps(rt, *out ? a.len / 64 : 0);
    case TPL_LIST:
    case TPL_TUPLE:
    case TPL_DICT:
        *out = a.list == b.list;
        if (*out) return CHURON_OK;
        TRY(tpl_enter(rt));
        TRY(a.kind == TPL_DICT ? equal_dicts(rt, a.dict, b.dict, out) : equal_items(rt, a.list, b.list, out));
        rt->depth--;
        return CHURON_OK;
    case TPL_RANGE:
        *out = a.range->n == b.range->n &&
               (a.range->n == 0 ||
                (a.range->start == b.range->start && (a.range->n == 1 || a.range->step == b.range->step)));
        return CHURON_OK;
    case TPL_VIEW:
        if (a.dict == b.dict && a.sub == b.sub && a.sub != TPL_VALUES) {
            *out = true;
            return CHURON_OK;
        }
        return tpl_refuse(rt, "comparing views of dicts is not supported");
    case TPL_METHOD: return tpl_refuse(rt, "comparing methods is not supported");
    case TPL_FUNCTION: *out = a.sub == b.sub; return CHURON_OK;
    default: *out = a.macro == b.macro; return CHURON_OK;
    }
}

static const char *comparison_text(tpl_cmp op) {
    return op == TPL_LT ? "<" : op == TPL_LE ? "<=" : op == TPL_GT ? ">" : ">=";
}

static status order(tpl_rt *rt, tpl_cmp op, tvalue a, tvalue b, bool *out);

static status order_items(tpl_rt *rt, tpl_cmp op, const tpl_list *a, const tpl_list *b, bool *out) {
    for (size_t i = 0; i < a->n && i < b->n; i++) {
        bool same;
        TRY(tpl_equal(rt, a->v[i], b->v[i], &same));
        if (!same) return order(rt, op, a->v[i], b->v[i], out);
    }
    tvalue x = tpl_int((int64_t)a->n), y = tpl_int((int64_t)b->n);
    return order(rt, op, x, y, out);
}

static status order(tpl_rt *rt, tpl_cmp op, tvalue a, tvalue b, bool *out) {
    int c;
    if (is_number(a) && is_number(b)) {
        c = tpl_compare_numbers(a, b);
    } else if (a.kind == TPL_STRING && b.kind == TPL_STRING) {
        size_t n = a.len < b.len ? a.len : b.len;
        c = n ? memcmp(a.s, b.s, n) : 0; /* the order of UTF-8 is the order of code points */
        if (c == 0) c = a.len < b.len ? -1 : a.len > b.len;
        TRY(tpl_steps(rt, n / 64));
    } else if (tpl_is_seq(a) && a.kind == b.kind) {
        TRY(tpl_enter(rt));
        TRY(order_items(rt, op, a.list, b.list, out));
        rt->depth--;
        return CHURON_OK;
    } else if (a.kind == TPL_UNDEFINED || b.kind == TPL_UNDEFINED) {
        return tpl_undefined_error(rt, a.kind == TPL_UNDEFINED ? a : b);
    } else if (a.kind == TPL_VIEW && b.kind == TPL_VIEW) {
        return tpl_refuse(rt, "comparing views of dicts is not supported");
    } else {
        return tpl_fail(rt, "'%s' not supported between instances of '%s' and '%s'", comparison_text(op),
                        tpl_type_name(a), tpl_type_name(b));
    }
    *out = c != 2 && (op == TPL_LT ? c < 0 : op == TPL_LE ? c <= 0 : op == TPL_GT ? c > 0 : c >= 0);
    return CHURON_OK;
}

status tpl_compare(tpl_rt *rt, tpl_cmp op, tvalue a, tvalue b, bool *out) {
    switch (op) {
    case TPL_EQ: return tpl_equal(rt, a, b, out);
    case TPL_IN: return tpl_contains(rt, a, b, out);
    case TPL_NE: TRY(tpl_equal(rt, a, b, out)); break;
    case TPL_NOT_IN: TRY(tpl_contains(rt, a, b, out)); break;
    default: return order(rt, op, a, b, out);
    }
    *out = !*out;
    return CHURON_OK;
}

static status contains_by_reading(tpl_rt *rt, tvalue item, tvalue in, bool *out) {
    tpl_iter *it = NULL;
    TRY(tpl_iterate(rt, in, &it));
    *out = false;
    for (bool more = true; !*out;) {
        tvalue v;
        TRY(tpl_next(rt, it, &v, &more));
        if (!more) break;
        TRY(tpl_equal(rt, v, item, out));
    }
    return CHURON_OK;
}

status tpl_contains(tpl_rt *rt, tvalue item, tvalue in, bool *out) {
    uint32_t hash;
    switch ((tpl_kind)in.kind) {
    case TPL_STRING:
        if (item.kind != TPL_STRING) {
            return tpl_fail(rt, "'in <string>' requires string as left operand, not %s", tpl_type_name(item));
        }
        *out = tpl_find(in, item, 0) != SIZE_MAX;
        return tpl_steps(rt, in.len / 64);
    case TPL_VIEW:
        if (in.sub != TPL_KEYS) return contains_by_reading(rt, item, in, out);
        /* fall through */
    case TPL_DICT:
        if (!tpl_hash(item, &hash)) return tpl_fail(rt, "unhashable type: '%s'", tpl_type_name(item));
        *out = tpl_dict_find(in.dict, item, hash) != NULL;
        return CHURON_OK;
    case TPL_UNDEFINED:
    case TPL_LIST:
    case TPL_TUPLE:
    case TPL_RANGE:
    case TPL_ITER: return contains_by_reading(rt, item, in, out);
    default: return tpl_fail(rt, "argument of type '%s' is not iterable", tpl_type_name(in));
    }
}

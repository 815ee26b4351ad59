/* compare.c: see compare.h. */
#include "graph/compare.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct context {
    tolerance t;
    const char *name;
    str *why; /* NULL once a reason was given */
    comparison result;
} context;

static void differ(context *c, const char *fmt, ...) PRINTF_LIKE(2, 3);
static void differ(context *c, const char *fmt, ...) {
    c->result.same = false;
    if (!c->why) return;
    char text[256];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    str_fmt(c->why, "%s: %s", c->name, text);
    c->why = NULL;
}

static const char *kind_name(value_kind k) {
    static const char *const words[] = {"nothing", "a tensor", "a sequence", "a map"};
    return words[k];
}

/* ---- elements --------------------------------------------------------------------------------------- */

static void shape_text(const tensor *t, char *out, size_t room) {
    size_t used = 0;
    out[0] = '\0';
    for (size_t i = 0; i < t->rank && used + 24 < room; i++) {
        int n = snprintf(out + used, room - used, "%s%" PRId64, i ? ", " : "", t->dims[i]);
        if (n > 0) used += (size_t)n;
    }
}

static void differ_at(context *c, const tensor *t, size_t i, double want, double got) {
    char shape[128];
    shape_text(t, shape, sizeof shape);
    differ(c, "element %zu of [%s] %s: expected %.9g, got %.9g", i, shape, elem_name(t->type), want, got);
}

static void compare_number(context *c, const tensor *t, size_t i, double want, double got) {
    if (want == got || (isnan(want) && isnan(got))) return;
    double difference = fabs(want - got);
    if (isfinite(difference)) {
        if (difference > c->result.max_abs) c->result.max_abs = difference;
        double relative = difference / fmax(fabs(want), 1e-300);
        if (want != 0 && relative > c->result.max_rel) c->result.max_rel = relative;
        if (difference <= c->t.atol + c->t.rtol * fabs(want)) return;
    }
    differ_at(c, t, i, want, got);
}

static void compare_floats(context *c, const tensor *want, const tensor *got) {
    enum { BLOCK = 256 };
    double a[BLOCK], b[BLOCK];
    size_t bytes = elem_describe(want->type)->bytes;
    for (size_t at = 0; at < want->count; at += BLOCK) {
        size_t n = want->count - at < BLOCK ? want->count - at : BLOCK;
        elem_to_f64(want->type, (const char *)want->data + at * bytes, a, n);
        elem_to_f64(got->type, (const char *)got->data + at * bytes, b, n);
        for (size_t i = 0; i < n; i++) compare_number(c, want, at + i, a[i], b[i]);
    }
}

static void compare_complex(context *c, const tensor *want, const tensor *got) {
    bool wide = want->type == ELEM_C128;
    for (size_t i = 0; i < 2 * want->count; i++) {
        double a = wide ? ((const double *)want->data)[i] : (double)((const float *)want->data)[i];
        double b = wide ? ((const double *)got->data)[i] : (double)((const float *)got->data)[i];
        compare_number(c, want, i / 2, a, b);
    }
}

static void compare_exact(context *c, const tensor *want, const tensor *got) {
    size_t bytes = elem_describe(want->type)->bytes;
    for (size_t i = 0; i < want->count; i++) {
        const char *a = (const char *)want->data + i * bytes, *b = (const char *)got->data + i * bytes;
        if (memcmp(a, b, bytes) == 0) continue;
        double x, y;
        elem_to_f64(want->type, a, &x, 1);
        elem_to_f64(got->type, b, &y, 1);
        differ_at(c, want, i, x, y);
        return;
    }
}

static void compare_strings(context *c, const tensor *want, const tensor *got) {
    const tensor_string *a = want->data, *b = got->data;
    for (size_t i = 0; i < want->count; i++) {
        if (a[i].len == b[i].len && (a[i].len == 0 || memcmp(a[i].data, b[i].data, a[i].len) == 0)) continue;
        differ(c, "element %zu: expected '%.*s', got '%.*s'", i, (int)(a[i].len < 60 ? a[i].len : 60),
               a[i].data, (int)(b[i].len < 60 ? b[i].len : 60), b[i].data);
        return;
    }
}

/* ---- values ----------------------------------------------------------------------------------------- */

static void compare_tensors(context *c, const tensor *want, const tensor *got) {
    if (want->type != got->type) {
        differ(c, "expected elements of %s, got %s", elem_name(want->type), elem_name(got->type));
        return;
    }
    bool same = want->rank == got->rank;
    for (size_t i = 0; same && i < want->rank; i++) same = want->dims[i] == got->dims[i];
    if (!same) {
        char a[128], b[128];
        shape_text(want, a, sizeof a);
        shape_text(got, b, sizeof b);
        differ(c, "expected shape [%s], got [%s]", a, b);
    } else if (want->type == ELEM_STRING) {
        compare_strings(c, want, got);
    } else if (ELEM_BIT(want->type) & ELEMS_COMPLEX) {
        compare_complex(c, want, got);
    } else if (ELEM_BIT(want->type) & (ELEMS_INT | ELEM_BIT(ELEM_BOOL))) {
        compare_exact(c, want, got);
    } else {
        compare_floats(c, want, got);
    }
}

/* Where a key of a map stands in another map's keys; count: nowhere. */
static size_t find_key(const tensor *keys, const tensor *in, size_t i) {
    size_t at = 0;
    for (; at < in->count; at++) {
        if (keys->type == ELEM_STRING) {
            const tensor_string *a = (const tensor_string *)keys->data + i,
                                *b = (const tensor_string *)in->data + at;
            if (a->len == b->len && (a->len == 0 || memcmp(a->data, b->data, a->len) == 0)) break;
        } else if (memcmp((const char *)keys->data + i * elem_describe(keys->type)->bytes,
                          (const char *)in->data + at * elem_describe(keys->type)->bytes,
                          elem_describe(keys->type)->bytes) == 0) {
            break;
        }
    }
    return at;
}

/* Element i of a 1-D tensor as a scalar. */
static value element(const value *v, size_t i) {
    if (v->kind != VALUE_TENSOR) return *value_item(v, i);
    return value_of_tensor(
        tensor_borrow(v->t.type, 0, NULL, (char *)v->t.data + i * elem_describe(v->t.type)->bytes));
}

static void compare_any(context *c, const value *want, const value *got);

static void compare_maps(context *c, const value *want, const value *got) {
    if (want->t.type != got->t.type || want->t.count != got->t.count) {
        differ(c, "expected a map of %zu keys of %s, got %zu of %s", want->t.count, elem_name(want->t.type),
               got->t.count, elem_name(got->t.type));
        return;
    }
    const value *a = value_item(want, 0), *b = value_item(got, 0);
    for (size_t i = 0; i < want->t.count; i++) {
        size_t at = find_key(&want->t, &got->t, i);
        if (at == got->t.count) {
            differ(c, "key %zu of the map is missing", i);
            return;
        }
        value x = element(a, i), y = element(b, at);
        compare_any(c, &x, &y);
    }
}

static void compare_any(context *c, const value *want, const value *got) {
    if (want->kind != got->kind) {
        differ(c, "expected %s, got %s", kind_name(want->kind), kind_name(got->kind));
    } else if (want->kind == VALUE_TENSOR) {
        compare_tensors(c, &want->t, &got->t);
    } else if (want->kind == VALUE_MAP) {
        compare_maps(c, want, got);
    } else if (want->kind == VALUE_SEQUENCE) {
        if (value_count(want) != value_count(got)) {
            differ(c, "expected a sequence of %zu, got %zu", value_count(want), value_count(got));
            return;
        }
        for (size_t i = 0; i < value_count(want); i++)
            compare_any(c, value_item(want, i), value_item(got, i));
    }
}

comparison compare_values(const value *want, const value *got, tolerance t, const char *name, str *why) {
    context c = {.t = t, .name = name, .why = why, .result = {.same = true}};
    compare_any(&c, want, got);
    return c.result;
}

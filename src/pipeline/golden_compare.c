/* golden_compare.c: two JSON values within a tolerance. */
#include "pipeline/golden.h"

#include "base/mem.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

void golden_difference_free(golden_difference *d) {
    str_free(&d->field);
    str_free(&d->why);
}

static void differ(golden_difference *d, const char *path, const char *fmt, ...) PRINTF_LIKE(3, 4);
static void differ(golden_difference *d, const char *path, const char *fmt, ...) {
    if (d->differs) return;
    char why[300];
    va_list args;
    va_start(args, fmt);
    vsnprintf(why, sizeof why, fmt, args);
    va_end(args);
    d->differs = true;
    str_cat(&d->field, path);
    str_cat(&d->why, why);
}

static const char *describe(const json_t *j, char buf[80]) {
    char *text;
    if (!j) return "nothing";
    switch (json_typeof(j)) {
    case JSON_OBJECT: snprintf(buf, 80, "an object of %zu", json_object_size(j)); break;
    case JSON_ARRAY: snprintf(buf, 80, "a list of %zu", json_array_size(j)); break;
    default:
        text = json_dumps(j, JSON_ENCODE_ANY | JSON_REAL_PRECISION(9));
        snprintf(buf, 80, "%.70s", text ? text : "a value");
        mem_free(text);
    }
    return buf;
}

/* Numbers that lie between a and b, counted in values of their type. */
static double ulps(double a, double b, bool narrow) {
    int64_t i, k;
    if (narrow) {
        float f = (float)a, g = (float)b;
        int32_t x, y;
        memcpy(&x, &f, sizeof x);
        memcpy(&y, &g, sizeof y);
        i = x < 0 ? -(int64_t)(x & INT32_MAX) : x;
        k = y < 0 ? -(int64_t)(y & INT32_MAX) : y;
    } else {
        memcpy(&i, &a, sizeof i);
        memcpy(&k, &b, sizeof k);
        i = i < 0 ? -(i & INT64_MAX) : i;
        k = k < 0 ? -(k & INT64_MAX) : k;
    }
    return fabs((double)i - (double)k);
}

static void compare_numbers(double e, double g, const tolerance *t, const cell_type *type, const char *path,
                            golden_difference *d) {
    const double gap = fabs(e - g);
    if (gap > d->max_abs) d->max_abs = gap;
    if (e != 0 && gap / fabs(e) > d->max_rel) d->max_rel = gap / fabs(e);
    if (e == g) return;
    const bool narrow = type && type->element == ELEM_F32;
    const bool near =
        (!t->exact && gap <= t->abs + t->rel * fabs(e)) || (t->ulp > 0 && ulps(e, g, narrow) <= t->ulp);
    if (!near) differ(d, path, "expected %.9g, got %.9g (off by %.3g)", e, g, gap);
}

/* ---- lists ------------------------------------------------------------------------------------------ */

static bool all_numbers(const json_t *j) {
    if (!json_is_array(j)) return json_is_number(j);
    for (size_t i = 0; i < json_array_size(j); i++) {
        if (!all_numbers(json_array_get(j, i))) return false;
    }
    return true;
}

typedef struct dot {
    double eg, ee, gg;
    bool same_shape;
} dot;

static void add_products(const json_t *e, const json_t *g, dot *s) {
    if (json_is_array(e) != json_is_array(g) || json_array_size(e) != json_array_size(g)) {
        s->same_shape = false;
        return;
    }
    if (!json_is_array(e)) {
        const double x = json_number_value(e), y = json_number_value(g);
        s->eg += x * y;
        s->ee += x * x;
        s->gg += y * y;
    }
    for (size_t i = 0; i < json_array_size(e); i++)
        add_products(json_array_get(e, i), json_array_get(g, i), s);
}

static void compare_cosine(const json_t *e, const json_t *g, const tolerance *t, const char *path,
                           golden_difference *d) {
    dot s = {.same_shape = true};
    char a[80], b[80];
    add_products(e, g, &s);
    const double away = s.ee == 0 || s.gg == 0 ? (s.ee == s.gg ? 0 : 1) : 1 - s.eg / sqrt(s.ee * s.gg);
    if (!s.same_shape) {
        differ(d, path, "expected %s, got %s", describe(e, a), describe(g, b));
        return;
    }
    if (away > d->max_rel) d->max_rel = away;
    if (!(away <= t->cosine))
        differ(d, path, "expected a cosine similarity of at least %.9g, got %.9g", 1 - t->cosine, 1 - away);
}

/* The same items in any order: each expected one takes the first free one that is equal within the tolerance.
 */
static void compare_sets(const json_t *e, const json_t *g, const tolerance *t, const cell_type *type,
                         const char *path, golden_difference *d) {
    const size_t n = json_array_size(e);
    bool *taken = mem_calloc(n ? n : 1, sizeof *taken);
    char text[80];
    if (!taken) {
        differ(d, path, "no memory to compare");
        return;
    }
    for (size_t i = 0; i < n && !d->differs; i++) {
        size_t k = 0;
        for (; k < n; k++) {
            if (taken[k]) continue;
            golden_difference one = {0};
            golden_compare(json_array_get(e, i), json_array_get(g, k), t, type, "", &one);
            const bool equal = !one.differs;
            if (equal && one.max_abs > d->max_abs) d->max_abs = one.max_abs;
            if (equal && one.max_rel > d->max_rel) d->max_rel = one.max_rel;
            golden_difference_free(&one);
            if (equal) break;
        }
        if (k == n) {
            differ(d, path, "expected %s among the items, got it nowhere",
                   describe(json_array_get(e, i), text));
        } else {
            taken[k] = true;
        }
    }
    mem_free(taken);
}

static void compare_lists(const json_t *e, const json_t *g, const tolerance *t, const cell_type *type,
                          const char *path, golden_difference *d) {
    const cell_type *of = type && type->kind == CELL_LIST ? type->of : type;
    if (t->cosine > 0 && all_numbers(e) && all_numbers(g)) {
        compare_cosine(e, g, t, path, d);
        return;
    }
    if (json_array_size(e) != json_array_size(g)) {
        differ(d, path, "expected a list of %zu, got one of %zu", json_array_size(e), json_array_size(g));
        return;
    }
    if (t->set) {
        compare_sets(e, g, t, of, path, d);
        return;
    }
    for (size_t i = 0; i < json_array_size(e); i++) {
        char item[300];
        snprintf(item, sizeof item, "%.270s[%zu]", path, i);
        golden_compare(json_array_get(e, i), json_array_get(g, i), t, of, item, d);
    }
}

static const cell_type *member_type(const cell_type *type, const char *name) {
    for (size_t i = 0; type && type->kind == CELL_RECORD && i < type->n_members; i++) {
        if (strcmp(type->members[i].name, name) == 0) return type->members[i].type;
    }
    return NULL;
}

static void compare_objects(const json_t *e, const json_t *g, const tolerance *t, const cell_type *type,
                            const char *path, golden_difference *d) {
    const char *key;
    json_t *item;
    char name[300];
    json_object_foreach((json_t *)(uintptr_t)e, key, item) {
        snprintf(name, sizeof name, "%.150s%s%.120s", path, *path ? "." : "", key);
        golden_compare(item, json_object_get(g, key), t, member_type(type, key), name, d);
    }
    json_object_foreach((json_t *)(uintptr_t)g, key, item) {
        snprintf(name, sizeof name, "%.150s%s%.120s", path, *path ? "." : "", key);
        if (!json_object_get(e, key)) differ(d, name, "expected no such field, got one");
    }
}

void golden_compare(const json_t *e, const json_t *g, const tolerance *t, const cell_type *type,
                    const char *path, golden_difference *d) {
    char a[80], b[80];
    if (json_is_number(e) && json_is_number(g)) {
        if (json_is_integer(e) && json_is_integer(g) && json_integer_value(e) == json_integer_value(g))
            return;
        compare_numbers(json_number_value(e), json_number_value(g), t, type, path, d);
    } else if (json_is_array(e) && json_is_array(g)) {
        compare_lists(e, g, t, type, path, d);
    } else if (json_is_object(e) && json_is_object(g)) {
        compare_objects(e, g, t, type, path, d);
    } else if (!g || !json_equal(e, g)) {
        differ(d, path, "expected %s, got %s", describe(e, a), describe(g, b));
    }
}

void golden_compare_answer(const pipeline *p, const json_t *expected, const json_t *got,
                           golden_difference *d) {
    const manifest *m = pipeline_manifest(p);
    const char *key;
    json_t *item;
    for (size_t i = 0; i < pipeline_n_outputs(p); i++) {
        const pipeline_port o = pipeline_output(p, i);
        const json_t *e = json_object_get(expected, o.name);
        if (!e) {
            differ(d, o.name, "expected no such field, got one");
        } else {
            golden_compare(e, json_object_get(got, o.name), manifest_tolerance_of(m, o.name), o.type, o.name,
                           d);
        }
    }
    json_object_foreach((json_t *)(uintptr_t)expected, key, item) {
        if (!json_object_get(got, key)) differ(d, key, "expected this field, got an answer without it");
    }
}

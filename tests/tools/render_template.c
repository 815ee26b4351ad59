/* render_template.c: reads JSON lines {"template", "context", "now"?, "limits"?: {"steps","depth","output"}}
 * and writes for each a JSON line {"ok": true, "out"} or {"ok": false, "status", "error"}. With an argument N
 * each template is rendered N times more and "us" says how long one rendering took. */
#include "base/clock.h"
#include "base/json_out.h"
#include "text/template.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static tvalue *to_value(tarena *a, const json_t *j) {
    size_t i;
    const char *key;
    json_t *item;
    tvalue *v;
    switch (json_typeof(j)) {
    case JSON_NULL: return tvalue_none(a);
    case JSON_TRUE: return tvalue_bool(a, true);
    case JSON_FALSE: return tvalue_bool(a, false);
    case JSON_INTEGER: return tvalue_int(a, json_integer_value(j));
    case JSON_REAL: return tvalue_float(a, json_real_value(j));
    case JSON_STRING: return tvalue_string(a, json_string_value(j), json_string_length(j));
    case JSON_ARRAY:
        v = tvalue_list(a);
        json_array_foreach(j, i, item) v = tvalue_list_add(a, v, to_value(a, item));
        return v;
    case JSON_OBJECT:
        v = tvalue_dict(a);
        json_object_foreach((json_t *)j, key, item) v = tvalue_dict_set(a, v, key, to_value(a, item));
        return v;
    }
    return NULL;
}

static size_t limit(const json_t *limits, const char *key) {
    return (size_t)json_integer_value(json_object_get(limits, key));
}

static void answer(const json_t *in, long repeat) {
    const json_t *source = json_object_get(in, "template"), *limits = json_object_get(in, "limits");
    int64_t now = json_integer_value(json_object_get(in, "now"));
    template_limits l = {limit(limits, "steps"), limit(limits, "depth"), limit(limits, "output")};
    template *t = NULL;
    tarena *a = NULL;
    str out = {0}, line = {0};
    error err = {0};
    double us = 0;
    status st = template_parse(&t, json_string_value(source), json_string_length(source), &err);
    if (st == CHURON_OK) st = tarena_create(&a, &err);
    if (st == CHURON_OK) {
        tvalue *context = to_value(a, json_object_get(in, "context"));
        st = template_render(t, context, now, &l, &out, &err);
        double start = clock_seconds();
        for (long i = 0; i < repeat && st == CHURON_OK; i++) {
            str_clear(&out);
            st = template_render(t, context, now, &l, &out, &err);
        }
        if (repeat) us = (clock_seconds() - start) / (double)repeat * 1e6;
    }
    json_out j = json_out_begin(&line);
    json_out_object(&j, NULL);
    json_out_bool(&j, "ok", st == CHURON_OK);
    if (st == CHURON_OK) {
        json_out_string(&j, "out", str_cstr(&out), out.len);
        if (repeat) json_out_double(&j, "us", us);
    } else {
        json_out_cstr(&j, "status", churon_status_name(st));
        json_out_cstr(&j, "error", err.message);
        if (out.len) json_out_cstr(&j, "partial", str_cstr(&out));
    }
    json_out_end_object(&j);
    puts(str_cstr(&line));
    str_free(&line);
    str_free(&out);
    tarena_free(a);
    template_free(t);
}

int main(int argc, char **argv) {
    long repeat = argc > 1 ? atol(argv[1]) : 0;
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    while ((n = getline(&line, &cap, stdin)) > 0) {
        json_error_t e;
        json_t *in = json_loadb(line, (size_t)n, JSON_ALLOW_NUL, &e);
        if (!in) return fprintf(stderr, "render_template: %s\n", e.text), 1;
        answer(in, repeat);
        json_decref(in);
    }
    free(line);
    return 0;
}

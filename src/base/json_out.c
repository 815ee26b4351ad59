/* json_out.c: see json_out.h. */
#include "base/json_out.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void str_json(str *to, const char *bytes, size_t n) {
    str_put(to, '"');
    const char *at = bytes, *end = bytes + n, *plain = bytes;
    while (at < end) {
        unsigned char c = (unsigned char)*at;
        size_t k = c < 0x80 ? 1 : utf8_decode(at, end, NULL);
        if (k >= 1 && c >= 0x20 && c != '"' && c != '\\' && c != 0x7f) {
            at += k;
            continue;
        }
        str_add(to, plain, (size_t)(at - plain));
        switch (c) {
        case '"': str_add(to, "\\\"", 2); break;
        case '\\': str_add(to, "\\\\", 2); break;
        case '\n': str_add(to, "\\n", 2); break;
        case '\r': str_add(to, "\\r", 2); break;
        case '\t': str_add(to, "\\t", 2); break;
        default:
            if (k == 0) {
                str_add(to, "\xef\xbf\xbd", 3);
            } else {
                str_fmt(to, "\\u%04x", c);
            }
        }
        at++;
        plain = at;
    }
    str_add(to, plain, (size_t)(at - plain));
    str_put(to, '"');
}

static void before(json_out *j, const char *key) {
    if (j->need_comma) str_put(j->to, ',');
    j->need_comma = true;
    if (key) {
        str_json(j->to, key, strlen(key));
        str_put(j->to, ':');
    }
}

json_out json_out_begin(str *to) {
    return (json_out){.to = to};
}

static void open_with(json_out *j, const char *key, char bracket) {
    before(j, key);
    str_put(j->to, bracket);
    j->need_comma = false;
    j->depth++;
}

static void close_with(json_out *j, char bracket) {
    assert(j->depth > 0);
    str_put(j->to, bracket);
    j->need_comma = true;
    j->depth--;
}

void json_out_object(json_out *j, const char *key) {
    open_with(j, key, '{');
}

void json_out_end_object(json_out *j) {
    close_with(j, '}');
}

void json_out_array(json_out *j, const char *key) {
    open_with(j, key, '[');
}

void json_out_end_array(json_out *j) {
    close_with(j, ']');
}

void json_out_string(json_out *j, const char *key, const char *bytes, size_t n) {
    before(j, key);
    str_json(j->to, bytes, n);
}

void json_out_cstr(json_out *j, const char *key, const char *z) {
    if (z) {
        json_out_string(j, key, z, strlen(z));
    } else {
        json_out_null(j, key);
    }
}

void json_out_int(json_out *j, const char *key, int64_t v) {
    before(j, key);
    str_fmt(j->to, "%lld", (long long)v);
}

void json_out_uint(json_out *j, const char *key, uint64_t v) {
    before(j, key);
    str_fmt(j->to, "%llu", (unsigned long long)v);
}

void json_out_double(json_out *j, const char *key, double v) {
    static const int digits[] = {6, 9, 15, 16, 17};
    before(j, key);
    if (!isfinite(v)) {
        str_cat(j->to, "null");
        return;
    }
    char text[40];
    for (size_t i = 0; i < sizeof digits / sizeof *digits; i++) {
        snprintf(text, sizeof text, "%.*g", digits[i], v);
        if (strtod(text, NULL) == v) break;
    }
    str_cat(j->to, text);
}

void json_out_float(json_out *j, const char *key, float v) {
    before(j, key);
    if (!isfinite(v)) {
        str_cat(j->to, "null");
        return;
    }
    char text[40];
    snprintf(text, sizeof text, "%.6g", (double)v);
    if (strtof(text, NULL) != v) snprintf(text, sizeof text, "%.9g", (double)v);
    str_cat(j->to, text);
}

void json_out_bool(json_out *j, const char *key, bool v) {
    before(j, key);
    str_cat(j->to, v ? "true" : "false");
}

void json_out_null(json_out *j, const char *key) {
    before(j, key);
    str_cat(j->to, "null");
}

void json_out_raw(json_out *j, const char *key, const char *json, size_t n) {
    before(j, key);
    str_add(j->to, json, n);
}

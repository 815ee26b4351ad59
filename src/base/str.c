/* str.c: see str.h. */
#include "base/str.h"

#include "base/mem.h"

#include <stdio.h>
#include <string.h>

void str_free(str *s) {
    mem_free(s->data);
    *s = (str){0};
}

void str_clear(str *s) {
    s->len = 0;
    s->failed = false;
    if (s->data) s->data[0] = '\0';
}

bool str_reserve(str *s, size_t extra) {
    size_t need;
    if (!size_add(s->len, extra, &need) || !size_add(need, 1, &need)) {
        s->failed = true;
        return false;
    }
    if (need <= s->cap) return true;
    size_t cap = s->cap < 32 ? 64 : s->cap + s->cap / 2;
    if (cap < need) cap = need;
    char *grown = mem_realloc(s->data, cap);
    if (!grown) {
        s->failed = true;
        return false;
    }
    s->data = grown;
    s->cap = cap;
    return true;
}

void str_add(str *s, const char *bytes, size_t n) {
    if (!str_reserve(s, n)) return;
    if (n) memcpy(s->data + s->len, bytes, n);
    s->len += n;
    s->data[s->len] = '\0';
}

void str_put(str *s, char c) {
    str_add(s, &c, 1);
}

void str_cat(str *s, const char *z) {
    str_add(s, z, strlen(z));
}

void str_fmt(str *s, const char *fmt, ...) {
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    char small[128];
    int n = vsnprintf(small, sizeof small, fmt, ap);
    va_end(ap);
    if (n < 0) {
        s->failed = true;
    } else if ((size_t)n < sizeof small) {
        str_add(s, small, (size_t)n);
    } else if (str_reserve(s, (size_t)n)) {
        (void)vsnprintf(s->data + s->len, (size_t)n + 1, fmt, again);
        s->len += (size_t)n;
    }
    va_end(again);
}

status str_check(const str *s, error *err) {
    return s->failed ? error_no_memory(err, "text", s->cap) : CHURON_OK;
}

const char *str_cstr(const str *s) {
    return s->data ? s->data : "";
}

size_t utf8_decode(const char *p, const char *end, uint32_t *cp) {
    const unsigned char *u = (const unsigned char *)p;
    size_t left = (size_t)(end - p);
    uint32_t c = u[0];
    size_t n;
    uint32_t min;
    if (c < 0x80) {
        if (cp) *cp = c;
        return 1;
    }
    if (c >= 0xc2 && c <= 0xdf) {
        n = 2, min = 0x80, c &= 0x1f;
    } else if (c >= 0xe0 && c <= 0xef) {
        n = 3, min = 0x800, c &= 0x0f;
    } else if (c >= 0xf0 && c <= 0xf4) {
        n = 4, min = 0x10000, c &= 0x07;
    } else {
        return 0;
    }
    if (left < n) return 0;
    for (size_t i = 1; i < n; i++) {
        if ((u[i] & 0xc0) != 0x80) return 0;
        c = c << 6 | (u[i] & 0x3fu);
    }
    if (c < min || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff)) return 0;
    if (cp) *cp = c;
    return n;
}

size_t utf8_encode(uint32_t cp, char out[4]) {
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    if (cp < 0x800) {
        out[0] = (char)(0xc0 | cp >> 6);
        out[1] = (char)(0x80 | (cp & 0x3f));
        return 2;
    }
    if (cp < 0x10000) {
        out[0] = (char)(0xe0 | cp >> 12);
        out[1] = (char)(0x80 | (cp >> 6 & 0x3f));
        out[2] = (char)(0x80 | (cp & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | cp >> 18);
    out[1] = (char)(0x80 | (cp >> 12 & 0x3f));
    out[2] = (char)(0x80 | (cp >> 6 & 0x3f));
    out[3] = (char)(0x80 | (cp & 0x3f));
    return 4;
}

size_t utf8_validate(const char *p, size_t n) {
    const char *at = p, *end = p + n;
    while (at < end) {
        size_t k = utf8_decode(at, end, NULL);
        if (!k) break;
        at += k;
    }
    return (size_t)(at - p);
}

/* template_text.c: strings: building them in the arena, and the algorithms of Python's str on UTF-8.
 * Strings are views; substrings share their bytes. Positions that a template sees count code points. */
#include "text/template_internal.h"

#include <string.h>

/* ---- building --------------------------------------------------------------------------------------- */

tpl_buf tpl_buf_begin(tpl_rt *rt) {
    return (tpl_buf){.rt = rt};
}

static bool buf_reserve(tpl_buf *b, size_t more) {
    if (b->st != CHURON_OK) return false;
    if (more <= b->cap - b->n) return true;
    size_t need;
    if (!size_add(b->n, more, &need) || need > b->rt->limits.max_output) {
        b->st = tpl_limit(b->rt, "a string of more than %zu bytes", b->rt->limits.max_output);
        return false;
    }
    size_t cap = b->cap ? b->cap * 2 : 64;
    if (cap < need) cap = need;
    if (b->p && tpl_text_extend(b->rt->arena, b->p, b->cap, cap - b->cap)) {
        b->cap = cap;
        return true;
    }
    char *grown = tpl_text(b->rt->arena, cap);
    if (!grown) {
        b->st = tpl_memory(b->rt);
        return false;
    }
    if (b->n) memcpy(grown, b->p, b->n);
    b->p = grown;
    b->cap = cap;
    return true;
}

void tpl_buf_add(tpl_buf *b, const char *p, size_t n) {
    if (!n || !buf_reserve(b, n)) return;
    memcpy(b->p + b->n, p, n);
    b->n += n;
    if (!b->not_ascii && !tpl_is_ascii(p, n)) b->not_ascii = true;
}

void tpl_buf_put(tpl_buf *b, char c) {
    if (!buf_reserve(b, 1)) return;
    b->p[b->n++] = c;
    if ((unsigned char)c & 0x80) b->not_ascii = true;
}

void tpl_buf_cat(tpl_buf *b, const char *z) {
    tpl_buf_add(b, z, strlen(z));
}

void tpl_buf_cp(tpl_buf *b, uint32_t cp) {
    char c[4];
    tpl_buf_add(b, c, utf8_encode(cp, c));
}

void tpl_buf_value(tpl_buf *b, tvalue s) {
    tpl_buf_add(b, s.s, s.len);
}

void tpl_buf_fill(tpl_buf *b, uint32_t cp, size_t n) {
    if (n > b->rt->limits.max_output) {
        if (b->st == CHURON_OK)
            b->st = tpl_limit(b->rt, "a string of more than %zu bytes", b->rt->limits.max_output);
        return;
    }
    for (size_t i = 0; i < n && b->st == CHURON_OK; i++) tpl_buf_cp(b, cp);
}

status tpl_buf_end(tpl_buf *b, tvalue *out) {
    if (b->st != CHURON_OK) return b->st;
    tpl_text_shrink(b->rt->arena, b->p, b->cap, b->n);
    *out = (tvalue){.kind = TPL_STRING,
                    .flags = b->not_ascii ? 0 : TPL_ASCII,
                    .len = (uint32_t)b->n,
                    .s = b->p ? b->p : ""};
    return CHURON_OK;
}

/* ---- positions -------------------------------------------------------------------------------------- */

uint32_t tpl_cp_at(const char *p, const char *end, size_t *n) {
    unsigned char c = (unsigned char)*p;
    if (c < 0x80) {
        *n = 1;
        return c;
    }
    uint32_t cp = 0xfffd;
    *n = utf8_decode(p, end, &cp);
    if (!*n) *n = 1;
    return cp;
}

tvalue tpl_sub(tvalue s, size_t from, size_t to) {
    return tpl_view(s.s + from, to - from, s.flags & (TPL_ASCII | TPL_MARKUP));
}

static bool is_continuation(char c) {
    return ((unsigned char)c & 0xc0) == 0x80;
}

size_t tpl_codepoints(tvalue s) {
    if (s.flags & TPL_ASCII) return s.len;
    size_t n = 0;
    for (size_t i = 0; i < s.len; i++) n += !is_continuation(s.s[i]);
    return n;
}

size_t tpl_byte_of(tvalue s, size_t codepoint) {
    if (s.flags & TPL_ASCII) return codepoint < s.len ? codepoint : s.len;
    size_t i = 0;
    for (; i < s.len; i++) {
        if (!is_continuation(s.s[i]) && codepoint-- == 0) break;
    }
    return i;
}

tvalue tpl_rest(tvalue s, size_t from, size_t to) {
    s.s += from;
    s.len = (uint32_t)(to - from);
    return s;
}

enum { SHORT = 16 }; /* patterns that are compared at every place where their first byte stands */

/* A rolling hash of windows of n bytes, modulo 2^64 with an odd random-looking base: comparing hashes first
 * keeps the search linear for patterns that almost match everywhere. */
typedef struct rolling {
    uint64_t base, drop; /* drop = base^(n-1) */
} rolling;

static rolling rolling_begin(size_t n) {
    static const char here;
    rolling r = {.base = ((uint64_t)(uintptr_t)&here >> 4 | 1) * 0x9e3779b97f4a7c15u | 1, .drop = 1};
    for (size_t i = 1; i < n; i++) r.drop *= r.base;
    return r;
}

static uint64_t byte_value(char c) {
    return (unsigned char)c + UINT64_C(0x100000001b3);
}

static size_t find_long(tvalue s, tvalue what, size_t from) {
    rolling r = rolling_begin(what.len);
    uint64_t want = 0, have = 0;
    if (from + what.len > s.len) return SIZE_MAX;
    for (size_t i = 0; i < what.len; i++) {
        want = want * r.base + byte_value(what.s[i]);
        have = have * r.base + byte_value(s.s[from + i]);
    }
    for (size_t at = from;; at++) {
        if (want == have && memcmp(s.s + at, what.s, what.len) == 0) return at;
        if (at + what.len >= s.len) return SIZE_MAX;
        have = (have - byte_value(s.s[at]) * r.drop) * r.base + byte_value(s.s[at + what.len]);
    }
}

size_t tpl_find(tvalue s, tvalue what, size_t from) {
    if (what.len == 0) return from <= s.len ? from : SIZE_MAX;
    if (what.len > SHORT) return find_long(s, what, from);
    while (from + what.len <= s.len) {
        const char *hit = memchr(s.s + from, what.s[0], s.len - what.len - from + 1);
        if (!hit) return SIZE_MAX;
        if (memcmp(hit, what.s, what.len) == 0) return (size_t)(hit - s.s);
        from = (size_t)(hit - s.s) + 1;
    }
    return SIZE_MAX;
}

static size_t rfind_long(tvalue s, tvalue what, size_t end) {
    rolling r = rolling_begin(what.len);
    uint64_t want = 0, have = 0;
    for (size_t i = 1; i <= what.len; i++) {
        want = want * r.base + byte_value(what.s[what.len - i]);
        have = have * r.base + byte_value(s.s[end - i]);
    }
    for (size_t at = end - what.len;; at--) {
        if (want == have && memcmp(s.s + at, what.s, what.len) == 0) return at;
        if (at == 0) return SIZE_MAX;
        have = (have - byte_value(s.s[at + what.len - 1]) * r.drop) * r.base + byte_value(s.s[at - 1]);
    }
}

size_t tpl_rfind(tvalue s, tvalue what, size_t end) {
    if (what.len > end) return SIZE_MAX;
    if (what.len > SHORT) return rfind_long(s, what, end);
    for (size_t at = end - what.len + 1; at-- > 0;) {
        if (memcmp(s.s + at, what.s, what.len) == 0) return at;
    }
    return SIZE_MAX;
}

/* ---- algorithms ------------------------------------------------------------------------------------- */

static bool strips(uint32_t cp, const tvalue *chars) {
    if (!chars) return tpl_cp_space(cp);
    const char *p = chars->s, *end = p + chars->len;
    while (p < end) {
        size_t n;
        if (tpl_cp_at(p, end, &n) == cp) return true;
        p += n;
    }
    return false;
}

tvalue tpl_strip(tvalue s, const tvalue *chars, bool left, bool right) {
    const char *p = s.s, *end = s.s + s.len;
    while (left && p < end) {
        size_t n;
        if (!strips(tpl_cp_at(p, end, &n), chars)) break;
        p += n;
    }
    while (right && p < end) {
        const char *q = end - 1;
        while (q > p && is_continuation(*q)) q--;
        size_t n;
        if (!strips(tpl_cp_at(q, end, &n), chars)) break;
        end = q;
    }
    return tpl_sub(s, (size_t)(p - s.s), (size_t)(end - s.s));
}

/* Replacing "" puts the new text before every character and at the end. */
static void replace_empty(tpl_buf *b, tvalue s, tvalue with, int64_t count) {
    const char *p = s.s, *end = s.s + s.len;
    while (p < end && count != 0) {
        size_t n;
        (void)tpl_cp_at(p, end, &n);
        tpl_buf_value(b, with);
        tpl_buf_add(b, p, n);
        p += n;
        count--;
    }
    tpl_buf_add(b, p, (size_t)(end - p));
    if (count != 0) tpl_buf_value(b, with);
}

status tpl_replace(tpl_rt *rt, tvalue s, tvalue old, tvalue with, int64_t count, tvalue *out) {
    TRY(tpl_steps(rt, s.len / 64));
    if (count < 0) count = INT64_MAX;
    tpl_buf b = tpl_buf_begin(rt);
    if (old.len == 0) {
        replace_empty(&b, s, with, count);
        return tpl_buf_end(&b, out);
    }
    size_t from = 0;
    bool any = false;
    while (count-- > 0) {
        size_t at = tpl_find(s, old, from);
        if (at == SIZE_MAX) break;
        any = true;
        tpl_buf_add(&b, s.s + from, at - from);
        tpl_buf_value(&b, with);
        from = at + old.len;
    }
    if (!any) {
        *out = tpl_sub(s, 0, s.len);
        out->flags &= (uint8_t)~TPL_MARKUP;
        return CHURON_OK;
    }
    tpl_buf_add(&b, s.s + from, s.len - from);
    return tpl_buf_end(&b, out);
}

status tpl_splitlines(tpl_rt *rt, tvalue s, bool keep, tpl_list **out) {
    TRY(tpl_steps(rt, s.len / 64));
    tpl_list *list = tpl_list_new(rt->arena, 0);
    if (!list) return tpl_memory(rt);
    const char *p = s.s, *end = s.s + s.len, *line = p;
    while (p < end) {
        size_t n;
        uint32_t cp = tpl_cp_at(p, end, &n);
        if (!tpl_cp_linebreak(cp)) {
            p += n;
            continue;
        }
        const char *stop = p;
        p += n;
        if (cp == '\r' && p < end && *p == '\n') p++;
        TRY(tpl_push(rt, list, tpl_sub(s, (size_t)(line - s.s), (size_t)((keep ? p : stop) - s.s))));
        line = p;
    }
    if (line < end) TRY(tpl_push(rt, list, tpl_sub(s, (size_t)(line - s.s), s.len)));
    *out = list;
    return CHURON_OK;
}

static const char *entity(char c) {
    switch (c) {
    case '&': return "&amp;";
    case '<': return "&lt;";
    case '>': return "&gt;";
    case '"': return "&#34;";
    case '\'': return "&#39;";
    default: return NULL;
    }
}

status tpl_escape(tpl_rt *rt, tvalue s, tvalue *out) {
    if (!(s.flags & TPL_MARKUP)) {
        TRY(tpl_steps(rt, s.len / 64));
        tpl_buf b = tpl_buf_begin(rt);
        size_t from = 0;
        for (size_t i = 0; i < s.len; i++) {
            const char *e = entity(s.s[i]);
            if (!e) continue;
            tpl_buf_add(&b, s.s + from, i - from);
            tpl_buf_cat(&b, e);
            from = i + 1;
        }
        if (from) {
            tpl_buf_add(&b, s.s + from, s.len - from);
            TRY(tpl_buf_end(&b, &s));
        }
    }
    s.flags |= TPL_MARKUP;
    *out = s;
    return CHURON_OK;
}

status tpl_repeat(tpl_rt *rt, tvalue s, int64_t times, tvalue *out) {
    if (times < 0) times = 0;
    size_t bytes;
    if (!size_mul(s.len, (size_t)times, &bytes) || bytes > rt->limits.max_output) {
        return tpl_limit(rt, "a string of more than %zu bytes", rt->limits.max_output);
    }
    TRY(tpl_steps(rt, bytes / 64));
    char *p = tpl_text(rt->arena, bytes ? bytes : 1);
    if (!p) return tpl_memory(rt);
    for (size_t at = 0; s.len && at < bytes; at += s.len) memcpy(p + at, s.s, s.len);
    *out = (tvalue){
        .kind = TPL_STRING, .flags = s.flags & (TPL_ASCII | TPL_MARKUP), .len = (uint32_t)bytes, .s = p};
    if (!bytes) out->flags |= TPL_ASCII;
    return CHURON_OK;
}

status tpl_concat(tpl_rt *rt, tvalue a, tvalue b, tvalue *out) {
    size_t n = (size_t)a.len + b.len;
    uint8_t flags = a.flags & b.flags & TPL_ASCII;
    if (n > rt->limits.max_output)
        return tpl_limit(rt, "a string of more than %zu bytes", rt->limits.max_output);
    const char *p = a.s;
    if (b.len && a.len && tpl_text_extend(rt->arena, a.s, a.len, b.len)) {
        memcpy((char *)(uintptr_t)a.s + a.len, b.s,
               b.len); /* the free end of the arena: nobody sees it yet */
    } else if (b.len) {
        char *whole = tpl_text(rt->arena, n);
        if (!whole) return tpl_memory(rt);
        if (a.len) memcpy(whole, a.s, a.len);
        memcpy(whole + a.len, b.s, b.len);
        p = whole;
    }
    *out = (tvalue){.kind = TPL_STRING, .flags = flags, .len = (uint32_t)n, .s = p};
    return tpl_steps(rt, b.len / 64);
}

status tpl_join(tpl_rt *rt, tvalue sep, const tvalue *v, size_t n, tvalue *out) {
    tpl_buf b = tpl_buf_begin(rt);
    for (size_t i = 0; i < n && b.st == CHURON_OK; i++) {
        if (i) tpl_buf_value(&b, sep);
        tpl_buf_value(&b, v[i]);
    }
    TRY(tpl_buf_end(&b, out));
    return tpl_steps(rt, out->len / 64);
}

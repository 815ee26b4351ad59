/* normal_form.c: see normal_form.h. Text is decomposed into a buffer of characters, marks are put in order,
 * what is to be composed is, and the buffer is written out whenever an ASCII character begins: nothing joins
 * across it. */
#include "text/normal_form.h"

#include "base/mem.h"
#include "text/bert_chars.h"
#include "text/template_internal.h"

#include <string.h>
#include <utf8proc.h>

enum { FLUSH_AT = 8192, LONGEST = 32 /* characters that one decomposes into: at most 18 */ };

typedef struct former {
    normal_form form;
    bool strip;
    str *out;
    error *err;
    utf8proc_int32_t *cps, *spare; /* one block, [cap] each */
    size_t n, cap;
} former;

static bool is_compatible(normal_form f) {
    return f == FORM_NFKC || f == FORM_NFKD;
}

static bool composes(const former *f) {
    return f->form == FORM_NFC || f->form == FORM_NFKC || f->form == FORM_NONE;
}

static status reserve(former *f, size_t more) {
    if (f->cap - f->n >= more) return CHURON_OK;
    const size_t cap = f->cap ? f->cap * 2 : FLUSH_AT + LONGEST;
    size_t bytes;
    utf8proc_int32_t *grown = size_mul(cap, 2 * sizeof *grown, &bytes) ? mem_alloc(bytes) : NULL;
    if (!grown) return error_no_memory(f->err, "normalized text", cap);
    if (f->n) memcpy(grown, f->cps, f->n * sizeof *grown);
    mem_free(f->cps);
    f->cps = grown;
    f->spare = grown + cap;
    f->cap = cap;
    return CHURON_OK;
}

static uint8_t class_of(utf8proc_int32_t cp) {
    return cp < 0x300 ? 0 : (uint8_t)utf8proc_get_property(cp)->combining_class;
}

/* Each run of marks by combining class, equal ones in their order: by counting, as a run may be as long as
 * the text.
 */
static void order_run(former *f, size_t begin, size_t end) {
    size_t at[257] = {0};
    for (size_t i = begin; i < end; i++) at[class_of(f->cps[i]) + 1]++;
    for (size_t k = 1; k < 257; k++) at[k] += at[k - 1];
    for (size_t i = begin; i < end; i++) f->spare[at[class_of(f->cps[i])]++] = f->cps[i];
    memcpy(f->cps + begin, f->spare, (end - begin) * sizeof *f->cps);
}

static void order_marks(former *f) {
    for (size_t i = 0; i < f->n;) {
        size_t end = i;
        while (end < f->n && class_of(f->cps[end]) != 0) end++;
        if (end - i > 1) order_run(f, i, end);
        i = end + (end == i);
    }
}

static void drop_marks(former *f) {
    size_t kept = 0;
    for (size_t i = 0; i < f->n; i++) {
        if (utf8proc_category(f->cps[i]) != UTF8PROC_CATEGORY_MN) f->cps[kept++] = f->cps[i];
    }
    f->n = kept;
}

static status write_part(former *f, size_t begin, size_t end) {
    utf8proc_ssize_t n = (utf8proc_ssize_t)(end - begin);
    if (composes(f)) n = utf8proc_normalize_utf32(f->cps + begin, n, UTF8PROC_COMPOSE | UTF8PROC_STABLE);
    if (n < 0) return error_set(f->err, CHURON_INTERNAL, "normalization: %s", utf8proc_errmsg(n));
    for (utf8proc_ssize_t i = 0; i < n; i++) {
        char bytes[4];
        str_add(f->out, bytes, utf8_encode((uint32_t)f->cps[(utf8proc_ssize_t)begin + i], bytes));
    }
    return CHURON_OK;
}

/* U+11A7, one before the finals of Hangul, joins nothing; utf8proc would have it vanish into the syllable
 * before. */
static status flush(former *f) {
    size_t begin = 0;
    order_marks(f);
    if (f->strip) drop_marks(f);
    for (size_t i = 1; i < f->n; i++) {
        if (f->cps[i] != 0x11a7) continue;
        TRY(write_part(f, begin, i));
        begin = i;
    }
    TRY(write_part(f, begin, f->n));
    f->n = 0;
    return CHURON_OK;
}

static status decompose(former *f, uint32_t cp) {
    const int how = UTF8PROC_DECOMPOSE | UTF8PROC_STABLE | (is_compatible(f->form) ? UTF8PROC_COMPAT : 0);
    int boundary = 0;
    TRY(reserve(f, LONGEST));
    const utf8proc_ssize_t n = utf8proc_decompose_char((utf8proc_int32_t)cp, f->cps + f->n, LONGEST,
                                                       (utf8proc_option_t)how, &boundary);
    if (n < 0 || n > LONGEST) return error_set(f->err, CHURON_INTERNAL, "U+%04X", (unsigned)cp);
    f->n += (size_t)n;
    return CHURON_OK;
}

static status form_all(former *f, const char *text, size_t len) {
    const char *end = text + len;
    for (const char *p = text; p < end;) {
        uint32_t cp = (unsigned char)*p;
        size_t n = 1;
        if (cp >= 0x80) {
            n = utf8_decode(p, end, &cp);
            if (n == 0)
                return error_set(f->err, CHURON_INVALID, "expected UTF-8, got another byte at %zu",
                                 (size_t)(p - text));
        } else if (f->n >= FLUSH_AT) {
            TRY(flush(f));
        }
        TRY(decompose(f, cp));
        p += n;
    }
    return flush(f);
}

static size_t ascii_length(const char *text, size_t len) {
    size_t i = 0;
    while (i < len && (unsigned char)text[i] < 0x80) i++;
    return i;
}

status unicode_form(normal_form form, bool strip, const char *text, size_t len, str *out, error *err) {
    former f = {.form = form, .strip = strip, .out = out, .err = err};
    if ((form == FORM_NONE && !strip) || ascii_length(text, len) == len) {
        str_add(out, text, len);
        return str_check(out, err);
    }
    const status st = form_all(&f, text, len);
    mem_free(f.cps);
    return st == CHURON_OK ? str_check(out, err) : st;
}

status unicode_lower(const char *text, size_t len, str *out, error *err) {
    const char *end = text + len;
    if (!str_reserve(out, len)) return str_check(out, err);
    for (const char *p = text; p < end;) {
        uint32_t cp = (unsigned char)*p;
        size_t n = 1;
        char bytes[4];
        if (cp < 0x80) {
            str_put(out, (char)(cp >= 'A' && cp <= 'Z' ? cp + 32 : cp));
            p++;
            continue;
        }
        n = utf8_decode(p, end, &cp);
        if (n == 0)
            return error_set(err, CHURON_INVALID, "expected UTF-8, got another byte at %zu",
                             (size_t)(p - text));
        uint32_t lower = cp == 0x130 ? 'i' : (uint32_t)utf8proc_tolower((utf8proc_int32_t)cp);
        if (cp == 0x3a3 && tpl_final_sigma(text, end, p, p + n)) lower = 0x3c2;
        str_add(out, bytes, utf8_encode(lower, bytes));
        if (cp == 0x130) str_cat(out, "\xcc\x87"); /* U+0307 */
        p += n;
    }
    return str_check(out, err);
}

size_t unicode_space(const char *p, const char *end) {
    uint32_t cp;
    const size_t n = utf8_decode(p, end, &cp);
    return n && bert_is_space(cp) ? n : 0;
}

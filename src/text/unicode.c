/* unicode.c: see unicode.h. */
#include "text/unicode.h"

#include "base/mem.h"

#include <string.h>
#include <utf8proc.h>

enum {
    UPPER = UC_LETTER | UC_UPPER,
    LOWER = UC_LETTER | UC_LOWER,
    OTHER = UC_LETTER | UC_UPPER | UC_LOWER,
    MARK = UC_MARK | UC_UPPER | UC_LOWER,
    NUMBER = UC_NUMBER | UC_DIGIT,
    DIGIT = UC_DIGIT,
    PUNCT = UC_PUNCT,
    SYMBOL = UC_SYMBOL,
    SPACE = UC_SPACE,
    BREAK = UC_SPACE | UC_NEWLINE
};

#define ROW_PUNCT PUNCT, PUNCT, PUNCT, PUNCT
#define ROW_UPPER UPPER, UPPER, UPPER, UPPER, UPPER, UPPER, UPPER, UPPER
#define ROW_LOWER LOWER, LOWER, LOWER, LOWER, LOWER, LOWER, LOWER, LOWER
#define ROW_DIGIT NUMBER, NUMBER, NUMBER, NUMBER, NUMBER

/* clang-format off */
const uint16_t unicode_ascii_class[128] = {
    0, 0, 0, 0, 0, 0, 0, 0, 0, SPACE, BREAK, SPACE, SPACE, BREAK, 0, 0,                      /* 00 */
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,                                          /* 10 */
    SPACE, PUNCT, PUNCT, PUNCT, SYMBOL, PUNCT, PUNCT, PUNCT,                                 /* 20 */
    PUNCT, PUNCT, PUNCT, SYMBOL, ROW_PUNCT,                                                  /* 28 */
    ROW_DIGIT, ROW_DIGIT, PUNCT, PUNCT, SYMBOL, SYMBOL, SYMBOL, PUNCT,                       /* 30 */
    PUNCT, ROW_UPPER, ROW_UPPER, ROW_UPPER, UPPER, UPPER, PUNCT, PUNCT, PUNCT, SYMBOL, PUNCT, /* 40 */
    SYMBOL, ROW_LOWER, ROW_LOWER, ROW_LOWER, LOWER, LOWER, PUNCT, SYMBOL, PUNCT, SYMBOL, 0   /* 60 */
};
/* clang-format on */

typedef struct class_range {
    uint32_t first, last;
    unsigned class;
} class_range;

/* What Unicode 16 added to 15, as measured with the `tokenizers` library; consulted only where utf8proc says
 * "unassigned", so a newer utf8proc overrules it. */
static const class_range added[] = {
    {0x897, 0x897, MARK},       {0x1b4e, 0x1b4f, PUNCT},    {0x1b7f, 0x1b7f, PUNCT},
    {0x1c89, 0x1c89, UPPER},    {0x1c8a, 0x1c8a, LOWER},    {0x2427, 0x2429, SYMBOL},
    {0x2ffc, 0x2fff, SYMBOL},   {0x31e4, 0x31e5, SYMBOL},   {0x31ef, 0x31ef, SYMBOL},
    {0xa7cb, 0xa7cc, UPPER},    {0xa7cd, 0xa7cd, LOWER},    {0xa7da, 0xa7da, UPPER},
    {0xa7db, 0xa7db, LOWER},    {0xa7dc, 0xa7dc, UPPER},    {0x105c0, 0x105f3, OTHER},
    {0x10d40, 0x10d49, NUMBER}, {0x10d4a, 0x10d4f, OTHER},  {0x10d50, 0x10d65, UPPER},
    {0x10d69, 0x10d6d, MARK},   {0x10d6e, 0x10d6e, PUNCT},  {0x10d6f, 0x10d6f, OTHER},
    {0x10d70, 0x10d85, LOWER},  {0x10d8e, 0x10d8f, SYMBOL}, {0x10ec2, 0x10ec4, OTHER},
    {0x10efc, 0x10efc, MARK},   {0x11380, 0x11389, OTHER},  {0x1138b, 0x1138b, OTHER},
    {0x1138e, 0x1138e, OTHER},  {0x11390, 0x113b5, OTHER},  {0x113b7, 0x113b7, OTHER},
    {0x113b8, 0x113c0, MARK},   {0x113c2, 0x113c2, MARK},   {0x113c5, 0x113c5, MARK},
    {0x113c7, 0x113ca, MARK},   {0x113cc, 0x113d0, MARK},   {0x113d1, 0x113d1, OTHER},
    {0x113d2, 0x113d2, MARK},   {0x113d3, 0x113d3, OTHER},  {0x113d4, 0x113d5, PUNCT},
    {0x113d7, 0x113d8, PUNCT},  {0x113e1, 0x113e2, MARK},   {0x116d0, 0x116e3, NUMBER},
    {0x11bc0, 0x11be0, OTHER},  {0x11be1, 0x11be1, PUNCT},  {0x11bf0, 0x11bf9, NUMBER},
    {0x11de0, 0x11de9, DIGIT},  {0x11f5a, 0x11f5a, MARK},   {0x13460, 0x143fa, OTHER},
    {0x16100, 0x1611d, OTHER},  {0x1611e, 0x1612f, MARK},   {0x16130, 0x16139, NUMBER},
    {0x16d40, 0x16d6c, OTHER},  {0x16d6d, 0x16d6f, PUNCT},  {0x16d70, 0x16d79, NUMBER},
    {0x16ff4, 0x16ff6, DIGIT},  {0x18cff, 0x18cff, OTHER},  {0x1cc00, 0x1ccef, SYMBOL},
    {0x1ccf0, 0x1ccf9, NUMBER}, {0x1cd00, 0x1ceb3, SYMBOL}, {0x1e5d0, 0x1e5ed, OTHER},
    {0x1e5ee, 0x1e5ef, MARK},   {0x1e5f0, 0x1e5f0, OTHER},  {0x1e5f1, 0x1e5fa, NUMBER},
    {0x1e5ff, 0x1e5ff, PUNCT},  {0x1f8b2, 0x1f8bb, SYMBOL}, {0x1f8c0, 0x1f8c1, SYMBOL},
    {0x1fa89, 0x1fa89, SYMBOL}, {0x1fa8f, 0x1fa8f, SYMBOL}, {0x1fabe, 0x1fabe, SYMBOL},
    {0x1fac6, 0x1fac6, SYMBOL}, {0x1fadc, 0x1fadc, SYMBOL}, {0x1fadf, 0x1fadf, SYMBOL},
    {0x1fae9, 0x1fae9, SYMBOL}, {0x1fbcb, 0x1fbef, SYMBOL}, {0x2ebf0, 0x2ee5d, OTHER},
};

static unsigned class_in(const class_range *table, size_t n, uint32_t cp) {
    size_t low = 0, high = n;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (cp > table[mid].last) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return low < n && cp >= table[low].first ? table[low].class : 0;
}

unsigned unicode_class(uint32_t cp) {
    switch (utf8proc_category((utf8proc_int32_t)cp)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LT: return UPPER;
    case UTF8PROC_CATEGORY_LL: return LOWER;
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO: return OTHER;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME: return MARK;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO: return NUMBER;
    case UTF8PROC_CATEGORY_PC:
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO: return PUNCT;
    case UTF8PROC_CATEGORY_SM:
    case UTF8PROC_CATEGORY_SC:
    case UTF8PROC_CATEGORY_SK:
    case UTF8PROC_CATEGORY_SO: return SYMBOL;
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP: return SPACE;
    case UTF8PROC_CATEGORY_CC: return cp == 0x85 ? SPACE : 0;
    case UTF8PROC_CATEGORY_CN: return class_in(added, sizeof added / sizeof *added, cp);
    default: return 0;
    }
}

/* Punctuation of Unicode 15 that the reference's older table does not have. */
static const class_range later_punctuation[] = {
    {0x61d, 0x61d, 1},     {0x9fd, 0x9fd, 1},     {0xa76, 0xa76, 1},     {0xc77, 0xc77, 1},
    {0xc84, 0xc84, 1},     {0x1b4e, 0x1b4f, 1},   {0x1b7d, 0x1b7f, 1},   {0x2e43, 0x2e4f, 1},
    {0x2e52, 0x2e5d, 1},   {0x10d6e, 0x10d6e, 1}, {0x10ead, 0x10ead, 1}, {0x10f55, 0x10f59, 1},
    {0x10f86, 0x10f89, 1}, {0x113d4, 0x113d8, 1}, {0x1144b, 0x1144f, 1}, {0x1145a, 0x1145b, 1},
    {0x1145d, 0x1145d, 1}, {0x11660, 0x1166c, 1}, {0x116b9, 0x116b9, 1}, {0x1183b, 0x1183b, 1},
    {0x11944, 0x11946, 1}, {0x119e2, 0x119e2, 1}, {0x11a3f, 0x11a46, 1}, {0x11a9a, 0x11a9c, 1},
    {0x11a9e, 0x11aa2, 1}, {0x11b00, 0x11b09, 1}, {0x11be1, 0x11be1, 1}, {0x11c41, 0x11c45, 1},
    {0x11c70, 0x11c71, 1}, {0x11ef7, 0x11ef8, 1}, {0x11f43, 0x11f4f, 1}, {0x11fff, 0x11fff, 1},
    {0x12ff1, 0x12ff2, 1}, {0x16d6d, 0x16d6f, 1}, {0x16e97, 0x16e9a, 1}, {0x16fe2, 0x16fe2, 1},
    {0x1e5ff, 0x1e5ff, 1}, {0x1e95e, 0x1e95f, 1},
};

bool unicode_is_old_punctuation(uint32_t cp) {
    if (cp < 0x80) return (unicode_ascii_class[cp] & (UC_PUNCT | UC_SYMBOL)) != 0;
    if (cp == 0x166d || cp == 0x111c9) return true; /* reclassified since */
    return (unicode_class(cp) & UC_PUNCT) &&
           !class_in(later_punctuation, sizeof later_punctuation / sizeof *later_punctuation, cp);
}

/* ---- composition ------------------------------------------------------------------------------------ */

/* What the reference's composition, of an older Unicode, does not know: marks that are starters to it, and
 * one pair that does not join. */
static const class_range later_marks[] = {
    {0x7fd, 0x7fd, 1},     {0x898, 0x89f, 1},     {0x8ca, 0x8d3, 1},     {0x9fe, 0x9fe, 1},
    {0xc3c, 0xc3c, 1},     {0xd3b, 0xd3c, 1},     {0xeba, 0xeba, 1},     {0x1715, 0x1715, 1},
    {0x1abf, 0x1ace, 1},   {0x1df6, 0x1dfa, 1},   {0xa82c, 0xa82c, 1},   {0x10d24, 0x10d27, 1},
    {0x10eab, 0x10eac, 1}, {0x10efd, 0x10eff, 1}, {0x10f46, 0x10f50, 1}, {0x10f82, 0x10f85, 1},
    {0x11070, 0x11070, 1}, {0x1133b, 0x1133b, 1}, {0x1145e, 0x1145e, 1}, {0x11839, 0x1183a, 1},
    {0x11930, 0x11930, 1}, {0x11938, 0x11938, 1}, {0x1193d, 0x1193e, 1}, {0x11943, 0x11943, 1},
    {0x119e0, 0x119e0, 1}, {0x11a34, 0x11a34, 1}, {0x11a47, 0x11a47, 1}, {0x11a99, 0x11a99, 1},
    {0x11d42, 0x11d42, 1}, {0x11d44, 0x11d45, 1}, {0x11d97, 0x11d97, 1}, {0x11f41, 0x11f42, 1},
    {0x16ff0, 0x16ff1, 1}, {0x1e08f, 0x1e08f, 1}, {0x1e130, 0x1e136, 1}, {0x1e2ae, 0x1e2ae, 1},
    {0x1e2ec, 0x1e2ef, 1}, {0x1e4ec, 0x1e4ef, 1},
};

static bool is_later_mark(uint32_t cp) {
    return class_in(later_marks, sizeof later_marks / sizeof *later_marks, cp) != 0;
}

/* Whether cp may change under NFC or join what stands before it. The vowels and finals of conjoining jamo are
 * letters that compose; all others that compose backwards are marks. */
static bool may_compose(uint32_t cp) {
    if (cp < 0x300 || (cp >= 0x4e00 && cp <= 0x9fff) || (cp >= 0xac00 && cp <= 0xd7a3)) return false;
    if (cp >= 0x1100 && cp <= 0x11ff)
        return cp != 0x11a7; /* the base of finals is none, but utf8proc joins it */
    const utf8proc_property_t *prop = utf8proc_get_property((utf8proc_int32_t)cp);
    bool changes = prop->combining_class != 0 || prop->category == UTF8PROC_CATEGORY_MN ||
                   prop->category == UTF8PROC_CATEGORY_MC || prop->category == UTF8PROC_CATEGORY_ME ||
                   (prop->decomp_type == 0 && prop->decomp_seqindex != UINT16_MAX);
    return changes && !is_later_mark(cp);
}

static bool char_may_compose(const char *p, const char *end, size_t *n) {
    uint32_t cp;
    *n = utf8_decode(p, end, &cp);
    if (!*n) {
        *n = 1;
        return false;
    }
    return may_compose(cp);
}

bool unicode_is_plain(const char *text, size_t len) {
    const char *p = text, *end = text + len;
    while (p < end) {
        if ((unsigned char)*p < 0xcc) { /* below U+0300 */
            p++;
            continue;
        }
        size_t n;
        if (char_may_compose(p, end, &n)) return false;
        p += n;
    }
    return true;
}

static uint8_t combining_class(utf8proc_int32_t cp) {
    uint8_t class = (uint8_t)utf8proc_get_property(cp)->combining_class;
    return class && is_later_mark((uint32_t)cp) ? 0 : class;
}

/* Canonical order: each run of marks sorted by combining class, equal ones in their order. Counting sort, as
 * a run may be as long as the text. `spare` has room for n. */
static void order_marks(utf8proc_int32_t *cps, size_t n, utf8proc_int32_t *spare) {
    size_t i = 0;
    while (i < n) {
        if (combining_class(cps[i]) == 0) {
            i++;
            continue;
        }
        size_t at[257] = {0};
        size_t last = i;
        for (; last < n && combining_class(cps[last]) != 0; last++) at[combining_class(cps[last]) + 1]++;
        if (last - i > 1) {
            for (size_t k = 1; k < 257; k++) at[k] += at[k - 1];
            for (size_t k = i; k < last; k++) spare[at[combining_class(cps[k])]++] = cps[k];
            memcpy(cps + i, spare, (last - i) * sizeof *cps);
        }
        i = last;
    }
}

typedef struct compose_space {
    utf8proc_int32_t *cps, *spare; /* one block, [cap] each */
    size_t cap;
} compose_space;

static bool compose_reserve(compose_space *c, size_t n) {
    if (n <= c->cap) return true;
    size_t bytes;
    if (!size_mul(n + n / 2, 2 * sizeof *c->cps, &bytes)) return false;
    utf8proc_int32_t *grown = mem_realloc(c->cps, bytes);
    if (!grown) return false;
    c->cps = grown;
    c->cap = n + n / 2;
    c->spare = grown + c->cap;
    return true;
}

/* One span that begins with a character nothing before it can join. A character decomposes into at most four.
 */
static status compose_span(const char *p, const char *end, compose_space *c, str *out, error *err) {
    size_t room = (size_t)(end - p) * 4 + 4;
    if (!compose_reserve(c, room)) return error_no_memory(err, "normalized text", room * 8);
    size_t n = 0;
    while (p < end) {
        uint32_t cp;
        size_t len = utf8_decode(p, end, &cp);
        int boundclass = 0;
        utf8proc_ssize_t got =
            utf8proc_decompose_char((utf8proc_int32_t)cp, c->cps + n, (utf8proc_ssize_t)(c->cap - n),
                                    UTF8PROC_DECOMPOSE | UTF8PROC_STABLE, &boundclass);
        if (got < 0 || (size_t)got > c->cap - n)
            return error_set(err, CHURON_INTERNAL, "U+%04X", (unsigned)cp);
        n += (size_t)got;
        p += len;
    }
    order_marks(c->cps, n, c->spare);
    utf8proc_ssize_t kept =
        utf8proc_normalize_utf32(c->cps, (utf8proc_ssize_t)n, UTF8PROC_COMPOSE | UTF8PROC_STABLE);
    if (kept < 0) return error_set(err, CHURON_INTERNAL, "normalization: %s", utf8proc_errmsg(kept));
    for (utf8proc_ssize_t i = 0; i < kept; i++) {
        char bytes[4];
        str_add(out, bytes, utf8_encode((uint32_t)c->cps[i], bytes));
    }
    return CHURON_OK;
}

status unicode_nfc(const char *text, size_t len, str *out, error *err) {
    const char *p = text, *end = text + len;
    const char *copied = text; /* what is before is in *out */
    const char *last = text;   /* the character before p, if it is valid and stands still */
    compose_space c = {0};
    status st = CHURON_OK;
    while (p < end && st == CHURON_OK) {
        size_t n;
        if (!char_may_compose(p, end, &n)) {
            last = utf8_decode(p, end, NULL) ? p : p + n;
            p += n;
            continue;
        }
        while (p < end && char_may_compose(p, end, &n)) p += n;
        str_add(out, copied, (size_t)(last - copied));
        st = compose_span(last, p, &c, out, err);
        copied = last = p;
    }
    str_add(out, copied, (size_t)(end - copied));
    mem_free(c.cps);
    return st == CHURON_OK ? str_check(out, err) : st;
}

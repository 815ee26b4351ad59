/* template_case.c: letters as Python's str sees them: classes, and case mappings of the whole Unicode
 * standard (one character may become three; a sigma at the end of a word has its own form).
 *
 * utf8proc knows categories and the simple mappings; what it does not have is in the tables here: the special
 * mappings of SpecialCasing.txt, the properties Other_Lowercase and Other_Uppercase, and the punctuation that
 * the property Case_Ignorable adds to five categories. */
#include "text/template_internal.h"

#include <utf8proc.h>

typedef struct special {
    uint32_t cp;
    uint16_t upper[3], title[3]; /* zero-padded; title all zero: the simple mapping */
} special;

static const special SPECIAL[] = {
    {0xdf, {0x53, 0x53}, {0x53, 0x73}},
    {0x149, {0x2bc, 0x4e}, {0x2bc, 0x4e}},
    {0x1f0, {0x4a, 0x30c}, {0x4a, 0x30c}},
    {0x390, {0x399, 0x308, 0x301}, {0x399, 0x308, 0x301}},
    {0x3b0, {0x3a5, 0x308, 0x301}, {0x3a5, 0x308, 0x301}},
    {0x587, {0x535, 0x552}, {0x535, 0x582}},
    {0x1e96, {0x48, 0x331}, {0x48, 0x331}},
    {0x1e97, {0x54, 0x308}, {0x54, 0x308}},
    {0x1e98, {0x57, 0x30a}, {0x57, 0x30a}},
    {0x1e99, {0x59, 0x30a}, {0x59, 0x30a}},
    {0x1e9a, {0x41, 0x2be}, {0x41, 0x2be}},
    {0x1f50, {0x3a5, 0x313}, {0x3a5, 0x313}},
    {0x1f52, {0x3a5, 0x313, 0x300}, {0x3a5, 0x313, 0x300}},
    {0x1f54, {0x3a5, 0x313, 0x301}, {0x3a5, 0x313, 0x301}},
    {0x1f56, {0x3a5, 0x313, 0x342}, {0x3a5, 0x313, 0x342}},
    {0x1f80, {0x1f08, 0x399}, {0x1f88}},
    {0x1f81, {0x1f09, 0x399}, {0x1f89}},
    {0x1f82, {0x1f0a, 0x399}, {0x1f8a}},
    {0x1f83, {0x1f0b, 0x399}, {0x1f8b}},
    {0x1f84, {0x1f0c, 0x399}, {0x1f8c}},
    {0x1f85, {0x1f0d, 0x399}, {0x1f8d}},
    {0x1f86, {0x1f0e, 0x399}, {0x1f8e}},
    {0x1f87, {0x1f0f, 0x399}, {0x1f8f}},
    {0x1f88, {0x1f08, 0x399}, {0x1f88}},
    {0x1f89, {0x1f09, 0x399}, {0x1f89}},
    {0x1f8a, {0x1f0a, 0x399}, {0x1f8a}},
    {0x1f8b, {0x1f0b, 0x399}, {0x1f8b}},
    {0x1f8c, {0x1f0c, 0x399}, {0x1f8c}},
    {0x1f8d, {0x1f0d, 0x399}, {0x1f8d}},
    {0x1f8e, {0x1f0e, 0x399}, {0x1f8e}},
    {0x1f8f, {0x1f0f, 0x399}, {0x1f8f}},
    {0x1f90, {0x1f28, 0x399}, {0x1f98}},
    {0x1f91, {0x1f29, 0x399}, {0x1f99}},
    {0x1f92, {0x1f2a, 0x399}, {0x1f9a}},
    {0x1f93, {0x1f2b, 0x399}, {0x1f9b}},
    {0x1f94, {0x1f2c, 0x399}, {0x1f9c}},
    {0x1f95, {0x1f2d, 0x399}, {0x1f9d}},
    {0x1f96, {0x1f2e, 0x399}, {0x1f9e}},
    {0x1f97, {0x1f2f, 0x399}, {0x1f9f}},
    {0x1f98, {0x1f28, 0x399}, {0x1f98}},
    {0x1f99, {0x1f29, 0x399}, {0x1f99}},
    {0x1f9a, {0x1f2a, 0x399}, {0x1f9a}},
    {0x1f9b, {0x1f2b, 0x399}, {0x1f9b}},
    {0x1f9c, {0x1f2c, 0x399}, {0x1f9c}},
    {0x1f9d, {0x1f2d, 0x399}, {0x1f9d}},
    {0x1f9e, {0x1f2e, 0x399}, {0x1f9e}},
    {0x1f9f, {0x1f2f, 0x399}, {0x1f9f}},
    {0x1fa0, {0x1f68, 0x399}, {0x1fa8}},
    {0x1fa1, {0x1f69, 0x399}, {0x1fa9}},
    {0x1fa2, {0x1f6a, 0x399}, {0x1faa}},
    {0x1fa3, {0x1f6b, 0x399}, {0x1fab}},
    {0x1fa4, {0x1f6c, 0x399}, {0x1fac}},
    {0x1fa5, {0x1f6d, 0x399}, {0x1fad}},
    {0x1fa6, {0x1f6e, 0x399}, {0x1fae}},
    {0x1fa7, {0x1f6f, 0x399}, {0x1faf}},
    {0x1fa8, {0x1f68, 0x399}, {0x1fa8}},
    {0x1fa9, {0x1f69, 0x399}, {0x1fa9}},
    {0x1faa, {0x1f6a, 0x399}, {0x1faa}},
    {0x1fab, {0x1f6b, 0x399}, {0x1fab}},
    {0x1fac, {0x1f6c, 0x399}, {0x1fac}},
    {0x1fad, {0x1f6d, 0x399}, {0x1fad}},
    {0x1fae, {0x1f6e, 0x399}, {0x1fae}},
    {0x1faf, {0x1f6f, 0x399}, {0x1faf}},
    {0x1fb2, {0x1fba, 0x399}, {0x1fba, 0x345}},
    {0x1fb3, {0x391, 0x399}, {0x1fbc}},
    {0x1fb4, {0x386, 0x399}, {0x386, 0x345}},
    {0x1fb6, {0x391, 0x342}, {0x391, 0x342}},
    {0x1fb7, {0x391, 0x342, 0x399}, {0x391, 0x342, 0x345}},
    {0x1fbc, {0x391, 0x399}, {0x1fbc}},
    {0x1fc2, {0x1fca, 0x399}, {0x1fca, 0x345}},
    {0x1fc3, {0x397, 0x399}, {0x1fcc}},
    {0x1fc4, {0x389, 0x399}, {0x389, 0x345}},
    {0x1fc6, {0x397, 0x342}, {0x397, 0x342}},
    {0x1fc7, {0x397, 0x342, 0x399}, {0x397, 0x342, 0x345}},
    {0x1fcc, {0x397, 0x399}, {0x1fcc}},
    {0x1fd2, {0x399, 0x308, 0x300}, {0x399, 0x308, 0x300}},
    {0x1fd3, {0x399, 0x308, 0x301}, {0x399, 0x308, 0x301}},
    {0x1fd6, {0x399, 0x342}, {0x399, 0x342}},
    {0x1fd7, {0x399, 0x308, 0x342}, {0x399, 0x308, 0x342}},
    {0x1fe2, {0x3a5, 0x308, 0x300}, {0x3a5, 0x308, 0x300}},
    {0x1fe3, {0x3a5, 0x308, 0x301}, {0x3a5, 0x308, 0x301}},
    {0x1fe4, {0x3a1, 0x313}, {0x3a1, 0x313}},
    {0x1fe6, {0x3a5, 0x342}, {0x3a5, 0x342}},
    {0x1fe7, {0x3a5, 0x308, 0x342}, {0x3a5, 0x308, 0x342}},
    {0x1ff2, {0x1ffa, 0x399}, {0x1ffa, 0x345}},
    {0x1ff3, {0x3a9, 0x399}, {0x1ffc}},
    {0x1ff4, {0x38f, 0x399}, {0x38f, 0x345}},
    {0x1ff6, {0x3a9, 0x342}, {0x3a9, 0x342}},
    {0x1ff7, {0x3a9, 0x342, 0x399}, {0x3a9, 0x342, 0x345}},
    {0x1ffc, {0x3a9, 0x399}, {0x1ffc}},
    {0xfb00, {0x46, 0x46}, {0x46, 0x66}},
    {0xfb01, {0x46, 0x49}, {0x46, 0x69}},
    {0xfb02, {0x46, 0x4c}, {0x46, 0x6c}},
    {0xfb03, {0x46, 0x46, 0x49}, {0x46, 0x66, 0x69}},
    {0xfb04, {0x46, 0x46, 0x4c}, {0x46, 0x66, 0x6c}},
    {0xfb05, {0x53, 0x54}, {0x53, 0x74}},
    {0xfb06, {0x53, 0x54}, {0x53, 0x74}},
    {0xfb13, {0x544, 0x546}, {0x544, 0x576}},
    {0xfb14, {0x544, 0x535}, {0x544, 0x565}},
    {0xfb15, {0x544, 0x53b}, {0x544, 0x56b}},
    {0xfb16, {0x54e, 0x546}, {0x54e, 0x576}},
    {0xfb17, {0x544, 0x53d}, {0x544, 0x56d}},
};

typedef struct range {
    uint32_t from, to;
} range;

static const range OTHER_LOWER[] = {
    {0xaa, 0xaa},       {0xba, 0xba},       {0x2b0, 0x2b8},     {0x2c0, 0x2c1},    {0x2e0, 0x2e4},
    {0x345, 0x345},     {0x37a, 0x37a},     {0x1d2c, 0x1d6a},   {0x1d78, 0x1d78},  {0x1d9b, 0x1dbf},
    {0x2071, 0x2071},   {0x207f, 0x207f},   {0x2090, 0x209c},   {0x2170, 0x217f},  {0x24d0, 0x24e9},
    {0x2c7c, 0x2c7d},   {0xa69c, 0xa69d},   {0xa770, 0xa770},   {0xa7f8, 0xa7f9},  {0xab5c, 0xab5f},
    {0x10780, 0x10780}, {0x10783, 0x10785}, {0x10787, 0x107b0}, {0x107b2, 0x107ba}};
static const range OTHER_UPPER[] = {
    {0x2160, 0x216f}, {0x24b6, 0x24cf}, {0x1f130, 0x1f149}, {0x1f150, 0x1f169}, {0x1f170, 0x1f189}};
static const range IGNORED_PUNCTUATION[] = {
    {0x27, 0x27},     {0x2e, 0x2e},     {0x3a, 0x3a},     {0xb7, 0xb7},
    {0x387, 0x387},   {0x55f, 0x55f},   {0x5f4, 0x5f4},   {0x2018, 0x2019},
    {0x2024, 0x2024}, {0x2027, 0x2027}, {0xfe13, 0xfe13}, {0xfe52, 0xfe52},
    {0xfe55, 0xfe55}, {0xff07, 0xff07}, {0xff0e, 0xff0e}, {0xff1a, 0xff1a}};

/* Digits that are not decimal: superscripts, circled ones. */
static const range OTHER_DIGIT[] = {
    {0xb2, 0xb3},     {0xb9, 0xb9},       {0x1369, 0x1371},   {0x19da, 0x19da},   {0x2070, 0x2070},
    {0x2074, 0x2079}, {0x2080, 0x2089},   {0x2460, 0x2468},   {0x2474, 0x247c},   {0x2488, 0x2490},
    {0x24ea, 0x24ea}, {0x24f5, 0x24fd},   {0x24ff, 0x24ff},   {0x2776, 0x277e},   {0x2780, 0x2788},
    {0x278a, 0x2792}, {0x10a40, 0x10a43}, {0x10e60, 0x10e68}, {0x11052, 0x1105a}, {0x1f100, 0x1f10a}};

static bool in_ranges(uint32_t cp, const range *r, size_t n) {
    for (size_t i = 0; i < n && cp >= r[i].from; i++) {
        if (cp <= r[i].to) return true;
    }
    return false;
}

#define IN(cp, table) in_ranges(cp, table, sizeof table / sizeof table[0])

static utf8proc_category_t category(uint32_t cp) {
    return utf8proc_category((utf8proc_int32_t)cp);
}

bool tpl_cp_space(uint32_t cp) {
    if (cp < 0x80) return (cp >= 9 && cp <= 13) || (cp >= 0x1c && cp <= 0x20);
    return cp == 0x85 || cp == 0xa0 || cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200a) || cp == 0x2028 ||
           cp == 0x2029 || cp == 0x202f || cp == 0x205f || cp == 0x3000;
}

bool tpl_cp_linebreak(uint32_t cp) {
    return (cp >= 10 && cp <= 13) || (cp >= 0x1c && cp <= 0x1e) || cp == 0x85 || cp == 0x2028 || cp == 0x2029;
}

bool tpl_cp_printable(uint32_t cp) {
    if (cp < 0x7f) return cp >= 0x20;
    switch (category(cp)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP: return false;
    default: return true;
    }
}

bool tpl_cp_lower(uint32_t cp) {
    if (cp < 0x80) return cp >= 'a' && cp <= 'z';
    return category(cp) == UTF8PROC_CATEGORY_LL || IN(cp, OTHER_LOWER);
}

bool tpl_cp_upper(uint32_t cp) {
    if (cp < 0x80) return cp >= 'A' && cp <= 'Z';
    return category(cp) == UTF8PROC_CATEGORY_LU || IN(cp, OTHER_UPPER);
}

bool tpl_cp_title(uint32_t cp) {
    return cp >= 0x80 && category(cp) == UTF8PROC_CATEGORY_LT;
}

static bool is_cased(uint32_t cp) {
    return tpl_cp_lower(cp) || tpl_cp_upper(cp) || tpl_cp_title(cp);
}

static bool is_case_ignorable(uint32_t cp) {
    switch (category(cp)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK: return true;
    default: return IN(cp, IGNORED_PUNCTUATION);
    }
}

bool tpl_cp_alpha(uint32_t cp) {
    switch (category(cp)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO: return true;
    default: return false;
    }
}

bool tpl_cp_decimal(uint32_t cp) {
    if (cp < 0x80) return cp >= '0' && cp <= '9';
    return category(cp) == UTF8PROC_CATEGORY_ND;
}

bool tpl_cp_digit(uint32_t cp) {
    return tpl_cp_decimal(cp) || IN(cp, OTHER_DIGIT);
}

bool tpl_cp_word(uint32_t cp) {
    if (cp < 0x80) return cp == '_' || tpl_cp_decimal(cp) || tpl_cp_lower(cp) || tpl_cp_upper(cp);
    if (tpl_cp_alpha(cp)) return true;
    utf8proc_category_t c = category(cp);
    return c == UTF8PROC_CATEGORY_ND || c == UTF8PROC_CATEGORY_NL || c == UTF8PROC_CATEGORY_NO;
}

static const special *find_special(uint32_t cp) {
    size_t lo = 0, hi = sizeof SPECIAL / sizeof SPECIAL[0];
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (SPECIAL[mid].cp == cp) return &SPECIAL[mid];
        if (SPECIAL[mid].cp < cp)
            lo = mid + 1;
        else
            hi = mid;
    }
    return NULL;
}

void tpl_buf_upper(tpl_buf *b, uint32_t cp, bool title) {
    if (cp < 0x80) {
        tpl_buf_put(b, (char)(cp >= 'a' && cp <= 'z' ? cp - 32 : cp));
        return;
    }
    const special *s = find_special(cp);
    const uint16_t *to = s ? title ? s->title : s->upper : NULL;
    if (to && to[0]) {
        for (size_t i = 0; i < 3 && to[i]; i++) tpl_buf_cp(b, to[i]);
        return;
    }
    utf8proc_int32_t c = (utf8proc_int32_t)cp;
    tpl_buf_cp(b, (uint32_t)(title ? utf8proc_totitle(c) : utf8proc_toupper(c)));
}

static uint32_t previous_cp(const char *start, const char **p) {
    const char *end = *p, *q = *p - 1;
    while (q > start && ((unsigned char)*q & 0xc0) == 0x80) q--;
    *p = q;
    uint32_t cp = 0;
    (void)utf8_decode(q, end, &cp);
    return cp;
}

/* A capital sigma at [p, after) is final when a cased letter stands before it and none after it. */
bool tpl_final_sigma(const char *start, const char *end, const char *p, const char *after) {
    bool before = false;
    while (p > start) {
        uint32_t cp = previous_cp(start, &p);
        if (is_case_ignorable(cp)) continue;
        before = is_cased(cp);
        break;
    }
    if (!before) return false;
    while (after < end) {
        size_t n;
        uint32_t cp = tpl_cp_at(after, end, &n);
        after += n;
        if (is_case_ignorable(cp)) continue;
        return !is_cased(cp);
    }
    return true;
}

static void buf_lower(tpl_buf *b, tvalue s, const char *at, size_t n, uint32_t cp) {
    if (cp < 0x80) {
        tpl_buf_put(b, (char)(cp >= 'A' && cp <= 'Z' ? cp + 32 : cp));
    } else if (cp == 0x3a3) {
        tpl_buf_cp(b, tpl_final_sigma(s.s, s.s + s.len, at, at + n) ? 0x3c2 : 0x3c3);
    } else if (cp == 0x130) {
        tpl_buf_cp(b, 'i');
        tpl_buf_cp(b, 0x307);
    } else {
        tpl_buf_cp(b, (uint32_t)utf8proc_tolower((utf8proc_int32_t)cp));
    }
}

status tpl_recase(tpl_rt *rt, tvalue s, tpl_case how, tvalue *out) {
    TRY(tpl_steps(rt, s.len / 8));
    tpl_buf b = tpl_buf_begin(rt);
    const char *p = s.s, *end = s.s + s.len;
    bool in_word = false;
    while (p < end) {
        size_t n;
        uint32_t cp = tpl_cp_at(p, end, &n);
        bool first = how == TPL_CASE_CAPITAL ? p == s.s : !in_word;
        switch (how) {
        case TPL_CASE_UPPER: tpl_buf_upper(&b, cp, false); break;
        case TPL_CASE_LOWER: buf_lower(&b, s, p, n, cp); break;
        case TPL_CASE_TITLE:
        case TPL_CASE_CAPITAL:
            if (first)
                tpl_buf_upper(&b, cp, true);
            else
                buf_lower(&b, s, p, n, cp);
            break;
        case TPL_CASE_SWAP:
            if (tpl_cp_upper(cp))
                buf_lower(&b, s, p, n, cp);
            else if (tpl_cp_lower(cp))
                tpl_buf_upper(&b, cp, false);
            else
                tpl_buf_cp(&b, cp);
            break;
        }
        if (how == TPL_CASE_TITLE) in_word = is_cased(cp);
        p += n;
    }
    TRY(tpl_buf_end(&b, out));
    out->flags |= s.flags & TPL_MARKUP;
    return CHURON_OK;
}

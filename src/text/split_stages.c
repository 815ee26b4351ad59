/* split_stages.c: see split_stages.h. */
#include "text/split_stages.h"

#include "text/unicode.h"

#include <string.h>

enum { WORD = UC_LETTER | UC_NUMBER | UC_SPACE };

static inline bool is_newline(char c) {
    return c == '\n' || c == '\r';
}

static inline bool is_ascii_digit(char c) {
    return c >= '0' && c <= '9';
}

static inline bool is_ascii_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* The end of the run of characters from p that have a bit of `any`. */
static inline const char *run_of(const char *p, const char *end, unsigned any) {
    while (p < end) {
        size_t n;
        if (!(unicode_peek(p, end, &n) & any)) break;
        p += n;
    }
    return p;
}

static inline const char *run_without(const char *p, const char *end, unsigned none) {
    while (p < end) {
        size_t n;
        if (unicode_peek(p, end, &n) & none) break;
        p += n;
    }
    return p;
}

static inline const char *run_of_newlines(const char *p, const char *end) {
    while (p < end && is_newline(*p)) p++;
    return p;
}

/* Length of a contraction at p, which is an apostrophe, or 0. */
static inline size_t contraction(const char *p, const char *end) {
    if (end - p < 2) return 0;
    char c = p[1];
    if (c == 's' || c == 't' || c == 'm' || c == 'd') return 2;
    if (end - p < 3) return 0;
    char e = p[2];
    return (c == 'r' && e == 'e') || (c == 'v' && e == 'e') || (c == 'l' && e == 'l') ? 3 : 0;
}

/* The same in any case. The long s folds to s; no other letter outside ASCII folds to one of these. */
static inline size_t contraction_any_case(const char *p, const char *end) {
    if (end - p < 2) return 0;
    char c = (char)(p[1] | 0x20);
    if (c == 's' || c == 't' || c == 'm' || c == 'd') return is_ascii_letter(p[1]) ? 2 : 0;
    if (end - p < 3) return 0;
    if (p[1] == '\xc5' && p[2] == '\xbf') return 3;
    if (!is_ascii_letter(p[1]) || !is_ascii_letter(p[2])) return 0;
    char e = (char)(p[2] | 0x20);
    return (c == 'r' && e == 'e') || (c == 'v' && e == 'e') || (c == 'l' && e == 'l') ? 3 : 0;
}

/* \s+(?!\S)|\s+ at p, which is white; `last` is the begin of the last white character of its run [p, q). */
static inline const char *all_but_last(const char *p, const char *last, const char *q, bool at_end) {
    return at_end || last == p ? q : last;
}

/* ---- GPT-2 ------------------------------------------------------------------------------------------ */

static inline const char *gpt2_space(const char *p, const char *end, unsigned stop) {
    const char *q = p, *last = p;
    unsigned class = UC_SPACE;
    while (q < end) {
        size_t n;
        class = unicode_peek(q, end, &n);
        if (!(class & UC_SPACE)) break;
        last = q;
        q += n;
    }
    return all_but_last(p, last, q, q == end || (class & stop));
}

/* `alone`: characters that are pieces by themselves and end what is before them like the end of the text. */
static inline const char *gpt2(const char *p, const char *end, unsigned alone) {
    size_t n;
    unsigned class = unicode_peek(p, end, &n);
    if (class & alone) return p + n;
    const char *body = p;
    if (*p == ' ' && p + 1 < end) {
        unsigned next = unicode_peek(p + 1, end, &n);
        if (!(next & (UC_SPACE | alone))) {
            class = next;
            body = p + 1;
        }
    }
    if (class & UC_LETTER) return run_of(body + n, end, UC_LETTER);
    if (class & UC_SPACE) return gpt2_space(p, end, alone);
    if (*p == '\'') {
        size_t k = contraction(p, end);
        if (k) return p + k;
    }
    if (class & UC_NUMBER) return run_of(body + n, end, UC_NUMBER);
    return run_without(body + n, end, WORD | alone);
}

const char *split_gpt2(const char *p, const char *end) {
    return gpt2(p, end, 0);
}

const char *split_digits_gpt2(const char *p, const char *end) {
    return gpt2(p, end, UC_DIGIT);
}

/* ---- cl100k and its kin ----------------------------------------------------------------------------- */

/* \s*[\r\n]+|\s+(?!\S)|\s+ : up to the last line break of the white run, if it has one. */
static inline const char *lines_or_space(const char *p, const char *end) {
    const char *q = p, *last = p, *after_break = NULL;
    while (q < end) {
        size_t n;
        unsigned class = unicode_peek(q, end, &n);
        if (!(class & UC_SPACE)) break;
        last = q;
        q += n;
        if (class & UC_NEWLINE) after_break = q;
    }
    return after_break ? after_break : all_but_last(p, last, q, q == end);
}

static inline const char *up_to_numbers(const char *p, const char *end, int most) {
    for (int i = 0; i < most && p < end; i++) {
        size_t n;
        if (!(unicode_peek(p, end, &n) & UC_NUMBER)) break;
        p += n;
    }
    return p;
}

static inline const char *cl100k(const char *p, const char *end, int digits, unsigned letter) {
    size_t n;
    unsigned class = unicode_peek(p, end, &n);
    if (class & letter) return run_of(p + n, end, letter);
    if (*p == '\'') {
        size_t k = contraction_any_case(p, end);
        if (k) return p + k;
    }
    if (class & UC_NUMBER) return up_to_numbers(p, end, digits);
    const char *body = p + n;
    size_t after = 0;
    unsigned next = body < end ? unicode_peek(body, end, &after) : UC_SPACE;
    if (!(class & UC_NEWLINE) && (next & letter)) return run_of(body + after, end, letter);
    if (*p == ' ' && !(next & (WORD | letter))) {
        return run_of_newlines(run_without(body + after, end, WORD | letter), end);
    }
    if (class & UC_SPACE) return lines_or_space(p, end);
    return run_of_newlines(run_without(body, end, WORD | letter), end);
}

const char *split_cl100k_3(const char *p, const char *end) {
    return cl100k(p, end, 3, UC_LETTER);
}

const char *split_cl100k_1(const char *p, const char *end) {
    return cl100k(p, end, 1, UC_LETTER);
}

const char *split_qwen35(const char *p, const char *end) {
    return cl100k(p, end, 1, UC_LETTER | UC_MARK);
}

/* ---- o200k and tekken ------------------------------------------------------------------------------- */

/* UPPER* LOWER+ at p, or NULL. The two classes share modifiers, caseless letters and marks: where no
 * lower-case letter follows the run of UPPER, its last shared character is given back to be the one LOWER.
 * *upper_end is the end of that run. */
static const char *upper_then_lower(const char *p, const char *end, const char **upper_end) {
    const char *q = p, *after_shared = NULL;
    while (q < end) {
        size_t n;
        unsigned class = unicode_peek(q, end, &n);
        if (!(class & UC_UPPER)) {
            if (class & UC_LOWER) return run_of(q + n, end, UC_LOWER);
            break;
        }
        q += n;
        if (class & UC_LOWER) after_shared = q;
    }
    *upper_end = q;
    return after_shared;
}

/* The word that begins at p, or NULL. */
static const char *cased_word(const char *p, const char *end) {
    size_t n;
    unsigned class = unicode_peek(p, end, &n);
    const char *upper_end = p, *upper_end_after_prefix = p + n, *q;
    bool may_be_prefix = !(class & (UC_NEWLINE | UC_LETTER | UC_NUMBER)) && p + n < end;
    if (may_be_prefix && (q = upper_then_lower(p + n, end, &upper_end_after_prefix))) return q;
    if ((class & (UC_UPPER | UC_LOWER)) && (q = upper_then_lower(p, end, &upper_end))) return q;
    if (may_be_prefix && upper_end_after_prefix > p + n) return upper_end_after_prefix;
    return upper_end > p ? upper_end : NULL;
}

static inline const char *cased(const char *p, const char *end, int digits, bool suffix) {
    const char *q = cased_word(p, end);
    if (q) return suffix && q < end && *q == '\'' ? q + contraction_any_case(q, end) : q;
    size_t n;
    unsigned class = unicode_peek(p, end, &n);
    if (class & UC_NUMBER) return up_to_numbers(p, end, digits);
    q = p + n;
    if (class & UC_SPACE) {
        size_t after;
        if (*p != ' ' || q == end || (unicode_peek(q, end, &after) & WORD)) return lines_or_space(p, end);
    }
    q = run_without(q, end, WORD);
    while (q < end && (is_newline(*q) || *q == '/')) q++;
    return q;
}

const char *split_o200k(const char *p, const char *end) {
    return cased(p, end, 3, true);
}

const char *split_tekken(const char *p, const char *end) {
    return cased(p, end, 1, false);
}

/* ---- stages that isolate one kind of match ---------------------------------------------------------- */

/* What `match` takes at p, or else all up to the next place where it takes something. */
static inline const char *isolate(const char *p, const char *end,
                                  const char *(*match)(const char *, const char *)) {
    const char *q = match(p, end);
    if (q) return q;
    do {
        size_t n;
        (void)unicode_peek(p, end, &n);
        p += n;
    } while (p < end && !match(p, end));
    return p;
}

const char *split_each_newline(const char *p, const char *end) {
    if (is_newline(*p)) return p + 1;
    while (p < end && !is_newline(*p)) p++;
    return p;
}

static inline const char *isolate_class(const char *p, const char *end, unsigned class, int most) {
    size_t n;
    if (!(unicode_peek(p, end, &n) & class)) return run_without(p + n, end, class);
    for (int i = 1; i != most; i++) {
        p += n;
        if (p == end || !(unicode_peek(p, end, &n) & class)) return p;
    }
    return p + n;
}

const char *split_each_digit(const char *p, const char *end) {
    return isolate_class(p, end, UC_DIGIT, 1);
}

const char *split_numbers(const char *p, const char *end) {
    return isolate_class(p, end, UC_NUMBER, 0);
}

const char *split_number_triples(const char *p, const char *end) {
    return isolate_class(p, end, UC_NUMBER, 3);
}

const char *split_digit_triples(const char *p, const char *end) {
    const char *q = p;
    int digits = 0;
    for (; q < end; q++) {
        digits = is_ascii_digit(*q) ? digits + 1 : 0;
        if (digits == 3) return q - p == 2 ? q + 1 : q - 2;
    }
    return end;
}

static inline bool is_default_punctuation(const char *p, const char *end, size_t *n) {
    return (unicode_peek(p, end, n) & UC_PUNCT) || (*p != '\0' && strchr("$+<=>^~|", *p));
}

const char *split_punctuation(const char *p, const char *end) {
    size_t n;
    bool first = is_default_punctuation(p, end, &n);
    for (p += n; p < end && is_default_punctuation(p, end, &n) == first; p += n) continue;
    return p;
}

static inline bool is_old_punctuation(const char *p, const char *end, size_t *n) {
    if ((unsigned char)*p < 0x80) {
        *n = 1;
        return (unicode_ascii_class[(unsigned char)*p] & (UC_PUNCT | UC_SYMBOL)) != 0;
    }
    uint32_t cp;
    size_t len = utf8_decode(p, end, &cp);
    *n = len ? len : 1;
    return len && unicode_is_old_punctuation(cp);
}

const char *split_old_punctuation(const char *p, const char *end) {
    size_t n;
    bool first = is_old_punctuation(p, end, &n);
    for (p += n; p < end && is_old_punctuation(p, end, &n) == first; p += n) continue;
    return p;
}

static inline bool is_mapped_digit(char c) {
    unsigned char u = (unsigned char)c;
    return (u >= '0' && u <= '9') || u == 0xb2 || u == 0xb3 || u == 0xb9 || (u >= 0xbc && u <= 0xbe);
}

const char *split_mapped_digits(const char *p, const char *end) {
    bool first = is_mapped_digit(*p);
    for (p++; p < end && is_mapped_digit(*p) == first; p++) continue;
    return p;
}

/* ---- DeepSeek's ------------------------------------------------------------------------------------- */

typedef struct cp_range {
    uint32_t first, last;
} cp_range;

/* Above ASCII, sorted. */
static const cp_range cased_alphabets[] = {
    {0xb5, 0xb5},       {0xc0, 0xd6},       {0xd8, 0xf6},       {0xf8, 0x1ba},      {0x1bc, 0x1bf},
    {0x1c4, 0x293},     {0x295, 0x2af},     {0x370, 0x373},     {0x376, 0x377},     {0x37b, 0x37d},
    {0x37f, 0x37f},     {0x386, 0x386},     {0x388, 0x38a},     {0x38c, 0x38c},     {0x38e, 0x3a1},
    {0x3a3, 0x3f5},     {0x3f7, 0x481},     {0x48a, 0x52f},     {0x531, 0x556},     {0x10a0, 0x10c5},
    {0x13a0, 0x13f5},   {0x13f8, 0x13fd},   {0x1c90, 0x1cba},   {0x1cbd, 0x1cbf},   {0x1d00, 0x1d2b},
    {0x1d6b, 0x1d77},   {0x1d79, 0x1d9a},   {0x1e00, 0x1f15},   {0x1f18, 0x1f1d},   {0x1f20, 0x1f45},
    {0x1f48, 0x1f4d},   {0x1f50, 0x1f57},   {0x1f59, 0x1f59},   {0x1f5b, 0x1f5b},   {0x1f5d, 0x1f5d},
    {0x1f5f, 0x1f7d},   {0x1f80, 0x1fb4},   {0x1fb6, 0x1fbc},   {0x1fbe, 0x1fbe},   {0x1fc2, 0x1fc4},
    {0x1fc6, 0x1fcc},   {0x1fd0, 0x1fd3},   {0x1fd6, 0x1fdb},   {0x1fe0, 0x1fec},   {0x1ff2, 0x1ff4},
    {0x1ff6, 0x1ffc},   {0x2102, 0x2102},   {0x2107, 0x2107},   {0x210a, 0x2113},   {0x2115, 0x2115},
    {0x2119, 0x211d},   {0x2124, 0x2124},   {0x2126, 0x2126},   {0x2128, 0x2128},   {0x212a, 0x212d},
    {0x212f, 0x2134},   {0x2139, 0x2139},   {0x213c, 0x213f},   {0x2145, 0x2149},   {0x214e, 0x214e},
    {0x2183, 0x2184},   {0x2c00, 0x2c7b},   {0x2c7e, 0x2ce4},   {0x2ceb, 0x2cee},   {0x2cf2, 0x2cf3},
    {0xa640, 0xa66d},   {0xa680, 0xa69b},   {0xa722, 0xa76f},   {0xa771, 0xa787},   {0xa78b, 0xa78e},
    {0xab70, 0xabbf},   {0xfb00, 0xfb06},   {0xfb13, 0xfb17},   {0xff21, 0xff3a},   {0xff41, 0xff5a},
    {0x10400, 0x1044f}, {0x104b0, 0x104d3}, {0x104d8, 0x104fb}, {0x10c80, 0x10cb2}, {0x10cc0, 0x10cf2},
    {0x118a0, 0x118df}, {0x1e900, 0x1e943},
};

/* Whether the character at p belongs; sets *n to its length in bytes. */
typedef bool (*member_fn)(const char *p, const char *end, size_t *n);

static bool is_cased_alphabet(const char *p, const char *end, size_t *n) {
    if ((unsigned char)*p < 0x80) {
        *n = 1;
        return is_ascii_letter(*p);
    }
    uint32_t cp = 0;
    size_t len = utf8_decode(p, end, &cp);
    *n = len ? len : 1;
    size_t low = 0, high = sizeof cased_alphabets / sizeof *cased_alphabets, count = high;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (cp > cased_alphabets[mid].last) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return len && low < count && cp >= cased_alphabets[low].first;
}

static bool is_ascii_or_wide(const char *p, const char *end, size_t *n) {
    unsigned char c = (unsigned char)*p;
    if (c < 0x80) {
        *n = 1;
        return (c >= '!' && c <= '/') || (c >= ':' && c <= '~');
    }
    uint32_t cp = 0;
    size_t len = utf8_decode(p, end, &cp);
    *n = len ? len : 1;
    return (cp >= 0xff01 && cp <= 0xff0f) || (cp >= 0xff1a && cp <= 0xff5e) ||
           (cp >= 0x2018 && cp <= 0x201f) || (cp >= 0x3000 && cp <= 0x3002);
}

static bool is_letter(const char *p, const char *end, size_t *n) {
    return (unicode_peek(p, end, n) & UC_LETTER) != 0;
}

static bool is_punctuation(const char *p, const char *end, size_t *n) {
    return (unicode_peek(p, end, n) & UC_PUNCT) != 0;
}

static bool is_cjk_korean(const char *p, const char *end, size_t *n) {
    uint32_t cp = 0;
    size_t len = utf8_decode(p, end, &cp);
    *n = len ? len : 1;
    return (cp >= 0x800 && cp <= 0x9fa5) || (cp >= 0xac00 && cp <= 0xd7ff);
}

static bool is_cjk_kana(const char *p, const char *end, size_t *n) {
    uint32_t cp = 0;
    size_t len = utf8_decode(p, end, &cp);
    *n = len ? len : 1;
    return (cp >= 0x4e00 && cp <= 0x9fa5) || (cp >= 0x3040 && cp <= 0x30ff);
}

static inline const char *run_of_members(const char *p, const char *end, member_fn is_member) {
    size_t n;
    for (; p < end && is_member(p, end, &n); p += n) continue;
    return p;
}

/* \s?[members]+ isolated. A white member that no other follows is its own run. */
static inline const char *space_and_members(const char *p, const char *end, member_fn is_member) {
    const char *begin = p;
    while (p < end) {
        size_t n, after;
        bool white = (unicode_peek(p, end, &n) & UC_SPACE) != 0;
        bool match = is_member(p, end, &n) || (white && p + n < end && is_member(p + n, end, &after));
        if (match) return p > begin ? p : run_of_members(p + n, end, is_member);
        p += n;
    }
    return p;
}

static inline const char *members(const char *p, const char *end, member_fn is_member) {
    size_t n;
    bool first = is_member(p, end, &n);
    for (p += n; p < end && is_member(p, end, &n) == first; p += n) continue;
    return p;
}

const char *split_space_alphabet(const char *p, const char *end) {
    return space_and_members(p, end, is_cased_alphabet);
}

const char *split_space_ascii(const char *p, const char *end) {
    return space_and_members(p, end, is_ascii_or_wide);
}

const char *split_space_letters(const char *p, const char *end) {
    return space_and_members(p, end, is_letter);
}

const char *split_space_punctuation(const char *p, const char *end) {
    return space_and_members(p, end, is_punctuation);
}

const char *split_cjk_korean(const char *p, const char *end) {
    return members(p, end, is_cjk_korean);
}

const char *split_cjk_kana(const char *p, const char *end) {
    return members(p, end, is_cjk_kana);
}

const char *split_trailing_space(const char *p, const char *end) {
    const char *white = end; /* begin of the trailing white run */
    while (white > p) {
        const char *q = white - 1;
        while (q > p && white - q < 4 && ((unsigned char)*q & 0xc0) == 0x80) q--;
        size_t n;
        if (!(unicode_peek(q, end, &n) & UC_SPACE) || q + n != white) break;
        white = q;
    }
    return white > p ? white : end;
}

static const char *deepseek3_at(const char *p, const char *end) {
    size_t n, after = 0;
    unsigned class = unicode_peek(p, end, &n);
    unsigned next = p + n < end ? unicode_peek(p + n, end, &after) : 0;
    const unsigned word = UC_LETTER | UC_MARK, sign = UC_PUNCT | UC_SYMBOL;
    if ((unsigned char)*p < 0x80 && (class & sign) && p + 1 < end && is_ascii_letter(p[1])) {
        for (p++; p < end && is_ascii_letter(*p); p++) continue;
        return p;
    }
    if (class & word) return run_of(p + n, end, word);
    if (!(class & (UC_NEWLINE | sign)) && (next & word)) return run_of(p + n + after, end, word);
    if (class & sign) return run_of_newlines(run_of(p + n, end, sign), end);
    if (*p == ' ' && (next & sign)) return run_of_newlines(run_of(p + n + after, end, sign), end);
    return class & UC_SPACE ? lines_or_space(p, end) : NULL;
}

const char *split_deepseek3(const char *p, const char *end) {
    return isolate(p, end, deepseek3_at);
}

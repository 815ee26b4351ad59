/* bert_chars.c: see bert_chars.h. Tables say where the library differs from utf8proc 2.8 (Unicode 15). */
#include "text/bert_chars.h"

#include <utf8proc.h>

typedef struct char_range {
    uint32_t first, last;
} char_range;

static bool in_ranges(const char_range *table, size_t n, uint32_t cp) {
    size_t low = 0, high = n;
    while (low < high) {
        const size_t mid = low + (high - low) / 2;
        if (cp > table[mid].last) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return low < n && cp >= table[low].first;
}

#define IN_RANGES(table, cp) in_ranges(table, sizeof(table) / sizeof *(table), cp)

bool bert_is_space(uint32_t cp) {
    if (cp < 0x80) return cp == ' ' || (cp >= '\t' && cp <= '\r');
    if (cp < 0x1680) return cp == 0x85 || cp == 0xa0;
    return cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200a) || cp == 0x2028 || cp == 0x2029 || cp == 0x202f ||
           cp == 0x205f || cp == 0x3000;
}

/* Format characters that are younger than its table. */
static const char_range later_formats[] = {
    {0x890, 0x891}, {0x8e2, 0x8e2}, {0x110cd, 0x110cd}, {0x13430, 0x1343f}};

bool bert_is_control(uint32_t cp) {
    if (cp < 0x80) return (cp < ' ' && cp != '\t' && cp != '\n' && cp != '\r') || cp == 0x7f;
    if (cp == 0xfffd) return true;
    const int category = utf8proc_category((utf8proc_int32_t)cp);
    if (category == UTF8PROC_CATEGORY_CF) return !IN_RANGES(later_formats, cp);
    return category == UTF8PROC_CATEGORY_CC || category == UTF8PROC_CATEGORY_CO;
}

bool bert_is_chinese(uint32_t cp) {
    return (cp >= 0x4e00 && cp <= 0x9fff) || (cp >= 0x3400 && cp <= 0x4dbf) ||
           (cp >= 0x20000 && cp <= 0x2a6df) || (cp >= 0x2a700 && cp <= 0x2b81f) ||
           (cp >= 0x2b920 && cp <= 0x2ceaf) || (cp >= 0xf900 && cp <= 0xfaff) ||
           (cp >= 0x2f800 && cp <= 0x2fa1f);
}

/* Nonspacing marks that are younger than its table. */
static const char_range later_marks[] = {
    {0x7fd, 0x7fd},     {0x898, 0x89f},     {0x8ca, 0x8e1},     {0x9fe, 0x9fe},     {0xafa, 0xaff},
    {0xb55, 0xb55},     {0xc04, 0xc04},     {0xc3c, 0xc3c},     {0xd00, 0xd00},     {0xd3b, 0xd3c},
    {0xd81, 0xd81},     {0xeba, 0xeba},     {0xece, 0xece},     {0x180f, 0x180f},   {0x1885, 0x1886},
    {0x1abf, 0x1ace},   {0x1df6, 0x1dfb},   {0xa82c, 0xa82c},   {0xa8c5, 0xa8c5},   {0xa8ff, 0xa8ff},
    {0xa9bd, 0xa9bd},   {0x10d24, 0x10d27}, {0x10eab, 0x10eac}, {0x10efd, 0x10eff}, {0x10f46, 0x10f50},
    {0x10f82, 0x10f85}, {0x11070, 0x11070}, {0x11073, 0x11074}, {0x110c2, 0x110c2}, {0x111c9, 0x111c9},
    {0x111cf, 0x111cf}, {0x1123e, 0x1123e}, {0x11241, 0x11241}, {0x1133b, 0x1133b}, {0x11438, 0x1143f},
    {0x11442, 0x11444}, {0x11446, 0x11446}, {0x1145e, 0x1145e}, {0x1182f, 0x11837}, {0x11839, 0x1183a},
    {0x1193b, 0x1193c}, {0x1193e, 0x1193e}, {0x11943, 0x11943}, {0x119d4, 0x119d7}, {0x119da, 0x119db},
    {0x119e0, 0x119e0}, {0x11a01, 0x11a0a}, {0x11a33, 0x11a38}, {0x11a3b, 0x11a3e}, {0x11a47, 0x11a47},
    {0x11a51, 0x11a56}, {0x11a59, 0x11a5b}, {0x11a8a, 0x11a96}, {0x11a98, 0x11a99}, {0x11c30, 0x11c36},
    {0x11c38, 0x11c3d}, {0x11c3f, 0x11c3f}, {0x11c92, 0x11ca7}, {0x11caa, 0x11cb0}, {0x11cb2, 0x11cb3},
    {0x11cb5, 0x11cb6}, {0x11d31, 0x11d36}, {0x11d3a, 0x11d3a}, {0x11d3c, 0x11d3d}, {0x11d3f, 0x11d45},
    {0x11d47, 0x11d47}, {0x11d90, 0x11d91}, {0x11d95, 0x11d95}, {0x11d97, 0x11d97}, {0x11ef3, 0x11ef4},
    {0x11f00, 0x11f01}, {0x11f36, 0x11f3a}, {0x11f40, 0x11f40}, {0x11f42, 0x11f42}, {0x13440, 0x13440},
    {0x13447, 0x13455}, {0x16f4f, 0x16f4f}, {0x16fe4, 0x16fe4}, {0x1cf00, 0x1cf2d}, {0x1cf30, 0x1cf46},
    {0x1e000, 0x1e006}, {0x1e008, 0x1e018}, {0x1e01b, 0x1e021}, {0x1e023, 0x1e024}, {0x1e026, 0x1e02a},
    {0x1e08f, 0x1e08f}, {0x1e130, 0x1e136}, {0x1e2ae, 0x1e2ae}, {0x1e2ec, 0x1e2ef}, {0x1e4ec, 0x1e4ef},
    {0x1e944, 0x1e94a}};

bool bert_is_accent(uint32_t cp) {
    if (cp < 0x300) return false;
    if (cp == 0x1734) return true; /* reclassified since */
    return utf8proc_category((utf8proc_int32_t)cp) == UTF8PROC_CATEGORY_MN && !IN_RANGES(later_marks, cp);
}

/* Letters that are younger than utf8proc's table. */
static const struct {
    uint32_t first, last;
    int32_t delta;
} later_cases[] = {{0x1c89, 0x1c89, 1},      {0xa7cb, 0xa7cb, 0x264 - 0xa7cb},
                   {0xa7cc, 0xa7cc, 1},      {0xa7ce, 0xa7ce, 1},
                   {0xa7d2, 0xa7d2, 1},      {0xa7d4, 0xa7d4, 1},
                   {0xa7da, 0xa7da, 1},      {0xa7dc, 0xa7dc, 0x19b - 0xa7dc},
                   {0x10d50, 0x10d65, 0x20}, {0x16ea0, 0x16eb8, 0x1b}};

uint32_t bert_lower(uint32_t cp) {
    if (cp < 0x80) return cp >= 'A' && cp <= 'Z' ? cp + 32 : cp;
    const uint32_t lower = (uint32_t)utf8proc_tolower((utf8proc_int32_t)cp);
    if (lower != cp || cp < 0x1c89) return lower;
    for (size_t i = 0; i < sizeof later_cases / sizeof *later_cases; i++) {
        if (cp >= later_cases[i].first && cp <= later_cases[i].last)
            return (uint32_t)((int32_t)cp + later_cases[i].delta);
    }
    return cp;
}

size_t bert_decompose(uint32_t cp, uint32_t out[4]) {
    utf8proc_int32_t parts[8];
    int boundary = 0;
    out[0] = cp;
    if (cp < 0xc0 || cp == 0x11938) return 1; /* U+11938 is younger than its table */
    const utf8proc_ssize_t n = utf8proc_decompose_char((utf8proc_int32_t)cp, parts, 8,
                                                       UTF8PROC_DECOMPOSE | UTF8PROC_STABLE, &boundary);
    if (n < 1 || n > 4) return 1;
    for (utf8proc_ssize_t i = 0; i < n; i++) out[i] = (uint32_t)parts[i];
    return (size_t)n;
}

/* encode.c: RFC 4648 section 4. */
#include "pipeline/encode.h"

static const char DIGITS[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void base64_encode(const void *bytes, size_t n, str *out) {
    const uint8_t *p = bytes;
    if (!str_reserve(out, n / 3 * 4 + 5)) return;
    for (; n >= 3; n -= 3, p += 3) {
        const char four[4] = {DIGITS[p[0] >> 2], DIGITS[(p[0] & 3) << 4 | p[1] >> 4],
                              DIGITS[(p[1] & 15) << 2 | p[2] >> 6], DIGITS[p[2] & 63]};
        str_add(out, four, 4);
    }
    if (n == 0) return;
    const uint8_t second = n == 2 ? p[1] : 0;
    const char four[4] = {DIGITS[p[0] >> 2], DIGITS[(p[0] & 3) << 4 | second >> 4],
                          n == 2 ? DIGITS[(second & 15) << 2] : '=', '='};
    str_add(out, four, 4);
}

static int digit(char c) {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

bool base64_decode(const char *text, size_t n, str *out) {
    if (n % 4 == 0) { /* padding is optional, but never wrong */
        for (int i = 0; i < 2 && n > 0 && text[n - 1] == '='; i++) n--;
    }
    if (n % 4 == 1) return false;
    if (!str_reserve(out, n / 4 * 3 + 3)) return true; /* the caller's str_check tells */
    uint32_t bits = 0;
    unsigned have = 0;
    for (size_t i = 0; i < n; i++) {
        const int d = digit(text[i]);
        if (d < 0) return false;
        bits = bits << 6 | (uint32_t)d;
        have += 6;
        if (have < 8) continue;
        have -= 8;
        str_put(out, (char)(bits >> have & 0xff));
    }
    return (bits & ((1u << have) - 1)) == 0;
}

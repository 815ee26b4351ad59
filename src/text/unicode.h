/* unicode.h: what the pre-tokenizers ask about a character, and composition (NFC).
 *
 * Categories are utf8proc's (Unicode 15 in version 2.8), completed by a table of the characters that Unicode
 * 16 added: the published tokenizers were measured to know those. A byte that begins no valid UTF-8 sequence
 * is one character of class UC_SYMBOL, which is what U+FFFD, its usual replacement, would be. */
#ifndef TEXT_UNICODE_H
#define TEXT_UNICODE_H

#include "base/str.h"

enum {
    UC_LETTER = 1 << 0,  /* \p{L} */
    UC_NUMBER = 1 << 1,  /* \p{N} */
    UC_SPACE = 1 << 2,   /* \s */
    UC_NEWLINE = 1 << 3, /* [\r\n], also UC_SPACE */
    UC_MARK = 1 << 4,    /* \p{M} */
    UC_PUNCT = 1 << 5,   /* \p{P} */
    UC_SYMBOL = 1 << 6,  /* \p{S} */
    UC_UPPER = 1 << 7,   /* [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}] */
    UC_LOWER = 1 << 8,   /* [\p{Ll}\p{Lm}\p{Lo}\p{M}] */
    UC_DIGIT = 1 << 9    /* \p{N} as the newest Unicode has it (the "Digits" pre-tokenizer) */
};

extern const uint16_t unicode_ascii_class[128];
unsigned unicode_class(uint32_t cp); /* cp >= 0x80 */

/* Class bits of the character at p and its length in bytes. p < end. */
static inline unsigned unicode_peek(const char *p, const char *end, size_t *n) {
    unsigned char c = (unsigned char)*p;
    if (c < 0x80) {
        *n = 1;
        return unicode_ascii_class[c];
    }
    uint32_t cp;
    size_t len = utf8_decode(p, end, &cp);
    *n = len ? len : 1;
    if (!len) return UC_SYMBOL;
    /* Han and Hangul syllables: most of what is not alphabetic, and by far its longest runs. */
    if ((cp >= 0x4e00 && cp <= 0x9fff) || (cp >= 0xac00 && cp <= 0xd7a3))
        return UC_LETTER | UC_UPPER | UC_LOWER;
    return unicode_class(cp);
}

/* Punctuation as the "Punctuation" pre-tokenizer sees it: all of ASCII's, and an older table above it. */
bool unicode_is_old_punctuation(uint32_t cp);

/* Whether the text is certainly composed already; false means only that unicode_nfc must look. */
bool unicode_is_plain(const char *text, size_t len);
/* Appends the text in normalization form C. Bytes that are not UTF-8 stay as they are. Time is linear in len
 * even for long runs of marks. */
MUST_USE status unicode_nfc(const char *text, size_t len, str *out, error *err);

#endif

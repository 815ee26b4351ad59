/* split_stages.h: the stages that split.c builds its rules from. Each has the shape of split_fn; the regular
 * expression beside it is what it does. "Isolated": matches and what is between them are pieces alike. */
#ifndef TEXT_SPLIT_STAGES_H
#define TEXT_SPLIT_STAGES_H

#include "text/split.h"

/* 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ */
const char *split_gpt2(const char *p, const char *end);
/* Each digit by itself, the rest by split_gpt2: a digit ends what is before it like the text's end does. */
const char *split_digits_gpt2(const char *p, const char *end);
/* (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,D}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+
 * |\s+(?!\S)|\s+ with D = 3 and 1 */
const char *split_cl100k_3(const char *p, const char *end);
const char *split_cl100k_1(const char *p, const char *end);
/* The latter with marks counted as letters: \p{L} there is [\p{L}\p{M}] here. */
const char *split_qwen35(const char *p, const char *end);
/* [^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(SUFFIX)?
 * |[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(SUFFIX)?
 * |\p{N}{1,D}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+
 * o200k: D = 3, SUFFIX (?i:'s|'t|'re|'ve|'m|'ll|'d); tekken: D = 1, no suffix */
const char *split_o200k(const char *p, const char *end);
const char *split_tekken(const char *p, const char *end);

const char *split_each_newline(const char *p, const char *end);    /* [\r\n] isolated */
const char *split_each_digit(const char *p, const char *end);      /* each digit isolated */
const char *split_numbers(const char *p, const char *end);         /* \p{N}+ isolated */
const char *split_number_triples(const char *p, const char *end);  /* \p{N}{1,3} isolated */
const char *split_digit_triples(const char *p, const char *end);   /* [0-9][0-9][0-9] isolated */
const char *split_punctuation(const char *p, const char *end);     /* [\p{P}$+<=>^~|]+ isolated */
const char *split_old_punctuation(const char *p, const char *end); /* runs of punctuation and of the rest */
/* Runs of digits and of the rest in the byte-level alphabet, where the bytes B2 B3 B9 BC BD BE are written as
 * the digits and fractions of Latin-1: pieces may end inside a character. */
const char *split_mapped_digits(const char *p, const char *end);
const char *split_space_alphabet(const char *p,
                                 const char *end);             /* \s?[letters of cased alphabets]+ isolated */
const char *split_space_ascii(const char *p, const char *end); /* \s?[!-/:-~ and wide forms]+ isolated */
const char *split_trailing_space(const char *p, const char *end);    /* \s+$ isolated */
const char *split_space_letters(const char *p, const char *end);     /* \s?\p{L}+ isolated */
const char *split_space_punctuation(const char *p, const char *end); /* \s?\p{P}+ isolated */
const char *split_cjk_korean(const char *p, const char *end);        /* [一-龥ࠀ-一가-퟿]+ isolated */
const char *split_cjk_kana(const char *p, const char *end);          /* [一-龥぀-ゟ゠-ヿ]+ isolated */
/* [!-/:-@[-`{-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|
 * ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+ isolated */
const char *split_deepseek3(const char *p, const char *end);

#endif

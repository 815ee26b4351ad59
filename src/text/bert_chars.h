/* bert_chars.h: what BERT's normalizer asks about a character, as the `tokenizers` library answers: each
 * function there has the tables of another Unicode, measured over all characters. */
#ifndef TEXT_BERT_CHARS_H
#define TEXT_BERT_CHARS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

bool bert_is_space(uint32_t cp);
bool bert_is_control(uint32_t cp); /* vanishes with clean_text */
bool bert_is_chinese(uint32_t cp);
bool bert_is_accent(uint32_t cp); /* vanishes with strip_accents */
uint32_t bert_lower(uint32_t cp); /* but U+0130, which becomes two */
/* Canonical decomposition, 1 to 4 characters. */
size_t bert_decompose(uint32_t cp, uint32_t out[4]);

#endif

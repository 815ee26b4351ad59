/* normal_form.h: Unicode's normalization forms, and text in lower case, by utf8proc's tables (Unicode 15 in
 * version 2.8). Time is linear in the text, whatever it holds. */
#ifndef TEXT_NORMAL_FORM_H
#define TEXT_NORMAL_FORM_H

#include "base/str.h"

typedef enum normal_form { FORM_NONE, FORM_NFC, FORM_NFKC, FORM_NFD, FORM_NFKD } normal_form;

/* Appends the text in the form. `strip`: nonspacing marks (Mn) are dropped from the decomposed text; with
 * FORM_NONE what is left is composed (NFC). The text must be UTF-8. */
MUST_USE status unicode_form(normal_form form, bool strip, const char *text, size_t len, str *out,
                             error *err);
/* Appends the text in lower case: full mapping, a final sigma where Unicode has one, no language's own rules.
 */
MUST_USE status unicode_lower(const char *text, size_t len, str *out, error *err);
/* White space (the property White_Space) at p, p < end: its length in bytes, or 0. */
size_t unicode_space(const char *p, const char *end);

#endif

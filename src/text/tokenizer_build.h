/* tokenizer_build.h: the two models' merges, made when a tokenizer is created. */
#ifndef TEXT_TOKENIZER_BUILD_H
#define TEXT_TOKENIZER_BUILD_H

#include "text/tokenizer.h"

/* "gpt2": the symbols of the bytes and the listed merges. The vocabulary must be indexed. */
MUST_USE status build_byte_level(tokenizer *t, const tokenizer_spec *spec, error *err);
/* "llama": every way to make a token out of two others is a merge; a higher score merges first. */
MUST_USE status build_by_score(tokenizer *t, const tokenizer_spec *spec, error *err);

#endif

/* category.h: a list of categories of a manifest, and which one a value is. */
#ifndef PIPELINE_STEPS_CATEGORY_H
#define PIPELINE_STEPS_CATEGORY_H

#include "pipeline/step.h"

typedef struct category_set {
    cell_kind kind; /* TEXT, INT or BOOL */
    size_t n;
    const cell *values; /* [n] */
    uint32_t *slots;    /* open addressing: place + 1, 0: empty */
    size_t mask;
} category_set;

/* keys[key] (TEXTS) as values of the type of keys[field]; left out: the one_of of that input. All different.
 * Lives as long as the pipeline. */
MUST_USE status category_set_read(step_build *b, size_t key, size_t field, category_set *out, error *err);
int64_t category_find(const category_set *s, const cell *c); /* its place, or -1 */
/* "'KR'" or "7", for errors; into buf, which is returned. */
const char *category_text(const cell *c, char buf[80]);

#endif

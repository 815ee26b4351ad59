/* split.h: the pre-tokenizers: where each model family cuts a text into pieces before any merge.
 *
 * Every published rule is a chain of at most six stages. A stage cuts what the stage before left as one
 * piece; here it is a function that, given a position and the end of the enclosing piece, returns where the
 * next piece ends. They are written by hand from the regular expressions in the published tokenizer.json
 * files and need constant memory and linear time. All tables are constant; any thread may use them. */
#ifndef TEXT_SPLIT_H
#define TEXT_SPLIT_H

#include "base/status.h"

/* p < end; returns the end of the piece that begins at p, > p. */
typedef const char *(*split_fn)(const char *p, const char *end);

enum { SPLIT_MAX_STAGES = 6 };

typedef struct split_rule {
    const char *name;
    bool nfc;           /* the text is composed first */
    bool ignore_merges; /* a whole piece that is a token needs no merges */
    bool adds_bos;      /* unless the file says otherwise */
    size_t n_stages;
    split_fn stages[SPLIT_MAX_STAGES];
} split_rule;

/* NULL if the name is unknown. */
const split_rule *split_rule_find(const char *name, size_t len);
/* "smollm, gpt-2, …" for error messages; static. */
const char *split_rule_names(void);

/* Walks over the pieces of one text. */
typedef struct splitter {
    const split_rule *rule;
    const char *ends[SPLIT_MAX_STAGES + 1]; /* [0]: the text, [k]: the piece of stage k-1 */
} splitter;

splitter splitter_begin(const split_rule *rule, const char *text, size_t len);
/* The end of the piece that begins at p, where p is the text's begin or the last end. p < the text's end. */
const char *splitter_next(splitter *s, const char *p);

#endif

/* forward.h: tokens through the model, several sequences in one pass.
 *
 * A batch is a list of spans, each a run of consecutive new tokens of one sequence. Every result of a row
 * depends on its own sequence alone: not on the other spans, on how its tokens were cut into spans, or on the
 * number of threads. Buffers are made once, for the largest batch; a pass allocates nothing.
 * Owner: the thread that steps the engine. */
#ifndef LM_FORWARD_H
#define LM_FORWARD_H

#include "lm/kv.h"
#include "lm/model.h"

typedef struct span {
    kv_seq *kv;            /* pages reserved up to position + n; kv->length is advanced by forward_run */
    const int32_t *tokens; /* [n] */
    size_t n;
    size_t position;  /* of tokens[0]; equals kv->length */
    size_t n_outputs; /* the last n_outputs rows want logits */
} span;

typedef struct forward forward;

/* max_rows: tokens in a batch; max_spans: sequences; max_outputs: rows of logits at once. */
MUST_USE status forward_create(forward **out, const lm_model *m, pool *p, kv_pool *kv, size_t max_rows,
                               size_t max_spans, size_t max_context, size_t max_outputs, error *err);
void forward_free(forward *f);
size_t forward_scratch_bytes(const forward *f);

/* Computes the batch: keys and values are written, and the rows that want logits are kept, in span order. */
void forward_run(forward *f, const span *spans, size_t n_spans);
/* Logits of kept rows [from, from+n), n <= max_outputs: f32 [n, n_vocab], valid until the next call. */
float *forward_logits(forward *f, size_t from, size_t n);

#endif

/* trace.h: what every step wrote, as JSON: {"standardize amount": value, …}. A step that writes several
 * values gives an object of them; steps inside a block that runs over items give a list, their labels behind
 * the block's own, "for_each texts/argmax best". One record at a time. */
#ifndef PIPELINE_TRACE_H
#define PIPELINE_TRACE_H

#include "pipeline/step.h"

struct trace {
    str text;
    json_out j;
    str prefix; /* of labels inside blocks */
};

void trace_begin(struct trace *t);
void trace_end(struct trace *t);
void trace_free(struct trace *t);
/* After step s ran over the rows. */
void trace_step(struct trace *t, const step *s, const run_row *rows, size_t n, bool items);

#endif

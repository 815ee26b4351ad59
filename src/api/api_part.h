/* api_part.h: what the files of the room share. */
#ifndef API_API_PART_H
#define API_API_PART_H

#include "pipeline/pipeline.h"

struct churon_pipeline_session {
    pipeline *p;
    pipeline_session *session;
    pipeline_sequence *sequence; /* NULL: none */
    arena memory;                /* of what a run needs beside the session: cells and values */
    str text;                    /* the answer as JSON */
};

/* pipeline_values.c: values of the public interface to cells [n * inputs] in the session's arena, tensors
 * borrowed. A pointer that is not there, or a tensor that contradicts itself: CHURON_INVALID, naming record
 * and field. */
MUST_USE status api_take_inputs(churon_pipeline_session *s, const churon_value *inputs, size_t n, cell **out,
                                error *err);
/* Cells to values, all that they refer to in the session's arena. */
MUST_USE status api_give_outputs(churon_pipeline_session *s, const pipeline_answer *from, size_t n,
                                 churon_answer *answers, error *err);

#endif

/* rope.h: the angles of rotary position embedding, with all their scalings. */
#ifndef LM_ROPE_H
#define LM_ROPE_H

#include "lm/model.h"

/* Angle per position of each pair, and the factor on cosine and sine. Immutable after create. */
typedef struct rope_table {
    double *frequency;       /* [n_rot/2] */
    double *frequency_local; /* [n_rot/2]: windowed layers of gemma3; the same memory when there are none */
    double magnitude;
    double magnitude_local;
    size_t n_pairs;
} rope_table;

MUST_USE status rope_table_create(rope_table *out, const lm_model *m, error *err);
void rope_table_free(rope_table *t);
/* cos_sin [n_pairs, 2] of one position. local: for windowed layers. */
void rope_angles(const rope_table *t, size_t position, bool local, float *cos_sin);

#endif

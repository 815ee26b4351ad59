/* condition.h: a comparison of one value, as choose and filter write it. All that is given must hold. */
#ifndef PIPELINE_STEPS_CONDITION_H
#define PIPELINE_STEPS_CONDITION_H

#include "pipeline/step.h"

#define CONDITION_KEYS                                                                                       \
    {"equals", KEY_SCALAR, .doc = "Holds for this value (of the field's type)"},                             \
        {"not_equals", KEY_SCALAR, .doc = "Holds for every other value"},                                    \
        {"above", KEY_NUMBER, .doc = "Holds for numbers greater than this"},                                 \
        {"at_least", KEY_NUMBER, .doc = "Holds for numbers of at least this"},                               \
        {"below", KEY_NUMBER, .doc = "Holds for numbers less than this"},                                    \
        {"at_most", KEY_NUMBER, .doc = "Holds for numbers of at most this"}, {                               \
        "present", KEY_BOOL, .doc = "true: holds where there is a value; false: where it is missing"         \
    }
enum { CONDITION_KEY_COUNT = 7 };

typedef struct condition {
    bool has_equal, has_other, has_above, has_least, has_below, has_most, has_present, present;
    cell equal, other;
    double above, least, below, most;
} condition;

/* From values[key …] of a value of this type; at least one key must be given. */
MUST_USE status condition_read(const step_build *b, size_t key, const cell_type *type, condition *out,
                               error *err);
/* A value that is missing fits only `present: false`; NaN fits only not_equals. */
bool condition_holds(const condition *c, const cell *v);

#endif

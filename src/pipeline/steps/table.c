/* table.c: all steps. A new one is a file of this folder and a row here. */
#include "pipeline/steps/steps.h"

#include <string.h>

const step_kind *const STEP_KINDS[] = {
    &step_abstain,  &step_argmax,       &step_calibrate, &step_choose, &step_constant,    &step_filter,
    &step_for_each, &step_l2_normalize, &step_label,     &step_model,  &step_overlap_add, &step_pick,
    &step_pool,     &step_record,       &step_rename,    &step_round,  &step_scan,        &step_sigmoid,
    &step_softmax,  &step_stitch,       &step_threshold, &step_top_k,  &step_windows,     NULL,
};

const step_kind *step_kind_find(const char *name) {
    for (size_t i = 0; STEP_KINDS[i]; i++) {
        if (strcmp(STEP_KINDS[i]->name, name) == 0) return STEP_KINDS[i];
    }
    return NULL;
}

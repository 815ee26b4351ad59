/* steps.h: the rows of the table of steps. */
#ifndef PIPELINE_STEPS_STEPS_H
#define PIPELINE_STEPS_STEPS_H

#include "pipeline/step.h"

extern const step_kind step_model;

#endif

/* normal.h: the quantile function of the standard normal distribution. */
#ifndef PIPELINE_STEPS_NORMAL_H
#define PIPELINE_STEPS_NORMAL_H

/* 0 < p < 1; relative error about 1e-16. M. J. Wichura, "Algorithm AS 241: the percentage points of the
 * normal distribution", Applied Statistics 37 (1988). */
double normal_quantile(double p);

#endif

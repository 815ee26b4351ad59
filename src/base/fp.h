/* fp.h: the floating-point environment that this library computes in, whatever the calling program has set:
 * round to nearest, no traps, and subnormal numbers either kept or taken as zero, in operands and results.
 * Where the processor cannot take them as zero they are kept. The sticky exception flags are left alone. */
#ifndef BASE_FP_H
#define BASE_FP_H

#if defined(__x86_64__)
typedef unsigned fp_env;
#else
#include <fenv.h>
typedef fenv_t fp_env;
#endif

typedef enum fp_subnormals { FP_KEEP_SUBNORMALS, FP_FLUSH_SUBNORMALS } fp_subnormals;

/* Of this thread. Returns what was set; fp_leave sets it again. Nests. */
fp_env fp_enter(fp_subnormals how);
void fp_leave(const fp_env *was);

#endif

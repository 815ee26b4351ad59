/* fp.c: see fp.h. */
#include "base/fp.h"

#if defined(__x86_64__)
#include <immintrin.h>

/* Kernels compute in SSE registers and wider only: MXCSR is all that matters, and reading it costs a few
 * cycles where fegetenv costs a hundred. */
enum { MXCSR_DEFAULT = 0x1f80, MXCSR_FLUSH = 0x8040, MXCSR_CONTROL = 0xffc0 };

fp_env fp_enter(fp_subnormals how) {
    const unsigned was = _mm_getcsr();
    const unsigned want = MXCSR_DEFAULT | (how == FP_FLUSH_SUBNORMALS ? MXCSR_FLUSH : 0);
    if ((was & MXCSR_CONTROL) != want) _mm_setcsr(want);
    return was;
}

void fp_leave(const fp_env *was) {
    if ((*was & MXCSR_CONTROL) != (_mm_getcsr() & MXCSR_CONTROL)) _mm_setcsr(*was);
}
#else
fp_env fp_enter(fp_subnormals how) {
    fenv_t was;
    (void)how;
    (void)fegetenv(&was);
    (void)fesetenv(FE_DFL_ENV);
    return was;
}

void fp_leave(const fp_env *was) {
    (void)fesetenv(was);
}
#endif

/* bench_media.h: the kernels that prepare images and sound: resizing of u8 rows and Fourier transforms, one
 * thread, with data in the nearest caches. */
#ifndef BENCH_BENCH_MEDIA_H
#define BENCH_BENCH_MEDIA_H

#include "bench/bench_kernel.h"

MUST_USE status bench_media(const kernels *k, pool *threads, bench_visit visit, void *ctx, error *err);

#endif

/* bench_media.c: see bench_media.h. */
#include "bench/bench_media.h"

#include "base/mem.h"

#include <stdio.h>

/* Rows of WIDE RGB pixels to NARROW, and 9 rows to one: a megapixel photograph to a classifier's input. */
enum {
    ROUNDS = 7,
    WIDE = 1000,
    NARROW = 256,
    CHANNELS = 3,
    TAPS = 12,
    USED = 9,
    REPEAT = 16,
    POINTS = 400,
    BINS = 201,
    MELS = 80
};

typedef struct media_job {
    const kernels *k;
    int which;
    resize_taps taps;
    uint32_t first[NARROW], count[NARROW];
    int32_t weight[NARROW * TAPS];
    int16_t upper[NARROW * TAPS], lower[NARROW * TAPS];
    uint8_t in[USED][WIDE * CHANNELS], out[WIDE * CHANNELS];
    rfft_plan *plan;
    float *signal, *spectrum, *scratch;
    spectrum_band bands[MELS]; /* of 5 bins, as 80 of 201 have */
    float weights[5];
} media_job;

static void run(void *ctx, const pool_member *me) {
    media_job *j = ctx;
    const uint8_t *rows[USED];
    if (me->index != 0) return;
    for (size_t i = 0; i < USED; i++) rows[i] = j->in[i];
    for (size_t i = 0; i < REPEAT; i++) {
        if (j->which == 0)
            j->k->resize_across(&j->taps, CHANNELS, j->in[0], WIDE, 0, NARROW, j->out);
        else if (j->which == 1)
            j->k->resize_down(&j->taps, i, rows, NARROW * CHANNELS, j->out);
        else if (j->which == 2)
            j->k->fft_real(j->plan, j->signal, j->spectrum, j->scratch);
        else
            j->k->band_energies(j->spectrum, BINS, false, j->bands, MELS, j->weights, j->scratch, j->signal);
    }
}

static void fill(media_job *j) {
    for (size_t i = 0; i < NARROW; i++) {
        j->first[i] = (uint32_t)(i * (WIDE - USED) / NARROW), j->count[i] = USED;
        for (size_t t = 0; t < USED; t++) {
            const int32_t w = (1 << RESIZE_BITS) / USED;
            j->weight[i * TAPS + t] = w;
            j->upper[i * TAPS + t] = (int16_t)(w >> 11), j->lower[i * TAPS + t] = (int16_t)(w & 2047);
        }
    }
    j->taps = (resize_taps){NARROW, TAPS, j->first, j->count, j->weight, j->upper, j->lower};
    for (size_t i = 0; i < MELS; i++) j->bands[i] = (spectrum_band){(uint32_t)(2 * i), 5, 0};
    for (size_t i = 0; i < 5; i++) j->weights[i] = 0.5f;
    for (size_t i = 0; i < USED; i++) {
        for (size_t x = 0; x < WIDE * CHANNELS; x++) j->in[i][x] = (uint8_t)(x * 7 + i);
    }
}

status bench_media(const kernels *k, pool *threads, bench_visit visit, void *ctx, error *err) {
    static const char *const names[] = {"resize_across 1000 to 256 RGB", "resize_down 9 to 1, 256 RGB",
                                        "fft_real 400, 16 signals", "band_energies 80 of 201, 16 signals"};
    static const double operations[] = {2.0 * NARROW * CHANNELS * USED, 2.0 * NARROW * CHANNELS * USED,
                                        16 * 2.5 * POINTS * 8.64, 16.0 * (3 * BINS + 2 * 5 * MELS)};
    const size_t floats = (POINTS + POINTS + 2) * FFT_LANES + 2 * POINTS * FFT_LANES;
    status st = CHURON_OK;
    media_job *j = mem_calloc(1, sizeof *j);
    float *memory = mem_calloc(floats, sizeof *memory);
    if (!j || !memory) {
        st = error_no_memory(err, "pixels and samples to measure", floats * sizeof *memory);
        goto cleanup;
    }
    TRY_GOTO(rfft_plan_create(&j->plan, POINTS, err));
    j->k = k;
    j->signal = memory, j->spectrum = memory + POINTS * FFT_LANES,
    j->scratch = j->spectrum + (POINTS + 2) * FFT_LANES;
    fill(j);
    for (size_t i = 0; i < (size_t)POINTS * FFT_LANES; i++) j->signal[i] = (float)(i % 17) - 8.0f;
    for (j->which = 0; j->which < 4; j->which++) {
        bench_row row = {.isa = k->name, .threads = 1};
        row.seconds = bench_best_time(threads, run, j, ROUNDS) / REPEAT;
        row.gop_per_s = operations[j->which] / row.seconds * 1e-9; /* of a transform: 2.5 n log2 n */
        snprintf(row.name, sizeof row.name, "%s", names[j->which]);
        if (!visit(ctx, &row)) break;
    }
cleanup:
    if (j) rfft_plan_free(j->plan);
    mem_free(j);
    mem_free(memory);
    return st;
}

/* media_time.c: how long preparation of an input takes, for tools/bench_media.py.
 *
 *   media_time image FILE RULE FILTER ROUNDS OUT.npy   decode, shorter side 256, centre 224, normalize, CHW
 *   media_time parts FILE RULE FILTER ROUNDS OUT.npy   decode alone
 *   media_time whisper IN.npy ROUNDS OUT.npy           log-mel of samples
 * Prints the seconds of every round. */
#include "base/clock.h"
#include "base/file.h"
#include "media/image.h"
#include "media/pixels.h"
#include "media/spectrum.h"
#include "tensor/npy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHORT = 256, SIDE = 224 };

static status prepare(const file_map *f, resize_rule rule, resize_filter filter, bool decode_only, float *out,
                      error *err) {
    tensor image;
    image_window w;
    size_t h, n;
    TRY(image_decode(&image, NULL, f->data, f->size, NULL, err));
    pixels_norm norm = pixels_norm_identity();
    const float mean[3] = {0.485f, 0.456f, 0.406f}, deviation[3] = {0.229f, 0.224f, 0.225f};
    norm.divide = 255.0f, norm.layout = PIXELS_CHW;
    memcpy(norm.mean, mean, sizeof mean);
    memcpy(norm.deviation, deviation, sizeof deviation);
    resize_fit_size(RESIZE_SHORTER, (size_t)image.dims[0], (size_t)image.dims[1], SHORT, SHORT, &h, &n);
    status st = image_centre_window(&w, h, n, SIDE, SIDE, true, err);
    if (st == CHURON_OK && !decode_only) {
        st = pixels_resize_normalize(out, (size_t)3 * SIDE * SIDE, &image, h, n, w, rule, filter, &norm, err);
    }
    tensor_free(&image);
    return st;
}

static status save(const tensor *t, const char *path, error *err) {
    str bytes = {0};
    status st = npy_write(t, &bytes, err);
    FILE *f = st == CHURON_OK ? fopen(path, "wb") : NULL;
    if (f) {
        (void)fwrite(bytes.data, 1, bytes.len, f);
        (void)fclose(f);
    }
    str_free(&bytes);
    return st;
}

static status time_image(char **words, bool decode_only, error *err) {
    file_map f;
    tensor out;
    const int64_t dims[3] = {3, SIDE, SIDE};
    resize_rule rule = RESIZE_PILLOW;
    resize_filter filter = RESIZE_BILINEAR;
    for (int i = 0; i < RESIZE_RULE_COUNT; i++) {
        if (strcmp(words[1], resize_rule_name((resize_rule)i)) == 0) rule = (resize_rule)i;
    }
    for (int i = 0; i < RESIZE_FILTER_COUNT; i++) {
        if (strcmp(words[2], resize_filter_name((resize_filter)i)) == 0) filter = (resize_filter)i;
    }
    TRY(file_map_open(&f, words[0], err));
    status st = tensor_alloc(&out, ELEM_F32, 3, dims, err);
    for (long i = strtol(words[3], NULL, 10); i > 0 && st == CHURON_OK; i--) {
        const double start = clock_seconds();
        st = prepare(&f, rule, filter, decode_only, out.data, err);
        printf("%.9f\n", clock_seconds() - start);
    }
    if (st == CHURON_OK && !decode_only) st = save(&out, words[4], err);
    tensor_free(&out);
    file_map_close(&f);
    return st;
}

static status time_whisper(char **words, error *err) {
    tensor in = {0}, out = {0};
    features_plan *p = NULL;
    const features_options o = features_whisper(80);
    status st;
    TRY_GOTO(npy_read(&in, words[0], err));
    TRY_GOTO(features_plan_create(&p, &o, err));
    for (long i = strtol(words[1], NULL, 10); i > 0; i--) {
        const double start = clock_seconds();
        tensor_free(&out);
        TRY_GOTO(features_run(&out, p, &in, err));
        printf("%.9f\n", clock_seconds() - start);
    }
    st = save(&out, words[2], err);
cleanup:
    features_plan_free(p);
    tensor_free(&in);
    tensor_free(&out);
    return st;
}

int main(int argc, char **argv) {
    error err = {0};
    status st = CHURON_INVALID;
    const bool image = argc == 7 && (strcmp(argv[1], "image") == 0 || strcmp(argv[1], "parts") == 0);
    if (image)
        st = time_image(argv + 2, argv[1][0] == 'p', &err);
    else if (argc == 5 && strcmp(argv[1], "whisper") == 0)
        st = time_whisper(argv + 2, &err);
    if (st != CHURON_OK) fprintf(stderr, "%s\n", err.message);
    return st == CHURON_OK ? 0 : 1;
}

/* test_media.c: what the comparisons with other libraries (tests/oracle/test_media_*.py) do not reach: every
 * allocation that fails, what is refused by arguments, exact small cases. The files are the fuzz targets'
 * seeds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/mem.h"
#include "media/audio.h"
#include "media/image.h"
#include "media/pixels.h"
#include "media/spectrum.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

static tensor image_of(size_t height, size_t width, size_t channels, elem type) {
    const int64_t dims[3] = {(int64_t)height, (int64_t)width, (int64_t)channels};
    tensor t;
    assert_int_equal(tensor_alloc(&t, type, 3, dims, NULL), CHURON_OK);
    for (size_t i = 0; i < t.count; i++) {
        if (type == ELEM_U8)
            ((uint8_t *)t.data)[i] = (uint8_t)(i * 37);
        else
            ((float *)t.data)[i] = (float)(i % 97) / 7.0f;
    }
    return t;
}

static tensor sound_of(size_t channels, size_t n) {
    const int64_t dims[2] = {(int64_t)channels, (int64_t)n};
    tensor t;
    assert_int_equal(tensor_alloc(&t, ELEM_F32, 2, dims, NULL), CHURON_OK);
    for (size_t i = 0; i < t.count; i++) ((float *)t.data)[i] = (float)((i * 7919) % 1009) / 1009.0f - 0.5f;
    return t;
}

/* Runs `job` with the n-th allocation failing, n ascending, until it succeeds. */
typedef status (*job_fn)(void *ctx, tensor *out, error *err);
static void sweep(job_fn job, void *ctx) {
    for (int64_t n = 1;; n++) {
        error err = {0};
        tensor out = {0};
        mem_fail_at(n);
        const status st = job(ctx, &out, &err);
        mem_fail_at(0);
        if (st == CHURON_OK) {
            assert_true(n > 1);
            tensor_free(&out);
            return;
        }
        assert_int_equal(st, CHURON_NO_MEMORY);
        assert_true(err.message[0] != '\0');
        assert_null(out.data);
    }
}

typedef struct bytes_of {
    const file_map *file;
    image_order order;
} bytes_of;

static status decode_image(void *ctx, tensor *out, error *err) {
    const bytes_of *b = ctx;
    const image_options o = {.order = b->order};
    return image_decode(out, NULL, b->file->data, b->file->size, &o, err);
}
static status decode_audio(void *ctx, tensor *out, error *err) {
    const bytes_of *b = ctx;
    return audio_decode(out, NULL, b->file->data, b->file->size, NULL, err);
}

static void each_seed(const char *folder, job_fn job, bool orders) {
    size_t files = 0;
    DIR *d = opendir(folder);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        char path[512];
        file_map f;
        if (e->d_name[0] == '.') continue;
        (void)snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        assert_int_equal(file_map_open(&f, path, NULL), CHURON_OK);
        for (int order = 0; order < (orders ? IMAGE_ORDER_COUNT : 1); order++)
            sweep(job, &(bytes_of){&f, (image_order)order});
        file_map_close(&f);
        files++;
    }
    closedir(d);
    assert_true(files > 5);
}

static void test_decoding_without_memory(void **state) {
    (void)state;
    each_seed("tests/fuzz/seeds/image", decode_image, true);
    each_seed("tests/fuzz/seeds/audio", decode_audio, false);
}

/* Every prefix of every image: an error, or, with a trailer alone missing, the picture. */
static void test_every_prefix(void **state) {
    (void)state;
    DIR *d = opendir("tests/fuzz/seeds/image");
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        char path[512];
        file_map f;
        if (e->d_name[0] == '.') continue;
        (void)snprintf(path, sizeof path, "tests/fuzz/seeds/image/%s", e->d_name);
        assert_int_equal(file_map_open(&f, path, NULL), CHURON_OK);
        tensor whole, part;
        error err;
        assert_int_equal(image_decode(&whole, NULL, f.data, f.size, NULL, &err), CHURON_OK);
        for (size_t n = 0; n < f.size; n++) {
            uint8_t *exact = mem_alloc(n);
            memcpy(exact, f.data, n);
            const status st = image_decode(&part, NULL, exact, n, NULL, &err);
            if (st == CHURON_OK) {
                assert_true(n + 8 >= f.size);
                assert_memory_equal(part.data, whole.data, whole.count);
            } else {
                assert_true(st == CHURON_CORRUPT ||
                            (n < 12 && (st == CHURON_UNSUPPORTED || st == CHURON_INVALID)));
                assert_null(part.data);
            }
            tensor_free(&part);
            mem_free(exact);
        }
        tensor_free(&whole);
        file_map_close(&f);
    }
    closedir(d);
}

/* ---- work on images -------------------------------------------------------------------------------------
 */

typedef struct resize_case {
    tensor *in;
    resize_rule rule;
    resize_filter filter;
} resize_case;

static status resize_job(void *ctx, tensor *out, error *err) {
    const resize_case *c = ctx;
    return image_resize(out, c->in, 11, 6, c->rule, c->filter, err);
}
static status pad_job(void *ctx, tensor *out, error *err) {
    return image_pad(out, ctx, (image_padding){1, 2, 3, 4}, NULL, err);
}
static status warp_job(void *ctx, tensor *out, error *err) {
    const double m[9] = {1, 0.1, 2, 0, 1, 3, 0, 0, 1};
    return image_warp_perspective(out, ctx, m, 9, 9, RESIZE_BILINEAR, IMAGE_BORDER_CONSTANT, NULL, err);
}
static status normalize_job(void *ctx, tensor *out, error *err) {
    const pixels_norm n = pixels_norm_identity();
    return pixels_normalize(out, ctx, &n, err);
}
static status png_job(void *ctx, tensor *out, error *err) {
    str bytes = {0};
    const status st = image_encode_png(&bytes, ctx, err);
    if (st == CHURON_OK) assert_int_equal(image_sniff(bytes.data, bytes.len), IMAGE_PNG);
    str_free(&bytes);
    *out = (tensor){0};
    return st;
}

static void test_images_without_memory(void **state) {
    (void)state;
    tensor u8 = image_of(20, 9, 3, ELEM_U8), f32 = image_of(20, 9, 3, ELEM_F32);
    for (int r = 0; r < RESIZE_RULE_COUNT; r++) {
        for (int f = 0; f < RESIZE_FILTER_COUNT; f++) {
            if (!resize_supports((resize_rule)r, (resize_filter)f)) continue;
            sweep(resize_job, &(resize_case){&u8, (resize_rule)r, (resize_filter)f});
            sweep(resize_job, &(resize_case){&f32, (resize_rule)r, (resize_filter)f});
        }
    }
    sweep(pad_job, &u8);
    sweep(warp_job, &u8);
    sweep(normalize_job, &u8);
    sweep(png_job, &u8);
    tensor_free(&u8);
    tensor_free(&f32);
}

static void test_orientations_undo_each_other(void **state) {
    (void)state;
    static const uint32_t inverse[9] = {0, 1, 2, 3, 4, 5, 8, 7, 6};
    tensor in = image_of(5, 7, 3, ELEM_U8), turned, back;
    for (uint32_t o = 1; o <= 8; o++) {
        assert_int_equal(image_orient(&turned, &in, o, NULL), CHURON_OK);
        assert_int_equal(turned.dims[0], o < 5 ? 5 : 7);
        assert_int_equal(image_orient(&back, &turned, inverse[o], NULL), CHURON_OK);
        assert_memory_equal(back.data, in.data, in.count);
        tensor_free(&turned);
        tensor_free(&back);
    }
    assert_int_equal(image_orient(&turned, &in, 9, NULL), CHURON_INVALID);
    tensor_free(&in);
}

static void test_crop_and_centre(void **state) {
    (void)state;
    tensor in = image_of(6, 8, 1, ELEM_U8), out;
    image_window w;
    assert_int_equal(image_centre_window(&w, 6, 8, 3, 3, false, NULL), CHURON_OK);
    assert_true(w.y == 1 && w.x == 2);
    assert_int_equal(image_centre_window(&w, 6, 8, 3, 3, true, NULL),
                     CHURON_OK); /* 1.5 and 2.5, half to even */
    assert_true(w.y == 2 && w.x == 2);
    assert_int_equal(image_crop(&out, &in, w, NULL), CHURON_OK);
    for (size_t y = 0; y < 3; y++) {
        for (size_t x = 0; x < 3; x++) {
            assert_int_equal(((uint8_t *)out.data)[y * 3 + x], ((uint8_t *)in.data)[(y + 2) * 8 + x + 2]);
        }
    }
    tensor_free(&out);
    assert_int_equal(image_centre_window(&w, 6, 8, 7, 3, false, NULL), CHURON_INVALID);
    assert_int_equal(image_crop(&out, &in, (image_window){SIZE_MAX, 0, 2, 2}, NULL), CHURON_INVALID);
    assert_int_equal(image_crop(&out, &in, (image_window){5, 0, 2, 2}, NULL), CHURON_INVALID);
    const image_padding p = image_letterbox(3, 8, 8, 8, true), all = image_letterbox(3, 8, 8, 8, false);
    assert_true(p.top == 2 && p.bottom == 3 && p.left == 0 && p.right == 0);
    assert_true(all.top == 0 && all.bottom == 5);
    tensor_free(&in);
}

static void test_one_call_gives_what_the_steps_give(void **state) {
    (void)state;
    tensor in = image_of(50, 40, 3, ELEM_U8), resized, wanted;
    pixels_norm n = pixels_norm_identity();
    n.divide = 255, n.mean[1] = 0.5f, n.deviation[2] = 0.25f, n.reverse = true, n.layout = PIXELS_CHW;
    const image_window w = {3, 2, 20, 15};
    float out[3 * 20 * 15];
    assert_int_equal(image_resize_window(&resized, &in, 30, 24, w, RESIZE_PILLOW, RESIZE_BILINEAR, NULL),
                     CHURON_OK);
    assert_int_equal(pixels_normalize(&wanted, &resized, &n, NULL), CHURON_OK);
    assert_int_equal(
        pixels_resize_normalize(out, 3 * 20 * 15, &in, 30, 24, w, RESIZE_PILLOW, RESIZE_BILINEAR, &n, NULL),
        CHURON_OK);
    assert_memory_equal(out, wanted.data, sizeof out);
    error err;
    assert_int_equal(
        pixels_resize_normalize(out, 10, &in, 30, 24, w, RESIZE_PILLOW, RESIZE_BILINEAR, &n, &err),
        CHURON_INVALID);
    tensor planes, back;
    assert_int_equal(pixels_transpose(&planes, &resized, true, NULL), CHURON_OK);
    assert_int_equal(planes.dims[0], 3);
    assert_int_equal(pixels_transpose(&back, &planes, false, NULL), CHURON_OK);
    assert_memory_equal(back.data, resized.data, resized.count);
    assert_int_equal(pixels_reverse(&back, NULL), CHURON_OK);
    assert_int_equal(((uint8_t *)back.data)[0], ((uint8_t *)resized.data)[2]);
    tensor_free(&planes);
    tensor_free(&back);
    tensor_free(&in);
    tensor_free(&resized);
    tensor_free(&wanted);
}

static void test_perspective_points(void **state) {
    (void)state;
    const image_point from[4] = {{0, 0}, {10, 1}, {12, 9}, {-1, 8}}, to[4] = {{0, 0}, {5, 0}, {5, 5}, {0, 5}};
    const image_point line[4] = {{0, 0}, {1, 1}, {2, 2}, {3, 3}};
    double m[9];
    error err;
    assert_int_equal(perspective_from_points(m, from, to, &err), CHURON_OK);
    for (size_t i = 0; i < 4; i++) {
        const double w = m[6] * from[i].x + m[7] * from[i].y + m[8];
        assert_true((m[0] * from[i].x + m[1] * from[i].y + m[2]) / w - to[i].x < 1e-9);
        assert_true((m[3] * from[i].x + m[4] * from[i].y + m[5]) / w - to[i].y < 1e-9);
    }
    assert_int_equal(perspective_from_points(m, line, to, &err), CHURON_INVALID);
    tensor in = image_of(4, 4, 1, ELEM_U8), out;
    const double singular[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1},
                 far[9] = {1e300, 0, 0, 0, 1e300, 0, 1e300, 0, 1e-300};
    assert_int_equal(image_warp_perspective(&out, &in, singular, 4, 4, RESIZE_BILINEAR,
                                            IMAGE_BORDER_REPLICATE, NULL, &err),
                     CHURON_INVALID);
    if (image_warp_perspective(&out, &in, far, 4, 4, RESIZE_BICUBIC, IMAGE_BORDER_REPLICATE, NULL, &err) ==
        CHURON_OK)
        tensor_free(&out);
    tensor_free(&in);
}

/* ---- sound ----------------------------------------------------------------------------------------------
 */

static status resample_job(void *ctx, tensor *out, error *err) {
    return audio_resample(out, ctx, 44100, 16000, NULL, err);
}
static status mix_job(void *ctx, tensor *out, error *err) {
    return audio_mix_down(out, ctx, err);
}
static status stft_job(void *ctx, tensor *out, error *err) {
    const stft_options o = {.fft = 64, .hop = 16, .kind = WINDOW_HANN, .center = true};
    stft_plan *p;
    TRY(stft_plan_create(&p, &o, err));
    const status st = stft_run(out, p, ctx, STFT_POWER, err);
    stft_plan_free(p);
    return st;
}
static status features_job(void *ctx, tensor *out, error *err) {
    features_options o = features_librosa_mfcc(16000, 13);
    o.stft.fft = 64, o.stft.window = 0, o.stft.hop = 20, o.mel.mels = 20;
    features_plan *p;
    TRY(features_plan_create(&p, &o, err));
    const status st = features_run(out, p, ctx, err);
    features_plan_free(p);
    return st;
}

static void test_sound_without_memory(void **state) {
    (void)state;
    tensor stereo = sound_of(2, 500), mono = sound_of(1, 500);
    sweep(resample_job, &stereo);
    sweep(mix_job, &stereo);
    sweep(stft_job, &stereo);
    sweep(features_job, &mono);
    tensor_free(&stereo);
    tensor_free(&mono);
}

/* What a frame gives depends on no other: any length of input, the same first frames. */
static void test_frames_stand_alone(void **state) {
    (void)state;
    const features_options o = features_kaldi_fbank(16000, 40);
    features_plan *p;
    assert_int_equal(features_plan_create(&p, &o, NULL), CHURON_OK);
    tensor all = sound_of(1, 16000), whole, part;
    assert_int_equal(features_run(&whole, p, &all, NULL), CHURON_OK);
    assert_int_equal(whole.dims[0], features_frames(p, 16000));
    for (size_t n = 400; n < 16000; n += 1777) {
        const int64_t dims[1] = {(int64_t)n};
        const tensor some = tensor_borrow(ELEM_F32, 1, dims, all.data);
        assert_int_equal(features_run(&part, p, &some, NULL), CHURON_OK);
        assert_memory_equal(part.data, whole.data, part.count * sizeof(float));
        tensor_free(&part);
    }
    tensor_free(&whole);
    tensor_free(&all);
    features_plan_free(p);
}

static void test_plans_refused(void **state) {
    (void)state;
    error err;
    stft_plan *s;
    features_plan *f;
    stft_options o = {.fft = 400, .window = 401, .hop = 1};
    assert_int_equal(stft_plan_create(&s, &o, &err), CHURON_INVALID);
    o = (stft_options){.fft = 400, .hop = 0};
    assert_int_equal(stft_plan_create(&s, &o, &err), CHURON_INVALID);
    assert_null(s);
    features_options w = features_whisper(80);
    w.mel.high = 9000;
    assert_int_equal(features_plan_create(&f, &w, &err), CHURON_INVALID);
    w = features_whisper(0);
    assert_int_equal(features_plan_create(&f, &w, &err), CHURON_INVALID);
    w = features_whisper(80);
    w.cepstra = 81;
    assert_int_equal(features_plan_create(&f, &w, &err), CHURON_INVALID);
    assert_null(f);
    features_plan_free(NULL);
    stft_plan_free(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decoding_without_memory),
        cmocka_unit_test(test_every_prefix),
        cmocka_unit_test(test_images_without_memory),
        cmocka_unit_test(test_orientations_undo_each_other),
        cmocka_unit_test(test_crop_and_centre),
        cmocka_unit_test(test_one_call_gives_what_the_steps_give),
        cmocka_unit_test(test_perspective_points),
        cmocka_unit_test(test_sound_without_memory),
        cmocka_unit_test(test_frames_stand_alone),
        cmocka_unit_test(test_plans_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

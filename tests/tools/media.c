/* media.c: the room media for the Python tests: one job a process, files in, a .npy file out.
 *
 *   media decode FILE OUT [order=rgb] [blend=R,G,B] [keep=1] [max_pixels=N] [max_side=N]   prints the info
 *   media probe FILE
 *   media png IN OUT
 *   media resize IN OUT height=H width=W rule=R filter=F [window=Y,X,H,W]
 *   media normalize IN OUT [scale= divide= mean=a,b,c deviation=a,b,c reverse=1 chw=1]
 *   media warp IN OUT height=H width=W filter=F border=constant|replicate value=a,b,c m=9 numbers
 *   media rotate IN OUT quarters=N | orient IN OUT orientation=N | pad IN OUT edges=T,B,L,R value=a,b,c
 *   media fit fit=N in=H,W to=H,W                                                          prints the size
 *   media audio FILE OUT [mono=1] [max_samples=N]                                          prints the info
 *   media resample IN OUT from=R to=R preset=N | mix IN OUT
 *   media stft IN OUT fft= hop= [window= kind= symmetric= center= pad= what=]
 *   media mel OUT fft= rate= mels= [low= high= scale= area=1]
 *   media features IN OUT preset=whisper|fbank|librosa|mfcc rate= mels= [log= cepstra= lifter= snip=
 * magnitude= gain= fft= hop=] media window OUT kind=N n=N [symmetric=1] [parameter=X] */
#include "base/file.h"
#include "media/audio.h"
#include "media/image.h"
#include "media/pixels.h"
#include "media/spectrum.h"
#include "tensor/npy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char **words;
static int n_words;

static const char *word(const char *key) {
    const size_t n = strlen(key);
    for (int i = 0; i < n_words; i++) {
        if (strncmp(words[i], key, n) == 0 && words[i][n] == '=') return words[i] + n + 1;
    }
    return NULL;
}
static double number(const char *key, double otherwise) {
    const char *w = word(key);
    return w ? strtod(w, NULL) : otherwise;
}
static size_t size(const char *key) {
    return (size_t)number(key, 0);
}
static size_t list(const char *key, double *to, size_t most) {
    const char *w = word(key);
    size_t n = 0;
    while (w && n < most) {
        char *end;
        to[n++] = strtod(w, &end);
        w = *end == ',' ? end + 1 : NULL;
    }
    return n;
}
static const float *floats(const char *key, float to[4]) {
    double v[4] = {0};
    const size_t n = list(key, v, 4);
    for (size_t i = 0; i < 4; i++) to[i] = (float)v[i];
    return n ? to : NULL;
}

static status save(const tensor *t, const char *path, error *err) {
    str bytes = {0};
    status st = npy_write(t, &bytes, err);
    FILE *f = st == CHURON_OK ? fopen(path, "wb") : NULL;
    if (st == CHURON_OK && (!f || fwrite(bytes.data, 1, bytes.len, f) != bytes.len)) {
        st = error_set(err, CHURON_IO, "%s: not written", path);
    }
    if (f) (void)fclose(f);
    str_free(&bytes);
    return st;
}

static image_options image_words(void) {
    image_options o = {.keep_orientation = size("keep") != 0,
                       .max_pixels = size("max_pixels"),
                       .max_side = (uint32_t)size("max_side")};
    double rgb[3];
    if (list("blend", rgb, 3) == 3) {
        o.alpha = IMAGE_ALPHA_BLEND;
        for (size_t i = 0; i < 3; i++) o.background[i] = (uint8_t)rgb[i];
    }
    for (int i = 0; word("order") && i < IMAGE_ORDER_COUNT; i++) {
        if (strcmp(word("order"), image_order_name((image_order)i)) == 0) o.order = (image_order)i;
    }
    return o;
}

static void print_image(const image_info *i) {
    printf("{\"format\": \"%s\", \"width\": %u, \"height\": %u, \"channels\": %u, \"bits\": %u, "
           "\"orientation\": %u, "
           "\"alpha\": %d, \"icc\": %d, \"animated\": %d}\n",
           image_format_name(i->format), i->width, i->height, i->channels, i->bits, i->orientation,
           i->had_alpha, i->had_icc, i->animated);
}

static status on_file(const char *job, const uint8_t *bytes, size_t n, tensor *out, error *err) {
    if (strcmp(job, "audio") == 0) {
        audio_info info;
        const audio_options o = {.max_samples = size("max_samples"), .mono = size("mono") != 0};
        TRY(audio_decode(out, &info, bytes, n, &o, err));
        printf("{\"rate\": %u, \"channels\": %u, \"samples\": %llu, \"container\": \"%s\"}\n", info.rate,
               info.channels, (unsigned long long)info.samples, info.container);
        return CHURON_OK;
    }
    image_info info;
    const image_options o = image_words();
    TRY(strcmp(job, "probe") == 0 ? image_probe(&info, bytes, n, &o, err)
                                  : image_decode(out, &info, bytes, n, &o, err));
    print_image(&info);
    return CHURON_OK;
}

static resize_filter filter_word(void) {
    for (int i = 0; i < RESIZE_FILTER_COUNT; i++) {
        if (strcmp(word("filter"), resize_filter_name((resize_filter)i)) == 0) return (resize_filter)i;
    }
    return RESIZE_FILTER_COUNT;
}

static status resize(const tensor *in, tensor *out, error *err) {
    resize_rule rule = RESIZE_RULE_COUNT;
    for (int i = 0; i < RESIZE_RULE_COUNT; i++) {
        if (strcmp(word("rule"), resize_rule_name((resize_rule)i)) == 0) rule = (resize_rule)i;
    }
    double w[4];
    image_window window = {0, 0, size("height"), size("width")};
    if (list("window", w, 4) == 4)
        window = (image_window){(size_t)w[0], (size_t)w[1], (size_t)w[2], (size_t)w[3]};
    return image_resize_window(out, in, size("height"), size("width"), window, rule, filter_word(), err);
}

static status normalize(const tensor *in, tensor *out, error *err) {
    pixels_norm n = pixels_norm_identity();
    float mean[4], deviation[4];
    n.scale = (float)number("scale", 1), n.divide = (float)number("divide", 1);
    if (floats("mean", mean)) memcpy(n.mean, mean, sizeof mean);
    if (floats("deviation", deviation)) memcpy(n.deviation, deviation, sizeof deviation);
    n.reverse = size("reverse") != 0;
    n.layout = size("chw") ? PIXELS_CHW : PIXELS_HWC;
    return pixels_normalize(out, in, &n, err);
}

static status stft(const tensor *in, tensor *out, error *err) {
    const stft_options o = {.fft = size("fft"),
                            .window = size("window"),
                            .hop = size("hop"),
                            .kind = (window_kind)number("kind", WINDOW_HANN),
                            .symmetric = size("symmetric") != 0,
                            .center = size("center") != 0,
                            .pad = (stft_pad)size("pad")};
    stft_plan *p;
    TRY(stft_plan_create(&p, &o, err));
    const status st = stft_run(out, p, in, (stft_value)size("what"), err);
    stft_plan_free(p);
    return st;
}

static mel_options mel_words(void) {
    return (mel_options){.rate = (uint32_t)size("rate"),
                         .mels = size("mels"),
                         .low = number("low", 0),
                         .high = number("high", 0),
                         .scale = (mel_scale)size("scale"),
                         .area = size("area") != 0};
}

static status features(const tensor *in, tensor *out, error *err) {
    const char *preset = word("preset");
    const uint32_t rate = (uint32_t)size("rate");
    features_options o = features_whisper(size("mels"));
    if (strcmp(preset, "fbank") == 0) o = features_kaldi_fbank(rate, size("mels"));
    if (strcmp(preset, "librosa") == 0)
        o = features_librosa_mel(rate, size("fft"), size("hop"), size("mels"));
    if (strcmp(preset, "mfcc") == 0) o = features_librosa_mfcc(rate, size("cepstra"));
    if (word("log")) o.log = (mel_log)size("log");
    if (word("snip")) o.snip_edges = size("snip") != 0;
    if (size("magnitude")) o.value = STFT_MAGNITUDE;
    o.gain = number("gain", 0);
    o.lifter = number("lifter", 0);
    features_plan *p;
    TRY(features_plan_create(&p, &o, err));
    const status st = features_run(out, p, in, err);
    features_plan_free(p);
    return st;
}

static status on_array(const char *job, const tensor *in, tensor *out, error *err) {
    float border[4];
    double v[9];
    if (strcmp(job, "resize") == 0) return resize(in, out, err);
    if (strcmp(job, "normalize") == 0) return normalize(in, out, err);
    if (strcmp(job, "rotate") == 0) return image_rotate(out, in, (unsigned)size("quarters"), err);
    if (strcmp(job, "orient") == 0) return image_orient(out, in, (uint32_t)size("orientation"), err);
    if (strcmp(job, "transpose") == 0) return pixels_transpose(out, in, size("chw") != 0, err);
    if (strcmp(job, "stft") == 0) return stft(in, out, err);
    if (strcmp(job, "features") == 0) return features(in, out, err);
    if (strcmp(job, "mix") == 0) return audio_mix_down(out, in, err);
    if (strcmp(job, "warp") == 0) {
        (void)list("m", v, 9);
        const bool constant = strcmp(word("border"), "constant") == 0;
        return image_warp_perspective(out, in, v, size("height"), size("width"), filter_word(),
                                      constant ? IMAGE_BORDER_CONSTANT : IMAGE_BORDER_REPLICATE,
                                      floats("value", border), err);
    }
    if (strcmp(job, "pad") == 0) {
        (void)list("edges", v, 4);
        return image_pad(out, in, (image_padding){(size_t)v[0], (size_t)v[1], (size_t)v[2], (size_t)v[3]},
                         floats("value", border), err);
    }
    if (strcmp(job, "resample") == 0) {
        const resample_quality q = resample_preset_quality((resample_preset)size("preset"));
        return audio_resample(out, in, (uint32_t)size("from"), (uint32_t)size("to"), &q, err);
    }
    return error_set(err, CHURON_INVALID, "unknown job '%s'", job);
}

static status with_file(const char *job, const char *from, tensor *out, error *err) {
    file_map f;
    TRY(file_map_open(&f, from, err));
    const status st = on_file(job, f.data, f.size, out, err);
    file_map_close(&f);
    return st;
}

static status with_array(const char *job, const char *from, const char *to, tensor *out, error *err) {
    tensor in;
    TRY(npy_read(&in, from, err));
    status st;
    if (strcmp(job, "png") == 0) {
        str bytes = {0};
        st = image_encode_png(&bytes, &in, err);
        FILE *f = st == CHURON_OK ? fopen(to, "wb") : NULL;
        if (f) {
            (void)fwrite(bytes.data, 1, bytes.len, f);
            (void)fclose(f);
        }
        str_free(&bytes);
    } else {
        st = on_array(job, &in, out, err);
    }
    tensor_free(&in);
    return st;
}

static status run(const char *job, error *err) {
    tensor out = {0};
    status st;
    if (strcmp(job, "fit") == 0) {
        double a[2], b[2];
        size_t h, w;
        (void)list("in", a, 2), (void)list("to", b, 2);
        resize_fit_size((resize_fit)size("fit"), (size_t)a[0], (size_t)a[1], (size_t)b[0], (size_t)b[1], &h,
                        &w);
        printf("%zu %zu\n", h, w);
        return CHURON_OK;
    }
    const char *to = n_words > 1 ? words[1] : NULL;
    if (strcmp(job, "mel") == 0) {
        const mel_options o = mel_words();
        st = mel_filters(&out, size("fft"), &o, err);
        to = words[0];
    } else if (strcmp(job, "window") == 0) {
        const int64_t dims[1] = {(int64_t)size("n")};
        TRY(tensor_alloc(&out, ELEM_F32, 1, dims, err));
        window_make((window_kind)size("kind"), size("n"), size("symmetric") == 0, number("parameter", 0),
                    out.data);
        to = words[0];
        st = CHURON_OK;
    } else if (strcmp(job, "decode") == 0 || strcmp(job, "probe") == 0 || strcmp(job, "audio") == 0) {
        st = with_file(job, words[0], &out, err);
    } else {
        st = with_array(job, words[0], to, &out, err);
    }
    if (st == CHURON_OK && out.data) st = save(&out, to, err);
    tensor_free(&out);
    return st;
}

int main(int argc, char **argv) {
    error err;
    if (argc < 3) return 2;
    words = argv + 2, n_words = argc - 2;
    if (run(argv[1], &err) == CHURON_OK) return 0;
    fprintf(stderr, "%s: %s\n", churon_status_name(err.code), err.message);
    return 1;
}

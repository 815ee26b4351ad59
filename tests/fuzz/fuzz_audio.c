/* fuzz_audio.c: any bytes as an audio file, whole and mixed down, then resampled and made features of. */
#include "media/audio.h"
#include "media/spectrum.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* libsndfile 1.2 loses the vorbis_info of some damaged Ogg files. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void) {
    return "leak:libvorbis.so\n";
}

static volatile float sink;

static void use(const tensor *mono, uint32_t rate) {
    error err;
    tensor t;
    if (audio_resample(&t, mono, rate, 16000, NULL, &err) == CHURON_OK) {
        for (size_t i = 0; i < t.count; i++) sink += ((const float *)t.data)[i];
    } else if (!err.message[0]) {
        abort();
    }
    tensor_free(&t);
    static features_plan *plans[2];
    const features_options options[2] = {features_whisper(80), features_kaldi_fbank(16000, 23)};
    for (size_t i = 0; i < 2; i++) {
        if (!plans[i] && features_plan_create(&plans[i], &options[i], &err) != CHURON_OK) abort();
        const size_t frames = features_frames(plans[i], (size_t)mono->dims[1]);
        if (features_run(&t, plans[i], mono, &err) == CHURON_OK) {
            if (t.count != frames * features_rows(plans[i])) abort();
        } else if (!err.message[0]) {
            abort();
        }
        tensor_free(&t);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    error err;
    for (int mono = 0; mono < 2; mono++) {
        const audio_options o = {.max_samples = 1 << 17, .mono = mono != 0};
        audio_info info;
        tensor t;
        if (audio_decode(&t, &info, data, size, &o, &err) == CHURON_OK) {
            if (info.samples * info.channels > o.max_samples ||
                t.count != info.samples * (mono ? 1 : info.channels))
                abort();
            if (mono) use(&t, info.rate);
        } else if (!err.message[0] || t.data) {
            abort();
        }
        tensor_free(&t);
    }
    return 0;
}

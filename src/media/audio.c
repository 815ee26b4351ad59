/* audio.c: audio files by libsndfile, from memory. The buffer grows with what is really read, so that a
 * header that lies about its length costs nothing. */
#include "media/audio.h"

#include "base/mem.h"

#include <string.h>

#include <sndfile.h>

enum { CHUNK = 16384 /* frames read at once, less where channels are many */ };

typedef struct memory_file {
    const uint8_t *bytes;
    sf_count_t n, at;
} memory_file;

static sf_count_t file_length(void *ctx) {
    return ((memory_file *)ctx)->n;
}
static sf_count_t file_seek(sf_count_t offset, int whence, void *ctx) {
    memory_file *f = ctx;
    const sf_count_t base = whence == SEEK_SET ? 0 : whence == SEEK_CUR ? f->at : f->n;
    sf_count_t at = offset > f->n ? f->n : offset < -f->n ? -f->n : offset;
    at += base;
    f->at = at < 0 ? 0 : at > f->n ? f->n : at;
    return f->at;
}
static sf_count_t file_read_some(void *to, sf_count_t n, void *ctx) {
    memory_file *f = ctx;
    if (n > f->n - f->at) n = f->n - f->at;
    if (n <= 0) return 0;
    memcpy(to, f->bytes + f->at, (size_t)n);
    f->at += n;
    return n;
}
static sf_count_t file_write_none(const void *from, sf_count_t n, void *ctx) {
    (void)from, (void)n, (void)ctx;
    return 0;
}
static sf_count_t file_tell(void *ctx) {
    return ((memory_file *)ctx)->at;
}

static const char *container_name(int format) {
    switch (format & SF_FORMAT_TYPEMASK) {
    case SF_FORMAT_WAV:
    case SF_FORMAT_WAVEX: return "WAV";
    case SF_FORMAT_RF64: return "RF64";
    case SF_FORMAT_W64: return "W64";
    case SF_FORMAT_AIFF: return "AIFF";
    case SF_FORMAT_AU: return "AU";
    case SF_FORMAT_CAF: return "CAF";
    case SF_FORMAT_FLAC: return "FLAC";
    case SF_FORMAT_OGG: return "OGG";
    case SF_FORMAT_MPEG: return "MP3";
    default: return "other";
    }
}

/* libsndfile shortens a WAV whose file ends early without a word. 0 and the largest sizes mean "until the
 * end". */
static status check_wav_length(const uint8_t *p, size_t n, error *err) {
    if (n < 12 || memcmp(p, "RIFF", 4) != 0 || memcmp(p + 8, "WAVE", 4) != 0) return CHURON_OK;
    for (size_t at = 12; n - at >= 8;) {
        const uint8_t *c = p + at;
        const uint32_t size =
            (uint32_t)c[4] | (uint32_t)c[5] << 8 | (uint32_t)c[6] << 16 | (uint32_t)c[7] << 24;
        const size_t left = n - at - 8;
        if (memcmp(c, "data", 4) == 0) {
            if (size <= left || size >= 0x7ffff000u) return CHURON_OK;
            return error_set(err, CHURON_CORRUPT, "audio: WAV: truncated: data: expected %u bytes, got %zu",
                             size, left);
        }
        const size_t padded = (size_t)size + (size & 1);
        if (padded >= left) break;
        at += 8 + padded;
    }
    return CHURON_OK;
}

typedef struct samples {
    float *data; /* [n, channels] */
    size_t n, capacity;
    size_t channels; /* of the result: 1 when mixed down */
} samples;

static status reserve(samples *s, size_t frames, error *err) {
    if (s->n + frames <= s->capacity) return CHURON_OK;
    size_t capacity = s->capacity * 2 > s->n + frames ? s->capacity * 2 : s->n + frames, bytes;
    float *p = size_mul(capacity, s->channels * sizeof *p, &bytes) ? mem_realloc(s->data, bytes) : NULL;
    if (!p) return error_no_memory(err, "audio samples", capacity * s->channels * sizeof *p);
    s->data = p, s->capacity = capacity;
    return CHURON_OK;
}

static float mean_of(const float *frame, size_t channels) {
    float sum = frame[0];
    for (size_t c = 1; c < channels; c++) sum += frame[c];
    return sum / (float)channels;
}

static void append(samples *s, const float *frames, size_t n, size_t channels) {
    float *to = s->data + s->n * s->channels;
    if (s->channels == channels) memcpy(to, frames, n * channels * sizeof *to);
    for (size_t i = 0; s->channels != channels && i < n; i++)
        to[i] = mean_of(frames + i * channels, channels);
    s->n += n;
}

static status read_all(SNDFILE *f, const SF_INFO *info, uint64_t most, samples *s, error *err) {
    const size_t channels = (size_t)info->channels, at_once = CHUNK / channels;
    float *chunk = mem_alloc(at_once * channels * sizeof *chunk);
    if (!chunk) return error_no_memory(err, "audio samples", at_once * channels * sizeof *chunk);
    status st = CHURON_OK;
    for (;;) {
        const sf_count_t got = sf_readf_float(f, chunk, (sf_count_t)at_once);
        if (got <= 0) break;
        if ((uint64_t)(s->n + (size_t)got) * channels > most) {
            st = error_set(err, CHURON_LIMIT,
                           "audio: samples: expected at most %llu over all channels, got more",
                           (unsigned long long)most);
            break;
        }
        TRY_GOTO(reserve(s, (size_t)got, err));
        append(s, chunk, (size_t)got, channels);
    }
    if (st == CHURON_OK && sf_error(f) != SF_ERR_NO_ERROR) {
        st = error_set(err, CHURON_CORRUPT, "audio: %s: %s", container_name(info->format), sf_strerror(f));
    }
    if (st == CHURON_OK && info->frames != SF_COUNT_MAX && s->n < (uint64_t)info->frames) {
        st = error_set(err, CHURON_CORRUPT, "audio: %s: truncated: expected %lld samples, got %zu",
                       container_name(info->format), (long long)info->frames, s->n);
    }
cleanup:
    mem_free(chunk);
    return st;
}

static status check_info(const SF_INFO *i, uint64_t most, error *err) {
    if (i->channels < 1 || i->channels > AUDIO_MAX_CHANNELS) {
        return error_set(err, CHURON_LIMIT, "audio: channels: expected 1 to %d, got %d", AUDIO_MAX_CHANNELS,
                         i->channels);
    }
    if (i->samplerate < 1 || i->samplerate > AUDIO_MAX_RATE) {
        return error_set(err, CHURON_LIMIT, "audio: rate: expected 1 to %d, got %d", AUDIO_MAX_RATE,
                         i->samplerate);
    }
    if (i->frames != SF_COUNT_MAX && (i->frames < 0 || (uint64_t)i->frames > most / (uint64_t)i->channels)) {
        return error_set(err, CHURON_LIMIT,
                         "audio: samples: expected at most %llu over all channels, got %lld in each of %d",
                         (unsigned long long)most, (long long)i->frames, i->channels);
    }
    return CHURON_OK;
}

static status to_tensor(tensor *out, const samples *s, error *err) {
    const int64_t dims[2] = {(int64_t)s->channels, (int64_t)s->n};
    TRY(tensor_alloc(out, ELEM_F32, 2, dims, err));
    float *to = out->data;
    for (size_t c = 0; c < s->channels; c++) {
        for (size_t i = 0; i < s->n; i++) *to++ = s->data[i * s->channels + c];
    }
    return CHURON_OK;
}

status audio_decode(tensor *out, audio_info *info, const void *bytes, size_t n, const audio_options *options,
                    error *err) {
    static const audio_options defaults;
    SF_VIRTUAL_IO io = {file_length, file_seek, file_read_some, file_write_none, file_tell};
    *out = (tensor){0};
    if (!options) options = &defaults;
    const uint64_t most = options->max_samples ? options->max_samples : AUDIO_DEFAULT_SAMPLES;
    if (n == 0) return error_set(err, CHURON_INVALID, "audio: expected a file, got 0 bytes");
    TRY(check_wav_length(bytes, n, err));
    memory_file file = {bytes, (sf_count_t)n, 0};
    SF_INFO found = {0};
    SNDFILE *f = sf_open_virtual(&io, SFM_READ, &found, &file);
    if (!f) {
        const bool unknown = sf_error(NULL) == SF_ERR_UNRECOGNISED_FORMAT;
        return error_set(err, unknown ? CHURON_UNSUPPORTED : CHURON_CORRUPT,
                         "audio: format: expected WAV, FLAC, Ogg, MP3 or another of libsndfile's: %s",
                         sf_strerror(NULL));
    }
    samples s = {0};
    status st;
    TRY_GOTO(check_info(&found, most, err));
    s.channels = options->mono ? 1 : (size_t)found.channels;
    TRY_GOTO(read_all(f, &found, most, &s, err));
    TRY_GOTO(to_tensor(out, &s, err));
    if (info) {
        *info = (audio_info){
            .rate = (uint32_t)found.samplerate, .channels = (uint32_t)found.channels, .samples = s.n};
        const char *name = container_name(found.format);
        memcpy(info->container, name, strlen(name) + 1);
    }
cleanup:
    (void)sf_close(f);
    mem_free(s.data);
    return st;
}

status audio_mix_down(tensor *out, const tensor *in, error *err) {
    *out = (tensor){0};
    if (in->type != ELEM_F32 || in->rank != 2 || in->dims[0] < 1) {
        return error_set(err, CHURON_INVALID,
                         "mix down: samples: expected float32 [channels, samples], got %s of rank %u",
                         elem_name(in->type), in->rank);
    }
    const size_t channels = (size_t)in->dims[0], n = (size_t)in->dims[1];
    const int64_t dims[2] = {1, in->dims[1]};
    TRY(tensor_alloc(out, ELEM_F32, 2, dims, err));
    const float *from = in->data;
    float *to = out->data;
    for (size_t i = 0; i < n; i++) {
        float sum = from[i];
        for (size_t c = 1; c < channels; c++) sum += from[c * n + i];
        to[i] = sum / (float)channels;
    }
    return CHURON_OK;
}

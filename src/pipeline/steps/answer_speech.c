/* answer_speech.c: stretches of speech out of the probability of speech of every window. */
#include "base/mem.h"
#include "pipeline/steps/elements.h"
#include "pipeline/steps/steps.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    TS_FIELD,
    TS_LENGTH_OF,
    TS_RATE,
    TS_WINDOW,
    TS_THRESHOLD,
    TS_EXIT,
    TS_MIN_SPEECH,
    TS_MAX_SPEECH,
    TS_MIN_SILENCE,
    TS_PAD,
    TS_AT_MAX,
    TS_LONGEST,
    TS_SECONDS,
    TS_DIGITS,
    TS_INTO
};

static const key_spec TIMESTAMPS_KEYS[] = {
    {"field", KEY_FIELD, .required = true, .doc = "Probabilities of speech, one a window [windows]"},
    {"length_of", KEY_FIELD,
     .doc = "The signal (audio, or a tensor whose last dimension it is), whose length nothing goes beyond; "
            "left out: windows * window"},
    {"rate", KEY_INT, .fallback = "16000", .least = 1, .most = 1000000, .doc = "Samples a second"},
    {"window", KEY_INT, .least = 1, .most = 1e9,
     .doc = "Samples of a window; left out: 512 at 16000, else 256"},
    {"threshold", KEY_NUMBER, .fallback = "0.5", .least = 0, .most = 1, .doc = "Speech begins at this"},
    {"exit_threshold", KEY_NUMBER, .least = 0, .most = 1,
     .doc = "Silence begins below this; left out: max(threshold - 0.15, 0.01)"},
    {"min_speech_ms", KEY_INT, .fallback = "250", .least = 0, .most = 1e9,
     .doc = "Stretches that are not longer than this are dropped"},
    {"max_speech_s", KEY_NUMBER, .least = 0.001, .most = 1e9,
     .doc = "Longer stretches are cut; left out: none is"},
    {"min_silence_ms", KEY_INT, .fallback = "100", .least = 0, .most = 1e9,
     .doc = "Silence must last this long to end a stretch"},
    {"pad_ms", KEY_INT, .fallback = "30", .least = 0, .most = 1e9,
     .doc = "Added at both ends, as far as there is room between stretches"},
    {"min_silence_at_max_ms", KEY_INT, .fallback = "98", .least = 0, .most = 1e9,
     .doc = "Silences longer than this are where a stretch that is too long may be cut"},
    {"cut_at_longest", KEY_BOOL, .fallback = "true",
     .doc = "It is cut at the longest of them; false: at the last"},
    {"seconds", KEY_BOOL, .fallback = "false", .doc = "start and end in seconds instead of samples"},
    {"digits", KEY_INT, .fallback = "1", .least = 0, .most = 9, .doc = "Digits of seconds after the point"},
    {"into", KEY_INTO, .required = true, .doc = "Name of the list of {start, end}"},
    {0}};

typedef struct speech_state {
    double rate, threshold, exit_threshold, min_speech, max_speech, min_silence, pad, at_max;
    int64_t window;
    bool longest, seconds;
    int digits;
    int32_t length_of;
} speech_state;

static status check_timestamps(step_build *b, error *err) {
    const key_value *v = b->values;
    speech_state *s;
    TRY(expect_numbers(b, TS_FIELD, 1, err));
    TRY(step_state(b, sizeof *s, &s, err));
    s->rate = (double)v[TS_RATE].integer;
    s->window = v[TS_WINDOW].given ? v[TS_WINDOW].integer : v[TS_RATE].integer == 16000 ? 512 : 256;
    s->threshold = v[TS_THRESHOLD].number;
    s->exit_threshold = v[TS_EXIT].given ? v[TS_EXIT].number : fmax(s->threshold - 0.15, 0.01);
    s->min_speech = s->rate * v[TS_MIN_SPEECH].number / 1000;
    s->pad = s->rate * v[TS_PAD].number / 1000;
    s->max_speech = v[TS_MAX_SPEECH].given
                        ? s->rate * v[TS_MAX_SPEECH].number - (double)s->window - 2 * s->pad
                        : INFINITY;
    s->min_silence = s->rate * v[TS_MIN_SILENCE].number / 1000;
    s->at_max = s->rate * v[TS_AT_MAX].number / 1000;
    s->longest = v[TS_LONGEST].flag;
    s->seconds = v[TS_SECONDS].flag;
    s->digits = (int)v[TS_DIGITS].integer;
    s->length_of = -1;
    if (v[TS_LENGTH_OF].given) {
        TRY(step_expect(b, TS_LENGTH_OF, KIND(CELL_TENSOR) | KIND(CELL_AUDIO), false, err));
        s->length_of = v[TS_LENGTH_OF].slot;
    }
    b->s->in = v[TS_FIELD].slot;
    const char *const names[] = {"start", "end"};
    const cell_type one = s->seconds ? CELL_TYPE_DOUBLE : CELL_TYPE_INT, types[] = {one, one};
    cell_type record, list;
    int32_t slot;
    TRY(record_type(b, 2, names, types, &record, err));
    TRY(list_type(b, &record, &list, err));
    return step_output_named(b, v[TS_INTO].text, &list, &slot, err);
}

typedef struct stretch {
    double start, end;
} stretch;

/* What a pass over the windows remembers. 0 stands for none, as in the reference: a silence cannot begin at
 * the first sample. */
typedef struct listener {
    const speech_state *s;
    stretch *found;
    size_t n;
    bool speaking, open; /* open: a stretch has its start */
    double start;
    double silence, before_end, next_start;
    double longest_at, longest; /* the longest silence that a cut may be put at */
    bool has_longest;
} listener;

static void forget(listener *l) {
    l->silence = l->before_end = l->next_start = 0;
    l->has_longest = false;
}

static void close_stretch(listener *l, double end) {
    l->found[l->n++] = (stretch){l->start, end};
    l->open = false;
}

/* A stretch became too long. False: it was cut right here, and this window is done. */
static bool cut_stretch(listener *l, double at) {
    if (l->s->longest && l->has_longest) {
        const double next = l->longest_at + l->longest;
        close_stretch(l, l->longest_at);
        if (next < l->longest_at + at) {
            l->start = next;
            l->open = true;
        } else {
            l->speaking = false;
        }
        forget(l);
        return true;
    }
    if (l->before_end != 0) {
        const double end = l->before_end, next = l->next_start;
        close_stretch(l, end);
        if (next < end) {
            l->speaking = false;
        } else {
            l->start = next;
            l->open = true;
        }
        forget(l);
        return true;
    }
    close_stretch(l, at);
    forget(l);
    l->speaking = false;
    return false;
}

static void hear_silence(listener *l, double at) {
    const speech_state *s = l->s;
    if (l->silence == 0) l->silence = at;
    const double lasts = at - l->silence;
    if (!s->longest && lasts > s->at_max) l->before_end = l->silence;
    if (lasts < s->min_silence) return;
    const double end = l->silence;
    if (end - l->start > s->min_speech) close_stretch(l, end);
    l->open = false;
    forget(l);
    l->speaking = false;
}

static void hear(listener *l, double at, double p) {
    const speech_state *s = l->s;
    if (p >= s->threshold && l->silence != 0) {
        const double lasted = at - l->silence;
        if (lasted > s->at_max && (!l->has_longest || lasted > l->longest)) {
            l->longest_at = l->silence;
            l->longest = lasted;
            l->has_longest = true;
        }
        l->silence = 0;
        if (l->next_start < l->before_end) l->next_start = at;
    }
    if (p >= s->threshold && !l->speaking) {
        l->speaking = true;
        l->open = true;
        l->start = at;
        return;
    }
    if (l->speaking && at - l->start > s->max_speech && !cut_stretch(l, at)) return;
    if (p < s->exit_threshold && l->speaking) hear_silence(l, at);
}

static double at_least_zero(double v) {
    return v > 0 ? v : 0;
}

static void pad_stretches(const speech_state *s, stretch *f, size_t n, double length) {
    for (size_t i = 0; i < n; i++) {
        if (i == 0) f[i].start = trunc(at_least_zero(f[i].start - s->pad));
        if (i + 1 == n) {
            f[i].end = trunc(fmin(length, f[i].end + s->pad));
            continue;
        }
        const double between = f[i + 1].start - f[i].end;
        if (between < 2 * s->pad) {
            f[i].end += floor(between / 2);
            f[i + 1].start = trunc(at_least_zero(f[i + 1].start - floor(between / 2)));
        } else {
            f[i].end = trunc(fmin(length, f[i].end + s->pad));
            f[i + 1].start = trunc(at_least_zero(f[i + 1].start - s->pad));
        }
    }
}

static double rounded(double v, int digits) {
    char text[64];
    snprintf(text, sizeof text, "%.*f", digits, v);
    return strtod(text, NULL);
}

static status give_stretches(const step *st, run *r, const stretch *f, size_t n, double length, cell *out,
                             error *err) {
    const speech_state *s = st->state;
    cell *items, *members = arena_array(r->memory, n + 1, 2 * sizeof *members);
    if (!members) return run_no_memory(r, st, n * 2 * sizeof *members, err);
    TRY(cell_new_list(out, r->memory, n, &items, err));
    for (size_t i = 0; i < n; i++) {
        cell *m = members + 2 * i;
        if (s->seconds) {
            m[0] = cell_of_float(at_least_zero(rounded(f[i].start / s->rate, s->digits)));
            m[1] = cell_of_float(fmin(rounded(f[i].end / s->rate, s->digits), length / s->rate));
        } else {
            m[0] = cell_of_int((int64_t)f[i].start);
            m[1] = cell_of_int((int64_t)f[i].end);
        }
        items[i] = (cell){.kind = CELL_RECORD, .n = 2, .items = m};
    }
    return CHURON_OK;
}

static status run_timestamps(const step *st, run *r, cell *slots, error *err) {
    const speech_state *s = st->state;
    const double *p;
    size_t n;
    TRY(cell_numbers(&p, &n, &slots[st->in], r->memory, "probabilities", err));
    double length = (double)n * (double)s->window;
    if (s->length_of >= 0) {
        const tensor *t = slots[s->length_of].t;
        length = t->rank ? (double)t->dims[t->rank - 1] : 1;
    }
    listener l = {.s = s, .found = arena_array(r->memory, n + 2, sizeof *l.found)};
    if (!l.found) return run_no_memory(r, st, n * sizeof *l.found, err);
    for (size_t i = 0; i < n; i++) {
        if (isnan(p[i])) return error_set(err, CHURON_INVALID, "expected probabilities, got NaN at %zu", i);
        hear(&l, (double)s->window * (double)i, p[i]);
    }
    if (l.open && length - l.start > s->min_speech) close_stretch(&l, length);
    pad_stretches(s, l.found, l.n, length);
    return give_stretches(st, r, l.found, l.n, length, &slots[st->out], err);
}

const step_kind step_timestamps = {
    .name = "timestamps",
    .group = "answer",
    .doc = "Stretches of speech: they begin where the probability reaches a threshold and end where it stays "
           "below a "
           "lower one for a while; short ones are dropped, long ones cut, the rest padded.",
    .reference = "get_speech_timestamps of the silero-vad package",
    .keys = TIMESTAMPS_KEYS,
    .check = check_timestamps,
    .row = run_timestamps,
};

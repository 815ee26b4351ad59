/* flow_windows.c: a long signal cut into windows that a model takes, and what the model gave put together
 * again. */
#include "base/mem.h"
#include "pipeline/steps/elements.h"
#include "pipeline/steps/steps.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* ---- windows ---------------------------------------------------------------------------------------- */

enum {
    WIN_FIELD,
    WIN_SIZE,
    WIN_HOP,
    WIN_AXIS,
    WIN_LEAD,
    WIN_LAST,
    WIN_CONTEXT,
    WIN_BEFORE,
    WIN_VALUE,
    WIN_INTO
};
enum { LAST_PAD, LAST_COVER, LAST_DROP };

static const key_spec WINDOWS_KEYS[] = {
    {"field", KEY_FIELD, .required = true, .doc = "The signal: a tensor, or audio"},
    {"size", KEY_INT, .required = true, .least = 1, .most = 1e9, .doc = "Length of a window"},
    {"hop", KEY_INT, .least = 1, .most = 1e9,
     .doc = "From the start of a window to that of the next; left out: size"},
    {"axis", KEY_INT, .fallback = "-1", .least = -12, .most = 11,
     .doc = "The dimension that is cut; -1: the last"},
    {"lead", KEY_INT, .fallback = "0", .least = 0, .most = 1e9,
     .doc = "How much padding is put before the signal"},
    {"last", KEY_CHOICE, .fallback = "pad", .choices = "pad|cover|drop",
     .doc =
         "pad: a window starts every hop as long as there is signal, and is filled up; cover: likewise, but "
         "none starts after one that reached the end; drop: only whole windows"},
    {"context", KEY_INT, .fallback = "0", .least = 0, .most = 1e9,
     .doc = "How much of what lies before a window is put in front of it: windows have context + size"},
    {"before", KEY_FIELD, .doc = "What lies before the signal, of the length of context; left out: padding"},
    {"value", KEY_NUMBER, .fallback = "0", .doc = "What padding consists of"},
    {"into", KEY_INTO, .doc = "Name of the result [windows, …]; left out: that of the field"},
    {0}};

typedef struct windows_state {
    size_t size, hop, lead, context, axis;
    int last;
    int32_t before;
    double value;
} windows_state;

/* A tensor's type, of audio and images too. */
static bool signal_type(const cell_type *t, cell_type *out) {
    *out = *t;
    out->kind = CELL_TENSOR;
    if (t->kind == CELL_TENSOR) return t->has_rank && t->rank > 0 && t->element != ELEM_STRING;
    out->has_rank = true;
    out->rank = 2;
    out->element = t->element ? t->element : ELEM_F32;
    return t->kind == CELL_AUDIO;
}

static int64_t count_windows(const windows_state *w, int64_t n) {
    const int64_t total = n + (int64_t)w->lead, size = (int64_t)w->size, hop = (int64_t)w->hop;
    switch (w->last) {
    case LAST_DROP: return total < size ? 0 : (total - size) / hop + 1;
    case LAST_COVER: return total == 0 ? 0 : total <= size ? 1 : (total - size + hop - 1) / hop + 1;
    default: return (total + hop - 1) / hop;
    }
}

static status check_before(step_build *b, windows_state *w, const cell_type *signal, error *err) {
    const key_value *v = &b->values[WIN_BEFORE];
    char want[120], got[120];
    cell_type wanted = *signal, is;
    w->before = v->given ? v->slot : -1;
    if (!v->given) return CHURON_OK;
    wanted.dims[w->axis] = (int64_t)w->context;
    if (!v->type->optional && signal_type(v->type, &is) && cell_type_accepts(&wanted, &is)) return CHURON_OK;
    return step_fault(b, "before", err, "expected %s, got '%.60s', which is %s",
                      cell_type_text(&wanted, want, sizeof want), v->text,
                      cell_type_text(v->type, got, sizeof got));
}

static status check_windows(step_build *b, error *err) {
    const key_value *v = b->values;
    windows_state *w;
    cell_type signal, out;
    TRY(step_expect(b, WIN_FIELD, KIND(CELL_TENSOR) | KIND(CELL_AUDIO), false, err));
    TRY(step_state(b, sizeof *w, &w, err));
    if (!signal_type(v[WIN_FIELD].type, &signal) || signal.rank == TENSOR_MAX_RANK)
        return step_fault(b, "field", err, "expected a tensor of 1 to 11 dimensions, got '%.60s'",
                          v[WIN_FIELD].text);
    *w = (windows_state){.size = (size_t)v[WIN_SIZE].integer,
                         .lead = (size_t)v[WIN_LEAD].integer,
                         .context = (size_t)v[WIN_CONTEXT].integer,
                         .last = (int)v[WIN_LAST].integer,
                         .value = v[WIN_VALUE].number};
    w->hop = v[WIN_HOP].given ? (size_t)v[WIN_HOP].integer : w->size;
    const int64_t axis = v[WIN_AXIS].integer + (v[WIN_AXIS].integer < 0 ? (int64_t)signal.rank : 0);
    if (axis < 0 || axis >= (int64_t)signal.rank)
        return step_fault(b, "axis", err, "expected %d to %d, got %" PRId64, -(int)signal.rank,
                          (int)signal.rank - 1, v[WIN_AXIS].integer);
    w->axis = (size_t)axis;
    TRY(check_before(b, w, &signal, err));
    b->s->in = v[WIN_FIELD].slot;
    const int64_t n = signal.dims[axis];
    out = tensor_type(signal.element, signal.rank, signal.dims);
    memmove(out.dims + 1, out.dims, signal.rank * sizeof *out.dims);
    out.rank++;
    out.dims[0] = n < 0 ? -1 : count_windows(w, n);
    out.dims[axis + 1] = (int64_t)(w->context + w->size);
    return step_output(b, WIN_INTO, WIN_FIELD, &out, err);
}

/* Elements [from, from + n) of one line of the signal along the axis, into `to`; places are counted from the
 * signal's start and may lie outside. A line has `stride` bytes an element. */
typedef struct line {
    const char *signal, *before, *padding; /* padding: one element's `stride` bytes */
    int64_t n, n_before;
    size_t stride;
} line;

static void copy_line(const line *l, int64_t from, size_t n, char *to) {
    for (size_t i = 0; i < n;) {
        const int64_t at = from + (int64_t)i;
        size_t take = n - i;
        if (at >= 0 && at < l->n) {
            if ((int64_t)take > l->n - at) take = (size_t)(l->n - at);
            memcpy(to + i * l->stride, l->signal + (size_t)at * l->stride, take * l->stride);
        } else if (at < 0 && l->before && at >= -l->n_before) {
            if ((int64_t)take > -at) take = (size_t)-at;
            memcpy(to + i * l->stride, l->before + (size_t)(at + l->n_before) * l->stride, take * l->stride);
        } else {
            take = 1;
            memcpy(to + i * l->stride, l->padding, l->stride);
        }
        i += take;
    }
}

static status run_windows(const step *s, run *r, cell *slots, error *err) {
    const windows_state *w = s->state;
    const tensor *t = slots[s->in].t, *before = w->before < 0 ? NULL : slots[w->before].t;
    const size_t bytes = elem_describe(t->type)->bytes, width = w->context + w->size;
    int64_t dims[TENSOR_MAX_RANK];
    size_t outer = 1, inner = 1;
    for (size_t i = 0; i < w->axis; i++) outer *= (size_t)t->dims[i];
    for (size_t i = w->axis + 1; i < t->rank; i++) inner *= (size_t)t->dims[i];
    if (before &&
        (before->rank != t->rank || before->type != t->type || before->count != outer * w->context * inner))
        return error_set(err, CHURON_INVALID, "before: expected %zu elements, got %zu",
                         outer * w->context * inner, before->count);
    const int64_t n = count_windows(w, t->dims[w->axis]);
    memcpy(dims + 1, t->dims, t->rank * sizeof *dims);
    dims[0] = n;
    dims[w->axis + 1] = (int64_t)width;
    void *data;
    TRY(cell_new_tensor(&slots[s->out], CELL_TENSOR, r->memory, t->type, t->rank + 1, dims, &data, "windows",
                        err));
    char *padding = arena_alloc(r->memory, inner * bytes + 1);
    if (!padding) return run_no_memory(r, s, inner * bytes, err);
    for (size_t i = 0; i < inner; i++) elem_from_f64(t->type, &w->value, padding + i * bytes, 1, true);
    char *to = data;
    for (int64_t k = 0; k < n; k++) {
        if ((k & 1023) == 0) TRY(run_may_go_on(r, err));
        for (size_t o = 0; o < outer; o++, to += width * inner * bytes) {
            const line l = {.signal = (const char *)t->data + o * (size_t)t->dims[w->axis] * inner * bytes,
                            .before =
                                before ? (const char *)before->data + o * w->context * inner * bytes : NULL,
                            .padding = padding,
                            .n = t->dims[w->axis],
                            .n_before = (int64_t)w->context,
                            .stride = inner * bytes};
            copy_line(&l, k * (int64_t)w->hop - (int64_t)w->lead - (int64_t)w->context, width, to);
        }
    }
    return CHURON_OK;
}

const step_kind step_windows = {
    .name = "windows",
    .group = "flow",
    .doc = "Cuts a signal into windows of one size, a hop apart, along one dimension: [windows, …]. The "
           "signal may "
           "be led by padding, and each window by what lies before it (context).",
    .reference = "numpy sliding_window_view; the silero-vad and basic-pitch packages",
    .keys = WINDOWS_KEYS,
    .check = check_windows,
    .row = run_windows,
};

/* ---- stitch ----------------------------------------------------------------------------------------- */

enum { STITCH_FIELD, STITCH_TRIM, STITCH_LENGTH_OF, STITCH_FRAMES, STITCH_SAMPLES, STITCH_INTO };

static const key_spec STITCH_KEYS[] = {
    {"field", KEY_FIELD, .required = true, .doc = "Windows [windows, frames, …]"},
    {"trim", KEY_INT, .fallback = "0", .least = 0, .most = 1e9,
     .doc = "Frames dropped at both ends of every window: half of what neighbours share"},
    {"length_of", KEY_FIELD,
     .doc = "A signal (audio, or a tensor whose last dimension it is) that says how many "
            "frames there are in all: floor(its length * (frames / samples)); the rest is cut off"},
    {"frames", KEY_NUMBER, .fallback = "1", .least = 1e-9, .most = 1e9, .doc = "Frames in as many samples"},
    {"samples", KEY_NUMBER, .fallback = "1", .least = 1e-9, .most = 1e9, .doc = "Samples of as many frames"},
    {"into", KEY_INTO, .doc = "Name of the result [frames, …]; left out: that of the field"},
    {0}};

typedef struct stitch_state {
    size_t trim;
    int32_t length_of;
    double rate;
} stitch_state;

static status check_stitch(step_build *b, error *err) {
    const key_value *v = b->values;
    const cell_type *t = v[STITCH_FIELD].type;
    stitch_state *st;
    TRY(step_state(b, sizeof *st, &st, err));
    TRY(step_expect(b, STITCH_FIELD, KIND(CELL_TENSOR), false, err));
    if (!t->has_rank || t->rank < 2 || t->element == ELEM_STRING)
        return step_fault(b, "field", err, "expected a tensor of numbers [windows, frames, …], got '%.60s'",
                          v[STITCH_FIELD].text);
    st->trim = (size_t)v[STITCH_TRIM].integer;
    st->length_of = -1;
    if (v[STITCH_LENGTH_OF].given) {
        TRY(step_expect(b, STITCH_LENGTH_OF, KIND(CELL_TENSOR) | KIND(CELL_AUDIO), false, err));
        st->length_of = v[STITCH_LENGTH_OF].slot;
        st->rate = v[STITCH_FRAMES].number / v[STITCH_SAMPLES].number;
    }
    if (t->dims[1] >= 0 && (int64_t)st->trim * 2 > t->dims[1])
        return step_fault(b, "trim", err, "expected at most half of %" PRId64 " frames, got %zu", t->dims[1],
                          st->trim);
    b->s->in = v[STITCH_FIELD].slot;
    cell_type out = tensor_type(t->element, t->rank - 1, t->dims + 1);
    const bool known = t->dims[0] >= 0 && t->dims[1] >= 0 && st->length_of < 0;
    out.dims[0] = known ? t->dims[0] * (t->dims[1] - 2 * (int64_t)st->trim) : -1;
    return step_output(b, STITCH_INTO, STITCH_FIELD, &out, err);
}

static status run_stitch(const step *s, run *r, cell *slots, error *err) {
    const stitch_state *st = s->state;
    const tensor *t = slots[s->in].t;
    if (t->dims[1] < 2 * (int64_t)st->trim)
        return error_set(err, CHURON_INVALID, "expected windows of at least %zu frames, got %" PRId64,
                         2 * st->trim, t->dims[1]);
    const size_t each = (size_t)t->dims[1] - 2 * st->trim, n = (size_t)t->dims[0];
    size_t frame = elem_describe(t->type)->bytes, total = n * each;
    for (uint32_t i = 2; i < t->rank; i++) frame *= (size_t)t->dims[i];
    if (st->length_of >= 0) {
        const tensor *signal = slots[st->length_of].t;
        const int64_t length = signal->rank ? signal->dims[signal->rank - 1] : 1;
        const double wanted = floor((double)length * st->rate);
        if (wanted < (double)total) total = (size_t)wanted;
    }
    int64_t dims[TENSOR_MAX_RANK];
    void *data;
    memcpy(dims, t->dims + 1, (t->rank - 1) * sizeof *dims);
    dims[0] = (int64_t)total;
    TRY(cell_new_tensor(&slots[s->out], CELL_TENSOR, r->memory, t->type, t->rank - 1, dims, &data, "stitch",
                        err));
    for (size_t i = 0, done = 0; i < n && done < total; i++) {
        const size_t take = total - done < each ? total - done : each;
        const char *from = (const char *)t->data + (i * (size_t)t->dims[1] + st->trim) * frame;
        if (take && frame) memcpy((char *)data + done * frame, from, take * frame);
        done += take;
    }
    return CHURON_OK;
}

const step_kind step_stitch = {
    .name = "stitch",
    .group = "flow",
    .doc =
        "Puts windows of frames behind each other, without `trim` frames at both ends of each, and cuts the "
        "whole to the length of the signal.",
    .reference = "unwrap_output of the basic-pitch package",
    .keys = STITCH_KEYS,
    .check = check_stitch,
    .row = run_stitch,
};

/* ---- overlap_add ------------------------------------------------------------------------------------ */

enum { OLA_FIELD, OLA_HOP, OLA_WEIGHTS, OLA_NORMALIZE, OLA_INTO };

static const key_spec OVERLAP_ADD_KEYS[] = {
    {"field", KEY_FIELD, .required = true, .doc = "Windows [windows, size] of numbers"},
    {"hop", KEY_INT, .required = true, .least = 1, .most = 1e9,
     .doc = "From the start of a window to that of the next"},
    {"weights", KEY_CHOICE, .fallback = "none", .choices = "none|hann|triangle",
     .doc =
         "What a window is multiplied with: hann is periodic, triangle is 1 - |(i + 0.5) / (size / 2) - 1|"},
    {"normalize", KEY_BOOL, .fallback = "true",
     .doc = "The sum is divided by the sum of weights; where that is 0, it is 0"},
    {"into", KEY_INTO, .doc = "Name of the result [(windows - 1) * hop + size]; left out: that of the field"},
    {0}};

typedef struct ola_state {
    size_t hop;
    int weights;
    bool normalize;
} ola_state;

static status check_overlap_add(step_build *b, error *err) {
    const key_value *v = b->values;
    ola_state *o;
    TRY(step_state(b, sizeof *o, &o, err));
    TRY(expect_numbers(b, OLA_FIELD, 2, err));
    const cell_type *t = v[OLA_FIELD].type;
    if (!(ELEM_BIT(t->element) & ELEMS_FLOAT))
        return step_fault(b, "field", err, "expected floats, got '%.60s' of %s", v[OLA_FIELD].text,
                          elem_name(t->element));
    *o = (ola_state){.hop = (size_t)v[OLA_HOP].integer,
                     .weights = (int)v[OLA_WEIGHTS].integer,
                     .normalize = v[OLA_NORMALIZE].flag};
    b->s->in = v[OLA_FIELD].slot;
    int64_t n = -1;
    if (t->dims[0] > 0 && t->dims[1] >= 0) n = (t->dims[0] - 1) * (int64_t)o->hop + t->dims[1];
    const cell_type out = tensor_type(t->element, 1, &n);
    return step_output(b, OLA_INTO, OLA_FIELD, &out, err);
}

static double weight(int kind, size_t i, size_t size) {
    const double two_pi = 6.283185307179586;
    if (kind == 1) return 0.5 - 0.5 * cos(two_pi * (double)i / (double)size);
    if (kind == 2) return 1.0 - fabs(((double)i + 0.5) / ((double)size / 2) - 1.0);
    return 1.0;
}

static status run_overlap_add(const step *s, run *r, cell *slots, error *err) {
    const ola_state *o = s->state;
    const tensor *t = slots[s->in].t;
    const size_t n = (size_t)t->dims[0], size = (size_t)t->dims[1];
    size_t reach, total = 0, bytes, twice;
    if (n && (!size_mul(n - 1, o->hop, &reach) || !size_add(reach, size, &total)))
        return error_set(err, CHURON_LIMIT, "overlap_add: expected a signal that memory can hold");
    if (!size_mul(total, sizeof(double), &bytes) || !size_mul(bytes, 2, &twice))
        return run_no_memory(r, s, SIZE_MAX, err);
    const double *in;
    size_t count;
    TRY(cell_numbers(&in, &count, &slots[s->in], r->memory, "overlap_add", err));
    double *sum = arena_array(r->memory, total + 1, 2 * sizeof *sum);
    if (!sum) return run_no_memory(r, s, twice, err);
    double *weights = sum + total + 1;
    for (size_t k = 0; k < n; k++) {
        for (size_t i = 0; i < size; i++) {
            const double w = weight(o->weights, i, size);
            sum[k * o->hop + i] += w * in[k * size + i];
            weights[k * o->hop + i] += w;
        }
    }
    for (size_t i = 0; o->normalize && i < total; i++) sum[i] = weights[i] > 0 ? sum[i] / weights[i] : 0;
    const int64_t dims[1] = {(int64_t)total};
    return tensor_of_numbers(&slots[s->out], r->memory, t->type, 1, dims, sum, "overlap_add", err);
}

const step_kind step_overlap_add = {
    .name = "overlap_add",
    .group = "flow",
    .doc =
        "Adds overlapping windows of samples up to one signal, weighted, and divided by the sum of weights.",
    .reference = "a loop in numpy",
    .keys = OVERLAP_ADD_KEYS,
    .check = check_overlap_add,
    .row = run_overlap_add,
};

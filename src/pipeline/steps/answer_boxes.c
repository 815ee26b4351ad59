/* answer_boxes.c: boxes of detectors: decode_boxes, nms, scale_boxes. Boxes are float32 [n, 4], decoded ones
 * x1, y1, x2, y2. Sums and products are rounded to float32 one by one, as the reference's are: a decision
 * that stands on the last bit falls on the same side. */
#include "base/mem.h"
#include "pipeline/steps/scores.h"
#include "pipeline/steps/steps.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { FORM_XYXY, FORM_XYWH, FORM_CXCYWH };
#define FORMS "xyxy|xywh|cxcywh"

typedef struct box {
    float x1, y1, x2, y2;
} box;

static box box_of(const float *v, int form) {
    switch (form) {
    case FORM_XYWH: return (box){v[0], v[1], v[0] + v[2], v[1] + v[3]};
    case FORM_CXCYWH: return (box){v[0] - v[2] / 2, v[1] - v[3] / 2, v[0] + v[2] / 2, v[1] + v[3] / 2};
    default: return (box){v[0], v[1], v[2], v[3]};
    }
}

/* float32 [n, 4] */
static status expect_boxes(const step_build *b, size_t key, error *err) {
    const cell_type *t = b->values[key].type;
    char got[120];
    TRY(step_expect(b, key, KIND(CELL_TENSOR), false, err));
    if (t->element == ELEM_F32 && t->has_rank && t->rank == 2 && (t->dims[1] == 4 || t->dims[1] < 0))
        return CHURON_OK;
    return step_fault(b, b->kind->keys[key].name, err,
                      "expected boxes, float32 [n, 4], got '%.60s', which is %s", b->values[key].text,
                      cell_type_text(t, got, sizeof got));
}

static status four_columns(const tensor *t, error *err) {
    if (t->dims[1] == 4) return CHURON_OK;
    return error_set(err, CHURON_INVALID, "boxes: expected [n, 4], got %" PRId64 " columns", t->dims[1]);
}

/* ---- nms -------------------------------------------------------------------------------------------- */

enum {
    NMS_BOXES,
    NMS_SCORES,
    NMS_CLASSES,
    NMS_FORM,
    NMS_IOU,
    NMS_MIN,
    NMS_CANDIDATES,
    NMS_MAX,
    NMS_WITH,
    NMS_INTO
};

static const key_spec NMS_KEYS[] = {
    {"boxes", KEY_FIELD, .required = true, .doc = "Boxes, float32 [n, 4]"},
    {"scores", KEY_FIELD, .required = true, .doc = "Their scores [n]"},
    {"classes", KEY_FIELD, .doc = "Their classes [n]: boxes of different classes leave each other alone"},
    {"format", KEY_CHOICE, .fallback = "xyxy", .choices = FORMS, .doc = "How a box is written"},
    {"iou", KEY_NUMBER, .required = true, .least = 0, .most = 1,
     .doc = "A box goes if it overlaps one with a greater score by more than this (intersection over union)"},
    {"min_score", KEY_NUMBER, .doc = "Boxes with scores of at most this go first"},
    {"max_candidates", KEY_INT, .fallback = "30000", .least = 1, .most = 1000000,
     .doc = "Of the boxes, only so many with the greatest scores are looked at"},
    {"max", KEY_INT, .least = 1, .most = 1e9, .doc = "Most boxes that stay"},
    {"with", KEY_NAMES,
     .doc = "Lists or tensors of the same length, of which the same items are taken in the same order: "
            "{field: name of the result}"},
    {"into", KEY_INTO, .required = true,
     .doc = "Name of the places of the boxes that stay, int64 [kept], in order of falling score"},
    {0}};

typedef struct nms_part {
    const char *name;
    int32_t from, into;
} nms_part;

typedef struct nms_state {
    int32_t boxes, scores, classes;
    int form;
    float iou;
    bool has_min;
    double min;
    size_t candidates, max;
    nms_part *parts;
    size_t n;
} nms_state;

static status check_nms(step_build *b, error *err) {
    const key_value *v = b->values;
    nms_state *s;
    int32_t slot;
    const int64_t open = -1;
    TRY(step_state(b, sizeof *s, &s, err));
    TRY(expect_boxes(b, NMS_BOXES, err));
    TRY(expect_numbers(b, NMS_SCORES, 1, err));
    if (v[NMS_CLASSES].given) TRY(expect_numbers(b, NMS_CLASSES, 1, err));
    *s = (nms_state){.boxes = v[NMS_BOXES].slot,
                     .scores = v[NMS_SCORES].slot,
                     .classes = v[NMS_CLASSES].given ? v[NMS_CLASSES].slot : -1,
                     .form = (int)v[NMS_FORM].integer,
                     .iou = (float)v[NMS_IOU].number,
                     .has_min = v[NMS_MIN].given,
                     .min = v[NMS_MIN].number,
                     .candidates = (size_t)v[NMS_CANDIDATES].integer,
                     .max = v[NMS_MAX].given ? (size_t)v[NMS_MAX].integer : SIZE_MAX,
                     .n = v[NMS_WITH].n};
    const cell_type places = tensor_type(ELEM_I64, 1, &open);
    TRY(step_output_named(b, v[NMS_INTO].text, &places, &slot, err));
    if (s->n) step_output_spare(b);
    s->parts = arena_array(b->memory, s->n + 1, sizeof *s->parts);
    if (!s->parts) return arena_refused(b->memory, "nms", s->n * sizeof *s->parts, err);
    for (size_t i = 0; i < s->n; i++) {
        nms_part *p = &s->parts[i];
        const cell_type *type;
        cell_type item, out;
        p->name = v[NMS_WITH].texts[i];
        TRY(step_find(b, "with", p->name, &p->from, &type, err));
        TRY(walk_check(b, "with", p->name, type, &item, err));
        out = *type;
        if (out.kind == CELL_TENSOR) out.dims[0] = -1;
        TRY(step_output_named(b, v[NMS_WITH].others[i], &out, &p->into, err));
    }
    return CHURON_OK;
}

static float area_of(const box *b) {
    return (b->x2 - b->x1) * (b->y2 - b->y1);
}

static bool overlaps(const box *a, const box *b, float iou) {
    const float left = a->x1 > b->x1 ? a->x1 : b->x1, top = a->y1 > b->y1 ? a->y1 : b->y1;
    const float right = a->x2 < b->x2 ? a->x2 : b->x2, bottom = a->y2 < b->y2 ? a->y2 : b->y2;
    const float w = right - left > 0 ? right - left : 0, h = bottom - top > 0 ? bottom - top : 0;
    const float both = w * h;
    return both / (area_of(a) + area_of(b) - both) > iou;
}

/* order [n]: places in order of falling score; those that stay are moved to its front. */
static status suppress(const nms_state *s, const run *r, const box *boxes, const double *classes,
                       size_t *order, size_t n, size_t *kept, error *err) {
    size_t have = 0;
    for (size_t i = 0; i < n && have < s->max; i++) {
        const size_t at = order[i];
        bool stays = true;
        if ((i & 255) == 0) TRY(run_may_go_on(r, err));
        for (size_t k = 0; k < have && stays; k++) {
            const bool apart = classes && classes[order[k]] != classes[at];
            stays = apart || !overlaps(&boxes[order[k]], &boxes[at], s->iou);
        }
        if (stays) order[have++] = at;
    }
    *kept = have;
    return CHURON_OK;
}

static status as_many(const char *what, size_t got, size_t n, error *err) {
    if (got == n) return CHURON_OK;
    return error_set(err, CHURON_INVALID, "%.60s: expected %zu items, one a box, got %zu", what, n, got);
}

static status nms_order(const nms_state *s, const run *r, const cell *slots, size_t n, size_t **order,
                        size_t *count, error *err) {
    const double *scores;
    size_t have;
    TRY(cell_numbers(&scores, &have, &slots[s->scores], r->memory, "scores", err));
    TRY(as_many("scores", have, n, err));
    *order = arena_array(r->memory, n + 1, 2 * sizeof **order);
    if (!*order) return arena_refused(r->memory, "nms", n * 2 * sizeof **order, err);
    for (size_t i = 0; i < n; i++) {
        if (isnan(scores[i]))
            return error_set(err, CHURON_INVALID, "scores: expected numbers, got NaN at %zu", i);
    }
    scores_sort(scores, n, *order, *order + n + 1);
    size_t most = n < s->candidates ? n : s->candidates;
    while (s->has_min && most && !(scores[(*order)[most - 1]] > s->min)) most--;
    *count = most;
    return CHURON_OK;
}

static status run_nms(const step *st, run *r, cell *slots, error *err) {
    const nms_state *s = st->state;
    const tensor *t = slots[s->boxes].t;
    const size_t n = (size_t)t->dims[0];
    const double *classes = NULL;
    size_t *order, count = 0, kept, have;
    TRY(four_columns(t, err));
    if (s->classes >= 0) {
        TRY(cell_numbers(&classes, &have, &slots[s->classes], r->memory, "classes", err));
        TRY(as_many("classes", have, n, err));
    }
    TRY(nms_order(s, r, slots, n, &order, &count, err));
    box *boxes = arena_array(r->memory, n + 1, sizeof *boxes);
    if (!boxes) return run_no_memory(r, st, n * sizeof *boxes, err);
    for (size_t i = 0; i < n; i++) boxes[i] = box_of((const float *)t->data + 4 * i, s->form);
    TRY(suppress(s, r, boxes, classes, order, count, &kept, err));
    const int64_t dims[1] = {(int64_t)kept};
    void *data;
    TRY(cell_new_tensor(&slots[st->out], CELL_TENSOR, r->memory, ELEM_I64, 1, dims, &data, "nms", err));
    for (size_t i = 0; i < kept; i++) ((int64_t *)data)[i] = (int64_t)order[i];
    for (size_t i = 0; i < s->n; i++) {
        const nms_part *p = &s->parts[i];
        TRY(as_many(p->name, walk_count(&slots[p->from]), n, err));
        TRY(gather_items(&slots[p->from], order, kept, p->name, r->memory, &slots[p->into], err));
    }
    return CHURON_OK;
}

const step_kind step_nms = {
    .name = "nms",
    .group = "answer",
    .doc = "Non-maximum suppression: boxes in order of falling score (of equals the first first); a box goes "
           "if it "
           "overlaps one that stayed, of its class, by more than iou.",
    .reference = "torchvision.ops.batched_nms",
    .keys = NMS_KEYS,
    .check = check_nms,
    .row = run_nms,
};

/* ---- decode_boxes ----------------------------------------------------------------------------------- */

enum {
    DEC_KIND,
    DEC_FIELD,
    DEC_SCORES,
    DEC_ANCHORS,
    DEC_VARIANCES,
    DEC_BACKGROUND,
    DEC_MIN,
    DEC_BOXES,
    DEC_INTO,
    DEC_CLASSES
};
enum { KIND_YOLOV5, KIND_YOLOV8, KIND_SSD, KIND_DETR };

static const key_spec DECODE_KEYS[] = {
    {"kind", KEY_CHOICE, .required = true, .choices = "yolov5|yolov8|ssd|detr",
     .doc = "yolov5: [n, 5 + classes] of centre, size, objectness, classes; yolov8: [4 + classes, n] of "
            "centre, size, classes; ssd: offsets [n, 4] from anchors, and scores [n, classes] after softmax; "
            "detr: centres and sizes [n, 4], and logits [n, classes + 1], no object last"},
    {"field", KEY_FIELD, .required = true, .doc = "What the model gave: see kind"},
    {"scores", KEY_FIELD, .doc = "ssd, detr: the scores or logits [n, classes]"},
    {"anchors", KEY_FIELD, .doc = "ssd: centres and sizes [n, 4]"},
    {"variances", KEY_NUMBERS, .doc = "ssd: of centres and of sizes; left out: 0.1, 0.2"},
    {"background", KEY_INT, .fallback = "0", .least = -1, .most = 1e6,
     .doc = "ssd: the class that is no object; -1: there is none"},
    {"min_score", KEY_NUMBER, .fallback = "0",
     .doc = "Boxes whose best class has a greater score than this stay"},
    {"boxes", KEY_INTO, .fallback = "boxes", .doc = "Name of the boxes [kept, 4] as x1, y1, x2, y2"},
    {"into", KEY_INTO, .fallback = "scores", .doc = "Name of the scores of their best classes [kept]"},
    {"classes", KEY_INTO, .fallback = "classes",
     .doc = "Name of their best classes, int64 [kept]; of equals the first"},
    {0}};

typedef struct decode_state {
    int kind;
    int32_t scores, anchors;
    float variances[2];
    int64_t background;
    double min;
    int32_t out_boxes, out_scores, out_classes;
} decode_state;

static status expect_float_matrix(const step_build *b, size_t key, error *err) {
    const cell_type *t = b->values[key].type;
    TRY(expect_numbers(b, key, 2, err));
    if (t->element == ELEM_F32) return CHURON_OK;
    return step_fault(b, b->kind->keys[key].name, err, "expected float32, got '%.60s' of %s",
                      b->values[key].text, elem_name(t->element));
}

static status check_decode(step_build *b, error *err) {
    const key_value *v = b->values;
    decode_state *d;
    TRY(step_state(b, sizeof *d, &d, err));
    *d = (decode_state){.kind = (int)v[DEC_KIND].integer,
                        .variances = {0.1f, 0.2f},
                        .scores = -1,
                        .anchors = -1,
                        .background = v[DEC_BACKGROUND].integer,
                        .min = v[DEC_MIN].number};
    const bool two = d->kind == KIND_SSD || d->kind == KIND_DETR;
    b->s->in = v[DEC_FIELD].slot;
    TRY(expect_float_matrix(b, DEC_FIELD, err));
    if (v[DEC_SCORES].given != two || v[DEC_ANCHORS].given != (d->kind == KIND_SSD))
        return step_fault(b, NULL, err,
                          "expected 'scores' with ssd and detr, and 'anchors' with ssd, and only there");
    if (two) {
        TRY(expect_boxes(b, DEC_FIELD, err));
        TRY(expect_float_matrix(b, DEC_SCORES, err));
        d->scores = v[DEC_SCORES].slot;
    }
    if (d->kind == KIND_SSD) {
        TRY(expect_boxes(b, DEC_ANCHORS, err));
        d->anchors = v[DEC_ANCHORS].slot;
    }
    if (v[DEC_VARIANCES].given && v[DEC_VARIANCES].n != 2)
        return step_fault(b, "variances", err, "expected two numbers, of centres and of sizes, got %zu",
                          v[DEC_VARIANCES].n);
    for (size_t i = 0; i < 2 && v[DEC_VARIANCES].given; i++)
        d->variances[i] = (float)v[DEC_VARIANCES].numbers[i];
    const int64_t dims[2] = {-1, 4};
    const cell_type boxes = tensor_type(ELEM_F32, 2, dims), scores = tensor_type(ELEM_F32, 1, dims),
                    classes = tensor_type(ELEM_I64, 1, dims);
    TRY(step_output_named(b, v[DEC_BOXES].text, &boxes, &d->out_boxes, err));
    TRY(step_output_named(b, v[DEC_INTO].text, &scores, &d->out_scores, err));
    TRY(step_output_named(b, v[DEC_CLASSES].text, &classes, &d->out_classes, err));
    step_output_spare(b);
    return CHURON_OK;
}

/* What the kinds have in common: n boxes, classes, and where their numbers lie. */
typedef struct raw_boxes {
    const float *boxes, *scores, *anchors, *objectness;
    size_t n, classes;
    size_t box_row, box_column;     /* distance of boxes, of their four numbers */
    size_t score_row, score_column; /* of boxes, of classes */
} raw_boxes;

static status lay_out(const decode_state *d, const cell *slots, int32_t in, raw_boxes *o, error *err) {
    const tensor *t = slots[in].t, *s = d->scores >= 0 ? slots[d->scores].t : NULL;
    const size_t rows = (size_t)t->dims[0], columns = (size_t)t->dims[1];
    const float *v = t->data;
    if (d->kind == KIND_YOLOV5 || d->kind == KIND_YOLOV8) {
        const bool v5 = d->kind == KIND_YOLOV5;
        const size_t wide = v5 ? columns : rows, least = v5 ? 6 : 5;
        if (wide < least)
            return error_set(err, CHURON_INVALID, "expected at least %zu %s, got %zu", least,
                             v5 ? "columns" : "rows", wide);
        *o = (raw_boxes){.boxes = v,
                         .n = v5 ? rows : columns,
                         .classes = wide - (v5 ? 5 : 4),
                         .box_row = v5 ? columns : 1,
                         .box_column = v5 ? 1 : columns,
                         .score_row = v5 ? columns : 1,
                         .score_column = v5 ? 1 : columns,
                         .objectness = v5 ? v + 4 : NULL};
        o->scores = v5 ? v + 5 : v + 4 * columns;
        return CHURON_OK;
    }
    TRY(four_columns(t, err));
    if ((size_t)s->dims[0] != rows || s->dims[1] < 1)
        return error_set(err, CHURON_INVALID,
                         "scores: expected a row for each of %zu boxes, got [%" PRId64 ", %" PRId64 "]", rows,
                         s->dims[0], s->dims[1]);
    *o = (raw_boxes){.boxes = v,
                     .scores = s->data,
                     .n = rows,
                     .classes = (size_t)s->dims[1],
                     .box_row = 4,
                     .box_column = 1,
                     .score_row = (size_t)s->dims[1],
                     .score_column = 1};
    if (d->anchors < 0) return CHURON_OK;
    const tensor *a = slots[d->anchors].t;
    TRY(four_columns(a, err));
    if ((size_t)a->dims[0] != rows)
        return error_set(err, CHURON_INVALID, "anchors: expected one for each of %zu boxes, got %" PRId64,
                         rows, a->dims[0]);
    o->anchors = a->data;
    return CHURON_OK;
}

/* The best class of a box. -1: none. */
static int64_t best_class(const decode_state *d, const raw_boxes *o, size_t i, float *score) {
    const float *s = o->scores + i * o->score_row;
    const size_t n = o->classes - (d->kind == KIND_DETR);
    double sum = 0, max = -INFINITY;
    int64_t best = -1;
    for (size_t k = 0; k < n; k++) {
        if ((int64_t)k == d->background && d->kind == KIND_SSD) continue;
        if (best < 0 || s[k * o->score_column] > s[(size_t)best * o->score_column]) best = (int64_t)k;
    }
    if (best < 0) return best;
    *score = s[(size_t)best * o->score_column];
    if (d->kind == KIND_YOLOV5) *score *= o->objectness[i * o->score_row];
    if (d->kind != KIND_DETR) return best;
    for (size_t k = 0; k < o->classes; k++) max = s[k] > max ? s[k] : max;
    for (size_t k = 0; k < o->classes; k++) sum += exp(s[k] - max);
    *score = (float)(exp(*score - max) / sum);
    return best;
}

static box decoded(const decode_state *d, const raw_boxes *o, size_t i) {
    float v[4];
    for (size_t k = 0; k < 4; k++) v[k] = o->boxes[i * o->box_row + k * o->box_column];
    if (d->kind == KIND_SSD) {
        const float *a = o->anchors + 4 * i;
        v[0] = a[0] + v[0] * d->variances[0] * a[2];
        v[1] = a[1] + v[1] * d->variances[0] * a[3];
        v[2] = a[2] * expf(v[2] * d->variances[1]);
        v[3] = a[3] * expf(v[3] * d->variances[1]);
    }
    return box_of(v, FORM_CXCYWH);
}

static status run_decode(const step *st, run *r, cell *slots, error *err) {
    const decode_state *d = st->state;
    raw_boxes o = {0};
    TRY(lay_out(d, slots, st->in, &o, err));
    box *boxes = arena_array(r->memory, o.n + 1, sizeof *boxes);
    float *scores = arena_array(r->memory, o.n + 1, sizeof *scores);
    int64_t *classes = arena_array(r->memory, o.n + 1, sizeof *classes);
    if (!boxes || !scores || !classes) return run_no_memory(r, st, o.n * sizeof *boxes, err);
    size_t n = 0;
    for (size_t i = 0; i < o.n; i++) {
        float score = 0;
        const int64_t class = best_class(d, &o, i, &score);
        if (class < 0 || !((double)score > d->min)) continue; /* NaN goes too */
        boxes[n] = decoded(d, &o, i);
        scores[n] = score;
        classes[n++] = class;
    }
    const int64_t dims[2] = {(int64_t)n, 4};
    const tensor all[3] = {tensor_borrow(ELEM_F32, 2, dims, boxes), tensor_borrow(ELEM_F32, 1, dims, scores),
                           tensor_borrow(ELEM_I64, 1, dims, classes)};
    TRY(cell_borrow_tensor(&slots[d->out_boxes], CELL_TENSOR, r->memory, &all[0], err));
    TRY(cell_borrow_tensor(&slots[d->out_scores], CELL_TENSOR, r->memory, &all[1], err));
    return cell_borrow_tensor(&slots[d->out_classes], CELL_TENSOR, r->memory, &all[2], err);
}

const step_kind step_decode_boxes = {
    .name = "decode_boxes",
    .group = "answer",
    .doc =
        "What detectors give as boxes, scores and classes: the best class of each box, those above a score.",
    .reference = "the packages' own post-processing, in numpy",
    .keys = DECODE_KEYS,
    .check = check_decode,
    .row = run_decode,
};

/* ---- scale_boxes ------------------------------------------------------------------------------------ */

enum { SCALE_FIELD, SCALE_FROM, SCALE_TO, SCALE_HOW, SCALE_CLIP, SCALE_INTO };
enum { HOW_STRETCH, HOW_LETTERBOX, HOW_TOP_LEFT, HOW_NORMALIZED };

static const key_spec SCALE_BOXES_KEYS[] = {
    {"field", KEY_FIELD, .required = true,
     .doc = "Boxes [n, 4] as x1, y1, x2, y2, or points [n, k, 2], float32, in the model's picture"},
    {"from", KEY_FIELD, .doc = "The model's picture, or its [height, width]; not with normalized"},
    {"to", KEY_FIELD, .required = true, .doc = "The picture that they are for, or its [height, width]"},
    {"how", KEY_CHOICE, .fallback = "letterbox", .choices = "stretch|letterbox|letterbox_top_left|normalized",
     .doc = "How the one came out of the other: stretch: each side by itself; letterbox: by one factor, "
            "centred, with padding of round(rest / 2 - 0.1); letterbox_top_left: padding at right and bottom "
            "only; normalized: boxes are 0 to 1"},
    {"clip", KEY_BOOL, .fallback = "true", .doc = "Nothing lies outside the picture"},
    {"into", KEY_INTO, .doc = "Name of the result; left out: that of the field"},
    {0}};

typedef struct scale_state {
    int32_t from, to;
    int how;
    bool clip;
} scale_state;

static status check_scale(step_build *b, error *err) {
    const key_value *v = b->values;
    const cell_type *t = v[SCALE_FIELD].type;
    scale_state *s;
    char got[120];
    TRY(step_state(b, sizeof *s, &s, err));
    TRY(step_expect(b, SCALE_FIELD, KIND(CELL_TENSOR), false, err));
    const bool boxes = t->has_rank && t->rank == 2 && (t->dims[1] == 4 || t->dims[1] < 0);
    const bool points = t->has_rank && t->rank == 3 && (t->dims[2] == 2 || t->dims[2] < 0);
    if (t->element != ELEM_F32 || !(boxes || points))
        return step_fault(b, "field", err, "expected float32 [n, 4] or [n, k, 2], got '%.60s', which is %s",
                          v[SCALE_FIELD].text, cell_type_text(t, got, sizeof got));
    *s = (scale_state){
        .from = -1, .to = v[SCALE_TO].slot, .how = (int)v[SCALE_HOW].integer, .clip = v[SCALE_CLIP].flag};
    if (v[SCALE_FROM].given != (s->how != HOW_NORMALIZED))
        return step_fault(b, "from", err, "expected the key 'from', but not with normalized");
    if (v[SCALE_FROM].given) {
        TRY(size_check(b, SCALE_FROM, err));
        s->from = v[SCALE_FROM].slot;
    }
    TRY(size_check(b, SCALE_TO, err));
    b->s->in = v[SCALE_FIELD].slot;
    return step_output(b, SCALE_INTO, SCALE_FIELD, t, err);
}

/* x = (x - shift) / gain, of x and of y. */
typedef struct scaling {
    double gain[2], shift[2], most[2];
} scaling;

static status read_scaling(const scale_state *s, const run *r, const cell *slots, scaling *out, error *err) {
    size_t h1 = 1, w1 = 1, h0, w0;
    *out = (scaling){.gain = {1, 1}};
    TRY(size_read(&slots[s->to], r->memory, &h0, &w0, err));
    if (s->from >= 0) TRY(size_read(&slots[s->from], r->memory, &h1, &w1, err));
    if (h0 == 0 || w0 == 0 || h1 == 0 || w1 == 0)
        return error_set(err, CHURON_INVALID, "expected pictures of at least a pixel, got one of none");
    const double x = (double)w1 / (double)w0, y = (double)h1 / (double)h0, both = x < y ? x : y;
    const bool one = s->how == HOW_LETTERBOX || s->how == HOW_TOP_LEFT;
    out->gain[0] = one ? both : x;
    out->gain[1] = one ? both : y;
    out->most[0] = (double)w0;
    out->most[1] = (double)h0;
    if (s->how != HOW_LETTERBOX) return CHURON_OK;
    out->shift[0] = rint(((double)w1 - (double)w0 * both) / 2 - 0.1);
    out->shift[1] = rint(((double)h1 - (double)h0 * both) / 2 - 0.1);
    return CHURON_OK;
}

static status run_scale(const step *st, run *r, cell *slots, error *err) {
    const scale_state *s = st->state;
    const tensor *t = slots[st->in].t;
    scaling k;
    void *data;
    if (t->dims[t->rank - 1] != (t->rank == 2 ? 4 : 2))
        return error_set(err, CHURON_INVALID,
                         "expected [n, 4] or [n, k, 2], got a last dimension of %" PRId64,
                         t->dims[t->rank - 1]);
    TRY(read_scaling(s, r, slots, &k, err));
    TRY(cell_new_tensor(&slots[st->out], CELL_TENSOR, r->memory, ELEM_F32, t->rank, t->dims, &data, "boxes",
                        err));
    const float *from = t->data;
    float *to = data;
    for (size_t i = 0; i < t->count; i++) {
        const size_t side = i & 1;
        double v = ((double)from[i] - k.shift[side]) / k.gain[side];
        if (s->clip) v = v < 0 ? 0 : v > k.most[side] ? k.most[side] : v;
        to[i] = (float)v;
    }
    return CHURON_OK;
}

const step_kind step_scale_boxes = {
    .name = "scale_boxes",
    .group = "answer",
    .doc =
        "Boxes of the model's picture in the picture that came in: padding taken off, divided by the factor.",
    .reference = "Ultralytics' scale_boxes",
    .keys = SCALE_BOXES_KEYS,
    .check = check_scale,
    .row = run_scale,
};

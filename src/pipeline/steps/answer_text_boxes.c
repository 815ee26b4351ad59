/* answer_text_boxes.c: boxes of text out of the map of a detector with differentiable binarization
 * (PaddleOCR), and their order of reading. */
#include "base/mem.h"
#include "pipeline/steps/elements.h"
#include "pipeline/steps/polygon.h"
#include "pipeline/steps/steps.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* ---- db_text_boxes ---------------------------------------------------------------------------------- */

enum {
    DB_FIELD,
    DB_OF,
    DB_THRESHOLD,
    DB_BOX,
    DB_CANDIDATES,
    DB_UNCLIP,
    DB_MODE,
    DB_DILATE,
    DB_MIN,
    DB_SCORES,
    DB_INTO
};
enum { MAX_SIDE = 32766 };

static const key_spec DB_KEYS[] = {
    {"field", KEY_FIELD, .required = true,
     .doc = "The map [height, width] or [1, height, width] of probabilities"},
    {"of", KEY_FIELD, .required = true,
     .doc = "The image that the boxes are for (or its [height, width]): the map is stretched to it"},
    {"threshold", KEY_NUMBER, .fallback = "0.3", .least = 0, .most = 1, .doc = "Pixels above this are text"},
    {"box_threshold", KEY_NUMBER, .fallback = "0.5", .least = 0, .most = 1,
     .doc = "Least mean of the map under a box"},
    {"max_candidates", KEY_INT, .fallback = "1000", .least = 1, .most = 1000000,
     .doc = "Most regions that are looked at"},
    {"unclip_ratio", KEY_NUMBER, .fallback = "1.6", .least = 0, .most = 100,
     .doc = "A box grows on all sides by area * ratio / circumference"},
    {"score_mode", KEY_CHOICE, .fallback = "fast", .choices = "fast|slow",
     .doc = "The mean is of the rectangle (fast) or of the region (slow)"},
    {"dilate", KEY_BOOL, .fallback = "true", .doc = "Regions first grow by a pixel to the right and down"},
    {"min_size", KEY_NUMBER, .fallback = "3", .least = 0, .most = 1e6,
     .doc = "Least short side of a region's rectangle in the map; of a grown box 2 more"},
    {"scores", KEY_INTO, .doc = "Name for the means [n]"},
    {"into", KEY_INTO, .required = true,
     .doc = "Name of the boxes [n, 4, 2]: x and y of the corners from top left, clockwise, whole pixels of "
            "the image"},
    {0}};

typedef struct db_state {
    double threshold, box_threshold, unclip, min_size;
    size_t most;
    bool slow, dilate;
    int32_t of, scores;
} db_state;

static status check_db(step_build *b, error *err) {
    const key_value *v = b->values;
    const cell_type *t = v[DB_FIELD].type;
    db_state *d;
    char got[120];
    TRY(step_state(b, sizeof *d, &d, err));
    TRY(step_expect(b, DB_FIELD, KIND(CELL_TENSOR), false, err));
    TRY(size_check(b, DB_OF, err));
    if (t->element != ELEM_F32 || !t->has_rank || t->rank < 2 || t->rank > 3 ||
        (t->rank == 3 && t->dims[0] > 1))
        return step_fault(b, "field", err,
                          "expected float32 [height, width] or [1, height, width], got '%.60s', which is %s",
                          v[DB_FIELD].text, cell_type_text(t, got, sizeof got));
    *d = (db_state){.threshold = v[DB_THRESHOLD].number,
                    .box_threshold = v[DB_BOX].number,
                    .unclip = v[DB_UNCLIP].number,
                    .min_size = v[DB_MIN].number,
                    .most = (size_t)v[DB_CANDIDATES].integer,
                    .slow = v[DB_MODE].integer == 1,
                    .dilate = v[DB_DILATE].flag,
                    .of = v[DB_OF].slot,
                    .scores = -1};
    b->s->in = v[DB_FIELD].slot;
    const int64_t dims[3] = {-1, 4, 2};
    const cell_type boxes = tensor_type(ELEM_F32, 3, dims), scores = tensor_type(ELEM_F32, 1, dims);
    int32_t slot;
    TRY(step_output_named(b, v[DB_INTO].text, &boxes, &slot, err));
    if (!v[DB_SCORES].given) return CHURON_OK;
    return step_output_named(b, v[DB_SCORES].text, &scores, &d->scores, err);
}

typedef struct map {
    const float *data;
    size_t width, height;       /* of the map */
    size_t to_width, to_height; /* of the image */
} map;

static status binarize(const db_state *d, const map *m, arena *a, uint8_t **out, error *err) {
    uint8_t *bits = arena_array(a, m->width, m->height);
    *out = bits;
    if (!bits) return arena_refused(a, "a bitmap", m->width * m->height, err);
    const float at = (float)d->threshold;
    for (size_t y = 0; y < m->height; y++) {
        for (size_t x = 0; x < m->width; x++) {
            if (!(m->data[y * m->width + x] > at)) continue;
            uint8_t *p = bits + y * m->width + x;
            p[0] = 1;
            if (!d->dilate) continue;
            const bool right = x + 1 < m->width, down = y + 1 < m->height;
            if (right) p[1] = 1;
            if (down) p[m->width] = 1;
            if (right && down) p[m->width + 1] = 1;
        }
    }
    return CHURON_OK;
}

static void swap_spots(spot *p, spot *q) {
    const spot swap = *p;
    *p = *q;
    *q = swap;
}

/* By x, stable; or of two by y. */
static void sort_by_x(spot p[4]) {
    for (int i = 1; i < 4; i++) {
        for (int k = i; k && p[k].x < p[k - 1].x; k--) swap_spots(&p[k], &p[k - 1]);
    }
}

/* Top left, top right, bottom right, bottom left: by halves of x, then by y. `equal_first`: of two at one
 * height the one that sorted first is the upper. */
static void order_corners(spot p[4], bool equal_first) {
    sort_by_x(p);
    const bool left = equal_first ? p[1].y < p[0].y : !(p[1].y > p[0].y);
    const bool right = equal_first ? p[3].y < p[2].y : !(p[3].y > p[2].y);
    if (left) swap_spots(&p[0], &p[1]);
    if (right) swap_spots(&p[2], &p[3]);
    const spot ordered[4] = {p[0], p[2], p[3], p[1]};
    memcpy(p, ordered, sizeof ordered);
}

static float clamp(float v, float most) {
    return v < 0 ? 0 : v > most ? most : v;
}

static status region_score(const db_state *d, const map *m, const spot box[4], const pixel *region, size_t n,
                           arena *a, double *out, error *err) {
    pixel quad[4], *local = quad, lo, hi;
    const float most_x = (float)(m->width - 1), most_y = (float)(m->height - 1);
    float x0 = box[0].x, x1 = x0, y0 = box[0].y, y1 = y0;
    if (d->slow) {
        local = arena_alloc(a, (n + 1) * sizeof *local);
        if (!local) return arena_refused(a, "a region", n * sizeof *local, err);
        x0 = x1 = (float)region[0].x;
        y0 = y1 = (float)region[0].y;
    }
    const size_t count = d->slow ? n : 4;
    for (size_t i = 0; i < count; i++) {
        const spot p = d->slow ? (spot){(float)region[i].x, (float)region[i].y} : box[i];
        x0 = p.x < x0 ? p.x : x0;
        x1 = p.x > x1 ? p.x : x1;
        y0 = p.y < y0 ? p.y : y0;
        y1 = p.y > y1 ? p.y : y1;
    }
    lo = (pixel){(int32_t)clamp(floorf(x0), most_x), (int32_t)clamp(floorf(y0), most_y)};
    hi = (pixel){(int32_t)clamp(ceilf(x1), most_x), (int32_t)clamp(ceilf(y1), most_y)};
    for (size_t i = 0; i < count; i++) {
        local[i] = d->slow ? (pixel){region[i].x - lo.x, region[i].y - lo.y}
                           : (pixel){(int32_t)(box[i].x - (float)lo.x), (int32_t)(box[i].y - (float)lo.y)};
    }
    return polygon_mean(out, m->data, m->width, lo, hi, local, count, a, err);
}

/* Area times the ratio over the circumference. */
static double growth(const spot p[4], double ratio) {
    double area = 0, length = 0;
    for (int i = 0; i < 4; i++) {
        const spot a = p[i], c = p[(i + 1) % 4];
        area += (double)a.x * c.y - (double)c.x * a.y;
        length += hypot((double)c.x - a.x, (double)c.y - a.y);
    }
    return length > 0 ? fabs(area) / 2 * ratio / length : 0;
}

/* To the image's pixels, the corners in their order, nothing outside. False: too small. */
static bool place_box(const map *m, spot p[4]) {
    const float to_w = (float)m->to_width, to_h = (float)m->to_height;
    for (int i = 0; i < 4; i++) {
        p[i].x = clamp(rintf(p[i].x / (float)m->width * to_w), to_w);
        p[i].y = clamp(rintf(p[i].y / (float)m->height * to_h), to_h);
    }
    order_corners(p, true);
    for (int i = 0; i < 4; i++) p[i] = (spot){clamp(p[i].x, to_w - 1), clamp(p[i].y, to_h - 1)};
    return (int)hypotf(p[0].x - p[1].x, p[0].y - p[1].y) > 3 &&
           (int)hypotf(p[0].x - p[3].x, p[0].y - p[3].y) > 3;
}

typedef struct found {
    spot *boxes; /* [n][4] */
    float *scores;
    size_t n;
} found;

static status look_at(const db_state *d, const map *m, const pixel *region, size_t n, arena *a, found *f,
                      error *err) {
    rectangle r;
    spot *points = arena_alloc(a, (n + 1) * sizeof *points), box[4];
    double score;
    if (!points) return arena_refused(a, "a region", n * sizeof *points, err);
    for (size_t i = 0; i < n; i++) points[i] = (spot){(float)region[i].x, (float)region[i].y};
    TRY(rectangle_around(&r, points, n, a, err));
    if (fminf(r.width, r.height) < (float)d->min_size) return CHURON_OK;
    memcpy(box, r.corners, sizeof box);
    order_corners(box, false);
    TRY(region_score(d, m, box, region, n, a, &score, err));
    if (!(score >= d->box_threshold)) return CHURON_OK;
    TRY(polygon_grow(&points, &n, box, growth(box, d->unclip), a, err));
    if (n == 0) return CHURON_OK;
    TRY(rectangle_around(&r, points, n, a, err));
    if (fminf(r.width, r.height) < (float)d->min_size + 2) return CHURON_OK;
    memcpy(box, r.corners, sizeof box);
    order_corners(box, false);
    if (!place_box(m, box)) return CHURON_OK;
    memcpy(f->boxes + 4 * f->n, box, sizeof box);
    f->scores[f->n++] = (float)score;
    return CHURON_OK;
}

static status run_db(const step *s, run *r, cell *slots, error *err) {
    const db_state *d = s->state;
    const tensor *t = slots[s->in].t;
    map m = {.data = t->data, .height = (size_t)t->dims[t->rank - 2], .width = (size_t)t->dims[t->rank - 1]};
    TRY(size_read(&slots[d->of], r->memory, &m.to_height, &m.to_width, err));
    if (m.width == 0 || m.height == 0 || m.width > MAX_SIDE || m.height > MAX_SIDE ||
        t->count != m.width * m.height)
        return error_set(err, CHURON_INVALID, "expected a map of 1 to %d pixels a side, got %zu x %zu",
                         MAX_SIDE, m.width, m.height);
    uint8_t *bits;
    outlines all;
    arena scratch = {.limit = r->memory->limit};
    status st = binarize(d, &m, &scratch, &bits, err);
    if (st == CHURON_OK) st = outlines_trace(&all, bits, m.width, m.height, &scratch, err);
    const size_t most = st != CHURON_OK ? 0 : all.n < d->most ? all.n : d->most;
    found f = {.boxes = arena_alloc(r->memory, (most + 1) * 4 * sizeof(spot)),
               .scores = arena_alloc(r->memory, (most + 1) * sizeof(float))};
    if (st == CHURON_OK && (!f.boxes || !f.scores)) st = run_no_memory(r, s, most * 4 * sizeof(spot), err);
    arena one = {.limit = r->memory->limit}; /* of each region in turn */
    for (size_t i = 0; i < most && st == CHURON_OK; i++) {
        st = run_may_go_on(r, err);
        if (st == CHURON_OK)
            st = look_at(d, &m, all.points + all.starts[i], all.starts[i + 1] - all.starts[i], &one, &f, err);
        arena_reset(&one);
    }
    arena_free(&one);
    arena_free(&scratch);
    TRY(st);
    const int64_t dims[3] = {(int64_t)f.n, 4, 2};
    const tensor boxes = tensor_borrow(ELEM_F32, 3, dims, f.boxes),
                 scores = tensor_borrow(ELEM_F32, 1, dims, f.scores);
    TRY(cell_borrow_tensor(&slots[s->out], CELL_TENSOR, r->memory, &boxes, err));
    if (d->scores < 0) return CHURON_OK;
    return cell_borrow_tensor(&slots[d->scores], CELL_TENSOR, r->memory, &scores, err);
}

const step_kind step_db_text_boxes = {
    .name = "db_text_boxes",
    .group = "answer",
    .doc = "Boxes of text out of a map of probabilities: regions above a threshold, the least rectangle "
           "around each, "
           "the mean of the map under it, and the rectangle grown by its area over its circumference.",
    .reference = "RapidOCR's DBPostProcess (OpenCV, pyclipper)",
    .keys = DB_KEYS,
    .check = check_db,
    .row = run_db,
};

/* ---- sort_boxes ------------------------------------------------------------------------------------- */

enum { SORT_FIELD, SORT_LINE, SORT_WITH, SORT_INTO };

static const key_spec SORT_BOXES_KEYS[] = {
    {"field", KEY_FIELD, .required = true, .doc = "Boxes [n, 4, 2] of corners, or [n, 4] as x1, y1, x2, y2"},
    {"line", KEY_NUMBER, .fallback = "10", .least = 0, .most = 1e9,
     .doc = "A box whose top is this much below that of the one before begins a new line"},
    {"with", KEY_NAMES,
     .doc = "Further lists or tensors of the same length that are put in the same order: {field: name of the "
            "result}"},
    {"into", KEY_INTO, .doc = "Name of the result; left out: that of the field"},
    {0}};

typedef struct sort_part {
    const char *name;
    int32_t from, into;
} sort_part;

typedef struct sort_state {
    double line;
    sort_part *parts;
    size_t n;
} sort_state;

static status check_sort(step_build *b, error *err) {
    const key_value *v = b->values;
    const cell_type *t = v[SORT_FIELD].type;
    sort_state *st;
    TRY(step_expect(b, SORT_FIELD, KIND(CELL_TENSOR), false, err));
    TRY(step_state(b, sizeof *st, &st, err));
    if (!t->has_rank || (t->rank != 2 && t->rank != 3) || t->dims[1] != 4 ||
        (t->rank == 3 && t->dims[2] != 2) || !(ELEM_BIT(t->element) & ELEMS_NUMERIC))
        return step_fault(b, "field", err, "expected boxes [n, 4, 2] or [n, 4], got '%.60s'",
                          v[SORT_FIELD].text);
    st->line = v[SORT_LINE].number;
    st->n = 1 + v[SORT_WITH].n;
    st->parts = arena_array(b->memory, st->n, sizeof *st->parts);
    if (!st->parts) return arena_refused(b->memory, "sort_boxes", st->n * sizeof *st->parts, err);
    st->parts[0] = (sort_part){.name = v[SORT_FIELD].text, .from = v[SORT_FIELD].slot};
    TRY(step_output(b, SORT_INTO, SORT_FIELD, t, err));
    st->parts[0].into = b->s->out;
    for (size_t i = 1; i < st->n; i++) {
        const cell_type *type;
        cell_type item;
        sort_part *p = &st->parts[i];
        p->name = v[SORT_WITH].texts[i - 1];
        TRY(step_find(b, "with", p->name, &p->from, &type, err));
        TRY(walk_check(b, "with", p->name, type, &item, err));
        TRY(step_output_named(b, v[SORT_WITH].others[i - 1], type, &p->into, err));
    }
    return CHURON_OK;
}

/* Stable, by insertion into what is nearly sorted; n log n is not needed for boxes of a page, but a hostile
 * map may give a million: merges. */
static void merge_by(const double *key, const double *then, size_t n, size_t *order, size_t *spare) {
    for (size_t width = 1; width < n; width *= 2) {
        for (size_t lo = 0; lo < n; lo += 2 * width) {
            const size_t mid = lo + width < n ? lo + width : n, hi = lo + 2 * width < n ? lo + 2 * width : n;
            size_t i = lo, k = mid;
            for (size_t at = lo; at < hi; at++) {
                bool right = i >= mid;
                if (i < mid && k < hi) {
                    const size_t p = order[i], q = order[k];
                    right = key[q] < key[p] || (key[q] == key[p] && then && then[q] < then[p]);
                }
                spare[at] = right ? order[k++] : order[i++];
            }
        }
        if (n) memcpy(order, spare, n * sizeof *order);
    }
}

static status run_sort(const step *s, run *r, cell *slots, error *err) {
    const sort_state *st = s->state;
    const tensor *t = slots[st->parts[0].from].t;
    const size_t n = (size_t)t->dims[0], each = n ? t->count / n : 8;
    const double *v;
    size_t count;
    TRY(cell_numbers(&v, &count, &slots[st->parts[0].from], r->memory, "sort_boxes", err));
    double *x = arena_array(r->memory, n + 1, 3 * sizeof *x);
    size_t *order = arena_array(r->memory, n + 1, 2 * sizeof *order);
    if (!x || !order) return run_no_memory(r, s, n * 5 * sizeof *x, err);
    double *y = x + n + 1, *line = y + n + 1;
    for (size_t i = 0; i < n; i++) {
        x[i] = v[i * each];
        y[i] = v[i * each + 1];
        order[i] = i;
        if (isnan(x[i]) || isnan(y[i]))
            return error_set(err, CHURON_INVALID, "expected boxes of numbers, got NaN in box %zu", i);
    }
    merge_by(y, NULL, n, order, order + n + 1);
    for (size_t i = 1; i < n; i++) {
        const size_t p = order[i - 1], q = order[i];
        line[q] = line[p] + (y[q] - y[p] >= st->line ? 1 : 0);
    }
    merge_by(line, x, n, order, order + n + 1);
    for (size_t i = 0; i < st->n; i++) {
        const sort_part *p = &st->parts[i];
        if (walk_count(&slots[p->from]) != n)
            return error_set(err, CHURON_INVALID, "%.60s: expected %zu items, one a box, got %zu", p->name, n,
                             walk_count(&slots[p->from]));
        TRY(gather_items(&slots[p->from], order, n, p->name, r->memory, &slots[p->into], err));
    }
    return CHURON_OK;
}

const step_kind step_sort_boxes = {
    .name = "sort_boxes",
    .group = "answer",
    .doc = "Boxes in the order of reading: by the y of their first corner, cut into lines where it grows by "
           "`line`, and "
           "by x within a line.",
    .reference = "RapidOCR's sorted_boxes",
    .keys = SORT_BOXES_KEYS,
    .check = check_sort,
    .row = run_sort,
};

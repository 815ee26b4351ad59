/* nms.c: NonMaxSuppression: of every image and class the boxes in descending order of score (ties: lower
 * index first), without those that overlap a chosen one too much. */
#include "base/mem.h"
#include "graph/ops/nn.h"
#include "graph/ops/ops.h"

#include <stdlib.h>
#include <string.h>

typedef struct nms_state {
    bool center;
} nms_state;

static status nms_prepare(op_node *n, error *err) {
    nms_state *st = nn_state(n, sizeof *st, err);
    if (!st) return CHURON_NO_MEMORY;
    return op_attr_bool(n, "center_point_box", false, &st->center, err);
}

static status check_shapes(op_shapes *s, error *err) {
    bool kb, ks;
    size_t rank;
    const dim *b, *sc;
    TRY(nn_rank(s, 0, 3, 3, "boxes", &kb, &rank, &b, err));
    TRY(nn_rank(s, 1, 3, 3, "scores", &ks, &rank, &sc, err));
    if (kb) TRY(shapes_same(s, b[2], 4, "numbers of a box", NULL, err));
    if (kb && ks) {
        TRY(shapes_same(s, b[0], sc[0], "images of boxes and scores", NULL, err));
        TRY(shapes_same(s, b[1], sc[2], "boxes and scores", NULL, err));
    }
    return CHURON_OK;
}

static status nms_infer(op_shapes *s, error *err) {
    TRY(check_shapes(s, err));
    if (shapes_running(s)) {
        shapes_out_unknown(s, 0);
        return CHURON_OK;
    }
    return shapes_out(s, 0, 2, (dim[]){dim_fresh(s), 3}, err);
}

typedef struct corners {
    float x0, y0, x1, y1;
} corners;

static corners corners_of(const float *b, bool center) {
    if (center) return (corners){b[0] - b[2] / 2, b[1] - b[3] / 2, b[0] + b[2] / 2, b[1] + b[3] / 2};
    return (corners){b[1] < b[3] ? b[1] : b[3], b[0] < b[2] ? b[0] : b[2], b[1] < b[3] ? b[3] : b[1],
                     b[0] < b[2] ? b[2] : b[0]};
}

static bool overlaps(const corners *a, const corners *b, float threshold) {
    float x0 = a->x0 > b->x0 ? a->x0 : b->x0, x1 = a->x1 < b->x1 ? a->x1 : b->x1;
    float y0 = a->y0 > b->y0 ? a->y0 : b->y0, y1 = a->y1 < b->y1 ? a->y1 : b->y1;
    if (!(x1 > x0) || !(y1 > y0)) return false;
    float common = (x1 - x0) * (y1 - y0);
    float area_a = (a->x1 - a->x0) * (a->y1 - a->y0), area_b = (b->x1 - b->x0) * (b->y1 - b->y0);
    float all = area_a + area_b - common;
    if (!(common > 0) || !(area_a > 0) || !(area_b > 0) || !(all > 0)) return false;
    return common / all > threshold;
}

typedef struct candidate {
    float score;
    uint32_t box;
} candidate;

static int by_score(const void *a, const void *b) {
    const candidate *x = a, *y = b;
    if (x->score != y->score) return x->score < y->score ? 1 : -1;
    return x->box < y->box ? -1 : x->box > y->box;
}

typedef struct nms_job {
    const corners *boxes; /* of the image */
    candidate *list;
    uint32_t *chosen;
    size_t n_boxes;
    uint64_t most;
    float iou, least;
    bool has_least;
} nms_job;

/* Number of chosen boxes of one class. */
static status choose(op_run *r, const nms_job *j, const float *scores, size_t *out, error *err) {
    size_t n = 0, count = 0, work = 0; /* boxes compared since the last look at the clock */
    for (size_t i = 0; i < j->n_boxes; i++)
        if (scores[i] == scores[i] && (!j->has_least || scores[i] > j->least))
            j->list[n++] = (candidate){scores[i], (uint32_t)i};
    qsort(j->list, n, sizeof *j->list, by_score);
    for (size_t i = 0; i < n && count < j->most; i++) {
        const corners *box = &j->boxes[j->list[i].box];
        bool keep = true;
        for (size_t k = 0; k < count && keep; k++) keep = !overlaps(box, &j->boxes[j->chosen[k]], j->iou);
        if (keep) j->chosen[count++] = j->list[i].box;
        if ((work += count + 1) >= 65536) {
            TRY(run_check(r, err));
            work = 0;
        }
    }
    *out = count;
    return CHURON_OK;
}

static status check_sizes(op_run *r, const tensor *boxes, const tensor *scores, error *err) {
    if (boxes->rank != 3 || scores->rank != 3 || boxes->dims[2] != 4 || boxes->dims[0] != scores->dims[0] ||
        boxes->dims[1] != scores->dims[2])
        return run_error(r, err, CHURON_INVALID,
                         "boxes [n, b, 4] and scores [n, c, b] expected, got dimensions %lld, %lld, %lld and "
                         "%lld, %lld, %lld",
                         (long long)boxes->dims[0], (long long)boxes->dims[1], (long long)boxes->dims[2],
                         (long long)scores->dims[0], (long long)scores->dims[1], (long long)scores->dims[2]);
    if ((uint64_t)boxes->dims[1] > UINT32_MAX)
        return run_error(r, err, CHURON_LIMIT, "boxes: at most 2^32 expected, got %lld",
                         (long long)boxes->dims[1]);
    return CHURON_OK;
}

static status nms_run(op_run *r, error *err) {
    const nms_state *st = run_state(r);
    const tensor *boxes = run_in(r, 0), *scores = run_in(r, 1), *most = run_in(r, 2), *iou = run_in(r, 3),
                 *least = run_in(r, 4);
    TRY(check_sizes(r, boxes, scores, err));
    size_t images = (size_t)boxes->dims[0], classes = (size_t)scores->dims[1], n = (size_t)boxes->dims[1];
    nms_job j = {.n_boxes = n, .has_least = least && least->count};
    int64_t limit = most && most->count ? int_at(most, 0) : 0;
    j.most = limit > 0 ? (uint64_t)limit : 0;
    j.iou = iou && iou->count ? ((const float *)iou->data)[0] : 0;
    j.least = j.has_least ? ((const float *)least->data)[0] : 0;
    void *a, *b, *c, *d;
    uint64_t each = j.most < n ? j.most : n;
    size_t total, bytes;
    if (!size_mul(images * classes, (size_t)each, &total) ||
        !size_mul(total + 1, 3 * sizeof(int64_t), &bytes))
        return run_error(r, err, CHURON_LIMIT, "boxes: too many");
    TRY(run_scratch(r, (n + 1) * sizeof(corners), &a, err));
    TRY(run_scratch(r, (n + 1) * sizeof(candidate), &b, err));
    TRY(run_scratch(r, (n + 1) * sizeof(uint32_t), &c, err));
    TRY(run_scratch(r, bytes, &d, err));
    corners *rects = a;
    int64_t *found = d;
    size_t n_found = 0;
    j.boxes = rects, j.list = b, j.chosen = c;
    for (size_t image = 0; image < images; image++) {
        for (size_t i = 0; i < n; i++)
            rects[i] = corners_of((const float *)boxes->data + (image * n + i) * 4, st->center);
        for (size_t k = 0; k < classes; k++) {
            size_t count;
            if (k % 256 == 0) TRY(run_check(r, err));
            TRY(choose(r, &j, (const float *)scores->data + (image * classes + k) * n, &count, err));
            for (size_t i = 0; i < count; i++, n_found++) {
                found[3 * n_found] = (int64_t)image;
                found[3 * n_found + 1] = (int64_t)k;
                found[3 * n_found + 2] = j.chosen[i];
            }
        }
    }
    tensor *y;
    TRY(run_out_shaped(r, 0, ELEM_I64, 2, (int64_t[]){(int64_t)n_found, 3}, &y, err));
    if (n_found) memcpy(y->data, found, n_found * 3 * sizeof *found);
    return CHURON_OK;
}

static const op_def rows[] = {
    {.domain = "",
     .name = "NonMaxSuppression",
     .since = 10,
     .signature = "ff=iff>i",
     .prepare = nms_prepare,
     .release = mem_free,
     .infer = nms_infer,
     .run = nms_run},
};
NN_TABLE(nms);

/* image_boxes.c: the parts of an image that lie under boxes of four corners, straightened. */
#include "pipeline/steps/media_part.h"
#include "pipeline/steps/steps.h"

#include "media/geometry.h"

#include <inttypes.h>
#include <math.h>

enum { CROP_FIELD, CROP_BOXES, CROP_TALL, CROP_INTO };
enum { MAX_SIDE = 65535 };

static const key_spec CROP_KEYS[] = {
    {"field", KEY_FIELD, .required = true, .doc = "The image"},
    {"boxes", KEY_FIELD, .required = true, .doc = "Corners from top left, clockwise: float32 [n, 4, 2]"},
    {"turn_tall", KEY_NUMBER, .fallback = "1.5", .least = 0, .most = 1e9,
     .doc =
         "Parts at least this many times as high as wide are turned a quarter against the clock; 0: none is"},
    {"into", KEY_INTO, .required = true, .doc = "Name of the list of images"},
    {0}};

typedef struct crop_state {
    int32_t boxes;
    double tall;
} crop_state;

static status check_crop(step_build *b, error *err) {
    const key_value *v = b->values;
    const cell_type *t = v[CROP_BOXES].type;
    crop_state *c;
    char got[120];
    TRY(expect_image(b, CROP_FIELD, err));
    TRY(step_expect(b, CROP_BOXES, KIND(CELL_TENSOR), false, err));
    if (t->element != ELEM_F32 || !t->has_rank || t->rank != 3 || t->dims[1] != 4 || t->dims[2] != 2)
        return step_fault(b, "boxes", err, "expected float32 [n, 4, 2], got '%.60s', which is %s",
                          v[CROP_BOXES].text, cell_type_text(t, got, sizeof got));
    TRY(step_state(b, sizeof *c, &c, err));
    c->boxes = v[CROP_BOXES].slot;
    c->tall = v[CROP_TALL].number;
    b->s->in = v[CROP_FIELD].slot;
    const cell_type part = image_type_sized(v[CROP_FIELD].type, -1, -1);
    cell_type list;
    int32_t slot;
    TRY(list_type(b, &part, &list, err));
    return step_output_named(b, v[CROP_INTO].text, &list, &slot, err);
}

static float distance(const float *p, const float *q) {
    const float dx = p[0] - q[0], dy = p[1] - q[1];
    return sqrtf(dx * dx + dy * dy);
}

static status crop_one(const crop_state *c, const tensor *image, const float *box, size_t i, tensor *out,
                       error *err) {
    const float width = fmaxf(distance(box, box + 2), distance(box + 4, box + 6));
    const float height = fmaxf(distance(box, box + 6), distance(box + 2, box + 4));
    if (!(width >= 1 && height >= 1 && width <= MAX_SIDE && height <= MAX_SIDE))
        return error_set(err, CHURON_INVALID, "box %zu: expected sides of 1 to %d pixels, got %g x %g", i,
                         MAX_SIDE, (double)width, (double)height);
    const double w = floor(width), h = floor(height);
    const image_point to[4] = {{0, 0}, {w, 0}, {w, h}, {0, h}};
    image_point from[4];
    double m[9];
    for (int k = 0; k < 4; k++) from[k] = (image_point){box[2 * k], box[2 * k + 1]};
    status st = perspective_from_points(m, from, to, err);
    if (st == CHURON_OK)
        st = image_warp_perspective(out, image, m, (size_t)h, (size_t)w, RESIZE_BICUBIC,
                                    IMAGE_BORDER_REPLICATE, NULL, err);
    if (st != CHURON_OK) {
        error_prefix(err, "box %zu", i);
        return st;
    }
    if (!(c->tall > 0 && h / w >= c->tall)) return CHURON_OK;
    tensor upright = *out;
    st = image_rotate(out, &upright, 3, err);
    tensor_free(&upright);
    return st;
}

static status run_crop(const step *s, run *r, cell *slots, error *err) {
    const crop_state *c = s->state;
    const cell image = slots[s->in], boxes = slots[c->boxes];
    const size_t n = (size_t)boxes.t->dims[0];
    cell *items;
    TRY(cell_new_list(&slots[s->out], r->memory, n, &items, err));
    for (size_t i = 0; i < n; i++) {
        tensor part;
        TRY(run_may_go_on(r, err));
        TRY(crop_one(c, image.t, (const float *)boxes.t->data + 8 * i, i, &part, err));
        TRY(media_adopt(&items[i], image.kind, r->memory, &part, err));
    }
    return CHURON_OK;
}

const step_kind step_perspective_crop = {
    .name = "perspective_crop",
    .group = "image",
    .doc = "The parts of an image under boxes of four corners, straightened by a perspective (bicubic, the "
           "border repeated); "
           "tall ones are turned.",
    .reference = "get_rotate_crop_image of PaddleOCR (OpenCV)",
    .keys = CROP_KEYS,
    .check = check_crop,
    .row = run_crop,
};

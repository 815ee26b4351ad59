/* image.c: images decoded, brought to a size, and made a model's input. The work is the media room's. */
#include "pipeline/steps/media_part.h"
#include "pipeline/steps/steps.h"

#include "media/image.h"
#include "media/pixels.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* ---- decode_image ----------------------------------------------------------------------------------- */

enum { DEC_FIELD, DEC_COLOR, DEC_ALPHA, DEC_BACKGROUND, DEC_TURN, DEC_PIXELS, DEC_INTO };

static const key_spec DECODE_KEYS[] = {
    {"field", KEY_FIELD, .required = true, .doc = "The bytes of an image file"},
    {"color", KEY_CHOICE, .choices = "rgb|bgr|gray|rgba", .fallback = "rgb", .doc = "Order of the channels"},
    {"alpha", KEY_CHOICE, .choices = "drop|blend", .fallback = "drop",
     .doc = "What happens to transparency where the result has none: colours as the file has them, or over "
            "background"},
    {"background", KEY_INTS, .least = 0, .most = 255, .doc = "Red, green, blue for blend; left out: black"},
    {"turn", KEY_BOOL, .fallback = "true", .doc = "Turns the image as its EXIF orientation says"},
    {"max_pixels", KEY_INT, .fallback = "100000000", .least = 1, .most = 1e10,
     .doc = "Most pixels, checked before decoding"},
    {"into", KEY_INTO, .doc = "Name of the result; left out: that of the field"},
    {0}};

static status check_decode(step_build *b, error *err) {
    static const int64_t channels[] = {3, 3, 1, 4};
    const key_value *v = b->values;
    image_options *o;
    TRY(step_expect(b, DEC_FIELD, KIND(CELL_BYTES), false, err));
    TRY(step_state(b, sizeof *o, &o, err));
    o->order = (image_order)v[DEC_COLOR].integer;
    o->alpha = (image_alpha)v[DEC_ALPHA].integer;
    o->keep_orientation = !v[DEC_TURN].flag;
    o->max_pixels = (uint64_t)v[DEC_PIXELS].integer;
    if (v[DEC_BACKGROUND].given && v[DEC_BACKGROUND].n != 3)
        return step_fault(b, "background", err, "expected 3 numbers, got %zu", v[DEC_BACKGROUND].n);
    for (size_t i = 0; i < v[DEC_BACKGROUND].n; i++)
        o->background[i] = (uint8_t)v[DEC_BACKGROUND].integers[i];
    const cell_type out = {.kind = CELL_IMAGE,
                           .element = ELEM_U8,
                           .order = (cell_order)v[DEC_COLOR].integer,
                           .has_rank = true,
                           .rank = 3,
                           .dims = {-1, -1, channels[v[DEC_COLOR].integer]}};
    b->s->in = v[DEC_FIELD].slot;
    return step_output(b, DEC_INTO, DEC_FIELD, &out, err);
}

static status run_decode(const step *s, run *r, cell *slots, error *err) {
    tensor t;
    TRY(image_decode(&t, NULL, slots[s->in].bytes, slots[s->in].len, s->state, err));
    return media_adopt(&slots[s->out], CELL_IMAGE, r->memory, &t, err);
}

const step_kind step_decode_image = {
    .name = "decode_image",
    .group = "image",
    .doc = "Decodes JPEG, PNG, WebP, GIF (first frame) and BMP, whatever the file is called, turned as EXIF "
           "says. Colour "
           "profiles are left alone. An input of type image has been through this step already.",
    .reference = "Pillow",
    .keys = DECODE_KEYS,
    .check = check_decode,
    .row = run_decode,
};

/* ---- resize ----------------------------------------------------------------------------------------- */

enum { RES_FIELD, RES_HEIGHT, RES_WIDTH, RES_FIT, RES_RULE, RES_FILTER, RES_MULTIPLE, RES_INTO };
enum {
    FIT_EXACT,
    FIT_SHORTER,
    FIT_LONGER,
    FIT_INSIDE,
    FIT_COVER,
    FIT_AT_LEAST,
    FIT_AT_MOST,
    FIT_HEIGHT,
    FIT_HEIGHT_DOWN
};

static const key_spec RESIZE_KEYS[] = {
    {"field", KEY_FIELD, .required = true, .doc = "An image"},
    {"height", KEY_INT, .required = true, .least = 1, .most = 65536,
     .doc = "Height, or the size that fit speaks of"},
    {"width", KEY_INT, .least = 1, .most = 65536,
     .doc = "Width; with fit height or height_down: the most that it may become"},
    {"fit", KEY_CHOICE, .fallback = "exact",
     .choices = "exact|shorter|longer|inside|cover|at_least|at_most|height|height_down",
     .doc = "exact: height x width; shorter, longer: that side becomes height (torchvision); inside, cover: "
            "the largest size of "
            "the same shape inside, the smallest that covers height x width; at_least: only if the shorter "
            "side is below height; "
            "at_most: only if the longer side is above it; height, height_down: width as the shape asks, "
            "rounded up, down"},
    {"rule", KEY_CHOICE, .fallback = "pillow", .choices = "pillow|opencv|torchvision|pillow_12",
     .doc = "Whose arithmetic: the same filter gives other pixels in each library. pillow is that of Pillow "
            "13, pillow_12 that of the releases before"},
    {"filter", KEY_CHOICE, .fallback = "bilinear", .choices = "nearest|bilinear|bicubic|area|lanczos|hamming",
     .doc = "Interpolation"},
    {"multiple", KEY_INT, .fallback = "1", .least = 1, .most = 1024,
     .doc = "Each side is brought to the nearest multiple of this (half to even), at least one"},
    {"into", KEY_INTO, .doc = "Name of the result; left out: that of the field"},
    {0}};

static bool fits_height(int fit) {
    return fit == FIT_HEIGHT || fit == FIT_HEIGHT_DOWN;
}

typedef struct resize_state {
    int fit;
    resize_rule rule;
    resize_filter filter;
    size_t height, width, multiple;
} resize_state;

static status check_resize(step_build *b, error *err) {
    const key_value *v = b->values;
    resize_state *o;
    TRY(expect_image(b, RES_FIELD, err));
    TRY(step_state(b, sizeof *o, &o, err));
    *o = (resize_state){.fit = (int)v[RES_FIT].integer,
                        .rule = (resize_rule)v[RES_RULE].integer,
                        .filter = (resize_filter)v[RES_FILTER].integer,
                        .height = (size_t)v[RES_HEIGHT].integer,
                        .width = (size_t)v[RES_WIDTH].integer,
                        .multiple = (size_t)v[RES_MULTIPLE].integer};
    const bool both = o->fit == FIT_EXACT || o->fit == FIT_INSIDE || o->fit == FIT_COVER;
    if (both && !v[RES_WIDTH].given)
        return step_fault(b, NULL, err, "expected the key 'width' with this fit, got none");
    if (!both && !fits_height(o->fit) && v[RES_WIDTH].given)
        return step_fault(b, "width", err,
                          "expected no width with this fit (height is the size that it speaks of), got one");
    if (!resize_supports(o->rule, o->filter))
        return step_fault(b, "filter", err, "expected a filter that the rule %s knows, got %s",
                          v[RES_RULE].text ? v[RES_RULE].text : "pillow",
                          v[RES_FILTER].text ? v[RES_FILTER].text : "bilinear");
    const bool fixed = o->fit == FIT_EXACT && o->multiple == 1;
    const cell_type out = image_type_sized(
        v[RES_FIELD].type, fixed || (fits_height(o->fit) && o->multiple == 1) ? (int64_t)o->height : -1,
        fixed ? (int64_t)o->width : -1);
    b->s->in = v[RES_FIELD].slot;
    return step_output(b, RES_INTO, RES_FIELD, &out, err);
}

static void scale_by(size_t h, size_t w, double ratio, size_t *height, size_t *width) {
    *height = (size_t)fmax(1, (double)h * ratio);
    *width = (size_t)fmax(1, (double)w * ratio);
}

static void target_size(const resize_state *o, size_t h, size_t w, size_t *height, size_t *width) {
    const size_t shorter = h < w ? h : w, longer = h < w ? w : h;
    *height = h;
    *width = w;
    switch (o->fit) {
    case FIT_AT_LEAST:
        if (shorter < o->height) scale_by(h, w, (double)o->height / (double)shorter, height, width);
        break;
    case FIT_AT_MOST:
        if (longer > o->height) scale_by(h, w, (double)o->height / (double)longer, height, width);
        break;
    case FIT_HEIGHT:
    case FIT_HEIGHT_DOWN: {
        const double asked = (double)o->height * ((double)w / (double)h);
        *height = o->height;
        *width = (size_t)fmax(1, o->fit == FIT_HEIGHT ? ceil(asked) : floor(asked));
        if (o->width && *width > o->width) *width = o->width;
        break;
    }
    default: resize_fit_size((resize_fit)o->fit, h, w, o->height, o->width, height, width);
    }
    if (o->multiple > 1) {
        const double m = (double)o->multiple;
        *height = (size_t)fmax(m, nearbyint((double)*height / m) * m);
        *width = (size_t)fmax(m, nearbyint((double)*width / m) * m);
    }
}

/* No step makes more than this: a manifest, or a picture of one pixel, must not take the machine's memory. */
enum { MAX_RESULT = 1 << 30 };

static status check_result(size_t height, size_t width, const tensor *like, error *err) {
    const double bytes =
        (double)height * (double)width * (double)like->dims[2] * (double)elem_describe(like->type)->bytes;
    if (bytes <= MAX_RESULT) return CHURON_OK;
    return error_set(err, CHURON_LIMIT, "expected an image of at most %d bytes, got %.0f (%zu x %zu)",
                     MAX_RESULT, bytes, width, height);
}

static status run_resize(const step *s, run *r, cell *slots, error *err) {
    const resize_state *o = s->state;
    const cell *in = &slots[s->in];
    size_t height, width;
    if (in->t->count == 0)
        return error_set(err, CHURON_INVALID, "expected an image with pixels, got one of none");
    target_size(o, (size_t)in->t->dims[0], (size_t)in->t->dims[1], &height, &width);
    TRY(check_result(height, width, in->t, err));
    if ((int64_t)height == in->t->dims[0] && (int64_t)width == in->t->dims[1]) {
        slots[s->out] = *in; /* every rule gives the same pixels at the same size */
        return CHURON_OK;
    }
    tensor t;
    TRY(image_resize(&t, in->t, height, width, o->rule, o->filter, err));
    return media_adopt(&slots[s->out], in->kind, r->memory, &t, err);
}

const step_kind step_resize = {
    .name = "resize",
    .group = "image",
    .doc = "Brings an image to another size by the named library's own arithmetic. Pillow: antialiased, "
           "pixels equal; opencv: "
           "not antialiased, equal or one level off; torchvision: antialias on float tensors.",
    .reference = "Pillow Image.resize, cv2.resize, torchvision resize(antialias=True)",
    .keys = RESIZE_KEYS,
    .check = check_resize,
    .row = run_resize,
};

/* ---- crop ------------------------------------------------------------------------------------------- */

enum { CROP_FIELD, CROP_HEIGHT, CROP_WIDTH, CROP_AT, CROP_X, CROP_Y, CROP_INTO };
enum { AT_CENTRE, AT_CENTRE_FLOOR, AT_POINT };

static const key_spec CROP_KEYS[] = {
    {"field", KEY_FIELD, .required = true, .doc = "An image, at least as large as the rectangle"},
    {"height", KEY_INT, .required = true, .least = 1, .most = 65536, .doc = "Height of the rectangle"},
    {"width", KEY_INT, .required = true, .least = 1, .most = 65536, .doc = "Width of the rectangle"},
    {"at", KEY_CHOICE, .fallback = "centre", .choices = "centre|centre_floor|point",
     .doc = "centre: offsets round((image - size) / 2), half to even (torchvision); centre_floor: rounded "
            "down; point: x and y"},
    {"x", KEY_INT, .fallback = "0", .least = 0, .most = 65536, .doc = "Left edge, with at: point"},
    {"y", KEY_INT, .fallback = "0", .least = 0, .most = 65536, .doc = "Upper edge, with at: point"},
    {"into", KEY_INTO, .doc = "Name of the result; left out: that of the field"},
    {0}};

typedef struct crop_state {
    int at;
    image_window window;
} crop_state;

static status check_crop(step_build *b, error *err) {
    const key_value *v = b->values;
    crop_state *o;
    TRY(expect_image(b, CROP_FIELD, err));
    TRY(step_state(b, sizeof *o, &o, err));
    *o = (crop_state){.at = (int)v[CROP_AT].integer,
                      .window = {.y = (size_t)v[CROP_Y].integer,
                                 .x = (size_t)v[CROP_X].integer,
                                 .height = (size_t)v[CROP_HEIGHT].integer,
                                 .width = (size_t)v[CROP_WIDTH].integer}};
    if (o->at != AT_POINT && (v[CROP_X].given || v[CROP_Y].given))
        return step_fault(b, "at", err, "expected 'point' beside x and y, got another");
    const cell_type out =
        image_type_sized(v[CROP_FIELD].type, (int64_t)o->window.height, (int64_t)o->window.width);
    b->s->in = v[CROP_FIELD].slot;
    return step_output(b, CROP_INTO, CROP_FIELD, &out, err);
}

static status run_crop(const step *s, run *r, cell *slots, error *err) {
    const crop_state *o = s->state;
    const cell *in = &slots[s->in];
    image_window w = o->window;
    if (o->at != AT_POINT) {
        TRY(image_centre_window(&w, (size_t)in->t->dims[0], (size_t)in->t->dims[1], w.height, w.width,
                                o->at == AT_CENTRE, err));
    }
    tensor t;
    TRY(image_crop(&t, in->t, w, err));
    return media_adopt(&slots[s->out], in->kind, r->memory, &t, err);
}

const step_kind step_crop = {
    .name = "crop",
    .group = "image",
    .doc = "A rectangle of an image. An image that is smaller is refused.",
    .reference = "torchvision center_crop, Pillow Image.crop",
    .keys = CROP_KEYS,
    .check = check_crop,
    .row = run_crop,
};

/* ---- pad -------------------------------------------------------------------------------------------- */

enum { PAD_FIELD, PAD_HEIGHT, PAD_WIDTH, PAD_MULTIPLE, PAD_CENTER, PAD_VALUE, PAD_INTO };

static const key_spec PAD_KEYS[] = {
    {"field", KEY_FIELD, .required = true, .doc = "An image"},
    {"height", KEY_INT, .least = 1, .most = 65536, .doc = "Least height of the result"},
    {"width", KEY_INT, .least = 1, .most = 65536, .doc = "Least width of the result"},
    {"multiple", KEY_INT, .fallback = "1", .least = 1, .most = 1024, .doc = "Sides become multiples of this"},
    {"center", KEY_BOOL, .fallback = "false",
     .doc = "Padding on all sides, the odd pixel at bottom and right; false: at bottom and right only"},
    {"value", KEY_NUMBERS,
     .doc = "What padding consists of: a number, or one a channel, in the image's own scale; left out: 0"},
    {"into", KEY_INTO, .doc = "Name of the result; left out: that of the field"},
    {0}};

typedef struct pad_state {
    size_t height, width, multiple;
    bool center;
    float value[4];
} pad_state;

static status check_pad(step_build *b, error *err) {
    const key_value *v = b->values;
    pad_state *o;
    TRY(expect_image(b, PAD_FIELD, err));
    TRY(step_state(b, sizeof *o, &o, err));
    *o = (pad_state){.height = (size_t)v[PAD_HEIGHT].integer,
                     .width = (size_t)v[PAD_WIDTH].integer,
                     .multiple = (size_t)v[PAD_MULTIPLE].integer,
                     .center = v[PAD_CENTER].flag};
    const int64_t channels = v[PAD_FIELD].type->dims[2];
    const size_t n = v[PAD_VALUE].n;
    if (n > 1 && (int64_t)n != channels)
        return step_fault(b, "value", err, "expected 1 or %" PRId64 " numbers, got %zu", channels, n);
    for (size_t i = 0; i < 4 && n; i++) o->value[i] = (float)v[PAD_VALUE].numbers[n == 1 ? 0 : i < n ? i : 0];
    const cell_type out = image_type_sized(v[PAD_FIELD].type, -1, -1);
    b->s->in = v[PAD_FIELD].slot;
    return step_output(b, PAD_INTO, PAD_FIELD, &out, err);
}

static size_t padded(size_t side, size_t least, size_t multiple) {
    if (side < least) side = least;
    return (side + multiple - 1) / multiple * multiple;
}

static status run_pad(const step *s, run *r, cell *slots, error *err) {
    const pad_state *o = s->state;
    const cell *in = &slots[s->in];
    const size_t h = (size_t)in->t->dims[0], w = (size_t)in->t->dims[1];
    TRY(check_result(padded(h, o->height, o->multiple), padded(w, o->width, o->multiple), in->t, err));
    const image_padding p =
        image_letterbox(h, w, padded(h, o->height, o->multiple), padded(w, o->width, o->multiple), o->center);
    tensor t;
    TRY(image_pad(&t, in->t, p, o->value, err));
    return media_adopt(&slots[s->out], in->kind, r->memory, &t, err);
}

const step_kind step_pad = {
    .name = "pad",
    .group = "image",
    .doc = "Adds a border, so that an image is at least height x width and its sides are multiples. Larger "
           "sides stay.",
    .reference = "numpy.pad, cv2.copyMakeBorder",
    .keys = PAD_KEYS,
    .check = check_pad,
    .row = run_pad,
};

/* ---- normalize_image -------------------------------------------------------------------------------- */

enum { NORM_FIELD, NORM_SCALE, NORM_DIVIDE, NORM_MEAN, NORM_STD, NORM_REVERSE, NORM_LAYOUT, NORM_INTO };

static const key_spec NORM_KEYS[] = {
    {"field", KEY_FIELD, .required = true, .doc = "An image"},
    {"scale", KEY_NUMBER, .fallback = "1", .least = -1e30, .most = 1e30,
     .doc = "First, values are multiplied by it"},
    {"divide", KEY_NUMBER, .fallback = "1", .least = 1e-30, .most = 1e30,
     .doc = "then divided by it (255 gives 0 to 1)"},
    {"mean", KEY_NUMBERS, .doc = "then this is taken off: one number, or one a channel of the result"},
    {"std", KEY_NUMBERS, .doc = "then they are divided by this, likewise"},
    {"reverse", KEY_BOOL, .fallback = "false",
     .doc = "First and third channel change places before all else (RGB to BGR)"},
    {"layout", KEY_CHOICE, .choices = "hwc|chw", .fallback = "chw",
     .doc = "Order of the result's dimensions"},
    {"into", KEY_INTO, .doc = "Name of the result; left out: that of the field"},
    {0}};

static status channel_numbers(const step_build *b, size_t key, int64_t channels, float fallback, float out[4],
                              error *err) {
    const key_value *v = &b->values[key];
    if (v->given && v->n != 1 && (v->n > 4 || (channels >= 0 && (int64_t)v->n != channels)))
        return step_fault(b, NORM_KEYS[key].name, err,
                          "expected 1 number or one for each of the %" PRId64 " channels, got %zu", channels,
                          v->n);
    for (size_t i = 0; i < 4; i++) {
        out[i] = !v->given ? fallback : (float)v->numbers[v->n == 1 ? 0 : i < v->n ? i : v->n - 1];
        if (key == NORM_STD && out[i] == 0)
            return step_fault(b, "std", err, "expected numbers other than 0, got 0");
    }
    return CHURON_OK;
}

static status check_normalize(step_build *b, error *err) {
    const key_value *v = b->values;
    pixels_norm *o;
    TRY(expect_image(b, NORM_FIELD, err));
    TRY(step_state(b, sizeof *o, &o, err));
    const cell_type *t = v[NORM_FIELD].type;
    *o = pixels_norm_identity();
    o->scale = (float)v[NORM_SCALE].number;
    o->divide = (float)v[NORM_DIVIDE].number;
    o->reverse = v[NORM_REVERSE].flag;
    o->layout = v[NORM_LAYOUT].integer == 1 ? PIXELS_CHW : PIXELS_HWC;
    if (o->reverse && t->dims[2] >= 0 && t->dims[2] < 3)
        return step_fault(b, "reverse", err, "expected an image of 3 or 4 channels, got %" PRId64,
                          t->dims[2]);
    TRY(channel_numbers(b, NORM_MEAN, t->dims[2], 0, o->mean, err));
    TRY(channel_numbers(b, NORM_STD, t->dims[2], 1, o->deviation, err));
    cell_type out = {.kind = CELL_TENSOR,
                     .element = ELEM_F32,
                     .has_rank = true,
                     .rank = 3,
                     .dims = {t->dims[0], t->dims[1], t->dims[2]}};
    if (o->layout == PIXELS_CHW) {
        out.dims[0] = t->dims[2];
        out.dims[1] = t->dims[0];
        out.dims[2] = t->dims[1];
    }
    b->s->in = v[NORM_FIELD].slot;
    return step_output(b, NORM_INTO, NORM_FIELD, &out, err);
}

static status run_normalize(const step *s, run *r, cell *slots, error *err) {
    const pixels_norm *o = s->state;
    const tensor *in = slots[s->in].t;
    int64_t dims[3] = {in->dims[0], in->dims[1], in->dims[2]};
    if (o->layout == PIXELS_CHW) {
        dims[0] = in->dims[2];
        dims[1] = in->dims[0];
        dims[2] = in->dims[1];
    }
    cell out;
    void *data;
    TRY(cell_new_tensor(&out, CELL_TENSOR, r->memory, ELEM_F32, 3, dims, &data, s->label, err));
    TRY(pixels_normalize_into(data, in->count, in, o, err));
    slots[s->out] = out;
    return CHURON_OK;
}

const step_kind step_normalize_image = {
    .name = "normalize_image",
    .group = "image",
    .doc = "Pixels as a model's input: ((x * scale) / divide - mean) / std in float32, each operation "
           "rounded in this order, in the "
           "layout that the model wants.",
    .reference = "numpy float32 arithmetic, bit for bit",
    .keys = NORM_KEYS,
    .check = check_normalize,
    .row = run_normalize,
};

/* ---- turn and flip ---------------------------------------------------------------------------------- */

enum { TURN_FIELD, TURN_QUARTERS, TURN_FLIP, TURN_INTO };

static const key_spec TURN_KEYS[] = {
    {"field", KEY_FIELD, .required = true, .doc = "An image"},
    {"quarters", KEY_INT, .fallback = "0", .least = 0, .most = 3, .doc = "Quarter turns clockwise"},
    {"flip", KEY_CHOICE, .choices = "none|horizontal|vertical", .fallback = "none",
     .doc = "Mirrors it, before turning"},
    {"into", KEY_INTO, .doc = "Name of the result; left out: that of the field"},
    {0}};

typedef struct turn_state {
    unsigned quarters;
    int flip;
} turn_state;

static status check_turn(step_build *b, error *err) {
    const key_value *v = b->values;
    turn_state *o;
    TRY(expect_image(b, TURN_FIELD, err));
    TRY(step_state(b, sizeof *o, &o, err));
    *o = (turn_state){.quarters = (unsigned)v[TURN_QUARTERS].integer, .flip = (int)v[TURN_FLIP].integer};
    const cell_type *t = v[TURN_FIELD].type;
    const bool across = o->quarters % 2 == 1;
    const cell_type out = image_type_sized(t, t->dims[across], t->dims[!across]);
    b->s->in = v[TURN_FIELD].slot;
    return step_output(b, TURN_INTO, TURN_FIELD, &out, err);
}

static status run_turn(const step *s, run *r, cell *slots, error *err) {
    const turn_state *o = s->state;
    cell at = slots[s->in];
    tensor t;
    if (o->flip) {
        TRY(image_flip(&t, at.t, o->flip == 1, err));
        TRY(media_adopt(&at, at.kind, r->memory, &t, err));
    }
    if (o->quarters) {
        TRY(image_rotate(&t, at.t, o->quarters, err));
        TRY(media_adopt(&at, at.kind, r->memory, &t, err));
    }
    slots[s->out] = at;
    return CHURON_OK;
}

const step_kind step_turn = {
    .name = "turn",
    .group = "image",
    .doc = "Turns an image by quarters and mirrors it.",
    .reference = "numpy.rot90, numpy.flip",
    .keys = TURN_KEYS,
    .check = check_turn,
    .row = run_turn,
};

/* ---- image_size ------------------------------------------------------------------------------------- */

enum { SIZE_FIELD, SIZE_INTO };

static const key_spec SIZE_KEYS[] = {
    {"field", KEY_FIELD, .required = true, .doc = "An image"},
    {"into", KEY_INTO, .required = true, .doc = "Name of the result: [height, width], int64"},
    {0}};

static status check_size(step_build *b, error *err) {
    TRY(expect_image(b, SIZE_FIELD, err));
    const cell_type out = {
        .kind = CELL_TENSOR, .element = ELEM_I64, .has_rank = true, .rank = 1, .dims = {2}};
    b->s->in = b->values[SIZE_FIELD].slot;
    return step_output(b, SIZE_INTO, SIZE_FIELD, &out, err);
}

static status run_size(const step *s, run *r, cell *slots, error *err) {
    void *data;
    const tensor *t = slots[s->in].t;
    TRY(cell_new_tensor(&slots[s->out], CELL_TENSOR, r->memory, ELEM_I64, 1, (const int64_t[]){2}, &data,
                        s->label, err));
    memcpy(data, t->dims, 2 * sizeof(int64_t));
    return CHURON_OK;
}

const step_kind step_image_size = {
    .name = "image_size",
    .group = "image",
    .doc = "Height and width of an image, for boxes that are to be scaled back.",
    .reference = "numpy shape",
    .keys = SIZE_KEYS,
    .check = check_size,
    .row = run_size,
};

/* ---- jpeg_round_trip -------------------------------------------------------------------------------- */

enum { JPEG_FIELD, JPEG_QUALITY, JPEG_INTO };

static const key_spec JPEG_KEYS[] = {
    {"field", KEY_FIELD, .required = true, .doc = "An image, rgb or gray"},
    {"quality", KEY_INT, .fallback = "75", .least = 1, .most = 100, .doc = "Quality, as Pillow counts it"},
    {"into", KEY_INTO, .doc = "Name of the result; left out: that of the field"},
    {0}};

static status check_jpeg(step_build *b, error *err) {
    int *quality;
    TRY(step_expect(b, JPEG_FIELD, KIND(CELL_IMAGE), false, err));
    TRY(step_state(b, sizeof *quality, &quality, err));
    *quality = (int)b->values[JPEG_QUALITY].integer;
    const cell_type *t = b->values[JPEG_FIELD].type;
    if (t->order != ORDER_RGB && t->order != ORDER_GRAY)
        return step_fault(b, "field", err, "expected an image in rgb or gray, got '%.60s' in another order",
                          b->values[JPEG_FIELD].text);
    b->s->in = b->values[JPEG_FIELD].slot;
    return step_output(b, JPEG_INTO, JPEG_FIELD, t, err);
}

static status run_jpeg(const step *s, run *r, cell *slots, error *err) {
    const cell *in = &slots[s->in];
    const image_options o = {.order = in->t->dims[2] == 1 ? IMAGE_L : IMAGE_RGB};
    str bytes = {0};
    tensor t = {0};
    status st = image_encode_jpeg(&bytes, in->t, *(const int *)s->state, err);
    if (st == CHURON_OK) st = image_decode(&t, NULL, bytes.data, bytes.len, &o, err);
    str_free(&bytes);
    return st == CHURON_OK ? media_adopt(&slots[s->out], CELL_IMAGE, r->memory, &t, err) : st;
}

const step_kind step_jpeg_round_trip = {
    .name = "jpeg_round_trip",
    .group = "image",
    .doc =
        "Compresses an image as JPEG and decodes it again: for models whose training data went through it.",
    .reference = "Pillow save and open",
    .keys = JPEG_KEYS,
    .check = check_jpeg,
    .row = run_jpeg,
};

/* polygon.c: see polygon.h. */
#include "pipeline/steps/polygon.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- borders ---------------------------------------------------------------------------------------- */

/* Border following after Suzuki and Abe (1985). The bitmap has a frame of zeros. Pixels: 0 empty, 1 not met
 * yet, 2 on a border, -2 on a border whose right side is empty there. */

typedef struct tracer {
    int8_t *pixels;      /* [height + 2][stride] */
    ptrdiff_t around[8]; /* to the neighbours: east, then against the clock */
    arena *memory;
    pixel *points;
    size_t n, cap;
    size_t *starts;
    size_t n_starts, cap_starts;
} tracer;

static const pixel STEPS[8] = {{1, 0}, {1, -1}, {0, -1}, {-1, -1}, {-1, 0}, {-1, 1}, {0, 1}, {1, 1}};

static bool add_point(tracer *t, pixel p) {
    void *points = t->points;
    if (t->n == t->cap && !arena_grow(t->memory, &points, t->n, &t->cap, sizeof *t->points)) return false;
    t->points = points;
    t->points[t->n++] = p;
    return true;
}

static bool add_start(tracer *t) {
    void *starts = t->starts;
    if (t->n_starts == t->cap_starts &&
        !arena_grow(t->memory, &starts, t->n_starts, &t->cap_starts, sizeof *t->starts))
        return false;
    t->starts = starts;
    t->starts[t->n_starts++] = t->n;
    return true;
}

static bool follow(tracer *t, int8_t *start, pixel at, bool hole) {
    const int from = hole ? 0 : 4;
    int side = from;
    do {
        side = (side - 1) & 7;
    } while (start[t->around[side]] == 0 && side != from);
    if (start[t->around[side]] == 0) { /* alone */
        *start = -2;
        return add_point(t, at);
    }
    const int8_t *last = start + t->around[side];
    int8_t *here = start;
    int before = side ^ 4; /* the direction of the step that led here */
    for (;;) {
        const int came = side;
        do {
            side = (side + 1) & 7;
        } while (here[t->around[side]] == 0);
        int8_t *next = here + t->around[side];
        if (side >= 1 && side <= came) { /* the search went past the empty east */
            *here = -2;
        } else if (*here == 1) {
            *here = 2;
        }
        if (side != before && !add_point(t, at)) return false;
        before = side;
        at.x += STEPS[side].x;
        at.y += STEPS[side].y;
        if (next == start && here == last) return true;
        here = next;
        side = (side + 4) & 7;
    }
}

static bool scan_rows(tracer *t, size_t width, size_t height) {
    const size_t stride = width + 2;
    for (size_t y = 1; y <= height; y++) {
        int8_t *row = t->pixels + y * stride;
        int8_t before = 0;
        for (size_t x = 1; x <= width + 1; x++) {
            const bool outer = before == 0 && row[x] == 1, hole = row[x] == 0 && before >= 1;
            if (outer || hole) {
                const pixel at = {(int32_t)(x - 1 - hole), (int32_t)(y - 1)};
                if (!add_start(t) || !follow(t, row + x - hole, at, hole)) return false;
            }
            before = row[x];
        }
    }
    return add_start(t);
}

/* OpenCV hands out the border that was met last first. */
static bool turn_round(tracer *t, outlines *out) {
    const size_t n = t->n_starts - 1;
    pixel *points = arena_alloc(t->memory, (t->n + 1) * sizeof *points);
    size_t *starts = arena_alloc(t->memory, (n + 1) * sizeof *starts);
    if (!points || !starts) return false;
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        const size_t from = t->starts[n - 1 - i], count = t->starts[n - i] - from;
        starts[i] = at;
        memcpy(points + at, t->points + from, count * sizeof *points);
        at += count;
    }
    starts[n] = at;
    *out = (outlines){.points = points, .starts = starts, .n = n};
    return true;
}

status outlines_trace(outlines *out, const uint8_t *bitmap, size_t width, size_t height, arena *a,
                      error *err) {
    const size_t stride = width + 2;
    tracer t = {.memory = a};
    t.pixels = arena_array(a, height + 2, stride);
    if (!t.pixels) return arena_refused(a, "a bitmap", (height + 2) * stride, err);
    for (size_t y = 0; y < height; y++) {
        int8_t *row = t.pixels + (y + 1) * stride + 1;
        for (size_t x = 0; x < width; x++) row[x] = bitmap[y * width + x] != 0;
    }
    for (int i = 0; i < 8; i++) t.around[i] = STEPS[i].x + STEPS[i].y * (ptrdiff_t)stride;
    if (!scan_rows(&t, width, height) || !turn_round(&t, out))
        return arena_refused(a, "borders", t.n * sizeof(pixel), err);
    return CHURON_OK;
}

/* ---- hull and rectangle ----------------------------------------------------------------------------- */

typedef struct corner {
    spot at;
    size_t index; /* among the points that were given */
} corner;

static int by_place(const void *a, const void *b) {
    const corner *p = a, *q = b;
    if (p->at.x != q->at.x) return p->at.x < q->at.x ? -1 : 1;
    if (p->at.y != q->at.y) return p->at.y < q->at.y ? -1 : 1;
    return (p->index > q->index) - (p->index < q->index);
}

static double cross(spot o, spot a, spot b) {
    return ((double)a.x - o.x) * ((double)b.y - o.y) - ((double)a.y - o.y) * ((double)b.x - o.x);
}

/* Convex hull of sorted points without those on its edges, turning from x to y. hull [2 n]. */
static size_t hull_of(const corner *p, size_t n, corner *hull) {
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        while (k >= 2 && cross(hull[k - 2].at, hull[k - 1].at, p[i].at) <= 0) k--;
        hull[k++] = p[i];
    }
    const size_t upper = k + 1;
    for (size_t i = n - 1; i-- > 0;) {
        while (k >= upper && cross(hull[k - 2].at, hull[k - 1].at, p[i].at) <= 0) k--;
        hull[k++] = p[i];
    }
    return k > 1 ? k - 1 : k;
}

static size_t unique_corners(corner *p, size_t n) {
    size_t k = 1;
    for (size_t i = 1; i < n; i++) {
        if (p[i].at.x != p[k - 1].at.x || p[i].at.y != p[k - 1].at.y) p[k++] = p[i];
    }
    return k;
}

/* Where OpenCV lets a hull begin: so that the indices of its points rise or fall all the way, where they can.
 * Of rectangles of one area the last met counts, so the beginning decides which. */
static size_t hull_start(const corner *hull, size_t n) {
    size_t rises = 0, most = 0, least = 0;
    for (size_t i = 0; i < n; i++) {
        rises += hull[i + 1 == n ? 0 : i + 1].index > hull[i].index;
        if (hull[i].index > hull[most].index) most = i;
        if (hull[i].index < hull[least].index) least = i;
    }
    return rises == 1 ? most : rises == n - 1 ? least : 0;
}

typedef struct calipers {
    const spot *hull;
    const spot *edges;    /* [n] from hull[i] to the next */
    const float *inverse; /* [n] 1 / length */
    size_t n;
    size_t touch[4]; /* bottom (least y), right, top, left: where the sides touch */
    float a, b;      /* direction of the bottom side */
} calipers;

static void first_touch(calipers *c) {
    size_t left = 0, right = 0, top = 0, bottom = 0;
    for (size_t i = 0; i < c->n; i++) {
        if (c->hull[i].x < c->hull[left].x) left = i;
        if (c->hull[i].x > c->hull[right].x) right = i;
        if (c->hull[i].y > c->hull[top].y) top = i;
        if (c->hull[i].y < c->hull[bottom].y) bottom = i;
    }
    const size_t touch[4] = {bottom, right, top, left};
    memcpy(c->touch, touch, sizeof touch);
    c->a = 1; /* the hull turns from x to y */
    c->b = 0;
}

/* On to the side that meets the next edge first. */
static void turn_calipers(calipers *c) {
    const float sides[4][2] = {{c->a, c->b}, {-c->b, c->a}, {-c->a, -c->b}, {c->b, -c->a}};
    int side = 0;
    float best = -FLT_MAX;
    for (int i = 0; i < 4; i++) {
        const size_t at = c->touch[i];
        const float cosine = (sides[i][0] * c->edges[at].x + sides[i][1] * c->edges[at].y) * c->inverse[at];
        if (i == 0 || cosine > best) {
            best = cosine;
            side = i;
        }
    }
    const size_t at = c->touch[side];
    const float x = c->edges[at].x * c->inverse[at], y = c->edges[at].y * c->inverse[at];
    const float turned[4][2] = {{x, y}, {y, -x}, {-x, -y}, {-y, x}};
    c->a = turned[side][0];
    c->b = turned[side][1];
    c->touch[side] = at + 1 == c->n ? 0 : at + 1;
}

/* The corners from centre, size and angle, as OpenCV has a rectangle: what they are rounded to depends on it.
 * The angle is -90 to below 0 degrees. */
static void place(rectangle *out, const calipers *c, float width, float height) {
    const double degree = 3.1415926535897932384626433832795 / 180;
    const spot left = c->hull[c->touch[3]], bottom = c->hull[c->touch[0]];
    const float a = c->a, b = c->b;
    const float along = a * left.x + left.y * b, across = -b * bottom.x + bottom.y * a;
    const float scale = 1.0f / (a * a + b * b);
    const spot w = {a * width, b * width}, h = {-b * height, a * height};
    const spot centre = {(along * a - across * b) * scale + (w.x + h.x) * 0.5f,
                         (a * across + b * along) * scale + (w.y + h.y) * 0.5f};
    double turned = atan2((double)w.y, (double)w.x) / degree;
    out->width = (float)sqrt((double)w.x * w.x + (double)w.y * w.y);
    out->height = (float)sqrt((double)h.x * h.x + (double)h.y * h.y);
    while (turned >= 0 || turned < -90) {
        const float swap = out->width;
        turned += turned >= 0 ? -90 : 90;
        out->width = out->height;
        out->height = swap;
    }
    const float angle = (float)turned;
    const float cosine = (float)cos(angle * degree) * 0.5f, sine = (float)sin(angle * degree) * 0.5f;
    spot *p = out->corners;
    p[0] = (spot){centre.x - sine * out->height - cosine * out->width,
                  centre.y + cosine * out->height - sine * out->width};
    p[1] = (spot){centre.x + sine * out->height - cosine * out->width,
                  centre.y - cosine * out->height - sine * out->width};
    p[2] = (spot){centre.x + sine * out->height + cosine * out->width,
                  centre.y - cosine * out->height + sine * out->width};
    p[3] = (spot){centre.x - sine * out->height + cosine * out->width,
                  centre.y + cosine * out->height + sine * out->width};
}

/* Rotating calipers: one side of the least rectangle lies on an edge of the hull. */
static void least_rectangle(calipers *c, rectangle *out) {
    float least = FLT_MAX;
    first_touch(c);
    for (size_t k = 0; k < c->n; k++) {
        turn_calipers(c);
        const spot *h = c->hull;
        const spot across = {h[c->touch[1]].x - h[c->touch[3]].x, h[c->touch[1]].y - h[c->touch[3]].y};
        const spot up = {h[c->touch[2]].x - h[c->touch[0]].x, h[c->touch[2]].y - h[c->touch[0]].y};
        const float width = across.x * c->a + across.y * c->b, height = -up.x * c->b + up.y * c->a;
        if (width * height > least) continue;
        least = width * height;
        place(out, c, width, height);
    }
}

status rectangle_around(rectangle *out, const spot *points, size_t n, arena *a, error *err) {
    corner *sorted = arena_array(a, n + 1, 3 * sizeof *sorted);
    spot *hull = arena_array(a, n + 1, 2 * sizeof *hull);
    float *inverse = arena_array(a, n + 1, sizeof *inverse);
    if (!sorted || !hull || !inverse) return arena_refused(a, "a rectangle", n * 3 * sizeof *sorted, err);
    corner *corners = sorted + n;
    spot *edges = hull + n;
    for (size_t i = 0; i < n; i++) sorted[i] = (corner){points[i], i};
    qsort(sorted, n, sizeof *sorted, by_place);
    const size_t k = hull_of(sorted, unique_corners(sorted, n), corners);
    if (k < 3) {
        const spot p = corners[0].at, q = corners[k - 1].at;
        *out = (rectangle){.corners = {p, q, q, p}, .width = hypotf(q.x - p.x, q.y - p.y)};
        return CHURON_OK;
    }
    const size_t start = hull_start(corners, k);
    for (size_t i = 0; i < k; i++) hull[i] = corners[(start + i) % k].at;
    for (size_t i = 0; i < k; i++) {
        const spot next = hull[i + 1 == k ? 0 : i + 1];
        edges[i] = (spot){next.x - hull[i].x, next.y - hull[i].y};
        const double dx = edges[i].x, dy = edges[i].y;
        inverse[i] = (float)(1 / sqrt(dx * dx + dy * dy));
    }
    calipers c = {.hull = hull, .edges = edges, .inverse = inverse, .n = k};
    least_rectangle(&c, out);
    return CHURON_OK;
}

/* ---- what a polygon covers -------------------------------------------------------------------------- */

typedef struct mask {
    uint8_t *bits;
    int32_t width, height;
} mask;

static bool inside(const mask *m, pixel p) {
    return p.x >= 0 && p.x < m->width && p.y >= 0 && p.y < m->height;
}

static int32_t cut(int32_t at, int32_t from, double by, double of, int32_t along) {
    return at + (int32_t)((double)(along - from) * by / of);
}

/* Left 1, right 2, above 4, below 8. */
static int outside(const mask *m, pixel p) {
    return (p.x < 0 ? 1 : p.x >= m->width ? 2 : 0) | (p.y < 0 ? 4 : p.y >= m->height ? 8 : 0);
}

/* The part of a line that lies in the mask, ends cut toward zero. False: none; the ends may have moved. */
static bool clip_line(const mask *m, pixel *p, pixel *q) {
    pixel *ends[2] = {p, q};
    int codes[2] = {outside(m, *p), outside(m, *q)};
    for (int pass = 0; pass < 2; pass++) { /* rows first, then columns */
        if ((codes[0] & codes[1]) || !(codes[0] | codes[1])) break;
        for (int i = 0; i < 2; i++) {
            pixel *e = ends[i];
            const double dx = (double)q->x - p->x, dy = (double)q->y - p->y;
            if (pass == 0 && (codes[i] & 12)) {
                const int32_t y = codes[i] & 4 ? 0 : m->height - 1;
                e->x = cut(e->x, e->y, dx, dy, y);
                e->y = y;
                codes[i] = outside(m, *e) & 3;
            } else if (pass == 1 && codes[i]) {
                const int32_t x = codes[i] == 1 ? 0 : m->width - 1;
                e->y = cut(e->y, e->x, dy, dx, x);
                e->x = x;
                codes[i] = 0;
            }
        }
    }
    return !(codes[0] | codes[1]);
}

/* Bresenham's line from the left end. */
static void draw_line(const mask *m, pixel p, pixel q) {
    if (!clip_line(m, &p, &q) || !inside(m, p) || !inside(m, q)) return;
    if (p.x > q.x) {
        const pixel swap = p;
        p = q;
        q = swap;
    }
    const int32_t dx = q.x - p.x, dy = abs(q.y - p.y), down = q.y >= p.y ? 1 : -1;
    const bool steep = dy > dx;
    const int32_t major = steep ? dy : dx, minor = steep ? dx : dy;
    int32_t left = major - 2 * minor;
    for (int32_t i = 0; i <= major; i++) {
        m->bits[(size_t)p.y * (size_t)m->width + (size_t)p.x] = 1;
        const bool both = left < 0;
        left += (both ? 2 * major : 0) - 2 * minor;
        if (steep || both) p.y += down;
        if (!steep || both) p.x += 1;
    }
}

enum { SHIFT = 16 };

typedef struct edge {
    int64_t x, slope; /* in 1/65536 pixels: at row y, and from row to row */
    int64_t y, end;
} edge;

/* The slope is that of the part inside, where there is one. */
static bool edge_between(const mask *m, pixel a, pixel b, edge *out) {
    if (a.y == b.y) return false;
    pixel p = a, q = b;
    if (!inside(m, a) || !inside(m, b)) {
        (void)clip_line(m, &p, &q);
        if (p.y == q.y) {
            p = a;
            q = b;
        }
    }
    const pixel *top = a.y < b.y ? &p : &q;
    out->slope = (((int64_t)q.x - p.x) * (1 << SHIFT)) / ((int64_t)q.y - p.y);
    out->y = a.y < b.y ? a.y : b.y;
    out->end = a.y < b.y ? b.y : a.y;
    out->x = (int64_t)top->x * (1 << SHIFT) + (out->y - top->y) * out->slope;
    return true;
}

static int by_value(const void *a, const void *b) {
    const int64_t p = *(const int64_t *)a, q = *(const int64_t *)b;
    return (p > q) - (p < q);
}

/* Rows of the mask between crossings of edges, which are counted, then laid out row by row. */
static bool fill_rows(const mask *m, const pixel *p, size_t n, arena *a) {
    const size_t rows = (size_t)m->height;
    size_t *ends = arena_array(a, rows + 2, sizeof *ends), total = 0;
    int64_t *x = NULL;
    if (!ends) return false;
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < n; i++) {
            edge e;
            if (!edge_between(m, p[i], p[i + 1 == n ? 0 : i + 1], &e)) continue;
            const int64_t from = e.y < 0 ? 0 : e.y, to = e.end < m->height ? e.end : m->height;
            for (int64_t y = from; y < to; y++) {
                if (pass) x[ends[y]] = e.x + e.slope * (y - e.y);
                ends[pass ? y : y + 1]++;
            }
        }
        for (size_t y = 0; !pass && y < rows; y++) ends[y + 1] += ends[y];
        total = pass ? total : ends[rows];
        if (!pass && !(x = arena_alloc(a, (total + 1) * sizeof *x))) return false;
    }
    for (size_t y = 0; y < rows; y++) { /* now ends[y] is the end of row y */
        int64_t *row = x + (y ? ends[y - 1] : 0);
        const size_t k = (size_t)(x + ends[y] - row);
        qsort(row, k, sizeof *row, by_value);
        for (size_t i = 0; i + 1 < k; i += 2) {
            const int64_t from = (row[i] + (1 << SHIFT) - 1) >> SHIFT, to = row[i + 1] >> SHIFT;
            for (int64_t at = from < 0 ? 0 : from; at <= to && at < m->width; at++)
                m->bits[y * (size_t)m->width + (size_t)at] = 1;
        }
    }
    return true;
}

status polygon_mean(double *out, const float *map, size_t width, pixel lo, pixel hi, const pixel *points,
                    size_t n, arena *a, error *err) {
    mask m = {.width = hi.x - lo.x + 1, .height = hi.y - lo.y + 1};
    const size_t bytes = (size_t)m.width * (size_t)m.height;
    m.bits = arena_array(a, bytes, 1);
    if (!m.bits) return arena_refused(a, "a mask", bytes, err);
    for (size_t i = 0; i < n; i++) draw_line(&m, points[i], points[i + 1 == n ? 0 : i + 1]);
    if (!fill_rows(&m, points, n, a)) return arena_refused(a, "a mask", bytes, err);
    double sum = 0;
    size_t count = 0;
    for (int32_t v = 0; v < m.height; v++) {
        const float *row = map + ((size_t)lo.y + (size_t)v) * width + lo.x;
        const uint8_t *bits = m.bits + (size_t)v * (size_t)m.width;
        for (int32_t u = 0; u < m.width; u++) {
            if (!bits[u]) continue;
            sum += row[u];
            count++;
        }
    }
    *out = count ? sum / (double)count : 0;
    return CHURON_OK;
}

/* ---- growing ---------------------------------------------------------------------------------------- */

/* Clipper's offset with round joins and its tolerance of 0.25 for arcs, of one convex path of at most 4
 * points. */

typedef struct vec {
    double x, y;
} vec;

typedef struct grower {
    pixel path[4];
    vec normals[4];
    size_t n;
    double delta, sine, cosine, steps_per_radian;
    arena *memory;
    spot *points;
    size_t n_points, cap;
} grower;

static bool put(grower *g, size_t at, vec by) {
    void *points = g->points;
    if (g->n_points == g->cap && !arena_grow(g->memory, &points, g->n_points, &g->cap, sizeof *g->points))
        return false;
    g->points = points;
    g->points[g->n_points++] =
        (spot){(float)round(g->path[at].x + by.x * g->delta), (float)round(g->path[at].y + by.y * g->delta)};
    return true;
}

static bool round_corner(grower *g, size_t at, vec from, vec to, double sine) {
    const double angle = atan2(sine, from.x * to.x + from.y * to.y);
    const double wanted = round(g->steps_per_radian * fabs(angle));
    const size_t steps = wanted < 1 ? 1 : (size_t)wanted;
    vec v = from;
    for (size_t i = 0; i < steps; i++) {
        if (!put(g, at, v)) return false;
        v = (vec){v.x * g->cosine - g->sine * v.y, v.x * g->sine + v.y * g->cosine};
    }
    return put(g, at, to);
}

/* The corner between the edges whose normals are `from` and `to`. */
static bool grow_corner(grower *g, size_t at, size_t *before) {
    const vec from = g->normals[*before], to = g->normals[at];
    double sine = from.x * to.y - to.x * from.y;
    if (fabs(sine * g->delta) < 1.0 && from.x * to.x + from.y * to.y > 0) return put(g, at, from);
    *before = at;
    sine = sine > 1 ? 1 : sine < -1 ? -1 : sine;
    if (sine * g->delta < 0) return put(g, at, from) && put(g, at, (vec){0, 0}) && put(g, at, to);
    return round_corner(g, at, from, to, sine);
}

static void set_path(grower *g, const spot corners[4]) {
    for (int i = 0; i < 4; i++) {
        const pixel p = {(int32_t)corners[i].x, (int32_t)corners[i].y};
        if (g->n && g->path[g->n - 1].x == p.x && g->path[g->n - 1].y == p.y) continue;
        g->path[g->n++] = p;
    }
    while (g->n > 1 && g->path[0].x == g->path[g->n - 1].x && g->path[0].y == g->path[g->n - 1].y) g->n--;
    double area = 0;
    for (size_t i = 0; i < g->n; i++) {
        const pixel p = g->path[i], q = g->path[i + 1 == g->n ? 0 : i + 1];
        area += (double)p.x * q.y - (double)q.x * p.y;
    }
    for (size_t i = 0; area < 0 && i < g->n / 2; i++) {
        const pixel swap = g->path[i];
        g->path[i] = g->path[g->n - 1 - i];
        g->path[g->n - 1 - i] = swap;
    }
    for (size_t i = 0; i < g->n; i++) {
        const pixel p = g->path[i], q = g->path[i + 1 == g->n ? 0 : i + 1];
        const double dx = (double)q.x - p.x, dy = (double)q.y - p.y, length = sqrt(dx * dx + dy * dy);
        g->normals[i] = length > 0 ? (vec){dy / length, -dx / length} : (vec){0, 0};
    }
}

status polygon_grow(spot **points, size_t *n, const spot corners[4], double distance, arena *a, error *err) {
    const double two_pi = 6.283185307179586, pi = two_pi / 2;
    grower g = {.delta = distance, .memory = a};
    *points = NULL;
    *n = 0;
    set_path(&g, corners);
    if (g.n < 3) return CHURON_OK;
    if (!(distance > 0)) {
        for (size_t i = 0; i < g.n; i++) {
            if (!put(&g, i, (vec){0, 0})) return arena_refused(a, "a polygon", sizeof(spot), err);
        }
        *points = g.points;
        *n = g.n_points;
        return CHURON_OK;
    }
    const double tolerance = distance < 1 ? 0.25 * distance : 0.25;
    double steps = pi / acos(1 - tolerance / distance);
    if (steps > distance * pi) steps = distance * pi;
    g.sine = sin(two_pi / steps);
    g.cosine = cos(two_pi / steps);
    g.steps_per_radian = steps / two_pi;
    size_t before = g.n - 1;
    for (size_t i = 0; i < g.n; i++) {
        if (!grow_corner(&g, i, &before))
            return arena_refused(a, "a polygon", g.n_points * sizeof(spot), err);
    }
    *points = g.points;
    *n = g.n_points;
    return CHURON_OK;
}

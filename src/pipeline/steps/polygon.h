/* polygon.h: outlines of regions in a bitmap, the smallest rectangle around them, what they cover, and how
 * they grow: the rules of OpenCV's findContours, minAreaRect and fillPoly, and of Clipper's offset with round
 * joins.
 *
 * Coordinates are pixels, x to the right, y down. Threads: no state. */
#ifndef PIPELINE_STEPS_POLYGON_H
#define PIPELINE_STEPS_POLYGON_H

#include "base/arena.h"

typedef struct pixel {
    int32_t x, y;
} pixel;
typedef struct spot {
    float x, y;
} spot;

/* All borders of the regions of 8-connected pixels that are not 0, outer ones and those of holes (RETR_LIST),
 * in OpenCV's order; of straight runs only the ends (CHAIN_APPROX_SIMPLE). Border i: points[starts[i] …
 * starts[i + 1]). */
typedef struct outlines {
    pixel *points;
    size_t *starts; /* [n + 1] */
    size_t n;
} outlines;
/* width, height: at least 1, each at most 32,766. */
MUST_USE status outlines_trace(outlines *out, const uint8_t *bitmap, size_t width, size_t height, arena *a,
                               error *err);

typedef struct rectangle {
    spot corners[4]; /* around */
    float width, height;
} rectangle;
/* The rectangle of least area around n > 0 points. */
MUST_USE status rectangle_around(rectangle *out, const spot *points, size_t n, arena *a, error *err);

/* Mean of a map (rows of `width`) where a polygon covers it, border included; 0 where it covers nothing. Only
 * from `lo` to `hi`, which lie in the map; the points count from `lo`. */
MUST_USE status polygon_mean(double *out, const float *map, size_t width, pixel lo, pixel hi,
                             const pixel *points, size_t n, arena *a, error *err);

/* The polygon of 4 corners (cut to whole pixels) grown by `distance` >= 0, with round corners, as points that
 * a rectangle can be taken around. *n is 0 where the polygon is none. */
MUST_USE status polygon_grow(spot **points, size_t *n, const spot corners[4], double distance, arena *a,
                             error *err);

#endif

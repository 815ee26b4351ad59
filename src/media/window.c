/* window.c: windows of spectrum.h. */
#include "media/window.h"

#include "media/spectrum.h"

#include <math.h>

#define PI 3.14159265358979323846

double window_bessel_i0(double x) {
    const double q = x * x / 4;
    double sum = 1.0, term = 1.0;
    for (int k = 1; k < 500 && term > sum * 1e-17; k++) {
        term *= q / ((double)k * k);
        sum += term;
    }
    return sum;
}

static double value_of(window_kind k, double x, double parameter) { /* x: 0..1 through the window */
    const double c = cos(2 * PI * x);
    switch (k) {
    case WINDOW_HANN: return 0.5 - 0.5 * c;
    case WINDOW_HAMMING: return 0.54 - 0.46 * c;
    case WINDOW_BLACKMAN: return 0.42 - 0.5 * c + 0.08 * cos(4 * PI * x);
    case WINDOW_POVEY: return pow(0.5 - 0.5 * c, 0.85);
    case WINDOW_KAISER: {
        const double t = 2 * x - 1, inside = 1 - t * t;
        return window_bessel_i0(parameter * sqrt(inside > 0 ? inside : 0)) / window_bessel_i0(parameter);
    }
    default: return 1.0;
    }
}

void window_make(window_kind k, size_t n, bool periodic, double parameter, float *w) {
    const double period = n == 1 ? 1.0 : (double)(periodic ? n : n - 1);
    for (size_t i = 0; i < n; i++) w[i] = n == 1 ? 1.0f : (float)value_of(k, (double)i / period, parameter);
}

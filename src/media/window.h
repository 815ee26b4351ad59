/* window.h: what windows share with resampling. */
#ifndef MEDIA_WINDOW_H
#define MEDIA_WINDOW_H

/* The modified Bessel function of the first kind and order 0, by its series; |x| <= 100. */
double window_bessel_i0(double x);

#endif

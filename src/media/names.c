/* names.c: the words of this room's enumerations, as users write them. */
#include "media/audio.h"
#include "media/image.h"
#include "media/resize.h"
#include "media/spectrum.h"

static const char *name_of(const char *const *names, size_t n, size_t i) {
    return i < n ? names[i] : "unknown";
}

const char *image_format_name(image_format f) {
    static const char *const names[IMAGE_FORMAT_COUNT] = {"unknown", "JPEG", "PNG", "WebP", "GIF", "BMP"};
    return name_of(names, IMAGE_FORMAT_COUNT, (size_t)f);
}

const char *image_order_name(image_order o) {
    static const char *const names[IMAGE_ORDER_COUNT] = {"rgb", "bgr", "l", "rgba"};
    return name_of(names, IMAGE_ORDER_COUNT, (size_t)o);
}

const char *resize_rule_name(resize_rule r) {
    static const char *const names[RESIZE_RULE_COUNT] = {"pillow", "opencv", "torchvision", "pillow12"};
    return name_of(names, RESIZE_RULE_COUNT, (size_t)r);
}

const char *resize_filter_name(resize_filter f) {
    static const char *const names[RESIZE_FILTER_COUNT] = {"nearest", "bilinear", "bicubic",
                                                           "area",    "lanczos",  "hamming"};
    return name_of(names, RESIZE_FILTER_COUNT, (size_t)f);
}

const char *resample_preset_name(resample_preset p) {
    static const char *const names[RESAMPLE_PRESET_COUNT] = {"hann", "kaiser_fast", "kaiser_best"};
    return name_of(names, RESAMPLE_PRESET_COUNT, (size_t)p);
}

const char *window_name(window_kind k) {
    static const char *const names[WINDOW_COUNT] = {"rectangular", "hann",  "hamming",
                                                    "blackman",    "povey", "kaiser"};
    return name_of(names, WINDOW_COUNT, (size_t)k);
}

/* fuzz_image.c: any bytes as an image file, in every order of channels, then resized and normalised. Limits
 * are small, so that what passes them is decoded whole. */
#include "media/pixels.h"

#include "media/image.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile uint64_t sink;

static void use(const tensor *t) {
    static const resize_rule rules[] = {RESIZE_PILLOW, RESIZE_OPENCV, RESIZE_TORCHVISION};
    error err;
    const uint8_t *p = t->data;
    for (size_t i = 0; i < t->count; i++) sink += p[i];
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        tensor small;
        if (image_resize(&small, t, 5, 7, rules[i], RESIZE_BICUBIC, &err) != CHURON_OK) abort();
        tensor_free(&small);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    error err;
    for (int order = 0; order < IMAGE_ORDER_COUNT; order++) {
        const image_options o = {.order = (image_order)order,
                                 .alpha = order == IMAGE_BGR ? IMAGE_ALPHA_BLEND : IMAGE_ALPHA_DROP,
                                 .background = {1, 2, 3},
                                 .max_pixels = 1 << 16,
                                 .max_side = 1 << 12};
        image_info probed, info;
        tensor t;
        const status header = image_probe(&probed, data, size, &o, &err);
        if (header != CHURON_OK && !err.message[0]) abort();
        const status st = image_decode(&t, &info, data, size, &o, &err);
        if (st == CHURON_OK) {
            if (header != CHURON_OK || probed.width != info.width || probed.height != info.height) abort();
            if ((uint64_t)info.width * info.height > o.max_pixels ||
                (size_t)t.dims[2] != image_order_channels(o.order))
                abort();
            use(&t);
        } else if (!err.message[0] || t.data) {
            abort();
        }
        tensor_free(&t);
    }
    return 0;
}

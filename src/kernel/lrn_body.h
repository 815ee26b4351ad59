/* lrn_body.h: one pixel of a local response normalization over channels in blocks of 16, once for every
 * instruction set, over the operations that lanes.h names. See kernel.h, .lrn_pixel. */

static void lrn_body(const float *x, size_t block, size_t blocks, size_t size, float alpha, float bias,
                     float *squares, float *y) {
    float *own = squares + size; /* squares of channel 0 and on; zeros in front and behind */
    for (size_t b = 0; b < blocks; b++) {
        for (size_t l = 0; l < 16; l += V_LANES) {
            const V v = v_load(x + b * block + l);
            v_store(own + b * 16 + l, v_mul(v, v));
        }
    }
    const float *first = own - (size - 1) / 2;
    for (size_t b = 0; b < blocks; b++) {
        for (size_t l = 0; l < 16; l += V_LANES) {
            V sum = v_set(0.0f);
            for (size_t k = 0; k < size; k++) sum = v_add(sum, v_load(first + b * 16 + l + k));
            const V root = v_sqrt(v_add(v_set(bias), v_mul(v_set(alpha), sum)));
            v_store(y + b * block + l, v_div(v_load(x + b * block + l), v_mul(root, v_sqrt(root))));
        }
    }
}

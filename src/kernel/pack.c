/* pack.c: weights from file order into groups of 16 interleaved rows (layout: pack.h).
 *
 * Rows are read a block at a time and written as 32-bit words into their lanes. Words are little-endian in
 * the file and in memory. */
#include "kernel/pack.h"

#include "base/mem.h"

#include <string.h>

const uint8_t pack_iq4nl_codes[16] = {1,   24,  45,  63,  79,  93,  106, 118,
                                      129, 141, 153, 166, 181, 197, 217, 241};

static const pack_layout layouts[DTYPE_COUNT] = {
    [DTYPE_F32] = {.span = 1, .unit_bytes = 64},
    [DTYPE_F16] = {.span = 1, .unit_bytes = 32},
    [DTYPE_BF16] = {.span = 1, .unit_bytes = 32},
    [DTYPE_Q4_0] = {.span = 32, .unit_bytes = 288, .q_bytes = 256, .d = 256, .low_bits = 4, .bias = 8},
    [DTYPE_Q4_1] =
        {.span = 32, .unit_bytes = 320, .q_bytes = 256, .d = 256, .m = 288, .low_bits = 4, .has_min = true},
    [DTYPE_Q5_0] =
        {.span = 32, .unit_bytes = 352, .q_bytes = 320, .d = 320, .low_bits = 4, .high_bits = 1, .bias = 16},
    [DTYPE_Q5_1] = {.span = 32,
                    .unit_bytes = 384,
                    .q_bytes = 320,
                    .d = 320,
                    .m = 352,
                    .low_bits = 4,
                    .high_bits = 1,
                    .has_min = true},
    [DTYPE_Q8_0] = {.span = 32, .unit_bytes = 544, .q_bytes = 512, .d = 512, .low_bits = 8, .bias = 128},
    [DTYPE_IQ4_NL] = {.span = 32, .unit_bytes = 288, .q_bytes = 256, .d = 256, .low_bits = 4, .bias = 128},
    [DTYPE_Q2_K] = {.span = 256,
                    .unit_bytes = 1344,
                    .q = 320,
                    .q_bytes = 128,
                    .m = 32,
                    .sub_scale = 64,
                    .low_bits = 2,
                    .scale16 = true,
                    .has_min = true},
    [DTYPE_Q3_K] = {.span = 256,
                    .unit_bytes = 1824,
                    .q = 288,
                    .q_bytes = 192,
                    .sub_scale = 32,
                    .low_bits = 2,
                    .high_bits = 1,
                    .bias = 4,
                    .scale16 = true},
    [DTYPE_Q4_K] = {.span = 256,
                    .unit_bytes = 2368,
                    .q = 320,
                    .q_bytes = 256,
                    .m = 32,
                    .sub_scale = 64,
                    .sub_min = 192,
                    .low_bits = 4,
                    .has_min = true},
    [DTYPE_Q5_K] = {.span = 256,
                    .unit_bytes = 2880,
                    .q = 320,
                    .q_bytes = 320,
                    .m = 32,
                    .sub_scale = 64,
                    .sub_min = 192,
                    .low_bits = 4,
                    .high_bits = 1,
                    .has_min = true},
    [DTYPE_Q6_K] = {.span = 256,
                    .unit_bytes = 3360,
                    .q = 288,
                    .q_bytes = 384,
                    .sub_scale = 32,
                    .low_bits = 4,
                    .high_bits = 2,
                    .bias = 32,
                    .scale16 = true},
};

const pack_layout *pack_describe(dtype type) {
    return &layouts[type];
}

/* ---- sizes ------------------------------------------------------------------------------------------- */

static size_t group_bytes_of(dtype type, size_t cols) {
    const pack_layout *l = &layouts[type];
    size_t bytes;
    if (cols % dtype_describe(type)->block != 0 || !size_mul(cols / l->span, l->unit_bytes, &bytes)) return 0;
    return size_add(bytes, 63, &bytes) ? bytes & ~(size_t)63 : 0;
}

size_t pack_bytes(dtype type, size_t rows, size_t cols) {
    size_t group = group_bytes_of(type, cols), bytes;
    if (rows > SIZE_MAX - PACK_ROWS) return 0;
    return size_mul((rows + PACK_ROWS - 1) / PACK_ROWS, group, &bytes) ? bytes : 0;
}

void pack_init(packed *out, dtype type, size_t rows, size_t cols, void *memory) {
    *out = (packed){
        .type = type, .rows = rows, .cols = cols, .group_bytes = group_bytes_of(type, cols), .data = memory};
}

/* ---- one row ----------------------------------------------------------------------------------------- */

static void put32(uint8_t *line, size_t lane, uint32_t word) {
    memcpy(line + 4 * lane, &word, 4);
}

static void put16(uint8_t *at, size_t lane, const uint8_t *bytes) {
    memcpy(at + 2 * lane, bytes, 2);
}

/* Writes the 32 stored values v of one row into its lane of a block. */
static void put_values(const pack_layout *l, uint8_t *block, size_t lane, const uint8_t *v) {
    uint32_t w[8];
    memcpy(w, v, sizeof w);
    if (l->low_bits == 8) {
        for (size_t t = 0; t < 8; t++) put32(block + 64 * t, lane, w[t]);
        return;
    }
    if (l->low_bits == 4) {
        for (size_t j = 0; j < 4; j++) {
            put32(block + 64 * j, lane, (w[j] & 0x0f0f0f0f) | (w[j + 4] & 0x0f0f0f0f) << 4);
        }
        block += 256;
    } else {
        for (size_t p = 0; p < 2; p++) {
            uint32_t word = 0;
            for (size_t i = 0; i < 4; i++) word |= (w[4 * p + i] & 0x03030303) << 2 * i;
            put32(block + 64 * p, lane, word);
        }
        block += 128;
    }
    for (size_t t = 0; t < 8; t++) w[t] >>= l->low_bits;
    if (l->high_bits == 1) {
        uint32_t word = 0;
        for (size_t t = 0; t < 8; t++) word |= (w[t] & 0x01010101) << t;
        put32(block, lane, word);
    } else if (l->high_bits == 2) {
        for (size_t p = 0; p < 2; p++) {
            uint32_t word = 0;
            for (size_t i = 0; i < 4; i++) word |= (w[4 * p + i] & 0x03030303) << 2 * i;
            put32(block + 64 * p, lane, word);
        }
    }
}

/* Nibbles of one row lie in the file as they lie in a lane. */
static void put_nibbles(uint8_t *block, size_t lane, const uint8_t *nibbles) {
    for (size_t j = 0; j < 4; j++) memcpy(block + 64 * j + 4 * lane, nibbles + 4 * j, 4);
}

/* The fifth bits of Q5_0 and Q5_1: bit k of the file's word belongs to value k. */
static void put_fifth_bits(uint8_t *plane, size_t lane, const uint8_t *bits) {
    uint32_t file, word = 0;
    memcpy(&file, bits, 4);
    for (size_t byte = 0; byte < 4; byte++) {
        for (size_t t = 0; t < 8; t++) word |= (file >> (4 * t + byte) & 1) << (8 * byte + t);
    }
    put32(plane, lane, word);
}

static void put_block(dtype type, uint8_t *unit, size_t lane, const uint8_t *src) {
    const pack_layout *l = &layouts[type];
    put16(unit + l->d, lane, src);
    src += 2;
    if (l->has_min) {
        put16(unit + l->m, lane, src);
        src += 2;
    }
    if (type == DTYPE_Q8_0) {
        uint8_t v[32];
        for (size_t i = 0; i < 32; i++) v[i] = src[i] ^ 0x80;
        put_values(l, unit, lane, v);
        return;
    }
    if (l->high_bits == 1) {
        put_fifth_bits(unit + 256, lane, src);
        src += 4;
    }
    put_nibbles(unit, lane, src);
}

/* ---- K-quants: 256 values of one row ----------------------------------------------------------------- */

static void put_q2_k(uint8_t *unit, size_t lane, const uint8_t *src) {
    const pack_layout *l = &layouts[DTYPE_Q2_K];
    const uint8_t *qs = src + 16;
    put16(unit + l->d, lane, src + 80);
    put16(unit + l->m, lane, src + 82);
    for (size_t i = 0; i < 16; i++) unit[l->sub_scale + 16 * i + lane] = src[i];
    for (size_t b = 0; b < 8; b++) {
        uint8_t v[32];
        for (size_t i = 0; i < 32; i++) v[i] = qs[b / 4 * 32 + i] >> b % 4 * 2 & 3;
        put_values(l, unit + l->q + b * l->q_bytes, lane, v);
    }
}

static void put_q3_k(uint8_t *unit, size_t lane, const uint8_t *src) {
    const pack_layout *l = &layouts[DTYPE_Q3_K];
    const uint8_t *high = src, *qs = src + 32, *scales = src + 96;
    put16(unit + l->d, lane, src + 108);
    for (size_t i = 0; i < 16; i++) {
        int low = i < 8 ? scales[i] & 15 : scales[i - 8] >> 4;
        int top = scales[8 + i % 4] >> i / 4 * 2 & 3;
        unit[l->sub_scale + 16 * i + lane] = (uint8_t)((low | top << 4) - 32);
    }
    for (size_t b = 0; b < 8; b++) {
        uint8_t v[32];
        for (size_t i = 0; i < 32; i++) {
            v[i] = (uint8_t)((qs[b / 4 * 32 + i] >> b % 4 * 2 & 3) | (high[i] >> b & 1) << 2);
        }
        put_values(l, unit + l->q + b * l->q_bytes, lane, v);
    }
}

static void put_q4_q5_k(dtype type, uint8_t *unit, size_t lane, const uint8_t *src) {
    const pack_layout *l = &layouts[type];
    const uint8_t *s = src + 4, *high = src + 16, *qs = type == DTYPE_Q5_K ? src + 48 : src + 16;
    put16(unit + l->d, lane, src);
    put16(unit + l->m, lane, src + 2);
    for (size_t j = 0; j < 8; j++) {
        int scale = j < 4 ? s[j] & 63 : (s[j + 4] & 15) | s[j - 4] >> 6 << 4;
        int min = j < 4 ? s[j + 4] & 63 : s[j + 4] >> 4 | s[j] >> 6 << 4;
        unit[l->sub_scale + 16 * j + lane] = (uint8_t)scale;
        unit[l->sub_min + 16 * j + lane] = (uint8_t)min;
    }
    for (size_t b = 0; b < 8; b++) {
        uint8_t v[32];
        for (size_t i = 0; i < 32; i++) v[i] = qs[b / 2 * 32 + i] >> b % 2 * 4 & 15;
        if (type == DTYPE_Q5_K) {
            for (size_t i = 0; i < 32; i++) v[i] = (uint8_t)(v[i] | (high[i] >> b & 1) << 4);
        }
        put_values(l, unit + l->q + b * l->q_bytes, lane, v);
    }
}

static void put_q6_k(uint8_t *unit, size_t lane, const uint8_t *src) {
    const pack_layout *l = &layouts[DTYPE_Q6_K];
    put16(unit + l->d, lane, src + 208);
    for (size_t i = 0; i < 16; i++) unit[l->sub_scale + 16 * i + lane] = src[192 + i];
    for (size_t b = 0; b < 8; b++) {
        const uint8_t *low = src + b / 4 * 64 + b % 2 * 32, *high = src + 128 + b / 4 * 32;
        uint8_t v[32];
        for (size_t i = 0; i < 32; i++) {
            v[i] = (uint8_t)((low[i] >> b % 4 / 2 * 4 & 15) | (high[i] >> b % 4 * 2 & 3) << 4);
        }
        put_values(l, unit + l->q + b * l->q_bytes, lane, v);
    }
}

/* ---- groups ------------------------------------------------------------------------------------------ */

/* [lanes][n] values of 4 or 2 bytes, rows row_bytes apart, to [n][16]. */
static void put_floats4(uint8_t *group, const uint8_t *rows, size_t row_bytes, size_t n, size_t lanes) {
    for (size_t k = 0; k < n; k++) {
        for (size_t lane = 0; lane < lanes; lane++) {
            memcpy(group + 4 * (PACK_ROWS * k + lane), rows + lane * row_bytes + 4 * k, 4);
        }
    }
}

static void put_floats2(uint8_t *group, const uint8_t *rows, size_t row_bytes, size_t n, size_t lanes) {
    for (size_t k = 0; k < n; k++) {
        for (size_t lane = 0; lane < lanes; lane++) {
            memcpy(group + 2 * (PACK_ROWS * k + lane), rows + lane * row_bytes + 2 * k, 2);
        }
    }
}

static void put_unit(dtype type, uint8_t *unit, size_t lane, const uint8_t *src) {
    switch (type) {
    case DTYPE_Q2_K: put_q2_k(unit, lane, src); break;
    case DTYPE_Q3_K: put_q3_k(unit, lane, src); break;
    case DTYPE_Q4_K:
    case DTYPE_Q5_K: put_q4_q5_k(type, unit, lane, src); break;
    case DTYPE_Q6_K: put_q6_k(unit, lane, src); break;
    default: put_block(type, unit, lane, src); break;
    }
}

/* Units of all rows before the next unit: writes are linear, reads are 16 linear streams. */
void pack_groups(const packed *out, const void *source, size_t g0, size_t g1) {
    const pack_layout *l = &layouts[out->type];
    size_t units = out->cols / l->span, row_bytes = dtype_row_bytes(out->type, out->cols);
    size_t src_bytes = dtype_row_bytes(out->type, l->span);
    for (size_t g = g0; g < g1; g++) {
        uint8_t *group = out->data + g * out->group_bytes;
        const uint8_t *first = (const uint8_t *)source + g * PACK_ROWS * row_bytes;
        size_t lanes = out->rows - g * PACK_ROWS < PACK_ROWS ? out->rows - g * PACK_ROWS : PACK_ROWS;
        if (lanes < PACK_ROWS) memset(group, 0, out->group_bytes);
        memset(group + units * l->unit_bytes, 0, out->group_bytes - units * l->unit_bytes);
        if (out->type == DTYPE_F32) put_floats4(group, first, row_bytes, units, lanes);
        if (out->type == DTYPE_F16 || out->type == DTYPE_BF16)
            put_floats2(group, first, row_bytes, units, lanes);
        for (size_t u = 0; u < units && !dtype_is_float(out->type); u++) {
            for (size_t lane = 0; lane < lanes; lane++) {
                put_unit(out->type, group + u * l->unit_bytes, lane,
                         first + lane * row_bytes + u * src_bytes);
            }
        }
    }
}

/* dtype.c: see dtype.h. Each decode function below defines its format, operation by operation: f32
 * arithmetic, no fused multiply-add, in the order written. All numbers in blocks are little-endian. */
#include "tensor/dtype.h"

#include <assert.h>
#include <string.h>

/* ---- scalars ---------------------------------------------------------------------------------------- */

static float f32_from_bits(uint32_t bits) {
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static uint32_t f32_to_bits(float f) {
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

float f16_to_f32(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    uint32_t exponent = h >> 10 & 0x1fu;
    uint32_t fraction = h & 0x3ffu;
    if (exponent == 0x1f) { /* infinity, or NaN, which comes out quiet as the hardware's conversion does */
        return f32_from_bits(sign | 0x7f800000u | fraction << 13 | (fraction ? 0x400000u : 0));
    }
    if (exponent == 0) { /* zero or subnormal: fraction * 2^-24 is exact in f32 */
        float magnitude = (float)fraction * 0x1p-24f;
        return f32_from_bits(sign | f32_to_bits(magnitude));
    }
    return f32_from_bits(sign | (exponent + 112) << 23 | fraction << 13);
}

uint16_t f32_to_f16(float f) {
    uint32_t bits = f32_to_bits(f);
    uint32_t sign = bits >> 16 & 0x8000u;
    uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return (uint16_t)(sign | 0x7e00u | (magnitude >> 13 & 0x3ffu));
    if (magnitude >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u); /* 65520 and above round to infinity */
    if (magnitude >= 0x38800000u) {                                  /* normal: 2^-14 and above */
        uint32_t odd = magnitude >> 13 & 1u;
        return (uint16_t)(sign | ((magnitude + 0xfffu + odd - (112u << 23)) >> 13));
    }
    if (magnitude <= 0x33000000u) return (uint16_t)sign; /* up to 2^-25, which ties to even: zero */
    uint32_t shift = 126 - (magnitude >> 23);            /* 14 .. 24; result is value * 2^24 */
    uint32_t significand = (magnitude & 0x7fffffu) | 0x800000u;
    uint32_t whole = significand >> shift;
    uint32_t rest = significand & ((1u << shift) - 1);
    uint32_t half = 1u << (shift - 1);
    if (rest > half || (rest == half && (whole & 1u))) whole++;
    return (uint16_t)(sign | whole);
}

float bf16_to_f32(uint16_t h) {
    return f32_from_bits((uint32_t)h << 16);
}

static uint16_t read_u16(const uint8_t *p) {
    return (uint16_t)(p[0] | p[1] << 8);
}

static uint32_t read_u32(const uint8_t *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static float read_f16(const uint8_t *p) {
    return f16_to_f32(read_u16(p));
}

/* ---- blocks of 32 ----------------------------------------------------------------------------------- */

/* f16 d; u8 q[16]: low nibbles are values 0..15, high nibbles 16..31; d * (q - 8) */
static void decode_q4_0(const uint8_t *b, float *y) {
    float d = read_f16(b);
    const uint8_t *q = b + 2;
    for (int i = 0; i < 16; i++) {
        y[i] = d * (float)((q[i] & 15) - 8);
        y[i + 16] = d * (float)((q[i] >> 4) - 8);
    }
}

/* f16 d, m; u8 q[16] as above; d * q + m */
static void decode_q4_1(const uint8_t *b, float *y) {
    float d = read_f16(b), m = read_f16(b + 2);
    const uint8_t *q = b + 4;
    for (int i = 0; i < 16; i++) {
        y[i] = d * (float)(q[i] & 15) + m;
        y[i + 16] = d * (float)(q[i] >> 4) + m;
    }
}

/* f16 d; u32 fifth bits, bit i for value i; u8 q[16]; d * (q - 16) */
static void decode_q5_0(const uint8_t *b, float *y) {
    float d = read_f16(b);
    uint32_t high = read_u32(b + 2);
    const uint8_t *q = b + 6;
    for (int i = 0; i < 16; i++) {
        y[i] = d * (float)((int)((q[i] & 15u) | (high >> i & 1u) << 4) - 16);
        y[i + 16] = d * (float)((int)(q[i] >> 4 | (high >> (i + 16) & 1u) << 4) - 16);
    }
}

/* f16 d, m; u32 fifth bits; u8 q[16]; d * q + m */
static void decode_q5_1(const uint8_t *b, float *y) {
    float d = read_f16(b), m = read_f16(b + 2);
    uint32_t high = read_u32(b + 4);
    const uint8_t *q = b + 8;
    for (int i = 0; i < 16; i++) {
        y[i] = d * (float)((q[i] & 15u) | (high >> i & 1u) << 4) + m;
        y[i + 16] = d * (float)(q[i] >> 4 | (high >> (i + 16) & 1u) << 4) + m;
    }
}

/* f16 d; i8 q[32]; d * q */
static void decode_q8_0(const uint8_t *b, float *y) {
    float d = read_f16(b);
    for (int i = 0; i < 32; i++) y[i] = d * (float)(int8_t)b[2 + i];
}

/* f16 d; u8 q[16]; d * value[q], values spaced more densely around zero */
static void decode_iq4_nl(const uint8_t *b, float *y) {
    static const int8_t value[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                     1,    13,   25,  38,  53,  69,  89,  113};
    float d = read_f16(b);
    const uint8_t *q = b + 2;
    for (int i = 0; i < 16; i++) {
        y[i] = d * (float)value[q[i] & 15];
        y[i + 16] = d * (float)value[q[i] >> 4];
    }
}

/* ---- blocks of 256 ---------------------------------------------------------------------------------- */

/* u8 scale[16]: low nibble scale, high nibble minimum of 16 values each; u8 q[64]; f16 d, dmin.
 * Half h (128 values) takes 32 bytes of q; its group g of 32 values takes bits 2g. */
static void decode_q2_k(const uint8_t *b, float *y) {
    const uint8_t *scale = b, *q = b + 16;
    float d = read_f16(b + 80), dmin = read_f16(b + 82);
    for (int i = 0; i < 256; i++) {
        int half = i / 128, group = i / 32 % 4, s = scale[i / 16];
        int v = q[half * 32 + i % 32] >> (2 * group) & 3;
        y[i] = d * (float)(s & 15) * (float)v - dmin * (float)(s >> 4);
    }
}

/* u8 high[32]: bit i/32 of byte i%32, set: no subtraction of 4; u8 q[64] as q2_k; u8 scale[12]: sixteen
 * 6-bit scales, biased by 32 (low nibbles in bytes 0..7, top two bits in bytes 8..11); f16 d. */
static void decode_q3_k(const uint8_t *b, float *y) {
    const uint8_t *high = b, *q = b + 32, *packed = b + 96;
    float d = read_f16(b + 108);
    float scale[16];
    for (int s = 0; s < 16; s++) {
        int low = packed[s % 8] >> (4 * (s / 8)) & 15;
        int top = packed[8 + s % 4] >> (2 * (s / 4)) & 3;
        scale[s] = d * (float)((low | top << 4) - 32);
    }
    for (int i = 0; i < 256; i++) {
        int half = i / 128, group = i / 32 % 4;
        int v = q[half * 32 + i % 32] >> (2 * group) & 3;
        v -= (high[i % 32] >> (i / 32) & 1) ? 0 : 4;
        y[i] = scale[i / 16] * (float)v;
    }
}

/* Scale and minimum j (0..7) of the 12 bytes that q4_k and q5_k share: 6 bits each; the first four lie in the
 * low bits of bytes 0..3 and 4..7, the others in nibbles of bytes 8..11 with their top bits above the first
 * four. */
static void k_scale_min(const uint8_t *p, int j, int *scale, int *min) {
    if (j < 4) {
        *scale = p[j] & 63;
        *min = p[j + 4] & 63;
    } else {
        *scale = (p[j + 4] & 15) | p[j - 4] >> 6 << 4;
        *min = p[j + 4] >> 4 | p[j] >> 6 << 4;
    }
}

/* f16 d, dmin; 12 bytes of scales and minima for eight groups of 32; u8 q[128]: 64 values to 32 bytes, low
 * nibbles first. */
static void decode_q4_k(const uint8_t *b, float *y) {
    float d = read_f16(b), dmin = read_f16(b + 2);
    const uint8_t *q = b + 16;
    for (int g = 0; g < 8; g++) {
        int s, m;
        k_scale_min(b + 4, g, &s, &m);
        float scale = d * (float)s, min = dmin * (float)m;
        for (int i = 0; i < 32; i++) {
            int v = q[g / 2 * 32 + i] >> (4 * (g % 2)) & 15;
            y[g * 32 + i] = scale * (float)v - min;
        }
    }
}

/* As q4_k with u8 high[32] before q: bit g of byte i is the fifth bit of value i of group g. */
static void decode_q5_k(const uint8_t *b, float *y) {
    float d = read_f16(b), dmin = read_f16(b + 2);
    const uint8_t *high = b + 16, *q = b + 48;
    for (int g = 0; g < 8; g++) {
        int s, m;
        k_scale_min(b + 4, g, &s, &m);
        float scale = d * (float)s, min = dmin * (float)m;
        for (int i = 0; i < 32; i++) {
            int v = (q[g / 2 * 32 + i] >> (4 * (g % 2)) & 15) | (high[i] >> g & 1) << 4;
            y[g * 32 + i] = scale * (float)v - min;
        }
    }
}

/* u8 low[128], high[64]; i8 scale[16]; f16 d. Half h has 64 bytes of low and 32 of high; its group g of 32
 * values takes nibble g/2 of bytes 32*(g%2).. and bits 2g of high; 32 is subtracted. */
static void decode_q6_k(const uint8_t *b, float *y) {
    const uint8_t *low = b, *high = b + 128, *scale = b + 192;
    float d = read_f16(b + 208);
    for (int i = 0; i < 256; i++) {
        int half = i / 128, group = i / 32 % 4, k = i % 32;
        int v = low[half * 64 + group % 2 * 32 + k] >> (4 * (group / 2)) & 15;
        v |= (high[half * 32 + k] >> (2 * group) & 3) << 4;
        y[i] = d * (float)(int8_t)scale[i / 16] * (float)(v - 32);
    }
}

/* ---- plain values, as blocks of one ----------------------------------------------------------------- */

static void decode_f32(const uint8_t *b, float *y) {
    *y = f32_from_bits(read_u32(b));
}

static void decode_f16(const uint8_t *b, float *y) {
    *y = read_f16(b);
}

static void decode_bf16(const uint8_t *b, float *y) {
    *y = bf16_to_f32(read_u16(b));
}

/* ---- the table -------------------------------------------------------------------------------------- */

typedef struct format {
    dtype_info info;
    const char *upper;
    void (*decode)(const uint8_t *block, float *out);
} format;

static const format formats[DTYPE_COUNT] = {
    [DTYPE_F32] = {{"f32", 1, 4}, "F32", decode_f32},
    [DTYPE_F16] = {{"f16", 1, 2}, "F16", decode_f16},
    [DTYPE_BF16] = {{"bf16", 1, 2}, "BF16", decode_bf16},
    [DTYPE_Q4_0] = {{"q4_0", 32, 18}, "Q4_0", decode_q4_0},
    [DTYPE_Q4_1] = {{"q4_1", 32, 20}, "Q4_1", decode_q4_1},
    [DTYPE_Q5_0] = {{"q5_0", 32, 22}, "Q5_0", decode_q5_0},
    [DTYPE_Q5_1] = {{"q5_1", 32, 24}, "Q5_1", decode_q5_1},
    [DTYPE_Q8_0] = {{"q8_0", 32, 34}, "Q8_0", decode_q8_0},
    [DTYPE_Q2_K] = {{"q2_k", 256, 84}, "Q2_K", decode_q2_k},
    [DTYPE_Q3_K] = {{"q3_k", 256, 110}, "Q3_K", decode_q3_k},
    [DTYPE_Q4_K] = {{"q4_k", 256, 144}, "Q4_K", decode_q4_k},
    [DTYPE_Q5_K] = {{"q5_k", 256, 176}, "Q5_K", decode_q5_k},
    [DTYPE_Q6_K] = {{"q6_k", 256, 210}, "Q6_K", decode_q6_k},
    [DTYPE_IQ4_NL] = {{"iq4_nl", 32, 18}, "IQ4_NL", decode_iq4_nl},
};

const dtype_info *dtype_describe(dtype type) {
    assert((unsigned)type < DTYPE_COUNT);
    return &formats[type].info;
}

const char *dtype_name(dtype type) {
    assert((unsigned)type < DTYPE_COUNT);
    return formats[type].upper;
}

size_t dtype_row_bytes(dtype type, size_t n) {
    const dtype_info *info = dtype_describe(type);
    assert(n % info->block == 0);
    return n / info->block * info->bytes;
}

bool dtype_is_float(dtype type) {
    return type == DTYPE_F32 || type == DTYPE_F16 || type == DTYPE_BF16;
}

void dtype_to_f32(dtype type, const void *row, float *out, size_t n) {
    const format *f = &formats[type];
    assert(n % f->info.block == 0);
    const uint8_t *block = row;
    for (size_t i = 0; i < n; i += f->info.block, block += f->info.bytes) f->decode(block, out + i);
}

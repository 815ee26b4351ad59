/* pack.h: how packed weights lie in memory, for the kernels that read them.
 *
 * A group is 16 rows. Its K is cut into units (1 value for float types, 32 or 256 for quantized ones), each
 * unit holds all 16 rows. A line is 64 bytes: 16 lanes of 4 bytes, lane = row; AVX2 takes half a line (8
 * rows) at a time. In quantized types word t (0..7) of a block of 32 values is k = 4t..4t+3, one byte a
 * value, stored as value + bias >= 0. The bits of a block lie in this order: 8-bit types   8 lines, line t =
 * word t 4-bit part    4 lines, line j = word j in the low nibbles, word j+4 in the high ones 2-bit part    2
 * lines, bits 2i..2i+1 of line p = word 4p+i 1-bit part    1 line, bit t = word t (Q5: 4-bit part, then bit 4
 * as 1-bit part; Q6: 4-bit part, then bits 4-5 as 2-bit part; Q3: 2-bit part, then bit 2 as 1-bit part.)
 * Scales stand beside them: f16 d[16], m[16]; K-quants have integer sub-scales [sub][16] as bytes. Scale of a
 * block = d * sub-scale in f32, which is exact. Float types: unit k = one value of each row. */
#ifndef KERNEL_PACK_H
#define KERNEL_PACK_H

#include "kernel/kernel.h"

typedef struct pack_layout {
    uint16_t span;               /* values of one row in a unit: 1, 32 or 256 */
    uint16_t unit_bytes;         /* of 16 rows */
    uint16_t q, q_bytes;         /* offset in a unit and distance of the blocks of 32 */
    uint16_t d, m;               /* offsets of f16 [16]; m only where has_min */
    uint16_t sub_scale, sub_min; /* offsets of bytes [sub][16], K-quants only */
    uint8_t low_bits, high_bits; /* 8; 4 and 0, 1, 2; 2 and 0, 1 */
    uint8_t bias;                /* stored = value + bias; IQ4_NL: table value + bias */
    bool scale16;                /* a scale for 16 values instead of 32 */
    bool has_min;                /* value = scale * stored + min */
} pack_layout;

/* Layout of a type. Static. */
const pack_layout *pack_describe(dtype type);

/* Values of IQ4_NL's 16 codes, + 128. */
extern const uint8_t pack_iq4nl_codes[16];

/* Rows unpacked at a time for many tokens, tokens that such a panel meets before the next one, and for float
 * types values of K taken at a time: panel and tokens stay in the second-level cache. */
enum { PANEL_ROWS = 32, PANEL_TOKENS = 192, FLOAT_BLOCK = 512 };

/* Activations of a block smaller than this (2^-100) count as zero: 127 / them may overflow. */
#define QUANTIZE_LEAST 0x1p-100f

static inline float pack_word_as_float(uint32_t bits) {
    union {
        uint32_t u;
        float f;
    } v = {.u = bits};
    return v.f;
}

#endif

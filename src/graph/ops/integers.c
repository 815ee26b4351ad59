#include "graph/ops/integers.h"

bool integers_hold(elem e) {
    return (ELEM_BIT(e) & ELEMS_INT) || e == ELEM_BOOL || e == ELEM_I4 || e == ELEM_U4 || e == ELEM_I2 ||
           e == ELEM_U2;
}

void integers_load(elem e, const void *from, int64_t *to, size_t n) {
#define LOAD(T)                                                                                              \
    for (size_t i = 0; i < n; i++) to[i] = (int64_t)((const T *)from)[i];                                    \
    break
    switch (e) {
    case ELEM_I8:
    case ELEM_I4:
    case ELEM_I2: LOAD(int8_t);
    case ELEM_U16: LOAD(uint16_t);
    case ELEM_I16: LOAD(int16_t);
    case ELEM_U32: LOAD(uint32_t);
    case ELEM_I32: LOAD(int32_t);
    case ELEM_U64: LOAD(uint64_t);
    case ELEM_I64: LOAD(int64_t);
    default: LOAD(uint8_t);
    }
}

int64_t integers_low_bits(int64_t v, unsigned bits, bool with_sign) {
    int64_t mask = ((int64_t)1 << bits) - 1, low = v & mask;
    return with_sign && (low >> (bits - 1)) ? low - mask - 1 : low;
}

void integers_store(elem e, const int64_t *from, void *to, size_t n) {
#define STORE(T, EXPR)                                                                                       \
    for (size_t i = 0; i < n; i++) {                                                                         \
        int64_t v = from[i];                                                                                 \
        ((T *)to)[i] = (T)(EXPR);                                                                            \
    }                                                                                                        \
    break
    switch (e) {
    case ELEM_BOOL: STORE(uint8_t, v != 0);
    case ELEM_U8: STORE(uint8_t, v);
    case ELEM_I8: STORE(int8_t, v);
    case ELEM_U16: STORE(uint16_t, v);
    case ELEM_I16: STORE(int16_t, v);
    case ELEM_U32: STORE(uint32_t, v);
    case ELEM_I32: STORE(int32_t, v);
    case ELEM_U64: STORE(uint64_t, v);
    case ELEM_I4: STORE(int8_t, integers_low_bits(v, 4, true));
    case ELEM_U4: STORE(uint8_t, integers_low_bits(v, 4, false));
    case ELEM_I2: STORE(int8_t, integers_low_bits(v, 2, true));
    case ELEM_U2: STORE(uint8_t, integers_low_bits(v, 2, false));
    default: STORE(int64_t, v);
    }
}

/* npy.c: see npy.h. */
#include "tensor/npy.h"

#include "base/file.h"
#include "base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

typedef struct npy_header {
    char kind;    /* b i u f c S U V */
    size_t width; /* the number behind it */
    bool swapped; /* big-endian */
    bool fortran;
    size_t rank;
    int64_t dims[TENSOR_MAX_RANK];
    char descr[24]; /* as it stands there, for messages */
} npy_header;

/* ---- the header ------------------------------------------------------------------------------------- */

typedef struct cursor {
    const char *at, *end;
} cursor;

static void skip_blanks(cursor *c) {
    while (c->at < c->end && (*c->at == ' ' || *c->at == '\n' || *c->at == '\t')) c->at++;
}

static bool take(cursor *c, char what) {
    skip_blanks(c);
    if (c->at == c->end || *c->at != what) return false;
    c->at++;
    return true;
}

static bool take_word(cursor *c, const char *word) {
    skip_blanks(c);
    size_t n = strlen(word);
    if ((size_t)(c->end - c->at) < n || memcmp(c->at, word, n) != 0) return false;
    c->at += n;
    return true;
}

/* 'text' or "text" without escapes. */
static bool take_quoted(cursor *c, const char **text, size_t *n) {
    skip_blanks(c);
    if (c->at == c->end || (*c->at != '\'' && *c->at != '"')) return false;
    char quote = *c->at++;
    const char *close = memchr(c->at, quote, (size_t)(c->end - c->at));
    if (!close) return false;
    *text = c->at;
    *n = (size_t)(close - c->at);
    c->at = close + 1;
    return true;
}

static bool take_number(cursor *c, int64_t *out) {
    skip_blanks(c);
    const char *from = c->at;
    int64_t v = 0;
    for (; c->at < c->end && *c->at >= '0' && *c->at <= '9'; c->at++) {
        if (v > (INT64_MAX - 9) / 10) return false;
        v = v * 10 + (*c->at - '0');
    }
    *out = v;
    return c->at > from;
}

static bool take_shape(cursor *c, npy_header *h) {
    if (!take(c, '(')) return false;
    h->rank = 0;
    while (!take(c, ')')) {
        if (h->rank == TENSOR_MAX_RANK || !take_number(c, &h->dims[h->rank])) return false;
        h->rank++;
        (void)take(c, 'L'); /* as Python 2 wrote it */
        if (take(c, ',')) continue;
        if (!take(c, ')')) return false;
        break;
    }
    return true;
}

static bool read_descr(const char *text, size_t n, npy_header *h) {
    cursor c = {text, text + n};
    if (n < 2) return false;
    snprintf(h->descr, sizeof h->descr, "%.*s", (int)(n < sizeof h->descr ? n : sizeof h->descr - 1), text);
    h->swapped = *c.at == '>';
    if (strchr("<>|=", *c.at)) c.at++;
    if (c.at == c.end) return false;
    h->kind = *c.at++;
    int64_t width = 0; /* objects have none, times a unit behind it */
    if (c.at < c.end && !take_number(&c, &width)) return false;
    if (width < 0 || width > 1 << 24) return false;
    h->width = c.at == c.end ? (size_t)width : 0;
    return true;
}

static bool read_dictionary(cursor *c, npy_header *h) {
    bool descr = false, order = false, shape = false;
    if (!take(c, '{')) return false;
    while (!take(c, '}')) {
        const char *key, *text;
        size_t n, k;
        if (!take_quoted(c, &key, &n) || !take(c, ':')) return false;
        if (n == 5 && memcmp(key, "descr", 5) == 0) {
            descr = take_quoted(c, &text, &k) && read_descr(text, k, h);
            if (!descr) return false;
        } else if (n == 13 && memcmp(key, "fortran_order", 13) == 0) {
            h->fortran = take_word(c, "True");
            order = h->fortran || take_word(c, "False");
            if (!order) return false;
        } else if (n == 5 && memcmp(key, "shape", 5) == 0) {
            shape = take_shape(c, h);
            if (!shape) return false;
        } else {
            return false;
        }
        (void)take(c, ',');
    }
    return descr && order && shape;
}

static elem type_of(const npy_header *h) {
    static const struct {
        char kind;
        size_t width;
        elem type;
    } types[] = {{'b', 1, ELEM_BOOL}, {'i', 1, ELEM_I8},    {'i', 2, ELEM_I16}, {'i', 4, ELEM_I32},
                 {'i', 8, ELEM_I64},  {'u', 1, ELEM_U8},    {'u', 2, ELEM_U16}, {'u', 4, ELEM_U32},
                 {'u', 8, ELEM_U64},  {'f', 2, ELEM_F16},   {'f', 4, ELEM_F32}, {'f', 8, ELEM_F64},
                 {'c', 8, ELEM_C64},  {'c', 16, ELEM_C128}, {'V', 2, ELEM_BF16}};
    if (h->kind == 'S' || h->kind == 'U') return ELEM_STRING;
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (types[i].kind == h->kind && types[i].width == h->width) return types[i].type;
    }
    return ELEM_NONE;
}

static size_t file_width(const npy_header *h) {
    return h->kind == 'U' ? h->width * 4 : h->width;
}

/* ---- elements --------------------------------------------------------------------------------------- */

static uint32_t code_point(const unsigned char *p, bool swapped) {
    return swapped ? (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3]
                   : (uint32_t)p[3] << 24 | (uint32_t)p[2] << 16 | (uint32_t)p[1] << 8 | p[0];
}

/* Text is padded with zeros to the width of the longest. */
static status read_string(tensor *out, size_t i, const npy_header *h, const unsigned char *p, str *text,
                          error *err) {
    str_clear(text);
    size_t unit = h->kind == 'U' ? 4 : 1, n = h->width;
    static const unsigned char zero[4];
    while (n > 0 && memcmp(p + (n - 1) * unit, zero, unit) == 0) n--;
    if (h->kind == 'S') return tensor_string_set(out, i, (const char *)p, n, err);
    for (size_t k = 0; k < n; k++) {
        uint32_t cp = code_point(p + 4 * k, h->swapped);
        char utf8[4];
        if (cp > 0x10ffff || (cp >= 0xd800 && cp < 0xe000)) {
            return error_set(err, CHURON_CORRUPT,
                             "npy: element %zu: expected Unicode text, got the code %#" PRIx32, i, cp);
        }
        str_add(text, utf8, utf8_encode(cp, utf8));
    }
    TRY(str_check(text, err));
    return tensor_string_set(out, i, str_cstr(text), text->len, err);
}

static void read_number(char *to, const unsigned char *p, const npy_header *h) {
    if (!h->swapped) {
        memcpy(to, p, h->width);
        return;
    }
    size_t part = h->kind == 'c' ? h->width / 2 : h->width; /* each half of a complex number by itself */
    for (size_t at = 0; at < h->width; at += part) {
        for (size_t k = 0; k < part; k++) to[at + k] = (char)p[at + part - 1 - k];
    }
}

/* Where element i of the C order lies in a file of the other order. */
static size_t fortran_place(const npy_header *h, size_t i) {
    size_t place = 0, stride = 1;
    size_t at[TENSOR_MAX_RANK];
    for (size_t d = h->rank; d-- > 0;) {
        at[d] = i % (size_t)h->dims[d];
        i /= (size_t)h->dims[d];
    }
    for (size_t d = 0; d < h->rank; d++) {
        place += at[d] * stride;
        stride *= (size_t)h->dims[d];
    }
    return place;
}

static status read_elements(tensor *out, const npy_header *h, const unsigned char *data, error *err) {
    size_t width = file_width(h);
    str text = {0};
    status st = CHURON_OK;
    if (!h->fortran && !h->swapped && out->type != ELEM_STRING) {
        if (out->count) memcpy(out->data, data, out->count * width);
    } else {
        for (size_t i = 0; i < out->count && st == CHURON_OK; i++) {
            const unsigned char *p = data + (h->fortran ? fortran_place(h, i) : i) * width;
            if (out->type == ELEM_STRING) {
                st = read_string(out, i, h, p, &text, err);
            } else {
                read_number((char *)out->data + i * width, p, h);
            }
        }
    }
    for (size_t i = 0; out->type == ELEM_BOOL && i < out->count; i++) {
        uint8_t *b = (uint8_t *)out->data + i;
        *b = *b != 0;
    }
    str_free(&text);
    return st;
}

status npy_parse(tensor *out, const void *bytes, size_t n, error *err) {
    *out = (tensor){0};
    const unsigned char *p = bytes;
    if (n < 10 || memcmp(p, "\x93NUMPY", 6) != 0) {
        const bool zip = n >= 4 && memcmp(p, "PK\3\4", 4) == 0;
        return error_set(err, CHURON_CORRUPT, "npy: expected a file of NumPy (.npy), got %s",
                         n == 0 ? "an empty file"
                         : zip  ? "a zip archive (.npz?)"
                                : "something else");
    }
    if (p[6] < 1 || p[6] > 3 || p[7] != 0)
        return error_set(err, CHURON_UNSUPPORTED, "npy: expected version 1.0, 2.0 or 3.0, got %u.%u", p[6],
                         p[7]);
    size_t start = p[6] == 1 ? 10 : 12;
    if (n < start) return error_set(err, CHURON_CORRUPT, "npy: expected a header, got the end of the file");
    size_t len = p[6] == 1 ? (size_t)p[8] | (size_t)p[9] << 8 : code_point(p + 8, false);
    if (len > n - start) {
        return error_set(err, CHURON_CORRUPT, "npy: expected a header of %zu bytes, got %zu", len, n - start);
    }
    npy_header h = {0};
    cursor c = {(const char *)p + start, (const char *)p + start + len};
    if (!read_dictionary(&c, &h)) {
        return error_set(err, CHURON_CORRUPT,
                         "npy: expected a header with descr, fortran_order and shape of at most %d "
                         "dimensions, got another",
                         TENSOR_MAX_RANK);
    }
    elem type = type_of(&h);
    if (type == ELEM_NONE) {
        return error_set(
            err, CHURON_UNSUPPORTED, "npy: expected numbers, bool or text, got descr '%s'%s", h.descr,
            h.kind == 'O' ? " (Python objects: give the array a type, such as str or np.float32)" : "");
    }
    size_t count, need;
    TRY(tensor_count(type, h.rank, h.dims, &count, "npy", err));
    if (!size_mul(count, file_width(&h), &need) || need != n - start - len) {
        return error_set(err, CHURON_CORRUPT,
                         "npy: expected %zu elements of %zu bytes behind the header, got %zu bytes", count,
                         file_width(&h), n - start - len);
    }
    TRY(tensor_alloc(out, type, h.rank, h.dims, err));
    status st = read_elements(out, &h, p + start + len, err);
    if (st != CHURON_OK) tensor_free(out);
    return st;
}

status npy_read(tensor *out, const char *path, error *err) {
    *out = (tensor){0};
    file_map map;
    TRY(file_map_open(&map, path, err));
    status st = npy_parse(out, map.data, map.size, err);
    if (st != CHURON_OK) error_prefix(err, "%s", path);
    file_map_close(&map);
    return st;
}

/* ---- writing ---------------------------------------------------------------------------------------- */

/* The type that an element is written as. */
static elem written_as(elem e) {
    switch (e) {
    case ELEM_BF16:
    case ELEM_F8E4M3FN:
    case ELEM_F8E4M3FNUZ:
    case ELEM_F8E5M2:
    case ELEM_F8E5M2FNUZ:
    case ELEM_F8E8M0:
    case ELEM_F4E2M1:
    case ELEM_F6E2M3:
    case ELEM_F6E3M2: return ELEM_F32;
    case ELEM_U4:
    case ELEM_U2: return ELEM_U8;
    case ELEM_I4:
    case ELEM_I2: return ELEM_I8;
    default: return e;
    }
}

static const char *descr_of(elem e) {
    static const char *const names[ELEM_COUNT] = {
        [ELEM_BOOL] = "|b1", [ELEM_I8] = "|i1",  [ELEM_I16] = "<i2", [ELEM_I32] = "<i4",  [ELEM_I64] = "<i8",
        [ELEM_U8] = "|u1",   [ELEM_U16] = "<u2", [ELEM_U32] = "<u4", [ELEM_U64] = "<u8",  [ELEM_F16] = "<f2",
        [ELEM_F32] = "<f4",  [ELEM_F64] = "<f8", [ELEM_C64] = "<c8", [ELEM_C128] = "<c16"};
    return names[e];
}

static size_t code_points(const tensor_string *s) {
    size_t n = 0;
    for (const char *p = s->data, *end = p + s->len; p < end; n++) {
        uint32_t cp;
        size_t k = utf8_decode(p, end, &cp);
        p += k ? k : 1;
    }
    return n;
}

static void write_strings(const tensor *t, size_t width, str *out) {
    const tensor_string *s = t->data;
    for (size_t i = 0; i < t->count; i++) {
        size_t k = 0;
        for (const char *p = s[i].data, *end = p + s[i].len; p < end; k++) {
            uint32_t cp = 0xfffd;
            size_t len = utf8_decode(p, end, &cp);
            if (len == 0) cp = 0xfffd;
            p += len ? len : 1;
            const char bytes[4] = {(char)(cp & 0xff), (char)(cp >> 8 & 0xff), (char)(cp >> 16 & 0xff), 0};
            str_add(out, bytes, 4);
        }
        for (; k < width; k++) str_add(out, "\0\0\0", 4);
    }
}

static status write_numbers(const tensor *t, elem as, str *out, error *err) {
    if (as == t->type) {
        str_add(out, t->data, tensor_bytes(t));
        return CHURON_OK;
    }
    if (as != ELEM_F32) { /* low-bit integers are their value already */
        str_add(out, t->data, t->count);
        return CHURON_OK;
    }
    float *values = mem_alloc(t->count * sizeof *values);
    if (!values) return error_no_memory(err, "npy", t->count * sizeof *values);
    elem_to_f32(t->type, t->data, values, t->count);
    str_add(out, (const char *)values, t->count * sizeof *values);
    mem_free(values);
    return CHURON_OK;
}

status npy_write(const tensor *t, str *out, error *err) {
    elem as = written_as(t->type);
    str header = {0};
    size_t width = 1;
    if (as == ELEM_STRING) {
        for (size_t i = 0; i < t->count; i++) {
            size_t n = code_points((const tensor_string *)t->data + i);
            if (n > width) width = n;
        }
        str_fmt(&header, "{'descr': '<U%zu', 'fortran_order': False, 'shape': (", width);
    } else {
        str_fmt(&header, "{'descr': '%s', 'fortran_order': False, 'shape': (", descr_of(as));
    }
    for (size_t i = 0; i < t->rank; i++)
        str_fmt(&header, "%" PRId64 ",%s", t->dims[i], i + 1 < t->rank ? " " : "");
    str_cat(&header, "), }");
    while ((10 + header.len + 1) % 64 != 0 && !header.failed) str_put(&header, ' ');
    str_put(&header, '\n');
    str_add(out, "\x93NUMPY\x01\x00", 8);
    str_put(out, (char)(header.len & 0xff));
    str_put(out, (char)(header.len >> 8));
    str_add(out, str_cstr(&header), header.len);
    status st = str_check(&header, err);
    str_free(&header);
    TRY(st);
    if (as == ELEM_STRING) {
        write_strings(t, width, out);
    } else {
        TRY(write_numbers(t, as, out, err));
    }
    return str_check(out, err);
}

/* oip_answer.c: what a graph gave, as JSON or with tensors in binary behind it; see oip.h. */
#include "base/json_out.h"
#include "serve/api/answer_limit.h"
#include "serve/api/oip.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- numbers ---------------------------------------------------------------------------------------- */

/* NaN and infinities as the tokens that Python and Triton read and write; JSON has none. Zeros: "-0" would be
 * read as an integer, which has no sign. */
static bool put_odd(str *out, double v) {
    if (v == 0) {
        str_cat(out, signbit(v) ? "-0.0" : "0");
        return true;
    }
    if (isfinite(v)) return false;
    str_cat(out, isnan(v) ? "NaN" : v > 0 ? "Infinity" : "-Infinity");
    return true;
}

static const double powers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

static double scaled(double v, int e) {
    return e < 0 ? v / powers[-e] : v * powers[e];
}

/* digits * 10^e, digits without trailing zeros. */
static void put_decimal(str *out, uint32_t digits, int e) {
    char text[16];
    const int n = snprintf(text, sizeof text, "%" PRIu32, digits);
    if (e >= 0 && n + e <= 16) {
        str_add(out, text, (size_t)n);
        for (int i = 0; i < e; i++) str_put(out, '0');
    } else if (e < 0 && n + e > 0) {
        str_add(out, text, (size_t)(n + e));
        str_put(out, '.');
        str_add(out, text + n + e, (size_t)-e);
    } else if (e < 0 && n + e > -5) {
        str_cat(out, "0.");
        for (int i = n + e; i < 0; i++) str_put(out, '0');
        str_add(out, text, (size_t)n);
    } else {
        str_put(out, text[0]);
        if (n > 1) str_put(out, '.');
        str_add(out, text + 1, (size_t)n - 1);
        str_fmt(out, "e%d", e + n - 1);
    }
}

/* Fewest digits (6 to 9) that read back as v. A candidate d * 10^e is taken when it is nearer to v than half
 * of the distance to v's neighbours, by a margin far over the rounding of the double arithmetic here: a
 * reader that rounds correctly then gives v. False: v is out of the range where 10^e is an exact double. */
static bool put_short(str *out, float v) {
    const double a = fabs((double)v);
    if (!(a >= 1e-12 && a < 1e15)) return false;
    int e = (int)floor(log10(a)) - 8; /* a is about nine digits times 10^e; off by one does no harm */
    const double gap = a - (double)nextafterf((float)a, 0);
    for (int drop = 3; drop >= 0; drop--) {
        const double d = nearbyint(scaled(a, -(e + drop)));
        if (fabs(scaled(d, e + drop) - a) > 0.49 * gap) continue;
        uint64_t digits = (uint64_t)d;
        int exponent = e + drop;
        if (digits == 0 || digits > UINT32_MAX) return false;
        for (; digits % 10 == 0; digits /= 10) exponent++;
        if (v < 0) str_put(out, '-');
        put_decimal(out, (uint32_t)digits, exponent);
        return true;
    }
    return false;
}

static void put_float(str *out, float v) {
    if (put_odd(out, (double)v) || put_short(out, v)) return;
    char text[32];
    snprintf(text, sizeof text, "%.9g", (double)v);
    str_cat(out, text);
}

static void put_double(str *out, double v) {
    if (put_odd(out, v)) return;
    char text[40];
    snprintf(text, sizeof text, "%.15g", v);
    if (strtod(text, NULL) != v) snprintf(text, sizeof text, "%.17g", v);
    str_cat(out, text);
}

static void put_int(str *out, uint64_t magnitude, bool negative) {
    char text[24], *p = text + sizeof text;
    do {
        *--p = (char)('0' + magnitude % 10);
        magnitude /= 10;
    } while (magnitude);
    if (negative) *--p = '-';
    str_add(out, p, (size_t)(text + sizeof text - p));
}

static void put_signed(str *out, int64_t v) {
    put_int(out, v < 0 ? 0 - (uint64_t)v : (uint64_t)v, v < 0);
}

/* ---- elements --------------------------------------------------------------------------------------- */

static void put_element(str *out, const tensor *t, size_t i) {
    switch (t->type) {
    case ELEM_F32: put_float(out, ((const float *)t->data)[i]); break;
    case ELEM_F64: put_double(out, ((const double *)t->data)[i]); break;
    case ELEM_I64: put_signed(out, ((const int64_t *)t->data)[i]); break;
    case ELEM_I32: put_signed(out, ((const int32_t *)t->data)[i]); break;
    case ELEM_I16: put_signed(out, ((const int16_t *)t->data)[i]); break;
    case ELEM_I8: put_signed(out, ((const int8_t *)t->data)[i]); break;
    case ELEM_U64: put_int(out, ((const uint64_t *)t->data)[i], false); break;
    case ELEM_U32: put_int(out, ((const uint32_t *)t->data)[i], false); break;
    case ELEM_U16: put_int(out, ((const uint16_t *)t->data)[i], false); break;
    case ELEM_U8: put_int(out, ((const uint8_t *)t->data)[i], false); break;
    case ELEM_BOOL: str_cat(out, ((const uint8_t *)t->data)[i] ? "true" : "false"); break;
    default: break; /* checked before */
    }
}

static status put_json(str *out, const char *name, const tensor *t, error *err) {
    if (t->type == ELEM_F16 || t->type == ELEM_BF16) {
        return error_set(
            err, CHURON_INVALID,
            "output '%.80s': expected binary_data true for %s, which JSON does not carry, got false", name,
            oip_datatype(t->type));
    }
    if (t->count > ANSWER_MOST_ELEMENTS)
        return error_set(
            err, CHURON_INVALID,
            "output '%.80s': expected at most %d elements in JSON, got %zu; binary_data carries them", name,
            ANSWER_MOST_ELEMENTS, t->count);
    str_put(out, '[');
    for (size_t i = 0; i < t->count; i++) {
        if (i) str_put(out, ',');
        if (t->type != ELEM_STRING) {
            put_element(out, t, i);
            continue;
        }
        const tensor_string *s = &((const tensor_string *)t->data)[i];
        if (utf8_validate(s->data, s->len) != s->len) {
            return error_set(
                err, CHURON_INVALID,
                "output '%.80s': element %zu: expected UTF-8, got other bytes; binary_data carries them",
                name, i);
        }
        str_json(out, s->data, s->len);
    }
    str_put(out, ']');
    return CHURON_OK;
}

static size_t binary_bytes(const tensor *t) {
    if (t->type != ELEM_STRING) return tensor_bytes(t);
    size_t n = 0;
    for (size_t i = 0; i < t->count; i++) n += 4 + ((const tensor_string *)t->data)[i].len;
    return n;
}

static status put_binary(str *out, const char *name, const tensor *t, error *err) {
    if (t->type != ELEM_STRING) {
        if (t->count == 0 || !str_reserve(out, tensor_bytes(t))) return CHURON_OK; /* failed is seen later */
        elem_pack(t->type, t->data, out->data + out->len, t->count);
        out->len += tensor_bytes(t);
        out->data[out->len] = '\0';
        return CHURON_OK;
    }
    for (size_t i = 0; i < t->count; i++) {
        const tensor_string *s = &((const tensor_string *)t->data)[i];
        if (s->len > UINT32_MAX) {
            return error_set(err, CHURON_LIMIT,
                             "output '%.80s': element %zu: expected at most 4 GiB, got %zu bytes", name, i,
                             s->len);
        }
        const uint32_t n = (uint32_t)s->len;
        const char length[4] = {(char)(n & 255), (char)(n >> 8 & 255), (char)(n >> 16 & 255),
                                (char)(n >> 24)};
        str_add(out, length, 4);
        str_add(out, s->data, s->len);
    }
    return CHURON_OK;
}

/* ---- the answer ------------------------------------------------------------------------------------- */

static status put_output(str *out, const oip_model *m, const oip_wanted *w, const value *v, error *err) {
    const oip_port *p = &m->outputs[w->output];
    const tensor *t = &v->t;
    const char *datatype = v->kind == VALUE_TENSOR ? oip_datatype(t->type) : NULL;
    if (!datatype)
        return error_set(err, CHURON_INTERNAL, "output '%.80s': expected a tensor, got none", p->name);
    str_cat(out, "{\"name\":");
    str_json(out, p->name, strlen(p->name));
    str_fmt(out, ",\"datatype\":\"%s\",\"shape\":[", datatype);
    for (size_t i = 0; i < t->rank; i++) {
        if (i) str_put(out, ',');
        put_signed(out, t->dims[i]);
    }
    str_put(out, ']');
    if (w->binary) {
        str_fmt(out, ",\"parameters\":{\"binary_data_size\":%zu}", binary_bytes(t));
    } else {
        str_cat(out, ",\"data\":");
        TRY(put_json(out, p->name, t, err));
    }
    str_put(out, '}');
    return CHURON_OK;
}

status oip_answer_write(str *out, size_t *json_len, const oip_model *m, const oip_request *r,
                        const value *outputs, const char *parameters, error *err) {
    bool binary = false;
    const size_t before = out->len;
    str_cat(out, "{\"model_name\":");
    str_json(out, m->name, strlen(m->name));
    const char *version = m->version ? m->version : "1";
    str_cat(out, ",\"model_version\":");
    str_json(out, version, strlen(version));
    if (r->has_id) {
        str_cat(out, ",\"id\":");
        str_json(out, str_cstr(&r->id), r->id.len);
    }
    str_cat(out, ",\"outputs\":[");
    for (size_t i = 0; i < r->n_wanted; i++) {
        if (i) str_put(out, ',');
        TRY(put_output(out, m, &r->wanted[i], &outputs[r->wanted[i].output], err));
        binary = binary || r->wanted[i].binary;
    }
    str_put(out, ']');
    if (parameters) str_fmt(out, ",\"parameters\":%s", parameters);
    str_put(out, '}');
    *json_len = binary ? out->len - before : 0;
    for (size_t i = 0; i < r->n_wanted; i++) {
        const size_t k = r->wanted[i].output;
        if (r->wanted[i].binary) TRY(put_binary(out, m->outputs[k].name, &outputs[k].t, err));
    }
    return str_check(out, err);
}

/* gguf_dump.c: `gguf_dump FILE` prints everything that a GGUF file says as one JSON object, strings in hex
 * (they need not be UTF-8) and the data of each tensor as a checksum (FNV-1a). */
#include "base/json_out.h"
#include "format/gguf.h"

#include <inttypes.h>
#include <stdio.h>

static void put_hex(json_out *j, const char *key, gguf_string s) {
    str hex = {0};
    for (size_t i = 0; i < s.len; i++) str_fmt(&hex, "%02x", (unsigned)(unsigned char)s.data[i]);
    json_out_cstr(j, key, str_cstr(&hex));
    str_free(&hex);
}

static void put_item(json_out *j, const gguf *g, const gguf_value *v, uint64_t i) {
    if (v->item == GGUF_STRING) {
        put_hex(j, NULL, gguf_item_string(g, v, i));
    } else if (v->item == GGUF_F32 || v->item == GGUF_F64) {
        json_out_double(j, NULL, gguf_item_float(v, i));
    } else {
        json_out_int(j, NULL, gguf_item_int(v, i));
    }
}

static void put_value(json_out *j, const gguf *g, const gguf_value *v) {
    json_out_object(j, NULL);
    put_hex(j, "key", v->key);
    json_out_cstr(j, "type", gguf_type_name(v->type));
    json_out_cstr(j, "item", gguf_type_name(v->item));
    json_out_array(j, "items");
    for (uint64_t i = 0; i < v->count; i++) put_item(j, g, v, i);
    json_out_end_array(j);
    json_out_end_object(j);
}

static void put_tensor(json_out *j, const gguf_tensor *t) {
    json_out_object(j, NULL);
    put_hex(j, "name", t->name);
    json_out_cstr(j, "type", dtype_name(t->type));
    json_out_array(j, "dims");
    for (uint32_t i = 0; i < t->n_dims; i++) json_out_uint(j, NULL, t->dims[i]);
    json_out_end_array(j);
    json_out_uint(j, "bytes", t->bytes);
    uint64_t sum = 14695981039346656037u;
    for (size_t i = 0; i < t->bytes; i++) sum = (sum ^ ((const uint8_t *)t->data)[i]) * 1099511628211u;
    char text[20];
    (void)snprintf(text, sizeof text, "%016" PRIx64, sum);
    json_out_cstr(j, "fnv", text);
    json_out_end_object(j);
}

int main(int argc, char **argv) {
    if (argc != 2) return fprintf(stderr, "usage: gguf_dump FILE\n"), 2;
    gguf *g;
    error err;
    if (gguf_open(&g, argv[1], &err) != CHURON_OK) return fprintf(stderr, "gguf_dump: %s\n", err.message), 1;
    str out = {0};
    json_out j = json_out_begin(&out);
    json_out_object(&j, NULL);
    json_out_uint(&j, "version", gguf_version(g));
    json_out_array(&j, "values");
    for (size_t i = 0; i < gguf_n_values(g); i++) put_value(&j, g, gguf_value_at(g, i));
    json_out_end_array(&j);
    json_out_array(&j, "tensors");
    for (size_t i = 0; i < gguf_n_tensors(g); i++) put_tensor(&j, gguf_tensor_at(g, i));
    json_out_end_array(&j);
    json_out_end_object(&j);
    puts(str_cstr(&out));
    bool complete = !out.failed;
    str_free(&out);
    gguf_free(g);
    return complete ? 0 : 1;
}

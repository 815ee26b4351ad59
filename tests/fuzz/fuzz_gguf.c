/* fuzz_gguf.c: any bytes as a GGUF file. What opens is read whole: every value, string and tensor. */
#define _GNU_SOURCE
#include "base/mem.h"
#include "format/gguf_part.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile uint64_t sink;

static void read_value(const gguf_entry *e) {
    const gguf_value *v = &e->value;
    for (uint64_t i = 0; i < v->count; i++) {
        if (v->item == GGUF_STRING) {
            gguf_string s = gguf_item_string(NULL, v, i);
            for (size_t c = 0; c < s.len; c++) sink += (uint64_t)s.data[c];
        } else if (v->item == GGUF_F32 || v->item == GGUF_F64) {
            sink += gguf_item_float(v, i) > 0;
        } else {
            sink += (uint64_t)gguf_item_int(v, i);
        }
    }
}

static void read_tensor(const gguf_tensor *t) {
    const uint8_t *bytes = t->data;
    for (size_t i = 0; i < t->bytes; i++) sink += bytes[i];
    float row[256];
    size_t n = dtype_describe(t->type)->block;
    if (t->dims[0] >= n) dtype_to_f32(t->type, t->data, row, n);
}

/* In memory that ends where the file ends, so that a read beyond is one beyond the allocation. */
static void check_part(const uint8_t *data, size_t size) {
    gguf_part p = {0};
    p.map.data = data;
    p.map.size = size;
    error err;
    if (gguf_part_parse(&p, &err) == CHURON_OK) {
        for (size_t i = 0; i < p.n_entries; i++) {
            const gguf_entry *e = &p.entries[i];
            read_value(e);
            if (gguf_part_find(&p, e->value.key.data, e->value.key.len) != e) abort();
        }
        for (size_t i = 0; i < p.n_tensors; i++) read_tensor(&p.tensors[i]);
    } else if (!err.message[0]) {
        abort();
    }
    p.map = (file_map){0};
    gguf_part_close(&p);
}

/* The whole way, through a file that has no name. */
static void check_file(const uint8_t *data, size_t size) {
    static int fd = -1;
    static char path[64];
    if (fd < 0) {
        fd = memfd_create("fuzz_gguf", 0);
        if (fd < 0) abort();
        (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    }
    if (ftruncate(fd, 0) != 0 || (size && pwrite(fd, data, size, 0) != (ssize_t)size)) abort();
    gguf *g;
    error err;
    if (gguf_open(&g, path, &err) != CHURON_OK) return;
    uint32_t u;
    float f;
    bool b;
    gguf_string s;
    const gguf_value *v;
    for (size_t i = 0; i < gguf_n_values(g); i++) {
        gguf_string key = gguf_value_at(g, i)->key;
        char *z = mem_strndup(key.data, key.len);
        if (!z) abort();
        sink += gguf_get_u32(g, z, &u, &err) + gguf_get_f32_or(g, z, 1, &f, &err);
        sink += gguf_get_bool_or(g, z, true, &b, &err) + gguf_get_string_or_null(g, z, &s, &err);
        sink += gguf_get_array(g, z, GGUF_STRING, &v, &err);
        mem_free(z);
    }
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const gguf_tensor *t = gguf_tensor_at(g, i);
        if (t->map->data + t->offset != t->data || t->bytes > t->map->size - t->offset) abort();
    }
    gguf_free(g);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    check_part(data, size);
    check_file(data, size);
    return 0;
}

/* dequant.c: `dequant TYPE` reads blocks of a type from stdin and writes their values as f32 to stdout. */
#include "base/file.h"
#include "base/mem.h"
#include "tensor/dtype.h"

#include <stdio.h>
#include <string.h>

int main(int argc, char **argv) {
    if (argc != 2) return fprintf(stderr, "usage: dequant TYPE < blocks > values\n"), 2;
    int type = 0;
    while (type < DTYPE_COUNT && strcmp(dtype_describe((dtype)type)->name, argv[1]) != 0) type++;
    if (type == DTYPE_COUNT) return fprintf(stderr, "dequant: unknown type %s\n", argv[1]), 2;
    const dtype_info *info = dtype_describe((dtype)type);
    str in = {0};
    error err;
    if (file_read(&in, "-", (size_t)1 << 30, &err) != CHURON_OK) {
        return fprintf(stderr, "dequant: %s\n", err.message), 1;
    }
    size_t n = in.len / info->bytes * info->block;
    float *out = mem_alloc(n * sizeof *out);
    if (!out || in.len % info->bytes != 0) return fprintf(stderr, "dequant: %zu bytes\n", in.len), 1;
    dtype_to_f32((dtype)type, in.data, out, n);
    size_t written = fwrite(out, sizeof *out, n, stdout);
    mem_free(out);
    str_free(&in);
    return written == n ? 0 : 1;
}

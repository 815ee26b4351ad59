/* elem_convert.c: `elem_convert to|from|from32|saturate|unpack|pack TYPE` converts what comes on stdin: codes
 * to f64, f64 to codes (without and with saturation), f32 to codes, the file's form to memory's and back. */
#include "tensor/elem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static elem find(const char *name) {
    for (int e = 1; e < ELEM_COUNT; e++) {
        if (strcmp(elem_name((elem)e), name) == 0) return (elem)e;
    }
    return ELEM_NONE;
}

int main(int argc, char **argv) {
    enum { MAX = 1 << 24 };
    static double in[MAX / 8], out[MAX / 8];
    elem e = argc == 3 ? find(argv[2]) : ELEM_NONE;
    if (e == ELEM_NONE) return 2;
    size_t bytes = fread(in, 1, MAX, stdin), size = elem_describe(e)->bytes, n;
    const char *mode = argv[1];
    if (strcmp(mode, "to") == 0) {
        n = bytes / size;
        if (n > MAX / 8) return 2;
        elem_to_f64(e, in, out, n);
        n *= 8;
    } else if (strcmp(mode, "from32") == 0) {
        n = bytes / 4;
        elem_from_f32(e, (const float *)in, out, n, false);
        n *= size;
    } else if (strcmp(mode, "unpack") == 0) {
        n = bytes * 8 / elem_describe(e)->bits;
        elem_unpack(e, in, out, n);
        n *= size;
    } else if (strcmp(mode, "pack") == 0) {
        n = bytes / size;
        elem_pack(e, in, out, n);
        n = elem_file_bytes(e, n);
    } else {
        n = bytes / 8;
        elem_from_f64(e, in, out, n, strcmp(mode, "saturate") == 0);
        n *= size;
    }
    return fwrite(out, 1, n, stdout) == n ? 0 : 1;
}

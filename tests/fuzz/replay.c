/* replay.c: runs a fuzz target over the files of its seed folder, where there is no fuzzer to link. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay(const char *path) {
    FILE *f = fopen(path, "rb");
    if (!f) return 0;
    size_t n = 0, cap = 0;
    uint8_t *data = NULL;
    for (;;) {
        if (n == cap) {
            cap = cap ? 2 * cap : 65536;
            uint8_t *grown = realloc(data, cap);
            if (!grown) break;
            data = grown;
        }
        size_t got = fread(data + n, 1, cap - n, f);
        if (!got) break;
        n += got;
    }
    fclose(f);
    /* An exact copy, so that a read past the end is one past the allocation. */
    uint8_t *exact = realloc(data, n ? n : 1);
    if (exact) (void)LLVMFuzzerTestOneInput(exact, n);
    free(exact);
    return 1;
}

int main(int argc, char **argv) {
    int files = 0;
    for (int i = 1; i < argc; i++) {
        DIR *folder = opendir(argv[i]);
        if (!folder) continue;
        for (struct dirent *e; (e = readdir(folder));) {
            char path[4096];
            if (e->d_name[0] == '.') continue;
            snprintf(path, sizeof path, "%s/%s", argv[i], e->d_name);
            files += replay(path);
        }
        closedir(folder);
    }
    printf("%d seeds\n", files);
    if (files == 0) puts("skip: no seeds in this folder");
    return files ? 0 : 77;
}

/* tokenize_time.c: seconds that 10 MB of each kind of text take, the best of several alternating repetitions.
 *
 * tokenize_time FILE.gguf [MEGABYTES [REPETITIONS [TEXT-FILE]]] writes "KIND SECONDS" lines; with a text file
 * also "file SECONDS". */
#include "base/file.h"
#include "bench/bench_text.h"
#include "bundle/lm_bundle.h"

#include <stdio.h>
#include <stdlib.h>

enum { MAX_KINDS = 32 };

static int fail(const char *what) {
    (void)fprintf(stderr, "tokenize_time: %s\n", what);
    return 1;
}

int main(int argc, char **argv) {
    if (argc < 2) return fail("FILE.gguf [MEGABYTES [REPETITIONS [TEXT-FILE]]]");
    size_t bytes = (argc > 2 ? (size_t)strtoul(argv[2], NULL, 10) : 10) * 1000000;
    size_t reps = argc > 3 ? (size_t)strtoul(argv[3], NULL, 10) : 5;
    error err;
    gguf *g;
    tokenizer *t;
    if (gguf_open(&g, argv[1], &err) != CHURON_OK) return fail(err.message);
    if (tokenizer_from_gguf(&t, g, &err) != CHURON_OK) return fail(err.message);
    str texts[MAX_KINDS] = {{0}};
    double best[MAX_KINDS];
    size_t tokens[MAX_KINDS];
    size_t n = bench_text_n_kinds();
    for (size_t i = 0; i < n; i++) {
        if (bench_text_make(bench_text_kind(i), bytes, &texts[i], &err) != CHURON_OK)
            return fail(err.message);
    }
    if (argc > 4 && file_read(&texts[n++], argv[4], SIZE_MAX, &err) != CHURON_OK) return fail(err.message);
    for (size_t r = 0; r < reps; r++) {
        for (size_t i = 0; i < n; i++) {
            double s;
            if (bench_tokenizer_once(t, &texts[i], &s, &tokens[i], &err) != CHURON_OK)
                return fail(err.message);
            if (r == 0 || s < best[i]) best[i] = s;
        }
    }
    for (size_t i = 0; i < n; i++) {
        bool is_file = i == bench_text_n_kinds();
        (void)printf("%s %.6f\n", is_file ? "file" : bench_text_kind(i), best[i]);
        if (argc > 3)
            (void)fprintf(stderr, "%8.1f MB/s  %zu tokens\n", (double)texts[i].len / best[i] / 1e6,
                          tokens[i]);
        str_free(&texts[i]);
    }
    tokenizer_free(t);
    gguf_free(g);
    return 0;
}

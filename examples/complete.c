/* complete.c: the shortest useful program: a model file, a prompt, a streamed answer.
 *
 *   cc complete.c $(pkg-config --cflags --libs churon) -o complete
 *   ./complete MODEL.gguf "The capital of France is"
 */
#include <churon.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool print(void *user, const char *text, size_t len) {
    (void)user;
    fwrite(text, 1, len, stdout);
    fflush(stdout);
    return true; /* false would stop the answer within one step */
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: complete MODEL.gguf PROMPT\n");
        return 2;
    }
    int exit_status = 1;
    churon_error err;
    churon_model *model = NULL;
    churon_sequence *seq = NULL;
    int32_t *ids = NULL;
    size_t n = strlen(argv[2]) + 2, capacity = n; /* a token is at least one byte; bos and eos on top */

    if (churon_model_open(&model, argv[1], NULL, &err) != CHURON_OK) goto failed;
    if (churon_sequence_open(&seq, model, &err) != CHURON_OK) goto failed;
    ids = malloc(capacity * sizeof *ids);
    if (!ids) goto cleanup;
    if (churon_tokenize(model, argv[2], strlen(argv[2]), true, ids, capacity, &n, &err) != CHURON_OK)
        goto failed;
    if (churon_sequence_feed(seq, ids, n, &err) != CHURON_OK) goto failed;

    churon_generate_options options;
    churon_generate_options_init(model, &options);
    options.max_tokens = 32;
    options.temperature = 0; /* greedy: the same answer every time */
    churon_generation result = {.size = sizeof result};
    if (churon_sequence_generate(seq, &options, print, NULL, &result, &err) != CHURON_OK) goto failed;
    printf("\n");
    if (result.tokens > 1 && result.decode_s > 0) {
        fprintf(stderr, "%zu tokens, %.0f a second\n", result.tokens,
                (double)(result.tokens - 1) / result.decode_s);
    }
    exit_status = 0;
    goto cleanup;
failed:
    fprintf(stderr, "complete: error: %s\n", err.message);
cleanup:
    free(ids);
    churon_sequence_close(seq);
    churon_model_close(model);
    return exit_status;
}

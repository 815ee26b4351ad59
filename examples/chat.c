/* chat.c: a conversation. Each turn feeds only what is new: the sequence remembers the rest.
 *
 *   cc chat.c $(pkg-config --cflags --libs churon) -o chat
 *   ./chat MODEL.gguf "Hello!" "What did I say first?"
 */
#include <churon.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct text {
    char bytes[8192];
    size_t len;
} text;

static bool collect(void *user, const char *part, size_t len) {
    text *answer = user;
    fwrite(part, 1, len, stdout);
    fflush(stdout);
    if (len > sizeof answer->bytes - answer->len) return false;
    memcpy(answer->bytes + answer->len, part, len);
    answer->len += len;
    return true;
}

/* The tokens that the sequence already holds need not be fed again. */
static churon_status feed_new(churon_model *model, churon_sequence *seq, const churon_message *messages,
                              size_t n, int32_t *known, size_t *n_known, churon_error *err) {
    static char prompt[65536];
    static int32_t ids[16384];
    size_t len, count, same = 0;
    churon_status st = churon_chat_prompt(model, messages, n, prompt, sizeof prompt, &len, err);
    if (st != CHURON_OK) return st;
    st = churon_tokenize(model, prompt, len, true, ids, sizeof ids / sizeof *ids, &count, err);
    if (st != CHURON_OK) return st;
    while (same < count && same < *n_known && ids[same] == known[same]) same++;
    st = churon_sequence_truncate(seq, same, err);
    if (st != CHURON_OK) return st;
    memcpy(known, ids, count * sizeof *ids);
    *n_known = count;
    return churon_sequence_feed(seq, ids + same, count - same, err);
}

int main(int argc, char **argv) {
    if (argc < 3 || argc > 10) {
        fprintf(stderr, "usage: chat MODEL.gguf QUESTION... (at most 8)\n");
        return 2;
    }
    static int32_t known[16384];
    static text answers[8];
    churon_message messages[16];
    size_t n_messages = 0, n_known = 0;
    int exit_status = 1;
    churon_error err;
    churon_model *model = NULL;
    churon_sequence *seq = NULL;
    churon_model_options options = {.size = sizeof options, .context = 2048, .max_sequences = 1};

    if (churon_model_open(&model, argv[1], &options, &err) != CHURON_OK) goto failed;
    if (churon_sequence_open(&seq, model, &err) != CHURON_OK) goto failed;
    for (int i = 2; i < argc; i++) {
        text *answer = &answers[i - 2];
        messages[n_messages++] = (churon_message){"user", argv[i], strlen(argv[i])};
        if (feed_new(model, seq, messages, n_messages, known, &n_known, &err) != CHURON_OK) goto failed;
        churon_generate_options how;
        churon_generate_options_init(model, &how);
        how.max_tokens = 64;
        how.seed = 1;
        printf("> %s\n", argv[i]);
        if (churon_sequence_generate(seq, &how, collect, answer, NULL, &err) != CHURON_OK) goto failed;
        printf("\n");
        messages[n_messages++] = (churon_message){"assistant", answer->bytes, answer->len};
    }
    exit_status = 0;
    goto cleanup;
failed:
    fprintf(stderr, "chat: error: %s\n", err.message);
cleanup:
    churon_sequence_close(seq);
    churon_model_close(model);
    return exit_status;
}

/* score.c: records through a bundle: one JSON object a line on standard input, one answer a line on standard
 * output; a record that is refused gives {"error": …}, and the others go on.
 *
 *   cc score.c $(pkg-config --cflags --libs churon) -o score
 *   ./score BUNDLE < records.jsonl
 */
#define _POSIX_C_SOURCE 200809L /* getline */
#include <churon.h>

#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>

static void print_error(const char *message) {
    printf("{\"error\": \"");
    for (const char *p = message; *p; p++) {
        if (*p == '"' || *p == '\\') putchar('\\');
        putchar(*p);
    }
    printf("\"}\n");
}

static void describe(const churon_pipeline *pipeline, const churon_pipeline_info *info) {
    fprintf(stderr, "%s %s (%s), digest %.12s\n", info->name, info->version, info->task, info->digest);
    for (size_t i = 0; i < info->inputs + info->outputs; i++) {
        const bool output = i >= info->inputs;
        churon_field field = {.size = sizeof field};
        if (churon_pipeline_field(pipeline, output, output ? i - info->inputs : i, &field, NULL) == CHURON_OK)
            fprintf(stderr, "  %s %s: %s\n", output ? "->" : "<-", field.name, field.type);
    }
}

int main(int argc, char **argv) {
    char *line = NULL;
    size_t room = 0;
    ssize_t length;
    int exit_status = 1;
    churon_error err;
    churon_pipeline *pipeline = NULL;
    churon_pipeline_session *session = NULL;
    churon_pipeline_info info = {.size = sizeof info};
    if (argc != 2) {
        fprintf(stderr, "usage: score BUNDLE < records.jsonl\n");
        return 2;
    }
    if (churon_pipeline_open(&pipeline, argv[1], 0, &err) != CHURON_OK) goto failed;
    if (churon_pipeline_describe(pipeline, &info, &err) != CHURON_OK) goto failed;
    describe(pipeline, &info);
    if (churon_pipeline_session_open(&session, pipeline, false, &err) != CHURON_OK)
        goto failed; /* one a thread */
    while ((length = getline(&line, &room, stdin)) >= 0) {
        const char *answer;
        size_t n;
        const churon_status st =
            churon_pipeline_run_json(session, line, (size_t)length, 0, &answer, &n, &err);
        if (st == CHURON_OK) {
            printf("%.*s\n", (int)n, answer);
        } else {
            print_error(err.message);
        }
    }
    exit_status = 0;
    goto cleanup;
failed:
    fprintf(stderr, "score: error: %s\n", err.message);
cleanup:
    free(line);
    churon_pipeline_session_close(session);
    churon_pipeline_close(pipeline);
    return exit_status;
}

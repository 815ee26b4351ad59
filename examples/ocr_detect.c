/* ocr_detect.c: the lines of text in a picture: a bundle that takes an image and gives `boxes` ([lines, 4, 2]
 * in f32: corners from top left, clockwise, in pixels), and `texts` and `scores` if it also reads. One line
 * of output for each: corners, score, text.
 *
 *   cc ocr_detect.c $(pkg-config --cflags --libs churon) -o ocr_detect
 *   tools/bundles.sh rapidocr
 *   ./ocr_detect build/bundles/rapidocr page.png
 */
#include <churon.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_FILE = 64 << 20 };

/* The file as it is: the bundle decodes it. */
static char *read_file(const char *path, size_t *n) {
    char *data = malloc(MAX_FILE);
    FILE *f = fopen(path, "rb");
    *n = data && f ? fread(data, 1, MAX_FILE, f) : 0;
    const int good = *n > 0 && *n < MAX_FILE && !ferror(f);
    if (f) fclose(f);
    if (good) return data;
    fprintf(stderr, "ocr_detect: error: %s: expected a picture of less than %d MB, got %s\n", path,
            MAX_FILE >> 20,
            !f        ? "no file"
            : *n == 0 ? "nothing that can be read"
                      : "more");
    free(data);
    return NULL;
}

/* The output of this name, or NULL if the bundle has none. */
static const churon_value *output_of(const churon_pipeline *p, const churon_pipeline_info *info,
                                     const churon_value *outputs, const char *name) {
    for (size_t i = 0; i < info->outputs; i++) {
        churon_field field = {.size = sizeof field};
        if (churon_pipeline_field(p, true, i, &field, NULL) == CHURON_OK && strcmp(field.name, name) == 0)
            return &outputs[i];
    }
    return NULL;
}

static int print_lines(const churon_value *boxes, const churon_value *texts, const churon_value *scores) {
    const churon_tensor *t = boxes && boxes->kind == CHURON_TENSOR ? boxes->tensor : NULL;
    if (!t || t->dtype != CHURON_F32 || t->rank != 3 || t->dims[1] != 4 || t->dims[2] != 2) {
        fprintf(stderr, "ocr_detect: error: bundle: expected an output boxes of float32 [lines, 4, 2]\n");
        return 1;
    }
    const size_t n = (size_t)t->dims[0];
    for (size_t i = 0; i < n; i++) {
        const float *corner = (const float *)t->data + i * 8;
        for (size_t k = 0; k < 4; k++)
            printf("%s%.0f,%.0f", k ? " " : "", (double)corner[2 * k], (double)corner[2 * k + 1]);
        if (scores && scores->kind == CHURON_LIST && i < scores->n) printf("  %.3f", scores->items[i].number);
        if (texts && texts->kind == CHURON_LIST && i < texts->n)
            printf("  %.*s", (int)texts->items[i].n, texts->items[i].text);
        printf("\n");
    }
    return 0;
}

int main(int argc, char **argv) {
    int exit_status = 1;
    churon_error err;
    churon_pipeline *pipeline = NULL;
    churon_pipeline_session *session = NULL;
    churon_pipeline_info info = {.size = sizeof info};
    churon_value image = {.kind = CHURON_BYTES};
    churon_answer answer;
    char *file = NULL;
    if (argc != 3) {
        fprintf(stderr, "usage: ocr_detect BUNDLE IMAGE\n");
        return 2;
    }
    if (churon_pipeline_open(&pipeline, argv[1], 0, &err) != CHURON_OK) goto failed;
    if (churon_pipeline_describe(pipeline, &info, &err) != CHURON_OK) goto failed;
    if (info.inputs != 1) {
        fprintf(stderr, "ocr_detect: error: bundle: expected one input, an image, got %zu inputs\n",
                info.inputs);
        goto cleanup;
    }
    file = read_file(argv[2], &image.n);
    if (!file) goto cleanup;
    image.text = file;
    if (churon_pipeline_session_open(&session, pipeline, false, &err) != CHURON_OK) goto failed;
    if (churon_pipeline_run(session, &image, 1, 0, &answer, &err) != CHURON_OK) goto failed;
    if (answer.status != CHURON_OK) {
        fprintf(stderr, "ocr_detect: error: %s\n", answer.message);
        goto cleanup;
    }
    exit_status = print_lines(output_of(pipeline, &info, answer.outputs, "boxes"),
                              output_of(pipeline, &info, answer.outputs, "texts"),
                              output_of(pipeline, &info, answer.outputs, "scores"));
    goto cleanup;
failed:
    fprintf(stderr, "ocr_detect: error: %s\n", err.message);
cleanup:
    churon_pipeline_session_close(session);
    churon_pipeline_close(pipeline);
    free(file);
    return exit_status;
}

/* classify.c: an image classifier: any ONNX model with one image as its input, the image as raw f32 in the
 * model's own layout (normalised as the model was trained with); prints the likeliest classes by its first
 * output in f32: number, score, share after softmax.
 *
 *   cc classify.c $(pkg-config --cflags --libs churon) -lm -o classify
 *   ./classify MODEL.onnx IMAGE.f32 [TOP]
 */
#include <churon.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* The shape of one image: dimensions that the model leaves open are the batch, of one. */
static int shape_of(const churon_port *port, churon_tensor *image) {
    size_t bytes = sizeof(float);
    if (port->dtype != CHURON_F32 || !port->has_rank) {
        fprintf(stderr, "classify: error: input '%s': expected f32 with a shape\n", port->name);
        return 0;
    }
    image->dtype = CHURON_F32;
    image->rank = port->rank;
    for (uint32_t i = 0; i < port->rank; i++) {
        image->dims[i] = port->dims[i] < 0 ? 1 : port->dims[i];
        bytes *= (size_t)image->dims[i];
    }
    image->bytes = bytes;
    return 1;
}

static int read_image(const char *path, churon_tensor *image) {
    FILE *f = fopen(path, "rb");
    size_t n = 0;
    image->data = malloc(image->bytes + 1);
    if (f && image->data) n = fread(image->data, 1, image->bytes + 1, f); /* one more: is there too much? */
    if (f) fclose(f);
    if (n == image->bytes) return 1;
    fprintf(stderr, "classify: error: %s: expected %zu bytes of f32, got %s%zu\n", path, image->bytes,
            n > image->bytes ? "more than " : "", n > image->bytes ? image->bytes : n);
    return 0;
}

/* Prints the `top` largest of n scores, largest first, with their share after softmax. */
static void print_top(const float *scores, size_t n, size_t top) {
    double sum = 0;
    float limit = INFINITY, best = -INFINITY;
    size_t last = n;
    for (size_t i = 0; i < n; i++) best = scores[i] > best ? scores[i] : best;
    for (size_t i = 0; i < n; i++) sum += exp((double)(scores[i] - best));
    for (size_t k = 0; k < top && k < n; k++) {
        size_t at = n;
        for (size_t i = 0; i < n; i++) { /* the largest behind what was printed; equal ones by their number */
            int behind = scores[i] < limit || (scores[i] == limit && last < n && i > last);
            if (behind && (at == n || scores[i] > scores[at])) at = i;
        }
        if (at == n) return; /* NaN is nobody's class */
        printf("%zu  %.6g  %.4f\n", at, (double)scores[at], exp((double)(scores[at] - best)) / sum);
        limit = scores[at];
        last = at;
    }
}

int main(int argc, char **argv) {
    int exit_status = 1;
    churon_error err;
    churon_graph *graph = NULL;
    churon_session *session = NULL;
    churon_port port = {.size = sizeof port};
    churon_tensor image = {0}, *outputs = NULL;
    if (argc < 3) {
        fprintf(stderr, "usage: classify MODEL.onnx IMAGE.f32 [TOP]\n");
        return 2;
    }
    if (churon_graph_open(&graph, argv[1], NULL, &err) != CHURON_OK) goto failed;
    if (churon_graph_inputs(graph) != 1 || churon_graph_outputs(graph) == 0) {
        fprintf(stderr, "classify: error: %s: expected one input and an output\n", argv[1]);
        goto cleanup;
    }
    if (churon_graph_input(graph, 0, &port, &err) != CHURON_OK) goto failed;
    if (!shape_of(&port, &image) || !read_image(argv[2], &image)) goto cleanup;
    outputs = calloc(churon_graph_outputs(graph), sizeof *outputs);
    if (!outputs) goto cleanup;

    if (churon_session_open(&session, graph, &err) != CHURON_OK) goto failed; /* one a thread */
    if (churon_session_run(session, &image, outputs, NULL, &err) != CHURON_OK) goto failed;
    size_t i = 0, n = churon_graph_outputs(graph);
    while (i < n && outputs[i].dtype != CHURON_F32) i++;
    if (i == n) {
        fprintf(stderr, "classify: error: %s: expected an output in f32\n", argv[1]);
        goto cleanup;
    }
    print_top(outputs[i].data, outputs[i].bytes / sizeof(float), argc > 3 ? strtoul(argv[3], NULL, 10) : 5);
    exit_status = 0;
    goto cleanup;
failed:
    fprintf(stderr, "classify: error: %s\n", err.message);
cleanup:
    free(outputs);
    free(image.data);
    churon_session_close(session);
    churon_graph_close(graph);
    return exit_status;
}

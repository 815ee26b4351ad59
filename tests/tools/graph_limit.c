/* graph_limit.c: `graph_limit MODEL.onnx BYTES` runs a model without inputs under a limit of memory and
 * prints how that ended, "ok" or the name of the status, and the most memory of the process in KiB. */
#include "base/mem.h"
#include "graph/graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* VmHWM of Linux. */
static long most_kib(void) {
    char line[128];
    long kib = 0;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f)) {
        if (strncmp(line, "VmHWM:", 6) == 0) kib = strtol(line + 6, NULL, 10);
    }
    if (f) (void)fclose(f);
    return kib;
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    error err;
    graph *g = NULL;
    graph_session *s = NULL;
    const graph_options o = {.threads = 1, .max_memory = strtoull(argv[2], NULL, 10)};
    status st = graph_open(&g, argv[1], &o, &err);
    if (st == CHURON_OK) st = graph_session_create(&s, g, &err);
    value *out = st == CHURON_OK ? mem_calloc(graph_n_outputs(g) + 1, sizeof *out) : NULL;
    if (st == CHURON_OK) st = out ? graph_run(s, NULL, out, NULL, &err) : CHURON_NO_MEMORY;
    printf("%s %ld\n", st == CHURON_OK ? "ok" : churon_status_name(st), most_kib());
    if (st != CHURON_OK) (void)fprintf(stderr, "%s\n", err.message);
    for (size_t i = 0; out && i < graph_n_outputs(g); i++) value_free(&out[i]);
    mem_free(out);
    graph_session_free(s);
    graph_close(g);
    return 0;
}

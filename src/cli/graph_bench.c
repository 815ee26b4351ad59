/* graph_bench.c: `churon bench MODEL.onnx`: how long a run takes, what fraction of the processor's peak that
 * is, and which nodes take the time. */
#include "cli/graph_inputs.h"
#include "cli/graph_providers.h"
#include "cli/timeout.h"

#include "base/clock.h"
#include "base/mem.h"
#include "bench/stats.h"
#include "kernel/kernel.h"
#include "kernel/peak.h"
#include "registry/store.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { SLOWEST = 5, MOST_REPS = 100000 };

typedef struct node_time {
    const char *name, *op;
    double seconds, operations;
    size_t runs;
} node_time;

typedef struct graph_bench {
    arg_common common;
    const char *model;
    arg_list shapes, files;
    uint64_t batch, reps;
    double seconds; /* to spend on measuring */
    double timeout;
    provider_choice providers;
    const char *provider; /* of this row */
    str text;
    json_out json;
    /* Of this row: */
    graph *g;
    graph_session *session;
    value *inputs, *outputs;
    double *times;
    size_t n_times;
    node_time *nodes; /* in the order of a run */
    size_t n_nodes, cap_nodes, at;
    bool failed;
    double load_s, operations; /* of a run */
    double peak;               /* operations a second */
} graph_bench;

/* ---- measuring -------------------------------------------------------------------------------------- */

static void on_node(void *user, const graph_event *e) {
    graph_bench *b = user;
    if (b->at == b->n_nodes) { /* the first run of this node */
        if (b->n_nodes == b->cap_nodes) {
            size_t cap = b->cap_nodes ? b->cap_nodes * 2 : 256;
            node_time *more = mem_realloc(b->nodes, cap * sizeof *more);
            b->failed = b->failed || !more;
            if (!more) return;
            b->nodes = more;
            b->cap_nodes = cap;
        }
        b->nodes[b->n_nodes++] = (node_time){.name = e->name, .op = e->op};
    }
    node_time *n = &b->nodes[b->at++];
    n->seconds += e->seconds;
    n->operations = e->operations;
    n->runs++;
}

/* watched: node by node. */
static status run_once(graph_bench *b, bool watched, double *seconds, error *err) {
    const graph_run_options o = {
        .deadline = timeout_deadline(b->timeout), .on_node = watched ? on_node : NULL, .user = b};
    double started = clock_seconds();
    TRY(graph_run(b->session, b->inputs, b->outputs, &o, err));
    *seconds = clock_seconds() - started;
    for (size_t i = 0; i < graph_n_outputs(b->g); i++) value_free(&b->outputs[i]);
    return CHURON_OK;
}

static status measure(graph_bench *b, error *err) {
    double seconds, spent = 0;
    for (int i = 0; i < 3; i++) TRY(run_once(b, false, &seconds, err));
    size_t reps = b->reps ? (size_t)b->reps : MOST_REPS;
    b->times = mem_alloc(reps * sizeof *b->times);
    if (!b->times) return error_no_memory(err, "times", reps * sizeof *b->times);
    while (b->n_times < reps && (b->reps || spent < b->seconds || b->n_times < 5)) {
        TRY(run_once(b, false, &b->times[b->n_times], err));
        spent += b->times[b->n_times++];
    }
    /* Nodes apart: asking the clock twice a node would weigh on small graphs. */
    for (size_t i = 0; i < 5 && i < b->n_times; i++) {
        b->at = 0;
        TRY(run_once(b, true, &seconds, err));
    }
    for (size_t i = 0; i < b->n_nodes; i++) b->operations += b->nodes[i].operations;
    return b->failed ? error_no_memory(err, "times", 0) : CHURON_OK;
}

typedef struct peak_job {
    const peak_kernels *k;
    size_t rounds;
} peak_job;

static void peak_part(void *ctx, const pool_member *me) {
    (void)me;
    const peak_job *j = ctx;
    j->k->f32(j->rounds);
}

/* Operations a second of all threads; 0 where the instruction set has no such loop. */
static status measure_peak(graph_bench *b, size_t threads, error *err) {
    peak_job j = {.rounds = 1 << 16};
    for (int isa = 0; isa < KERNEL_ISA_COUNT; isa++) {
        const peak_kernels *k = peak_for((kernel_isa)isa);
        if (k && k->f32) j.k = k;
    }
    if (!j.k) return CHURON_OK;
    pool *p;
    TRY(pool_create(&p, threads, err));
    for (int i = 0; i < 40; i++) {
        double started = clock_seconds();
        pool_run(p, peak_part, &j);
        double rate = (double)j.rounds * (double)j.k->f32_ops * (double)threads / (clock_seconds() - started);
        if (rate > b->peak) b->peak = rate;
    }
    pool_free(p);
    return CHURON_OK;
}

static int by_time(const void *a, const void *b) {
    const node_time *x = a, *y = b;
    double p = x->seconds / (double)(x->runs ? x->runs : 1), q = y->seconds / (double)(y->runs ? y->runs : 1);
    return p < q ? 1 : p > q ? -1 : 0;
}

/* ---- report ----------------------------------------------------------------------------------------- */

static double percentile(const double *sorted, size_t n, double p) {
    size_t at = (size_t)(p * (double)(n - 1) + 0.5);
    return sorted[at];
}

static double fraction(const graph_bench *b, double operations, double seconds) {
    return b->peak > 0 && seconds > 0 ? operations / seconds / b->peak : 0;
}

/* Of the nodes that ran, by operator; the names are those of passes where these made the node. */
static void put_operators(const graph_bench *b, json_out *j) {
    json_out_array(j, "operators");
    for (size_t i = 0; i < b->n_nodes; i++) {
        const char *op = b->nodes[i].op;
        double seconds = 0;
        size_t nodes = 0, first = b->n_nodes;
        for (size_t k = 0; k < b->n_nodes && first >= i; k++) {
            const node_time *n = &b->nodes[k];
            if (strcmp(n->op, op) != 0) continue;
            if (first == b->n_nodes) first = k;
            seconds += n->seconds / (double)n->runs;
            nodes++;
        }
        if (first != i) continue; /* counted before */
        json_out_object(j, NULL);
        json_out_cstr(j, "op", op);
        json_out_uint(j, "nodes", nodes);
        json_out_double(j, "ms", seconds * 1e3);
        json_out_end_object(j);
    }
    json_out_end_array(j);
}

static void put_slowest(graph_bench *b, double all) {
    for (size_t i = 0; i < b->n_nodes && i < SLOWEST; i++) {
        const node_time *n = &b->nodes[i];
        double each = n->seconds / (double)n->runs, part = all > 0 ? n->seconds / all : 0;
        if (b->common.json) {
            json_out_object(&b->json, NULL);
            json_out_cstr(&b->json, "name", n->name);
            json_out_cstr(&b->json, "op", n->op);
            json_out_double(&b->json, "ms", each * 1e3);
            json_out_double(&b->json, "part", part);
            json_out_double(&b->json, "peak_fraction", fraction(b, n->operations, each));
            json_out_end_object(&b->json);
        } else {
            str_fmt(&b->text, "  %8.4f ms %5.1f %%  %s '", each * 1e3, 100 * part, n->op);
            cli_text(&b->text, n->name, 80);
            str_put(&b->text, '\'');
            if (n->operations > 0)
                str_fmt(&b->text, ", %.0f %% of peak", 100 * fraction(b, n->operations, each));
            str_put(&b->text, '\n');
        }
    }
}

static void put_row(graph_bench *b, size_t threads) {
    double median = stats_median(b->times, b->n_times), p99 = percentile(b->times, b->n_times, 0.99), all = 0;
    str providers = {0};
    json_out *j = &b->json;
    for (size_t i = 0; i < b->n_nodes; i++) all += b->nodes[i].seconds;
    if (b->n_nodes) qsort(b->nodes, b->n_nodes, sizeof *b->nodes, by_time);
    graph_provider_names(graph_providers(b->g), &providers);
    if (b->common.json) {
        json_out_object(j, NULL);
        json_out_cstr(j, "test", "run");
        json_out_cstr(j, "provider", str_cstr(&providers));
        json_out_uint(j, "threads", threads);
        json_out_double(j, "ms_median", median * 1e3);
        json_out_double(j, "ms_p99", p99 * 1e3);
        json_out_uint(j, "runs", b->n_times);
        json_out_double(j, "load_s", b->load_s);
        json_out_double(j, "gflop", b->operations / 1e9);
        json_out_double(j, "peak_fraction", fraction(b, b->operations, median));
        json_out_uint(j, "peak_bytes", graph_session_peak(b->session));
        put_operators(b, j);
        json_out_array(j, "slowest");
    } else {
        if (b->providers.n) str_fmt(&b->text, "%s: ", str_cstr(&providers));
        str_fmt(&b->text, "%.4f ms median, %.4f ms p99 of %zu runs, %zu threads; loaded in %.1f ms\n",
                median * 1e3, p99 * 1e3, b->n_times, threads, b->load_s * 1e3);
        str_fmt(&b->text, "%.3f Gflop in products and convolutions: %.0f %% of the FMA peak (%.0f Gflop/s)\n",
                b->operations / 1e9, 100 * fraction(b, b->operations, median), b->peak / 1e9);
    }
    put_slowest(b, all);
    if (b->common.json) {
        json_out_end_array(j);
        json_out_end_object(j);
    }
    str_free(&providers);
}

/* ---- the command ------------------------------------------------------------------------------------ */

static void end_row(graph_bench *b) {
    for (size_t i = 0; b->inputs && i < graph_n_inputs(b->g); i++) value_free(&b->inputs[i]);
    mem_free(b->inputs);
    mem_free(b->outputs);
    mem_free(b->times);
    mem_free(b->nodes);
    graph_session_free(b->session);
    graph_close(b->g);
    b->g = NULL;
    b->session = NULL;
    b->inputs = b->outputs = NULL;
    b->times = NULL;
    b->nodes = NULL;
    b->n_times = b->n_nodes = b->cap_nodes = b->at = 0;
    b->operations = 0;
}

static status bench_row(graph_bench *b, const char *path, size_t threads, error *err) {
    const graph_options o = {.threads = threads,
                             .providers = &b->provider,
                             .n_providers = b->provider != NULL,
                             .deadline = timeout_deadline(b->timeout)};
    const graph_inputs_options from = {.files = &b->files, .shapes = &b->shapes, .batch = b->batch};
    const double started = clock_seconds();
    TRY(graph_open(&b->g, path, &o, err));
    TRY(graph_session_create(&b->session, b->g, err));
    b->load_s = clock_seconds() - started;
    b->inputs = mem_calloc(graph_n_inputs(b->g) + 1, sizeof(value));
    b->outputs = mem_calloc(graph_n_outputs(b->g) + 1, sizeof(value));
    if (!b->inputs || !b->outputs) return error_no_memory(err, "values", 0);
    TRY(graph_inputs_make(b->g, &from, b->inputs, err));
    const status st = measure(b, err);
    if (st != CHURON_OK) {
        if (st == CHURON_INVALID) graph_inputs_hint(b->g, &from, err);
        return st;
    }
    put_row(b, threads);
    return str_check(&b->text, err);
}

static status put_machine(graph_bench *b, const char *path, size_t threads, error *err) {
    json_out *j = &b->json;
    const kernels *k = NULL;
    char digest[DIGEST_HEX];
    TRY(kernels_select(&k, err));
    TRY(store_digest(path, digest, err));
    json_out_cstr(j, "version", churon_version());
    json_out_cstr(j, "model", b->model);
    json_out_cstr(j, "digest", digest);
    json_out_object(j, "machine");
    json_out_cstr(j, "isa", k->name);
    json_out_uint(j, "threads", threads);
    json_out_uint(j, "cores", pool_physical_cores());
    json_out_double(j, "f32_gflop_per_s", b->peak / 1e9);
    json_out_end_object(j);
    return CHURON_OK;
}

/* A row for each provider. */
static int bench_graph(graph_bench *b) {
    error err;
    str path = {0};
    size_t threads = b->common.threads ? (size_t)b->common.threads : pool_physical_cores();
    int code = EXIT_NO;
    bool usage = true;
    status st;
    b->json = json_out_begin(&b->text);
    TRY_GOTO(provider_choice_read(&b->providers, &err));
    TRY_GOTO(store_resolve(b->model, &path, &err));
    TRY_GOTO(measure_peak(b, threads, &err));
    usage = false;
    if (b->common.json) {
        json_out_object(&b->json, NULL);
        TRY_GOTO(put_machine(b, str_cstr(&path), threads, &err));
        json_out_array(&b->json, "rows");
    }
    for (size_t i = 0; i < b->providers.n || i == 0; i++) {
        b->provider = b->providers.n ? b->providers.names[i] : NULL;
        st = bench_row(b, str_cstr(&path), threads, &err);
        usage = b->session != NULL; /* of a model that could be loaded */
        end_row(b);
        if (st != CHURON_OK) goto cleanup;
    }
    if (b->common.json) {
        json_out_end_array(&b->json);
        json_out_end_object(&b->json);
        code = cli_print_json(&b->text);
    } else {
        (void)cli_write(str_cstr(&b->text), b->text.len);
        code = cli_finish(EXIT_YES);
    }
cleanup:
    if (st != CHURON_OK) code = usage ? cli_fail("bench", &err) : cli_refuse("bench", &err);
    str_free(&b->text);
    str_free(&path);
    return code;
}

int graph_cmd_bench(int argc, char **argv) {
    graph_bench b = {.seconds = 2};
    const arg_option options[] = {
        {.name = "shape",
         .kind = ARG_LIST,
         .target = &b.shapes,
         .value = "NAME=1x3x224x224",
         .help = "an input's shape where the model leaves it open; may be given again"},
        {.name = "input",
         .kind = ARG_LIST,
         .target = &b.files,
         .value = "NAME=FILE.npy",
         .help = "an input from a NumPy file instead; may be given again"},
        {.name = "batch",
         .kind = ARG_UINT,
         .target = &b.batch,
         .value = "N",
         .umin = 1,
         .umax = 1 << 24,
         .help = "first dimension of inputs where the model leaves it open"},
        {.name = "reps",
         .kind = ARG_UINT,
         .target = &b.reps,
         .value = "N",
         .umin = 1,
         .umax = MOST_REPS,
         .help = "runs to measure (default: two seconds of them)"},
        {.name = "provider",
         .kind = ARG_STRING,
         .target = &b.providers.given,
         .value = "NAME[,NAME]",
         .help = "what executes nodes (default: cpu); a row for each"},
        TIMEOUT_OPTION(&b.timeout),
    };
    const arg_command c = {.name = "bench",
                           .synopsis = "MODEL.onnx",
                           .summary = "Measures a graph (ONNX) on made-up inputs.",
                           .example = "churon bench resnet50.onnx --shape data=1x3x224x224 --threads 1",
                           .options = options,
                           .n_options = sizeof options / sizeof options[0],
                           .min_args = 1,
                           .max_args = 1};
    size_t n_args;
    int code = EXIT_USAGE;
    arg_outcome outcome = args_parse(&c, argc, argv, &b.common, argv, &n_args);
    if (outcome == ARGS_DONE) {
        code = cli_finish(EXIT_YES);
    } else if (outcome == ARGS_RUN) {
        b.model = argv[0];
        code = bench_graph(&b);
    }
    args_list_free(&b.shapes);
    args_list_free(&b.files);
    provider_choice_free(&b.providers);
    return code;
}

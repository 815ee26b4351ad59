/* bench.c: `churon bench`: a model's speed, as a fraction of what the machine could do and beside a peer's.
 */
#include "bench/bench_edit.h"
#include "bench/bench_lm.h"
#include "bench/bench_text.h"
#include "bench/peer.h"
#include "bench/stats.h"

#include "base/mem.h"
#include "cli/bench_load.h"
#include "cli/cli.h"
#include "cli/progress.h"
#include "cli/settings.h"
#include "registry/store.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { CASES_MAX = 80, REPS_MAX = 1000, SAMPLING_DRAWS = 200, TEXT_MAX_BYTES = 1 << 30 };

typedef struct bench_request {
    const char *model; /* NULL: --roofline or --kernels */
    uint64_t prompt, gen, reps;
    const char *depth, *parallel; /* lists */
    const char *text;             /* a file to tokenize, or NULL */
    arg_list peers, batched_peers;
    const char *kv_type_text;
    kv_type kv_type;
    bool edit;
    bool roofline, kernels;
    arg_common common;
} bench_request;

typedef struct result_row {
    char test[48];
    double per_s, sd;
    double bound_fraction; /* 0: no bound is known */
    double peer_per_s;     /* 0: no peer */
    double share;          /* of a decoding step, for the sampling row; else 0 */
} result_row;

typedef struct results {
    bench_bounds bounds;
    result_row rows[CASES_MAX];
    size_t n;
} results;

/* ---- JSON and tables -------------------------------------------------------------------------------- */

static void write_machine(json_out *j, const bench_bounds *b) {
    json_out_object(j, "machine");
    json_out_cstr(j, "isa", b->isa);
    json_out_uint(j, "threads", b->threads);
    json_out_uint(j, "cores", pool_physical_cores());
    json_out_array(j, "read");
    for (size_t i = 0; i < BENCH_READ_SIZES; i++) {
        json_out_object(j, NULL);
        json_out_uint(j, "bytes", b->read_bytes[i]);
        json_out_double(j, "gb_per_s", b->read_gb_per_s[i]);
        json_out_end_object(j);
    }
    json_out_end_array(j);
    json_out_double(j, "f32_gflop_per_s", b->f32_gflop_per_s);
    json_out_double(j, "int8_gop_per_s", b->int8_gop_per_s);
    json_out_double(j, "bf16_gflop_per_s", b->bf16_gflop_per_s);
    json_out_end_object(j);
}

static void add_bounds(str *out, const bench_bounds *b) {
    str_fmt(out, "%s, %zu thread%s: f32 %.0f GFLOP/s, int8 %.0f GOP/s; reading", b->isa, b->threads,
            b->threads == 1 ? "" : "s", b->f32_gflop_per_s, b->int8_gop_per_s);
    for (size_t i = 0; i < BENCH_READ_SIZES; i++) {
        size_t kib = b->read_bytes[i] >> 10;
        str_fmt(out, "%s %zu %s %.1f GB/s", i ? "," : "", kib >= 1024 ? kib >> 10 : kib,
                kib >= 1024 ? "MiB" : "KiB", b->read_gb_per_s[i]);
    }
    str_put(out, '\n');
}

static void write_row(json_out *j, const result_row *r, size_t threads) {
    json_out_object(j, NULL);
    json_out_cstr(j, "test", r->test);
    json_out_uint(j, "threads", threads);
    json_out_double(j, "per_s", r->per_s);
    json_out_double(j, "sd", r->sd);
    if (r->share > 0) {
        json_out_double(j, "share", r->share);
    } else if (r->bound_fraction > 0) {
        json_out_double(j, "bound_fraction", r->bound_fraction);
    } else {
        json_out_null(j, "bound_fraction");
    }
    if (r->peer_per_s > 0) {
        json_out_double(j, "peer_per_s", r->peer_per_s);
        json_out_double(j, "ratio", r->per_s / r->peer_per_s);
    } else {
        json_out_null(j, "peer_per_s");
        json_out_null(j, "ratio");
    }
    json_out_end_object(j);
}

static void add_row(str *out, const result_row *r, size_t threads) {
    str_fmt(out, "%-16s %7zu %12.1f %8.1f", r->test, threads, r->per_s, r->sd);
    if (r->share > 0) {
        str_fmt(out, "   %.1f %% of a step", 100 * r->share);
    } else if (r->bound_fraction > 0) {
        str_fmt(out, " %8.0f %%", 100 * r->bound_fraction);
    }
    if (r->peer_per_s > 0) str_fmt(out, " %12.1f %7.2f×", r->peer_per_s, r->per_s / r->peer_per_s);
    str_put(out, '\n');
}

static int print_results(const results *all, const lm_bundle *b, const char *digest, const bench_request *r) {
    str out = {0};
    size_t threads = lm_bundle_threads(b);
    if (r->common.json) {
        json_out j = json_out_begin(&out);
        json_out_object(&j, NULL);
        json_out_cstr(&j, "version", churon_version());
        json_out_cstr(&j, "model", lm_bundle_name(b));
        json_out_cstr(&j, "digest", digest);
        write_machine(&j, &all->bounds);
        json_out_array(&j, "rows");
        for (size_t i = 0; i < all->n; i++) write_row(&j, &all->rows[i], threads);
        json_out_end_array(&j);
        json_out_end_object(&j);
        int code = cli_print_json(&out);
        str_free(&out);
        return code;
    }
    add_bounds(&out, &all->bounds);
    str_fmt(&out, "%-16s %7s %12s %8s %10s%s\n", "test", "threads", "per second", "sd", "of bound",
            r->peers.n || r->batched_peers.n ? "         peer    ratio" : "");
    for (size_t i = 0; i < all->n; i++) add_row(&out, &all->rows[i], threads);
    (void)cli_write(str_cstr(&out), out.len);
    str_free(&out);
    return cli_finish(EXIT_YES);
}

/* ---- a model's cases -------------------------------------------------------------------------------- */

typedef struct run {
    lm_bundle *b;
    const char *path;
    const bench_request *r;
    results *all;
    progress *p;
} run;

/* One case: ours and each peer's, alternating, `reps` times. Of several peers the fastest counts. */
static status time_case(run *u, const bench_case *c, error *err) {
    const arg_list *peers = c->parallel > 1 ? &u->r->batched_peers : &u->r->peers;
    size_t reps = (size_t)u->r->reps, n_lists = peers->n + 1, threads = lm_bundle_threads(u->b);
    result_row *row = &u->all->rows[u->all->n];
    bench_lm *l = NULL;
    double *rates = mem_calloc(n_lists * reps, sizeof *rates), warm;
    if (!rates) return error_no_memory(err, "figures", n_lists * reps * sizeof *rates);
    bench_case_name(c, row->test);
    if (u->r->kv_type != KV_F16) {
        const size_t n = strlen(row->test);
        snprintf(row->test + n, sizeof row->test - n, " kv-%s", kv_type_name(u->r->kv_type));
    }
    status st;
    TRY_GOTO(bench_lm_open(&l, u->b, c, err));
    TRY_GOTO(bench_lm_time(l, &warm, err));
    for (size_t i = 0; i < reps; i++) {
        char detail[96];
        snprintf(detail, sizeof detail, "%s, %zu of %zu", row->test, i + 1, reps);
        progress_update(u->p, "bench", (double)i, (double)reps, detail);
        TRY_GOTO(bench_lm_time(l, &rates[i], err));
        for (size_t k = 0; k < peers->n; k++) {
            TRY_GOTO(peer_time(peers->items[k], u->path, threads, c, &rates[(k + 1) * reps + i], err));
        }
    }
    row->sd = stats_sd(rates, reps);
    row->per_s = stats_median(rates, reps);
    for (size_t k = 0; k < peers->n; k++) {
        double rate = stats_median(rates + (k + 1) * reps, reps);
        if (rate > row->peer_per_s) row->peer_per_s = rate;
    }
    double bound = bench_lm_bound(u->b, c, &u->all->bounds);
    row->bound_fraction = bound > 0 ? row->per_s / bound : 0;
    u->all->n++;
cleanup:
    bench_lm_close(l);
    mem_free(rates);
    return st;
}

static status time_sampling(run *u, double decode_per_s, error *err) {
    result_row *row = &u->all->rows[u->all->n];
    double seconds;
    TRY(bench_lm_sampling(u->b, SAMPLING_DRAWS, &seconds, err));
    snprintf(row->test, sizeof row->test, "sampling");
    row->per_s = seconds > 0 ? 1 / seconds : 0;
    /* The measured decoding step chooses greedily, so the draw comes on top of it. */
    row->share = seconds / (seconds + 1 / decode_per_s);
    u->all->n++;
    return CHURON_OK;
}

/* Two rows, measured in turns: without guessed tokens and with them. */
static status time_edit(run *u, error *err) {
    static const char *const names[2] = {"edit plain", "edit"};
    size_t reps = (size_t)u->r->reps;
    token_list ids = {0};
    double *rates = mem_calloc(2 * reps, sizeof *rates), warm;
    if (!rates) return error_no_memory(err, "figures", 2 * reps * sizeof *rates);
    status st;
    TRY_GOTO(bench_edit_prompt(u->b, &ids, err));
    for (int guesses = 0; guesses < 2; guesses++) TRY_GOTO(bench_edit_time(u->b, &ids, guesses, &warm, err));
    for (size_t i = 0; i < reps; i++) {
        progress_update(u->p, "bench", (double)i, (double)reps, "edit");
        for (size_t k = 0; k < 2; k++) {
            TRY_GOTO(bench_edit_time(u->b, &ids, k > 0, &rates[k * reps + i], err));
        }
    }
    for (size_t k = 0; k < 2; k++) {
        result_row *row = &u->all->rows[u->all->n++];
        snprintf(row->test, sizeof row->test, "%s", names[k]);
        row->sd = stats_sd(rates + k * reps, reps);
        row->per_s = stats_median(rates + k * reps, reps);
    }
cleanup:
    token_list_free(&ids);
    mem_free(rates);
    return st;
}

/* Bytes of text a second, of one thread. */
static status time_text(run *u, const str *text, error *err) {
    result_row *row = &u->all->rows[u->all->n];
    size_t reps = (size_t)u->r->reps;
    double *rates = mem_calloc(reps, sizeof *rates), seconds;
    if (!rates) return error_no_memory(err, "figures", reps * sizeof *rates);
    status st = CHURON_OK;
    for (size_t i = 0; i < reps; i++) {
        progress_update(u->p, "bench", (double)i, (double)reps, "tokenizing");
        TRY_GOTO(bench_tokenizer_once(lm_bundle_tokenizer(u->b), text, &seconds, NULL, err));
        rates[i] = seconds > 0 ? (double)text->len / seconds : 0;
    }
    snprintf(row->test, sizeof row->test, "tokenize");
    row->sd = stats_sd(rates, reps);
    row->per_s = stats_median(rates, reps);
    u->all->n++;
cleanup:
    mem_free(rates);
    return st;
}

typedef struct case_list {
    bench_case cases[CASES_MAX];
    size_t n;
    size_t max_parallel, max_tokens;
} case_list;

static void add_case(case_list *l, bench_case c) {
    if (l->n + 4 >= CASES_MAX) return; /* rows are kept for sampling, text and edit; the lists are bounded */
    l->cases[l->n++] = c;
    size_t tokens = c.depth + c.prompt + c.gen + 64;
    if (tokens > l->max_tokens) l->max_tokens = tokens;
    if (c.parallel > l->max_parallel) l->max_parallel = c.parallel;
}

static status make_cases(const bench_request *r, case_list *out, error *err) {
    size_t n_depth, n_parallel;
    uint64_t *depths = args_uint_list(r->depth, 1 << 24, &n_depth);
    uint64_t *parallel = args_uint_list(r->parallel, 4096, &n_parallel);
    status st = CHURON_OK;
    if (!depths || n_depth > 8) {
        st = error_set(err, CHURON_INVALID,
                       "field --depth: expected up to 8 numbers such as 0,4096, got \"%.60s\"", r->depth);
    } else if (!parallel || n_parallel > 8 || parallel[0] == 0) {
        st = error_set(err, CHURON_INVALID,
                       "field --parallel: expected up to 8 numbers such as 1,4,16, got \"%.60s\"",
                       r->parallel);
    } else {
        if (r->prompt) add_case(out, (bench_case){.prompt = (size_t)r->prompt, .parallel = 1});
        for (size_t i = 0; r->gen && i < n_parallel; i++) {
            if (parallel[i] == 0) continue;
            for (size_t k = 0; k < (parallel[i] == 1 ? n_depth : 1); k++) {
                add_case(out, (bench_case){.gen = (size_t)r->gen,
                                           .depth = parallel[i] == 1 ? (size_t)depths[k] : 0,
                                           .parallel = (size_t)parallel[i]});
            }
        }
    }
    mem_free(depths);
    mem_free(parallel);
    return st;
}

static status measure_bounds(bench_bounds *out, const kernels *k, size_t threads, error *err) {
    pool *p;
    TRY(pool_create(&p, threads ? threads : pool_physical_cores(), err));
    status st = bench_bounds_measure(out, k->isa, p, err);
    pool_free(p);
    return st;
}

static int bench_model(const bench_request *r) {
    error err;
    str path = {0}, text = {0};
    lm_bundle *b = NULL;
    results *all = mem_calloc(1, sizeof *all);
    case_list *cases = mem_calloc(1, sizeof *cases);
    progress p = progress_begin(r->common.quiet);
    char digest[DIGEST_HEX] = "";
    bool wrong_usage = true; /* until the command line's own values are checked */
    int code;
    status st;
    if (!all || !cases) {
        st = error_no_memory(&err, "results", sizeof *all);
        goto cleanup;
    }
    TRY_GOTO(make_cases(r, cases, &err));
    wrong_usage = false;
    if (r->edit && cases->max_tokens < BENCH_EDIT_CONTEXT) cases->max_tokens = BENCH_EDIT_CONTEXT;
    if (cases->max_parallel == 0) cases->max_parallel = 1;
    if (r->text) TRY_GOTO(file_read(&text, r->text, TEXT_MAX_BYTES, &err));
    TRY_GOTO(store_resolve(r->model, &path, &err));
    lm_bundle_options bo = {.threads = (size_t)r->common.threads,
                            .engine = {.context = cases->max_tokens,
                                       .max_running = cases->max_parallel,
                                       .kv_type = r->kv_type,
                                       .no_prefix_cache = true}};
    TRY_GOTO(lm_bundle_open(&b, str_cstr(&path), &bo, &err));
    if (r->common.json) TRY_GOTO(store_digest(str_cstr(&path), digest, &err));
    progress_update(&p, "bench", 0, 0, "the machine's bounds");
    TRY_GOTO(measure_bounds(&all->bounds, lm_bundle_model(b)->k, lm_bundle_threads(b), &err));
    run u = {b, str_cstr(&path), r, all, &p};
    double decode_per_s = 0;
    for (size_t i = 0; i < cases->n; i++) {
        const bench_case *c = &cases->cases[i];
        TRY_GOTO(time_case(&u, c, &err));
        if (c->gen && c->parallel == 1 && c->depth == 0) decode_per_s = all->rows[all->n - 1].per_s;
    }
    if (decode_per_s > 0) TRY_GOTO(time_sampling(&u, decode_per_s, &err));
    if (r->edit) TRY_GOTO(time_edit(&u, &err));
    if (r->text) TRY_GOTO(time_text(&u, &text, &err));
cleanup:
    str_free(&text);
    progress_end(&p);
    if (st == CHURON_OK) {
        code = print_results(all, b, digest, r);
    } else {
        code = wrong_usage ? cli_fail("bench", &err) : cli_refuse("bench", &err);
    }
    lm_bundle_close(b);
    mem_free(cases);
    mem_free(all);
    str_free(&path);
    return code;
}

/* ---- the machine ------------------------------------------------------------------------------------ */

static int print_roofline(const bench_bounds *b, bool as_json) {
    str out = {0};
    int code = EXIT_YES;
    if (as_json) {
        json_out j = json_out_begin(&out);
        json_out_object(&j, NULL);
        json_out_cstr(&j, "version", churon_version());
        write_machine(&j, b);
        json_out_array(&j, "rows");
        json_out_end_array(&j);
        json_out_end_object(&j);
        code = cli_print_json(&out);
    } else {
        add_bounds(&out, b);
        (void)cli_write(str_cstr(&out), out.len);
        code = cli_finish(code);
    }
    str_free(&out);
    return code;
}

typedef struct kernel_rows {
    bool as_json, is_first;
    json_out j;
    str out;
} kernel_rows;

static bool show_kernel(void *ctx, const bench_row *row) {
    kernel_rows *k = ctx;
    if (k->as_json) {
        json_out_object(&k->j, NULL);
        json_out_cstr(&k->j, "test", row->name);
        json_out_cstr(&k->j, "isa", row->isa);
        json_out_uint(&k->j, "threads", row->threads);
        json_out_double(&k->j, "seconds", row->seconds);
        json_out_double(&k->j, "gb_per_s", row->gb_per_s);
        json_out_double(&k->j, "gop_per_s", row->gop_per_s);
        json_out_cstr(&k->j, "bound", bench_bound_name(row->bound));
        json_out_double(&k->j, "bound_fraction", row->fraction);
        json_out_end_object(&k->j);
        return true;
    }
    str_clear(&k->out);
    if (k->is_first) {
        str_fmt(&k->out, "%-34s %7s %12s %9s %9s %6s %9s\n", "kernel", "threads", "us", "GB/s", "GOP/s",
                "bound", "of bound");
    }
    k->is_first = false;
    str_fmt(&k->out, "%-34s %7zu %12.2f %9.2f %9.2f %6s %8.0f %%\n", row->name, row->threads,
            row->seconds * 1e6, row->gb_per_s, row->gop_per_s, bench_bound_name(row->bound),
            100 * row->fraction);
    return cli_write(str_cstr(&k->out), k->out.len);
}

static int run_kernels(const kernels *k, const bench_bounds *bounds, pool *threads, bool as_json) {
    error err;
    kernel_rows rows = {.as_json = as_json, .is_first = true};
    rows.j = json_out_begin(&rows.out);
    if (as_json) {
        json_out_object(&rows.j, NULL);
        json_out_cstr(&rows.j, "version", churon_version());
        write_machine(&rows.j, bounds);
        json_out_array(&rows.j, "rows");
    }
    status st = bench_kernels(k, bounds, threads, show_kernel, &rows, &err);
    int code = EXIT_YES;
    if (st != CHURON_OK) {
        code = cli_refuse("bench", &err);
    } else if (as_json) {
        json_out_end_array(&rows.j);
        json_out_end_object(&rows.j);
        code = cli_print_json(&rows.out);
    }
    str_free(&rows.out);
    return cli_finish(code);
}

static int bench_machine(const bench_request *r) {
    error err;
    const kernels *k;
    pool *p = NULL;
    bench_bounds bounds;
    int code;
    status st;
    TRY_GOTO(kernels_select(&k, &err));
    TRY_GOTO(pool_create(&p, r->common.threads ? (size_t)r->common.threads : pool_physical_cores(), &err));
    TRY_GOTO(bench_bounds_measure(&bounds, k->isa, p, &err));
cleanup:
    if (st != CHURON_OK) {
        code = cli_refuse("bench", &err);
    } else {
        code =
            r->kernels ? run_kernels(k, &bounds, p, r->common.json) : print_roofline(&bounds, r->common.json);
    }
    pool_free(p);
    return code;
}

/* ---- the command ------------------------------------------------------------------------------------ */

/* Driving a server is a command of its own, with other options. */
static bool asks_for_load(int argc, char **argv) {
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], "--load") == 0 || strncmp(argv[i], "--load=", 7) == 0) return true;
    }
    return false;
}

static bool has_word(int argc, char **argv, const char *word) {
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], word) == 0) return true;
    }
    return false;
}

/* The second half of --help. */
static int help_on_load(void) {
    char name[] = "bench", help[] = "--help";
    char *argv[] = {name, help, NULL};
    printf("\n");
    return cmd_bench_load(2, argv);
}

int cmd_bench(int argc, char **argv) {
    if (bundle_is_asked(argc, argv)) return bundle_cmd_bench(argc, argv);
    if (graph_is_asked(argc, argv)) return graph_cmd_bench(argc, argv);
    if (asks_for_load(argc, argv)) return cmd_bench_load(argc, argv);
    const bool asks_for_help = has_word(argc, argv, "--help") || has_word(argc, argv, "-h");
    const char *load = NULL; /* never set here: it is in the table for --help */
    bench_request r = {.prompt = 512, .gen = 128, .reps = 5, .depth = "0", .parallel = "1"};
    const arg_option options[] = {
        {.name = "prompt",
         .kind = ARG_UINT,
         .target = &r.prompt,
         .value = "N",
         .umax = 1 << 24,
         .help = "tokens of prompt to compute (default: 512; 0: none)"},
        {.name = "gen",
         .kind = ARG_UINT,
         .target = &r.gen,
         .value = "N",
         .umax = 1 << 24,
         .help = "tokens to generate (default: 128; 0: none)"},
        {.name = "depth",
         .kind = ARG_STRING,
         .target = &r.depth,
         .value = "N,N",
         .help = "tokens of context before generating (default: 0)"},
        {.name = "parallel",
         .kind = ARG_STRING,
         .target = &r.parallel,
         .value = "N,N",
         .help = "sequences that decode together (default: 1)"},
        settings_kv_type_option(&r.kv_type_text),
        {.name = "reps",
         .kind = ARG_UINT,
         .target = &r.reps,
         .value = "N",
         .umin = 1,
         .umax = REPS_MAX,
         .help = "how often each is measured; the median counts (default: 5)"},
        {.name = "vs",
         .kind = ARG_LIST,
         .target = &r.peers,
         .value = "COMMAND",
         .help = "a llama-bench command to compare with, in turns; given again, the faster counts"},
        {.name = "vs-parallel",
         .kind = ARG_LIST,
         .target = &r.batched_peers,
         .value = "COMMAND",
         .help = "likewise a llama-batched-bench command, for --parallel"},
        {.name = "edit",
         .kind = ARG_FLAG,
         .target = &r.edit,
         .help = "an answer that repeats most of its prompt, with guessed tokens and without"},
        {.name = "text",
         .kind = ARG_STRING,
         .target = &r.text,
         .value = "FILE",
         .help = "also tokenizes this text: bytes a second, one thread"},
        {.name = "roofline",
         .kind = ARG_FLAG,
         .target = &r.roofline,
         .help = "the machine's bandwidth and peaks; needs no MODEL"},
        {.name = "kernels",
         .kind = ARG_FLAG,
         .target = &r.kernels,
         .help = "every kernel against its bound; needs no MODEL"},
        {.name = "load",
         .kind = ARG_STRING,
         .target = &load,
         .value = "URL",
         .help = "drives a server instead, with the options further below"},
    };
    const arg_command c = {
        .name = "bench",
        .synopsis = "MODEL | --roofline | --kernels | --load URL",
        .summary = "Measures a model's speed and what fraction of the machine's bound it is.",
        .details =
            "pp512: a prompt of 512 tokens; tg128: 128 tokens generated; tg128@4096: after 4,096\n"
            "tokens; tg128x16: 16 sequences together. Figures are tokens per second.\n"
            "A graph (MODEL.onnx) takes --shape NAME=1x3x224x224, --batch N, --input NAME=FILE.npy and\n"
            "--reps N and --provider NAMES instead, a bundle --record JSON or -i FILE.",
        .example = "churon bench model.gguf --parallel 1,4,16\n"
                   "churon bench model.gguf --threads 1 --vs \"llama-bench -fa 0\"",
        .options = options,
        .n_options = sizeof options / sizeof *options,
        .max_args = 1};
    size_t n_args;
    int code = EXIT_USAGE;
    arg_outcome outcome = args_parse(&c, argc, argv, &r.common, argv, &n_args);
    if (outcome == ARGS_DONE) {
        code = asks_for_help ? help_on_load() : cli_finish(EXIT_YES);
    } else if (outcome == ARGS_RUN) {
        r.model = n_args ? argv[0] : NULL;
        bool of_machine = r.roofline || r.kernels;
        if (!settings_kv_type(r.kv_type_text, &r.kv_type)) {
            code = args_wrong(&c, "--kv-type", SETTINGS_KV_TYPES, r.kv_type_text);
        } else if (of_machine == (r.model != NULL)) {
            code = args_wrong(&c, "MODEL", "a model, --roofline or --kernels, one of them",
                              r.model ? "two" : "none");
        } else {
            code = of_machine ? bench_machine(&r) : bench_model(&r);
        }
    }
    args_list_free(&r.peers);
    args_list_free(&r.batched_peers);
    return code;
}

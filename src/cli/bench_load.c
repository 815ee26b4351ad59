/* bench_load.c: `churon bench --load URL`: drives a server and says how it held. */
#include "cli/bench_load.h"

#include "base/clock.h"
#include "base/mem.h"
#include "bench/load_peer.h"
#include "cli/cli.h"
#include "cli/interrupt.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { KNEE_SECONDS = 20 };

/* Which options stood on the command line: a scenario sets the others. */
typedef struct given_options {
    bool concurrency, requests, rate, shared_prefix, rounds, seed, time_scale, length_scale, duration;
} given_options;

/* ---- scenarios ---------------------------------------------------------------------------------------- */

static void preset_u(uint64_t *to, bool given, uint64_t value) {
    if (!given) *to = value;
}

static void preset_z(const char **to, const char *value) {
    if (!*to) *to = value;
}

/* False: no such scenario. */
static bool apply_scenario(load_request_options *o, const given_options *g) {
    if (strcmp(o->scenario, "chat16") == 0) {
        preset_u(&o->concurrency, g->concurrency, 16);
        preset_u(&o->requests, g->requests, 64);
        preset_z(&o->prompt_tokens_text, "110");
        preset_z(&o->output_tokens_text, "128");
        preset_u(&o->rounds, g->rounds, 2);
    } else if (strcmp(o->scenario, "prefix16") == 0) {
        preset_u(&o->concurrency, g->concurrency, 16);
        preset_u(&o->requests, g->requests, 16);
        preset_u(&o->shared_prefix, g->shared_prefix, 1000);
        preset_z(&o->prompt_tokens_text, "50");
        preset_z(&o->output_tokens_text, "32");
        preset_u(&o->rounds, g->rounds, 2);
    } else if (strcmp(o->scenario, "stall") == 0) {
        o->mode = LOAD_STALL;
        preset_z(&o->prompt_tokens_text, "3000");
        preset_u(&o->rounds, g->rounds, 3);
    } else if (strcmp(o->scenario, "trace") == 0) {
        preset_z(&o->slo_text, "ttft=2s,tpot=100ms");
        if (!g->length_scale) o->length_scale = 0.25;
        o->find_knee = true;
    } else {
        return false;
    }
    return true;
}

/* ---- checking ------------------------------------------------------------------------------------------ */

typedef struct wrong {
    const char *field, *expected, *got;
} wrong;

static bool too_many_modes(const load_request_options *o, const given_options *g) {
    return (o->mode == LOAD_STALL) + (g->concurrency && o->mode != LOAD_STALL) + (o->rate > 0 && !o->trace) +
               (o->trace != NULL) >
           1;
}

/* What the table of options cannot say; NULL: nothing is wrong. */
static const wrong *find_wrong(const load_request_options *o, const given_options *g) {
    static const wrong both_peers = {"--peer", "one of --vs and --peer", "both"},
                       no_trace = {"--trace", "a file, for the scenario trace", "none"},
                       modes = {"--rate", "one of --concurrency, --rate, --trace and --scenario stall",
                                "two"},
                       no_slo = {"--slo", "an objective, for --find-knee", "none"},
                       no_rate = {"--rate", "a first rate or --trace, for --find-knee", "neither"},
                       scales = {"--time-scale", "--trace beside it and --length-scale", "none"},
                       prompts = {"--prompts",
                                  "no --trace, --shared-prefix, --completions or --scenario stall "
                                  "beside it",
                                  "one"},
                       knee_stall = {"--find-knee", "a load, not --scenario stall", "both"},
                       knee_requests = {"--requests",
                                        "--duration instead, for --find-knee: the time at each rate",
                                        "requests"};
    if (o->peer && o->urls[1]) return &both_peers;
    if (o->scenario && strcmp(o->scenario, "trace") == 0 && !o->trace) return &no_trace;
    if (too_many_modes(o, g)) return &modes;
    if (o->find_knee && o->mode == LOAD_STALL) return &knee_stall;
    if (o->find_knee && g->requests && !o->trace) return &knee_requests;
    if (o->find_knee && !o->slo_text) return &no_slo;
    if (o->find_knee && o->rate <= 0 && !o->trace) return &no_rate;
    if ((g->time_scale || g->length_scale) && !o->trace) return &scales;
    if (o->prompts && (o->trace || o->shared_prefix || o->completions || o->mode == LOAD_STALL))
        return &prompts;
    return NULL;
}

static status read_texts(load_request_options *o, error *err) {
    preset_z(&o->prompt_tokens_text, "110");
    preset_z(&o->output_tokens_text, "128");
    TRY(load_range_parse(&o->prompt_tokens, o->prompt_tokens_text, "--prompt-tokens", err));
    TRY(load_range_parse(&o->output_tokens, o->output_tokens_text, "--output-tokens", err));
    if (o->slo_text) TRY(load_slo_parse(&o->slo, o->slo_text, err));
    o->has_slo = o->slo_text != NULL;
    TRY(load_url_check(o->urls[0], "--load", err));
    if (o->urls[1]) TRY(load_url_check(o->urls[1], "--vs", err));
    return CHURON_OK;
}

static void settle_mode(load_request_options *o, const given_options *g) {
    /* Prompts that the server has not seen: a seed of its own for every start, unless one is wanted. */
    if (!g->seed) o->seed = ((uint64_t)clock_unix() << 20 ^ (uint64_t)getpid()) % 1000000007;
    if (o->mode == LOAD_STALL) return;
    o->mode = o->trace ? LOAD_TRACE : o->rate > 0 ? LOAD_OPEN : LOAD_CLOSED;
    if (o->find_knee && o->duration == 0) o->duration = KNEE_SECONDS;
    /* With a duration the number of requests is only a bound. */
    if (o->duration > 0 && !g->requests) o->requests = o->trace ? 0 : 100000;
    if (o->trace && !g->requests && !o->scenario) o->requests = 0;
}

/* ---- the command --------------------------------------------------------------------------------------- */

static status write_records(const load_contest *c, const char *path, error *err) {
    str text = {0};
    for (size_t i = 0; i < c->n; i++) {
        const load_score *s = &c->scores[i];
        load_records_jsonl(&s->records, s->target.base, &text);
        for (size_t k = 0; k < s->n_stalls; k++) load_stall_jsonl(&s->stalls[k], s->target.base, &text);
    }
    status st = str_check(&text, err);
    FILE *f = st == CHURON_OK ? fopen(path, "wb") : NULL;
    if (st == CHURON_OK) {
        bool ok = f && fwrite(str_cstr(&text), 1, text.len, f) == text.len;
        if (f && fclose(f) != 0) ok = false;
        if (!ok)
            st = error_set(err, CHURON_IO, "field --records: cannot write %.200s: %s", path, strerror(errno));
    }
    str_free(&text);
    return st;
}

/* Every request that was not answered, other than by a refusal, is a failure of the whole. */
static int verdict(const load_contest *c, const load_request_options *o) {
    int code = EXIT_YES;
    for (size_t i = 0; i < c->n && o->mode != LOAD_STALL; i++) {
        const load_figures *f = &c->scores[i].figures;
        if (f->failed == 0 && f->completed > 0) continue;
        cli_error("bench: %.200s: expected answers to all %zu requests, got %zu, %zu refusals and %zu "
                  "failures%s%.*s",
                  c->scores[i].target.base, f->requests, f->completed, f->refused, f->failed,
                  f->n_errors ? "; the first: " : "", LOAD_WHY - 1, f->n_errors ? f->errors[0].example : "");
        code = EXIT_NO;
    }
    return code;
}

static int measure(const load_request_options *o, const arg_common *common) {
    error err;
    str out = {0};
    int code;
    load_contest *c = mem_calloc(1, sizeof *c);
    progress p = progress_begin(common->quiet);
    status st = CHURON_OK;
    if (!c) {
        st = error_no_memory(&err, "figures", sizeof *c);
        goto cleanup;
    }
    if (o->peer) {
        interrupt_on_end(load_peer_abandon);
        TRY_GOTO(interrupt_begin(&err));
    }
    TRY_GOTO(load_contest_run(c, o, &p, &err));
    if (o->records) TRY_GOTO(write_records(c, o->records, &err));
    if (common->json) {
        load_contest_json(c, o, &out);
    } else {
        load_contest_table(c, o, &out);
    }
    st = str_check(&out, &err);
cleanup:
    progress_end(&p);
    if (st != CHURON_OK) {
        code = cli_refuse("bench", &err);
    } else if (common->json) {
        code = cli_print_json(&out);
    } else {
        (void)cli_write(str_cstr(&out), out.len);
        code = cli_finish(EXIT_YES);
    }
    if (st == CHURON_OK && code == EXIT_YES) code = verdict(c, o);
    if (c) load_contest_free(c);
    mem_free(c);
    str_free(&out);
    return code;
}

static int check_and_measure(load_request_options *o, const given_options *g, const arg_command *c,
                             const arg_common *common) {
    error err;
    if (o->scenario && !apply_scenario(o, g)) {
        return args_wrong(c, "--scenario", "chat16, prefix16, stall or trace", o->scenario);
    }
    const wrong *w = find_wrong(o, g);
    if (w) return args_wrong(c, w->field, w->expected, w->got);
    settle_mode(o, g);
    if (read_texts(o, &err) != CHURON_OK) return cli_fail("bench", &err);
    return measure(o, common);
}

int cmd_bench_load(int argc, char **argv) {
    for (int i = 1; i < argc; i++) { /* `--load --help` has no URL: the help is wanted all the same */
        if (strcmp(argv[i], "--help") == 0 && argc > 2) {
            argv[1] = argv[i];
            argc = 2;
        }
    }
    load_request_options o = {
        .concurrency = 16, .requests = 64, .rounds = 1, .time_scale = 1, .length_scale = 1, .timeout = 600};
    given_options g = {0};
    arg_common common = {0};
    const double most = 1e9;
    const arg_option options[] = {
        {.name = "load",
         .kind = ARG_STRING,
         .target = &o.urls[0],
         .value = "URL",
         .help = "the server to drive"},
        {.name = "vs",
         .kind = ARG_STRING,
         .target = &o.urls[1],
         .value = "URL",
         .help = "another server to measure in turns, and ratios to it"},
        {.name = "peer",
         .kind = ARG_STRING,
         .target = &o.peer,
         .value = "COMMAND",
         .help = "likewise a server that this command starts on port {port}"},
        {.name = "scenario",
         .kind = ARG_STRING,
         .target = &o.scenario,
         .value = "NAME",
         .help = "chat16, prefix16, stall or trace: sets what is not given"},
        {.name = "concurrency",
         .kind = ARG_UINT,
         .target = &o.concurrency,
         .value = "N",
         .umin = 1,
         .umax = 10000,
         .given = &g.concurrency,
         .help = "closed loop: this many requests in flight (default: 16)"},
        {.name = "rate",
         .kind = ARG_DOUBLE,
         .target = &o.rate,
         .value = "R",
         .min = 1e-6,
         .max = 1e6,
         .given = &g.rate,
         .help = "open loop: so many a second, arriving at random (Poisson)"},
        {.name = "trace",
         .kind = ARG_STRING,
         .target = &o.trace,
         .value = "FILE",
         .help = "open loop: times and lengths from a CSV file"},
        {.name = "time-scale",
         .kind = ARG_DOUBLE,
         .target = &o.time_scale,
         .value = "F",
         .min = 1e-6,
         .max = 1e6,
         .given = &g.time_scale,
         .help = "multiplies the trace's times (default: 1)"},
        {.name = "length-scale",
         .kind = ARG_DOUBLE,
         .target = &o.length_scale,
         .value = "F",
         .min = 1e-6,
         .max = 1e6,
         .given = &g.length_scale,
         .help = "multiplies the trace's lengths (default: 1)"},
        {.name = "requests",
         .kind = ARG_UINT,
         .target = &o.requests,
         .value = "M",
         .umin = 1,
         .umax = LOAD_REQUESTS_MAX,
         .given = &g.requests,
         .help = "how many in all (default: 64; of a trace all)"},
        {.name = "duration",
         .kind = ARG_DOUBLE,
         .target = &o.duration,
         .value = "S",
         .min = 1e-3,
         .max = most,
         .given = &g.duration,
         .help = "sends nothing more after so many seconds; with --find-knee the time at each rate (default: "
                 "20)"},
        {.name = "rounds",
         .kind = ARG_UINT,
         .target = &o.rounds,
         .value = "N",
         .umin = 1,
         .umax = LOAD_ROUNDS_MAX,
         .given = &g.rounds,
         .help = "runs of each server, in turns (default: 1)"},
        {.name = "prompt-tokens",
         .kind = ARG_STRING,
         .target = &o.prompt_tokens_text,
         .value = "N|N-M",
         .help = "length of the made-up prompts, template included (default: 110)"},
        {.name = "output-tokens",
         .kind = ARG_STRING,
         .target = &o.output_tokens_text,
         .value = "N|N-M",
         .help = "length of the answers (default: 128)"},
        {.name = "shared-prefix",
         .kind = ARG_UINT,
         .target = &o.shared_prefix,
         .value = "TOKENS",
         .umax = LOAD_TOKENS_MAX,
         .given = &g.shared_prefix,
         .help = "a system prompt that all share, besides --prompt-tokens"},
        {.name = "prompts",
         .kind = ARG_STRING,
         .target = &o.prompts,
         .value = "FILE",
         .help = "JSON lines with \"messages\" or \"prompt\" instead of made-up words"},
        {.name = "no-ignore-eos",
         .kind = ARG_FLAG,
         .target = &o.keep_eos,
         .help = "answers may end before their length"},
        {.name = "temperature",
         .kind = ARG_DOUBLE,
         .target = &o.temperature,
         .value = "T",
         .min = 0,
         .max = 100,
         .help = "of the requests (default: 0)"},
        {.name = "body",
         .kind = ARG_STRING,
         .target = &o.body,
         .value = "JSON",
         .help = "members that every request carries, such as {\"priority\": 1}"},
        {.name = "completions",
         .kind = ARG_FLAG,
         .target = &o.completions,
         .help = "asks /v1/completions instead of chat"},
        {.name = "model",
         .kind = ARG_STRING,
         .target = &o.models[0],
         .value = "NAME",
         .help = "as the server calls it (default: the first it lists)"},
        {.name = "vs-model",
         .kind = ARG_STRING,
         .target = &o.models[1],
         .value = "NAME",
         .help = "likewise for --vs and --peer"},
        {.name = "api-key",
         .kind = ARG_STRING,
         .target = &o.key,
         .value = "KEY",
         .help = "sent as Authorization: Bearer"},
        {.name = "slo",
         .kind = ARG_STRING,
         .target = &o.slo_text,
         .value = "LIST",
         .help = "what counts as good: ttft=500ms,tpot=50ms,itl=1s,e2e=10s"},
        {.name = "find-knee",
         .kind = ARG_FLAG,
         .target = &o.find_knee,
         .help = "searches the highest rate at which 90 % are good"},
        {.name = "timeout",
         .kind = ARG_DOUBLE,
         .target = &o.timeout,
         .value = "S",
         .min = 1e-3,
         .max = most,
         .help = "seconds for one request (default: 600)"},
        {.name = "seed",
         .kind = ARG_UINT,
         .target = &o.seed,
         .value = "N",
         .umax = UINT32_MAX,
         .given = &g.seed,
         .help = "of prompts, lengths and times (default: another one each time)"},
        {.name = "records",
         .kind = ARG_STRING,
         .target = &o.records,
         .value = "FILE",
         .help = "writes each request with all its times as JSON lines"},
    };
    const arg_command c = {
        .name = "bench",
        .synopsis = "--load URL",
        .summary = "Drives an OpenAI-compatible server and measures how it answers under load.",
        .details =
            "Lengths are what the server counts. Open loop: requests go out at their time however slow\n"
            "the answers are, and times count from when they were due. Two servers take turns.",
        .example =
            "churon bench --load http://127.0.0.1:8080 --concurrency 16 --requests 64\n"
            "churon bench --load http://127.0.0.1:8080 --rate 2 --slo ttft=500ms,tpot=50ms --find-knee\n"
            "churon bench --load http://127.0.0.1:8080 --scenario stall --peer \"llama-server -m F --port "
            "{port}\"",
        .options = options,
        .n_options = sizeof options / sizeof *options};
    size_t n_args;
    const arg_outcome outcome = args_parse(&c, argc, argv, &common, argv, &n_args);
    if (outcome == ARGS_DONE) return cli_finish(EXIT_YES);
    return outcome == ARGS_RUN ? check_and_measure(&o, &g, &c, &common) : EXIT_USAGE;
}

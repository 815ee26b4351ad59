/* run.c: `churon run`: one answer of a language model; on a terminal without a prompt, a chat. */
#include "cli/run.h"

#include "base/clock.h"
#include "base/mem.h"
#include "cli/answer.h"
#include "cli/cli.h"
#include "cli/interrupt.h"
#include "cli/settings.h"
#include "registry/store.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { PROMPT_MAX_BYTES = 64 << 20 };

typedef struct run_options {
    const char *model, *prompt, *system, *ids, *kv_type_text, *speculate, *draft;
    engine_options engine;
    uint64_t max_tokens, logprobs, ctx;
    bool raw, ignore_eos, logprobs_given;
    arg_list stop, bias;
    settings_given settings;
    arg_common common;
} run_options;

/* ---- the prompt ------------------------------------------------------------------------------------- */

status run_chat_tokens(lm_bundle *b, const chat_message *messages, size_t n, token_list *out, error *err) {
    str text = {0};
    status st = lm_bundle_chat_prompt(b, messages, n, true, &text, err);
    if (st == CHURON_OK) {
        tokenize_options o = {.add_special = true, .parse_special = true};
        st = tokenizer_encode(lm_bundle_tokenizer(b), str_cstr(&text), text.len, o, out, err);
    }
    str_free(&text);
    return st;
}

status run_check_context(lm_bundle *b, size_t n, error *err) {
    size_t context = engine_context(lm_bundle_engine(b));
    uint32_t trained = lm_bundle_model(b)->config.context_trained;
    if (n == 0) {
        return error_set(err, CHURON_INVALID, "field PROMPT: expected at least one token, got none");
    }
    if (n < context) return CHURON_OK;
    return error_set(err, CHURON_LIMIT,
                     "field PROMPT: expected fewer than %zu tokens (the context), got %zu. Shorten it%s.",
                     context, n,
                     context < trained ? " or raise --ctx" : "; the model was trained for no more");
}

static status check_utf8(const char *field, const char *text, size_t len, error *err) {
    size_t good = utf8_validate(text, len);
    if (good == len) return CHURON_OK;
    return error_set(err, CHURON_INVALID, "field %s: expected UTF-8 text, got byte 0x%02x at offset %zu",
                     field, (unsigned)(unsigned char)text[good], good);
}

static status ids_prompt(const run_options *o, lm_bundle *b, token_list *out, error *err) {
    size_t n, n_vocab = tokenizer_n_tokens(lm_bundle_tokenizer(b));
    uint64_t *ids = args_uint_list(o->ids, n_vocab - 1, &n);
    if (!ids) {
        return error_set(err, CHURON_INVALID,
                         "field --ids: expected token ids from 0 to %zu such as 1,2,3, got %.80s",
                         n_vocab - 1, o->ids);
    }
    status st = CHURON_OK;
    for (size_t i = 0; i < n && st == CHURON_OK; i++) st = token_list_add(out, (int32_t)ids[i], err);
    mem_free(ids);
    return st;
}

static status text_prompt(const run_options *o, lm_bundle *b, token_list *out, error *err) {
    str input = {0};
    const char *text = o->prompt;
    size_t len = text ? strlen(text) : 0;
    status st = CHURON_OK;
    if (!text || strcmp(text, "-") == 0) {
        TRY_GOTO(file_read(&input, "-", PROMPT_MAX_BYTES, err));
        if (input.len && input.data[input.len - 1] == '\n') input.len--;
        text = str_cstr(&input);
        len = input.len;
    }
    TRY_GOTO(check_utf8("PROMPT", text, len, err));
    if (o->raw) {
        tokenize_options t = {.add_special = true, .parse_special = true};
        TRY_GOTO(tokenizer_encode(lm_bundle_tokenizer(b), text, len, t, out, err));
        goto cleanup;
    }
    if (len == 0) {
        st = error_set(err, CHURON_INVALID, "field PROMPT: expected text, got nothing");
        goto cleanup;
    }
    chat_message messages[2];
    size_t n = 0;
    if (o->system) {
        size_t system_len = strlen(o->system);
        TRY_GOTO(check_utf8("--system", o->system, system_len, err));
        messages[n++] = (chat_message){"system", o->system, 6, system_len};
    }
    messages[n++] = (chat_message){"user", text, 4, len};
    TRY_GOTO(run_chat_tokens(b, messages, n, out, err));
cleanup:
    str_free(&input);
    return st;
}

/* ---- one answer ------------------------------------------------------------------------------------- */

static void write_timing(json_out *j, const lm_bundle *b, const engine_job_stats *s) {
    json_out_object(j, "timing");
    json_out_double(j, "load_s", lm_bundle_load_seconds(b));
    json_out_double(j, "prefill_s", s->prefill_s);
    json_out_double(j, "decode_s", s->decode_s);
    json_out_double(j, "prefill_tokens_per_s",
                    s->prefill_s > 0 ? (double)(s->prompt_tokens - s->cached_tokens) / s->prefill_s : 0);
    json_out_double(j, "decode_tokens_per_s",
                    s->tokens > 1 && s->decode_s > 0 ? (double)(s->tokens - 1) / s->decode_s : 0);
    json_out_end_object(j);
}

static void write_provenance(json_out *j, const lm_bundle *b, const run_request *r, const char *digest) {
    const lm_model *m = lm_bundle_model(b);
    json_out_object(j, "provenance");
    json_out_cstr(j, "model", lm_bundle_name(b));
    json_out_cstr(j, "digest", digest);
    json_out_cstr(j, "version", churon_version());
    json_out_cstr(j, "architecture", m->config.architecture);
    json_out_cstr(j, "isa", m->k->name);
    json_out_uint(j, "threads", lm_bundle_threads(b));
    json_out_cstr(j, "kv_type", kv_type_name(engine_kv_type(lm_bundle_engine((lm_bundle *)(uintptr_t)b))));
    json_out_uint(j, "context", engine_context(lm_bundle_engine((lm_bundle *)(uintptr_t)b)));
    settings_json(&r->generation.sampling, j);
    json_out_end_object(j);
}

static int report(const answer *a, lm_bundle *b, const run_request *r) {
    if (!r->common.json) {
        if (a->text.len && a->text.data[a->text.len - 1] != '\n') (void)cli_write("\n", 1);
        str speed = {0};
        answer_speed(a, &speed);
        cli_note(r->common.quiet, "%s; loaded in %.2f s; seed %llu", str_cstr(&speed),
                 lm_bundle_load_seconds(b), (unsigned long long)r->generation.sampling.seed);
        str_free(&speed);
        return cli_finish(EXIT_YES);
    }
    char digest[DIGEST_HEX];
    error err;
    if (store_digest(r->path, digest, &err) != CHURON_OK) return cli_refuse("run", &err);
    str out = {0};
    json_out j = json_out_begin(&out);
    json_out_object(&j, NULL);
    json_out_string(&j, "text", str_cstr(&a->text), a->text.len);
    json_out_array(&j, "ids");
    for (size_t i = 0; i < a->ids.len; i++) json_out_int(&j, NULL, a->ids.ids[i]);
    json_out_end_array(&j);
    json_out_cstr(&j, "finish_reason", finish_reason_name(a->finish));
    if (r->generation.sampling.want_logprobs) {
        json_out_array(&j, "logprobs");
        if (a->logprobs.len) json_out_raw(&j, NULL, a->logprobs.data, a->logprobs.len);
        json_out_end_array(&j);
    } else {
        json_out_null(&j, "logprobs");
    }
    json_out_object(&j, "usage");
    json_out_uint(&j, "prompt_tokens", a->stats.prompt_tokens);
    json_out_uint(&j, "completion_tokens", a->stats.tokens);
    json_out_end_object(&j);
    write_timing(&j, b, &a->stats);
    write_provenance(&j, b, r, digest);
    json_out_end_object(&j);
    int code = cli_print_json(&out);
    str_free(&out);
    return code;
}

static int run_once(lm_bundle *b, const run_options *o, const run_request *r) {
    error err;
    answer a = {.show = !o->common.json};
    token_list prompt = {0};
    engine_seq *seq = NULL;
    int code;
    status st;
    TRY_GOTO(o->ids ? ids_prompt(o, b, &prompt, &err) : text_prompt(o, b, &prompt, &err));
    TRY_GOTO(run_check_context(b, prompt.len, &err));
    TRY_GOTO(engine_seq_open(&seq, lm_bundle_engine(b), NULL, &err));
    TRY_GOTO(engine_seq_append(seq, prompt.ids, prompt.len, &err));
    TRY_GOTO(answer_generate(&a, b, seq, &r->generation, &err));
cleanup:
    if (st == CHURON_OK) {
        code = report(&a, b, r);
        if (interrupt_taken()) code = EXIT_INTERRUPTED;
    } else {
        if (a.show && a.text.len) (void)cli_write("\n", 1);
        code = cli_fail("run", &err);
    }
    engine_seq_close(seq);
    token_list_free(&prompt);
    answer_free(&a);
    return code;
}

/* ---- logit bias -------------------------------------------------------------------------------------- */

/* "ID=X" items to a new array (freed by mem_free); whether the ids exist is for generation_check to say. */
static status read_biases(const arg_list *items, logit_bias **out, error *err) {
    *out = mem_calloc(items->n + 1, sizeof **out);
    if (!*out) return error_no_memory(err, "logit bias", (items->n + 1) * sizeof **out);
    for (size_t i = 0; i < items->n; i++) {
        char id_text[16], expected[ARG_EXPECTED];
        const char *item = items->items[i], *equals = strchr(item, '=');
        uint64_t id = 0;
        double bias = 0;
        snprintf(id_text, sizeof id_text, "%.*s", equals ? (int)(equals - item) : 0, item);
        arg_option of_id = {.kind = ARG_UINT, .target = &id, .umax = INT32_MAX};
        arg_option of_bias = {.kind = ARG_DOUBLE, .target = &bias};
        if (!equals || equals - item > 15 || !arg_option_set(&of_id, id_text, expected) ||
            !arg_option_set(&of_bias, equals + 1, expected)) {
            return error_set(err, CHURON_INVALID,
                             "field --logit-bias: expected ID=X such as 198=-5, got \"%.80s\"", item);
        }
        (*out)[i] = (logit_bias){(int32_t)id, (float)bias};
    }
    return CHURON_OK;
}

/* ---- the command ------------------------------------------------------------------------------------ */

/* Any seed does when none was asked for; 32 bits are short enough to type again. */
static uint64_t random_seed(void) {
    uint32_t seed = 0;
    int fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
    bool good = fd >= 0 && read(fd, &seed, sizeof seed) == (ssize_t)sizeof seed;
    if (fd >= 0) close(fd);
    return good ? seed : (uint64_t)clock_unix();
}

static int check_usage(const arg_command *c, const run_options *o) {
    if (o->ids && o->prompt) return args_wrong(c, "--ids", "no PROMPT beside it", "both");
    if (o->ids && o->system) return args_wrong(c, "--ids", "no --system beside it", "both");
    if (o->raw && o->system)
        return args_wrong(c, "--raw", "no --system beside it (a raw prompt has no roles)", "both");
    if (o->logprobs_given && !o->common.json) {
        return args_wrong(c, "--logprobs", "--json beside it (they are not shown otherwise)", "none");
    }
    for (size_t i = 0; i < o->stop.n; i++) {
        if (!o->stop.items[i][0]) return args_wrong(c, "--stop", "text", "nothing");
    }
    return EXIT_YES;
}

static int with_bundle(const run_options *o, lm_bundle *b, const char *path) {
    size_t stop_len[64];
    run_request r = {.model = o->model, .path = path, .system = o->system, .common = o->common};
    generation_request *g = &r.generation;
    g->sampling = lm_bundle_sampling_defaults(b);
    g->sampling.seed = random_seed();
    settings_apply(&o->settings, &g->sampling);
    g->sampling.want_logprobs = o->logprobs_given;
    g->sampling.n_logprobs = o->logprobs;
    g->max_tokens = o->max_tokens;
    g->ignore_eos = o->ignore_eos;
    for (size_t i = 0; i < o->stop.n; i++) stop_len[i] = strlen(o->stop.items[i]);
    g->stop = o->stop.items;
    g->stop_len = stop_len;
    g->n_stop = o->stop.n;
    error err;
    logit_bias *biases = NULL;
    int code;
    status st;
    TRY_GOTO(read_biases(&o->bias, &biases, &err));
    g->sampling.bias = biases;
    g->sampling.n_bias = o->bias.n;
    TRY_GOTO(generation_check(b, g, &err));
    bool is_chat = !o->prompt && !o->ids && !o->raw && !o->common.json && cli_is_terminal(STDIN_FILENO) &&
                   cli_is_terminal(STDOUT_FILENO);
    code = is_chat ? chat_run(b, &r) : run_once(b, o, &r);
cleanup:
    if (st != CHURON_OK) code = cli_fail("run", &err);
    mem_free(biases);
    return code;
}

static int open_and_run(const run_options *o) {
    error err;
    str path = {0}, draft = {0};
    lm_bundle *b = NULL;
    lm_bundle_options bo = {.threads = o->common.threads, .engine = o->engine};
    status st;
    bo.engine.context = o->ctx;
    bo.engine.max_running = 1;
    TRY_GOTO(store_resolve(o->model, &path, &err));
    if (o->draft) TRY_GOTO(store_resolve(o->draft, &draft, &err));
    bo.draft = o->draft ? str_cstr(&draft) : NULL;
    TRY_GOTO(lm_bundle_open(&b, str_cstr(&path), &bo, &err));
cleanup:;
    int code = st == CHURON_OK ? with_bundle(o, b, str_cstr(&path)) : cli_refuse("run", &err);
    lm_bundle_close(b);
    str_free(&path);
    str_free(&draft);
    return code;
}

int cmd_run(int argc, char **argv) {
    if (bundle_is_asked(argc, argv)) return bundle_cmd_run(argc, argv);
    if (graph_is_asked(argc, argv)) return graph_cmd_run(argc, argv);
    run_options o = {0};
    arg_option options[SETTINGS_MAX + 16] = {
        {.name = "system",
         .kind = ARG_STRING,
         .target = &o.system,
         .value = "TEXT",
         .help = "the system message"},
        {.name = "max-tokens",
         .kind = ARG_UINT,
         .target = &o.max_tokens,
         .value = "N",
         .umin = 1,
         .umax = UINT32_MAX,
         .help = "ends the answer after N tokens (default: the context)"},
        {.name = "stop",
         .kind = ARG_LIST,
         .target = &o.stop,
         .value = "TEXT",
         .help = "ends the answer before this text; may be given again"},
        {.name = "raw",
         .kind = ARG_FLAG,
         .target = &o.raw,
         .help = "the prompt as it is, without the chat template"},
        {.name = "ids",
         .kind = ARG_STRING,
         .target = &o.ids,
         .value = "1,2,3",
         .help = "token ids as the prompt"},
        {.name = "logprobs",
         .kind = ARG_UINT,
         .target = &o.logprobs,
         .value = "K",
         .umax = TOP_MAX,
         .given = &o.logprobs_given,
         .help = "log-probabilities of each token and of the K likeliest (with --json)"},
        {.name = "ignore-eos",
         .kind = ARG_FLAG,
         .target = &o.ignore_eos,
         .help = "goes on after an end-of-sequence token"},
        {.name = "logit-bias",
         .kind = ARG_LIST,
         .target = &o.bias,
         .value = "ID=X",
         .help = "adds X to a token's logit; may be given again"},
        {.name = "ctx",
         .kind = ARG_UINT,
         .target = &o.ctx,
         .value = "N",
         .umin = 1,
         .umax = UINT32_MAX,
         .help = "tokens of context (default: what the model was trained with)"},
        settings_kv_type_option(&o.kv_type_text),
        settings_speculate_option(&o.speculate),
        settings_draft_option(&o.draft),
    };
    size_t n = 12;
    settings_options(options + n, &o.settings);
    n += settings_count();
    const arg_command c = {
        .name = "run",
        .synopsis = "MODEL [PROMPT]",
        .summary =
            "Answers PROMPT with a language model. Without PROMPT: standard input; on a terminal, a chat.",
        .details =
            "MODEL is a file or a name in the store. The answer is written as it comes; speed and seed go\n"
            "to stderr. With --json: text, ids, finish_reason, logprobs, usage, timing, provenance.\n"
            "A graph (MODEL.onnx) takes --record JSON, -i FILE, --input NAME=FILE.npy, --output-dir DIR and\n"
            "--provider NAMES instead, a bundle --record, -i, --trace and --sequence: 'churon run "
            "MODEL.onnx\n"
            "--help', 'churon run BUNDLE --help'.",
        .example = "churon run model.gguf \"Why is the sky blue?\"\n"
                   "churon run model.gguf --temperature 0 --max-tokens 64 --json \"Name three colours.\"\n"
                   "churon run model.gguf",
        .options = options,
        .n_options = n,
        .min_args = 1,
        .max_args = 2};
    size_t n_args;
    int code = EXIT_USAGE;
    arg_outcome outcome = args_parse(&c, argc, argv, &o.common, argv, &n_args);
    if (outcome == ARGS_RUN) {
        o.model = argv[0];
        o.prompt = n_args > 1 ? argv[1] : NULL;
        code = check_usage(&c, &o);
        if (code == EXIT_YES && !settings_kv_type(o.kv_type_text, &o.engine.kv_type)) {
            code = args_wrong(&c, "--kv-type", SETTINGS_KV_TYPES, o.kv_type_text);
        }
        if (code == EXIT_YES && !settings_speculate(o.speculate, &o.engine)) {
            code = args_wrong(&c, "--speculate", SETTINGS_SPECULATE, o.speculate);
        }
        if (code == EXIT_YES && o.stop.n > 64) code = args_wrong(&c, "--stop", "at most 64", "more");
        error err;
        if (code == EXIT_YES && interrupt_begin(&err) != CHURON_OK) code = cli_refuse("run", &err);
        if (code == EXIT_YES) code = open_and_run(&o);
    } else if (outcome == ARGS_DONE) {
        code = cli_finish(EXIT_YES);
    }
    args_list_free(&o.stop);
    args_list_free(&o.bias);
    return code;
}

/* perplexity.c: `churon perplexity`: how well a model predicts a text. */
#include "bench/perplexity.h"

#include "cli/cli.h"
#include "cli/progress.h"
#include "cli/settings.h"
#include "registry/store.h"

#include <stdio.h>

enum { TEXT_MAX_BYTES = 1 << 30 };

static bool show(void *user, const perplexity_result *so_far, size_t of_windows) {
    char detail[96];
    snprintf(detail, sizeof detail, "window %zu of %zu, perplexity %.4f", so_far->windows, of_windows,
             so_far->ppl);
    progress_update(user, "perplexity", (double)so_far->windows, (double)of_windows, detail);
    return true;
}

static int print(const perplexity_result *r, const arg_common *common, uint64_t ctx) {
    double per_second = r->seconds > 0 ? (double)r->computed / r->seconds : 0;
    str out = {0};
    if (!common->json) {
        str_fmt(&out,
                "perplexity %.4f ± %.4f (nll %.6f over %zu tokens in %zu windows of %llu; %.0f tokens per "
                "second)\n",
                r->ppl, r->ppl * r->nll_error, r->nll, r->tokens, r->windows, (unsigned long long)ctx,
                per_second);
        (void)cli_write(str_cstr(&out), out.len);
        str_free(&out);
        return cli_finish(EXIT_YES);
    }
    json_out j = json_out_begin(&out);
    json_out_object(&j, NULL);
    json_out_double(&j, "ppl", r->ppl);
    json_out_double(&j, "ppl_error", r->ppl * r->nll_error);
    json_out_double(&j, "nll", r->nll);
    json_out_uint(&j, "tokens", r->tokens);
    json_out_uint(&j, "windows", r->windows);
    json_out_uint(&j, "ctx", ctx);
    json_out_double(&j, "tokens_per_s", per_second);
    json_out_end_object(&j);
    int code = cli_print_json(&out);
    str_free(&out);
    return code;
}

static int measure(const char *model, const char *file, uint64_t ctx, kv_type type,
                   const arg_common *common) {
    error err;
    str path = {0}, text = {0};
    token_list ids = {0};
    lm_bundle *b = NULL;
    perplexity_result r;
    lm_bundle_options bo = {.threads = common->threads,
                            .engine = {.context = (size_t)ctx, .max_running = 1, .kv_type = type}};
    status st;
    int code = EXIT_NO;
    TRY_GOTO(store_resolve(model, &path, &err));
    TRY_GOTO(file_read(&text, file, TEXT_MAX_BYTES, &err));
    TRY_GOTO(lm_bundle_open(&b, str_cstr(&path), &bo, &err));
    tokenize_options o = {.add_special = true, .parse_special = false};
    TRY_GOTO(tokenizer_encode(lm_bundle_tokenizer(b), str_cstr(&text), text.len, o, &ids, &err));
    progress p = progress_begin(common->quiet);
    st = perplexity_measure(&r, b, ids.ids, ids.len, (size_t)ctx, show, &p, &err);
    progress_end(&p);
    if (st == CHURON_OK) code = print(&r, common, ctx);
cleanup:
    if (st != CHURON_OK) code = cli_refuse("perplexity", &err);
    lm_bundle_close(b);
    token_list_free(&ids);
    str_free(&text);
    str_free(&path);
    return code;
}

int cmd_perplexity(int argc, char **argv) {
    uint64_t ctx = 512;
    const char *kv_text = NULL;
    kv_type type = KV_F16;
    arg_common common = {0};
    const arg_option options[] = {
        {.name = "ctx",
         .kind = ARG_UINT,
         .target = &ctx,
         .value = "N",
         .umin = 4,
         .umax = 1 << 24,
         .help = "tokens of a window (default: 512)"},
        settings_kv_type_option(&kv_text),
    };
    const arg_command c = {.name = "perplexity",
                           .synopsis = "MODEL FILE",
                           .summary = "Measures how well a model predicts a text: lower is better.",
                           .details = "The text is cut into windows; the second half of each is scored.\n"
                                      "With --json: ppl, ppl_error, nll, tokens, windows, ctx, tokens_per_s.",
                           .example = "churon perplexity model.gguf text.txt --ctx 512",
                           .options = options,
                           .n_options = sizeof options / sizeof *options,
                           .min_args = 2,
                           .max_args = 2};
    size_t n_args;
    arg_outcome outcome = args_parse(&c, argc, argv, &common, argv, &n_args);
    if (outcome != ARGS_RUN) return outcome == ARGS_DONE ? cli_finish(EXIT_YES) : EXIT_USAGE;
    if (!settings_kv_type(kv_text, &type)) return args_wrong(&c, "--kv-type", SETTINGS_KV_TYPES, kv_text);
    return measure(argv[0], argv[1], ctx, type, &common);
}

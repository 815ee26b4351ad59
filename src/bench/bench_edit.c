/* bench_edit.c: see bench_edit.h. */
#include "bench/bench_edit.h"

#include <string.h>

static const char wish[] =
    "Repeat the following text exactly, but write \"Tuesday\" instead of \"Monday\".\n\n";
static const char text[] =
    "The committee met on Monday to discuss the new library. It will stand beside the river, between the old "
    "mill and the school. The architect showed drawings of three floors with large windows to the south. On "
    "the first floor there will be books for children, on the second novels and poetry, and on the third "
    "newspapers, maps and a quiet room for study. The mayor asked how much the building would cost. The "
    "architect answered that the work would take two years and cost about four million. Several members were "
    "worried about floods in spring. An engineer explained that the foundations would be raised by a metre "
    "and that the cellar would hold no books. The committee will meet again next Monday to decide.";

status bench_edit_prompt(lm_bundle *b, token_list *ids, error *err) {
    str content = {0}, prompt = {0};
    status st;
    str_cat(&content, wish);
    str_cat(&content, text);
    TRY_GOTO(str_check(&content, err));
    if (lm_bundle_has_template(b)) {
        const chat_message m = {"user", content.data, 4, content.len};
        TRY_GOTO(lm_bundle_chat_prompt(b, &m, 1, true, &prompt, err));
    } else {
        str_add(&prompt, content.data, content.len);
        str_cat(&prompt, "\n\n");
    }
    TRY_GOTO(str_check(&prompt, err));
    const tokenize_options o = {.add_special = true, .parse_special = true};
    TRY_GOTO(tokenizer_encode(lm_bundle_tokenizer(b), prompt.data, prompt.len, o, ids, err));
cleanup:
    str_free(&content);
    str_free(&prompt);
    return st;
}

static engine_verdict go_on(void *user, const sampled *token) {
    (void)user;
    (void)token;
    return ENGINE_GO_ON;
}

status bench_edit_time(lm_bundle *b, const token_list *ids, bool guesses, double *per_s, error *err) {
    engine_seq *s;
    engine_job *j;
    engine_job_options o = {.max_tokens = BENCH_EDIT_TOKENS, .no_speculation = !guesses, .on_token = go_on};
    o.sampling = sampler_defaults();
    o.sampling.temperature = 0;
    TRY(engine_seq_open(&s, lm_bundle_engine(b), NULL, err));
    status st;
    TRY_GOTO(engine_seq_append(s, ids->ids, ids->len, err));
    TRY_GOTO(engine_submit(&j, s, &o, err));
    if (engine_wait(j) == ENGINE_FAILED) st = error_set(err, CHURON_INTERNAL, "bench: the engine failed");
    const engine_job_stats stats = engine_job_stats_get(j);
    *per_s = stats.decode_s > 0 ? (double)(stats.tokens - 1) / stats.decode_s : 0;
    engine_job_free(j);
cleanup:
    engine_seq_close(s);
    return st;
}

/* answer.c: see answer.h. */
#include "cli/answer.h"

#include "cli/cli.h"
#include "cli/interrupt.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

void answer_free(answer *a) {
    str_free(&a->text);
    str_free(&a->logprobs);
    token_list_free(&a->ids);
    *a = (answer){0};
}

/* A model's text must not move the cursor or talk to the terminal: escape sequences lose their ESC. */
static bool write_to_terminal(const char *bytes, size_t n) {
    const char *at = bytes, *end = bytes + n, *plain = bytes;
    while (at < end) {
        uint32_t cp;
        size_t k = utf8_decode(at, end, &cp);
        if (k == 0) k = 1, cp = 0xfffd;
        bool control = (cp < 0x20 && cp != '\n' && cp != '\t') || (cp >= 0x7f && cp < 0xa0);
        if (control) {
            if (!cli_write(plain, (size_t)(at - plain)) || !cli_write("\xef\xbf\xbd", 3)) return false;
            plain = at + k;
        }
        at += k;
    }
    return cli_write(plain, (size_t)(end - plain));
}

static void keep_logprob(answer *a, const sampled *t) {
    json_out j = json_out_begin(&a->logprobs);
    j.need_comma = a->logprobs.len > 0;
    json_out_object(&j, NULL);
    json_out_int(&j, "id", t->id);
    json_out_float(&j, "logprob", t->logprob);
    json_out_array(&j, "top");
    for (size_t i = 0; i < t->n_top; i++) {
        json_out_object(&j, NULL);
        json_out_int(&j, "id", t->top[i].id);
        json_out_float(&j, "logprob", t->top[i].logprob);
        json_out_end_object(&j);
    }
    json_out_end_array(&j);
    json_out_end_object(&j);
}

static bool on_event(void *user, const generation_event *e) {
    answer *a = user;
    str_add(&a->text, e->text, e->text_len);
    if (e->token) {
        if (a->failed == CHURON_OK) a->failed = token_list_add(&a->ids, e->token->id, &a->err);
        if (a->sampling->want_logprobs) keep_logprob(a, e->token);
    }
    if (a->failed == CHURON_OK) a->failed = str_check(&a->text, &a->err);
    if (a->failed == CHURON_OK) a->failed = str_check(&a->logprobs, &a->err);
    if (e->finish == FINISH_ERROR && a->failed == CHURON_OK) {
        a->failed = e->err->code;
        a->err = *e->err;
    }
    if (a->show && e->text_len && !a->reader_left) {
        bool written =
            a->on_terminal ? write_to_terminal(e->text, e->text_len) : cli_write(e->text, e->text_len);
        a->reader_left = !written;
    }
    return a->failed == CHURON_OK && !a->reader_left;
}

status answer_generate(answer *a, lm_bundle *b, engine_seq *seq, const generation_request *r, error *err) {
    a->sampling = &r->sampling;
    a->on_terminal = a->show && cli_is_terminal(STDOUT_FILENO);
    (void)interrupt_taken();
    generation *g = NULL;
    TRY(generation_start(&g, b, seq, r, on_event, a, err));
    interrupt_watch(g);
    a->finish = generation_wait(g);
    interrupt_watch(NULL);
    a->stats = generation_stats(g);
    generation_free(g);
    if (a->failed != CHURON_OK && err) *err = a->err;
    return a->failed;
}

static double per_second(size_t n, double seconds) {
    return seconds > 0 ? (double)n / seconds : 0;
}

void answer_speed(const answer *a, str *out) {
    const engine_job_stats *s = &a->stats;
    const size_t computed = s->prompt_tokens - s->cached_tokens;
    str_fmt(out, "prompt %zu tokens, %.0f per second; answer %zu token%s", computed,
            per_second(computed, s->prefill_s), s->tokens, s->tokens == 1 ? "" : "s");
    if (s->tokens > 1) str_fmt(out, ", %.0f per second", per_second(s->tokens - 1, s->decode_s));
}

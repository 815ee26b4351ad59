/* chat.c: see chat.h. */
#include "cli/chat.h"

#include "base/mem.h"
#include "cli/cli.h"
#include "cli/editor.h"
#include "cli/interrupt.h"

#include <string.h>
#include <unistd.h>

/* ---- one turn --------------------------------------------------------------------------------------- */

/* Makes the sequence hold exactly `prompt`, keeping what it has in common with it. The last token is always
 * computed again: its logits are what the answer begins with. */
static status set_sequence(engine_seq *seq, const token_list *prompt, error *err) {
    const int32_t *have = engine_seq_tokens(seq);
    size_t n = engine_seq_length(seq), keep = 0;
    while (keep < n && keep + 1 < prompt->len && have[keep] == prompt->ids[keep]) keep++;
    TRY(engine_seq_truncate(seq, keep, err));
    return engine_seq_append(seq, prompt->ids + keep, prompt->len - keep, err);
}

static status prepare(chat *c, error *err) {
    chat_message *messages = NULL;
    token_list prompt = {0};
    size_t n;
    status st;
    TRY_GOTO(conversation_view(&c->log, &messages, &n, err));
    TRY_GOTO(run_chat_tokens(c->bundle, messages, n, &prompt, err));
    st = run_check_context(c->bundle, prompt.len, err);
    if (st == CHURON_LIMIT) {
        (void)error_set(
            err, CHURON_LIMIT,
            "the conversation has %zu tokens, the context holds %zu. /undo takes the last question back, "
            "/clear begins anew.",
            prompt.len, engine_context(lm_bundle_engine(c->bundle)));
    }
    TRY_GOTO(st);
    TRY_GOTO(set_sequence(c->seq, &prompt, err));
cleanup:
    token_list_free(&prompt);
    mem_free(messages);
    return st;
}

/* What a person should know about how an answer ended. */
static void explain_end(const chat *c, const answer *a) {
    size_t context = engine_context(lm_bundle_engine(c->bundle));
    if (a->finish == FINISH_CANCELLED) {
        cli_note(false, "(stopped)");
    } else if (a->finish == FINISH_LENGTH && engine_seq_length(c->seq) + 1 >= context) {
        cli_note(
            false,
            "(the context of %zu tokens is full: /undo takes the last question back, /clear begins anew)",
            context);
    } else if (a->finish == FINISH_LENGTH) {
        cli_note(false, "(ended after %zu tokens: /set max-tokens N allows more)", a->stats.tokens);
    }
}

void chat_answer(chat *c) {
    error err;
    answer a = {.show = true};
    generation_request g = c->generation;
    g.sampling.seed += c->n_answers++;
    status st = prepare(c, &err);
    if (st == CHURON_OK) st = answer_generate(&a, c->bundle, c->seq, &g, &err);
    if (a.text.len && a.text.data[a.text.len - 1] != '\n') (void)cli_write("\n", 1);
    if (st == CHURON_OK && a.text.len) {
        st = conversation_add(&c->log, "assistant", a.text.data, a.text.len, &err);
    }
    if (st != CHURON_OK) {
        cli_error("chat: %s", err.message);
    } else {
        explain_end(c, &a);
        str_clear(&c->speed);
        answer_speed(&a, &c->speed);
        if (c->shows_speed) cli_note(false, "(%s)", str_cstr(&c->speed));
    }
    if (strcmp(conversation_last_role(&c->log), "user") == 0) conversation_drop(&c->log, 1);
    answer_free(&a);
}

/* ---- the loop --------------------------------------------------------------------------------------- */

static void ask(chat *c, const char *text, size_t len) {
    error err;
    size_t good = utf8_validate(text, len);
    if (good < len) {
        cli_error("chat: field message: expected UTF-8 text, got byte 0x%02x at offset %zu",
                  (unsigned)(unsigned char)text[good], good);
    } else if (conversation_add(&c->log, "user", text, len, &err) != CHURON_OK) {
        cli_error("chat: %s", err.message);
    } else {
        chat_answer(c);
    }
}

static bool is_blank(const str *s) {
    return strspn(str_cstr(s), " \t\n") == s->len;
}

static int loop(chat *c, editor *e) {
    str text = {0};
    bool was_interrupted = false;
    int code = EXIT_YES;
    for (;;) {
        editor_result r = editor_read(e, "> ", &text);
        if (r == EDITOR_END || (r == EDITOR_INTERRUPT && was_interrupted)) break;
        was_interrupted = r == EDITOR_INTERRUPT;
        if (was_interrupted) {
            cli_note(false, "(Ctrl-C again, Ctrl-D or /exit leaves)");
            continue;
        }
        if (r == EDITOR_FAILED) {
            cli_error("chat: the terminal cannot be read");
            code = EXIT_NO;
            break;
        }
        if (is_blank(&text)) continue;
        const char *line = str_cstr(&text);
        if (line[0] == '/' && line[1] != '/') {
            if (chat_command(c, line + 1) == CHAT_LEAVE) break;
        } else {
            size_t escaped = line[0] == '/'; /* "//x" is the message "/x" */
            ask(c, line + escaped, text.len - escaped);
        }
    }
    str_free(&text);
    return code;
}

int chat_run(lm_bundle *b, const run_request *r) {
    error err;
    editor *e = NULL;
    chat c = {.bundle = b, .generation = r->generation};
    int code = EXIT_NO;
    status st;
    if (!lm_bundle_has_template(b)) {
        cli_error(
            "run: %s: field tokenizer.chat_template: expected a chat template, got none. Give a PROMPT with "
            "--raw.",
            r->model);
        return EXIT_NO;
    }
    if (r->system) str_cat(&c.log.system, r->system);
    TRY_GOTO(editor_create(&e, &err));
    TRY_GOTO(engine_seq_open(&c.seq, lm_bundle_engine(b), NULL, &err));
    interrupt_on_end(editor_restore_terminal);
    cli_note(r->common.quiet, "%s, %zu tokens of context. /help shows what you can do.", lm_bundle_name(b),
             engine_context(lm_bundle_engine(b)));
    code = loop(&c, e);
cleanup:
    if (st != CHURON_OK) code = cli_refuse("run", &err);
    engine_seq_close(c.seq);
    conversation_free(&c.log);
    str_free(&c.speed);
    editor_free(e);
    return cli_finish(code);
}

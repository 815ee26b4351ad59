/* chat_commands.c: the /commands of a chat; see chat.h. */
#include "cli/chat.h"

#include "cli/cli.h"
#include "cli/settings.h"

#include <stdio.h>
#include <string.h>

static void say(const str *text) {
    (void)cli_write(str_cstr(text), text->len);
}

static void say_line(const char *line) {
    cli_note(false, "%s", line);
}

typedef struct chat_verb {
    const char *name, *value, *help;
    chat_next (*run)(chat *c, const char *value);
} chat_verb;

static const chat_verb *verbs(size_t *n);

static chat_next do_help(chat *c, const char *value) {
    (void)c;
    (void)value;
    size_t n;
    const chat_verb *all = verbs(&n);
    str out = {0};
    for (size_t i = 0; i < n; i++) {
        char left[48];
        snprintf(left, sizeof left, "/%s %s", all[i].name, all[i].value);
        str_fmt(&out, "  %-24s%s\n", left, all[i].help);
    }
    str_cat(&out, "Enter sends; Alt-Enter or Ctrl-J begins a new line; pasted text may have several lines.\n"
                  "Ctrl-C stops an answer; on an empty line, twice, it leaves. //text sends \"/text\".\n");
    say(&out);
    str_free(&out);
    return CHAT_STAY;
}

static chat_next do_clear(chat *c, const char *value) {
    (void)value;
    conversation_drop(&c->log, c->log.n);
    say_line("(a new conversation)");
    return CHAT_STAY;
}

static chat_next do_system(chat *c, const char *value) {
    if (!*value) {
        cli_note(false, "(system message: %s)", c->log.system.len ? c->log.system.data : "none");
        return CHAT_STAY;
    }
    str_clear(&c->log.system);
    if (strcmp(value, "-") != 0) str_cat(&c->log.system, value);
    say_line(c->log.system.len ? "(system message set)" : "(no system message)");
    return CHAT_STAY;
}

/* Takes the last answer and, with `question` too, what was asked back. */
static bool take_back(chat *c, bool question) {
    if (strcmp(conversation_last_role(&c->log), "assistant") == 0) conversation_drop(&c->log, 1);
    bool asked = strcmp(conversation_last_role(&c->log), "user") == 0;
    if (asked && question) conversation_drop(&c->log, 1);
    if (!asked) say_line("(nothing was asked yet)");
    return asked;
}

static chat_next do_undo(chat *c, const char *value) {
    (void)value;
    if (take_back(c, true)) say_line("(the last question and its answer are taken back)");
    return CHAT_STAY;
}

static chat_next do_regen(chat *c, const char *value) {
    (void)value;
    if (take_back(c, false)) chat_answer(c);
    return CHAT_STAY;
}

static chat_next do_save(chat *c, const char *value) {
    error err;
    if (!*value) {
        cli_error("/save: field FILE: expected a file's name, got nothing");
    } else if (conversation_save(&c->log, lm_bundle_name(c->bundle), value, &err) != CHURON_OK) {
        cli_error("/save: %s", err.message);
    } else {
        cli_note(false, "(%zu messages saved in %s)", c->log.n, value);
    }
    return CHAT_STAY;
}

static chat_next do_load(chat *c, const char *value) {
    error err;
    if (!*value) {
        cli_error("/load: field FILE: expected a file's name, got nothing");
    } else if (conversation_load(&c->log, value, &err) != CHURON_OK) {
        cli_error("/load: %s", err.message);
    } else {
        cli_note(false, "(%zu messages loaded from %s)", c->log.n, value);
    }
    return CHAT_STAY;
}

static status set_max_tokens(chat *c, const char *text, error *err) {
    uint64_t n = 0;
    char expected[ARG_EXPECTED];
    arg_option o = {.name = "max-tokens", .kind = ARG_UINT, .target = &n, .umax = UINT32_MAX};
    if (!arg_option_set(&o, text, expected)) {
        return error_set(err, CHURON_INVALID, "field max-tokens: expected %s, got \"%.80s\"", expected, text);
    }
    c->generation.max_tokens = n;
    return CHURON_OK;
}

static chat_next do_set(chat *c, const char *value) {
    char name[64];
    size_t n = strcspn(value, " =");
    const char *text = value + n;
    text += strspn(text, " =");
    if (n == 0) {
        str out = {0};
        settings_text(&c->generation.sampling, &out);
        str_fmt(&out, "  %-20s%-10zu most tokens of an answer; 0: up to the context\n", "max-tokens",
                c->generation.max_tokens);
        say(&out);
        str_free(&out);
        return CHAT_STAY;
    }
    snprintf(name, sizeof name, "%.*s", (int)(n < sizeof name ? n : sizeof name - 1), value);
    error err;
    generation_request changed = c->generation;
    status st;
    if (strcmp(name, "max-tokens") == 0 || strcmp(name, "max_tokens") == 0) {
        st = set_max_tokens(c, text, &err);
    } else {
        st = settings_set(&changed.sampling, name, text, &err);
        if (st == CHURON_OK) st = generation_check(c->bundle, &changed, &err);
        if (st == CHURON_OK) c->generation = changed;
    }
    if (st != CHURON_OK) {
        cli_error("/set: %s", err.message);
    } else {
        cli_note(false, "(%s = %s)", name, text);
    }
    return CHAT_STAY;
}

static chat_next do_speed(chat *c, const char *value) {
    if (strcmp(value, "on") == 0 || strcmp(value, "off") == 0) {
        c->shows_speed = value[1] == 'n';
        cli_note(false, "(speed %s)", c->shows_speed ? "after each answer" : "on demand");
    } else {
        cli_note(false, "(%s)", c->speed.len ? c->speed.data : "no answer yet");
    }
    return CHAT_STAY;
}

static chat_next do_exit(chat *c, const char *value) {
    (void)c;
    (void)value;
    return CHAT_LEAVE;
}

static const chat_verb table[] = {
    {"help", "", "this list", do_help},
    {"clear", "", "begin a new conversation; the system message stays", do_clear},
    {"system", "[TEXT]", "show or set the system message; - removes it", do_system},
    {"undo", "", "take the last question and its answer back", do_undo},
    {"regen", "", "answer the last question again, with another seed", do_regen},
    {"save", "FILE", "write the conversation to a file", do_save},
    {"load", "FILE", "go on with a saved conversation", do_load},
    {"set", "[NAME VALUE]", "show or change settings: temperature, top-p, seed, max-tokens, …", do_set},
    {"speed", "[on|off]", "the last answer's speed; on: after each answer", do_speed},
    {"exit", "", "leave (also Ctrl-D)", do_exit},
};

static const chat_verb *verbs(size_t *n) {
    *n = sizeof table / sizeof *table;
    return table;
}

chat_next chat_command(chat *c, const char *text) {
    size_t n_verbs, len = strcspn(text, " \n");
    const chat_verb *all = verbs(&n_verbs);
    const char *names[sizeof table / sizeof *table];
    char name[32];
    snprintf(name, sizeof name, "%.*s", (int)(len < 31 ? len : 31), text);
    if (strcmp(name, "quit") == 0) return CHAT_LEAVE;
    for (size_t i = 0; i < n_verbs; i++) {
        names[i] = all[i].name;
        if (strcmp(name, all[i].name) == 0) return all[i].run(c, text + len + strspn(text + len, " \n"));
    }
    int near = args_nearest(name, names, n_verbs);
    cli_error("chat: field command: expected one that /help lists, got /%s.%s%s%s", name,
              near >= 0 ? " Did you mean /" : "", near >= 0 ? names[near] : "", near >= 0 ? "?" : "");
    return CHAT_STAY;
}

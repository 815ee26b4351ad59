/* prompt.c: see prompt.h. */
#include "pipeline/steps/prompt.h"

#include <string.h>

static status find_member(const step_build *b, size_t key, const cell_type *message, const char *name,
                          uint32_t *out, error *err) {
    for (size_t i = 0; i < message->n_members; i++) {
        const cell_type *t = message->members[i].type;
        if (strcmp(message->members[i].name, name) != 0 || t->kind != CELL_TEXT || t->optional) continue;
        *out = (uint32_t)i;
        return CHURON_OK;
    }
    return step_fault(b, b->kind->keys[key].name, err, "expected records with a member '%s' that is a text",
                      name);
}

status prompt_check(const step_build *b, prompt_keys keys, prompt_source *out, error *err) {
    const key_value *prompt = &b->values[keys.prompt], *messages = &b->values[keys.messages];
    *out = (prompt_source){.prompt = -1, .messages = -1, .system = b->values[keys.system].text};
    if (prompt->given == messages->given)
        return step_fault(b, NULL, err, "expected either the key 'prompt' or the key 'messages'");
    if (prompt->given) {
        out->prompt = prompt->slot;
        return step_expect(b, keys.prompt, 1u << CELL_TEXT, false, err);
    }
    out->messages = messages->slot;
    TRY(step_expect(b, keys.messages, 1u << CELL_LIST, false, err));
    const cell_type *message = messages->type->of;
    if (message->kind != CELL_RECORD || message->optional)
        return step_fault(b, b->kind->keys[keys.messages].name, err, "expected a list of records");
    TRY(find_member(b, keys.messages, message, "role", &out->role, err));
    return find_member(b, keys.messages, message, "content", &out->content, err);
}

static const char *bytes_of(const cell *c) {
    return c->len ? c->bytes : "";
}

status prompt_messages(const step *s, run *r, const prompt_source *source, const cell *slots,
                       const chat_message **messages, size_t *n, error *err) {
    const cell *list = source->messages < 0 ? NULL : &slots[source->messages];
    const size_t most = (list ? list->n : 1) + 1;
    chat_message *out = arena_array(r->memory, most, sizeof *out);
    if (!out) return run_no_memory(r, s, most * sizeof *out, err);
    size_t at = 0;
    if (source->system) out[at++] = (chat_message){"system", source->system, 6, strlen(source->system)};
    if (!list) {
        const cell *c = &slots[source->prompt];
        out[at++] = (chat_message){"user", bytes_of(c), 4, c->len};
    }
    for (uint32_t i = 0; list && i < list->n; i++) {
        const cell *role = &list->items[i].items[source->role],
                   *content = &list->items[i].items[source->content];
        out[at++] = (chat_message){bytes_of(role), bytes_of(content), role->len, content->len};
    }
    if (list && list->n == 0)
        return error_set(err, CHURON_INVALID, "expected at least one message, got none");
    *messages = out;
    *n = at;
    return CHURON_OK;
}

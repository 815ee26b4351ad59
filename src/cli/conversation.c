/* conversation.c: see conversation.h. */
#include "cli/conversation.h"

#include "base/json_out.h"
#include "base/mem.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { FILE_MAX_BYTES = 64 << 20, MESSAGES_MAX = 100000 };

void conversation_free(conversation *c) {
    conversation_drop(c, c->n);
    mem_free(c->messages);
    str_free(&c->system);
    *c = (conversation){0};
}

status conversation_add(conversation *c, const char *role, const char *text, size_t len, error *err) {
    if (c->n == c->room) {
        size_t room = c->room * 2 + 8;
        message *grown = mem_realloc(c->messages, room * sizeof *grown);
        if (!grown) return error_no_memory(err, "messages", room * sizeof *grown);
        c->messages = grown;
        c->room = room;
    }
    message m = {.role = role};
    str_add(&m.content, text, len);
    if (m.content.failed) return error_no_memory(err, "message", len);
    c->messages[c->n++] = m;
    return CHURON_OK;
}

void conversation_drop(conversation *c, size_t n) {
    while (n-- > 0 && c->n > 0) str_free(&c->messages[--c->n].content);
}

const char *conversation_last_role(const conversation *c) {
    return c->n ? c->messages[c->n - 1].role : "";
}

status conversation_view(const conversation *c, chat_message **out, size_t *n, error *err) {
    *out = mem_calloc(c->n + 1, sizeof **out);
    if (!*out) return error_no_memory(err, "messages", (c->n + 1) * sizeof **out);
    size_t k = 0;
    if (c->system.len) (*out)[k++] = (chat_message){"system", c->system.data, 6, c->system.len};
    for (size_t i = 0; i < c->n; i++) {
        const message *m = &c->messages[i];
        (*out)[k++] = (chat_message){m->role, str_cstr(&m->content), strlen(m->role), m->content.len};
    }
    *n = k;
    return CHURON_OK;
}

/* ---- the file --------------------------------------------------------------------------------------- */

static void write_message(json_out *j, const char *role, const str *content) {
    json_out_object(j, NULL);
    json_out_cstr(j, "role", role);
    json_out_string(j, "content", str_cstr(content), content->len);
    json_out_end_object(j);
}

static status write_file(const char *path, const str *text, error *err) {
    FILE *f = fopen(path, "wb");
    bool good = f && fwrite(text->data, 1, text->len, f) == text->len;
    int code = errno;
    if (f && fclose(f) != 0 && good) {
        good = false;
        code = errno;
    }
    if (good) return CHURON_OK;
    if (f) (void)unlink(path);
    return error_set(err, CHURON_IO, "%s: cannot write: %s", path, strerror(code));
}

status conversation_save(const conversation *c, const char *model, const char *path, error *err) {
    str text = {0}, beside = {0};
    json_out j = json_out_begin(&text);
    json_out_object(&j, NULL);
    json_out_cstr(&j, "model", model);
    json_out_array(&j, "messages");
    if (c->system.len) write_message(&j, "system", &c->system);
    for (size_t i = 0; i < c->n; i++) write_message(&j, c->messages[i].role, &c->messages[i].content);
    json_out_end_array(&j);
    json_out_end_object(&j);
    str_put(&text, '\n');
    str_fmt(&beside, "%s.part", path);
    status st;
    TRY_GOTO(str_check(&text, err));
    TRY_GOTO(str_check(&beside, err));
    TRY_GOTO(write_file(beside.data, &text, err));
    if (rename(beside.data, path) != 0) {
        st = error_set(err, CHURON_IO, "%s: cannot write: %s", path, strerror(errno));
        (void)unlink(beside.data);
    }
cleanup:
    str_free(&text);
    str_free(&beside);
    return st;
}

static status read_message(conversation *c, size_t i, const json_t *m, error *err) {
    const char *role = json_string_value(json_object_get(m, "role"));
    const json_t *content = json_object_get(m, "content");
    if (!role || !json_is_string(content)) {
        return error_set(err, CHURON_INVALID,
                         "field messages[%zu]: expected an object with the strings role and content", i);
    }
    const char *text = json_string_value(content);
    size_t len = json_string_length(content);
    if (strcmp(role, "user") == 0) return conversation_add(c, "user", text, len, err);
    if (strcmp(role, "assistant") == 0) return conversation_add(c, "assistant", text, len, err);
    if (strcmp(role, "system") == 0 && i == 0) {
        str_add(&c->system, text, len);
        return str_check(&c->system, err);
    }
    return error_set(err, CHURON_INVALID,
                     "field messages[%zu].role: expected user, assistant or (first) system, got %.40s", i,
                     role);
}

status conversation_load(conversation *c, const char *path, error *err) {
    str text = {0};
    conversation fresh = {0};
    json_t *root = NULL;
    status st;
    TRY_GOTO(file_read(&text, path, FILE_MAX_BYTES, err));
    json_error_t where;
    root = json_loadb(str_cstr(&text), text.len, JSON_REJECT_DUPLICATES, &where);
    if (!root) {
        st = error_set(err, CHURON_INVALID, "%s: expected JSON, got in line %d: %s", path, where.line,
                       where.text);
        goto cleanup;
    }
    const json_t *messages = json_object_get(root, "messages");
    size_t n = json_array_size(messages);
    if (!json_is_array(messages) || n > MESSAGES_MAX) {
        st = error_set(err, CHURON_INVALID, "%s: field messages: expected an array of at most %d", path,
                       MESSAGES_MAX);
        goto cleanup;
    }
    for (size_t i = 0; i < n; i++) TRY_GOTO(read_message(&fresh, i, json_array_get(messages, i), err));
    conversation old = *c;
    *c = fresh;
    fresh = old;
cleanup:
    json_decref(root);
    conversation_free(&fresh);
    str_free(&text);
    return st;
}

/* registry_print.c: the registry's JSON answers as lines for people. */
#include "cli/registry.h"

#include <jansson.h>
#include <string.h>
#include <time.h>

static json_t *parse(const str *json) {
    return json_loadb(str_cstr(json), json->len, 0, NULL);
}

static const char *word(const json_t *o, const char *key) {
    const char *text = json_string_value(json_object_get(o, key));
    return text ? text : "";
}

static long long number(const json_t *o, const char *key) {
    return (long long)json_integer_value(json_object_get(o, key));
}

static const char *when(const json_t *o, char out[32]) {
    time_t t = (time_t)number(o, "time");
    struct tm tm;
    if (!json_object_get(o, "time")) t = (time_t)number(o, "added");
    if (!gmtime_r(&t, &tm) || !strftime(out, 32, "%Y-%m-%d %H:%M", &tm)) out[0] = '\0';
    return out;
}

void registry_print_line(const str *json, str *text) {
    json_t *o = parse(json);
    str_fmt(text, "%s\n", word(o, "line"));
    json_decref(o);
}

void registry_print_added(const str *json, str *text) {
    json_t *o = parse(json), *list = json_object_get(o, "added");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *v = json_array_get(list, i);
        str_fmt(text, "%s:%s %s (%s, digest %s)\n", word(v, "name"), word(v, "version"),
                json_is_true(json_object_get(v, "already")) ? "has this content already" : "is registered",
                word(o, "format"), word(v, "digest"));
    }
    json_decref(o);
}

void registry_print_list(const str *json, str *text) {
    json_t *o = parse(json), *models = json_object_get(o, "models");
    char time[32];
    if (!json_array_size(models)) str_fmt(text, "no models in %s\n", word(o, "registry"));
    for (size_t i = 0; i < json_array_size(models); i++) {
        const json_t *m = json_array_get(models, i), *versions = json_object_get(m, "versions");
        for (size_t k = 0; k < json_array_size(versions); k++) {
            const json_t *v = json_array_get(versions, k), *aliases = json_object_get(v, "aliases");
            str_fmt(text, "%-24s %-8s %-10s %-9s %8.1f MB  %s  %.12s", word(m, "name"), word(v, "version"),
                    word(v, "stage"), word(v, "verdict"), (double)number(v, "bytes") / 1e6, when(v, time),
                    word(v, "digest"));
            for (size_t n = 0; n < json_array_size(aliases); n++) {
                str_fmt(text, "%s@%s", n ? " " : "  ", json_string_value(json_array_get(aliases, n)));
            }
            str_put(text, '\n');
        }
    }
    json_decref(o);
}

static void events(const json_t *o, const char *list, const char *what, str *text) {
    char time[32];
    const json_t *l = json_object_get(o, list);
    for (size_t i = 0; i < json_array_size(l); i++) {
        const json_t *e = json_array_get(l, i);
        str_fmt(text, "%-10s %s  %-12s by %s%s%s\n", what, when(e, time), word(e, "what"), word(e, "by"),
                *word(e, "reason") ? ": " : "", word(e, "reason"));
    }
}

static void verified(const json_t *o, str *text) {
    char time[32];
    const json_t *l = json_object_get(o, "verified");
    for (size_t i = 0; i < json_array_size(l); i++) {
        const json_t *e = json_array_get(l, i);
        str_fmt(text, "%-10s %s  %s on %s by %s: %s\n", "verified", when(e, time),
                json_is_true(json_object_get(e, "ok")) ? "passed" : "FAILED", word(e, "machine"),
                word(e, "by"), word(e, "result"));
    }
}

static void field(const json_t *o, const char *key, str *text) {
    if (*word(o, key)) str_fmt(text, "%-10s %s\n", key, word(o, key));
}

void registry_print_show(const str *json, str *text) {
    static const char *const fields[] = {"digest", "kind",  "folder",  "source", "author",
                                         "owner",  "stage", "verdict", "notes",  "licence"};
    json_t *o = parse(json);
    const json_t *list;
    char time[32];
    if (json_object_get(o, "from")) {
        json_decref(o);
        registry_print_lineage(json, text);
        return;
    }
    str_fmt(text, "%s:%s  %s%s\n", word(o, "name"), word(o, "version"), when(o, time),
            json_is_true(json_object_get(o, "removed")) ? "  removed" : "");
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) field(o, fields[i], text);
    list = json_object_get(o, "aliases");
    for (size_t i = 0; i < json_array_size(list); i++) {
        str_fmt(text, "%-10s @%s\n", "alias", json_string_value(json_array_get(list, i)));
    }
    list = json_object_get(o, "files");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *f = json_array_get(list, i);
        str_fmt(text, "%-10s %.12s %12lld  %s\n", "file", word(f, "sha256"), number(f, "bytes"),
                word(f, "path"));
    }
    events(o, "stages", "stage", text);
    events(o, "verdicts", "verdict", text);
    verified(o, text);
    list = json_object_get(o, "lineage");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *e = json_array_get(list, i);
        str_fmt(text, "%-10s %s  %s %s\n", "lineage", when(e, time), word(e, "relation"), word(e, "target"));
    }
    list = json_object_get(o, "signatures");
    for (size_t i = 0; i < json_array_size(list); i++) {
        str_fmt(text, "%-10s key %s\n", "signed", word(json_array_get(list, i), "key"));
    }
    json_decref(o);
}

void registry_print_lineage(const str *json, str *text) {
    json_t *o = parse(json);
    static const char *const ways[] = {"from", "into"};
    str_fmt(text, "%s:%s  %s\n", word(o, "name"), word(o, "version"), word(o, "digest"));
    for (size_t w = 0; w < 2; w++) {
        const json_t *list = json_object_get(o, ways[w]);
        for (size_t i = 0; i < json_array_size(list); i++) {
            const json_t *e = json_array_get(list, i);
            str_fmt(text, "%s %*s%s %s %s\n", ways[w], (int)number(e, "depth") * 2, "", word(e, "version"),
                    word(e, "relation"), word(e, "target"));
        }
    }
    verified(o, text);
    json_decref(o);
}

void registry_print_audit(const str *json, str *text) {
    json_t *o = parse(json), *list = json_object_get(o, "entries");
    char time[32];
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *e = json_array_get(list, i);
        char *detail = json_dumps(json_object_get(e, "detail"), JSON_COMPACT);
        str_fmt(text, "%6lld  %s  %-16s %-10s %s %s\n", number(e, "id"), when(e, time), word(e, "by"),
                word(e, "action"), word(e, "subject"), detail ? detail : "");
        json_free_t release;
        json_get_alloc_funcs(NULL, &release);
        release(detail);
    }
    str_fmt(text, "%lld entries, head %s\n", number(o, "count"), word(o, "head"));
    json_decref(o);
}

void registry_print_gc(const str *json, str *text) {
    char size[CLI_SIZE];
    json_t *o = parse(json), *list = json_object_get(o, "beyond_the_rules");
    bool dry = json_is_true(json_object_get(o, "dry_run"));
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *v = json_array_get(list, i);
        bool held = json_is_true(json_object_get(v, "held"));
        str_fmt(text, "%s:%s  %s  %s\n", word(v, "name"), word(v, "version"),
                cli_size((uint64_t)number(v, "bytes"), size),
                held  ? "stays: a running process uses it"
                : dry ? "would be removed"
                      : "removed");
    }
    str_fmt(text, "%lld versions removed, %lld contents %s, %s\n", number(o, "removed"),
            number(o, "contents"), dry ? "could be freed" : "freed",
            cli_size((uint64_t)number(o, "freed_bytes"), size));
    json_decref(o);
}

void registry_print_check(const str *json, str *text) {
    json_t *o = parse(json), *list = json_object_get(o, "versions");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *v = json_array_get(list, i);
        str_fmt(text, "%s:%s  %s%s%s\n", word(v, "name"), word(v, "version"),
                json_is_true(json_object_get(v, "ok")) ? "ok" : "CHANGED", *word(v, "fault") ? ": " : "",
                word(v, "fault"));
    }
    json_decref(o);
}

/* load_prompt.c: see load_prompt.h. */
#include "bench/load_prompt.h"

#include "base/file.h"
#include "base/json_out.h"
#include "base/mem.h"
#include "bench/load_stats.h"
#include "serve/json_in.h"

#include <string.h>

enum { MESSAGES_MAX_BYTES = 1 << 30, LINE_MAX_BYTES = 16 << 20 };

static const char *const WORDS[] = {
    "time",   "year",     "people",   "way",     "day",    "man",      "thing",   "woman",   "life",
    "child",  "world",    "school",   "state",   "family", "student",  "group",   "country", "problem",
    "hand",   "part",     "place",    "case",    "week",   "company",  "system",  "program", "question",
    "work",   "number",   "night",    "point",   "home",   "water",    "room",    "mother",  "area",
    "money",  "story",    "fact",     "month",   "lot",    "right",    "study",   "book",    "eye",
    "job",    "word",     "business", "issue",   "side",   "kind",     "head",    "house",   "service",
    "friend", "father",   "power",    "hour",    "game",   "line",     "end",     "member",  "law",
    "car",    "city",     "name",     "team",    "minute", "idea",     "body",    "back",    "face",
    "others", "level",    "office",   "door",    "health", "person",   "art",     "war",     "history",
    "party",  "result",   "change",   "morning", "reason", "research", "girl",    "guy",     "moment",
    "air",    "teacher",  "force",    "order",   "food",   "plan",     "river",   "light",   "stone",
    "garden", "music",    "letter",   "winter",  "summer", "paper",    "table",   "street",  "window",
    "ship",   "field",    "color",    "voice",   "market", "energy",   "science", "nature",  "animal",
    "tree",   "picture",  "south",    "north",   "east",   "west",     "king",    "court",   "land",
    "peace",  "language", "value",    "price"};
enum { N_WORDS = sizeof WORDS / sizeof *WORDS };

void load_words(str *to, uint64_t seed, uint64_t index, size_t n) {
    uint64_t random = load_random_mix(seed, index);
    for (size_t i = 0; i < n; i++) {
        if (i) str_put(to, ' ');
        str_cat(to, WORDS[load_random_below(&random, N_WORDS)]);
    }
}

void load_messages_free(load_messages *m) {
    str_free(&m->text);
    mem_free(m->ends);
    *m = (load_messages){0};
}

static int dump(const char *bytes, size_t n, void *user) {
    str_add(user, bytes, n);
    return 0;
}

static status take_line(load_messages *m, const char *line, size_t n, error *err) {
    json_doc doc;
    const json_limits limits = {.max_depth = 32, .max_values = 1 << 18};
    if (n > LINE_MAX_BYTES) {
        return error_set(err, CHURON_LIMIT, "expected at most %d bytes, got %zu", LINE_MAX_BYTES, n);
    }
    TRY(json_in_parse(&doc, line, n, &limits, err));
    const json_t *messages = json_in_member(doc.root, "messages"),
                 *prompt = json_in_member(doc.root, "prompt");
    status st = CHURON_OK;
    if (json_is_array(messages) && json_array_size(messages) > 0 && !prompt) {
        (void)json_dump_callback(messages, dump, &m->text, JSON_COMPACT);
    } else if (json_is_string(prompt) && !messages) {
        str_cat(&m->text, "[{\"role\":\"user\",\"content\":");
        str_json(&m->text, json_string_value(prompt), json_string_length(prompt));
        str_cat(&m->text, "}]");
    } else {
        st = error_set(err, CHURON_INVALID,
                       "expected \"messages\" (a list) or \"prompt\" (a string), got %s and %s",
                       json_in_type(messages), json_in_type(prompt));
    }
    json_in_free(&doc);
    return st == CHURON_OK ? str_check(&m->text, err) : st;
}

static status take_lines(load_messages *m, const str *file, error *err) {
    size_t cap = 0, number = 0;
    for (size_t at = 0; at < file->len;) {
        const char *line = file->data + at, *lf = memchr(line, '\n', file->len - at);
        size_t n = lf ? (size_t)(lf - line) : file->len - at;
        number++;
        at += n + 1;
        if (n && line[n - 1] == '\r') n--;
        if (n == 0) continue;
        if (m->n == cap) {
            cap = cap ? cap * 2 : 64;
            size_t *more = mem_realloc(m->ends, cap * sizeof *more);
            if (!more) return error_no_memory(err, "messages", cap * sizeof *more);
            m->ends = more;
        }
        status st = take_line(m, line, n, err);
        if (st != CHURON_OK) {
            error_prefix(err, "line %zu", number);
            return st;
        }
        m->ends[m->n++] = m->text.len;
    }
    return m->n ? CHURON_OK : error_set(err, CHURON_INVALID, "expected lines of JSON, got none");
}

status load_messages_read(load_messages *out, const char *path, error *err) {
    *out = (load_messages){0};
    load_messages m = {0};
    str file = {0};
    status st;
    TRY_GOTO(file_read(&file, path, MESSAGES_MAX_BYTES, err));
    st = take_lines(&m, &file, err);
    if (st != CHURON_OK) error_prefix(err, "%s", path);
cleanup:
    str_free(&file);
    if (st == CHURON_OK) {
        *out = m;
    } else {
        load_messages_free(&m);
    }
    return st;
}

const char *load_messages_at(const load_messages *m, size_t i, size_t *len) {
    i %= m->n;
    const size_t from = i ? m->ends[i - 1] : 0;
    *len = m->ends[i] - from;
    return m->text.data + from;
}

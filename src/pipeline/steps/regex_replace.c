/* regex_replace.c: what a regular expression matches, replaced. */
#include "pipeline/steps/steps.h"

#include "base/mem.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEY_FIELD_, KEY_INTO_, KEY_PATTERN, KEY_REPLACEMENT, KEY_IGNORE_CASE, KEY_FIRST };

enum { MATCH_LIMIT = 1000000, HEAP_KIB = 65536, MAX_PATTERN = 65536 };

typedef struct regex_state {
    pcre2_general_context *memory;
    pcre2_match_context *limits;
    pcre2_code *code;
    const char *replacement;
    size_t replacement_len;
    uint32_t options;
} regex_state;

static const key_spec KEYS[] = {
    {"field", KEY_FIELD, .required = true, .doc = "A text"},
    {"into", KEY_INTO, .doc = "Name of the result; left out: the field's name"},
    {"pattern", KEY_TEXT, .required = true, .doc = "A regular expression (PCRE2, with Unicode's classes)"},
    {"replacement", KEY_TEXT, .required = true,
     .doc = "What is put in its place; $1 or ${name} is what a group matched, nothing if it matched nothing, "
            "$$ a dollar sign"},
    {"ignore_case", KEY_BOOL, .fallback = "false", .doc = "Upper and lower case are alike"},
    {"first_only", KEY_BOOL, .fallback = "false", .doc = "Only the first match is replaced"},
    {0}};

static void *allocate(size_t bytes, void *user) {
    (void)user;
    return mem_alloc(bytes);
}

static void release_memory(void *p, void *user) {
    (void)user;
    mem_free(p);
}

/* A group named at p: 0 if there is none; *end behind the name. */
static bool group_exists(const pcre2_code *code, const char *p, size_t n) {
    char name[64];
    uint32_t count;
    if (n == 0 || n >= sizeof name) return false;
    memcpy(name, p, n);
    name[n] = 0;
    if (strspn(name, "0123456789") == n) {
        if (pcre2_pattern_info(code, PCRE2_INFO_CAPTURECOUNT, &count) != 0) return false;
        return n < 6 && strtoul(name, NULL, 10) <= count;
    }
    return pcre2_substring_number_from_name(code, (PCRE2_SPTR)name) > 0;
}

/* PCRE2 looks at the replacement only when something matches: this looks when the bundle is loaded. */
static status check_replacement(step_build *b, const regex_state *s, error *err) {
    static const char letters[] = "0123456789_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    for (const char *p = s->replacement; *p;) {
        if (*p++ != '$') continue;
        if (*p == '$') {
            p++;
            continue;
        }
        const bool braces = *p == '{';
        const char *name = p + braces;
        const size_t n = *name >= '0' && *name <= '9' ? strspn(name, "0123456789") : strspn(name, letters);
        if (!group_exists(s->code, name, n) || (braces && name[n] != '}'))
            return step_fault(b, "replacement", err,
                              "expected a group of the pattern behind $, got '%.40s' ($$ is a dollar sign)",
                              p - 1);
        p = name + n + braces;
    }
    return CHURON_OK;
}

static status compile(step_build *b, regex_state *s, error *err) {
    const char *pattern = b->values[KEY_PATTERN].text;
    const uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C |
                             (b->values[KEY_IGNORE_CASE].flag ? PCRE2_CASELESS : 0);
    int code;
    PCRE2_SIZE offset;
    if (strlen(pattern) > MAX_PATTERN)
        return step_fault(b, "pattern", err, "expected at most %d bytes", MAX_PATTERN);
    s->memory = pcre2_general_context_create(allocate, release_memory, NULL);
    if (!s->memory) return error_no_memory(err, "a regular expression", 64);
    s->limits = pcre2_match_context_create(s->memory);
    pcre2_compile_context *how = pcre2_compile_context_create(s->memory);
    if (s->limits && how)
        s->code = pcre2_compile((PCRE2_SPTR)pattern, strlen(pattern), options, &code, &offset, how);
    const bool had_memory = s->limits && how && (s->code || code != PCRE2_ERROR_HEAP_FAILED);
    pcre2_compile_context_free(how);
    if (!had_memory) return error_no_memory(err, "a regular expression", strlen(pattern));
    if (!s->code) {
        PCRE2_UCHAR message[120];
        pcre2_get_error_message(code, message, sizeof message);
        return step_fault(b, "pattern", err, "expected a regular expression, got: %s at %zu",
                          (const char *)message, (size_t)offset);
    }
    pcre2_set_match_limit(s->limits, MATCH_LIMIT);
    pcre2_set_heap_limit(s->limits, HEAP_KIB);
    return CHURON_OK;
}

static status check(step_build *b, error *err) {
    regex_state *s;
    TRY(step_expect(b, KEY_FIELD_, 1u << CELL_TEXT, false, err));
    TRY(step_state(b, sizeof *s, &s, err));
    TRY(compile(b, s, err));
    s->replacement = b->values[KEY_REPLACEMENT].text;
    s->replacement_len = strlen(s->replacement);
    s->options = PCRE2_NO_UTF_CHECK | PCRE2_SUBSTITUTE_UNSET_EMPTY | PCRE2_SUBSTITUTE_OVERFLOW_LENGTH |
                 (b->values[KEY_FIRST].flag ? 0 : PCRE2_SUBSTITUTE_GLOBAL);
    TRY(check_replacement(b, s, err));
    b->s->in = b->values[KEY_FIELD_].slot;
    return step_output(b, KEY_INTO_, KEY_FIELD_, &CELL_TYPE_TEXT, err);
}

static void release(step *st) {
    regex_state *s = st->state;
    if (!s) return;
    pcre2_code_free(s->code);
    pcre2_match_context_free(s->limits);
    pcre2_general_context_free(s->memory);
}

static status row(const step *st, run *r, cell *slots, error *err) {
    const regex_state *s = st->state;
    const cell *in = &slots[st->in];
    size_t room = in->len + in->len / 8 + 256;
    pcre2_match_data *m = pcre2_match_data_create_from_pattern(s->code, s->memory);
    int n = PCRE2_ERROR_NOMEMORY;
    char *out = NULL;
    if (!m) return error_no_memory(err, "a regular expression", 256);
    for (int tries = 0; tries < 2 && n == PCRE2_ERROR_NOMEMORY;
         tries++) { /* the second with the room that it said */
        PCRE2_SIZE len = room;
        out = arena_alloc(r->memory, room);
        if (!out) break;
        n = pcre2_substitute(s->code, (PCRE2_SPTR)(in->len ? in->bytes : ""), in->len, 0, s->options, m,
                             s->limits, (PCRE2_SPTR)s->replacement, s->replacement_len, (PCRE2_UCHAR *)out,
                             &len);
        room = len;
    }
    pcre2_match_data_free(m);
    if (!out) return run_no_memory(r, st, room, err);
    if (n >= 0) {
        slots[st->out] = cell_of_text(out, room);
        return CHURON_OK;
    }
    if (n == PCRE2_ERROR_NOMEMORY) return error_no_memory(err, "a regular expression", room);
    PCRE2_UCHAR message[120];
    pcre2_get_error_message(n, message, sizeof message);
    return error_set(
        err, CHURON_INVALID,
        "expected a text that the pattern can be matched with within its limit of steps, got: %s",
        (const char *)message);
}

const step_kind step_regex_replace = {.name = "regex_replace",
                                      .group = "text",
                                      .doc = "Each match of a regular expression is replaced, from the left, "
                                             "no two overlapping. A match that takes more than a "
                                             "million steps is a fault of the record.",
                                      .reference = "Python re.sub",
                                      .keys = KEYS,
                                      .check = check,
                                      .row = row,
                                      .release = release};

/* args.c: see args.h. */
#include "cli/args.h"

#include "base/mem.h"
#include "cli/cli.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_MAX_LEN = 40, HELP_COLUMN = 26, OPTIONS_MAX = 128 };

void args_list_free(arg_list *l) {
    mem_free(l->items);
    *l = (arg_list){0};
}

/* ---- near misses ------------------------------------------------------------------------------------ */

static size_t min2(size_t a, size_t b) {
    return a < b ? a : b;
}

/* Edits (insert, delete, change, swap of neighbours) between two short names. */
static size_t edit_distance(const char *a, size_t na, const char *b, size_t nb) {
    size_t row[3][NAME_MAX_LEN + 1];
    for (size_t j = 0; j <= nb; j++) row[0][j] = j;
    for (size_t i = 1; i <= na; i++) {
        size_t *now = row[i % 3], *before = row[(i + 2) % 3], *two_before = row[(i + 1) % 3];
        now[0] = i;
        for (size_t j = 1; j <= nb; j++) {
            size_t change = before[j - 1] + (a[i - 1] != b[j - 1]);
            now[j] = min2(change, min2(before[j], now[j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
                now[j] = min2(now[j], two_before[j - 2] + 1);
            }
        }
    }
    return row[na % 3][nb];
}

int args_nearest(const char *got, const char *const *names, size_t n) {
    size_t len = strlen(got);
    if (len == 0 || len > NAME_MAX_LEN) return -1;
    int best = -1;
    size_t best_distance = len / 3 + 1; /* must be under this */
    if (best_distance < 2) best_distance = 2;
    for (size_t i = 0; i < n; i++) {
        size_t name_len = strlen(names[i]);
        if (name_len > NAME_MAX_LEN) continue;
        size_t d = edit_distance(got, len, names[i], name_len);
        bool is_prefix = len >= 2 && name_len > len && strncmp(names[i], got, len) == 0;
        if (is_prefix) d = 1;
        if (d < best_distance) {
            best = (int)i;
            best_distance = d;
        }
    }
    return best;
}

/* ---- reports ---------------------------------------------------------------------------------------- */

int args_wrong(const arg_command *c, const char *field, const char *expected, const char *got) {
    cli_error("%s: field %s: expected %s, got %s. See 'churon %s --help'.", c->name, field, expected, got,
              c->name);
    return EXIT_USAGE;
}

static arg_outcome wrong_value(const arg_command *c, const char *option, const char *expected,
                               const char *got) {
    char field[NAME_MAX_LEN + 8], quoted[160];
    snprintf(field, sizeof field, "--%s", option);
    if (got) {
        snprintf(quoted, sizeof quoted, "\"%.120s\"", got);
    } else {
        snprintf(quoted, sizeof quoted, "nothing");
    }
    (void)args_wrong(c, field, expected, quoted);
    return ARGS_WRONG;
}

/* ---- the common options ----------------------------------------------------------------------------- */

enum { COMMON_JSON, COMMON_THREADS, COMMON_QUIET, COMMON_HELP, COMMON_VERSION, N_COMMON };

static void common_table(arg_option out[N_COMMON], arg_common *common, bool *help, bool *version) {
    out[COMMON_JSON] = (arg_option){
        .name = "json", .kind = ARG_FLAG, .target = &common->json, .help = "one JSON object on stdout"};
    out[COMMON_THREADS] = (arg_option){.name = "threads",
                                       .kind = ARG_UINT,
                                       .target = &common->threads,
                                       .value = "N",
                                       .help = "threads to compute with (default: physical cores)",
                                       .umin = 1,
                                       .umax = 1024};
    out[COMMON_QUIET] = (arg_option){.name = "quiet",
                                     .kind = ARG_FLAG,
                                     .target = &common->quiet,
                                     .help = "no notes and no progress on stderr"};
    out[COMMON_HELP] =
        (arg_option){.name = "help", .kind = ARG_FLAG, .target = help, .help = "this text", .shortcut = 'h'};
    out[COMMON_VERSION] =
        (arg_option){.name = "version", .kind = ARG_FLAG, .target = version, .help = "the version"};
}

static void print_option(const arg_option *o) {
    char left[NAME_MAX_LEN + 40];
    char shortcut[8] = "";
    if (o->shortcut) snprintf(shortcut, sizeof shortcut, "-%c, ", o->shortcut);
    snprintf(left, sizeof left, "  %s--%s%s%s", shortcut, o->name, o->value ? " " : "",
             o->value ? o->value : "");
    if (strlen(left) + 2 > HELP_COLUMN) {
        printf("%s\n%*s%s\n", left, HELP_COLUMN, "", o->help);
    } else {
        printf("%-*s%s\n", HELP_COLUMN, left, o->help);
    }
}

static void print_help(const arg_command *c, const arg_option *common) {
    printf("Usage: churon %s%s%s [options]\n\n%s\n", c->name, c->synopsis[0] ? " " : "", c->synopsis,
           c->summary);
    if (c->details) printf("\n%s\n", c->details);
    printf("\nOptions:\n");
    for (size_t i = 0; i < c->n_options; i++) print_option(&c->options[i]);
    if (c->n_options) printf("\n");
    for (size_t i = 0; i < N_COMMON; i++) print_option(&common[i]);
    printf("\nExample:\n");
    for (const char *at = c->example; *at;) {
        size_t n = strcspn(at, "\n");
        printf("  %.*s\n", (int)n, at);
        at += n + (at[n] == '\n');
    }
}

/* ---- values ----------------------------------------------------------------------------------------- */

/* Digits only: no sign, no space, no fraction. */
static bool read_uint(const char *text, uint64_t *out, const char **rest) {
    uint64_t v = 0;
    const char *at = text;
    for (; *at >= '0' && *at <= '9'; at++) {
        uint64_t digit = (uint64_t)(*at - '0');
        if (v > (UINT64_MAX - digit) / 10) return false;
        v = v * 10 + digit;
    }
    *rest = at;
    *out = v;
    return at > text;
}

static bool set_uint(const arg_option *o, const char *text, char expected[ARG_EXPECTED]) {
    if (o->umax) {
        snprintf(expected, ARG_EXPECTED, "a whole number from %llu to %llu", (unsigned long long)o->umin,
                 (unsigned long long)o->umax);
    } else {
        snprintf(expected, ARG_EXPECTED, "a whole number of at least %llu", (unsigned long long)o->umin);
    }
    uint64_t v;
    const char *rest;
    if (!read_uint(text, &v, &rest) || *rest || v < o->umin || (o->umax && v > o->umax)) return false;
    *(uint64_t *)o->target = v;
    return true;
}

static bool set_bytes(const arg_option *o, const char *text, char expected[ARG_EXPECTED]) {
    static const char units[] = "KMGT";
    snprintf(expected, ARG_EXPECTED, "bytes, such as 1073741824, 512M or 2G");
    uint64_t v;
    const char *rest;
    if (!read_uint(text, &v, &rest)) return false;
    if (*rest) {
        const char *unit = strchr(units, *rest >= 'a' && *rest <= 'z' ? *rest - 'a' + 'A' : *rest);
        if (!unit || !(rest[1] == '\0' || strcmp(rest + 1, "iB") == 0)) return false;
        unsigned shift = 10 * ((unsigned)(unit - units) + 1);
        if (v > UINT64_MAX >> shift) return false;
        v <<= shift;
    }
    if (v < o->umin) {
        snprintf(expected, ARG_EXPECTED, "at least %llu bytes", (unsigned long long)o->umin);
        return false;
    }
    *(uint64_t *)o->target = v;
    return true;
}

static bool set_double(const arg_option *o, const char *text, char expected[ARG_EXPECTED]) {
    bool any = o->min == 0.0 && o->max == 0.0;
    if (any) {
        snprintf(expected, ARG_EXPECTED, "a number");
    } else if (o->max == HUGE_VAL) {
        snprintf(expected, ARG_EXPECTED, "a number of at least %g", o->min);
    } else {
        snprintf(expected, ARG_EXPECTED, "a number from %g to %g", o->min, o->max);
    }
    /* Decimal digits only: strtod would also take "0x10", "inf" and leading spaces. */
    if (text[strspn(text, "+-.0123456789eE")] != '\0') return false;
    char *rest;
    double v = strtod(text, &rest);
    if (rest == text || *rest || !isfinite(v)) return false;
    if (!any && !(v >= o->min && v <= o->max)) return false;
    *(double *)o->target = v;
    return true;
}

static bool add_to_list(const arg_option *o, const char *text, char expected[ARG_EXPECTED]) {
    arg_list *l = o->target;
    snprintf(expected, ARG_EXPECTED, "memory for one more value");
    const char **grown = mem_realloc(l->items, (l->n + 1) * sizeof *grown);
    if (!grown) return false;
    l->items = grown;
    l->items[l->n++] = text;
    return true;
}

bool arg_option_set(const arg_option *o, const char *text, char expected[ARG_EXPECTED]) {
    bool good = true;
    switch (o->kind) {
    case ARG_FLAG: *(bool *)o->target = true; break;
    case ARG_UINT: good = set_uint(o, text, expected); break;
    case ARG_BYTES: good = set_bytes(o, text, expected); break;
    case ARG_DOUBLE: good = set_double(o, text, expected); break;
    case ARG_STRING: *(const char **)o->target = text; break;
    case ARG_LIST: good = add_to_list(o, text, expected); break;
    }
    if (good && o->given) *o->given = true;
    return good;
}

static arg_outcome set_value(const arg_command *c, const arg_option *o, const char *text) {
    char expected[ARG_EXPECTED];
    return arg_option_set(o, text, expected) ? ARGS_RUN : wrong_value(c, o->name, expected, text);
}

uint64_t *args_uint_list(const char *text, uint64_t max, size_t *n) {
    size_t room = 1;
    for (const char *at = text; *at; at++) room += *at == ',';
    uint64_t *list = mem_calloc(room, sizeof *list);
    *n = 0;
    const char *at = text;
    while (list) {
        while (*at == ' ') at++;
        uint64_t v;
        const char *rest;
        if (!read_uint(at, &v, &rest) || v > max) break;
        list[(*n)++] = v;
        while (*rest == ' ') rest++;
        if (*rest == '\0') return list;
        if (*rest != ',') break;
        at = rest + 1;
    }
    mem_free(list);
    *n = 0;
    return NULL;
}

/* ---- parsing ---------------------------------------------------------------------------------------- */

static const arg_option *find_in(const arg_option *options, size_t n, const char *name, size_t len) {
    for (size_t i = 0; i < n; i++) {
        if (strlen(options[i].name) == len && strncmp(options[i].name, name, len) == 0) return &options[i];
    }
    return NULL;
}

static const arg_option *find_short(const arg_option *options, size_t n, char shortcut) {
    for (size_t i = 0; i < n; i++) {
        if (options[i].shortcut == shortcut) return &options[i];
    }
    return NULL;
}

static arg_outcome report_unknown(const arg_command *c, const arg_option *common, const char *word) {
    const char *names[128];
    size_t n = 0;
    for (size_t i = 0; i < c->n_options && n < 120; i++) names[n++] = c->options[i].name;
    for (size_t i = 0; i < N_COMMON; i++) names[n++] = common[i].name;
    char bare[NAME_MAX_LEN + 1];
    size_t dashes = strspn(word, "-");
    snprintf(bare, sizeof bare, "%.*s", (int)min2(strcspn(word + dashes, "="), NAME_MAX_LEN), word + dashes);
    int near = args_nearest(bare, names, n);
    if (near >= 0) {
        cli_error("%s: field %.60s: expected an option of this command, got %.60s. Did you mean --%s?",
                  c->name, word, word, names[near]);
    } else {
        cli_error("%s: field %.60s: expected an option of this command, got %.60s. See 'churon %s --help' "
                  "(text that starts with a dash goes after --).",
                  c->name, word, word, c->name);
    }
    return ARGS_WRONG;
}

/* Of two values the first would be lost; lists and flags may be given again. */
static arg_outcome refuse_again(const arg_command *c, const arg_option *o, const arg_option **seen) {
    size_t i = 0;
    if (o->kind == ARG_LIST || o->kind == ARG_FLAG) return ARGS_RUN;
    while (i < OPTIONS_MAX && seen[i] && seen[i] != o) i++;
    if (i == OPTIONS_MAX) return ARGS_RUN;
    if (!seen[i]) {
        seen[i] = o;
        return ARGS_RUN;
    }
    char field[NAME_MAX_LEN + 8];
    snprintf(field, sizeof field, "--%s", o->name);
    (void)args_wrong(c, field, "it once", "it again");
    return ARGS_WRONG;
}

/* One option at argv[*at]; moves *at past its value. */
static arg_outcome parse_option(const arg_command *c, const arg_option *common, const arg_option **seen,
                                int argc, char **argv, int *at) {
    const char *word = argv[*at];
    const arg_option *o;
    const char *value = NULL;
    if (word[1] == '-') {
        size_t len = strcspn(word + 2, "=");
        o = find_in(c->options, c->n_options, word + 2, len);
        if (!o) o = find_in(common, N_COMMON, word + 2, len);
        if (o && word[2 + len] == '=') value = word + 2 + len + 1;
    } else {
        o = word[2] == '\0' ? find_short(c->options, c->n_options, word[1]) : NULL;
        if (!o && word[2] == '\0') o = find_short(common, N_COMMON, word[1]);
    }
    if (!o) return report_unknown(c, common, word);
    if (o->kind == ARG_FLAG) {
        if (value) return wrong_value(c, o->name, "no value", value);
        return set_value(c, o, NULL);
    }
    if (!value) {
        if (*at + 1 >= argc) return wrong_value(c, o->name, "a value", NULL);
        value = argv[++*at];
    }
    if (refuse_again(c, o, seen) != ARGS_RUN) return ARGS_WRONG;
    return set_value(c, o, value);
}

static arg_outcome check_count(const arg_command *c, size_t n, char **args) {
    if (n < c->min_args) {
        char got[48];
        snprintf(got, sizeof got, "%zu argument%s", n, n == 1 ? "" : "s");
        (void)args_wrong(c, "arguments", c->synopsis, n ? got : "nothing");
        return ARGS_WRONG;
    }
    if (n > c->max_args) {
        char got[160];
        snprintf(got, sizeof got, "also \"%.100s\" (quote text with spaces)", args[c->max_args]);
        (void)args_wrong(c, "arguments", c->synopsis[0] ? c->synopsis : "none", got);
        return ARGS_WRONG;
    }
    return ARGS_RUN;
}

arg_outcome args_parse(const arg_command *c, int argc, char **argv, arg_common *common, char **args,
                       size_t *n_args) {
    arg_option table[N_COMMON];
    const arg_option *seen[OPTIONS_MAX] = {NULL};
    bool help = false, version = false, options_ended = false;
    common_table(table, common, &help, &version);
    size_t n = 0;
    for (int i = 1; i < argc; i++) {
        char *word = argv[i];
        if (options_ended || word[0] != '-' || word[1] == '\0') {
            args[n++] = word;
        } else if (strcmp(word, "--") == 0) {
            options_ended = true;
        } else if (parse_option(c, table, seen, argc, argv, &i) != ARGS_RUN) {
            return ARGS_WRONG;
        }
    }
    *n_args = n;
    if (help || version) {
        if (help) {
            print_help(c, table);
        } else {
            printf("churon %s\n", churon_version());
        }
        return ARGS_DONE;
    }
    return check_count(c, n, args);
}

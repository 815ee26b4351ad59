/* settings.c: see settings.h. */
#include "cli/settings.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

typedef enum kind { F32, U32, U64 } kind;

typedef struct setting {
    const char *name;
    kind kind;
    size_t offset; /* in sampler_params */
    double min, max;
    const char *help;
} setting;

#define AT(field) offsetof(sampler_params, field)

static const setting table[] = {
    {"temperature", F32, AT(temperature), 0, HUGE_VAL, "0 is greedy (default: the model file's, else 0.8)"},
    {"top-k", U32, AT(top_k), 0, 0, "only the K most likely tokens; 0 is off"},
    {"top-p", F32, AT(top_p), 0, 1, "the most likely tokens that together have probability P; 1 is off"},
    {"min-p", F32, AT(min_p), 0, 1, "tokens at least P times as likely as the likeliest; 0 is off"},
    {"typical-p", F32, AT(typical_p), 0, 1,
     "locally typical tokens that together have probability P; 1 is off"},
    {"seed", U64, AT(seed), 0, 0, "the same seed gives the same answer (default: a random one)"},
    {"repetition-penalty", F32, AT(repeat_penalty), 0, HUGE_VAL,
     "divides the logits of recent tokens; 1 is off"},
    {"repeat-last-n", U32, AT(repeat_last_n), 0, 0, "how many tokens are recent for the penalties"},
    {"frequency-penalty", F32, AT(frequency_penalty), -HUGE_VAL, HUGE_VAL, "for each recent use of a token"},
    {"presence-penalty", F32, AT(presence_penalty), -HUGE_VAL, HUGE_VAL, "for any recent use of a token"},
    {"dry-multiplier", F32, AT(dry_multiplier), 0, HUGE_VAL, "against repeated phrases (DRY); 0 is off"},
    {"dry-base", F32, AT(dry_base), 0, HUGE_VAL, "how fast the DRY penalty grows with the phrase"},
    {"dry-allowed-length", U32, AT(dry_allowed_length), 0, 0, "phrases up to this length are free of DRY"},
    {"xtc-probability", F32, AT(xtc_probability), 0, 1, "how often XTC drops the likeliest tokens; 0 is off"},
    {"xtc-threshold", F32, AT(xtc_threshold), 0, 1, "XTC spares tokens less likely than this"},
};
enum { N_SETTINGS = sizeof table / sizeof *table };
_Static_assert((size_t)N_SETTINGS <= (size_t)SETTINGS_MAX, "settings_given has room for all");

size_t settings_count(void) {
    return N_SETTINGS;
}

static arg_option option_of(const setting *s, void *target, bool *given) {
    arg_option o = {.name = s->name, .target = target, .help = s->help, .given = given};
    if (s->kind == F32) {
        o.kind = ARG_DOUBLE;
        o.value = "X";
        bool any = s->min == -HUGE_VAL;
        o.min = any ? 0 : s->min;
        o.max = any ? 0 : s->max;
    } else {
        o.kind = ARG_UINT;
        o.value = "N";
        o.umax = s->kind == U32 ? UINT32_MAX : 0;
    }
    return o;
}

void settings_options(arg_option *options, settings_given *g) {
    for (size_t i = 0; i < N_SETTINGS; i++) options[i] = option_of(&table[i], &g->value[i], &g->given[i]);
}

static void store(const setting *s, sampler_params *p, uint64_t u, double d) {
    char *at = (char *)p + s->offset;
    switch (s->kind) {
    case F32: *(float *)(void *)at = (float)d; break;
    case U32: *(uint32_t *)(void *)at = (uint32_t)u; break;
    case U64: *(uint64_t *)(void *)at = u; break;
    }
}

void settings_apply(const settings_given *g, sampler_params *p) {
    for (size_t i = 0; i < N_SETTINGS; i++) {
        if (!g->given[i]) continue;
        bool is_float = table[i].kind == F32;
        store(&table[i], p, is_float ? 0 : g->value[i].u, is_float ? g->value[i].d : 0);
    }
}

/* Both spellings are the same name. */
static bool same_name(const char *a, const char *b) {
    for (; *a && *b; a++, b++) {
        if (*a != *b && !((*a == '_' || *a == '-') && (*b == '_' || *b == '-'))) return false;
    }
    return *a == *b;
}

status settings_set(sampler_params *p, const char *name, const char *text, error *err) {
    for (size_t i = 0; i < N_SETTINGS; i++) {
        if (!same_name(name, table[i].name)) continue;
        settings_given g = {0};
        char expected[ARG_EXPECTED];
        arg_option o = option_of(&table[i], &g.value[i], &g.given[i]);
        if (!arg_option_set(&o, text, expected)) {
            return error_set(err, CHURON_INVALID, "field %s: expected %s, got \"%.80s\"", table[i].name,
                             expected, text);
        }
        settings_apply(&g, p);
        return CHURON_OK;
    }
    const char *names[N_SETTINGS];
    for (size_t i = 0; i < N_SETTINGS; i++) names[i] = table[i].name;
    int near = args_nearest(name, names, N_SETTINGS);
    return error_set(err, CHURON_INVALID, "field %.60s: expected the name of a setting, got %.60s. %s%s%s",
                     name, name, near >= 0 ? "Did you mean " : "", near >= 0 ? names[near] : "/set shows all",
                     near >= 0 ? "?" : "");
}

void settings_json(const sampler_params *p, json_out *j) {
    for (size_t i = 0; i < N_SETTINGS; i++) {
        char key[40];
        snprintf(key, sizeof key, "%s", table[i].name);
        for (char *c = key; *c; c++) {
            if (*c == '-') *c = '_';
        }
        const char *at = (const char *)p + table[i].offset;
        switch (table[i].kind) {
        case F32: json_out_float(j, key, *(const float *)(const void *)at); break;
        case U32: json_out_uint(j, key, *(const uint32_t *)(const void *)at); break;
        case U64: json_out_uint(j, key, *(const uint64_t *)(const void *)at); break;
        }
    }
}

void settings_text(const sampler_params *p, str *out) {
    for (size_t i = 0; i < N_SETTINGS; i++) {
        const char *at = (const char *)p + table[i].offset;
        str_fmt(out, "  %-20s", table[i].name);
        switch (table[i].kind) {
        case F32: str_fmt(out, "%-10g", (double)*(const float *)(const void *)at); break;
        case U32: str_fmt(out, "%-10u", *(const uint32_t *)(const void *)at); break;
        case U64: str_fmt(out, "%-10llu", (unsigned long long)*(const uint64_t *)(const void *)at); break;
        }
        str_fmt(out, " %s\n", table[i].help);
    }
}

arg_option settings_kv_type_option(const char **text) {
    return (arg_option){.name = "kv-type",
                        .kind = ARG_STRING,
                        .target = (void *)(uintptr_t)text,
                        .value = "TYPE",
                        .help = "how keys and values are kept: f16 (default), or q8 in half the memory"};
}

bool settings_kv_type(const char *text, kv_type *out) {
    if (!text) return true;
    for (int t = 0; t < KV_TYPE_COUNT; t++) {
        if (strcmp(text, kv_type_name((kv_type)t)) != 0) continue;
        *out = (kv_type)t;
        return true;
    }
    return false;
}

arg_option settings_speculate_option(const char **text) {
    return (arg_option){.name = "speculate",
                        .kind = ARG_STRING,
                        .target = (void *)(uintptr_t)text,
                        .value = "N|off",
                        .help =
                            "guess up to N tokens ahead and check them together (default: 8); the answer is "
                            "the same"};
}

arg_option settings_draft_option(const char **model) {
    return (arg_option){.name = "draft",
                        .kind = ARG_STRING,
                        .target = (void *)(uintptr_t)model,
                        .value = "MODEL",
                        .help = "a smaller model with the same tokens that guesses too"};
}

bool settings_speculate(const char *text, engine_options *o) {
    if (!text) return true;
    if (strcmp(text, "off") == 0) {
        o->no_speculation = true;
        return true;
    }
    uint64_t n = 0;
    char expected[ARG_EXPECTED];
    const arg_option number = {.name = "speculate", .kind = ARG_UINT, .target = &n, .umin = 1, .umax = 16};
    if (!arg_option_set(&number, text, expected)) return false;
    o->draft_tokens = (size_t)n;
    return true;
}

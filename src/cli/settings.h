/* settings.h: the sampling settings as people name them: one table for the options of `run`, for /set in a
 * chat and for the provenance of an answer. */
#ifndef CLI_SETTINGS_H
#define CLI_SETTINGS_H

#include "base/json_out.h"
#include "cli/args.h"
#include "lm/engine.h"

enum { SETTINGS_MAX = 24 };

/* Values that were given on the command line. Zero-initialise. */
typedef struct settings_given {
    union {
        uint64_t u;
        double d;
    } value[SETTINGS_MAX];
    bool given[SETTINGS_MAX];
} settings_given;

size_t settings_count(void);
/* Fills options[0 .. settings_count()) so that parsing stores into g. */
void settings_options(arg_option *options, settings_given *g);
/* Puts what was given over *p. */
void settings_apply(const settings_given *g, sampler_params *p);
/* Sets one by name ("top-p" or "top_p"); the error names the nearest, or what the value should have been. */
MUST_USE status settings_set(sampler_params *p, const char *name, const char *text, error *err);
/* Every setting and its value: as members of an open JSON object (names with _), or as lines of text. */
void settings_json(const sampler_params *p, json_out *j);
void settings_text(const sampler_params *p, str *out);

/* --kv-type: how keys and values are kept. `text` stays NULL where it is not given. */
arg_option settings_kv_type_option(const char **text);
/* NULL: f16. False: no such type, and *out is as it was. */
bool settings_kv_type(const char *text, kv_type *out);
#define SETTINGS_KV_TYPES "f16 or q8" /* what a wrong one should have been */

/* --speculate and --draft: how the next tokens are guessed. */
arg_option settings_speculate_option(const char **text);
arg_option settings_draft_option(const char **model);
/* NULL: as *o says. False: neither "off" nor a number of tokens that can be. */
bool settings_speculate(const char *text, engine_options *o);
#define SETTINGS_SPECULATE "off or 1..16"

#endif

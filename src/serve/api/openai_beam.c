/* openai_beam.c: the fields of a beam search. A search draws nothing and ends only where its texts do, so
 * whatever would have no meaning for it is refused by name. */
#include "serve/api/openai_request.h"

#include <string.h>

/* true, false, or "never", as transformers has them. */
static status read_early_stopping(const json_t *root, engine_early_stop *out, error *err) {
    const json_t *v = json_in_member(root, "early_stopping");
    *out = ENGINE_BEAM_HEURISTIC;
    if (!v) return CHURON_OK;
    if (json_is_string(v) && strcmp(json_string_value(v), "never") == 0) {
        *out = ENGINE_BEAM_NEVER;
        return CHURON_OK;
    }
    if (!json_is_boolean(v)) {
        return error_set(err, CHURON_INVALID, "early_stopping: expected true, false or \"never\", got %s",
                         json_in_type(v));
    }
    if (json_is_true(v)) *out = ENGINE_BEAM_FIRST;
    return CHURON_OK;
}

/* Sampling fields may say what a search does anyway. */
static status check_sampling(const json_t *root, error *err) {
    static const struct {
        const char *name;
        double off, also;
    } fields[] = {
        {"temperature", 0, 1},      {"top_p", 1, 1},
        {"top_k", 0, -1},           {"min_p", 0, 0},
        {"typical_p", 1, 1},        {"frequency_penalty", 0, 0},
        {"presence_penalty", 0, 0}, {"repetition_penalty", 1, 1},
        {"dry_multiplier", 0, 0},   {"xtc_probability", 0, 0},
    };
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        const json_t *v = json_in_member(root, fields[i].name);
        if (!v || json_number_value(v) == fields[i].off || json_number_value(v) == fields[i].also) continue;
        return error_set(err, CHURON_UNSUPPORTED,
                         "%s: expected %g or nothing with use_beam_search (nothing is drawn), got %g",
                         fields[i].name, fields[i].off, json_number_value(v));
    }
    return CHURON_OK;
}

static status check_beside(const openai_request *r, error *err) {
    const char *beside = r->stream            ? "stream"
                         : r->logprobs        ? "logprobs"
                         : r->n_stop          ? "stop"
                         : r->sampling.n_bias ? "logit_bias"
                                              : NULL;
    if (beside) return error_set(err, CHURON_UNSUPPORTED, "%s: not supported with use_beam_search", beside);
    return check_sampling(r->doc.root, err);
}

status openai_request_beams(openai_request *r, error *err) {
    const json_t *root = r->doc.root;
    bool on = false;
    engine_beam_options beam = {.length_penalty = 1};
    int64_t width = 0;
    TRY(json_in_bool(root, "", "use_beam_search", &on, err));
    TRY(json_in_int(root, "", "beam_width", 1, OPENAI_MAX_CHOICES, &width, err));
    TRY(json_in_double(root, "", "length_penalty", &beam.length_penalty, err));
    TRY(read_early_stopping(root, &beam.early_stopping, err));
    if (!on) {
        const char *alone = width                      ? "beam_width"
                            : beam.length_penalty != 1 ? "length_penalty"
                            : beam.early_stopping      ? "early_stopping"
                                                       : NULL;
        if (!alone) return CHURON_OK;
        return error_set(err, CHURON_INVALID, "%s: expected only with use_beam_search true", alone);
    }
    TRY(check_beside(r, err));
    beam.width = width ? (size_t)width : r->best_of;
    if (beam.width < 2 || beam.width < r->best_of) {
        return error_set(err, CHURON_INVALID,
                         "beam_width: expected at least 2 and at least n and best_of (%zu), got %zu",
                         r->best_of, beam.width);
    }
    if (!(beam.length_penalty >= -100 && beam.length_penalty <= 100)) {
        return error_set(err, CHURON_INVALID, "length_penalty: expected -100 to 100, got %g",
                         beam.length_penalty);
    }
    r->beam = beam;
    r->best_of = r->n;
    return CHURON_OK;
}

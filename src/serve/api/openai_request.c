/* openai_request.c: see openai_request.h. */
#include "serve/api/openai_request.h"

#include "base/mem.h"
#include "serve/json_in.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- which fields there are ------------------------------------------------------------------------- */

enum { CHAT = 1, COMPLETION = 2, BOTH = 3 };
typedef enum field_use {
    READ,   /* honoured below */
    INERT,  /* has no effect on the answer by its own definition */
    NEUTRAL /* not supported: accepted only where it asks for nothing */
} field_use;

typedef struct field {
    const char *name;
    int where;
    field_use use;
    const char *neutral; /* a string value that asks for nothing, besides null, false and empty */
} field;

static const field fields[] = {
    {"model", BOTH, READ, NULL},
    {"messages", CHAT, READ, NULL},
    {"prompt", COMPLETION, READ, NULL},
    {"stream", BOTH, READ, NULL},
    {"stream_options", BOTH, READ, NULL},
    {"n", BOTH, READ, NULL},
    {"best_of", COMPLETION, READ, NULL},
    {"max_tokens", BOTH, READ, NULL},
    {"max_completion_tokens", CHAT, READ, NULL},
    {"temperature", BOTH, READ, NULL},
    {"top_p", BOTH, READ, NULL},
    {"top_k", BOTH, READ, NULL},
    {"min_p", BOTH, READ, NULL},
    {"typical_p", BOTH, READ, NULL},
    {"frequency_penalty", BOTH, READ, NULL},
    {"presence_penalty", BOTH, READ, NULL},
    {"repetition_penalty", BOTH, READ, NULL},
    {"repeat_last_n", BOTH, READ, NULL},
    {"dry_multiplier", BOTH, READ, NULL},
    {"dry_base", BOTH, READ, NULL},
    {"dry_allowed_length", BOTH, READ, NULL},
    {"xtc_probability", BOTH, READ, NULL},
    {"xtc_threshold", BOTH, READ, NULL},
    {"logit_bias", BOTH, READ, NULL},
    {"logprobs", BOTH, READ, NULL},
    {"top_logprobs", CHAT, READ, NULL},
    {"seed", BOTH, READ, NULL},
    {"stop", BOTH, READ, NULL},
    {"stop_token_ids", BOTH, READ, NULL},
    {"ignore_eos", BOTH, READ, NULL},
    {"timeout", BOTH, READ, NULL},
    {"priority", BOTH, READ, NULL},
    {"cache_salt", BOTH, READ, NULL},
    {"speculate", BOTH, READ, NULL},
    {"echo", COMPLETION, READ, NULL},
    {"add_generation_prompt", CHAT, READ, NULL},
    {"user", BOTH, INERT, NULL},
    {"metadata", BOTH, INERT, NULL},
    {"safety_identifier", BOTH, INERT, NULL},
    {"prompt_cache_key", BOTH, INERT, NULL},
    {"store", CHAT, NEUTRAL, NULL},
    {"suffix", COMPLETION, NEUTRAL, NULL},
    {"use_beam_search", BOTH, READ, NULL},
    {"beam_width", BOTH, READ, NULL},
    {"length_penalty", BOTH, READ, NULL},
    {"early_stopping", BOTH, READ, NULL},
    {"tools", CHAT, NEUTRAL, NULL},
    {"tool_choice", CHAT, NEUTRAL, "none"},
    {"parallel_tool_calls", CHAT, NEUTRAL, NULL},
    {"functions", CHAT, NEUTRAL, NULL},
    {"function_call", CHAT, NEUTRAL, "none"},
    {"response_format", BOTH, READ, NULL},
    {"modalities", CHAT, READ, NULL},
    {"audio", CHAT, NEUTRAL, NULL},
    {"prediction", CHAT, NEUTRAL, NULL},
    {"reasoning_effort", CHAT, NEUTRAL, "none"},
    {"verbosity", CHAT, NEUTRAL, NULL},
    {"web_search_options", CHAT, NEUTRAL, NULL},
    {"service_tier", CHAT, NEUTRAL, "auto"},
};
enum { N_FIELDS = sizeof fields / sizeof *fields };

static bool asks_for_nothing(const json_t *v, const char *neutral) {
    if (json_is_null(v) || json_is_false(v)) return true;
    if (json_is_array(v)) return json_array_size(v) == 0;
    if (json_is_object(v)) return json_object_size(v) == 0;
    return neutral && json_is_string(v) && strcmp(json_string_value(v), neutral) == 0;
}

static status check_field(const char *name, const json_t *v, openai_kind kind, error *err) {
    const int where = kind == OPENAI_CHAT ? CHAT : COMPLETION;
    for (size_t i = 0; i < N_FIELDS; i++) {
        const field *f = &fields[i];
        if (!(f->where & where) || strcmp(f->name, name) != 0) continue;
        if (f->use != NEUTRAL || asks_for_nothing(v, f->neutral)) return CHURON_OK;
        return error_set(err, CHURON_UNSUPPORTED, "%s: not supported by this server; leave it out", name);
    }
    return error_set(err, CHURON_UNSUPPORTED, "%.80s: not a field of this endpoint; leave it out", name);
}

static status check_fields(json_t *root, openai_kind kind, error *err) {
    const char *name;
    json_t *v;
    json_object_foreach(root, name, v) TRY(check_field(name, v, kind, err));
    const json_t *format = json_in_member(root, "response_format");
    if (format) {
        const json_t *type = json_object_get(format, "type");
        if (!json_is_string(type) || strcmp(json_string_value(type), "text") != 0) {
            return error_set(
                err, CHURON_UNSUPPORTED,
                "response_format: expected {\"type\": \"text\"}; other formats are not supported");
        }
    }
    const json_t *modes = json_in_member(root, "modalities");
    if (modes) {
        const json_t *only = json_array_get(modes, 0);
        if (json_array_size(modes) != 1 || !json_is_string(only) ||
            strcmp(json_string_value(only), "text") != 0) {
            return error_set(err, CHURON_UNSUPPORTED,
                             "modalities: expected [\"text\"]; others are not "
                             "supported");
        }
    }
    return CHURON_OK;
}

/* ---- messages --------------------------------------------------------------------------------------- */

/* Text parts are joined by line feeds, as the templates' authors expect of a list. */
static status join_parts(openai_request *r, size_t i, const json_t *parts, error *err) {
    str text = {0};
    size_t k;
    json_t *part;
    json_array_foreach(parts, k, part) {
        const json_t *type = json_object_get(part, "type"), *content = json_object_get(part, "text");
        const char *name = json_is_string(type) ? json_string_value(type) : NULL;
        if (!name || strcmp(name, "text") != 0) {
            str_free(&text);
            return error_set(err, CHURON_UNSUPPORTED,
                             "messages[%zu].content[%zu].type: expected \"text\", got %.40s", i, k,
                             name ? name : json_in_type(type));
        }
        if (!json_is_string(content)) {
            str_free(&text);
            return error_set(err, CHURON_INVALID,
                             "messages[%zu].content[%zu].text: expected a string, got %s", i, k,
                             json_in_type(content));
        }
        if (k) str_put(&text, '\n');
        str_add(&text, json_string_value(content), json_string_length(content));
    }
    status st = str_check(&text, err);
    if (st != CHURON_OK) {
        str_free(&text);
        return st;
    }
    r->messages[i].content = str_cstr(&text);
    r->messages[i].content_len = text.len;
    r->joined[i] = text.data;
    return CHURON_OK;
}

/* Keys that a message of an answer carries when it is sent back; accepted only while they say nothing. */
static status check_message_keys(json_t *message, size_t i, error *err) {
    static const char *const empty[] = {"refusal",       "tool_calls", "audio", "annotations",
                                        "function_call", "name",       NULL};
    const char *key;
    json_t *v;
    json_object_foreach(message, key, v) {
        if (strcmp(key, "role") == 0 || strcmp(key, "content") == 0) continue;
        size_t k = 0;
        while (empty[k] && strcmp(empty[k], key) != 0) k++;
        if (!empty[k] || !asks_for_nothing(v, NULL)) {
            return error_set(err, CHURON_UNSUPPORTED,
                             "messages[%zu].%.60s: not supported by this server; leave it out", i, key);
        }
    }
    return CHURON_OK;
}

static status read_message(openai_request *r, size_t i, json_t *message, error *err) {
    if (!json_is_object(message)) {
        return error_set(err, CHURON_INVALID, "messages[%zu]: expected an object, got %s", i,
                         json_in_type(message));
    }
    TRY(check_message_keys(message, i, err));
    const json_t *role = json_object_get(message, "role"), *content = json_object_get(message, "content");
    if (!json_is_string(role)) {
        return error_set(err, CHURON_INVALID, "messages[%zu].role: expected a string, got %s", i,
                         json_in_type(role));
    }
    const char *name = "";
    char where[40];
    snprintf(where, sizeof where, "messages[%zu].", i);
    TRY(json_in_string(message, where, "role", &name, NULL, err));
    if (strcmp(name, "developer") == 0) name = "system"; /* OpenAI's newer word for it */
    if (strcmp(name, "system") != 0 && strcmp(name, "user") != 0 && strcmp(name, "assistant") != 0) {
        return error_set(err, CHURON_UNSUPPORTED,
                         "messages[%zu].role: expected system, developer, user or assistant, got %.40s", i,
                         name);
    }
    chat_message *m = &r->messages[i];
    m->role = name;
    m->role_len = strlen(name);
    if (json_is_string(content)) {
        m->content = json_string_value(content);
        m->content_len = json_string_length(content);
        return CHURON_OK;
    }
    if (!json_is_array(content) || json_array_size(content) == 0) {
        return error_set(err, CHURON_INVALID,
                         "messages[%zu].content: expected a string or a list of text parts, got %s", i,
                         json_is_array(content) ? "an empty list" : json_in_type(content));
    }
    return join_parts(r, i, content, err);
}

status openai_request_messages(openai_request *r, const json_t *list, error *err) {
    if (!json_is_array(list) || json_array_size(list) == 0) {
        return error_set(err, CHURON_INVALID, "messages: expected a list of at least one message, got %s",
                         json_is_array(list) ? "an empty list" : json_in_type(list));
    }
    const size_t n = json_array_size(list);
    r->messages = mem_calloc(n, sizeof *r->messages);
    r->joined = mem_calloc(n, sizeof *r->joined);
    if (!r->messages || !r->joined) return error_no_memory(err, "messages", n * sizeof *r->messages);
    r->n_messages = n;
    for (size_t i = 0; i < n; i++) TRY(read_message(r, i, json_array_get(list, i), err));
    return CHURON_OK;
}

/* ---- prompts ---------------------------------------------------------------------------------------- */

static status read_ids(int32_t **ids, size_t *n, const json_t *list, size_t n_vocab, const char *where,
                       error *err) {
    const size_t count = json_array_size(list);
    int32_t *out = mem_calloc(count, sizeof *out);
    if (!out) return error_no_memory(err, where, count * sizeof *out);
    for (size_t i = 0; i < count; i++) {
        const json_t *v = json_array_get(list, i);
        const json_int_t id = json_integer_value(v);
        if (!json_is_integer(v) || id < 0 || (uint64_t)id >= n_vocab) {
            mem_free(out);
            if (!json_is_integer(v)) {
                return error_set(err, CHURON_INVALID, "%s[%zu]: expected a token id, got %s", where, i,
                                 json_in_type(v));
            }
            return error_set(err, CHURON_INVALID, "%s[%zu]: expected a token id from 0 to %zu, got %lld",
                             where, i, n_vocab - 1, (long long)id);
        }
        out[i] = (int32_t)id;
    }
    *ids = out;
    *n = count;
    return CHURON_OK;
}

static status read_prompt(openai_prompt *p, const json_t *v, const char *where, size_t n_vocab, error *err) {
    if (json_is_string(v)) {
        p->text = json_string_value(v);
        p->text_len = json_string_length(v);
        return CHURON_OK;
    }
    if (!json_is_array(v) || json_array_size(v) == 0) {
        return error_set(err, CHURON_INVALID, "%s: expected a string or a list of token ids, got %s", where,
                         json_is_array(v) ? "an empty list" : json_in_type(v));
    }
    return read_ids(&p->ids, &p->n_ids, v, n_vocab, where, err);
}

/* A string, a list of strings, a list of token ids, or a list of lists of token ids. */
static status read_prompts(openai_request *r, const json_t *v, size_t n_vocab, error *err) {
    const bool several = json_is_array(v) && json_array_size(v) > 0 && !json_is_integer(json_array_get(v, 0));
    const size_t n = several ? json_array_size(v) : 1;
    if (n > OPENAI_MAX_CHOICES) {
        return error_set(err, CHURON_INVALID, "prompt: expected at most %d prompts, got %zu",
                         OPENAI_MAX_CHOICES, n);
    }
    r->prompts = mem_calloc(n, sizeof *r->prompts);
    if (!r->prompts) return error_no_memory(err, "prompt", n * sizeof *r->prompts);
    r->n_prompts = n;
    if (!several) return read_prompt(&r->prompts[0], v, "prompt", n_vocab, err);
    for (size_t i = 0; i < n; i++) {
        char where[32];
        snprintf(where, sizeof where, "prompt[%zu]", i);
        TRY(read_prompt(&r->prompts[i], json_array_get(v, i), where, n_vocab, err));
    }
    return CHURON_OK;
}

/* ---- the other fields ------------------------------------------------------------------------------- */

static status read_stop(openai_request *r, const json_t *v, error *err) {
    if (!v) return CHURON_OK;
    const bool one = json_is_string(v);
    if (!one && !json_is_array(v)) {
        return error_set(err, CHURON_INVALID, "stop: expected a string or a list of strings, got %s",
                         json_in_type(v));
    }
    const size_t n = one ? 1 : json_array_size(v);
    if (n > OPENAI_MAX_STOPS) {
        return error_set(err, CHURON_INVALID, "stop: expected at most %d strings, got %zu", OPENAI_MAX_STOPS,
                         n);
    }
    r->stop = mem_calloc(n, sizeof *r->stop);
    r->stop_len = mem_calloc(n, sizeof *r->stop_len);
    if (!r->stop || !r->stop_len) return error_no_memory(err, "stop", n * sizeof *r->stop);
    for (size_t i = 0; i < n; i++) {
        const json_t *s = one ? v : json_array_get(v, i);
        if (!json_is_string(s) || json_string_length(s) == 0) {
            return error_set(err, CHURON_INVALID, "stop[%zu]: expected a string that is not empty, got %s", i,
                             json_is_string(s) ? "an empty one" : json_in_type(s));
        }
        r->stop[i] = json_string_value(s);
        r->stop_len[i] = json_string_length(s);
    }
    r->n_stop = n;
    return CHURON_OK;
}

static status read_stop_ids(openai_request *r, const json_t *v, size_t n_vocab, error *err) {
    if (!v) return CHURON_OK;
    if (!json_is_array(v) || json_array_size(v) > OPENAI_MAX_STOPS) {
        return error_set(err, CHURON_INVALID,
                         "stop_token_ids: expected a list of at most %d token ids, got %s", OPENAI_MAX_STOPS,
                         json_is_array(v) ? "a longer one" : json_in_type(v));
    }
    return read_ids(&r->stop_ids, &r->n_stop_ids, v, n_vocab, "stop_token_ids", err);
}

/* {"token id": bias from -100 to 100} */
static status read_bias(openai_request *r, const json_t *v, size_t n_vocab, error *err) {
    if (!v) return CHURON_OK;
    if (!json_is_object(v)) {
        return error_set(err, CHURON_INVALID, "logit_bias: expected an object of token id: bias, got %s",
                         json_in_type(v));
    }
    r->bias = mem_calloc(json_object_size(v), sizeof *r->bias);
    if (!r->bias) return error_no_memory(err, "logit_bias", json_object_size(v) * sizeof *r->bias);
    const char *key;
    json_t *bias;
    size_t n = 0;
    json_object_foreach((json_t *)v, key, bias) {
        char *end;
        const unsigned long id = strtoul(key, &end, 10);
        if (key[0] < '0' || key[0] > '9' || *end || id >= n_vocab) {
            return error_set(err, CHURON_INVALID, "logit_bias: expected a token id below %zu, got %.40s",
                             n_vocab, key);
        }
        const double b = json_number_value(bias);
        if (!json_is_number(bias) || !(b >= -100 && b <= 100)) {
            return error_set(err, CHURON_INVALID, "logit_bias.%s: expected a number from -100 to 100, got %s",
                             key, json_is_number(bias) ? "one outside" : json_in_type(bias));
        }
        r->bias[n++] = (logit_bias){(int32_t)id, (float)b};
    }
    r->sampling.bias = r->bias;
    r->sampling.n_bias = n;
    return CHURON_OK;
}

static status read_uint32(const json_t *root, const char *key, int64_t min, uint32_t *out, error *err) {
    int64_t v = *out;
    TRY(json_in_int(root, "", key, min, UINT32_MAX, &v, err));
    *out = v < 0 ? 0 : (uint32_t)v;
    return CHURON_OK;
}

static status read_sampling(openai_request *r, size_t n_vocab, error *err) {
    const json_t *root = r->doc.root;
    sampler_params *s = &r->sampling;
    const struct {
        const char *name;
        float *to;
    } floats[] = {
        {"temperature", &s->temperature},
        {"top_p", &s->top_p},
        {"min_p", &s->min_p},
        {"typical_p", &s->typical_p},
        {"frequency_penalty", &s->frequency_penalty},
        {"presence_penalty", &s->presence_penalty},
        {"repetition_penalty", &s->repeat_penalty},
        {"dry_multiplier", &s->dry_multiplier},
        {"dry_base", &s->dry_base},
        {"xtc_probability", &s->xtc_probability},
        {"xtc_threshold", &s->xtc_threshold},
    };
    for (size_t i = 0; i < sizeof floats / sizeof *floats; i++) {
        TRY(json_in_float(root, "", floats[i].name, floats[i].to, err));
    }
    TRY(read_uint32(root, "top_k", -1, &s->top_k, err)); /* -1 means off, as elsewhere */
    TRY(read_uint32(root, "repeat_last_n", 0, &s->repeat_last_n, err));
    TRY(read_uint32(root, "dry_allowed_length", 0, &s->dry_allowed_length, err));
    int64_t seed = 0;
    TRY(json_in_int(root, "", "seed", INT64_MIN, INT64_MAX, &seed, err));
    r->has_seed = json_in_member(root, "seed") != NULL;
    r->seed = (uint64_t)seed;
    return read_bias(r, json_in_member(root, "logit_bias"), n_vocab, err);
}

static status read_logprobs(openai_request *r, error *err) {
    int64_t top = 0;
    if (r->kind == OPENAI_CHAT) {
        TRY(json_in_bool(r->doc.root, "", "logprobs", &r->logprobs, err));
        TRY(json_in_int(r->doc.root, "", "top_logprobs", 0, OPENAI_MAX_LOGPROBS, &top, err));
        if (top > 0 && !r->logprobs) {
            return error_set(err, CHURON_INVALID,
                             "top_logprobs: expected only with logprobs true, got %lld "
                             "without",
                             (long long)top);
        }
    } else if (!json_is_false(json_object_get(r->doc.root, "logprobs"))) {
        TRY(json_in_int(r->doc.root, "", "logprobs", 0, OPENAI_MAX_LOGPROBS, &top, err));
        r->logprobs = json_in_member(r->doc.root, "logprobs") != NULL;
    }
    r->top_logprobs = (size_t)top;
    r->sampling.want_logprobs = r->logprobs || r->best_of > r->n;
    r->sampling.n_logprobs = r->top_logprobs;
    return CHURON_OK;
}

static status read_stream(openai_request *r, error *err) {
    TRY(json_in_bool(r->doc.root, "", "stream", &r->stream, err));
    const json_t *options = json_in_member(r->doc.root, "stream_options");
    if (!options) return CHURON_OK;
    if (!json_is_object(options)) {
        return error_set(err, CHURON_INVALID, "stream_options: expected an object, got %s",
                         json_in_type(options));
    }
    if (!r->stream) {
        return error_set(err, CHURON_INVALID, "stream_options: expected only with stream true");
    }
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)options, key, v) {
        if (strcmp(key, "include_usage") != 0 && !asks_for_nothing(v, NULL)) {
            return error_set(err, CHURON_UNSUPPORTED, "stream_options.%.60s: not supported by this server",
                             key);
        }
    }
    return json_in_bool(options, "stream_options.", "include_usage", &r->include_usage, err);
}

static status read_counts(openai_request *r, error *err) {
    const json_t *root = r->doc.root;
    int64_t n = 1, best_of, max = 0, max_completion = 0;
    TRY(json_in_int(root, "", "n", 1, OPENAI_MAX_CHOICES, &n, err));
    best_of = n;
    if (r->kind == OPENAI_COMPLETION) {
        TRY(json_in_int(root, "", "best_of", 1, OPENAI_MAX_CHOICES, &best_of, err));
    }
    if (best_of < n) {
        return error_set(err, CHURON_INVALID, "best_of: expected at least n (%lld), got %lld", (long long)n,
                         (long long)best_of);
    }
    if (best_of > n && r->stream) {
        return error_set(
            err, CHURON_INVALID,
            "best_of: expected the same as n (%lld) in a stream, got %lld: the best is only known "
            "at the end",
            (long long)n, (long long)best_of);
    }
    TRY(json_in_int(root, "", "max_tokens", 1, INT32_MAX, &max, err));
    if (r->kind == OPENAI_CHAT) {
        TRY(json_in_int(root, "", "max_completion_tokens", 1, INT32_MAX, &max_completion, err));
    }
    if (max && max_completion && max != max_completion) {
        return error_set(err, CHURON_INVALID,
                         "max_completion_tokens: expected the same as max_tokens (%lld), got %lld",
                         (long long)max, (long long)max_completion);
    }
    r->n = (size_t)n;
    r->best_of = (size_t)best_of;
    r->max_tokens = (size_t)(max_completion ? max_completion : max);
    if (r->kind == OPENAI_COMPLETION && r->max_tokens == 0) r->max_tokens = 16; /* OpenAI's default */
    return CHURON_OK;
}

static status read_service(openai_request *r, error *err) {
    const json_t *root = r->doc.root;
    int64_t priority = 0;
    const char *user = NULL; /* checked, without effect */
    TRY(json_in_string(root, "", "user", &user, NULL, err));
    TRY(json_in_int(root, "", "priority", INT32_MIN, INT32_MAX, &priority, err));
    r->priority = (int32_t)priority;
    TRY(json_in_string(root, "", "cache_salt", &r->cache_salt, NULL, err));
    const size_t salt = r->cache_salt ? strlen(r->cache_salt) : 1;
    if (salt == 0 || salt > OPENAI_MAX_SALT) {
        return error_set(err, CHURON_INVALID, "cache_salt: expected 1 to %d bytes, got %zu", OPENAI_MAX_SALT,
                         salt);
    }
    TRY(json_in_bool(root, "", "ignore_eos", &r->ignore_eos, err));
    TRY(json_in_bool(root, "", "speculate", &r->speculate, err));
    if (json_in_member(root, "timeout")) {
        TRY(json_in_double(root, "", "timeout", &r->timeout, err));
        if (!(r->timeout > 0 && r->timeout <= 86400)) {
            return error_set(err, CHURON_INVALID, "timeout: expected seconds over 0 and up to 86400, got %g",
                             r->timeout);
        }
    }
    return CHURON_OK;
}

static status read_input(openai_request *r, size_t n_vocab, error *err) {
    const json_t *root = r->doc.root;
    if (r->kind == OPENAI_CHAT) {
        TRY(json_in_bool(root, "", "add_generation_prompt", &r->add_generation_prompt, err));
        return openai_request_messages(r, json_object_get(root, "messages"), err);
    }
    TRY(json_in_bool(root, "", "echo", &r->echo, err));
    if (r->echo && r->logprobs) {
        return error_set(
            err, CHURON_UNSUPPORTED,
            "echo: expected without logprobs; log-probabilities of the prompt are not supported");
    }
    TRY(read_prompts(r, json_object_get(root, "prompt"), n_vocab, err));
    if (r->n_prompts * r->best_of > OPENAI_MAX_CHOICES) {
        return error_set(err, CHURON_INVALID,
                         "%s: expected prompts times %s of at most %d, got %zu times %zu",
                         r->best_of > r->n ? "best_of" : "n", r->best_of > r->n ? "best_of" : "n",
                         OPENAI_MAX_CHOICES, r->n_prompts, r->best_of);
    }
    return CHURON_OK;
}

status openai_request_parse(openai_request *out, const char *body, size_t len, openai_kind kind,
                            const openai_context *context, error *err) {
    status st;
    openai_request r = {
        .kind = kind, .add_generation_prompt = true, .speculate = true, .sampling = context->defaults};
    TRY_GOTO(json_in_parse(&r.doc, body, len, NULL, err));
    TRY_GOTO(check_fields(r.doc.root, kind, err));
    TRY_GOTO(json_in_string(r.doc.root, "", "model", &r.model, NULL, err));
    TRY_GOTO(read_stream(&r, err));
    TRY_GOTO(read_counts(&r, err));
    TRY_GOTO(read_sampling(&r, context->n_vocab, err));
    TRY_GOTO(read_logprobs(&r, err));
    TRY_GOTO(read_stop(&r, json_in_member(r.doc.root, "stop"), err));
    TRY_GOTO(read_stop_ids(&r, json_in_member(r.doc.root, "stop_token_ids"), context->n_vocab, err));
    TRY_GOTO(read_service(&r, err));
    TRY_GOTO(openai_request_beams(&r, err));
    TRY_GOTO(read_input(&r, context->n_vocab, err));
    *out = r;
    return CHURON_OK;
cleanup:
    openai_request_free(&r);
    *out = r;
    return st;
}

void openai_request_free(openai_request *r) {
    for (size_t i = 0; r->joined && i < r->n_messages; i++) mem_free(r->joined[i]);
    for (size_t i = 0; i < r->n_prompts; i++) mem_free(r->prompts[i].ids);
    mem_free(r->messages);
    mem_free(r->joined);
    mem_free(r->prompts);
    mem_free(r->bias);
    mem_free(r->stop);
    mem_free(r->stop_len);
    mem_free(r->stop_ids);
    json_in_free(&r->doc);
    *r = (openai_request){0};
}

void openai_error_param(const char *message, char *out, size_t size) {
    static const char path[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.[]-";
    const size_t n = strspn(message, path);
    out[0] = '\0';
    if (n == 0 || message[n] != ':') return;
    snprintf(out, size, "%.*s", n < size ? (int)n : (int)size - 1, message);
}

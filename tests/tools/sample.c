/* sample.c: many cases through the sampler, for tests/oracle/test_sampler.py.
 *
 * sample LOGITS: reads a JSON object a line from stdin: {"at", "n": the case's logits are values at .. at+n
 * of the file of f32, "accepted": [ids], "index", "params": {fields of sampler_params}, "bias": [[id, bias]],
 * "breakers": [ids]} and writes a line for each: {"id", "logprob", "top": [[id, logprob]], "kept": [[id,
 * probability]], "uniform": [draw, xtc]}. */
#include "base/file.h"
#include "base/json_out.h"
#include "base/mem.h"
#include "lm/sampler.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_IDS = 4096, CONTEXT = 4096 };

static float number(const json_t *o, const char *key, float otherwise) {
    const json_t *v = json_object_get(o, key);
    return v ? (float)json_number_value(v) : otherwise;
}

static uint32_t count(const json_t *o, const char *key) {
    return (uint32_t)json_integer_value(json_object_get(o, key));
}

static sampler_params params_of(const json_t *o) {
    sampler_params p = sampler_defaults();
    p.seed = (uint64_t)json_integer_value(json_object_get(o, "seed"));
    p.temperature = number(o, "temperature", 1);
    p.top_k = count(o, "top_k");
    p.top_p = number(o, "top_p", 1);
    p.min_p = number(o, "min_p", 0);
    p.typical_p = number(o, "typical_p", 1);
    p.repeat_penalty = number(o, "repeat_penalty", 1);
    p.repeat_last_n = count(o, "repeat_last_n");
    p.frequency_penalty = number(o, "frequency_penalty", 0);
    p.presence_penalty = number(o, "presence_penalty", 0);
    p.dry_multiplier = number(o, "dry_multiplier", 0);
    p.dry_base = number(o, "dry_base", 1.75f);
    p.dry_allowed_length = json_object_get(o, "dry_allowed_length") ? count(o, "dry_allowed_length") : 2;
    p.dry_last_n = count(o, "dry_last_n");
    p.xtc_probability = number(o, "xtc_probability", 0);
    p.xtc_threshold = number(o, "xtc_threshold", 0.1f);
    p.n_logprobs = count(o, "n_logprobs");
    p.want_logprobs = true;
    return p;
}

static size_t ids_of(const json_t *list, int32_t *ids) {
    size_t n = json_array_size(list);
    for (size_t i = 0; i < n && i < MAX_IDS; i++)
        ids[i] = (int32_t)json_integer_value(json_array_get(list, i));
    return n < MAX_IDS ? n : MAX_IDS;
}

static void pair(json_out *j, int32_t id, double value) {
    json_out_array(j, NULL);
    json_out_int(j, NULL, id);
    json_out_double(j, NULL, value);
    json_out_end_array(j);
}

static void print_case(str *to, const sampler *s, const sampled *out, const sampler_params *p, uint64_t index,
                       size_t n) {
    int32_t *ids = mem_alloc(n * sizeof *ids);
    double *probabilities = mem_alloc(n * sizeof *probabilities);
    if (ids == NULL || probabilities == NULL) return;
    size_t kept = sampler_kept(s, ids, probabilities, n);
    json_out j = json_out_begin(to);
    json_out_object(&j, NULL);
    json_out_int(&j, "id", out->id);
    json_out_float(&j, "logprob", out->logprob);
    json_out_array(&j, "top");
    for (size_t i = 0; i < out->n_top; i++) pair(&j, out->top[i].id, (double)out->top[i].logprob);
    json_out_end_array(&j);
    json_out_array(&j, "kept");
    for (size_t i = 0; i < kept; i++) pair(&j, ids[i], probabilities[i]);
    json_out_end_array(&j);
    json_out_array(&j, "uniform");
    json_out_double(&j, NULL, sampler_uniform(p->seed, index, 0));
    json_out_double(&j, NULL, sampler_uniform(p->seed, index, 1));
    json_out_end_array(&j);
    json_out_end_object(&j);
    str_put(to, '\n');
    mem_free(ids);
    mem_free(probabilities);
}

static status run_case(const json_t *c, const kernels *k, const float *all, error *err) {
    static int32_t accepted[MAX_IDS], breakers[MAX_IDS];
    static logit_bias bias[MAX_IDS];
    size_t at = (size_t)json_integer_value(json_object_get(c, "at"));
    size_t n = (size_t)json_integer_value(json_object_get(c, "n"));
    uint64_t index = (uint64_t)json_integer_value(json_object_get(c, "index"));
    sampler_params p = params_of(json_object_get(c, "params"));
    const json_t *list = json_object_get(c, "bias");
    for (size_t i = 0; i < json_array_size(list) && i < MAX_IDS; i++) {
        const json_t *entry = json_array_get(list, i), *value = json_array_get(entry, 1);
        float by = json_is_null(value) ? -INFINITY : (float)json_number_value(value);
        bias[p.n_bias++] = (logit_bias){(int32_t)json_integer_value(json_array_get(entry, 0)), by};
    }
    p.bias = bias;
    p.n_dry_breakers = ids_of(json_object_get(c, "breakers"), breakers);
    p.dry_breakers = breakers;
    size_t n_accepted = ids_of(json_object_get(c, "accepted"), accepted);
    float *logits = mem_alloc(n * sizeof *logits);
    if (logits == NULL) return error_no_memory(err, "logits", n * sizeof *logits);
    memcpy(logits, all + at, n * sizeof *logits);
    sampler *s;
    sampled out;
    status st = sampler_create(&s, &p, n, CONTEXT, err);
    if (st == CHURON_OK) {
        for (size_t i = 0; i < n_accepted; i++) sampler_accept(s, accepted[i]);
        st = sampler_next(s, k, logits, index, &out, err);
        str line = {0};
        if (st == CHURON_OK) print_case(&line, s, &out, &p, index, n);
        if (st == CHURON_OK) (void)fwrite(line.data, 1, line.len, stdout);
        str_free(&line);
        sampler_free(s);
    }
    mem_free(logits);
    return st;
}

int main(int argc, char **argv) {
    if (argc != 2) return fprintf(stderr, "usage: sample LOGITS < cases.jsonl\n"), 2;
    str logits = {0};
    const kernels *k;
    error err;
    if (file_read(&logits, argv[1], (size_t)1 << 30, &err) != CHURON_OK ||
        kernels_select(&k, &err) != CHURON_OK) {
        return fprintf(stderr, "sample: %s\n", err.message), 1;
    }
    static char line[1 << 20];
    while (fgets(line, sizeof line, stdin) != NULL) {
        json_t *c = json_loads(line, 0, NULL);
        if (c == NULL) return fprintf(stderr, "sample: not JSON\n"), 1;
        if (run_case(c, k, (const float *)(const void *)logits.data, &err) != CHURON_OK) {
            printf("{\"error\": \"%s\"}\n", err.message);
        }
        json_decref(c);
    }
    str_free(&logits);
    return 0;
}

/* manifest.c: see manifest.h. */
#include "pipeline/manifest.h"

#include "base/mem.h"

#include <stdio.h>
#include <string.h>

const key_spec MANIFEST_KEYS[] = {
    {"churon", KEY_INT, .required = true, .least = 1, .most = 1, .doc = "Version of this form: 1"},
    {"name", KEY_TEXT, .required = true,
     .doc = "Name of the bundle: letters, digits, '.', '_', '-'; at most 100"},
    {"version", KEY_TEXT, .required = true, .doc = "Version of the bundle, of the same characters"},
    {"task", KEY_CHOICE, .fallback = "graph",
     .choices = "classification|regression|generation|embedding|rerank|detection|ocr|transcription|"
                "segmentation|graph",
     .doc = "What the bundle is for"},
    {"description", KEY_TEXT, .doc = "One paragraph for readers"},
    {"model", KEY_ANY, .schema = "model", .doc = "The one model: {file, sha256?}. Or models"},
    {"models", KEY_ANY, .schema = "models", .doc = "Several models: a map from name to {file, sha256?}"},
    {"inputs", KEY_ANY, .schema = "inputs", .required = true,
     .doc = "The fields of a record: a map from name to description"},
    {"unknown_fields", KEY_CHOICE, .choices = "refuse|ignore", .fallback = "refuse",
     .doc = "What happens to a record's fields that inputs does not name"},
    {"state", KEY_ANY, .schema = "states",
     .doc = "Values that a sequence carries from call to call: a map from name to {dtype, shape, next}"},
    {"pre", KEY_STEPS, .doc = "Steps before the one model"},
    {"post", KEY_STEPS, .doc = "Steps behind it"},
    {"batch", KEY_BOOL, .fallback = "true",
     .doc = "With pre and post: records are put together along the model's first dimension; false: one at a "
            "time, and the "
            "record holds that dimension itself"},
    {"steps", KEY_STEPS, .doc = "All steps in order, models as steps among them; instead of pre and post"},
    {"outputs", KEY_ANY, .schema = "outputs",
     .doc =
         "The answer: a map from name to {from?, round?, unit?, description?}. Without it: what post makes "
         "new, or the model's outputs"},
    {"golden", KEY_FILE, .doc = "A file of golden cases, JSON lines of {name, in, out, trace?}"},
    {"tolerance", KEY_ANY, .schema = "tolerances",
     .doc =
         "How far an answer may be from a golden case: {abs?, rel?, ulp?, cosine?, set?, exact?}, or a map "
         "from output to such"},
    {"owner", KEY_TEXT, .doc = "Who answers for the bundle"},
    {"intended_use", KEY_TEXT, .doc = "What it was made for"},
    {"limits", KEY_TEXT, .doc = "What it cannot do"},
    {"licence", KEY_TEXT, .doc = "Licence of the model: an SPDX identifier, if there is one"},
    {"derived_from", KEY_TEXT, .doc = "The bundle or model that this one was made from"},
    {"sources", KEY_ANY, .schema = "sources",
     .doc = "Where its parts come from: a list of {name, url?, sha256?}"},
    {0}};

enum {
    AT_CHURON,
    AT_NAME,
    AT_VERSION,
    AT_TASK,
    AT_DESCRIPTION,
    AT_MODEL,
    AT_MODELS,
    AT_INPUTS,
    AT_UNKNOWN,
    AT_STATE,
    AT_PRE,
    AT_POST,
    AT_BATCH,
    AT_STEPS,
    AT_OUTPUTS,
    AT_GOLDEN,
    AT_TOLERANCE,
    AT_OWNER,
    AT_USE,
    AT_LIMITS,
    AT_LICENCE,
    AT_DERIVED,
    AT_SOURCES,
    N_KEYS
};

const key_spec MANIFEST_MODEL_KEYS[] = {
    {"file", KEY_FILE, .required = true, .doc = "Path of the model in the bundle"},
    {"sha256", KEY_TEXT, .doc = "Digest that the file must have, in hex"},
    {"kind", KEY_CHOICE, .choices = "graph|lm",
     .doc = "What executes it; by the file's content unless given"},
    {0}};
const key_spec MANIFEST_OUTPUT_KEYS[] = {
    {"from", KEY_FIELD, .doc = "The value that is the output; without it the one of the same name"},
    {"round", KEY_INT, .least = 0, .most = 15, .doc = "Digits behind the point that numbers are rounded to"},
    {"unit", KEY_TEXT, .doc = "Unit of the number, for readers"},
    {"description", KEY_TEXT, .doc = "What it means, for readers"},
    {0}};
const key_spec MANIFEST_TOLERANCE_KEYS[] = {
    {"exact", KEY_BOOL, .doc = "Equal, numbers bit for bit. The rule where nothing else is said"},
    {"abs", KEY_NUMBER, .least = 0, .most = 1e300, .doc = "Largest difference of two numbers"},
    {"rel", KEY_NUMBER, .least = 0, .most = 1e300,
     .doc = "Largest difference as a part of the expected number; together with abs: their sum"},
    {"ulp", KEY_NUMBER, .least = 0, .most = 1e18, .doc = "Largest difference in units of the last place"},
    {"cosine", KEY_NUMBER, .least = 0, .most = 2,
     .doc = "Largest 1 - cosine similarity of two lists of numbers"},
    {"set", KEY_BOOL, .doc = "A list may have its items in any order"},
    {0}};
const key_spec MANIFEST_STATE_KEYS[] = {
    {"dtype", KEY_TEXT, .required = true, .doc = "Element type: float32, int64, …"},
    {"shape", KEY_INTS, .required = true, .least = 0, .most = 1e9, .doc = "Shape; it begins as zeros"},
    {"next", KEY_FIELD, .required = true, .doc = "The value that the next call begins with"},
    {0}};
const key_spec MANIFEST_SOURCE_KEYS[] = {{"name", KEY_TEXT, .required = true, .doc = "What it is"},
                                         {"url", KEY_TEXT, .doc = "Where it comes from"},
                                         {"sha256", KEY_TEXT, .doc = "Its digest in hex"},
                                         {0}};

typedef struct reading {
    key_reader r;
    manifest *m;
    error *err;
} reading;

static void *keep(const reading *d, size_t n, size_t size, status *st) {
    void *p = arena_array(d->r.memory, n ? n : 1, size);
    *st = p ? CHURON_OK : arena_refused(d->r.memory, d->r.file, n * size, d->err);
    return p;
}

static status check_id(const reading *d, const key_value *v, const char *key) {
    const char *p = v->text;
    bool good = *p && *p != '.' && *p != '-' && *p != '_' && strlen(p) <= 100;
    for (; *p && good; p++) {
        good = (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') || (*p >= '0' && *p <= '9') ||
               *p == '.' || *p == '_' || *p == '-';
    }
    if (good) return CHURON_OK;
    return keys_fault(
        &d->r, v->node, key, d->err,
        "expected 1 to 100 letters, digits, '.', '_' or '-', beginning with a letter or digit, got '%.60s'",
        v->text);
}

static status check_digest(const reading *d, const key_value *v, const char *key) {
    if (!v->given) return CHURON_OK;
    if (strlen(v->text) == 64 && strspn(v->text, "0123456789abcdef") == 64) return CHURON_OK;
    return keys_fault(&d->r, v->node, key, d->err, "expected 64 hexadecimal digits (lower case), got '%.70s'",
                      v->text);
}

static status read_model(const reading *d, const char *name, const yaml_node *at, manifest_model *out) {
    key_value v[3];
    TRY(keys_read_map(&d->r, at, "model", MANIFEST_MODEL_KEYS, v, d->err));
    TRY(check_digest(d, &v[1], "model.sha256"));
    if (!files_find(d->r.files, v[0].text))
        return keys_fault(&d->r, v[0].node, "model.file", d->err,
                          "expected a file of the bundle, got '%.200s', which is not there", v[0].text);
    *out =
        (manifest_model){.name = name, .file = v[0].text, .sha256 = v[1].text, .kind = v[2].text, .node = at};
    return CHURON_OK;
}

static status read_models(const reading *d, const key_value *v) {
    const yaml_node *one = v[AT_MODEL].given ? v[AT_MODEL].node : NULL;
    const yaml_node *many = v[AT_MODELS].given ? v[AT_MODELS].node : NULL;
    if (one && many) return keys_fault(&d->r, many, "models", d->err, "expected model or models, got both");
    if (many && many->kind != YAML_MAP)
        return keys_fault(&d->r, many, "models", d->err, "expected a map from name to {file, …}");
    const size_t n = one ? 1 : many ? many->n : 0;
    status st;
    manifest_model *models = keep(d, n, sizeof *models, &st);
    if (st != CHURON_OK) return st;
    for (size_t i = 0; i < n; i++)
        TRY(read_model(d, one ? "main" : many->keys[i].text, one ? one : &many->items[i], &models[i]));
    d->m->models = models;
    d->m->n_models = n;
    return CHURON_OK;
}

static status read_outputs(const reading *d, const key_value *v) {
    const yaml_node *at = v[AT_OUTPUTS].given ? v[AT_OUTPUTS].node : NULL;
    if (!at) return CHURON_OK;
    if (at->kind != YAML_MAP || at->n == 0)
        return keys_fault(&d->r, at, "outputs", d->err, "expected a map from name to description");
    status st;
    manifest_output *outputs = keep(d, at->n, sizeof *outputs, &st);
    if (st != CHURON_OK) return st;
    for (size_t i = 0; i < at->n; i++) {
        key_value o[4];
        char what[160];
        snprintf(what, sizeof what, "outputs.%.100s", at->keys[i].text);
        TRY(keys_read_map(&d->r, &at->items[i], what, MANIFEST_OUTPUT_KEYS, o, d->err));
        outputs[i] = (manifest_output){.name = at->keys[i].text,
                                       .from = o[0].given ? o[0].text : at->keys[i].text,
                                       .has_round = o[1].given,
                                       .round = (int)o[1].integer,
                                       .unit = o[2].text,
                                       .description = o[3].text,
                                       .node = &at->keys[i]};
    }
    d->m->outputs = outputs;
    d->m->n_outputs = at->n;
    return CHURON_OK;
}

static status read_tolerance(const reading *d, const yaml_node *at, const char *field,
                             manifest_tolerance *out) {
    key_value v[6];
    TRY(keys_read_map(&d->r, at, "tolerance", MANIFEST_TOLERANCE_KEYS, v, d->err));
    *out = (manifest_tolerance){.field = field,
                                .t = {.exact = v[0].flag,
                                      .abs = v[1].number,
                                      .rel = v[2].number,
                                      .ulp = v[3].number,
                                      .cosine = v[4].number,
                                      .set = v[5].flag}};
    const bool some = v[1].given || v[2].given || v[3].given || v[4].given;
    if (v[0].flag && some)
        return keys_fault(&d->r, v[0].node, "tolerance", d->err, "expected exact or a distance, got both");
    return CHURON_OK;
}

/* A map whose values are maps is by output, else it is one tolerance for all. */
static status read_tolerances(const reading *d, const key_value *v) {
    const yaml_node *at = v[AT_TOLERANCE].given ? v[AT_TOLERANCE].node : NULL;
    if (!at) return CHURON_OK;
    if (at->kind != YAML_MAP) return keys_fault(&d->r, at, "tolerance", d->err, "expected a map");
    const bool by_field = at->n > 0 && at->items[0].kind == YAML_MAP;
    status st;
    const size_t n = by_field ? at->n : 1;
    manifest_tolerance *t = keep(d, n, sizeof *t, &st);
    if (st != CHURON_OK) return st;
    for (size_t i = 0; i < n; i++)
        TRY(read_tolerance(d, by_field ? &at->items[i] : at, by_field ? at->keys[i].text : NULL, &t[i]));
    d->m->tolerances = t;
    d->m->n_tolerances = n;
    return CHURON_OK;
}

static status read_sources(const reading *d, const key_value *v) {
    const yaml_node *at = v[AT_SOURCES].given ? v[AT_SOURCES].node : NULL;
    if (!at) return CHURON_OK;
    if (at->kind != YAML_LIST)
        return keys_fault(&d->r, at, "sources", d->err, "expected a list of {name, url?, sha256?}");
    status st;
    manifest_source *sources = keep(d, at->n, sizeof *sources, &st);
    if (st != CHURON_OK) return st;
    for (size_t i = 0; i < at->n; i++) {
        key_value s[3];
        TRY(keys_read_map(&d->r, &at->items[i], "sources", MANIFEST_SOURCE_KEYS, s, d->err));
        TRY(check_digest(d, &s[2], "sources.sha256"));
        sources[i] = (manifest_source){.name = s[0].text, .url = s[1].text, .sha256 = s[2].text};
    }
    d->m->sources = sources;
    d->m->n_sources = at->n;
    return CHURON_OK;
}

static status read_steps(const reading *d, const key_value *v) {
    manifest *m = d->m;
    m->pre = v[AT_PRE].given ? v[AT_PRE].node : NULL;
    m->post = v[AT_POST].given ? v[AT_POST].node : NULL;
    m->steps = v[AT_STEPS].given ? v[AT_STEPS].node : NULL;
    m->single_rows = !v[AT_BATCH].flag;
    m->state = v[AT_STATE].given ? v[AT_STATE].node : NULL;
    if (m->steps && (m->pre || m->post))
        return keys_fault(&d->r, m->steps, "steps", d->err, "expected steps, or pre and post, got both");
    if (m->steps && v[AT_BATCH].given)
        return keys_fault(
            &d->r, v[AT_BATCH].node, "batch", d->err,
            "expected this key with pre and post (a model step has its own), got it with steps");
    if (!m->steps && m->n_models != 1)
        return keys_fault(&d->r, v[AT_CHURON].node, NULL, d->err,
                          "expected the key 'steps' where there are %zu models (pre and post stand around "
                          "exactly one), got none",
                          m->n_models);
    if (m->steps && !m->n_outputs)
        return keys_fault(&d->r, m->steps, NULL, d->err, "expected the key 'outputs' with steps, got none");
    return CHURON_OK;
}

status manifest_read(manifest *out, const char *text, size_t n, const files *f, arena *memory, error *err) {
    *out = (manifest){.file = "bundle.yaml"};
    yaml_node *root = arena_array(memory, 1, sizeof *root);
    if (!root) return arena_refused(memory, out->file, sizeof *root, err);
    TRY(yaml_parse(root, memory, out->file, text, n, err));
    key_value v[N_KEYS];
    const reading d = {.r = {.file = out->file, .files = f, .memory = memory}, .m = out, .err = err};
    TRY(keys_read_map(&d.r, root, NULL, MANIFEST_KEYS, v, err));
    TRY(check_id(&d, &v[AT_NAME], "name"));
    TRY(check_id(&d, &v[AT_VERSION], "version"));
    out->name = v[AT_NAME].text;
    out->version = v[AT_VERSION].text;
    out->task = v[AT_TASK].text;
    out->description = v[AT_DESCRIPTION].text;
    out->owner = v[AT_OWNER].text;
    out->intended_use = v[AT_USE].text;
    out->limits = v[AT_LIMITS].text;
    out->licence = v[AT_LICENCE].text;
    out->derived_from = v[AT_DERIVED].text;
    TRY(read_models(&d, v));
    TRY(read_outputs(&d, v));
    TRY(read_steps(&d, v));
    TRY(read_tolerances(&d, v));
    TRY(read_sources(&d, v));
    if (v[AT_GOLDEN].given) {
        out->golden = v[AT_GOLDEN].text;
        if (!files_find(f, out->golden))
            return keys_fault(&d.r, v[AT_GOLDEN].node, "golden", err,
                              "expected a file of the bundle, got '%.200s', which is not there", out->golden);
    }
    return schema_read(&d.r, v[AT_INPUTS].node, v[AT_UNKNOWN].integer == 1, &out->inputs, err);
}

void manifest_release(manifest *m) {
    schema_release(&m->inputs);
}

const tolerance *manifest_tolerance_of(const manifest *m, const char *output) {
    static const tolerance exact = {.exact = true};
    const tolerance *all = &exact;
    for (size_t i = 0; i < m->n_tolerances; i++) {
        const manifest_tolerance *t = &m->tolerances[i];
        if (t->field && strcmp(t->field, output) == 0) return &t->t;
        if (!t->field) all = &t->t;
    }
    return all;
}

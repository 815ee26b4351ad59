/* chat_template.c: messages as the text that a model was trained to read. */
#include "base/clock.h"
#include "pipeline/calendar.h"
#include "pipeline/pipeline_part.h"
#include "pipeline/steps/prompt.h"
#include "pipeline/steps/steps.h"

#include <string.h>

enum {
    KEY_PROMPT,
    KEY_MESSAGES,
    KEY_SYSTEM,
    KEY_INTO_,
    KEY_FILE_,
    KEY_MODEL_,
    KEY_BEGIN,
    KEY_BOS,
    KEY_EOS,
    KEY_TIME
};

enum { MAX_TEMPLATE = 1 << 20 };

typedef struct chat_state {
    prompt_source source;
    const lm_bundle *lm; /* or */
    template *own;
    const char *bos, *eos;
    bool begin, has_time;
    int64_t time; /* seconds since 1970 */
} chat_state;

static const key_spec KEYS[] = {
    PROMPT_KEYS,
    {"into", KEY_INTO, .required = true, .doc = "Name of the result"},
    {"file", KEY_FILE, .doc = "A chat template (Jinja) in the bundle"},
    {"model", KEY_TEXT, .doc = "Instead of file: a language model of the bundle, whose template is used"},
    {"begin_answer", KEY_BOOL, .fallback = "true",
     .doc = "The text ends where the answer begins (add_generation_prompt)"},
    {"bos_token", KEY_TEXT, .doc = "Of file: what the template sees under this name"},
    {"eos_token", KEY_TEXT, .doc = "Of file: likewise"},
    {"time", KEY_TEXT,
     .doc =
         "Of file: the time that strftime_now sees, such as 2026-11-30T12:00:00Z; left out: that of the run"},
    {0}};

static status open_template(step_build *b, chat_state *s, error *err) {
    const key_value *file = &b->values[KEY_FILE_], *model = &b->values[KEY_MODEL_];
    if (file->given == model->given)
        return step_fault(b, NULL, err, "expected either the key 'file' or the key 'model'");
    for (size_t i = 0; model->given && i < b->p->m.n_models; i++) {
        if (strcmp(b->p->models[i].name, model->text) == 0) s->lm = b->p->models[i].lm;
    }
    if (model->given && !s->lm)
        return step_fault(b, "model", err, "expected the name of a language model, got '%.80s'", model->text);
    if (model->given && !lm_bundle_has_template(s->lm))
        return step_fault(b, "model", err,
                          "expected a model with a chat template, got '%.80s', which has none", model->text);
    if (model->given) return CHURON_OK;
    str source = {0};
    status st = files_read(b->p->files, file->text, MAX_TEMPLATE, &source, err);
    if (st == CHURON_OK) {
        st = template_parse(&s->own, str_cstr(&source), source.len, err);
        if (st != CHURON_OK)
            error_prefix(err, "%s: line %u: chat_template.file: %s", b->reader->file, b->node->line,
                         file->text);
    }
    str_free(&source);
    return st;
}

static status check(step_build *b, error *err) {
    chat_state *s;
    int64_t micros;
    const key_value *v = b->values;
    TRY(step_state(b, sizeof *s, &s, err));
    TRY(prompt_check(b, (prompt_keys){KEY_PROMPT, KEY_MESSAGES, KEY_SYSTEM}, &s->source, err));
    TRY(open_template(b, s, err));
    for (size_t k = KEY_BOS; k <= KEY_TIME && s->lm; k++) {
        if (v[k].given) return step_fault(b, KEYS[k].name, err, "expected it with file only");
    }
    s->begin = v[KEY_BEGIN].flag;
    s->bos = v[KEY_BOS].given ? v[KEY_BOS].text : "";
    s->eos = v[KEY_EOS].given ? v[KEY_EOS].text : "";
    s->has_time = v[KEY_TIME].given;
    if (s->has_time && !time_parse(v[KEY_TIME].text, strlen(v[KEY_TIME].text), &micros))
        return step_fault(b, "time", err, "expected a timestamp with its zone, got '%.60s'",
                          v[KEY_TIME].text);
    if (s->has_time) s->time = micros / 1000000;
    return step_output(b, KEY_INTO_, KEY_PROMPT, &CELL_TYPE_TEXT, err);
}

static void release(step *st) {
    chat_state *s = st->state;
    if (s) template_free(s->own);
}

static tvalue *message_list(tarena *a, const chat_message *m, size_t n) {
    tvalue *list = tvalue_list(a);
    for (size_t i = 0; i < n; i++) {
        tvalue *one = tvalue_dict(a);
        one = tvalue_dict_set(a, one, "role", tvalue_string(a, m[i].role, m[i].role_len));
        one = tvalue_dict_set(a, one, "content", tvalue_string(a, m[i].content, m[i].content_len));
        list = tvalue_list_add(a, list, one);
    }
    return list;
}

static status render(const chat_state *s, const chat_message *m, size_t n, str *out, error *err) {
    tarena *a;
    TRY(tarena_create(&a, err));
    tvalue *context = tvalue_dict(a);
    context = tvalue_dict_set(a, context, "messages", message_list(a, m, n));
    context = tvalue_dict_set(a, context, "add_generation_prompt", tvalue_bool(a, s->begin));
    context = tvalue_dict_set(a, context, "bos_token", tvalue_string(a, s->bos, strlen(s->bos)));
    context = tvalue_dict_set(a, context, "eos_token", tvalue_string(a, s->eos, strlen(s->eos)));
    const status st = template_render(s->own, context, s->has_time ? s->time : clock_unix(), NULL, out, err);
    tarena_free(a);
    return st;
}

static status row(const step *st, run *r, cell *slots, error *err) {
    const chat_state *s = st->state;
    const chat_message *m;
    size_t n;
    str out = {0};
    TRY(prompt_messages(st, r, &s->source, slots, &m, &n, err));
    status done =
        s->lm ? lm_bundle_chat_prompt(s->lm, m, n, s->begin, &out, err) : render(s, m, n, &out, err);
    char *copy = done == CHURON_OK ? arena_strndup(r->memory, str_cstr(&out), out.len) : NULL;
    if (done == CHURON_OK && !copy) done = run_no_memory(r, st, out.len, err);
    if (copy) slots[st->out] = cell_of_text(copy, out.len);
    str_free(&out);
    return done;
}

const step_kind step_chat_template = {.name = "chat_template",
                                      .group = "text",
                                      .doc = "Messages as one text by a model's chat template, a Jinja "
                                             "template that sees messages, add_generation_prompt, "
                                             "bos_token and eos_token.",
                                      .reference = "Jinja2 as transformers sets it up",
                                      .keys = KEYS,
                                      .check = check,
                                      .row = row,
                                      .release = release};

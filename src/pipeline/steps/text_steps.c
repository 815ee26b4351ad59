/* text_steps.c: normalize, split, join. */
#include "pipeline/steps/steps.h"
#include "text/normal_form.h"

#include <string.h>

/* A text of the run from *s, whose memory is given back. */
static status take_text(const step *st, run *r, str *s, status so_far, cell *out, error *err) {
    char *copy = NULL;
    if (so_far == CHURON_OK) {
        copy = arena_strndup(r->memory, str_cstr(s), s->len);
        so_far = copy ? CHURON_OK : run_no_memory(r, st, s->len, err);
    }
    if (copy) *out = cell_of_text(copy, s->len);
    str_free(s);
    return so_far;
}

/* ---- normalize -------------------------------------------------------------------------------------- */

enum { KEY_FIELD_, KEY_INTO_, KEY_FORM, KEY_STRIP, KEY_LOWER, KEY_COLLAPSE, KEY_TRIM };

typedef struct normalize_state {
    normal_form form;
    bool strip, lower, collapse, trim;
} normalize_state;

static const key_spec NORMALIZE_KEYS[] = {
    {"field", KEY_FIELD, .required = true, .doc = "A text"},
    {"into", KEY_INTO, .doc = "Name of the result; left out: the field's name"},
    {"form", KEY_CHOICE, .fallback = "none", .choices = "none|nfc|nfkc|nfd|nfkd",
     .doc = "Normalization form of Unicode"},
    {"strip_accents", KEY_BOOL, .fallback = "false",
     .doc = "Nonspacing marks are dropped from the decomposed text, which is composed again unless the form "
            "is nfd or nfkd"},
    {"lower", KEY_BOOL, .fallback = "false", .doc = "Lower case, of all of Unicode"},
    {"collapse", KEY_BOOL, .fallback = "false", .doc = "Each run of white space becomes one space"},
    {"trim", KEY_BOOL, .fallback = "false", .doc = "White space at both ends is dropped"},
    {0}};

static status check_normalize(step_build *b, error *err) {
    normalize_state *s;
    TRY(step_expect(b, KEY_FIELD_, 1u << CELL_TEXT, false, err));
    TRY(step_state(b, sizeof *s, &s, err));
    *s = (normalize_state){.form = (normal_form)b->values[KEY_FORM].integer,
                           .strip = b->values[KEY_STRIP].flag,
                           .lower = b->values[KEY_LOWER].flag,
                           .collapse = b->values[KEY_COLLAPSE].flag,
                           .trim = b->values[KEY_TRIM].flag};
    if (s->form == FORM_NONE && !s->strip && !s->lower && !s->collapse && !s->trim)
        return step_fault(b, NULL, err,
                          "expected at least one of form, strip_accents, lower, collapse, trim");
    b->s->in = b->values[KEY_FIELD_].slot;
    return step_output(b, KEY_INTO_, KEY_FIELD_, &CELL_TYPE_TEXT, err);
}

static void collapse_spaces(const char *text, size_t len, str *out) {
    const char *end = text + len;
    bool in_space = false;
    for (const char *p = text; p < end;) {
        const size_t space = unicode_space(p, end);
        if (space && !in_space) str_put(out, ' ');
        in_space = space != 0;
        if (!space) str_put(out, *p);
        p += space ? space : 1;
    }
}

static void trim_spaces(const char **text, size_t *len) {
    const char *p = *text, *end = p + *len;
    size_t n;
    while (p < end && (n = unicode_space(p, end)) != 0) p += n;
    while (end > p) {
        const char *last = end - 1;
        while (last > p && ((unsigned char)*last & 0xc0) == 0x80) last--;
        if (unicode_space(last, end) != (size_t)(end - last)) break;
        end = last;
    }
    *text = p;
    *len = (size_t)(end - p);
}

static status normalize(const normalize_state *s, const char *text, size_t len, str *out, error *err) {
    str lower = {0};
    TRY(unicode_form(s->form, s->strip, text, len, out, err));
    if (s->lower) {
        const status st = unicode_lower(str_cstr(out), out->len, &lower, err);
        str_free(out);
        *out = lower;
        TRY(st);
    }
    if (s->collapse) {
        str collapsed = {0};
        collapse_spaces(str_cstr(out), out->len, &collapsed);
        str_free(out);
        *out = collapsed;
    }
    return str_check(out, err);
}

static status row_normalize(const step *st, run *r, cell *slots, error *err) {
    const normalize_state *s = st->state;
    const cell *in = &slots[st->in];
    str out = {0};
    const status done = normalize(s, in->len ? in->bytes : "", in->len, &out, err);
    TRY(take_text(st, r, &out, done, &slots[st->out], err));
    if (s->trim) trim_spaces(&slots[st->out].bytes, &slots[st->out].len);
    return CHURON_OK;
}

const step_kind step_normalize = {
    .name = "normalize",
    .group = "text",
    .doc =
        "The text in another form. In this order, as far as asked for: the normalization form, accents "
        "stripped, lower "
        "case (full mapping, with final sigma, of no language), white space collapsed, white space trimmed.",
    .reference = "Python unicodedata.normalize, str.lower",
    .keys = NORMALIZE_KEYS,
    .check = check_normalize,
    .row = row_normalize};

/* ---- split ------------------------------------------------------------------------------------------ */

enum { SPLIT_FIELD, SPLIT_INTO, SPLIT_SEPARATOR, SPLIT_MOST };

typedef struct split_state {
    const char *separator; /* NULL: white space */
    size_t len, most;
} split_state;

static const key_spec SPLIT_KEYS[] = {
    {"field", KEY_FIELD, .required = true, .doc = "A text"},
    {"into", KEY_INTO, .doc = "Name of the result; left out: the field's name"},
    {"separator", KEY_TEXT,
     .doc = "What stands between the parts; left out: runs of white space, and no part is empty"},
    {"most", KEY_INT, .fallback = "1000000", .least = 1, .most = 1e8,
     .doc = "More parts are a fault of the record"},
    {0}};

static status check_split(step_build *b, error *err) {
    split_state *s;
    const key_value *separator = &b->values[SPLIT_SEPARATOR];
    const cell_type type = {.kind = CELL_LIST, .of = &CELL_TYPE_TEXT};
    TRY(step_expect(b, SPLIT_FIELD, 1u << CELL_TEXT, false, err));
    TRY(step_state(b, sizeof *s, &s, err));
    *s = (split_state){.separator = separator->text,
                       .len = separator->given ? strlen(separator->text) : 0,
                       .most = (size_t)b->values[SPLIT_MOST].integer};
    if (separator->given && s->len == 0)
        return step_fault(b, "separator", err, "expected a text that is not empty");
    b->s->in = b->values[SPLIT_FIELD].slot;
    return step_output(b, SPLIT_INTO, SPLIT_FIELD, &type, err);
}

/* The next part in [*p, end): its begin and end; moves *p behind the separator, or to NULL at the end. */
static bool next_part(const split_state *s, const char **p, const char *end, const char **begin,
                      const char **stop) {
    size_t n;
    if (!*p) return false;
    if (!s->separator) {
        while (*p < end && (n = unicode_space(*p, end)) != 0) *p += n;
        *begin = *p;
        while (*p < end && unicode_space(*p, end) == 0) (*p)++;
        *stop = *p;
        return *begin < *stop;
    }
    *begin = *p;
    for (const char *q = *p; (size_t)(end - q) >= s->len; q++) {
        if (memcmp(q, s->separator, s->len) != 0) continue;
        *stop = q;
        *p = q + s->len;
        return true;
    }
    *stop = end;
    *p = NULL;
    return true;
}

static status row_split(const step *st, run *r, cell *slots, error *err) {
    const split_state *s = st->state;
    const cell *in = &slots[st->in];
    const char *text = in->len ? in->bytes : "", *end = text + in->len, *begin, *stop;
    size_t n = 0;
    cell *items;
    for (const char *p = text; next_part(s, &p, end, &begin, &stop);) {
        if (++n > s->most)
            return error_set(err, CHURON_INVALID, "expected at most %zu parts, got more", s->most);
    }
    TRY(cell_new_list(&slots[st->out], r->memory, n, &items, err));
    n = 0;
    for (const char *p = text; next_part(s, &p, end, &begin, &stop);)
        items[n++] = cell_of_text(begin, (size_t)(stop - begin));
    return CHURON_OK;
}

const step_kind step_split = {.name = "split",
                              .group = "text",
                              .doc = "The parts of a text between separators, as a list.",
                              .reference = "Python str.split",
                              .keys = SPLIT_KEYS,
                              .check = check_split,
                              .row = row_split};

/* ---- join ------------------------------------------------------------------------------------------- */

enum { JOIN_FIELD, JOIN_INTO, JOIN_SEPARATOR };

static const key_spec JOIN_KEYS[] = {
    {"field", KEY_FIELD, .required = true, .doc = "A list of texts"},
    {"into", KEY_INTO, .doc = "Name of the result; left out: the field's name"},
    {"separator", KEY_TEXT, .doc = "What is put between the texts; left out: nothing"},
    {0}};

static status check_join(step_build *b, error *err) {
    cell *separator;
    TRY(step_expect(b, JOIN_FIELD, 1u << CELL_LIST, false, err));
    const cell_type *of = b->values[JOIN_FIELD].type->of;
    char got[160];
    if (of->kind != CELL_TEXT || of->optional)
        return step_fault(b, "field", err, "expected a list of texts, got '%.60s', which is %s",
                          b->values[JOIN_FIELD].text,
                          cell_type_text(b->values[JOIN_FIELD].type, got, sizeof got));
    TRY(step_state(b, sizeof *separator, &separator, err));
    const char *text = b->values[JOIN_SEPARATOR].given ? b->values[JOIN_SEPARATOR].text : "";
    *separator = cell_of_text(text, strlen(text));
    b->s->in = b->values[JOIN_FIELD].slot;
    return step_output(b, JOIN_INTO, JOIN_FIELD, &CELL_TYPE_TEXT, err);
}

static status row_join(const step *st, run *r, cell *slots, error *err) {
    const cell *separator = st->state, *in = &slots[st->in];
    str out = {0};
    for (uint32_t i = 0; i < in->n; i++) {
        if (i) str_add(&out, separator->bytes, separator->len);
        if (in->items[i].len) str_add(&out, in->items[i].bytes, in->items[i].len);
    }
    return take_text(st, r, &out, str_check(&out, err), &slots[st->out], err);
}

const step_kind step_join = {.name = "join",
                             .group = "text",
                             .doc = "The texts of a list behind each other as one text.",
                             .reference = "Python str.join",
                             .keys = JOIN_KEYS,
                             .check = check_join,
                             .row = row_join};

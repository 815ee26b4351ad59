/* category.c: see category.h. */
#include "pipeline/steps/category.h"

#include "pipeline/pipeline_part.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static uint64_t hash_cell(const cell *c) {
    const uint64_t k = 0x9e3779b97f4a7c15u;
    if (c->kind == CELL_INT) return ((uint64_t)c->integer * k) ^ ((uint64_t)c->integer * k) >> 32;
    if (c->kind == CELL_BOOL) return c->flag;
    uint64_t h = 0xcbf29ce484222325u; /* FNV-1a */
    for (size_t i = 0; i < c->len; i++) h = (h ^ (unsigned char)c->bytes[i]) * 0x100000001b3u;
    return h ^ h >> 32;
}

static bool same(const cell *a, const cell *b) {
    if (a->kind == CELL_INT) return a->integer == b->integer;
    if (a->kind == CELL_BOOL) return a->flag == b->flag;
    return a->len == b->len && (a->len == 0 || memcmp(a->bytes, b->bytes, a->len) == 0);
}

int64_t category_find(const category_set *s, const cell *c) {
    for (size_t i = (size_t)hash_cell(c) & s->mask; s->slots[i]; i = (i + 1) & s->mask) {
        if (same(&s->values[s->slots[i] - 1], c)) return s->slots[i] - 1;
    }
    return -1;
}

const char *category_text(const cell *c, char buf[80]) {
    if (c->kind == CELL_INT) {
        snprintf(buf, 80, "%" PRId64, c->integer);
    } else if (c->kind == CELL_BOOL) {
        snprintf(buf, 80, "%s", c->flag ? "true" : "false");
    } else {
        size_t n = c->len < 60 ? c->len : 60;
        while (n > 0 && n < c->len && ((unsigned char)c->bytes[n] & 0xc0) == 0x80) n--;
        snprintf(buf, 80, "'%.*s%s'", (int)n, n ? c->bytes : "", n < c->len ? "…" : "");
    }
    return buf;
}

static bool parse(cell_kind kind, const char *text, cell *out) {
    const yaml_node node = {.kind = YAML_SCALAR, .text = text, .len = strlen(text)};
    *out = (cell){.kind = kind};
    if (kind == CELL_INT) return scalar_int(&node, &out->integer);
    if (kind == CELL_BOOL) return scalar_bool(&node, &out->flag);
    *out = cell_of_text(text, node.len);
    return true;
}

/* The values that the schema allows, if the field is an input that no step has changed. */
static const input_field *schema_of(const step_build *b, size_t field) {
    const input_schema *in = &b->p->m.inputs;
    for (size_t i = 0; i < in->n; i++) {
        if (b->p->input_slots[i] == b->values[field].slot && in->fields[i].n_one_of) return &in->fields[i];
    }
    return NULL;
}

static status read_values(step_build *b, size_t key, size_t field, category_set *s, error *err) {
    const key_value *v = &b->values[key];
    const input_field *f = v->given ? NULL : schema_of(b, field);
    const char *name = b->kind->keys[key].name;
    if (!v->given && !f)
        return step_fault(
            b, NULL, err,
            "expected the key '%s' (or an input with one_of, which no step has changed), got none", name);
    s->n = f ? f->n_one_of : v->n;
    if (s->n == 0) return step_fault(b, name, err, "expected at least one category, got none");
    if (f) {
        s->values = f->one_of;
        return CHURON_OK;
    }
    cell *values = arena_array(b->memory, s->n, sizeof *values);
    if (!values) return arena_refused(b->memory, name, s->n * sizeof *values, err);
    for (size_t i = 0; i < s->n; i++) {
        if (!parse(s->kind, v->texts[i], &values[i]))
            return step_fault(b, name, err, "expected %s, as the field holds, got '%.60s'",
                              s->kind == CELL_INT ? "integers" : "true and false", v->texts[i]);
    }
    s->values = values;
    return CHURON_OK;
}

status category_set_read(step_build *b, size_t key, size_t field, category_set *out, error *err) {
    TRY(step_expect(b, field, 1u << CELL_TEXT | 1u << CELL_INT | 1u << CELL_BOOL, false, err));
    *out = (category_set){.kind = b->values[field].type->kind};
    TRY(read_values(b, key, field, out, err));
    size_t cap = 8;
    while (cap < 2 * out->n) cap *= 2;
    out->mask = cap - 1;
    out->slots = arena_array(b->memory, cap, sizeof *out->slots);
    if (!out->slots) return arena_refused(b->memory, b->kind->name, cap * sizeof *out->slots, err);
    for (size_t i = 0; i < out->n; i++) {
        char text[80];
        if (category_find(out, &out->values[i]) >= 0)
            return step_fault(b, b->kind->keys[key].name, err, "expected different categories, got %s twice",
                              category_text(&out->values[i], text));
        size_t at = (size_t)hash_cell(&out->values[i]) & out->mask;
        while (out->slots[at]) at = (at + 1) & out->mask;
        out->slots[at] = (uint32_t)i + 1;
    }
    return CHURON_OK;
}

/* compile.c: from the manifest's lists of steps to steps with slots.
 *
 * A scope is what names mean at a point: it grows as steps are compiled, and shrinks again at the end of a
 * block. Each name that a step writes is a slot of its own; a name that is written anew hides the older value
 * from then on. A value that nobody reads is a mistake in the manifest and refused, with the step's line. */
#include "pipeline/pipeline_part.h"

#include "base/mem.h"

#include <stdio.h>
#include <string.h>

typedef struct name_entry {
    const char *name;
    cell_type type;
    int32_t slot;
    bool used;
    const step *maker; /* NULL: an input, a state, an item of a block */
} name_entry;

struct scope {
    name_entry *entries;
    size_t n, cap;
    int depth;
    key_reader reader;
};

enum { MAX_DEPTH = 8, MAX_SLOTS = 100000 };

static status scope_add(pipeline *p, scope *s, const char *name, const cell_type *type, const step *maker,
                        int32_t *slot, error *err) {
    if (p->n_slots >= MAX_SLOTS)
        return error_set(err, CHURON_LIMIT, "bundle.yaml: expected at most %d values, got more", MAX_SLOTS);
    if (s->n == s->cap) {
        const size_t cap = s->cap ? s->cap * 2 : 64;
        name_entry *grown = mem_realloc(s->entries, cap * sizeof *grown);
        if (!grown) return error_no_memory(err, "names", cap * sizeof *grown);
        s->entries = grown;
        s->cap = cap;
    }
    *slot = (int32_t)p->n_slots++;
    s->entries[s->n++] = (name_entry){.name = name, .type = *type, .slot = *slot, .maker = maker};
    return CHURON_OK;
}

static name_entry *scope_find(scope *s, const char *name) {
    for (size_t i = s->n; i-- > 0;) {
        if (strcmp(s->entries[i].name, name) == 0) return &s->entries[i];
    }
    return NULL;
}

static const char *scope_nearest(const scope *s, const char *name) {
    enum { MOST = 512 };
    const char *names[MOST];
    size_t n = 0;
    for (size_t i = s->n; i-- > 0 && n < MOST;) names[n++] = s->entries[i].name;
    return keys_nearest(name, names, n);
}

/* Of the entries from `first` on: each must have been read by someone. */
static status scope_check_used(const scope *s, const char *file, size_t first, error *err) {
    for (size_t i = first; i < s->n; i++) {
        const name_entry *e = &s->entries[i];
        if (e->used || !e->maker) continue;
        return error_set(err, CHURON_INVALID,
                         "%s: line %u: step %s: expected that a later step or the outputs use its value "
                         "'%.80s', got no use of it",
                         file, e->maker->line, e->maker->label, e->name);
    }
    return CHURON_OK;
}

/* ---- what steps call -------------------------------------------------------------------------------- */

status step_fault(const step_build *b, const char *key, error *err, const char *fmt, ...) {
    char what[400], name[160];
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    const yaml_node *at = key ? yaml_get(b->node, key) : NULL;
    snprintf(name, sizeof name, "%s%s%s", b->kind->name, key ? "." : "", key ? key : "");
    return keys_fault(b->reader, at ? at : b->node, name, err, "%s", what);
}

status step_find(const step_build *b, const char *key, const char *name, int32_t *slot,
                 const cell_type **type, error *err) {
    name_entry *e = scope_find(b->scope, name);
    if (!e) {
        const char *near = scope_nearest(b->scope, name);
        return step_fault(b, key, err,
                          near ? "expected a value that is there, got '%.80s': did you mean '%.80s'?"
                               : "expected a value that is there, got '%.80s'%s",
                          name, near ? near : "");
    }
    e->used = true;
    cell_type *copy = arena_alloc(b->memory, sizeof *copy);
    if (!copy) return arena_refused(b->memory, name, sizeof *copy, err);
    *copy = e->type; /* the entries move when more are added */
    *slot = e->slot;
    *type = copy;
    return CHURON_OK;
}

status step_expect(const step_build *b, size_t key, uint32_t kinds, bool optional, error *err) {
    static const char *const names[CELL_KINDS] = {"",       "bool", "int",       "float", "text",
                                                  "bytes",  "date", "timestamp", "image", "audio",
                                                  "tensor", "list", "record"};
    const key_value *v = &b->values[key];
    const bool missing = v->type->optional && !optional;
    if ((kinds >> v->type->kind & 1) && !missing) return CHURON_OK;
    char expected[160] = "", got[160];
    size_t used = 0;
    for (int k = CELL_BOOL; k < CELL_KINDS; k++) {
        if (kinds >> k & 1)
            used += (size_t)snprintf(expected + used, sizeof expected - used, "%s%s", used ? " or " : "",
                                     names[k]);
    }
    return step_fault(b, b->kind->keys[key].name, err, "expected %s%s, got '%.60s', which is %s%s", expected,
                      missing ? " that is always there" : "", v->text,
                      cell_type_text(v->type, got, sizeof got),
                      missing ? " (impute it, or give it a value for missing)" : "");
}

static status add_step_output(step_build *b, const char *name, const cell_type *type, int32_t *slot,
                              error *err) {
    step *s = b->s;
    if (s->n_outputs == STEP_MAX_OUTPUTS)
        return step_fault(b, NULL, err, "expected at most %d values from one step, got more",
                          STEP_MAX_OUTPUTS);
    cell_type *copy = arena_alloc(b->memory, sizeof *copy);
    if (!copy) return arena_refused(b->memory, name, sizeof *copy, err);
    *copy = *type;
    TRY(scope_add(b->p, b->scope, name, copy, s, slot, err));
    s->outputs[s->n_outputs] = *slot;
    s->output_names[s->n_outputs] = name;
    s->output_types[s->n_outputs++] = copy;
    if (s->n_outputs == 1) s->out = *slot;
    return CHURON_OK;
}

status step_output_named(step_build *b, const char *name, const cell_type *type, int32_t *slot, error *err) {
    if (scope_find(b->scope, name))
        return step_fault(b, NULL, err, "expected a new name, got '%.80s', which is there already", name);
    return add_step_output(b, name, type, slot, err);
}

status step_output_again(step_build *b, const char *name, const cell_type *type, int32_t *slot, error *err) {
    name_entry *e = scope_find(b->scope, name);
    if (e) e->used = true;
    return add_step_output(b, name, type, slot, err);
}

status step_output(step_build *b, size_t into_key, size_t field_key, const cell_type *type, error *err) {
    int32_t slot;
    if (b->values[into_key].given) return step_output_named(b, b->values[into_key].text, type, &slot, err);
    const char *name = b->values[field_key].text;
    if (!name) return step_fault(b, NULL, err, "expected the key 'into' (the name of the result), got none");
    return add_step_output(b, name, type, &slot, err);
}

void step_output_spare(step_build *b) {
    if (b->scope->n) b->scope->entries[b->scope->n - 1].maker = NULL;
}

status step_state(step_build *b, size_t bytes, void *out, error *err) {
    void *p = arena_array(b->memory, 1, bytes);
    if (!p) return arena_refused(b->memory, b->kind->name, bytes, err);
    b->s->state = p;
    memcpy(out, &p, sizeof p); /* *out is a pointer to the step's own struct */
    return CHURON_OK;
}

/* ---- lists of steps --------------------------------------------------------------------------------- */

/* Names among the keys become slots and types. */
static status resolve_fields(step_build *b, key_value *values, error *err) {
    for (size_t k = 0; b->kind->keys[k].name; k++) {
        const key_spec *spec = &b->kind->keys[k];
        key_value *v = &values[k];
        if (spec->kind == KEY_FIELD && v->text) {
            TRY(step_find(b, spec->name, v->text, &v->slot, &v->type, err));
        } else if (spec->kind == KEY_FIELDS && v->given) {
            int32_t *slots = arena_array(b->memory, v->n ? v->n : 1, sizeof *slots);
            const cell_type **types = arena_array(b->memory, v->n ? v->n : 1, sizeof *types);
            if (!slots || !types) return arena_refused(b->memory, spec->name, v->n * 16, err);
            for (size_t i = 0; i < v->n; i++)
                TRY(step_find(b, spec->name, v->texts[i], &slots[i], &types[i], err));
            v->slots = slots;
            v->types = types;
        } else if (spec->kind == KEY_MODEL) {
            const manifest *m = &b->p->m;
            size_t i = 0;
            if (!v->text && m->n_models != 1)
                return step_fault(b, NULL, err, "expected the key '%s' where there are %zu models, got none",
                                  spec->name, m->n_models);
            while (v->text && i < m->n_models && strcmp(m->models[i].name, v->text) != 0) i++;
            if (i == m->n_models)
                return step_fault(b, spec->name, err, "expected the name of a model, got '%.80s'", v->text);
            v->integer = (int64_t)i;
        } else if (spec->kind == KEY_FILE && v->text && !files_find(b->p->files, v->text)) {
            return step_fault(b, spec->name, err,
                              "expected a file of the bundle, got '%.200s', which is not there", v->text);
        }
    }
    return CHURON_OK;
}

static status remember(pipeline *p, step *s, error *err) {
    if (p->n_all == p->cap_all) {
        const size_t cap = p->cap_all ? p->cap_all * 2 : 64;
        step **grown = mem_realloc(p->all, cap * sizeof(step *));
        if (!grown) return error_no_memory(err, "steps", cap * sizeof(step *));
        p->all = grown;
        p->cap_all = cap;
    }
    p->all[p->n_all++] = s;
    return CHURON_OK;
}

static status unknown_step(const scope *sc, const yaml_node *key, error *err) {
    enum { MOST = 256 };
    const char *names[MOST];
    size_t n = 0;
    for (; STEP_KINDS[n] && n < MOST; n++) names[n] = STEP_KINDS[n]->name;
    const char *near = keys_nearest(key->text, names, n);
    return keys_fault(&sc->reader, key, NULL, err,
                      near ? "expected the name of a step, got '%.60s': did you mean '%s'?"
                           : "expected the name of a step, got '%.60s' (docs/steps.md lists them)%s",
                      key->text, near ? near : "");
}

/* The step's name and that of its first value; "#2" behind it the second time. */
static status give_label(pipeline *p, step *s, error *err) {
    char label[200];
    const size_t n = (size_t)snprintf(label, sizeof label, "%s%s%.100s", s->kind->name,
                                      s->n_outputs ? " " : "", s->n_outputs ? s->output_names[0] : "");
    unsigned same = 0;
    for (size_t i = 0; i < p->n_all; i++) {
        const char *other = p->all[i]->label;
        same += p->all[i] != s && strncmp(other, label, n) == 0 && (other[n] == 0 || other[n + 1] == '#');
    }
    if (same) snprintf(label + n, sizeof label - n, " #%u", same + 1);
    s->label = arena_strndup(&p->memory, label, strlen(label));
    return s->label ? CHURON_OK : arena_refused(&p->memory, "steps", sizeof label, err);
}

static status compile_step(pipeline *p, scope *sc, const yaml_node *at, step *s, error *err) {
    enum { MOST_KEYS = 40 };
    if (at->kind != YAML_MAP || at->n != 1)
        return keys_fault(&sc->reader, at, "step", err,
                          "expected {STEP: {key: value, …}} with one step's name");
    const yaml_node *key = &at->keys[0];
    const step_kind *kind = step_kind_find(key->text);
    if (!kind) return unknown_step(sc, key, err);
    char what[120];
    snprintf(what, sizeof what, "step %s", kind->name);
    key_value *values = arena_array(&p->memory, MOST_KEYS, sizeof *values);
    if (!values) return arena_refused(&p->memory, what, MOST_KEYS * sizeof *values, err);
    TRY(keys_read_map(&sc->reader, &at->items[0], what, kind->keys, values, err));
    *s = (step){.kind = kind, .label = kind->name, .line = key->line, .in = -1, .out = -1};
    TRY(remember(p, s, err));
    step_build b = {.p = p,
                    .scope = sc,
                    .reader = &sc->reader,
                    .node = &at->items[0],
                    .kind = kind,
                    .values = values,
                    .s = s,
                    .memory = &p->memory};
    TRY(resolve_fields(&b, values, err));
    TRY(kind->check(&b, err));
    return give_label(p, s, err);
}

static status compile_list(pipeline *p, scope *sc, const yaml_node *list, step_block *out, error *err) {
    const size_t n = list ? list->n : 0;
    step *steps = arena_array(&p->memory, n ? n : 1, sizeof *steps);
    if (!steps) return arena_refused(&p->memory, "steps", n * sizeof *steps, err);
    for (size_t i = 0; i < n; i++) TRY(compile_step(p, sc, &list->items[i], &steps[i], err));
    *out = (step_block){.steps = steps, .n = n};
    return CHURON_OK;
}

status step_block_compile(step_build *b, size_t key, step_name *names, size_t n_names, step_name *wanted,
                          size_t n_wanted, step_block *out, error *err) {
    scope *sc = b->scope;
    const size_t first = sc->n;
    if (++sc->depth > MAX_DEPTH)
        return step_fault(b, NULL, err, "expected at most %d blocks inside each other", MAX_DEPTH);
    for (size_t i = 0; i < n_names; i++) {
        if (scope_find(sc, names[i].name))
            return step_fault(b, NULL, err,
                              "expected a new name inside the block, got '%.80s', which is there already",
                              names[i].name);
        TRY(scope_add(b->p, sc, names[i].name, names[i].type, NULL, &names[i].slot, err));
    }
    TRY(compile_list(b->p, sc, b->values[key].node, out, err));
    for (size_t i = 0; i < n_wanted; i++)
        TRY(step_find(b, NULL, wanted[i].name, &wanted[i].slot, &wanted[i].type, err));
    TRY(scope_check_used(sc, sc->reader.file, first, err));
    sc->n = first;
    sc->depth--;
    return CHURON_OK;
}

/* ---- the whole -------------------------------------------------------------------------------------- */

static status add_states(pipeline *p, scope *sc, error *err) {
    const yaml_node *map = p->m.state;
    if (!map) return CHURON_OK;
    if (map->kind != YAML_MAP)
        return keys_fault(&sc->reader, map, "state", err, "expected a map from name to {dtype, shape, next}");
    p->states = arena_array(&p->memory, map->n ? map->n : 1, sizeof *p->states);
    if (!p->states) return arena_refused(&p->memory, "state", map->n * sizeof *p->states, err);
    for (size_t i = 0; i < map->n; i++) {
        key_value v[3];
        pipeline_state *st = &p->states[i];
        TRY(keys_read_map(&sc->reader, &map->items[i], "state", MANIFEST_STATE_KEYS, v, err));
        st->name = map->keys[i].text;
        st->type = (cell_type){.kind = CELL_TENSOR, .has_rank = true, .rank = (uint32_t)v[1].n};
        for (int e = 1; e < ELEM_COUNT; e++) {
            if (strcmp(elem_name((elem)e), v[0].text) == 0) st->type.element = (elem)e;
        }
        if (st->type.element == ELEM_NONE || st->type.element == ELEM_STRING)
            return keys_fault(&sc->reader, v[0].node, "state.dtype", err,
                              "expected a type of numbers, got '%.40s'", v[0].text);
        if (v[1].n > TENSOR_MAX_RANK)
            return keys_fault(&sc->reader, v[1].node, "state.shape", err, "expected at most 12 dimensions");
        for (size_t k = 0; k < v[1].n; k++) st->type.dims[k] = v[1].integers[k];
        void *data;
        TRY(cell_new_tensor(&st->initial, CELL_TENSOR, &p->memory, st->type.element, v[1].n, v[1].integers,
                            &data, "state", err));
        memset(data, 0, tensor_bytes(st->initial.t));
        if (scope_find(sc, st->name))
            return keys_fault(&sc->reader, &map->keys[i], "state", err,
                              "expected a new name, got '%.80s', which is an input", st->name);
        TRY(scope_add(p, sc, st->name, &st->type, NULL, &st->slot, err));
    }
    p->n_states = map->n;
    return CHURON_OK;
}

static status end_states(pipeline *p, scope *sc, error *err) {
    for (size_t i = 0; i < p->n_states; i++) {
        pipeline_state *st = &p->states[i];
        const yaml_node *next = yaml_get(&p->m.state->items[i], "next");
        name_entry *e = scope_find(sc, next->text);
        if (!e)
            return keys_fault(&sc->reader, next, "state.next", err,
                              "expected a value that is there, got '%.80s'", next->text);
        if (!cell_type_accepts(&st->type, &e->type)) {
            char wanted[120], got[120];
            return keys_fault(&sc->reader, next, "state.next", err, "expected %s, got %s",
                              cell_type_text(&st->type, wanted, sizeof wanted),
                              cell_type_text(&e->type, got, sizeof got));
        }
        e->used = true;
        st->next = e->slot;
    }
    return CHURON_OK;
}

static status add_output(pipeline *p, name_entry *e, const char *name, const manifest_output *o) {
    e->used = true;
    cell_type *type = arena_alloc(&p->memory, sizeof *type);
    if (!type) return CHURON_NO_MEMORY;
    *type = e->type;
    p->outputs[p->n_outputs] = (pipeline_port){.name = name, .type = type};
    p->output_rounds[p->n_outputs] = o && o->has_round ? o->round : -1;
    p->output_slots[p->n_outputs++] = e->slot;
    return CHURON_OK;
}

/* Without outputs in the manifest: every value that post wrote and nobody read; if there is none, those of
 * the model. `first`: of the values since then. */
static status end_outputs(pipeline *p, scope *sc, size_t first, error *err) {
    const manifest *m = &p->m;
    const size_t most = m->n_outputs ? m->n_outputs : sc->n - first;
    p->outputs = arena_array(&p->memory, most + 1, sizeof *p->outputs);
    p->output_slots = arena_array(&p->memory, most + 1, sizeof *p->output_slots);
    p->output_rounds = arena_array(&p->memory, most + 1, sizeof *p->output_rounds);
    if (!p->outputs || !p->output_slots || !p->output_rounds)
        return arena_refused(&p->memory, "outputs", most * 32, err);
    for (size_t i = 0; i < m->n_outputs; i++) {
        const manifest_output *o = &m->outputs[i];
        name_entry *e = scope_find(sc, o->from);
        if (!e) {
            const char *near = scope_nearest(sc, o->from);
            return keys_fault(&sc->reader, o->node, "outputs", err,
                              near ? "expected a value that is there, got '%.80s': did you mean '%.80s'?"
                                   : "expected a value that is there, got '%.80s'%s",
                              o->from, near ? near : "");
        }
        if (add_output(p, e, o->name, o) != CHURON_OK)
            return arena_refused(&p->memory, "outputs", sizeof(cell_type), err);
    }
    for (size_t i = first; i < sc->n && !m->n_outputs; i++) {
        name_entry *e = &sc->entries[i];
        if (e->used || scope_find(sc, e->name) != e) continue;
        if (add_output(p, e, e->name, NULL) != CHURON_OK)
            return arena_refused(&p->memory, "outputs", sizeof(cell_type), err);
    }
    for (size_t i = 0; i < m->n_tolerances; i++) {
        const char *field = m->tolerances[i].field;
        size_t k = 0;
        while (field && k < p->n_outputs && strcmp(p->outputs[k].name, field) != 0) k++;
        if (field && k == p->n_outputs)
            return error_set(err, CHURON_INVALID,
                             "%s: tolerance: expected the name of an output, got '%.80s'", m->file, field);
    }
    if (p->n_outputs == 0)
        return error_set(err, CHURON_INVALID, "bundle.yaml: expected at least one output, got none");
    return CHURON_OK;
}

/* The model between pre and post, as the step that one would write. */
static status add_model_step(pipeline *p, yaml_node *out, error *err) {
    yaml_node *n = arena_array(&p->memory, 5, sizeof *n);
    if (!n) return arena_refused(&p->memory, "steps", 5 * sizeof *n, err);
    const uint32_t line = p->m.models[0].node ? p->m.models[0].node->line : 1;
    const char *batch = p->m.single_rows ? "false" : "true";
    n[0] = (yaml_node){.kind = YAML_SCALAR, .text = "batch", .len = 5, .line = line, .column = 1};
    n[1] = (yaml_node){.kind = YAML_SCALAR, .text = batch, .len = strlen(batch), .line = line, .column = 1};
    n[2] = (yaml_node){.kind = YAML_MAP, .n = 1, .keys = &n[0], .items = &n[1], .line = line, .column = 1};
    n[3] = (yaml_node){.kind = YAML_SCALAR, .text = "model", .len = 5, .line = line, .column = 1};
    n[4] = (yaml_node){.kind = YAML_MAP, .n = 1, .keys = &n[3], .items = &n[2], .line = line, .column = 1};
    *out = (yaml_node){.kind = YAML_LIST, .n = 1, .items = &n[4], .line = line, .column = 1};
    return CHURON_OK;
}

static status join(pipeline *p, const step_block *parts, size_t n, error *err) {
    size_t total = 0;
    for (size_t i = 0; i < n; i++) total += parts[i].n;
    /* steps know each other by place only through p->all, which is made anew */
    step *steps = arena_array(&p->memory, total ? total : 1, sizeof *steps);
    if (!steps) return arena_refused(&p->memory, "steps", total * sizeof *steps, err);
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < parts[i].n; k++, at++) {
            steps[at] = parts[i].steps[k];
            for (size_t a = 0; a < p->n_all; a++) {
                if (p->all[a] == &parts[i].steps[k]) p->all[a] = &steps[at];
            }
        }
    }
    p->steps = (step_block){.steps = steps, .n = total};
    return CHURON_OK;
}

static status compile_all(pipeline *p, scope *sc, error *err) {
    const manifest *m = &p->m;
    p->input_slots = arena_array(&p->memory, m->inputs.n ? m->inputs.n : 1, sizeof *p->input_slots);
    if (!p->input_slots) return arena_refused(&p->memory, "inputs", m->inputs.n * sizeof(int32_t), err);
    for (size_t i = 0; i < m->inputs.n; i++)
        TRY(scope_add(p, sc, m->inputs.fields[i].name, &m->inputs.fields[i].type, NULL, &p->input_slots[i],
                      err));
    TRY(add_states(p, sc, err));
    size_t first = sc->n;
    if (m->steps) {
        TRY(compile_list(p, sc, m->steps, &p->steps, err));
    } else {
        step_block parts[3];
        yaml_node model;
        TRY(compile_list(p, sc, m->pre, &parts[0], err));
        first = sc->n;
        TRY(add_model_step(p, &model, err));
        TRY(compile_list(p, sc, &model, &parts[1], err));
        const size_t behind = sc->n;
        TRY(scope_check_used(sc, m->file, m->inputs.n, err)); /* what the model does not take */
        TRY(compile_list(p, sc, m->post, &parts[2], err));
        if (m->post && m->post->n) first = behind;
        TRY(join(p, parts, 3, err));
    }
    TRY(end_states(p, sc, err));
    TRY(end_outputs(p, sc, first, err));
    if (m->steps || m->n_outputs) return scope_check_used(sc, m->file, m->inputs.n, err);
    return CHURON_OK;
}

status pipeline_compile(pipeline *p, error *err) {
    scope sc = {.reader = {.file = p->m.file, .files = p->files, .memory = &p->memory}};
    status st = compile_all(p, &sc, err);
    mem_free(sc.entries);
    return st;
}

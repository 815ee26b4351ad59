/* flow_choose.c: records, and items of a record, told apart by a condition. */
#include "pipeline/steps/condition.h"
#include "pipeline/steps/elements.h"
#include "pipeline/steps/steps.h"
#include "pipeline/trace.h"

#include <inttypes.h>
#include <string.h>

/* ---- choose ----------------------------------------------------------------------------------------- */

enum {
    CHOOSE_FIELD,
    CHOOSE_CONDITION,
    CHOOSE_STEPS = CHOOSE_CONDITION + CONDITION_KEY_COUNT,
    CHOOSE_ELSE,
    CHOOSE_COLLECT
};

static const key_spec CHOOSE_KEYS[] = {
    {"field", KEY_FIELD, .required = true, .doc = "The value that decides"},
    CONDITION_KEYS,
    {"steps", KEY_STEPS, .required = true, .doc = "For records where the condition holds"},
    {"else", KEY_STEPS, .required = true, .doc = "For the others; [] for no steps"},
    {"collect", KEY_NAMES, .required = true,
     .doc = "What both sides hand out, under one name and of one type: {inside: outside}"},
    {0}};

typedef struct choose_state {
    condition condition;
    step_block blocks[2]; /* where it holds, else */
    size_t n;
    int32_t *inside[2], *outside; /* [n] */
} choose_state;

static status check_choose(step_build *b, error *err) {
    const key_value *v = b->values, *collect = &v[CHOOSE_COLLECT];
    choose_state *c;
    TRY(step_state(b, sizeof *c, &c, err));
    b->s->in = v[CHOOSE_FIELD].slot;
    TRY(condition_read(b, CHOOSE_CONDITION, v[CHOOSE_FIELD].type, &c->condition, err));
    c->n = collect->n;
    step_name *wanted[2];
    c->outside = arena_array(b->memory, c->n + 1, sizeof *c->outside);
    for (int side = 0; side < 2; side++) {
        wanted[side] = arena_array(b->memory, c->n + 1, sizeof **wanted);
        c->inside[side] = arena_array(b->memory, c->n + 1, sizeof(int32_t));
        if (!wanted[side] || !c->inside[side] || !c->outside)
            return arena_refused(b->memory, "choose", c->n * sizeof **wanted, err);
        for (size_t i = 0; i < c->n; i++) wanted[side][i].name = collect->texts[i];
        TRY(step_block_compile(b, side ? CHOOSE_ELSE : CHOOSE_STEPS, NULL, 0, wanted[side], c->n,
                               &c->blocks[side], err));
    }
    for (size_t i = 0; i < c->n; i++) {
        cell_type type;
        if (!type_join(b->memory, wanted[0][i].type, wanted[1][i].type, &type)) {
            char first[120], second[120];
            return step_fault(b, "collect", err,
                              "expected '%.60s' to be of one type on both sides, got %s and %s",
                              collect->texts[i], cell_type_text(wanted[0][i].type, first, sizeof first),
                              cell_type_text(wanted[1][i].type, second, sizeof second));
        }
        c->inside[0][i] = wanted[0][i].slot;
        c->inside[1][i] = wanted[1][i].slot;
        TRY(step_output_named(b, collect->others[i], &type, &c->outside[i], err));
    }
    return CHURON_OK;
}

/* A side's records run over their own slots: what the block makes has slots of its own. */
static status run_side(const step *s, run *r, run_row *rows, size_t n, run_row *side_rows, bool side,
                       error *err) {
    const choose_state *c = s->state;
    size_t have = 0;
    for (size_t i = 0; i < n; i++) {
        if (rows[i].st == CHURON_OK && condition_holds(&c->condition, &rows[i].slots[s->in]) != side)
            side_rows[have++] = (run_row){.slots = rows[i].slots};
    }
    if (!have) return CHURON_OK;
    if (r->trace) str_fmt(&r->trace->prefix, "%s/", s->label);
    status st = run_block(&c->blocks[side], r, side_rows, have, err);
    if (r->trace && r->trace->prefix.data) {
        const size_t len = strlen(s->label) + 1;
        r->trace->prefix.len -= len <= r->trace->prefix.len ? len : 0;
        r->trace->prefix.data[r->trace->prefix.len] = 0;
    }
    for (size_t i = 0, k = 0; i < n && k < have && st == CHURON_OK; i++) {
        if (rows[i].slots != side_rows[k].slots) continue;
        rows[i].st = side_rows[k].st;
        if (side_rows[k].st == CHURON_OK) {
            for (size_t o = 0; o < c->n; o++)
                rows[i].slots[c->outside[o]] = rows[i].slots[c->inside[side][o]];
        } else {
            rows[i].err = side_rows[k].err;
            error_prefix(&rows[i].err, "step %s", s->label);
        }
        k++;
    }
    return st;
}

static status choose(const step *s, run *r, run_row *rows, size_t n, error *err) {
    run_row *side_rows = arena_alloc(r->memory, (n ? n : 1) * sizeof *side_rows);
    if (!side_rows) return run_no_memory(r, s, n * sizeof *side_rows, err);
    TRY(run_side(s, r, rows, n, side_rows, false, err));
    return run_side(s, r, rows, n, side_rows, true, err);
}

const step_kind step_choose = {
    .name = "choose",
    .group = "flow",
    .doc =
        "Runs one of two lists of steps for a record, by a condition on a value. Both hand out values of the "
        "same types. Missing values fit only present: false; NaN only not_equals.",
    .reference = "if and else in Python",
    .keys = CHOOSE_KEYS,
    .check = check_choose,
    .rows = choose,
};

/* ---- filter ----------------------------------------------------------------------------------------- */

enum {
    FILTER_FROM,
    FILTER_BY,
    FILTER_MEMBER,
    FILTER_CONDITION,
    FILTER_WITH = FILTER_CONDITION + CONDITION_KEY_COUNT,
    FILTER_INTO
};

static const key_spec FILTER_KEYS[] = {
    {"from", KEY_FIELD, .required = true, .doc = "A list, or a tensor whose first dimension is walked"},
    {"by", KEY_FIELD,
     .doc = "A list or tensor of the same length whose items decide; left out: the items "
            "themselves"},
    {"member", KEY_TEXT, .doc = "Where the items that decide are records: the member of them that does"},
    CONDITION_KEYS,
    {"with", KEY_NAMES,
     .doc = "Further lists or tensors of the same length, of which the same items stay: "
            "{field: name of the result}"},
    {"into", KEY_INTO, .doc = "Name of the result; left out: that of 'from'"},
    {0}};

typedef struct filter_part {
    const char *name;
    cell_type type; /* of the result */
    int32_t from, into;
} filter_part;

typedef struct filter_state {
    condition condition;
    int32_t by;
    int64_t member; /* -1: the item itself */
    filter_part *parts;
    size_t n;
} filter_state;

static status filter_condition(step_build *b, filter_state *f, error *err) {
    const key_value *v = b->values, *by = v[FILTER_BY].given ? &v[FILTER_BY] : &v[FILTER_FROM];
    cell_type item;
    const cell_type *decides = &item;
    TRY(walk_check(b, v[FILTER_BY].given ? "by" : "from", by->text, by->type, &item, err));
    f->by = by->slot;
    f->member = -1;
    if (v[FILTER_MEMBER].given) {
        const char *name = v[FILTER_MEMBER].text;
        for (size_t i = 0; item.kind == CELL_RECORD && !item.optional && i < item.n_members; i++) {
            if (strcmp(item.members[i].name, name) == 0) f->member = (int64_t)i;
        }
        char got[160];
        if (f->member < 0)
            return step_fault(b, "member", err, "expected a member of the items, got '%.60s' of %s", name,
                              cell_type_text(&item, got, sizeof got));
        decides = item.members[f->member].type;
    }
    return condition_read(b, FILTER_CONDITION, decides, &f->condition, err);
}

static status filter_output(step_build *b, filter_part *p, size_t i, error *err) {
    const key_value *v = b->values;
    const cell_type *type = v[FILTER_FROM].type;
    cell_type item;
    p->from = v[FILTER_FROM].slot;
    p->name = i ? v[FILTER_WITH].texts[i - 1] : v[FILTER_FROM].text;
    if (i) TRY(step_find(b, "with", p->name, &p->from, &type, err));
    TRY(walk_check(b, i ? "with" : "from", p->name, type, &item, err));
    p->type = *type;
    if (type->kind == CELL_TENSOR) p->type.dims[0] = -1;
    if (i) return step_output_named(b, v[FILTER_WITH].others[i - 1], &p->type, &p->into, err);
    TRY(step_output(b, FILTER_INTO, FILTER_FROM, &p->type, err));
    p->into = b->s->out;
    return CHURON_OK;
}

static status check_filter(step_build *b, error *err) {
    filter_state *f;
    TRY(step_state(b, sizeof *f, &f, err));
    TRY(filter_condition(b, f, err));
    f->n = 1 + b->values[FILTER_WITH].n;
    f->parts = arena_array(b->memory, f->n, sizeof *f->parts);
    if (!f->parts) return arena_refused(b->memory, "filter", f->n * sizeof *f->parts, err);
    for (size_t i = 0; i < f->n; i++) TRY(filter_output(b, &f->parts[i], i, err));
    return CHURON_OK;
}

static status filter(const step *s, run *r, cell *slots, error *err) {
    const filter_state *f = s->state;
    const cell by = slots[f->by];
    const size_t n = walk_count(&by);
    for (size_t i = 0; i < f->n; i++) {
        const size_t other = walk_count(&slots[f->parts[i].from]);
        if (other != n)
            return error_set(err, CHURON_INVALID, "%.60s: expected %zu items, as many as decide, got %zu",
                             f->parts[i].name, n, other);
    }
    size_t have = 0, *keep = arena_alloc(r->memory, (n ? n : 1) * sizeof *keep);
    if (!keep) return run_no_memory(r, s, n * sizeof *keep, err);
    for (size_t i = 0; i < n; i++) {
        cell item;
        TRY(walk_item(&by, i, r->memory, &item, err));
        if (f->member >= 0) item = item.items[f->member];
        if (condition_holds(&f->condition, &item)) keep[have++] = i;
    }
    for (size_t i = 0; i < f->n; i++) {
        const filter_part *p = &f->parts[i];
        TRY(gather_items(&slots[p->from], keep, have, p->name, r->memory, &slots[p->into], err));
    }
    return CHURON_OK;
}

const step_kind step_filter = {
    .name = "filter",
    .group = "flow",
    .doc =
        "Keeps the items of a list, or of a tensor's first dimension, for which a condition holds, in their "
        "order.",
    .reference = "numpy boolean indexing",
    .keys = FILTER_KEYS,
    .check = check_filter,
    .row = filter,
};

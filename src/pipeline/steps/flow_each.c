/* flow_each.c: steps over items. for_each runs a block over the items of all records at once, so that a model
 * inside sees them as one batch; scan runs it item after item, with values that go from each to the next. */
#include "base/mem.h"
#include "pipeline/pipeline_part.h"
#include "pipeline/steps/elements.h"
#include "pipeline/steps/steps.h"
#include "pipeline/trace.h"

#include <inttypes.h>
#include <string.h>

enum { MAX_CARRIES = 16 };

enum { KEY_FROM, KEY_AS, KEY_INDEX, KEY_WITH, KEY_BLOCK, KEY_COLLECT, KEY_STACK, KEY_CARRY, KEY_LAST };

#define EACH_KEYS                                                                                            \
    {"from", KEY_FIELD, .required = true, .doc = "A list, or a tensor whose first dimension is walked"},     \
        {"as", KEY_INTO, .fallback = "item", .doc = "Name of the item inside"},                              \
        {"index", KEY_INTO, .doc = "Name of the item's place inside, from 0"},                               \
        {"with", KEY_NAMES,                                                                                  \
         .doc = "Further lists or tensors of the same length that are walked alongside: {field: name "       \
                "inside}"},                                                                                  \
        {"steps", KEY_STEPS, .required = true, .doc = "What is done with each item"},                        \
        {"collect", KEY_NAMES, .doc = "Values of the block that become lists: {inside: outside}"}, {         \
        "stack", KEY_NAMES,                                                                                  \
            .doc = "Values of the block (numbers, or tensors of one shape) that become a tensor with a new " \
                   "first dimension: {inside: outside}"                                                      \
    }

static const key_spec FOR_EACH_KEYS[] = {EACH_KEYS, {0}};
static const key_spec SCAN_KEYS[] = {
    EACH_KEYS,
    {"carry", KEY_ANY, .required = true,
     .doc = "Values that go from item to item: {name: {next: value of the block, from: field that it begins "
            "with}}, or {next, dtype, shape} to begin with zeros"},
    {"last", KEY_NAMES, .doc = "Carried values as they are after the last item: {inside: outside}"},
    {0}};

typedef struct each_source {
    int32_t from, slot;
    const char *name;
} each_source;

typedef struct each_result {
    int32_t slot, outside;
    bool stacked;
    cell_type type; /* outside */
    const char *name;
} each_result;

typedef struct each_carry {
    const char *name;
    int32_t from;             /* -1: `initial` */
    int32_t slot, next, last; /* last: -1: not handed out */
    cell initial;
    cell_type type;
} each_carry;

typedef struct each_state {
    step_block block;
    each_source *sources;
    each_result *results;
    each_carry *carries;
    size_t n_sources, n_results, n_carries;
    int32_t index; /* -1: none */
} each_state;

/* ---- check ------------------------------------------------------------------------------------------ */

static status check_sources(step_build *b, each_state *e, step_name *names, int64_t *length, error *err) {
    const key_value *v = b->values, *with = &v[KEY_WITH];
    for (size_t i = 0; i < e->n_sources; i++) {
        each_source *s = &e->sources[i];
        const cell_type *type = v[KEY_FROM].type;
        const char *key = i ? "with" : "from";
        cell_type item;
        s->name = i ? with->texts[i - 1] : v[KEY_FROM].text;
        s->from = v[KEY_FROM].slot;
        if (i) TRY(step_find(b, key, s->name, &s->from, &type, err));
        TRY(walk_check(b, key, s->name, type, &item, err));
        const int64_t n = walk_length(type);
        if (n >= 0 && *length >= 0 && n != *length)
            return step_fault(b, key, err,
                              "expected %" PRId64 " items as in '%.60s', got %" PRId64 " in '%.60s'", *length,
                              v[KEY_FROM].text, n, s->name);
        if (n >= 0) *length = n;
        names[i].name = i ? with->others[i - 1] : v[KEY_AS].text;
        names[i].type = type_keep(b->memory, &item);
        if (!names[i].type) return arena_refused(b->memory, "items", sizeof item, err);
    }
    return CHURON_OK;
}

static status carry_zeros(step_build *b, const key_value *v, each_carry *c, error *err) {
    elem type = ELEM_NONE;
    for (int e = 1; e < ELEM_COUNT; e++) {
        if (strcmp(elem_name((elem)e), v[2].text) == 0) type = (elem)e;
    }
    if (type == ELEM_NONE || type == ELEM_STRING)
        return step_fault(b, "carry", err, "expected an element type of numbers for '%.60s', got '%.40s'",
                          c->name, v[2].text);
    if (v[3].n > TENSOR_MAX_RANK)
        return step_fault(b, "carry", err, "expected at most %d dimensions for '%.60s', got %zu",
                          TENSOR_MAX_RANK, c->name, v[3].n);
    void *data;
    c->from = -1;
    c->type = tensor_type(type, v[3].n, v[3].integers);
    TRY(cell_new_tensor(&c->initial, CELL_TENSOR, b->memory, type, v[3].n, v[3].integers, &data, c->name,
                        err));
    memset(data, 0, tensor_bytes(c->initial.t));
    return CHURON_OK;
}

/* Begins of the carried values; names[i].name of wanted[i] is the value that follows. */
static status check_carries(step_build *b, each_state *e, step_name *names, step_name *wanted, error *err) {
    static const key_spec keys[] = {
        {"next", KEY_TEXT, .required = true, .doc = "Value of the block that the next item begins with"},
        {"from", KEY_TEXT, .doc = "Field that the first item begins with"},
        {"dtype", KEY_TEXT, .doc = "Element type of zeros to begin with"},
        {"shape", KEY_INTS, .least = 0, .most = 1e9, .doc = "Shape of zeros to begin with"},
        {0}};
    const yaml_node *map = b->values[KEY_CARRY].node;
    for (size_t i = 0; i < e->n_carries; i++) {
        key_value v[4];
        each_carry *c = &e->carries[i];
        const cell_type *type = NULL;
        TRY(keys_read_map(b->reader, &map->items[i], "scan.carry", keys, v, err));
        *c = (each_carry){.name = map->keys[i].text, .last = -1};
        if (v[2].given != v[3].given || v[1].given == v[2].given)
            return step_fault(b, "carry", err, "expected either 'from' or 'dtype' and 'shape' for '%.60s'",
                              c->name);
        if (v[1].given) {
            TRY(step_find(b, "carry", v[1].text, &c->from, &type, err));
            c->type = *type;
        } else {
            TRY(carry_zeros(b, v, c, err));
        }
        names[i] = (step_name){.name = c->name, .type = type_keep(b->memory, &c->type)};
        if (!names[i].type) return arena_refused(b->memory, "carry", sizeof c->type, err);
        wanted[i].name = v[0].text;
    }
    return CHURON_OK;
}

static status end_carries(step_build *b, each_state *e, const step_name *names, const step_name *wanted,
                          error *err) {
    for (size_t i = 0; i < e->n_carries; i++) {
        char want[120], got[120];
        each_carry *c = &e->carries[i];
        c->slot = names[i].slot;
        c->next = wanted[i].slot;
        if (!cell_type_accepts(&c->type, wanted[i].type))
            return step_fault(b, "carry", err, "expected %s to follow as '%.60s', got '%.60s', which is %s",
                              cell_type_text(&c->type, want, sizeof want), c->name, wanted[i].name,
                              cell_type_text(wanted[i].type, got, sizeof got));
    }
    const key_value *last = &b->values[KEY_LAST];
    for (size_t i = 0; e->n_carries && i < last->n; i++) {
        size_t k = 0;
        while (k < e->n_carries && strcmp(e->carries[k].name, last->texts[i]) != 0) k++;
        if (k == e->n_carries)
            return step_fault(b, "last", err, "expected the name of a carried value, got '%.60s'",
                              last->texts[i]);
        TRY(step_output_named(b, last->others[i], &e->carries[k].type, &e->carries[k].last, err));
    }
    return CHURON_OK;
}

static status end_results(step_build *b, each_state *e, const step_name *wanted, int64_t length, error *err) {
    const key_value *collect = &b->values[KEY_COLLECT], *stack = &b->values[KEY_STACK];
    for (size_t i = 0; i < e->n_results; i++) {
        each_result *res = &e->results[i];
        const bool stacked = i >= collect->n;
        res->name = stacked ? stack->others[i - collect->n] : collect->others[i];
        res->stacked = stacked;
        res->slot = wanted[i].slot;
        if (stacked) {
            TRY(stack_type(b, wanted[i].name, wanted[i].type, length, &res->type, err));
        } else {
            TRY(list_type(b, wanted[i].type, &res->type, err));
        }
        TRY(step_output_named(b, res->name, &res->type, &res->outside, err));
    }
    return CHURON_OK;
}

static status check_both(step_build *b, size_t n_carries, error *err) {
    const key_value *v = b->values;
    each_state *e;
    TRY(step_state(b, sizeof *e, &e, err));
    e->n_sources = 1 + v[KEY_WITH].n;
    e->n_results = v[KEY_COLLECT].n + v[KEY_STACK].n;
    e->n_carries = n_carries;
    if (e->n_results + n_carries == 0)
        return step_fault(b, NULL, err, "expected the key 'collect' or 'stack', got neither");
    const size_t n_names = e->n_sources + n_carries + 1, n_wanted = e->n_results + n_carries;
    step_name *names = arena_array(b->memory, n_names, sizeof *names);
    step_name *wanted = arena_array(b->memory, n_wanted, sizeof *wanted);
    e->sources = arena_array(b->memory, e->n_sources, sizeof *e->sources);
    e->results = arena_array(b->memory, e->n_results + 1, sizeof *e->results);
    e->carries = arena_array(b->memory, n_carries + 1, sizeof *e->carries);
    if (!names || !wanted || !e->sources || !e->results || !e->carries)
        return arena_refused(b->memory, "a block", n_names * sizeof *names, err);
    int64_t length = -1;
    TRY(check_sources(b, e, names, &length, err));
    for (size_t i = 0; i < v[KEY_COLLECT].n; i++) wanted[i].name = v[KEY_COLLECT].texts[i];
    for (size_t i = 0; i < v[KEY_STACK].n; i++) wanted[v[KEY_COLLECT].n + i].name = v[KEY_STACK].texts[i];
    TRY(check_carries(b, e, names + e->n_sources, wanted + e->n_results, err));
    names[n_names - 1] = (step_name){.name = v[KEY_INDEX].text, .type = &CELL_TYPE_INT};
    TRY(step_block_compile(b, KEY_BLOCK, names, n_names - !v[KEY_INDEX].given, wanted, n_wanted, &e->block,
                           err));
    for (size_t i = 0; i < e->n_sources; i++) e->sources[i].slot = names[i].slot;
    e->index = v[KEY_INDEX].given ? names[n_names - 1].slot : -1;
    TRY(end_results(b, e, wanted, length, err));
    return end_carries(b, e, names + e->n_sources, wanted + e->n_results, err);
}

static status check_for_each(step_build *b, error *err) {
    return check_both(b, 0, err);
}

static status check_scan(step_build *b, error *err) {
    const yaml_node *map = b->values[KEY_CARRY].node;
    if (map->kind != YAML_MAP || map->n == 0)
        return step_fault(b, "carry", err, "expected a map from name to {next, …}");
    if (map->n > MAX_CARRIES)
        return step_fault(b, "carry", err, "expected at most %d values, got %zu", MAX_CARRIES, map->n);
    return check_both(b, map->n, err);
}

/* ---- run -------------------------------------------------------------------------------------------- */

/* Items of a record; its sources must agree. */
static status count_items(const each_state *e, const cell *slots, size_t *n, error *err) {
    *n = walk_count(&slots[e->sources[0].from]);
    for (size_t i = 1; i < e->n_sources; i++) {
        const size_t other = walk_count(&slots[e->sources[i].from]);
        if (other != *n)
            return error_set(err, CHURON_INVALID, "%.60s: expected %zu items as in '%.60s', got %zu",
                             e->sources[i].name, *n, e->sources[0].name, other);
    }
    return CHURON_OK;
}

static status place_item(const each_state *e, run *r, const cell *outer, size_t i, cell *slots, error *err) {
    for (size_t k = 0; k < e->n_sources; k++)
        TRY(walk_item(&outer[e->sources[k].from], i, r->memory, &slots[e->sources[k].slot], err));
    if (e->index >= 0) slots[e->index] = cell_of_int((int64_t)i);
    return CHURON_OK;
}

/* The value of all items, which lie with a distance between them. */
static status gather(run *r, const each_result *res, const run_row *items, size_t n, cell *out, error *err) {
    cell *all;
    cell list;
    TRY(cell_new_list(&list, r->memory, n, &all, err));
    for (size_t i = 0; i < n; i++) all[i] = items[i].slots[res->slot];
    *out = list;
    return res->stacked ? stack_items(&res->type, all, n, res->name, r->memory, out, err) : CHURON_OK;
}

/* Faults of items are their record's. */
static status finish_record(const step *s, run *r, run_row *row, const run_row *items, size_t n) {
    const each_state *e = s->state;
    for (size_t i = 0; i < n; i++) {
        if (items[i].st == CHURON_OK) continue;
        row->err = items[i].err;
        error_prefix(&row->err, "step %s: item %zu", s->label, i);
        return items[i].st;
    }
    for (size_t k = 0; k < e->n_results; k++) {
        const each_result *res = &e->results[k];
        status st = gather(r, res, items, n, &row->slots[res->outside], &row->err);
        if (st != CHURON_OK) {
            error_prefix(&row->err, "step %s", s->label);
            return st;
        }
    }
    return CHURON_OK;
}

/* What ends a run is not a record's. */
static status pass_on(const run_row *row, error *err) {
    if (row->st != CHURON_NO_MEMORY && row->st != CHURON_CANCELLED && row->st != CHURON_INTERNAL)
        return CHURON_OK;
    if (err) *err = row->err;
    return row->st;
}

static status count_all(const step *s, run_row *rows, size_t n, size_t *counts, size_t *total, error *err) {
    const each_state *e = s->state;
    *total = 0;
    for (size_t i = 0; i < n; i++) {
        counts[i] = 0;
        if (rows[i].st != CHURON_OK) continue;
        rows[i].st = count_items(e, rows[i].slots, &counts[i], &rows[i].err);
        if (rows[i].st != CHURON_OK) {
            counts[i] = 0;
            error_prefix(&rows[i].err, "step %s", s->label);
        }
        if (!size_add(*total, counts[i], total)) return error_no_memory(err, "items", *total);
    }
    return CHURON_OK;
}

static status run_items(const each_state *e, const step *s, run *r, run_row *items, size_t n, error *err) {
    if (!r->trace) return run_block(&e->block, r, items, n, err);
    const size_t before = r->trace->prefix.len;
    str_fmt(&r->trace->prefix, "%s/", s->label);
    status st = run_block(&e->block, r, items, n, err);
    if (r->trace->prefix.data) r->trace->prefix.data[before] = 0;
    r->trace->prefix.len = before;
    return st;
}

static status for_each(const step *s, run *r, run_row *rows, size_t n, error *err) {
    const each_state *e = s->state;
    size_t total, *counts = arena_array(r->memory, n ? n : 1, sizeof *counts);
    if (!counts) return run_no_memory(r, s, n * sizeof *counts, err);
    TRY(count_all(s, rows, n, counts, &total, err));
    if (n == 0) return CHURON_OK;
    run_row *items;
    TRY(run_rows_create(r, rows[0].slots, total, &items, err));
    for (size_t i = 0, at = 0; i < n; i++) {
        for (size_t k = 0; k < counts[i]; k++, at++) {
            if (i) memcpy(items[at].slots, rows[i].slots, r->p->n_slots * sizeof(cell));
            TRY(place_item(e, r, rows[i].slots, k, items[at].slots, err));
        }
    }
    TRY(run_items(e, s, r, items, total, err));
    for (size_t i = 0, at = 0; i < n; at += counts[i++]) {
        if (rows[i].st != CHURON_OK) continue;
        rows[i].st = finish_record(s, r, &rows[i], items + at, counts[i]);
        TRY(pass_on(&rows[i], err));
    }
    return CHURON_OK;
}

/* ---- scan ------------------------------------------------------------------------------------------- */

typedef struct scan_row {
    run_row
        row; /* over the slots of the record itself: each item's values take the place of the last one's */
    run_row *record;
    size_t n;
    cell *kept; /* [n_results][n] */
} scan_row;

static status begin_scan(const each_state *e, const step *s, run *r, scan_row *sr, run_row *record, size_t n,
                         error *err) {
    size_t cells, bytes;
    *sr = (scan_row){.record = record, .n = n};
    if (!size_mul(n ? n : 1, e->n_results ? e->n_results : 1, &cells) ||
        !size_mul(cells, sizeof(cell), &bytes) || !(sr->kept = arena_alloc(r->memory, bytes)))
        return run_no_memory(r, s, n, err);
    for (size_t k = 0; k < e->n_carries; k++) {
        const each_carry *c = &e->carries[k];
        record->slots[c->slot] = c->from < 0 ? c->initial : record->slots[c->from];
    }
    return CHURON_OK;
}

/* After an item: its results are kept, its values go on. */
static void turn(const each_state *e, const scan_row *sr, run_row *row, size_t i) {
    cell next[MAX_CARRIES];
    for (size_t k = 0; k < e->n_results; k++) sr->kept[k * sr->n + i] = row->slots[e->results[k].slot];
    for (size_t k = 0; k < e->n_carries; k++) {
        next[k] = row->slots[e->carries[k].next];
        if (cell_fits(&e->carries[k].type, &next[k])) continue;
        char want[120];
        row->st = error_set(&row->err, CHURON_INVALID, "%.60s: expected %s to follow, got another shape",
                            e->carries[k].name, cell_type_text(&e->carries[k].type, want, sizeof want));
        return;
    }
    for (size_t k = 0; k < e->n_carries; k++) row->slots[e->carries[k].slot] = next[k];
}

static status end_scan(const each_state *e, const step *s, run *r, scan_row *sr, error *err) {
    run_row *row = sr->record;
    for (size_t k = 0; k < e->n_results && row->st == CHURON_OK; k++) {
        const each_result *res = &e->results[k];
        const cell *kept = sr->kept + k * sr->n;
        cell *out = &row->slots[res->outside];
        *out = (cell){.kind = CELL_LIST, .n = (uint32_t)sr->n, .items = kept};
        if (!res->stacked) continue;
        row->st = stack_items(&res->type, kept, sr->n, res->name, r->memory, out, &row->err);
        if (row->st != CHURON_OK) error_prefix(&row->err, "step %s", s->label);
    }
    for (size_t k = 0; k < e->n_carries; k++) {
        if (e->carries[k].last >= 0) row->slots[e->carries[k].last] = row->slots[e->carries[k].slot];
    }
    return pass_on(row, err);
}

/* All records step on together: what is the k-th item of each is one batch for a model inside. `order` has
 * them with the longest first, so that those that go on are a beginning of it. */
static status scan_all(const step *s, run *r, scan_row *order, run_row *active, size_t n, error *err) {
    const each_state *e = s->state;
    for (size_t i = 0; n && i < order[0].n; i++) {
        TRY(run_may_go_on(r, err));
        while (n && order[n - 1].n <= i) n--;
        for (size_t k = 0; k < n; k++) {
            if (active[k].st == CHURON_OK) TRY(place_item(e, r, active[k].slots, i, active[k].slots, err));
        }
        TRY(run_block(&e->block, r, active, n, err));
        for (size_t k = 0; k < n; k++) {
            run_row *record = order[k].record;
            if (active[k].st == CHURON_OK) turn(e, &order[k], &active[k], i);
            if (active[k].st == CHURON_OK || record->st != CHURON_OK) continue;
            record->st = active[k].st;
            record->err = active[k].err;
            error_prefix(&record->err, "step %s: item %zu", s->label, i);
        }
    }
    return CHURON_OK;
}

static status scan(const step *s, run *r, run_row *rows, size_t n, error *err) {
    const each_state *e = s->state;
    size_t total, *counts = arena_array(r->memory, n + 1, sizeof *counts);
    scan_row *order = arena_array(r->memory, n + 1, sizeof *order);
    run_row *active = arena_array(r->memory, n + 1, sizeof *active);
    if (!counts || !order || !active) return run_no_memory(r, s, n * sizeof *order, err);
    TRY(count_all(s, rows, n, counts, &total, err));
    size_t have = 0;
    for (size_t i = 0; i < n; i++) {
        if (rows[i].st != CHURON_OK) continue;
        size_t at = have++;
        for (; at && order[at - 1].n < counts[i]; at--) order[at] = order[at - 1];
        TRY(begin_scan(e, s, r, &order[at], &rows[i], counts[i], err));
    }
    for (size_t k = 0; k < have; k++) active[k] = (run_row){.slots = order[k].record->slots};
    struct trace *trace = r->trace;
    r->trace = NULL; /* thousands of windows would be no trace that anybody reads */
    status st = scan_all(s, r, order, active, have, err);
    r->trace = trace;
    for (size_t k = 0; k < have && st == CHURON_OK; k++) st = end_scan(e, s, r, &order[k], err);
    return st;
}

const step_kind step_for_each = {
    .name = "for_each",
    .group = "flow",
    .doc =
        "Runs steps for every item of a list or of a tensor's first dimension. The items of all records go "
        "through each step together, so a model inside takes them as one batch. An item that fails fails "
        "its record.",
    .reference = "a loop in Python",
    .keys = FOR_EACH_KEYS,
    .check = check_for_each,
    .rows = for_each,
};

const step_kind step_scan = {
    .name = "scan",
    .group = "flow",
    .doc = "Runs steps for item after item, with values that each item hands to the next: recurrent models, "
           "streams. Results are collected; what is carried can be handed out as it is after the last item.",
    .reference = "a loop in Python",
    .keys = SCAN_KEYS,
    .check = check_scan,
    .rows = scan,
};

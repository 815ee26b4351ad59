/* scores.c: see scores.h. */
#include "pipeline/steps/scores.h"

#include "base/mem.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static bool find_pairs(const cell_type *t, score_form *out) {
    if (t->kind != CELL_LIST || t->of->kind != CELL_RECORD || t->of->optional) return false;
    int found = 0;
    for (size_t i = 0; i < t->of->n_members; i++) {
        const cell_member *m = &t->of->members[i];
        if (m->type->optional) continue;
        if (strcmp(m->name, "label") == 0 && (m->type->kind == CELL_TEXT || m->type->kind == CELL_INT)) {
            out->label = i;
            out->label_type = *m->type;
            found |= 1;
        } else if (strcmp(m->name, "score") == 0 && m->type->kind == CELL_FLOAT) {
            out->score = i;
            out->score_type = *m->type;
            found |= 2;
        }
    }
    return found == 3;
}

status scores_check(const step_build *b, size_t key, score_form *out, error *err) {
    const cell_type *t = b->values[key].type;
    *out = (score_form){.n = -1};
    if (!t->optional && find_pairs(t, out)) {
        out->pairs = true;
        return CHURON_OK;
    }
    const bool numbers =
        !t->optional && t->kind == CELL_LIST && cell_type_is_number(t->of) && !t->of->optional;
    const bool vector = !t->optional && t->kind == CELL_TENSOR && t->has_rank && t->rank == 1 &&
                        (ELEM_BIT(t->element) & ELEMS_NUMERIC);
    if (!numbers && !vector) {
        char got[160];
        return step_fault(b, b->kind->keys[key].name, err,
                          "expected scores (numbers of one dimension, or a list of {label, score}), got "
                          "'%.60s', which is %s",
                          b->values[key].text, cell_type_text(t, got, sizeof got));
    }
    out->label_type = CELL_TYPE_INT;
    if (vector) out->n = t->dims[0];
    const elem e = vector ? t->element : number_element(t->of);
    out->score_type = (cell_type){
        .kind = CELL_FLOAT, .element = e == ELEM_F64 || !(ELEM_BIT(e) & ELEMS_FLOAT) ? ELEM_F64 : ELEM_F32};
    return CHURON_OK;
}

status scores_read(const score_form *f, const cell *c, arena *a, score_list *out, error *err) {
    *out = (score_list){0};
    if (!f->pairs) {
        TRY(cell_numbers(&out->scores, &out->n, c, a, "scores", err));
    } else {
        double *scores = arena_alloc(a, (c->n + (size_t)1) * sizeof *scores);
        cell *labels = arena_alloc(a, (c->n + (size_t)1) * sizeof *labels);
        if (!scores || !labels) return arena_refused(a, "scores", c->n * sizeof *labels, err);
        for (uint32_t i = 0; i < c->n; i++) {
            scores[i] = c->items[i].items[f->score].number;
            labels[i] = c->items[i].items[f->label];
        }
        *out = (score_list){.n = c->n, .scores = scores, .labels = labels};
    }
    for (size_t i = 0; i < out->n; i++) {
        if (isnan(out->scores[i]))
            return error_set(err, CHURON_INVALID, "expected scores that are numbers, got NaN at %zu", i);
    }
    return CHURON_OK;
}

status pairs_type(step_build *b, const cell_type *label, const cell_type *score, cell_type *out, error *err) {
    const char *const names[] = {"label", "score"};
    const cell_type types[] = {*label, *score};
    cell_type record;
    TRY(record_type(b, 2, names, types, &record, err));
    return list_type(b, &record, out, err);
}

status pairs_new(cell *out, arena *a, size_t n, cell **members, error *err) {
    cell *items;
    TRY(cell_new_list(out, a, n, &items, err));
    *members = arena_array(a, n + 1, 2 * sizeof(cell));
    if (!*members) return arena_refused(a, "scores", n * 2 * sizeof(cell), err);
    for (size_t i = 0; i < n; i++) items[i] = (cell){.kind = CELL_RECORD, .n = 2, .items = *members + 2 * i};
    return CHURON_OK;
}

size_t scores_best(const double *scores, size_t n) {
    size_t best = 0;
    for (size_t i = 1; i < n; i++) {
        if (scores[i] > scores[best]) best = i;
    }
    return best;
}

void scores_sort(const double *scores, size_t n, size_t *order, size_t *spare) {
    for (size_t i = 0; i < n; i++) order[i] = i;
    size_t *from = order, *to = spare;
    for (size_t width = 1; width < n; width *= 2) { /* merges of growing runs: stable */
        for (size_t lo = 0; lo < n; lo += 2 * width) {
            const size_t mid = lo + width < n ? lo + width : n, hi = lo + 2 * width < n ? lo + 2 * width : n;
            size_t i = lo, k = mid;
            for (size_t at = lo; at < hi; at++) {
                const bool left = i < mid && (k >= hi || !(scores[from[k]] > scores[from[i]]));
                to[at] = left ? from[i++] : from[k++];
            }
        }
        size_t *swap = from;
        from = to;
        to = swap;
    }
    if (from != order && n) memcpy(order, from, n * sizeof *order);
}

status names_check(const step_build *b, size_t key, int64_t n, error *err) {
    const key_value *v = &b->values[key];
    if (!v->given || n < 0 || (int64_t)v->n == n) return CHURON_OK;
    return step_fault(b, b->kind->keys[key].name, err,
                      "expected %" PRId64 " names, one for each class, got %zu", n, v->n);
}

status names_fit(size_t names, size_t n, error *err) {
    if (names == n) return CHURON_OK;
    return error_set(err, CHURON_INVALID, "expected %zu scores, one for each name, got %zu", names, n);
}

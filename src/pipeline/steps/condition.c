/* condition.c: see condition.h. */
#include "pipeline/steps/condition.h"

#include "pipeline/steps/elements.h"

#include <string.h>

static status read_scalar(const step_build *b, const char *key, const key_value *v, const cell_type *type,
                          cell *out, error *err) {
    int64_t integer;
    double number;
    bool flag, ok = true;
    char want[96];
    switch (type->kind) {
    case CELL_BOOL:
        ok = scalar_bool(v->node, &flag);
        if (ok) *out = cell_of_bool(flag);
        break;
    case CELL_INT:
        ok = scalar_int(v->node, &integer);
        if (ok) *out = cell_of_int(integer);
        break;
    case CELL_FLOAT:
        ok = scalar_number(v->node, &number);
        if (ok) *out = number_cell(type, number);
        break;
    case CELL_TEXT: *out = cell_of_text(v->node->text, v->node->len); break;
    default:
        return step_fault(b, key, err, "expected a bool, a number or a text to compare, got %s",
                          cell_type_text(type, want, sizeof want));
    }
    if (ok) return CHURON_OK;
    return step_fault(b, key, err, "expected a value of %s, got '%.60s'",
                      cell_type_text(type, want, sizeof want), v->node->text);
}

status condition_read(const step_build *b, size_t key, const cell_type *type, condition *out, error *err) {
    const key_value *v = &b->values[key];
    const key_spec *specs = &b->kind->keys[key];
    bool any = false;
    *out = (condition){.has_equal = v[0].given,
                       .has_other = v[1].given,
                       .has_above = v[2].given,
                       .has_least = v[3].given,
                       .has_below = v[4].given,
                       .has_most = v[5].given,
                       .has_present = v[6].given,
                       .above = v[2].number,
                       .least = v[3].number,
                       .below = v[4].number,
                       .most = v[5].number,
                       .present = v[6].flag};
    for (int i = 0; i < CONDITION_KEY_COUNT; i++) {
        any = any || v[i].given;
        if (i >= 2 && i <= 5 && v[i].given && !cell_type_is_number(type)) {
            char got[96];
            return step_fault(b, specs[i].name, err, "expected a number to compare, got %s",
                              cell_type_text(type, got, sizeof got));
        }
    }
    if (!any)
        return step_fault(b, NULL, err,
                          "expected a condition (equals, not_equals, above, at_least, below, at_most, "
                          "present), got none");
    if (v[0].given) TRY(read_scalar(b, specs[0].name, &v[0], type, &out->equal, err));
    if (v[1].given) TRY(read_scalar(b, specs[1].name, &v[1], type, &out->other, err));
    return CHURON_OK;
}

static bool same(const cell *a, const cell *b) {
    if (a->kind != b->kind) return false;
    switch (a->kind) {
    case CELL_BOOL: return a->flag == b->flag;
    case CELL_INT: return a->integer == b->integer;
    case CELL_FLOAT: return a->number == b->number;
    case CELL_TEXT: return a->len == b->len && (a->len == 0 || memcmp(a->bytes, b->bytes, a->len) == 0);
    default: return false;
    }
}

bool condition_holds(const condition *c, const cell *v) {
    if (v->kind == CELL_MISSING) return c->has_present && !c->present;
    if (c->has_present && !c->present) return false;
    if (c->has_equal && !same(v, &c->equal)) return false;
    if (c->has_other && same(v, &c->other)) return false;
    if (!(c->has_above || c->has_least || c->has_below || c->has_most)) return true;
    const double x = cell_number(v);
    return (!c->has_above || x > c->above) && (!c->has_least || x >= c->least) &&
           (!c->has_below || x < c->below) && (!c->has_most || x <= c->most);
}

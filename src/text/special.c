/* special.c: see special.h. */
#include "text/special.h"

#include "base/mem.h"

status special_set_init(special_set *s, size_t bytes, error *err) {
    *s = (special_set){0};
    size_t slots = 16;
    while (slots / 2 < bytes) slots *= 2;
    s->edges = mem_calloc(slots, sizeof *s->edges);
    s->ends = mem_alloc((bytes + 1) * sizeof *s->ends);
    s->mask = slots - 1;
    if (!s->edges || !s->ends) {
        special_set_free(s);
        return error_no_memory(err, "special tokens", slots * sizeof *s->edges);
    }
    s->ends[0] = (special_ends){-1, -1};
    s->n_nodes = 1;
    return CHURON_OK;
}

void special_set_free(special_set *s) {
    mem_free(s->edges);
    mem_free(s->ends);
    *s = (special_set){0};
}

static special_edge *edge_slot(const special_set *s, uint32_t node, char c) {
    uint64_t key = ((uint64_t)node << 8 | (unsigned char)c) + 1;
    size_t i = (size_t)((key * 0x9e3779b97f4a7c15u) >> 32) & s->mask;
    while (s->edges[i].key != 0 && s->edges[i].key != key) i = (i + 1) & s->mask;
    return &s->edges[i];
}

void special_set_add(special_set *s, const char *text, size_t len, int32_t id, bool control) {
    s->starts_any[(unsigned char)text[0]] = true;
    if (!control) s->starts_user[(unsigned char)text[0]] = true;
    uint32_t node = 0;
    for (size_t i = 0; i < len; i++) {
        special_edge *e = edge_slot(s, node, text[i]);
        if (e->key == 0) {
            *e = (special_edge){((uint64_t)node << 8 | (unsigned char)text[i]) + 1, (uint32_t)s->n_nodes};
            s->ends[s->n_nodes++] = (special_ends){-1, -1};
        }
        node = e->node;
    }
    if (control) {
        s->ends[node].control = id;
    } else {
        s->ends[node].user = id;
    }
}

/* The longest match that begins at p. */
static bool match_at(const special_set *s, const char *p, const char *end, bool control, special_match *out) {
    uint32_t node = 0;
    bool found = false;
    for (const char *q = p; q < end;) {
        const special_edge *e = edge_slot(s, node, *q++);
        if (e->key == 0) break;
        node = e->node;
        special_ends here = s->ends[node];
        int32_t id = here.user >= 0 ? here.user : control ? here.control : -1;
        if (id >= 0) {
            *out = (special_match){p, q, id};
            found = true;
        }
    }
    return found;
}

bool special_set_find(const special_set *s, const char *p, const char *end, bool control,
                      special_match *out) {
    if (s->n_nodes <= 1) return false;
    const bool *starts = control ? s->starts_any : s->starts_user;
    for (; p < end; p++) {
        if (starts[(unsigned char)*p] && match_at(s, p, end, control, out)) return true;
    }
    return false;
}

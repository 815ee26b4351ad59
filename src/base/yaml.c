/* yaml.c: see yaml.h. Children are gathered on one growing stack and copied to the arena when their parent
 * ends, so a list needs no second pass and no pointers move. */
#include "base/yaml.h"

#include "base/mem.h"
#include "base/str.h"

#include <stdio.h>
#include <string.h>
#include <yaml.h>

typedef struct open_node {
    yaml_node node;
    size_t first; /* of its children on the stack */
} open_node;

typedef struct reader {
    yaml_parser_t parser;
    arena *memory;
    const char *name;
    error *err;
    yaml_node *stack; /* [cap]; a MAP's children are key, value, key, value */
    size_t n, cap, total;
    open_node open[YAML_MAX_DEPTH];
    size_t depth;
} reader;

static status fault(const reader *r, status code, yaml_mark_t at, const char *what) {
    return error_set(r->err, code, "%s: line %zu, column %zu: %s", r->name, at.line + 1, at.column + 1, what);
}

static status push(reader *r, const yaml_node *node) {
    if (++r->total > YAML_MAX_NODES) {
        return error_set(r->err, CHURON_LIMIT, "%s: line %u: expected at most %d values, got more", r->name,
                         node->line, YAML_MAX_NODES);
    }
    if (r->n == r->cap) {
        const size_t cap = r->cap ? r->cap * 2 : 64;
        yaml_node *grown = mem_realloc(r->stack, cap * sizeof *grown);
        if (!grown) return error_no_memory(r->err, r->name, cap * sizeof *grown);
        r->stack = grown;
        r->cap = cap;
    }
    r->stack[r->n++] = *node;
    return CHURON_OK;
}

static yaml_node *keep(reader *r, size_t n) {
    return arena_array(r->memory, n ? n : 1, sizeof(yaml_node));
}

/* Keys of one map, by text, to find two that are the same without comparing all with all. */
static status refuse_duplicates(const reader *r, const yaml_node *map) {
    size_t slots = 8;
    while (slots < map->n * 2) slots *= 2;
    const yaml_node **table = mem_calloc(slots, sizeof(yaml_node *));
    if (!table) return error_no_memory(r->err, r->name, slots * sizeof(yaml_node *));
    status st = CHURON_OK;
    for (size_t i = 0; i < map->n && st == CHURON_OK; i++) {
        const yaml_node *key = &map->keys[i];
        uint64_t h = 1469598103934665603u;
        for (size_t k = 0; k < key->len; k++) h = (h ^ (uint8_t)key->text[k]) * 1099511628211u;
        size_t at = (size_t)(h ^ h >> 32) & (slots - 1);
        while (table[at] && strcmp(table[at]->text, key->text) != 0) at = (at + 1) & (slots - 1);
        if (table[at]) {
            st = error_set(
                r->err, CHURON_CORRUPT,
                "%s: line %u, column %u: key '%.80s': expected each key once, got it on line %u too", r->name,
                key->line, key->column, key->text, table[at]->line);
        }
        table[at] = key;
    }
    mem_free(table);
    return st;
}

static status end_collection(reader *r) {
    open_node *o = &r->open[--r->depth];
    const size_t n = r->n - o->first;
    yaml_node *from = n ? r->stack + o->first : NULL; /* nothing was ever pushed for {} alone */
    if (o->node.kind == YAML_LIST) {
        o->node.n = n;
        o->node.items = keep(r, n);
        if (!o->node.items) return arena_refused(r->memory, r->name, n * sizeof *from, r->err);
        if (n) memcpy(o->node.items, from, n * sizeof *from);
    } else {
        o->node.n = n / 2;
        o->node.items = keep(r, n / 2);
        o->node.keys = keep(r, n / 2);
        if (!o->node.items || !o->node.keys)
            return arena_refused(r->memory, r->name, n * sizeof *from, r->err);
        for (size_t i = 0; i < n / 2; i++) {
            o->node.keys[i] = from[2 * i];
            o->node.items[i] = from[2 * i + 1];
        }
        TRY(refuse_duplicates(r, &o->node));
    }
    r->n = o->first;
    return push(r, &o->node);
}

/* The place of the next node is a key's when it stands in a map after an even number of children. */
static bool at_key(const reader *r) {
    if (r->depth == 0) return false;
    const open_node *o = &r->open[r->depth - 1];
    return o->node.kind == YAML_MAP && (r->n - o->first) % 2 == 0;
}

static status begin_collection(reader *r, const yaml_event_t *e, yaml_kind kind, const yaml_char_t *anchor,
                               const yaml_char_t *tag) {
    if (anchor) return fault(r, CHURON_UNSUPPORTED, e->start_mark, "expected no anchor, got one");
    if (tag) return fault(r, CHURON_UNSUPPORTED, e->start_mark, "expected no tag, got one");
    if (at_key(r))
        return fault(r, CHURON_UNSUPPORTED, e->start_mark, "expected a name as key, got a list or map");
    if (r->depth == YAML_MAX_DEPTH)
        return fault(r, CHURON_LIMIT, e->start_mark, "expected at most 64 levels, got more");
    r->open[r->depth++] = (open_node){.node = {.kind = kind,
                                               .line = (uint32_t)e->start_mark.line + 1,
                                               .column = (uint32_t)e->start_mark.column + 1},
                                      .first = r->n};
    return CHURON_OK;
}

static status add_scalar(reader *r, const yaml_event_t *e) {
    if (e->data.scalar.anchor)
        return fault(r, CHURON_UNSUPPORTED, e->start_mark, "expected no anchor, got one");
    if (e->data.scalar.tag) return fault(r, CHURON_UNSUPPORTED, e->start_mark, "expected no tag, got one");
    const size_t len = e->data.scalar.length;
    const char *text = (const char *)e->data.scalar.value;
    if (memchr(text, 0, len))
        return fault(r, CHURON_CORRUPT, e->start_mark, "expected text, got a zero byte");
    char *copy = arena_strndup(r->memory, text, len);
    if (!copy) return arena_refused(r->memory, r->name, len, r->err);
    const yaml_node node = {.kind = YAML_SCALAR,
                            .quoted = e->data.scalar.style != YAML_PLAIN_SCALAR_STYLE,
                            .line = (uint32_t)e->start_mark.line + 1,
                            .column = (uint32_t)e->start_mark.column + 1,
                            .text = copy,
                            .len = len};
    return push(r, &node);
}

static status parse_failure(const reader *r) {
    const yaml_parser_t *p = &r->parser;
    if (p->error == YAML_MEMORY_ERROR) return error_no_memory(r->err, r->name, 0);
    if (p->error == YAML_READER_ERROR) {
        return error_set(r->err, CHURON_CORRUPT, "%s: byte %zu: %s", r->name, p->problem_offset,
                         p->problem ? p->problem : "not UTF-8");
    }
    return fault(r, CHURON_CORRUPT, p->problem_mark, p->problem ? p->problem : "not YAML");
}

static status take_event(reader *r, const yaml_event_t *e, size_t *documents) {
    switch (e->type) {
    case YAML_DOCUMENT_START_EVENT:
        if (++*documents > 1)
            return fault(r, CHURON_UNSUPPORTED, e->start_mark, "expected one document, got a second");
        return CHURON_OK;
    case YAML_SCALAR_EVENT: return add_scalar(r, e);
    case YAML_SEQUENCE_START_EVENT:
        return begin_collection(r, e, YAML_LIST, e->data.sequence_start.anchor, e->data.sequence_start.tag);
    case YAML_MAPPING_START_EVENT:
        return begin_collection(r, e, YAML_MAP, e->data.mapping_start.anchor, e->data.mapping_start.tag);
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT: return end_collection(r);
    case YAML_ALIAS_EVENT:
        return fault(r, CHURON_UNSUPPORTED, e->start_mark, "expected a value, got an alias: write it out");
    default: return CHURON_OK;
    }
}

status yaml_parse(yaml_node *out, arena *memory, const char *name, const char *bytes, size_t n, error *err) {
    *out = (yaml_node){.kind = YAML_MAP, .line = 1, .column = 1};
    if (n > YAML_MAX_BYTES) {
        return error_set(err, CHURON_LIMIT, "%s: expected at most %d bytes, got %zu", name, YAML_MAX_BYTES,
                         n);
    }
    if (n >= 3 && memcmp(bytes, "\xef\xbb\xbf", 3) == 0) { /* a byte order mark, as some editors write it */
        bytes += 3;
        n -= 3;
    }
    const size_t bad = utf8_validate(bytes, n);
    if (bad < n) return error_set(err, CHURON_CORRUPT, "%s: byte %zu: expected UTF-8", name, bad);
    reader r = {.memory = memory, .name = name, .err = err};
    if (!yaml_parser_initialize(&r.parser)) return error_no_memory(err, name, 0);
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)bytes, n);
    yaml_parser_set_encoding(&r.parser, YAML_UTF8_ENCODING);
    status st = CHURON_OK;
    size_t documents = 0;
    for (bool done = false; !done && st == CHURON_OK;) {
        yaml_event_t e;
        if (!yaml_parser_parse(&r.parser, &e)) {
            st = parse_failure(&r);
            break;
        }
        done = e.type == YAML_STREAM_END_EVENT;
        st = take_event(&r, &e, &documents);
        yaml_event_delete(&e);
    }
    if (st == CHURON_OK && r.n == 1) *out = r.stack[0];
    mem_free(r.stack);
    yaml_parser_delete(&r.parser);
    return st;
}

const yaml_node *yaml_get(const yaml_node *map, const char *key) {
    if (!map || map->kind != YAML_MAP) return NULL;
    for (size_t i = 0; i < map->n; i++) {
        if (strcmp(map->keys[i].text, key) == 0) return &map->items[i];
    }
    return NULL;
}

bool yaml_is_null(const yaml_node *node) {
    return node->kind == YAML_SCALAR && !node->quoted &&
           (node->len == 0 || strcmp(node->text, "~") == 0 || strcmp(node->text, "null") == 0);
}

const char *yaml_describe(const yaml_node *node, char buf[64]) {
    if (node->kind != YAML_SCALAR) return node->kind == YAML_LIST ? "a list" : "a map";
    if (yaml_is_null(node)) return "nothing";
    snprintf(buf, 64, "'%.48s'", node->text);
    return buf;
}

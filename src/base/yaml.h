/* yaml.h: YAML as a tree of nodes that know where they stand. The event parser is libyaml's.
 *
 * A scalar is text: what it means is for whoever knows the type that is wanted, so a country code NO stays a
 * country code. Refused, each by name, line and column: duplicate keys, keys that are not scalars, anchors
 * and aliases, tags, more than one document, text that is not UTF-8; over a limit (depth, nodes, bytes):
 * CHURON_LIMIT. Immutable after yaml_parse; any thread may read. */
#ifndef BASE_YAML_H
#define BASE_YAML_H

#include "base/arena.h"

enum { YAML_MAX_BYTES = 16 << 20, YAML_MAX_NODES = 1 << 20, YAML_MAX_DEPTH = 64 };

typedef enum yaml_kind { YAML_SCALAR, YAML_LIST, YAML_MAP } yaml_kind;

typedef struct yaml_node {
    yaml_kind kind;
    bool quoted;             /* a scalar in quotes or a block: text, whatever it looks like */
    uint32_t line, column;   /* from 1 */
    const char *text;        /* SCALAR: zero-terminated */
    size_t len;              /* of text */
    size_t n;                /* LIST: items; MAP: pairs */
    struct yaml_node *items; /* [n] */
    struct yaml_node *keys;  /* MAP: [n], scalars, all different */
} yaml_node;

/* The tree lives in `memory`. `name` of the file begins each error. An empty text is an empty map. */
MUST_USE status yaml_parse(yaml_node *out, arena *memory, const char *name, const char *bytes, size_t n,
                           error *err);
/* Value of a key of a MAP, or NULL. */
const yaml_node *yaml_get(const yaml_node *map, const char *key);
/* A plain scalar that says nothing: empty, ~ or null. */
bool yaml_is_null(const yaml_node *node);
/* "a list", "a map", "'text'" for error messages; into buf, which is returned. */
const char *yaml_describe(const yaml_node *node, char buf[64]);

#endif

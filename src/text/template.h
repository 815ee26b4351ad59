/* template.h: chat templates, the Jinja subset that model files contain, rendered as transformers does it:
 * Jinja2 with trim_blocks, lstrip_blocks, loop controls, `raise_exception`, `strftime_now` and its `tojson`.
 *
 * A template is parsed once and immutable; any thread may render it. Rendering is bounded in steps, depth,
 * output and memory (CHURON_LIMIT). A failure names the line and the cause; there is never a partly rendered
 * prompt.
 *
 * What Jinja2 knows and this does not is refused with CHURON_UNSUPPORTED: the tags block, extends, include,
 * import, from and autoescape; the filters random, pprint and urlize; lipsum(); names that are not ASCII;
 * integers of more than 64 bits, infinities and complex numbers; printing what Python shows with an address.
 * The sandbox's rules hold: methods that would change a list or a dict are undefined values. */
#ifndef TEXT_TEMPLATE_H
#define TEXT_TEMPLATE_H

#include "base/str.h"

/* ---- values ----------------------------------------------------------------------------------------- */

/* A tree of plain values for a template's context. Owned by the arena it is built in: one free for all.
 * Building functions return NULL when memory ran out, and accept NULL arguments then (the NULL carries on),
 * so a tree is checked once, at template_render. */
typedef struct tvalue tvalue;
typedef struct tarena tarena;

MUST_USE status tarena_create(tarena **out, error *err);
void tarena_free(tarena *a);
tvalue *tvalue_none(tarena *a);
tvalue *tvalue_bool(tarena *a, bool v);
tvalue *tvalue_int(tarena *a, int64_t v);
tvalue *tvalue_float(tarena *a, double v);
tvalue *tvalue_string(tarena *a, const char *bytes, size_t n); /* copies */
tvalue *tvalue_list(tarena *a);
tvalue *tvalue_list_add(tarena *a, tvalue *list, tvalue *item);                  /* returns list */
tvalue *tvalue_dict(tarena *a);                                                  /* keeps insertion order */
tvalue *tvalue_dict_set(tarena *a, tvalue *dict, const char *key, tvalue *item); /* returns dict */

/* ---- templates -------------------------------------------------------------------------------------- */

typedef struct template template;

typedef struct template_limits {
    size_t max_steps;  /* nodes evaluated; 0: 10,000,000 */
    size_t max_depth;  /* nesting of expressions, blocks, macro calls; 0: 1,000 */
    size_t max_output; /* bytes; 0: 64 MiB */
} template_limits;

MUST_USE status template_parse(template **out, const char *source, size_t len, error *err);
void template_free(template *t);

/* Renders with the names of `context` (a dict) as global variables and appends to *out. `now`: what
 * strftime_now sees (seconds since 1970, shown in local time). On an error *out is as it was. */
MUST_USE status template_render(const template *t, tvalue *context, int64_t now,
                                const template_limits *limits, str *out, error *err);

#endif

/* template_interim.c: ChatML only, until the interpreter lands. DELETE THIS FILE with it. */
#include "base/mem.h"
#include "text/template.h"

#include <string.h>

typedef enum kind { NONE, BOOL, INT, FLOAT, STRING, LIST, DICT } kind;
struct tvalue {
    tvalue *next_alloc, *items[64];
    char *keys[64];
    size_t n;
    kind k;
    char *s;
    size_t len;
    bool b;
};
struct tarena {
    tvalue *first;
};
struct template {
    int unused;
};

status tarena_create(tarena **out, error *err) {
    *out = mem_calloc(1, sizeof **out);
    return *out ? CHURON_OK : error_no_memory(err, "template", sizeof **out);
}
void tarena_free(tarena *a) {
    if (!a) return;
    for (tvalue *v = a->first, *next; v; v = next) {
        next = v->next_alloc;
        for (size_t i = 0; i < 64; i++) mem_free(v->keys[i]);
        mem_free(v->s);
        mem_free(v);
    }
    mem_free(a);
}
static tvalue *make(tarena *a, kind k) {
    tvalue *v = mem_calloc(1, sizeof *v);
    if (!v) return NULL;
    v->k = k;
    v->next_alloc = a->first;
    a->first = v;
    return v;
}
tvalue *tvalue_none(tarena *a) {
    return make(a, NONE);
}
tvalue *tvalue_bool(tarena *a, bool b) {
    tvalue *v = make(a, BOOL);
    if (v) v->b = b;
    return v;
}
tvalue *tvalue_int(tarena *a, int64_t i) {
    (void)i;
    return make(a, INT);
}
tvalue *tvalue_float(tarena *a, double d) {
    (void)d;
    return make(a, FLOAT);
}
tvalue *tvalue_string(tarena *a, const char *bytes, size_t n) {
    tvalue *v = make(a, STRING);
    if (!v || !(v->s = mem_strndup(bytes, n))) return NULL;
    v->len = n;
    return v;
}
tvalue *tvalue_list(tarena *a) {
    return make(a, LIST);
}
tvalue *tvalue_list_add(tarena *a, tvalue *list, tvalue *item) {
    (void)a;
    if (!list || !item || list->n == 64) return NULL;
    list->items[list->n++] = item;
    return list;
}
tvalue *tvalue_dict(tarena *a) {
    return make(a, DICT);
}
tvalue *tvalue_dict_set(tarena *a, tvalue *d, const char *key, tvalue *item) {
    (void)a;
    if (!d || !item || d->n == 64 || !(d->keys[d->n] = mem_strdup(key))) return NULL;
    d->items[d->n++] = item;
    return d;
}
static const tvalue *get(const tvalue *d, const char *key) {
    for (size_t i = 0; i < d->n; i++) {
        if (strcmp(d->keys[i], key) == 0) return d->items[i];
    }
    return NULL;
}
status template_parse(template **out, const char *source, size_t len, error *err) {
    (void)source;
    (void)len;
    *out = mem_calloc(1, sizeof **out);
    return *out ? CHURON_OK : error_no_memory(err, "template", sizeof **out);
}
void template_free(template *t) {
    mem_free(t);
}
status template_render(const template *t, tvalue *context, int64_t now, const template_limits *limits,
                       str *out, error *err) {
    (void)t;
    (void)now;
    (void)limits;
    if (!context) return error_no_memory(err, "template", 0);
    const tvalue *m = get(context, "messages"), *g = get(context, "add_generation_prompt");
    for (size_t i = 0; i < m->n; i++) {
        const tvalue *role = get(m->items[i], "role"), *content = get(m->items[i], "content");
        str_fmt(out, "<|im_start|>%s\n", role->s);
        str_add(out, content->s, content->len);
        str_cat(out, "<|im_end|>\n");
    }
    if (g->b) str_cat(out, "<|im_start|>assistant\n");
    return str_check(out, err);
}

/* template_json.c: the filter tojson: Python's json.dumps with the arguments that transformers passes on. */
#include "text/template_internal.h"

#include <math.h>
#include <stdio.h>

typedef struct writer {
    tpl_buf b;
    bool ascii, sort, indented;
    tvalue indent, comma, colon;
} writer;

static void put_unicode(tpl_buf *b, uint32_t unit) {
    char text[16];
    (void)snprintf(text, sizeof text, "\\u%04x", (unsigned)unit);
    tpl_buf_cat(b, text);
}

static void put_escape(tpl_buf *b, uint32_t cp) {
    if (cp > 0xffff) {
        put_unicode(b, 0xd800 + ((cp - 0x10000) >> 10));
        cp = 0xdc00 + ((cp - 0x10000) & 0x3ff);
    }
    put_unicode(b, cp);
}

static const char *short_escape(uint32_t cp) {
    switch (cp) {
    case '"': return "\\\"";
    case '\\': return "\\\\";
    case '\n': return "\\n";
    case '\r': return "\\r";
    case '\t': return "\\t";
    case '\f': return "\\f";
    case '\b': return "\\b";
    default: return NULL;
    }
}

static void put_string(writer *w, tvalue s) {
    const char *p = s.s, *end = s.s + s.len, *plain = p;
    tpl_buf_put(&w->b, '"');
    for (size_t n; p < end; p += n) {
        uint32_t cp = tpl_cp_at(p, end, &n);
        const char *escape = short_escape(cp);
        if (!escape && cp >= 0x20 && !(w->ascii && cp >= 0x7f)) continue;
        tpl_buf_add(&w->b, plain, (size_t)(p - plain));
        if (escape)
            tpl_buf_cat(&w->b, escape);
        else
            put_escape(&w->b, cp);
        plain = p + n;
    }
    tpl_buf_add(&w->b, plain, (size_t)(end - plain));
    tpl_buf_put(&w->b, '"');
}

static void put_newline(writer *w, size_t level) {
    if (!w->indented) return;
    tpl_buf_put(&w->b, '\n');
    for (size_t i = 0; i < level && w->b.st == CHURON_OK; i++) tpl_buf_value(&w->b, w->indent);
}

static void put_float(writer *w, double v) {
    if (isfinite(v))
        tpl_buf_repr(&w->b, tpl_float(v));
    else
        tpl_buf_cat(&w->b, isnan(v) ? "NaN" : v > 0 ? "Infinity" : "-Infinity");
}

static status put_value(writer *w, tvalue v, size_t level);

static status put_scalar(writer *w, tvalue v) {
    switch ((tpl_kind)v.kind) {
    case TPL_NONE: tpl_buf_cat(&w->b, "null"); break;
    case TPL_BOOL: tpl_buf_cat(&w->b, v.b ? "true" : "false"); break;
    case TPL_FLOAT: put_float(w, v.f); break;
    default: tpl_buf_repr(&w->b, v); break;
    }
    return w->b.st;
}

static status put_key(writer *w, tvalue key) {
    if (key.kind == TPL_STRING) {
        put_string(w, key);
        return w->b.st;
    }
    if (key.kind < TPL_NONE || key.kind > TPL_FLOAT) {
        return tpl_fail(w->b.rt, "keys must be str, int, float, bool or None, not %s", tpl_type_name(key));
    }
    tpl_buf_put(&w->b, '"');
    TRY(put_scalar(w, key));
    tpl_buf_put(&w->b, '"');
    return w->b.st;
}

static status sorted_entries(writer *w, const tpl_dict *d, tpl_list **order) {
    tpl_list *items = tpl_list_new(w->b.rt->arena, d->n), *keys = tpl_list_new(w->b.rt->arena, d->n);
    if (!items || !keys) return tpl_memory(w->b.rt);
    for (size_t i = 0; i < d->n; i++) {
        TRY(tpl_push(w->b.rt, items, tpl_int((int64_t)i)));
        TRY(tpl_push(w->b.rt, keys, d->entries[i].key));
    }
    *order = items;
    return w->sort ? tpl_sort(w->b.rt, items, keys, false) : CHURON_OK;
}

static status put_dict(writer *w, const tpl_dict *d, size_t level) {
    tpl_list *order = NULL;
    TRY(sorted_entries(w, d, &order));
    tpl_buf_put(&w->b, '{');
    for (size_t i = 0; i < d->n; i++) {
        const tpl_entry *e = &d->entries[order->v[i].i];
        if (i) tpl_buf_value(&w->b, w->comma);
        put_newline(w, level + 1);
        TRY(put_key(w, e->key));
        tpl_buf_value(&w->b, w->colon);
        TRY(put_value(w, e->value, level + 1));
    }
    if (d->n) put_newline(w, level);
    tpl_buf_put(&w->b, '}');
    return w->b.st;
}

static status put_list(writer *w, const tpl_list *list, size_t level) {
    tpl_buf_put(&w->b, '[');
    for (size_t i = 0; i < list->n; i++) {
        if (i) tpl_buf_value(&w->b, w->comma);
        put_newline(w, level + 1);
        TRY(put_value(w, list->v[i], level + 1));
    }
    if (list->n) put_newline(w, level);
    tpl_buf_put(&w->b, ']');
    return w->b.st;
}

static status put_value(writer *w, tvalue v, size_t level) {
    TRY(tpl_steps(w->b.rt, 1));
    switch ((tpl_kind)v.kind) {
    case TPL_STRING: put_string(w, v); return w->b.st == CHURON_OK ? tpl_steps(w->b.rt, v.len / 32) : w->b.st;
    case TPL_NONE:
    case TPL_BOOL:
    case TPL_INT:
    case TPL_FLOAT: return put_scalar(w, v);
    case TPL_LIST:
    case TPL_TUPLE:
    case TPL_DICT:
        TRY(tpl_enter(w->b.rt));
        TRY(v.kind == TPL_DICT ? put_dict(w, v.dict, level) : put_list(w, v.list, level));
        w->b.rt->depth--;
        return CHURON_OK;
    default: return tpl_fail(w->b.rt, "Object of type %s is not JSON serializable", tpl_type_name(v));
    }
}

static status read_indent(tpl_rt *rt, tvalue v, writer *w) {
    if (v.kind == TPL_MISSING || v.kind == TPL_NONE) return CHURON_OK;
    w->indented = true;
    int64_t n;
    if (v.kind == TPL_STRING) {
        w->indent = v;
        return CHURON_OK;
    }
    if (!tpl_as_int(v, &n))
        return tpl_fail(rt, "tojson: indent must be a number or a string, not %s", tpl_type_name(v));
    return tpl_repeat(rt, tpl_static(" "), n, &w->indent);
}

status tpl_filter_tojson(tpl_rt *rt, tvalue v, const tpl_args *args, tvalue *out) {
    static const char *const names[] = {"ensure_ascii", "indent", "separators", "sort_keys"};
    tvalue a[4];
    TRY(tpl_bind(rt, "tojson", args, names, 4, 0, a));
    writer w = {.b = tpl_buf_begin(rt), .ascii = tpl_truth(a[0]), .sort = tpl_truth(a[3])};
    w.comma = tpl_static(", ");
    w.colon = tpl_static(": ");
    TRY(read_indent(rt, a[1], &w));
    if (a[2].kind != TPL_MISSING && a[2].kind != TPL_NONE) {
        tvalue parts[2];
        TRY(tpl_unpack(rt, a[2], 2, parts));
        if (parts[0].kind != TPL_STRING || parts[1].kind != TPL_STRING)
            return tpl_fail(rt, "tojson: separators must be strings");
        w.comma = parts[0];
        w.colon = parts[1];
    } else if (w.indented) {
        w.comma = tpl_static(",");
    }
    TRY(put_value(&w, v, 0));
    return tpl_buf_end(&w.b, out);
}

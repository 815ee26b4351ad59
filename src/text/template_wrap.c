/* template_wrap.c: the filter wordwrap: Python's textwrap without changing white space: a paragraph is cut
 * into chunks (runs of white space, words, parts of hyphenated words, dashes), and lines are filled with
 * chunks. */
#include "text/template_internal.h"

typedef struct wrapper {
    tpl_rt *rt;
    const uint32_t *cp; /* [n] characters of the paragraph */
    const size_t *at;   /* [n+1] byte offset of each */
    size_t n;
    tvalue text;
    size_t width;
    bool break_words, on_hyphens;
    tpl_list *chunks; /* pairs first, end as two ints */
} wrapper;

/* textwrap knows these as white space, and no others. */
static bool is_blank(uint32_t c) {
    return c == ' ' || (c >= 9 && c <= 13);
}

static bool is_letter(const wrapper *w, size_t i) {
    return i < w->n && tpl_cp_word(w->cp[i]) && !tpl_cp_decimal(w->cp[i]);
}

static bool is_word_or_mark(const wrapper *w, size_t i) {
    uint32_t c = w->cp[i];
    return tpl_cp_word(c) || c == '!' || c == '"' || c == '\'' || c == '&' || c == '.' || c == ',' ||
           c == '?';
}

static bool is_hyphen(const wrapper *w, size_t i) {
    return i < w->n && w->cp[i] == '-';
}

/* A dash at i: two or more hyphens between words. Its end, or i. */
static size_t dash_end(const wrapper *w, size_t i) {
    size_t end = i;
    while (is_hyphen(w, end)) end++;
    bool good = end - i >= 2 && end < w->n && tpl_cp_word(w->cp[end]) && i > 0 && is_word_or_mark(w, i - 1);
    return good ? end : i;
}

/* May a hyphenated word be cut behind the hyphen at i? */
static bool cuts_behind(const wrapper *w, size_t i) {
    if (!is_hyphen(w, i)) return false;
    bool before = (i >= 2 && is_letter(w, i - 1) && is_letter(w, i - 2)) ||
                  (i >= 3 && is_word_or_mark(w, i - 1) && is_hyphen(w, i - 2) && is_letter(w, i - 3));
    size_t next = i + 1 + (is_letter(w, i + 1) && is_hyphen(w, i + 2));
    return before && is_letter(w, i + 1) && is_letter(w, next + 1);
}

static size_t chunk_end(const wrapper *w, size_t i) {
    size_t end = i;
    if (is_blank(w->cp[i])) {
        while (end < w->n && is_blank(w->cp[end])) end++;
        return end;
    }
    if (w->on_hyphens && (end = dash_end(w, i)) > i) return end;
    for (end = i + 1; end < w->n && !is_blank(w->cp[end]); end++) {
        if (!w->on_hyphens) continue;
        if (cuts_behind(w, end)) return end + 1;
        if (dash_end(w, end) > end) return end;
    }
    return end;
}

static status make_chunks(wrapper *w) {
    if (!(w->chunks = tpl_list_new(w->rt->arena, 0))) return tpl_memory(w->rt);
    for (size_t i = 0; i < w->n;) {
        size_t end = chunk_end(w, i);
        TRY(tpl_steps(w->rt, (end - i) / 16));
        TRY(tpl_push(w->rt, w->chunks, tpl_int((int64_t)i)));
        TRY(tpl_push(w->rt, w->chunks, tpl_int((int64_t)end)));
        i = end;
    }
    return CHURON_OK;
}

static bool all_space(const wrapper *w, size_t from, size_t to) {
    while (from < to && tpl_cp_space(w->cp[from])) from++;
    return from == to;
}

/* Where a word that is longer than a line is cut, `left` characters before the line's end. */
static size_t cut_of_long_word(const wrapper *w, size_t from, size_t to, size_t left) {
    if (w->on_hyphens && to - from > left) {
        for (size_t i = from + left; i-- > from + 1;) {
            if (!is_hyphen(w, i)) continue;
            for (size_t k = from; k < i; k++) {
                if (!is_hyphen(w, k)) return i + 1;
            }
            break;
        }
    }
    return from + left < to ? from + left : to;
}

/* The lines of a paragraph; all chunks of a line stand side by side in the text. */
static status fill_lines(wrapper *w, tpl_list *lines) {
    tvalue *c = w->chunks->v;
    bool any = false;
    for (size_t k = 0; k < w->chunks->n;) {
        TRY(tpl_steps(w->rt, 1));
        if (any && all_space(w, (size_t)c[k].i, (size_t)c[k + 1].i) && (k += 2) == w->chunks->n) break;
        size_t from = (size_t)c[k].i, to = from, last = from; /* last: where the last chunk begins */
        while (k < w->chunks->n && (size_t)c[k + 1].i - from <= w->width) {
            last = (size_t)c[k].i;
            to = (size_t)c[k + 1].i;
            k += 2;
        }
        if (k < w->chunks->n && (size_t)(c[k + 1].i - c[k].i) > w->width) {
            if (w->break_words) {
                last = to;
                to = cut_of_long_word(w, to, (size_t)c[k + 1].i, w->width - (to - from));
                c[k].i = (int64_t)to;
            } else if (to == from) {
                to = (size_t)c[k + 1].i;
                k += 2;
            }
        }
        if (last < to && all_space(w, last, to)) to = last;
        if (to == from) continue;
        any = true;
        TRY(tpl_push(w->rt, lines, tpl_sub(w->text, w->at[from], w->at[to])));
    }
    return CHURON_OK;
}

static status wrap_paragraph(wrapper *w, tvalue text, tpl_list *lines) {
    size_t n = tpl_codepoints(text);
    uint32_t *cp = tpl_alloc(w->rt->arena, (n + 1) * sizeof *cp);
    size_t *at = tpl_alloc(w->rt->arena, (n + 1) * sizeof *at);
    if (!cp || !at) return tpl_memory(w->rt);
    size_t byte = 0, k;
    for (size_t i = 0; i < n; i++, byte += k) {
        at[i] = byte;
        cp[i] = tpl_cp_at(text.s + byte, text.s + text.len, &k);
    }
    at[n] = byte;
    w->cp = cp;
    w->at = at;
    w->n = n;
    w->text = text;
    TRY(make_chunks(w));
    return fill_lines(w, lines);
}

status tpl_filter_wordwrap(tpl_rt *rt, tvalue in, const tpl_args *args, tvalue *out) {
    static const char *const names[] = {"width", "break_long_words", "wrapstring", "break_on_hyphens"};
    tvalue v[4], newline = tpl_static("\n");
    int64_t width = 79;
    TRY(tpl_bind(rt, "wordwrap", args, names, 4, 0, v));
    if (in.kind == TPL_UNDEFINED) return tpl_undefined_error(rt, in);
    if (in.kind != TPL_STRING) return tpl_fail(rt, "wordwrap: expected a string, got %s", tpl_type_name(in));
    if (v[0].kind != TPL_MISSING && !tpl_as_int(v[0], &width))
        return tpl_refuse(rt, "wordwrap: width must be an integer");
    if (v[2].kind != TPL_MISSING && v[2].kind != TPL_NONE) newline = v[2];
    if (newline.kind != TPL_STRING) return tpl_fail(rt, "wordwrap: expected a string between lines");
    if ((in.flags | newline.flags) & TPL_MARKUP)
        return tpl_refuse(rt, "wordwrap of a string that is marked safe");
    wrapper w = {.rt = rt, .break_words = true, .on_hyphens = true};
    if (v[1].kind != TPL_MISSING) w.break_words = tpl_truth(v[1]);
    if (v[3].kind != TPL_MISSING) w.on_hyphens = tpl_truth(v[3]);
    tpl_list *paragraphs = NULL, *parts = tpl_list_new(rt->arena, 0);
    if (!parts) return tpl_memory(rt);
    TRY(tpl_splitlines(rt, in, false, &paragraphs));
    if (paragraphs->n && width <= 0)
        return tpl_fail(rt, "invalid width %lld (must be > 0)", (long long)width);
    w.width = (size_t)width;
    for (size_t i = 0; i < paragraphs->n; i++) {
        tpl_list *lines = tpl_list_new(rt->arena, 0);
        tvalue one;
        if (!lines) return tpl_memory(rt);
        TRY(wrap_paragraph(&w, paragraphs->v[i], lines));
        TRY(tpl_join(rt, newline, lines->v, lines->n, &one));
        TRY(tpl_push(rt, parts, one));
    }
    return tpl_join(rt, newline, parts->v, parts->n, out);
}

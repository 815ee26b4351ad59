/* line.c: see line.h. */
#include "cli/line.h"

#include "base/mem.h"

#include <string.h>
#include <utf8proc.h>

enum { TAB_COLUMNS = 4 };

void line_free(line *l) {
    str_free(&l->text);
    str_free(&l->killed);
    *l = (line){0};
}

void line_set(line *l, const char *bytes, size_t n) {
    str_clear(&l->text);
    str_add(&l->text, bytes, n);
    l->cursor = l->text.len;
}

void line_insert(line *l, const char *bytes, size_t n) {
    size_t tail = l->text.len - l->cursor;
    if (!str_reserve(&l->text, n + tail)) {
        l->text.failed = false;
        return;
    }
    str after = {0};
    str_add(&after, str_cstr(&l->text) + l->cursor, tail);
    if (after.failed) return;
    l->text.len = l->cursor;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)bytes[i];
        if (c == '\r') {
            if (i + 1 < n && bytes[i + 1] == '\n') continue;
            c = '\n';
        }
        if ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7f) continue;
        str_put(&l->text, (char)c);
    }
    l->cursor = l->text.len;
    str_add(&l->text, str_cstr(&after), tail);
    str_free(&after);
}

/* ---- characters ------------------------------------------------------------------------------------- */

static size_t code_point(const char *at, const char *end, uint32_t *cp) {
    size_t k = utf8_decode(at, end, cp);
    if (k == 0) *cp = 0xfffd;
    return k ? k : 1;
}

size_t line_next(const line *l, size_t at) {
    if (at >= l->text.len) return l->text.len;
    const char *p = l->text.data + at, *end = l->text.data + l->text.len;
    uint32_t before, cp;
    utf8proc_int32_t state = 0;
    p += code_point(p, end, &before);
    while (p < end) {
        size_t k = code_point(p, end, &cp);
        if (utf8proc_grapheme_break_stateful((utf8proc_int32_t)before, (utf8proc_int32_t)cp, &state)) break;
        p += k;
        before = cp;
    }
    return (size_t)(p - l->text.data);
}

size_t line_begin(const line *l, size_t at) {
    while (at > 0 && l->text.data[at - 1] != '\n') at--;
    return at;
}

size_t line_end(const line *l, size_t at) {
    while (at < l->text.len && l->text.data[at] != '\n') at++;
    return at;
}

size_t line_prev(const line *l, size_t at) {
    if (at == 0) return 0;
    size_t p = line_begin(l, at);
    if (p == at) return at - 1;
    for (;;) {
        size_t next = line_next(l, p);
        if (next >= at) return p;
        p = next;
    }
}

static bool is_space(const line *l, size_t at) {
    char c = l->text.data[at];
    return c == ' ' || c == '\n' || c == '\t';
}

size_t line_word_next(const line *l, size_t at) {
    while (at < l->text.len && is_space(l, at)) at++;
    while (at < l->text.len && !is_space(l, at)) at = line_next(l, at);
    return at;
}

size_t line_word_prev(const line *l, size_t at) {
    while (at > 0 && is_space(l, at - 1)) at--;
    while (at > 0 && !is_space(l, at - 1)) at--;
    return at;
}

size_t line_columns(const char *at, size_t n) {
    uint32_t cp, next;
    size_t k = code_point(at, at + n, &cp);
    if (cp == '\t') return TAB_COLUMNS;
    if (cp < 0x20 || (cp >= 0x7f && cp < 0xa0)) return 1;
    int width = utf8proc_charwidth((utf8proc_int32_t)cp);
    /* VARIATION SELECTOR-16 asks for the wide, coloured form. */
    for (; k < n; k += code_point(at + k, at + n, &next)) {
        (void)code_point(at + k, at + n, &next);
        if (next == 0xfe0f) width = 2;
    }
    return width > 0 ? (size_t)width : 0;
}

static size_t columns_between(const line *l, size_t from, size_t to) {
    size_t columns = 0;
    while (from < to) {
        size_t next = line_next(l, from);
        columns += line_columns(l->text.data + from, next - from);
        from = next;
    }
    return columns;
}

size_t line_vertical(const line *l, size_t at, bool down) {
    size_t begin = line_begin(l, at), target;
    if (down) {
        size_t end = line_end(l, at);
        if (end == l->text.len) return at;
        target = end + 1;
    } else {
        if (begin == 0) return at;
        target = line_begin(l, begin - 1);
    }
    size_t want = columns_between(l, begin, at), end = line_end(l, target), columns = 0;
    while (target < end) {
        size_t next = line_next(l, target);
        columns += line_columns(l->text.data + target, next - target);
        if (columns > want) break;
        target = next;
    }
    return target;
}

/* ---- deleting --------------------------------------------------------------------------------------- */

void line_delete(line *l, size_t from, size_t to) {
    if (from >= to) return;
    memmove(l->text.data + from, l->text.data + to, l->text.len - to);
    l->text.len -= to - from;
    l->text.data[l->text.len] = '\0';
    l->cursor = from;
}

void line_kill(line *l, size_t from, size_t to) {
    if (from >= to) return;
    str_clear(&l->killed);
    str_add(&l->killed, l->text.data + from, to - from);
    line_delete(l, from, to);
}

/* ---- layout ----------------------------------------------------------------------------------------- */

typedef struct layout_builder {
    line_layout *y;
    size_t room;
    error *err;
} layout_builder;

static status begin_row(layout_builder *b, size_t begin, size_t column) {
    line_layout *y = b->y;
    if (y->n == b->room) {
        size_t room = b->room * 2 + 8;
        line_row *grown = mem_realloc(y->rows, room * sizeof *grown);
        if (!grown) return error_no_memory(b->err, "rows", room * sizeof *grown);
        y->rows = grown;
        b->room = room;
    }
    y->rows[y->n++] = (line_row){begin, begin, column};
    return CHURON_OK;
}

static void place_cursor(line_layout *y, size_t column) {
    y->cursor_row = y->n - 1;
    y->cursor_column = column;
}

status line_layout_make(line_layout *out, const line *l, size_t columns, size_t indent, error *err) {
    *out = (line_layout){0};
    layout_builder b = {out, 0, err};
    status st;
    if (columns < 8) columns = 8;
    if (indent + 4 > columns) indent = 0;
    size_t column = indent;
    TRY_GOTO(begin_row(&b, 0, indent));
    for (size_t at = 0; at < l->text.len;) {
        bool is_cursor = at == l->cursor;
        size_t next = line_next(l, at);
        if (l->text.data[at] == '\n') {
            if (is_cursor) place_cursor(out, column);
            TRY_GOTO(begin_row(&b, next, column = indent));
        } else {
            size_t wide = line_columns(l->text.data + at, next - at);
            /* A full row is left at once: the cursor can stand behind its last character only below. */
            if (column + wide > columns) TRY_GOTO(begin_row(&b, at, column = 0));
            if (is_cursor) place_cursor(out, column);
            column += wide;
            out->rows[out->n - 1].end = next;
            bool more = next < l->text.len && l->text.data[next] != '\n';
            if (column >= columns && !more && next == l->cursor) {
                TRY_GOTO(begin_row(&b, next, column = 0));
            }
        }
        at = next;
    }
    if (l->cursor >= l->text.len) place_cursor(out, column);
    return CHURON_OK;
cleanup:
    line_layout_free(out);
    return st;
}

void line_layout_free(line_layout *y) {
    mem_free(y->rows);
    *y = (line_layout){0};
}

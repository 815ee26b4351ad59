/* line.h: the text that is being edited and how it lies on a screen. Knows no terminal.
 *
 * The cursor stands between characters as readers see them (grapheme clusters): Hangul built from parts,
 * emoji with joiners and letters with marks are one step each. Bytes that are not UTF-8 count one each. */
#ifndef CLI_LINE_H
#define CLI_LINE_H

#include "base/str.h"

/* Zero-initialise; free with line_free. Edits that run out of memory leave the text as it was. */
typedef struct line {
    str text;
    size_t cursor; /* byte offset, at a character's beginning */
    str killed;    /* what the last kill removed */
} line;

void line_free(line *l);
void line_set(line *l, const char *bytes, size_t n); /* cursor at the end */
/* Line ends become \n; other control characters but tab are left out. */
void line_insert(line *l, const char *bytes, size_t n);

size_t line_next(const line *l, size_t at); /* the next character's beginning */
size_t line_prev(const line *l, size_t at);
size_t line_word_next(const line *l, size_t at); /* the end of the next word */
size_t line_word_prev(const line *l, size_t at); /* the beginning of the word before */
size_t line_begin(const line *l, size_t at);     /* after the \n before */
size_t line_end(const line *l, size_t at);       /* the \n after, or the text's end */
/* The place in the line above or below (down) at about the same column; `at` itself when there is none. */
size_t line_vertical(const line *l, size_t at, bool down);

void line_delete(line *l, size_t from, size_t to); /* the cursor goes to `from` */
void line_kill(line *l, size_t from, size_t to);   /* keeps what is deleted in `killed` */

/* Columns that the character [at, next) takes: 0 to 4. */
size_t line_columns(const char *at, size_t n);

/* The rows that a text takes on a screen of `columns`, its first row beginning at column `indent`, the rows
 * after a \n too; wrapped rows begin at 0. */
typedef struct line_row {
    size_t begin, end; /* bytes; a \n belongs to no row */
    size_t column;     /* where it begins */
} line_row;
typedef struct line_layout {
    line_row *rows; /* freed by line_layout_free */
    size_t n;
    size_t cursor_row, cursor_column;
} line_layout;
MUST_USE status line_layout_make(line_layout *out, const line *l, size_t columns, size_t indent, error *err);
void line_layout_free(line_layout *y);

#endif

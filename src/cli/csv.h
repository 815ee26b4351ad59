/* csv.h: a table of text with a header line; quotes as RFC 4180 has them, a byte order mark is skipped. */
#ifndef CLI_CSV_H
#define CLI_CSV_H

#include "base/str.h"

/* Zero-initialise; free with csv_free. */
typedef struct csv {
    str file;      /* cells are unquoted in place and end with a zero */
    char **cells;  /* [n_rows + 1][n_columns], the header first */
    size_t *lines; /* [n_rows + 1]: where each row begins, counted from 1 */
    size_t n_columns, n_rows, n_cells, cap, cap_lines;
} csv;

/* Cells may have line feeds in quotes. Every row must have as many cells as the first; empty lines are
 * skipped ("" is a cell). Cells that are no UTF-8 are refused. Errors name path and line. */
MUST_USE status csv_read(csv *c, const char *path, error *err);
void csv_free(csv *c);
/* The column with this header, or n_columns. */
size_t csv_column(const csv *c, const char *name);
static inline const char *csv_cell(const csv *c, size_t row, size_t column) {
    return c->cells[(row + 1) * c->n_columns + column];
}
static inline size_t csv_line(const csv *c, size_t row) {
    return c->lines[row + 1];
}

#endif

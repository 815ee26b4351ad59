/* csv.c: see csv.h. */
#include "cli/csv.h"

#include "base/file.h"
#include "base/mem.h"

#include <string.h>

enum { CSV_MAX_BYTES = 1 << 30 };

void csv_free(csv *c) {
    str_free(&c->file);
    mem_free(c->cells);
}

static status add_cell(csv *c, char *cell, error *err) {
    if (c->n_cells == c->cap) {
        size_t cap = c->cap ? c->cap * 2 : 256;
        char **more = mem_realloc(c->cells, cap * sizeof *more);
        if (!more) return error_no_memory(err, "table", cap * sizeof *more);
        c->cells = more;
        c->cap = cap;
    }
    c->cells[c->n_cells++] = cell;
    return CHURON_OK;
}

/* Reads one cell at *p, which ends at ',', a line end or the end; returns what ended it. *good is false where
 * a quote is not closed, or text follows one that is. */
static char read_cell(char **p, char **cell, bool *good) {
    char *to = *p, *from = *p;
    *cell = to;
    bool quoted = *from == '"', closed = false;
    if (quoted) from++;
    while (*from) {
        if (quoted && *from == '"') {
            if (from[1] != '"') {
                quoted = false;
                closed = true;
                from++;
                continue;
            }
            from++;
        } else if (!quoted && (*from == ',' || *from == '\n' || *from == '\r')) {
            break;
        }
        if (closed) *good = false;
        *to++ = *from++;
    }
    if (quoted) *good = false;
    char end = *from;
    if (end == '\r' && from[1] == '\n') from++;
    *p = *from ? from + 1 : from;
    *to = '\0';
    return end == '\r' ? '\n' : end;
}

status csv_read(csv *c, const char *path, error *err) {
    TRY(file_read(&c->file, path, CSV_MAX_BYTES, err));
    if (memchr(str_cstr(&c->file), 0, c->file.len)) {
        return error_set(err, CHURON_INVALID, "%s: expected text, got a zero byte", path);
    }
    char *p = c->file.data;
    if (p && strncmp(p, "\xef\xbb\xbf", 3) == 0) p += 3;
    for (size_t line = 0; p && *p; line++) {
        size_t before = c->n_cells;
        char end;
        do {
            char *cell;
            bool good = true;
            end = read_cell(&p, &cell, &good);
            if (!good)
                return error_set(err, CHURON_INVALID,
                                 "%s: line %zu: expected a cell whose quotes are closed right before the "
                                 "comma, got '%.40s'",
                                 path, line + 1, cell);
            TRY(add_cell(c, cell, err));
        } while (end == ',');
        size_t n = c->n_cells - before;
        if (n == 1 && c->cells[before][0] == '\0') { /* an empty line */
            c->n_cells = before;
            continue;
        }
        if (c->n_columns == 0) {
            c->n_columns = n;
            for (size_t i = 1; i < n; i++) {
                if (csv_column(c, c->cells[i]) < i)
                    return error_set(err, CHURON_INVALID, "%s: expected each column once, got '%.80s' again",
                                     path, c->cells[i]);
            }
        }
        if (n != c->n_columns) {
            return error_set(err, CHURON_INVALID, "%s: line %zu: expected %zu cells, got %zu", path, line + 1,
                             c->n_columns, n);
        }
    }
    if (c->n_columns == 0)
        return error_set(err, CHURON_INVALID, "%s: expected a header line, got nothing", path);
    c->n_rows = c->n_cells / c->n_columns - 1;
    return CHURON_OK;
}

size_t csv_column(const csv *c, const char *name) {
    size_t i = 0;
    while (i < c->n_columns && strcmp(c->cells[i], name) != 0) i++;
    return i;
}

/* csv.c: see csv.h. */
#include "cli/csv.h"

#include "base/file.h"
#include "base/mem.h"

#include <string.h>

enum { CSV_MAX_BYTES = 1 << 30 };

void csv_free(csv *c) {
    str_free(&c->file);
    mem_free(c->cells);
    mem_free(c->lines);
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

/* Reads one cell at *p, which ends at ',', a line end or the end; returns what ended it. *feeds: line feeds
 * in it. *good is false where a quote is not closed, or text follows one that is. */
static char read_cell(char **p, char **cell, size_t *feeds, bool *good) {
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
        *feeds += *from == '\n';
        *to++ = *from++;
    }
    if (quoted) *good = false;
    char end = *from;
    if (end == '\r' && from[1] == '\n') from++;
    *p = *from ? from + 1 : from;
    *to = '\0';
    return end == '\r' ? '\n' : end;
}

static status add_line(csv *c, size_t line, error *err) {
    if (c->n_rows == c->cap_lines) {
        const size_t cap = c->cap_lines ? c->cap_lines * 2 : 64;
        size_t *more = mem_realloc(c->lines, cap * sizeof *more);
        if (!more) return error_no_memory(err, "table", cap * sizeof *more);
        c->lines = more;
        c->cap_lines = cap;
    }
    c->lines[c->n_rows++] = line;
    return CHURON_OK;
}

static status check_text(const csv *c, const char *path, size_t line, size_t column, error *err) {
    const char *cell = c->cells[c->n_cells - 1];
    const size_t n = strlen(cell), at = utf8_validate(cell, n);
    if (at == n) return CHURON_OK;
    const unsigned byte = (unsigned char)cell[at];
    if (column < c->n_columns) { /* the header has been read */
        return error_set(err, CHURON_INVALID,
                         "%s: line %zu, column '%.80s': expected UTF-8 text, got byte 0x%02x at byte %zu",
                         path, line, c->cells[column], byte, at + 1);
    }
    return error_set(err, CHURON_INVALID,
                     "%s: line %zu, cell %zu: expected UTF-8 text, got byte 0x%02x at byte %zu", path, line,
                     column + 1, byte, at + 1);
}

/* The cells of a row at *p; *line, where it begins, becomes that of the next. */
static status read_row(csv *c, const char *path, char **p, size_t *line, error *err) {
    const size_t before = c->n_cells, begun = *line;
    const bool quoted = **p == '"';
    char end;
    do {
        char *cell;
        bool good = true;
        size_t feeds = 0;
        end = read_cell(p, &cell, &feeds, &good);
        *line += feeds;
        if (!good)
            return error_set(
                err, CHURON_INVALID,
                "%s: line %zu: expected a cell whose quotes are closed right before the comma, got '%.40s'",
                path, begun, cell);
        TRY(add_cell(c, cell, err));
        TRY(check_text(c, path, begun, c->n_cells - 1 - before, err));
    } while (end == ',');
    *line += 1;
    const size_t n = c->n_cells - before;
    if (n == 1 && c->cells[before][0] == '\0' && !quoted) { /* an empty line */
        c->n_cells = before;
        return CHURON_OK;
    }
    if (c->n_columns == 0) c->n_columns = n;
    if (n != c->n_columns)
        return error_set(err, CHURON_INVALID, "%s: line %zu: expected %zu cells, got %zu", path, begun,
                         c->n_columns, n);
    return add_line(c, begun, err);
}

status csv_read(csv *c, const char *path, error *err) {
    TRY(file_read(&c->file, path, CSV_MAX_BYTES, err));
    if (memchr(str_cstr(&c->file), 0, c->file.len)) {
        return error_set(err, CHURON_INVALID, "%s: expected text, got a zero byte", path);
    }
    char *p = c->file.data;
    size_t line = 1;
    if (p && strncmp(p, "\xef\xbb\xbf", 3) == 0) p += 3;
    while (p && *p) TRY(read_row(c, path, &p, &line, err));
    if (c->n_columns == 0)
        return error_set(err, CHURON_INVALID, "%s: expected a header line, got nothing", path);
    for (size_t i = 1; i < c->n_columns; i++) {
        if (csv_column(c, c->cells[i]) < i)
            return error_set(err, CHURON_INVALID, "%s: expected each column once, got '%.80s' again", path,
                             c->cells[i]);
    }
    c->n_rows--; /* without the header */
    return CHURON_OK;
}

size_t csv_column(const csv *c, const char *name) {
    size_t i = 0;
    while (i < c->n_columns && strcmp(c->cells[i], name) != 0) i++;
    return i;
}

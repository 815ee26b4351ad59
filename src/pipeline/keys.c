/* keys.c: see keys.h. */
#include "pipeline/keys.h"

#include "base/mem.h"
#include "base/str.h"
#include "tensor/npy.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TEXT_FILE = 64 << 20, NAME_MAX_BYTES = 100 };

status keys_fault(const key_reader *r, const yaml_node *at, const char *key, error *err, const char *fmt,
                  ...) {
    char what[400];
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    return error_set(err, CHURON_INVALID, "%s: line %u, column %u: %s%s%s", r->file, at->line, at->column,
                     key ? key : "", key ? ": " : "", what);
}

/* ---- scalars ---------------------------------------------------------------------------------------- */

bool scalar_int(const yaml_node *n, int64_t *out) {
    if (n->kind != YAML_SCALAR || n->quoted || n->len == 0) return false;
    const char *p = n->text;
    if (*p == '-' || *p == '+') p++;
    if (*p < '0' || *p > '9') return false;
    errno = 0;
    char *end;
    const long long v = strtoll(n->text, &end, 10);
    if (*end || errno) return false;
    *out = v;
    return true;
}

bool scalar_number(const yaml_node *n, double *out) {
    if (n->kind != YAML_SCALAR || n->quoted || n->len == 0) return false;
    /* strtod knows hexadecimal, "nan" and "infinity" as well: only decimal numbers are meant here */
    if (strspn(n->text, "+-0123456789.eE") != n->len) return false;
    char *end;
    const double v = strtod(n->text, &end);
    if (*end || end == n->text || !isfinite(v)) return false;
    *out = v;
    return true;
}

bool scalar_bool(const yaml_node *n, bool *out) {
    if (n->kind != YAML_SCALAR || n->quoted) return false;
    const bool yes = strcmp(n->text, "true") == 0;
    if (!yes && strcmp(n->text, "false") != 0) return false;
    *out = yes;
    return true;
}

/* ---- near names ------------------------------------------------------------------------------------- */

/* Optimal string alignment: insertions, deletions, replacements and swaps of neighbours; at most `most` + 1.
 */
static size_t distance(const char *a, const char *b, size_t most) {
    enum { LONGEST = 64 };
    const size_t n = strlen(a), m = strlen(b);
    size_t rows[3][LONGEST + 1]; /* of i - 2, i - 1 and i, in turn */
    if (n > LONGEST || m > LONGEST) return most + 1;
    for (size_t j = 0; j <= m; j++) rows[0][j] = j;
    for (size_t i = 1; i <= n; i++) {
        const size_t *before = rows[(i - 1) % 3];
        size_t *row = rows[i % 3];
        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            size_t best = before[j - 1] + (a[i - 1] != b[j - 1]);
            if (before[j] + 1 < best) best = before[j] + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            if (swapped && rows[(i - 2) % 3][j - 2] + 1 < best) best = rows[(i - 2) % 3][j - 2] + 1;
            row[j] = best;
        }
    }
    return rows[n % 3][m];
}

const char *keys_nearest(const char *got, const char *const *names, size_t n) {
    const char *best = NULL;
    size_t least = strlen(got) <= 4 ? 2 : 4; /* one change in short names, up to three in others */
    for (size_t i = 0; i < n; i++) {
        const size_t d = distance(got, names[i], least);
        if (d < least) {
            least = d;
            best = names[i];
        }
    }
    return best;
}

static status unknown_key(const key_reader *r, const yaml_node *key, const char *what, const key_spec *specs,
                          error *err) {
    enum { MOST = 64 };
    const char *names[MOST];
    size_t n = 0;
    for (; specs[n].name && n < MOST; n++) names[n] = specs[n].name;
    const char *near = keys_nearest(key->text, names, n);
    if (near)
        return keys_fault(r, key, what, err, "expected a known key, got '%.60s': did you mean '%s'?",
                          key->text, near);
    str list = {0};
    for (size_t i = 0; i < n; i++) str_fmt(&list, "%s%s", i ? ", " : "", names[i]);
    status st = keys_fault(r, key, what, err, "expected one of %.250s, got '%.60s'",
                           n ? str_cstr(&list) : "no keys", key->text);
    str_free(&list);
    return st;
}

/* ---- one value -------------------------------------------------------------------------------------- */

typedef struct reading {
    const key_reader *r;
    const char *what;
    const key_spec *spec;
    error *err;
} reading;

static status unfit(const reading *d, const yaml_node *at, const char *expected) {
    char key[160], got[64];
    snprintf(key, sizeof key, "%s%s%s", d->what ? d->what : "", d->what ? "." : "", d->spec->name);
    return keys_fault(d->r, at, key, d->err, "expected %s, got %s", expected, yaml_describe(at, got));
}

static status in_range(const reading *d, const yaml_node *at, double v) {
    if ((d->spec->least == 0 && d->spec->most == 0) || (v >= d->spec->least && v <= d->spec->most))
        return CHURON_OK;
    char expected[96];
    snprintf(expected, sizeof expected, "%.10g to %.10g", d->spec->least, d->spec->most);
    return unfit(d, at, expected);
}

static status read_choice(const reading *d, const yaml_node *at, key_value *v) {
    const char *p = d->spec->choices;
    for (int64_t i = 0; *p; i++) {
        const size_t n = strcspn(p, "|");
        if (at->kind == YAML_SCALAR && at->len == n && memcmp(at->text, p, n) == 0) {
            v->integer = i;
            v->text = at->text;
            return CHURON_OK;
        }
        p += n + (p[n] == '|');
    }
    char expected[200] = "one of ";
    size_t used = strlen(expected);
    for (p = d->spec->choices; *p && used + 3 < sizeof expected; p++) {
        if (*p == '|') {
            expected[used++] = ',';
            expected[used++] = ' ';
        } else {
            expected[used++] = *p;
        }
    }
    expected[used] = 0;
    return unfit(d, at, expected);
}

/* Names of values, models, steps: what can stand in JSON, in a URL and in a file name alike is asked of
 * bundle names only; fields may be any text without control characters. */
static status read_name(const reading *d, const yaml_node *at, const char **out) {
    if (at->kind != YAML_SCALAR || at->len == 0 || at->len > NAME_MAX_BYTES) return unfit(d, at, "a name");
    for (size_t i = 0; i < at->len; i++) {
        if ((unsigned char)at->text[i] < 0x20) return unfit(d, at, "a name without control characters");
    }
    *out = at->text;
    return CHURON_OK;
}

static void *keep(const reading *d, size_t n, size_t size, status *st) {
    void *p = arena_array(d->r->memory, n ? n : 1, size);
    *st = p ? CHURON_OK : arena_refused(d->r->memory, d->spec->name, n * size, d->err);
    return p;
}

/* {file: PATH} where a list may stand; NULL: it is none. */
static const yaml_node *file_of(const yaml_node *at) {
    return at->kind == YAML_MAP && at->n == 1 ? yaml_get(at, "file") : NULL;
}

static status read_file(const reading *d, const yaml_node *path, str *out) {
    if (!d->r->files) return unfit(d, path, "a list (there is no bundle whose file this could be)");
    if (path->kind != YAML_SCALAR) return unfit(d, path, "the path of a file");
    status st = files_read(d->r->files, path->text, MAX_TEXT_FILE, out, d->err);
    if (st != CHURON_OK) error_prefix(d->err, "%s: line %u: %s", d->r->file, path->line, d->spec->name);
    return st;
}

static status lines_to_texts(const reading *d, const yaml_node *path, key_value *v) {
    str bytes = {0};
    status st = read_file(d, path, &bytes);
    size_t n = 0;
    if (st == CHURON_OK && utf8_validate(str_cstr(&bytes), bytes.len) < bytes.len)
        st = unfit(d, path, "a file of UTF-8");
    for (size_t i = 0; i < bytes.len; i++) n += bytes.data[i] == '\n' || i + 1 == bytes.len;
    const char **texts = st == CHURON_OK ? keep(d, n, sizeof *texts, &st) : NULL;
    const char *p = str_cstr(&bytes);
    for (size_t i = 0; i < n && st == CHURON_OK; i++) {
        size_t len = strcspn(p, "\n");
        const size_t whole = len;
        if (len && p[len - 1] == '\r') len--;
        texts[i] = arena_strndup(d->r->memory, p, len);
        if (!texts[i]) st = arena_refused(d->r->memory, d->spec->name, len, d->err);
        p += whole + 1;
    }
    v->n = n;
    v->texts = texts;
    str_free(&bytes);
    return st;
}

static status npy_to_numbers(const reading *d, const yaml_node *path, key_value *v) {
    str bytes = {0};
    tensor t = {0};
    status st = read_file(d, path, &bytes);
    if (st == CHURON_OK) st = npy_parse(&t, bytes.data, bytes.len, d->err);
    if (st == CHURON_OK && !(ELEM_BIT(t.type) & (ELEMS_NUMERIC | ELEM_BIT(ELEM_BOOL))))
        st = unfit(d, path, "a file of numbers");
    double *numbers = st == CHURON_OK ? keep(d, t.count, sizeof *numbers, &st) : NULL;
    if (st == CHURON_OK) elem_to_f64(t.type, t.data, numbers, t.count);
    for (size_t i = 0; st == CHURON_OK && i < t.count; i++) {
        if (!isfinite(numbers[i])) st = unfit(d, path, "a file of finite numbers");
    }
    v->n = t.count;
    v->numbers = numbers;
    tensor_free(&t);
    str_free(&bytes);
    return st;
}

static status lines_to_numbers(const reading *d, const yaml_node *path, key_value *v) {
    key_value lines = {0};
    TRY(lines_to_texts(d, path, &lines));
    status st;
    double *numbers = keep(d, lines.n, sizeof *numbers, &st);
    for (size_t i = 0; i < lines.n && st == CHURON_OK; i++) {
        const yaml_node line = {.kind = YAML_SCALAR, .text = lines.texts[i], .len = strlen(lines.texts[i])};
        if (!scalar_number(&line, &numbers[i])) st = unfit(d, path, "a file with a number on each line");
    }
    v->n = lines.n;
    v->numbers = numbers;
    return st;
}

static status read_numbers(const reading *d, const yaml_node *at, key_value *v) {
    const yaml_node *path = file_of(at);
    if (path) {
        const bool npy = path->len > 4 && strcmp(path->text + path->len - 4, ".npy") == 0;
        return npy ? npy_to_numbers(d, path, v) : lines_to_numbers(d, path, v);
    }
    if (at->kind == YAML_MAP) return unfit(d, at, "a number or a list of numbers");
    status st;
    const bool list = at->kind == YAML_LIST;
    const size_t n = list ? at->n : 1;
    double *numbers = keep(d, n, sizeof *numbers, &st);
    for (size_t i = 0; i < n && st == CHURON_OK; i++) {
        const yaml_node *item = list ? &at->items[i] : at;
        if (!scalar_number(item, &numbers[i])) {
            st = unfit(d, item, list ? "a number" : "a number or a list of numbers");
        } else {
            st = in_range(d, item, numbers[i]);
        }
    }
    v->n = n;
    v->numbers = numbers;
    return st;
}

static status read_ints(const reading *d, const yaml_node *at, key_value *v) {
    if (at->kind != YAML_LIST) return unfit(d, at, "a list of integers");
    status st;
    int64_t *integers = keep(d, at->n, sizeof *integers, &st);
    for (size_t i = 0; i < at->n && st == CHURON_OK; i++) {
        if (!scalar_int(&at->items[i], &integers[i])) {
            st = unfit(d, &at->items[i], "an integer");
        } else {
            st = in_range(d, &at->items[i], (double)integers[i]);
        }
    }
    v->n = at->n;
    v->integers = integers;
    return st;
}

static status read_texts(const reading *d, const yaml_node *at, key_value *v, bool names) {
    const yaml_node *path = names ? NULL : file_of(at);
    if (path) return lines_to_texts(d, path, v);
    if (at->kind != YAML_LIST) return unfit(d, at, names ? "a list of names" : "a list of texts");
    status st;
    const char **texts = keep(d, at->n, sizeof *texts, &st);
    for (size_t i = 0; i < at->n && st == CHURON_OK; i++) {
        if (names) {
            st = read_name(d, &at->items[i], &texts[i]);
        } else if (at->items[i].kind != YAML_SCALAR) {
            st = unfit(d, &at->items[i], "a text");
        } else {
            texts[i] = at->items[i].text;
        }
    }
    v->n = at->n;
    v->texts = texts;
    return st;
}

static status read_names(const reading *d, const yaml_node *at, key_value *v) {
    if (at->kind != YAML_MAP) return unfit(d, at, "a map from name to name");
    status st;
    const char **names = keep(d, at->n, sizeof *names, &st), **others = NULL;
    if (st == CHURON_OK) others = keep(d, at->n, sizeof *others, &st);
    for (size_t i = 0; i < at->n && st == CHURON_OK; i++) {
        st = read_name(d, &at->keys[i], &names[i]);
        if (st == CHURON_OK) st = read_name(d, &at->items[i], &others[i]);
    }
    v->n = at->n;
    v->texts = names;
    v->others = others;
    return st;
}

static status read_value(const reading *d, const yaml_node *at, key_value *v) {
    switch (d->spec->kind) {
    case KEY_TEXT:
        if (at->kind != YAML_SCALAR || yaml_is_null(at)) return unfit(d, at, "a text");
        v->text = at->text;
        return CHURON_OK;
    case KEY_CHOICE: return read_choice(d, at, v);
    case KEY_BOOL: return scalar_bool(at, &v->flag) ? CHURON_OK : unfit(d, at, "true or false");
    case KEY_INT:
        if (!scalar_int(at, &v->integer)) return unfit(d, at, "an integer");
        v->number = (double)v->integer;
        return in_range(d, at, v->number);
    case KEY_NUMBER:
        return scalar_number(at, &v->number) ? in_range(d, at, v->number) : unfit(d, at, "a number");
    case KEY_NUMBERS: return read_numbers(d, at, v);
    case KEY_INTS: return read_ints(d, at, v);
    case KEY_TEXTS: return read_texts(d, at, v, false);
    case KEY_SCALAR: return at->kind == YAML_SCALAR ? CHURON_OK : unfit(d, at, "a single value");
    case KEY_SCALARS:
        if (at->kind != YAML_LIST) return unfit(d, at, "a list of values");
        for (size_t i = 0; i < at->n; i++) {
            if (at->items[i].kind != YAML_SCALAR) return unfit(d, &at->items[i], "a single value");
        }
        return CHURON_OK;
    case KEY_ANY: return CHURON_OK;
    case KEY_FILE:
        if (at->kind != YAML_SCALAR || at->len == 0) return unfit(d, at, "the path of a file in the bundle");
        v->text = at->text;
        return CHURON_OK;
    case KEY_FIELD:
    case KEY_INTO:
    case KEY_MODEL: return read_name(d, at, &v->text);
    case KEY_FIELDS: return read_texts(d, at, v, true);
    case KEY_NAMES: return read_names(d, at, v);
    case KEY_STEPS: return at->kind == YAML_LIST ? CHURON_OK : unfit(d, at, "a list of steps");
    }
    return CHURON_OK;
}

status keys_read_map(const key_reader *r, const yaml_node *map, const char *what, const key_spec *specs,
                     key_value *values, error *err) {
    if (map->kind != YAML_MAP && !yaml_is_null(map)) {
        char got[64];
        return keys_fault(r, map, what, err, "expected a map, got %s", yaml_describe(map, got));
    }
    size_t n = 0;
    while (specs[n].name) n++;
    const size_t pairs = map->kind == YAML_MAP ? map->n : 0;
    for (size_t k = 0; k < pairs; k++) {
        size_t i = 0;
        while (i < n && strcmp(specs[i].name, map->keys[k].text) != 0) i++;
        if (i == n) return unknown_key(r, &map->keys[k], what, specs, err);
    }
    for (size_t i = 0; i < n; i++) {
        const yaml_node *at = map->kind == YAML_MAP ? yaml_get(map, specs[i].name) : NULL;
        const reading d = {.r = r, .what = what, .spec = &specs[i], .err = err};
        values[i] = (key_value){.given = at != NULL, .node = at ? at : map, .slot = -1};
        if (at) {
            TRY(read_value(&d, at, &values[i]));
        } else if (specs[i].required) {
            return keys_fault(r, map, what, err, "expected the key '%s' (%s), got none", specs[i].name,
                              specs[i].doc);
        } else if (specs[i].fallback) {
            const yaml_node fallback = {.kind = YAML_SCALAR,
                                        .line = map->line,
                                        .column = map->column,
                                        .text = specs[i].fallback,
                                        .len = strlen(specs[i].fallback)};
            TRY(read_value(&d, &fallback, &values[i]));
        }
    }
    return CHURON_OK;
}

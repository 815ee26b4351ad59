/* suite.c: see suite.h. */
#include "graph/suite.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- folders ---------------------------------------------------------------------------------------- */

typedef struct name_list {
    char **items;
    size_t n, cap;
} name_list;

static void free_names(name_list *l) {
    for (size_t i = 0; i < l->n; i++) mem_free(l->items[i]);
    mem_free(l->items);
    *l = (name_list){0};
}

static bool add_name(name_list *l, const char *name) {
    if (l->n == l->cap) {
        size_t cap = l->cap ? l->cap * 2 : 64;
        char **more = mem_realloc(l->items, cap * sizeof *more);
        if (!more) return false;
        l->items = more;
        l->cap = cap;
    }
    l->items[l->n] = mem_strdup(name);
    return l->items[l->n] != NULL && ++l->n;
}

static int by_name(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static status read_folder(const char *folder, const char *prefix, name_list *out, error *err) {
    *out = (name_list){0};
    DIR *d = opendir(folder);
    if (!d) return error_set(err, CHURON_IO, "%s: cannot open the folder: %s", folder, strerror(errno));
    bool good = true;
    for (const struct dirent *e = readdir(d); e && good; e = readdir(d)) {
        if (e->d_name[0] != '.' && strncmp(e->d_name, prefix, strlen(prefix)) == 0)
            good = add_name(out, e->d_name);
    }
    (void)closedir(d);
    if (!good) {
        free_names(out);
        return error_no_memory(err, "names of files", 0);
    }
    if (out->n) qsort(out->items, out->n, sizeof *out->items, by_name);
    return CHURON_OK;
}

static char *join(const char *folder, const char *name) {
    str path = {0};
    str_fmt(&path, "%s/%s", folder, name);
    if (!path.failed) return path.data;
    str_free(&path);
    return NULL;
}

status suite_each(const char *folder, bool (*fn)(void *user, const char *name, const char *path), void *user,
                  error *err) {
    name_list names_found;
    TRY(read_folder(folder, "", &names_found, err));
    bool go_on = true;
    status st = CHURON_OK;
    for (size_t i = 0; i < names_found.n && go_on && st == CHURON_OK; i++) {
        char *path = join(folder, names_found.items[i]), *model = path ? join(path, "model.onnx") : NULL;
        if (!model) st = error_no_memory(err, "a path", 0);
        if (model && file_exists(model)) go_on = fn(user, names_found.items[i], path);
        mem_free(path);
        mem_free(model);
    }
    free_names(&names_found);
    return st;
}

/* ---- one data set ----------------------------------------------------------------------------------- */

typedef struct data_set {
    value *inputs, *wanted, *got;
    size_t n_inputs, n_outputs;
} data_set;

static void free_values(value *v, size_t n) {
    for (size_t i = 0; v && i < n; i++) value_free(&v[i]);
    mem_free(v);
}

static status read_values(const char *folder, const char *prefix, value *out, size_t n,
                          graph_port (*port)(const graph *, size_t), const graph *g, bool *present,
                          error *err) {
    for (size_t i = 0; i < n; i++) {
        str path = {0};
        str_fmt(&path, "%s/%s_%zu.pb", folder, prefix, i);
        status st = str_check(&path, err);
        if (st == CHURON_OK) {
            present[i] = file_exists(path.data);
            if (present[i]) st = onnx_value_read(&out[i], path.data, port(g, i).type, err);
        }
        str_free(&path);
        TRY(st);
    }
    return CHURON_OK;
}

static void compare_output(const data_set *d, size_t i, const graph *g, const suite_options *o,
                           suite_case *c) {
    comparison r = compare_values(&d->wanted[i], &d->got[i], o->tolerance, graph_output(g, i).name,
                                  c->why.len ? NULL : &c->why);
    if (r.max_abs > c->max_abs) c->max_abs = r.max_abs;
    if (r.max_rel > c->max_rel) c->max_rel = r.max_rel;
    if (!r.same) c->result = SUITE_FAILED;
}

static double deadline_of(const suite_options *o) {
    return o->seconds > 0 ? clock_seconds() + o->seconds : 0;
}

static status run_set(graph_session *s, const graph *g, const char *folder, const suite_options *o,
                      data_set *d, suite_case *c, error *err) {
    size_t n = d->n_inputs > d->n_outputs ? d->n_inputs : d->n_outputs;
    bool *present = mem_calloc(n + 1, sizeof *present);
    d->inputs = mem_calloc(d->n_inputs + 1, sizeof(value));
    d->wanted = mem_calloc(d->n_outputs + 1, sizeof(value));
    d->got = mem_calloc(d->n_outputs + 1, sizeof(value));
    status st = present && d->inputs && d->wanted && d->got ? CHURON_OK : error_no_memory(err, "values", n);
    if (st == CHURON_OK)
        st = read_values(folder, "input", d->inputs, d->n_inputs, graph_input, g, present, err);
    for (size_t i = 0; i < d->n_inputs && st == CHURON_OK; i++) {
        if (!present[i] && graph_input(g, i).type->kind != ONNX_OPTIONAL) {
            st =
                error_set(err, CHURON_NOT_FOUND, "%s: expected input_%zu.pb for input '%s', got no such file",
                          folder, i, graph_input(g, i).name);
        }
    }
    if (st == CHURON_OK)
        st = read_values(folder, "output", d->wanted, d->n_outputs, graph_output, g, present, err);
    /* Three times: the first finds the memory, the second is watched, the third has its places planned. */
    for (int time = 0; time < 3 && st == CHURON_OK; time++) {
        for (size_t i = 0; i < d->n_outputs; i++) value_free(&d->got[i]);
        const graph_run_options run = {.deadline = deadline_of(o)};
        st = graph_run(s, d->inputs, d->got, &run, err);
        for (size_t i = 0; i < d->n_outputs && st == CHURON_OK; i++) {
            if (present[i]) compare_output(d, i, g, o, c);
        }
    }
    mem_free(present);
    return st;
}

static status run_sets(graph *g, const char *folder, const name_list *sets, const suite_options *o,
                       suite_case *c, error *err) {
    graph_session *s;
    TRY(graph_session_create(&s, g, err));
    status st = CHURON_OK;
    for (size_t i = 0; i < sets->n && st == CHURON_OK; i++) {
        char *path = join(folder, sets->items[i]);
        data_set d = {.n_inputs = graph_n_inputs(g), .n_outputs = graph_n_outputs(g)};
        st = path ? run_set(s, g, path, o, &d, c, err) : error_no_memory(err, "a path", 0);
        free_values(d.inputs, d.n_inputs);
        free_values(d.wanted, d.n_outputs);
        free_values(d.got, d.n_outputs);
        mem_free(path);
        c->n_sets += st == CHURON_OK;
    }
    graph_session_free(s);
    return st;
}

suite_case suite_run_case(const char *folder, const suite_options *o) {
    suite_case c = {.result = SUITE_SKIPPED};
    error err;
    name_list sets = {0};
    graph *g = NULL;
    char *model = join(folder, "model.onnx");
    status st =
        model ? read_folder(folder, "test_data_set_", &sets, &err) : error_no_memory(&err, "a path", 0);
    if (st == CHURON_OK && (sets.n == 0 || !file_exists(model))) {
        str_fmt(&c.why, "%s: expected a model.onnx and test_data_set folders", folder);
    } else if (st == CHURON_OK) {
        c.result = SUITE_PASSED;
        graph_options load = o->graph;
        load.deadline = deadline_of(o);
        st = graph_open(&g, model, &load, &err);
        if (st == CHURON_OK) st = run_sets(g, folder, &sets, o, &c, &err);
    }
    if (st != CHURON_OK) {
        c.result = SUITE_FAILED;
        str_clear(&c.why);
        str_cat(&c.why, err.message);
    }
    graph_close(g);
    free_names(&sets);
    mem_free(model);
    return c;
}

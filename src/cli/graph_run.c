/* graph_run.c: `churon run MODEL.onnx`: records in, records out. */
#include "cli/graph_inputs.h"
#include "cli/graph_providers.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "cli/record.h"
#include "cli/timeout.h"
#include "kernel/kernel.h"
#include "registry/store.h"
#include "tensor/npy.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { RECORD_MAX_BYTES = 1 << 30, SHOWN = 10 };

typedef struct graph_run_request {
    arg_common common;
    const char *model, *record, *input, *output_dir;
    arg_list files; /* NAME=FILE.npy */
    arg_list no_pass;
    uint64_t seed;
    bool has_seed;
    provider_choice providers;
    graph *g;
    graph_session *session;
    value *inputs, *outputs; /* of the record that runs */
    json_out out;
    str text;
    size_t n_records;
    bool several; /* records are given: files are named by number */
    bool *noted;  /* [graph_n_outputs] that it is not as declared */
    double load_s, run_s, timeout;
} graph_run_request;

/* ---- one record ------------------------------------------------------------------------------------- */

static void clear_values(value *v, size_t n) {
    for (size_t i = 0; v && i < n; i++) value_free(&v[i]);
}

static char of_file_name(char c) {
    return (unsigned char)c < 0x20 || c == 0x7f || strchr("/\\:*?\"<>|", c) ? '_' : c;
}

/* Does an output before it get the same name of a file? */
static bool name_is_taken(const graph *g, size_t output) {
    const char *name = graph_output(g, output).name;
    for (size_t k = 0; k < output; k++) {
        const char *other = graph_output(g, k).name;
        size_t i = 0;
        while (name[i] && other[i] && of_file_name(name[i]) == of_file_name(other[i])) i++;
        if (!name[i] && !other[i]) return true;
    }
    return false;
}

static status value_bytes(const value *v, str *bytes, error *err) {
    if (v->kind == VALUE_TENSOR) return npy_write(&v->t, bytes, err);
    json_out j = json_out_begin(bytes);
    record_write(&j, NULL, v);
    str_put(bytes, '\n');
    return str_check(bytes, err);
}

/* A tensor as NAME.npy, other values as NAME.json. */
static status write_file(const graph_run_request *r, size_t output, const value *v, str *path, error *err) {
    str_clear(path);
    str_fmt(path, "%s/", r->output_dir);
    if (r->several) str_fmt(path, "%zu_", r->n_records - 1);
    for (const char *p = graph_output(r->g, output).name; *p; p++) str_put(path, of_file_name(*p));
    if (name_is_taken(r->g, output)) str_fmt(path, "_%zu", output);
    str_cat(path, v->kind == VALUE_TENSOR ? ".npy" : ".json");
    str bytes = {0};
    status st = str_check(path, err);
    if (st == CHURON_OK) st = value_bytes(v, &bytes, err);
    FILE *f = st == CHURON_OK ? fopen(path->data, "wb") : NULL;
    if (st == CHURON_OK && (!f || fwrite(bytes.data, 1, bytes.len, f) != bytes.len)) {
        st = error_set(err, CHURON_IO, "%s: cannot write: %s", path->data, strerror(errno));
    }
    if (f && fclose(f) != 0 && st == CHURON_OK)
        st = error_set(err, CHURON_IO, "%s: cannot write: %s", path->data, strerror(errno));
    str_free(&bytes);
    return st;
}

/* "probabilities  float32 [1, 3]  [[0.1, 0.2, 0.7]]" */
static void show_value(str *out, const char *name, const value *v) {
    cli_text(out, name, SIZE_MAX);
    str_cat(out, ": ");
    if (v->kind == VALUE_TENSOR) {
        str_fmt(out, "%s [", elem_name(v->t.type));
        for (size_t i = 0; i < v->t.rank; i++) str_fmt(out, "%s%" PRId64, i ? ", " : "", v->t.dims[i]);
        str_cat(out, "] ");
    }
    value shown = *v;
    bool cut = v->kind == VALUE_TENSOR && v->t.count > SHOWN;
    if (cut) { /* the first elements as a list */
        shown.t.rank = 1;
        shown.t.dims[0] = SHOWN;
        shown.t.count = SHOWN;
    }
    json_out j = json_out_begin(out);
    record_write(&j, NULL, &shown);
    if (cut) str_fmt(out, " and %zu more", v->t.count - SHOWN);
    str_put(out, '\n');
}

static void note_declared(graph_run_request *r, size_t i) {
    const value *v = &r->outputs[i];
    if (v->kind != VALUE_TENSOR || r->noted[i]) return;
    onnx_dim dims[TENSOR_MAX_RANK];
    for (size_t k = 0; k < v->t.rank; k++) dims[k] = (onnx_dim){.value = v->t.dims[k]};
    const onnx_type got = {
        .kind = ONNX_TENSOR, .type = v->t.type, .has_shape = true, .rank = v->t.rank, .dims = dims};
    r->noted[i] = graph_note_declared("run", r->g, i, &got, r->common.quiet);
}

static status give_output(graph_run_request *r, size_t i, error *err) {
    const char *name = graph_output(r->g, i).name;
    const value *v = &r->outputs[i];
    str path = {0};
    status st = CHURON_OK;
    const bool to_file = r->output_dir != NULL;
    note_declared(r, i);
    if (to_file) st = write_file(r, i, v, &path, err);
    if (st == CHURON_OK && r->common.json) {
        if (to_file) {
            json_out_object(&r->out, name);
            json_out_cstr(&r->out, "file", path.data);
            json_out_end_object(&r->out);
        } else {
            record_write(&r->out, name, v);
        }
    } else if (st == CHURON_OK) {
        show_value(&r->text, name, v);
        if (to_file) {
            str_cat(&r->text, "  written to ");
            cli_text(&r->text, path.data, SIZE_MAX);
            str_put(&r->text, '\n');
        }
    }
    str_free(&path);
    return st;
}

/* Runs over r->inputs, which are given back. */
static status run_record(graph_run_request *r, error *err) {
    size_t n_in = graph_n_inputs(r->g), n_out = graph_n_outputs(r->g);
    double started = clock_seconds();
    const graph_run_options o = {.deadline = timeout_deadline(r->timeout)};
    status st = graph_run(r->session, r->inputs, r->outputs, &o, err);
    r->run_s += clock_seconds() - started;
    r->n_records++;
    clear_values(r->inputs, n_in);
    if (st != CHURON_OK) return st;
    if (r->common.json) json_out_object(&r->out, NULL); /* records follow one another with commas */
    for (size_t i = 0; i < n_out && st == CHURON_OK; i++) st = give_output(r, i, err);
    if (r->common.json) json_out_end_object(&r->out);
    clear_values(r->outputs, n_out);
    return st;
}

static status run_json_record(graph_run_request *r, const json_t *record, const char *folder, error *err) {
    status st = graph_inputs_read(r->g, &r->files, r->inputs, err);
    if (st == CHURON_OK) st = record_inputs(record, r->g, folder, r->inputs, err);
    if (st == CHURON_OK) return run_record(r, err);
    clear_values(r->inputs, graph_n_inputs(r->g));
    return st;
}

/* ---- where records come from ------------------------------------------------------------------------ */

static status parse_json(const char *text, size_t n, const char *what, json_t **out, error *err) {
    json_error_t e;
    if (n >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) { /* a byte order mark */
        text += 3;
        n -= 3;
    }
    *out = json_loadb(text, n, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL, &e);
    if (*out) return CHURON_OK;
    const bool integer = json_error_code(&e) == json_error_numeric_overflow && strstr(e.text, "integer");
    return error_set(err, CHURON_INVALID, "%s: line %d: expected JSON: %s%s", what, e.line, e.text,
                     integer ? ": integers over 9223372036854775807 can come from a .npy file" : "");
}

/* `lists`: a list is one of records; else it is a line, and must be a record. */
static status run_json_text(graph_run_request *r, const char *text, size_t n, const char *what, bool lists,
                            const char *folder, error *err) {
    json_t *json;
    TRY(parse_json(text, n, what, &json, err));
    status st = CHURON_OK;
    if (json_is_array(json) && lists) {
        r->several = json_array_size(json) > 1;
        for (size_t i = 0; i < json_array_size(json) && st == CHURON_OK; i++) {
            st = run_json_record(r, json_array_get(json, i), folder, err);
            if (st != CHURON_OK) error_prefix(err, "%s: record %zu", what, i + 1);
        }
    } else {
        st = run_json_record(r, json, folder, err);
        if (st != CHURON_OK && !lists) error_prefix(err, "%s", what);
    }
    json_decref(json);
    return st;
}

static const char *line_end(const char *at, const char *end) {
    const char *stop = memchr(at, '\n', (size_t)(end - at));
    return stop ? stop : end;
}

static bool is_blank(const char *at, const char *stop) {
    while (at < stop && strchr(" \t\r", *at)) at++;
    return at == stop;
}

static status run_lines(graph_run_request *r, const str *text, const char *path, const char *folder,
                        error *err) {
    const char *at = str_cstr(text), *end = at + text->len;
    size_t records = 0;
    for (const char *p = at, *stop; p < end; p = stop + 1) {
        stop = line_end(p, end);
        records += !is_blank(p, stop);
    }
    r->several = records > 1;
    for (size_t line = 1; at < end; line++) {
        const char *stop = line_end(at, end);
        if (!is_blank(at, stop)) {
            str what = {0};
            str_fmt(&what, "%s:%zu", path, line);
            status st = run_json_text(r, at, (size_t)(stop - at), str_cstr(&what), false, folder, err);
            str_free(&what);
            TRY(st);
        }
        at = stop + 1;
    }
    return CHURON_OK;
}

/* Records a line, rather than one text: a line that is an object, and something after it. */
static bool has_lines(const str *text) {
    const char *at = str_cstr(text), *end = at + text->len, *stop = line_end(at, end);
    while (stop < end && is_blank(at, stop)) {
        at = stop + 1;
        stop = line_end(at, end);
    }
    json_t *first = json_loadb(at, (size_t)(stop - at), JSON_ALLOW_NUL, NULL);
    const bool record = json_is_object(first);
    json_decref(first);
    if (!record) return false;
    for (; stop < end; stop = line_end(at, end)) {
        at = stop + 1;
        if (!is_blank(at, line_end(at, end))) return true;
    }
    return false;
}

static bool ends_with(const char *text, const char *end) {
    size_t n = strlen(text), k = strlen(end);
    return n >= k && strcmp(text + n - k, end) == 0;
}

static status run_npy(graph_run_request *r, error *err) {
    size_t n = graph_n_inputs(r->g), open = n;
    TRY(graph_inputs_read(r->g, &r->files, r->inputs, err));
    for (size_t i = 0; i < n; i++) {
        if (r->inputs[i].kind != VALUE_NONE) continue;
        if (open < n) {
            return error_set(err, CHURON_INVALID,
                             "field -i: expected a model with one input that is not given, got more; "
                             "use --input NAME=FILE.npy");
        }
        open = i;
    }
    if (open == n)
        return error_set(err, CHURON_INVALID,
                         "field -i: expected an input that --input does not give, got none");
    graph_port p = graph_input(r->g, open);
    TRY(record_npy(r->input, p.name, p.type, &r->inputs[open], err));
    return run_record(r, err);
}

static status run_file(graph_run_request *r, error *err) {
    if (ends_with(r->input, ".npy")) return run_npy(r, err);
    if (ends_with(r->input, ".csv")) {
        TRY(graph_inputs_read(r->g, &r->files, r->inputs, err));
        size_t rows;
        TRY(record_csv(r->input, r->g, r->inputs, &rows, err));
        if (rows == 0) cli_note(r->common.quiet, "note: run: %s: 0 records", r->input);
        return run_record(r, err);
    }
    bool lines = ends_with(r->input, ".jsonl");
    if (!lines && !ends_with(r->input, ".json") && strcmp(r->input, "-") != 0) {
        return error_set(err, CHURON_INVALID,
                         "field -i: expected a .json, .jsonl, .csv or .npy file, got '%.200s'", r->input);
    }
    str text = {0}, folder = {0};
    const char *slash = strrchr(r->input, '/');
    if (slash) str_add(&folder, r->input, slash == r->input ? 1 : (size_t)(slash - r->input));
    status st = file_read(&text, r->input, RECORD_MAX_BYTES, err);
    if (st == CHURON_OK && strcmp(r->input, "-") == 0) lines = has_lines(&text);
    if (st == CHURON_OK) {
        st = lines ? run_lines(r, &text, r->input, slash ? str_cstr(&folder) : NULL, err)
                   : run_json_text(r, str_cstr(&text), text.len, r->input, true,
                                   slash ? str_cstr(&folder) : NULL, err);
    }
    str_free(&text);
    str_free(&folder);
    return st;
}

static status run_all(graph_run_request *r, error *err) {
    if (r->record) return run_json_text(r, r->record, strlen(r->record), "field --record", true, NULL, err);
    if (r->input) return run_file(r, err);
    TRY(graph_inputs_read(r->g, &r->files, r->inputs, err));
    return run_record(r, err);
}

/* ---- the command ------------------------------------------------------------------------------------ */

/* One record: its outputs; several: a list of them. */
static int print_answer(graph_run_request *r, const char *path) {
    if (!r->common.json) {
        (void)cli_write(str_cstr(&r->text), r->text.len);
        return cli_finish(EXIT_YES);
    }
    error err;
    char digest[DIGEST_HEX] = "";
    if (store_digest(path, digest, &err) != CHURON_OK) return cli_refuse("run", &err);
    str all = {0};
    json_out j = json_out_begin(&all);
    json_out_object(&j, NULL);
    if (r->n_records == 1) {
        json_out_raw(&j, "outputs", str_cstr(&r->text), r->text.len);
    } else {
        str list = {0};
        str_fmt(&list, "[%s]", str_cstr(&r->text));
        json_out_raw(&j, "outputs", str_cstr(&list), list.len);
        if (list.failed) all.failed = true;
        str_free(&list);
    }
    json_out_object(&j, "timing");
    json_out_double(&j, "load_s", r->load_s);
    json_out_double(&j, "run_s", r->run_s);
    json_out_uint(&j, "records", r->n_records);
    json_out_end_object(&j);
    const kernels *k = NULL;
    (void)!kernels_select(&k, NULL);
    json_out_object(&j, "provenance");
    json_out_cstr(&j, "model", r->model);
    json_out_cstr(&j, "digest", digest);
    json_out_cstr(&j, "version", churon_version());
    json_out_cstr(&j, "isa", k ? k->name : NULL);
    str providers = {0};
    graph_provider_names(graph_providers(r->g), &providers);
    json_out_cstr(&j, "provider", str_cstr(&providers));
    str_free(&providers);
    json_out_uint(&j, "threads", r->common.threads ? r->common.threads : pool_physical_cores());
    if (r->has_seed) {
        json_out_uint(&j, "seed", r->seed);
    } else {
        json_out_null(&j, "seed");
    }
    json_out_end_object(&j);
    json_out_end_object(&j);
    int code = cli_print_json(&all);
    str_free(&all);
    return code;
}

/* Makes the folder and those that it lies in. */
static status make_folders(const char *path, error *err) {
    str part = {0};
    str_cat(&part, path);
    status st = str_check(&part, err);
    for (size_t i = 1; st == CHURON_OK && i <= part.len; i++) {
        if (i < part.len && part.data[i] != '/') continue;
        part.data[i] = '\0';
        if (mkdir(part.data, 0777) != 0 && errno != EEXIST && i == part.len)
            st = error_set(err, CHURON_IO, "%s: cannot make the folder: %s", path, strerror(errno));
        if (i < part.len) part.data[i] = '/';
    }
    str_free(&part);
    return st;
}

static int run_graph(graph_run_request *r) {
    error err;
    str path = {0};
    double started = clock_seconds();
    graph_options o = {.threads = (size_t)r->common.threads,
                       .no_pass = r->no_pass.items,
                       .n_no_pass = r->no_pass.n,
                       .seeded = r->has_seed,
                       .seed = r->seed};
    status st;
    int code = EXIT_NO;
    bool usage;
    usage = true;
    TRY_GOTO(graph_passes_check(&r->no_pass, &err));
    TRY_GOTO(provider_choice_read(&r->providers, &err));
    usage = false;
    o.providers = r->providers.names;
    o.n_providers = r->providers.n;
    TRY_GOTO(store_resolve(r->model, &path, &err));
    if (r->output_dir) TRY_GOTO(make_folders(r->output_dir, &err));
    o.deadline = timeout_deadline(r->timeout);
    TRY_GOTO(graph_open(&r->g, str_cstr(&path), &o, &err));
    TRY_GOTO(graph_session_create(&r->session, r->g, &err));
    r->inputs = mem_calloc(graph_n_inputs(r->g) + 1, sizeof(value));
    r->outputs = mem_calloc(graph_n_outputs(r->g) + 1, sizeof(value));
    r->noted = mem_calloc(graph_n_outputs(r->g) + 1, sizeof *r->noted);
    if (!r->inputs || !r->outputs || !r->noted) TRY_GOTO(error_no_memory(&err, "values", 0));
    r->load_s = clock_seconds() - started;
    r->out = json_out_begin(&r->text);
    usage = true;
    TRY_GOTO(run_all(r, &err));
    if (r->n_records == 0) cli_note(r->common.quiet, "note: run: 0 records");
    TRY_GOTO(str_check(&r->text, &err));
    code = print_answer(r, str_cstr(&path));
cleanup:
    if (st != CHURON_OK) code = usage ? cli_fail("run", &err) : cli_refuse("run", &err);
    if (r->g) {
        clear_values(r->inputs, graph_n_inputs(r->g));
        clear_values(r->outputs, graph_n_outputs(r->g));
    }
    mem_free(r->inputs);
    mem_free(r->outputs);
    mem_free(r->noted);
    graph_session_free(r->session);
    graph_close(r->g);
    str_free(&r->text);
    str_free(&path);
    return code;
}

int graph_cmd_run(int argc, char **argv) {
    graph_run_request r = {0};
    const arg_option options[] = {
        {.name = "record",
         .kind = ARG_STRING,
         .target = &r.record,
         .value = "JSON",
         .help = "inputs by name: {\"x\": [[1, 2]]}; a list of records runs each"},
        {.name = "in",
         .kind = ARG_STRING,
         .target = &r.input,
         .value = "FILE",
         .shortcut = 'i',
         .help =
             "the same from a .json, .jsonl, .csv (with a header) or .npy file; - reads JSON or JSON lines "
             "from stdin"},
        {.name = "input",
         .kind = ARG_LIST,
         .target = &r.files,
         .value = "NAME=FILE.npy",
         .help = "one input from a NumPy file; may be given again"},
        {.name = "output-dir",
         .kind = ARG_STRING,
         .target = &r.output_dir,
         .value = "DIR",
         .help = "writes every output to DIR/NAME.npy (sequences and maps: NAME.json)"},
        {.name = "no-pass",
         .kind = ARG_LIST,
         .target = &r.no_pass,
         .value = "NAME",
         .help = "leaves out a pass ('churon inspect MODEL --passes' lists them), or 'all'"},
        {.name = "seed",
         .kind = ARG_UINT,
         .target = &r.seed,
         .value = "N",
         .help = "random operators that have no seed of their own draw from this one (default: other numbers "
                 "each time)",
         .given = &r.has_seed},
        PROVIDER_OPTION(&r.providers),
        TIMEOUT_OPTION(&r.timeout),
    };
    const arg_command c = {.name = "run",
                           .synopsis = "MODEL.onnx [--record JSON | -i FILE] [--input NAME=FILE.npy]",
                           .summary = "Runs a graph (ONNX) on records.",
                           .example =
                               "churon run iris.onnx --record '{\"measures\": [[5.1, 3.5, 1.4, 0.2]]}'\n"
                               "churon run resnet50.onnx --input data=image.npy --output-dir answers",
                           .options = options,
                           .n_options = sizeof options / sizeof options[0],
                           .min_args = 1,
                           .max_args = 1};
    size_t n_args;
    int code = EXIT_USAGE;
    arg_outcome outcome = args_parse(&c, argc, argv, &r.common, argv, &n_args);
    if (outcome == ARGS_DONE) {
        code = cli_finish(EXIT_YES);
    } else if (outcome == ARGS_RUN) {
        r.model = argv[0];
        code = r.output_dir && !*r.output_dir ? args_wrong(&c, "--output-dir", "a folder", "nothing")
               : r.record && r.input ? args_wrong(&c, "--record", "--record or -i, one of them", "both")
                                     : run_graph(&r);
    }
    args_list_free(&r.files);
    args_list_free(&r.no_pass);
    provider_choice_free(&r.providers);
    return code;
}

/* bundle.c: `churon bundle`: what helps to write one. */
#include "cli/bundle_cli.h"

#include "base/file.h"
#include "pipeline/golden.h"
#include "pipeline/step.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* ---- init ------------------------------------------------------------------------------------------- */

/* "beside the model" unless a folder is given. */
static status init_path(const char *model_path, const char *folder, str *out, error *err) {
    const char *slash = strrchr(model_path, '/');
    if (folder) {
        str_fmt(out, "%s/", folder);
    } else if (file_is_dir(model_path)) {
        str_fmt(out, "%s/", model_path);
    } else if (slash) {
        str_add(out, model_path, (size_t)(slash - model_path) + 1);
    }
    str_cat(out, "bundle.yaml");
    return str_check(out, err);
}

static int init_bundle(const char *model, const arg_common *common) {
    error err = {0};
    str path = {0}, to = {0};
    pipeline *p = NULL;
    FILE *f = NULL;
    status st = bundle_resolve(model, &path, &err);
    if (st == CHURON_OK) st = init_path(str_cstr(&path), NULL, &to, &err);
    if (st == CHURON_OK && file_exists(to.data))
        st = error_set(&err, CHURON_INVALID, "%s: expected no such file yet, got one: it is left as it is",
                       to.data);
    if (st == CHURON_OK) st = pipeline_open(&p, str_cstr(&path), NULL, &err);
    size_t n = 0;
    const char *text = p ? pipeline_manifest_text(p, &n) : NULL;
    if (st == CHURON_OK) {
        f = fopen(to.data, "wxb");
        if (!f || fwrite(text, 1, n, f) != n)
            st = error_set(&err, CHURON_IO, "%s: cannot write: %s", to.data, strerror(errno));
        if (f && fclose(f) != 0 && st == CHURON_OK)
            st = error_set(&err, CHURON_IO, "%s: cannot write: %s", to.data, strerror(errno));
    }
    int code = EXIT_NO;
    if (st != CHURON_OK) {
        code = cli_refuse("bundle init", &err);
    } else if (common->json) {
        str out = {0};
        json_out j = json_out_begin(&out);
        json_out_object(&j, NULL);
        json_out_cstr(&j, "file", to.data);
        json_out_cstr(&j, "name", pipeline_manifest(p)->name);
        json_out_end_object(&j);
        code = cli_print_json(&out);
        str_free(&out);
    } else {
        cli_note(common->quiet, "wrote %s", to.data);
        code = cli_finish(EXIT_YES);
    }
    pipeline_close(p);
    str_free(&path);
    str_free(&to);
    return code;
}

/* ---- trace ------------------------------------------------------------------------------------------ */

/* Whole or not at all: beside the file first, then by one rename. */
static status write_over(const char *path, const str *text, error *err) {
    str beside = {0};
    str_fmt(&beside, "%s.new", path);
    status st = str_check(&beside, err);
    FILE *f = st == CHURON_OK ? fopen(beside.data, "wb") : NULL;
    bool good = f && fwrite(text->data, 1, text->len, f) == text->len;
    if (f && fclose(f) != 0) good = false;
    if (st == CHURON_OK && (!good || rename(beside.data, path) != 0)) {
        st = error_set(err, CHURON_IO, "%s: cannot write: %s", path, strerror(errno));
        (void)remove(beside.data);
    }
    str_free(&beside);
    return st;
}

static int record_traces(const char *model, const arg_common *common) {
    error err = {0};
    str path = {0}, text = {0};
    pipeline *p = NULL;
    status st = bundle_resolve(model, &path, &err);
    if (st == CHURON_OK && !file_is_dir(str_cstr(&path)))
        st = error_set(&err, CHURON_INVALID, "MODEL: expected the folder of a bundle, got '%.200s'", model);
    if (st == CHURON_OK) st = pipeline_open(&p, str_cstr(&path), NULL, &err);
    if (st == CHURON_OK) st = golden_record_traces(p, &text, &err);
    if (st == CHURON_OK) {
        str_fmt(&path, "/%s", pipeline_manifest(p)->golden);
        st = str_check(&path, &err);
    }
    if (st == CHURON_OK) st = write_over(path.data, &text, &err);
    if (st == CHURON_OK) cli_note(common->quiet, "wrote %s", path.data);
    pipeline_close(p);
    str_free(&text);
    str_free(&path);
    return st == CHURON_OK ? cli_finish(EXIT_YES) : cli_refuse("bundle trace", &err);
}

/* ---- schema and steps ------------------------------------------------------------------------------- */

static int print_schema(void) {
    str out = {0};
    json_out j = json_out_begin(&out);
    manifest_schema_write(&j);
    const int code = cli_print_json(&out);
    str_free(&out);
    return code;
}

static void write_markdown_text(str *out, const char *text) {
    for (; *text; text++) {
        if (*text == '|') str_put(out, '\\');
        str_put(out, *text);
    }
}

static void key_markdown(str *out, const key_spec *k) {
    static const char *const kinds[] = {"text",
                                        "one of",
                                        "true or false",
                                        "integer",
                                        "number",
                                        "numbers",
                                        "integers",
                                        "texts",
                                        "a value",
                                        "values",
                                        "see text",
                                        "file of the bundle",
                                        "name of a value",
                                        "names of values",
                                        "new name",
                                        "name of a model",
                                        "map of names",
                                        "steps"};
    str_fmt(out, "| `%s` | %s", k->name, kinds[k->kind]);
    if (k->kind == KEY_CHOICE) {
        str_put(out, ' ');
        for (const char *p = k->choices; *p; p++) str_cat(out, *p == '|' ? ", " : (char[]){*p, 0});
    }
    if (k->least != 0 || k->most != 0) str_fmt(out, ", %.10g to %.10g", k->least, k->most);
    str_fmt(out, " | %s%s%s | ",
            k->required   ? "required"
            : k->fallback ? "`"
                          : "",
            k->fallback ? k->fallback : "", k->fallback ? "`" : "");
    write_markdown_text(out, k->doc);
    str_cat(out, " |\n");
}

/* docs/steps.md: by group, then in the table's order. */
static int print_steps(void) {
    static const char *const groups[] = {"tabular", "text", "image", "audio", "answer", "flow"};
    str out = {0};
    str_cat(&out, "# Steps\n\nMade by `churon bundle steps` from the table that the loader uses.\n");
    for (size_t g = 0; g < sizeof groups / sizeof *groups; g++) {
        bool any = false;
        for (size_t i = 0; STEP_KINDS[i]; i++) {
            const step_kind *k = STEP_KINDS[i];
            if (strcmp(k->group, groups[g]) != 0) continue;
            if (!any) str_fmt(&out, "\n## %c%s\n", groups[g][0] - 'a' + 'A', groups[g] + 1);
            any = true;
            str_fmt(&out, "\n### %s\n\n%s\n", k->name, k->doc);
            if (k->reference) str_fmt(&out, "\nCompared with: %s.\n", k->reference);
            if (!k->keys[0].name) continue;
            str_cat(&out, "\n| Key | Value | Default | Meaning |\n|---|---|---|---|\n");
            for (const key_spec *s = k->keys; s->name; s++) key_markdown(&out, s);
        }
    }
    const bool good = !out.failed && cli_write(str_cstr(&out), out.len);
    str_free(&out);
    return cli_finish(good ? EXIT_YES : EXIT_NO);
}

int cmd_bundle(int argc, char **argv) {
    arg_common common = {0};
    const arg_command c = {
        .name = "bundle",
        .synopsis = "init MODEL | trace BUNDLE | schema | steps",
        .summary = "Begins a bundle from a model, or prints what one may hold.",
        .details = "init    writes bundle.yaml beside the model, to go on from\n"
                   "trace   adds to every golden case the values of its steps, so that verify can name\n"
                   "        the step that left them\n"
                   "schema  the JSON Schema of bundle.yaml, for editors\n"
                   "steps   all steps with their keys, as Markdown",
        .example = "churon bundle init model.onnx\nchuron bundle schema > bundle.schema.json",
        .min_args = 1,
        .max_args = 2};
    size_t n_args;
    const arg_outcome outcome = args_parse(&c, argc, argv, &common, argv, &n_args);
    if (outcome != ARGS_RUN) return outcome == ARGS_DONE ? cli_finish(EXIT_YES) : EXIT_USAGE;
    const bool init = strcmp(argv[0], "init") == 0, trace = strcmp(argv[0], "trace") == 0;
    if ((init || trace) && n_args != 2)
        return args_wrong(&c, "MODEL", "one behind init and trace", "nothing");
    if (!init && !trace && n_args == 2)
        return args_wrong(&c, "MODEL", "one with init and trace only", argv[1]);
    if (init) return init_bundle(argv[1], &common);
    if (trace) return record_traces(argv[1], &common);
    if (strcmp(argv[0], "schema") == 0) return print_schema();
    if (strcmp(argv[0], "steps") == 0) return print_steps();
    return args_wrong(&c, "COMMAND", "init, trace, schema or steps", argv[0]);
}

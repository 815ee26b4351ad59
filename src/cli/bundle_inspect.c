/* bundle_inspect.c: `churon inspect BUNDLE`: what goes in, what happens, what comes out. */
#include "cli/bundle_cli.h"

#include <stdio.h>
#include <string.h>

static void write_type(json_out *j, const cell_type *t) {
    char text[200];
    json_out_cstr(j, "dtype", cell_type_text(t, text, sizeof text));
    if (t->kind == CELL_TENSOR && t->has_rank) {
        json_out_array(j, "shape");
        for (uint32_t i = 0; i < t->rank; i++) {
            if (t->dims[i] < 0) {
                json_out_null(j, NULL);
            } else {
                json_out_int(j, NULL, t->dims[i]);
            }
        }
        json_out_end_array(j);
    } else {
        json_out_null(j, "shape");
    }
}

static void write_input(json_out *j, const input_field *f) {
    json_out_object(j, NULL);
    json_out_cstr(j, "name", f->name);
    json_out_cstr(j, "type", f->type_name);
    write_type(j, &f->type);
    json_out_bool(j, "required", f->required);
    if (f->has_missing) cell_write(j, "missing", &f->type, &f->missing);
    if (f->has_min) cell_write(j, "min", &f->type, &(cell){.kind = f->type.kind, .number = f->min});
    if (f->n_one_of) {
        json_out_array(j, "one_of");
        for (size_t i = 0; i < f->n_one_of; i++) cell_write(j, NULL, &f->type, &f->one_of[i]);
        json_out_end_array(j);
    }
    if (f->regex) json_out_cstr(j, "regex", f->regex);
    if (f->unit) json_out_cstr(j, "unit", f->unit);
    if (f->description) json_out_cstr(j, "description", f->description);
    json_out_end_object(j);
}

static int print_json(const pipeline *p, uint64_t threads) {
    const manifest *m = pipeline_manifest(p);
    str out = {0};
    json_out j = json_out_begin(&out);
    json_out_object(&j, NULL);
    json_out_cstr(&j, "format", "bundle");
    json_out_cstr(&j, "name", m->name);
    json_out_cstr(&j, "bundle_version", m->version);
    json_out_cstr(&j, "task", m->task);
    json_out_cstr(&j, "digest", pipeline_digest(p));
    json_out_cstr(&j, "description", m->description);
    json_out_cstr(&j, "owner", m->owner);
    json_out_cstr(&j, "intended_use", m->intended_use);
    json_out_cstr(&j, "limits", m->limits);
    json_out_cstr(&j, "licence", m->licence);
    json_out_cstr(&j, "golden", m->golden);
    json_out_array(&j, "inputs");
    for (size_t i = 0; i < pipeline_n_inputs(p); i++) write_input(&j, pipeline_input(p, i));
    json_out_end_array(&j);
    json_out_array(&j, "steps");
    for (size_t i = 0; i < pipeline_n_steps(p); i++) json_out_cstr(&j, NULL, pipeline_step_label(p, i));
    json_out_end_array(&j);
    json_out_array(&j, "outputs");
    for (size_t i = 0; i < pipeline_n_outputs(p); i++) {
        const pipeline_port o = pipeline_output(p, i);
        json_out_object(&j, NULL);
        json_out_cstr(&j, "name", o.name);
        write_type(&j, o.type);
        json_out_end_object(&j);
    }
    json_out_end_array(&j);
    json_out_array(&j, "models");
    for (size_t i = 0; i < m->n_models; i++) {
        json_out_object(&j, NULL);
        json_out_cstr(&j, "name", m->models[i].name);
        json_out_cstr(&j, "file", m->models[i].file);
        json_out_cstr(&j, "sha256", m->models[i].sha256);
        json_out_end_object(&j);
    }
    json_out_end_array(&j);
    bundle_provenance(&j, p, threads);
    json_out_end_object(&j);
    const int code = cli_print_json(&out);
    str_free(&out);
    return code;
}

static int print_text(const pipeline *p) {
    const manifest *m = pipeline_manifest(p);
    char type[200];
    str out = {0};
    str_fmt(&out, "%s, version %s: %s\n", m->name, m->version, m->task);
    if (m->description) str_fmt(&out, "%s\n", m->description);
    str_fmt(&out, "digest   %s\n", pipeline_digest(p));
    if (m->owner) str_fmt(&out, "owner    %s\n", m->owner);
    if (m->licence) str_fmt(&out, "licence  %s\n", m->licence);
    str_fmt(&out, "golden   %s\n\n", m->golden ? m->golden : "none");
    for (size_t i = 0; i < pipeline_n_inputs(p); i++) {
        const input_field *f = pipeline_input(p, i);
        str_fmt(&out, "in    %s: %s%s%s\n", f->name, cell_type_text(&f->type, type, sizeof type),
                f->unit ? ", " : "", f->unit ? f->unit : "");
    }
    for (size_t i = 0; i < pipeline_n_steps(p); i++) str_fmt(&out, "step  %s\n", pipeline_step_label(p, i));
    for (size_t i = 0; i < pipeline_n_outputs(p); i++) {
        const pipeline_port o = pipeline_output(p, i);
        str_fmt(&out, "out   %s: %s\n", o.name, cell_type_text(o.type, type, sizeof type));
    }
    (void)cli_write(str_cstr(&out), out.len);
    str_free(&out);
    return cli_finish(EXIT_YES);
}

int bundle_cmd_inspect(int argc, char **argv) {
    arg_common common = {0};
    const arg_command c = {.name = "inspect",
                           .synopsis = "BUNDLE",
                           .summary = "Shows what a bundle takes, what it does and what it answers.",
                           .example = "churon inspect fraud --json",
                           .min_args = 1,
                           .max_args = 1};
    size_t n_args;
    const arg_outcome outcome = args_parse(&c, argc, argv, &common, argv, &n_args);
    if (outcome != ARGS_RUN) return outcome == ARGS_DONE ? cli_finish(EXIT_YES) : EXIT_USAGE;
    pipeline *p;
    error err = {0};
    if (bundle_open(&p, argv[0], common.threads, NULL, 0, &err) != CHURON_OK)
        return cli_refuse("inspect", &err);
    const int code = common.json ? print_json(p, common.threads) : print_text(p);
    pipeline_close(p);
    return code;
}

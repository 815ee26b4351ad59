/* pack.c: `churon pack`: one reproducible file of a bundle, what is in one, and taking one apart. */
#include "bundle/pack.h"

#include "cli/cli.h"

#include "base/file.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

typedef struct pack_args {
    const char *output, *extract;
    bool list, zstd, check;
    arg_common common;
} pack_args;

static void entries_json(const files *f, json_out *j) {
    json_out_array(j, "entries");
    for (size_t i = 0; i < files_count(f); i++) {
        const files_entry *e = files_at(f, i);
        json_out_object(j, NULL);
        json_out_cstr(j, "path", e->path);
        json_out_uint(j, "bytes", e->size);
        json_out_cstr(j, "sha256", e->digest);
        json_out_end_object(j);
    }
    json_out_end_array(j);
}

/* What a pack holds, the pack itself last. */
static int print_pack(const files *f, const char *digest, uint64_t bytes, const arg_common *common) {
    str text = {0};
    if (common->json) {
        json_out j = json_out_begin(&text);
        json_out_object(&j, NULL);
        json_out_cstr(&j, "path", files_path_of(f));
        json_out_cstr(&j, "digest", digest);
        json_out_uint(&j, "bytes", bytes);
        entries_json(f, &j);
        json_out_end_object(&j);
        int code = cli_print_json(&text);
        str_free(&text);
        return code;
    }
    for (size_t i = 0; i < files_count(f); i++) {
        const files_entry *e = files_at(f, i);
        str_fmt(&text, "%s  %12" PRIu64 "  %s\n", e->digest, e->size, e->path);
    }
    str_fmt(&text, "%s  %12" PRIu64 "  (the bundle)\n", digest, bytes);
    error err;
    status st = str_check(&text, &err);
    if (st == CHURON_OK) (void)cli_write(text.data, text.len);
    str_free(&text);
    return st == CHURON_OK ? cli_finish(EXIT_YES) : cli_refuse("pack", &err);
}

/* Opens a pack and prints it. `fresh`: every byte is compared first. */
static status show_pack(const char *path, const pack_args *a, bool fresh, int *code, error *err) {
    files *f;
    TRY(files_open(&f, path, err));
    status st = CHURON_OK;
    uint64_t bytes = 0;
    char digest[DIGEST_HEX];
    if (files_kind_of(f) != FILES_PACK) {
        st = error_set(err, CHURON_CORRUPT, "%s: magic: expected CHURONPK, got another file", path);
    }
    if (st == CHURON_OK && fresh) st = files_verify(f, true, err);
    if (st == CHURON_OK) st = files_digest(f, digest, err);
    for (size_t i = 0; i < files_count(f); i++) bytes += files_at(f, i)->size;
    if (st == CHURON_OK) *code = print_pack(f, digest, bytes, &a->common);
    files_close(f);
    return st;
}

static status extract(const char *path, const pack_args *a, error *err) {
    files *f;
    TRY(files_open(&f, path, err));
    status st = CHURON_OK;
    if (files_kind_of(f) != FILES_PACK) {
        st = error_set(err, CHURON_CORRUPT, "%s: magic: expected CHURONPK, got another file", path);
    }
    if (st == CHURON_OK) st = pack_extract(f, a->extract, err);
    if (st == CHURON_OK) {
        cli_note(a->common.quiet || a->common.json, "%s: %zu files", a->extract, files_count(f));
    }
    files_close(f);
    return st;
}

/* What may be written over: nothing, or a pack. Not inside the bundle, whose file it would become. */
static status check_target(const char *path, const char *target, error *err) {
    struct stat at, folder;
    file_map map;
    str beside = {0};
    const char *slash = strrchr(target, '/');
    str_add(&beside, slash ? target : ".", slash ? (size_t)(slash - target) + (slash == target) : 1);
    status st = str_check(&beside, err);
    const bool inside = st == CHURON_OK && stat(path, &folder) == 0 && stat(beside.data, &at) == 0 &&
                        folder.st_ino == at.st_ino && folder.st_dev == at.st_dev;
    str_free(&beside);
    TRY(st);
    if (inside)
        return error_set(err, CHURON_INVALID, "field -o: expected a file outside of the bundle, got '%.200s'",
                         target);
    if (stat(target, &at) != 0) return CHURON_OK;
    if (!S_ISREG(at.st_mode))
        return error_set(err, CHURON_INVALID, "field -o: expected a file, got '%.200s', which is none",
                         target);
    TRY(file_map_open(&map, target, err));
    const bool replaceable = map.size == 0 || pack_has_magic(map.data, map.size);
    file_map_close(&map);
    if (replaceable) return CHURON_OK;
    return error_set(
        err, CHURON_INVALID,
        "field -o: expected no file yet, or a pack, got '%.200s', which is another: it is left as it is",
        target);
}

static status make(const char *path, const pack_args *a, int *code, error *err) {
    files *f;
    pack_options o = {.zstd = a->zstd};
    pack_result r;
    char size[CLI_SIZE];
    TRY(check_target(path, a->output, err));
    TRY(files_open(&f, path, err));
    status st = pack_write(f, a->output, &o, &r, err);
    files_close(f);
    TRY(st);
    cli_note(a->common.quiet || a->common.json, "%s: %zu files, %s", a->output, r.entries,
             cli_size(r.bytes, size));
    return show_pack(a->output, a, false, code, err);
}

static int dispatch(const arg_command *c, const char *path, const pack_args *a) {
    int code = EXIT_YES;
    error err;
    status st;
    bool reads = a->list || a->check || a->extract;
    if (reads && a->output)
        return args_wrong(c, "output", "none with --list, --check and --extract", a->output);
    if (!reads && !a->output) return args_wrong(c, "output", "-o FILE.churon", "nothing");
    if (a->extract) {
        st = extract(path, a, &err);
        if (st == CHURON_OK && (a->list || a->common.json)) st = show_pack(path, a, false, &code, &err);
    } else if (reads) {
        st = show_pack(path, a, a->check, &code, &err);
    } else {
        st = make(path, a, &code, &err);
    }
    return st == CHURON_OK ? code : cli_refuse("pack", &err);
}

int cmd_pack(int argc, char **argv) {
    pack_args a = {0};
    const arg_option options[] = {
        {.name = "output",
         .kind = ARG_STRING,
         .target = &a.output,
         .value = "FILE",
         .help = "the pack to write, FILE.churon",
         .shortcut = 'o'},
        {.name = "zstd",
         .kind = ARG_FLAG,
         .target = &a.zstd,
         .help = "compress what is no model file (models are mapped where they lie)"},
        {.name = "list", .kind = ARG_FLAG, .target = &a.list, .help = "say what the pack SOURCE holds"},
        {.name = "check",
         .kind = ARG_FLAG,
         .target = &a.check,
         .help = "the same, after every byte was compared with its digest"},
        {.name = "extract",
         .kind = ARG_STRING,
         .target = &a.extract,
         .value = "DIR",
         .help = "write the files of the pack SOURCE into this new folder"},
    };
    const arg_command c = {
        .name = "pack",
        .synopsis = "SOURCE",
        .summary = "Makes one file of a bundle's folder: the same content gives the same bytes.",
        .details =
            "SOURCE is a folder (or a model file, or with --list, --check and --extract a pack). Names that\n"
            "begin with a dot are left out. The digest is what 'sha256sum' over the sorted list of files\n"
            "gives, of the folder and of its pack alike.",
        .example = "churon pack fraud/ -o fraud.churon\nchuron pack --list fraud.churon\n"
                   "churon pack --extract copy/ fraud.churon",
        .options = options,
        .n_options = sizeof options / sizeof *options,
        .min_args = 1,
        .max_args = 1};
    size_t n_args;
    arg_outcome outcome = args_parse(&c, argc, argv, &a.common, argv, &n_args);
    if (outcome != ARGS_RUN) return outcome == ARGS_DONE ? cli_finish(EXIT_YES) : EXIT_USAGE;
    return dispatch(&c, argv[0], &a);
}

/* registry_commands.c: the commands of `churon registry`, one function each, and their table. */
#include "cli/registry.h"

#include "bundle/sign.h"
#include "registry/exchange.h"
#include "registry/pull/remote.h"

#include <stdio.h>
#include <string.h>

static const char *text_or_empty(const char *text) {
    return text ? text : "";
}

/* {"line": …} and fields: what a change answers. Keys and values in turn, NULL ends them. */
static void answer(registry_args *a, const char *const *pairs, const char *fmt, ...) PRINTF_LIKE(3, 4);
static void answer(registry_args *a, const char *const *pairs, const char *fmt, ...) {
    char line[512];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    json_out j = json_out_begin(&a->out);
    json_out_object(&j, NULL);
    for (; *pairs; pairs += 2) json_out_cstr(&j, pairs[0], pairs[1]);
    json_out_cstr(&j, "line", line);
    json_out_end_object(&j);
}

/* ---- versions --------------------------------------------------------------------------------------- */

/* What --require-signature asks, of what was copied in and with the signatures of the source. */
typedef struct signature_rule {
    sign_keys *keys;
    str signatures; /* path */
} signature_rule;

static status require_signature(void *user, const char *path, str *result, error *err) {
    const signature_rule *rule = user;
    char id[SIGN_ID];
    files *f;
    TRY(files_open(&f, path, err));
    status st = sign_require_at(f, str_cstr(&rule->signatures), rule->keys, id, err);
    if (st == CHURON_OK) str_fmt(result, "signed by key %s", id);
    files_close(f);
    return st;
}

static status make_rule(const registry_args *a, signature_rule *rule, error *err) {
    files *f;
    TRY(sign_keys_load(&rule->keys, a->require_signature, err));
    TRY(files_open(&f, a->words[0], err));
    status st = sign_path(f, &rule->signatures, err);
    files_close(f);
    return st;
}

static status add_with(registry_args *a, const registry_add_options *o, error *err) {
    registry_added r;
    TRY(registry_add(a->r, a->words[0], o, &r, err));
    const store_entry *e = &r.entry;
    json_out j = json_out_begin(&a->out);
    char line[2 * STORE_NAME_MAX + 160], size[CLI_SIZE];
    snprintf(line, sizeof line, "%s:%s %s (%s, digest %s)", e->name, e->version,
             r.already ? "has this content already" : "is registered", cli_size(e->bytes, size), e->digest);
    json_out_object(&j, NULL);
    json_out_cstr(&j, "name", e->name);
    json_out_cstr(&j, "version", e->version);
    json_out_cstr(&j, "digest", e->digest);
    json_out_cstr(&j, "path", str_cstr(&e->path));
    json_out_uint(&j, "bytes", e->bytes);
    json_out_bool(&j, "already", r.already);
    json_out_cstr(&j, "line", line);
    json_out_end_object(&j);
    store_entry_free(&r.entry);
    return CHURON_OK;
}

static status run_add(registry_args *a, error *err) {
    signature_rule rule = {0};
    const registry_add_options o = {.name = a->name,
                                    .version = a->version,
                                    .source = a->source,
                                    .notes = a->notes,
                                    .licence = a->licence,
                                    .owner = a->owner,
                                    .derived_from = a->derived_from,
                                    .quantized_from = a->quantized_from,
                                    .trained_on = a->trained_on,
                                    .verify = a->require_signature ? require_signature : NULL,
                                    .user = &rule};
    status st = a->require_signature ? make_rule(a, &rule, err) : CHURON_OK;
    if (st == CHURON_OK) st = add_with(a, &o, err);
    sign_keys_free(rule.keys);
    str_free(&rule.signatures);
    return st;
}

static status run_list(registry_args *a, error *err) {
    if (!a->r) return remote_list_models(a->home, a->n ? a->words[0] : NULL, &a->out, err);
    return registry_list(a->r, a->n ? a->words[0] : NULL, &a->out, err);
}

static status run_lineage(registry_args *a, error *err) {
    return registry_lineage(a->r, a->words[0], &a->out, err);
}

static status run_show(registry_args *a, error *err) {
    if (!a->r) return remote_show(a->home, a->words[0], &a->out, err);
    return a->lineage ? run_lineage(a, err) : registry_show(a->r, a->words[0], &a->out, err);
}

static status run_check(registry_args *a, error *err) {
    return registry_check(a->r, a->n ? a->words[0] : NULL, &a->out, err);
}

/* ---- verdicts, stages, aliases ----------------------------------------------------------------------- */

static status verdict(registry_args *a, bool approve, error *err) {
    const char *ref = a->words[0], *pairs[] = {"ref",     ref,
                                               "verdict", approve ? "approved" : "rejected",
                                               "by",      registry_actor(a->r),
                                               NULL};
    TRY(registry_approve(a->r, ref, approve, text_or_empty(a->reason), err));
    answer(a, pairs, "%s is %s by %s", ref, approve ? "approved" : "rejected", registry_actor(a->r));
    return CHURON_OK;
}

static status run_approve(registry_args *a, error *err) {
    return verdict(a, true, err);
}

static status run_reject(registry_args *a, error *err) {
    return verdict(a, false, err);
}

static status run_stage(registry_args *a, error *err) {
    const char *pairs[] = {"ref", a->words[0], "stage", a->words[1], NULL};
    TRY(registry_stage(a->r, a->words[0], a->words[1], text_or_empty(a->reason), err));
    answer(a, pairs, "%s is in %s", a->words[0], a->words[1]);
    return CHURON_OK;
}

static status run_alias(registry_args *a, error *err) {
    const char *name = a->words[0], *alias = a->words[1], *version = a->words[2];
    const char *pairs[] = {"name", name, "alias", alias, "version", version, NULL};
    TRY(registry_alias(a->r, name, alias, version, text_or_empty(a->reason), err));
    answer(a, pairs, "%s@%s is %s:%s", name, alias, name, version);
    return CHURON_OK;
}

static status run_unalias(registry_args *a, error *err) {
    const char *pairs[] = {"name", a->words[0], "alias", a->words[1], NULL};
    TRY(registry_alias(a->r, a->words[0], a->words[1], "", text_or_empty(a->reason), err));
    answer(a, pairs, "%s@%s is no more", a->words[0], a->words[1]);
    return CHURON_OK;
}

static status run_rollback(registry_args *a, error *err) {
    char version[STORE_NAME_MAX + 1];
    TRY(registry_rollback(a->r, a->words[0], a->alias, text_or_empty(a->reason), version, err));
    const char *pairs[] = {"name", a->words[0], "version", version, NULL};
    answer(a, pairs, "%s is back at %s:%s", a->words[0], a->words[0], version);
    return CHURON_OK;
}

/* ---- lineage, owner, rights --------------------------------------------------------------------------- */

static status run_link(registry_args *a, error *err) {
    const char *pairs[] = {"ref", a->words[0], "relation", a->words[1], "target", a->words[2], NULL};
    TRY(registry_link(a->r, a->words[0], a->words[1], a->words[2], text_or_empty(a->note), err));
    answer(a, pairs, "%s: %s %s", a->words[0], a->words[1], a->words[2]);
    return CHURON_OK;
}

static status run_verified(registry_args *a, error *err) {
    const char *pairs[] = {"ref", a->words[0], "result", a->words[1], NULL};
    TRY(registry_verified(a->r, a->words[0], !a->failed, a->words[1], err));
    answer(a, pairs, "%s: verified: %s", a->words[0], a->words[1]);
    return CHURON_OK;
}

static status run_owner(registry_args *a, error *err) {
    const char *pairs[] = {"name", a->words[0], "owner", a->words[1], NULL};
    TRY(registry_set_owner(a->r, a->words[0], a->words[1], err));
    answer(a, pairs, "%s belongs to %s", a->words[0], a->words[1]);
    return CHURON_OK;
}

static status rights(registry_args *a, bool grant, error *err) {
    const char *pairs[] = {"name", a->words[0], "subject", a->words[1], "right", a->words[2], NULL};
    TRY(registry_grant(a->r, a->words[0], a->words[1], a->words[2], grant, err));
    answer(a, pairs, "%s %s %s %s", a->words[1], grant ? "may" : "may no longer", a->words[2], a->words[0]);
    return CHURON_OK;
}

static status run_grant(registry_args *a, error *err) {
    return rights(a, true, err);
}

static status run_revoke(registry_args *a, error *err) {
    return rights(a, false, err);
}

static status run_may(registry_args *a, error *err) {
    bool allowed;
    TRY(registry_allowed(a->r, a->words[0], a->words[1], a->words[2], &allowed, err));
    if (!allowed)
        return error_set(err, CHURON_INVALID, "%s may not %s %s", a->words[1], a->words[2], a->words[0]);
    const char *pairs[] = {"name", a->words[0], "subject", a->words[1], "right", a->words[2], NULL};
    answer(a, pairs, "%s may %s %s", a->words[1], a->words[2], a->words[0]);
    return CHURON_OK;
}

/* ---- other registries --------------------------------------------------------------------------------- */

static status run_import(registry_args *a, error *err) {
    return registry_import(a->r, a->words[0], a->name, &a->out, err);
}

static status run_get(registry_args *a, error *err) {
    if (!a->home || !remote_is_url(a->home)) {
        return error_set(err, CHURON_INVALID,
                         "home: expected --home URL of the registry to get it from, got %.100s",
                         a->home ? a->home : "nothing");
    }
    return remote_get(a->r, a->home, a->words[0], a->name, &a->out, err);
}

static status run_export(registry_args *a, error *err) {
    return registry_export(a->r, a->words[0], a->format ? a->format : "plain", a->words[1], &a->out, err);
}

/* ---- retention, log ----------------------------------------------------------------------------------- */

static int64_t given(bool has, uint64_t n) {
    return has ? (int64_t)n : -1;
}

static status run_gc(registry_args *a, error *err) {
    const registry_gc_options o = {.dry_run = a->dry_run,
                                   .keep_last = given(a->has_keep_last, a->keep_last),
                                   .keep_days = given(a->has_keep_days, a->keep_days)};
    return registry_gc(a->r, &o, &a->out, err);
}

static status run_retain(registry_args *a, error *err) {
    int64_t last = given(a->has_keep_last, a->keep_last), days = given(a->has_keep_days, a->keep_days);
    const char *pairs[] = {"name", a->words[0], NULL};
    TRY(registry_retain(a->r, a->words[0], last, days, err));
    answer(a, pairs, last < 0 && days < 0 ? "%s: nothing is removed" : "%s: the rule is kept", a->words[0]);
    return CHURON_OK;
}

static status run_audit(registry_args *a, error *err) {
    status st = registry_audit(a->r, a->check, a->model, &a->out, err);
    if (st != CHURON_OK) str_clear(&a->out); /* a log that was changed has no head to go by */
    return st;
}

/* ---- signatures --------------------------------------------------------------------------------------- */

static status run_keygen(registry_args *a, error *err) {
    char id[SIGN_ID];
    str pub = {0};
    str_fmt(&pub, "%s.pub", a->words[0]);
    status st = str_check(&pub, err);
    if (st == CHURON_OK) st = sign_keygen(a->words[0], str_cstr(&pub), id, err);
    const char *pairs[] = {"private", a->words[0], "public", str_cstr(&pub), "key", id, NULL};
    if (st == CHURON_OK) answer(a, pairs, "key %s: %s (keep it secret), %s", id, a->words[0], str_cstr(&pub));
    str_free(&pub);
    return st;
}

static bool is_path(const char *word) {
    return strchr(word, '/') || file_exists(word);
}

/* A path is signed where it lies; a name in the registry. */
static status run_sign(registry_args *a, error *err) {
    char id[SIGN_ID];
    const char *what = a->words[0];
    if (!a->key) return error_set(err, CHURON_INVALID, "key: expected --key FILE, got nothing");
    if (is_path(what)) {
        files *f;
        TRY(files_open(&f, what, err));
        status st = sign_files(f, a->key, id, err);
        files_close(f);
        TRY(st);
    } else {
        const registry_options o = {.actor = a->by, .write = true};
        TRY(registry_open(&a->r, &o, err));
        TRY(registry_sign(a->r, what, a->key, id, err));
    }
    const char *pairs[] = {"ref", what, "key", id, NULL};
    answer(a, pairs, "%s is signed with key %s", what, id);
    return CHURON_OK;
}

static status signed_path(const char *word, str *path, error *err) {
    store_entry e;
    if (is_path(word)) {
        str_cat(path, word);
        return str_check(path, err);
    }
    TRY(store_find(word, &e, err));
    status st = store_content_path(&e, path, err);
    store_entry_free(&e);
    return st;
}

static status run_verify_signature(registry_args *a, error *err) {
    sign_keys *keys = NULL;
    files *f = NULL;
    str path = {0};
    char id[SIGN_ID];
    if (!a->keys) return error_set(err, CHURON_INVALID, "keys: expected --keys PATH, got nothing");
    status st = sign_keys_load(&keys, a->keys, err);
    if (st == CHURON_OK) st = signed_path(a->words[0], &path, err);
    if (st == CHURON_OK) st = files_open(&f, str_cstr(&path), err);
    if (st == CHURON_OK) st = sign_require(f, keys, id, err);
    const char *pairs[] = {"ref", a->words[0], "key", id, NULL};
    if (st == CHURON_OK) answer(a, pairs, "%s is signed by the trusted key %s", a->words[0], id);
    files_close(f);
    sign_keys_free(keys);
    str_free(&path);
    return st;
}

/* ---- the table ---------------------------------------------------------------------------------------- */

const registry_command registry_commands[] = {
    {"add", "SOURCE",
     "registers a version: a bundle's folder, a .churon pack, a model file, a Hugging Face folder",
     "The content is copied: what happens to SOURCE afterwards does not matter. Versions are immutable.",
     "churon registry add fraud/ --name fraud --derived-from fraud:2 --notes \"new threshold\"",
     "name version notes licence owner source derived-from quantized-from trained-on require-signature", 1, 1,
     REGISTRY_WRITE, run_add, registry_print_line, false},
    {"list", "[NAME]", "models, their versions, stages and aliases", NULL,
     "churon registry list\nchuron registry list fraud --json", "", 0, 1, REGISTRY_READ, run_list,
     registry_print_list, true},
    {"show", "REF", "everything about one version", "REF is NAME, NAME:VERSION or NAME@ALIAS.",
     "churon registry show fraud@champion", "lineage", 1, 1, REGISTRY_READ, run_show, registry_print_show,
     true},
    {"lineage", "REF", "what a version was made of, and what was made of it", NULL,
     "churon registry lineage fraud:3", "", 1, 1, REGISTRY_READ, run_lineage, registry_print_lineage, false},
    {"link", "REF RELATION TARGET", "adds to the lineage: derived_from, quantized_from or trained_on",
     "TARGET is a version (gc keeps it then) or any text.",
     "churon registry link fraud:3 trained_on s3://data/2026-10.parquet", "note", 3, 3, REGISTRY_WRITE,
     run_link, registry_print_line, false},
    {"verified", "REF RESULT", "records that a version was verified on this machine, and with which result",
     NULL, "churon registry verified fraud:3 \"120 golden cases pass\"", "failed", 2, 2, REGISTRY_WRITE,
     run_verified, registry_print_line, false},
    {"approve", "REF", "says yes to a version that somebody else made", NULL,
     "churon registry approve fraud:3 --reason \"golden cases pass, reviewed\"", "reason", 1, 1,
     REGISTRY_WRITE, run_approve, registry_print_line, false},
    {"reject", "REF", "says no; an alias can no longer be set to it", NULL,
     "churon registry reject fraud:3 --reason \"biased\"", "reason", 1, 1, REGISTRY_WRITE, run_reject,
     registry_print_line, false},
    {"stage", "REF STAGE", "draft, staging, production (needs an approval) or archived", NULL,
     "churon registry stage fraud:3 production --reason \"release 12\"", "reason", 2, 2, REGISTRY_WRITE,
     run_stage, registry_print_line, false},
    {"alias", "NAME ALIAS VERSION", "has NAME@ALIAS mean this version from now on",
     "champion needs an approved version.", "churon registry alias fraud champion 3", "reason", 3, 3,
     REGISTRY_WRITE, run_alias, registry_print_line, false},
    {"unalias", "NAME ALIAS", "takes an alias away", NULL, "churon registry unalias fraud canary", "reason",
     2, 2, REGISTRY_WRITE, run_unalias, registry_print_line, false},
    {"rollback", "NAME", "the alias goes back to the version before", NULL,
     "churon registry rollback fraud --reason \"drift\"", "alias reason", 1, 1, REGISTRY_WRITE, run_rollback,
     registry_print_line, false},
    {"owner", "NAME WHO", "who answers for a model", NULL, "churon registry owner fraud risk@example.com", "",
     2, 2, REGISTRY_WRITE, run_owner, registry_print_line, false},
    {"grant", "NAME SUBJECT RIGHT", "call, read, write, promote or admin; none contains another",
     "A model without any grant is open to all; \"*\" is everybody. To call a model is not to read its "
     "files.",
     "churon registry grant fraud shop call", "", 3, 3, REGISTRY_WRITE, run_grant, registry_print_line,
     false},
    {"revoke", "NAME SUBJECT RIGHT", "takes a right away", NULL, "churon registry revoke fraud shop call", "",
     3, 3, REGISTRY_WRITE, run_revoke, registry_print_line, false},
    {"may", "NAME SUBJECT RIGHT", "has the subject this right? Exit status 0 or 1", NULL,
     "churon registry may fraud shop call", "", 3, 3, REGISTRY_READ, run_may, registry_print_line, false},
    {"retain", "NAME", "the model's rule for gc; without options: nothing is removed", NULL,
     "churon registry retain fraud --keep-last 10 --keep-days 365", "keep-last keep-days", 1, 1,
     REGISTRY_WRITE, run_retain, registry_print_line, false},
    {"gc", "", "removes versions beyond the rules and contents that no version has",
     "Never what an alias, staging, production, lineage or a running server uses.",
     "churon registry gc --dry-run\nchuron registry gc --keep-last 5", "dry-run keep-last keep-days", 0, 0,
     REGISTRY_WRITE, run_gc, registry_print_gc, false},
    {"check", "[REF]", "is each version's content still what was registered?", NULL, "churon registry check",
     "", 0, 1, REGISTRY_READ, run_check, registry_print_check, false},
    {"audit", "", "who did what and when; --check recomputes the chain of hashes", NULL,
     "churon registry audit --check", "check model", 0, 0, REGISTRY_READ, run_audit, registry_print_audit,
     false},
    {"import", "PATH",
     "takes in an MLflow (ONNX), Triton or Hugging Face folder, or an ONNX file with its metadata", NULL,
     "churon registry import mlruns/0/abc/artifacts/model --name fraud", "name", 1, 1, REGISTRY_WRITE,
     run_import, registry_print_added, false},
    {"export", "REF DIR", "writes a version for somebody else: plain, pack, mlflow or triton", NULL,
     "churon registry export fraud@champion repository/ --format triton", "format", 2, 2, REGISTRY_READ,
     run_export, registry_print_line, false},
    {"get", "REF", "brings a version of a registry that a web server shows into this one",
     "The server needs to show the registry's folder as files; nothing that it sends is believed unchecked.",
     "churon registry get fraud@champion --home https://models.example.com/registry", "name", 1, 1,
     REGISTRY_WRITE, run_get, registry_print_line, true},
    {"keygen", "FILE", "makes an Ed25519 key: FILE and FILE.pub", NULL, "churon registry keygen release.pem",
     "", 1, 1, REGISTRY_NONE, run_keygen, registry_print_line, false},
    {"sign", "REF", "signs a version's digest, or the bundle at a path", NULL,
     "churon registry sign fraud:3 --key release.pem", "key", 1, 1, REGISTRY_NONE, run_sign,
     registry_print_line, false},
    {"verify-signature", "REF", "is it signed by a trusted key, and unchanged since? Exit status 0 or 1",
     NULL, "churon registry verify-signature fraud@champion --keys release.pem.pub", "keys", 1, 1,
     REGISTRY_NONE, run_verify_signature, registry_print_line, false},
};
const size_t registry_n_commands = sizeof registry_commands / sizeof *registry_commands;

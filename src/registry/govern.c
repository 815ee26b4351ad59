/* govern.c: who says which version answers: aliases, rollback, stages, verdicts, owners, rights, lineage. */
#include "registry/db.h"

#include "base/clock.h"
#include "registry/place.h"

#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>

enum { REASON_MAX = 2000 };

static status check_text(const char *text, const char *field, error *err) {
    size_t n = strlen(text);
    if (n > REASON_MAX)
        return error_set(err, CHURON_INVALID, "%s: expected at most %d bytes, got %zu", field, REASON_MAX, n);
    if (utf8_validate(text, n) != n)
        return error_set(err, CHURON_INVALID, "%s: expected UTF-8, got other bytes", field);
    return CHURON_OK;
}

/* One JSON object of up to four strings; a NULL key ends them. */
static status log_words(registry *r, const char *action, const char *subject, const char *const *pairs,
                        error *err) {
    str detail = {0};
    json_out j = json_out_begin(&detail);
    json_out_object(&j, NULL);
    for (; *pairs; pairs += 2) json_out_cstr(&j, pairs[0], pairs[1]);
    json_out_end_object(&j);
    status st = db_log(r, action, subject, &detail, err);
    str_free(&detail);
    return st;
}

/* Ends the transaction and, if it held, has the files follow. */
static status finish(registry *r, status st, error *err) {
    TRY(db_end(r, st, err));
    return db_project(r, err);
}

static void ref_of(const version_row *v, char ref[2 * STORE_NAME_MAX + 2]) {
    snprintf(ref, 2 * STORE_NAME_MAX + 2, "%s:%s", v->name, v->version);
}

/* ---- rights ----------------------------------------------------------------------------------------- */

static const char *const rights[] = {"call", "read", "write", "promote", "admin"};

static status check_right(const char *right, error *err) {
    for (size_t i = 0; i < sizeof rights / sizeof *rights; i++) {
        if (strcmp(rights[i], right) == 0) return CHURON_OK;
    }
    return error_set(err, CHURON_INVALID,
                     "RIGHT: expected call, read, write, promote or admin, got \"%.60s\"", right);
}

status registry_allowed(registry *r, const char *name, const char *subject, const char *right, bool *allowed,
                        error *err) {
    int64_t model, count;
    bool there;
    TRY(check_right(right, err));
    TRY(db_model(r, name, &model, err));
    TRY(db_value(r, &count, &there, err, "SELECT count(*) FROM grants WHERE model=?", "i", model));
    *allowed = count == 0;
    if (*allowed) return CHURON_OK;
    TRY(db_value(r, &count, &there, err,
                 "SELECT (SELECT count(*) FROM models WHERE id=?1 AND owner=?2) + (SELECT count(*) FROM "
                 "grants WHERE model=?1"
                 " AND subject IN (?2, '*') AND access=?3)",
                 "iss", model, subject, right));
    *allowed = count > 0;
    return CHURON_OK;
}

status db_may(registry *r, const char *name, const char *right, error *err) {
    bool allowed;
    status st = registry_allowed(r, name, r->actor, right, &allowed, err);
    if (st == CHURON_NOT_FOUND && strcmp(right, "write") == 0) return CHURON_OK; /* a new model */
    if (st != CHURON_OK || allowed) return st;
    return error_set(err, CHURON_INVALID, "%s: %s: expected somebody with the right %s, got %s", right, name,
                     right, r->actor);
}

status registry_grant(registry *r, const char *name, const char *subject, const char *right, bool grant,
                      error *err) {
    int64_t model;
    TRY(check_right(right, err));
    TRY(db_check_subject(subject, "SUBJECT", err));
    TRY(db_begin(r, err));
    status st = db_model(r, name, &model, err);
    if (st == CHURON_OK) st = db_may(r, name, "admin", err);
    if (st == CHURON_OK) {
        st = db_run(r, err,
                    grant ? "INSERT OR IGNORE INTO grants VALUES(?,?,?)"
                          : "DELETE FROM grants WHERE model=? AND subject=? AND access=?",
                    "iss", model, subject, right);
    }
    if (st == CHURON_OK && !grant && !sqlite3_changes(r->db)) {
        st = error_set(err, CHURON_NOT_FOUND, "%s: expected a right that %s has, got %s", name, subject,
                       right);
    }
    const char *const pairs[] = {"subject", subject, "right", right, NULL};
    if (st == CHURON_OK) st = log_words(r, grant ? "grant" : "revoke", name, pairs, err);
    return finish(r, st, err);
}

status registry_set_owner(registry *r, const char *name, const char *owner, error *err) {
    int64_t model;
    TRY(db_check_subject(owner, "OWNER", err));
    TRY(db_begin(r, err));
    status st = db_model(r, name, &model, err);
    if (st == CHURON_OK) st = db_may(r, name, "admin", err);
    if (st == CHURON_OK) st = db_run(r, err, "UPDATE models SET owner=? WHERE id=?", "si", owner, model);
    const char *const pairs[] = {"owner", owner, NULL};
    if (st == CHURON_OK) st = log_words(r, "owner", name, pairs, err);
    return finish(r, st, err);
}

/* ---- verdicts and stages ---------------------------------------------------------------------------- */

static status verdict_of(registry *r, int64_t version, char verdict[STORE_NAME_MAX + 1], error *err) {
    bool there;
    return db_word(r, verdict, &there, err,
                   "SELECT verdict FROM verdicts WHERE version=? ORDER BY id DESC LIMIT 1", "i", version);
}

static status stage_of(registry *r, int64_t version, char stage[STORE_NAME_MAX + 1], error *err) {
    bool there;
    return db_word(r, stage, &there, err, "SELECT stage FROM stages WHERE version=? ORDER BY id DESC LIMIT 1",
                   "i", version);
}

/* The version that a change is about: there, not removed, and the actor may. */
static status subject_of(registry *r, const char *ref, const char *right, version_row *v, error *err) {
    TRY(db_version(r, ref, v, err));
    if (v->removed) {
        return error_set(err, CHURON_INVALID,
                         "VERSION: expected one that is there, got %s:%s, which was removed", v->name,
                         v->version);
    }
    return db_may(r, v->name, right, err);
}

/* A version that answers under a name of its own choosing cannot be rejected or archived. @latest only says
 * which came last. */
static status check_unnamed(registry *r, const version_row *v, const char *change, error *err) {
    char alias[STORE_NAME_MAX + 1];
    bool there;
    TRY(db_word(r, alias, &there, err,
                "SELECT alias FROM aliases WHERE version=? AND alias<>'latest' ORDER BY alias LIMIT 1", "i",
                v->id));
    if (!there) return CHURON_OK;
    return error_set(
        err, CHURON_INVALID,
        "%s: expected a version to which no alias points, got %s:%s, which is %s@%s. Roll that back first",
        change, v->name, v->version, v->name, alias);
}

static status write_verdict(registry *r, const char *ref, const char *verdict, const char *reason,
                            error *err) {
    version_row v;
    char subject[2 * STORE_NAME_MAX + 2];
    TRY(subject_of(r, ref, "promote", &v, err));
    if (strcmp(v.author, r->actor) == 0) {
        return error_set(err, CHURON_INVALID,
                         "by: %s:%s: expected a verdict of somebody other than its author, got one of %s",
                         v.name, v.version, r->actor);
    }
    if (strcmp(verdict, "rejected") == 0) TRY(check_unnamed(r, &v, "VERDICT: rejected", err));
    TRY(db_run(r, err, "INSERT INTO verdicts(version, verdict, time, actor, reason) VALUES(?,?,?,?,?)",
               "isiss", v.id, verdict, clock_unix(), r->actor, reason));
    ref_of(&v, subject);
    const char *const pairs[] = {"reason", reason, "digest", v.digest, NULL};
    return log_words(r, verdict[0] == 'a' ? "approve" : "reject", subject, pairs, err);
}

status registry_approve(registry *r, const char *ref, bool approve, const char *reason, error *err) {
    TRY(check_text(reason, "reason", err));
    TRY(db_begin(r, err));
    return finish(r, write_verdict(r, ref, approve ? "approved" : "rejected", reason, err), err);
}

static status check_stage(registry *r, const version_row *v, const char *stage, error *err) {
    static const char *const stages[] = {"draft", "staging", "production", "archived"};
    char verdict[STORE_NAME_MAX + 1];
    bool known = false;
    for (size_t i = 0; i < 4; i++) known = known || strcmp(stage, stages[i]) == 0;
    if (!known) {
        return error_set(err, CHURON_INVALID,
                         "STAGE: expected draft, staging, production or archived, got \"%.60s\"", stage);
    }
    TRY(verdict_of(r, v->id, verdict, err));
    if (strcmp(stage, "production") == 0 && strcmp(verdict, "approved") != 0) {
        return error_set(err, CHURON_INVALID,
                         "STAGE: production: expected an approved version, got %s:%s, which %s", v->name,
                         v->version, verdict[0] ? "was rejected" : "nobody has approved");
    }
    return strcmp(stage, "archived") == 0 ? check_unnamed(r, v, "STAGE: archived", err) : CHURON_OK;
}

static status write_stage(registry *r, const char *ref, const char *stage, const char *reason, error *err) {
    version_row v;
    char subject[2 * STORE_NAME_MAX + 2];
    TRY(subject_of(r, ref, "promote", &v, err));
    TRY(check_stage(r, &v, stage, err));
    TRY(db_run(r, err, "INSERT INTO stages(version, stage, time, actor, reason) VALUES(?,?,?,?,?)", "isiss",
               v.id, stage, clock_unix(), r->actor, reason));
    ref_of(&v, subject);
    const char *const pairs[] = {"stage", stage, "reason", reason, NULL};
    return log_words(r, "stage", subject, pairs, err);
}

status registry_stage(registry *r, const char *ref, const char *stage, const char *reason, error *err) {
    TRY(check_text(reason, "reason", err));
    TRY(db_begin(r, err));
    return finish(r, write_stage(r, ref, stage, reason, err), err);
}

/* ---- aliases ---------------------------------------------------------------------------------------- */

/* May an alias point to this version? */
static status check_alias(registry *r, const char *alias, const version_row *v, error *err) {
    char verdict[STORE_NAME_MAX + 1], stage[STORE_NAME_MAX + 1];
    TRY(verdict_of(r, v->id, verdict, err));
    TRY(stage_of(r, v->id, stage, err));
    const char *fault = NULL;
    if (strcmp(verdict, "rejected") == 0) fault = "was rejected";
    if (strcmp(stage, "archived") == 0) fault = "is archived";
    if (!fault && strcmp(alias, "champion") == 0 && strcmp(verdict, "approved") != 0)
        fault = "nobody has approved";
    if (!fault) return CHURON_OK;
    return error_set(err, CHURON_INVALID,
                     "ALIAS: %s: expected a version that may answer, got %s:%s, which %s", alias, v->name,
                     v->version, fault);
}

static status point(registry *r, const version_row *v, const char *alias, const char *reason, bool back,
                    error *err) {
    TRY(check_alias(r, alias, v, err));
    TRY(place_alias(r, v->model, alias, v->id, reason, back, err));
    const char *const pairs[] = {"alias", alias, "version", v->version, "reason", reason, NULL};
    return log_words(r, back ? "rollback" : "alias", v->name, pairs, err);
}

static status unset(registry *r, const char *name, const char *alias, const char *reason, error *err) {
    int64_t model;
    TRY(db_model(r, name, &model, err));
    TRY(db_may(r, name, "promote", err));
    TRY(db_run(r, err, "DELETE FROM aliases WHERE model=? AND alias=?", "is", model, alias));
    if (!sqlite3_changes(r->db)) {
        return error_set(err, CHURON_NOT_FOUND, "ALIAS: expected an alias of %s, got \"%.100s\"", name,
                         alias);
    }
    TRY(db_run(r, err,
               "INSERT INTO alias_history(model, alias, version, time, actor, reason) VALUES(?,?,NULL,?,?,?)",
               "isiss", model, alias, clock_unix(), r->actor, reason));
    const char *const pairs[] = {"alias", alias, "reason", reason, NULL};
    return log_words(r, "unalias", name, pairs, err);
}

static status set(registry *r, const char *name, const char *alias, const char *version, const char *reason,
                  error *err) {
    char ref[2 * STORE_NAME_MAX + 2];
    version_row v;
    snprintf(ref, sizeof ref, "%s:%s", name, version);
    TRY(subject_of(r, ref, "promote", &v, err));
    return point(r, &v, alias, reason, false, err);
}

status registry_alias(registry *r, const char *name, const char *alias, const char *version,
                      const char *reason, error *err) {
    TRY(check_text(reason, "reason", err));
    TRY(db_check_word(alias, "ALIAS", err));
    TRY(db_check_word(name, "NAME", err));
    if (*version) TRY(db_check_word(version, "VERSION", err));
    TRY(db_begin(r, err));
    status st = *version ? set(r, name, alias, version, reason, err) : unset(r, name, alias, reason, err);
    return finish(r, st, err);
}

/* The history is a stack for this: pointing pushes, a rollback pops. Walks it from the start. */
static status previous_version(registry *r, int64_t model, const char *alias, int64_t *out, error *err) {
    enum { DEPTH = 1000 };
    int64_t stack[DEPTH];
    size_t n = 0;
    db_rows rows;
    bool there = true;
    status st = db_query(r, &rows, err,
                         "SELECT version, back FROM alias_history WHERE model=? AND alias=? ORDER BY id",
                         "is", model, alias);
    while (st == CHURON_OK && there) {
        st = db_next(&rows, &there, err);
        if (st != CHURON_OK || !there || db_is_null(&rows, 0)) continue;
        int64_t v = db_int(&rows, 0);
        if (db_int(&rows, 1)) { /* back to v, which lies in the stack */
            while (n > 0 && stack[n - 1] != v) n--;
            if (n == 0) stack[n++] = v;
        } else if (n == 0 || stack[n - 1] != v) {
            if (n == DEPTH) memmove(stack, stack + 1, --n * sizeof *stack);
            stack[n++] = v;
        }
    }
    db_close_rows(&rows);
    *out = 0;
    for (size_t i = n; st == CHURON_OK && i > 1 && !*out; i--) {
        int64_t gone;
        char verdict[STORE_NAME_MAX + 1];
        st = db_value(r, &gone, &there, err, "SELECT 1 FROM removed WHERE version=?", "i", stack[i - 2]);
        if (st == CHURON_OK && !there) st = verdict_of(r, stack[i - 2], verdict, err);
        if (st == CHURON_OK && !there && strcmp(verdict, "rejected") != 0) *out = stack[i - 2];
    }
    return st;
}

static status roll(registry *r, const char *name, const char *alias, const char *reason,
                   char version[STORE_NAME_MAX + 1], error *err) {
    int64_t model, id, before;
    bool there;
    char ref[2 * STORE_NAME_MAX + 2];
    version_row v;
    TRY(db_model(r, name, &model, err));
    TRY(db_may(r, name, "promote", err));
    if (!alias) {
        TRY(db_value(r, &id, &there, err, "SELECT version FROM aliases WHERE model=? AND alias='champion'",
                     "i", model));
        alias = there ? "champion" : "latest";
    }
    TRY(previous_version(r, model, alias, &before, err));
    if (!before) {
        return error_set(err, CHURON_NOT_FOUND,
                         "ALIAS: %s@%s: expected an earlier version that is there, got none", name, alias);
    }
    TRY(db_word(r, version, &there, err, "SELECT version FROM versions WHERE id=?", "i", before));
    snprintf(ref, sizeof ref, "%s:%s", name, version);
    TRY(db_version(r, ref, &v, err));
    return point(r, &v, alias, reason, true, err);
}

status registry_rollback(registry *r, const char *name, const char *alias, const char *reason,
                         char version[STORE_NAME_MAX + 1], error *err) {
    TRY(check_text(reason, "reason", err));
    if (alias) TRY(db_check_word(alias, "ALIAS", err));
    TRY(db_begin(r, err));
    return finish(r, roll(r, name, alias, reason, version, err), err);
}

/* ---- lineage ---------------------------------------------------------------------------------------- */

/* Would the edge close a circle? */
static status check_circle(registry *r, int64_t from, int64_t to, error *err) {
    int64_t found;
    bool there;
    TRY(db_value(
        r, &found, &there, err,
        "WITH RECURSIVE above(id) AS (SELECT ?1 UNION SELECT l.target_version FROM lineage l JOIN above a"
        " ON l.version=a.id WHERE l.target_version IS NOT NULL) SELECT 1 FROM above WHERE id=?2",
        "ii", to, from));
    if (!there) return CHURON_OK;
    return error_set(err, CHURON_INVALID,
                     "TARGET: expected a version that does not descend from this one, got one that does");
}

/* NAME:VERSION or NAME@ALIAS of this registry; anything else names something outside. */
static status version_inside(registry *r, const char *target, version_row *t, bool *inside, error *err) {
    store_ref named;
    error why;
    *inside = false;
    if (store_ref_parse(&named, target, NULL) != CHURON_OK || (!named.version[0] && !named.alias[0]))
        return CHURON_OK;
    status st = db_version(r, target, t, &why);
    *inside = st == CHURON_OK;
    if (st == CHURON_OK || st == CHURON_NOT_FOUND) return CHURON_OK;
    if (err) *err = why;
    return st;
}

status place_link(registry *r, const char *ref, const char *relation, const char *target, const char *note,
                  error *err) {
    static const char *const relations[] = {"derived_from", "quantized_from", "trained_on"};
    version_row v, t;
    char subject[2 * STORE_NAME_MAX + 2], whole[2 * STORE_NAME_MAX + 2];
    bool known = false, inside;
    for (size_t i = 0; i < 3; i++) known = known || strcmp(relation, relations[i]) == 0;
    if (!known) {
        return error_set(err, CHURON_INVALID,
                         "RELATION: expected derived_from, quantized_from or trained_on, got \"%.60s\"",
                         relation);
    }
    TRY(check_text(target, "TARGET", err));
    TRY(check_text(note, "note", err));
    TRY(subject_of(r, ref, "write", &v, err));
    TRY(version_inside(r, target, &t, &inside, err));
    if (inside) {
        TRY(check_circle(r, v.id, t.id, err));
        ref_of(&t, whole);
        TRY(db_run(r, err,
                   "INSERT INTO lineage(version, relation, target, target_version, note, time, actor) "
                   "VALUES(?,?,?,?,?,?,?)",
                   "issisis", v.id, relation, whole, t.id, note, clock_unix(), r->actor));
    } else {
        TRY(db_run(r, err,
                   "INSERT INTO lineage(version, relation, target, note, time, actor) VALUES(?,?,?,?,?,?)",
                   "isssis", v.id, relation, target, note, clock_unix(), r->actor));
    }
    ref_of(&v, subject);
    const char *const pairs[] = {"relation", relation, "target", inside ? whole : target, NULL};
    return log_words(r, "link", subject, pairs, err);
}

status registry_link(registry *r, const char *ref, const char *relation, const char *target, const char *note,
                     error *err) {
    TRY(db_begin(r, err));
    return finish(r, place_link(r, ref, relation, target, note ? note : "", err), err);
}

static status write_verified(registry *r, const char *ref, bool good, const char *result, error *err) {
    version_row v;
    char subject[2 * STORE_NAME_MAX + 2];
    struct utsname machine = {0};
    TRY(db_version(r, ref, &v, err));
    (void)uname(&machine);
    TRY(db_run(r, err, "INSERT INTO verified(version, ok, result, machine, time, actor) VALUES(?,?,?,?,?,?)",
               "iissis", v.id, (int64_t)good, result, machine.nodename, clock_unix(), r->actor));
    ref_of(&v, subject);
    const char *const pairs[] = {"ok",      good ? "yes" : "no", "result", result,
                                 "machine", machine.nodename,    NULL};
    return log_words(r, "verified", subject, pairs, err);
}

status registry_verified(registry *r, const char *ref, bool ok, const char *result, error *err) {
    TRY(check_text(result, "result", err));
    TRY(db_begin(r, err));
    return finish(r, write_verified(r, ref, ok, result, err), err);
}

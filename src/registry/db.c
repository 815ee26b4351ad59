/* db.c: see db.h. */
#define _DEFAULT_SOURCE 1
#include "registry/db.h"

#include "base/clock.h"
#include "base/disk.h"
#include "base/file.h"
#include "base/mem.h"

#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

enum { WAIT_MS = 10000, SCHEMA = 1 };

/* Immutable is what has no UPDATE in it anywhere, and triggers that refuse one. */
static const char schema[] =
    "CREATE TABLE models(id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, owner TEXT NOT NULL, created "
    "INTEGER NOT NULL,"
    "  keep_last INTEGER NOT NULL DEFAULT -1, keep_days INTEGER NOT NULL DEFAULT -1);"
    "CREATE TABLE versions(id INTEGER PRIMARY KEY, model INTEGER NOT NULL REFERENCES models, version TEXT "
    "NOT NULL,"
    "  kind TEXT NOT NULL, digest TEXT NOT NULL, bytes INTEGER NOT NULL, author TEXT NOT NULL, added INTEGER "
    "NOT NULL,"
    "  source TEXT NOT NULL, notes TEXT NOT NULL, licence TEXT NOT NULL, UNIQUE(model, version));"
    "CREATE TABLE files(version INTEGER NOT NULL REFERENCES versions, path TEXT NOT NULL, bytes INTEGER NOT "
    "NULL,"
    "  sha256 TEXT NOT NULL, PRIMARY KEY(version, path)) WITHOUT ROWID;"
    "CREATE INDEX files_by_content ON files(sha256);"
    "CREATE TABLE removed(version INTEGER PRIMARY KEY REFERENCES versions, time INTEGER NOT NULL, actor TEXT "
    "NOT NULL);"
    "CREATE TABLE aliases(model INTEGER NOT NULL REFERENCES models, alias TEXT NOT NULL,"
    "  version INTEGER NOT NULL REFERENCES versions, PRIMARY KEY(model, alias)) WITHOUT ROWID;"
    "CREATE TABLE alias_history(id INTEGER PRIMARY KEY, model INTEGER NOT NULL REFERENCES models, alias TEXT "
    "NOT NULL,"
    "  version INTEGER REFERENCES versions, time INTEGER NOT NULL, actor TEXT NOT NULL, reason TEXT NOT NULL,"
    "  back INTEGER NOT NULL DEFAULT 0);"
    "CREATE TABLE stages(id INTEGER PRIMARY KEY, version INTEGER NOT NULL REFERENCES versions, stage TEXT "
    "NOT NULL,"
    "  time INTEGER NOT NULL, actor TEXT NOT NULL, reason TEXT NOT NULL);"
    "CREATE INDEX stages_of ON stages(version);"
    "CREATE TABLE verdicts(id INTEGER PRIMARY KEY, version INTEGER NOT NULL REFERENCES versions, verdict "
    "TEXT NOT NULL,"
    "  time INTEGER NOT NULL, actor TEXT NOT NULL, reason TEXT NOT NULL);"
    "CREATE INDEX verdicts_of ON verdicts(version);"
    "CREATE TABLE lineage(id INTEGER PRIMARY KEY, version INTEGER NOT NULL REFERENCES versions, relation "
    "TEXT NOT NULL,"
    "  target TEXT NOT NULL, target_version INTEGER REFERENCES versions, note TEXT NOT NULL, time INTEGER "
    "NOT NULL,"
    "  actor TEXT NOT NULL);"
    "CREATE TABLE verified(id INTEGER PRIMARY KEY, version INTEGER NOT NULL REFERENCES versions, ok INTEGER "
    "NOT NULL,"
    "  result TEXT NOT NULL, machine TEXT NOT NULL, time INTEGER NOT NULL, actor TEXT NOT NULL);"
    "CREATE TABLE grants(model INTEGER NOT NULL REFERENCES models, subject TEXT NOT NULL, access TEXT NOT "
    "NULL,"
    "  PRIMARY KEY(model, subject, access)) WITHOUT ROWID;"
    "CREATE TABLE signatures(id INTEGER PRIMARY KEY, version INTEGER NOT NULL REFERENCES versions, key_id "
    "TEXT NOT NULL,"
    "  signature TEXT NOT NULL, time INTEGER NOT NULL, actor TEXT NOT NULL, UNIQUE(version, key_id));"
    "CREATE TABLE audit(id INTEGER PRIMARY KEY, time INTEGER NOT NULL, actor TEXT NOT NULL, action TEXT NOT "
    "NULL,"
    "  subject TEXT NOT NULL, detail TEXT NOT NULL, hash TEXT NOT NULL);";

static const char *const grow_only[] = {"versions", "files",   "removed",  "alias_history", "stages",
                                        "verdicts", "lineage", "verified", "signatures",    "audit"};

/* ---- errors ----------------------------------------------------------------------------------------- */

static bool is_full(int code) {
    return code == ENOSPC || code == EDQUOT;
}

static status db_error(const registry *r, error *err) {
    int code = sqlite3_errcode(r->db) & 0xff; /* of NULL: SQLITE_NOMEM */
    const char *why = sqlite3_errmsg(r->db), *home = str_cstr(&r->home);
    switch (code) {
    case SQLITE_NOMEM: return error_no_memory(err, "registry", 0);
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return error_set(err, CHURON_BUSY,
                         "%s/registry.db: locked by another process for more than %d s. Try again", home,
                         WAIT_MS / 1000);
    case SQLITE_IOERR:
        if (!is_full(sqlite3_system_errno(r->db)))
            return error_set(err, CHURON_IO, "%s/registry.db: %s", home, why);
        /* fall through */
    case SQLITE_FULL:
        return error_set(err, CHURON_LIMIT, "%s/registry.db: the disk is full. Make room or set CHURON_HOME",
                         home);
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        return error_set(err, CHURON_CORRUPT, "%s/registry.db: expected a database of the registry: %s", home,
                         why);
    case SQLITE_CONSTRAINT: return error_set(err, CHURON_INVALID, "registry: %s", why);
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_CANTOPEN:
        return error_set(err, CHURON_IO, "%s/registry.db: cannot be written here: %s", home, why);
    default: return error_set(err, CHURON_IO, "%s/registry.db: %s", home, why);
    }
}

/* ---- statements ------------------------------------------------------------------------------------- */

static status prepare(registry *r, sqlite3_stmt **out, const char *sql, const char *types, va_list ap,
                      error *err) {
    *out = NULL;
    if (!r->db) {
        return error_set(err, CHURON_NOT_FOUND,
                         "%s: expected a registry, got none: 'churon registry add' makes one",
                         str_cstr(&r->home));
    }
    if (sqlite3_prepare_v2(r->db, sql, -1, out, NULL) != SQLITE_OK) return db_error(r, err);
    int code = SQLITE_OK;
    for (int i = 0; types[i] && code == SQLITE_OK; i++) {
        if (types[i] == 'i') {
            code = sqlite3_bind_int64(*out, i + 1, va_arg(ap, int64_t));
        } else {
            code = sqlite3_bind_text(*out, i + 1, va_arg(ap, const char *), -1, SQLITE_TRANSIENT);
        }
    }
    if (code == SQLITE_OK) return CHURON_OK;
    status st = db_error(r, err);
    sqlite3_finalize(*out);
    *out = NULL;
    return st;
}

status db_query(registry *r, db_rows *out, error *err, const char *sql, const char *types, ...) {
    va_list ap;
    *out = (db_rows){.r = r};
    va_start(ap, types);
    status st = prepare(r, &out->stmt, sql, types, ap, err);
    va_end(ap);
    return st;
}

status db_next(db_rows *rows, bool *there, error *err) {
    int code = sqlite3_step(rows->stmt);
    *there = code == SQLITE_ROW;
    return code == SQLITE_ROW || code == SQLITE_DONE ? CHURON_OK : db_error(rows->r, err);
}

const char *db_text(const db_rows *rows, int column) {
    const unsigned char *text = sqlite3_column_text(rows->stmt, column);
    return text ? (const char *)text : "";
}

bool db_is_null(const db_rows *rows, int column) {
    return sqlite3_column_type(rows->stmt, column) == SQLITE_NULL;
}

int64_t db_int(const db_rows *rows, int column) {
    return sqlite3_column_int64(rows->stmt, column);
}

void db_close_rows(db_rows *rows) {
    sqlite3_finalize(rows->stmt);
    *rows = (db_rows){0};
}

static status step_once(registry *r, sqlite3_stmt *stmt, error *err) {
    int code = sqlite3_step(stmt);
    status st = code == SQLITE_ROW || code == SQLITE_DONE ? CHURON_OK : db_error(r, err);
    sqlite3_finalize(stmt);
    return st;
}

status db_run(registry *r, error *err, const char *sql, const char *types, ...) {
    va_list ap;
    sqlite3_stmt *stmt;
    va_start(ap, types);
    status st = prepare(r, &stmt, sql, types, ap, err);
    va_end(ap);
    return st == CHURON_OK ? step_once(r, stmt, err) : st;
}

status db_value(registry *r, int64_t *out, bool *there, error *err, const char *sql, const char *types, ...) {
    db_rows rows = {.r = r};
    va_list ap;
    *there = false;
    *out = 0;
    va_start(ap, types);
    status st = prepare(r, &rows.stmt, sql, types, ap, err);
    va_end(ap);
    if (st == CHURON_OK) st = db_next(&rows, there, err);
    if (st == CHURON_OK && *there) *out = db_int(&rows, 0);
    db_close_rows(&rows);
    return st;
}

status db_word(registry *r, char out[STORE_NAME_MAX + 1], bool *there, error *err, const char *sql,
               const char *types, ...) {
    db_rows rows = {.r = r};
    va_list ap;
    *there = false;
    out[0] = '\0';
    va_start(ap, types);
    status st = prepare(r, &rows.stmt, sql, types, ap, err);
    va_end(ap);
    if (st == CHURON_OK) st = db_next(&rows, there, err);
    if (st == CHURON_OK && *there) {
        const char *text = db_text(&rows, 0);
        size_t n = strlen(text);
        if (n > STORE_NAME_MAX) n = STORE_NAME_MAX;
        memcpy(out, text, n);
        out[n] = '\0';
    }
    db_close_rows(&rows);
    return st;
}

/* ---- transactions ----------------------------------------------------------------------------------- */

status db_begin(registry *r, error *err) {
    if (!r->write) return error_set(err, CHURON_INTERNAL, "registry: opened for reading");
    return db_run(r, err, "BEGIN IMMEDIATE", "");
}

status db_end(registry *r, status st, error *err) {
    if (st == CHURON_OK) st = db_run(r, err, "COMMIT", "");
    if (st != CHURON_OK)
        (void)sqlite3_exec(r->db, "ROLLBACK", NULL, NULL, NULL); /* it may have happened already */
    return st;
}

status db_log(registry *r, const char *action, const char *subject, const str *detail, error *err) {
    char before[DIGEST_HEX] = "", hash[DIGEST_HEX];
    int64_t id, now = clock_unix();
    bool there;
    db_rows rows;
    TRY(str_check(detail, err));
    status st = db_query(r, &rows, err, "SELECT id, hash FROM audit ORDER BY id DESC LIMIT 1", "");
    if (st == CHURON_OK) st = db_next(&rows, &there, err);
    id = st == CHURON_OK && there ? db_int(&rows, 0) + 1 : 1;
    if (st == CHURON_OK && there) st = digest_parse(db_text(&rows, 1), before, err);
    db_close_rows(&rows);
    TRY(st);
    str text = {0};
    str_fmt(&text, "%s\n%lld\n%lld\n%s\n%s\n%s\n%s", before, (long long)id, (long long)now, r->actor, action,
            subject, str_cstr(detail));
    st = str_check(&text, err);
    if (st == CHURON_OK) st = digest_bytes(text.data, text.len, hash, err);
    str_free(&text);
    TRY(st);
    return db_run(r, err, "INSERT INTO audit VALUES(?,?,?,?,?,?,?)", "iisssss", id, now, r->actor, action,
                  subject, str_cstr(detail), hash);
}

/* ---- opening ---------------------------------------------------------------------------------------- */

/* Does the folder lie on another machine? Write-ahead logging needs memory that its users share. */
static bool is_remote(const char *path) {
    static const unsigned long kinds[] = {
        0x6969 /* nfs */,      0xff534d42 /* cifs */, 0xfe534d42 /* smb2 */,
        0x517b /* smb */,      0x01021997 /* 9p */,   0x5346414f /* afs */,
        0x65735546 /* fuse */, 0x47504653 /* gpfs */, 0x0bd00bd0 /* lustre */};
    struct statfs info;
    if (statfs(path, &info) != 0) return false;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (((unsigned long)info.f_type & 0xffffffffu) == kinds[i]) return true;
    }
    return false;
}

static status exec(registry *r, const char *sql, error *err) {
    return sqlite3_exec(r->db, sql, NULL, NULL, NULL) == SQLITE_OK ? CHURON_OK : db_error(r, err);
}

static status make_schema(registry *r, error *err) {
    TRY(exec(r, schema, err));
    for (size_t i = 0; i < sizeof grow_only / sizeof *grow_only; i++) {
        for (int k = 0; k < 2; k++) {
            char sql[256];
            const char *what = k ? "DELETE" : "UPDATE";
            snprintf(sql, sizeof sql,
                     "CREATE TRIGGER %s_%s BEFORE %s ON %s BEGIN SELECT RAISE(ABORT, '%s: entries are never "
                     "changed'); END",
                     grow_only[i], what, what, grow_only[i], grow_only[i]);
            TRY(exec(r, sql, err));
        }
    }
    char version[48];
    snprintf(version, sizeof version, "PRAGMA user_version=%d", SCHEMA);
    return exec(r, version, err);
}

static status check_schema(registry *r, error *err) {
    int64_t version;
    bool there;
    TRY(db_value(r, &version, &there, err, "PRAGMA user_version", ""));
    if (version == SCHEMA) return CHURON_OK;
    if (version > SCHEMA) {
        return error_set(err, CHURON_UNSUPPORTED,
                         "%s/registry.db: version: expected %d, got %lld (of a later program)",
                         str_cstr(&r->home), SCHEMA, (long long)version);
    }
    if (!r->write)
        return error_set(err, CHURON_CORRUPT, "%s/registry.db: expected tables, got none",
                         str_cstr(&r->home));
    TRY(db_begin(r, err));
    status st = db_value(r, &version, &there, err, "PRAGMA user_version",
                         ""); /* another process may have been first */
    if (st == CHURON_OK && version != SCHEMA) st = make_schema(r, err);
    return db_end(r, st, err);
}

/* The path as a URI; `alone`: nobody else writes, so nothing needs to be locked or shared. */
static status open_uri(registry *r, const char *path, bool alone, error *err) {
    int flags = r->write ? SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE : SQLITE_OPEN_READONLY;
    str uri = {0};
    str_cat(&uri, "file:");
    for (const char *p = path; *p; p++) {
        bool plain = (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') || (*p >= '0' && *p <= '9') ||
                     strchr("/._-", *p);
        str_fmt(&uri, plain ? "%c" : "%%%02X", (unsigned char)*p);
    }
    if (alone) str_cat(&uri, "?immutable=1");
    status st = str_check(&uri, err);
    if (st == CHURON_OK &&
        sqlite3_open_v2(str_cstr(&uri), &r->db, flags | SQLITE_OPEN_URI | SQLITE_OPEN_FULLMUTEX, NULL) !=
            SQLITE_OK) {
        st = db_error(r, err);
    }
    str_free(&uri);
    return st;
}

/* Write-ahead logging, once: a database that has it is not asked to change. */
static status set_journal(registry *r, error *err) {
    char now[STORE_NAME_MAX + 1];
    bool there;
    const char *wanted = is_remote(str_cstr(&r->home)) ? "delete" : "wal";
    TRY(db_word(r, now, &there, err, "PRAGMA journal_mode", ""));
    if (strcmp(now, wanted) == 0) return CHURON_OK;
    return exec(r, wanted[0] == 'w' ? "PRAGMA journal_mode=WAL" : "PRAGMA journal_mode=DELETE", err);
}

static status open_db_as(registry *r, const char *path, bool alone, error *err) {
    TRY(open_uri(r, path, alone, err));
    sqlite3_busy_timeout(r->db, WAIT_MS);
    TRY(exec(r, "PRAGMA foreign_keys=ON; PRAGMA trusted_schema=OFF; PRAGMA synchronous=FULL", err));
    if (r->write) TRY(set_journal(r, err));
    return check_schema(r, err);
}

/* A reader where nothing can be written may need to be told that nobody else writes either. */
static status open_db(registry *r, const char *path, error *err) {
    status st = open_db_as(r, path, false, err);
    if (st != CHURON_IO || r->write || access(str_cstr(&r->home), W_OK) == 0) return st;
    (void)sqlite3_close(r->db);
    r->db = NULL;
    return open_db_as(r, path, true, err);
}

static status find_actor(registry *r, const char *actor, error *err) {
    char buffer[4096];
    struct passwd entry, *found = NULL;
    if (!actor || !*actor) actor = getenv("CHURON_USER");
    if (!actor || !*actor) {
        if (getpwuid_r(getuid(), &entry, buffer, sizeof buffer, &found) == 0 && found) actor = found->pw_name;
    }
    if (!actor || !*actor) actor = "unknown";
    TRY(db_check_subject(actor, "by", err));
    memcpy(r->actor, actor, strlen(actor) + 1);
    return CHURON_OK;
}

status registry_open(registry **out, const registry_options *o, error *err) {
    *out = NULL;
    registry *r = mem_calloc(1, sizeof *r);
    str path = {0};
    status st = r ? CHURON_OK : error_no_memory(err, "registry", sizeof *r);
    if (!r) return st;
    r->write = o && o->write;
    if (o && o->home) {
        str_cat(&r->home, o->home);
    } else {
        TRY_GOTO(store_home(&r->home, err));
    }
    TRY_GOTO(str_check(&r->home, err));
    TRY_GOTO(find_actor(r, o ? o->actor : NULL, err));
    str_fmt(&path, "%s/registry.db", str_cstr(&r->home));
    TRY_GOTO(str_check(&path, err));
    if (r->write) TRY_GOTO(dir_make(str_cstr(&r->home), err));
    if (r->write || file_exists(str_cstr(&path))) TRY_GOTO(open_db(r, str_cstr(&path), err));
    if (r->write) TRY_GOTO(registry_adopt(r, err));
cleanup:
    str_free(&path);
    if (st != CHURON_OK) {
        registry_close(r);
        return st;
    }
    *out = r;
    return CHURON_OK;
}

void registry_close(registry *r) {
    if (!r) return;
    (void)sqlite3_close(r->db);
    str_free(&r->home);
    mem_free(r);
}

const char *registry_home(const registry *r) {
    return str_cstr(&r->home);
}

const char *registry_actor(const registry *r) {
    return r->actor;
}

/* ---- words ------------------------------------------------------------------------------------------ */

status db_check_word(const char *text, const char *field, error *err) {
    store_ref ref;
    if (strpbrk(text, ":@") == NULL && store_ref_parse(&ref, text, NULL) == CHURON_OK) return CHURON_OK;
    return error_set(
        err, CHURON_INVALID,
        "%s: expected 1 to %d of A-Z a-z 0-9 . _ - beginning with a letter or digit, got \"%.120s\"", field,
        STORE_NAME_MAX, text);
}

status db_check_subject(const char *text, const char *field, error *err) {
    size_t n = strlen(text);
    bool ok = n >= 1 && n <= STORE_NAME_MAX && utf8_validate(text, n) == n;
    for (size_t i = 0; ok && i < n; i++) ok = (unsigned char)text[i] > 0x20 && text[i] != 0x7f;
    if (ok) return CHURON_OK;
    return error_set(err, CHURON_INVALID,
                     "%s: expected a name or address of 1 to %d characters without spaces, got \"%.120s\"",
                     field, STORE_NAME_MAX, text);
}

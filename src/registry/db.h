/* db.h: the registry's database: opening, statements, transactions, the log. Only the registry includes this.
 */
#ifndef REGISTRY_DB_H
#define REGISTRY_DB_H

#include "base/json_out.h"
#include "registry/registry.h"

#include <sqlite3.h>

struct registry {
    sqlite3 *db; /* NULL: there is none, and nothing may be created */
    str home;
    char actor[STORE_NAME_MAX + 1];
    bool write, adopting; /* adopting: the store's folders are being taken in */
};

/* ---- statements ------------------------------------------------------------------------------------- */

/* types: one letter a value: s const char * (NULL: null), i int64_t. */
MUST_USE status db_run(registry *r, error *err, const char *sql, const char *types, ...);

typedef struct db_rows {
    registry *r;
    sqlite3_stmt *stmt;
} db_rows;

/* db_close_rows may be called at any time, also on a zeroed one and after an error. */
MUST_USE status db_query(registry *r, db_rows *out, error *err, const char *sql, const char *types, ...);
MUST_USE status db_next(db_rows *rows, bool *there, error *err);
const char *db_text(const db_rows *rows, int column); /* "" for null; until the next row */
bool db_is_null(const db_rows *rows, int column);
int64_t db_int(const db_rows *rows, int column);
void db_close_rows(db_rows *rows);

/* The first column of the first row; *there false: no row. */
MUST_USE status db_value(registry *r, int64_t *out, bool *there, error *err, const char *sql,
                         const char *types, ...);
MUST_USE status db_word(registry *r, char out[STORE_NAME_MAX + 1], bool *there, error *err, const char *sql,
                        const char *types, ...);

/* ---- transactions ----------------------------------------------------------------------------------- */

/* BEGIN IMMEDIATE; refused where the registry was opened for reading. */
MUST_USE status db_begin(registry *r, error *err);
/* Commits if st is CHURON_OK, else rolls back; gives the status of the whole. */
MUST_USE status db_end(registry *r, status st, error *err);
/* Adds to the log, within a transaction. detail: JSON. */
MUST_USE status db_log(registry *r, const char *action, const char *subject, const str *detail, error *err);

/* ---- what is meant ---------------------------------------------------------------------------------- */

typedef struct version_row {
    int64_t id, model, bytes, added;
    char name[STORE_NAME_MAX + 1], version[STORE_NAME_MAX + 1], author[STORE_NAME_MAX + 1];
    char digest[DIGEST_HEX];
    char kind[16];
    bool removed;
} version_row;

/* NAME:VERSION, NAME@ALIAS or NAME (latest, else the newest); removed versions only by their number. */
MUST_USE status db_version(registry *r, const char *ref, version_row *out, error *err);
MUST_USE status db_model(registry *r, const char *name, int64_t *id, error *err);
/* CHURON_INVALID unless the actor has this right on the model. */
MUST_USE status db_may(registry *r, const char *name, const char *right, error *err);
/* A word as names are (store.h), for aliases, actors, subjects. */
MUST_USE status db_check_word(const char *text, const char *field, error *err);
/* Actors and subjects may be mail addresses and "*": 1 to 100 printable characters. */
MUST_USE status db_check_subject(const char *text, const char *field, error *err);

/* Is a process using a file of the version? */
bool db_is_held(const registry *r, const char *name, const char *version);
/* The alias files of the store, and index.json, as the database says. */
MUST_USE status db_project(registry *r, error *err);
/* Appends {"models": …}, the body of list. */
MUST_USE status db_list(registry *r, const char *name, json_out *j, bool with_files, error *err);

#endif

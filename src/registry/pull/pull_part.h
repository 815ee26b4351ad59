/* pull_part.h: the parts of pull that only the registry knows: reading SOURCE, the progress meter, transfers
 * with libcurl, packages through pip and npm. */
#ifndef REGISTRY_PULL_PART_H
#define REGISTRY_PULL_PART_H

#include "base/disk.h"
#include "registry/origin.h"
#include "registry/pull/pull.h"

/* ---- source ----------------------------------------------------------------------------------------- */

typedef enum source_kind { SOURCE_HF, SOURCE_PYPI, SOURCE_NPM, SOURCE_URL, SOURCE_PATH } source_kind;

/* Zero-initialise, free with source_free. */
typedef struct source {
    source_kind kind;
    str package;   /* OWNER/REPO, PACKAGE, URL or PATH */
    str version;   /* revision or version; empty: the newest */
    str file;      /* path inside; empty: the only model file */
    bool loopback; /* http:// to this machine: allowed, and only there */
} source;

void source_free(source *s);
MUST_USE status source_parse(source *out, const char *text, error *err);
/* Does the name end like a model file (.gguf, .onnx, .churon)? */
bool source_is_model_file(const char *name);
/* http:// to this machine? */
bool source_loopback_url(const char *url);
/* "x-00001-of-00003.gguf": its number of parts (0: no split file, or not its first part). */
size_t source_split_parts(const char *name);
/* Appends the name of part `i` (1..parts) of the split file whose first part is `name`. */
void source_split_name(const char *name, size_t i, str *out);

/* ---- meter ------------------------------------------------------------------------------------------ */

typedef struct meter {
    pull_progress_fn fn; /* may be NULL */
    void *user;
    pull_progress now;
    double last; /* time of the last call */
    bool cancelled;
} meter;

/* Tells the caller (at most ten times a second within a phase). False: stop. */
bool meter_tell(meter *m, pull_phase phase, uint64_t done, uint64_t total);
/* Sleeps, telling; false: stop. */
bool meter_sleep(meter *m, pull_phase phase, double seconds);
MUST_USE status meter_stopped(error *err); /* the CHURON_CANCELLED error */

/* ---- transfers -------------------------------------------------------------------------------------- */

typedef struct fetch_job {
    const char *url;
    const char *bearer; /* NULL: none. Never sent to another host after a redirect */
    bool loopback;      /* http is allowed */
    bool pinned;        /* the result's digest is known: a part may be continued without a validator */
    const char *path;   /* appended to if it holds the beginning; PATH.tag keeps its validator */
    uint64_t bytes;     /* expected; 0: not known */
} fetch_job;

/* Fetches into job->path, going on from what is there, trying again after transient faults. On success the
 * file is complete and synchronised. Without space the file is removed; otherwise it is kept on failure. */
MUST_USE status fetch_file(const fetch_job *job, meter *m, uint64_t *fetched, uint64_t *resumed, error *err);
/* A small answer into memory. */
MUST_USE status fetch_text(const char *url, const char *bearer, bool loopback, size_t max_bytes, meter *m,
                           str *out, error *err);

/* ---- what a source holds ---------------------------------------------------------------------------- */

typedef struct remote_file {
    str url, name;
    uint64_t bytes;          /* 0: not known */
    char digest[DIGEST_HEX]; /* "": not published */
} remote_file;

typedef struct remote_list {
    remote_file *files;
    size_t n;
    const char *bearer; /* borrowed from the environment */
} remote_list;

void remote_list_free(remote_list *l);
MUST_USE status remote_add(remote_list *l, const char *url, const char *name, uint64_t bytes,
                           const char *digest, error *err);
/* The files of a Hugging Face repository that the source means, with their published digests. */
MUST_USE status hub_look_up(const source *s, meter *m, remote_list *out, error *err);

/* Downloads the package with pip or npm into folder `dir` (a package that is there already is used) and
 * writes the member that the source means to `path`; its name is appended to *name. */
MUST_USE status package_fetch(const source *s, const char *dir, const char *path, str *name, meter *m,
                              uint64_t *fetched, error *err);

#endif

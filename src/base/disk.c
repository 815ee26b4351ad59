/* disk.c: see disk.h. */
#include "base/disk.h"

#include "base/str.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* ---- room ------------------------------------------------------------------------------------------- */

static uint64_t disk_free(const char *dir) {
    struct statvfs info;
    if (statvfs(dir, &info) != 0) return UINT64_MAX;
    return (uint64_t)info.f_bavail * info.f_frsize;
}

status disk_has_room(const char *dir, uint64_t bytes, error *err) {
    uint64_t there = disk_free(dir);
    if (there >= bytes) return CHURON_OK;
    return error_set(err, CHURON_LIMIT,
                     "%s: disk space: expected %llu free bytes, got %llu. Make room or set CHURON_HOME", dir,
                     (unsigned long long)bytes, (unsigned long long)there);
}

/* ---- files ------------------------------------------------------------------------------------------ */

status sink_open(sink *s, const char *path, bool append, error *err) {
    *s = (sink){.path = path};
    s->fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | (append ? O_APPEND : O_TRUNC), 0644);
    struct stat info = {0};
    if (s->fd < 0 || fstat(s->fd, &info) != 0) {
        int code = errno;
        sink_drop(s);
        return error_set(err, CHURON_IO, "%s: cannot write: %s", path, strerror(code));
    }
    s->bytes = (uint64_t)info.st_size;
    return CHURON_OK;
}

static status write_error(const sink *s, int code, error *err) {
    bool full = code == ENOSPC || code == EDQUOT || code == EFBIG;
    return error_set(err, full ? CHURON_LIMIT : CHURON_IO, "%s: cannot write after %llu bytes: %s%s", s->path,
                     (unsigned long long)s->bytes, strerror(code),
                     full ? ". Make room or set CHURON_HOME" : "");
}

status sink_write(sink *s, const void *bytes, size_t n, error *err) {
    const char *p = bytes;
    while (n > 0) {
        ssize_t done = write(s->fd, p, n);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return write_error(s, done < 0 ? errno : EIO, err);
        p += done;
        n -= (size_t)done;
        s->bytes += (uint64_t)done;
    }
    return CHURON_OK;
}

status sink_close(sink *s, error *err) {
    status st = fsync(s->fd) == 0 ? CHURON_OK : write_error(s, errno, err);
    int fd = s->fd;
    s->fd = -1;
    if (close(fd) != 0 && st == CHURON_OK) st = write_error(s, errno, err);
    return st;
}

void sink_drop(sink *s) {
    if (s->fd >= 0) close(s->fd);
    s->fd = -1;
}

/* ---- folders ---------------------------------------------------------------------------------------- */

status dir_make(const char *path, error *err) {
    str p = {0};
    str_cat(&p, path);
    status st = str_check(&p, err);
    for (size_t i = 1; st == CHURON_OK && i <= p.len; i++) {
        if (p.data[i] != '/' && p.data[i] != '\0') continue;
        char was = p.data[i];
        p.data[i] = '\0';
        if (mkdir(p.data, 0755) != 0 && errno != EEXIST) {
            st = error_set(err, CHURON_IO, "%s: cannot make this folder: %s", p.data, strerror(errno));
        }
        p.data[i] = was;
    }
    str_free(&p);
    return st;
}

/* Bytes of the files below a folder, which are removed with it if so asked. */
static uint64_t walk(const char *path, int depth, bool remove) {
    uint64_t bytes = 0;
    DIR *d = depth < 16 ? opendir(path) : NULL;
    if (!d) return 0;
    for (const struct dirent *e; (e = readdir(d));) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        str below = {0};
        struct stat info;
        str_fmt(&below, "%s/%s", path, e->d_name);
        if (!below.failed && lstat(str_cstr(&below), &info) == 0) {
            if (S_ISDIR(info.st_mode)) bytes += walk(str_cstr(&below), depth + 1, remove);
            if (S_ISREG(info.st_mode)) bytes += (uint64_t)info.st_size;
            if (remove && !S_ISDIR(info.st_mode)) (void)unlink(str_cstr(&below));
        }
        str_free(&below);
    }
    closedir(d);
    if (remove) (void)rmdir(path);
    return bytes;
}

void dir_remove(const char *path) {
    (void)walk(path, 0, true);
}

uint64_t dir_bytes(const char *path) {
    return walk(path, 0, false);
}

status dir_sync(const char *path, error *err) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    bool ok = fd >= 0 && fsync(fd) == 0;
    int code = errno;
    if (fd >= 0) close(fd);
    if (ok || code == EINVAL) return CHURON_OK; /* EINVAL: a file system that has no such thing */
    return error_set(err, CHURON_IO, "%s: cannot synchronise: %s", path, strerror(code));
}

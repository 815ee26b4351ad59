/* file.c: see file.h. */
#define _GNU_SOURCE
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static status io_error(error *err, const char *path, const char *what, int code) {
    status st = code == ENOENT || code == ENOTDIR ? CHURON_NOT_FOUND : CHURON_IO;
    return error_set(err, st, "%s: %s: %s", path, what, strerror(code));
}

/* size UINT64_MAX: from `offset` to the end. */
static status map_part(file_map *out, const char *path, uint64_t offset, uint64_t size, error *err) {
    *out = (file_map){0};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* O_NONBLOCK: opening a FIFO must not hang */
    if (fd < 0) return io_error(err, path, "cannot open", errno);
    struct stat info;
    status st = CHURON_OK;
    uint64_t there = 0;
    if (fstat(fd, &info) != 0) {
        st = io_error(err, path, "cannot stat", errno);
    } else if (!S_ISREG(info.st_mode)) {
        st = error_set(err, CHURON_INVALID, "%s: expected a regular file, got %s", path,
                       S_ISDIR(info.st_mode) ? "a directory" : "a device, pipe or socket");
    } else {
        there = (uint64_t)info.st_size;
        if (size == UINT64_MAX && offset <= there) size = there - offset;
        if (offset > there || size > there - offset) {
            st = error_set(err, CHURON_CORRUPT,
                           "%s: expected %" PRIu64 " bytes from %" PRIu64 " on, got a file of %" PRIu64, path,
                           size, offset, there);
        }
    }
    if (st == CHURON_OK && size > 0) {
        void *p = mmap(NULL, (size_t)size, PROT_READ, MAP_SHARED, fd, (off_t)offset);
        if (p == MAP_FAILED) {
            st = io_error(err, path, "cannot map", errno);
        } else {
            out->data = p;
            out->size = (size_t)size;
        }
    }
    close(fd);
    return st;
}

status file_map_open(file_map *out, const char *path, error *err) {
    return map_part(out, path, 0, UINT64_MAX, err);
}

status file_map_open_part(file_map *out, const char *path, uint64_t offset, uint64_t size, error *err) {
    return map_part(out, path, offset, size, err);
}

void file_map_close(file_map *map) {
    if (map->data) munmap((void *)(uintptr_t)map->data, map->size);
    *map = (file_map){0};
}

void file_map_drop(const file_map *map, size_t offset, size_t len) {
    const size_t page = 4096;
    size_t from = (offset + page - 1) & ~(page - 1);
    size_t to = (offset + len) & ~(page - 1);
    if (map->data && from < to && to <= map->size) {
        (void)madvise((void *)(uintptr_t)(map->data + from), to - from, MADV_DONTNEED);
    }
}

void file_map_drop_at(const file_map *map, const void *at, size_t len) {
    const uintptr_t from = (uintptr_t)at, begin = (uintptr_t)map->data;
    if (map->data && from >= begin && from - begin < map->size && len <= map->size - (from - begin))
        file_map_drop(map, from - begin, len);
}

status file_read(str *out, const char *path, size_t max_bytes, error *err) {
    bool is_stdin = strcmp(path, "-") == 0;
    int fd = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return io_error(err, path, "cannot open", errno);
    status st = CHURON_OK;
    size_t total = 0;
    while (st == CHURON_OK) {
        char buf[65536];
        ssize_t n = read(fd, buf, sizeof buf);
        if (n == 0) break;
        if (n < 0) {
            if (errno == EINTR) continue;
            st = io_error(err, path, "cannot read", errno);
            break;
        }
        total += (size_t)n;
        if (total > max_bytes) {
            st = error_set(err, CHURON_LIMIT, "%s: expected at most %zu bytes, got more", path, max_bytes);
            break;
        }
        str_add(out, buf, (size_t)n);
        st = str_check(out, err);
    }
    if (!is_stdin) close(fd);
    return st;
}

bool file_exists(const char *path) {
    struct stat info;
    return stat(path, &info) == 0;
}

bool file_is_dir(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* verified.c: see verified.h. */
#include "bundle/verified.h"

#include "base/clock.h"
#include "base/disk.h"
#include "base/file.h"
#include "base/home.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { KEPT_MAX = 4096 };

void verified_key_add(verified_key *k, const char *name, const struct stat *info) {
    int64_t now = clock_unix();
    if (info->st_ctim.tv_sec >= now - 1 || info->st_mtim.tv_sec >= now - 1) k->fresh = true;
    str_fmt(&k->text, "%s\n%llu %llu %lld %lld.%ld %lld.%ld\n", name, (unsigned long long)info->st_dev,
            (unsigned long long)info->st_ino, (long long)info->st_size, (long long)info->st_mtim.tv_sec,
            info->st_mtim.tv_nsec, (long long)info->st_ctim.tv_sec, info->st_ctim.tv_nsec);
}

void verified_key_free(verified_key *k) {
    str_free(&k->text);
    *k = (verified_key){0};
}

/* Appends the folder to *dir and the key's file in it to *path. */
static bool where(const verified_key *k, str *dir, str *path) {
    char name[DIGEST_HEX];
    if (k->text.failed || !k->text.len || home_path(dir, NULL) != CHURON_OK) return false;
    if (digest_bytes(k->text.data, k->text.len, name, NULL) != CHURON_OK) return false;
    str_cat(dir, "/verified");
    str_fmt(path, "%s/%s", str_cstr(dir), name);
    return !dir->failed && !path->failed;
}

bool verified_find(const verified_key *k, char hex[DIGEST_HEX]) {
    str dir = {0}, path = {0}, text = {0};
    bool found = where(k, &dir, &path) && file_exists(str_cstr(&path)) &&
                 file_read(&text, str_cstr(&path), DIGEST_HEX, NULL) == CHURON_OK && text.len == DIGEST_HEX &&
                 text.data[DIGEST_HEX - 1] == '\n';
    if (found) {
        text.data[DIGEST_HEX - 1] = '\0';
        found = digest_parse(text.data, hex, NULL) == CHURON_OK;
    }
    str_free(&dir);
    str_free(&path);
    str_free(&text);
    return found;
}

/* Empties a folder that has become too large: what is still used is verified again. */
static void prune(const char *dir) {
    size_t n = 0;
    DIR *d = opendir(dir);
    if (!d) return;
    while (readdir(d)) n++;
    closedir(d);
    if (n > KEPT_MAX) dir_remove(dir);
}

void verified_remember(const verified_key *k, const char hex[DIGEST_HEX]) {
    str dir = {0}, path = {0}, fresh = {0};
    sink s = {.fd = -1};
    if (!k->fresh && where(k, &dir, &path)) {
        prune(str_cstr(&dir));
        str_fmt(&fresh, "%s.%ld", str_cstr(&path), (long)getpid());
        bool written = !fresh.failed && dir_make(str_cstr(&dir), NULL) == CHURON_OK &&
                       sink_open(&s, str_cstr(&fresh), false, NULL) == CHURON_OK &&
                       sink_write(&s, hex, DIGEST_HEX - 1, NULL) == CHURON_OK &&
                       sink_write(&s, "\n", 1, NULL) == CHURON_OK;
        bool opened = s.fd >= 0;
        sink_drop(&s);
        if (!written || rename(str_cstr(&fresh), str_cstr(&path)) != 0) {
            if (opened) (void)unlink(str_cstr(&fresh));
        }
    }
    str_free(&dir);
    str_free(&path);
    str_free(&fresh);
}

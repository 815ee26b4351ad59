/* cores.c: see cores.h. Also pool_physical_cores of pool.h. */
#define _GNU_SOURCE
#include "base/cores.h"

#include "base/mem.h"
#include "base/pool.h"

#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CPUS_MAX = 8192, LINE_BYTES = 4096 };

/* The first line of a small file without its newline; false if there is none. */
static bool read_line(const char *path, char *line, size_t size) {
    FILE *f = fopen(path, "re");
    if (!f) return false;
    bool ok = fgets(line, (int)size, f) != NULL;
    fclose(f);
    if (ok) line[strcspn(line, "\n")] = '\0';
    return ok;
}

/* ---- processors ------------------------------------------------------------------------------------- */

/* Processors of the affinity mask, ascending. Returns their number; 0 if the system does not say. */
static size_t affinity(unsigned *cpus, size_t max) {
    cpu_set_t *set = CPU_ALLOC(CPUS_MAX);
    size_t bytes = CPU_ALLOC_SIZE(CPUS_MAX), n = 0;
    if (!set) return 0;
    CPU_ZERO_S(bytes, set);
    if (sched_getaffinity(0, bytes, set) == 0) {
        for (unsigned i = 0; i < CPUS_MAX && n < max; i++) {
            if (CPU_ISSET_S(i, bytes, set)) cpus[n++] = i;
        }
    }
    CPU_FREE(set);
    return n;
}

size_t cores_logical(void) {
    unsigned *cpus = mem_alloc(CPUS_MAX * sizeof *cpus);
    size_t n = cpus ? affinity(cpus, CPUS_MAX) : 0;
    mem_free(cpus);
    return n ? n : 1;
}

/* Is there a processor below `cpu` that is in the list text ("0,4-7") and among cpus[0..n)? */
static bool lower_sibling(const char *text, unsigned cpu, const unsigned *cpus, size_t n) {
    while (*text) {
        char *end;
        unsigned long from = strtoul(text, &end, 10), to = from;
        if (end == text) return false;
        if (*end == '-') {
            text = end + 1;
            to = strtoul(text, &end, 10);
            if (end == text) return false;
        }
        for (size_t i = 0; i < n && cpus[i] < cpu; i++) {
            if (cpus[i] >= from && cpus[i] <= to) return true;
        }
        text = *end == ',' ? end + 1 : end;
        if (*end && *end != ',') return false;
    }
    return false;
}

size_t cores_physical(const char *root, const unsigned *cpus, size_t n) {
    size_t cores = 0;
    for (size_t i = 0; i < n; i++) {
        char path[PATH_MAX], line[LINE_BYTES];
        snprintf(path, sizeof path, "%s/sys/devices/system/cpu/cpu%u/topology/thread_siblings_list", root,
                 cpus[i]);
        if (!read_line(path, line, sizeof line) || !lower_sibling(line, cpus[i], cpus, n)) cores++;
    }
    return cores;
}

/* ---- quota ------------------------------------------------------------------------------------------ */

/* Is `word` one of the comma-separated words of `list`? */
static bool in_list(const char *list, const char *word) {
    size_t n = strlen(word);
    for (const char *p = list; *p; p += strcspn(p, ",") + (p[strcspn(p, ",")] == ',')) {
        if (strcspn(p, ",") == n && memcmp(p, word, n) == 0) return true;
    }
    return false;
}

/* The group of this process: /proc/self/cgroup has lines ID:CONTROLLERS:PATH; v2 is the line without
 * controllers. */
static bool own_group(const char *root, bool v2, char *group, size_t size) {
    char path[PATH_MAX], line[LINE_BYTES];
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *f = fopen(path, "re");
    if (!f) return false;
    bool found = false;
    while (!found && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':');
        char *where = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!where) continue;
        controllers++;
        *where++ = '\0';
        found = v2 ? *controllers == '\0' : in_list(controllers, "cpu");
        if (found) snprintf(group, size, "%s", where);
    }
    fclose(f);
    return found;
}

/* Where the hierarchy is mounted, and which of its groups is at the mount point. A mountinfo line:
 * ID PARENT DEVICE ROOT MOUNTPOINT OPTIONS... - FSTYPE SOURCE SUPEROPTIONS */
static bool own_mount(const char *root, bool v2, char *point, char *base, size_t size) {
    char path[PATH_MAX], line[LINE_BYTES];
    snprintf(path, sizeof path, "%s/proc/self/mountinfo", root);
    FILE *f = fopen(path, "re");
    if (!f) return false;
    bool found = false;
    while (!found && fgets(line, sizeof line, f)) {
        char type[64], options[1024], at[1024], from[1024];
        const char *dash = strstr(line, " - ");
        if (!dash || sscanf(line, "%*s %*s %*s %1023s %1023s", from, at) != 2) continue;
        if (sscanf(dash + 3, "%63s %*s %1023s", type, options) != 2) continue;
        found = v2 ? strcmp(type, "cgroup2") == 0 : strcmp(type, "cgroup") == 0 && in_list(options, "cpu");
        if (found) {
            snprintf(point, size, "%s", at);
            snprintf(base, size, "%s", from);
        }
    }
    fclose(f);
    return found;
}

/* The quota of one group's folder in whole processors, SIZE_MAX if it has none. */
static size_t group_quota(const char *folder, bool v2) {
    char path[PATH_MAX + 32], line[128];
    double quota, period;
    if (v2) {
        snprintf(path, sizeof path, "%s/cpu.max", folder);
        if (!read_line(path, line, sizeof line) || sscanf(line, "%lf %lf", &quota, &period) != 2)
            return SIZE_MAX;
    } else {
        snprintf(path, sizeof path, "%s/cpu.cfs_quota_us", folder);
        if (!read_line(path, line, sizeof line) || sscanf(line, "%lf", &quota) != 1) return SIZE_MAX;
        snprintf(path, sizeof path, "%s/cpu.cfs_period_us", folder);
        if (!read_line(path, line, sizeof line) || sscanf(line, "%lf", &period) != 1) return SIZE_MAX;
    }
    if (!(quota > 0) || !(period > 0) || quota / period > CPUS_MAX) return SIZE_MAX;
    return quota < period ? 1 : (size_t)(quota / period);
}

/* The smallest quota on the way from this process's group up to the mount point. In a container the group's
 * path may be one of the host, which is not below the mount: then the mount point itself is the group. */
static size_t hierarchy_quota(const char *root, bool v2) {
    char group[LINE_BYTES / 2], point[1024], base[1024], folder[PATH_MAX];
    if (!own_group(root, v2, group, sizeof group)) return SIZE_MAX;
    if (!own_mount(root, v2, point, base, sizeof point)) return SIZE_MAX;
    const char *below = group;
    size_t base_len = strcmp(base, "/") == 0 ? 0 : strlen(base);
    if (strncmp(group, base, base_len) == 0) below = group + base_len;
    size_t top = (size_t)snprintf(folder, sizeof folder, "%s%s", root, point);
    size_t len = (size_t)snprintf(folder, sizeof folder, "%s%s%s", root, point, below);
    if (len >= sizeof folder || strstr(below, "..")) return SIZE_MAX;
    size_t least = SIZE_MAX;
    for (;;) {
        size_t here = group_quota(folder, v2);
        if (here < least) least = here;
        char *slash = strrchr(folder, '/');
        if (!slash || (size_t)(slash - folder) < top) return least;
        *slash = '\0';
    }
}

size_t cores_quota(const char *root) {
    size_t a = hierarchy_quota(root, true), b = hierarchy_quota(root, false);
    return a < b ? a : b;
}

size_t pool_physical_cores(void) {
    unsigned *cpus = mem_alloc(CPUS_MAX * sizeof *cpus);
    if (!cpus) return 1;
    size_t n = affinity(cpus, CPUS_MAX);
    size_t cores = cores_physical("", cpus, n), quota = cores_quota("");
    mem_free(cpus);
    if (quota < cores) cores = quota;
    return cores ? cores : 1;
}

/* cores.h: how many cores this process may use. What /proc and /sys say is read under `root` ("" is the
 * machine itself, a test gives a folder), and files that are absent or odd restrict nothing. */
#ifndef BASE_CORES_H
#define BASE_CORES_H

#include "base/status.h"

/* Logical processors that the scheduler may run this process on, at least 1. */
size_t cores_logical(void);

/* Whole processors that the cgroup quotas (v1 and v2, this group and those above it) leave; SIZE_MAX when
 * there is no quota. Rounded down, at least 1: a team that spins at barriers and is throttled in the middle
 * of a period loses more than the fraction of a core is worth. */
size_t cores_quota(const char *root);

/* Of the n processors in cpus, ascending, how many are the first of their physical core. */
size_t cores_physical(const char *root, const unsigned *cpus, size_t n);

#endif

/* peer.h: another program's speed on the same file, by running its benchmark commands.
 *
 * A command is what a shell would run (a path and flags); the case's own flags are added to it. Understood
 * are programs that take llama-bench's flags and print its JSON, and llama-batched-bench's likewise. */
#ifndef BENCH_PEER_H
#define BENCH_PEER_H

#include "bench/bench_lm.h"

/* Runs the command once for the case and reads its tokens per second. Case parallel > 1: the batched form. */
MUST_USE status peer_time(const char *command, const char *model, size_t threads, const bench_case *c,
                          double *per_s, error *err);

/* The two forms' answers; exposed for tests. */
MUST_USE status peer_read_bench(const char *json, size_t n, double *per_s, error *err);
MUST_USE status peer_read_batched(const char *jsonl, size_t n, double *per_s, error *err);

#endif

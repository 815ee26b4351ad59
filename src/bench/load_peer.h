/* load_peer.h: another server, started for the length of a comparison. */
#ifndef BENCH_LOAD_PEER_H
#define BENCH_LOAD_PEER_H

#include "bench/load.h"

enum { LOAD_PEER_URL = 64 };

typedef struct load_peer load_peer;

/* Runs `command` with a shell, {port} in it being a free port of 127.0.0.1, and waits until GET /health
 * answers 200. When it ends before that, or not in `patience` seconds, the error has the last line that it
 * wrote. The child gets SIGTERM, and SIGKILL five seconds later, from load_peer_stop. */
MUST_USE status load_peer_start(load_peer **out, const char *command, double patience, error *err);
const char *load_peer_url(const load_peer *p);
void load_peer_stop(load_peer *p); /* NULL is fine */
/* For a program that ends by a signal: sends SIGTERM to the one that runs, waits for nothing. */
void load_peer_abandon(void);

#endif

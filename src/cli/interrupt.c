/* interrupt.c: see interrupt.h. */
#include "cli/interrupt.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static generation *watched;            /* under lock */
static void (*restore_terminal)(void); /* under lock */
static atomic_bool taken;

static void end_program(int sig) {
    if (restore_terminal) restore_terminal();
    _exit(128 + sig);
}

static void *wait_for_signals(void *unused) {
    (void)unused;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    for (;;) {
        int sig;
        if (sigwait(&set, &sig) != 0) continue;
        pthread_mutex_lock(&lock);
        if (sig != SIGINT || !watched) end_program(sig);
        atomic_store_explicit(&taken, true, memory_order_relaxed); /* a flag alone: it orders nothing */
        generation_cancel(watched);
        pthread_mutex_unlock(&lock);
    }
    return NULL;
}

status interrupt_begin(error *err) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    int code = pthread_sigmask(SIG_BLOCK, &set, NULL);
    pthread_t thread;
    if (code == 0) code = pthread_create(&thread, NULL, wait_for_signals, NULL);
    if (code == 0) code = pthread_detach(thread);
    if (code != 0) return error_set(err, CHURON_IO, "cannot wait for signals: %s", strerror(code));
    return CHURON_OK;
}

void interrupt_watch(generation *g) {
    pthread_mutex_lock(&lock);
    watched = g;
    pthread_mutex_unlock(&lock);
}

bool interrupt_taken(void) {
    return atomic_exchange_explicit(&taken, false, memory_order_relaxed);
}

void interrupt_on_end(void (*restore)(void)) {
    pthread_mutex_lock(&lock);
    restore_terminal = restore;
    pthread_mutex_unlock(&lock);
}

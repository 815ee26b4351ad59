/* feed.h: answers on their way from the thread that steps the engine to the thread that serves clients.
 *
 * The stepping thread writes what the callbacks of one step bring (no lock, no allocation) and publishes it
 * once after the step; the serving thread is woken through one descriptor and takes everything at once. Both
 * buffers are fixed: when the serving thread does not come, an answer whose event no longer fits is told to
 * stop, and its end says why. Ends always fit: each answer brings its own place for it.
 *
 * Threads: feed_push and feed_publish on the stepping thread, the rest on the serving thread. An event is
 * only seen by the serving thread after the callback that wrote it, and all others of the same step, have
 * returned. */
#ifndef SERVE_FEED_H
#define SERVE_FEED_H

#include "bundle/lm_bundle.h"

typedef struct feed feed;

/* One answer's end of the feed. Zero-initialise, set `owner`; must stay until its end was taken. */
typedef struct feed_source {
    void *owner;
    /* of the feed */
    struct feed_source *next;
    finish_reason finish;
    error err;
    double ended_at;
    bool overflowed;
} feed_source;

typedef struct feed_event {
    void *owner;
    double at; /* clock_seconds when it was pushed */
    bool has_token;
    sampled token;    /* top borrowed during the call */
    const char *text; /* borrowed during the call */
    size_t text_len;
    finish_reason finish; /* not FINISH_NONE: the last event of this owner */
    const error *err;     /* with FINISH_ERROR */
} feed_event;

typedef void (*feed_fn)(void *user, const feed_event *event);

enum { FEED_BYTES = 4 << 20 };

MUST_USE status feed_create(feed **out, size_t bytes, error *err);
void feed_free(feed *f);
int feed_wait_fd(const feed *f); /* readable when something was published */

/* For generation_fn: records the event. False when it did not fit: stop the generation. */
bool feed_push(feed *f, feed_source *source, const generation_event *event);
void feed_publish(feed *f); /* for engine_run's after_step */

/* Hands over everything that was published, in order, ends after the tokens of their owners. */
void feed_take(feed *f, feed_fn fn, void *user);

#endif

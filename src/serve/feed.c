/* feed.c: see feed.h. Three buffers of records: one being filled by the stepping thread, one published, one
 * being read by the serving thread. Publishing appends to what has not been taken yet. */
#define _GNU_SOURCE
#include "serve/feed.h"

#include "base/clock.h"
#include "base/mem.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

typedef struct record {
    feed_source *source;
    double at;
    size_t bytes; /* of the whole record, a multiple of 8 */
    uint32_t text_len, n_top;
    int32_t id;
    float logprob;
    bool has_token;
    /* token_logprob top[n_top], then the text, then padding */
} record;

typedef struct batch {
    char *data;
    size_t used;
    feed_source *ends, **ends_tail;
} batch;

struct feed {
    size_t capacity;
    batch filling; /* stepping thread */
    size_t
        room; /* stepping thread: what `published` could take when last looked at; it can only have grown */
    batch reading; /* serving thread */
    pthread_mutex_t lock;
    batch published; /* under the lock */
    int fd;
};

static void batch_reset(batch *b) {
    b->used = 0;
    b->ends = NULL;
    b->ends_tail = &b->ends;
}

status feed_create(feed **out, size_t bytes, error *err) {
    *out = NULL;
    feed *f = mem_calloc(1, sizeof *f);
    if (!f) return error_no_memory(err, "feed", sizeof *f);
    f->capacity = bytes;
    f->room = bytes;
    f->fd = -1;
    batch *const batches[] = {&f->filling, &f->reading, &f->published};
    bool ok = pthread_mutex_init(&f->lock, NULL) == 0;
    if (!ok) {
        mem_free(f);
        return error_set(err, CHURON_IO, "feed: the system has no mutex to give");
    }
    for (size_t i = 0; i < 3; i++) {
        batches[i]->data = mem_alloc(bytes);
        ok = ok && batches[i]->data;
        batch_reset(batches[i]);
    }
    if (!ok) {
        feed_free(f);
        return error_no_memory(err, "feed", 3 * bytes);
    }
    f->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (f->fd < 0) {
        feed_free(f);
        return error_set(err, CHURON_IO, "feed: the system has no event descriptor to give: %s",
                         strerror(errno));
    }
    *out = f;
    return CHURON_OK;
}

void feed_free(feed *f) {
    if (!f) return;
    if (f->fd >= 0) close(f->fd);
    mem_free(f->filling.data);
    mem_free(f->reading.data);
    mem_free(f->published.data);
    pthread_mutex_destroy(&f->lock);
    mem_free(f);
}

int feed_wait_fd(const feed *f) {
    return f->fd;
}

static bool has_room(feed *f, size_t bytes) {
    if (bytes <= f->room - f->filling.used) return true;
    pthread_mutex_lock(&f->lock);
    f->room = f->capacity - f->published.used;
    pthread_mutex_unlock(&f->lock);
    return bytes <= f->room - f->filling.used;
}

static bool push_record(feed *f, feed_source *source, const generation_event *e, double at) {
    const size_t n_top = e->token ? e->token->n_top : 0;
    const size_t bytes = (sizeof(record) + n_top * sizeof(token_logprob) + e->text_len + 7) & ~(size_t)7;
    if (e->text_len > f->capacity || n_top > TOP_MAX || !has_room(f, bytes)) return false;
    record *r = (record *)(void *)(f->filling.data + f->filling.used);
    *r = (record){.source = source,
                  .at = at,
                  .bytes = bytes,
                  .text_len = (uint32_t)e->text_len,
                  .n_top = (uint32_t)n_top,
                  .has_token = e->token != NULL};
    char *to = (char *)(r + 1);
    if (e->token) {
        r->id = e->token->id;
        r->logprob = e->token->logprob;
        if (n_top) memcpy(to, e->token->top, n_top * sizeof(token_logprob));
    }
    if (e->text_len) memcpy(to + n_top * sizeof(token_logprob), e->text, e->text_len);
    f->filling.used += bytes;
    return true;
}

bool feed_push(feed *f, feed_source *source, const generation_event *e) {
    const double now = clock_seconds();
    if ((e->token || e->text_len) && !source->overflowed) {
        source->overflowed = !push_record(f, source, e, now);
    }
    if (e->finish != FINISH_NONE) {
        source->finish = e->finish;
        if (e->err) source->err = *e->err;
        source->ended_at = now;
        if (source->overflowed) {
            source->finish = FINISH_ERROR;
            (void)error_set(&source->err, CHURON_LIMIT,
                            "server: the answer came faster than its clients were served (%zu bytes waiting)",
                            f->capacity);
        }
        source->next = NULL;
        *f->filling.ends_tail = source;
        f->filling.ends_tail = &source->next;
    }
    return !source->overflowed;
}

void feed_publish(feed *f) {
    if (f->filling.used == 0 && !f->filling.ends) return;
    bool wake = false;
    pthread_mutex_lock(&f->lock);
    batch *p = &f->published;
    wake = p->used == 0 && !p->ends;
    if (p->used == 0) {
        char *empty = p->data;
        p->data = f->filling.data;
        f->filling.data = empty;
    } else {
        memcpy(p->data + p->used, f->filling.data, f->filling.used); /* has_room saw to it that it fits */
    }
    p->used += f->filling.used;
    if (f->filling.ends) {
        *p->ends_tail = f->filling.ends;
        p->ends_tail = f->filling.ends_tail;
    }
    f->room = f->capacity - p->used;
    batch_reset(&f->filling);
    pthread_mutex_unlock(&f->lock);
    const uint64_t one = 1;
    if (wake) (void)!write(f->fd, &one, sizeof one); /* full means that it is awake already */
}

static void hand_over(const batch *b, feed_fn fn, void *user) {
    for (size_t at = 0; at < b->used;) {
        const record *r = (const record *)(const void *)(b->data + at);
        const char *rest = (const char *)(r + 1);
        const token_logprob *top = (const token_logprob *)(const void *)rest;
        const feed_event e = {.owner = r->source->owner,
                              .at = r->at,
                              .has_token = r->has_token,
                              .token = {.id = r->id, .logprob = r->logprob, .top = top, .n_top = r->n_top},
                              .text = rest + r->n_top * sizeof(token_logprob),
                              .text_len = r->text_len,
                              .finish = FINISH_NONE};
        fn(user, &e);
        at += r->bytes;
    }
    for (feed_source *s = b->ends; s;) {
        feed_source *next = s->next; /* fn frees s */
        const error err = s->err;
        const feed_event e = {.owner = s->owner,
                              .at = s->ended_at,
                              .text = "",
                              .finish = s->finish,
                              .err = s->finish == FINISH_ERROR ? &err : NULL};
        fn(user, &e);
        s = next;
    }
}

void feed_take(feed *f, feed_fn fn, void *user) {
    uint64_t count;
    (void)!read(f->fd, &count, sizeof count); /* nothing to read: woken for another reason */
    pthread_mutex_lock(&f->lock);
    char *data = f->reading.data;
    f->reading = f->published;
    f->published.data = data;
    batch_reset(&f->published);
    pthread_mutex_unlock(&f->lock);
    hand_over(&f->reading, fn, user);
    batch_reset(&f->reading);
}

/* sequences.c: see sequences.h. */
#include "serve/sequences.h"

#include "base/mem.h"

#include <pthread.h>
#include <string.h>

struct sequence_slot {
    size_t owner;
    const pipeline *p; /* NULL: free */
    pipeline_sequence *state;
    size_t len;
    double used; /* when it was given back last */
    bool taken;
    char id[SEQUENCE_ID_MAX];
};

struct sequences {
    pthread_mutex_t lock;
    size_t max, n;
    double idle;
    sequence_slot *slots; /* [max]; their place does not change */
};

status sequences_create(sequences **out, size_t max, double idle, error *err) {
    *out = NULL;
    sequences *q = mem_calloc(1, sizeof *q);
    sequence_slot *slots = mem_calloc(max, sizeof *slots);
    if (!q || !slots || pthread_mutex_init(&q->lock, NULL) != 0) {
        mem_free(q);
        mem_free(slots);
        return error_no_memory(err, "sequences", max * sizeof *slots);
    }
    q->max = max;
    q->idle = idle;
    q->slots = slots;
    *out = q;
    return CHURON_OK;
}

static void forget(sequences *q, sequence_slot *s) {
    pipeline_sequence_free(s->state);
    *s = (sequence_slot){0};
    q->n--;
}

void sequences_free(sequences *q) {
    if (!q) return;
    for (size_t i = 0; i < q->max; i++) {
        if (q->slots[i].p) forget(q, &q->slots[i]);
    }
    pthread_mutex_destroy(&q->lock);
    mem_free(q->slots);
    mem_free(q);
}

size_t sequences_count(sequences *q) {
    pthread_mutex_lock(&q->lock);
    const size_t n = q->n;
    pthread_mutex_unlock(&q->lock);
    return n;
}

static bool is_of(const sequence_slot *s, const sequence_key *key) {
    return s->p == key->p && s->owner == key->owner && s->len == key->len &&
           memcmp(s->id, key->id, key->len) == 0;
}

/* The slot of the key, and one that is free (either may be NULL); what has rested too long goes. */
static sequence_slot *look(sequences *q, const sequence_key *key, double now, sequence_slot **free_slot) {
    sequence_slot *found = NULL;
    *free_slot = NULL;
    for (size_t i = 0; i < q->max; i++) {
        sequence_slot *s = &q->slots[i];
        if (s->p && !s->taken && now - s->used > q->idle) forget(q, s);
        if (!s->p) {
            if (!*free_slot) *free_slot = s;
        } else if (is_of(s, key)) {
            found = s;
        }
    }
    return found;
}

static status begin(sequences *q, const sequence_key *key, sequence_slot *s, error *err) {
    pipeline_sequence *state;
    TRY(pipeline_sequence_create(&state, (pipeline *)(uintptr_t)key->p, err));
    *s = (sequence_slot){.owner = key->owner, .p = key->p, .state = state, .len = key->len};
    memcpy(s->id, key->id, key->len);
    q->n++;
    return CHURON_OK;
}

static status take(sequences *q, const sequence_key *key, bool start, double now, sequence_slot **out,
                   error *err) {
    sequence_slot *free_slot, *s = look(q, key, now, &free_slot);
    const int shown = key->len < 60 ? (int)key->len : 60;
    if (s && s->taken)
        return error_set(err, CHURON_BUSY,
                         "sequence_id: expected one request of a sequence at a time, got another of '%.*s'",
                         shown, key->id);
    if (!s && !start)
        return error_set(
            err, CHURON_NOT_FOUND,
            "sequence_id: expected one that began with sequence_start less than %g s ago, got '%.*s'",
            q->idle, shown, key->id);
    if (s && start) {
        forget(q, s);
        free_slot = s;
        s = NULL;
    }
    if (!s && !free_slot)
        return error_set(err, CHURON_BUSY, "sequence_id: expected at most %zu sequences, got one more",
                         q->max);
    if (!s) {
        TRY(begin(q, key, free_slot, err));
        s = free_slot;
    }
    s->taken = true;
    *out = s;
    return CHURON_OK;
}

status sequences_take(sequences *q, const sequence_key *key, bool start, double now, sequence_slot **out,
                      error *err) {
    *out = NULL;
    if (key->len == 0 || key->len > SEQUENCE_ID_MAX)
        return error_set(err, CHURON_INVALID, "sequence_id: expected 1 to %d bytes, got %zu", SEQUENCE_ID_MAX,
                         key->len);
    pthread_mutex_lock(&q->lock);
    const status st = take(q, key, start, now, out, err);
    pthread_mutex_unlock(&q->lock);
    return st;
}

pipeline_sequence *sequence_state(const sequence_slot *s) {
    return s->state;
}

void sequences_give_back(sequences *q, sequence_slot *s, bool end, double now) {
    pthread_mutex_lock(&q->lock);
    s->taken = false;
    s->used = now;
    if (end) forget(q, s);
    pthread_mutex_unlock(&q->lock);
}

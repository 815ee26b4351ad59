/* tensor.c: see tensor.h. A block of memory is one allocation: a header of 64 bytes, then the elements. The
 * bytes of strings lie in chunks that the block owns. */
#include "tensor/tensor.h"

#include "base/mem.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>

enum { ALIGNMENT = 64, FIRST_CHUNK = 1024, LAST_CHUNK = 1 << 20 };

typedef struct chunk {
    struct chunk *next;
    size_t used, size;
    char bytes[];
} chunk;

struct tensor_storage {
    atomic_size_t references;
    chunk *strings; /* newest first; only the owner of an unshared tensor adds */
    size_t string_bytes, string_limit;
};

_Static_assert(sizeof(tensor_storage) <= ALIGNMENT, "the header fits before the elements");

status tensor_count(elem type, size_t rank, const int64_t *dims, size_t *count, const char *what,
                    error *err) {
    const elem_info *info = elem_describe(type);
    if (!info) {
        return error_set(err, CHURON_INVALID, "%s: expected an element type of 1..%d, got %d", what,
                         ELEM_COUNT - 1, (int)type);
    }
    if (rank > TENSOR_MAX_RANK) {
        return error_set(err, CHURON_LIMIT, "%s: expected at most %d dimensions, got %zu", what,
                         TENSOR_MAX_RANK, rank);
    }
    uint64_t n = 1, limit = TENSOR_MAX_BYTES / info->bytes;
    bool empty = false, over = false;
    for (size_t i = 0; i < rank; i++) {
        if (dims[i] < 0) {
            return error_set(err, CHURON_INVALID, "%s: dimension %zu: expected 0 or more, got %" PRId64, what,
                             i, dims[i]);
        }
        if (dims[i] == 0) {
            empty = true;
        } else if ((uint64_t)dims[i] > limit / n) {
            over = true;
            n = limit; /* keeps what follows in range: the answer is known */
        } else {
            n *= (uint64_t)dims[i];
        }
    }
    if (over) { /* of an empty tensor too: products of some of its dimensions stay in range */
        return error_set(err, CHURON_LIMIT, "%s: expected at most %" PRIu64 " elements of %s, got more", what,
                         limit, info->name);
    }
    *count = empty ? 0 : (size_t)n;
    return CHURON_OK;
}

status tensor_alloc(tensor *out, elem type, size_t rank, const int64_t *dims, error *err) {
    *out = (tensor){0};
    size_t count;
    TRY(tensor_count(type, rank, dims, &count, "tensor", err));
    size_t bytes = count * elem_describe(type)->bytes;
    tensor_storage *s = mem_aligned(ALIGNMENT, ALIGNMENT + bytes);
    if (!s) return error_no_memory(err, "tensor", bytes);
    atomic_init(&s->references, 1);
    s->strings = NULL;
    s->string_bytes = 0;
    s->string_limit = SIZE_MAX;
    *out = tensor_borrow(type, rank, dims, (char *)s + ALIGNMENT);
    out->storage = s;
    if (type == ELEM_STRING) {
        tensor_string *e = out->data;
        for (size_t i = 0; i < count; i++) e[i] = (tensor_string){"", 0};
    }
    return CHURON_OK;
}

tensor tensor_borrow(elem type, size_t rank, const int64_t *dims, void *data) {
    tensor t = {.type = type, .rank = (uint32_t)rank, .count = 1, .data = data};
    for (size_t i = 0; i < rank; i++) {
        t.dims[i] = dims[i];
        t.count *= (size_t)dims[i];
    }
    return t;
}

tensor tensor_share(const tensor *t) {
    /* Relaxed: a new reference is made from one that exists. */
    if (t->storage) atomic_fetch_add_explicit(&t->storage->references, 1, memory_order_relaxed);
    return *t;
}

bool tensor_is_unique(const tensor *t) {
    /* Acquire: what former owners did with the elements happened before they are written again. */
    return t->storage && atomic_load_explicit(&t->storage->references, memory_order_acquire) == 1;
}

void tensor_free(tensor *t) {
    tensor_storage *s = t->storage;
    *t = (tensor){0};
    /* Release: what this owner did happens before; acquire: the last owner sees it before it frees. */
    if (!s || atomic_fetch_sub_explicit(&s->references, 1, memory_order_acq_rel) != 1) return;
    for (chunk *c = s->strings; c;) {
        chunk *next = c->next;
        mem_free(c);
        c = next;
    }
    mem_free(s);
}

static status copy_strings(tensor *to, const tensor *from, error *err) {
    const tensor_string *in = from->data;
    tensor_string *out = to->data;
    size_t total = 0;
    for (size_t i = 0; i < from->count; i++) {
        if (!size_add(total, in[i].len, &total)) return error_no_memory(err, "strings", SIZE_MAX);
    }
    char *bytes = NULL;
    TRY(tensor_string_bytes(to, total, &bytes, err));
    for (size_t i = 0; i < from->count; i++) {
        if (in[i].len) memcpy(bytes, in[i].data, in[i].len);
        out[i] = (tensor_string){bytes, in[i].len};
        bytes += in[i].len;
    }
    return CHURON_OK;
}

status tensor_copy(tensor *out, const tensor *t, error *err) {
    TRY(tensor_alloc(out, t->type, t->rank, t->dims, err));
    if (t->type != ELEM_STRING) {
        if (t->count) memcpy(out->data, t->data, tensor_bytes(t));
        return CHURON_OK;
    }
    status st = copy_strings(out, t, err);
    if (st != CHURON_OK) tensor_free(out);
    return st;
}

status tensor_string_bytes(tensor *t, size_t n, char **out, error *err) {
    tensor_storage *s = t->storage;
    chunk *c = s->strings;
    if (n > s->string_limit - s->string_bytes) {
        return error_set(err, CHURON_LIMIT,
                         "memory: expected at most %zu bytes of strings, got %zu and %zu more",
                         s->string_limit, s->string_bytes, n);
    }
    if (!c || n > c->size - c->used) {
        size_t size = c ? 2 * c->size : FIRST_CHUNK, bytes;
        if (size > LAST_CHUNK) size = LAST_CHUNK;
        if (size < n) size = n;
        c = size_add(size, sizeof *c, &bytes) ? mem_alloc(bytes) : NULL;
        if (!c) return error_no_memory(err, "strings", size);
        *c = (chunk){.next = s->strings, .size = size};
        s->strings = c;
    }
    *out = c->bytes + c->used;
    c->used += n;
    s->string_bytes += n;
    return CHURON_OK;
}

void tensor_string_limit(tensor *t, size_t bytes) {
    tensor_storage *s = t->storage;
    s->string_limit = bytes > SIZE_MAX - s->string_bytes ? SIZE_MAX : s->string_bytes + bytes;
}

size_t tensor_held_bytes(const tensor *t) {
    return tensor_bytes(t) + (t->storage ? t->storage->string_bytes : 0);
}

status tensor_string_set(tensor *t, size_t i, const char *bytes, size_t n, error *err) {
    char *copy = NULL;
    TRY(tensor_string_bytes(t, n, &copy, err));
    if (n) memcpy(copy, bytes, n);
    ((tensor_string *)t->data)[i] = (tensor_string){copy, n};
    return CHURON_OK;
}

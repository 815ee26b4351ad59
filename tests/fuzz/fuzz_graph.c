/* fuzz_graph.c: any bytes as a model that is loaded, with all passes or with none, and run on made-up inputs,
 * mild ones and hostile ones, under a limit of memory and time. What is made up follows from the bytes.
 *
 * Under a fuzzer most mutations change one field of the protobuf message, at any depth, and set the lengths
 * around it right: otherwise hardly one in a hundred would get past the reader. */
#include "base/clock.h"
#include "base/mem.h"
#include "graph/graph.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned int seed);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most);

enum { MOST_ELEMENTS = 1 << 12 };

/* splitmix64 */
static uint64_t next_random(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

/* ---- inputs ----------------------------------------------------------------------------------------- */

/* How inputs are made up. */
typedef struct maker {
    bool hostile;
    uint64_t random;
} maker;

static double number_of(maker *m, size_t i) {
    static const double odd[] = {
        0,    -1,           1,     2,      -3, 0.5, 1e-40, 1e30, -1e30, (double)INFINITY, (double)NAN, 127,
        -128, 2147483648.0, 65536, -9.3e18};
    if (!m->hostile) return (double)(i % 3);
    return odd[next_random(&m->random) % (sizeof odd / sizeof *odd)];
}

static bool put_string(maker *m, tensor *t, size_t i) {
    static const char *const odd[] = {"",    "a",       "\xed\x95\x9c\xea\xb5\xad", "1e9", "-", "b,a a",
                                      "NaN", "\xff\xfe"};
    const char *text = m->hostile ? odd[next_random(&m->random) % 8] : i % 2 ? "a" : "b";
    return tensor_string_set(t, i, text, strlen(text), NULL) == CHURON_OK;
}

static bool fill(maker *m, tensor *t) {
    bool good = true;
    const size_t bytes = elem_describe(t->type)->bytes;
    for (size_t i = 0; i < t->count && good; i++) {
        char *to = (char *)t->data + i * bytes;
        const double v = number_of(m, i);
        if (t->type == ELEM_STRING) {
            good = put_string(m, t, i);
        } else if (ELEM_BIT(t->type) & ELEMS_COMPLEX) {
            memset(to, 0, bytes);
        } else {
            elem_from_f64(t->type, &v, to, 1, true);
        }
    }
    return good;
}

/* Dimensions that are not said are 2, or of hostile inputs 0 to 3. */
static bool make_tensor(maker *m, const onnx_type *type, value *out) {
    int64_t dims[TENSOR_MAX_RANK];
    size_t rank = type->has_shape ? type->rank : 2, count;
    if (rank > TENSOR_MAX_RANK) return false;
    for (size_t i = 0; i < rank; i++) {
        const int64_t free_size = m->hostile ? (int64_t)(next_random(&m->random) % 4) : 2;
        dims[i] = type->has_shape && type->dims[i].value >= 0 ? type->dims[i].value : free_size;
    }
    if (tensor_count(type->type, rank, dims, &count, "input", NULL) != CHURON_OK || count > MOST_ELEMENTS)
        return false;
    tensor t;
    if (tensor_alloc(&t, type->type, rank, dims, NULL) != CHURON_OK) return false;
    *out = value_of_tensor(t);
    return fill(m, &out->t);
}

static bool make_value(maker *m, const onnx_type *type, value *out, int depth) {
    *out = (value){.kind = VALUE_NONE};
    if (type->kind == ONNX_OPTIONAL)
        return !type->of || depth > 3 || make_value(m, type->of, out, depth + 1) || true;
    if (type->kind == ONNX_TENSOR) return make_tensor(m, type, out);
    if (type->kind != ONNX_SEQUENCE || !type->of || depth > 3) return false;
    if (value_list_create(out, VALUE_SEQUENCE, 2, NULL) != CHURON_OK) return false;
    bool good = true;
    for (size_t i = 0; i < 2 && good; i++) good = make_value(m, type->of, value_item(out, i), depth + 1);
    return good;
}

/* ---- runs ------------------------------------------------------------------------------------------- */

/* `times` runs: the second of a shape is watched, the third has its places planned. */
static void run(graph *g, maker m, int times) {
    const size_t n_in = graph_n_inputs(g), n_out = graph_n_outputs(g);
    value *in = calloc(n_in + 1, sizeof *in), *out = calloc(n_out + 1, sizeof *out);
    graph_session *s = NULL;
    error err;
    bool good = in && out && graph_session_create(&s, g, &err) == CHURON_OK;
    for (size_t i = 0; i < n_in && good; i++) good = make_value(&m, graph_input(g, i).type, &in[i], 0);
    for (int time = 0; time < times && good; time++) {
        const graph_run_options o = {.deadline = clock_seconds() + 0.05};
        good = graph_run(s, in, out, &o, &err) == CHURON_OK;
        for (size_t i = 0; i < n_out; i++) value_free(&out[i]);
    }
    graph_session_free(s);
    for (size_t i = 0; in && i < n_in; i++) value_free(&in[i]);
    free(in);
    free(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const all[] = {"all"};
    onnx_model *m;
    graph *g;
    error err;
    uint64_t random = size;
    for (size_t i = 0; i < size; i++) random = (random ^ data[i]) * 0x100000001b3;
    if (onnx_parse(&m, data, size, NULL, &err) != CHURON_OK) return 0;
    const graph_options o = {.threads = 1,
                             .max_memory = (uint64_t)32 << 20,
                             .no_pass = all,
                             .n_no_pass = random % 4 == 0,
                             .deadline = clock_seconds() + 0.5};
    if (graph_from_onnx(&g, m, &o, &err) == CHURON_OK) {
        run(g, (maker){.random = random}, 3);
        run(g, (maker){.hostile = true, .random = random}, 1);
        graph_close(g);
    }
    onnx_close(m);
    return 0;
}

/* ---- mutation --------------------------------------------------------------------------------------- */

#ifdef CHURON_FUZZ
enum { DEEPEST = 12, MOST_FIELDS = 4096 };

/* A field of bytes: where its length stands, and its contents. */
typedef struct field {
    size_t length_at, begin, size;
    int parent; /* -1: the message itself */
} field;

typedef struct fields {
    field all[MOST_FIELDS];
    int n;
} fields;

static bool read_varint(const uint8_t *data, size_t end, size_t *at, uint64_t *out) {
    *out = 0;
    for (unsigned shift = 0; shift < 64 && *at < end; shift += 7) {
        const uint8_t byte = data[(*at)++];
        *out |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) return true;
    }
    return false;
}

static bool skip_number(const uint8_t *data, size_t end, size_t *at, unsigned wire) {
    uint64_t ignored;
    if (wire == 0) return read_varint(data, end, at, &ignored);
    const size_t n = wire == 1 ? 8 : wire == 5 ? 4 : SIZE_MAX;
    if (n > end - *at) return false;
    *at += n;
    return true;
}

/* Fields of [begin, end), which may be a message: false and *n as it was if it is none. */
static bool list_fields(const uint8_t *data, size_t begin, size_t end, int parent, int depth, fields *f) {
    const int before = f->n;
    size_t at = begin;
    while (at < end) {
        uint64_t key, size;
        bool good = read_varint(data, end, &at, &key) && key >> 3 != 0;
        if (good && (key & 7) != 2) {
            good = skip_number(data, end, &at, (unsigned)(key & 7));
        } else if (good) {
            const size_t length_at = at;
            good = read_varint(data, end, &at, &size) && size <= end - at && f->n < MOST_FIELDS;
            if (good) {
                const int me = f->n++;
                f->all[me] = (field){length_at, at, (size_t)size, parent};
                if (depth < DEEPEST) (void)list_fields(data, at, at + (size_t)size, me, depth + 1, f);
                at += (size_t)size;
            }
        }
        if (!good) {
            f->n = before;
            return false;
        }
    }
    return true;
}

static size_t put_varint(uint8_t *to, uint64_t v) {
    size_t n = 0;
    for (; v >= 0x80; v >>= 7) to[n++] = (uint8_t)(v | 0x80);
    to[n++] = (uint8_t)v;
    return n;
}

/* Replaces the contents of a field by n bytes and sets the lengths around it right; 0: no room. */
static size_t replace(uint8_t *data, size_t size, size_t most, const fields *f, int which,
                      const uint8_t *with, size_t n) {
    size_t from = f->all[which].begin, to = from + f->all[which].size;
    uint8_t *middle = malloc(n + 16 * (DEEPEST + 2));
    if (!middle) return 0;
    memcpy(middle, with, n);
    size_t length = n; /* of `middle`, which replaces [from, to) */
    for (int at = which; at >= 0; at = f->all[at].parent) {
        const field *a = &f->all[at];
        uint8_t *all = malloc(a->size + length + 32);
        if (!all) {
            free(middle);
            return 0;
        }
        const size_t head = from - a->begin, tail = a->begin + a->size - to;
        size_t k = put_varint(all, head + length + tail);
        memcpy(all + k, data + a->begin, head);
        memcpy(all + k + head, middle, length);
        memcpy(all + k + head + length, data + to, tail);
        length += k + head + tail;
        from = a->length_at;
        to = a->begin + a->size;
        free(middle);
        middle = all;
    }
    const size_t result = from + length + (size - to);
    if (result <= most) {
        memmove(data + from + length, data + to, size - to);
        memcpy(data + from, middle, length);
    }
    free(middle);
    return result <= most ? result : 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned int seed) {
    static fields f;
    uint64_t random = seed;
    f.n = 0;
    if (next_random(&random) % 8 == 0 || !list_fields(data, 0, size, -1, 0, &f) || f.n == 0)
        return LLVMFuzzerMutate(data, size, most);
    const int which = (int)(next_random(&random) % (uint64_t)f.n);
    const field *a = &f.all[which];
    uint8_t *with = malloc(2 * most + 1);
    size_t n = 0;
    if (!with) return 0;
    switch (next_random(&random) % 4) {
    case 0: { /* what another field holds */
        const field *b = &f.all[next_random(&random) % (uint64_t)f.n];
        memcpy(with, data + b->begin, n = b->size);
        break;
    }
    case 1: /* twice */
        if (a->size <= most / 2) {
            memcpy(with, data + a->begin, a->size);
            memcpy(with + a->size, data + a->begin, n = a->size);
            n *= 2;
            break;
        } /* fall through */
    default:
        memcpy(with, data + a->begin, a->size);
        n = LLVMFuzzerMutate(with, a->size, a->size + 64 < most ? a->size + 64 : most);
    }
    const size_t result = replace(data, size, most, &f, which, with, n);
    free(with);
    return result ? result : LLVMFuzzerMutate(data, size, most);
}
#endif

/* decoding.c: operators of com.microsoft that stand in exported generation loops and tokenizers:
 * NGramRepeatBlock (scores of tokens that would repeat an n-gram become -inf), BifurcationDetector (merging
 * of guessed tokens), MurmurHash3 (32-bit hash of each element). */
#include "base/mem.h"
#include "graph/ops/nn.h"
#include "graph/ops/ops.h"

#include <math.h>
#include <string.h>

/* ---- NGramRepeatBlock: input_ids [B, L], scores [B, V] ------------------------------------------------ */

typedef struct ngram_state {
    int64_t least, most; /* NGramRepeatBlock: both the size */
} ngram_state;

static status repeat_prepare(op_node *n, error *err) {
    ngram_state *st = nn_state(n, sizeof *st, err);
    if (!st) return CHURON_NO_MEMORY;
    TRY(op_attr_int(n, "ngram_size", 0, 1, INT32_MAX, &st->least, err));
    return st->least ? CHURON_OK : op_error(n, err, CHURON_INVALID, "ngram_size is required");
}

static status repeat_infer(op_shapes *s, error *err) {
    bool ki, ks;
    size_t rank;
    const dim *ids, *scores;
    TRY(nn_rank(s, 0, 2, 2, "input_ids", &ki, &rank, &ids, err));
    TRY(nn_rank(s, 1, 2, 2, "scores", &ks, &rank, &scores, err));
    if (ki && ks) TRY(shapes_same(s, ids[0], scores[0], "rows of input_ids and scores", NULL, err));
    return ks ? shapes_out(s, 0, 2, scores, err)
              : shapes_out(s, 0, 2, (dim[]){dim_fresh(s), dim_fresh(s)}, err);
}

static status repeat_run(op_run *r, error *err) {
    const size_t n = (size_t)((const ngram_state *)run_state(r))->least;
    const tensor *ids = run_in(r, 0), *scores = run_in(r, 1);
    const size_t length = (size_t)ids->dims[1], words = (size_t)scores->dims[1];
    tensor *y;
    TRY(run_out(r, 0, &y, err));
    if (y->data != scores->data) memcpy(y->data, scores->data, tensor_bytes(scores));
    for (size_t b = 0; b < (size_t)ids->dims[0]; b++) {
        const int64_t *row = (const int64_t *)ids->data + b * length;
        for (size_t i = 0; length >= n && i + n <= length; i++) {
            if (memcmp(row + i, row + length - n + 1, (n - 1) * sizeof *row) != 0) continue;
            const int64_t word = row[i + n - 1];
            if (word < 0 || (uint64_t)word >= words)
                return run_error(r, err, CHURON_INVALID, "input_ids: 0 to %zu expected, got %lld", words - 1,
                                 (long long)word);
            ((float *)y->data)[b * words + (size_t)word] = -INFINITY;
        }
    }
    return CHURON_OK;
}

/* ---- BifurcationDetector: src_tokens, cur_tokens, prev_suffix_match_idx, pred_tokens ------------------ */

static status fork_prepare(op_node *n, error *err) {
    ngram_state *st = nn_state(n, sizeof *st, err);
    if (!st) return CHURON_NO_MEMORY;
    TRY(op_attr_int(n, "min_ngram_size", 1, 1, INT32_MAX, &st->least, err));
    TRY(op_attr_int(n, "max_ngram_size", 3, 1, INT32_MAX, &st->most, err));
    return st->least <= st->most ? CHURON_OK
                                 : op_error(n, err, CHURON_INVALID,
                                            "min_ngram_size: at most max_ngram_size %lld expected, got %lld",
                                            (long long)st->most, (long long)st->least);
}

static status fork_infer(op_shapes *s, error *err) {
    bool known;
    size_t rank;
    const dim *d;
    const size_t lists[] = {0, 1, 3};
    for (size_t i = 0; i < 3; i++)
        if (op_has_input(shapes_node(s), lists[i]))
            TRY(nn_rank(s, lists[i], 1, 1, "tokens", &known, &rank, &d, err));
    if (shapes_running(s))
        shapes_out_unknown(s, 0);
    else
        TRY(shapes_out(s, 0, 1, (dim[]){dim_fresh(s)}, err));
    return shapes_out(s, 1, 1, (dim[]){1}, err);
}

/* Where the last n tokens stand in src: the place behind them if there is one alone, else -1. more: several.
 */
static int64_t find_suffix(const int64_t *src, size_t n_src, const int64_t *tokens, size_t n_tokens, size_t n,
                           bool *more) {
    int64_t found = -1;
    *more = false;
    for (size_t i = 0; i + n <= n_src; i++) {
        if (memcmp(src + i, tokens + n_tokens - n, n * sizeof *src) != 0) continue;
        if (found >= 0) {
            *more = true;
            return -1;
        }
        found = (int64_t)(i + n);
    }
    return found;
}

static status fork_run(op_run *r, error *err) {
    const ngram_state *st = run_state(r);
    const tensor *src = run_in(r, 0), *cur = run_in(r, 1), *at = run_in(r, 2), *guess = run_in(r, 3);
    const int64_t *source = src->data;
    size_t kept = 0;
    if (at->count != 1)
        return run_error(r, err, CHURON_INVALID, "prev_suffix_match_idx: 1 element expected, got %zu",
                         at->count);
    const int64_t from = int_at(at, 0);
    if (guess) {
        if (from < 0 || from > (int64_t)src->count || (int64_t)guess->count != (int64_t)src->count + 1 - from)
            return run_error(r, err, CHURON_INVALID,
                             "pred_tokens: one more than what src_tokens has behind %lld expected, got %zu",
                             (long long)from, guess->count);
        while (kept < src->count - (size_t)from &&
               source[(size_t)from + kept] == ((const int64_t *)guess->data)[kept])
            kept++;
        kept++; /* the first that differs is the model's own */
    }
    const int64_t n = (int64_t)(cur->count + kept);
    tensor *tokens, *index;
    TRY(run_out_shaped(r, 0, ELEM_I64, 1, &n, &tokens, err));
    if (cur->count) memcpy(tokens->data, cur->data, cur->count * sizeof(int64_t));
    if (kept) memcpy((int64_t *)tokens->data + cur->count, guess->data, kept * sizeof(int64_t));
    int64_t match = -1;
    for (int64_t k = st->least; k <= st->most && k <= n; k++) {
        bool more;
        match = find_suffix(source, src->count, tokens->data, (size_t)n, (size_t)k, &more);
        if (!more) break; /* one place, or none: longer suffixes do not stand there either */
    }
    TRY(run_out(r, 1, &index, err));
    if (index) *(int64_t *)index->data = match;
    return CHURON_OK;
}

/* ---- MurmurHash3 (Austin Appleby's x86_32 form, public domain) ---------------------------------------- */

typedef struct murmur_state {
    int64_t seed;
    bool positive;
} murmur_state;

static status murmur_prepare(op_node *n, error *err) {
    murmur_state *st = nn_state(n, sizeof *st, err);
    if (!st) return CHURON_NO_MEMORY;
    TRY(op_attr_int(n, "seed", 0, 0, UINT32_MAX, &st->seed, err));
    return op_attr_bool(n, "positive", true, &st->positive, err);
}

static status murmur_infer(op_shapes *s, error *err) {
    const murmur_state *st = shapes_state(s);
    shapes_out_type(s, 0, st->positive ? ELEM_U32 : ELEM_I32);
    return infer_same(s, err);
}

static uint32_t turn(uint32_t x, unsigned by) {
    return x << by | x >> (32 - by);
}

static uint32_t murmur(const uint8_t *p, size_t n, uint32_t seed) {
    uint32_t h = seed, k = 0;
    for (size_t i = 0; i < n; i++) {
        k |= (uint32_t)p[i] << i % 4 * 8;
        if (i % 4 != 3 && i + 1 != n) continue;
        h ^= turn(k * 0xcc9e2d51U, 15) * 0x1b873593U;
        if (i % 4 == 3) h = turn(h, 13) * 5 + 0xe6546b64U;
        k = 0;
    }
    h ^= (uint32_t)n;
    h = (h ^ h >> 16) * 0x85ebca6bU;
    h = (h ^ h >> 13) * 0xc2b2ae35U;
    return h ^ h >> 16;
}

static status murmur_run(op_run *r, error *err) {
    const murmur_state *st = run_state(r);
    const tensor *x = run_in(r, 0);
    const size_t size = elem_describe(x->type)->bytes;
    tensor *y;
    TRY(run_out(r, 0, &y, err));
    for (size_t i = 0; i < x->count; i++) {
        const tensor_string *s = (const tensor_string *)x->data + i;
        const uint8_t *p = (const uint8_t *)x->data + i * size;
        ((uint32_t *)y->data)[i] = x->type == ELEM_STRING
                                       ? murmur((const uint8_t *)s->data, s->len, (uint32_t)st->seed)
                                       : murmur(p, size, (uint32_t)st->seed);
    }
    return CHURON_OK;
}

#define I64 ELEM_BIT(ELEM_I64)

static const op_def rows[] = {
    {.domain = "com.microsoft",
     .name = "NGramRepeatBlock",
     .since = 1,
     .flags = OP_INPLACE_1,
     .signature = "if>f",
     .prepare = repeat_prepare,
     .release = mem_free,
     .infer = repeat_infer,
     .run = repeat_run},
    {.domain = "com.microsoft",
     .name = "BifurcationDetector",
     .since = 1,
     .signature = "iii=i>ii",
     .prepare = fork_prepare,
     .release = mem_free,
     .infer = fork_infer,
     .run = fork_run},
    {.domain = "com.microsoft",
     .name = "MurmurHash3",
     .since = 1,
     .signature = "T>@",
     .vars = {{'T', I64 | ELEM_BIT(ELEM_I32) | ELEM_BIT(ELEM_U32) | ELEM_BIT(ELEM_U64) | ELEM_BIT(ELEM_F32) |
                        ELEM_BIT(ELEM_F64) | ELEM_BIT(ELEM_STRING)}},
     .prepare = murmur_prepare,
     .release = mem_free,
     .infer = murmur_infer,
     .run = murmur_run},
};
NN_TABLE(decoding);

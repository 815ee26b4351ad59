/* speculate.c: see speculate.h. The lookup chains the positions behind equal pairs of tokens (by their hash),
 * the latest first, so that appending and taking back are one step each. */
#include "lm/speculate.h"

#include "base/mem.h"

#include <string.h>

/* ---- lookup ----------------------------------------------------------------------------------------- */

/* Position p stands for the pair tokens[p-2], tokens[p-1]; 0 ends a chain. */
struct ngram_index {
    size_t max_tokens, n; /* positions up to n are linked */
    size_t mask;
    const int32_t *tokens; /* of the last call */
    uint32_t *latest;      /* [mask+1]: the last position of a pair with this hash */
    uint32_t *before;      /* [max_tokens+1]: the one before a position */
};

status ngram_create(ngram_index **out, size_t max_tokens, error *err) {
    *out = NULL;
    if (max_tokens >= UINT32_MAX) {
        return error_set(err, CHURON_LIMIT, "tokens: expected fewer than 2^32, got %zu", max_tokens);
    }
    size_t buckets = 64;
    while (buckets < max_tokens) buckets *= 2;
    ngram_index *x = mem_calloc(1, sizeof *x);
    if (!x) return error_no_memory(err, "lookup of tokens", sizeof *x);
    x->max_tokens = max_tokens;
    x->mask = buckets - 1;
    x->latest = mem_calloc(buckets, sizeof *x->latest);
    x->before = mem_calloc(max_tokens + 1, sizeof *x->before);
    if (!x->latest || !x->before) {
        ngram_free(x);
        return error_no_memory(err, "lookup of tokens", (buckets + max_tokens) * sizeof(uint32_t));
    }
    *out = x;
    return CHURON_OK;
}

void ngram_free(ngram_index *x) {
    if (!x) return;
    mem_free(x->latest);
    mem_free(x->before);
    mem_free(x);
}

static size_t bucket(const ngram_index *x, const int32_t *end) {
    const uint64_t pair = (uint64_t)(uint32_t)end[-2] << 32 | (uint32_t)end[-1];
    return (size_t)(pair * UINT64_C(0x9e3779b97f4a7c15) >> 32) & x->mask;
}

void ngram_follow(ngram_index *x, const int32_t *tokens, size_t n) {
    x->tokens = tokens;
    if (n > x->max_tokens) n = x->max_tokens;
    while (x->n < n) {
        const size_t p = ++x->n;
        if (p < NGRAM_LEAST) continue;
        uint32_t *latest = &x->latest[bucket(x, tokens + p)];
        x->before[p] = *latest;
        *latest = (uint32_t)p;
    }
}

void ngram_truncate(ngram_index *x, size_t length) {
    for (; x->n > length; x->n--) {
        if (x->n >= NGRAM_LEAST) x->latest[bucket(x, x->tokens + x->n)] = x->before[x->n];
    }
}

/* Equal tokens before two ends, up to NGRAM_MOST; a < b. */
static size_t match_length(const int32_t *tokens, size_t a, size_t b) {
    size_t n = 0;
    while (n < NGRAM_MOST && n < a && tokens[a - 1 - n] == tokens[b - 1 - n]) n++;
    return n;
}

size_t ngram_draft(const ngram_index *x, const int32_t *tokens, size_t n, size_t most, int32_t *draft,
                   size_t *match) {
    *match = 0;
    if (n < NGRAM_LEAST || n > x->n) return 0;
    size_t from = 0, p = x->latest[bucket(x, tokens + n)];
    for (size_t i = 0; p != 0 && i < NGRAM_VISITED && *match < NGRAM_MOST; p = x->before[p]) {
        if (p >= n) continue;
        const size_t length = match_length(tokens, p, n);
        i++;
        if (length < NGRAM_LEAST || length <= *match) continue;
        *match = length;
        from = p;
    }
    if (*match == 0) return 0;
    /* A copy that catches up with itself goes on with what it wrote: a loop. */
    for (size_t i = 0; i < most; i++) draft[i] = from + i < n ? tokens[from + i] : draft[from + i - n];
    return most;
}

/* ---- how long a draft pays -------------------------------------------------------------------------- */

#define COST_KEEP    0.97  /* of what was known, at each step */
#define COST_GUESS   0.2   /* of a row beside a step, before it is known: SmolLM2 on two cores */
#define RECORD_KEEP  0.9f  /* of a sequence's record, at each draft */
#define SHARED_KEEP  0.99f /* of the engine's */
#define PRIOR_WEIGHT 2.0   /* tokens that the engine's record counts as, in a sequence's */
#define LEAST_GAIN   1.03  /* the throughput that a draft must promise, beside none */
enum { PATIENCE_FIRST = 8, PATIENCE_MOST = 512 };

void step_cost_add(step_cost *c, size_t rows, double seconds) {
    if (!(seconds > 0) || rows == 0) return;
    /* One step that the machine held up must not count as a cost of rows. */
    if (c->weight > 4 && seconds > 4 * c->seconds / c->weight) return;
    const double r = (double)rows;
    c->weight = c->weight * COST_KEEP + 1;
    c->rows = c->rows * COST_KEEP + r;
    c->seconds = c->seconds * COST_KEEP + seconds;
    c->rows_rows = c->rows_rows * COST_KEEP + r * r;
    c->rows_seconds = c->rows_seconds * COST_KEEP + r * seconds;
}

double step_cost_marginal(const step_cost *c, size_t n_rows) {
    const double n = n_rows ? (double)n_rows : 1;
    double each = COST_GUESS, fixed = 1 - COST_GUESS;
    if (c->weight > 4) {
        const double r = c->rows / c->weight, s = c->seconds / c->weight;
        const double variance = c->rows_rows / c->weight - r * r;
        const double slope = variance > 0.05 ? (c->rows_seconds / c->weight - r * s) / variance : 0;
        if (variance > 0.05 && slope > 0) {
            each = slope;
            fixed = s - slope * r > 0 ? s - slope * r : 0;
        }
    }
    const double marginal = each / (fixed / n + each);
    return marginal < 0.02 ? 0.02 : marginal;
}

static size_t class_of(size_t match) {
    if (match == 0) return 0;
    return match <= 2 ? 1 : match <= 3 ? 2 : match <= 7 ? 3 : match <= 15 ? 4 : 5;
}

/* Probability that a drafted token is right. */
static double likelihood(const draft_control *c, const draft_control *all, size_t class) {
    static const double guess[DRAFT_CLASSES] = {0.6, 0.3, 0.4, 0.55, 0.75, 0.85};
    const draft_record *r = &c->classes[class], *a = &all->classes[class];
    const double prior = ((double)a->right + PRIOR_WEIGHT * guess[class]) /
                         ((double)a->right + (double)a->wrong + PRIOR_WEIGHT);
    return ((double)r->right + PRIOR_WEIGHT * prior) / ((double)r->right + (double)r->wrong + PRIOR_WEIGHT);
}

size_t draft_length(draft_control *c, const draft_control *all, size_t match, size_t most, double marginal) {
    const size_t class = class_of(match);
    draft_record *r = &c->classes[class];
    const double p = likelihood(c, all, class);
    double tokens = 1, right = 1, best = LEAST_GAIN;
    size_t length = 0;
    for (size_t k = 1; k <= most && k <= DRAFT_MAX; k++) {
        right *= p;
        tokens += right;
        const double gain = tokens / (1 + marginal * (double)k);
        if (gain > best) best = gain, length = k;
    }
    if (length > 0 || most == 0) {
        if (length > 0) r->skipped = r->patience = 0;
        return length;
    }
    if (r->patience == 0) r->patience = PATIENCE_FIRST;
    if (++r->skipped < r->patience) return 0;
    r->skipped = 0;
    r->patience = r->patience * 2 < PATIENCE_MOST ? r->patience * 2 : PATIENCE_MOST;
    return 1;
}

static void record(draft_record *r, float keep, size_t drafted, size_t accepted) {
    r->right = r->right * keep + (float)accepted;
    r->wrong = r->wrong * keep + (accepted < drafted ? 1.0f : 0.0f);
}

void draft_outcome(draft_control *c, draft_control *all, size_t match, size_t drafted, size_t accepted) {
    const size_t class = class_of(match);
    if (drafted == 0) return;
    record(&c->classes[class], RECORD_KEEP, drafted, accepted);
    record(&all->classes[class], SHARED_KEEP, drafted, accepted);
}

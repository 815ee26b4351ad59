/* speculate.c: see speculate.h. The lookup chains the positions behind equal pairs of tokens (by their hash),
 * the latest first, so that appending and taking back are one step each. */
#include "lm/speculate.h"

#include "base/mem.h"

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

#define COST_NEW     0.25  /* weight of a new step */
#define COST_ROW     0.15  /* a row more than any that was seen, beside those: a guess */
#define RECORD_KEEP  0.9f  /* of a job's record, at each draft */
#define SHARED_KEEP  0.99f /* of the engine's */
#define PRIOR_WEIGHT 2.0   /* tokens that the engine's record counts as, in a job's */
#define LEAST_GAIN   1.03  /* the throughput that drafts must promise, beside none */
enum { PATIENCE_FIRST = 8, PATIENCE_MOST = 512 };

void step_cost_add(step_cost *c, size_t rows, double seconds) {
    if (!(seconds > 0) || rows == 0 || rows > COST_ROWS) return;
    float *known = &c->seconds[rows];
    if (*known == 0.0f) {
        *known = (float)seconds;
        return;
    }
    /* A step that the machine held up says little. */
    if (seconds > 2 * (double)*known) seconds = 2 * (double)*known;
    *known += (float)(COST_NEW * (seconds - (double)*known));
}

double step_cost_of(const step_cost *c, size_t rows) {
    size_t below = rows < COST_ROWS ? rows : COST_ROWS, above = rows;
    while (below > 0 && c->seconds[below] == 0.0f) below--;
    while (above <= COST_ROWS && c->seconds[above] == 0.0f) above++;
    const double low = (double)c->seconds[below], high = above <= COST_ROWS ? (double)c->seconds[above] : 0;
    if (below == rows) return low;
    const double far = (double)(rows - below);
    if (below > 0 && high > 0) return low + (high - low) * far / (double)(above - below);
    if (below > 0) return low * (1 + COST_ROW * far);
    if (high > 0) return high / (1 + COST_ROW * (double)(above - rows));
    return 1 + COST_ROW * (double)rows - COST_ROW;
}

static size_t class_of(size_t match) {
    if (match == 0) return 0;
    return match <= 2 ? 1 : match <= 3 ? 2 : match <= 7 ? 3 : match <= 15 ? 4 : 5;
}

double draft_likelihood(const draft_control *c, const draft_control *all, size_t match) {
    static const double guess[DRAFT_CLASSES] = {0.6, 0.3, 0.4, 0.55, 0.75, 0.85};
    const size_t class = class_of(match);
    const draft_record *r = &c->classes[class], *a = &all->classes[class];
    const double prior = ((double)a->right + PRIOR_WEIGHT * guess[class]) /
                         ((double)a->right + (double)a->wrong + PRIOR_WEIGHT);
    return ((double)r->right + PRIOR_WEIGHT * prior) / ((double)r->right + (double)r->wrong + PRIOR_WEIGHT);
}

bool draft_probe(draft_control *c, size_t match) {
    draft_record *r = &c->classes[class_of(match)];
    if (r->patience == 0) r->patience = PATIENCE_FIRST;
    if (++r->skipped < r->patience) return false;
    r->skipped = 0;
    r->patience = r->patience * 2 < PATIENCE_MOST ? r->patience * 2 : PATIENCE_MOST;
    return true;
}

static void record(draft_record *r, float keep, size_t drafted, size_t accepted) {
    r->right = r->right * keep + (float)accepted;
    r->wrong = r->wrong * keep + (accepted < drafted ? 1.0f : 0.0f);
}

void draft_outcome(draft_control *c, draft_control *all, size_t match, size_t drafted, size_t accepted) {
    draft_record *r = &c->classes[class_of(match)];
    if (drafted == 0) return;
    record(r, RECORD_KEEP, drafted, accepted);
    record(&all->classes[class_of(match)], SHARED_KEEP, drafted, accepted);
    if (accepted == drafted) r->skipped = r->patience = 0;
}

/* The most promising token that is not chosen yet; n if there is none. */
static size_t best_offer(const draft_offer *offers, const double *gain, size_t n) {
    size_t best = n;
    for (size_t i = 0; i < n; i++) {
        if (offers[i].length < offers[i].most && (best == n || gain[i] > gain[best])) best = i;
    }
    return best;
}

/* Tokens are taken in order of their promise; where that leads to the most tokens a second, it stops. */
static void allot(const step_cost *c, size_t rows, size_t room, draft_offer *offers, size_t n) {
    double gain[DRAFT_OFFERS], tokens = (double)rows, drafting = 0;
    const double without = tokens / step_cost_of(c, rows);
    double best = without * LEAST_GAIN;
    size_t taken = 0, best_taken = 0;
    uint8_t order[DRAFT_OFFERS * DRAFT_MAX];
    for (size_t i = 0; i < n; i++) {
        offers[i].length = 0;
        gain[i] = offers[i].likelihood;
    }
    for (size_t i = best_offer(offers, gain, n); i < n && taken < room; i = best_offer(offers, gain, n)) {
        order[taken++] = (uint8_t)i;
        offers[i].length++;
        tokens += gain[i];
        drafting += offers[i].seconds;
        gain[i] *= offers[i].likelihood;
        const double rate = tokens / (step_cost_of(c, rows + taken) + drafting);
        if (rate > best) best = rate, best_taken = taken;
    }
    while (taken > best_taken) offers[order[--taken]].length--;
}

void draft_allot(const step_cost *c, size_t rows, size_t room, draft_offer *offers, size_t n) {
    const size_t first = n < DRAFT_OFFERS ? n : DRAFT_OFFERS;
    for (size_t i = first; i < n; i++) offers[i].length = 0;
    allot(c, rows, room, offers, first);
}

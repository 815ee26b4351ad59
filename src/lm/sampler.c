/* sampler.c: from logits to a token.
 *
 * Three ways give the same kept set, chosen by the request alone:
 * list: the k largest logits, in descending order, when top_k (or the vocabulary) is at most TOP_MAX;
 * all: without top_k, weights of the whole vocabulary, where what is cut off gets weight 0; the cut of top_p
 *      lies among the LIST_FIRST largest, or is found by halving an interval of logits;
 * sorted: the whole vocabulary in descending order, for steps that need it (typical_p, tiny xtc_threshold,
 *      larger top_k).
 * With t = (logit - largest) / temperature, a weight is exp(t) and a probability weight/sum. Sums run in a
 * fixed order that depends on no instruction set. */
#include "lm/sampler.h"

#include "base/mem.h"
#include "kernel/select.h"
#include "kernel/vector.h"
#include "lm/history.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LIST_FIRST = 256 };
enum { STREAM_DRAW = 0, STREAM_XTC = 1 };

typedef enum sampler_way { WAY_GREEDY, WAY_LIST, WAY_ALL, WAY_SORTED } sampler_way;

/* A logit before the steps changed it. */
typedef struct original {
    int32_t id;
    float logit;
} original;

struct sampler {
    sampler_params p; /* bias and dry_breakers: own copies */
    logit_bias *bias;
    int32_t *breakers; /* ascending */
    size_t n_vocab;
    sampler_way way;
    size_t first;  /* length of the list that top_k fills */
    float inverse; /* 1 / temperature */
    float min_t;   /* log(min_p): tokens that far below the largest are dropped; -infinity without min_p */
    history history;
    original *originals; /* kept only for log-probabilities */
    size_t n_originals;
    /* candidates in descending order, [capacity] */
    size_t n, capacity;
    uint32_t *id;
    float *t, *w;
    /* WAY_ALL: by token id, [n_vocab]; `drawn_all`: the last draw was from those with t >= least. Where no
     * step cuts anything off, t is needed for a weight alone: all_t is [LSE_BLOCK] and used again. */
    float *all_t, *all_w, least;
    double *block_sum; /* [blocks of LSE_BLOCK], of all_w as all_fill left it */
    bool drawn_all, cuts;
    uint64_t *keys, *spare; /* [capacity] */
    token_logprob *top;     /* [n_logprobs] */
};

/* ---- create ------------------------------------------------------------------------------------------ */

static bool uses_history(const sampler_params *p) {
    bool penalty = p->repeat_penalty != 1.0f || p->frequency_penalty != 0.0f || p->presence_penalty != 0.0f;
    return (penalty && p->repeat_last_n > 0) || p->dry_multiplier > 0.0f;
}

static sampler_way choose_way(const sampler_params *p, size_t n_vocab) {
    if (p->temperature == 0.0f || p->top_k == 1) return WAY_GREEDY;
    if (n_vocab <= TOP_MAX || (p->top_k > 0 && p->top_k <= TOP_MAX)) return WAY_LIST;
    bool small_xtc = p->xtc_probability > 0.0f && p->xtc_threshold * (float)LIST_FIRST < 2.0f;
    return p->top_k > 0 || p->typical_p < 1.0f || small_xtc ? WAY_SORTED : WAY_ALL;
}

/* A step besides top_k and typical_p that leaves tokens out. */
static bool cuts_off(const sampler_params *p) {
    return p->top_p < 1.0f || p->min_p > 0.0f || p->xtc_probability > 0.0f;
}

/* The longest list that top_k fills; a plain draw from all needs but the largest. */
static size_t first_length(const sampler_params *p, sampler_way way) {
    if (way == WAY_GREEDY) return 1;
    if (way == WAY_LIST) return p->top_k > 0 && p->top_k <= TOP_MAX ? p->top_k : TOP_MAX;
    return cuts_off(p) ? LIST_FIRST : 1;
}

static int by_id(const void *a, const void *b) {
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

static bool wants_logprobs(const sampler_params *p) {
    return p->want_logprobs || p->n_logprobs > 0;
}

/* Zero bytes are no failure. */
static bool take(void *out, size_t count, size_t size) {
    void *p = mem_calloc(count > 0 ? count : 1, size);
    memcpy(out, &p, sizeof p);
    return p != NULL;
}

static bool take_all(sampler *s, size_t max_context) {
    const sampler_params *p = &s->p;
    s->capacity = s->way == WAY_GREEDY ? 1 : s->way == WAY_SORTED ? s->n_vocab : TOP_MAX;
    size_t all = s->way == WAY_ALL ? s->n_vocab : 0, blocks = (all + LSE_BLOCK - 1) / LSE_BLOCK;
    size_t all_t = s->cuts ? all : blocks > 0 ? LSE_BLOCK : 0;
    size_t changes = wants_logprobs(p) ? p->n_bias + 2 * max_context : 0;
    return take(&s->bias, p->n_bias, sizeof *s->bias) &&
           take(&s->breakers, p->n_dry_breakers, sizeof *s->breakers) &&
           take(&s->originals, changes, sizeof *s->originals) && take(&s->id, s->capacity, sizeof *s->id) &&
           take(&s->t, s->capacity, sizeof *s->t) && take(&s->w, s->capacity, sizeof *s->w) &&
           take(&s->keys, s->capacity, sizeof *s->keys) && take(&s->spare, s->capacity, sizeof *s->spare) &&
           take(&s->all_t, all_t, sizeof *s->all_t) && take(&s->all_w, all, sizeof *s->all_w) &&
           take(&s->block_sum, blocks, sizeof *s->block_sum) && take(&s->top, p->n_logprobs, sizeof *s->top);
}

status sampler_create(sampler **out, const sampler_params *p, size_t n_vocab, size_t max_context,
                      error *err) {
    *out = NULL;
    if (n_vocab == 0 || n_vocab > INT32_MAX) {
        return error_set(err, CHURON_INVALID, "n_vocab: expected 1..%d, got %zu", INT32_MAX, n_vocab);
    }
    TRY(sampler_check(p, n_vocab, err));
    sampler *s = mem_calloc(1, sizeof *s);
    if (s == NULL) return error_no_memory(err, "sampler", sizeof *s);
    s->p = *p;
    if (p->dry_multiplier == 0.0f) s->p.n_dry_breakers = 0;
    if (s->p.n_logprobs > n_vocab) s->p.n_logprobs = n_vocab;
    s->n_vocab = n_vocab;
    s->way = choose_way(p, n_vocab);
    s->cuts = cuts_off(p);
    s->first = first_length(p, s->way);
    s->inverse = p->temperature > 0.0f ? fminf(1.0f / p->temperature, FLT_MAX) : 0.0f;
    s->min_t = p->min_p > 0.0f ? (float)log_value((double)p->min_p) : -INFINITY;
    size_t max = uses_history(p) ? max_context : 0;
    status st = CHURON_OK;
    if (!take_all(s, max)) {
        st = error_no_memory(err, "sampler", s->capacity * 28 + (s->way == WAY_ALL ? n_vocab * 8 : 0));
    } else if (max > 0) {
        st = history_open(&s->history, max, err);
    }
    if (st != CHURON_OK) {
        sampler_free(s);
        return st;
    }
    if (s->p.n_bias > 0) memcpy(s->bias, p->bias, s->p.n_bias * sizeof *s->bias);
    if (s->p.n_dry_breakers > 0) {
        memcpy(s->breakers, p->dry_breakers, s->p.n_dry_breakers * sizeof *s->breakers);
        qsort(s->breakers, s->p.n_dry_breakers, sizeof *s->breakers, by_id);
    }
    *out = s;
    return CHURON_OK;
}

void sampler_free(sampler *s) {
    if (s == NULL) return;
    history_close(&s->history);
    mem_free(s->bias);
    mem_free(s->breakers);
    mem_free(s->originals);
    mem_free(s->id);
    mem_free(s->t);
    mem_free(s->w);
    mem_free(s->keys);
    mem_free(s->spare);
    mem_free(s->all_t);
    mem_free(s->all_w);
    mem_free(s->block_sum);
    mem_free(s->top);
    mem_free(s);
}

void sampler_accept(sampler *s, int32_t id) {
    history_accept(&s->history, id);
}

/* ---- steps on single logits -------------------------------------------------------------------------- */

static void change(sampler *s, float *logits, int32_t id, float to) {
    if (wants_logprobs(&s->p)) s->originals[s->n_originals++] = (original){id, logits[id]};
    logits[id] = to;
}

static void apply_penalties(sampler *s, float *logits) {
    const sampler_params *p = &s->p;
    if (p->repeat_penalty == 1.0f && p->frequency_penalty == 0.0f && p->presence_penalty == 0.0f) return;
    history_counts(&s->history, p->repeat_last_n);
    for (size_t i = 0; i < s->history.n_entries; i++) {
        history_entry e = s->history.entries[i];
        if (e.id < 0 || (size_t)e.id >= s->n_vocab) continue;
        float x = logits[e.id];
        x = x > 0.0f ? x / p->repeat_penalty : x * p->repeat_penalty;
        change(s, logits, e.id, x - ((float)e.value * p->frequency_penalty + p->presence_penalty));
    }
}

/* base^n, at most the largest float. */
static float bounded_power(float base, uint32_t n) {
    double result = 1.0, square = (double)base;
    for (; n > 0; n /= 2) {
        if (n % 2 == 1) result *= square;
        square *= square;
    }
    return result < (double)FLT_MAX ? (float)result : FLT_MAX;
}

static void apply_dry(sampler *s, float *logits) {
    const sampler_params *p = &s->p;
    if (p->dry_multiplier == 0.0f) return;
    size_t last_n = p->dry_last_n > 0 ? p->dry_last_n : SIZE_MAX;
    history_repeats(&s->history, last_n, p->dry_allowed_length, s->breakers, p->n_dry_breakers);
    for (size_t i = 0; i < s->history.n_entries; i++) {
        history_entry e = s->history.entries[i];
        if (e.id < 0 || (size_t)e.id >= s->n_vocab) continue;
        float penalty = p->dry_multiplier * bounded_power(p->dry_base, e.value - p->dry_allowed_length);
        change(s, logits, e.id, logits[e.id] - fminf(penalty, FLT_MAX));
    }
}

static void apply_single(sampler *s, float *logits) {
    s->n_originals = 0;
    for (size_t i = 0; i < s->p.n_bias; i++) {
        change(s, logits, s->bias[i].id, logits[s->bias[i].id] + s->bias[i].bias);
    }
    if (s->history.length == 0) return;
    apply_penalties(s, logits);
    apply_dry(s, logits);
}

/* ---- steps on a descending list ---------------------------------------------------------------------- */

static double list_sum(const sampler *s) {
    double sum = 0.0;
    for (size_t i = 0; i < s->n; i++) sum += (double)s->w[i];
    return sum;
}

/* Locally typical sampling (Meister et al., 2022): tokens in ascending |-log p - entropy| until typical_p is
 * reached. With log p = t - log(sum) that distance is |t - sum(p*t)|: no logarithm. The rest stays in
 * descending order. */
static void list_typical(sampler *s) {
    double sum = list_sum(s), mean = 0.0, reached = 0.0;
    for (size_t i = 0; i < s->n; i++) {
        if (s->w[i] > 0.0f) mean += (double)s->w[i] * (double)s->t[i];
    }
    mean /= sum;
    for (size_t i = 0; i < s->n; i++) {
        s->keys[i] = select_key(-(float)fabs((double)s->t[i] - mean), (uint32_t)i);
    }
    select_sort(s->keys, s->spare, s->n);
    size_t kept = 0;
    while (kept < s->n) {
        reached += (double)s->w[select_index(s->keys[kept++])];
        if (reached >= (double)s->p.typical_p * sum) break;
    }
    uint8_t *in = (uint8_t *)s->spare; /* [n]: kept */
    memset(in, 0, s->n);
    for (size_t i = 0; i < kept; i++) in[select_index(s->keys[i])] = 1;
    size_t n = 0;
    for (size_t i = 0; i < s->n; i++) {
        if (!in[i]) continue;
        s->id[n] = s->id[i], s->t[n] = s->t[i], s->w[n] = s->w[i];
        n++;
    }
    s->n = n;
}

/* The length of the shortest prefix whose weights reach `wanted`; 0 if all of the list does not. */
static size_t prefix_reaching(const sampler *s, double wanted) {
    double reached = 0.0;
    for (size_t i = 0; i < s->n; i++) {
        reached += (double)s->w[i];
        if (reached >= wanted) return i + 1;
    }
    return 0;
}

/* How many of the list's t are at least `least`. */
static size_t prefix_above(const sampler *s, float least) {
    size_t n = 0;
    while (n < s->n && s->t[n] >= least) n++;
    return n;
}

/* Whether the list holds every token with t of at least `least`. */
static bool list_reaches(const sampler *s, float least) {
    return s->n == s->n_vocab || s->t[s->n - 1] < least;
}

/* Exclude top choices: of the tokens with a probability of at least xtc_threshold all but the least probable
 * are dropped, if there are two or more and the request's own coin says so. Returns how many to drop. */
static size_t xtc_drops(const sampler *s, double sum, uint64_t index) {
    if (s->p.xtc_probability == 0.0f) return 0;
    size_t above = 0;
    while (above < s->n && (double)s->w[above] >= (double)s->p.xtc_threshold * sum) above++;
    if (above < 2) return 0;
    bool acts = sampler_uniform(s->p.seed, index, STREAM_XTC) < (double)s->p.xtc_probability;
    return acts ? above - 1 : 0;
}

static void list_drop(sampler *s, size_t n) {
    memmove(s->id, s->id + n, (s->n - n) * sizeof *s->id);
    memmove(s->t, s->t + n, (s->n - n) * sizeof *s->t);
    memmove(s->w, s->w + n, (s->n - n) * sizeof *s->w);
    s->n -= n;
}

static void list_steps(sampler *s, uint64_t index) {
    const sampler_params *p = &s->p;
    if (p->typical_p < 1.0f) list_typical(s);
    if (p->top_p < 1.0f) {
        size_t n = prefix_reaching(s, (double)p->top_p * list_sum(s));
        if (n > 0) s->n = n;
    }
    if (p->min_p > 0.0f) s->n = prefix_above(s, s->t[0] + s->min_t);
    list_drop(s, xtc_drops(s, list_sum(s), index));
}

/* The number of the first weight at which the running sum passes `target`; where rounding leaves it short of
 * that, the last weight that is not 0. */
static size_t draw_from(const float *w, size_t n, double target) {
    double reached = 0.0;
    size_t last = 0;
    for (size_t i = 0; i < n; i++) {
        if (w[i] > 0.0f) last = i;
        reached += (double)w[i];
        if (reached > target) break;
    }
    return last;
}

static uint32_t list_draw(const sampler *s, uint64_t index) {
    double target = sampler_uniform(s->p.seed, index, STREAM_DRAW) * list_sum(s);
    return s->id[draw_from(s->w, s->n, target)];
}

/* The k largest logits as list with t and w. False if there is no number among them. */
static bool list_fill(sampler *s, const kernels *k, const float *logits, size_t count) {
    s->n = count < s->n_vocab ? count : s->n_vocab;
    k->top_k(logits, s->n_vocab, s->n, s->id, s->t);
    while (s->n > 0 && !(s->t[s->n - 1] > -INFINITY)) s->n--;
    if (s->n == 0) return false;
    float largest = s->t[0];
    for (size_t i = 0; i < s->n; i++) s->t[i] = (s->t[i] - largest) * s->inverse;
    k->exp(s->t, s->w, s->n);
    return true;
}

/* The whole vocabulary as list, or its top_k first. */
static bool list_fill_sorted(sampler *s, const kernels *k, const float *logits) {
    size_t n = 0;
    for (size_t i = 0; i < s->n_vocab; i++) {
        if (logits[i] > -INFINITY) s->keys[n++] = select_key(logits[i], (uint32_t)i);
    }
    if (n == 0) return false;
    select_sort(s->keys, s->spare, n);
    s->n = s->p.top_k > 0 && s->p.top_k < n ? s->p.top_k : n;
    float largest = select_value(s->keys[0]);
    for (size_t i = 0; i < s->n; i++) {
        s->id[i] = select_index(s->keys[i]);
        s->t[i] = (select_value(s->keys[i]) - largest) * s->inverse;
    }
    k->exp(s->t, s->w, s->n);
    return true;
}

/* ---- steps on the whole vocabulary -------------------------------------------------------------------- */

/* What lies at or above a border of t. */
typedef struct upper {
    double sum;
    size_t count;
} upper;

static upper upper_of(const sampler *s, const kernels *k, float least) {
    upper u;
    k->sum_above(s->all_t, s->all_w, s->n_vocab, least, &u.sum, &u.count);
    return u;
}

/* Weights of all tokens, block by block: what a block needs stays in the nearest cache. False when a logit is
 * NaN or +infinity. */
static bool all_fill(sampler *s, const kernels *k, const float *logits, double *sum) {
    const float largest = logits[s->id[0]], inverse = s->inverse;
    size_t numbers = 0;
    *sum = 0.0;
    for (size_t block = 0; block < s->n_vocab; block += LSE_BLOCK) {
        const size_t n = s->n_vocab - block < LSE_BLOCK ? s->n_vocab - block : LSE_BLOCK;
        float *t = s->all_t + (s->cuts ? block : 0), *w = s->all_w + block;
        for (size_t i = 0; i < n; i++) t[i] = (logits[block + i] - largest) * inverse;
        k->exp(t, w, n);
        size_t count;
        double *part = &s->block_sum[block / LSE_BLOCK];
        k->sum_above(t, w, n, -INFINITY, part, &count);
        *sum += *part;
        numbers += count;
    }
    return numbers == s->n_vocab;
}

/* Keys of the tokens with t in [from, to), in the order of their ids; at most `most` of them. */
static size_t gather(const float *t, size_t n, float from, float to, uint64_t *keys, size_t most) {
    size_t count = 0;
    for (size_t i = 0; i < n && count < most; i += LANES) {
        size_t end = n - i < LANES ? n : i + LANES;
        int32_t any = 0;
        for (size_t j = i; j < end; j++) any |= (t[j] >= from) & (t[j] < to);
        if (any == 0) continue;
        for (size_t j = i; j < end && count < most; j++) {
            if (t[j] >= from && t[j] < to) keys[count++] = select_key(t[j], (uint32_t)j);
        }
    }
    return count;
}

/* The end of a descending order: everything above t[last] is in, and of those equal to it the ids up to
 * `last`; `count` tokens in all. */
typedef struct ending {
    size_t last, count;
} ending;

/* Of the tokens with t in [from, to), enough to bring `above` to `wanted`. Many of them are all equal. */
static ending end_within(sampler *s, float from, float to, upper above, bool many, double wanted) {
    const float *t = s->all_t, *w = s->all_w;
    ending end = {s->id[0], above.count};
    double reached = above.sum;
    if (many) {
        for (size_t i = 0; i < s->n_vocab && reached < wanted; i++) {
            if (t[i] != from) continue;
            end = (ending){i, end.count + 1};
            reached += (double)w[i];
        }
        return end;
    }
    size_t count = gather(t, s->n_vocab, from, to, s->keys, s->capacity);
    select_sort(s->keys, s->spare, count);
    for (size_t i = 0; i < count && reached < wanted; i++) {
        end = (ending){select_index(s->keys[i]), end.count + 1};
        reached += (double)w[end.last];
    }
    return end;
}

/* Where the smallest set that reaches `wanted` of `sum` ends, when it is larger than the list. Halves an
 * interval [from, to) of t, in which the end lies, until it holds few tokens. */
static ending find_end(sampler *s, const kernels *k, double sum, double wanted) {
    /* All tokens under log((sum - wanted) / n_vocab) together are less than what may be left out. */
    double rest = (sum - wanted) / (double)s->n_vocab;
    float to = s->t[s->n - 1], from = rest > 1e-30 ? (float)log_value(rest) - 0.01f : EXP_LOW;
    upper above = upper_of(s, k, to), below;
    if (above.sum >= wanted || from >= to) { /* by ties of the list's last, or by rounding */
        from = to;
        below = above;
        to = nextafterf(to, INFINITY);
        above = upper_of(s, k, to);
    } else {
        below = upper_of(s, k, from);
    }
    bool many = false;
    while (below.count - above.count > LIST_FIRST) {
        float middle = from + (to - from) * 0.5f;
        if (middle <= from || middle >= to) {
            many = below.count - above.count > s->capacity;
            break;
        }
        upper u = upper_of(s, k, middle);
        if (u.sum >= wanted) {
            from = middle;
            below = u;
        } else {
            to = middle;
            above = u;
        }
    }
    return end_within(s, from, to, above, many, wanted);
}

/* Cuts off what top_p does; returns the least t that is left. */
static float all_top_p(sampler *s, const kernels *k, double sum, double wanted) {
    ending end = find_end(s, k, sum, wanted);
    float least = s->all_t[end.last];
    if (upper_of(s, k, least).count == end.count) return least;
    for (size_t i = end.last + 1; i < s->n_vocab; i++) {
        if (s->all_t[i] == least) s->all_t[i] = -INFINITY;
    }
    return least;
}

static uint32_t all_draw(const sampler *s, const kernels *k, double sum, uint64_t index) {
    const float *t = s->all_t, *w = s->all_w;
    double target = sampler_uniform(s->p.seed, index, STREAM_DRAW) * sum, reached = 0.0;
    size_t last = s->id[s->n - 1]; /* in case rounding leaves the sum short of the target */
    for (size_t block = 0; block < s->n_vocab; block += LSE_BLOCK) {
        size_t n = s->n_vocab - block < LSE_BLOCK ? s->n_vocab - block : LSE_BLOCK, count;
        double part = s->block_sum[block / LSE_BLOCK];
        if (s->cuts) k->sum_above(t + block, w + block, n, s->least, &part, &count);
        if (reached + part <= target) {
            reached += part;
            continue;
        }
        for (size_t i = block; i < block + n; i++) {
            if (w[i] == 0.0f || (s->cuts && !(t[i] >= s->least))) continue;
            last = i;
            reached += (double)w[i];
            if (reached > target) return (uint32_t)i;
        }
        break;
    }
    return (uint32_t)last;
}

/* min_p and XTC on the list, when the kept set lies in it. */
static uint32_t finish_list(sampler *s, uint64_t index) {
    if (s->p.min_p > 0.0f) s->n = prefix_above(s, s->min_t);
    list_drop(s, xtc_drops(s, list_sum(s), index));
    return list_draw(s, index);
}

/* Draws without top_k from the weights of all, of which the list holds the LIST_FIRST largest. */
static uint32_t all_steps(sampler *s, const kernels *k, double sum, uint64_t index) {
    const sampler_params *p = &s->p;
    s->least = EXP_LOW;
    if (p->top_p < 1.0f) {
        double wanted = (double)p->top_p * sum;
        size_t n = prefix_reaching(s, wanted);
        if (n > 0) s->n = n;
        if (n > 0 || list_reaches(s, s->min_t)) return finish_list(s, index);
        s->least = all_top_p(s, k, sum, wanted);
    }
    if (s->min_t > s->least) s->least = s->min_t;
    s->drawn_all = true;
    if (s->least > EXP_LOW) sum = upper_of(s, k, s->least).sum;
    size_t drops = xtc_drops(s, sum, index); /* its threshold is over 1/LIST_FIRST: the list has them all */
    for (size_t i = 0; i < drops; i++) s->all_w[s->id[i]] = 0.0f;
    if (drops > 0) sum = upper_of(s, k, s->least).sum;
    return all_draw(s, k, sum, index);
}

/* ---- a token ----------------------------------------------------------------------------------------- */

/* NaN counts as impossible, +infinity as the largest number. */
static void make_finite(float *logits, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (isnan(logits[i])) logits[i] = -INFINITY;
        if (logits[i] == INFINITY) logits[i] = FLT_MAX;
    }
}

/* Of the model's own distribution: the largest, and their common subtrahends. */
static void report_top(sampler *s, const kernels *k, float *logits, float *max, float *lse) {
    k->log_sum_exp(logits, s->n_vocab, max, lse);
    if (isnan(*max)) {
        make_finite(logits, s->n_vocab);
        k->log_sum_exp(logits, s->n_vocab, max, lse);
    }
    size_t n = s->p.n_logprobs;
    if (n == 0) return;
    uint32_t ids[TOP_MAX];
    float values[TOP_MAX];
    k->top_k(logits, s->n_vocab, n, ids, values);
    for (size_t i = 0; i < n; i++) s->top[i] = (token_logprob){(int32_t)ids[i], values[i] - *max - *lse};
}

static float original_logit(const sampler *s, const float *logits, uint32_t id) {
    for (size_t i = 0; i < s->n_originals; i++) {
        if (s->originals[i].id == (int32_t)id) return s->originals[i].logit;
    }
    return logits[id];
}

/* False if no logit is a number. */
static bool choose(sampler *s, const kernels *k, float *logits, uint64_t index, uint32_t *id) {
    double sum;
    s->drawn_all = false;
    bool filled = s->way == WAY_SORTED ? list_fill_sorted(s, k, logits) : list_fill(s, k, logits, s->first);
    if (!filled) return false;
    if (isnan(s->t[0])) { /* the largest is +infinity */
        make_finite(logits, s->n_vocab);
        return choose(s, k, logits, index, id);
    }
    if (s->way == WAY_GREEDY) {
        *id = s->id[0];
    } else if (s->way != WAY_ALL || (s->p.top_p == 1.0f && list_reaches(s, s->min_t))) {
        list_steps(s, index);
        *id = list_draw(s, index);
    } else {
        if (!all_fill(s, k, logits, &sum)) {
            make_finite(logits, s->n_vocab);
            return choose(s, k, logits, index, id);
        }
        *id = all_steps(s, k, sum, index);
    }
    return true;
}

status sampler_next(sampler *s, const kernels *k, float *logits, uint64_t index, sampled *out, error *err) {
    float max = 0.0f, lse = 0.0f;
    uint32_t id;
    *out = (sampled){.id = -1, .logprob = NAN, .top = s->top};
    if (wants_logprobs(&s->p)) report_top(s, k, logits, &max, &lse);
    apply_single(s, logits);
    if (!choose(s, k, logits, index, &id)) {
        return error_set(err, CHURON_INTERNAL, "logits: expected a number among %zu, got only NaN and -inf",
                         s->n_vocab);
    }
    out->id = (int32_t)id;
    if (wants_logprobs(&s->p)) {
        out->logprob = original_logit(s, logits, id) - max - lse;
        out->n_top = s->p.n_logprobs;
    }
    return CHURON_OK;
}

size_t sampler_kept(const sampler *s, int32_t *ids, double *probabilities, size_t capacity) {
    size_t n = 0, count = s->drawn_all ? s->n_vocab : s->n;
    const float *w = s->drawn_all ? s->all_w : s->w;
    double sum = 0.0;
    for (int pass = 0; pass < 2; pass++) {
        n = 0;
        for (size_t i = 0; i < count; i++) {
            if (w[i] == 0.0f || (s->drawn_all && s->cuts && !(s->all_t[i] >= s->least))) continue;
            if (pass == 0) sum += (double)w[i];
            if (pass == 1 && n < capacity) {
                ids[n] = s->drawn_all ? (int32_t)i : (int32_t)s->id[i];
                probabilities[n] = (double)w[i] / sum;
            }
            n++;
        }
    }
    return n;
}

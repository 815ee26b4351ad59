/* engine_beam.c: a beam search as one job: its beams are sequences that share pages, copied before they are
 * written. */
#include "base/clock.h"
#include "base/mem.h"
#include "lm/engine_part.h"

/* Alone in the pool it must never run out: the prompt's pages, which the job goes on holding, and for each
 * beam what lies behind the last whole one of them. */
static status check_pool(const engine_job *j, error *err) {
    const size_t prompt = j->seq->n_tokens, last = j->limit - 1, width = j->o.beam.width;
    const size_t shared = prompt / KV_PAGE, pages = kv_cache_pages(j->e->kv);
    const size_t each = (last + KV_PAGE - 1) / KV_PAGE - shared;
    const size_t need = shared + (prompt % KV_PAGE > 0) + width * each;
    if (need <= pages) return CHURON_OK;
    return error_set(err, CHURON_LIMIT, "KV cache: expected at most %zu pages for all beams, got %zu", pages,
                     need);
}

status engine_beams_open(engine_job *j, error *err) {
    const engine *e = j->e;
    const engine_beam_options *o = &j->o.beam;
    if (o->width > e->o.max_running) {
        return error_set(err, CHURON_INVALID, "beam_width: expected at most %zu (max_running), got %zu",
                         e->o.max_running, o->width);
    }
    if (j->o.max_tokens == 0) {
        return error_set(err, CHURON_INVALID, "max_tokens: expected at least 1 for a beam search, got 0");
    }
    TRY(check_pool(j, err));
    engine_beams *b = j->beams = mem_calloc(1, sizeof *b);
    if (!b) return error_no_memory(err, "beam search", sizeof *b);
    b->width = o->width;
    b->kv = mem_calloc(o->width, sizeof *b->kv);
    b->spare = mem_calloc(o->width, sizeof *b->spare);
    b->last = mem_calloc(o->width, sizeof *b->last);
    b->best = mem_calloc(o->width, sizeof *b->best);
    if (!b->kv || !b->spare || !b->last || !b->best) {
        return error_no_memory(err, "beam search", o->width * sizeof *b->kv);
    }
    for (size_t i = 0; i < o->width; i++) {
        TRY(kv_seq_open(&b->kv[i], j->limit, err));
        TRY(kv_seq_open(&b->spare[i], j->limit, err));
    }
    j->sched.rows = o->width;
    return beam_search_create(&b->search, o, j->o.stop_ids, j->o.n_stop_ids, j->limit - j->seq->n_tokens,
                              e->m->config.n_vocab, err);
}

/* Its pages are released by then. */
void engine_beams_close(engine_job *j) {
    engine_beams *b = j->beams;
    if (!b) return;
    for (size_t i = 0; i < b->width; i++) {
        if (b->kv) kv_seq_close(j->e->kv, &b->kv[i]);
        if (b->spare) kv_seq_close(j->e->kv, &b->spare[i]);
    }
    beam_search_free(b->search);
    mem_free(b->kv);
    mem_free(b->spare);
    mem_free(b->last);
    mem_free(b->best);
    mem_free(b);
    j->beams = NULL;
}

/* ---- pages ------------------------------------------------------------------------------------------ */

size_t engine_beams_missing(const engine_job *j, size_t length) {
    const engine_beams *b = j->beams;
    if (!b->branched) return kv_seq_missing(j->e->kv, &j->seq->kv, length);
    size_t n = 0;
    for (size_t i = 0; i < b->width; i++) n += kv_seq_missing(j->e->kv, &b->kv[i], length);
    return n;
}

size_t engine_beams_held(const engine_job *j) {
    const engine_beams *b = j->beams;
    size_t n = 0;
    for (size_t i = 0; i < b->width; i++) n += b->kv[i].n_pages;
    return n;
}

/* One beam after the other: the last that holds a page need not copy it. What some have taken when it fails
 * they keep; the job is put off or asks again. */
bool engine_beams_reserve(engine_job *j, size_t length) {
    const engine_beams *b = j->beams;
    for (size_t i = 0; i < b->width; i++) {
        if (!kv_seq_reserve(j->e->kv, &b->kv[i], length)) return false;
    }
    return true;
}

void engine_beams_release(engine_job *j) {
    engine_beams *b = j->beams;
    for (size_t i = 0; i < b->width; i++) kv_seq_release(j->e->kv, &b->kv[i]);
    b->branched = false;
    if (j->ending != ENGINE_RUNNING) return;
    beam_search_restart(b->search);
    j->sched.length = j->seq->n_tokens;
}

size_t engine_beams_wasted(const engine_job *j) {
    const engine_beams *b = j->beams;
    size_t n = 0;
    for (size_t i = 0; i < b->width; i++) {
        n += b->kv[i].n_pages * KV_PAGE - (j->sched.computed + j->sched.planned);
    }
    return n;
}

/* ---- a step ----------------------------------------------------------------------------------------- */

void engine_beams_plan(engine_job *j) {
    engine *e = j->e;
    engine_beams *b = j->beams;
    e->n_rows += b->width;
    for (size_t i = 0; i < b->width; i++) {
        e->spans[e->n_spans++] = (span){
            .kv = &b->kv[i], .tokens = &b->last[i], .n = 1, .position = b->kv[i].length, .n_outputs = 1};
        e->out_job[e->n_outputs] = j;
        e->out_position[e->n_outputs++] = b->kv[i].length;
    }
}

void engine_beams_row(engine_job *j, const float *logits) {
    engine_beams *b = j->beams;
    const size_t at = b->offered++;
    if (j->first_token == 0.0) j->first_token = clock_seconds();
    if (!beam_search_offer(b->search, j->e->m->k, at, logits) && j->ending == ENGINE_RUNNING) {
        (void)error_set(&j->err, CHURON_INTERNAL, "beam %zu: expected finite logits, got none", at);
        j->ending = ENGINE_FAILED;
    }
    if (b->offered < beam_search_live(b->search)) return;
    b->offered = 0;
    if (j->ending != ENGINE_RUNNING) return;
    b->steps = beam_search_next(b->search);
    if (b->steps) return;
    j->ending = beam_search_is_done(b->search) ? ENGINE_STOP : ENGINE_LENGTH;
    (void)beam_search_best(b->search, b->best, b->width);
    j->tokens = b->best[0].n;
}

void engine_beams_publish(engine_job *j) {
    engine_beams *b = j->beams;
    kv_cache *kv = j->e->kv;
    const size_t done = beam_search_length(b->search);
    if (done == 0) return; /* its prompt is not computed yet */
    for (size_t i = 0; i < b->width; i++) {
        kv_seq_fork(kv, &b->spare[i], b->branched ? &b->kv[b->steps[i].from] : &j->seq->kv);
        b->last[i] = b->steps[i].token;
    }
    for (size_t i = 0; i < b->width; i++) kv_seq_release(kv, &b->kv[i]);
    kv_seq *const before = b->kv;
    b->kv = b->spare;
    b->spare = before;
    b->branched = true;
    j->sched.computed = b->kv[0].length;
    j->sched.length = j->seq->n_tokens + done;
}

void engine_beams_tell(const engine_job *j) {
    const engine_beams *b = j->beams;
    const size_t n = beam_search_best(b->search, b->best, b->width);
    if (j->o.on_beams) j->o.on_beams(j->o.user, b->best, n);
}

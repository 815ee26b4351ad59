/* logits.c: `logits MODEL [THREADS [STEP_TOKENS]]` reads lines of token ids from stdin, computes each line as
 * one sequence and writes the logits of every position to stdout: f32 [tokens, n_vocab] for line after line.
 */
#include "base/mem.h"
#include "format/gguf.h"
#include "lm/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct writer {
    size_t n_vocab, next;
    bool failed;
} writer;

static void write_row(void *user, size_t position, const float *logits) {
    writer *w = user;
    w->failed |= position != w->next++ || fwrite(logits, sizeof *logits, w->n_vocab, stdout) != w->n_vocab;
}

static void keep_error(void *user, engine_finish finish, const error *err) {
    (void)user;
    if (finish == ENGINE_FAILED) fprintf(stderr, "logits: %s\n", err->message);
}

static status score(engine *e, const int32_t *ids, size_t n, size_t n_vocab, error *err) {
    engine_seq *s;
    engine_job *job;
    TRY(engine_seq_open(&s, e, NULL, err));
    writer w = {n_vocab, 0, false};
    engine_job_options o = {.sampling = sampler_defaults(),
                            .all_logits = true,
                            .user = &w,
                            .on_logits = write_row,
                            .on_end = keep_error};
    status st = engine_seq_append(s, ids, n, err);
    if (st == CHURON_OK) st = engine_submit(&job, s, &o, err);
    if (st == CHURON_OK) {
        engine_finish finish = engine_wait(job);
        engine_job_free(job);
        if (finish != ENGINE_LENGTH || w.failed || w.next != n) {
            st = error_set(err, CHURON_INTERNAL, "finish %d, %zu rows of %zu", finish, w.next, n);
        }
    }
    engine_seq_close(s);
    return st;
}

static status score_lines(engine *e, size_t n_vocab, error *err) {
    char *line = NULL;
    size_t cap = 0;
    status st = CHURON_OK;
    while (st == CHURON_OK && getline(&line, &cap, stdin) > 0) {
        size_t n = 0;
        int32_t *ids = mem_alloc(strlen(line) * sizeof *ids);
        if (!ids) return error_no_memory(err, "ids", strlen(line) * sizeof *ids);
        for (char *at = line, *end;; at = end) {
            long id = strtol(at, &end, 10);
            if (end == at) break;
            ids[n++] = (int32_t)id;
        }
        st = score(e, ids, n, n_vocab, err);
        mem_free(ids);
    }
    free(line);
    return st;
}

static status run(int argc, char **argv, error *err) {
    status st;
    gguf *g = NULL;
    pool *p = NULL;
    lm_model *m = NULL;
    engine *e = NULL;
    const kernels *k;
    engine_options o = {.step_tokens = argc > 3 ? strtoul(argv[3], NULL, 10) : 0};
    TRY_GOTO(kernels_select(&k, err));
    TRY_GOTO(gguf_open(&g, argv[1], err));
    TRY_GOTO(pool_create(&p, argc > 2 ? strtoul(argv[2], NULL, 10) : 1, err));
    TRY_GOTO(lm_model_load(&m, g, k, p, err));
    TRY_GOTO(engine_create(&e, m, p, &o, err));
    TRY_GOTO(score_lines(e, m->config.n_vocab, err));
cleanup:
    engine_free(e);
    lm_model_free(m);
    pool_free(p);
    gguf_free(g);
    return st;
}

int main(int argc, char **argv) {
    if (argc < 2) return fprintf(stderr, "usage: logits MODEL [THREADS [STEP_TOKENS]] < ids\n"), 2;
    error err = {0};
    if (run(argc, argv, &err) == CHURON_OK) return 0;
    fprintf(stderr, "logits: %s\n", err.message);
    return 1;
}

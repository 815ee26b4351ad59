/* fuzz_load.c: what the load generator reads from outside. The first byte chooses: an event stream (and the
 * size of the pieces it comes in), a trace, or an objective; and whether an allocation fails on the way. */
#include "base/mem.h"
#include "bench/load.h"
#include "bench/load_sse.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_error(status st, const error *err) {
    if (st != CHURON_OK && (!*err->message || strchr(err->message, '\n'))) abort();
}

static status on_event(void *user, const char *data, size_t n, error *err) {
    (void)err;
    if (data[n] != '\0' || n > LOAD_SSE_MAX) abort();
    *(size_t *)user += n;
    return CHURON_OK;
}

static void read_stream(const char *bytes, size_t n, size_t step) {
    load_sse s = {0};
    error err = {0};
    size_t seen = 0;
    status st = CHURON_OK;
    for (size_t at = 0; at < n && st == CHURON_OK; at += step) {
        st = load_sse_feed(&s, bytes + at, n - at < step ? n - at : step, on_event, &seen, &err);
    }
    if (st == CHURON_OK) st = load_sse_end(&s, &err);
    if (seen > n) abort();
    check_error(st, &err);
    load_sse_free(&s);
}

static void read_trace(const char *bytes, size_t n) {
    load_plan p;
    error err = {0};
    const status st = load_trace_parse(&p, bytes, n, 1000, &err);
    check_error(st, &err);
    if (st == CHURON_OK && (p.n == 0 || p.n > 1000 || p.items[0].at != 0)) abort();
    load_plan_scale(&p, 0.5, 0.5);
    for (size_t i = 0; i < p.n; i++) {
        const load_request *q = &p.items[i];
        if (!isfinite(q->at) || (i && q->at < p.items[i - 1].at)) abort();
        if (q->prompt_tokens < 1 || q->output_tokens < 1) abort();
    }
    load_plan_free(&p);
}

static void read_slo(const char *bytes, size_t n) {
    load_slo slo;
    error err = {0};
    char *text = mem_strndup(bytes, n);
    if (!text) return;
    const status st = load_slo_parse(&slo, text, &err);
    check_error(st, &err);
    if (st == CHURON_OK && !(slo.ttft > 0 || slo.tpot > 0 || slo.itl > 0 || slo.e2e > 0)) abort();
    mem_free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    const char *bytes = (const char *)data + 1;
    mem_fail_at(data[0] & 4 ? (data[0] >> 3) + 1 : 0);
    switch (data[0] & 3) {
    case 0: read_trace(bytes, size - 1); break;
    case 1: read_slo(bytes, size - 1); break;
    default: read_stream(bytes, size - 1, (size_t)(data[0] >> 3) + 1); break;
    }
    mem_fail_at(0);
    return 0;
}

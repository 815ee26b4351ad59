/* fuzz_request.c: bodies of chat and completion requests. The first byte chooses the endpoint, and whether an
 * allocation fails on the way. */
#include "base/mem.h"
#include "serve/api/openai_request.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const openai_request *r) {
    /* What a caller relies on. */
    if (r->n < 1 || r->n > OPENAI_MAX_CHOICES || r->n_stop > OPENAI_MAX_STOPS) abort();
    if (r->kind == OPENAI_CHAT && r->n_messages == 0) abort();
    if (r->kind == OPENAI_COMPLETION && (r->n_prompts == 0 || r->n_prompts * r->n > OPENAI_MAX_CHOICES))
        abort();
    for (size_t i = 0; i < r->n_messages; i++) {
        if (!r->messages[i].content ||
            utf8_validate(r->messages[i].content, r->messages[i].content_len) != r->messages[i].content_len) {
            abort();
        }
    }
    for (size_t i = 0; i < r->n_prompts; i++) {
        for (size_t k = 0; k < r->prompts[i].n_ids; k++) {
            if (r->prompts[i].ids[k] < 0 || r->prompts[i].ids[k] >= 1000) abort();
        }
    }
    for (size_t i = 0; i < r->n_stop; i++) {
        if (r->stop_len[i] == 0) abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static bool ready;
    if (!ready) json_in_setup();
    ready = true;
    if (size == 0) return 0;
    const openai_context context = {.n_vocab = 1000, .defaults = {.temperature = 1, .top_p = 1}};
    openai_request r;
    error err = {0};
    mem_fail_at(data[0] & 2 ? (data[0] >> 2) + 1 : 0);
    const status st = openai_request_parse(&r, (const char *)data + 1, size - 1,
                                           data[0] & 1 ? OPENAI_CHAT : OPENAI_COMPLETION, &context, &err);
    mem_fail_at(0);
    if (st == CHURON_OK) {
        check(&r);
    } else {
        char param[64];
        openai_error_param(err.message, param, sizeof param);
        if (!*err.message || strchr(err.message, '\n')) abort();
    }
    openai_request_free(&r);
    return 0;
}

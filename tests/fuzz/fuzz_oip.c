/* fuzz_oip.c: inference requests. The first byte chooses how many inputs the model has and whether an
 * allocation fails on the way, the second where the JSON ends and binary begins. What was read is written
 * again as an answer. */
#include "../unit/oip_world.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const oip_model *m, const oip_request *r) {
    for (size_t i = 0; i < m->n_inputs; i++) {
        const tensor *t = &r->inputs[i].t;
        size_t count;
        if (r->inputs[i].kind != VALUE_TENSOR || t->type != m->inputs[i].type) abort();
        if (tensor_count(t->type, t->rank, t->dims, &count, "", NULL) != CHURON_OK || count != t->count)
            abort();
    }
    str out = {0};
    size_t json_len = 0;
    error err = {0};
    const status st = oip_answer_write(&out, &json_len, m, r, r->inputs, NULL, &err);
    if (st == CHURON_OK && (json_len > out.len || out.len == 0)) abort();
    if (st != CHURON_OK && !*err.message) abort();
    str_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2) return 0;
    const oip_model m = oip_world(1 + data[0] % OIP_WORLD_PORTS);
    const size_t len = size - 2, json = data[1] == 255 ? len : len * data[1] / 255;
    oip_request r;
    error err = {0};
    mem_fail_at(data[0] >= 128 ? data[0] - 127 : 0);
    const status st = oip_world_read(&r, &m, data + 2, len, json, &err);
    mem_fail_at(0);
    if (st == CHURON_OK) {
        check(&m, &r);
    } else if (!*err.message || strchr(err.message, '\n')) {
        abort();
    }
    oip_request_free(&r, &m);
    return 0;
}

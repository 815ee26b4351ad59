/* fuzz_predict.c: any bytes as the body of :predict, :classify and :regress (the first byte says which) and
 * of the inference protocol over fields, for a bundle of scalars, texts, a tensor and a list. */
#include "base/mem.h"
#include "serve/compute.h"
#include "serve/json_in.h"

#include <assert.h>
#include <jansson.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char MANIFEST[] =
    "churon: 1\nname: any\nversion: 1\ntask: regression\nmodel: {file: iris.onnx}\n"
    "inputs:\n  measures: {type: tensor, dtype: float32, shape: [4]}\n  n: {type: int8, required: false}\n"
    "  x: {type: float, min: 0, required: false, missing: 1.5}\n  t: {type: text, max_length: 3, required: "
    "false, "
    "missing: a}\n  d: {type: date, required: false}\n  b: {type: bytes, required: false}\n"
    "steps:\n  - model: {}\noutputs: {species: {}, probabilities: {}, n: {}, x: {}, t: {}, d: {}, b: {}}\n";

static served version;
static served *items[1] = {&version};
static const served_list models = {.items = items, .n = 1};
static compute *worker;

static void prepare(void) {
    error err = {0};
    const pipeline_options o = {.threads = 1, .max_memory = 64 << 20};
    json_in_setup();
    if (pipeline_open_text(&version.p, "tests/fuzz/bundle", MANIFEST, sizeof MANIFEST - 1, &o, &err) !=
        CHURON_OK) {
        assert(!err.message);
    }
    static char name[] = "any", number[] = "1";
    version.name = name;
    version.version = number;
    version.available = true;
    status st = oip_fields_create(&version.oip, version.p, name, &version.memory, &err);
    const compute_shared shared = {.models = &models, .isa = "ref"};
    if (st == CHURON_OK) st = compute_create(&worker, &shared, &err);
    assert(st == CHURON_OK);
    (void)st;
}

static char *copy_of(const void *data, size_t n) {
    char *copy = mem_alloc(n + 1);
    assert(copy);
    if (n) memcpy(copy, data, n);
    copy[n] = 0;
    return copy;
}

static void check(const work_job *j) {
    if (j->st != CHURON_OK) {
        assert(job_message(j)[0]);
        return;
    }
    json_t *back = json_loadb(str_cstr(&j->answer), j->answer_json ? j->answer_json : j->answer.len,
                              JSON_ALLOW_NUL, NULL);
    assert(back || j->kind == JOB_INFER); /* the inference protocol has tokens for NaN */
    json_decref(back);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!worker) prepare();
    if (size == 0) return 0;
    work_job jobs[2] = {{0}};
    work_job *list[2] = {&jobs[0], &jobs[1]};
    const job_kind kind = (job_kind)(data[0] & 3);
    const size_t n = kind == JOB_PREDICT && data[0] & 4 ? 2 : 1; /* 2: run together */
    for (size_t i = 0; i < n; i++) {
        jobs[i] = (work_job){.target = &version, .kind = kind, .body = copy_of(data + 1, size - 1)};
        jobs[i].len = size - 1;
        const char *mark = memchr(jobs[i].body, '\n', jobs[i].len); /* tensors in binary behind it */
        jobs[i].json_len = mark && kind == JOB_INFER ? (size_t)(mark - jobs[i].body) : jobs[i].len;
        atomic_init(&jobs[i].cancelled, false);
    }
    compute_jobs(worker, list, n);
    for (size_t i = 0; i < n; i++) {
        check(&jobs[i]);
        str_free(&jobs[i].answer);
        str_free(&jobs[i].faults);
    }
    return 0;
}

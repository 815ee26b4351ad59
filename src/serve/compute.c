/* compute.c: see compute.h. */
#include "serve/compute.h"

#include "base/clock.h"
#include "base/mem.h"
#include "serve/api/tfs.h"
#include "serve/recording.h"

#include <string.h>

const char *const JOB_NAMES[] = {"infer", "predict", "classify", "regress"};

static const tfs_method METHODS[] = {TFS_PREDICT, TFS_PREDICT, TFS_CLASSIFY, TFS_REGRESS}; /* by job_kind */

/* Requests are put together only as far as they are short: that long may one wait for the others. */
static const double TOGETHER_S = 0.005;
enum { TOGETHER_BYTES = 64 << 10, TOGETHER_RECORDS = 4 };

/* What a worker has of a version, made when first needed. */
typedef struct own {
    graph_session *graph;
    value *outputs; /* [oip.n_outputs] */
    pipeline_session *session;
    double pace; /* seconds a record, smoothed; 0: not known */
} own;

struct compute {
    compute_shared shared;
    own *own;     /* [models.n] */
    arena memory; /* of a run: records, answers */
};

const char *job_message(const work_job *j) {
    return j->faults.len ? str_cstr(&j->faults) : j->err.message;
}

status compute_create(compute **out, const compute_shared *shared, error *err) {
    *out = NULL;
    compute *c = mem_calloc(1, sizeof *c);
    own *o = mem_calloc(shared->models->n + 1, sizeof *o);
    if (!c || !o) {
        mem_free(c);
        mem_free(o);
        return error_no_memory(err, "a worker", shared->models->n * sizeof *o);
    }
    c->shared = *shared;
    c->own = o;
    *out = c;
    return CHURON_OK;
}

void compute_free(compute *c) {
    if (!c) return;
    for (size_t i = 0; i < c->shared.models->n; i++) {
        graph_session_free(c->own[i].graph);
        pipeline_session_free(c->own[i].session);
        mem_free(c->own[i].outputs);
    }
    mem_free(c->own);
    arena_free(&c->memory);
    mem_free(c);
}

static status prepare(compute *c, const served *v, own **out, error *err) {
    own *o = &c->own[v->index];
    *out = o;
    if (!o->outputs) o->outputs = mem_calloc(v->oip.n_outputs + 1, sizeof *o->outputs);
    if (!o->outputs) return error_no_memory(err, "outputs", v->oip.n_outputs * sizeof *o->outputs);
    if (v->g && !o->graph) TRY(graph_session_create(&o->graph, v->g, err));
    if (v->p && !o->session) TRY(pipeline_session_create(&o->session, v->p, err));
    return CHURON_OK;
}

/* ---- one job ---------------------------------------------------------------------------------------- */

/* Is it not worth going on? Then the job has its error. */
static bool ended(work_job *j) {
    if (atomic_load_explicit(&j->cancelled, memory_order_relaxed)) {
        j->st = error_set(&j->err, CHURON_CANCELLED, "request: it was cancelled");
        return true;
    }
    j->late = j->deadline != 0 && clock_seconds() >= j->deadline;
    if (j->late)
        j->st = error_set(&j->err, CHURON_LIMIT, "request: its time was over before it was computed");
    return j->late;
}

static void write_provenance(const compute *c, const served *v, str *out) {
    json_out j = json_out_begin(out);
    json_out_object(&j, NULL);
    json_out_cstr(&j, "bundle", v->p ? pipeline_manifest(v->p)->name : v->name);
    json_out_cstr(&j, "version", v->p ? pipeline_manifest(v->p)->version : v->version);
    if (v->stored) {
        str registered = {0};
        str_fmt(&registered, "%s:%s", v->stored, v->version);
        json_out_cstr(&j, "registered", str_cstr(&registered));
        str_free(&registered);
    }
    json_out_cstr(&j, "digest", v->digest);
    json_out_cstr(&j, "engine", "churon " CHURON_VERSION);
    json_out_cstr(&j, "isa", c->shared.isa);
    str providers = {0};
    served_providers(v, &providers);
    json_out_cstr(&j, "provider", str_cstr(&providers));
    str_free(&providers);
    json_out_null(&j, "seed"); /* nothing is drawn */
    json_out_end_object(&j);
}

static status take_sequence(compute *c, work_job *j, const str *id, bool start, sequence_slot **out,
                            error *err) {
    j->in_sequence = true;
    if (!c->shared.sequences)
        return error_set(err, CHURON_UNSUPPORTED,
                         "sequence_id: expected it absent: no sequences are kept here");
    const sequence_key key = {j->owner, j->target->p, str_cstr(id), id->len};
    return sequences_take(c->shared.sequences, &key, start, clock_seconds(), out, err);
}

static void keep_pace(own *o, const work_job *j, size_t records) {
    const double pace = (j->ran - j->read) / (double)(records ? records : 1);
    o->pace = o->pace == 0 ? pace : 0.9 * o->pace + 0.1 * pace;
}

/* ---- the inference protocol ------------------------------------------------------------------------- */

static status infer_graph(own *o, work_job *j, const oip_request *r) {
    const graph_run_options ro = {.deadline = j->deadline, .wanted = r->outputs, .cancel = &j->cancelled};
    return graph_run(o->graph, r->inputs, o->outputs, &ro, &j->err);
}

static status run_fields(compute *c, own *o, work_job *j, const cell *records, size_t n,
                         sequence_slot *slot) {
    const served *v = j->target;
    pipeline_answer *answers = arena_array(&c->memory, n ? n : 1, sizeof *answers);
    if (!answers) return arena_refused(&c->memory, "answers", n * sizeof *answers, &j->err);
    const pipeline_run_options ro = {
        .deadline = j->deadline, .cancel = &j->cancelled, .sequence = slot ? sequence_state(slot) : NULL};
    TRY(pipeline_run(o->session, records, n, &ro, answers, &j->err));
    status st = CHURON_OK;
    for (size_t i = 0; i < n; i++) {
        if (answers[i].st == CHURON_OK) continue;
        if (st == CHURON_OK) st = answers[i].st;
        str_fmt(&j->faults, "%srecord %zu: %s", j->faults.len ? "; " : "", i, answers[i].message);
    }
    if (st != CHURON_OK) return error_set(&j->err, st, "%s", str_cstr(&j->faults));
    return oip_fields_write(&v->oip, v->p, answers, n, o->outputs, &j->err);
}

static status infer_fields(compute *c, own *o, work_job *j, const oip_request *r) {
    const served *v = j->target;
    sequence_slot *slot = NULL;
    cell *records;
    arena_reset(&c->memory);
    TRY(oip_fields_read(&v->oip, v->p, r, &c->memory, &records, &j->records, &j->err));
    if (r->has_sequence && j->records != 1)
        return error_set(&j->err, CHURON_INVALID, "sequence_id: expected one record beside it, got %zu",
                         j->records);
    if (r->has_sequence) TRY(take_sequence(c, j, &r->sequence_id, r->sequence_start, &slot, &j->err));
    const status st = run_fields(c, o, j, records, j->records, slot);
    if (slot)
        sequences_give_back(c->shared.sequences, slot, r->sequence_end && st == CHURON_OK, clock_seconds());
    return st;
}

static status answer_infer(compute *c, own *o, work_job *j, oip_request *r) {
    const served *v = j->target;
    TRY(oip_request_read(r, &v->oip, j->body, j->len, j->json_len, &j->err));
    j->read = clock_seconds();
    if (r->timeout_us) {
        const double given = j->arrived + (double)r->timeout_us / 1e6;
        if (j->deadline == 0 || given < j->deadline) j->deadline = given;
    }
    if (ended(j)) return j->st;
    j->records = 1;
    status st = v->g ? infer_graph(o, j, r) : infer_fields(c, o, j, r);
    j->ran = clock_seconds();
    str parameters = {0};
    if (st == CHURON_OK && (j->provenance || r->provenance)) {
        str_cat(&parameters, "{\"provenance\":");
        write_provenance(c, v, &parameters);
        str_put(&parameters, '}');
        st = str_check(&parameters, &j->err);
    }
    if (st == CHURON_OK)
        st = oip_answer_write(&j->answer, &j->answer_json, &v->oip, r, o->outputs, parameters.data, &j->err);
    str_free(&parameters);
    for (size_t i = 0; i < v->oip.n_outputs; i++) value_free(&o->outputs[i]);
    j->written = clock_seconds();
    return st;
}

static void infer(compute *c, own *o, work_job *j) {
    oip_request r = {0};
    if (j->target->no_oip.code != CHURON_OK) {
        j->err = j->target->no_oip;
        j->st = j->err.code;
        return;
    }
    j->st = answer_infer(c, o, j, &r);
    oip_request_free(&r, &j->target->oip);
}

/* ---- TensorFlow Serving's form ---------------------------------------------------------------------- */

typedef struct task { /* a job whose request is read */
    work_job *j;
    tfs_request r;
    bool together;
} task;

static void read_task(task *t, work_job *j) {
    const tfs_method method = METHODS[j->kind];
    *t = (task){.j = j};
    if (j->st != CHURON_OK || ended(j)) return;
    j->st = j->target->p ? tfs_check_task(j->target->p, method, &j->err) : j->target->no_pipeline.code;
    if (!j->target->p) j->err = j->target->no_pipeline;
    if (j->st == CHURON_OK) j->st = tfs_request_read(&t->r, j->target->p, method, j->body, j->len, &j->err);
    if (j->st != CHURON_OK) return;
    j->read = clock_seconds();
    j->records = t->r.n;
    t->together = !t->r.has_sequence && t->r.n <= TOGETHER_RECORDS && !ended(j);
}

static void write_task(compute *c, task *t, const pipeline_answer *answers) {
    work_job *j = t->j;
    str provenance = {0};
    if (j->provenance || t->r.provenance) write_provenance(c, j->target, &provenance);
    j->st = str_check(&provenance, &j->err);
    if (j->st == CHURON_OK)
        j->st =
            tfs_answer_write(&j->answer, &j->faults, j->target->p, &t->r, answers, provenance.data, &j->err);
    str_free(&provenance);
    j->written = clock_seconds();
}

static status run_alone(compute *c, own *o, task *t, sequence_slot *slot) {
    work_job *j = t->j;
    pipeline_answer *answers = arena_array(&c->memory, t->r.n ? t->r.n : 1, sizeof *answers);
    if (!answers) return arena_refused(&c->memory, "answers", t->r.n * sizeof *answers, &j->err);
    const pipeline_run_options ro = {
        .deadline = j->deadline, .cancel = &j->cancelled, .sequence = slot ? sequence_state(slot) : NULL};
    TRY(pipeline_run_json(o->session, t->r.records, t->r.n, NULL, &ro, answers, &j->err));
    j->ran = clock_seconds();
    keep_pace(o, j, t->r.n);
    write_task(c, t, answers);
    return j->st;
}

static void alone(compute *c, own *o, task *t) {
    work_job *j = t->j;
    sequence_slot *slot = NULL;
    if (ended(j)) return;
    arena_reset(&c->memory);
    if (t->r.has_sequence) {
        j->st = take_sequence(c, j, &t->r.sequence_id, t->r.sequence_start, &slot, &j->err);
        if (j->st != CHURON_OK) return;
    }
    j->st = run_alone(c, o, t, slot);
    if (slot)
        sequences_give_back(c->shared.sequences, slot, t->r.sequence_end && j->st == CHURON_OK,
                            clock_seconds());
}

/* All tasks that may be, in one run. False: the run failed, and each has to be tried alone. */
static bool together(compute *c, own *o, task *tasks, size_t n) {
    size_t total = 0, at = 0;
    double deadline = 0;
    bool endless = false;
    for (size_t i = 0; i < n; i++) {
        if (!tasks[i].together) continue;
        total += tasks[i].r.n;
        endless = endless || tasks[i].j->deadline == 0;
        if (tasks[i].j->deadline > deadline) deadline = tasks[i].j->deadline;
    }
    arena_reset(&c->memory);
    const json_t **records = arena_array(&c->memory, total + 1, sizeof(const json_t *));
    pipeline_answer *answers = arena_array(&c->memory, total + 1, sizeof *answers);
    if (!records || !answers) return false;
    for (size_t i = 0; i < n; i++) {
        if (!tasks[i].together) continue;
        if (tasks[i].r.n) memcpy(records + at, tasks[i].r.records, tasks[i].r.n * sizeof(const json_t *));
        at += tasks[i].r.n;
    }
    const pipeline_run_options ro = {.deadline = endless ? 0 : deadline};
    if (pipeline_run_json(o->session, records, total, NULL, &ro, answers, NULL) != CHURON_OK) return false;
    const double now = clock_seconds();
    at = 0;
    for (size_t i = 0; i < n; i++) {
        task *t = &tasks[i];
        if (!t->together) continue;
        t->j->ran = now;
        t->j->first = at == 0;
        if (at == 0) keep_pace(o, t->j, total);
        if (!ended(t->j)) write_task(c, t, answers + at); /* the run had the latest deadline of all */
        at += t->r.n;
    }
    return true;
}

static void predict(compute *c, own *o, work_job **jobs, size_t n) {
    task tasks[COMPUTE_TOGETHER];
    size_t joined = 0;
    for (size_t i = 0; i < n; i++) {
        read_task(&tasks[i], jobs[i]);
        joined += tasks[i].together;
    }
    const bool done = joined > 1 && together(c, o, tasks, n);
    for (size_t i = 0; i < n; i++) {
        if (jobs[i]->st == CHURON_OK && !(done && tasks[i].together)) {
            jobs[i]->first = true;
            alone(c, o, &tasks[i]);
        }
    }
    for (size_t i = 0; i < n; i++) tfs_request_free(&tasks[i].r);
}

/* ---- all -------------------------------------------------------------------------------------------- */

size_t compute_most_together(const compute *c, const work_job *j) {
    const double pace = c->own[j->target->index].pace;
    if (j->kind != JOB_PREDICT || j->len > TOGETHER_BYTES || pace <= 0) return 1;
    const double most = TOGETHER_S / pace;
    return most < 1 ? 1 : most > COMPUTE_TOGETHER ? COMPUTE_TOGETHER : (size_t)most;
}

/* Whatever became of it is on record before the client sees it. */
static void record(compute *c, work_job *j) {
    if (!c->shared.record || j->read == 0 || j->late || j->st == CHURON_CANCELLED) return;
    error err;
    const status st = recording_write(c->shared.record, j, c->shared.isa, &err);
    if (st == CHURON_OK) return;
    j->st = st;
    j->err = err;
    str_free(&j->faults);
    str_free(&j->answer);
}

/* The body as the client meant it. */
static void unpack(work_job *j) {
    if (j->st != CHURON_OK || j->coding == BODY_PLAIN) return;
    j->st = unzip_body(j->coding, &j->body, &j->len, j->max_body, &j->err);
    j->too_large = j->st == CHURON_LIMIT;
    if (j->json_len == SIZE_MAX) j->json_len = j->len; /* nothing was said */
    if (j->st == CHURON_OK && j->json_len > j->len)
        j->st = error_set(
            &j->err, CHURON_INVALID,
            "Inference-Header-Content-Length: expected at most the unpacked body's %zu bytes, got %zu",
            j->len, j->json_len);
}

void compute_jobs(compute *c, work_job **jobs, size_t n) {
    own *o;
    error err;
    const double now = clock_seconds();
    const status st = prepare(c, jobs[0]->target, &o, &err);
    for (size_t i = 0; i < n; i++) {
        jobs[i]->started = now;
        jobs[i]->st = st;
        if (st != CHURON_OK) jobs[i]->err = err;
        unpack(jobs[i]);
    }
    if (st == CHURON_OK && jobs[0]->kind != JOB_INFER) predict(c, o, jobs, n);
    for (size_t i = 0; i < n; i++) {
        work_job *j = jobs[i];
        if (j->st == CHURON_OK && j->kind == JOB_INFER && !ended(j)) {
            j->first = true;
            infer(c, o, j);
        }
        j->late = j->late || (j->st == CHURON_LIMIT && j->deadline != 0 && clock_seconds() >= j->deadline);
        record(c, j);
        mem_free(j->body);
        j->body = NULL;
    }
}

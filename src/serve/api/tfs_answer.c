/* tfs_answer.c: answers and descriptions in TensorFlow Serving's form; see tfs.h. */
#include "serve/api/answer_limit.h"
#include "serve/api/tfs.h"

#include <stdio.h>
#include <string.h>

/* ---- :classify and :regress: what of an answer they give -------------------------------------------- */

/* A list of {label, score}: the members' places. */
static bool is_ranking(const cell_type *t, size_t *label, size_t *score) {
    const cell_type *of = t->kind == CELL_LIST ? t->of : NULL;
    if (!of || of->kind != CELL_RECORD) return false;
    *label = *score = of->n_members;
    for (size_t i = 0; i < of->n_members; i++) {
        if (strcmp(of->members[i].name, "label") == 0) *label = i;
        if (strcmp(of->members[i].name, "score") == 0) *score = i;
    }
    return *label < of->n_members && *score < of->n_members;
}

static size_t find_output(const pipeline *p, const char *name) {
    size_t i = 0;
    while (i < pipeline_n_outputs(p) && strcmp(pipeline_output(p, i).name, name) != 0) i++;
    return i;
}

/* The outputs that :classify shows: one ranking, or a label and its score. */
typedef struct classes {
    size_t output, label, score; /* of a ranking; output: n_outputs: none */
    size_t one_label, one_score; /* outputs */
} classes;

static classes find_classes(const pipeline *p) {
    const size_t n = pipeline_n_outputs(p);
    classes c = {.output = 0, .one_label = find_output(p, "label"), .one_score = find_output(p, "score")};
    while (c.output < n && !is_ranking(pipeline_output(p, c.output).type, &c.label, &c.score)) c.output++;
    return c;
}

static size_t find_number(const pipeline *p) {
    size_t i = 0;
    while (i < pipeline_n_outputs(p) && pipeline_output(p, i).type->kind != CELL_FLOAT) i++;
    return i;
}

status tfs_check_task(const pipeline *p, tfs_method method, error *err) {
    const manifest *m = pipeline_manifest(p);
    const size_t n = pipeline_n_outputs(p);
    if (method == TFS_PREDICT) return CHURON_OK;
    const char *wanted = method == TFS_CLASSIFY ? "classification" : "regression";
    if (!m->task || strcmp(m->task, wanted) != 0)
        return error_set(err, CHURON_UNSUPPORTED,
                         "model '%.100s': expected the task %s for this method, got %.60s", m->name, wanted,
                         m->task ? m->task : "none");
    if (method == TFS_REGRESS) {
        if (find_number(p) < n) return CHURON_OK;
        return error_set(err, CHURON_UNSUPPORTED,
                         "model '%.100s': expected an output that is a float for :regress, got none",
                         m->name);
    }
    const classes c = find_classes(p);
    if (c.output < n || (c.one_label < n && c.one_score < n)) return CHURON_OK;
    return error_set(
        err, CHURON_UNSUPPORTED,
        "model '%.100s': expected an output that is a list of {label, score}, or outputs label and "
        "score, for :classify, got neither",
        m->name);
}

static void write_pair(json_out *j, const cell_type *label_type, const cell *label,
                       const cell_type *score_type, const cell *score) {
    json_out_array(j, NULL);
    cell_write(j, NULL, label_type, label);
    cell_write(j, NULL, score_type, score);
    json_out_end_array(j);
}

static void write_classes(json_out *j, const pipeline *p, const pipeline_answer *a) {
    const classes c = find_classes(p);
    json_out_array(j, NULL);
    if (c.output < pipeline_n_outputs(p)) {
        const cell_type *of = pipeline_output(p, c.output).type->of;
        const cell *list = &a->outputs[c.output];
        for (uint32_t i = 0; list->kind == CELL_LIST && i < list->n; i++) {
            const cell *members = list->items[i].items;
            write_pair(j, of->members[c.label].type, &members[c.label], of->members[c.score].type,
                       &members[c.score]);
        }
    } else {
        write_pair(j, pipeline_output(p, c.one_label).type, &a->outputs[c.one_label],
                   pipeline_output(p, c.one_score).type, &a->outputs[c.one_score]);
    }
    json_out_end_array(j);
}

/* ---- answers ---------------------------------------------------------------------------------------- */

enum { FAULTS_ROOM = 1 << 20 };

static status gather_faults(str *faults, const tfs_request *r, const pipeline_answer *answers, error *err) {
    status st = CHURON_OK;
    size_t more = 0;
    const char *of = r->method != TFS_PREDICT ? "examples" : r->columns ? "inputs" : "instances";
    for (size_t i = 0; i < r->n; i++) {
        if (answers[i].st == CHURON_OK) continue;
        if (st == CHURON_OK) st = answers[i].st;
        if (faults->len > FAULTS_ROOM) {
            more++;
        } else {
            str_fmt(faults, "%s%s[%zu]: %s", faults->len ? "; " : "", of, i, answers[i].message);
        }
    }
    if (more) str_fmt(faults, "; and %zu records more", more);
    if (st == CHURON_OK) return CHURON_OK;
    return faults->failed ? error_no_memory(err, "faults", faults->len)
                          : error_set(err, st, "%s", str_cstr(faults));
}

static void write_rows(json_out *j, const pipeline *p, const tfs_request *r, const pipeline_answer *answers) {
    json_out_array(j, "predictions");
    for (size_t i = 0; i < r->n; i++) {
        if (answers[i].st == CHURON_OK) {
            pipeline_answer_write(j, NULL, p, &answers[i]);
            continue;
        }
        json_out_object(j, NULL);
        json_out_cstr(j, "error", answers[i].message);
        json_out_end_object(j);
    }
    json_out_end_array(j);
}

static void write_columns(json_out *j, const pipeline *p, const tfs_request *r,
                          const pipeline_answer *answers) {
    json_out_object(j, "outputs");
    for (size_t k = 0; k < pipeline_n_outputs(p); k++) {
        json_out_array(j, pipeline_output(p, k).name);
        for (size_t i = 0; i < r->n; i++)
            cell_write(j, NULL, pipeline_output(p, k).type, &answers[i].outputs[k]);
        json_out_end_array(j);
    }
    json_out_end_object(j);
}

static void write_results(json_out *j, const pipeline *p, const tfs_request *r,
                          const pipeline_answer *answers) {
    const size_t number = find_number(p);
    json_out_array(j, "results");
    for (size_t i = 0; i < r->n; i++) {
        if (r->method == TFS_CLASSIFY) {
            write_classes(j, p, &answers[i]);
        } else {
            cell_write(j, NULL, pipeline_output(p, number).type, &answers[i].outputs[number]);
        }
    }
    json_out_end_array(j);
}

static status check_size(const pipeline *p, const tfs_request *r, const pipeline_answer *answers,
                         error *err) {
    for (size_t k = 0; k < pipeline_n_outputs(p); k++) {
        size_t elements = 0;
        for (size_t i = 0; i < r->n; i++) {
            const cell *c = answers[i].st == CHURON_OK ? &answers[i].outputs[k] : NULL;
            if (c && c->kind == CELL_TENSOR) elements += c->t->count;
        }
        if (elements > ANSWER_MOST_ELEMENTS)
            return error_set(
                err, CHURON_INVALID,
                "output '%.80s': expected at most %d elements in JSON, got %zu; fewer records at a "
                "time, or /v2 with binary data, carry them",
                pipeline_output(p, k).name, ANSWER_MOST_ELEMENTS, elements);
    }
    return CHURON_OK;
}

status tfs_answer_write(str *out, str *faults, const pipeline *p, const tfs_request *r,
                        const pipeline_answer *answers, const char *provenance, error *err) {
    if (!r->partial) TRY(gather_faults(faults, r, answers, err));
    TRY(check_size(p, r, answers, err));
    json_out j = json_out_begin(out);
    json_out_object(&j, NULL);
    if (r->method != TFS_PREDICT) {
        write_results(&j, p, r, answers);
    } else if (r->columns) {
        write_columns(&j, p, r, answers);
    } else {
        write_rows(&j, p, r, answers);
    }
    if (provenance) json_out_raw(&j, "provenance", provenance, strlen(provenance));
    json_out_end_object(&j);
    return str_check(out, err);
}

/* ---- descriptions ----------------------------------------------------------------------------------- */

void tfs_write_status(str *out, const tfs_version *versions, size_t n) {
    json_out j = json_out_begin(out);
    json_out_object(&j, NULL);
    json_out_array(&j, "model_version_status");
    for (size_t i = 0; i < n; i++) {
        const bool there = !versions[i].fault;
        json_out_object(&j, NULL);
        json_out_cstr(&j, "version", versions[i].version);
        json_out_cstr(&j, "state", there ? "AVAILABLE" : "END");
        json_out_object(&j, "status");
        json_out_cstr(&j, "error_code", there ? "OK" : "FAILED_PRECONDITION");
        json_out_cstr(&j, "error_message", there ? "" : versions[i].fault);
        json_out_end_object(&j);
        json_out_end_object(&j);
    }
    json_out_end_array(&j);
    json_out_end_object(&j);
}

/* TensorFlow's name of a type; things without one travel as strings or as structures of JSON. */
static const char *dtype_name(const cell_type *t) {
    switch (t->kind) {
    case CELL_BOOL: return "DT_BOOL";
    case CELL_INT:
    case CELL_FLOAT:
    case CELL_TENSOR: break;
    case CELL_LIST:
    case CELL_RECORD: return "DT_VARIANT";
    default: return "DT_STRING";
    }
    switch (t->element) {
    case ELEM_F32: return "DT_FLOAT";
    case ELEM_F64: return "DT_DOUBLE";
    case ELEM_F16: return "DT_HALF";
    case ELEM_BF16: return "DT_BFLOAT16";
    case ELEM_I8: return "DT_INT8";
    case ELEM_I16: return "DT_INT16";
    case ELEM_I32: return "DT_INT32";
    case ELEM_I64: return "DT_INT64";
    case ELEM_U8: return "DT_UINT8";
    case ELEM_U16: return "DT_UINT16";
    case ELEM_U32: return "DT_UINT32";
    case ELEM_U64: return "DT_UINT64";
    case ELEM_BOOL: return "DT_BOOL";
    default: return "DT_STRING";
    }
}

static void write_dim(json_out *j, int64_t size) {
    char text[24];
    json_out_object(j, NULL);
    snprintf(text, sizeof text, "%lld", (long long)size);
    json_out_cstr(j, "size", text);
    json_out_cstr(j, "name", "");
    json_out_end_object(j);
}

static void write_tensor_info(json_out *j, const char *name, const cell_type *t) {
    const bool known = t->kind != CELL_TENSOR || t->has_rank;
    json_out_object(j, name);
    json_out_cstr(j, "dtype", dtype_name(t));
    json_out_object(j, "tensor_shape");
    json_out_array(j, "dim");
    if (known) write_dim(j, -1);
    for (uint32_t i = 0; known && t->kind == CELL_TENSOR && i < t->rank; i++) write_dim(j, t->dims[i]);
    json_out_end_array(j);
    json_out_bool(j, "unknown_rank", !known);
    json_out_end_object(j);
    json_out_cstr(j, "name", name);
    json_out_end_object(j);
}

static void write_signature(json_out *j, const pipeline *p) {
    json_out_object(j, "signature_def");
    json_out_object(j, "signature_def");
    json_out_object(j, "serving_default");
    json_out_object(j, "inputs");
    for (size_t i = 0; i < pipeline_n_inputs(p); i++)
        write_tensor_info(j, pipeline_input(p, i)->name, &pipeline_input(p, i)->type);
    json_out_end_object(j);
    json_out_object(j, "outputs");
    for (size_t i = 0; i < pipeline_n_outputs(p); i++)
        write_tensor_info(j, pipeline_output(p, i).name, pipeline_output(p, i).type);
    json_out_end_object(j);
    json_out_cstr(j, "method_name", "tensorflow/serving/predict");
    json_out_end_object(j);
    json_out_end_object(j);
    json_out_end_object(j);
}

static void write_input(json_out *j, const input_field *f) {
    char type[200];
    cell_type plain = f->type;
    plain.optional = false;
    json_out_object(j, NULL);
    json_out_cstr(j, "name", f->name);
    json_out_cstr(j, "type", cell_type_text(&plain, type, sizeof type));
    json_out_bool(j, "required", f->required);
    if (f->has_missing) cell_write(j, "missing", &f->type, &f->missing);
    if (f->has_min) json_out_double(j, "min", f->min);
    if (f->has_max) json_out_double(j, "max", f->max);
    if (f->n_one_of) {
        json_out_array(j, "one_of");
        for (size_t i = 0; i < f->n_one_of; i++) cell_write(j, NULL, &f->type, &f->one_of[i]);
        json_out_end_array(j);
    }
    if (f->regex) json_out_cstr(j, "regex", f->regex);
    if (f->unit) json_out_cstr(j, "unit", f->unit);
    if (f->description) json_out_cstr(j, "description", f->description);
    json_out_end_object(j);
}

static void write_schema(json_out *j, const pipeline *p) {
    const manifest *m = pipeline_manifest(p);
    json_out_object(j, "churon");
    json_out_cstr(j, "name", m->name);
    json_out_cstr(j, "task", m->task);
    json_out_cstr(j, "digest", pipeline_digest(p));
    json_out_array(j, "inputs");
    for (size_t i = 0; i < pipeline_n_inputs(p); i++) write_input(j, pipeline_input(p, i));
    json_out_end_array(j);
    json_out_bool(j, "unknown_fields_ignored", m->inputs.ignore_unknown);
    json_out_array(j, "outputs");
    for (size_t i = 0; i < pipeline_n_outputs(p); i++) {
        char type[200];
        json_out_object(j, NULL);
        json_out_cstr(j, "name", pipeline_output(p, i).name);
        json_out_cstr(j, "type", cell_type_text(pipeline_output(p, i).type, type, sizeof type));
        json_out_end_object(j);
    }
    json_out_end_array(j);
    json_out_bool(j, "sequences", m->state != NULL);
    json_out_end_object(j);
}

void tfs_write_metadata(str *out, const pipeline *p, const char *name, const char *version) {
    json_out j = json_out_begin(out);
    json_out_object(&j, NULL);
    json_out_object(&j, "model_spec");
    json_out_cstr(&j, "name", name);
    json_out_cstr(&j, "signature_name", "");
    json_out_cstr(&j, "version", version);
    json_out_end_object(&j);
    json_out_object(&j, "metadata");
    write_signature(&j, p);
    write_schema(&j, p);
    json_out_end_object(&j);
    json_out_end_object(&j);
}

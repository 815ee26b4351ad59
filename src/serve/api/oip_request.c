/* oip_request.c: an inference request, from its bytes to the values that a graph runs on; see oip.h. */
#include "base/mem.h"
#include "serve/api/oip.h"
#include "serve/api/oip_scan.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { WHAT_BYTES = 192, MAX_ID = 1024 };

typedef struct reader {
    const oip_model *m;
    oip_request *r;
    oip_scan s;
    const char *binary, *binary_end; /* what no input has taken yet */
    size_t body_len;
    str key, text; /* scratch */
    bool has_inputs, has_outputs, has_parameters;
    bool binary_all;   /* parameters.binary_data_output */
    signed char *said; /* [n_outputs]: binary_data of an output: 1, 0, -1 not said */
} reader;

/* What an input says of itself, in whatever order. */
typedef struct input {
    char what[WHAT_BYTES]; /* "inputs[0]", later with its name */
    str name, datatype;
    bool has_shape, has_data, has_binary, filled;
    size_t rank;
    int64_t dims[TENSOR_MAX_RANK];
    uint64_t binary_bytes;
    oip_scan data; /* where it stands, if it came before shape and datatype */
    value v;
} input;

/* ---- parameters ------------------------------------------------------------------------------------- */

/* Features of other servers that would change the answer: not ignored. */
static bool is_refused(const char *key) {
    static const char *const names[] = {"sequence_id",    "sequence_start",         "sequence_end",
                                        "priority",       "shared_memory_region",   "shared_memory_offset",
                                        "classification", "shared_memory_byte_size"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(key, names[i]) == 0) return true;
    }
    return false;
}

typedef status (*parameter_fn)(reader *rd, void *user, const char *key, bool *known, const char *what,
                               error *err);

/* An object of parameters: those that `fn` does not know are checked and passed over. */
static status read_parameters(reader *rd, const char *what, parameter_fn fn, void *user, error *err) {
    TRY(oip_expect(&rd->s, '{', what, err));
    for (bool first = true, more;;) {
        TRY(oip_next_member(&rd->s, &first, &rd->key, &more, what, err));
        if (!more) return CHURON_OK;
        char where[WHAT_BYTES];
        snprintf(where, sizeof where, "%.100s.%.60s", what, str_cstr(&rd->key));
        bool known = false;
        TRY(fn(rd, user, str_cstr(&rd->key), &known, where, err));
        if (known) continue;
        if (is_refused(str_cstr(&rd->key))) {
            return error_set(err, CHURON_UNSUPPORTED,
                             "%s: expected it absent, which this server does not have", where);
        }
        TRY(oip_skip(&rd->s, where, err));
    }
}

static status input_parameter(reader *rd, void *user, const char *key, bool *known, const char *what,
                              error *err) {
    input *in = user;
    *known = strcmp(key, "binary_data_size") == 0;
    if (!*known) return CHURON_OK;
    in->has_binary = true;
    return oip_u64(&rd->s, &in->binary_bytes, what, err);
}

static status output_parameter(reader *rd, void *user, const char *key, bool *known, const char *what,
                               error *err) {
    bool binary;
    *known = strcmp(key, "binary_data") == 0;
    if (!*known) return CHURON_OK;
    TRY(oip_bool(&rd->s, &binary, what, err));
    *(signed char *)user = binary;
    return CHURON_OK;
}

/* A number or a text, kept as text. */
static status sequence_id(reader *rd, const char *what, error *err) {
    oip_request *r = rd->r;
    uint64_t id;
    r->has_sequence = true;
    if (oip_peek(&rd->s) == '"') return oip_string(&rd->s, &r->sequence_id, what, err);
    TRY(oip_u64(&rd->s, &id, what, err));
    str_clear(&r->sequence_id);
    str_fmt(&r->sequence_id, "%" PRIu64, id);
    return str_check(&r->sequence_id, err);
}

static status sequence_parameter(reader *rd, const char *key, bool *known, const char *what, error *err) {
    if (strcmp(key, "sequence_id") == 0) return sequence_id(rd, what, err);
    if (strcmp(key, "sequence_start") == 0) return oip_bool(&rd->s, &rd->r->sequence_start, what, err);
    if (strcmp(key, "sequence_end") == 0) return oip_bool(&rd->s, &rd->r->sequence_end, what, err);
    *known = false;
    return CHURON_OK;
}

static status request_parameter(reader *rd, void *user, const char *key, bool *known, const char *what,
                                error *err) {
    (void)user;
    *known = true;
    if (strcmp(key, "binary_data_output") == 0) return oip_bool(&rd->s, &rd->binary_all, what, err);
    if (strcmp(key, "timeout") == 0) return oip_u64(&rd->s, &rd->r->timeout_us, what, err);
    if (strcmp(key, "provenance") == 0) return oip_bool(&rd->s, &rd->r->provenance, what, err);
    if (rd->m->has_sequences) return sequence_parameter(rd, key, known, what, err);
    *known = false;
    return CHURON_OK;
}

/* ---- inputs ----------------------------------------------------------------------------------------- */

static status read_shape(reader *rd, input *in, error *err) {
    char what[WHAT_BYTES + 16];
    snprintf(what, sizeof what, "%s.shape", in->what);
    TRY(oip_expect(&rd->s, '[', what, err));
    for (bool first = true, more;;) {
        TRY(oip_next_item(&rd->s, &first, &more, what, err));
        if (!more) break;
        if (in->rank == TENSOR_MAX_RANK) {
            return error_set(err, CHURON_LIMIT, "%s: expected at most %d dimensions, got more", what,
                             TENSOR_MAX_RANK);
        }
        TRY(oip_i64(&rd->s, &in->dims[in->rank++], what, err));
    }
    in->has_shape = true;
    return CHURON_OK;
}

static status no_room(const input *in, size_t count, size_t have, error *err) {
    return error_set(err, CHURON_INVALID,
                     "%s: expected %zu elements as the shape says, got %zu bytes of data", in->what, count,
                     have);
}

/* The port is known and so is the shape: a tensor for the elements, its size bounded by what came. */
static status make_tensor(const oip_port *p, input *in, size_t least_bytes, size_t have, error *err) {
    size_t count;
    TRY(tensor_count(p->type, in->rank, in->dims, &count, in->what, err));
    if (count > have / least_bytes) return no_room(in, count, have, err);
    tensor t;
    TRY(tensor_alloc(&t, p->type, in->rank, in->dims, err));
    in->v = value_of_tensor(t);
    return CHURON_OK;
}

static const oip_port *port_of(const reader *rd, const input *in, size_t *index) {
    for (size_t i = 0; i < rd->m->n_inputs; i++) {
        const char *name = rd->m->inputs[i].name;
        *index = i;
        if (strlen(name) == in->name.len && memcmp(name, str_cstr(&in->name), in->name.len) == 0)
            return &rd->m->inputs[i];
    }
    return NULL;
}

static status check_input(const reader *rd, input *in, const oip_port **port, size_t *index, error *err) {
    const oip_port *p = in->name.data ? port_of(rd, in, index) : NULL;
    if (!p) {
        str names = {0};
        for (size_t i = 0; i < rd->m->n_inputs && names.len < 200; i++)
            str_fmt(&names, "%s'%.60s'", i ? ", " : "", rd->m->inputs[i].name);
        const status st =
            error_set(err, CHURON_INVALID, "%s.name: expected %s%s, got '%.60s'", in->what,
                      rd->m->n_inputs > 1 ? "one of " : "", str_cstr(&names), str_cstr(&in->name));
        str_free(&names);
        return st;
    }
    snprintf(in->what, sizeof in->what, "input '%.120s'", p->name);
    if (rd->r->inputs[*index].kind != VALUE_NONE)
        return error_set(err, CHURON_INVALID, "%s: expected once, got twice", in->what);
    if (strcmp(str_cstr(&in->datatype), p->datatype) != 0) {
        return error_set(err, CHURON_INVALID, "%s: datatype: expected %s, got %s%.20s%s", in->what,
                         p->datatype, in->datatype.data ? "'" : "",
                         in->datatype.data ? in->datatype.data : "none", in->datatype.data ? "'" : "");
    }
    if (!in->has_shape) return error_set(err, CHURON_INVALID, "%s: shape: expected it, got none", in->what);
    if (in->has_data == in->has_binary) {
        return error_set(err, CHURON_INVALID, "%s: expected data or parameters.binary_data_size, got %s",
                         in->what, in->has_data ? "both" : "none");
    }
    *port = p;
    return CHURON_OK;
}

static status fill_json(reader *rd, const oip_port *p, input *in, oip_scan *from, error *err) {
    if (p->type == ELEM_F16 || p->type == ELEM_BF16) {
        return error_set(err, CHURON_INVALID,
                         "%s: expected %s in binary (parameters.binary_data_size), got JSON", in->what,
                         p->datatype);
    }
    TRY(make_tensor(p, in, 1, rd->body_len, err));
    return oip_elements(from, &in->v.t, in->what, err);
}

/* BYTES: a length of four bytes before each. */
static status fill_strings(input *in, const char *from, size_t n, error *err) {
    const char *p = from, *end = from + n;
    tensor *t = &in->v.t;
    for (size_t i = 0; i < t->count; i++) {
        if (end - p < 4) return no_room(in, t->count, n, err);
        const uint8_t *b = (const uint8_t *)p;
        const uint32_t len =
            (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
        p += 4;
        if (len > (size_t)(end - p)) {
            return error_set(err, CHURON_INVALID,
                             "%s: element %zu: expected at most %zu bytes, which are left, got "
                             "a length of %" PRIu32,
                             in->what, i, (size_t)(end - p), len);
        }
        TRY(tensor_string_set(t, i, p, len, err));
        p += len;
    }
    if (p == end) return CHURON_OK;
    return error_set(err, CHURON_INVALID, "%s: expected %zu elements as the shape says, got %zu bytes more",
                     in->what, t->count, (size_t)(end - p));
}

static status fill_binary(reader *rd, const oip_port *p, input *in, error *err) {
    const size_t left = (size_t)(rd->binary_end - rd->binary);
    if (in->binary_bytes > left) {
        return error_set(err, CHURON_INVALID,
                         "%s: binary_data_size: expected at most %zu bytes, which the body has "
                         "left, got %" PRIu64,
                         in->what, left, in->binary_bytes);
    }
    const char *from = rd->binary;
    const size_t n = (size_t)in->binary_bytes;
    rd->binary += n;
    if (p->type == ELEM_STRING) {
        TRY(make_tensor(p, in, 4, n, err));
        return fill_strings(in, from, n, err);
    }
    TRY(make_tensor(p, in, elem_describe(p->type)->bytes, n, err));
    const size_t want = tensor_bytes(&in->v.t);
    if (want != n) {
        return error_set(err, CHURON_INVALID,
                         "%s: binary_data_size: expected %zu as shape and datatype say, got %zu", in->what,
                         want, n);
    }
    for (size_t i = 0; p->type == ELEM_BOOL && i < n; i++) {
        if ((unsigned char)from[i] > 1) {
            return error_set(err, CHURON_INVALID, "%s: element %zu: expected 0 or 1, got %u", in->what, i,
                             (unsigned)(unsigned char)from[i]);
        }
    }
    if (n) elem_unpack(p->type, from, in->v.t.data, in->v.t.count);
    return CHURON_OK;
}

/* The data as they come, if what they are is known already; else their place is kept for later. */
static status read_data(reader *rd, input *in, error *err) {
    in->has_data = true;
    if (in->name.data && in->datatype.data && in->has_shape && !in->has_binary) {
        const oip_port *p;
        size_t index;
        TRY(check_input(rd, in, &p, &index, err));
        in->filled = true;
        return fill_json(rd, p, in, &rd->s, err);
    }
    in->data = rd->s;
    return oip_skip(&rd->s, in->what, err);
}

static status input_member(reader *rd, input *in, const char *key, error *err) {
    char what[WHAT_BYTES + 64];
    snprintf(what, sizeof what, "%s.%.40s", in->what, key);
    if (strcmp(key, "name") == 0 && !in->name.data) return oip_string(&rd->s, &in->name, what, err);
    if (strcmp(key, "datatype") == 0 && !in->datatype.data)
        return oip_string(&rd->s, &in->datatype, what, err);
    if (strcmp(key, "shape") == 0 && !in->has_shape) return read_shape(rd, in, err);
    if (strcmp(key, "data") == 0 && !in->has_data) return read_data(rd, in, err);
    if (strcmp(key, "parameters") == 0) return read_parameters(rd, what, input_parameter, in, err);
    return error_set(err, CHURON_INVALID,
                     "%s: expected name, shape, datatype, parameters and data, each once", what);
}

static status read_input(reader *rd, input *in, error *err) {
    TRY(oip_expect(&rd->s, '{', in->what, err));
    for (bool first = true, more;;) {
        TRY(oip_next_member(&rd->s, &first, &rd->key, &more, in->what, err));
        if (!more) break;
        char key[48];
        snprintf(key, sizeof key, "%.40s", str_cstr(&rd->key));
        TRY(input_member(rd, in, key, err));
    }
    const oip_port *p;
    size_t index;
    TRY(check_input(rd, in, &p, &index, err));
    if (in->has_binary) {
        TRY(fill_binary(rd, p, in, err));
    } else if (!in->filled) {
        TRY(fill_json(rd, p, in, &in->data, err));
    }
    rd->r->inputs[index] = in->v;
    in->v = (value){0};
    return CHURON_OK;
}

static status read_inputs(reader *rd, error *err) {
    TRY(oip_expect(&rd->s, '[', "inputs", err));
    size_t i = 0;
    for (bool first = true, more;; i++) {
        TRY(oip_next_item(&rd->s, &first, &more, "inputs", err));
        if (!more) return CHURON_OK;
        input in = {0};
        snprintf(in.what, sizeof in.what, "inputs[%zu]", i);
        const status st = read_input(rd, &in, err);
        str_free(&in.name);
        str_free(&in.datatype);
        value_free(&in.v);
        TRY(st);
    }
}

static status check_all_given(const reader *rd, error *err) {
    for (size_t i = 0; i < rd->m->n_inputs; i++) {
        const oip_port *p = &rd->m->inputs[i];
        if (rd->r->inputs[i].kind == VALUE_NONE && !p->optional) {
            return error_set(err, CHURON_INVALID, "inputs: expected '%.120s' (%s), got none", p->name,
                             p->datatype);
        }
    }
    if (rd->binary == rd->binary_end) return CHURON_OK;
    return error_set(err, CHURON_INVALID,
                     "body: expected as many bytes as the inputs' binary_data_size say, got %zu "
                     "more",
                     (size_t)(rd->binary_end - rd->binary));
}

/* ---- outputs ---------------------------------------------------------------------------------------- */

static status want(reader *rd, const char *what, error *err) {
    const oip_model *m = rd->m;
    size_t i = 0;
    while (i < m->n_outputs && strcmp(m->outputs[i].name, str_cstr(&rd->text)) != 0) i++;
    if (i == m->n_outputs || strlen(m->outputs[i].name) != rd->text.len) {
        return error_set(err, CHURON_INVALID, "%s.name: expected an output of the model, got '%.80s'", what,
                         str_cstr(&rd->text));
    }
    if (!m->outputs[i].datatype) {
        return error_set(
            err, CHURON_UNSUPPORTED,
            "output '%.80s': expected one that is a tensor of a type that the inference protocol has",
            m->outputs[i].name);
    }
    if (rd->r->outputs[i])
        return error_set(err, CHURON_INVALID, "output '%.80s': expected once, got twice", m->outputs[i].name);
    rd->r->outputs[i] = true;
    rd->r->wanted[rd->r->n_wanted++] = (oip_wanted){.output = i};
    return CHURON_OK;
}

static status read_output(reader *rd, const char *what, error *err) {
    bool named = false;
    signed char binary = -1;
    TRY(oip_expect(&rd->s, '{', what, err));
    for (bool first = true, more;;) {
        TRY(oip_next_member(&rd->s, &first, &rd->key, &more, what, err));
        if (!more) break;
        const char *key = str_cstr(&rd->key);
        if (strcmp(key, "name") == 0 && !named) {
            TRY(oip_string(&rd->s, &rd->text, what, err));
            named = true;
        } else if (strcmp(key, "parameters") == 0) {
            char where[WHAT_BYTES];
            snprintf(where, sizeof where, "%s.parameters", what);
            TRY(read_parameters(rd, where, output_parameter, &binary, err));
        } else {
            return error_set(err, CHURON_INVALID, "%s.%.40s: expected name and parameters, each once", what,
                             key);
        }
    }
    if (!named) return error_set(err, CHURON_INVALID, "%s.name: expected it, got none", what);
    TRY(want(rd, what, err));
    rd->said[rd->r->wanted[rd->r->n_wanted - 1].output] = binary;
    return CHURON_OK;
}

static status read_outputs(reader *rd, error *err) {
    TRY(oip_expect(&rd->s, '[', "outputs", err));
    size_t i = 0;
    for (bool first = true, more;; i++) {
        TRY(oip_next_item(&rd->s, &first, &more, "outputs", err));
        if (!more) return CHURON_OK;
        char what[48];
        snprintf(what, sizeof what, "outputs[%zu]", i);
        TRY(read_output(rd, what, err));
    }
}

/* None named: all that the protocol can carry. */
static void settle_outputs(reader *rd) {
    oip_request *r = rd->r;
    for (size_t i = 0; !rd->has_outputs && i < rd->m->n_outputs; i++) {
        r->outputs[i] = rd->m->outputs[i].datatype != NULL;
        if (r->outputs[i]) r->wanted[r->n_wanted++] = (oip_wanted){.output = i};
    }
    for (size_t i = 0; i < r->n_wanted; i++) {
        const signed char said = rd->said[r->wanted[i].output];
        r->wanted[i].binary = said < 0 ? rd->binary_all : said > 0;
    }
}

/* ---- the request ------------------------------------------------------------------------------------ */

static status again(const char *key, error *err) {
    return error_set(err, CHURON_INVALID, "%s: expected once, got twice", key);
}

static status request_member(reader *rd, const char *key, error *err) {
    if (strcmp(key, "id") == 0) {
        if (rd->r->has_id) return again("id", err);
        rd->r->has_id = true;
        TRY(oip_string(&rd->s, &rd->r->id, "id", err));
        if (rd->r->id.len <= MAX_ID) return CHURON_OK;
        return error_set(err, CHURON_LIMIT, "id: expected at most %d bytes, got %zu", MAX_ID, rd->r->id.len);
    }
    if (strcmp(key, "inputs") == 0) {
        if (rd->has_inputs) return again("inputs", err);
        rd->has_inputs = true;
        return read_inputs(rd, err);
    }
    if (strcmp(key, "outputs") == 0) {
        if (rd->has_outputs) return again("outputs", err);
        TRY(read_outputs(rd, err));
        rd->has_outputs = rd->r->n_wanted > 0; /* an empty list names none */
        return CHURON_OK;
    }
    if (strcmp(key, "parameters") == 0) {
        if (rd->has_parameters) return again("parameters", err);
        rd->has_parameters = true;
        return read_parameters(rd, "parameters", request_parameter, NULL, err);
    }
    return error_set(err, CHURON_INVALID,
                     "%.60s: expected id, parameters, inputs and outputs, got another member", key);
}

static status read_request(reader *rd, error *err) {
    TRY(oip_expect(&rd->s, '{', "body", err));
    for (bool first = true, more;;) {
        TRY(oip_next_member(&rd->s, &first, &rd->key, &more, "body", err));
        if (!more) break;
        char key[64];
        snprintf(key, sizeof key, "%.60s", str_cstr(&rd->key));
        TRY(request_member(rd, key, err));
    }
    if (oip_peek(&rd->s) != '\0' || rd->s.p < rd->s.end)
        return error_set(err, CHURON_INVALID, "body: expected one JSON object, got more behind it");
    if (!rd->has_inputs && rd->m->n_inputs > 0)
        return error_set(err, CHURON_INVALID, "inputs: expected it, got none");
    TRY(check_all_given(rd, err));
    settle_outputs(rd);
    return CHURON_OK;
}

status oip_request_read(oip_request *out, const oip_model *m, const char *body, size_t len, size_t json_len,
                        error *err) {
    *out = (oip_request){0};
    reader rd = {.m = m,
                 .r = out,
                 .s = {body, body + json_len},
                 .binary = body + json_len,
                 .binary_end = body + len,
                 .body_len = len};
    out->inputs = mem_calloc(m->n_inputs + 1, sizeof *out->inputs);
    out->outputs = mem_calloc(m->n_outputs + 1, sizeof *out->outputs);
    out->wanted = mem_calloc(m->n_outputs + 1, sizeof *out->wanted);
    rd.said = mem_alloc(m->n_outputs + 1);
    status st = out->inputs && out->outputs && out->wanted && rd.said
                    ? CHURON_OK
                    : error_no_memory(err, "request", m->n_inputs + m->n_outputs);
    if (st == CHURON_OK) {
        memset(rd.said, -1, m->n_outputs + 1);
        st = read_request(&rd, err);
    }
    mem_free(rd.said);
    str_free(&rd.key);
    str_free(&rd.text);
    return st;
}

void oip_request_free(oip_request *r, const oip_model *m) {
    for (size_t i = 0; r->inputs && i < m->n_inputs; i++) value_free(&r->inputs[i]);
    mem_free(r->inputs);
    mem_free(r->outputs);
    mem_free(r->wanted);
    str_free(&r->id);
    str_free(&r->sequence_id);
    *r = (oip_request){0};
}

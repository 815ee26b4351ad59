/* inspect.c: `churon inspect`: what a person wants to know about a model file before loading it.
 *
 * Reads descriptions only: no weight is packed or computed. What a file says about itself is shown even when
 * this version cannot run it; then the reason is shown too. */
#include "base/mem.h"
#include "bundle/lm_bundle.h"
#include "cli/cli.h"
#include "cli/settings.h"
#include "lm/forward.h"
#include "registry/store.h"

#include <stdio.h>
#include <string.h>

enum { SHOWN_ITEMS = 6, SHOWN_TEXT = 240, STEP_TOKENS = 512 };

typedef struct inspection {
    const gguf *g;
    const char *path;
    char digest[DIGEST_HEX]; /* "" when it was not asked for */
    str architecture, name;
    bool runs; /* this version can run it */
    error why_not;
    lm_config config; /* only if it runs */
    tokenizer *tok;   /* NULL if it has none that this version knows */
    error no_tokenizer;
    gguf_string template_source;
    uint64_t parameters, weights_bytes;
    uint64_t types[DTYPE_COUNT];
    size_t context; /* that memory is counted for */
    kv_type kv_type;
    uint64_t memory_weights, kv_per_token, scratch;
} inspection;

/* ---- reading ---------------------------------------------------------------------------------------- */

static status read_text(const gguf *g, const char *key, str *out, error *err) {
    gguf_string s;
    TRY(gguf_get_string_or_null(g, key, &s, err));
    if (s.data) str_add(out, s.data, s.len);
    return str_check(out, err);
}

static void add_up_tensors(inspection *in) {
    for (size_t i = 0; i < gguf_n_tensors(in->g); i++) {
        const gguf_tensor *t = gguf_tensor_at(in->g, i);
        uint64_t values = 1, rows = 1;
        for (size_t d = 0; d < GGUF_MAX_DIMS; d++) values *= t->dims[d];
        for (size_t d = 1; d < GGUF_MAX_DIMS; d++) rows *= t->dims[d];
        in->parameters += values;
        in->weights_bytes += t->bytes;
        in->types[t->type]++;
        size_t packed_bytes = rows > 1 ? pack_bytes(t->type, (size_t)rows, (size_t)t->dims[0]) : 0;
        in->memory_weights += packed_bytes ? packed_bytes : values * sizeof(float);
    }
}

static size_t max2(size_t a, size_t b) {
    return a > b ? a : b;
}

/* The buffers of a step are laid out for a model of this shape, and given back: none is touched. */
static status measure_scratch(inspection *in, size_t threads, error *err) {
    const lm_config *c = &in->config;
    lm_model shape = {.config = *c};
    shape.max_cols = max2(max2(c->n_embd, c->n_ff), (size_t)c->n_head * c->head_dim_v);
    pool *p = NULL;
    forward *f = NULL;
    status st;
    TRY_GOTO(kernels_select(&shape.k, err));
    TRY_GOTO(pool_create(&p, threads ? threads : pool_physical_cores(), err));
    TRY_GOTO(forward_create(&f, &shape, p, NULL, STEP_TOKENS + 1, 1, in->context, 16, err));
    in->scratch = forward_scratch_bytes(f);
cleanup:
    forward_free(f);
    pool_free(p);
    return st;
}

static status inspect_file(inspection *in, uint64_t ctx, const arg_common *common, error *err) {
    TRY(read_text(in->g, "general.architecture", &in->architecture, err));
    TRY(read_text(in->g, "general.name", &in->name, err));
    TRY(gguf_get_string_or_null(in->g, "tokenizer.chat_template", &in->template_source, err));
    add_up_tensors(in);
    status st = tokenizer_from_gguf(&in->tok, in->g, &in->no_tokenizer);
    if (st == CHURON_NO_MEMORY) return error_no_memory(err, "tokenizer", 0);
    st = lm_config_read(in->g, &in->config, &in->why_not);
    in->runs = st == CHURON_OK && in->tok;
    if (st == CHURON_OK && !in->tok) in->why_not = in->no_tokenizer;
    if (st == CHURON_UNSUPPORTED) return CHURON_OK;
    if (st != CHURON_OK) {
        if (err) *err = in->why_not;
        return st;
    }
    size_t packed_bytes;
    st = lm_model_check(in->g, &packed_bytes, &in->why_not);
    if (st == CHURON_NO_MEMORY) return error_no_memory(err, "model", 0);
    if (st != CHURON_OK) {
        in->runs = false;
        return CHURON_OK;
    }
    in->memory_weights = packed_bytes;
    if (ctx > in->config.context_trained) {
        return error_set(err, CHURON_LIMIT,
                         "field --ctx: expected at most %u (what the model was trained with), got %llu",
                         in->config.context_trained, (unsigned long long)ctx);
    }
    in->context = ctx ? (size_t)ctx : in->config.context_trained;
    in->kv_per_token = kv_bytes_per_token(&in->config, in->kv_type);
    return measure_scratch(in, common->threads, err);
}

/* ---- metadata --------------------------------------------------------------------------------------- */

static void write_item(json_out *j, const char *key, const gguf *g, const gguf_value *v, uint64_t i) {
    switch (v->item) { /* of a scalar: its own type */
    case GGUF_STRING: {
        gguf_string s = gguf_item_string(g, v, i);
        json_out_string(j, key, s.data, s.len);
        break;
    }
    case GGUF_F32: json_out_float(j, key, (float)gguf_item_float(v, i)); break;
    case GGUF_F64: json_out_double(j, key, gguf_item_float(v, i)); break;
    case GGUF_BOOL: json_out_bool(j, key, gguf_item_int(v, i) != 0); break;
    case GGUF_U64: json_out_uint(j, key, (uint64_t)gguf_item_int(v, i)); break;
    default: json_out_int(j, key, gguf_item_int(v, i)); break;
    }
}

/* A long array as {"type", "count", "first"}: a vocabulary is not for reading. */
static void write_value(json_out *j, const char *key, const gguf *g, const gguf_value *v) {
    if (v->type != GGUF_ARRAY) {
        write_item(j, key, g, v, 0);
        return;
    }
    bool whole = v->count <= SHOWN_ITEMS;
    if (!whole) {
        json_out_object(j, key);
        json_out_cstr(j, "type", gguf_type_name(v->item));
        json_out_uint(j, "count", v->count);
    }
    json_out_array(j, whole ? key : "first");
    for (uint64_t i = 0; i < v->count && i < SHOWN_ITEMS; i++) write_item(j, NULL, g, v, i);
    json_out_end_array(j);
    if (!whole) json_out_end_object(j);
}

static void write_metadata(json_out *j, const gguf *g, str *key) {
    json_out_object(j, "metadata");
    for (size_t i = 0; i < gguf_n_values(g); i++) {
        const gguf_value *v = gguf_value_at(g, i);
        str_clear(key);
        str_add(key, v->key.data, v->key.len);
        write_value(j, str_cstr(key), g, v);
    }
    json_out_end_object(j);
}

/* ---- JSON ------------------------------------------------------------------------------------------- */

static void write_port(json_out *j, const char *list, const char *name, const char *type, const char *axis,
                       uint64_t n) {
    json_out_array(j, list);
    json_out_object(j, NULL);
    json_out_cstr(j, "name", name);
    json_out_cstr(j, "dtype", type);
    json_out_array(j, "shape");
    json_out_cstr(j, NULL, axis);
    if (n) json_out_uint(j, NULL, n);
    json_out_end_array(j);
    json_out_end_object(j);
    json_out_end_array(j);
}

static void write_memory(json_out *j, const inspection *in) {
    if (!in->runs) {
        json_out_null(j, "memory");
        return;
    }
    json_out_object(j, "memory");
    json_out_uint(j, "weights", in->memory_weights);
    json_out_uint(j, "kv_per_token", in->kv_per_token);
    json_out_cstr(j, "kv_type", kv_type_name(in->kv_type));
    json_out_uint(j, "scratch", in->scratch);
    json_out_uint(j, "context", in->context);
    json_out_uint(j, "total", in->memory_weights + in->kv_per_token * in->context + in->scratch);
    json_out_end_object(j);
}

static void write_tokenizer(json_out *j, const inspection *in) {
    if (!in->tok) {
        json_out_null(j, "tokenizer");
        return;
    }
    json_out_object(j, "tokenizer");
    json_out_cstr(j, "model", tokenizer_model(in->tok));
    json_out_cstr(j, "pre", tokenizer_pre(in->tok));
    json_out_uint(j, "tokens", tokenizer_n_tokens(in->tok));
    json_out_int(j, "bos", tokenizer_bos(in->tok));
    json_out_int(j, "eos", tokenizer_eos(in->tok));
    json_out_end_object(j);
}

static void write_shape(json_out *j, const lm_config *c) {
    json_out_object(j, "shape");
    json_out_uint(j, "layers", c->n_layer);
    json_out_uint(j, "embedding", c->n_embd);
    json_out_uint(j, "feed_forward", c->n_ff);
    json_out_uint(j, "heads", c->n_head);
    json_out_uint(j, "kv_heads", c->n_head_kv);
    json_out_uint(j, "head_dim", c->head_dim_k);
    json_out_uint(j, "vocabulary", c->n_vocab);
    json_out_end_object(j);
}

static int print_json(const inspection *in) {
    str out = {0}, key = {0};
    json_out j = json_out_begin(&out);
    json_out_object(&j, NULL);
    str_fmt(&key, "GGUF v%u", gguf_version(in->g));
    json_out_cstr(&j, "format", str_cstr(&key));
    json_out_cstr(&j, "path", in->path);
    json_out_string(&j, "architecture", str_cstr(&in->architecture), in->architecture.len);
    json_out_string(&j, "name", str_cstr(&in->name), in->name.len);
    json_out_bool(&j, "runs", in->runs);
    json_out_cstr(&j, "why_not", in->runs ? NULL : in->why_not.message);
    json_out_uint(&j, "parameters", in->parameters);
    write_port(&j, "inputs", "tokens", "int32", "tokens", 0);
    write_port(&j, "outputs", "logits", "float32", "tokens", in->runs ? in->config.n_vocab : 0);
    json_out_object(&j, "operators");
    json_out_end_object(&j);
    json_out_null(&j, "opset");
    json_out_uint(&j, "weights_bytes", in->weights_bytes);
    json_out_uint(&j, "file_bytes", gguf_file_bytes(in->g));
    json_out_object(&j, "types");
    for (size_t t = 0; t < DTYPE_COUNT; t++) {
        if (in->types[t]) json_out_uint(&j, dtype_name((dtype)t), in->types[t]);
    }
    json_out_end_object(&j);
    if (in->runs) {
        write_shape(&j, &in->config);
        json_out_uint(&j, "context_length", in->config.context_trained);
    } else {
        json_out_null(&j, "shape");
        json_out_null(&j, "context_length");
    }
    write_memory(&j, in);
    write_tokenizer(&j, in);
    json_out_bool(&j, "chat_template", in->template_source.data != NULL);
    json_out_cstr(&j, "digest", in->digest);
    write_metadata(&j, in->g, &key);
    json_out_end_object(&j);
    int code = cli_print_json(&out);
    str_free(&key);
    str_free(&out);
    return code;
}

/* ---- text ------------------------------------------------------------------------------------------- */

static void add_bytes(str *out, uint64_t bytes) {
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    double v = (double)bytes;
    size_t unit = 0;
    while (v >= 1024 && unit < 4) {
        v /= 1024;
        unit++;
    }
    str_fmt(out, unit ? "%.1f %s" : "%.0f %s", v, units[unit]);
}

static void add_line(str *out, const char *label) {
    str_fmt(out, "%-16s", label);
}

static void add_count(str *out, uint64_t n) {
    if (n >= 1000000000) {
        str_fmt(out, "%.2f billion", (double)n / 1e9);
    } else if (n >= 1000000) {
        str_fmt(out, "%.1f million", (double)n / 1e6);
    } else {
        str_fmt(out, "%llu", (unsigned long long)n);
    }
}

/* Text of a file on a terminal: one line, no control characters, not too long. */
static void add_file_text(str *out, const char *bytes, size_t n) {
    const char *at = bytes, *end = bytes + n;
    while (at < end && (size_t)(at - bytes) < SHOWN_TEXT) {
        uint32_t cp = 0xfffd;
        size_t k = utf8_decode(at, end, &cp);
        if (k == 0 || cp < 0x20 || (cp >= 0x7f && cp < 0xa0)) {
            str_put(out, cp == '\n' ? ' ' : '?');
        } else {
            str_add(out, at, k);
        }
        at += k ? k : 1;
    }
    if (at < end) str_fmt(out, "… (%zu bytes)", n);
}

static void add_memory(str *out, const inspection *in) {
    add_line(out, "memory");
    add_bytes(out, in->memory_weights + in->kv_per_token * in->context + in->scratch);
    str_fmt(out, " with a context of %zu tokens:\n", in->context);
    add_line(out, "");
    str_cat(out, "weights ");
    add_bytes(out, in->memory_weights);
    str_cat(out, ", context ");
    add_bytes(out, in->kv_per_token * in->context);
    str_cat(out, " (");
    add_bytes(out, in->kv_per_token);
    str_cat(out, " a token), scratch ");
    add_bytes(out, in->scratch);
    str_put(out, '\n');
}

static void add_shape(str *out, const inspection *in) {
    const lm_config *c = &in->config;
    add_line(out, "shape");
    str_fmt(out, "%u layers, %u wide, %u heads (%u for keys and values) of %u, feed-forward %u\n", c->n_layer,
            c->n_embd, c->n_head, c->n_head_kv, c->head_dim_k, c->n_ff);
    add_line(out, "context");
    str_fmt(out, "%u tokens\n", c->context_trained);
    add_memory(out, in);
}

static void add_metadata(str *out, const gguf *g) {
    str_cat(out, "\nmetadata\n");
    for (size_t i = 0; i < gguf_n_values(g); i++) {
        const gguf_value *v = gguf_value_at(g, i);
        str value = {0};
        json_out j = json_out_begin(&value);
        str_cat(out, "  ");
        add_file_text(out, v->key.data, v->key.len);
        str_cat(out, " = ");
        if (v->type == GGUF_ARRAY && v->count > SHOWN_ITEMS) {
            str_fmt(out, "%llu of %s: ", (unsigned long long)v->count, gguf_type_name(v->item));
            for (uint64_t k = 0; k < SHOWN_ITEMS; k++) write_item(&j, NULL, g, v, k);
            add_file_text(out, str_cstr(&value), value.len);
            str_cat(out, ", …");
        } else {
            write_value(&j, NULL, g, v);
            add_file_text(out, str_cstr(&value), value.len);
        }
        str_put(out, '\n');
        str_free(&value);
    }
}

static int print_text(const inspection *in) {
    str out = {0};
    add_line(&out, "file");
    const char *slash = strrchr(in->path, '/');
    str_fmt(&out, "%s, GGUF v%u, ", slash ? slash + 1 : in->path, gguf_version(in->g));
    add_bytes(&out, gguf_file_bytes(in->g));
    str_put(&out, '\n');
    add_line(&out, "model");
    add_file_text(&out, str_cstr(&in->name), in->name.len);
    str_cat(&out, in->name.len ? " (" : "(");
    add_file_text(&out, str_cstr(&in->architecture), in->architecture.len);
    str_cat(&out, "), ");
    add_count(&out, in->parameters);
    str_cat(&out, " parameters\n");
    add_line(&out, "runs");
    str_fmt(&out, "%s%s\n", in->runs ? "yes" : "no: ", in->runs ? "" : in->why_not.message);
    add_line(&out, "types");
    bool first = true;
    for (size_t t = 0; t < DTYPE_COUNT; t++) {
        if (!in->types[t]) continue;
        str_fmt(&out, "%s%llu × %s", first ? "" : ", ", (unsigned long long)in->types[t],
                dtype_name((dtype)t));
        first = false;
    }
    str_put(&out, '\n');
    if (in->runs) add_shape(&out, in);
    add_line(&out, "tokenizer");
    if (in->tok) {
        str_fmt(&out, "%s, rule %s, %zu tokens\n", tokenizer_model(in->tok), tokenizer_pre(in->tok),
                tokenizer_n_tokens(in->tok));
    } else {
        str_fmt(&out, "none that this version knows: %s\n", in->no_tokenizer.message);
    }
    add_line(&out, "chat template");
    str_fmt(&out, in->template_source.data ? "yes, %zu bytes\n" : "none: give prompts with --raw\n",
            in->template_source.len);
    add_metadata(&out, in->g);
    error err;
    if (str_check(&out, &err) != CHURON_OK) {
        str_free(&out);
        return cli_refuse("inspect", &err);
    }
    (void)cli_write(out.data, out.len);
    str_free(&out);
    return cli_finish(EXIT_YES);
}

/* ---- the command ------------------------------------------------------------------------------------ */

static int inspect_model(const char *model, uint64_t ctx, kv_type type, const arg_common *common) {
    error err;
    str path = {0};
    gguf *g = NULL;
    inspection in = {.kv_type = type};
    status st;
    int code = EXIT_NO;
    TRY_GOTO(store_resolve(model, &path, &err));
    TRY_GOTO(gguf_open(&g, str_cstr(&path), &err));
    in.g = g;
    in.path = str_cstr(&path);
    TRY_GOTO(inspect_file(&in, ctx, common, &err));
    if (common->json) TRY_GOTO(store_digest(in.path, in.digest, &err));
    code = common->json ? print_json(&in) : print_text(&in);
cleanup:
    if (st != CHURON_OK) code = cli_refuse("inspect", &err);
    tokenizer_free(in.tok);
    str_free(&in.architecture);
    str_free(&in.name);
    gguf_free(g);
    str_free(&path);
    return code;
}

int cmd_inspect(int argc, char **argv) {
    if (bundle_is_asked(argc, argv)) return bundle_cmd_inspect(argc, argv);
    if (graph_is_asked(argc, argv)) return graph_cmd_inspect(argc, argv);
    uint64_t ctx = 0;
    const char *kv_text = NULL;
    kv_type type = KV_F16;
    arg_common common = {0};
    const arg_option options[] = {
        {.name = "ctx",
         .kind = ARG_UINT,
         .target = &ctx,
         .value = "N",
         .umin = 1,
         .umax = UINT32_MAX,
         .help = "count memory for a context of N tokens (default: as trained)"},
        settings_kv_type_option(&kv_text),
    };
    const arg_command c = {
        .name = "inspect",
        .synopsis = "MODEL",
        .summary = "Shows what is in a model file and the memory that it will need.",
        .details = "Nothing is loaded: this takes a moment whatever the file's size. A graph (MODEL.onnx)\n"
                   "takes --passes and --provider as well; of a bundle it shows fields, steps and outputs.",
        .example = "churon inspect model.gguf --ctx 2048",
        .options = options,
        .n_options = sizeof options / sizeof *options,
        .min_args = 1,
        .max_args = 1};
    size_t n_args;
    arg_outcome outcome = args_parse(&c, argc, argv, &common, argv, &n_args);
    if (outcome != ARGS_RUN) return outcome == ARGS_DONE ? cli_finish(EXIT_YES) : EXIT_USAGE;
    if (!settings_kv_type(kv_text, &type)) return args_wrong(&c, "--kv-type", SETTINGS_KV_TYPES, kv_text);
    return inspect_model(argv[0], ctx, type, &common);
}

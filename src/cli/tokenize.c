/* tokenize.c: `churon tokenize`: text to token ids and back. */
#include "base/mem.h"
#include "bundle/lm_bundle.h"
#include "cli/cli.h"
#include "registry/store.h"

#include <stdio.h>
#include <string.h>

enum { TEXT_MAX_BYTES = 1 << 30 };

typedef struct tokenize_request {
    const char *model, *text, *file, *decode;
    bool no_special;
    arg_common common;
} tokenize_request;

static status read_ids(const tokenize_request *r, const tokenizer *t, token_list *ids, error *err) {
    size_t n, n_vocab = tokenizer_n_tokens(t);
    uint64_t *list = args_uint_list(r->decode, n_vocab - 1, &n);
    if (!list) {
        return error_set(err, CHURON_INVALID,
                         "field --decode: expected token ids from 0 to %zu such as 1,2,3, got %.80s",
                         n_vocab - 1, r->decode);
    }
    status st = CHURON_OK;
    for (size_t i = 0; i < n && st == CHURON_OK; i++) st = token_list_add(ids, (int32_t)list[i], err);
    mem_free(list);
    return st;
}

/* Some vocabularies have no token for control characters and for bytes that UTF-8 never uses. */
static status tell_left_out(const tokenizer *t, const token_list *ids, size_t len, error *err) {
    str back = {0};
    status st = tokenizer_decode(t, ids->ids, ids->len, true, &back, err);
    if (st == CHURON_OK && back.len < len) {
        fprintf(stderr, "churon: note: %zu bytes have no token in this vocabulary and are left out\n",
                len - back.len);
    }
    str_free(&back);
    return st;
}

static status encode(const tokenize_request *r, const tokenizer *t, token_list *ids, error *err) {
    str input = {0};
    const char *text = r->text;
    size_t len = text ? strlen(text) : 0;
    status st = CHURON_OK;
    if (!text) {
        TRY_GOTO(file_read(&input, r->file, TEXT_MAX_BYTES, err));
        text = str_cstr(&input);
        len = input.len;
    }
    tokenize_options o = {.add_special = !r->no_special, .parse_special = !r->no_special};
    TRY_GOTO(tokenizer_encode(t, text, len, o, ids, err));
    TRY_GOTO(tell_left_out(t, ids, len, err));
cleanup:
    str_free(&input);
    return st;
}

static int print_json(const tokenizer *t, const token_list *ids, const str *text) {
    str out = {0};
    json_out j = json_out_begin(&out);
    json_out_object(&j, NULL);
    json_out_array(&j, "ids");
    for (size_t i = 0; i < ids->len; i++) json_out_int(&j, NULL, ids->ids[i]);
    json_out_end_array(&j);
    json_out_array(&j, "pieces");
    for (size_t i = 0; i < ids->len; i++) {
        token_text piece = tokenizer_piece(t, ids->ids[i]);
        json_out_string(&j, NULL, piece.data, piece.len);
    }
    json_out_end_array(&j);
    json_out_string(&j, "text", str_cstr(text), text->len);
    json_out_end_object(&j);
    int code = cli_print_json(&out);
    str_free(&out);
    return code;
}

/* One token a line: id and piece. Decoding: the text itself. */
static int print_plain(const tokenize_request *r, const tokenizer *t, const token_list *ids,
                       const str *text) {
    str out = {0};
    if (r->decode) {
        str_add(&out, str_cstr(text), text->len);
        if (cli_is_terminal(1) || !text->len || text->data[text->len - 1] != '\n') str_put(&out, '\n');
    } else {
        for (size_t i = 0; i < ids->len; i++) {
            token_text piece = tokenizer_piece(t, ids->ids[i]);
            str_fmt(&out, "%d\t", ids->ids[i]);
            str_json(&out, piece.data, piece.len);
            str_put(&out, '\n');
        }
    }
    error err;
    int code = EXIT_YES;
    if (str_check(&out, &err) != CHURON_OK) {
        code = cli_refuse("tokenize", &err);
    } else {
        (void)cli_write(str_cstr(&out), out.len);
    }
    str_free(&out);
    return cli_finish(code);
}

static int tokenize(const tokenize_request *r) {
    error err;
    str path = {0}, text = {0};
    token_list ids = {0};
    lm_bundle *b = NULL;
    int code = EXIT_NO;
    bool is_open = false;
    status st;
    TRY_GOTO(store_resolve(r->model, &path, &err));
    TRY_GOTO(lm_bundle_open(&b, str_cstr(&path), &(lm_bundle_options){.text_only = true}, &err));
    is_open = true;
    const tokenizer *t = lm_bundle_tokenizer(b);
    TRY_GOTO(r->decode ? read_ids(r, t, &ids, &err) : encode(r, t, &ids, &err));
    TRY_GOTO(tokenizer_decode(t, ids.ids, ids.len, !r->no_special, &text, &err));
    code = r->common.json ? print_json(t, &ids, &text) : print_plain(r, t, &ids, &text);
cleanup:
    if (st != CHURON_OK) code = is_open ? cli_fail("tokenize", &err) : cli_refuse("tokenize", &err);
    token_list_free(&ids);
    str_free(&text);
    str_free(&path);
    lm_bundle_close(b);
    return code;
}

int cmd_tokenize(int argc, char **argv) {
    tokenize_request r = {0};
    const arg_option options[] = {
        {.name = "file",
         .kind = ARG_STRING,
         .target = &r.file,
         .value = "FILE",
         .help = "the text is in FILE (- is standard input)"},
        {.name = "no-special",
         .kind = ARG_FLAG,
         .target = &r.no_special,
         .help = "no bos or eos; special tokens in the text are plain text"},
        {.name = "decode",
         .kind = ARG_STRING,
         .target = &r.decode,
         .value = "1,2,3",
         .help = "token ids to text"},
    };
    const arg_command c = {.name = "tokenize",
                           .synopsis = "MODEL TEXT | --file FILE | --decode IDS",
                           .summary = "Turns text into a model's token ids, and ids into text.",
                           .details = "With --json: ids, pieces (as the vocabulary writes them), text.",
                           .example = "churon tokenize model.gguf \"Hello, world\" --json\n"
                                      "churon tokenize model.gguf --decode 19556,28,905",
                           .options = options,
                           .n_options = sizeof options / sizeof *options,
                           .min_args = 1,
                           .max_args = 2};
    size_t n_args;
    arg_outcome outcome = args_parse(&c, argc, argv, &r.common, argv, &n_args);
    if (outcome != ARGS_RUN) return outcome == ARGS_DONE ? cli_finish(EXIT_YES) : EXIT_USAGE;
    r.model = argv[0];
    r.text = n_args > 1 ? argv[1] : NULL;
    int sources = (r.text != NULL) + (r.file != NULL) + (r.decode != NULL);
    if (sources != 1) {
        return args_wrong(&c, "TEXT", "exactly one of TEXT, --file and --decode", sources ? "more" : "none");
    }
    return tokenize(&r);
}

/* test_steps.c: the steps of the groups tabular and text: what is refused when a bundle is loaded; generating
 * from many threads, with a deadline, cancelled; every allocation failing. Their numbers and ids are compared
 * with the reference libraries in tests/oracle. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "pipeline/pipeline.h"
#include "tiny_model.h"

#include <jansson.h>
#include <pthread.h>

static char folder[] = "/tmp/churon-steps-XXXXXX";

static void write_file(const char *name, const char *text) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, strlen(text), f), strlen(text));
    fclose(f);
}

static const char WORDPIECE[] =
    "{\"added_tokens\": [{\"id\": 1, \"content\": \"[CLS]\"}, {\"id\": 2, \"content\": \"[SEP]\"}],"
    "\"normalizer\": {\"type\": \"BertNormalizer\"}, \"pre_tokenizer\": {\"type\": \"BertPreTokenizer\"},"
    "\"post_processor\": {\"type\": \"BertProcessing\", \"sep\": [\"[SEP]\", 2], \"cls\": [\"[CLS]\", 1]},"
    "\"model\": {\"type\": \"WordPiece\", \"unk_token\": \"[UNK]\","
    "\"vocab\": {\"[UNK]\": 0, \"a\": 3, \"##b\": 4, \"##bc\": 5, \"e\": 6}}}";

/* Every byte's symbol and two merges. */
static void write_byte_level(void) {
    str s = {0};
    str_cat(
        &s,
        "{\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false}, \"model\": {\"type\": "
        "\"BPE\", \"vocab\": {");
    for (unsigned b = 0; b < 256; b++) {
        char text[8] = "";
        const size_t n = utf8_encode(tiny_byte_char(b), text);
        if (b) str_put(&s, ',');
        str_json(&s, text, n);
        str_fmt(&s, ": %u", b);
    }
    str_cat(&s, ", \"th\": 256, \"the\": 257}, \"merges\": [[\"t\", \"h\"], \"th e\"]}}");
    assert_false(s.failed);
    write_file("bpe.json", s.data);
    str_free(&s);
}

#define HEAD                                                                                                 \
    "churon: 1\nname: steps\nversion: 1\nmodel: {file: tiny.gguf}\ninputs:\n  text: {type: text}\n  "        \
    "number: {type: "                                                                                        \
    "double, required: false, allow_nan: true}\n  v: {type: tensor, dtype: float32, shape: [3]}\n  d: "      \
    "{type: date}\n"                                                                                         \
    "  c: {type: category, one_of: [x, y]}\nsteps:\n"

static const char ALL[] =
    HEAD "  - missing_indicator: {field: number, into: was_missing}\n"
         "  - impute: {field: number, value: 2}\n"
         "  - log1p: {field: number}\n"
         "  - clip: {field: number, min: 0, max: 9}\n"
         "  - bucketize: {field: number, into: bucket, boundaries: [1, 2]}\n"
         "  - standardize: {field: v, mean: [1, 2, 3], std: 2}\n"
         "  - min_max: {field: v, min: -1, max: 1, clip: true}\n"
         "  - robust: {field: v, center: 0.5}\n"
         "  - quantile: {field: v, into: q, quantiles: [-1, 0, 1], output: normal}\n"
         "  - polynomial: {field: q}\n"
         "  - one_hot: {field: c, into: hot, unknown: infrequent, infrequent: [y]}\n"
         "  - ordinal: {field: c, into: place}\n"
         "  - hash: {fields: [c, number], into: hashed, n_features: 4}\n"
         "  - date_parts: {field: d, into: parts, parts: [year, week]}\n"
         "  - arithmetic: {field: number, op: divide, value: 3, into: third}\n"
         "  - concat: {fields: [was_missing, bucket, q, hot, place, hashed, parts, third], into: all}\n"
         "  - cast: {field: all, dtype: float64, into: wide}\n"
         "  - reshape: {field: wide, shape: [1, -1]}\n"
         "  - select: {field: all, indices: [0, 1]}\n"
         "  - normalize: {field: text, into: plain, form: nfkc, strip_accents: true, lower: true, collapse: "
         "true, trim: true}\n"
         "  - regex_replace: {field: plain, pattern: '(a)b*', replacement: '$1'}\n"
         "  - split: {field: plain, into: words}\n"
         "  - join: {field: words, into: joined, separator: '-'}\n"
         "  - tokenize: {field: text, file: tokenizer.json, max_length: 8, padding: max_length, outputs: "
         "{input_ids: ids, offsets: at}}\n"
         "  - tokenize: {field: text, file: bpe.json, outputs: {input_ids: bytes}}\n"
         "  - tokenize: {field: text, model: main, outputs: {input_ids: own}}\n"
         "  - chat_template: {prompt: plain, file: chat.jinja, into: chat, bos_token: <s>}\n"
         "  - generate: {prompt: text, system: be short, into: answer, ids: answer_ids, finish_reason: why, "
         "max_tokens: 4, stop: [zzz]}\n"
         "outputs: {wide: {}, all: {}, joined: {}, ids: {}, at: {}, bytes: {}, own: {}, chat: {}, answer: "
         "{}, answer_ids: {}, why: {}}\n";

static const char RECORD[] =
    "{\"text\": \" \\u00c1bc  the\\u3000e \", \"v\": [0.5, 1, 1.5], \"d\": \"2026-11-30\", \"c\": \"x\"}";

static int make_folder(void **state) {
    (void)state;
    char path[256];
    if (!mkdtemp(folder)) return 1;
    char model[64];
    if (!tiny_write(model, true, 1)) return 1;
    snprintf(path, sizeof path, "%s/tiny.gguf", folder);
    if (rename(model, path) != 0) return 1;
    write_file("tokenizer.json", WORDPIECE);
    write_file("chat.jinja",
               "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}");
    write_file("bundle.yaml", ALL);
    write_byte_level();
    return 0;
}

static int remove_folder(void **state) {
    (void)state;
    char command[300];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

/* The answer to RECORD as JSON, or the error. */
static str run_record(pipeline_session *s, const pipeline *p, const pipeline_run_options *o, status *st) {
    json_t *json = json_loads(RECORD, 0, NULL);
    const json_t *records[1] = {json};
    pipeline_answer a = {0};
    error err = {0};
    str out = {0};
    *st = json ? pipeline_run_json(s, records, 1, NULL, o, &a, &err) : CHURON_NO_MEMORY;
    if (*st == CHURON_OK) *st = a.st;
    if (*st == CHURON_OK) {
        json_out j = json_out_begin(&out);
        pipeline_answer_write(&j, NULL, p, &a);
    } else {
        str_cat(&out, a.message ? a.message : err.message);
    }
    json_decref(json);
    return out;
}

static pipeline *open_all(void) {
    pipeline *p = NULL;
    error err = {0};
    if (pipeline_open(&p, folder, &(pipeline_options){.threads = 1}, &err) != CHURON_OK)
        fail_msg("%s", err.message);
    return p;
}

static void test_all_steps(void **state) {
    (void)state;
    pipeline *p = open_all();
    pipeline_session *s;
    assert_int_equal(pipeline_session_create(&s, p, NULL), CHURON_OK);
    status st;
    str out = run_record(s, p, NULL, &st);
    if (st != CHURON_OK) fail_msg("%s", str_cstr(&out));
    const char *const expected[] = {
        "\"joined\":\"ac-the-e\"",
        "\"ids\":[1,3,5,0,6,2,0,0]",
        "\"at\":[[0,0],[1,2],[2,4],[6,9],[10,11],[0,0],[0,0],[0,0]]",
        ",257,",
        "\"chat\":\"<s>user: ac the e\\n\"",
    };
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        if (!strstr(str_cstr(&out), expected[i]))
            fail_msg("expected %s, got %s", expected[i], str_cstr(&out));
    }
    str_free(&out);
    pipeline_session_free(s);
    pipeline_close(p);
}

/* ---- what is refused -------------------------------------------------------------------------------- */

static const struct {
    const char *step, *expected;
} REFUSED[] = {
    {"standardize: {field: text}",
     "expected bool or int or float or tensor or list, got 'text', which is text"},
    {"standardize: {field: number}", "(impute it, or give it a value for missing)"},
    {"standardize: {field: v, mean: [1, 2]}",
     "line 12, column 35: standardize.mean: expected one number or 3"},
    {"quantile: {field: v, quantiles: [2, 1]}", "expected numbers that do not fall, got 1 behind 2"},
    {"one_hot: {field: text}", "expected the key 'categories' (or an input with one_of"},
    {"one_hot: {field: c, infrequent: [z]}", "expected some of the categories, got 'z'"},
    {"cast: {field: v, dtype: float16, rounding: truncate}", "expected exact or nearest for float16"},
    {"tokenize: {field: text, file: chat.jinja}", "chat.jinja: line 1: expected JSON"},
    {"tokenize: {field: text, file: bpe.json, outputs: {offsets: o}}",
     "expected a WordPiece tokenizer for offsets"},
    {"tokenize: {field: text, pair: c, model: main}",
     "tokenize.pair: expected a tokenizer that says what stands around two texts"},
    {"regex_replace: {field: text, pattern: 'a', replacement: '${b}'}",
     "expected a group of the pattern behind $, got '${b}'"},
    {"chat_template: {prompt: text, into: o}", "expected either the key 'file' or the key 'model'"},
    {"chat_template: {prompt: text, into: o, model: main, eos_token: x}",
     "chat_template.eos_token: expected it with file only"},
    {"chat_template: {prompt: text, into: o, file: tokenizer.json, time: now}",
     "expected a timestamp with its zone, got 'now'"},
    {"generate: {into: o}", "expected either the key 'prompt' or the key 'messages'"},
    {"generate: {prompt: number, into: o}", "generate.prompt: expected text that is always there"},
    {"generate: {messages: text, into: o}", "generate.messages: expected list, got 'text'"},
    {"generate: {prompt: text, into: o, top_p: 2}", "generate.top_p: expected 0 to 1, got '2'"},
    {"generate: {prompt: text, into: o, stop: ['']}", "generate: stop[0]: expected 1..4096 bytes, got 0"},
    {"generate: {prompt: text, into: o, raw: true, system: x}",
     "generate.system: expected a model with a chat template and raw: false"},
    {"generate: {prompt: text, into: text}", "expected a new name, got 'text', which is there already"},
};

static void test_refused(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof REFUSED / sizeof *REFUSED; i++) {
        char text[1200];
        pipeline *p = NULL;
        error err = {0};
        snprintf(text, sizeof text, HEAD "  - %s\noutputs: {text: {}}\n", REFUSED[i].step);
        const status st =
            pipeline_open_text(&p, folder, text, strlen(text), &(pipeline_options){.threads = 1}, &err);
        if (!strstr(err.message, REFUSED[i].expected))
            fail_msg("%s: expected '%s', got '%s'", REFUSED[i].step, REFUSED[i].expected, err.message);
        assert_null(p);
        assert_int_not_equal(st, CHURON_OK);
        assert_non_null(strstr(err.message, "bundle.yaml: line "));
    }
}

/* ---- generate --------------------------------------------------------------------------------------- */

static void *run_in_thread(void *p) {
    pipeline_session *s;
    str *out = mem_calloc(1, sizeof *out);
    status st;
    if (!out || pipeline_session_create(&s, p, NULL) != CHURON_OK) return NULL;
    *out = run_record(s, p, NULL, &st);
    pipeline_session_free(s);
    return out;
}

static void test_threads_get_the_same_answer(void **state) {
    (void)state;
    enum { THREADS = 4 };
    pipeline *p = open_all();
    pthread_t threads[THREADS];
    str *first = run_in_thread(p);
    assert_non_null(strstr(str_cstr(first), "\"answer\""));
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, run_in_thread, p), 0);
    for (size_t i = 0; i < THREADS; i++) {
        void *got;
        pthread_join(threads[i], &got);
        assert_non_null(got);
        assert_string_equal(str_cstr(got), str_cstr(first));
        str_free(got);
        mem_free(got);
    }
    str_free(first);
    mem_free(first);
    pipeline_close(p);
}

static const char LONG[] = HEAD "  - generate: {prompt: text, into: answer, max_tokens: 0, seed: 3}\n"
                                "outputs: {answer: {}}\n";

static void *set_flag(void *flag) {
    const double until = clock_seconds() + 0.005;
    while (clock_seconds() < until) {}
    atomic_store((atomic_bool *)flag, true);
    return NULL;
}

static void test_deadline_and_cancel(void **state) {
    (void)state;
    pipeline *p = NULL;
    pipeline_session *s;
    error err = {0};
    status st;
    if (pipeline_open_text(&p, folder, LONG, strlen(LONG), &(pipeline_options){.threads = 1}, &err) !=
        CHURON_OK)
        fail_msg("%s", err.message);
    assert_int_equal(pipeline_session_create(&s, p, &err), CHURON_OK);
    str out = run_record(s, p, &(pipeline_run_options){.deadline = clock_seconds() + 0.005}, &st);
    assert_int_equal(st, CHURON_LIMIT);
    assert_non_null(strstr(str_cstr(&out), "deadline"));
    str_free(&out);
    atomic_bool cancel = false;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, set_flag, &cancel), 0);
    out = run_record(s, p, &(pipeline_run_options){.cancel = &cancel}, &st);
    pthread_join(thread, NULL);
    assert_int_equal(st, CHURON_CANCELLED);
    str_free(&out);
    str again[2]; /* what came before leaves nothing behind; a seed gives the same answer again */
    for (int i = 0; i < 2; i++) {
        again[i] = run_record(s, p, NULL, &st);
        assert_int_equal(st, CHURON_OK);
    }
    assert_string_equal(str_cstr(&again[0]), str_cstr(&again[1]));
    for (int i = 0; i < 2; i++) str_free(&again[i]);
    pipeline_session_free(s);
    pipeline_close(p);
}

/* ---- memory ----------------------------------------------------------------------------------------- */

/* But those of jansson, whose lexer (2.14) does not survive its own failing. */
static void test_every_allocation_can_fail(void **state) {
    (void)state;
    bool done = false;
    int64_t n = 0;

    while (!done) {
        pipeline *p = NULL;
        pipeline_session *s = NULL;
        error err = {0};
        const int64_t before = mem_count();
        mem_fail_at(++n);
        status st = pipeline_open(&p, folder, &(pipeline_options){.threads = 1}, &err);
        if (st == CHURON_OK) st = pipeline_session_create(&s, p, &err);
        if (st == CHURON_OK) {
            str out = run_record(s, p, NULL, &st);
            done = st == CHURON_OK && mem_count() - before < n; /* it was never reached */
            str_free(&out);
        } else if (!strstr(err.message, "memory")) {
            fail_msg("allocation %lld: %s", (long long)n, err.message);
        }
        mem_fail_at(0);
        pipeline_session_free(s);
        pipeline_close(p);
        assert_true(n < 20000);
    }
    print_message("%lld allocations\n", (long long)n);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_all_steps), cmocka_unit_test(test_refused),
                                       cmocka_unit_test(test_threads_get_the_same_answer),
                                       cmocka_unit_test(test_deadline_and_cancel),
                                       cmocka_unit_test(test_every_allocation_can_fail)};
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

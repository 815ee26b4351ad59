/* test_serve_request.c: JSON bodies to checked requests; every refusal names its field. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "serve/api/openai_request.h"
#include "serve/json_in.h"

#include <string.h>

static const openai_context context = {.n_vocab = 1000,
                                       .defaults = {.temperature = 0.7F, .top_p = 1, .repeat_penalty = 1}};

static status parse(openai_request *r, const char *body, openai_kind kind, error *err) {
    return openai_request_parse(r, body, strlen(body), kind, &context, err);
}

static void test_a_chat_request_whole(void **state) {
    (void)state;
    openai_request r;
    error err;
    const char *body =
        "{\"model\":\"m\",\"messages\":[{\"role\":\"developer\",\"content\":\"한국\"},"
        "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"text\",\"text\":"
        "\"b\"}]},"
        "{\"role\":\"assistant\",\"content\":\"c\",\"refusal\":null,\"tool_calls\":[]}],"
        "\"stream\":true,\"stream_options\":{\"include_usage\":true},\"n\":3,\"max_completion_tokens\":7,"
        "\"temperature\":0,\"top_p\":0.5,\"top_k\":-1,\"min_p\":0.1,\"typical_p\":0.9,"
        "\"frequency_penalty\":1,\"presence_penalty\":-1,\"repetition_penalty\":1.5,\"seed\":-3,"
        "\"stop\":[\"x\",\"y\\u0000z\"],\"stop_token_ids\":[1,999],\"ignore_eos\":true,\"logprobs\":true,"
        "\"top_logprobs\":5,\"logit_bias\":{\"7\":-100,\"8\":1.5},\"timeout\":2.5,\"priority\":-7,"
        "\"cache_salt\":\"s\",\"user\":\"u\",\"metadata\":{\"a\":\"b\"},\"store\":false,\"tools\":null,"
        "\"tool_choice\":\"none\",\"response_format\":{\"type\":\"text\"},\"modalities\":[\"text\"]}";
    assert_int_equal(parse(&r, body, OPENAI_CHAT, &err), CHURON_OK);
    assert_string_equal(r.model, "m");
    assert_int_equal(r.n_messages, 3);
    assert_string_equal(r.messages[0].role, "system");
    assert_memory_equal(r.messages[1].content, "a\nb", 3);
    assert_true(r.stream && r.include_usage && r.logprobs && r.ignore_eos && r.has_seed);
    assert_true(r.n == 3 && r.max_tokens == 7 && r.top_logprobs == 5 && r.n_stop == 2 && r.n_stop_ids == 2);
    assert_int_equal(r.stop_len[1], 3);
    assert_true(r.seed == (uint64_t)-3 && r.timeout == 2.5 && r.priority == -7 && r.best_of == 3);
    assert_string_equal(r.cache_salt, "s");
    assert_true(r.speculate);
    assert_true(r.sampling.temperature == 0 && r.sampling.top_p == 0.5F && r.sampling.top_k == 0);
    assert_true(r.sampling.repeat_penalty == 1.5F && r.sampling.n_logprobs == 5 && r.sampling.want_logprobs);
    assert_true(r.sampling.n_bias == 2 && r.sampling.bias[0].id == 7 && r.sampling.bias[0].bias == -100);
    openai_request_free(&r);
}

static void test_defaults_and_prompt_forms(void **state) {
    (void)state;
    openai_request r;
    assert_int_equal(parse(&r, "{\"prompt\":\"hi\"}", OPENAI_COMPLETION, NULL), CHURON_OK);
    assert_true(r.n_prompts == 1 && r.prompts[0].text_len == 2 && !r.prompts[0].ids && r.n == 1);
    assert_true(r.max_tokens == 16 && !r.logprobs && !r.has_seed && r.sampling.temperature == 0.7F);
    openai_request_free(&r);
    assert_int_equal(parse(&r, "{\"prompt\":[1,2,3],\"logprobs\":0}", OPENAI_COMPLETION, NULL), CHURON_OK);
    assert_true(r.n_prompts == 1 && r.prompts[0].n_ids == 3 && r.prompts[0].ids[2] == 3 && r.logprobs);
    openai_request_free(&r);
    assert_int_equal(parse(&r, "{\"prompt\":[\"a\",\"b\"],\"echo\":true}", OPENAI_COMPLETION, NULL),
                     CHURON_OK);
    assert_true(r.n_prompts == 2 && r.echo);
    openai_request_free(&r);
    assert_int_equal(parse(&r, "{\"prompt\":[[5],[6,7]],\"n\":2,\"best_of\":2}", OPENAI_COMPLETION, NULL),
                     CHURON_OK);
    assert_true(r.n_prompts == 2 && r.prompts[1].n_ids == 2 && !r.sampling.want_logprobs);
    openai_request_free(&r);
    assert_int_equal(parse(&r, "{\"prompt\":\"a\",\"n\":2,\"best_of\":5}", OPENAI_COMPLETION, NULL),
                     CHURON_OK);
    assert_true(r.n == 2 && r.best_of == 5 && r.sampling.want_logprobs && !r.logprobs);
    openai_request_free(&r);
}

static void test_beam_search_fields(void **state) {
    (void)state;
    openai_request r;
    assert_int_equal(parse(&r,
                           "{\"prompt\":\"a\",\"use_beam_search\":true,\"n\":2,\"best_of\":5,"
                           "\"temperature\":0,\"top_p\":1,\"top_k\":-1}",
                           OPENAI_COMPLETION, NULL),
                     CHURON_OK);
    assert_true(r.beam.width == 5 && r.n == 2 && r.best_of == 2 && r.beam.length_penalty == 1);
    assert_int_equal(r.beam.early_stopping, ENGINE_BEAM_HEURISTIC);
    openai_request_free(&r);
    assert_int_equal(parse(&r,
                           "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"use_beam_search\":true,"
                           "\"beam_width\":4,\"length_penalty\":-0.5,\"early_stopping\":\"never\"}",
                           OPENAI_CHAT, NULL),
                     CHURON_OK);
    assert_true(r.beam.width == 4 && r.n == 1 && r.beam.length_penalty == -0.5);
    assert_int_equal(r.beam.early_stopping, ENGINE_BEAM_NEVER);
    openai_request_free(&r);
    assert_int_equal(parse(&r,
                           "{\"prompt\":\"a\",\"use_beam_search\":false,\"length_penalty\":1,"
                           "\"early_stopping\":false}",
                           OPENAI_COMPLETION, NULL),
                     CHURON_OK);
    assert_int_equal(r.beam.width, 0);
    openai_request_free(&r);
}

typedef struct refusal {
    openai_kind kind;
    const char *body, *param;
} refusal;

#define MESSAGES "\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]"
#define C(extra, param)                                                                                      \
    { OPENAI_CHAT, "{" MESSAGES "," extra "}", param }
#define P(extra, param)                                                                                      \
    { OPENAI_COMPLETION, "{\"prompt\":\"a\"," extra "}", param }
#define RAW(body, param)                                                                                     \
    { OPENAI_CHAT, body, param }
#define RAWP(body, param)                                                                                    \
    { OPENAI_COMPLETION, body, param }

static const refusal refusals[] = {
    RAW("", "body"),
    RAW("nothing", "body"),
    RAW("[]", "body"),
    RAW("\"a\"", "body"),
    RAW("{" MESSAGES "} x", "body"),
    RAW("{" MESSAGES "," MESSAGES "}", "body"), /* duplicate key */
    RAW("{\"messages\":[{\"role\":\"user\",\"content\":\"\xff\"}]}", "body"),
    RAW("{\"messages\":[{\"role\":\"user\",\"content\":\"\\ud800\"}]}", "body"),
    RAW("{}", "messages"),
    RAW("{\"messages\":[]}", "messages"),
    RAW("{\"messages\":{}}", "messages"),
    RAW("{\"messages\":[3]}", "messages[0]"),
    RAW("{\"messages\":[{\"content\":\"a\"}]}", "messages[0].role"),
    RAW("{\"messages\":[{\"role\":\"us\\u0000er\",\"content\":\"a\"}]}", "messages[0].role"),
    RAW("{\"messages\":[{\"role\":\"tool\",\"content\":\"a\"}]}", "messages[0].role"),
    RAW("{\"messages\":[{\"role\":\"user\"}]}", "messages[0].content"),
    RAW("{\"messages\":[{\"role\":\"user\",\"content\":[]}]}", "messages[0].content"),
    RAW("{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"}]}]}",
        "messages[0].content[0].type"),
    RAW("{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":1}]}]}",
        "messages[0].content[0].text"),
    RAW("{\"messages\":[{\"role\":\"user\",\"content\":\"a\",\"name\":\"bob\"}]}", "messages[0].name"),
    RAW("{\"messages\":[{\"role\":\"assistant\",\"content\":\"a\",\"tool_calls\":[{}]}]}",
        "messages[0].tool_calls"),
    C("\"temperature\":NaN", "body"),
    C("\"temperature\":1e999", "body"),
    C("\"temperature\":1e300", "temperature"),
    C("\"temperature\":\"0.5\"", "temperature"),
    C("\"temperature\":true", "temperature"),
    C("\"seed\":1.5", "seed"),
    C("\"seed\":99999999999999999999", "body"),
    C("\"n\":0", "n"),
    C("\"n\":129", "n"),
    C("\"max_tokens\":0", "max_tokens"),
    C("\"max_tokens\":-1", "max_tokens"),
    C("\"max_tokens\":5,\"max_completion_tokens\":6", "max_completion_tokens"),
    C("\"stream\":1", "stream"),
    C("\"stream_options\":{\"include_usage\":true}", "stream_options"),
    C("\"stream\":true,\"stream_options\":{\"x\":1}", "stream_options.x"),
    C("\"stop\":3", "stop"),
    C("\"stop\":[\"\"]", "stop[0]"),
    C("\"stop\":[\"a\",null]", "stop[1]"),
    C("\"stop_token_ids\":[1000]", "stop_token_ids[0]"),
    C("\"logit_bias\":{\"x\":1}", "logit_bias"),
    C("\"logit_bias\":{\"1000\":1}", "logit_bias"),
    C("\"logit_bias\":{\"5\":101}", "logit_bias.5"),
    C("\"logit_bias\":[1]", "logit_bias"),
    C("\"top_logprobs\":3", "top_logprobs"),
    C("\"logprobs\":true,\"top_logprobs\":21", "top_logprobs"),
    C("\"logprobs\":2", "logprobs"),
    C("\"top_k\":-2", "top_k"),
    C("\"priority\":1.5", "priority"),
    C("\"priority\":2147483648", "priority"),
    C("\"cache_salt\":\"\"", "cache_salt"),
    C("\"speculate\":0", "speculate"),
    C("\"use_beam_search\":1", "use_beam_search"),
    C("\"use_beam_search\":true", "beam_width"),
    C("\"use_beam_search\":true,\"n\":3,\"beam_width\":2", "beam_width"),
    C("\"use_beam_search\":true,\"beam_width\":129", "beam_width"),
    C("\"beam_width\":4", "beam_width"),
    C("\"length_penalty\":2", "length_penalty"),
    C("\"early_stopping\":true", "early_stopping"),
    C("\"use_beam_search\":true,\"n\":2,\"early_stopping\":\"always\"", "early_stopping"),
    C("\"use_beam_search\":true,\"n\":2,\"length_penalty\":101", "length_penalty"),
    C("\"use_beam_search\":true,\"n\":2,\"stream\":true", "stream"),
    C("\"use_beam_search\":true,\"n\":2,\"logprobs\":true", "logprobs"),
    C("\"use_beam_search\":true,\"n\":2,\"stop\":\"x\"", "stop"),
    C("\"use_beam_search\":true,\"n\":2,\"logit_bias\":{\"1\":2}", "logit_bias"),
    C("\"use_beam_search\":true,\"n\":2,\"temperature\":0.5", "temperature"),
    C("\"use_beam_search\":true,\"n\":2,\"top_k\":40", "top_k"),
    C("\"use_beam_search\":true,\"n\":2,\"frequency_penalty\":1", "frequency_penalty"),
    C("\"timeout\":0", "timeout"),
    C("\"timeout\":-1", "timeout"),
    C("\"cache_salt\":1", "cache_salt"),
    C("\"model\":3", "model"),
    C("\"tools\":[{\"type\":\"function\"}]", "tools"),
    C("\"tool_choice\":\"auto\"", "tool_choice"),
    C("\"functions\":[{}]", "functions"),
    C("\"parallel_tool_calls\":true", "parallel_tool_calls"),
    C("\"response_format\":{\"type\":\"json_object\"}", "response_format"),
    C("\"response_format\":\"text\"", "response_format"),
    C("\"modalities\":[\"text\",\"audio\"]", "modalities"),
    C("\"audio\":{\"voice\":\"x\"}", "audio"),
    C("\"store\":true", "store"),
    C("\"prompt\":\"a\"", "prompt"),
    C("\"temperatur\":1", "temperatur"),
    RAWP("{}", "prompt"),
    RAWP("{\"prompt\":[]}", "prompt"),
    RAWP("{\"prompt\":5}", "prompt"),
    RAWP("{\"prompt\":[1,\"a\"]}", "prompt[1]"),
    RAWP("{\"prompt\":[\"a\",1]}", "prompt[1]"),
    RAWP("{\"prompt\":[[]]}", "prompt[0]"),
    RAWP("{\"prompt\":[[1],[-1]]}", "prompt[1][0]"),
    RAWP("{\"prompt\":[1000]}", "prompt[0]"),
    P("\"messages\":[]", "messages"),
    P("\"suffix\":\"b\"", "suffix"),
    P("\"best_of\":1,\"n\":2", "best_of"),
    P("\"best_of\":2,\"stream\":true", "best_of"),
    P("\"best_of\":129", "best_of"),
    P("\"echo\":true,\"logprobs\":1", "echo"),
    P("\"logprobs\":true", "logprobs"),
    P("\"logprobs\":21", "logprobs"),
    P("\"max_completion_tokens\":3", "max_completion_tokens"),
    RAWP("{\"prompt\":[\"a\",\"b\"],\"n\":65}", "n"),
};

static void test_refusals_name_the_field(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        openai_request r;
        error err = {0};
        status st = parse(&r, refusals[i].body, refusals[i].kind, &err);
        char param[96];
        openai_error_param(err.message, param, sizeof param);
        if (st == CHURON_OK || strcmp(param, refusals[i].param) != 0) {
            fail_msg("%s: expected a refusal of %s, got %d (%s)", refusals[i].body, refusals[i].param,
                     (int)st, err.message);
        }
        assert_null(r.doc.root);
    }
}

static void test_depth_and_number_of_values(void **state) {
    (void)state;
    str body = {0};
    openai_request r;
    error err;
    for (int i = 0; i < 100000; i++) str_put(&body, '[');
    assert_int_equal(openai_request_parse(&r, body.data, body.len, OPENAI_CHAT, &context, &err),
                     CHURON_INVALID);
    assert_non_null(strstr(err.message, "nested at most 32"));
    str_clear(&body);
    str_cat(&body, "{\"prompt\":[0");
    for (int i = 0; i < 300000; i++) str_cat(&body, ",0");
    str_cat(&body, "]}");
    assert_int_equal(openai_request_parse(&r, body.data, body.len, OPENAI_COMPLETION, &context, &err),
                     CHURON_INVALID);
    assert_non_null(strstr(err.message, "at most 262144 JSON values"));
    str_free(&body);
    /* Brackets inside strings are text. */
    assert_int_equal(
        parse(&r, "{\"prompt\":\"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[\\\"[\"}", OPENAI_COMPLETION, &err),
        CHURON_OK);
    openai_request_free(&r);
}

static void test_error_param(void **state) {
    (void)state;
    char p[8];
    openai_error_param("a.b[0]: expected", p, sizeof p);
    assert_string_equal(p, "a.b[0]");
    openai_error_param("messages[0].content: expected", p, sizeof p);
    assert_string_equal(p, "message"); /* cut to its size */
    openai_error_param("no field here", p, sizeof p);
    assert_string_equal(p, "");
    openai_error_param("", p, sizeof p);
    assert_string_equal(p, "");
}

static void test_failed_allocations(void **state) {
    (void)state;
    const char *body = "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"}]}],"
                       "\"stop\":[\"a\"],\"stop_token_ids\":[1],\"logit_bias\":{\"1\":1}}";
    for (int64_t n = 1; n < 500; n++) {
        openai_request r;
        error err = {0};
        mem_fail_at(n);
        status st = parse(&r, body, OPENAI_CHAT, &err);
        mem_fail_at(0);
        openai_request_free(&r);
        if (st == CHURON_OK) return;
        if (st != CHURON_NO_MEMORY) fail_msg("allocation %d: %s", (int)n, err.message);
    }
    fail_msg("no run succeeded");
}

static int setup(void **state) {
    (void)state;
    json_in_setup();
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_chat_request_whole),
        cmocka_unit_test(test_defaults_and_prompt_forms),
        cmocka_unit_test(test_beam_search_fields),
        cmocka_unit_test(test_refusals_name_the_field),
        cmocka_unit_test(test_depth_and_number_of_values),
        cmocka_unit_test(test_error_param),
        cmocka_unit_test(test_failed_allocations),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}

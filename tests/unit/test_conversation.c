/* test_conversation.c: the messages of a chat, saved and loaded; files that are not what they should be. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "cli/conversation.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char path[] = "build/test_conversation.json";

static void write_file(const char *text) {
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, strlen(text), f), strlen(text));
    assert_int_equal(fclose(f), 0);
}

static void test_saved_is_loaded(void **state) {
    (void)state;
    conversation c = {0}, back = {0};
    error err;
    str_cat(&c.system, "be \"brief\"\n");
    assert_int_equal(conversation_add(&c, "user", "한\0x", 5, &err), CHURON_OK);
    c.messages[0].content.len = 3; /* as a chat has it: no zero inside */
    assert_int_equal(conversation_add(&c, "assistant", "ok", 2, &err), CHURON_OK);
    assert_int_equal(conversation_save(&c, "m", path, &err), CHURON_OK);
    assert_int_equal(conversation_load(&back, path, &err), CHURON_OK);
    assert_string_equal(back.system.data, "be \"brief\"\n");
    assert_int_equal(back.n, 2);
    assert_string_equal(back.messages[0].content.data, "한");
    assert_string_equal(back.messages[1].role, "assistant");
    chat_message *view;
    size_t n;
    assert_int_equal(conversation_view(&back, &view, &n, &err), CHURON_OK);
    assert_int_equal(n, 3);
    assert_int_equal(view[0].role_len, 6);
    mem_free(view);
    conversation_drop(&back, 5);
    assert_string_equal(conversation_last_role(&back), "");
    conversation_free(&c);
    conversation_free(&back);
    unlink(path);
}

static void test_wrong_files_change_nothing(void **state) {
    (void)state;
    static const char *const wrong[] = {
        "",
        "{",
        "[]",
        "{\"messages\": 3}",
        "{\"messages\": [3]}",
        "{\"messages\": [{\"role\": \"user\"}]}",
        "{\"messages\": [{\"role\": \"robot\", \"content\": \"x\"}]}",
        "{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}, {\"role\": \"system\", \"content\": "
        "\"x\"}]}",
        "{\"messages\": [], \"messages\": []}",
    };
    conversation c = {0};
    error err;
    assert_int_equal(conversation_add(&c, "user", "kept", 4, &err), CHURON_OK);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        write_file(wrong[i]);
        assert_int_equal(conversation_load(&c, path, &err), CHURON_INVALID);
        assert_int_equal(c.n, 1);
    }
    assert_int_equal(conversation_load(&c, "build/there-is-no-such-file", &err), CHURON_NOT_FOUND);
    assert_int_equal(conversation_save(&c, "m", "build/no/such/folder/x", &err), CHURON_IO);
    assert_int_equal(c.n, 1);
    conversation_free(&c);
    unlink(path);
}

static void test_no_memory_leaves_the_conversation(void **state) {
    (void)state;
    conversation c = {0};
    error err;
    json_set_alloc_funcs(mem_alloc, mem_free);
    assert_int_equal(conversation_add(&c, "user", "kept", 4, &err), CHURON_OK);
    assert_int_equal(conversation_save(&c, "m", path, &err), CHURON_OK);
    bool done = false;
    for (int n = 1; n < 500 && !done; n++) {
        mem_fail_at(n);
        done = conversation_load(&c, path, &err) == CHURON_OK;
        mem_fail_at(0);
        assert_int_equal(c.n, 1);
        assert_string_equal(c.messages[0].content.data, "kept");
    }
    assert_true(done);
    conversation_free(&c);
    unlink(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_saved_is_loaded),
        cmocka_unit_test(test_wrong_files_change_nothing),
        cmocka_unit_test(test_no_memory_leaves_the_conversation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

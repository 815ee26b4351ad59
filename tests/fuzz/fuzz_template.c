/* fuzz_template.c: any bytes as a template, rendered with a small chat and tight limits. */
#include "text/template.h"

#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static tvalue *text(tarena *a, const char *z) {
    return tvalue_string(a, z, strlen(z));
}

static tvalue *chat(tarena *a) {
    tvalue *c = tvalue_dict(a), *messages = tvalue_list(a), *deep = tvalue_list(a);
    const char *const roles[] = {"system", "user", "assistant", "user"};
    for (size_t i = 0; i < 4; i++) {
        tvalue *m = tvalue_dict_set(a, tvalue_dict(a), "role", text(a, roles[i]));
        m = tvalue_dict_set(a, m, "content", text(a, i % 2 ? "Hi \xec\x95\x88 <b>" : " a b\n"));
        messages = tvalue_list_add(a, messages, m);
    }
    for (int i = 0; i < 8; i++) deep = tvalue_list_add(a, tvalue_list(a), deep);
    c = tvalue_dict_set(a, c, "messages", messages);
    c = tvalue_dict_set(a, c, "x", tvalue_dict_set(a, tvalue_dict(a), "n", tvalue_int(a, -7)));
    c = tvalue_dict_set(a, c, "f", tvalue_float(a, 0.1));
    c = tvalue_dict_set(a, c, "deep", deep);
    c = tvalue_dict_set(a, c, "tools", tvalue_none(a));
    return tvalue_dict_set(a, c, "add_generation_prompt", tvalue_bool(a, true));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    template *t = NULL;
    tarena *a = NULL;
    str out = {0};
    error err = {0};
    template_limits limits = {.max_steps = 20000, .max_depth = 200, .max_output = 1 << 16};
    if (template_parse(&t, (const char *)data, size, &err) == CHURON_OK &&
        tarena_create(&a, &err) == CHURON_OK) {
        str_cat(&out, "before");
        if (template_render(t, chat(a), 1721998800, &limits, &out, &err) != CHURON_OK) {
            assert(strcmp(out.data, "before") == 0);
            assert(err.message[0]);
        } else {
            assert(out.len <= limits.max_output + 6 && utf8_validate(out.data, out.len) == out.len);
        }
    } else {
        assert(!t && err.message[0]);
    }
    str_free(&out);
    tarena_free(a);
    template_free(t);
    return 0;
}

/* models.c: which model is served, in OpenAI's form. */
#include "serve/server_internal.h"

#include "base/json_out.h"

static void write_model(const server *s, str *out) {
    json_out j = json_out_begin(out);
    json_out_object(&j, NULL);
    json_out_cstr(&j, "id", s->model_id);
    json_out_cstr(&j, "object", "model");
    json_out_int(&j, "created", s->created);
    json_out_cstr(&j, "owned_by", "churon");
    json_out_cstr(&j, "name", lm_bundle_name(s->bundle));
    json_out_uint(&j, "max_model_len", s->capacity);
    json_out_cstr(&j, "digest", *s->digest ? s->digest : NULL);
    json_out_bool(&j, "chat", lm_bundle_has_template(s->bundle));
    json_out_end_object(&j);
}

void openai_models(server *s, http_exchange *x) {
    str out = {0};
    str_cat(&out, "{\"object\":\"list\",\"data\":[");
    write_model(s, &out);
    str_cat(&out, "]}");
    server_reply_json(s, x, &out);
    str_free(&out);
}

void openai_model(server *s, http_exchange *x, const char *id) {
    error err;
    if (server_check_model(s, id, &err) != CHURON_OK) {
        server_reply_error(s, x, &err);
        return;
    }
    str out = {0};
    write_model(s, &out);
    server_reply_json(s, x, &out);
    str_free(&out);
}

/* manifest_schema.c: the JSON Schema of bundle.yaml, from the tables that its reader uses. */
#include "pipeline/manifest.h"
#include "pipeline/step.h"

#include <string.h>

static void begin_def(json_out *j, const char *name) {
    json_out_object(j, name);
}

/* Maps from a name to something. */
static void map_of(json_out *j, const char *name, const char *ref) {
    json_out_object(j, name);
    json_out_cstr(j, "type", "object");
    json_out_object(j, "additionalProperties");
    json_out_cstr(j, "$ref", ref);
    json_out_end_object(j);
    json_out_end_object(j);
}

static void list_of(json_out *j, const char *name, const char *ref) {
    json_out_object(j, name);
    json_out_cstr(j, "type", "array");
    json_out_object(j, "items");
    json_out_cstr(j, "$ref", ref);
    json_out_end_object(j);
    json_out_end_object(j);
}

static void write_step(json_out *j, const step_kind *k) {
    json_out_object(j, NULL);
    json_out_cstr(j, "type", "object");
    json_out_object(j, "properties");
    json_out_object(j, k->name);
    json_out_cstr(j, "description", k->doc);
    keys_schema(j, k->keys);
    json_out_end_object(j);
    json_out_end_object(j);
    json_out_array(j, "required");
    json_out_cstr(j, NULL, k->name);
    json_out_end_array(j);
    json_out_bool(j, "additionalProperties", false);
    json_out_end_object(j);
}

static void write_defs(json_out *j) {
    json_out_object(j, "$defs");
    static const struct {
        const char *name;
        const key_spec *keys;
    } maps[] = {{"field", INPUT_KEYS},
                {"model", MANIFEST_MODEL_KEYS},
                {"output", MANIFEST_OUTPUT_KEYS},
                {"state", MANIFEST_STATE_KEYS},
                {"tolerance", MANIFEST_TOLERANCE_KEYS},
                {"source", MANIFEST_SOURCE_KEYS}};
    for (size_t i = 0; i < sizeof maps / sizeof *maps; i++) {
        begin_def(j, maps[i].name);
        keys_schema(j, maps[i].keys);
        json_out_end_object(j);
    }
    begin_def(j, "steps");
    json_out_cstr(j, "type", "array");
    json_out_object(j, "items");
    json_out_array(j, "oneOf");
    for (size_t i = 0; STEP_KINDS[i]; i++) write_step(j, STEP_KINDS[i]);
    json_out_end_array(j);
    json_out_end_object(j);
    json_out_end_object(j);
    map_of(j, "inputs", "#/$defs/field");
    map_of(j, "models", "#/$defs/model");
    map_of(j, "outputs", "#/$defs/output");
    map_of(j, "states", "#/$defs/state");
    list_of(j, "sources", "#/$defs/source");
    begin_def(j, "tolerances");
    json_out_array(j, "anyOf");
    json_out_object(j, NULL);
    json_out_cstr(j, "$ref", "#/$defs/tolerance");
    json_out_end_object(j);
    json_out_object(j, NULL);
    json_out_cstr(j, "type", "object");
    json_out_object(j, "additionalProperties");
    json_out_cstr(j, "$ref", "#/$defs/tolerance");
    json_out_end_object(j);
    json_out_end_object(j);
    json_out_end_array(j);
    json_out_end_object(j);
    json_out_end_object(j);
}

void manifest_schema_write(json_out *j) {
    json_out_object(j, NULL);
    json_out_cstr(j, "$schema", "https://json-schema.org/draft/2020-12/schema");
    json_out_cstr(j, "title", "Churon bundle manifest");
    keys_schema(j, MANIFEST_KEYS);
    write_defs(j);
    json_out_end_object(j);
}

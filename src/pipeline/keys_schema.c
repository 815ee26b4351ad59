/* keys_schema.c: tables of keys as JSON Schema. */
#include "pipeline/keys.h"

#include <stdio.h>
#include <string.h>

static void write_choices(json_out *j, const char *choices) {
    json_out_array(j, "enum");
    for (const char *p = choices; *p;) {
        const size_t n = strcspn(p, "|");
        json_out_string(j, NULL, p, n);
        p += n + (p[n] == '|');
    }
    json_out_end_array(j);
}

static void write_range(json_out *j, const key_spec *s) {
    if (s->least == 0 && s->most == 0) return;
    json_out_double(j, "minimum", s->least);
    json_out_double(j, "maximum", s->most);
}

static void write_file_form(json_out *j) {
    json_out_object(j, NULL);
    json_out_cstr(j, "type", "object");
    json_out_object(j, "properties");
    json_out_object(j, "file");
    json_out_cstr(j, "type", "string");
    json_out_end_object(j);
    json_out_end_object(j);
    json_out_array(j, "required");
    json_out_cstr(j, NULL, "file");
    json_out_end_array(j);
    json_out_bool(j, "additionalProperties", false);
    json_out_end_object(j);
}

static void write_list(json_out *j, const char *items, bool or_file) {
    if (or_file) {
        json_out_array(j, "oneOf");
        json_out_object(j, NULL);
    }
    json_out_cstr(j, "type", "array");
    json_out_object(j, "items");
    json_out_cstr(j, "type", items);
    json_out_end_object(j);
    if (or_file) {
        json_out_end_object(j);
        write_file_form(j);
        json_out_end_array(j);
    }
}

static void write_numbers(json_out *j) {
    json_out_array(j, "oneOf");
    json_out_object(j, NULL);
    json_out_cstr(j, "type", "number");
    json_out_end_object(j);
    json_out_object(j, NULL);
    write_list(j, "number", false);
    json_out_end_object(j);
    write_file_form(j);
    json_out_end_array(j);
}

static void write_scalar_types(json_out *j, const char *key) {
    static const char *const types[] = {"string", "number", "boolean"};
    json_out_array(j, key);
    for (size_t i = 0; i < 3; i++) json_out_cstr(j, NULL, types[i]);
    json_out_end_array(j);
}

static void write_kind(json_out *j, const key_spec *s) {
    switch (s->kind) {
    case KEY_CHOICE: write_choices(j, s->choices); break;
    case KEY_BOOL: json_out_cstr(j, "type", "boolean"); break;
    case KEY_INT:
        json_out_cstr(j, "type", "integer");
        write_range(j, s);
        break;
    case KEY_NUMBER:
        json_out_cstr(j, "type", "number");
        write_range(j, s);
        break;
    case KEY_NUMBERS: write_numbers(j); break;
    case KEY_INTS: write_list(j, "integer", false); break;
    case KEY_TEXTS: write_list(j, "string", true); break;
    case KEY_FIELDS: write_list(j, "string", false); break;
    case KEY_SCALAR: write_scalar_types(j, "type"); break;
    case KEY_SCALARS:
        json_out_cstr(j, "type", "array");
        json_out_object(j, "items");
        write_scalar_types(j, "type");
        json_out_end_object(j);
        break;
    case KEY_NAMES:
        json_out_cstr(j, "type", "object");
        json_out_object(j, "additionalProperties");
        json_out_cstr(j, "type", "string");
        json_out_end_object(j);
        break;
    case KEY_STEPS: json_out_cstr(j, "$ref", "#/$defs/steps"); break;
    case KEY_ANY:
        if (s->schema) {
            char ref[80];
            snprintf(ref, sizeof ref, "#/$defs/%s", s->schema);
            json_out_cstr(j, "$ref", ref);
        }
        break;
    default: write_scalar_types(j, "type"); /* a name may look like a number */
    }
}

static void write_fallback(json_out *j, const key_spec *s) {
    if (!s->fallback) return;
    if (s->kind == KEY_BOOL || s->kind == KEY_INT || s->kind == KEY_NUMBER) {
        json_out_raw(j, "default", s->fallback, strlen(s->fallback));
    } else {
        json_out_cstr(j, "default", s->fallback);
    }
}

void keys_schema(json_out *j, const key_spec *specs) {
    json_out_cstr(j, "type", "object");
    json_out_object(j, "properties");
    for (const key_spec *s = specs; s->name; s++) {
        json_out_object(j, s->name);
        json_out_cstr(j, "description", s->doc);
        write_kind(j, s);
        write_fallback(j, s);
        json_out_end_object(j);
    }
    json_out_end_object(j);
    bool any = false;
    for (const key_spec *s = specs; s->name; s++) any = any || s->required;
    if (any) {
        json_out_array(j, "required");
        for (const key_spec *s = specs; s->name; s++) {
            if (s->required) json_out_cstr(j, NULL, s->name);
        }
        json_out_end_array(j);
    }
    json_out_bool(j, "additionalProperties", false);
}

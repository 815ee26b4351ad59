/* json_out.h: writing JSON into a str, in order, without building a tree.
 *
 * Commas are placed by the writer; nesting is the caller's to balance (checked by assert in debug builds). */
#ifndef BASE_JSON_OUT_H
#define BASE_JSON_OUT_H

#include "base/str.h"

typedef struct json_out {
    str *to;
    bool need_comma;
    int depth;
} json_out;

json_out json_out_begin(str *to);
void json_out_object(json_out *j, const char *key); /* opens {; key NULL inside arrays and at the top */
void json_out_end_object(json_out *j);
void json_out_array(json_out *j, const char *key);
void json_out_end_array(json_out *j);
void json_out_string(json_out *j, const char *key, const char *bytes, size_t n);
void json_out_cstr(json_out *j, const char *key, const char *z); /* NULL writes null */
void json_out_int(json_out *j, const char *key, int64_t v);
void json_out_uint(json_out *j, const char *key, uint64_t v);
/* Shortest of 6, 9 or 17 digits that reads back as the same number of its type; NaN and infinities: null. */
void json_out_double(json_out *j, const char *key, double v);
void json_out_float(json_out *j, const char *key, float v);
void json_out_bool(json_out *j, const char *key, bool v);
void json_out_null(json_out *j, const char *key);
void json_out_raw(json_out *j, const char *key, const char *json, size_t n); /* already JSON */

/* Appends "..." with JSON escapes. Bytes that are not UTF-8 become U+FFFD. */
void str_json(str *to, const char *bytes, size_t n);

#endif

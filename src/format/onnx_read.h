/* onnx_read.h: the messages of the schema, one function each. A function reads the span of one message into
 * *out; the caller has entered the message on the reader's path. What comes out is checked as onnx.h says. */
#ifndef FORMAT_ONNX_READ_H
#define FORMAT_ONNX_READ_H

#include "format/onnx.h"
#include "format/onnx_wire.h"

MUST_USE status onnx_read_tensor(onnx_reader *r, wire m, onnx_tensor *out);
MUST_USE status onnx_read_sparse(onnx_reader *r, wire m, onnx_sparse *out);
MUST_USE status onnx_read_type(onnx_reader *r, wire m, onnx_type *out);
MUST_USE status onnx_read_value_info(onnx_reader *r, wire m, onnx_value_info *out);
MUST_USE status onnx_read_attribute(onnx_reader *r, wire m, onnx_attr *out);
MUST_USE status onnx_read_node(onnx_reader *r, wire m, onnx_node *out);
MUST_USE status onnx_read_graph(onnx_reader *r, wire m, onnx_graph *out);
MUST_USE status onnx_read_opset(onnx_reader *r, wire m, onnx_opset *out);
MUST_USE status onnx_read_function(onnx_reader *r, wire m, onnx_function *out);
MUST_USE status onnx_read_property(onnx_reader *r, wire m, onnx_property *out);

/* Enters the message that field f holds, reads it with `read`, leaves. */
#define ONNX_INSIDE(r, f, name, index, read, out)                                                            \
    do {                                                                                                     \
        wire inside_;                                                                                        \
        TRY(onnx_enter(r, name, index));                                                                     \
        TRY(wire_message(r, f, "message", &inside_));                                                        \
        TRY(read(r, inside_, out));                                                                          \
        onnx_leave(r);                                                                                       \
    } while (0)

/* "ai.onnx" is said as "". */
const char *onnx_domain(const char *domain);

/* Maps `location` of external data inside the reader's folder (or finds it mapped) and gives its bytes. */
MUST_USE status onnx_external(onnx_reader *r, const char *location, const file_map **out);
void onnx_files_close(onnx_files *files);
/* Drops pages of [at, at + bytes) as file_map_drop does if they lie in one of the files; at NULL: all pages.
 */
void onnx_files_drop(const onnx_files *files, const void *at, size_t bytes);

#endif

/* control.h: between the files of control flow. */
#ifndef GRAPH_OPS_CONTROL_H
#define GRAPH_OPS_CONTROL_H

#include "graph/exec.h"

enum { CONTROL_MAX_PASSES = 3, CONTROL_DEPTH = 3 };

/* States of a loop: values that a body takes and gives back under another name. Their shapes are those of
 * before the loop as far as the body keeps them. */
MUST_USE status control_infer_states(op_shapes *s, size_t body, ir_value *formal, size_t n_formal,
                                     size_t first_state, size_t n_states, size_t first_output, error *err);
/* Output i has the kind, types and shape of v. */
MUST_USE status control_out(op_shapes *s, size_t i, const ir_value *v, error *err);
/* The same of a tensor with one more dimension at `axis`. */
MUST_USE status control_out_stacked(op_shapes *s, size_t i, const ir_value *v, size_t axis, dim length,
                                    error *err);

/* Item `at` of t along `axis` as a tensor of one rank less; shares where it can. */
MUST_USE status control_take(const tensor *t, size_t axis, size_t at, tensor *out, error *err);
/* The reverse: writes item `at` of *to along `axis`. Shapes were checked. */
MUST_USE status control_put(tensor *to, size_t axis, size_t at, const tensor *item, error *err);
bool control_same_shape(const tensor *a, const tensor *b);
void control_free(value *v, size_t n);

/* scan.c */
status scan_prepare(op_node *n, error *err);
status scan_infer(op_shapes *s, error *err);
status scan_run(op_run *r, error *err);
void scan_release(void *state);

#endif

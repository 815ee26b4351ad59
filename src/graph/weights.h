/* weights.h: the last step of loading: constants are brought into the order that kernels read, and what
 * nobody reads any more gives its memory back.
 *
 * Nodes pack one after the other, each weight leaves when its last reader has packed it: at no time are all
 * of them there twice. Elements in the model's file leave the process's memory with it (the file's pages stay
 * in the system's cache, and come back if they are read). Owner: the thread that loads. */
#ifndef GRAPH_WEIGHTS_H
#define GRAPH_WEIGHTS_H

#include "graph/ir.h"

/* After the passes, before steps are planned. */
MUST_USE status weights_pack(ir_program *p, size_t threads, error *err);

/* Gives the memory of packed weights back; the states that point into it are gone. */
void weights_free(ir_program *p);

#endif

/* oip_world.h: a model as the protocol sees it, without a graph behind it: an input i_TYPE and an output
 * o_TYPE of each of some types, and a way to read a body that shows every read beyond it. */
#ifndef TESTS_OIP_WORLD_H
#define TESTS_OIP_WORLD_H

#include "base/mem.h"
#include "serve/api/oip.h"

#include <stdlib.h>
#include <string.h>

enum { OIP_WORLD_PORTS = 5 };
static const onnx_type oip_world_any = {.kind = ONNX_TENSOR};
static oip_port oip_world_inputs[OIP_WORLD_PORTS] = {{"i_FP32", "FP32", ELEM_F32, &oip_world_any, false},
                                                     {"i_BYTES", "BYTES", ELEM_STRING, &oip_world_any, false},
                                                     {"i_BOOL", "BOOL", ELEM_BOOL, &oip_world_any, false},
                                                     {"i_FP16", "FP16", ELEM_F16, &oip_world_any, false},
                                                     {"i_INT64", "INT64", ELEM_I64, &oip_world_any, false}};
static oip_port oip_world_outputs[OIP_WORLD_PORTS] = {
    {"o_FP32", "FP32", ELEM_F32, &oip_world_any, false},
    {"o_BYTES", "BYTES", ELEM_STRING, &oip_world_any, false},
    {"o_BOOL", "BOOL", ELEM_BOOL, &oip_world_any, false},
    {"o_FP16", "FP16", ELEM_F16, &oip_world_any, false},
    {"o_INT64", "INT64", ELEM_I64, &oip_world_any, false}};

/* The first n of the ports. */
static inline oip_model oip_world(size_t n) {
    return (oip_model){
        .name = "m", .inputs = oip_world_inputs, .outputs = oip_world_outputs, .n_inputs = n, .n_outputs = n};
}

/* Reads from memory of exactly the body's size, with the zero behind it. */
static inline status oip_world_read(oip_request *r, const oip_model *m, const void *body, size_t len,
                                    size_t json, error *err) {
    char *copy = malloc(len + 1);
    if (!copy) abort();
    if (len) memcpy(copy, body, len);
    copy[len] = '\0';
    const status st = oip_request_read(r, m, copy, len, json, err);
    free(copy); /* nothing of it is borrowed */
    return st;
}

#endif

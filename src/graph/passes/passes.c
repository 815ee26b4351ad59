/* passes.c: the list of passes and its walk. */
#include "graph/passes/passes.h"
#include "graph/providers/provider.h"

#include <string.h>

static const pass passes[] = {
    {"function-tables", "looks functions of 8-bit values up in tables, constants and channels included",
     pass_function_tables},
    {"quantized", "computes on the integers between DequantizeLinear and QuantizeLinear", pass_quantized},
    {"constant-folding", "computes what depends on constants alone, shape arithmetic included",
     pass_constant_folding},
    {"identity", "drops operators that change nothing and joins chains of casts and transpositions",
     pass_identity},
    {"transposes", "moves transpositions behind functions of one element, where they meet others and cancel",
     pass_transposes},
    {"common-subexpressions", "computes once what several nodes compute alike", pass_common_subexpressions},
    {"conv-scale", "takes a batch normalization, scale or shift behind a convolution into its weights",
     pass_conv_scale},
    {"fused-exports", "takes what ONNX Runtime's optimizer joined apart where other pieces fit better",
     pass_fused_exports},
    {"activations", "finds SiLU, HardSwish, GELU and Mish that were exported in pieces", pass_activations},
    {"one-hot", "picks rows of a matrix where a product with ones and zeros would", pass_one_hot},
    {"normalization", "finds layer norm and RMS norm that were exported in pieces", pass_normalization},
    {"softmax", "finds softmax and its logarithm that were exported in pieces", pass_softmax},
    {"attention", "finds scaled dot-product attention with its masks; transposes nothing", pass_attention},
    {"quantized-layout", "keeps 8-bit images with their channels together between convolutions and pools",
     pass_quantized_layout},
    {"winograd", "computes 3x3 convolutions with a quarter of the multiplications (rounding error doubles)",
     pass_winograd},
    {"blocked-layout", "keeps images in blocks of 16 channels between convolutions and pools",
     pass_blocked_layout},
    {"conv-epilogue", "adds and activates while a convolution's result is still in the cache",
     pass_conv_epilogue},
    {"dynamic-quantization",
     "joins products of activations that are quantized as they come with their scales",
     pass_dynamic_quantization},
    {"recurrent-weights", "packs weights of recurrent layers that were computed from constants",
     pass_recurrent_weights},
    {"matmul-epilogue", "packs constant matrices once; adds and activates while the product is in the cache",
     pass_matmul_epilogue},
    {"skip-normalization", "adds and normalizes a row at once, where a product has not taken the addition",
     pass_skip_normalization},
    {"dead-code", "removes what no output needs", pass_dead_code},
};
enum { N_PASSES = sizeof passes / sizeof *passes };

const pass *pass_list(size_t *n) {
    *n = N_PASSES;
    return passes;
}

bool pass_moves_steps(const pass *p) {
    return p->run == pass_quantized;
}

static bool left_out(const graph_options *o, const char *name) {
    for (size_t i = 0; i < o->n_no_pass; i++) {
        if (strcmp(o->no_pass[i], name) == 0 || strcmp(o->no_pass[i], "all") == 0) return true;
    }
    return false;
}

static status check_names(const graph_options *o, error *err) {
    for (size_t i = 0; i < o->n_no_pass; i++) {
        bool known = strcmp(o->no_pass[i], "all") == 0;
        for (size_t k = 0; k < N_PASSES && !known; k++) known = strcmp(o->no_pass[i], passes[k].name) == 0;
        if (known) continue;
        str known_names = {0};
        for (size_t k = 0; k < N_PASSES; k++) str_fmt(&known_names, ", %s", passes[k].name);
        status st = error_set(err, CHURON_INVALID, "pass: expected all%s, got '%s'", str_cstr(&known_names),
                              o->no_pass[i]);
        str_free(&known_names);
        return st;
    }
    return CHURON_OK;
}

status passes_run(ir_program *p, const graph_options *o, error *err) {
    TRY(check_names(o, err));
    TRY(providers_check(o, err));
    exec x;
    TRY(exec_init(&x, NULL, 1, o->max_memory, err));
    x.stop = p->stop;
    rewriter w = {.program = p, .x = &x};
    status st = CHURON_OK;
    for (size_t i = 0; i < N_PASSES && st == CHURON_OK; i++) {
        /* What follows chooses layouts for our own kernels. */
        if (passes[i].run == pass_winograd && o->n_providers) {
            st = conv_scale_settle(&w, err);
            if (st == CHURON_OK) st = providers_claim(&w, o, err);
        }
        if (st == CHURON_OK && !left_out(o, passes[i].name)) st = passes[i].run(&w, err);
    }
    if (st == CHURON_OK) st = conv_scale_settle(&w, err);
    exec_free(&x, NULL);
    return st;
}

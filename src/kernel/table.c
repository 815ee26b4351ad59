/* table.c: one table of kernels for each instruction set, and the choice among them.
 *
 * A table names the reference where its instruction set has nothing better. */
#include "kernel/avx2/avx2.h"
#include "kernel/avx512/avx512.h"
#include "kernel/pack.h"
#include "kernel/ref/ref.h"

#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__) || defined(_M_X64)
#include <cpuid.h>
#define HAVE_X86 1
#endif

static const kernels table_ref = {
    .isa = KERNEL_REF,
    .name = "ref",
    .matmul = matmul_ref,
    .unpack_row = unpack_row_ref,
    .quantize = quantize_ref,
    .rms_norm = rms_norm_ref,
    .add = add_ref,
    .scale = scale_ref,
    .silu_mul = silu_mul_ref,
    .gelu_tanh_mul = gelu_tanh_mul_ref,
    .soft_cap = soft_cap_ref,
    .rope = rope_ref,
    .kv_store = {kv_store_ref, kv_store_q8_ref},
    .attn_chunk = {attn_chunk_ref, attn_chunk_q8_ref},
    .attn_merge = attn_merge_ref,
    .attn_finish = attn_finish_ref,
    .log_sum_exp = log_sum_exp_ref,
    .sum_above = sum_above_ref,
    .top_k = top_k_ref,
    .exp = exp_ref,
    .unary = unary_ref,
    .unary64 = unary64_ref,
    .softmax = softmax_ref,
    .layer_norm = layer_norm_ref,
    .vector_matrix = vector_matrix_ref,
    .widen_f16 = widen_f16_ref,
    .narrow_f16 = narrow_f16_ref,
    .gemm_tile = gemm_tile_ref,
    .gemm64_tile = gemm64_tile_ref,
    .gemm64_shape = {.rows = 8, .columns = 24},
    .qgemm_tile = qgemm_tile_ref,
    .qgemm_shape = {.rows = 4, .panels = 1, .few_panels = 1},
    .range = range_ref,
    .quantize_u8 = quantize_u8_ref,
    .requantize = requantize_ref,
    .qdepthwise_row = qdepthwise_row_ref,
    .qpool_row = qpool_row_ref,
    .qpair = qpair_ref,
    .lookup = lookup_ref,
    .depthwise_row = depthwise_row_ref,
    .pool_row = pool_row_ref,
    .lrn_pixel = lrn_pixel_ref,
    .winograd_input = winograd_input_ref,
    .winograd_output = winograd_output_ref,
    .forest_u8 = forest_u8_ref,
    .forest_u16 = forest_u16_ref,
    .gemm_shape = {.rows = 4, .panels = 1, .few_rows = 4, .few_panels = 1},
    .resize_across = resize_across_ref,
    .resize_down = resize_down_ref,
    .fft_real = fft_real_ref,
    .band_energies = band_energies_ref,
};

#ifdef HAVE_X86

static const kernels table_avx2 = {
    .isa = KERNEL_AVX2,
    .name = "avx2",
    .matmul = matmul_avx2,
    .unpack_row = unpack_row_ref,
    .quantize = quantize_avx2,
    .rms_norm = rms_norm_avx2,
    .add = add_avx2,
    .scale = scale_avx2,
    .silu_mul = silu_mul_avx2,
    .gelu_tanh_mul = gelu_tanh_mul_avx2,
    .soft_cap = soft_cap_avx2,
    .rope = rope_avx2,
    .kv_store = {kv_store_avx2, kv_store_q8_avx2},
    .attn_chunk = {attn_chunk_avx2, attn_chunk_q8_avx2},
    .attn_merge = attn_merge_avx2,
    .attn_finish = attn_finish_avx2,
    .log_sum_exp = log_sum_exp_avx2,
    .sum_above = sum_above_avx2,
    .top_k = top_k_avx2,
    .exp = exp_avx2,
    .unary = unary_avx2,
    .unary64 = unary64_avx2,
    .softmax = softmax_avx2,
    .layer_norm = layer_norm_avx2,
    .vector_matrix = vector_matrix_avx2,
    .widen_f16 = widen_f16_avx2,
    .narrow_f16 = narrow_f16_avx2,
    .gemm_tile = gemm_tile_avx2,
    .gemm64_tile = gemm64_tile_avx2,
    .gemm64_shape = {.rows = 4, .columns = 12},
    .qgemm_tile = qgemm_tile_avx2,
    .qgemm_shape = {.rows = 3, .panels = 1, .few_panels = 1},
    .range = range_avx2,
    .quantize_u8 = quantize_u8_avx2,
    .requantize = requantize_avx2,
    .qdepthwise_row = qdepthwise_row_avx2,
    .qpool_row = qpool_row_avx2,
    .qpair = qpair_avx2,
    .lookup = lookup_ref,
    .depthwise_row = depthwise_row_avx2,
    .pool_row = pool_row_avx2,
    .lrn_pixel = lrn_pixel_avx2,
    .winograd_input = winograd_input_avx2,
    .winograd_output = winograd_output_avx2,
    .forest_u8 = forest_u8_avx2,
    .forest_u16 = forest_u16_ref,
    .gemm_shape = {.rows = 6, .panels = 1, .few_rows = 6, .few_panels = 1},
    .resize_across = resize_across_avx2,
    .resize_down = resize_down_avx2,
    .fft_real = fft_real_avx2,
    .band_energies = band_energies_avx2,
};

static const kernels table_avx512 = {
    .isa = KERNEL_AVX512,
    .name = "avx512",
    .matmul = matmul_avx512,
    .unpack_row = unpack_row_ref,
    .quantize = quantize_avx512,
    .rms_norm = rms_norm_avx512,
    .add = add_avx512,
    .scale = scale_avx512,
    .silu_mul = silu_mul_avx512,
    .gelu_tanh_mul = gelu_tanh_mul_avx512,
    .soft_cap = soft_cap_avx512,
    .rope = rope_avx512,
    .kv_store = {kv_store_avx512, kv_store_q8_avx512},
    .attn_chunk = {attn_chunk_avx512, attn_chunk_q8_avx512},
    .attn_merge = attn_merge_avx512,
    .attn_finish = attn_finish_avx512,
    .log_sum_exp = log_sum_exp_avx512,
    .sum_above = sum_above_avx512,
    .top_k = top_k_avx512,
    .exp = exp_avx512,
    .unary = unary_avx512,
    .unary64 = unary64_avx512,
    .softmax = softmax_avx512,
    .layer_norm = layer_norm_avx512,
    .vector_matrix = vector_matrix_avx512,
    .widen_f16 = widen_f16_avx512,
    .narrow_f16 = narrow_f16_avx512,
    .gemm_tile = gemm_tile_avx512,
    .gemm64_tile = gemm64_tile_avx512,
    .gemm64_shape = {.rows = 8, .columns = 24},
    .qgemm_tile = qgemm_tile_avx512,
    .qgemm_shape = {.rows = 14, .panels = 2, .few_rows = 6, .few_panels = 4},
    .range = range_avx512,
    .quantize_u8 = quantize_u8_avx512,
    .requantize = requantize_avx512,
    .qdepthwise_row = qdepthwise_row_avx512,
    .qpool_row = qpool_row_avx512,
    .qpair = qpair_avx512,
    .lookup = lookup_avx512,
    .depthwise_row = depthwise_row_avx512,
    .pool_row = pool_row_avx512,
    .lrn_pixel = lrn_pixel_avx512,
    .winograd_input = winograd_input_avx512,
    .winograd_output = winograd_output_avx512,
    .forest_u8 = forest_u8_avx512,
    .forest_u16 = forest_u16_avx512,
    .gemm_shape = {.rows = 14, .panels = 2, .few_rows = 6, .few_panels = 4},
    .resize_across = resize_across_avx2,
    .resize_down = resize_down_avx2,
    .fft_real = fft_real_avx512,
    .band_energies = band_energies_avx512,
};

/* What the files of avx2/ and avx512/ are compiled for (CMakeLists.txt). The compiler's run-time check
 * includes that the operating system saves the registers. F16C is asked from the processor: older compilers
 * do not know its name. */
static bool has_avx2(void) {
    unsigned a, b, c, d;
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("bmi2") && __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C) != 0;
}

static bool has_avx512(void) {
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512vnni");
}

#endif

const kernels *kernels_for(kernel_isa isa) {
    if (isa == KERNEL_REF) return &table_ref;
#ifdef HAVE_X86
    if (isa == KERNEL_AVX2 && has_avx2()) return &table_avx2;
    if (isa == KERNEL_AVX512 && has_avx512()) return &table_avx512;
#endif
    return NULL;
}

status kernels_select(const kernels **out, error *err) {
    static const char *const names[KERNEL_ISA_COUNT] = {"ref", "avx2", "avx512"};
    const char *wanted = getenv("CHURON_CPU");
    *out = NULL;
    if (wanted && !*wanted) wanted = NULL;
    for (int isa = KERNEL_ISA_COUNT - 1; isa >= 0; isa--) {
        bool named = wanted != NULL && strcmp(wanted, names[isa]) == 0;
        if (wanted != NULL && !named) continue;
        *out = kernels_for((kernel_isa)isa);
        if (*out != NULL) return CHURON_OK;
        if (named) {
            return error_set(err, CHURON_UNSUPPORTED,
                             "CHURON_CPU: expected an instruction set of this processor, got '%s'", wanted);
        }
    }
    return error_set(err, CHURON_INVALID, "CHURON_CPU: expected ref, avx2 or avx512, got '%s'", wanted);
}

/* Quantized: the panel of 32 rows takes a byte a value and f32 scales and minima for every 16, in all 1.5
 * bytes, and 8 bytes for each 16 activations of a token. Float: a panel of 32 rows in f32 and the tokens'
 * block of K, or with few tokens their whole K. */
size_t matmul_scratch(size_t max_cols, size_t max_tokens) {
    size_t tokens = max_tokens < PANEL_TOKENS ? max_tokens : PANEL_TOKENS;
    size_t cols = (max_cols + 63) / 64 * 64;
    size_t block = cols < FLOAT_BLOCK ? cols : FLOAT_BLOCK;
    size_t quantized = PANEL_ROWS * cols * 3 / 2 + tokens * cols / 2;
    size_t floats = PANEL_ROWS * FLOAT_BLOCK * 4 + tokens * block * 4, few = 32 * cols * 4;
    size_t most = quantized > floats ? quantized : floats;
    return (most > few ? most : few) + 64;
}

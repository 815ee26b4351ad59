/* tiny_model.h: a whole model in a file of 300 kB, for tests: two layers, grouped heads, a byte-level
 * vocabulary with a few merges, chat tokens and a template. Weights are seeded noise. */
#ifndef TESTS_TINY_MODEL_H
#define TESTS_TINY_MODEL_H

#include "gguf_build.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    TINY_EMBD = 64,
    TINY_FF = 96,
    TINY_HEADS = 4,
    TINY_KV_HEADS = 2,
    TINY_LAYERS = 2,
    TINY_CONTEXT = 1024
};
enum { TINY_VOCAB = 264, TINY_IM_START = 256, TINY_IM_END = 257, TINY_MERGED = 258 };

static const char *const tiny_merges[] = {"t h", "th e", "a n", "an d", "i n", "in g"};
static const char tiny_template[] =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

/* The printable stand-in of a byte in byte-level vocabularies. */
static inline uint32_t tiny_byte_char(unsigned byte) {
    if ((byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174) return byte;
    uint32_t n = 0;
    for (unsigned b = 0; b < byte; b++) {
        if (!((b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174)) n++;
    }
    return 256 + n;
}

static inline void tiny_token(str *s, unsigned id) {
    char text[16] = "";
    if (id < 256) {
        text[utf8_encode(tiny_byte_char(id), text)] = '\0';
    } else if (id == TINY_IM_START) {
        strcpy(text, "<|im_start|>");
    } else if (id == TINY_IM_END) {
        strcpy(text, "<|im_end|>");
    } else {
        const char *m = tiny_merges[id - TINY_MERGED];
        for (size_t n = 0; *m; m++) {
            if (*m != ' ') text[n++] = *m;
        }
    }
    put_text(s, text);
}

static inline void tiny_metadata(str *s) {
    put_string(s, "general.architecture", "llama");
    put_string(s, "general.name", "tiny");
    put_u32(s, "llama.context_length", TINY_CONTEXT);
    put_u32(s, "llama.embedding_length", TINY_EMBD);
    put_u32(s, "llama.block_count", TINY_LAYERS);
    put_u32(s, "llama.feed_forward_length", TINY_FF);
    put_u32(s, "llama.attention.head_count", TINY_HEADS);
    put_u32(s, "llama.attention.head_count_kv", TINY_KV_HEADS);
    put_key(s, "llama.attention.layer_norm_rms_epsilon", GGUF_F32);
    put_le(s, 0x3727c5ac, 4); /* 1e-5 */
    put_string(s, "tokenizer.ggml.model", "gpt2");
    put_string(s, "tokenizer.ggml.pre", "gpt-2");
    put_string(s, "tokenizer.chat_template", tiny_template);
    put_u32(s, "tokenizer.ggml.bos_token_id", TINY_IM_START);
    put_u32(s, "tokenizer.ggml.eos_token_id", TINY_IM_END);
    put_array(s, "tokenizer.ggml.tokens", GGUF_STRING, TINY_VOCAB);
    for (unsigned id = 0; id < TINY_VOCAB; id++) tiny_token(s, id);
    put_array(s, "tokenizer.ggml.token_type", GGUF_I32, TINY_VOCAB);
    for (unsigned id = 0; id < TINY_VOCAB; id++)
        put_le(s, id == TINY_IM_START || id == TINY_IM_END ? 3 : 1, 4);
    put_array(s, "tokenizer.ggml.merges", GGUF_STRING, sizeof tiny_merges / sizeof *tiny_merges);
    for (size_t i = 0; i < sizeof tiny_merges / sizeof *tiny_merges; i++) put_text(s, tiny_merges[i]);
}
enum { TINY_N_VALUES = 17 };

typedef struct tiny_tensor {
    char name[40];
    uint64_t cols, rows; /* rows 0: a vector */
} tiny_tensor;

static inline size_t tiny_list(tiny_tensor *out) {
    const uint64_t kv = TINY_EMBD / TINY_HEADS * TINY_KV_HEADS;
    size_t n = 0;
    out[n++] = (tiny_tensor){"token_embd.weight", TINY_EMBD, TINY_VOCAB};
    out[n++] = (tiny_tensor){"output_norm.weight", TINY_EMBD, 0};
    static const struct {
        const char *suffix;
        uint64_t cols, rows;
    } parts[] = {{"attn_norm", TINY_EMBD, 0},
                 {"attn_q", TINY_EMBD, TINY_EMBD},
                 {"attn_k", TINY_EMBD, 1},
                 {"attn_v", TINY_EMBD, 1},
                 {"attn_output", TINY_EMBD, TINY_EMBD},
                 {"ffn_norm", TINY_EMBD, 0},
                 {"ffn_gate", TINY_EMBD, TINY_FF},
                 {"ffn_up", TINY_EMBD, TINY_FF},
                 {"ffn_down", TINY_FF, TINY_EMBD}};
    for (int layer = 0; layer < TINY_LAYERS; layer++) {
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
            tiny_tensor t = {.cols = parts[i].cols, .rows = parts[i].rows == 1 ? kv : parts[i].rows};
            (void)snprintf(t.name, sizeof t.name, "blk.%d.%s.weight", layer, parts[i].suffix);
            out[n++] = t;
        }
    }
    return n;
}

static inline float tiny_noise(uint32_t *state) {
    *state = *state * 1664525u + 1013904223u;
    return (float)(int32_t)*state * 0x1p-31f;
}

/* Q8_0 blocks or F32: what the file stores. */
static inline void tiny_values(str *s, size_t n, bool q8, float amplitude, float offset, uint32_t *state) {
    for (size_t i = 0; i < n; i++) {
        if (q8) {
            if (i % 32 == 0) put_le(s, f32_to_f16(amplitude / 127.0f), 2);
            put_le(s, (uint8_t)(int8_t)(127.0f * tiny_noise(state)), 1);
        } else {
            float v = offset + amplitude * tiny_noise(state);
            uint32_t bits;
            memcpy(&bits, &v, 4);
            put_le(s, bits, 4);
        }
    }
}

/* The bytes of the file. q8: matrices in Q8_0, else F32. */
static inline void tiny_bytes(str *s, bool q8, uint32_t seed) {
    tiny_tensor list[32];
    size_t n = tiny_list(list);
    put_header(s, 3, n, TINY_N_VALUES);
    tiny_metadata(s);
    uint64_t offset = 0;
    for (size_t i = 0; i < n; i++) {
        const bool quantized = q8 && list[i].rows;
        uint64_t dims[2] = {list[i].cols, list[i].rows};
        put_tensor(s, list[i].name, list[i].rows ? 2 : 1, dims, quantized ? 8 : 0, offset);
        uint64_t values = list[i].cols * (list[i].rows ? list[i].rows : 1);
        offset += ((quantized ? values / 32 * 34 : values * 4) + 31) / 32 * 32;
    }
    pad_to(s, 32);
    for (size_t i = 0; i < n; i++) {
        const bool quantized = q8 && list[i].rows;
        uint64_t values = list[i].cols * (list[i].rows ? list[i].rows : 1);
        float amplitude = list[i].rows ? 2.5f / sqrtf((float)list[i].cols) : 0.2f;
        tiny_values(s, values, quantized, amplitude, list[i].rows ? 0.0f : 1.0f, &seed);
        pad_to(s, 32);
    }
}

/* Writes the model to a new temporary file; `path` must hold 40 bytes. */
static inline bool tiny_write(char *path, bool q8, uint32_t seed) {
    str s = {0};
    tiny_bytes(&s, q8, seed);
    strcpy(path, "/tmp/churon-tiny-XXXXXX");
    int fd = mkstemp(path);
    if (fd < 0) return false;
    bool ok = !s.failed && write(fd, s.data, s.len) == (ssize_t)s.len;
    close(fd);
    str_free(&s);
    return ok;
}

#endif

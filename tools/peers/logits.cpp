// logits.cpp: llama.cpp's logits, for comparison: `logits MODEL [THREADS]` reads lines of token ids from stdin, computes
// each line as one sequence and writes the f32 logits of every position to stdout, as tests/tools/logits.c does.
// Built against a llama.cpp tree; no part of the build or of the tests:
//
//   g++ -O1 -I$SRC/include -I$SRC/ggml/include tools/peers/logits.cpp $BUILD/src/libllama.a
//       $BUILD/ggml/src/libggml{,-cpu,-base}.a -fopenmp -ldl -o peer-logits
#include "llama.h"

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

static void errors_only(ggml_log_level level, const char *text, void *) {
    if (level >= GGML_LOG_LEVEL_ERROR) fputs(text, stderr);
}

static bool score(llama_context *ctx, const std::vector<llama_token> &ids, size_t n_vocab) {
    llama_memory_clear(llama_get_memory(ctx), true);
    llama_batch batch = llama_batch_init((int32_t)ids.size(), 0, 1);
    batch.n_tokens = (int32_t)ids.size();
    for (size_t i = 0; i < ids.size(); i++) {
        batch.token[i] = ids[i];
        batch.pos[i] = (llama_pos)i;
        batch.n_seq_id[i] = 1;
        batch.seq_id[i][0] = 0;
        batch.logits[i] = 1;
    }
    bool ok = llama_decode(ctx, batch) == 0;
    llama_batch_free(batch);
    size_t n = n_vocab * ids.size();
    return ok && fwrite(llama_get_logits(ctx), sizeof(float), n, stdout) == n;
}

int main(int argc, char **argv) {
    if (argc < 2) return fprintf(stderr, "usage: logits MODEL [THREADS] < ids\n"), 2;
    llama_log_set(errors_only, nullptr);
    llama_backend_init();
    llama_model *model = llama_model_load_from_file(argv[1], llama_model_default_params());
    if (!model) return 1;
    llama_context_params params = llama_context_default_params();
    params.n_ctx = params.n_batch = params.n_ubatch = 512;
    params.n_threads = params.n_threads_batch = argc > 2 ? atoi(argv[2]) : 2;
    llama_context *ctx = llama_init_from_model(model, params);
    if (!ctx) return 1;
    const size_t n_vocab = (size_t)llama_vocab_n_tokens(llama_model_get_vocab(model));
    for (std::string line; std::getline(std::cin, line);) {
        std::istringstream in(line);
        std::vector<llama_token> ids;
        for (llama_token id; in >> id;) ids.push_back(id);
        if (!ids.empty() && !score(ctx, ids, n_vocab)) return 1;
    }
    llama_free(ctx);
    llama_model_free(model);
    return 0;
}

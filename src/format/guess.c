/* guess.c: see guess.h. */
#include "format/guess.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

typedef struct magic {
    size_t at;
    const char *bytes;
    size_t n;
    const char *what;
} magic;

#define MAGIC(at, bytes, what)                                                                               \
    { at, bytes, sizeof bytes - 1, what }

static const magic magics[] = {
    MAGIC(0, "GGUF", "a GGUF file"),
    MAGIC(0, "\x89HDF\r\n\x1a\n", "an HDF5 file (Keras saves such): convert the model with tf2onnx"),
    MAGIC(0, "\x93NUMPY", "a NumPy array"),
    MAGIC(4, "TFL3", "a TensorFlow Lite model: convert it with tf2onnx"),
    MAGIC(4, "ORTM", "a model in ONNX Runtime's own format: give the .onnx file that it was made of"),
    MAGIC(0, "CHURONPK", "a pack (.churon)"),
    MAGIC(0, "CBM1", "a CatBoost model: save it with format=\"onnx\""),
    MAGIC(0, "SQLite format 3", "an SQLite database"),
    MAGIC(0, "version https://git-lfs", "a Git LFS pointer: fetch the file itself"),
    MAGIC(0, "tree\nversion=", "a LightGBM model in text: convert it with onnxmltools"),
    MAGIC(0, "{L\0\0", "an XGBoost model: convert it with onnxmltools"),
    MAGIC(0, "\x1f\x8b", "a gzip file: unpack it first"),
    MAGIC(0, "\x28\xb5\x2f\xfd", "a zstd file: unpack it first"),
    MAGIC(0,
          "\xfd"
          "7zXZ",
          "an xz file: unpack it first"),
    MAGIC(0, "BZh", "a bzip2 file: unpack it first"),
    MAGIC(0, "7z\xbc\xaf", "a 7z archive: unpack it first"),
    MAGIC(257, "ustar", "a tar archive: unpack it first"),
    MAGIC(0,
          "\x7f"
          "ELF",
          "a program (ELF)"),
    MAGIC(0, "%PDF", "a PDF document"),
    MAGIC(0, "\x89PNG", "a PNG image"),
    MAGIC(0, "\xff\xd8\xff", "a JPEG image"),
    MAGIC(0, "RIFF", "an audio or image file (RIFF)"),
};

static bool begins(const char *p, size_t n, const char *with) {
    const size_t k = strlen(with);
    return n >= k && memcmp(p, with, k) == 0;
}

static bool holds(const char *p, size_t n, const char *what) {
    const size_t k = strlen(what);
    for (size_t i = 0; i + k <= n; i++) {
        if (memcmp(p + i, what, k) == 0) return true;
    }
    return false;
}

/* By the names of the first files in it. */
static const char *zip(const char *p, size_t n) {
    if (holds(p, n, "data.pkl") || holds(p, n, "/version"))
        return "a PyTorch checkpoint: export the model with torch.onnx.export";
    if (holds(p, n, "model.weights.h5") || holds(p, n, "metadata.json"))
        return "a Keras model: export it with model.export(…, format=\"onnx\")";
    if (holds(p, n, ".npy")) return "a NumPy archive (.npz)";
    return "a zip archive: unpack it first";
}

/* Its length in eight bytes, then a JSON object. */
static bool is_safetensors(const unsigned char *p, size_t n) {
    if (n < 10 || p[8] != '{') return false;
    uint64_t len = 0;
    for (size_t i = 0; i < 8; i++) len |= (uint64_t)p[i] << 8 * i;
    return len >= 2 && len <= (uint64_t)100 << 20;
}

/* No control characters but line ends and tabs. */
static bool is_text(const unsigned char *p, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (p[i] == 0x7f || (p[i] < 0x20 && !strchr("\t\n\r\f", p[i])) || p[i] == 0) return false;
    }
    return n > 0;
}

static const char *text(const char *p, size_t n) {
    while (n > 0 && strchr(" \t\r\n", *p)) p++, n--;
    if (begins(p, n, "<!DOCTYPE html") || begins(p, n, "<!doctype html") || begins(p, n, "<html"))
        return "a web page (HTML): the download gave something else than the file";
    if (begins(p, n, "<?xml") || begins(p, n, "<net") || begins(p, n, "<PMML"))
        return "an XML file: the models that are kept so (OpenVINO, PMML) have to be exported to ONNX";
    if (n && *p == '{' && holds(p, n, "\"learner\""))
        return "an XGBoost model in JSON: convert it with onnxmltools";
    if (n && (*p == '{' || *p == '[')) return "JSON text";
    return "a text file";
}

const char *format_guess(const void *bytes, size_t n) {
    enum { LOOKED_AT = 4096 };
    const char *p = bytes;
    if (n > LOOKED_AT) n = LOOKED_AT;
    for (size_t i = 0; i < sizeof magics / sizeof *magics; i++) {
        const magic *m = &magics[i];
        if (n >= m->at + m->n && memcmp(p + m->at, m->bytes, m->n) == 0) return m->what;
    }
    if (begins(p, n, "PK\3\4")) return zip(p, n);
    if (n >= 2 && p[0] == '\x80' && p[1] >= 2 && p[1] <= 5)
        return "a Python pickle (scikit-learn, joblib, old PyTorch): convert the model with skl2onnx, "
               "onnxmltools or "
               "torch.onnx.export";
    if (is_safetensors(bytes, n))
        return "a safetensors file, weights without a graph: export the model to ONNX";
    return is_text(bytes, n) ? text(p, n) : NULL;
}

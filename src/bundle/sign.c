/* sign.c: see sign.h. */
#include "bundle/sign.h"

#include "base/disk.h"
#include "base/mem.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

enum { RAW_KEY = 32, RAW_SIGNATURE = 64, KEYS_MAX = 1000, BESIDE_MAX = 1 << 20 };

typedef struct public_key {
    EVP_PKEY *key;
    char id[SIGN_ID];
} public_key;

struct sign_keys {
    public_key *keys;
    size_t n;
};

/* ---- keys ------------------------------------------------------------------------------------------- */

static status key_id_of(const EVP_PKEY *key, char id[SIGN_ID], error *err) {
    unsigned char raw[RAW_KEY];
    size_t n = sizeof raw;
    char hex[DIGEST_HEX];
    if (EVP_PKEY_get_id(key) != EVP_PKEY_ED25519 || EVP_PKEY_get_raw_public_key(key, raw, &n) != 1 ||
        n != RAW_KEY) {
        return error_set(err, CHURON_INVALID, "expected an Ed25519 key, got another kind");
    }
    TRY(digest_bytes(raw, n, hex, err));
    memcpy(id, hex, SIGN_ID - 1);
    id[SIGN_ID - 1] = '\0';
    return CHURON_OK;
}

static FILE *create(const char *path, mode_t mode, error *err) {
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    FILE *f = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (f) return f;
    (void)error_set(err, errno == EEXIST ? CHURON_INVALID : CHURON_IO, "%s: cannot create: %s", path,
                    strerror(errno));
    if (fd >= 0) close(fd);
    return NULL;
}

/* Writes the key in PEM; what was begun is removed after an error. */
static status write_key(EVP_PKEY *key, const char *path, bool secret, error *err) {
    FILE *f = create(path, secret ? 0600 : 0644, err);
    if (!f) return err ? err->code : CHURON_IO;
    bool ok = secret ? PEM_write_PKCS8PrivateKey(f, key, NULL, NULL, 0, NULL, NULL) == 1
                     : PEM_write_PUBKEY(f, key) == 1;
    ok = fflush(f) == 0 && ok && fsync(fileno(f)) == 0;
    ok = fclose(f) == 0 && ok;
    if (ok) return CHURON_OK;
    (void)unlink(path);
    return error_set(err, CHURON_IO, "%s: cannot write", path);
}

status sign_keygen(const char *private_path, const char *public_path, char key_id[SIGN_ID], error *err) {
    error scratch;
    if (!err) err = &scratch;
    EVP_PKEY *key = EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");
    if (!key) return error_set(err, CHURON_INTERNAL, "ed25519: the library made no key");
    status st = key_id_of(key, key_id, err);
    if (st == CHURON_OK) st = write_key(key, private_path, true, err);
    if (st == CHURON_OK) {
        st = write_key(key, public_path, false, err);
        if (st != CHURON_OK) (void)unlink(private_path);
    }
    EVP_PKEY_free(key);
    return st;
}

/* A key that wants a passphrase is refused, not asked about. */
static int no_passphrase(char *to, int size, int writing, void *user) {
    (void)to, (void)size, (void)writing, (void)user;
    return -1;
}

static status read_private(const char *path, EVP_PKEY **out, char id[SIGN_ID], error *err) {
    FILE *f = fopen(path, "re");
    if (!f) {
        return error_set(err, errno == ENOENT ? CHURON_NOT_FOUND : CHURON_IO, "%s: cannot open: %s", path,
                         strerror(errno));
    }
    *out = PEM_read_PrivateKey(f, NULL, no_passphrase, NULL);
    fclose(f);
    if (!*out)
        return error_set(err, CHURON_INVALID, "%s: expected a private key in PEM without a passphrase", path);
    status st = key_id_of(*out, id, err);
    if (st == CHURON_OK) return st;
    error_prefix(err, "%s", path);
    EVP_PKEY_free(*out);
    return st;
}

static status add_key(sign_keys *k, EVP_PKEY *key, error *err) {
    public_key one = {.key = key};
    TRY(key_id_of(key, one.id, err));
    public_key *grown = k->n < KEYS_MAX ? mem_realloc(k->keys, (k->n + 1) * sizeof *grown) : NULL;
    if (!grown) return error_no_memory(err, "keys", (k->n + 1) * sizeof *grown);
    k->keys = grown;
    k->keys[k->n++] = one;
    return CHURON_OK;
}

static status load_file(sign_keys *k, const char *path, error *err) {
    FILE *f = fopen(path, "re");
    size_t before = k->n;
    status st = CHURON_OK;
    if (!f) {
        return error_set(err, errno == ENOENT ? CHURON_NOT_FOUND : CHURON_IO, "%s: cannot open: %s", path,
                         strerror(errno));
    }
    for (EVP_PKEY *key; st == CHURON_OK && (key = PEM_read_PUBKEY(f, NULL, no_passphrase, NULL));) {
        st = add_key(k, key, err);
        if (st != CHURON_OK) {
            error_prefix(err, "%s", path);
            EVP_PKEY_free(key);
        }
    }
    fclose(f);
    if (st != CHURON_OK || k->n > before) return st;
    return error_set(err, CHURON_INVALID, "%s: expected a public key in PEM, got none", path);
}

static bool is_key_name(const char *name) {
    size_t n = strlen(name);
    return name[0] != '.' && n > 4 &&
           (strcasecmp(name + n - 4, ".pem") == 0 || strcasecmp(name + n - 4, ".pub") == 0);
}

static status load_folder(sign_keys *k, const char *dir, error *err) {
    status st = CHURON_OK;
    str path = {0};
    DIR *d = opendir(dir);
    if (!d) return error_set(err, CHURON_IO, "%s: cannot list: %s", dir, strerror(errno));
    for (const struct dirent *e; st == CHURON_OK && (e = readdir(d));) {
        if (!is_key_name(e->d_name)) continue;
        str_clear(&path);
        str_fmt(&path, "%s/%s", dir, e->d_name);
        st = str_check(&path, err);
        if (st == CHURON_OK) st = load_file(k, str_cstr(&path), err);
    }
    closedir(d);
    str_free(&path);
    if (st == CHURON_OK && !k->n)
        return error_set(err, CHURON_INVALID, "%s: expected public keys (.pem, .pub), got none", dir);
    return st;
}

status sign_keys_load(sign_keys **out, const char *path, error *err) {
    *out = NULL;
    sign_keys *k = mem_calloc(1, sizeof *k);
    if (!k) return error_no_memory(err, "keys", sizeof *k);
    status st = file_is_dir(path) ? load_folder(k, path, err) : load_file(k, path, err);
    if (st != CHURON_OK) {
        sign_keys_free(k);
        return st;
    }
    *out = k;
    return CHURON_OK;
}

void sign_keys_free(sign_keys *k) {
    if (!k) return;
    for (size_t i = 0; i < k->n; i++) EVP_PKEY_free(k->keys[i].key);
    mem_free(k->keys);
    mem_free(k);
}

/* ---- signatures ------------------------------------------------------------------------------------- */

enum { MESSAGE_MAX = 128 };

static size_t message_of(const char digest[DIGEST_HEX], char message[MESSAGE_MAX]) {
    return (size_t)snprintf(message, MESSAGE_MAX, "churon-bundle-signature-v1\n%s\n", digest);
}

status sign_digest(const char *key_path, const char digest[DIGEST_HEX], char key_id[SIGN_ID],
                   char signature[SIGN_TEXT], error *err) {
    EVP_PKEY *key;
    unsigned char raw[RAW_SIGNATURE];
    size_t n = sizeof raw;
    char message[MESSAGE_MAX];
    size_t len = message_of(digest, message);
    TRY(read_private(key_path, &key, key_id, err));
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    bool ok = ctx && EVP_DigestSignInit(ctx, NULL, NULL, NULL, key) == 1 &&
              EVP_DigestSign(ctx, raw, &n, (const unsigned char *)message, len) == 1 && n == RAW_SIGNATURE;
    if (ok) ok = EVP_EncodeBlock((unsigned char *)signature, raw, RAW_SIGNATURE) == SIGN_TEXT - 1;
    EVP_MD_CTX_free(ctx);
    EVP_PKEY_free(key);
    return ok ? CHURON_OK : error_set(err, CHURON_INTERNAL, "ed25519: the library did not sign");
}

static bool verifies(const public_key *k, const char digest[DIGEST_HEX], const char *signature) {
    unsigned char raw[RAW_SIGNATURE + 2]; /* decoded in threes: 88 letters give 66 bytes, two of padding */
    char message[MESSAGE_MAX];
    size_t len = message_of(digest, message);
    if (strlen(signature) != SIGN_TEXT - 1 ||
        EVP_DecodeBlock(raw, (const unsigned char *)signature, SIGN_TEXT - 1) != RAW_SIGNATURE + 2) {
        return false;
    }
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    bool ok = ctx && EVP_DigestVerifyInit(ctx, NULL, NULL, NULL, k->key) == 1 &&
              EVP_DigestVerify(ctx, raw, RAW_SIGNATURE, (const unsigned char *)message, len) == 1;
    EVP_MD_CTX_free(ctx);
    return ok;
}

status sign_check(const sign_keys *k, const char digest[DIGEST_HEX], const char *key_id,
                  const char *signature, error *err) {
    for (size_t i = 0; i < k->n; i++) {
        if (strcmp(k->keys[i].id, key_id) != 0) continue;
        if (verifies(&k->keys[i], digest, signature)) return CHURON_OK;
        return error_set(err, CHURON_INVALID,
                         "signature: expected one of key %s over %s, got one of something else", key_id,
                         digest);
    }
    return error_set(err, CHURON_INVALID, "signature: expected one of the %zu trusted keys, got one of %.64s",
                     k->n, key_id);
}

/* ---- beside the bundle ------------------------------------------------------------------------------ */

status sign_path(const files *f, str *path, error *err) {
    str_cat(path, files_path_of(f));
    while (path->len > 1 && path->data[path->len - 1] == '/') path->data[--path->len] = '\0';
    str_cat(path, files_kind_of(f) == FILES_FOLDER ? "/.signatures" : ".sig");
    return str_check(path, err);
}

status sign_files(const files *f, const char *key_path, char key_id[SIGN_ID], error *err) {
    char digest[DIGEST_HEX], signature[SIGN_TEXT];
    str path = {0}, line = {0};
    sink s = {.fd = -1};
    status st = files_verify(f, false, err);
    if (st == CHURON_OK) st = files_digest(f, digest, err);
    if (st == CHURON_OK) st = sign_digest(key_path, digest, key_id, signature, err);
    if (st == CHURON_OK) st = sign_path(f, &path, err);
    if (st == CHURON_OK) str_fmt(&line, "ed25519 %s %s\n", key_id, signature);
    if (st == CHURON_OK) st = str_check(&line, err);
    if (st == CHURON_OK) st = sink_open(&s, str_cstr(&path), true, err);
    if (st == CHURON_OK)
        st = sink_write(&s, line.data, line.len, err); /* one write: lines of two processes stay whole */
    if (st == CHURON_OK) st = sink_close(&s, err);
    sink_drop(&s);
    str_free(&path);
    str_free(&line);
    return st;
}

/* Tries each line of the file. */
static status check_lines(char *text, const sign_keys *k, const char digest[DIGEST_HEX], char key_id[SIGN_ID],
                          error *err) {
    status st = CHURON_INVALID;
    char *rest = text;
    (void)error_set(err, CHURON_INVALID, "signature: expected one of a trusted key, got an empty file");
    for (char *line; st != CHURON_OK && (line = strtok_r(rest, "\n", &rest));) {
        char kind[16], id[SIGN_ID], signature[SIGN_TEXT];
        if (sscanf(line, "%15s %16s %88s", kind, id, signature) != 3 || strcmp(kind, "ed25519") != 0) {
            (void)error_set(err, CHURON_INVALID,
                            "signature: expected \"ed25519 KEY-ID BASE64\", got \"%.60s\"", line);
            continue;
        }
        st = sign_check(k, digest, id, signature, err);
        if (st == CHURON_OK) memcpy(key_id, id, SIGN_ID);
    }
    return st;
}

status sign_require_at(const files *f, const char *signatures, const sign_keys *k, char key_id[SIGN_ID],
                       error *err) {
    char digest[DIGEST_HEX];
    str text = {0};
    status st = CHURON_OK;
    key_id[0] = '\0';
    if (!file_exists(signatures)) {
        st = error_set(err, CHURON_INVALID, "signature: expected one in %s, got no such file", signatures);
    }
    if (st == CHURON_OK) st = files_verify(f, false, err);
    if (st == CHURON_OK) st = files_digest(f, digest, err);
    if (st == CHURON_OK) st = file_read(&text, signatures, BESIDE_MAX, err);
    if (st == CHURON_OK) str_put(&text, '\n');
    if (st == CHURON_OK) st = str_check(&text, err);
    if (st == CHURON_OK) st = check_lines(text.data, k, digest, key_id, err);
    if (st == CHURON_INVALID) error_prefix(err, "%s", files_path_of(f));
    str_free(&text);
    return st;
}

status sign_require(const files *f, const sign_keys *k, char key_id[SIGN_ID], error *err) {
    str path = {0};
    status st = sign_path(f, &path, err);
    if (st == CHURON_OK) st = sign_require_at(f, str_cstr(&path), k, key_id, err);
    str_free(&path);
    return st;
}

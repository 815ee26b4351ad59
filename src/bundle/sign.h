/* sign.h: Ed25519 signatures over a bundle's digest (files.h), so one holds for the folder and for its packs
 * alike.
 *
 * What is signed is "churon-bundle-signature-v1\n", the 64 digits of the digest, "\n". Signatures lie beside
 * what they are of: FILE.sig of a pack or a model file, FOLDER/.signatures of a folder; one line each:
 * "ed25519 KEY-ID BASE64". A key's id is the first 16 digits of the SHA-256 of its 32 public bytes. Keys are
 * PEM files (PKCS 8 and SubjectPublicKeyInfo), as `openssl genpkey -algorithm ed25519` makes them. */
#ifndef BUNDLE_SIGN_H
#define BUNDLE_SIGN_H

#include "bundle/files.h"

enum { SIGN_ID = 17, SIGN_TEXT = 89 }; /* 16 digits; base64 of 64 bytes; each with a zero */

/* Writes a new private key (mode 0600; never over a file that is there) and its public key. */
MUST_USE status sign_keygen(const char *private_path, const char *public_path, char key_id[SIGN_ID],
                            error *err);

MUST_USE status sign_digest(const char *key_path, const char digest[DIGEST_HEX], char key_id[SIGN_ID],
                            char signature[SIGN_TEXT], error *err);

/* Public keys that are trusted: one PEM file of one or more, or a folder of such files (.pem, .pub). */
typedef struct sign_keys sign_keys;
MUST_USE status sign_keys_load(sign_keys **out, const char *path, error *err);
void sign_keys_free(sign_keys *k);

/* Is the signature one of a trusted key over this digest? CHURON_INVALID: it is not. */
MUST_USE status sign_check(const sign_keys *k, const char digest[DIGEST_HEX], const char *key_id,
                           const char *signature, error *err);

/* Appends a signature to the file beside the bundle. */
MUST_USE status sign_files(const files *f, const char *key_path, char key_id[SIGN_ID], error *err);
/* CHURON_OK if a signature beside the bundle is one of a trusted key, over what the bundle holds now (a pack
 * is verified, see files_verify); key_id says whose. CHURON_INVALID: there is none; the message says why. */
MUST_USE status sign_require(const files *f, const sign_keys *k, char key_id[SIGN_ID], error *err);
/* The same with the signatures of another file. */
MUST_USE status sign_require_at(const files *f, const char *signatures, const sign_keys *k,
                                char key_id[SIGN_ID], error *err);
/* Appends the path of the file beside the bundle. */
MUST_USE status sign_path(const files *f, str *path, error *err);

#endif

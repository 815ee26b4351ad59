/* verified.h: which bytes were read and compared before, so that it is done once.
 *
 * Kept in the store's folder verified/: one small file for each object, named after device, inode, size and
 * both times (modification and change) of the files that it stands for; it holds the digest that was found.
 * Whoever can write there can write the store. Nothing is kept of a file that changed within the last second:
 * another change could carry the same times. All functions: any thread, any number of processes. */
#ifndef BUNDLE_VERIFIED_H
#define BUNDLE_VERIFIED_H

#include "base/digest.h"
#include "base/str.h"

#include <sys/stat.h>

/* Collects what stands for the object. Zero-initialise. */
typedef struct verified_key {
    str text;
    bool fresh; /* a file changed too recently */
} verified_key;

void verified_key_add(verified_key *k, const char *name, const struct stat *info);
void verified_key_free(verified_key *k);

/* The digest that was found before; false: nothing is known. */
bool verified_find(const verified_key *k, char hex[DIGEST_HEX]);
/* As far as the store can be written. */
void verified_remember(const verified_key *k, const char hex[DIGEST_HEX]);

#endif

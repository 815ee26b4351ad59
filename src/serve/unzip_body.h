/* unzip_body.h: request bodies that were sent compressed (Content-Encoding: gzip or deflate). */
#ifndef SERVE_UNZIP_BODY_H
#define SERVE_UNZIP_BODY_H

#include "base/status.h"

typedef enum body_coding { BODY_PLAIN, BODY_GZIP, BODY_DEFLATE } body_coding;

/* From Content-Encoding (NULL: plain). False: another one, or several. */
bool body_coding_of(const char *header, body_coding *out);
/* The bytes of *body [*n] in a new block with a zero behind them, which takes its place. CHURON_LIMIT if they
 * are more than `most`, of which no more is ever made. */
MUST_USE status unzip_body(body_coding coding, char **body, size_t *n, size_t most, error *err);

#endif

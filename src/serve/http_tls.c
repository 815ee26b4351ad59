/* http_tls.c: see http_tls.h. */
#include "serve/http_tls.h"

#include "base/mem.h"

#include <event2/bufferevent.h>
#include <event2/bufferevent_ssl.h>
#include <limits.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

struct http_tls {
    SSL_CTX *context;
};

static status refuse(error *err, const char *field, const char *path) {
    char why[160];
    ERR_error_string_n(ERR_get_error(), why, sizeof why);
    ERR_clear_error();
    return error_set(err, CHURON_INVALID, "%s: expected a PEM file, got %s (%s)", field, path, why);
}

status http_tls_create(http_tls **out, const char *cert, const char *key, error *err) {
    *out = NULL;
    status st = CHURON_OK;
    if (!cert || !key) {
        return error_set(err, CHURON_INVALID, "%s: expected beside %s, got neither file",
                         cert ? "tls-key" : "tls-cert", cert ? "tls-cert" : "tls-key");
    }
    http_tls *t = mem_calloc(1, sizeof *t);
    if (!t) return error_no_memory(err, "TLS", sizeof *t);
    t->context = SSL_CTX_new(TLS_server_method());
    if (!t->context || SSL_CTX_set_min_proto_version(t->context, TLS1_2_VERSION) != 1) {
        st = error_set(err, CHURON_NO_MEMORY, "TLS: the library gave no context");
        goto cleanup;
    }
    (void)SSL_CTX_set_options(t->context, SSL_OP_NO_RENEGOTIATION);
    if (SSL_CTX_use_certificate_chain_file(t->context, cert) != 1) {
        st = refuse(err, "tls-cert", cert);
        goto cleanup;
    }
    if (SSL_CTX_use_PrivateKey_file(t->context, key, SSL_FILETYPE_PEM) != 1 ||
        SSL_CTX_check_private_key(t->context) != 1) {
        st = refuse(err, "tls-key", key);
        goto cleanup;
    }
    *out = t;
    t = NULL;
cleanup:
    http_tls_free(t);
    return st;
}

void http_tls_free(http_tls *t) {
    if (!t) return;
    SSL_CTX_free(t->context);
    mem_free(t);
}

struct bufferevent *http_tls_accept(http_tls *t, struct event_base *base) {
    SSL *session = SSL_new(t->context);
    if (!session) return NULL;
    struct bufferevent *bev =
        bufferevent_openssl_socket_new(base, -1, session, BUFFEREVENT_SSL_ACCEPTING, BEV_OPT_CLOSE_ON_FREE);
    if (!bev) {
        SSL_free(session);
        return NULL;
    }
    bufferevent_openssl_set_allow_dirty_shutdown(bev, 1);
    return bev;
}

bool http_tls_write(struct bufferevent *bev, const char *bytes, size_t n) {
    SSL *ssl = bufferevent_openssl_get_ssl(bev);
    if (!ssl || n > INT_MAX || SSL_write(ssl, bytes, (int)n) != (int)n) return false;
    (void)SSL_shutdown(ssl);
    return true;
}

/* routes.h: which path does what: dispatch, authorization, errors, and the small endpoints. */
#ifndef SERVE_ROUTES_H
#define SERVE_ROUTES_H

#include "serve/http.h"
#include "serve/server.h"

void routes_dispatch(void *user, http_exchange *x); /* http_handler; user: server */
void routes_observe(void *user, int code);          /* http_observer */

#endif

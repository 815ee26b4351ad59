/* peer.c: see peer.h. */
#include "bench/peer.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

enum { OUTPUT_MAX_BYTES = 1 << 20, BATCHED_PROMPT = 16 };

status peer_read_bench(const char *json, size_t n, double *per_s, error *err) {
    json_error_t where;
    json_t *root = json_loadb(json, n, 0, &where);
    const json_t *rate = json_object_get(json_array_get(root, 0), "avg_ts");
    status st = CHURON_OK;
    if (!json_is_number(rate) || json_array_size(root) != 1 || json_number_value(rate) <= 0) {
        st = error_set(err, CHURON_INVALID,
                       "peer: field avg_ts: expected one JSON row with a number, got %.80s",
                       n ? json : "nothing");
    } else {
        *per_s = json_number_value(rate);
    }
    json_decref(root);
    return st;
}

/* The last line that is an object with speed_tg. */
status peer_read_batched(const char *jsonl, size_t n, double *per_s, error *err) {
    bool found = false;
    for (size_t at = 0; at < n;) {
        size_t len = strcspn(jsonl + at, "\n");
        json_error_t where;
        json_t *root = json_loadb(jsonl + at, len, 0, &where);
        const json_t *rate = json_object_get(root, "speed_tg");
        if (json_is_number(rate) && json_number_value(rate) > 0) {
            *per_s = json_number_value(rate);
            found = true;
        }
        json_decref(root);
        at += len + 1;
    }
    if (found) return CHURON_OK;
    return error_set(err, CHURON_INVALID,
                     "peer: field speed_tg: expected a line of JSON with a number, got %.80s",
                     n ? jsonl : "nothing");
}

/* 'text' for a shell. */
static void add_quoted(str *to, const char *text) {
    str_put(to, '\'');
    for (; *text; text++) {
        if (*text == '\'') {
            str_cat(to, "'\\''");
        } else {
            str_put(to, *text);
        }
    }
    str_put(to, '\'');
}

static status run_command(const char *command, str *out, error *err) {
    FILE *f = popen(command, "r");
    if (!f) return error_set(err, CHURON_IO, "peer: cannot run %.120s: %s", command, strerror(errno));
    char buf[4096];
    size_t n;
    while ((n = fread(buf, 1, sizeof buf, f)) > 0) {
        if (out->len + n <= OUTPUT_MAX_BYTES) str_add(out, buf, n);
    }
    int code = pclose(f);
    TRY(str_check(out, err));
    if (code == -1 || !WIFEXITED(code) || WEXITSTATUS(code) != 0) {
        return error_set(err, CHURON_IO, "peer: expected exit status 0 from %.200s, got %d", command,
                         code != -1 && WIFEXITED(code) ? WEXITSTATUS(code) : -1);
    }
    return CHURON_OK;
}

status peer_time(const char *command, const char *model, size_t threads, const bench_case *c, double *per_s,
                 error *err) {
    str line = {0}, out = {0};
    str_fmt(&line, "%s -m ", command);
    add_quoted(&line, model);
    if (c->parallel > 1) {
        str_fmt(&line, " -c %zu -npp %d -ntg %zu -npl %zu -t %zu -tb %zu --output-format jsonl",
                c->parallel * (BATCHED_PROMPT + c->gen), BATCHED_PROMPT, c->gen, c->parallel, threads,
                threads);
    } else {
        str_fmt(&line, " -p %zu -n %zu -d %zu -t %zu -r 1 -o json", c->prompt, c->gen, c->depth, threads);
    }
    str_cat(&line, " 2>/dev/null");
    status st;
    TRY_GOTO(str_check(&line, err));
    TRY_GOTO(run_command(line.data, &out, err));
    st = c->parallel > 1 ? peer_read_batched(str_cstr(&out), out.len, per_s, err)
                         : peer_read_bench(str_cstr(&out), out.len, per_s, err);
cleanup:
    str_free(&out);
    str_free(&line);
    return st;
}

/* http_head.c: see http_head.h. */
#include "serve/http_head.h"

#include <string.h>
#include <strings.h>

static void read_length(http_head *h, const char *line, size_t n) {
    static const char name[] = "content-length:";
    const size_t skip = sizeof name - 1;
    if (n < skip || strncasecmp(line, name, skip) != 0) return;
    size_t i = skip;
    while (i < n && (line[i] == ' ' || line[i] == '\t')) i++;
    const size_t first = i;
    uint64_t v = 0;
    for (; i < n && line[i] >= '0' && line[i] <= '9'; i++) {
        const uint64_t digit = (uint64_t)(line[i] - '0');
        v = v > (UINT64_MAX - digit) / 10 ? UINT64_MAX : v * 10 + digit;
    }
    if (i == first) return;
    h->has_length = true;
    h->length = v;
}

static void end_line(http_head *h) {
    size_t n = h->line_len;
    if (n <= sizeof h->line) {
        if (n && h->line[n - 1] == '\r') n--;
        read_length(h, h->line, n);
    }
    h->line_len = 0;
    if (n) h->any = true;
    h->complete = n == 0 && h->any; /* empty lines before a request count for nothing */
}

void http_head_feed(http_head *h, const char *bytes, size_t n) {
    for (size_t i = 0; i < n && !h->complete; i++) {
        if (bytes[i] == '\n') {
            end_line(h);
        } else {
            if (h->line_len < sizeof h->line) h->line[h->line_len] = bytes[i];
            h->line_len++;
        }
    }
}

/* cli.c: see cli.h. */
#include "cli/cli.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool reader_gone, write_failed;

static bool is_printed(unsigned char c) {
    return c >= 0x20 && c != 0x7f;
}

/* U+0080 to U+009F: terminals take them as ESC and a letter. */
static bool is_c1(const char *at) {
    return (unsigned char)at[0] == 0xc2 && (unsigned char)at[1] >= 0x80 && (unsigned char)at[1] < 0xa0;
}

void cli_text(str *out, const char *text, size_t most) {
    for (const char *at = text; *at && (size_t)(at - text) < most; at++) {
        if (*at == '\n' || *at == '\t' || *at == '\r') {
            str_cat(out, *at == '\n' ? "\\n" : *at == '\t' ? "\\t" : "\\r");
        } else if (is_c1(at)) {
            str_fmt(out, "\\x%02x", (unsigned char)*++at);
        } else if (!is_printed((unsigned char)*at)) {
            str_fmt(out, "\\x%02x", (unsigned char)*at);
        } else {
            str_put(out, *at);
        }
    }
}

static void print_line(const char *prefix, const char *fmt, va_list ap) {
    char line[1024];
    int n = vsnprintf(line, sizeof line, fmt, ap);
    if (n < 0) line[0] = '\0';
    for (char *at = line; *at; at++) {
        if (is_c1(at)) {
            *at++ = '?';
            *at = '?';
        } else if (!is_printed((unsigned char)*at)) {
            *at = '?';
        }
    }
    fprintf(stderr, "%s%s\n", prefix, line);
}

void cli_error(const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    print_line("churon: error: ", fmt, ap);
    va_end(ap);
}

const char *cli_size(uint64_t bytes, char buf[CLI_SIZE]) {
    static const char *const units[] = {"kB", "MB", "GB", "TB"};
    double size = (double)bytes / 1e3;
    size_t unit = 0;
    if (bytes < 1000) {
        snprintf(buf, CLI_SIZE, "%u bytes", (unsigned)bytes);
        return buf;
    }
    for (; size >= 999.95 && unit < 3; unit++) size /= 1e3;
    snprintf(buf, CLI_SIZE, "%.1f %s", size, units[unit]);
    return buf;
}

void cli_note(bool quiet, const char *fmt, ...) {
    if (quiet) return;
    va_list ap;
    va_start(ap, fmt);
    print_line("", fmt, ap);
    va_end(ap);
}

int cli_refuse(const char *command, const error *err) {
    cli_error("%s: %s", command, err->message);
    return EXIT_NO;
}

int cli_fail(const char *command, const error *err) {
    (void)cli_refuse(command, err);
    return err->code == CHURON_INVALID ? EXIT_USAGE : EXIT_NO;
}

void cli_name_file(error *err, const char *path) {
    if (!strstr(err->message, path)) error_prefix(err, "%.200s", path);
}

bool cli_write(const char *bytes, size_t n) {
    if (reader_gone || write_failed) return false;
    while (n > 0) {
        ssize_t k = write(STDOUT_FILENO, bytes, n);
        if (k < 0) {
            if (errno == EINTR) continue;
            if (errno == EPIPE) {
                reader_gone = true;
            } else {
                write_failed = true;
                cli_error("stdout: cannot write: %s", strerror(errno));
            }
            return false;
        }
        bytes += k;
        n -= (size_t)k;
    }
    return true;
}

int cli_finish(int result) {
    if (fflush(stdout) != 0 && errno != EPIPE && !write_failed) { /* help and version go through stdio */
        write_failed = true;
        cli_error("stdout: cannot write: %s", strerror(errno));
    }
    return write_failed && result == EXIT_YES ? EXIT_NO : result;
}

int cli_print_json(const str *json) {
    error err;
    if (str_check(json, &err) != CHURON_OK) return cli_refuse("json", &err);
    bool written = cli_write(json->data, json->len) && cli_write("\n", 1);
    return cli_finish(written || reader_gone ? EXIT_YES : EXIT_NO);
}

bool cli_is_terminal(int fd) {
    return isatty(fd) == 1;
}

bool cli_use_color(int fd) {
    const char *no_color = getenv("NO_COLOR"), *term = getenv("TERM");
    return cli_is_terminal(fd) && !(no_color && *no_color) && term && strcmp(term, "dumb") != 0;
}

/* editor.c: see editor.h. */
#include "cli/editor.h"

#include "base/mem.h"
#include "cli/cli.h"
#include "cli/line.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

enum { HISTORY_MAX = 500, PASTE_MAX_BYTES = 16 << 20, ESCAPE_WAIT_MS = 50 };

typedef enum key {
    KEY_BYTES, /* text */
    KEY_ENTER,
    KEY_NEW_LINE,
    KEY_LEFT,
    KEY_RIGHT,
    KEY_UP,
    KEY_DOWN,
    KEY_HOME,
    KEY_END,
    KEY_WORD_LEFT,
    KEY_WORD_RIGHT,
    KEY_BACKSPACE,
    KEY_DELETE,
    KEY_KILL_TO_END,
    KEY_KILL_TO_BEGIN,
    KEY_KILL_WORD,
    KEY_KILL_WORD_RIGHT,
    KEY_YANK,
    KEY_CLEAR_SCREEN,
    KEY_PASTE,
    KEY_INTERRUPT,
    KEY_END_OF_INPUT, /* Ctrl-D */
    KEY_SUSPEND,
    KEY_GONE, /* the terminal gives no more bytes */
    KEY_NONE
} key;

struct editor {
    line line;
    const char *prompt;
    char *history[HISTORY_MAX];
    size_t n_history;
    size_t at_history;       /* n_history: the message being written */
    str draft;               /* that message, while the history is looked at */
    size_t drawn_cursor_row; /* rows from the first drawn row to the cursor */
    unsigned char input[4096];
    size_t input_at, input_len;
};

/* ---- the terminal ----------------------------------------------------------------------------------- */

static struct termios original;
static atomic_bool is_raw;

void editor_restore_terminal(void) {
    static const char end_paste[] = "\x1b[?2004l";
    if (!atomic_exchange(&is_raw, false)) return;
    ssize_t ignored = write(STDOUT_FILENO, end_paste, sizeof end_paste - 1);
    (void)ignored;
    (void)tcsetattr(STDIN_FILENO, TCSADRAIN, &original);
}

static bool make_raw(void) {
    if (tcgetattr(STDIN_FILENO, &original) != 0) return false;
    struct termios raw = original;
    raw.c_iflag &= ~(tcflag_t)(BRKINT | ICRNL | INPCK | ISTRIP | IXON);
    raw.c_lflag &= ~(tcflag_t)(ECHO | ICANON | IEXTEN | ISIG);
    raw.c_cc[VMIN] = 1;
    raw.c_cc[VTIME] = 0;
    if (tcsetattr(STDIN_FILENO, TCSADRAIN, &raw) != 0) return false;
    atomic_store(&is_raw, true);
    return cli_write("\x1b[?2004h", 8);
}

static void screen_size(size_t *columns, size_t *rows) {
    struct winsize size;
    bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 && size.ws_row > 0;
    *columns = known ? size.ws_col : 80;
    *rows = known ? size.ws_row : 24;
}

/* ---- drawing ---------------------------------------------------------------------------------------- */

static void draw_row(const editor *e, const line_row *row, bool is_first, str *out) {
    if (is_first) {
        bool color = cli_use_color(STDOUT_FILENO);
        str_fmt(out, "%s%s%s", color ? "\x1b[1;32m" : "", e->prompt, color ? "\x1b[0m" : "");
    } else {
        for (size_t i = 0; i < row->column; i++) str_put(out, ' ');
    }
    for (size_t at = row->begin; at < row->end;) {
        size_t next = line_next(&e->line, at);
        const char *bytes = e->line.text.data + at;
        unsigned char c = (unsigned char)*bytes;
        if (c == '\t') {
            str_cat(out, "    ");
        } else if (utf8_validate(bytes, next - at) < next - at) {
            str_cat(out, "\xef\xbf\xbd");
        } else if (c == 0xc2 && (unsigned char)bytes[1] < 0xa0) {
            str_put(out, '?');
        } else {
            str_add(out, bytes, next - at);
        }
        at = next;
    }
}

static void move_up(str *out, size_t rows) {
    if (rows) str_fmt(out, "\x1b[%zuA", rows);
}

/* Draws the message anew from its first row. When it is higher than the screen, the rows around the cursor
 * are shown. */
static void draw(editor *e) {
    size_t columns, height;
    screen_size(&columns, &height);
    line_layout y;
    if (line_layout_make(&y, &e->line, columns, strlen(e->prompt), NULL) != CHURON_OK) return;
    size_t shown = y.n < height ? y.n : height;
    size_t top = y.cursor_row < shown ? 0 : y.cursor_row - shown + 1;
    str out = {0};
    move_up(&out, e->drawn_cursor_row);
    str_cat(&out, "\r\x1b[J");
    for (size_t i = 0; i < shown; i++) {
        if (i) str_cat(&out, "\r\n");
        draw_row(e, &y.rows[top + i], top + i == 0, &out);
    }
    e->drawn_cursor_row = y.cursor_row - top;
    move_up(&out, shown - 1 - e->drawn_cursor_row);
    str_put(&out, '\r');
    if (y.cursor_column) str_fmt(&out, "\x1b[%zuC", y.cursor_column);
    if (!out.failed) (void)cli_write(out.data, out.len);
    str_free(&out);
    line_layout_free(&y);
}

/* Leaves the message on the screen and goes below it. */
static void leave_message(editor *e) {
    e->line.cursor = e->line.text.len;
    draw(e);
    (void)cli_write("\r\n", 2);
    e->drawn_cursor_row = 0;
}

/* ---- keys ------------------------------------------------------------------------------------------- */

/* The next byte, or -1: no more (wait < 0), or none within `wait` ms. */
static int next_byte(editor *e, int wait) {
    while (e->input_at == e->input_len) {
        if (wait >= 0) {
            struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};
            if (poll(&p, 1, wait) <= 0) return -1;
        }
        ssize_t n = read(STDIN_FILENO, e->input, sizeof e->input);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return -1;
        e->input_at = 0;
        e->input_len = (size_t)n;
    }
    return e->input[e->input_at++];
}

/* After ESC [: parameters and a final byte, as ECMA-48 writes control sequences. */
static key control_sequence(editor *e) {
    char params[16];
    size_t n = 0;
    int c;
    while ((c = next_byte(e, ESCAPE_WAIT_MS)) >= 0 && (c < 0x40 || c > 0x7e)) {
        if (n + 1 < sizeof params) params[n++] = (char)c;
    }
    params[n] = '\0';
    bool with_modifier = strchr(params, ';') != NULL;
    switch (c) {
    case 'A': return KEY_UP;
    case 'B': return KEY_DOWN;
    case 'C': return with_modifier ? KEY_WORD_RIGHT : KEY_RIGHT;
    case 'D': return with_modifier ? KEY_WORD_LEFT : KEY_LEFT;
    case 'H': return KEY_HOME;
    case 'F': return KEY_END;
    case '~':
        switch (atoi(params)) {
        case 1:
        case 7: return KEY_HOME;
        case 4:
        case 8: return KEY_END;
        case 3: return KEY_DELETE;
        case 200: return KEY_PASTE;
        default: return KEY_NONE;
        }
    default: return KEY_NONE;
    }
}

static key escape_sequence(editor *e) {
    int c = next_byte(e, ESCAPE_WAIT_MS);
    switch (c) {
    case '[': return control_sequence(e);
    case 'O':
        c = next_byte(e, ESCAPE_WAIT_MS);
        return c == 'A'   ? KEY_UP
               : c == 'B' ? KEY_DOWN
               : c == 'C' ? KEY_RIGHT
               : c == 'D' ? KEY_LEFT
               : c == 'H' ? KEY_HOME
               : c == 'F' ? KEY_END
                          : KEY_NONE;
    case '\r':
    case '\n': return KEY_NEW_LINE;
    case 'b': return KEY_WORD_LEFT;
    case 'f': return KEY_WORD_RIGHT;
    case 'd': return KEY_KILL_WORD_RIGHT;
    case 0x7f: return KEY_KILL_WORD;
    default: return KEY_NONE;
    }
}

/* Reads one key. Text: its bytes (one whole character, or bytes that are none) in `bytes`. */
static key read_key(editor *e, char bytes[4], size_t *n) {
    int c = next_byte(e, -1);
    switch (c) {
    case -1: return KEY_GONE;
    case '\r': return KEY_ENTER;
    case '\n': return KEY_NEW_LINE;
    case 0x01: return KEY_HOME;
    case 0x02: return KEY_LEFT;
    case 0x03: return KEY_INTERRUPT;
    case 0x04: return KEY_END_OF_INPUT;
    case 0x05: return KEY_END;
    case 0x06: return KEY_RIGHT;
    case 0x08:
    case 0x7f: return KEY_BACKSPACE;
    case 0x0b: return KEY_KILL_TO_END;
    case 0x0c: return KEY_CLEAR_SCREEN;
    case 0x0e: return KEY_DOWN;
    case 0x10: return KEY_UP;
    case 0x15: return KEY_KILL_TO_BEGIN;
    case 0x17: return KEY_KILL_WORD;
    case 0x19: return KEY_YANK;
    case 0x1a: return KEY_SUSPEND;
    case 0x1b: return escape_sequence(e);
    default: break;
    }
    if (c < 0x20 && c != '\t') return KEY_NONE;
    bytes[0] = (char)c;
    *n = 1;
    size_t want = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc2 ? 2 : 1;
    while (*n < want && (c = next_byte(e, ESCAPE_WAIT_MS)) >= 0) bytes[(*n)++] = (char)c;
    return KEY_BYTES;
}

/* Everything up to ESC [201~ becomes part of the message. */
static void paste(editor *e) {
    static const char end[] = "\x1b[201~";
    const size_t end_len = sizeof end - 1;
    str pasted = {0};
    int c;
    while (pasted.len < PASTE_MAX_BYTES && (c = next_byte(e, 2000)) >= 0) {
        str_put(&pasted, (char)c);
        if (c == '~' && pasted.len >= end_len &&
            memcmp(pasted.data + pasted.len - end_len, end, end_len) == 0) {
            pasted.len -= end_len;
            break;
        }
    }
    line_insert(&e->line, str_cstr(&pasted), pasted.len);
    str_free(&pasted);
}

/* ---- history ---------------------------------------------------------------------------------------- */

static void remember(editor *e) {
    const str *t = &e->line.text;
    bool is_again = e->n_history && strcmp(e->history[e->n_history - 1], str_cstr(t)) == 0;
    if (t->len == 0 || is_again) return;
    char *copy = mem_strndup(t->data, t->len);
    if (!copy) return;
    if (e->n_history == HISTORY_MAX) {
        mem_free(e->history[0]);
        memmove(e->history, e->history + 1, (HISTORY_MAX - 1) * sizeof *e->history);
        e->n_history--;
    }
    e->history[e->n_history++] = copy;
}

static void show_history(editor *e, size_t at) {
    if (e->at_history == e->n_history) {
        str_clear(&e->draft);
        str_add(&e->draft, str_cstr(&e->line.text), e->line.text.len);
    }
    e->at_history = at;
    const char *text = at == e->n_history ? str_cstr(&e->draft) : e->history[at];
    line_set(&e->line, text, strlen(text));
}

static void go_up_or_down(editor *e, bool down) {
    size_t to = line_vertical(&e->line, e->line.cursor, down);
    if (to != e->line.cursor) {
        e->line.cursor = to;
    } else if (down && e->at_history < e->n_history) {
        show_history(e, e->at_history + 1);
    } else if (!down && e->at_history > 0) {
        show_history(e, e->at_history - 1);
    }
}

/* ---- the editor ------------------------------------------------------------------------------------- */

static void edit(editor *e, key k) {
    line *l = &e->line;
    size_t at = l->cursor;
    switch (k) {
    case KEY_LEFT: l->cursor = line_prev(l, at); break;
    case KEY_RIGHT: l->cursor = line_next(l, at); break;
    case KEY_WORD_LEFT: l->cursor = line_word_prev(l, at); break;
    case KEY_WORD_RIGHT: l->cursor = line_word_next(l, at); break;
    case KEY_HOME: l->cursor = line_begin(l, at); break;
    case KEY_END: l->cursor = line_end(l, at); break;
    case KEY_UP: go_up_or_down(e, false); break;
    case KEY_DOWN: go_up_or_down(e, true); break;
    case KEY_BACKSPACE: line_delete(l, line_prev(l, at), at); break;
    case KEY_DELETE: line_delete(l, at, line_next(l, at)); break;
    case KEY_KILL_TO_END: line_kill(l, at, line_end(l, at) > at ? line_end(l, at) : line_next(l, at)); break;
    case KEY_KILL_TO_BEGIN: line_kill(l, line_begin(l, at), at); break;
    case KEY_KILL_WORD: line_kill(l, line_word_prev(l, at), at); break;
    case KEY_KILL_WORD_RIGHT: line_kill(l, at, line_word_next(l, at)); break;
    case KEY_YANK: line_insert(l, str_cstr(&l->killed), l->killed.len); break;
    case KEY_NEW_LINE: line_insert(l, "\n", 1); break;
    case KEY_PASTE: paste(e); break;
    case KEY_CLEAR_SCREEN:
        (void)cli_write("\x1b[H\x1b[2J", 7);
        e->drawn_cursor_row = 0;
        break;
    default: break;
    }
}

static bool suspend(editor *e) {
    leave_message(e);
    editor_restore_terminal();
    raise(SIGTSTP);
    return make_raw();
}

/* True when the message is complete or the user leaves. */
static bool handle(editor *e, key k, const char *bytes, size_t n, editor_result *result) {
    switch (k) {
    case KEY_BYTES: line_insert(&e->line, bytes, n); return false;
    case KEY_ENTER: *result = EDITOR_TEXT; return true;
    case KEY_GONE: *result = EDITOR_END; return true;
    case KEY_INTERRUPT:
        if (e->line.text.len == 0) {
            *result = EDITOR_INTERRUPT;
            return true;
        }
        leave_message(e);
        line_set(&e->line, "", 0);
        e->at_history = e->n_history;
        return false;
    case KEY_END_OF_INPUT:
        if (e->line.text.len == 0) {
            *result = EDITOR_END;
            return true;
        }
        edit(e, KEY_DELETE);
        return false;
    case KEY_SUSPEND: *result = EDITOR_FAILED; return !suspend(e);
    default: edit(e, k); return false;
    }
}

/* A terminal that cannot move its cursor: the line as the system's own line discipline gives it. */
static editor_result read_plain(editor *e, const char *prompt, str *text) {
    str_clear(text);
    (void)cli_write(prompt, strlen(prompt));
    int c;
    while ((c = next_byte(e, -1)) >= 0 && c != '\n') str_put(text, (char)c);
    if (text->failed) return EDITOR_FAILED;
    return c < 0 && text->len == 0 ? EDITOR_END : EDITOR_TEXT;
}

editor_result editor_read(editor *e, const char *prompt, str *text) {
    const char *term = getenv("TERM");
    if (!term || !*term || strcmp(term, "dumb") == 0) return read_plain(e, prompt, text);
    e->prompt = prompt;
    e->drawn_cursor_row = 0;
    e->at_history = e->n_history;
    line_set(&e->line, "", 0);
    if (!make_raw()) {
        editor_restore_terminal();
        return EDITOR_FAILED;
    }
    editor_result result = EDITOR_END;
    for (;;) {
        char bytes[4];
        size_t n = 0;
        if (e->input_at == e->input_len) draw(e); /* not between keys that have come already */
        key k = read_key(e, bytes, &n);
        if (handle(e, k, bytes, n, &result)) break;
    }
    leave_message(e);
    editor_restore_terminal();
    str_clear(text);
    if (result == EDITOR_TEXT) {
        str_add(text, str_cstr(&e->line.text), e->line.text.len);
        remember(e);
        if (text->failed) result = EDITOR_FAILED;
    }
    return result;
}

status editor_create(editor **out, error *err) {
    *out = mem_calloc(1, sizeof **out);
    return *out ? CHURON_OK : error_no_memory(err, "editor", sizeof **out);
}

void editor_free(editor *e) {
    if (!e) return;
    for (size_t i = 0; i < e->n_history; i++) mem_free(e->history[i]);
    line_free(&e->line);
    str_free(&e->draft);
    mem_free(e);
}

/* answer_limit.h: how much an answer may hold as text. */
#ifndef SERVE_API_ANSWER_LIMIT_H
#define SERVE_API_ANSWER_LIMIT_H

/* Elements of one output written as JSON, of all records together: some 160 MB and a second of writing. */
enum { ANSWER_MOST_ELEMENTS = 1 << 24 };

#endif

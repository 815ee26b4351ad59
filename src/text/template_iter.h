/* template_iter.h: the state of an iterator or generator; for template_iter.c and the filters that make one.
 */
#ifndef TEXT_TEMPLATE_ITER_H
#define TEXT_TEMPLATE_ITER_H

#include "text/template_internal.h"

typedef enum tpl_iter_op {
    TPL_I_PLAIN,     /* over a container or a string */
    TPL_I_REVERSED,  /* over a sequence or dict, from its end */
    TPL_I_ITEMS,     /* the filter items */
    TPL_I_LOOP_TEST, /* {% for x in src if test %} */
    TPL_I_SELECT,    /* select, reject, selectattr, rejectattr */
    TPL_I_MAP,
    TPL_I_UNIQUE,
    TPL_I_BATCH,
    TPL_I_SLICE
} tpl_iter_op;

struct tpl_iter {
    tpl_iter_op op;
    bool started, done, running;
    tvalue src;
    size_t at;
    tpl_iter *from;       /* of src, once started */
    const char *bad;      /* SELECT, MAP: wrong arguments, reported when first read */
    bool negate, by_path; /* SELECT, MAP */
    bool named;           /* SELECT: by a test, not by truth */
    tpl_path path;        /* UNIQUE too */
    tvalue name;          /* of the filter or test */
    const tpl_test *test; /* NULL: there is none of that name */
    tpl_args args;
    int64_t count; /* BATCH, SLICE */
    tvalue fill;
    tpl_dict *seen;       /* UNIQUE */
    const tpl_node *loop; /* LOOP_TEST */
    tpl_frame *frame;
};

MUST_USE status tpl_iter_new(tpl_rt *rt, tpl_iter_op op, tvalue src, tpl_iter **it, tvalue *out);

#endif

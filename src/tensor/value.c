/* value.c: tensors, sequences and maps as one thing; see tensor.h. */
#include "base/mem.h"
#include "tensor/tensor.h"

#include <stdatomic.h>

struct value_list {
    atomic_size_t references;
    size_t n;
    value items[];
};

value value_of_tensor(tensor t) {
    return (value){.kind = VALUE_TENSOR, .t = t};
}

status value_list_create(value *out, value_kind kind, size_t n, error *err) {
    *out = (value){0};
    size_t bytes;
    value_list *l = NULL;
    if (size_mul(n, sizeof(value), &bytes) && size_add(bytes, sizeof *l, &bytes)) l = mem_calloc(1, bytes);
    if (!l) return error_no_memory(err, "list of values", n);
    atomic_init(&l->references, 1);
    l->n = n;
    *out = (value){.kind = kind, .list = l};
    return CHURON_OK;
}

size_t value_count(const value *v) {
    if (v->kind == VALUE_SEQUENCE) return v->list ? v->list->n : 0;
    return v->kind == VALUE_MAP ? v->t.count : 0;
}

size_t value_n_items(const value *v) {
    return v->list ? v->list->n : 0;
}

value *value_item(const value *v, size_t i) {
    return v->list && i < v->list->n ? &v->list->items[i] : NULL;
}

value value_share(const value *v) {
    value copy = *v;
    copy.t = tensor_share(&v->t);
    /* Relaxed: a new reference is made from one that exists. */
    if (v->list) atomic_fetch_add_explicit(&v->list->references, 1, memory_order_relaxed);
    return copy;
}

void value_free(value *v) {
    value_list *l = v->list;
    tensor_free(&v->t);
    *v = (value){0};
    /* As for the storage of tensors: the last owner sees all that others did. */
    if (!l || atomic_fetch_sub_explicit(&l->references, 1, memory_order_acq_rel) != 1) return;
    for (size_t i = 0; i < l->n; i++) value_free(&l->items[i]);
    mem_free(l);
}

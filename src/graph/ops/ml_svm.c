/* ml_svm.c: SVMClassifier (libsvm's one against one, with Platt's probabilities, or one linear score a class)
 * and SVMRegressor. */
#include "base/mem.h"
#include "graph/ops/ml.h"
#include "graph/ops/ops.h"

#include <math.h>
#include <string.h>

typedef enum svm_kernel { SVM_LINEAR, SVM_POLY, SVM_RBF, SVM_SIGMOID } svm_kernel;

typedef struct svm {
    svm_kernel kernel;
    double gamma, coef0;
    int degree;
    const float *vectors; /* [n_vectors, c] */
    const float *weights; /* classifier [classes - 1, n_vectors] or [classes, c]; regressor [n_vectors] */
    const float *rho, *prob_a, *prob_b;
    const int64_t *per_class; /* [classes] vectors of each */
    size_t n_vectors, n_vector_values, n_weights, classes, n_rho, n_prob;
    bool one_class;
    ml_labels labels;
    ml_post post;
} svm;

/* ---- attributes ------------------------------------------------------------------------------------- */

static status read_kernel(op_node *n, svm *st, error *err) {
    static const char *const names[] = {"LINEAR", "POLY", "RBF", "SIGMOID", NULL};
    const float *params;
    size_t count;
    int kernel;
    TRY(op_attr_choice(n, "kernel_type", names, SVM_LINEAR, &kernel, err));
    st->kernel = (svm_kernel)kernel;
    TRY(op_attr_floats(n, "kernel_params", &params, &count, err));
    if (count != 0 && count != 3) {
        return op_error(n, err, CHURON_INVALID, "attribute 'kernel_params': expected 3 values, got %zu",
                        count);
    }
    if (count) {
        st->gamma = (double)params[0];
        st->coef0 = (double)params[1];
        if (!(params[2] >= 0 && params[2] <= 1000)) {
            return op_error(n, err, CHURON_INVALID,
                            "attribute 'kernel_params': expected a degree of 0 to 1000, got %g",
                            (double)params[2]);
        }
        st->degree = (int)params[2];
    }
    TRY(op_attr_floats(n, "coefficients", &st->weights, &st->n_weights, err));
    TRY(op_attr_floats(n, "support_vectors", &st->vectors, &st->n_vector_values, err));
    TRY(op_attr_floats(n, "rho", &st->rho, &st->n_rho, err));
    if (st->n_weights == 0) {
        return op_error(n, err, CHURON_INVALID, "attribute 'coefficients': expected values, got none");
    }
    return ml_post_read(n, &st->post, err);
}

static status expect_count(const op_node *n, const char *name, size_t want, size_t got, error *err) {
    if (want == got) return CHURON_OK;
    return op_error(n, err, CHURON_INVALID, "attribute '%s': expected %zu values, got %zu", name, want, got);
}

static status check_vectors(const op_node *n, const svm *st, error *err) {
    if (st->n_vectors && st->n_vector_values % st->n_vectors == 0 && st->n_vector_values) return CHURON_OK;
    return op_error(n, err, CHURON_INVALID,
                    "attribute 'support_vectors': expected a multiple of %zu values, got %zu", st->n_vectors,
                    st->n_vector_values);
}

static status classifier_prepare(op_node *n, error *err) {
    svm *st = nn_state(n, sizeof *st, err);
    if (!st) return CHURON_NO_MEMORY;
    size_t n_per_class, n_prob_b;
    TRY(ml_labels_read(n, "classlabels_ints", "classlabels_strings", &st->labels, err));
    TRY(read_kernel(n, st, err));
    TRY(op_attr_ints(n, "vectors_per_class", &st->per_class, &n_per_class, err));
    TRY(op_attr_floats(n, "prob_a", &st->prob_a, &st->n_prob, err));
    TRY(op_attr_floats(n, "prob_b", &st->prob_b, &n_prob_b, err));
    st->classes = st->labels.n ? st->labels.n : 1;
    for (size_t i = 0; i < n_per_class; i++) {
        if (st->per_class[i] < 0 || st->per_class[i] > INT32_MAX) {
            return op_error(n, err, CHURON_INVALID,
                            "attribute 'vectors_per_class': expected 0 or more, got %lld",
                            (long long)st->per_class[i]);
        }
        st->n_vectors += (size_t)st->per_class[i];
    }
    if (st->n_vectors == 0) {
        st->kernel = SVM_LINEAR;
        if (st->n_rho == 0 || st->n_weights % st->classes) {
            return op_error(
                n, err, CHURON_INVALID,
                "attributes 'rho' and 'coefficients': expected 1 and a multiple of %zu values, got "
                "%zu and %zu",
                st->classes, st->n_rho, st->n_weights);
        }
        return CHURON_OK;
    }
    size_t pairs = st->classes * (st->classes - 1) / 2;
    TRY(expect_count(n, "vectors_per_class", st->classes, n_per_class, err));
    TRY(expect_count(n, "coefficients", (st->classes - 1) * st->n_vectors, st->n_weights, err));
    TRY(expect_count(n, "prob_b", st->n_prob, n_prob_b, err));
    TRY(check_vectors(n, st, err));
    if (st->n_rho < pairs || (st->n_prob && st->n_prob != pairs) || pairs == 0) {
        return op_error(
            n, err, CHURON_INVALID,
            "attributes 'rho' and 'prob_a': expected a value for each of %zu pairs of classes, got "
            "%zu and %zu",
            pairs, st->n_rho, st->n_prob);
    }
    return CHURON_OK;
}

static status regressor_prepare(op_node *n, error *err) {
    svm *st = nn_state(n, sizeof *st, err);
    if (!st) return CHURON_NO_MEMORY;
    int64_t n_supports;
    TRY(read_kernel(n, st, err));
    TRY(op_attr_int(n, "n_supports", 0, 0, INT32_MAX, &n_supports, err));
    TRY(op_attr_bool(n, "one_class", false, &st->one_class, err));
    st->n_vectors = (size_t)n_supports;
    st->classes = 1;
    if (st->n_rho == 0)
        return op_error(n, err, CHURON_INVALID, "attribute 'rho': expected 1 value, got none");
    if (st->n_vectors == 0) {
        st->kernel = SVM_LINEAR;
        return CHURON_OK;
    }
    TRY(expect_count(n, "coefficients", st->n_vectors, st->n_weights, err));
    return check_vectors(n, st, err);
}

/* ---- kernels ---------------------------------------------------------------------------------------- */

static double power(double x, int n) {
    double y = 1;
    for (; n > 0; n >>= 1) {
        if (n & 1) y *= x;
        x *= x;
    }
    return y;
}

static double kernel_of(const svm *st, const double *x, const float *v, size_t c) {
    double sum = 0;
    if (st->kernel == SVM_RBF) {
        for (size_t i = 0; i < c; i++) {
            double d = x[i] - (double)v[i];
            sum += d * d;
        }
        return exp(-st->gamma * sum);
    }
    for (size_t i = 0; i < c; i++) sum += x[i] * (double)v[i];
    switch (st->kernel) {
    case SVM_POLY: return power(st->gamma * sum + st->coef0, st->degree);
    case SVM_SIGMOID: return tanh(st->gamma * sum + st->coef0);
    default: return sum;
    }
}

/* ---- one against one -------------------------------------------------------------------------------- */

/* Scores of all pairs of classes and the votes for each class. values [n_vectors]: kernels of the row. */
static void pair_scores(const svm *st, const double *values, double *scores, double *votes) {
    for (size_t i = 0; i < st->classes; i++) votes[i] = 0;
    size_t pair = 0, at_i = 0;
    for (size_t i = 0; i < st->classes; i++) {
        size_t n_i = (size_t)st->per_class[i], at_j = at_i + n_i;
        for (size_t j = i + 1; j < st->classes; j++) {
            size_t n_j = (size_t)st->per_class[j];
            const float *w_i = st->weights + (j - 1) * st->n_vectors, *w_j = st->weights + i * st->n_vectors;
            double sum = 0;
            for (size_t k = at_i; k < at_i + n_i; k++) sum += (double)w_i[k] * values[k];
            for (size_t k = at_j; k < at_j + n_j; k++) sum += (double)w_j[k] * values[k];
            scores[pair] = sum + (double)st->rho[pair];
            votes[scores[pair] > 0 ? i : j]++;
            pair++;
            at_j += n_j;
        }
        at_i += n_i;
    }
}

/* Probabilities of classes from those of pairs: Wu, Lin and Weng (2004), second method, as libsvm has it.
 * r, q: [k, k], qp: [k] scratch. */
static void couple(size_t k, const double *r, double *q, double *qp, double *p) {
    for (size_t t = 0; t < k; t++) {
        p[t] = 1 / (double)k;
        q[t * k + t] = 0;
        for (size_t j = 0; j < k; j++) {
            if (j == t) continue;
            q[t * k + t] += r[j * k + t] * r[j * k + t];
            q[t * k + j] = -r[j * k + t] * r[t * k + j];
        }
    }
    size_t rounds = k > 100 ? k : 100;
    for (size_t round = 0; round < rounds; round++) {
        double pqp = 0, worst = 0;
        for (size_t t = 0; t < k; t++) {
            qp[t] = 0;
            for (size_t j = 0; j < k; j++) qp[t] += q[t * k + j] * p[j];
            pqp += p[t] * qp[t];
        }
        for (size_t t = 0; t < k; t++) worst = fmax(worst, fabs(qp[t] - pqp));
        if (worst < 0.005 / (double)k) break;
        for (size_t t = 0; t < k; t++) {
            double diff = (pqp - qp[t]) / q[t * k + t];
            p[t] += diff;
            pqp = (pqp + diff * (diff * q[t * k + t] + 2 * qp[t])) / ((1 + diff) * (1 + diff));
            for (size_t j = 0; j < k; j++) {
                qp[j] = (qp[j] + diff * q[t * k + j]) / (1 + diff);
                p[j] /= 1 + diff;
            }
        }
    }
}

static void probabilities(const svm *st, const double *scores, double *work, double *p) {
    size_t k = st->classes, pair = 0;
    double *r = work, *q = r + k * k, *qp = q + k * k;
    for (size_t i = 0; i < k; i++) {
        for (size_t j = i + 1; j < k; j++, pair++) {
            double v = 1 - ml_logistic(scores[pair] * (double)st->prob_a[pair] + (double)st->prob_b[pair]);
            v = fmin(fmax(v, 1e-7), 1 - 1e-7);
            r[i * k + j] = v;
            r[j * k + i] = 1 - v;
        }
    }
    couple(k, r, q, qp, p);
}

/* ---- classifier ------------------------------------------------------------------------------------- */

static size_t n_scores(const svm *st) {
    if (st->n_vectors == 0 || st->n_prob) return st->classes;
    return st->classes * (st->classes - 1) / 2;
}

/* One score is written as two, for both classes. */
static size_t n_written(const svm *st) {
    return n_scores(st) == 1 && st->labels.n == 2 && st->post != ML_PROBIT ? 2 : n_scores(st);
}

static status check_columns(op_shapes *s, const svm *st, error *err) {
    bool known;
    dim n, c;
    TRY(ml_rows(s, &known, &n, &c, err));
    size_t want = st->n_vectors ? st->n_vector_values / st->n_vectors : st->n_weights / st->classes;
    if (!known || !dim_known(c) || (size_t)c == want) return CHURON_OK;
    return op_error(shapes_node(s), err, CHURON_INVALID, "X: expected %zu columns, got %lld", want,
                    (long long)c);
}

static status classifier_infer(op_shapes *s, error *err) {
    const svm *st = shapes_state(s);
    TRY(check_columns(s, st, err));
    if (op_has_output(shapes_node(s), 0)) shapes_out_type(s, 0, ml_labels_type(&st->labels));
    TRY(ml_rows_out(s, 0, 0, err));
    return ml_rows_out(s, 1, (int64_t)n_written(st), err);
}

typedef struct svm_work {
    double *x, *values, *scores, *votes, *p, *matrix;
} svm_work;

static status take_work(op_run *r, const svm *st, size_t c, svm_work *w, error *err) {
    size_t k = st->classes, square = st->n_vectors ? k * k : 0, pairs = square + k + 2;
    void *p;
    TRY(run_scratch(r, (c + st->n_vectors + pairs + 5 * k + 2 * square + 8) * sizeof(double), &p, err));
    w->x = p;
    w->values = w->x + c;
    w->scores = w->values + st->n_vectors;
    w->votes = w->scores + pairs;
    w->p = w->votes + k + 1;
    w->matrix = w->p + k + 2;
    return CHURON_OK;
}

/* The class of a row, and its scores in w->p [n_written]. */
static size_t classify(const svm *st, size_t c, const svm_work *w) {
    size_t k = n_scores(st), class;
    if (st->n_vectors == 0) {
        for (size_t j = 0; j < st->classes; j++) {
            w->p[j] = (double)st->rho[0] + kernel_of(st, w->x, st->weights + j * c, c);
        }
        class = ml_argmax(w->p, k);
        if (k == 1) class = w->p[0] > 0 ? 1 : 0;
    } else {
        for (size_t v = 0; v < st->n_vectors; v++) {
            w->values[v] = kernel_of(st, w->x, st->vectors + v * c, c);
        }
        pair_scores(st, w->values, w->scores, w->votes);
        class = ml_argmax(w->votes, st->classes);
        if (st->n_prob) {
            probabilities(st, w->scores, w->matrix, w->p);
        } else {
            memcpy(w->p, w->scores, k * sizeof *w->p);
        }
    }
    if (n_written(st) > k) { /* the score of the pair is that of its first class: the other's is opposite */
        w->p[1] = w->p[0];
        w->p[0] = -w->p[0];
    }
    ml_post_apply(st->post, w->p, n_written(st));
    return class;
}

static void load_row(const tensor *x, size_t row, size_t c, double *to) {
    elem_to_f64(x->type, (const char *)x->data + row * c * elem_describe(x->type)->bytes, to, c);
}

static status classifier_run(op_run *r, error *err) {
    const svm *st = run_state(r);
    const tensor *x = run_in(r, 0);
    tensor *y, *z;
    svm_work w;
    size_t n, c, width = n_written(st);
    TRY(run_out(r, 0, &y, err));
    TRY(run_out(r, 1, &z, err));
    ml_rows_of(x, &n, &c);
    TRY(take_work(r, st, c, &w, err));
    for (size_t row = 0; row < n; row++) {
        if (row % 64 == 0) TRY(run_check(r, err));
        load_row(x, row, c, w.x);
        size_t class = classify(st, c, &w);
        if (y) TRY(ml_label_set(&st->labels, y, row, class, err));
        for (size_t i = 0; z && i < width; i++) ((float *)z->data)[row * width + i] = (float)w.p[i];
    }
    return CHURON_OK;
}

/* ---- regressor -------------------------------------------------------------------------------------- */

static status regressor_infer(op_shapes *s, error *err) {
    TRY(check_columns(s, shapes_state(s), err));
    return ml_rows_out(s, 0, 1, err);
}

static status regressor_run(op_run *r, error *err) {
    const svm *st = run_state(r);
    const tensor *x = run_in(r, 0);
    tensor *y;
    svm_work w;
    size_t n, c;
    TRY(run_out(r, 0, &y, err));
    ml_rows_of(x, &n, &c);
    TRY(take_work(r, st, c, &w, err));
    for (size_t row = 0; row < n; row++) {
        if (row % 64 == 0) TRY(run_check(r, err));
        load_row(x, row, c, w.x);
        double sum = st->n_vectors ? 0 : kernel_of(st, w.x, st->weights, c);
        for (size_t v = 0; v < st->n_vectors; v++) {
            sum += (double)st->weights[v] * kernel_of(st, w.x, st->vectors + v * c, c);
        }
        sum += (double)st->rho[0];
        if (st->one_class) sum = sum > 0 ? 1 : -1;
        ml_post_apply(st->post, &sum, 1);
        ((float *)y->data)[row] = (float)sum;
    }
    return CHURON_OK;
}

static const op_def rows[] = {
    {.domain = ML_DOMAIN,
     .name = "SVMClassifier",
     .since = 1,
     .signature = "T>@f",
     .vars = {{'T', ML_NUMBERS}},
     .prepare = classifier_prepare,
     .release = mem_free,
     .infer = classifier_infer,
     .run = classifier_run},
    {.domain = ML_DOMAIN,
     .name = "SVMRegressor",
     .since = 1,
     .signature = "T>f",
     .vars = {{'T', ML_NUMBERS}},
     .prepare = regressor_prepare,
     .release = mem_free,
     .infer = regressor_infer,
     .run = regressor_run},
};

NN_TABLE(ml_svm);

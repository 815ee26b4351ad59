/* rows_body.h: softmax, layer normalization and the product with a matrix of one row, once for every
 * instruction set (lanes.h, which has v_row_sum and v_row_max as well).
 *
 * Sums and maxima run in LANES independent chains, value i in chain i % LANES, then the tree of
 * kernel/vector.h, so all instruction sets round alike. The last values of a row are filled up with what
 * changes nothing. */

enum { V_PER_ROW = LANES / V_LANES };

/* Lanes of vector k of the `left` values from a multiple of LANES on. */
static inline size_t rows_lanes(size_t left, size_t k) {
    const size_t before = k * V_LANES;
    return left <= before ? 0 : left - before < V_LANES ? left - before : V_LANES;
}

static inline void rows_take(const float *x, size_t n, size_t i, float fill, V v[V_PER_ROW]) {
    const size_t left = n - i;
    if (left >= LANES) {
        for (size_t k = 0; k < V_PER_ROW; k++) v[k] = v_load(x + i + k * V_LANES);
        return;
    }
    for (size_t k = 0; k < V_PER_ROW; k++) {
        const size_t lanes = rows_lanes(left, k);
        v[k] = lanes ? v_load_fill(x + i + k * V_LANES, lanes, v_set(fill)) : v_set(fill);
    }
}

static inline void rows_put(float *y, size_t n, size_t i, const V v[V_PER_ROW]) {
    const size_t left = n - i;
    for (size_t k = 0; k < V_PER_ROW; k++) {
        const size_t lanes = rows_lanes(left, k);
        if (lanes == V_LANES) {
            v_store(y + i + k * V_LANES, v[k]);
        } else if (lanes) {
            v_store_part(y + i + k * V_LANES, lanes, v[k]);
        }
    }
}

/* Ends of a row are filled with -infinity: exp makes zeros of them. A NaN anywhere is in the sum. */
static void softmax_row(const float *x, float *y, size_t n) {
    V v[V_PER_ROW], acc[V_PER_ROW];
    if (n == 0) return;
    for (size_t k = 0; k < V_PER_ROW; k++) acc[k] = v_set(-INFINITY);
    for (size_t i = 0; i < n; i += LANES) {
        rows_take(x, n, i, -INFINITY, v);
        for (size_t k = 0; k < V_PER_ROW; k++) acc[k] = v_max(acc[k], v[k]);
    }
    const V most = v_set(v_row_max(acc));
    for (size_t k = 0; k < V_PER_ROW; k++) acc[k] = v_set(0.0f);
    for (size_t i = 0; i < n; i += LANES) {
        rows_take(x, n, i, -INFINITY, v);
        for (size_t k = 0; k < V_PER_ROW; k++) {
            v[k] = v_exp_low(v_min(v_set(0.0f), v_sub(v[k], most))); /* a NaN may have lowered `most` */
            acc[k] = v_add(acc[k], v[k]);
        }
        rows_put(y, n, i, v);
    }
    const V scale = v_set(1.0f / v_row_sum(acc));
    for (size_t i = 0; i < n; i += LANES) {
        rows_take(y, n, i, 0.0f, v);
        for (size_t k = 0; k < V_PER_ROW; k++) v[k] = v_mul(v[k], scale);
        rows_put(y, n, i, v);
    }
}

static void layer_norm_row(const float *x, const float *w, const float *b, size_t n, float eps, float *y) {
    V v[V_PER_ROW], acc[V_PER_ROW], other[V_PER_ROW];
    if (n == 0) return;
    for (size_t k = 0; k < V_PER_ROW; k++) acc[k] = v_set(0.0f);
    for (size_t i = 0; i < n; i += LANES) {
        rows_take(x, n, i, 0.0f, v);
        for (size_t k = 0; k < V_PER_ROW; k++) acc[k] = v_add(acc[k], v[k]);
    }
    const float mean = v_row_sum(acc) / (float)n;
    const V center = v_set(mean);
    for (size_t k = 0; k < V_PER_ROW; k++) acc[k] = v_set(0.0f);
    for (size_t i = 0; i < n; i += LANES) {
        rows_take(x, n, i, mean, v);
        for (size_t k = 0; k < V_PER_ROW; k++) {
            const V d = v_sub(v[k], center);
            acc[k] = v_fma(d, d, acc[k]);
        }
    }
    const V scale = v_set(1.0f / sqrtf(v_row_sum(acc) / (float)n + eps));
    for (size_t i = 0; i < n; i += LANES) {
        rows_take(x, n, i, mean, v);
        for (size_t k = 0; k < V_PER_ROW; k++) v[k] = v_mul(v_sub(v[k], center), scale);
        if (w) {
            rows_take(w, n, i, 0.0f, other);
            for (size_t k = 0; k < V_PER_ROW; k++) v[k] = v_mul(v[k], other[k]);
        }
        if (b) {
            rows_take(b, n, i, 0.0f, other);
            for (size_t k = 0; k < V_PER_ROW; k++) v[k] = v_add(v[k], other[k]);
        }
        rows_put(y, n, i, v);
    }
}

/* Values of y [n] and `rows` rows of b at a time: as many streams as the processor reads ahead. */
static inline void add_rows(const float *a, const float *b, size_t ldb, size_t rows, bool first, size_t n,
                            float *y) {
    V s[8];
    for (size_t r = 0; r < rows; r++) s[r] = v_set(a[r]);
    size_t j = 0;
    for (; j + V_LANES <= n; j += V_LANES) {
        V acc = first ? v_set(0.0f) : v_load(y + j);
        for (size_t r = 0; r < rows; r++) acc = v_fma(s[r], v_load(b + r * ldb + j), acc);
        v_store(y + j, acc);
    }
    if (j == n) return;
    V acc = first ? v_set(0.0f) : v_load_part(y + j, n - j);
    for (size_t r = 0; r < rows; r++) acc = v_fma(s[r], v_load_part(b + r * ldb + j, n - j), acc);
    v_store_part(y + j, n - j, acc);
}

static void vector_matrix_row(const float *a, const float *b, size_t ldb, size_t k, size_t n, float *y) {
    size_t i = 0;
    for (; i + 8 <= k; i += 8) add_rows(a + i, b + i * ldb, ldb, 8, i == 0, n, y);
    if (i < k || k == 0) add_rows(a + i, b + i * ldb, ldb, k - i, i == 0, n, y);
}

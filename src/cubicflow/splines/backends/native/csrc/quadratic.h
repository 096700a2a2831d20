/* The bins of the quadratic spline. Heights are areas under a density that is linear between the knots, as in
   quadratic.py:

       v_j = exp(param)                          A = sum of w_j (v_j + v_j+1) / 2
       d_j = uniform + (1 - uniform) v_j / A     h_j = w_j (d_j + d_j+1) / 2 */
#ifndef CUBICFLOW_QUADRATIC_H
#define CUBICFLOW_QUADRATIC_H

#include "bins.h"

struct densities {
    REAL *vertices, *values; /* v and d: [K + 1][VL], in the order of params */
    VEC area, share;         /* A, and (1 - uniform) / A */
};

INLINE int64_t densities_reals(const struct spline_call *call) {
    return call->kind == QUADRATIC ? 2 * (call->num_bins + 1) * VL : 0;
}

/* The mean of values j and j + 1 of count values. In the mirrored lanes j counts from the other end. */
INLINE VEC between(const REAL *values, int64_t count, int64_t j, MASK mirrored) {
    return R(0.5) * (from_end(values, count, j, mirrored) + from_end(values, count, j + 1, mirrored));
}

/* The counterpart of make_axes. The uniform part of the density turns the floor on widths into a floor on heights:
   h_j = uniform (floor + scale x numerator_j) + (1 - uniform) w_j (v_j + v_j+1) / 2 / A. With large params most bins
   are close to that floor. The floor is kept apart from the numerators, so sums over such bins round once instead of
   once per bin. own holds densities_reals reals. */
INLINE struct densities make_quadratic_axes(const struct spline_call *call, const REAL *params, MASK mirrored,
                                            REAL *room, REAL *own, struct axis *widths, struct axis *heights) {
    int64_t k = call->num_bins, every = settle_every(k);
    REAL *w_numerators = room, *w_before = room + k * VL, *h_numerators = room + 2 * k * VL;
    REAL *h_before = room + 3 * k * VL;
    const REAL *logits = params + k * VL;
    struct densities d = {.vertices = own, .values = own + (k + 1) * VL};
    VEC zero = splat(0), w_most = maximum(params, k), v_most = maximum(logits, k + 1);
    struct sum w = {zero, zero}, area = {zero, zero}, h = {zero, zero};
    for (int64_t j = 0; j < k; j++) {
        if (j % every == 0) w = (struct sum){sum_value(w), zero};
        VEC here = vec_exp_below(from_end(params, k, j, mirrored) - w_most);
        store(w_numerators + j * VL, here);
        store(w_before + j * VL, sum_value(w));
        w.recent += here;
    }
    VEC total = sum_value(w);
    *widths = (struct axis){w_numerators, w_before, total, R(1 - (double)k * call->min_width) / total, R(call->min_width)};
    for (int64_t j = 0; j <= k; j++) store(d.vertices + j * VL, vec_exp_below(load(logits + j * VL) - v_most));
    for (int64_t j = 0; j < k; j++) {
        if (j % every == 0) area = (struct sum){sum_value(area), zero};
        VEC here = axis_size(widths, load(w_numerators + j * VL)) * between(d.vertices, k + 1, j, mirrored);
        store(h_numerators + j * VL, here);
        area.recent += here;
    }
    REAL uniform = R((double)k * call->min_height);
    d.area = sum_value(area);
    d.share = R(1 - (double)k * call->min_height) / d.area;
    for (int64_t j = 0; j <= k; j++) store(d.values + j * VL, uniform + d.share * load(d.vertices + j * VL));
    for (int64_t j = 0; j < k; j++) {
        if (j % every == 0) h = (struct sum){sum_value(h), zero};
        VEC here = uniform * widths->scale * load(w_numerators + j * VL) + d.share * load(h_numerators + j * VL);
        store(h_numerators + j * VL, here);
        store(h_before + j * VL, sum_value(h));
        h.recent += here;
    }
    *heights = (struct axis){h_numerators, h_before, sum_value(h), splat(1), uniform * widths->floor};
    return d;
}

/* Turn, in place, the gradients of K widths, K heights and K + 1 densities into the gradients of the 2K + 1 params. All
   gradients are in the order of params. */
INLINE void quadratic_backward(int64_t num_bins, const struct axis *widths, const struct densities *d, MASK mirrored,
                               REAL *grads) {
    int64_t k = num_bins;
    REAL *of_widths = grads, *of_heights = grads + k * VL, *of_values = grads + 2 * k * VL;
    VEC zero = splat(0), of_area = zero, mean = zero, left = zero, right;
    MASK nowhere = lt(zero, zero);
    for (int64_t j = 0; j <= k; j++, left = right) {
        right = zero;
        if (j < k) {
            VEC size = axis_size(widths, from_end(widths->numerators, k, j, mirrored));
            right = R(0.5) * load(of_heights + j * VL) * size;
        }
        VEC grad = load(of_values + j * VL) + (left + right);
        store(of_values + j * VL, grad);
        of_area -= grad * load(d->vertices + j * VL);
    }
    of_area *= d->share / d->area;
    for (int64_t j = 0; j < k; j++) {
        VEC grad = load(of_widths + j * VL) + load(of_heights + j * VL) * between(d->values, k + 1, j, nowhere);
        grad += of_area * between(d->vertices, k + 1, j, nowhere);
        store(of_widths + j * VL, grad);
        mean += from_end(widths->numerators, k, j, mirrored) * grad;
    }
    mean /= widths->total;
    left = zero;
    for (int64_t j = 0; j <= k; j++, left = right) {
        right = zero;
        VEC of_value = load(of_values + j * VL); /* load first: the store at j = K overwrites of_values[0] */
        if (j < k) {
            VEC numerator = from_end(widths->numerators, k, j, mirrored);
            right = R(0.5) * axis_size(widths, numerator);
            store(of_widths + j * VL, widths->scale * numerator * (load(of_widths + j * VL) - mean));
        }
        store(of_heights + j * VL, load(d->vertices + j * VL) * (d->share * of_value + of_area * (left + right)));
    }
}

#endif

/* Turn params into bins, for VL splines at a time. The formulas are in bins.py. */
#ifndef CUBICFLOW_BINS_H
#define CUBICFLOW_BINS_H

#include "unit.h"

/* A running sum in two levels. Terms are added to "recent", and every few terms "recent" is added to "settled". The sum
   of K terms then has about 2 sqrt(K) roundings, for one more addition per term. For nonnegative terms the sum never
   decreases: x -> round(settled + x) is nondecreasing, and settling does not change the value. */
struct sum {
    VEC settled, recent;
};

INLINE int64_t settle_every(int64_t num_bins) { return num_bins <= 16 ? 4 : num_bins <= 64 ? 8 : 16; }

INLINE VEC sum_value(struct sum s) { return s.settled + s.recent; }

/* One axis of VL splines: the numerators of the softmax and their running sums. A size is floor + scale x numerator. */
struct axis {
    const REAL *numerators; /* [K][VL] */
    const REAL *before;     /* [K][VL], the sum of all numerators before each one; nondecreasing */
    VEC total;
    VEC scale;
    REAL floor;
};

/* The number of reals for params. A backward overwrites params with gradients; a quadratic spline then has gradients of
   widths, heights and densities. */
INLINE int64_t params_reals(const struct spline_call *call) {
    return (call->kind == QUADRATIC ? 3 * call->num_bins + 1 : call->num_params) * VL;
}

INLINE VEC axis_size(const struct axis *a, VEC numerator) { return a->floor + a->scale * numerator; }

/* The position of knot j, given the sum of the numerators before knot j. */
INLINE VEC axis_knot(const struct axis *a, VEC j, VEC before) { return j * a->floor + a->scale * before; }

/* Value j of count values. In the lanes of the mask, j counts from the other end. */
INLINE VEC from_end(const REAL *values, int64_t count, int64_t j, MASK lanes) {
    return pick(lanes, load(values + (count - 1 - j) * VL), load(values + j * VL));
}

INLINE VEC maximum(const REAL *values, int64_t count) {
    VEC most = load(values);
    for (int64_t j = 1; j < count; j++) most = larger(load(values + j * VL), most);
    return most;
}

/* Make both axes of VL splines. In the mirrored lanes an axis is read from its other end. room holds 4 K VL reals. */
INLINE void make_axes(const struct spline_call *call, const REAL *params, MASK mirrored, REAL *room,
                      struct axis *widths, struct axis *heights) {
    int64_t k = call->num_bins, every = settle_every(k);
    REAL *w_numerators = room, *w_before = room + k * VL, *h_numerators = room + 2 * k * VL;
    REAL *h_before = room + 3 * k * VL;
    VEC w_most = maximum(params, k), h_most = maximum(params + k * VL, k), zero = splat(0);
    struct sum w = {zero, zero}, h = {zero, zero};
    for (int64_t j = 0; j < k; j++) {
        if (j % every == 0) {
            w = (struct sum){sum_value(w), zero};
            h = (struct sum){sum_value(h), zero};
        }
        VEC w_here = vec_exp_below(from_end(params, k, j, mirrored) - w_most);
        VEC h_here = vec_exp_below(from_end(params + k * VL, k, j, mirrored) - h_most);
        store(w_numerators + j * VL, w_here);
        store(h_numerators + j * VL, h_here);
        store(w_before + j * VL, sum_value(w));
        store(h_before + j * VL, sum_value(h));
        w.recent += w_here;
        h.recent += h_here;
    }
    VEC w_total = sum_value(w), h_total = sum_value(h);
    REAL w_free = R(1 - (double)k * call->min_width), h_free = R(1 - (double)k * call->min_height);
    *widths = (struct axis){w_numerators, w_before, w_total, w_free / w_total, R(call->min_width)};
    *heights = (struct axis){h_numerators, h_before, h_total, h_free / h_total, R(call->min_height)};
}

/* The slope at one end of a bin, in units of the bin's secant. "next" is the bin beyond that end. "edge" marks the
   lanes without a next bin. */
struct end {
    VEC slope;
    struct ratio ratio;
    VEC rise; /* the next bin's secant over this bin's secant */
    VEC parabola;
    VEC per_both; /* 1 / (w + w_next) */
    MASK edge;
};

INLINE struct end make_end(int kind, MASK edge, struct ratio ratio, VEC w, VEC h, VEC w_next, VEC h_next) {
    if (given_slopes(kind)) return (struct end){.slope = ratio.value * w / h, .ratio = ratio};
    /* rise = (h_next w) / (h w_next) and parabola = (rise w + w_next) / (w + w_next) share one denominator. The
       denominator cannot underflow: native.refuses() keeps the floors above the fourth root of the smallest number. */
    struct end e;
    VEC both = w + w_next, base = h * w_next, per_all = 1 / (base * both);
    VEC crossed = h_next * w;
    e.edge = edge;
    e.ratio = ratio;
    e.rise = crossed * both * per_all;
    e.parabola = (crossed * w + base * w_next) * per_all;
    e.per_both = base * per_all;
    VEC least = smaller(e.rise, splat(1));
    e.slope = pick(edge, ratio.value, kind == FREE ? ratio.value * least : smaller(e.parabola, 2 * least));
    return e;
}

/* Make both ends of a bin. Steffen's spline has ratios at the two edges only, so with two or more bins a bin needs at
   most one ratio. */
INLINE void make_ends(const struct spline_call *call, MASK first, MASK last, VEC start_logit, VEC end_logit, VEC w,
                      VEC h, VEC w_before, VEC h_before, VEC w_after, VEC h_after, struct end *start, struct end *end) {
    int kind = (int)call->kind, two = kind != STEFFEN || call->num_bins == 1;
    struct ratio at_start = make_ratio(kind, two ? start_logit : pick(first, start_logit, end_logit));
    struct ratio at_end = two ? make_ratio(kind, end_logit) : at_start;
    *start = make_end(kind, first, at_start, w, h, w_before, h_before);
    *end = make_end(kind, last, at_end, w, h, w_after, h_after);
}

/* Gradients with respect to the sizes of the bin before, the bin itself and the bin after. */
struct near_grads {
    VEC before, here, after;
};

/* grad is the gradient of e.slope. Adds to the gradients of the sizes, and returns the gradient of the logit. */
INLINE VEC end_backward(int kind, const struct end *e, VEC grad, VEC w, VEC h, VEC w_next, VEC h_next, VEC *grad_w,
                        VEC *grad_h, VEC *grad_w_next, VEC *grad_h_next) {
    if (given_slopes(kind)) {
        VEC of_w = grad * e->ratio.value / h, per_secant = w / h;
        *grad_w += of_w;
        *grad_h -= of_w * per_secant;
        return grad * per_secant * e->ratio.dot;
    }
    VEC zero = splat(0), least = smaller(e->rise, splat(1));
    /* The secants of both bins, times both widths. For bins of equal sizes these two numbers are exactly equal. Their
       rise is a product with a rounded reciprocal, so it may differ from 1. */
    VEC base = h * w_next, crossed = h_next * w;
    MASK falls = lt(crossed, base);
    VEC grad_log_rise, grad_logit;
    if (kind == FREE) {
        /* Equal secants share the gradient of their minimum, as in torch. */
        VEC share = pick(falls, e->rise, only_if(eq(crossed, base), splat(R(0.5))));
        grad_log_rise = grad * e->ratio.value * share;
        grad_logit = grad * e->ratio.dot * pick(e->edge, splat(1), least);
    } else {
        MASK smooth = le(e->parabola, 2 * least);
        VEC scaled = grad * e->per_both;
        grad_log_rise = pick(smooth, scaled * e->rise * w, only_if(falls, 2 * grad * e->rise));
        *grad_w += pick(e->edge, zero, only_if(smooth, scaled * (e->rise - e->parabola)));
        *grad_w_next += pick(e->edge, zero, only_if(smooth, scaled * (1 - e->parabola)));
        grad_logit = only_if(e->edge, grad * e->ratio.dot);
    }
    grad_log_rise = pick(e->edge, zero, grad_log_rise);
    *grad_h_next += grad_log_rise / h_next;
    *grad_h -= grad_log_rise / h;
    *grad_w += grad_log_rise / w;
    *grad_w_next -= grad_log_rise / w_next;
    return grad_logit;
}

#endif

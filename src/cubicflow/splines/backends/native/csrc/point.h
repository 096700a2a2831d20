/* One point in one bin: forward, inverse and the backward of both. The formulas are in evaluation.py. */
#ifndef CUBICFLOW_POINT_H
#define CUBICFLOW_POINT_H

#include "unit.h"

/* The records in domains.py use these names. */
#define DOMAINS(EACH) EACH(REAL_LINE) EACH(UNIT_INTERVAL)
enum { DOMAINS(LISTED) };

/* The bin of an element, seen from the nearer end of the interval. "in" is the input axis: widths in the forward map,
   heights in the inverse. */
struct bin {
    VEC in_size, in_before;
    VEC out_size, out_before, out_after;
    VEC start, end;
    MASK first, last;
};

/* The position of an element on the input axis. */
struct point {
    VEC low;               /* distance from the nearer end */
    VEC log_low, log_high; /* real line only: logs of the distances from both ends */
    MASK mirrored;
    MASK outside; /* unit interval only */
};

INLINE struct point make_point(int domain, VEC x, int with_logs) {
    struct point p;
    if (domain == REAL_LINE) {
        p.mirrored = lt(splat(0), x);
        p.outside = lt(splat(0), splat(0));
        VEC below = pick(p.mirrored, -x, x);
        VEC tail;
        p.low = vec_sigmoid_below(below, &tail);
        p.log_low = p.log_high = splat(0);
        if (with_logs) {
            p.log_high = -vec_log1p(tail);
            p.log_low = below + p.log_high;
        }
    } else {
        MASK under = lt(x, splat(0)), over = lt(splat(1), x);
        VEC clamped = pick(under, splat(0), pick(over, splat(1), x));
        p.mirrored = lt(1 - clamped, clamped);
        p.low = pick(p.mirrored, 1 - clamped, clamped);
        p.outside = under | over;
        p.log_low = p.log_high = splat(0);
    }
    return p;
}

/* The intermediate values that forward and backward share. */
struct passage {
    struct shape shape;
    VEC near;   /* position in the bin on the input axis, from 0 to 1 */
    VEC secant; /* height over width */
    VEC low, high;
};

INLINE struct passage pass(const struct spline_call *call, VEC low, const struct bin *b) {
    int kind = (int)call->kind;
    struct passage p;
    /* A point within an ulp of a knot may land outside its bin, at either end. At the upper end, the sum before the next
       bin rounds differently from in_before + in_size. At the lower end, the search in rows.h compares low with j floor
       + scale before, and axis_knot computes in_before by the same expression; but the compiler may fuse the multiply
       and the add in another way there, so that in_before is an ulp above low. Outside the bin the root would be that
       of a negative discriminant, and a small end slope could make f' negative. With near in [0, 1] both are sums of
       nonnegative terms. This order of arguments keeps NaN. The gradient ignores the clamp, as in evaluation.py. */
    p.near = smaller(splat(1), larger(splat(0), (low - b->in_before) / b->in_size));
    VEC far = 1 - p.near;
    if (call->inverse) {
        VEC t, tau;
        solve(kind, b->start, b->end, p.near, far, &t, &tau);
        p.shape = make_shape(kind, t, tau, b->start, b->end);
        p.secant = b->in_size / b->out_size;
        p.low = b->out_before + b->out_size * p.shape.t;
        p.high = b->out_after + b->out_size * p.shape.tau;
    } else {
        p.shape = make_shape(kind, p.near, far, b->start, b->end);
        p.secant = b->out_size / b->in_size;
        p.low = b->out_before + b->out_size * (p.shape.t * p.shape.q);
        p.high = b->out_after + b->out_size * (p.shape.tau * p.shape.qbar);
    }
    return p;
}

/* evaluate_real and evaluate_unit of evaluation.py. */
INLINE void finish(const struct spline_call *call, const struct point *at, const struct bin *b, VEC *y,
                   VEC *log_slope) {
    int inverse = (int)call->inverse;
    struct passage p = pass(call, at->low, b);
    VEC slope = p.secant * p.shape.slope;
    if (call->domain == REAL_LINE) {
        /* In the first bin low_out is replaced by low_out / low_in. This ratio is secant x q (for the inverse, one over
           secant x q), even if both distances are tiny. In the last bin high_out is replaced by high_out / high_in.
           Then y and log_slope need one log each. */
        VEC zero = splat(0), one = splat(1), gain_low = p.secant * p.shape.q, gain_high = p.secant * p.shape.qbar;
        VEC ratio, gain;
        if (inverse) {
            VEC low = pick(b->first, one, p.low), high = pick(b->last, one, p.high);
            VEC over_low = pick(b->first, gain_low, one), over_high = pick(b->last, gain_high, one);
            ratio = (low * over_high) / (high * over_low);
            gain = (over_low * over_high) / (low * high * slope);
        } else {
            VEC low = pick(b->first, gain_low, p.low), high = pick(b->last, gain_high, p.high), rest = 1 / (low * high);
            ratio = low * low * rest;
            gain = slope * rest;
        }
        VEC out = pick(b->first, at->log_low, zero) - pick(b->last, at->log_high, zero) + vec_log(ratio);
        *y = pick(at->mirrored, -out, out);
        *log_slope = vec_log(gain) + (pick(b->first, zero, at->log_low) + pick(b->last, zero, at->log_high));
    } else {
        VEC low = pick(at->mirrored, p.high, p.low), high = pick(at->mirrored, p.low, p.high);
        *y = pick(lt(high, low), 1 - high, low);
        VEC result = vec_log(slope);
        *log_slope = pick(at->outside, splat(-R(__builtin_inf())), inverse ? -result : result);
    }
}

/* Gradients with respect to the fields of struct bin. */
struct bin_grads {
    VEC in_size, in_before;
    VEC out_size, out_before, out_after;
    VEC start, end;
};

/* Returns the gradient of x. Every formula is the chain rule through pass() and finish(). The derivative of the root
   comes from the implicit function theorem: dt = (dc - f_a da - f_b db) / f'. */
INLINE VEC finish_backward(const struct spline_call *call, const struct point *at, const struct bin *b, VEC grad_y,
                           VEC grad_log_slope, struct bin_grads *g) {
    int inverse = (int)call->inverse, kind = (int)call->kind;
    VEC zero = splat(0), sign = splat(inverse ? -1 : 1);
    struct passage p = pass(call, at->low, b);
    VEC t = p.shape.t, tau = p.shape.tau, start = b->start, end = b->end;
    grad_y = pick(at->mirrored, -grad_y, grad_y);

    VEC low, high;                       /* gradients of p.low and p.high */
    VEC log_q = zero, log_qbar = zero;   /* gradients of log(secant q), first bin, and log(secant qbar), last bin */
    VEC log_low = zero, log_high = zero; /* gradients of at->log_low and at->log_high */
    VEC log_secant_slope;
    if (call->domain == REAL_LINE) {
        VEC out_low = grad_y - grad_log_slope, out_high = -grad_y - grad_log_slope;
        low = pick(b->first, zero, out_low / p.low);
        high = pick(b->last, zero, out_high / p.high);
        log_q = only_if(b->first, sign * out_low);
        log_qbar = only_if(b->last, sign * out_high);
        log_low = pick(b->first, grad_y, grad_log_slope);
        log_high = pick(b->last, -grad_y, grad_log_slope);
        log_secant_slope = sign * grad_log_slope;
    } else {
        MASK lower = le(p.low, p.high);
        low = only_if(lower, grad_y);
        high = pick(lower, zero, -grad_y);
        log_secant_slope = pick(at->outside, zero, sign * grad_log_slope);
    }

    VEC q = p.shape.q, qbar = p.shape.qbar, slope = p.shape.slope;
    VEC of_q = log_q / q, of_qbar = log_qbar / qbar, of_slope = log_secant_slope / slope;
    VEC of_t = shape_along(kind, &p.shape, start, end, of_q, of_qbar, of_slope);
    VEC of_f = b->out_size * (low - high), near;
    if (inverse) {
        near = (of_f + of_t) / slope;
        of_f = -near;
    } else {
        near = of_f * slope + of_t;
    }
    shape_across(kind, &p.shape, of_f, of_q, of_qbar, of_slope, &g->start, &g->end);

    VEC log_secant = log_secant_slope + log_q + log_qbar;
    VEC per_size = 1 / b->in_size, grad_low = near * per_size;
    if (inverse) {
        g->out_size = low * t + high * tau - log_secant / b->out_size;
        g->in_size = (log_secant - near * p.near) * per_size;
    } else {
        g->out_size = low * (t * q) + high * (tau * qbar) + log_secant / b->out_size;
        g->in_size = -(log_secant + near * p.near) * per_size;
    }
    g->in_before = -grad_low;
    g->out_before = low;
    g->out_after = high;

    VEC grad_x;
    if (call->domain == REAL_LINE) {
        VEC u = at->low, v = 1 - u; /* u <= 1/2 */
        grad_x = v * (log_low + u * grad_low) - u * log_high;
    } else {
        grad_x = pick(at->outside, zero, grad_low);
    }
    return pick(at->mirrored, -grad_x, grad_x);
}

#endif

/* The bin's own unit square, for every family: the slope of a logit, the map f from [0, 1] onto itself, its derivatives
   and its root. bins.py, cubic.py, quadratic.py and rational_quadratic.py explain the formulas. */
#ifndef CUBICFLOW_UNIT_H
#define CUBICFLOW_UNIT_H

#include "call.h"
#include "simd.h"
#include "vecmath.h"

/* The kinds of splines. STEFFEN: cubics with Steffen's slopes. FREE: cubics with one slope param per knot. RATIONAL:
   rational quadratics, also with one slope param per knot. QUADRATIC: quadratics, whose slopes at the knots are
   densities. The records in families.py use these names. */
#define FAMILIES(EACH) EACH(STEFFEN) EACH(FREE) EACH(RATIONAL) EACH(QUADRATIC)
enum { FAMILIES(LISTED) };

/* Python checks these constants when it loads the library. */
#define MARGIN R(1e-3)
#define RATIO_SHIFT R(0.6936475558518466) /* log((2 - MARGIN) / (1 - MARGIN)), so that r(0) = 1 */
#define SOFTPLUS_ONE R(0.5413248546129181) /* log(e - 1), so that softplus(SOFTPLUS_ONE) = 1 */
#define NEWTON_STEPS (sizeof(REAL) == 4 ? 4 : 6) /* the values are explained in cubic.py */

/* Whether the params give slopes directly, instead of in units of secants. */
INLINE int given_slopes(int kind) { return kind == RATIONAL || kind == QUADRATIC; }

/* The slope that a logit gives, and its derivative with respect to the logit. */
struct ratio {
    VEC value, dot;
};

/* For a cubic, the value is r(logit), the slope in units of a secant. For the other kinds the value is the slope
   itself. A quadratic's "logit" already is the slope. */
INLINE struct ratio make_ratio(int kind, VEC logit) {
    if (kind == QUADRATIC) return (struct ratio){logit, splat(1)};
    if (kind == RATIONAL) {
        VEC shifted = logit + SOFTPLUS_ONE;
        MASK positive = lt(splat(0), shifted);
        VEC tail = vec_exp_below(pick(positive, -shifted, shifted)), sigmoid = 1 / (1 + tail);
        VEC softplus = larger(splat(0), shifted) + vec_log1p(tail); /* this order of arguments keeps NaN */
        return (struct ratio){MARGIN + (1 - MARGIN) * softplus,
                              (1 - MARGIN) * pick(positive, sigmoid, tail * sigmoid)};
    }
    VEC tail = vec_exp(RATIO_SHIFT - logit), sigmoid = 1 / (1 + tail);
    return (struct ratio){MARGIN + (3 - 2 * MARGIN) * sigmoid, (3 - 2 * MARGIN) * sigmoid * (tail * sigmoid)};
}

struct shape {
    VEC t, tau;
    VEC q, qbar, slope;
    VEC scale; /* one over the denominator; 1 for families without one */
};

INLINE struct shape make_shape(int kind, VEC t, VEC tau, VEC start, VEC end) {
    VEC tt = t * t, mixed = t * tau, tautau = tau * tau;
    struct shape s;
    s.t = t;
    s.tau = tau;
    s.scale = splat(1);
    if (kind == RATIONAL) {
        s.scale = 1 / (tt + (start + end) * mixed + tautau);
        s.q = (start * tau + t) * s.scale;
        s.qbar = (end * t + tau) * s.scale;
        s.slope = (start * tautau + 2 * mixed + end * tt) * (s.scale * s.scale);
        return s;
    }
    if (kind == QUADRATIC) {
        s.q = start * tau + t;
        s.qbar = end * t + tau;
        s.slope = start * tau + end * t;
        return s;
    }
    s.q = start * tautau + ((3 - end) * mixed + tt);
    s.qbar = end * tt + ((3 - start) * mixed + tautau);
    s.slope = larger(splat(0), start * tautau + (2 * (3 - start - end) * mixed + end * tt)); /* keeps NaN */
    return s;
}

/* _first_guess of cubic.py. */
INLINE VEC first_guess(VEC start, VEC end, VEC target) {
    VEC zero = splat(0), one = splat(1);
    VEC cubic = start + end - 2, quadratic = 3 - 2 * start - end;
    VEC denominator = start + square_root(start * start + 4 * larger(quadratic, zero) * target);
    VEC from_quadratic = smaller(2 * target / denominator, one);

    VEC most = 3 * cubic;
    MASK inflects = lt(zero, cubic) & le(-quadratic, most);
    VEC inflection = smaller(larger(-quadratic / most, zero), one), rest = 1 - inflection;
    VEC q = start * rest * rest + ((3 - end) * inflection * rest + inflection * inflection);
    VEC rise = (target - inflection * q) / cubic;
    MASK down = lt(rise, zero);
    VEC root = vec_exp(vec_log(pick(down, -rise, rise)) * R(1.0 / 3));
    VEC from_cubic = smaller(larger(inflection + pick(down, -root, root), zero), one);
    from_cubic = pick(le(zero, quadratic), smaller(from_quadratic, from_cubic), from_cubic);
    return pick(inflects, from_cubic, from_quadratic);
}

/* Returns t in [0, 1] with f(t) = c, for c <= 1/2, by bracketed Newton steps. See cubic.py. */
INLINE VEC cubic_root(VEC start, VEC end, VEC c) {
    VEC zero = splat(0), target = pick(lt(c, zero), zero, c);
    VEC t = first_guess(start, end, target), low = zero, high = splat(1);
#pragma GCC unroll 1
    for (int step = 0; step < NEWTON_STEPS; step++) {
        VEC tau = 1 - t, tt = t * t, mixed = t * tau, tautau = tau * tau;
        VEC q = start * tautau + ((3 - end) * mixed + tt);
        VEC slope = start * tautau + (2 * (3 - start - end) * mixed + end * tt);
        VEC residual = t * q - target;
        low = pick(le(residual, zero), t, low);
        high = pick(le(zero, residual), t, high);
        VEC newton = t - residual / slope;
        t = pick(le(low, newton) & le(newton, high), newton, (low + high) * R(0.5));
    }
    return t + 0 * (start + end + c); /* bisection replaced NaN by a number; restore NaN */
}

/* Returns the root t of a rational quadratic and sets rest to 1 - t. See rational_quadratic.py. */
INLINE VEC rational_root(VEC start, VEC end, VEC c, VEC *rest) {
    VEC slope = start * (1 - c) + (2 - end) * c, shifted = slope - 2 * c;
    VEC root = square_root(shifted * shifted + 4 * c * (1 - c));
    MASK rising = le(splat(0), slope);
    VEC t = pick(rising, 2 * c, root - slope) / pick(rising, slope + root, 2 * (1 - slope));
    *rest = pick(lt(splat(R(0.5)), t), 2 * (1 - c) / (2 - slope + root), 1 - t);
    return t;
}

INLINE VEC quadratic_root(VEC start, VEC c) {
    VEC shifted = start - 2 * c;
    return 2 * c / (start + square_root(shifted * shifted + 4 * c * (1 - c)));
}

/* Sets t and tau = 1 - t with f(t) = near, solved from the nearer end of the bin. */
INLINE void solve(int kind, VEC start, VEC end, VEC near, VEC far, VEC *t, VEC *tau) {
    MASK upper = lt(far, near);
    VEC c = pick(upper, far, near), from = pick(upper, end, start), to = pick(upper, start, end), root, rest;
    if (kind == RATIONAL) {
        root = rational_root(from, to, c, &rest);
    } else {
        root = kind == QUADRATIC ? quadratic_root(from, c) : cubic_root(from, to, c);
        rest = 1 - root;
    }
    *t = pick(upper, rest, root);
    *tau = pick(upper, root, rest);
}

/* Returns the gradient of t, given the gradients of q, qbar and f'. */
INLINE VEC shape_along(int kind, const struct shape *s, VEC start, VEC end, VEC of_q, VEC of_qbar, VEC of_slope) {
    VEC t = s->t, tau = s->tau, skew = tau - t, bend = end * t - start * tau;
    if (kind == RATIONAL) {
        VEC denominator_t = (start + end - 2) * skew;
        return s->scale * (of_q * (1 - start - s->q * denominator_t) + of_qbar * (end - 1 - s->qbar * denominator_t) +
                           2 * of_slope * ((bend + skew) * s->scale - s->slope * denominator_t));
    }
    if (kind == QUADRATIC) return of_q * (1 - start) + of_qbar * (end - 1) + of_slope * (end - start);
    return of_q * ((3 - end) * skew + 2 * (t - start * tau)) + of_qbar * ((3 - start) * skew + 2 * (end * t - tau)) +
           of_slope * (2 * (3 - start - end) * skew + 2 * bend);
}

/* Sets the gradients of start and end, given the gradients of f, q, qbar and f' at a fixed t. */
INLINE void shape_across(int kind, const struct shape *s, VEC of_f, VEC of_q, VEC of_qbar, VEC of_slope, VEC *grad_start,
                         VEC *grad_end) {
    VEC t = s->t, tau = s->tau;
    if (kind == RATIONAL) {
        VEC q = s->q, qbar = s->qbar, twice = 2 * of_slope * s->slope, steady = of_slope * s->scale;
        *grad_start = s->scale * tau * (tau * ((of_f * t + of_q) * qbar + steady) - t * (of_qbar * qbar + twice));
        *grad_end = s->scale * t * (t * ((of_qbar - of_f * tau) * q + steady) - tau * (of_q * q + twice));
    } else if (kind == QUADRATIC) { /* start + end = 2, so f is treated as a function of start alone */
        *grad_start = tau * (of_f * t + of_q + of_slope);
        *grad_end = t * (of_qbar + of_slope);
    } else {
        *grad_start = tau * (tau * (of_f * t + of_q + of_slope) - t * (of_qbar + 2 * of_slope));
        *grad_end = t * (t * (of_qbar + of_slope - of_f * tau) - tau * (of_q + 2 * of_slope));
    }
}

#endif

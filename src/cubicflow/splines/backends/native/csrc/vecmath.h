/* exp, log and log1p on vectors, without tables and without the C library.

   The largest errors found over the ranges that the kernel uses, in units in the last place of the result. The tests
   check these bounds.
       exp    1.3 for -87 <= x <= 88 (float), -708 <= x <= 709 (double), clamped outside; NaN stays NaN
       log    1 for every positive normal number; NaN stays NaN; numbers <= 0 are not detected
       log1p  1.5 for 0 <= x <= 1
       sigmoid  1.2 for x <= 0
   The polynomials are near-minimax (Chebyshev) fits on the reduced ranges, with errors below a tenth of a unit. */
#ifndef CUBICFLOW_VECMATH_H
#define CUBICFLOW_VECMATH_H

#include "simd.h"

/* Adding ROUND and subtracting it again rounds to an integer n. The low bits of the sum are n + bias. Shifted to the
   position of the exponent, these bits are the number 2^n. */
#ifdef DOUBLE
#define ROUND 6755399441056767.0 /* 1.5 x 2^52 + 1023 */
#define MANTISSA_BITS 52
#define EXP_MIN -708.0
#define EXP_MAX 709.0
#define LN2_HIGH 6.93147180369123816490e-01 /* has 32 bits, so that n x LN2_HIGH is exact */
#define LN2_LOW 1.90821492927058770002e-10
#else
#define ROUND 12583039.0f /* 1.5 x 2^23 + 127 */
#define MANTISSA_BITS 23
#define EXP_MIN -87.0f
#define EXP_MAX 88.0f
#define LN2_HIGH 0.693359375f /* has 10 bits */
#define LN2_LOW -2.12194440e-4f
#endif

/* The parts of exp(x) for x <= EXP_MAX. With x = n ln 2 + r and |r| <= ln(2) / 2, the parts are r, power = 2^n and
   p = (exp(r) - 1 - r) / r^2. */
struct exp_parts {
    VEC r, power, p;
};

INLINE struct exp_parts reduce_exp(VEC x) {
    x = larger(splat(EXP_MIN), x); /* this order of arguments keeps NaN */
    VEC shifted = x * R(1.4426950408889634) + ROUND;
    VEC n = shifted - ROUND;
    VEC r = (x - n * LN2_HIGH) - n * LN2_LOW;
#ifdef DOUBLE
    VEC p = r * 2.51004241570050668e-8 + 2.76201387197339956e-7;
    p = p * r + 2.75572683786841929e-6;
    p = p * r + 2.48015211902177277e-5;
    p = p * r + 1.98412698631059687e-4;
    p = p * r + 1.38888889172817933e-3;
    p = p * r + 8.33333333333005135e-3;
    p = p * r + 4.16666666666239915e-2;
    p = p * r + 1.66666666666666675e-1;
    p = p * r + 0.5;
#else
    VEC p = r * 1.3926213466e-3f + 8.3632029716e-3f;
    p = p * r + 4.1666554438e-2f;
    p = p * r + 1.6666576846e-1f;
    p = p * r + 0.5f;
#endif
    return (struct exp_parts){r, (VEC)((UVEC)shifted << MANTISSA_BITS), p};
}

/* Returns exp(x) for x <= EXP_MAX. */
INLINE VEC vec_exp_below(VEC x) {
    struct exp_parts e = reduce_exp(x);
    return ((e.p * e.r + 1) * e.r + 1) * e.power;
}

INLINE VEC vec_exp(VEC x) { return vec_exp_below(smaller(splat(EXP_MAX), x)); }

/* Returns top - quotient x bottom without rounding, for quotient = top / bottom. */
INLINE VEC remainder_of(VEC top, VEC quotient, VEC bottom) {
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
    return top - quotient * bottom; /* the compiler contracts this to one fused multiply-add */
#else
    /* Split both factors into halves. Products of halves are exact. */
    const INT upper = (INT)(~(UINT)0 << (MANTISSA_BITS / 2 + 1));
    VEC q = (VEC)((IVEC)quotient & upper), b = (VEC)((IVEC)bottom & upper), q_rest = quotient - q, b_rest = bottom - b;
    return ((top - q * b) - q * b_rest - q_rest * b) - q_rest * b_rest;
#endif
}

/* Returns exp(x) / (1 + exp(x)) for x <= 0, and sets exp_x to exp(x). The quotient decides on which side of a knot a
   point falls. Three roundings would be too imprecise for that, so their errors are computed and added back. */
INLINE VEC vec_sigmoid_below(VEC x, VEC *exp_x) {
    struct exp_parts e = reduce_exp(x);
    VEC s = e.r + e.r * e.r * e.p, sum = 1 + s;
    VEC top = sum * e.power, top_rest = (s - (sum - 1)) * e.power; /* their sum is exp(x) */
    VEC bottom = 1 + top, bottom_rest = (top - (bottom - 1)) + top_rest;
    VEC quotient = top / bottom;
    VEC rest = remainder_of(top, quotient, bottom) + (top_rest - quotient * bottom_rest);
    *exp_x = top;
    return quotient + rest * (1 - quotient); /* 1 / bottom is 1 - quotient */
}

/* Returns k ln 2 + log(1 + f) for 1 + f in [sqrt(1/2), sqrt(2)]. */
INLINE VEC log_reduced(VEC f, VEC k) {
#ifdef DOUBLE
    VEC s = f / (2 + f), z = s * s, half_square = 0.5 * f * f;
    VEC p = z * 0.130880348509275537 + 0.132686383692668239;
    p = p * z + 0.153862447376216666;
    p = p * z + 0.181817955475211362;
    p = p * z + 0.222222223925810451;
    p = p * z + 0.28571428570799785;
    p = p * z + 0.400000000000008832;
    p = p * z + 0.666666666666666665;
    /* 2 atanh(s) = 2s + s z p and 2s = f - f s. f^2 / 2 is split off so that the largest term is exact. */
    return k * LN2_HIGH + (f - (half_square - (s * (half_square + z * p) + k * LN2_LOW)));
#else
    VEC z = f * f;
    VEC p = f * 6.9716114715e-2f - 1.1479733847e-1f;
    p = p * f + 1.1685419923e-1f;
    p = p * f - 1.2425687331e-1f;
    p = p * f + 1.4249057646e-1f;
    p = p * f - 1.6667802320e-1f;
    p = p * f + 2.0000715749e-1f;
    p = p * f - 2.4999996958e-1f;
    p = p * f + 3.3333331180e-1f;
    return k * LN2_HIGH + (f + (z * (f * p - 0.5f) + k * LN2_LOW));
#endif
}

INLINE VEC vec_log(VEC x) {
    /* x = 2^k m with m in [sqrt(1/2), sqrt(2)). */
#ifdef DOUBLE
    const UINT half_root = 0x3fe6a09e667f3bcdULL, bias = 1023;
    UVEC exponent = ((UVEC)x - half_root + (bias << 52)) >> 52; /* k + bias, never negative */
    VEC m = (VEC)((UVEC)x - ((exponent - bias) << 52));
    VEC k = (VEC)(exponent | 0x4330000000000000ULL) - (4503599627370496.0 + (REAL)bias); /* 2^52 + bias */
#else
    /* The subtraction is unsigned, because the bits of -0.0 are the smallest signed number. The shift is signed. */
    IVEC exponent = (IVEC)((UVEC)x - 0x3f3504f3u) >> 23;
    VEC m = (VEC)((UVEC)x - ((UVEC)exponent << 23));
    VEC k = __builtin_convertvector(exponent, VEC);
#endif
    return log_reduced(m - 1, k) + (x - x); /* x - x keeps NaN */
}

/* Returns log(1 + x) for x in [0, 1]. */
INLINE VEC vec_log1p(VEC x) {
    MASK upper = lt(splat(R(0.41421356237309503)), x);
    return log_reduced(pick(upper, R(0.5) * (x - 1), x), only_if(upper, splat(1)));
}

#endif

/* One vector of REAL: VEC, with VL lanes, in the widest registers this file is compiled for.

   Arithmetic uses GNU vector extensions, which gcc and clang both support. This file adds what the extensions lack in
   C: comparisons to a MASK, selection by mask, square roots, and smaller(a, b) and larger(a, b), which return b if
   either is NaN. The rest of the kernel is the same source for every instruction set. */
#ifndef CUBICFLOW_SIMD_H
#define CUBICFLOW_SIMD_H

#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__) && defined(__AVX512DQ__) && defined(__AVX512VL__) && defined(__AVX512BW__)
#define VECTOR_BYTES 64
#define HAVE_MASK_REGISTERS 1
#elif defined(__AVX2__) && defined(__FMA__)
#define VECTOR_BYTES 32
#else
#define VECTOR_BYTES 16
#endif

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#ifdef DOUBLE
typedef double REAL;
typedef int64_t INT;
typedef uint64_t UINT;
#define VL (VECTOR_BYTES / 8)
#else
typedef float REAL;
typedef int32_t INT;
typedef uint32_t UINT;
#define VL (VECTOR_BYTES / 4)
#endif

typedef REAL VEC __attribute__((vector_size(VECTOR_BYTES)));
typedef INT IVEC __attribute__((vector_size(VECTOR_BYTES)));
typedef UINT UVEC __attribute__((vector_size(VECTOR_BYTES)));

#define INLINE static inline __attribute__((always_inline))
#define R(x) ((REAL)(x))

INLINE VEC splat(REAL value) { return value - (VEC){0}; }

INLINE VEC load(const REAL *from) {
    VEC v;
    memcpy(&v, from, sizeof v); /* an unaligned vector load */
    return v;
}

INLINE void store(REAL *to, VEC v) { memcpy(to, &v, sizeof v); }

#if defined(HAVE_MASK_REGISTERS)

#ifdef DOUBLE
typedef __mmask8 MASK;
#define COMPARE(a, b, how) _mm512_cmp_pd_mask((__m512d)(a), (__m512d)(b), how)
INLINE VEC pick(MASK m, VEC yes, VEC no) { return (VEC)_mm512_mask_blend_pd(m, (__m512d)no, (__m512d)yes); }
INLINE VEC square_root(VEC x) { return (VEC)_mm512_sqrt_pd((__m512d)x); }
INLINE VEC smaller(VEC a, VEC b) { return (VEC)_mm512_min_pd((__m512d)a, (__m512d)b); }
INLINE VEC larger(VEC a, VEC b) { return (VEC)_mm512_max_pd((__m512d)a, (__m512d)b); }
#else
typedef __mmask16 MASK;
#define COMPARE(a, b, how) _mm512_cmp_ps_mask((__m512)(a), (__m512)(b), how)
INLINE VEC pick(MASK m, VEC yes, VEC no) { return (VEC)_mm512_mask_blend_ps(m, (__m512)no, (__m512)yes); }
INLINE VEC square_root(VEC x) { return (VEC)_mm512_sqrt_ps((__m512)x); }
INLINE VEC smaller(VEC a, VEC b) { return (VEC)_mm512_min_ps((__m512)a, (__m512)b); }
INLINE VEC larger(VEC a, VEC b) { return (VEC)_mm512_max_ps((__m512)a, (__m512)b); }
#endif
INLINE MASK lt(VEC a, VEC b) { return COMPARE(a, b, _CMP_LT_OQ); }
INLINE MASK le(VEC a, VEC b) { return COMPARE(a, b, _CMP_LE_OQ); }
INLINE MASK eq(VEC a, VEC b) { return COMPARE(a, b, _CMP_EQ_OQ); }

#else

typedef IVEC MASK;
INLINE MASK lt(VEC a, VEC b) { return (MASK)(a < b); }
INLINE MASK le(VEC a, VEC b) { return (MASK)(a <= b); }
INLINE MASK eq(VEC a, VEC b) { return (MASK)(a == b); }

#if VECTOR_BYTES == 32 && defined(DOUBLE)
INLINE VEC pick(MASK m, VEC yes, VEC no) { return (VEC)_mm256_blendv_pd((__m256d)no, (__m256d)yes, (__m256d)m); }
INLINE VEC square_root(VEC x) { return (VEC)_mm256_sqrt_pd((__m256d)x); }
INLINE VEC smaller(VEC a, VEC b) { return (VEC)_mm256_min_pd((__m256d)a, (__m256d)b); }
INLINE VEC larger(VEC a, VEC b) { return (VEC)_mm256_max_pd((__m256d)a, (__m256d)b); }
#elif VECTOR_BYTES == 32
INLINE VEC pick(MASK m, VEC yes, VEC no) { return (VEC)_mm256_blendv_ps((__m256)no, (__m256)yes, (__m256)m); }
INLINE VEC square_root(VEC x) { return (VEC)_mm256_sqrt_ps((__m256)x); }
INLINE VEC smaller(VEC a, VEC b) { return (VEC)_mm256_min_ps((__m256)a, (__m256)b); }
INLINE VEC larger(VEC a, VEC b) { return (VEC)_mm256_max_ps((__m256)a, (__m256)b); }
#elif defined(__SSE2__) && defined(DOUBLE)
INLINE VEC pick(MASK m, VEC yes, VEC no) {
    return (VEC)_mm_or_pd(_mm_and_pd((__m128d)m, (__m128d)yes), _mm_andnot_pd((__m128d)m, (__m128d)no));
}
INLINE VEC square_root(VEC x) { return (VEC)_mm_sqrt_pd((__m128d)x); }
INLINE VEC smaller(VEC a, VEC b) { return (VEC)_mm_min_pd((__m128d)a, (__m128d)b); }
INLINE VEC larger(VEC a, VEC b) { return (VEC)_mm_max_pd((__m128d)a, (__m128d)b); }
#elif defined(__SSE2__)
INLINE VEC pick(MASK m, VEC yes, VEC no) {
    return (VEC)_mm_or_ps(_mm_and_ps((__m128)m, (__m128)yes), _mm_andnot_ps((__m128)m, (__m128)no));
}
INLINE VEC square_root(VEC x) { return (VEC)_mm_sqrt_ps((__m128)x); }
INLINE VEC smaller(VEC a, VEC b) { return (VEC)_mm_min_ps((__m128)a, (__m128)b); }
INLINE VEC larger(VEC a, VEC b) { return (VEC)_mm_max_ps((__m128)a, (__m128)b); }
#else
INLINE VEC pick(MASK m, VEC yes, VEC no) { return (VEC)((m & (IVEC)yes) | (~m & (IVEC)no)); }
INLINE VEC smaller(VEC a, VEC b) { return pick(lt(a, b), a, b); }
INLINE VEC larger(VEC a, VEC b) { return pick(lt(b, a), a, b); }
INLINE VEC square_root(VEC x) {
    for (int lane = 0; lane < VL; lane++)
        x[lane] = sizeof(REAL) == 8 ? (REAL)__builtin_sqrt((double)x[lane]) : (REAL)__builtin_sqrtf((float)x[lane]);
    return x;
}
#endif

#endif

INLINE VEC only_if(MASK m, VEC v) { return pick(m, v, (VEC){0}); }

#endif

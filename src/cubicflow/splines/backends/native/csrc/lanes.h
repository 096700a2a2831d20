/* Move data between tensors and vectors. Params are transposed so that one lane holds one spline. Softmax, sums and
   searches then work lane by lane, without a reduction across lanes. */
#ifndef CUBICFLOW_LANES_H
#define CUBICFLOW_LANES_H

#include "call.h"
#include "simd.h"

/* VL offsets into a tensor, in elements from its start. */
struct places {
    int64_t at[VL];
    int adjacent; /* whether at[i] = at[0] + i, so that one vector load suffices */
};

INLINE void note_adjacent(struct places *p) {
    int adjacent = 1;
    for (int lane = 1; lane < VL; lane++) adjacent &= p->at[lane] == p->at[0] + lane;
    p->adjacent = adjacent;
}

/* Set the offsets along one axis: multiples of its stride. Spare lanes repeat the last of count offsets. */
INLINE void place_along(struct places *p, int64_t first, int count, int64_t stride) {
    int64_t at = first * stride;
    p->adjacent = stride == 1 && count == VL;
    for (int lane = 0; lane < (p->adjacent ? 1 : VL); lane++) { /* adjacent offsets need only the first */
        p->at[lane] = at;
        at += lane + 1 < count ? stride : 0;
    }
}

INLINE VEC gather(const REAL *from, const struct places *p) {
    if (p->adjacent) return load(from + p->at[0]);
    VEC v;
    for (int lane = 0; lane < VL; lane++) v[lane] = from[p->at[lane]];
    return v;
}

INLINE void scatter(REAL *to, const struct places *p, int count, VEC v) {
    if (p->adjacent && count == VL) {
        store(to + p->at[0], v);
        return;
    }
    for (int lane = 0; lane < count; lane++) to[p->at[lane]] = v[lane];
}

/* A position in a group of axes. odometer_next advances it by one element. */
struct odometer {
    const struct axes *axes;
    int64_t index[MAX_AXES];
    int64_t x, params, out, grad;
};

static inline void odometer_set(struct odometer *o, const struct axes *axes, int64_t flat) {
    o->axes = axes;
    o->x = o->params = o->out = o->grad = 0;
    for (int64_t i = axes->ndim - 1; i >= 0; i--) {
        int64_t index = flat % axes->size[i];
        flat /= axes->size[i];
        o->index[i] = index;
        o->x += index * axes->x[i];
        o->params += index * axes->params[i];
        o->out += index * axes->out[i];
        o->grad += index * axes->grad[i];
    }
}

INLINE void odometer_next(struct odometer *o) {
    for (int64_t i = o->axes->ndim - 1; i >= 0; i--) {
        const struct axes *a = o->axes;
        int64_t back = ++o->index[i] < a->size[i] ? 1 : 1 - a->size[i];
        o->x += back * a->x[i];
        o->params += back * a->params[i];
        o->out += back * a->out[i];
        o->grad += back * a->grad[i];
        if (back == 1) return;
        o->index[i] = 0;
    }
}

/* Lane i of the result comes from lane i of one row, or from lane i - d or i + d of the other row. */
#define FROM_LOW(i, d) ((i) & (d)) ? VL + (i) - (d) : (i)
#define FROM_HIGH(i, d) ((i) & (d)) ? VL + (i) : (i) + (d)
#define LANES_2(F, d) F(0, d), F(1, d)
#define LANES_4(F, d) LANES_2(F, d), F(2, d), F(3, d)
#define LANES_8(F, d) LANES_4(F, d), F(4, d), F(5, d), F(6, d), F(7, d)
#define LANES_16(F, d) LANES_8(F, d), F(8, d), F(9, d), F(10, d), F(11, d), F(12, d), F(13, d), F(14, d), F(15, d)
#if VL == 16
#define LANES(F, d) LANES_16(F, d)
#elif VL == 8
#define LANES(F, d) LANES_8(F, d)
#elif VL == 4
#define LANES(F, d) LANES_4(F, d)
#else
#define LANES(F, d) LANES_2(F, d)
#endif

#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define SHUFFLE(a, b, F, d) __builtin_shufflevector(a, b, LANES(F, d))
#endif
#endif
#ifndef SHUFFLE /* gcc before 12 */
#define SHUFFLE(a, b, F, d) __builtin_shuffle(a, b, (IVEC){LANES(F, d)})
#endif

#define EXCHANGE(d)                                             \
    _Pragma("GCC unroll 16") for (int i = 0; i < VL; i++) {     \
        if (i & (d)) continue;                                  \
        VEC low = block[i], high = block[i | (d)];              \
        block[i] = SHUFFLE(low, high, FROM_LOW, d);             \
        block[i | (d)] = SHUFFLE(low, high, FROM_HIGH, d);      \
    }

/* Transpose a VL x VL block by Eklundh's method: exchange smaller and smaller off-diagonal quarters. */
INLINE void transpose(VEC block[VL]) {
#if VL > 8
    EXCHANGE(8)
#endif
#if VL > 4
    EXCHANGE(4)
#endif
#if VL > 2
    EXCHANGE(2)
#endif
    EXCHANGE(1)
}

/* table[c][lane] = from[rows.at[lane] + c * stride] */
static void load_rows(const REAL *from, const struct places *rows, int64_t stride, int64_t columns, REAL *table) {
    if (rows->adjacent) { /* the axis of the splines is innermost: params are already transposed */
        for (int64_t c = 0; c < columns; c++) store(table + c * VL, load(from + rows->at[0] + c * stride));
    } else if (stride == 1 && columns >= VL) {
        int64_t ahead = VL * (rows->at[1] - rows->at[0]); /* the probable offset of the next block */
        for (int64_t c = 0; c < columns; c += VL) {
            int64_t first = c + VL <= columns ? c : columns - VL; /* the last block overlaps the one before */
            VEC block[VL];
#pragma GCC unroll 16
            for (int lane = 0; lane < VL; lane++) {
                block[lane] = load(from + rows->at[lane] + first);
                __builtin_prefetch(from + rows->at[lane] + ahead + first);
            }
            transpose(block);
#pragma GCC unroll 16
            for (int i = 0; i < VL; i++) store(table + (first + i) * VL, block[i]);
        }
    } else {
        for (int lane = 0; lane < VL; lane++)
            for (int64_t c = 0; c < columns; c++) table[c * VL + lane] = from[rows->at[lane] + c * stride];
    }
}

/* The inverse of load_rows, for the first count lanes. */
static void store_rows(REAL *to, const struct places *rows, int64_t stride, int64_t columns, int count,
                       const REAL *table) {
    if (rows->adjacent && count == VL) {
        for (int64_t c = 0; c < columns; c++) store(to + rows->at[0] + c * stride, load(table + c * VL));
    } else if (stride == 1 && columns >= VL && count == VL) {
        int64_t ahead = VL * (rows->at[1] - rows->at[0]);
        for (int64_t c = 0; c < columns; c += VL) {
            int64_t first = c + VL <= columns ? c : columns - VL;
            VEC block[VL];
#pragma GCC unroll 16
            for (int i = 0; i < VL; i++) block[i] = load(table + (first + i) * VL);
            transpose(block);
#pragma GCC unroll 16
            for (int lane = 0; lane < VL; lane++) {
                store(to + rows->at[lane] + first, block[lane]);
                __builtin_prefetch(to + rows->at[lane] + ahead + first, 1);
            }
        }
    } else {
        for (int lane = 0; lane < count; lane++)
            for (int64_t c = 0; c < columns; c++) to[rows->at[lane] + c * stride] = table[c * VL + lane];
    }
}

#endif

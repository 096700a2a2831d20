/* Calls in which several elements share a spline. Each spline is tabulated once, and the elements look up their bins in
   the table. */
#ifndef CUBICFLOW_SHARED_H
#define CUBICFLOW_SHARED_H

#include "bins.h"
#include "lanes.h"
#include "point.h"
#include "quadratic.h"


/* A table has one record of TABLE_FIELDS per bin. Each spline of a chunk has two tables: plain and mirrored. An element
   uses the table in which it is near the low end. */
enum { IN_BEFORE, IN_SIZE, OUT_SIZE, OUT_BEFORE, OUT_AFTER, START, END };

INLINE int64_t table_at(int64_t num_bins, int64_t row, int64_t mirrored, int64_t j) {
    return ((row * 2 + mirrored) * num_bins + j) * TABLE_FIELDS;
}

/* VL splines, one per lane, with sums from both ends. */
struct rows {
    struct axis widths, heights;
    struct densities densities; /* quadratic splines only */
    REAL *logits, *widths_after, *heights_after;
};

INLINE int64_t rows_reals(const struct spline_call *call) {
    return params_reals(call) + 6 * call->num_bins * VL + densities_reals(call);
}

/* The sum of all numerators after each one. */
INLINE void sums_after(const REAL *numerators, REAL *after, int64_t num_bins) {
    struct sum s = {splat(0), splat(0)};
    for (int64_t j = num_bins - 1; j >= 0; j--) {
        if ((num_bins - 1 - j) % settle_every(num_bins) == 0) s = (struct sum){sum_value(s), splat(0)};
        store(after + j * VL, sum_value(s));
        s.recent += load(numerators + j * VL);
    }
}

INLINE struct rows make_rows(const struct work *work, const struct places *params_at, REAL *scratch) {
    const struct spline_call *call = work->call;
    int64_t k = call->num_bins;
    REAL *room = scratch + params_reals(call);
    load_rows(work->tensors->params, params_at, call->params_stride, call->num_params, scratch);
    struct rows r;
    MASK nowhere = lt(splat(0), splat(0));
    if (call->kind == QUADRATIC) {
        r.densities = make_quadratic_axes(call, scratch, nowhere, room, room + 6 * k * VL, &r.widths, &r.heights);
        r.logits = r.densities.values;
    } else {
        make_axes(call, scratch, nowhere, room, &r.widths, &r.heights);
        r.logits = scratch + 2 * k * VL;
    }
    r.widths_after = room + 4 * k * VL;
    r.heights_after = room + 5 * k * VL;
    sums_after(r.widths.numerators, r.widths_after, k);
    sums_after(r.heights.numerators, r.heights_after, k);
    return r;
}

/* Bin j of every lane's spline: its sizes, the sizes of the two bins beside it, and its two end slopes. */
struct row_bin {
    VEC w, h, w_before, h_before, w_after, h_after;
    struct end start, end;
};

INLINE struct row_bin make_row_bin(const struct spline_call *call, const struct rows *r, int64_t j) {
    int64_t k = call->num_bins, previous = (j > 0 ? j - 1 : j) * VL, next = (j + 1 < k ? j + 1 : j) * VL;
    int each = call->kind != STEFFEN; /* whether each knot has a param */
    int64_t start = each ? j : 0, end = each ? j + 1 : 1;
    struct row_bin b;
    b.w = axis_size(&r->widths, load(r->widths.numerators + j * VL));
    b.h = axis_size(&r->heights, load(r->heights.numerators + j * VL));
    b.w_before = axis_size(&r->widths, load(r->widths.numerators + previous));
    b.h_before = axis_size(&r->heights, load(r->heights.numerators + previous));
    b.w_after = axis_size(&r->widths, load(r->widths.numerators + next));
    b.h_after = axis_size(&r->heights, load(r->heights.numerators + next));
    VEC here = splat((REAL)j);
    make_ends(call, eq(here, splat(0)), eq(here, splat((REAL)(k - 1))), load(r->logits + start * VL),
              load(r->logits + end * VL), b.w, b.h, b.w_before, b.h_before, b.w_after, b.h_after, &b.start, &b.end);
    return b;
}

/* Set the offsets of VL splines, starting at row. Spare lanes repeat the last spline. Returns the number of splines. */
INLINE int place_rows(const struct spline_call *call, int64_t row, struct places *params_at, struct places *grad_at) {
    struct odometer o;
    int count = call->num_rows - row < VL ? (int)(call->num_rows - row) : VL;
    odometer_set(&o, &call->rows, row);
    for (int lane = 0; lane < VL; lane++) {
        params_at->at[lane] = o.params;
        grad_at->at[lane] = o.grad;
        if (lane < count - 1) odometer_next(&o);
    }
    note_adjacent(params_at);
    note_adjacent(grad_at);
    return count;
}

INLINE int64_t chunk_rows(const struct spline_call *call, int64_t row) {
    return call->num_rows - row < ROW_CHUNK ? call->num_rows - row : ROW_CHUNK;
}

static void make_tables(const struct work *work, int64_t row, REAL *table, REAL *scratch) {
    const struct spline_call *call = work->call;
    int64_t k = call->num_bins, rows = chunk_rows(call, row);
    for (int64_t done = 0; done < rows; done += VL) {
        struct places params_at, grad_at;
        int count = place_rows(call, row + done, &params_at, &grad_at);
        struct rows r = make_rows(work, &params_at, scratch);
        for (int64_t j = 0; j < k; j++) {
            struct row_bin b = make_row_bin(call, &r, j);
            VEC index = splat((REAL)j), rest = splat((REAL)(k - 1 - j));
            VEC w_low = axis_knot(&r.widths, index, load(r.widths.before + j * VL));
            VEC w_high = axis_knot(&r.widths, rest, load(r.widths_after + j * VL));
            VEC h_low = axis_knot(&r.heights, index, load(r.heights.before + j * VL));
            VEC h_high = axis_knot(&r.heights, rest, load(r.heights_after + j * VL));
            VEC in_size = call->inverse ? b.h : b.w, out_size = call->inverse ? b.w : b.h;
            VEC in_low = call->inverse ? h_low : w_low, in_high = call->inverse ? h_high : w_high;
            VEC out_low = call->inverse ? w_low : h_low, out_high = call->inverse ? w_high : h_high;
            for (int lane = 0; lane < count; lane++) {
                REAL *at = table + table_at(k, done + lane, 0, j), *mirror = table + table_at(k, done + lane, 1, k - 1 - j);
                at[IN_SIZE] = mirror[IN_SIZE] = in_size[lane];
                at[OUT_SIZE] = mirror[OUT_SIZE] = out_size[lane];
                at[IN_BEFORE] = in_low[lane];
                mirror[IN_BEFORE] = in_high[lane];
                at[OUT_BEFORE] = mirror[OUT_AFTER] = out_low[lane];
                at[OUT_AFTER] = mirror[OUT_BEFORE] = out_high[lane];
                at[START] = mirror[END] = b.start.slope[lane];
                at[END] = mirror[START] = b.end.slope[lane];
            }
        }
    }
}

/* Find the last bin that starts at or below the position. The search does not branch on the data. */
INLINE int64_t search(const REAL *table, int64_t num_bins, int64_t top_step, REAL position) {
    int64_t j = 0;
    for (int64_t step = top_step; step; step >>= 1) {
        int64_t try = j + step < num_bins ? j + step : j;
        j = table[try * TABLE_FIELDS + IN_BEFORE] <= position ? try : j;
    }
    return j;
}

static void run_shared(const struct work *work, int64_t row, int64_t first, int64_t last, double *sums, void *scratch) {
    const struct spline_call *call = work->call;
    const struct tensors *data = work->tensors;
    int64_t k = call->num_bins, rows = chunk_rows(call, row), top_step = 1;
    REAL *table = scratch;
    make_tables(work, row, table, table + table_at(k, ROW_CHUNK, 0, 0));
    while (top_step * 2 < k) top_step *= 2;
    int64_t row_x[ROW_CHUNK], row_out[ROW_CHUNK];
    struct odometer o;
    odometer_set(&o, &call->rows, row);
    for (int64_t r = 0; r < rows; r++, odometer_next(&o)) {
        row_x[r] = o.x;
        row_out[r] = o.out;
    }
    if (work->backward) memset(sums, 0, (size_t)table_at(k, ROW_CHUNK, 0, 0) * sizeof(double));

    odometer_set(&o, &call->shared, first);
    int64_t left = (last - first) * rows, r = 0;
    while (left > 0) {
        struct places x_at, out_at;
        int64_t row_of[VL], record[VL];
        int count = left < VL ? (int)left : VL;
        for (int lane = 0; lane < VL; lane++) {
            x_at.at[lane] = row_x[r] + o.x;
            out_at.at[lane] = row_out[r] + o.out;
            row_of[lane] = r;
            if (lane < count - 1 || left > VL) {
                if (++r == rows) {
                    r = 0;
                    odometer_next(&o);
                }
            }
        }
        left -= VL;
        note_adjacent(&x_at);
        note_adjacent(&out_at);

        struct point at = make_point((int)call->domain, gather(data->x, &x_at), !work->backward);
        VEC mirrored = only_if(at.mirrored, splat(1)), index;
        REAL fields[TABLE_FIELDS][VL] __attribute__((aligned(ALIGNMENT)));
        for (int lane = 0; lane < VL; lane++) {
            int64_t begin = table_at(k, row_of[lane], mirrored[lane] != 0, 0);
            int64_t j = search(table + begin, k, top_step, at.low[lane]);
            index[lane] = (REAL)j;
            record[lane] = begin + j * TABLE_FIELDS;
            for (int i = 0; i < TABLE_FIELDS; i++) fields[i][lane] = table[record[lane] + i];
        }
        struct bin b = {
            .in_size = load(fields[IN_SIZE]),
            .in_before = load(fields[IN_BEFORE]),
            .out_size = load(fields[OUT_SIZE]),
            .out_before = load(fields[OUT_BEFORE]),
            .out_after = load(fields[OUT_AFTER]),
            .start = load(fields[START]),
            .end = load(fields[END]),
            .first = eq(index, splat(0)),
            .last = eq(index, splat((REAL)(k - 1))),
        };
        if (!work->backward) {
            VEC y, log_slope;
            finish(call, &at, &b, &y, &log_slope);
            scatter(data->y, &out_at, count, y);
            scatter(data->log_slope, &out_at, count, log_slope);
            continue;
        }
        struct bin_grads g;
        VEC grad_x =
            finish_backward(call, &at, &b, gather(data->grad_y, &out_at), gather(data->grad_log_slope, &out_at), &g);
        scatter(data->grad_x, &out_at, count, grad_x);
        /* Sum in double precision: a million additions then do not reduce the precision of a float gradient. */
        for (int lane = 0; lane < count; lane++) {
            double *to = sums + record[lane];
            to[IN_SIZE] += g.in_size[lane];
            to[IN_BEFORE] += g.in_before[lane];
            to[OUT_SIZE] += g.out_size[lane];
            to[OUT_BEFORE] += g.out_before[lane];
            to[OUT_AFTER] += g.out_after[lane];
            to[START] += g.start[lane];
            to[END] += g.end[lane];
        }
    }
}

/* One field of bin j of VL splines, summed over the plain and the mirrored table. The mirrored table stores it under
   mirror_field. */
INLINE VEC summed(const double *sums, int64_t num_bins, int count, int64_t j, int field, int mirror_field) {
    VEC v = splat(0);
    for (int lane = 0; lane < count; lane++)
        v[lane] = (REAL)(sums[table_at(num_bins, lane, 0, j) + field] +
                         sums[table_at(num_bins, lane, 1, num_bins - 1 - j) + mirror_field]);
    return v;
}

/* One field of bin j from one of the two tables. */
INLINE VEC summed_one(const double *sums, int64_t num_bins, int count, int64_t j, int mirrored, int field) {
    VEC v = splat(0);
    for (int lane = 0; lane < count; lane++)
        v[lane] = (REAL)sums[table_at(num_bins, lane, mirrored, mirrored ? num_bins - 1 - j : j) + field];
    return v;
}

INLINE void add_to(REAL *cell, VEC v) { store(cell, load(cell) + v); }

static void finish_shared(const struct work *work, int64_t row, const double *sums, void *scratch) {
    const struct spline_call *call = work->call;
    int64_t k = call->num_bins, rows = chunk_rows(call, row);
    int inverse = (int)call->inverse, kind = (int)call->kind, each = kind != STEFFEN;
    for (int64_t done = 0; done < rows; done += VL) {
        struct places params_at, grad_at;
        int count = place_rows(call, row + done, &params_at, &grad_at);
        if (count > rows - done) count = (int)(rows - done);
        struct rows r = make_rows(work, &params_at, scratch);
        const double *mine = sums + table_at(k, done, 0, 0);
        REAL *grads = (REAL *)scratch + rows_reals(call), *gw = grads, *gh = grads + k * VL, *logits = grads + 2 * k * VL;
        REAL *g_in = inverse ? gh : gw, *g_out = inverse ? gw : gh;
        memset(grads, 0, (size_t)params_reals(call) * sizeof(REAL));
        for (int64_t j = 0; j < k; j++) {
            struct row_bin b = make_row_bin(call, &r, j);
            int64_t here = j * VL, previous = (j > 0 ? j - 1 : j) * VL, next = (j + 1 < k ? j + 1 : j) * VL;
            VEC zero = splat(0);
            struct near_grads w = {zero, zero, zero}, h = {zero, zero, zero};
            VEC start = end_backward(kind, &b.start, summed(mine, k, count, j, START, END), b.w, b.h, b.w_before,
                                     b.h_before, &w.here, &h.here, &w.before, &h.before);
            VEC end = end_backward(kind, &b.end, summed(mine, k, count, j, END, START), b.w, b.h, b.w_after,
                                   b.h_after, &w.here, &h.here, &w.after, &h.after);
            add_to(logits + (each ? here : 0), start);
            add_to(logits + (each ? here + VL : VL), end);
            add_to(gw + here, w.here);
            add_to(gh + here, h.here);
            add_to(gw + previous, w.before);
            add_to(gh + previous, h.before);
            add_to(gw + next, w.after);
            add_to(gh + next, h.after);
            add_to(g_in + here, summed(mine, k, count, j, IN_SIZE, IN_SIZE));
            add_to(g_out + here, summed(mine, k, count, j, OUT_SIZE, OUT_SIZE));
        }
        /* A knot is a sum of sizes, so its gradient is added to each of these sizes: the sizes before bin j or, in sums
           from the upper end, the sizes after bin j. */
        VEC in = splat(0), out = splat(0);
        for (int64_t j = 0; j < k; j++) {
            add_to(g_in + j * VL, in);
            add_to(g_out + j * VL, out);
            in += summed_one(mine, k, count, j, 1, IN_BEFORE);
            out += summed(mine, k, count, j, OUT_AFTER, OUT_BEFORE);
        }
        in = out = splat(0);
        for (int64_t j = k - 1; j >= 0; j--) {
            add_to(g_in + j * VL, in);
            add_to(g_out + j * VL, out);
            in += summed_one(mine, k, count, j, 0, IN_BEFORE);
            out += summed(mine, k, count, j, OUT_BEFORE, OUT_AFTER);
        }
        if (call->kind == QUADRATIC) quadratic_backward(k, &r.widths, &r.densities, lt(splat(0), splat(0)), grads);
        for (int axis = 0; axis < 2 && call->kind != QUADRATIC; axis++) {
            const struct axis *a = axis ? &r.heights : &r.widths;
            REAL *g = axis ? gh : gw;
            VEC mean = splat(0);
            for (int64_t j = 0; j < k; j++) mean += load(a->numerators + j * VL) * load(g + j * VL);
            mean /= a->total;
            for (int64_t j = 0; j < k; j++)
                store(g + j * VL, a->scale * load(a->numerators + j * VL) * (load(g + j * VL) - mean));
        }
        store_rows(work->tensors->grad_params, &grad_at, call->grad_stride, call->num_params, count, grads);
    }
}

#endif

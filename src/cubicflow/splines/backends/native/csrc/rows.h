/* Calls in which each element has its own spline. */
#ifndef CUBICFLOW_ROWS_H
#define CUBICFLOW_ROWS_H

#include "bins.h"
#include "lanes.h"
#include "point.h"
#include "quadratic.h"


/* The numerators of the element's bin and of the two bins beside it. */
struct found {
    VEC before, here, after;
    VEC sum_before, sum_after;
};

struct located {
    VEC index;
    struct found in, out;
    VEC start_logit, end_logit;
};

INLINE struct located locate(const struct spline_call *call, const struct axis *in, const struct axis *out,
                             const REAL *logits, const struct point *at) {
    int64_t k = call->num_bins, num_logits = call->kind == STEFFEN ? 2 : k + 1, every = settle_every(k);
    struct located f;
    VEC zero = splat(0);
    f.index = zero;
    f.in.before = f.in.here = load(in->numerators);
    f.out.before = f.out.here = load(out->numerators);
    f.in.after = load(in->numerators + (k > 1) * VL);
    f.out.after = load(out->numerators + (k > 1) * VL);
    f.in.sum_before = f.out.sum_before = f.in.sum_after = zero;
    f.start_logit = from_end(logits, num_logits, 0, at->mirrored);
    f.end_logit = from_end(logits, num_logits, 1, at->mirrored);
    struct sum after = {zero, zero};
    MASK restarted = le(zero, zero);
    for (int64_t j = 1; j < k; j++) {
        VEC before = load(in->before + j * VL), index = splat((REAL)j);
        VEC here = load(out->numerators + j * VL);
        int64_t next = (j + 1 < k ? j + 1 : j) * VL;
        /* NaN is never beyond a knot, so NaN stays in bin 0. Knots do not decrease, so "beyond" is false for every knot
           after the first one that is not passed. */
        MASK beyond = le((REAL)j * in->floor + in->scale * before, at->low);
        /* The sum after the bin restarts at every knot that is passed. If the first knot of a stretch of terms was
           passed, the settled sum is dropped. */
        if (j % every == 0) {
            after = (struct sum){after.recent + pick(restarted, zero, after.settled), zero};
            restarted = beyond;
        }
        after.recent = pick(beyond, zero, after.recent + here);
        f.index = pick(beyond, index, f.index);
        f.in.sum_before = pick(beyond, before, f.in.sum_before);
        f.out.sum_before = pick(beyond, load(out->before + j * VL), f.out.sum_before);
        f.in.before = pick(beyond, f.in.here, f.in.before);
        f.out.before = pick(beyond, f.out.here, f.out.before);
        f.in.here = pick(beyond, load(in->numerators + j * VL), f.in.here);
        f.out.here = pick(beyond, here, f.out.here);
        f.in.after = pick(beyond, load(in->numerators + next), f.in.after);
        f.out.after = pick(beyond, load(out->numerators + next), f.out.after);
        if (call->kind != STEFFEN) {
            f.start_logit = pick(beyond, f.end_logit, f.start_logit);
            f.end_logit = pick(beyond, from_end(logits, num_logits, j + 1, at->mirrored), f.end_logit);
        }
    }
    f.out.sum_after = after.recent + pick(restarted, zero, after.settled);
    return f;
}

/* Write the gradients of one axis's logits. Every bin before the element's bin has the size gradient far_before, and
   every bin after it has far_after. near holds the gradient of the bin itself, and the additional gradients of the two
   bins beside it. */
INLINE void axis_backward(const struct axis *a, int64_t num_bins, VEC index, MASK mirrored, const struct found *f,
                          VEC far_before, VEC far_after, const struct near_grads *near, REAL *grads) {
    VEC mean = (far_before * f->sum_before + far_after * f->sum_after + near->before * f->before +
                near->here * f->here + near->after * f->after) /
               a->total;
    far_before -= mean;
    far_after -= mean;
    VEC here = near->here - mean, previous = far_before + near->before, next = far_after + near->after;
    /* Write in the order of params. The mirrored lanes count from the other end. */
    VEC offset = pick(mirrored, (REAL)(num_bins - 1) - index, -index), step = pick(mirrored, splat(-1), splat(1));
    for (int64_t j = 0; j < num_bins; j++) {
        VEC grad = pick(lt(offset, splat(0)), far_before, far_after);
        grad = pick(eq(offset, splat(-1)), previous, grad);
        grad = pick(eq(offset, splat(0)), here, grad);
        grad = pick(eq(offset, splat(1)), next, grad);
        store(grads + j * VL, a->scale * from_end(a->numerators, num_bins, j, mirrored) * grad);
        offset += step;
    }
}

/* VL elements in progress. An exponential, a division or a logarithm of one vector has a long latency. A group of
   blocks therefore runs stage by stage, so that the processor can overlap several of these operations. */
struct block {
    struct places x_at, params_at, out_at, grad_at;
    int count;
    REAL *params; /* transposed; a backward overwrites params with their gradients */
    struct point at;
    struct axis widths, heights;
    struct densities densities; /* quadratic splines only */
    struct located found;
    struct bin_grads grads;
    struct near_grads grad_w, grad_h;
    VEC grad_start_logit, grad_end_logit;
};

#define MAX_GROUP 2

/* With many bins, or in a backward, latency is a small part of the time and smaller scratch is faster. */
INLINE int64_t group_size(const struct work *work) {
    return work->call->num_bins <= 32 && !work->backward ? MAX_GROUP : 1;
}

/* Reals of scratch of one block: the params, both axes, the densities. */
INLINE int64_t block_reals(const struct spline_call *call) {
    return params_reals(call) + 4 * call->num_bins * VL + densities_reals(call);
}

INLINE void block_find(const struct work *work, struct block *block) {
    const struct spline_call *call = work->call;
    load_rows(work->tensors->params, &block->params_at, call->params_stride, call->num_params, block->params);
    REAL *room = block->params + params_reals(call);
    const REAL *logits = block->params + 2 * call->num_bins * VL;
    if (call->kind == QUADRATIC) {
        block->densities = make_quadratic_axes(call, block->params, block->at.mirrored, room,
                                               room + 4 * call->num_bins * VL, &block->widths, &block->heights);
        logits = block->densities.values;
    } else {
        make_axes(call, block->params, block->at.mirrored, room, &block->widths, &block->heights);
    }
    const struct axis *in = call->inverse ? &block->heights : &block->widths;
    const struct axis *out = call->inverse ? &block->widths : &block->heights;
    block->found = locate(call, in, out, logits, &block->at);
}

INLINE void block_evaluate(const struct work *work, struct block *block) {
    const struct spline_call *call = work->call;
    const struct tensors *data = work->tensors;
    int inverse = (int)call->inverse, kind = (int)call->kind;
    const struct axis *widths = &block->widths, *heights = &block->heights;
    const struct axis *in = inverse ? heights : widths, *out = inverse ? widths : heights;
    const struct located *f = &block->found;
    const struct found *fw = inverse ? &f->out : &f->in, *fh = inverse ? &f->in : &f->out;

    struct bin b;
    VEC top = splat((REAL)(call->num_bins - 1));
    b.first = eq(f->index, splat(0));
    b.last = eq(f->index, top);
    b.in_size = axis_size(in, f->in.here);
    b.in_before = axis_knot(in, f->index, f->in.sum_before);
    b.out_size = axis_size(out, f->out.here);
    b.out_before = axis_knot(out, f->index, f->out.sum_before);
    b.out_after = axis_knot(out, top - f->index, f->out.sum_after);
    VEC w = axis_size(widths, fw->here), h = axis_size(heights, fh->here);
    VEC w_before = axis_size(widths, fw->before), h_before = axis_size(heights, fh->before);
    VEC w_after = axis_size(widths, fw->after), h_after = axis_size(heights, fh->after);
    struct end start, end;
    make_ends(call, b.first, b.last, f->start_logit, f->end_logit, w, h, w_before, h_before, w_after, h_after, &start,
              &end);
    b.start = start.slope;
    b.end = end.slope;

    if (!work->backward) {
        VEC y, log_slope;
        finish(call, &block->at, &b, &y, &log_slope);
        scatter(data->y, &block->out_at, block->count, y);
        scatter(data->log_slope, &block->out_at, block->count, log_slope);
        return;
    }
    VEC grad_y = gather(data->grad_y, &block->out_at), grad_log_slope = gather(data->grad_log_slope, &block->out_at);
    struct bin_grads *g = &block->grads;
    scatter(data->grad_x, &block->out_at, block->count, finish_backward(call, &block->at, &b, grad_y, grad_log_slope, g));
    VEC zero = splat(0);
    struct near_grads gw = {zero, inverse ? g->out_size : g->in_size, zero};
    struct near_grads gh = {zero, inverse ? g->in_size : g->out_size, zero};
    block->grad_start_logit = end_backward(kind, &start, g->start, w, h, w_before, h_before, &gw.here, &gh.here,
                                           &gw.before, &gh.before);
    block->grad_end_logit =
        end_backward(kind, &end, g->end, w, h, w_after, h_after, &gw.here, &gh.here, &gw.after, &gh.after);
    block->grad_w = gw;
    block->grad_h = gh;
}

/* Write the gradients of a quadratic spline's widths or heights, for quadratic_backward. All sizes before the element's
   bin have the gradient far_before, and all sizes after it have far_after. */
INLINE void sizes_backward(int64_t num_bins, VEC index, MASK mirrored, VEC far_before, VEC here, VEC far_after,
                           REAL *grads) {
    VEC offset = pick(mirrored, (REAL)(num_bins - 1) - index, -index), step = pick(mirrored, splat(-1), splat(1));
    for (int64_t j = 0; j < num_bins; j++, offset += step) {
        VEC grad = pick(lt(offset, splat(0)), far_before, far_after);
        store(grads + j * VL, pick(eq(offset, splat(0)), here, grad));
    }
}

INLINE void block_spread(const struct work *work, struct block *block) {
    const struct spline_call *call = work->call;
    int64_t k = call->num_bins;
    int inverse = (int)call->inverse;
    const struct located *f = &block->found;
    const struct bin_grads *g = &block->grads;
    MASK mirrored = block->at.mirrored;
    REAL *of_widths = block->params, *of_heights = of_widths + k * VL, *of_logits = of_widths + 2 * k * VL;
    if (call->kind == QUADRATIC) {
        sizes_backward(k, f->index, mirrored, g->in_before, inverse ? block->grad_h.here : block->grad_w.here, splat(0),
                       inverse ? of_heights : of_widths);
        sizes_backward(k, f->index, mirrored, g->out_before, inverse ? block->grad_w.here : block->grad_h.here,
                       g->out_after, inverse ? of_widths : of_heights);
    } else if (inverse) {
        axis_backward(&block->heights, k, f->index, mirrored, &f->in, g->in_before, splat(0), &block->grad_h, of_heights);
        axis_backward(&block->widths, k, f->index, mirrored, &f->out, g->out_before, g->out_after, &block->grad_w,
                      of_widths);
    } else {
        axis_backward(&block->widths, k, f->index, mirrored, &f->in, g->in_before, splat(0), &block->grad_w, of_widths);
        axis_backward(&block->heights, k, f->index, mirrored, &f->out, g->out_before, g->out_after, &block->grad_h,
                      of_heights);
    }
    VEC low = pick(mirrored, block->grad_end_logit, block->grad_start_logit);
    VEC high = pick(mirrored, block->grad_start_logit, block->grad_end_logit);
    if (call->kind != STEFFEN) {
        VEC low_knot = pick(mirrored, (REAL)(k - 1) - f->index, f->index);
        for (int64_t j = 0; j <= k; j++) {
            VEC grad = only_if(eq(low_knot, splat((REAL)j)), low);
            store(of_logits + j * VL, pick(eq(low_knot, splat((REAL)(j - 1))), high, grad));
        }
    } else {
        store(of_logits, low);
        store(of_logits + VL, high);
    }
    if (call->kind == QUADRATIC) quadratic_backward(k, &block->widths, &block->densities, mirrored, of_widths);
    store_rows(work->tensors->grad_params, &block->grad_at, call->grad_stride, call->num_params, block->count,
               block->params);
}

/* Spare lanes of the last block repeat the last element. Their results are not stored. */
INLINE void block_place(const struct work *work, struct block *block, int64_t row, int64_t last, struct odometer *o) {
    const struct axes *axes = &work->call->rows;
    block->count = last - row < VL ? (int)(last - row) : VL;
    if (axes->ndim == 1) {
        place_along(&block->x_at, row, block->count, axes->x[0]);
        place_along(&block->params_at, row, block->count, axes->params[0]);
        place_along(&block->out_at, row, block->count, axes->out[0]);
        if (work->backward) place_along(&block->grad_at, row, block->count, axes->grad[0]);
        return;
    }
    for (int lane = 0; lane < VL; lane++) {
        block->x_at.at[lane] = o->x;
        block->params_at.at[lane] = o->params;
        block->out_at.at[lane] = o->out;
        block->grad_at.at[lane] = o->grad;
        if (row + lane + 1 < last) odometer_next(o);
    }
    note_adjacent(&block->x_at);
    note_adjacent(&block->params_at);
    note_adjacent(&block->out_at);
    note_adjacent(&block->grad_at);
}

static void run_rows(const struct work *work, int64_t first, int64_t last, void *scratch) {
    const struct spline_call *call = work->call;
    struct block blocks[MAX_GROUP];
    struct odometer o;
    int64_t most = group_size(work);
    odometer_set(&o, &call->rows, first);
    for (int64_t row = first; row < last;) {
        int64_t group = 0;
        for (; group < most && row < last; group++, row += VL) {
            struct block *block = &blocks[group];
            block->params = (REAL *)scratch + group * block_reals(call);
            block_place(work, block, row, last, &o);
            block->at = make_point((int)call->domain, gather(work->tensors->x, &block->x_at), !work->backward);
        }
        for (int64_t i = 0; i < group; i++) block_find(work, &blocks[i]);
        for (int64_t i = 0; i < group; i++) block_evaluate(work, &blocks[i]);
        for (int64_t i = 0; work->backward && i < group; i++) block_spread(work, &blocks[i]);
    }
}

#endif

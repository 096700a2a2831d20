/* Cubic, quadratic and rational-quadratic splines on vectors: forward, inverse and the backward of both.

   The formulas are those of the reference (bins.py, cubic.py, quadratic.py, rational_quadratic.py, evaluation.py). The
   order of work differs. An element reads the params of its spline once and finds its bin while the knots are summed.
   From then on the element needs only that bin and the two bins beside it. Values per knot are written to scratch only.

   Elements in the upper half are mirrored: the spline is read from its other end, x -> -x, y -> -y. Every element is
   then nearer to the low end of its input axis, and the distance to its bin is a difference of sums from that end. The
   mirroring removes half of the reference's cases. */
#include <math.h>
#include <string.h>

#include "rows.h"
#include "shared.h"

static int64_t scratch_bytes(const struct spline_call *call) {
    int64_t tables = table_at(call->num_bins, ROW_CHUNK, 0, 0);
    int64_t shared = tables + rows_reals(call) + params_reals(call);
    int64_t own = MAX_GROUP * block_reals(call);
    return (shared > own ? shared : own) * (int64_t)sizeof(REAL);
}

static int64_t sums_bytes(const struct spline_call *call) {
    return table_at(call->num_bins, ROW_CHUNK, 0, 0) * (int64_t)sizeof(double);
}

#define NAMED(name) {#name, (double)(name)},

static double number(const char *name) {
    static const struct {
        const char *name;
        double value;
    } numbers[] = {FAMILIES(NAMED) DOMAINS(NAMED) NAMED(MAX_AXES) NAMED(MARGIN) NAMED(RATIO_SHIFT) NAMED(SOFTPLUS_ONE)
                       NAMED(NEWTON_STEPS) NAMED(sizeof(struct spline_call))};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (!strcmp(numbers[i].name, name)) return numbers[i].value;
    return NAN;
}

static void probe(int function, int64_t count, const void *in, void *out) {
    for (int64_t i = 0; i + VL <= count; i += VL) {
        VEC x = load((const REAL *)in + i);
        VEC tail, sigmoid = vec_sigmoid_below(x, &tail);
        store((REAL *)out + i, function == 0   ? vec_exp(x)
                               : function == 1 ? vec_log(x)
                               : function == 2 ? vec_log1p(x)
                                               : sigmoid);
    }
}

const struct kernel KERNEL = {scratch_bytes, sums_bytes, run_rows, run_shared, finish_shared, number, probe};

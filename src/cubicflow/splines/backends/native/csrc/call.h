/* One spline call as Python hands it over, and what every compiled kernel offers. */
#ifndef CUBICFLOW_CALL_H
#define CUBICFLOW_CALL_H

#include <stdint.h>

#define MAX_AXES 12
#define ROW_CHUNK 16 /* splines prepared together when a batch shares them; a multiple of every vector's lanes */
#define TABLE_FIELDS 8
#define ALIGNMENT 64
#define LISTED(name) name, /* makes an enumeration of a list of names */

/* A group of axes of the output, outermost first, and the strides (in elements) along them. A group of no axes has one
   index. */
struct axes {
    int64_t ndim;
    int64_t size[MAX_AXES];
    int64_t x[MAX_AXES];
    int64_t params[MAX_AXES];
    int64_t out[MAX_AXES];
    int64_t grad[MAX_AXES];
};

/* Mirrored field by field in library.py. */
struct spline_call {
    int64_t num_bins;
    int64_t num_params;
    int64_t is_double;
    int64_t inverse;
    int64_t domain;
    int64_t kind;
    double min_width;
    double min_height;
    int64_t params_stride; /* along the last axis of params */
    int64_t grad_stride;   /* and of their gradient */
    int64_t num_rows;      /* splines */
    int64_t num_shared;    /* elements that share each spline */
    struct axes rows;
    struct axes shared;
};

/* The tensors of one call. x, params and their gradients are strided as spline_call says; outputs and their gradients
   are strided by axes.out, and so is grad_x. */
struct tensors {
    const void *x, *params;
    void *y, *log_slope;
    const void *grad_y, *grad_log_slope;
    void *grad_x, *grad_params;
};

struct work {
    const struct spline_call *call;
    const struct tensors *tensors;
    int backward;
};

struct kernel {
    /* Bytes of scratch one thread needs. */
    int64_t (*scratch_bytes)(const struct spline_call *call);
    /* Bytes of one chunk of splines' gradient sums: a table of shared.h, in double precision. */
    int64_t (*sums_bytes)(const struct spline_call *call);
    /* Splines first ... last - 1, each with an element of its own. */
    void (*run_rows)(const struct work *work, int64_t first, int64_t last, void *scratch);
    /* The shared elements first ... last - 1 of each of the splines row ... row + ROW_CHUNK - 1; sums is for a backward. */
    void (*run_shared)(const struct work *work, int64_t row, int64_t first, int64_t last, double *sums, void *scratch);
    /* grad_params of one chunk of splines from its sums. */
    void (*finish_shared)(const struct work *work, int64_t row, const double *sums, void *scratch);
    /* A constant, or the number of a family or a domain, by its name; NaN for a name that nobody here knows. */
    double (*number)(const char *name);
    /* exp (0), log (1), log1p (2) or sigmoid (3) of count numbers, a multiple of 16: for the tests of vecmath.h. */
    void (*probe)(int function, int64_t count, const void *in, void *out);
};

#endif

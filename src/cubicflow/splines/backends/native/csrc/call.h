/* The C structures of one spline call, and the functions of every compiled kernel. */
#ifndef CUBICFLOW_CALL_H
#define CUBICFLOW_CALL_H

#include <stdint.h>

#define MAX_AXES 12
#define ROW_CHUNK 16 /* shared splines that are prepared together; a multiple of the lanes of every vector */
#define TABLE_FIELDS 8
#define ALIGNMENT 64
#define LISTED(name) name, /* turns a list of names into an enumeration */

/* A group of axes of the output, outermost first, with the strides along them in elements. A group without axes has one
   index. */
struct axes {
    int64_t ndim;
    int64_t size[MAX_AXES];
    int64_t x[MAX_AXES];
    int64_t params[MAX_AXES];
    int64_t out[MAX_AXES];
    int64_t grad[MAX_AXES];
};

/* library.py repeats these fields in the same order. */
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
    int64_t grad_stride;   /* along the last axis of the gradient of params */
    int64_t num_rows;      /* splines */
    int64_t num_shared;    /* elements per spline */
    struct axes rows;
    struct axes shared;
};

/* The tensors of one call. The strides of x, params and grad_params are in spline_call. The outputs, their gradients
   and grad_x have the strides axes.out. */
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
    /* Bytes of the gradient sums of one chunk of splines: a table of shared.h, in double precision. */
    int64_t (*sums_bytes)(const struct spline_call *call);
    /* Run splines first ... last - 1. Each spline has one element. */
    void (*run_rows)(const struct work *work, int64_t first, int64_t last, void *scratch);
    /* Run the elements first ... last - 1 of each of the splines row ... row + ROW_CHUNK - 1. A backward fills sums. */
    void (*run_shared)(const struct work *work, int64_t row, int64_t first, int64_t last, double *sums, void *scratch);
    /* Write grad_params of one chunk of splines from the chunk's sums. */
    void (*finish_shared)(const struct work *work, int64_t row, const double *sums, void *scratch);
    /* Return a constant, or the number of a family or a domain, by its name. An unknown name gives NaN. */
    double (*number)(const char *name);
    /* Compute exp (0), log (1), log1p (2) or sigmoid (3) of count numbers. count is a multiple of 16. The tests of
       vecmath.h use this function. */
    void (*probe)(int function, int64_t count, const void *in, void *out);
};

#endif

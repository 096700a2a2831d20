/* The library's C interface. It chooses the kernel for this processor, cuts a call into tasks, and runs the tasks on
   the threads of the OpenMP runtime that torch has already loaded. */
#include <stdatomic.h>
#include <stdlib.h>

#include "call.h"

#define EXPORT __attribute__((visibility("default")))

/* A task is a fixed share of the work. The number of threads decides which thread runs a task, but not what the task
   computes, so every number of threads gives the same bits. */
#define TASK_ELEMENTS 1024
#define MAX_SHARES 16 /* tasks per shared spline; their gradients are added in a fixed order */

extern const struct kernel kernel_f32, kernel_f64;
#ifdef HAVE_AVX2
extern const struct kernel kernel_f32_avx2, kernel_f64_avx2;
#endif
#ifdef HAVE_AVX512
extern const struct kernel kernel_f32_avx512, kernel_f64_avx512;
#endif

static const struct kernel *kernel_for(int level, int is_double) {
    switch (level) {
#ifdef HAVE_AVX512
    case 2:
        return is_double ? &kernel_f64_avx512 : &kernel_f32_avx512;
#endif
#ifdef HAVE_AVX2
    case 1:
        return is_double ? &kernel_f64_avx2 : &kernel_f32_avx2;
#endif
    case 0:
        return is_double ? &kernel_f64 : &kernel_f32;
    default:
        return NULL;
    }
}

/* Returns the instruction sets that both this library and this processor support, as bits: 1 is the baseline, 2 is
   AVX2, 4 is AVX-512. */
EXPORT int cubicflow_levels(void) {
    int levels = 1;
#ifdef HAVE_AVX2
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) levels |= 2;
#endif
#ifdef HAVE_AVX512
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl"))
        levels |= 4;
#endif
    return levels;
}

/* Python checks both when it loads the library. A library that was built from other sources, or that disagrees with
   Python about a constant or about struct spline_call, is not used. setup.py defines SOURCE_HASH. */
#define QUOTED(text) #text
#define TEXT(macro) QUOTED(macro)
EXPORT const char *cubicflow_source_hash(void) { return TEXT(SOURCE_HASH); }
EXPORT double cubicflow_number(int is_double, const char *name) { return kernel_for(0, is_double)->number(name); }

typedef void (*parallel_function)(void (*)(void *), void *, unsigned, unsigned); /* GOMP_parallel */

struct job {
    const struct kernel *kernel;
    struct work work;
    int64_t num_tasks, num_shares, share, sums_doubles;
    double *sums; /* [chunk of splines][share of the elements] */
    atomic_llong next;
    atomic_int failed;
    void (*task)(struct job *, int64_t, void *);
};

static void rows_task(struct job *job, int64_t index, void *scratch) {
    int64_t first = index * TASK_ELEMENTS, last = first + TASK_ELEMENTS, rows = job->work.call->num_rows;
    job->kernel->run_rows(&job->work, first, last < rows ? last : rows, scratch);
}

static void shared_task(struct job *job, int64_t index, void *scratch) {
    int64_t chunk = index / job->num_shares, first = index % job->num_shares * job->share, last = first + job->share;
    int64_t shared = job->work.call->num_shared;
    double *sums = job->sums ? job->sums + index * job->sums_doubles : NULL;
    job->kernel->run_shared(&job->work, chunk * ROW_CHUNK, first, last < shared ? last : shared, sums, scratch);
}

static void finish_task(struct job *job, int64_t chunk, void *scratch) {
    double *sums = job->sums + chunk * job->num_shares * job->sums_doubles;
    for (int64_t share = 1; share < job->num_shares; share++)
        for (int64_t i = 0; i < job->sums_doubles; i++) sums[i] += sums[share * job->sums_doubles + i];
    job->kernel->finish_shared(&job->work, chunk * ROW_CHUNK, sums, scratch);
}

static void *allocate(int64_t bytes) {
    return aligned_alloc(ALIGNMENT, (size_t)((bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT));
}

static void run_thread(void *data) {
    struct job *job = data;
    void *scratch = allocate(job->kernel->scratch_bytes(job->work.call));
    if (!scratch) {
        atomic_store(&job->failed, 1);
        return;
    }
    int64_t index;
    while ((index = atomic_fetch_add(&job->next, 1)) < job->num_tasks) job->task(job, index, scratch);
    free(scratch);
}

static void run_job(struct job *job, void (*task)(struct job *, int64_t, void *), int64_t num_tasks, int num_threads,
                    parallel_function parallel) {
    job->task = task;
    job->num_tasks = num_tasks;
    atomic_store(&job->next, 0);
    if (num_threads > num_tasks) num_threads = (int)num_tasks;
    if (parallel && num_threads > 1)
        parallel(run_thread, job, (unsigned)num_threads, 0);
    else
        run_thread(job);
}

static int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

static int64_t at_least_one(int64_t a) { return a > 1 ? a : 1; }

static int run(const struct spline_call *call, const struct tensors *tensors, int backward, int level, int num_threads,
               parallel_function parallel) {
    if (!tensors->params) return 0; /* params are empty: there is no spline and nothing to write */
    struct job job = {.kernel = kernel_for(level, (int)call->is_double), .work = {call, tensors, backward}};
    if (call->num_shared == 1) {
        run_job(&job, rows_task, divide_up(call->num_rows, TASK_ELEMENTS), num_threads, parallel);
        return atomic_load(&job.failed);
    }
    int64_t chunks = divide_up(call->num_rows, ROW_CHUNK);
    int64_t rows = call->num_rows < ROW_CHUNK ? call->num_rows : ROW_CHUNK;
    int64_t shares = at_least_one(divide_up(call->num_shared * rows, 4 * TASK_ELEMENTS));
    job.share = at_least_one(divide_up(call->num_shared, shares < MAX_SHARES ? shares : MAX_SHARES));
    /* At least one share, even without elements: the gradient of an unused spline is written too, as zeros. */
    job.num_shares = at_least_one(divide_up(call->num_shared, job.share));
    if (!chunks) return 0;
    if (backward) {
        job.sums_doubles = job.kernel->sums_bytes(call) / (int64_t)sizeof(double);
        job.sums = allocate(chunks * job.num_shares * job.kernel->sums_bytes(call));
        if (!job.sums) return 1;
    }
    run_job(&job, shared_task, chunks * job.num_shares, num_threads, parallel);
    if (job.sums && !atomic_load(&job.failed)) run_job(&job, finish_task, chunks, num_threads, parallel);
    free(job.sums);
    return atomic_load(&job.failed);
}

/* Both functions return 0, or 1 if there is not enough memory for scratch. */
EXPORT int cubicflow_forward(const struct spline_call *call, int level, int num_threads, parallel_function parallel,
                             const void *x, const void *params, void *y, void *log_slope) {
    struct tensors tensors = {.x = x, .params = params, .y = y, .log_slope = log_slope};
    return run(call, &tensors, 0, level, num_threads, parallel);
}

EXPORT int cubicflow_backward(const struct spline_call *call, int level, int num_threads, parallel_function parallel,
                              const void *x, const void *params, const void *grad_y, const void *grad_log_slope,
                              void *grad_x, void *grad_params) {
    struct tensors tensors = {.x = x,
                              .params = params,
                              .grad_y = grad_y,
                              .grad_log_slope = grad_log_slope,
                              .grad_x = grad_x,
                              .grad_params = grad_params};
    return run(call, &tensors, 1, level, num_threads, parallel);
}

EXPORT void cubicflow_probe(int level, int is_double, int function, int64_t count, const void *in, void *out) {
    kernel_for(level, is_double)->probe(function, count, in, out);
}

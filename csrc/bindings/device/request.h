/* Reads the parameters of a launch from Python. */
#pragma once

#include "bindings/python.h"

#include "engine/engine.h"

/* Given in place of a strategy's number. GR_CHOOSE: the engine chooses. GR_AUTO: `auto`, which
 * depends on the dtype. */
enum { GR_CHOOSE = -1, GR_AUTO = -2 };

/* The fields of gpureduce.core.plan.Launch, checked. */
typedef struct {
    int asked;               /* the strategy's number, or GR_CHOOSE, or GR_AUTO */
    gr_request request;      /* all but the data, its size and the kind of memory */
    int order;               /* of the emulator's threads */
    unsigned long long seed; /* of a random order */
    int timed;               /* for arrays on a GPU, gr_py_sum_gpu() has an argument for it */
} gr_launch_request;

/* Reads a Launch. Returns 0, or -1 with an exception set. `read_from` is the kind of input. For
 * host arrays the Launch gives the element type and the accumulator; arrays on a GPU give their
 * own. For these, a strategy's number is the launch by defaults. */
typedef enum { GR_HOST_ARRAY, GR_GPU_ARRAY, GR_SAMPLES } gr_read_from;
int gr_read_launch(PyObject *object, gr_read_from read_from, gr_launch_request *launch);

/* Converts a Python int to a strategy's number. Accepts GR_CHOOSE and GR_AUTO. Returns 0, or -1
 * with an exception set. */
int gr_strategy_of(PyObject *number, int *asked);

/* Sets the request's strategy for such a number. Integer sums are always exact, so for integers the
 * engine chooses in place of `exact`. */
void gr_pick(int asked, int integers, gr_request *request);

/* Whether this number stands for `exact` if the elements are floats. */
int gr_is_exact(int asked);

/* Returns the number of `exact`. */
int gr_exact_strategy(void);

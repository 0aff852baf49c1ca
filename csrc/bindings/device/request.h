/* A launch as Python asks for it. */
#ifndef GPUREDUCE_BINDINGS_REQUEST_H
#define GPUREDUCE_BINDINGS_REQUEST_H

#include "bindings/python.h"

#include "engine/engine.h"

/* A strategy's number, or one of these: the engine chooses; or what `auto` means for the dtype. */
enum { GR_CHOOSE = -1, GR_AUTO = -2 };

/* The fields of gpureduce.core.request.Launch, checked. */
typedef struct {
    int strategy;  /* or GR_CHOOSE, or GR_AUTO */
    int load, acc; /* -1: those of the array */
    unsigned block, grid;
    int finish, device, order;
    unsigned long long seed;
    int timed;
} gr_launch;

/* Reads a Launch: 0, or -1 with an exception. `read_from` is what the caller reads: an array of the
 * host has a load and an accumulator, an array on a GPU brings its own. */
typedef enum { GR_HOST_ARRAY, GR_GPU_ARRAY, GR_SAMPLES } gr_read_from;
int gr_read_launch(PyObject *object, gr_read_from read_from, gr_launch *launch);

/* The engine's request for a launch; its data, size and kind of memory are the caller's to add. */
gr_request gr_request_of(const gr_launch *launch);

/* A strategy's number from Python, GR_CHOOSE and GR_AUTO included: 0, or -1 with an exception. */
int gr_strategy_of(PyObject *number, int *asked);

/* The strategy for such a number and for integers or floats: integers are exact without `exact`.
 * True if the engine is to choose. */
int gr_pick(int asked, int integers, int *strategy);

/* Whether a strategy is, or for floats becomes, `exact`. */
int gr_is_exact(int asked);

/* The number of `exact`. */
int gr_exact_strategy(void);

#endif

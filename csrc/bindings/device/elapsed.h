/* The type Elapsed: the kernel time of a sum on a card, read at the first access. */
#pragma once

#include "bindings/python.h"

#include "engine/engine.h"

/* Makes the type. Returns 0, or -1 with an exception set. */
int gr_make_elapsed_type(PyObject *module);

/* Returns an Elapsed, or NULL with an exception set. Takes over `times` in either case. */
PyObject *gr_elapsed_of(gr_times *times);

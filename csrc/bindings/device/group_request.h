/* What a request for sums of groups says, which Python makes once for all arrays of a description.
 */
#pragma once

#include "bindings/python.h"
#include "engine/groups.h"

/* What has been decided for all arrays of one description. Never changes. */
typedef struct {
    gr_groups_request request; /* all but addresses, dimensions and the stream */
    int kind, bytes;           /* of the elements */
    unsigned long long axes;   /* a bit per axis that is added up */
    int keeps_dims, timed;
} gr_decided;

/* What a capsule of gr_py_request() has, or NULL with an exception set. */
const gr_decided *gr_decided_in(PyObject *capsule);

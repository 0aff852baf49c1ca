/* Describes an array on a GPU, given a Python object. */
#include "bindings/device/gpu_array.h"

#include "backend/backend.h"
#include "bindings/device/run.h"
#include "bindings/locks.h"
#include "engine/engine.h"
#include "shared/axes.h"

#include <stdbool.h>
#include <string.h>

/* How to read arrays of a Python type. */
typedef struct {
    PyTypeObject *type;
    const void *table; /* DLPack's C functions; NULL: the type has none */
    int cupy;
} producer;

/* Caches the last type: a program mostly sums arrays of one library. */
static int producer_of(PyTypeObject *type, producer *found)
{
    static producer last;
    static gr_lock lock;
    gr_take_lock(&lock);
    *found = last;
    gr_drop_lock(&lock);
    if (type == found->type)
        return 0;
    *found = (producer){.type = type};
    if (gr_find_exchange(type, &found->table) < 0)
        return -1;
    if (!found->table)
        found->cupy = gr_know_cupy(type);
    if (found->cupy < 0)
        return -1;
    Py_INCREF((PyObject *)type);
    gr_take_lock(&lock);
    PyTypeObject *before = last.type;
    last = *found;
    gr_drop_lock(&lock);
    Py_XDECREF((PyObject *)before);
    return 0;
}

static int by_protocols(PyObject *object, void *(*our_stream)(void *context, int device),
                        void *context, gr_array *array)
{
    PyObject *interface, *device;
    /* Some types raise an error here. It is ignored, because __dlpack__ raises a clearer one. */
    if (gr_optional_attribute(object, "__cuda_array_interface__", 1, &interface) < 0)
        return -1;
    /* A __cuda_array_interface__ that names its stream comes first: the sum runs on that stream.
     * With DLPack, the producer would record an event, and our stream would wait for it. */
    int found = interface ? gr_by_interface(interface, true, array) : 0;
    if (found == 0 && gr_optional_attribute(object, "__dlpack_device__", 0, &device) < 0) {
        found = -1;
    } else if (found == 0) {
        found = device      ? gr_by_dlpack(object, our_stream, context, array)
                : interface ? gr_by_interface(interface, false, array)
                            : 0;
        Py_XDECREF(device);
    }
    Py_XDECREF(interface);
    return found;
}

int gr_gpu_array_of(PyObject *object, void *(*our_stream)(void *context, int device), void *context,
                    gr_array *array)
{
    producer known;
    memset(array, 0, sizeof *array);
    if (producer_of(Py_TYPE(object), &known) < 0)
        return -1;
    int found = known.table  ? gr_by_exchange(object, known.table, array)
                : known.cupy ? gr_by_cupy(object, array)
                             : by_protocols(object, our_stream, context, array);
    if (found < 0) /* a producer's array that cannot be read */
        gr_array_done(array);
    return found;
}

void gr_array_done(gr_array *array)
{
    Py_CLEAR(array->owner);
}

/* On a card, the driver answers only threads that have a context. */
static int can_read(gr_range bytes, int device, gr_range *known)
{
    int before = gr_current_device();
    (void)cudaSetDevice(device);
    int found = gr_backend_can_read(bytes, known);
    gr_backend_return_to(before);
    return found;
}

/* Sets an exception if an earlier kernel has faulted: the driver then recognizes no memory. */
static bool is_lost(int device)
{
    gr_error error;
    int before = gr_current_device();
    (void)cudaSetDevice(device);
    bool lost = gr_check_context(&error) != GR_OK && error.lost;
    gr_backend_return_to(before);
    if (lost)
        gr_raise(&error);
    return lost;
}

/* Caches the last ranges that can be read, because programs sum the same memory repeatedly. */
int gr_check_memory(const gr_array *array, int device)
{
    enum { KEPT = 8 };
    static gr_range kept[KEPT] = {{1, 0}};
    static unsigned next;
    static gr_lock lock;
    gr_range bytes = {array->first, array->last}, known;
    bool found = !array->count;
    gr_take_lock(&lock);
    for (int i = 0; i < KEPT && !found; i++)
        found = bytes.first >= kept[i].first && bytes.last <= kept[i].last;
    gr_drop_lock(&lock);
    if (found)
        return 0;
    if (!can_read(bytes, device, &known)) {
        if (is_lost(device))
            return -1;
        PyErr_Format(PyExc_BufferError,
                     "its producer describes %lld elements of %d bytes from %p to %p, but the %s "
                     "cannot read all of this memory",
                     (long long)array->count, array->bytes, (void *)bytes.first, (void *)bytes.last,
                     gr_backend_name());
        return -1;
    }
    gr_take_lock(&lock);
    kept[next] = known;
    next = (next + 1) % KEPT;
    gr_drop_lock(&lock);
    return 0;
}

/* The order of additions does not matter, so dimensions may be sorted, reversed and merged. */
int gr_flatten(const gr_array *array, gr_elements *elements, size_t *count)
{
    gr_axes axes;
    gr_axis_list *list = &axes.reduced;
    axes.in = (const unsigned char *)array->base;
    axes.mask = axes.out = NULL;
    list->count = 0;
    *count = (size_t)array->count;
    for (int d = 0; d < array->dims && *count; d++)
        gr_axes_push(list, (gr_axis){(size_t)array->size[d], (ptrdiff_t)array->step[d], 0, 0});
    gr_axes_sort(list);
    gr_axes_flip(&axes, list);
    gr_axes_merge(list);
    if (list->count > GR_MAX_DIMS) {
        PyErr_Format(PyExc_BufferError,
                     "an array on a GPU has %d dimensions that cannot be merged: "
                     "make it contiguous",
                     list->count);
        return -1;
    }
    memset(elements, 0, sizeof *elements);
    elements->base = axes.in;
    elements->dims = list->count ? list->count : 1;
    elements->size[0] = 1;
    elements->step[0] = 1;
    for (int d = 0; d < list->count; d++) {
        elements->size[d] = list->dim[d].size;
        elements->step[d] = list->dim[d].in / array->bytes;
    }
    return !list->count || (list->count == 1 && elements->step[0] == 1);
}

/* Describes an array on a GPU, given a Python object. */
#include "bindings/device/gpu_array.h"

#include "backend/backend.h"
#include "bindings/device/run.h"
#include "bindings/locks.h"
#include "engine/engine.h"

#include <stdbool.h>
#include <string.h>

/* Larger than any address on any CPU or GPU. Up to this limit, arithmetic on addresses and steps
 * cannot overflow. */
static const int64_t HIGHEST_ADDRESS = (int64_t)1 << 61;

static int refuse(const char *what)
{
    PyErr_Format(PyExc_BufferError, "an array on a GPU %s", what);
    return -1;
}

void gr_fill_steps(gr_gpu_array *array)
{
    uint64_t step = 1; /* may wrap around for sizes that gr_check_extent() rejects */
    for (int d = array->dims - 1; d >= 0; d--) {
        array->step[d] = (int64_t)step;
        step *= (uint64_t)array->size[d];
    }
}

/* Returns 1 if there are elements, 0 if there are none, or -1 with an exception set. */
static int count_elements(gr_gpu_array *array)
{
    bool is_empty = false, overflows = false;
    array->count = 1;
    for (int d = 0; d < array->dims; d++) {
        if (array->size[d] < 0) {
            PyErr_Format(PyExc_BufferError, "an array on a GPU with a size of %lld in its shape",
                         (long long)array->size[d]);
            return -1;
        }
        is_empty |= array->size[d] == 0;
        overflows |= __builtin_mul_overflow(array->count, array->size[d], &array->count);
    }
    if (is_empty)
        return array->count = 0;
    return overflows ? refuse("of 2^63 elements or more") : 1;
}

int gr_check_extent(gr_gpu_array *array)
{
    int64_t low = 0, high = 0;
    bool overflows = false;
    int has_elements = count_elements(array);
    if (has_elements <= 0)
        return has_elements < 0 ? -1 : 1;
    for (int d = 0; d < array->dims; d++) {
        int64_t span, *end = array->step[d] < 0 ? &low : &high;
        if (array->size[d] == 1)
            array->step[d] = 0; /* never taken: there is one element */
        overflows |= __builtin_mul_overflow(array->size[d] - 1, array->step[d], &span);
        overflows |= __builtin_mul_overflow(span, array->bytes, &span);
        overflows |= __builtin_add_overflow(*end, span, end);
    }
    overflows |= __builtin_add_overflow(high, array->bytes - 1, &high);
    if (!array->base) {
        PyErr_Format(PyExc_BufferError, "an array on a GPU of %lld elements, at no address",
                     (long long)array->count);
        return -1;
    }
    int64_t base = (int64_t)(uintptr_t)array->base;
    if (overflows || base < 0 || base > HIGHEST_ADDRESS || high > HIGHEST_ADDRESS - base ||
        low < -base)
        return refuse("whose address, shape and strides lead out of all memory");
    array->first = (uintptr_t)(base + low);
    array->last = (uintptr_t)(base + high);
    return 1;
}

int gr_optional_attribute(PyObject *object, const char *name, int or_broken, PyObject **value)
{
    *value = PyObject_GetAttrString(object, name);
    if (*value)
        return 0;
    /* Exceptions of other types are passed on: a signal handler may have raised them. */
    PyObject *type = PyErr_Occurred();
    bool is_none = PyErr_ExceptionMatches(PyExc_AttributeError) ||
                   (or_broken && (type == PyExc_TypeError || type == PyExc_RuntimeError));
    if (!is_none)
        return -1;
    PyErr_Clear();
    return 0;
}

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
                        void *context, gr_gpu_array *array)
{
    PyObject *interface, *device;
    /* Some types raise an error here. It is ignored, because __dlpack__ raises a clearer one. */
    if (gr_optional_attribute(object, "__cuda_array_interface__", 1, &interface) < 0)
        return -1;
    /* An interface that names its stream takes precedence: the sum runs on that stream. With DLPack
     * the producer would record an event, and our stream would wait for it. */
    int ordered = interface ? gr_names_stream(interface) : 0, found = -1;
    if (ordered > 0) {
        found = gr_by_interface(interface, array);
    } else if (ordered == 0 &&
               gr_optional_attribute(object, "__dlpack_device__", 0, &device) == 0) {
        found = device      ? gr_by_dlpack(object, our_stream, context, array)
                : interface ? gr_by_interface(interface, array)
                            : 0;
        Py_XDECREF(device);
    }
    Py_XDECREF(interface);
    return found;
}

int gr_gpu_array_of(PyObject *object, void *(*our_stream)(void *context, int device), void *context,
                    gr_gpu_array *array)
{
    producer known;
    memset(array, 0, sizeof *array);
    if (producer_of(Py_TYPE(object), &known) < 0)
        return -1;
    int found = known.table  ? gr_by_exchange(object, known.table, array)
                : known.cupy ? gr_by_cupy(object, array)
                             : by_protocols(object, our_stream, context, array);
    if (found < 0) /* a producer's array that cannot be read */
        gr_gpu_array_done(array);
    return found;
}

void gr_gpu_array_done(gr_gpu_array *array)
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

/* Sets an exception if an earlier kernel has faulted, after which the driver knows no memory. */
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
int gr_check_memory(const gr_gpu_array *array, int device)
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
                     "its producer describes an array of %lld elements of %d bytes from %p to %p, "
                     "which is not all memory that the %s can read",
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
int gr_flatten(const gr_gpu_array *array, gr_elements *elements, size_t *count)
{
    int64_t size[GR_ARRAY_MAX_DIMS], step[GR_ARRAY_MAX_DIMS];
    const char *base = array->base;
    int dims = 0;

    *count = (size_t)array->count;
    for (int d = 0; d < array->dims && *count; d++) {
        int64_t length = array->size[d], stride = array->step[d];
        if (length == 1)
            continue;
        if (stride < 0) {
            base += (length - 1) * stride * array->bytes;
            stride = -stride;
        }
        int at = dims++;
        for (; at > 0 && step[at - 1] < stride; at--) {
            size[at] = size[at - 1];
            step[at] = step[at - 1];
        }
        size[at] = length;
        step[at] = stride;
    }
    int merged = 0;
    for (int d = 1; d < dims; d++) {
        if (step[merged] == step[d] * size[d]) {
            size[merged] *= size[d];
            step[merged] = step[d];
        } else {
            merged++;
            size[merged] = size[d];
            step[merged] = step[d];
        }
    }
    dims = dims ? merged + 1 : 0;
    if (dims > GR_MAX_DIMS) {
        PyErr_Format(PyExc_BufferError,
                     "an array on a GPU with %d dimensions that do not merge; "
                     "make it contiguous",
                     dims);
        return -1;
    }
    memset(elements, 0, sizeof *elements);
    elements->base = base;
    elements->dims = dims ? dims : 1;
    elements->size[0] = 1;
    elements->step[0] = 1;
    for (int d = 0; d < dims; d++) {
        elements->size[d] = (uint64_t)size[d];
        elements->step[d] = step[d];
    }
    return dims == 0 || (dims == 1 && step[0] == 1);
}

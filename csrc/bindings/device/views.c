/* The other arrays of a sum (masks, ids, results): their dimensions, and checks. */
#include "bindings/device/views.h"

#include "bindings/device/functions.h"
#include "bindings/device/run.h"
#include "exact/words.h"

#include <stddef.h>
#include <structmember.h>

PyObject *gr_times_of(gr_times *times, bool have_passed)
{
    gr_milliseconds ms;
    gr_error error;
    if (!times || !have_passed)
        return times ? gr_elapsed_of(times) : Py_NewRef(Py_None);
    bool read = gr_read_times(times, &ms, &error) == GR_OK;
    gr_drop_times(times, read);
    return read ? Py_BuildValue("ddd", ms.h2d, ms.kernel, ms.d2h) : gr_raise(&error);
}

void gr_take_values(PyObject *const pair[2], gr_acc acc, gr_value value[2])
{
    for (int i = 0; i < 2; i++)
        if (acc == GR_ACC_u32 || acc == GR_ACC_u64)
            value[i].u64 = PyLong_AsUnsignedLongLongMask(pair[i]); /* u32: the low half */
        else if (acc == GR_ACC_f32)
            value[i].f32 = (float)PyFloat_AsDouble(pair[i]);
        else
            value[i].f64 = PyFloat_AsDouble(pair[i]);
}

int gr_numpy_checked(PyObject *object, bool for_sums, gr_array *array, gr_span *span)
{
    PyArrayObject *given = (PyArrayObject *)object;
    if (!PyArray_Check(object) || !PyArray_ISALIGNED(given) || PyArray_ISBYTESWAPPED(given) ||
        gr_holds_objects(given)) {
        PyErr_SetString(PyExc_TypeError,
                        "expected an aligned array of numbers in native byte order");
        return -1;
    }
    const gr_numpy_type *type = gr_numpy_type_of_dtype(PyArray_DESCR(given));
    *array = (gr_array){.base = PyArray_DATA(given),
                        .kind = type ? gr_kind_of(type) : 0,
                        .bytes = (int)PyArray_ITEMSIZE(given),
                        .dims = PyArray_NDIM(given),
                        .count = PyArray_SIZE(given)};
    for (int i = 0; i < array->dims; i++) {
        array->size[i] = PyArray_DIM(given, i);
        array->step[i] = PyArray_STRIDE(given, i);
    }
    *span = (gr_span){(void *)(uintptr_t)array->base, 0};
    if (!array->count)
        return 0;
    bool has_gaps = !gr_find_extent(array);
    *span = (gr_span){(void *)array->first, array->last - array->first + 1};
    if (has_gaps || span->size > (size_t)PyArray_NBYTES(given))
        PyErr_SetString(PyExc_ValueError, "expected an array without gaps");
    else if (for_sums && span->size < (size_t)PyArray_NBYTES(given))
        PyErr_SetString(PyExc_ValueError, "expected sums with memory of their own");
    return PyErr_Occurred() ? -1 : 0;
}

void *gr_callers_stream(void *context, int Py_UNUSED(device))
{
    return context;
}

int gr_refuse_capture(void *stream)
{
    if (!stream || !gr_stream_is_captured(stream))
        return 0;
    PyErr_SetString(PyExc_RuntimeError,
                    "a sum that returns a number waits for its stream, which is impossible while "
                    "it is captured into a CUDA graph: pass result='device' or out");
    return -1;
}

/* Describes an array that must be on the same device as the summed one. */
int gr_view_beside(PyObject *object, const char *name, void *stream, int device, gr_array *array)
{
    int found = gr_gpu_array_of(object, gr_callers_stream, stream, array);
    if (found < 0)
        return -1;
    if (found == 0) {
        PyErr_Format(PyExc_TypeError, "%s must lie on the same GPU as the array", name);
        return -1;
    }
    if (array->device >= 0 && array->device != device)
        PyErr_Format(PyExc_ValueError, "%s lies on GPU %d, and the array on GPU %d", name,
                     array->device, device);
    else if (gr_check_memory(array, device) == 0)
        return 0;
    gr_array_done(array);
    return -1;
}

static int overlap(const gr_array *a, const gr_array *b)
{
    return a->count && b->count && a->first <= b->last && b->first <= a->last;
}

/* Whether no two of the array's elements share memory. */
static int is_spread_out(const gr_array *array)
{
    int64_t size[GR_ARRAY_MAX_DIMS], step[GR_ARRAY_MAX_DIMS], extent = array->bytes;
    int dims = 0;
    for (int i = 0; i < array->dims; i++) {
        int64_t distance = array->step[i] < 0 ? -array->step[i] : array->step[i];
        int k = dims;
        if (array->size[i] < 2)
            continue;
        for (; k > 0 && step[k - 1] > distance; k--) {
            step[k] = step[k - 1];
            size[k] = size[k - 1];
        }
        step[k] = distance;
        size[k] = array->size[i];
        dims++;
    }
    for (int i = 0; i < dims; i++) {
        if (step[i] < extent)
            return 0;
        extent += (size[i] - 1) * step[i];
    }
    return 1;
}

static int is_aligned(const gr_array *array, unsigned bytes)
{
    uint64_t places = (uintptr_t)array->base;
    for (int i = 0; i < array->dims; i++)
        places |= (uint64_t)array->step[i];
    return places % bytes == 0;
}

int gr_check_out(unsigned bytes, const gr_array *out, const gr_input *inputs)
{
    if (out->read_only)
        PyErr_SetString(PyExc_ValueError, "out is read-only: pass an array that can be written to");
    for (; inputs->name && !PyErr_Occurred(); inputs++)
        if (inputs->array && overlap(out, inputs->array))
            PyErr_Format(PyExc_ValueError, "out overlaps %s: pass an array with memory of its own",
                         inputs->name);
    if (PyErr_Occurred())
        return -1;
    if (out->count && !is_spread_out(out))
        PyErr_SetString(PyExc_ValueError, "elements of out share memory, as those of a "
                                          "broadcast array do: pass an array without overlaps");
    else if (out->count && !is_aligned(out, bytes))
        PyErr_SetString(PyExc_BufferError, "the elements of out are not aligned to their size");
    return PyErr_Occurred() ? -1 : 0;
}

bool gr_drop_words(gr_array *out, unsigned parts)
{
    int last = out->dims - 1;
    bool is_empty = false; /* then steps mean nothing, and CuPy's are not those of a full array */
    for (int i = 0; i < last; i++)
        is_empty |= out->size[i] == 0;
    if (last < 0 || out->bytes != sizeof(int64_t) ||
        (!is_empty && out->step[last] != sizeof(int64_t)) ||
        (size_t)out->size[last] != gr_exact_words((int)parts))
        return false;
    out->dims = last;
    return true;
}

int gr_part_bytes(const gr_sums *sums)
{
    return sums->as_digits ? GR_WORDS_COMPONENT * (int)sizeof(int64_t) : (int)sums->bytes;
}

/* Sets the device of an array whose producer has not named it, and checks its memory. Returns 0, or
 * -1 with an exception set. */
static int find_memory(gr_array *array)
{
    gr_error error;
    if (array->device < 0 && !array->count) /* has no address */
        array->device = 0;
    if (array->device < 0 && gr_pointer_device(array->base, &array->device, &error) != GR_OK) {
        gr_raise(&error);
        return -1;
    }
    return gr_check_memory(array, array->device);
}

/* --- the type View ---------------------------------------------------------------------------- */

PyTypeObject *gr_view_type;

PyObject *gr_new_view(gr_array *array, void *stream)
{
    gr_view_object *made = (gr_view_object *)PyType_GenericAlloc(gr_view_type, 0);
    if (!made) {
        gr_array_done(array);
        return NULL;
    }
    made->array = *array;
    array->owner = NULL;
    made->stream = stream;
    return (PyObject *)made;
}

PyObject *gr_py_view(PyObject *Py_UNUSED(self), PyObject *args)
{
    PyObject *object;
    unsigned long long stream;
    int waits = 0;
    gr_array array;
    if (!PyArg_ParseTuple(args, "OK|p", &object, &stream, &waits) ||
        (waits && gr_refuse_capture((void *)(uintptr_t)stream) < 0))
        return NULL;
    void *ours = stream ? (void *)(uintptr_t)stream : GR_LEGACY_STREAM;
    int found = gr_gpu_array_of(object, gr_callers_stream, ours, &array);
    if (found <= 0)
        return found < 0 ? NULL : Py_NewRef(Py_None);
    if (find_memory(&array) == 0)
        return gr_new_view(&array, stream || !array.stream ? ours : array.stream);
    gr_array_done(&array);
    return NULL;
}

static PyObject *listed(const int64_t *numbers, int count)
{
    PyObject *tuple = PyTuple_New(count);
    for (int i = 0; tuple && i < count; i++) {
        PyObject *number = PyLong_FromLongLong(numbers[i]);
        if (!number || PyTuple_SetItem(tuple, i, number) < 0)
            Py_CLEAR(tuple);
    }
    return tuple;
}

static PyObject *shape_of(PyObject *object, void *Py_UNUSED(closure))
{
    const gr_array *array = &((gr_view_object *)object)->array;
    return listed(array->size, array->dims);
}

static PyObject *steps_of(PyObject *object, void *Py_UNUSED(closure))
{
    const gr_array *array = &((gr_view_object *)object)->array;
    return listed(array->step, array->dims);
}

static PyObject *key_of(PyObject *object, void *Py_UNUSED(closure))
{
    const gr_view_object *view = (gr_view_object *)object;
    int64_t key[3 + 2 * GR_ARRAY_MAX_DIMS], *at = key;
    *at++ = view->array.kind;
    *at++ = view->array.bytes;
    *at++ = view->array.device;
    for (int i = 0; i < view->array.dims; i++) {
        *at++ = view->array.size[i];
        *at++ = view->array.step[i];
    }
    return PyBytes_FromStringAndSize((const char *)key, (char *)at - (char *)key);
}

static void dealloc(PyObject *object)
{
    gr_array_done(&((gr_view_object *)object)->array);
    gr_free_object(object);
}

#define MEMBER(name, type, field)                                                                  \
    {                                                                                              \
        name, type, offsetof(gr_view_object, field), READONLY, NULL                                \
    }

static PyMemberDef members[] = {
    MEMBER("kind", T_CHAR, array.kind), /* its low byte, which lies first */
    MEMBER("bytes", T_INT, array.bytes),
    MEMBER("device", T_INT, array.device),
    MEMBER("count", T_LONGLONG, array.count),
    MEMBER("stream", T_ULONGLONG, stream),
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef getters[] = {
    {"key", key_of, NULL, "Equal for arrays that differ only in where they lie.", NULL},
    {"shape", shape_of, NULL, NULL, NULL},
    {"steps", steps_of, NULL, "Bytes from an element to the next, in each dimension.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_dealloc, (void *)dealloc},
    {Py_tp_members, members},
    {Py_tp_getset, getters},
    {Py_tp_doc, "An array on a GPU as its producer described it."},
    {0, NULL},
};

GR_TYPE(gr_make_view_type, gr_view_type, "View", gr_view_object, GR_MADE_BY_C)

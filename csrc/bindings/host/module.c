/* The module _host: CPU sums, exact accumulators, and the tables of strategies, dtypes and
 * integrands. It uses no device. */
#include "bindings/host/functions.h"

#include "exact/finish.h"
#include "bindings/gil.h"
#include "bindings/numpy_arrays.h"
#include "shared/how.h"
#include "shared/registry.h"
#include "shared/samples.h"

#include <stdlib.h>

static PyObject *py_strategies(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(none))
{
    static const char *const kinds[] = {"kernel", "broken", "library",  "host", "everywhere",
                                        "choice", "axis",   "segments", "keys", "scan"};
    static const char *const dtypes[] = {"all",        "int32", "complex",     "any",    "floats",
                                         "moments",    "words", "float_words", "merged", "runs",
                                         "float_sums", "parts", "untyped",     "plain",  "wide"};
    int count = gr_strategy_count();
    PyObject *list = PyList_New(count);
    for (int i = 0; list && i < count; i++) {
        const gr_strategy *s = gr_strategy_at(i);
        PyObject *row = Py_BuildValue("sssssIi", s->name, kinds[s->kind], s->aliases, s->lesson,
                                      dtypes[s->dtypes], s->traits, s->capability);
        if (!row || PyList_SetItem(list, i, row) < 0)
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *py_dtypes(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(none))
{
    PyObject *list = PyList_New(GR_DTYPE_COUNT);
    for (int i = 0; list && i < GR_DTYPE_COUNT; i++) {
        const gr_dtype_row *dtype = &gr_dtype_rows[i];
        PyObject *row = Py_BuildValue("siis", dtype->name, dtype->load, dtype->acc,
                                      gr_dtype_rows[dtype->result].name);
        if (!row || PyList_SetItem(list, i, row) < 0)
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *py_how(PyObject *Py_UNUSED(self), PyObject *args)
{
    int source, wanted, exactly, place, groups;
    if (!PyArg_ParseTuple(args, "iipii", &source, &wanted, &exactly, &place, &groups))
        return NULL;
    gr_how how = gr_how_of(source, wanted, exactly, place, groups);
    if (how.refusal == GR_NO_DTYPE) {
        PyErr_SetString(PyExc_ValueError, "no such dtype, place or grouping");
        return NULL;
    }
    return Py_BuildValue("iiiOiiO", how.refusal, how.result, how.elements,
                         how.halves ? Py_True : Py_False, how.load, how.acc,
                         how.exactly ? Py_True : Py_False);
}

static PyObject *py_integrands(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(none))
{
    static const struct {
        const char *name, *formula, *exact, *lesson;
        double from, to;
    } rows[] = {
#define INTEGRAND(name, formula, from, to, exact, lesson)                                          \
    {#name, #formula, #exact, lesson, from, to},
#include "integrands.def"
#undef INTEGRAND
    };
    PyObject *list = PyList_New(GR_INTEGRAND_COUNT);
    for (int i = 0; list && i < GR_INTEGRAND_COUNT; i++) {
        PyObject *row = Py_BuildValue("ssddss", rows[i].name, rows[i].formula, rows[i].from,
                                      rows[i].to, rows[i].exact, rows[i].lesson);
        if (!row || PyList_SetItem(list, i, row) < 0)
            Py_CLEAR(list);
    }
    return list;
}

/* Reads the C environment, which os.environ writes through to. Looking up a missing name in
 * os.environ takes a microsecond, as long as all other Python code of a call. */
static PyObject *py_environment(PyObject *Py_UNUSED(module), PyObject *name)
{
    const char *text = PyUnicode_AsUTF8AndSize(name, NULL);
    if (!text)
        return NULL;
    const char *value = getenv(text);
    if (value)
        return PyUnicode_DecodeFSDefault(value);
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"sum_array", (PyCFunction)(void (*)(void))gr_py_sum_array, METH_FASTCALL,
     "sum_array(array, exactly, common)\n--\n\n"
     "The SumResult of an array that needs no conversion, by `exact` or `cpu`; None for other "
     "objects. common(dtype, exactly) returns the fields of a Timing that such sums have in "
     "common; None: the sum is not timed."},
    {"unrounded_axes", gr_py_unrounded_axes, METH_VARARGS,
     "unrounded_axes(array, axes, out)\n--\n\n"
     "Stores the sums along axes, as three floats and a bound of their error each, which are along "
     "the first axis of `out`. Reduced axes have size 1 there. Whether all bounds are 0."},
    {"sum_axis", (PyCFunction)(void (*)(void))gr_py_sum_axis, METH_FASTCALL,
     "sum_axis(array, axis, keepdims, exactly, common[, details])\n--\n\n"
     "The sums along axes by `exact` or `cpu`. Without `details`: a SumResult; None for arrays and "
     "axes that need a conversion or a check. With details, (source, wanted, dtype, out, mask, "
     "initial): (value, ms)."},
    {"finish", gr_py_finish, METH_VARARGS,
     "finish(kind, root, parts, first, second, axes, n, mean, ddof, load, out)\n--\n\n"
     "Adds up terms along axes: tuples of (term, load, array, other), where `other` are the other "
     "factors, or a mask, or None. Stores what is made of the sums, rounded once."},
    {"finish_sums", gr_py_finish_sums, METH_VARARGS,
     "finish_sums(kind, root, parts, first, ddof, second, sums, n, load, out, unknown)\n--\n\n"
     "The same for sums that exist, in four planes each: `first` and `second` of them. Marks the "
     "results that the sums do not tell, and returns how many these are."},
    {"finish_plainly", (PyCFunction)(void (*)(void))gr_py_finish_plainly, METH_FASTCALL,
     "finish_plainly(array, axis, keepdims, (kind, root, first, second, over_n), ddof[, "
     "other])\n--\n\n"
     "The same for arrays of floats as they are: a new array or scalar. None if anything needs a "
     "conversion, a check or a warning."},
    {"rolling", gr_py_rolling, METH_VARARGS,
     "rolling(kind, root, divides, ddof, array, starts, ends, size, after, counts, least, "
     "load, out)\n--\n\nStores what is made of the sums of windows of rows, rounded once."},
    {"running_sums", gr_py_running_sums, METH_VARARGS,
     "running_sums(array, axis, offsets, load, target, out, before=None)\n--\n\n"
     "Stores the sum of the elements of a segment up to each, rounded once. `before`: the digits "
     "of a sum before each row."},
    {"sum_segments", gr_py_sum_segments, METH_VARARGS,
     "sum_segments(values, ids, offsets, out, source, wanted, initial, skips=False)\n--\n\n"
     "Stores the sums by segment in `out`: (ms, the first row whose id is out of range or -1). If "
     "`skips`, rows with negative ids are left out."},
    {"finish_segments", gr_py_finish_segments, METH_VARARGS,
     "finish_segments(kind, root, parts, ddof, values, ids, offsets, segments, load, counts, "
     "target, out, unknown, skips)\n--\n\n"
     "Stores what is made of sums by segment, rounded once, and marks the results that the sums do "
     "not tell: the first row whose id is out of range or -1."},
    {"number_groups", gr_py_number_groups, METH_VARARGS,
     "number_groups(keys, least, ids, counts, first, numbers)\n--\n\n"
     "Numbers groups in the order of their first rows: gr_numbering in csrc/segments/segments.h."},
    {"cpu_error_factor", gr_py_cpu_error_factor, METH_VARARGS,
     "cpu_error_factor(n, load, acc)\n--\n\n"
     "The error bound of cpu_sum, divided by the sum of magnitudes."},
    {"are_bools", gr_py_are_bools, METH_O,
     "are_bools(array)\n--\n\nWhether the bytes of a flat array are 0 and 1."},
    {"cpu_sum_samples", gr_py_cpu_sum_samples, METH_VARARGS,
     "cpu_sum_samples(integrand, from, to, n, acc, threads)\n--\n\n"
     "The sum of samples of an integrand: (the bytes of an accumulator, ms)."},
    {"sum_levels", gr_py_sum_levels, METH_VARARGS,
     "sum_levels(matrix, in_rows, has_x)\n--\n\n"
     "The exact sums of rows or columns: gr_levels in csrc/exact/proven_kernels.h."},
    {"sum_digits", gr_py_sum_digits, METH_VARARGS,
     "sum_digits(array, rows, load, components, words, other=None)\n--\n\n"
     "Stores the words of the exact sum of each row of a flat array, or of products."},
    {"finish_digits", gr_py_finish_digits, METH_VARARGS,
     "finish_digits(words, finish, components, ddof, load, out)\n--\n\n"
     "Means, variances, standard deviations or norms of which rows have the digits."},
    {"round_digits", gr_py_round_digits, METH_VARARGS,
     "round_digits(words, load, components, out)\n--\n\n"
     "Stores the sums, rounded once to an element type, that rows of words have."},
    {"strategies", py_strategies, METH_NOARGS, "strategies()\n--\n\nThe lines of strategies.def."},
    {"dtypes", py_dtypes, METH_NOARGS,
     "dtypes()\n--\n\nThe lines of dtypes.def: (name, load, acc, result)."},
    {"how", py_how, METH_VARARGS,
     "how(source, wanted, exactly, place, groups)\n--\n\n"
     "How elements are added up, as shared/how.h has it: (refusal, result, elements, halves, load, "
     "acc, exactly). Dtypes are lines of dtypes.def."},
    {"integrands", py_integrands, METH_NOARGS, "integrands()\n--\n\nThe lines of integrands.def."},
    {"environment", py_environment, METH_O,
     "environment(name)\n--\n\nThe value of an environment variable, or None."},
    {NULL, NULL, 0, NULL},
};

static int exec_module(PyObject *module)
{
    static const struct {
        const char *name;
        long value;
    } constants[] = {
#define X(name, bit) {#name, name},
        GR_TRAITS(X)
#undef X
            {"CLUSTER_BLOCKS", GR_CLUSTER_BLOCKS},
        {"LOAD_F16", GR_LOAD_f16},
        {"LOAD_BF16", GR_LOAD_bf16},
        {"LOAD_F32", GR_LOAD_f32},
        {"LOAD_F64", GR_LOAD_f64},
        {"LOAD_U32", GR_LOAD_u32},
        {"ACC_U32", GR_ACC_u32},
        {"ACC_U64", GR_ACC_u64},
        {"ACC_F32", GR_ACC_f32},
        {"ACC_F64", GR_ACC_f64},
        {"ON_PROCESSORS", GR_ON_PROCESSORS},
        {"SENT_TO_GPU", GR_SENT_TO_GPU},
        {"ON_GPU", GR_ON_GPU},
        {"FINISH_BATCH", GR_FINISH_BATCH},
        {"ALL", GR_GROUPS_ALL},
        {"AXES", GR_GROUPS_AXES},
        {"OFFSETS", GR_GROUPS_OFFSETS},
        {"IDS", GR_GROUPS_IDS},
    };
    for (size_t i = 0; i < sizeof constants / sizeof constants[0]; i++)
        if (PyModule_AddIntConstant(module, constants[i].name, constants[i].value) < 0)
            return -1;
    if (PyModule_AddStringConstant(module, "COMPILER", __VERSION__) < 0 ||
        gr_add_exact_type(module) < 0 || gr_add_context_value_type(module) < 0 ||
        gr_add_sum_result_type(module) < 0 || gr_import_numpy() < 0)
        return -1;
    return gr_remember_main_thread();
}

GR_DEFINE_MODULE(methods, exec_module)

/* Exact additions as functions that a Numba kernel calls. Numba passes the place of the result, and
 * reads a status of 0 as success. */
#include <gpureduce/exact_add.cuh>

extern "C" __device__ int exact_add_float(int *, void *sums, long long i, float x)
{
    static_cast<gpureduce::exact_sum<float> *>(sums)[i].add(x);
    return 0;
}

extern "C" __device__ int exact_value_float(float *value, void *sums, long long i)
{
    *value = static_cast<gpureduce::exact_sum<float> *>(sums)[i].value();
    return 0;
}

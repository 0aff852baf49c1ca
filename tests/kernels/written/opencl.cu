// Port of our OpenCL kernel.
#define __kernel extern "C" __global__
#define __local __shared__
#define CLK_LOCAL_MEM_FENCE
#define barrier(x) __syncthreads()
#define get_local_id(d) threadIdx.x
#define get_global_id(d) (blockIdx.x * blockDim.x + threadIdx.x)
#define get_local_size(d) blockDim.x
#define get_group_id(d) blockIdx.x

__kernel void reduce(const float *input, float *partial, unsigned int n)
{
    __local float scratch[1024];
    unsigned int lid = get_local_id(0);
    unsigned int gid = get_global_id(0);
    scratch[lid] = gid < n ? input[gid] : 0.0f;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (unsigned int s = get_local_size(0) / 2; s > 0; s >>= 1) {
        if (lid < s)
            scratch[lid] += scratch[lid + s];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (lid == 0)
        partial[get_group_id(0)] = scratch[0];
}

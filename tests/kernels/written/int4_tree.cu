__global__ void sum_int4(const int4 *data, int *sum, unsigned int num_vec)
{
    __shared__ int s[1024];
    unsigned int tid = threadIdx.x, i = blockIdx.x * blockDim.x + tid;
    int4 v = i < num_vec ? data[i] : make_int4(0, 0, 0, 0);
    s[tid] = v.x + v.y + v.z + v.w;
    __syncthreads();
    for (unsigned int k = blockDim.x >> 1; k; k >>= 1) {
        if (tid < k) s[tid] += s[tid + k];
        __syncthreads();
    }
    if (!tid) atomicAdd(sum, s[0]);
}

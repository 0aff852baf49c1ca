__global__ void tile_loop(const float *in, float *out, int n)
{
    __shared__ float tile[1024];
    float sum = 0;
    for (int first = blockIdx.x * blockDim.x; first < n; first += gridDim.x * blockDim.x) {
        tile[threadIdx.x] = first + threadIdx.x < n ? in[first + threadIdx.x] : 0;
        __syncthreads();
        if (threadIdx.x == 0)
            for (int k = 0; k < blockDim.x; k++) sum += tile[k];
    }
    if (threadIdx.x == 0) atomicAdd(out, sum);
}

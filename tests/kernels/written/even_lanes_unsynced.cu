__global__ void even_lanes_u(const int *in, int *out, int n)
{
    __shared__ int s[1024];
    int tid = threadIdx.x, i = blockIdx.x * blockDim.x + tid;
    s[tid] = i < n ? in[i] : 0;
    __syncwarp();
    if (tid % 2 == 0) {
        s[tid] += s[tid + 1];
        if (tid % 4 == 0) atomicAdd(out, s[tid] + s[tid + 2]);
    }
}

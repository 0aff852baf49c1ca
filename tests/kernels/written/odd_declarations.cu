/* Right for blocks of up to 256 threads. Declarations as C++ and compilers allow them. */
#if 0
__global__ void odd(int *data) { data[0] = 1; }
#endif
__global__ void odd(const float *in, float *out, int n)
{
    __shared__ struct Node {
        float value;
        int at;
    } nodes[256];
    extern __shared__ float rows[][32];
    int tid = threadIdx.x, i = blockIdx.x * blockDim.x + tid;
    switch (n > 0) {
    case 1:
        __shared__ float s[256] __attribute__((aligned(16)));
        Node mine = {i < n ? in[i] : 0, tid};
        nodes[tid] = mine;
        rows[tid / 32][tid % 32] = nodes[tid].value;
        s[tid] = rows[tid / 32][tid % 32];
        __syncthreads();
        if (tid == 0) {
            float sum = 0;
            for (int k = 0; k < blockDim.x; k++)
                sum += s[k];
            out[blockIdx.x] = sum;
        }
    }
}

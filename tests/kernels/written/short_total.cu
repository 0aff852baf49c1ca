__global__ void v16(const short *A, int *S, int n)
{
    short t = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) t += A[i];
    atomicAdd(S, (int)t);
}

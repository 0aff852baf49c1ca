__global__ void total(const double *x, double *y, int nthreads, long n)
{
    __shared__ double buf[1024];
    int t = threadIdx.x;
    double acc = 0;
    for (long i = (long)blockIdx.x * nthreads + t; i < n; i += (long)nthreads * gridDim.x)
        acc += x[i];
    buf[t] = acc;
    __syncthreads();
    for (int half = nthreads / 2; half >= 1; half /= 2) {
        if (t < half) buf[t] += buf[t + half];
        __syncthreads();
    }
    if (t == 0) y[blockIdx.x] = buf[0];
}

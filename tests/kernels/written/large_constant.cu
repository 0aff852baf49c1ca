#define N (1<<20)
#define THREADS 256
__global__ void reduce(const int *x, int *out){
     __shared__ int sdata[THREADS];
     int tid = threadIdx.x;
     int idx = threadIdx.x+blockDim.x*blockIdx.x;
     sdata[tid] = idx < N ? x[idx] : 0;
     __syncthreads();
     for (int s=THREADS/2; s>0; s>>=1) {
        if (tid < s)
            sdata[tid] += sdata[tid + s];
        __syncthreads();
     }
     if (tid == 0) atomicAdd(out, sdata[0]);
  }

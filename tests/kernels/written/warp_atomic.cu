__inline__ __device__
int of_warp(int value) {
  for (int lanes = warpSize/2; lanes > 0; lanes /= 2)
    value += __shfl_down_sync(0xffffffff, value, lanes);
  return value;
}
__global__ void warp_atomic(int *in, int* out, int count) {
  int sum = int(0);
  for(int i = blockIdx.x * blockDim.x + threadIdx.x;
      i < count;
      i += blockDim.x * gridDim.x) {
    sum += in[i];
  }
  sum = of_warp(sum);
  if ((threadIdx.x & (warpSize - 1)) == 0)
    atomicAdd(out, sum);
}

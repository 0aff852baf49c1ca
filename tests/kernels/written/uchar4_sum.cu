__global__ void hist_sum(const uchar4 *img, unsigned int *total, int npix4)
{
    unsigned int acc = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < npix4; i += gridDim.x * blockDim.x) {
        uchar4 p = img[i];
        acc += p.x + p.y + p.z + p.w;
    }
    for (int d = 16; d > 0; d >>= 1) acc += __shfl_down_sync(0xffffffff, acc, d);
    if ((threadIdx.x & 31) == 0) atomicAdd(total, acc);
}

__global__ void sum(const float *in, float *out)
{
    const int PER = 40;
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        float t = 0;
        for (int k = 0; k < PER; k++)
            t += in[k];
        out[0] = t;
    }
}

__global__ void sum4w(const float4 *in, float *out, int n4)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0.0f;
    if (i < n4) {
        float4 v = in[i];
        sum += v.x + v.y + v.z;
    }
    atomicAdd(out, sum);
}

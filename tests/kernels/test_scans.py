"""Kernels of users that make running sums: how they run, and what a verdict says of them."""

from __future__ import annotations

import numpy as np
import pytest

import gpureduce
from user_kernels import some

# In one block, and with a sum for each block.
ONE = """__global__ void scan(const float *in, float *out, int n)
{
    __shared__ float s[1024];
    int t = threadIdx.x;
    s[t] = t < n ? in[t] : 0;
    __syncthreads();
    for (int d = 1; d < blockDim.x; d *= 2) {
        float v = t >= d ? s[t - d] : 0;
        __syncthreads();
        s[t] += v;
        __syncthreads();
    }
    if (t < n) out[t] = s[t];
}"""
MANY = """// gpureduce: operation=cumsum
__global__ void scan(const int *in, int *out, int *sums, int n)
{
    __shared__ int s[1024];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    s[t] = i < n ? in[i] : 0;
    __syncthreads();
    for (int d = 1; d < blockDim.x; d *= 2) {
        int v = t >= d ? s[t - d] : 0;
        __syncthreads();
        s[t] += v;
        __syncthreads();
    }
    if (i < n) out[i] = s[t];
    if (t == blockDim.x - 1) sums[blockIdx.x] = s[t];
}"""
# The scan of GPU Gems 3, with its names. n is the number of elements of the one block.
EXCLUSIVE = """__global__ void prescan(float *g_odata, float *g_idata, int n)
{
    extern __shared__ float temp[];
    int thid = threadIdx.x, offset = 1;
    temp[2*thid] = g_idata[2*thid];
    temp[2*thid+1] = g_idata[2*thid+1];
    for (int d = n>>1; d > 0; d >>= 1) {
        __syncthreads();
        if (thid < d)
            temp[offset*(2*thid+2)-1] += temp[offset*(2*thid+1)-1];
        offset *= 2;
    }
    if (thid == 0) { temp[n - 1] = 0; }
    for (int d = 1; d < n; d *= 2) {
        offset >>= 1;
        __syncthreads();
        if (thid < d) {
            int ai = offset*(2*thid+1)-1, bi = offset*(2*thid+2)-1;
            float t = temp[ai];
            temp[ai] = temp[bi];
            temp[bi] += t;
        }
    }
    __syncthreads();
    g_odata[2*thid] = temp[2*thid];
    g_odata[2*thid+1] = temp[2*thid+1];
}"""
# Its last form: a gap after each 32 entries, and two elements of a thread n / 2 apart.
GAPS = EXCLUSIVE.replace("__global__", "#define GAP(k) ((k) >> 5)\n__global__")
GAPS = GAPS.replace("offset = 1;", "offset = 1, ai = thid, bi = thid + (n/2);")
GAPS = GAPS.replace("temp[2*thid] = g_idata[2*thid]", "temp[ai + GAP(ai)] = g_idata[ai]")
GAPS = GAPS.replace("temp[2*thid+1] = g_idata[2*thid+1]", "temp[bi + GAP(bi)] = g_idata[bi]")
GAPS = GAPS.replace(
    "temp[offset*(2*thid+2)-1] += temp[offset*(2*thid+1)-1];",
    """{
                int ai = offset*(2*thid+1)-1, bi = offset*(2*thid+2)-1;
                ai += GAP(ai); bi += GAP(bi);
                temp[bi] += temp[ai];
            }""",
).replace("temp[n - 1]", "temp[n - 1 + GAP(n - 1)]")
GAPS = GAPS.replace("float t =", "ai += GAP(ai); bi += GAP(bi);\n            float t =")
GAPS = GAPS.replace("g_odata[2*thid] = temp[2*thid]",
                    "g_odata[ai] = temp[ai + GAP(ai)] + g_idata[ai]")  # fmt: skip
GAPS = GAPS.replace("g_odata[2*thid+1] = temp[2*thid+1]",
                    "g_odata[bi] = temp[bi + GAP(bi)] + g_idata[bi]")  # fmt: skip
# The first scan of GPU Gems 3, with two buffers of n elements.
BUFFERS = """__global__ void scan(float *g_odata, float *g_idata, int n)
{
    extern __shared__ float temp[];
    int thid = threadIdx.x, pout = 0, pin = 1;
    temp[pout*n + thid] = g_idata[thid];
    __syncthreads();
    for (int offset = 1; offset < n; offset *= 2) {
        pout = 1 - pout;
        pin = 1 - pout;
        if (thid >= offset)
            temp[pout*n+thid] = temp[pin*n+thid] + temp[pin*n+thid - offset];
        else
            temp[pout*n+thid] = temp[pin*n+thid];
        __syncthreads();
    }
    g_odata[thid] = temp[pout*n+thid];
}"""
# The block size in the template, and a flag, as in NVIDIA's samples.
TEMPLATE = """template <typename T, int BLOCK, bool storeSum>
__global__ void scan(const T* __restrict__ input, T* __restrict__ output, T *aux, unsigned int len)
{
    __shared__ T buf[2][BLOCK];
    int t = threadIdx.x, i = blockIdx.x * BLOCK + t, cur = 0;
    buf[0][t] = i < len ? input[i] : T(0);
    __syncthreads();
    for (int d = 1; d < BLOCK; d <<= 1) {
        buf[1 - cur][t] = t >= d ? buf[cur][t] + buf[cur][t - d] : buf[cur][t];
        cur = 1 - cur;
        __syncthreads();
    }
    if (i < len) output[i] = buf[cur][t];
    if (storeSum && t == BLOCK - 1) aux[blockIdx.x] = buf[cur][t];
}"""
# One block that goes through all elements.
TILES = """__global__ void scan(const int *in, int *out, int n)
{
    __shared__ int s[1024], carry;
    int t = threadIdx.x;
    if (t == 0) carry = 0;
    for (int base = 0; base < n; base += blockDim.x) {
        s[t] = base + t < n ? in[base + t] : 0;
        __syncthreads();
        for (int d = 1; d < blockDim.x; d *= 2) {
            int v = t >= d ? s[t - d] : 0;
            __syncthreads();
            s[t] += v;
            __syncthreads();
        }
        if (base + t < n) out[base + t] = s[t] + carry;
        __syncthreads();
        if (t == blockDim.x - 1) carry += s[t];
        __syncthreads();
    }
}"""
SERIAL = """__global__ void scan(const double *x, double *y, int n)
{
    double s = 0;
    for (int i = 0; threadIdx.x + blockIdx.x == 0 && i < n; i++)
        y[i] = s += x[i];
}"""
# Two elements of a thread, whose number stands in a variable.
PAIRS = (
    MANY.replace("s[1024]", "s[2048]")
    .replace(
        "t = threadIdx.x, i = blockIdx.x * blockDim.x",
        "t = threadIdx.x, m = 2 * blockDim.x, k = t + blockDim.x, i = blockIdx.x * m",
    )
    .replace(
        "s[t] = i < n ? in[i] : 0;",
        "s[t] = i < n ? in[i] : 0; s[k] = i + blockDim.x < n ? in[i + blockDim.x] : 0;",
    )
    .replace("d < blockDim.x", "d < m")
    .replace("int v =", "int w = k >= d ? s[k - d] : 0, v =")
    .replace("s[t] += v;", "s[t] += v; s[k] += w;")
    .replace("out[i] = s[t];", "out[i] = s[t]; if (i + blockDim.x < n) out[i + blockDim.x] = s[k];")
    .replace("= s[t];\n}", "= s[k];\n}")
)
TWO = {"elements": 2, "shared": "twice", "sizes": "full_blocks", "blocks": "powers_of_two"}


def verdict(text: str, **how: object) -> gpureduce.Verdict:
    return gpureduce.check(gpureduce.kernel(text, operation="cumsum", **how), device="emulator")


@pytest.mark.parametrize(
    ("text", "where"),
    some([
        (GAPS, "right for blocks that are powers of two, where n fills its blocks (2 elements per"),
        (BUFFERS, "right where n fills its blocks"),
        (TEMPLATE, "nothing wrong found for blocks that are powers of two"),
        (TILES, "nothing wrong found"),
        (SERIAL, "nothing wrong found"),
        (PAIRS, "nothing wrong found"),
    ], 3),
    ids=range(6),
)  # fmt: skip
def test_right_kernels_of_books_are_not_called_wrong(text, where):
    assert where in verdict(text).headline


@pytest.mark.parametrize("text", [ONE, MANY])
def test_right_kernels_pass(text):
    found = verdict(text)
    assert found and not found.condition and not found.failures, str(found)
    assert "No race and no split barrier" in str(found)
    assert ("n was at most what one block has" in str(found)) == (text is ONE)


@pytest.mark.parametrize(
    "name", some(["scan_blelloch_padded", "scan_warp", "scan_hillis_steele"], 3)
)
def test_rungs_of_the_ladder_pass(name):
    assert verdict(gpureduce.source(name).text)


def test_an_inclusive_scan_in_the_form_of_gpu_gems():
    text = EXCLUSIVE.replace("= temp[2*thid];", "= temp[2*thid] + g_idata[2*thid];")
    text = text.replace("= temp[2*thid+1];", "= temp[2*thid+1] + g_idata[2*thid+1];")
    found = verdict(text, **TWO)
    assert found, str(found)


@pytest.mark.parametrize(
    ("text", "headline", "details"),
    some([
        (ONE.replace("        __syncthreads();\n        s[t] += v;", "        s[t] += v;"),
         "it races: line 8 reads what line 9 writes",
         "entry 2 of the running sums is 7.0, not 6.0"),
        (ONE.replace("out[t] = s[t]", "out[t] = s[t] - in[t]"),
         "makes exclusive running sums: entry i lacks element i", "element 0 was left out"),
        (EXCLUSIVE, "makes exclusive running sums", "entry 0 of the running sums is 0"),
        (ONE.replace("d < blockDim.x", "d < blockDim.x / 2"), "scan: wrong",
         "entry 16 of the running sums is 150.0, not 153.0\n    element 0 was left out"),
        (ONE.replace("s[1024]", "s[256]"), "right for blocks of up to 256 threads",
         "thread 256 writes s[256]"),
        (ONE.replace("out[t] =", "out[n - 1 - t] ="), "scan: wrong", "entry 0 of the running sums"),
        (ONE.replace("in[t] : 0", "in[n - 1 - t] : 0").replace("out[t]", "out[n - 1 - t]"),
         "makes running sums from the last element on", "entry 0 of the running sums"),
        (MANY.replace("sums[blockIdx.x] = s[t]", "sums[blockIdx.x] = 0"),
         "makes running sums that begin anew with each block", "entry 32 of the running sums"),
        (MANY.replace("t == blockDim.x - 1", "t == 0"), "scan: wrong", "entry 32 of the running"),
        (TILES.replace("carry += s[t]", "carry = s[t]"), "scan: wrong", "elements 0 to 31 were"),
        (SERIAL.replace("double s", "float s"), "scan: wrong", "of the running sums is"),
        (ONE.replace("t < n ? in", "t <= n ? in"), "line 5: thread 4 reads in[4]; in has 4", ""),
        (SERIAL.replace("s += x[i];", "s += x[i], y[n] = 0;"), "scan: wrong",
         "writes y[1]; y has 1 element"),
        (GAPS.replace("ai += GAP(ai); bi += GAP(bi);\n            float", "float"),
         "wrong", "g_idata has 1 element"),
        (TEMPLATE.replace("t == BLOCK - 1", "t == BLOCK - 2"), "scan: wrong", "was left out"),
    ], 2),
    ids=range(15),
)  # fmt: skip
def test_what_is_wrong_is_named(text, headline, details):
    few = {} if "of up to" in headline else {"blocks": "32,64"}
    found = verdict(text, **(TWO if text is EXCLUSIVE else few))
    assert not found
    assert headline in found.headline and details in str(found), str(found)


@pytest.mark.slow
@pytest.mark.parametrize("fence", [1, 2, 3])
def test_a_look_back_without_one_of_its_fences_is_found(fence):
    how = {"elements": 8, "blocks": "64,128"}
    if fence == 1:
        right = verdict(gpureduce.source("scan_look_back").text, **how)
        assert right and not right.remarks
    lines, seen = [], 0
    for line in gpureduce.source("scan_look_back").text.splitlines():
        seen += line.strip() == "__threadfence();"
        lines.append("" if line.strip() == "__threadfence();" and seen == fence else line)
    found = verdict("\n".join(lines), **how)
    if fence == 2:  # the reader's: a remark, as NVIDIA's samples do without it
        assert found and any("a __threadfence() after the atomic" in one for one in found.remarks)
    else:
        assert not found and found.races and "__threadfence()" in str(found)


def test_running_sums_by_a_kernel():
    kernel = gpureduce.kernel(MANY)
    assert kernel.options["operation"] == "cumsum" and kernel.options["elements"] == "1"
    x = np.arange(-500, 2500, dtype=np.int32)
    for more in ({}, {"block": 64}, {"reverse": True}, {"include_initial": True}):
        found = gpureduce.cumsum(x, kernel, dtype="int32", **more)
        more.pop("block", None)
        assert np.array_equal(found.value, gpureduce.exact.cumsum(x, dtype="int32", **more))
        assert found.timing.strategy == "scan" and found.timing.backend == "emulator"
    out = np.zeros(3000, np.int32)
    assert gpureduce.cumsum(x, kernel, dtype="int32", out=out).value is out
    assert np.array_equal(out, np.cumsum(x, dtype=np.int32))
    assert not gpureduce.races(kernel)
    assert gpureduce.explain(kernel, n=3000).counters["block_barriers"] > 0
    shown = gpureduce.replay(kernel, 200)
    assert shown.is_right and shown.unknown is None and len(shown.launches) == 3
    for text in (TILES, PAIRS):
        found = gpureduce.kernel(text, operation="cumsum")
        assert np.array_equal(gpureduce.cumsum(x, found, dtype="int32").value, out)
        assert gpureduce.replay(found, 200).is_right and gpureduce.explain(found, n=3000)
    one = gpureduce.kernel(ONE, operation="cumsum")
    assert gpureduce.cumsum(np.ones(256, np.float32), one).value[-1] == 256


@pytest.mark.parametrize(
    ("error", "match", "call"),
    [
        (ValueError, "scan makes running sums: call gpureduce.cumsum",
         lambda: gpureduce.sum([1], gpureduce.kernel(MANY))),
        (ValueError, r"mine makes one sum: .* kernel\(\.\.\., operation='cumsum'\)",
         lambda: gpureduce.cumsum([1], gpureduce.kernel(
             "__global__ void mine(const int *in, int *out, int n) { out[0] = in[0]; }"))),
        (ValueError, "within one block, of at most 256 elements, not 257",
         lambda: gpureduce.cumsum(np.ones(257, "f4"), gpureduce.kernel(ONE, operation="cumsum"))),
        (ValueError, "on the emulator only: leave device and stream out",
         lambda: gpureduce.cumsum([1], gpureduce.kernel(MANY), device="cuda")),
        (TypeError, "pass an array of float32, not of float64",
         lambda: gpureduce.cumsum(np.ones(9), gpureduce.kernel(ONE, operation="cumsum"))),
        (gpureduce.KernelError, "operation must be one of sum, cumsum, not 'scan'",
         lambda: gpureduce.kernel(ONE, operation="scan")),
        (gpureduce.KernelError, "must store the type that it reads",
         lambda: gpureduce.kernel(ONE.replace("float *out", "double *out"), operation="cumsum")),
        (gpureduce.KernelError, "has a grid-stride loop",
         lambda: gpureduce.kernel(MANY.replace("i < n", "i < n * gridDim.x"), elements="many")),
        (gpureduce.KernelError, r"in place, in data: .* as in const int \* in, int \* out",
         lambda: gpureduce.kernel(MANY.replace("int *in, int *out", "int *data")
                                  .replace("const int *data", "int *data")
                                  .replace("in[i]", "data[i]").replace("out[i]", "data[i]"))),
        (gpureduce.KernelError, r"does not use sums: .* its sum in sums\[blockIdx.x\]",
         lambda: gpureduce.kernel(MANY.replace("sums[blockIdx.x] = s[t]", ""))),
        (gpureduce.KernelError, "has scratch memory of type double, sums: .* the entries, int",
         lambda: gpureduce.kernel(MANY.replace("int *sums", "double *sums"))),
        (ValueError, "block must be a power of two, not 96",
         lambda: gpureduce.cumsum(np.ones(9), gpureduce.kernel(TEMPLATE, operation="cumsum"),
                                  block=96)),
        (ValueError, "scan was made for running sums",
         lambda: gpureduce.check(gpureduce.kernel(MANY), operation="sum")),
    ],
    ids=range(13),
)  # fmt: skip
def test_errors(error, match, call):
    with pytest.raises(error, match=match):
        call()

"""How a text is launched: sizes, elements per thread, one sum or one for each block, one block."""

from __future__ import annotations

import shutil
import time

import pytest

import gpureduce
from user_kernels import some

pytestmark = pytest.mark.skipif(not shutil.which("g++"), reason="no compiler")

TREE = """    __syncthreads();
    for (int k = blockDim.x / 2; k > 0; k /= 2) {
        if (tid < k) s[tid] += s[tid + k];
        __syncthreads();
    }
    if (tid == 0) out[blockIdx.x] = s[0];
}
"""
N = "#define N 4096\n"
# The constant and the text that adds a second element for each thread.
SECOND = {
    "a macro": (N, "s[tid] = in[i]; if (i + blockDim.x < N) s[tid] += in[i + blockDim.x];"),
    "a constant": ("const int n = 1 << 12;\n",
                   "s[tid] = in[i]; if (i + blockDim.x < n) s[tid] += in[i + blockDim.x];"),
    "a number": ("", "s[tid] = in[i]; if (i + blockDim.x < 4096) s[tid] += in[i + blockDim.x];"),
    "brackets": (N, "s[tid] = in[i]; if ((i + blockDim.x) < N) s[tid] += in[i + blockDim.x];"),
    "the other way round": (N, "s[tid] = in[i]; if (N > i + blockDim.x) s[tid] += "
                               "in[i + blockDim.x];"),
    "the opposite": (N, "s[tid] = in[i] + (i + blockDim.x >= N ? 0 : in[i + blockDim.x]);"),
    "the last index": (N, "s[tid] = in[i]; if (i + blockDim.x <= N - 1) s[tid] += "
                          "in[i + blockDim.x];"),
    "an index of its own": (N, "int j = i + blockDim.x; s[tid] = in[i]; if (j < N) s[tid] += "
                               "in[j];"),
}  # fmt: skip
WARPS = """__device__ unsigned count;
__device__ float slots[65536];
__global__ void f(const float *in, float *out, int n)
{
    __shared__ bool last;
    int i = blockIdx.x * blockDim.x + threadIdx.x, warps = blockDim.x / 32;
    float v = i < n ? in[i] : 0;
    for (int o = 16; o; o /= 2) v += __shfl_down_sync(0xffffffff, v, o);
    if (threadIdx.x % 32 == 0) slots[blockIdx.x * warps + threadIdx.x / 32] = v;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) { last = atomicAdd(&count, 1) == gridDim.x - 1; __threadfence(); }
    __syncthreads();
    if (!last || threadIdx.x) return;
    float t = 0;
    LOOP t += slots[b];
    out[0] = t;
    count = 0;
}
"""
PARTIALS = {
    "of blocks and warps": "for (int b = 0; b < gridDim.x * warps; b++)",
    "of warps and blocks": "for (int b = 0; b < warps * gridDim.x; b++)",
    "by a cast": "for (int b = 0; b < (int)gridDim.x * warps; b++)",
    "by a division": "for (int b = 0; b < gridDim.x * blockDim.x / 32; b++)",
    "with a name": "int total = gridDim.x * (blockDim.x / 32); for (int b = 0; b < total; b++)",
    "another comparison": "for (int b = 0; gridDim.x * warps != b; b++)",
    "downwards": "for (int b = gridDim.x * warps - 1; b >= 0; b--)",
}
STRIDES = {
    "a step": "for (; i < n; i += gridDim.x * blockDim.x)",
    "a name": "int step = blockDim.x * gridDim.x; for (; i < n; i += step)",
    "a bound of its own": "int step = blockDim.x * gridDim.x; for (; i < n; i = i + step)",
    "a while": "while (i < n) for (int once = 1; once--; i += gridDim.x * blockDim.x)",
    "chunks": "int part = (n + gridDim.x * blockDim.x - 1) / (gridDim.x * blockDim.x); i *= part; "
    "for (int end = min(n, i + part); i < end; i++)",
    "unrolled": "for (; i + gridDim.x * blockDim.x < n; i += 2 * gridDim.x * blockDim.x) v += "
    "in[i + gridDim.x * blockDim.x] + in[i]; if (i < n)",
}
STATISTIC = """__device__ unsigned calls;
__global__ void f(const float *in, float *out, int n)
{
    extern __shared__ float s[];
    int tid = threadIdx.x, i = blockIdx.x * blockDim.x + tid;
    s[tid] = i < n ? in[i] : 0;
    __syncthreads();
    if (tid) return;
    float t = 0;
    for (int k = 0; k < blockDim.x; k++) t += s[k];
    COUNT
    if (gridDim.x == 1) out[0] = t;
    else out[blockIdx.x] = t;
}
"""
ONE = """__global__ void f(const float *in, float *out, int n)
{
    __shared__ float s[1024];
    int tid = threadIdx.x;
    s[tid] = 0;
    for (int i = tid; i < n; i += blockDim.x) s[tid] += in[i];
    __syncthreads();
    for (int k = 0; tid == 0 && k < blockDim.x; k++) out[0] += s[k];
}
"""
UNUSED = {
    "a macro": "#define ID (blockIdx.x * blockDim.x + threadIdx.x)\n",
    "a macro of two lines": "#define FIRST() if (blockIdx.x == 0 && \\\n    threadIdx.x == 0)\n",
    "a struct": "struct Grid {\n    __device__ static int id() { return blockIdx.x; }\n};\n",
    "a template": "template <typename T> class Grid {\n    T x;\npublic:\n    __device__ int "
    "size() const { return gridDim.x; }\n};\n",
    "a struct in a namespace": "namespace a {\nstruct G { __device__ int id() { return blockIdx.x; "
    "} };\n}\n",
    "an operator": "struct V { float x; };\n__device__ V operator+(V a, V b) { a.x += b.x + "
    "blockIdx.x; return a; }\n",
    "a function by a macro": "#define ID blockIdx.x\n__device__ int id() { return ID; }\n",
}
USED = {
    "macros": ("#define ID (blockIdx.x * blockDim.x + threadIdx.x)\n"
               "#define STEP (gridDim.x * blockDim.x)\n", "ID", "STEP"),
    "an alias": ("struct Grid { __device__ int id() { return blockIdx.x * blockDim.x + threadIdx.x;"
                 " }\n__device__ int step() { return gridDim.x * blockDim.x; } };\n"
                 "using G = Grid;\n", "G().id()", "G().step()"),
}  # fmt: skip


def check(text: str | gpureduce.Kernel, blocks: int | None = None) -> gpureduce.Verdict:
    return gpureduce.check(text, device="emulator", hint=False, blocks=blocks)


@pytest.mark.parametrize("name", some(SECOND, 8))
def test_a_constant_that_bounds_the_second_element_is_the_size(name):
    before, body = SECOND[name]
    head = "__global__ void f(const float *in, float *out)\n{\n    __shared__ float s[1024];\n"
    head += "    int tid = threadIdx.x, i = blockIdx.x * blockDim.x * 2 + tid;\n"
    text = f"{before}{head}    {body}\n{TREE}"
    kernel = gpureduce.kernel(text)
    assert (kernel.options["sizes"], kernel.options["elements"]) == ("4096", "2")
    assert str(check(text).condition) == "powers_of_two"
    wrong = check(text.replace("in[j]", "in[i]").replace("in[i + blockDim.x]", "in[i + 1]"))
    assert not wrong and wrong.condition is None


@pytest.mark.parametrize("name", some(PARTIALS, 8))
def test_the_number_of_partial_sums_is_no_stride(name):
    text = WARPS.replace("LOOP", PARTIALS[name])
    assert gpureduce.kernel(text).options["elements"] == "1"
    verdict = check(text)
    assert verdict, str(verdict)


@pytest.mark.parametrize("name", STRIDES)
def test_strides(name):
    text = f"""__global__ void f(const float *in, float *out, int n)
{{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float v = 0;
    {STRIDES[name]} v += in[i];
    atomicAdd(out, v);
}}
"""
    assert gpureduce.kernel(text).options["elements"] == "many"


@pytest.mark.parametrize(
    "count", ["atomicAdd(&calls, 1);", "if (t) atomicInc(&calls, 0xffffffff);"]
)
def test_a_counter_that_nobody_reads_does_not_find_the_last_block(count):
    text = STATISTIC.replace("COUNT", count)
    assert gpureduce.kernel(text).options["finishes"] == "no"
    verdict = check(text)
    assert verdict, str(verdict)


@pytest.mark.parametrize("name", UNUSED)
def test_a_kernel_of_one_block_beside_what_it_does_not_use(name):
    kernel = gpureduce.kernel(UNUSED[name] + ONE)
    assert kernel.options["alone"] == "yes"
    assert name != "a struct" or check(kernel, 64)


@pytest.mark.parametrize("name", USED)
def test_what_a_kernel_uses_tells_its_blocks(name):
    before, first, step = USED[name]
    text = ONE.replace("i = tid", f"i = {first}").replace("i += blockDim.x", f"i += {step}")
    text = before + text.replace("out[0] += s[k]", "atomicAdd(out, s[k])")
    kernel = gpureduce.kernel(text)
    assert kernel.options["elements"] == "many" and "alone" not in kernel.options
    assert check(kernel, 64)


WORDS = ["struct ", "enum ", "template<", "struct S { ", "enum E { A = 1, ", "struct S {};\n",
         "void f() {}\n", "#define A struct \n", "int a = gridDim.x * 2;"]  # fmt: skip


@pytest.mark.parametrize(
    ("word", "place"), [*zip(WORDS, ["before", "behind", "inside"] * 3, strict=True)]
)
def test_a_long_text_is_read_at_once(word, place):
    kernel = "__global__ void g(const float *in, float *out, int n)\n{\n    // here\n" \
             "    atomicAdd(out, in[blockIdx.x * blockDim.x + threadIdx.x]);\n}\n"  # fmt: skip
    many = word * (100_000 // len(word)) + "\n"
    text = {"before": many + kernel, "behind": kernel + many,
            "inside": kernel.replace("    // here\n", many)}[place]  # fmt: skip
    start = time.process_time()
    gpureduce.kernel(text)
    assert time.process_time() - start < 2

"""Verdicts on kernels whose blocks meet by atomics: tickets, locks and flags.

An atomic orders what comes before it, never what follows it, and only if the program acts on its
result.
"""

from __future__ import annotations

import shutil

import pytest

import gpureduce
from user_kernels import some

pytestmark = pytest.mark.skipif(not shutil.which("g++"), reason="no compiler")

HEAD = """__device__ unsigned count, done, flags[65536];
__device__ int lock;
__device__ float slots[65536];
__device__ float block_sum(const float *in, int n)
{
    __shared__ float s[1024];
    int tid = threadIdx.x, i = blockIdx.x * blockDim.x + tid;
    s[tid] = i < n ? in[i] : 0;
    __syncthreads();
    float total = 0;
    for (int k = 0; tid == 0 && k < blockDim.x; k++) total += s[k];
    return total;
}
__global__ void f(const float *in, float *out, int n)
{
"""
SUM = "float s = block_sum(in, n); if (threadIdx.x) return;\n"
ALL = "float t = 0; for (int b = 0; b < gridDim.x; b++) t += slots[b]; out[0] = t;"
LAST = "if (ticket == gridDim.x - 1) { __threadfence(); count = done = 0; " + ALL + " }"
STORE = "slots[blockIdx.x] = s; __threadfence();\n"
DRAW = "unsigned ticket = atomicAdd(&count, 1);\n"
WARPS = """int i = blockIdx.x * blockDim.x + threadIdx.x;
    float v = i < n ? in[i] : 0;
    for (int o = 16; o; o /= 2) v += __shfl_down_sync(0xffffffff, v, o);
    __shared__ unsigned drawn, stored;
    __shared__ float warps[32], total;
    if (threadIdx.x == 0) drawn = stored = total = 0;
    __syncthreads();
"""
OF_WARPS = "for (int w = 0; w < blockDim.x / 32; w++) total += warps[w]; atomicAdd(out, total);"


def locked(take: str, after: str = "") -> str:
    return f"{SUM}{take} {{ {after} *out += s; __threadfence(); atomicExch(&lock, 0); }}"


# The ticket says that a block has drawn it, and not that the block has stored its sum.
EARLY = {
    "an early ticket": SUM + DRAW + STORE + LAST,
    "another counter": SUM + DRAW + STORE + "atomicAdd(&done, 1);" + LAST,
    "the same counter": SUM + "unsigned ticket = atomicAdd(&count, 1) & 0xffff;\n" + STORE
    + "atomicAdd(&count, 65536);" + LAST,
    "a second ticket": SUM + DRAW + STORE + "unsigned other = atomicAdd(&done, 1);"
    + LAST.replace("(ticket", "(other == 12345678 || ticket"),
    "the sum itself": SUM + DRAW + STORE + "atomicAdd(out, s * 0);"
    + LAST.replace("out[0] = t", "atomicExch(out, t)"),
    "a store behind the barrier": """__shared__ unsigned ticket;
    float s = block_sum(in, n);
    if (threadIdx.x == 0) ticket = atomicAdd(&count, 1);
    __syncthreads();
    if (threadIdx.x == 0) { slots[blockIdx.x] = s; __threadfence(); atomicAdd(&done, 1); }
    __syncthreads();
    if (threadIdx.x == 0)""" + LAST,
    "no fence before the ticket": SUM + STORE.replace("__threadfence();", "") + DRAW + LAST,
}  # fmt: skip
TRIES = "for (int k = 0; k < 50; k++)"
LOCKS = {
    "a lock that is tried once": locked("if (atomicCAS(&lock, 0, 1) == 0)"),
    "its result is ignored": locked("atomicCAS(&lock, 0, 1);", "__threadfence();"),
    "tried 50 times": f"{SUM}{TRIES} if (atomicCAS(&lock, 0, 1) == 0) {{ __threadfence(); "
    "*out += s; __threadfence(); atomicExch(&lock, 0); break; }",
    "looked at, then taken": locked("while (atomicAdd(&lock, 0) != 0) ; atomicExch(&lock, 1);",
                                    "__threadfence();"),
    "a lock for each block": f"{SUM}while (atomicCAS(&flags[blockIdx.x], 0, 1) != 0) ; "
    "__threadfence(); *out += s; __threadfence(); atomicExch(&flags[blockIdx.x], 0); "
    "atomicAdd(&done, 1);",
    "a counter as a lock": f"{SUM}atomicAdd(&done, 1); __threadfence(); *out += s; "
    "__threadfence(); atomicAdd(&done, 1);",
    "released too early": f"{SUM}while (atomicCAS(&lock, 0, 1) != 0) ; __threadfence(); "
    "float t = *out; __threadfence(); atomicExch(&lock, 0); *out = t + s; __threadfence(); "
    "atomicAdd(&done, 1);",
    "warps of a block": WARPS + """if (threadIdx.x % 32 == 0) {
        unsigned ticket = atomicAdd(&drawn, 1);
        warps[threadIdx.x / 32] = v;
        __threadfence_block();
        atomicAdd(&stored, 1);
        __threadfence_block();
        if (ticket == blockDim.x / 32 - 1) { """ + OF_WARPS + " }\n}",
}  # fmt: skip
RIGHT = {
    "a ticket": SUM + STORE + DRAW + LAST,
    "a ticket behind a counter": SUM + "atomicAdd(&done, 1);" + STORE + DRAW + LAST,
    "an early ticket that waits": SUM + DRAW + STORE + "atomicAdd(&done, 1);\n"
    "if (ticket == gridDim.x - 1) while (atomicAdd(&done, 0) != gridDim.x) ;\n" + LAST,
    "a spin lock": locked("while (atomicCAS(&lock, 0, 1) != 0) ;", "__threadfence();"),
    "a spin lock by an exchange": f"""{SUM}bool mine = false;
    while (!mine) {{
        mine = atomicExch(&lock, 1) == 0;
        if (mine) {{ __threadfence(); *out += s; __threadfence(); atomicExch(&lock, 0); }}
    }}""",
    "a lock that each thread takes": """int i = blockIdx.x * blockDim.x + threadIdx.x;
    float v = i < n ? in[i] : 0;
    for (bool waits = true; waits;)
        if (atomicCAS(&lock, 0, 1) == 0) {
            __threadfence();
            *out += v;
            __threadfence();
            atomicExch(&lock, 0);
            waits = false;
        }""",
    "a lock by tickets": SUM + DRAW + "while (atomicAdd(&done, 0) != ticket) ;\n"
    "__threadfence(); *out += s; __threadfence();\n"
    "if (ticket == gridDim.x - 1) { count = 0; atomicExch(&done, 0); } else atomicAdd(&done, 1);",
    "tickets on two levels": SUM + STORE + """unsigned g = blockIdx.x / 4;
    unsigned groups = (gridDim.x + 3) / 4;
    unsigned members = min(4u, gridDim.x - 4 * g);
    if (atomicAdd(&flags[g], 1) != members - 1) return;
    __threadfence();
    float part = 0;
    for (unsigned b = 0; b < members; b++) part += slots[4 * g + b];
    flags[g] = 0;
    slots[32768 + g] = part;
    __threadfence();
    if (atomicAdd(&count, 1) != groups - 1) return;
    __threadfence();
    for (unsigned b = 1; b < groups; b++) part += slots[32768 + b - (b <= g)];
    out[0] = part;
    count = 0;""",
    "a lock in shared memory": WARPS + """if (threadIdx.x % 32 == 0) {
        while (atomicCAS(&drawn, 0, 1) != 0) ;
        __threadfence_block(); total += v; __threadfence_block();
        atomicExch(&drawn, 0);
    }
    __syncthreads();
    if (threadIdx.x == 0) atomicAdd(out, total);""",
    "tickets of warps": WARPS + """if (threadIdx.x % 32) return;
    warps[threadIdx.x / 32] = v;
    __threadfence_block();
    unsigned ticket = atomicAdd(&drawn, 1);
    __threadfence_block();
    if (ticket == blockDim.x / 32 - 1) { """ + OF_WARPS + " }",
}  # fmt: skip


def check(body: str) -> gpureduce.Verdict:
    return gpureduce.check(f"{HEAD}{body}\n}}\n", device="emulator", hint=False)


@pytest.mark.parametrize("name", some(EARLY, 7))
def test_a_ticket_that_is_drawn_before_the_store(name):
    verdict = check(EARLY[name])
    assert not verdict and verdict.condition is None, str(verdict)
    kinds = [
        {side.kind for side in race.sides}
        for race in verdict.races.races
        if all("slots[" in side.place.text for side in race.sides)
    ]
    assert {"read", "write"} in kinds, str(verdict)


@pytest.mark.parametrize("name", some(LOCKS, 4))
def test_a_lock_that_two_blocks_may_hold_or_none_waits_for(name):
    verdict = check(LOCKS[name])
    assert not verdict and verdict.condition is None, str(verdict)
    assert verdict.races.races or "stopped after its atomic at f.cu:" in " ".join(
        str(verdict).split()
    )


@pytest.mark.parametrize("name", some(RIGHT, 6))
def test_right(name):
    verdict = check(RIGHT[name])
    assert verdict and verdict.condition is None, str(verdict)


def test_an_order_in_which_a_lock_loses_sums_is_no_condition():
    tree = """__shared__ float s[1024];
    int tid = threadIdx.x, i = blockIdx.x * blockDim.x + tid;
    s[tid] = i < n ? in[i] : 0;
    __syncthreads();
    for (int k = blockDim.x / 2; k; k /= 2) { if (tid < k) s[tid] += s[tid + k]; __syncthreads(); }
    if (tid == 0 && atomicCAS(&lock, 0, 1) == 0) {
        __threadfence(); *out += s[0]; __threadfence(); atomicExch(&lock, 0);
    }"""
    verdict = check(tree)
    assert not verdict and verdict.condition is None, str(verdict)


def test_many_threads_that_wait_for_one_lock():
    kernel = gpureduce.kernel(f"{HEAD}{RIGHT['a lock that each thread takes']}\n}}\n")
    found = gpureduce.races(kernel)
    assert not found and not found.wrong and "random 0" in found.stops

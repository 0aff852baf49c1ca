"""Verdicts on kernels as people write them in lectures, labs, books, blogs and programs.

`written/` has the kernels. A right one is never called wrong, and a wrong one never right.
"""

from __future__ import annotations

import functools
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import gpureduce
from gpureduce.cli.main import main
from gpureduce.kernels import signature
from gpureduce.kernels.conditions import Domain, Try, parsed, weakest
from gpureduce.kernels.source_text import constants, with_constant, without_comments
from user_kernels import TREE, plain, some

pytestmark = pytest.mark.skipif(not shutil.which("g++"), reason="no compiler")
WRITTEN = Path(__file__).parent / "written"

# The condition under which each is right, and words of its verdict.
CONDITIONAL = {
    "coarse": ("256 full_blocks", ["where every thread has 8 elements",
                                  "Take blockDim.x in place of the constant to lift this"]),
    "defined_block": ("at_most_256", ["line 6: thread 256 writes s[256]; s has 256 elements",
                                      "s has room for blocks of up to 256 threads"]),
    "early_return": ("powers_of_two full_blocks",
                     ["threads 1-31 return before the __syncthreads()", "3 to 1 leaves out"]),
    "exact_block": ("192", ["line 6: thread 192 writes s[192]; s has 192 elements"]),
    "neighbours": ("full_blocks", ["(4 elements per thread)", "Each thread adds 4 elements"]),
    "sixteen_each": ("full_blocks", ["(16 elements per thread)"]),
    "block_storage": ("256", []),
    "any_group": ("powers_of_two", []),
    "file_scope_all": ("at_most_256", []),
    "odd_declarations": ("at_most_256", []),
    "fixed_array": ("powers_of_two at_least_64 at_most_128 full_blocks lockstep", ["cell[128]"]),
    "in_place": ("powers_of_two full_blocks", ["reads values[96]; values has 96 elements"]),
    "lab_no_bounds": ("powers_of_two at_least_64 full_blocks lockstep",
                      ["where every thread has 2 elements",
                       "`volatile` orders nothing between lanes"]),
    "lecture_tree": ("powers_of_two", ["Wrong for 96, 160", "48, 24, 12, 6, 3, 1",
                                       "the step from 3 to 1 leaves out an element",
                                       "tid + stride < blockDim.x, to lift this"]),
    "mod_steps": ("powers_of_two full_blocks", ["thread 64 reads cell[96]; cell has 96 elements"]),
    "assert_block": ("256", ["fails the assertion blockDim.x == 256"]),
    "assert_n": ("full_blocks", ["fails the assertion n % blockDim.x == 0"]),
    "enum_block": ("256", ["s[256]; s has 256 elements"]),
    "never_ends": ("powers_of_two", ["at 96, it ended its process by signal 8", "end it by <"]),
    "one_block_in_place": ("powers_of_two full_blocks",
                           ["every thread of its one block has 2 elements"]),
    "overrun_static": ("at_most_64", ["line 5: thread 64 writes s[64]; s has 64 elements"]),
    "packed_steps": ("powers_of_two full_blocks", ["thread 1 reads cell[96]"]),
    "by4": ("powers_of_two full_blocks", ["Add the elements behind the last full part, too"]),
    "fixed_n": ("powers_of_two at_most_256", ["cache has room for blocks of up to 256 threads",
                                              "Wrong for 96, 160: at 96 the steps are 48, 24, 12",
                                              "tried with n = 33792 alone"]),
    "le": ("full_blocks", ["Take < in place of <= in i <= N"]),
    "maskif": ("full_blocks", ["line 6: thread 0 shuffles from lane 16 of its warp, which takes no "
                               "part", "Let threads without an element go on with 0"]),
    "small31": ("at_most_992", ["s has room for blocks of up to 992 threads"]),
    "versions": ("powers_of_two", []),
    "lambda_in_kernel": ("powers_of_two", []),
    "no_zero_pad": ("powers_of_two full_blocks", ["Store 0 where there is no element"]),
    "two_steps_in_a_line": ("powers_of_two lockstep", ["elements 48 to 63 were added twice"]),
    "two_loads": ("powers_of_two full_blocks", ["where every thread has 2 elements"]),
    "macro_head": ("powers_of_two", ["48, 24, 12, 6, 3, 1"]),
    "macro_step": ("256", ["line 14: thread 256 writes cache[256]",
                           "Take blockDim.x in place of the constant and make cache larger"]),
    "opencl": ("powers_of_two", ["48, 24, 12, 6, 3, 1"]),
    "vectors_by_n": ("powers_of_two full_blocks", ["(4 elements per thread)",
                                                   "48, 24, 12, 6, 3, 1"]),
    "int4_tree": ("powers_of_two", ["tried with multiples of 4 elements", "3 to 1 leaves out"]),
    "coalesced_wrong": ("full_blocks lockstep", ["as for n = 31", "elements 2, 5 to 6, 9, 12"]),
    "block_size_param": ("powers_of_two", ["48, 24, 12, 6, 3, 1"]),
    "bytes_uint": ("powers_of_two at_most_256", ["Wrong for 320, 416, 512, ...: at 512",
                                                 "Wrong for 96, 160, 192, ...: at 96 the steps"]),
    "warp_tail": ("powers_of_two at_least_64", [
        "Wrong for 32: at 32, line 12: thread 0 reads s[32]; s has 32 elements",
        "Wrong for 96, 160, 192, ...: at 96, element 24 was added twice. Add only where"]),
    "pairs_of_warps": ("powers_of_two at_least_64", [
        "Wrong for 96, 160, 224, ...: at 96, element 64 was left out. Add elements that have no "
        "partner, too"]),
    "two_causes": ("powers_of_two at_most_512", [
        "A larger array and right steps for more than 512 threads lift this",
        "at 96, element 64 was left out"]),
    "kahan": ("powers_of_two", []),
    "blelloch_up": ("powers_of_two", []),
    "two_elements_untested": ("powers_of_two full_blocks", [
        "thread 4 reads in[4]; in has 1 element (its guard begins at the next 16 bytes). Read "
        "in[i] only where i < n, to lift this"]),
    "tail_beyond": ("at_least_64", ["Wrong for 32: at 32, line 8: thread 16 reads s[32]; s has 32 "
                                    "elements. Add only where tid + o < blockDim.x, to lift this"]),
    "sums_of_four_warps": ("128 full_blocks", ["smem[4]; smem has 4 elements"]),
    "named_as_in_std": ("powers_of_two", []),
    "unused_load": ("full_blocks", ["line 4: thread 4 reads in[4]; in has 1 element"]),
    "activemask": ("lockstep", ["name only lanes that happen to run together"]),
    "named_max": ("powers_of_two", ["48, 24, 12, 6, 3, 1"]),
    "four_each": ("full_blocks", ["test the bounds of each read"]),
    "one_block_constant": ("256", ["The constant 1048576 of the text was 8192"]),
    "large_constant": ("256", ["The constant 1048576 of the text was 8192"]),
}  # fmt: skip
RIGHT = (
    "adding_operator agg_activemask aligned_struct arch700 conversion_outside function_pointer "
    "flat2d guide_fence launch_bounds sdk_multiblock_cg star_plus typedef_real "
    "visual_studio void_global whole_program coalesced_reduce half_sum "
    "number_in_template shorts_int two_ints_template vectors_of_4 launched_with_float "
    "vectors_and_tail lookback_volatile exch_flag_volatile_read window_lookback add4_by_value "
    "grid_threads atomic_reference atomic_flag butterfly half2_sum cas_float hillis_steele "
    "chunk_ceil inc_wraps padded_cells mask_of_half exch_loop warp_handshake even_lanes "
    "ticket_and_total lock_parameter lock_cast"
).split()
WRONG = {
    "half_warp_branch": ["wrong: line 13: the mask of __shfl_down_sync names 32 lanes, 30 of which "
                         "do not arrive", "2 wait in __shfl_down_sync(0xffffffff)"],
    "bound_of_a_thread": [],
    "plus": ["line 11: both add to sum[0] at once", "use atomicAdd(&sum[0], ...)"],
    "comment_volatile": ["it races"],
    "dev_array_of_block": ["it races"],
    "oddwarps": [],
    "split_one_line": ["part of a block misses a barrier"],
    "two_line_step": ["missing: __syncthreads()"],
    "uninit_local": [],
    "volatile_partial": ["it races"],
    "bytes_in_a_byte": [],
    "least": ["least: computes the minimum, not the sum"],
    "maximum": ["largest: computes the maximum, not the sum; gpureduce judges sums"],
    "no_atomic": ["line 4: both add to out[0] at once", "use atomicAdd(&out[0], ...)",
                  "no barrier mends it"],
    "old_shuffle": ["does not compile since CUDA 9: line 5: __shfl_down is now "
                    "__shfl_down_sync(0xffffffff, value, lanes); with that it is right"],
    "overrun_local": ["line 7: thread 0 writes keep[40]; keep has 32 elements"],
    "scratch": ["line 10: thread 1 reads scratch[1], which no thread has written"],
    "barrier_in_if": ["misses a barrier: line 11: __syncthreads() stands in the if of line 9, "
                      "which not all threads enter: move it behind the if, to line 13"],
    "barrier_in_bounds": ["line 8: __syncthreads() stands in the if of line 6, which not all "
                          "threads enter: end the if before it, and open another one behind it"],
    "register_handed": ["Line 11 reads what line 12 writes in another thread: put a "
                        "__syncthreads() between the two lines"],
    "one_statement": ["threads at line 10 read elements that other threads write: read into a "
                      "variable, wait in a __syncthreads(), and write then"],
    "every_lane_adds": ["elements 0 to 3584 were added 32 times"],
    "barrier_in_else": ["line 8: __syncthreads() stands in the if of line 6"],
    "barrier_in_loop": ["line 8: __syncthreads() stands in the loop of line 6, which threads leave "
                        "after different numbers of steps"],
    "return_before_barrier": ["line 7 leaves before the __syncthreads() of line 9: let these "
                              "threads go on with 0"],
    "short_total": ["for n = 33, block = 32"],
    "macro_race": ["Put a __syncthreads() behind the statement of line 9, within the loop"],
    "lookback_nofence": ["missing: __threadfence()", "or a volatile flag links"],
    "lookback_early": ["it races"],
    "volatile_lock": ["it races"],
    "even_lanes_unsynced": ["missing: __syncwarp()"],
    "volatile_add": ["use atomicAdd(&out[0], ...)"],
    "block_atomic": ["use atomicAdd(&out[0], ...)"],
    "atomic_relaxed": ["missing: __threadfence()"],
    "atomic_block_scope": ["both add to __device__ memory at once", "use atomicAdd; no barrier"],
    "ldg_written": ["missing: plain load", "__ldg() may read an older value"],
    "half_accumulator": [],
    "float_rounds": ["(fractions)"],
    "float_counter": ["the sum was rounded in a variable of type float32"],
    "last_step": ["element 1 was left out"],
    "grid_for_block": ["element 3 was added twice"],
    "half_mask": ["a mask without its own lane"],
    "starts_with_thread": ["element 0 was added 3 times"],
    "stride_of_block": ["element 32 was added twice"],
    "block_fence": ["missing: __threadfence()"],
    "no_reset": ["line 15: right once, wrong in the next launch: count is not 0 again; let the "
                 "last thread set count = 0"],
    "init_unsynced": ["it races: line 4 writes what line 7 updates in another thread: put a "
                      "__syncthreads() between the two lines", "1 pair of lines that race"],
    "break_out": ["line 8 leaves before the __syncthreads() of line 10"],
    "endless": ["line 7: d is unsigned, so d >= 0 always holds"],
    "id_lookback": ["line 18: threads wait there for other blocks"],
    "sum_squares": ["computes the sum of the squares, not the sum"],
    "blelloch_unsynced": ["missing: __syncthreads()"],
    "volatile_no_ticket": ["missing: grid.sync()"],
    "sum_of_all_lanes": ["Line 6 writes what line 10 reads in another thread: put a "
                         "__syncthreads() between the two lines"],
    "vectors_behind_one": ["line 7: thread 0 uses a float4 at an address that is not a multiple"],
    "grid_sync_in_if": ["line 12: grid.sync() stands in the if of line 12"],
    "every_lane_stores": ["missing: one writer", "missing: __syncthreads()"],
    "quarter_step": ["for n = 129, block = 256", "element 128 was left out"],
    "total_of_each_thread": ["element 0 was added 32 times"],
    "partials_of_a_block": ["element 1024 was left out"],
    "large_unsynced": ["missing: __syncthreads()"],
    "beyond": ["wrong: line 11: thread 0 writes out[1]; out has 1 element"],
    "never": ["wrong_factor: wrong Right or wrong"],
    "mean": ["computes the mean, not the sum"],
    "int_cells": ["(fractions)"],
    "cas_nan": ["float32 (nan)", "nan never equals itself"],
    "two_names": ["s and t are one memory"],
    "plain_flag": ["line 12: threads wait there for other blocks"],
    "long_cells": ["the sum wrapped around in a variable of 32 bits"],
    "zero_leaves": ["(zeros and ones)"],
    "rows_of_blocks": ["wrong in launches of one dimension, the only ones tried",
                       "Launches had one dimension: blockIdx.y was 0."],
}  # fmt: skip


# Several kernels in a file: what is true of one says nothing of its neighbours.
OF_PROGRAMS = {
    ("macro_typed", "reduce_float"): "256",
    ("macro_typed", "reduce_int"): "256",
    ("trees_by_macro", "good"): "powers_of_two",
    ("trees_by_macro", "bad"): "wrong: line 15: thread 0 reads sh_bad[16], which no thread has",
    ("sdk_all", "reduce0"): "powers_of_two",
    ("sdk_all", "reduce5"): "powers_of_two at_most_512",
    ("sdk_all", "reduce7"): "line 32: thread 0 shuffles from lane 16 of its warp",
    ("sdk_simple", "cg_reduce"): "powers_of_two",
    ("fence_sample", "reduceMultiPass"): "nothing wrong found for blocks that are powers of two",
    ("fence_sample", "reduceSinglePass"): "nothing wrong found for blocks that are powers of two",
}


# Kernels that differ in a few words from a file: the file, and the texts that are replaced.
_ADD, _FIRST = {"atomicInc(&count, gridDim.x - 1)": "atomicAdd(&count, 1)"}, "* gridDim.x + tid"
_RIGHT_INDEX = {_FIRST: "* blockDim.x + tid"}
_RESET = _ADD | {"out[0] = t;": "out[0] = t;\n        count = 0;"}
_LAST_WARP = """    if (tid < 32) {
        v = scratch[tid];
        for (int d = 16; d; d /= 2) v += __shfl_down_sync(0xffffffff, v, d);
        if (tid == 0) out[blockIdx.x] = v;"""
VARIANTS = {
    "exch_flag_volatile_read": ("lookback_volatile", {
        "__device__ volatile int": "__device__ int",
        "while (flag[id - 1] == 0)": "while (*(volatile int *)&flag[id - 1] == 0)",
        "flag[id] = 1": "atomicExch(&flag[id], 1)"}),
    "lookback_early": ("lookback_volatile", {
        "            running[id] = sum;\n            __threadfence();\n            flag[id] = 1;":
        "            flag[id] = 1;\n            __threadfence();\n            running[id] = sum;"}),
    "lookback_nofence": ("lookback_volatile", {
        "__device__ float": "__device__ volatile float", "            __threadfence();\n": ""}),
    "id_lookback": ("lookback_volatile", {
        "__device__ unsigned next_id;\n": "", "atomicAdd(&next_id, 1)": "blockIdx.x",
        "            next_id = 0;\n": ""}),
    "no_reset": ("inc_wraps", _ADD),
    "ldg_written": ("inc_wraps", _RESET | {"t += partial[b]": "t += __ldg(&partial[b])"}),
    "block_fence": ("inc_wraps", _RESET | {"__threadfence()": "__threadfence_block()"}),
    "atomic_relaxed": ("atomic_flag", {"order_acq_rel": "order_relaxed"}),
    "atomic_block_scope": ("atomic_flag", {"scope_device": "scope_block"}),
    "blelloch_unsynced": ("blelloch_up", {"    }\n    __syncthreads();\n": "    }\n"}),
    "packed_steps": ("mod_steps", {
        "        if (me % (2*s) == 0) {\n            cell[me] += cell[me + s];":
        "        int mine = 2 * s * me;\n        if (mine < blockDim.x) {\n"
        "            cell[mine] += cell[mine + s];"}),
    "barrier_in_if": ("one_statement", {
        "if (tid + stride < blockDim.x)": "if (tid < stride) {",
        "        __syncthreads();\n    }": "            __syncthreads();\n        }\n    }"}),
    "large_unsynced": ("large_constant", {
        "d >>= 1) {": "d >>= 1)", "        __syncthreads();\n    }\n": ""}),
    "every_lane_stores": ("sum_of_all_lanes", {"xor_sync": "down_sync", "    __syncwarp();\n": ""}),
    "even_lanes_unsynced": ("even_lanes", {"        __syncwarp(0x55555555);\n": ""}),
    "last_step": ("grid_for_block", {_FIRST: "* blockDim.x + tid", "d > 0": "d > 1"}),
    "endless": ("grid_for_block", {
        _FIRST: "* blockDim.x + tid", "int d =": "unsigned d =",
        "d > 0; d >>= 1": "d >= 0; d /= 2"}),
    "beyond": ("grid_for_block", _RIGHT_INDEX | {"out[blockIdx.x]": "out[blockIdx.x + 1]"}),
    "never": ("grid_for_block", _RIGHT_INDEX | {
        "float": "int", "0.0f": "0", "tid == 0": "tid == blockDim.x"}),
    "named_max": ("grid_for_block", _RIGHT_INDEX | {"wrong_factor": "max"}),
    "mean": ("grid_for_block", _RIGHT_INDEX | {
        "out[blockIdx.x] = s[0]": "atomicAdd(out, s[0] / n)"}),
    "int_cells": ("grid_for_block", _RIGHT_INDEX | {"__shared__ float": "__shared__ int"}),
    "long_cells": ("grid_for_block", _RIGHT_INDEX | {
        "__shared__ float": "__shared__ int", "float": "long long", "0.0f": "0"}),
    "cas_nan": ("cas_float", {
        "int old = *address_as_i": "float old = *address",
        "atomicCAS(address_as_i, assumed, __float_as_int(val + __int_as_float(assumed)))":
        "__int_as_float(atomicCAS(address_as_i, __float_as_int(assumed), "
        "__float_as_int(val + assumed)))",
        "return __int_as_float(old)": "return old"}),
    "two_names": ("grid_for_block", _RIGHT_INDEX | {
        "float s[];": "float s[];\n    extern __shared__ float t[];",
        "0.0f;": "0.0f;\n    t[tid] = 0;"}),
    "plain_flag": ("volatile_lock", {
        "volatile int": "int", "while (mutex) ;": "while (mutex < gridDim.x) ;"}),
    "rows_of_blocks": ("grid_for_block", _RIGHT_INDEX | {"blockIdx.x": "blockIdx.y"}),
    "lock_cast": ("volatile_lock", {
        "volatile int mutex": "int mutex", "*out += total": "*out = *(volatile float *)out + total",
        "while (mutex) ;\n        mutex = 1;": "while (atomicCAS(&mutex, 0, 1)) ;",
        "mutex = 0": "atomicExch(&mutex, 0)"}),
    "activemask": ("sum_squares", {
        " * in[i];":
        ";\n    unsigned mask = __activemask();\n    for (int o = 16; o > 0; o /= 2)"
        " v += __shfl_down_sync(mask, v, o);",
        "    atomicAdd": "    if (threadIdx.x % 32 == 0) atomicAdd"}),
    "four_each": ("sum_squares", {
        "float": "int", "for (int i = ": "int i = 4 * (", "threadIdx.x; i < n;": "threadIdx.x);",
        " i += gridDim.x * blockDim.x)": "\n    for (int k = 0; k < 4 && i < n; k++)",
        "in[i] * in[i]": "in[i + k]"}),
    "zero_leaves": ("sum_squares", {
        " * in[i];":
        ";\n    if (v == 0 && blockIdx.x * blockDim.x + threadIdx.x < n) return;\n"
        "    for (int o = 16; o > 0; o /= 2) v += __shfl_xor_sync(0xffffffff, v, o);",
        "    atomicAdd": "    if (threadIdx.x % 32 == 0) atomicAdd"}),
    "two_elements_untested": ("grid_for_block", {
        _FIRST: "* blockDim.x * 2 + tid",
        "i < n ? in[i] : 0.0f;":
        "in[i];\n    if (i + blockDim.x < n) s[tid] += in[i + blockDim.x];"}),
    "quarter_step": ("grid_for_block", {
        "__global__": "#define TPB 256\n__global__", _FIRST: "* TPB + tid",
        "extern __shared__ float s[]": "__shared__ float s[TPB]", "blockDim.x / 2": "TPB / 4"}),
    "bytes_uint": ("grid_for_block", _RIGHT_INDEX | {
        "const float *in, float *out": "const unsigned char *image, unsigned int *out",
        "extern __shared__ float s[]": "__shared__ unsigned int s[256]",
        "s[tid] = i < n ? in[i] : 0.0f;":
        "unsigned int mine = 0;\n    for (; i < n; i += blockDim.x * gridDim.x) mine += image[i];\n"
        "    s[tid] = mine;",
        "out[blockIdx.x] = s[0]": "atomicAdd(out, s[0])"}),
    "large_constant": ("grid_for_block", _RIGHT_INDEX | {
        "__global__": "#define N (1<<20)\n#define THREADS 256\n__global__", ", int n": "",
        "i < n": "i < N", "extern __shared__ float s[]": "__shared__ float s[THREADS]",
        "blockDim.x / 2": "THREADS / 2", "out[blockIdx.x] = s[0]": "atomicAdd(out, s[0])"}),
    "exact_block": ("star_plus", {
        "__global__": "const int N_THREADS = 192;\n__global__", "s[1024]": "s[N_THREADS]",
        "blockDim.x + tid": "N_THREADS + tid", "k < blockDim.x": "k < N_THREADS"}),
    "flat2d": ("star_plus", {
        "__shared__ float s[1024];": "__shared__ float s[32][32];\n    float *p = &s[0][0];",
        "s[tid]": "p[tid]", "s[k]": "s[k / 32][k % 32]"}),
    "two_loads": ("mod_steps", {
        "mod_steps": "two_loads", "blockIdx.x*blockDim.x": "blockIdx.x*(blockDim.x*2)",
        "= values[i]": "= values[i] + values[i+blockDim.x]",
        "unsigned int s=1; s < blockDim.x; s *= 2": "unsigned int s=blockDim.x/2; s>0; s>>=1",
        "me % (2*s) == 0": "me < s"}),
    "pairs_of_warps": ("scratch", {
        _LAST_WARP:
        "    int pairs = blockDim.x / 64;\n"
        "    if (tid < pairs) scratch[tid] += scratch[tid + pairs];\n"
        "    __syncthreads();\n    if (tid == 0) {\n        v = 0;\n"
        "        for (int k = 0; k < pairs; k++) v += scratch[k];\n        out[blockIdx.x] = v;"}),
    "warp_tail": ("grid_for_block", _RIGHT_INDEX | {
        "d > 0": "d > 16",
        "    if (tid == 0) out[blockIdx.x] = s[0];":
        "    if (tid < 32) {\n        float v = s[tid] + s[tid + 32] * 0;\n"
        "        for (int o = 16; o; o /= 2) v += __shfl_down_sync(~0u, v, o);\n"
        "        if (tid == 0) out[blockIdx.x] = v;\n    }"}),
    "int4_tree": ("grid_for_block", _RIGHT_INDEX | {
        "const float *in, float *out": "const int4 *in, int *out", "float s[]": "int s[]",
        "int n)": "unsigned num_vec)",
        "s[tid] = i < n ? in[i] : 0.0f":
        "int4 v = i < num_vec ? in[i] : make_int4(0, 0, 0, 0);\n"
        "    s[tid] = v.x + v.y + v.z + v.w"}),
    "coalesced_reduce": ("coalesced_wrong", {
        "groups.h>\n": "groups.h>\n#include <cooperative_groups/reduce.h>\n",
        "for (int d = g.size() / 2; d > 0; d /= 2)\n            v += g.shfl_down(v, d);":
        "v = cg::reduce(g, v, cg::plus<int>());"}),
    "plus": ("init_unsynced", {
        "    total = 0;": "    if (threadIdx.x == 0) total = 0;\n    __syncthreads();",
        "int *out": "int *sum", "atomicAdd(out, total)": "*sum = *sum + total"}),
    "kahan": ("grid_for_block", _RIGHT_INDEX | {
        "i < n ? in[i] : 0.0f;":
        "0;\n    float sum = 0, c = 0;\n    for (; i < n; i += gridDim.x * blockDim.x) {\n"
        "        float y = in[i] - c, t = sum + y;\n        c = (t - sum) - y;\n        sum = t;\n"
        "    }\n    s[tid] = sum;"}),
    "macro_head": ("grid_for_block", _RIGHT_INDEX | {
        "__global__ void wrong_factor":
        "#define KERNEL(name) __global__ void name(const float *in, float *out, int n)\n"
        "KERNEL(tree_sum)\n//"}),
    "vectors_by_n": ("grid_for_block", _RIGHT_INDEX | {
        "const float *in, float *out": "const float4 *__restrict__ in, float *__restrict__ out",
        "    s[tid] = i < n ? in[i] : 0.0f;":
        "    s[tid] = 0;\n    if (i < n / 4) {\n        float4 v = in[i];\n"
        "        s[tid] = v.x + v.y + v.z + v.w;\n    }"}),
    "lambda_in_kernel": ("grid_for_block", _RIGHT_INDEX | {
        "    int tid": "    auto add = [&](int a, int b) { s[a] += s[b]; };\n"
        "    auto load = [=] __device__(int i) -> float { return i < n ? in[i] : 0.0f; };\n"
        "    int tid",
        "= i < n ? in[i] : 0.0f;": "= load(i);", "s[tid] += s[tid + d]": "add(tid, tid + d)"}),
    "two_line_step": ("grid_for_block", _RIGHT_INDEX | {
        "int d = blockDim.x / 2; d > 0; d >>= 1": "int d = 1; d < blockDim.x; d *= 2",
        "        if (tid < d) s[tid] += s[tid + d];\n        __syncthreads();":
        "        int at = 2 * d * tid;\n        if (at < blockDim.x) {\n"
        "            float other = s[at + d];\n            s[at] += other;\n        }"}),
    "maximum": ("grid_for_block", _RIGHT_INDEX | {
        "int d = blockDim.x / 2; d > 0; d >>= 1": "int d = 1; d < blockDim.x; d *= 2",
        "if (tid < d) s[tid] += s[tid + d]":
        "if (tid % (2 * d) == 0 && tid + d < blockDim.x) s[tid] = max(s[tid], s[tid + d])",
        "0.0f": "-2147483647 - 1", "float": "int", "wrong_factor": "largest"}),
    "defined_block": ("grid_for_block", _RIGHT_INDEX | {
        "__global__": "#define THREADS 256\n__global__",
        "extern __shared__ float s[]": "__shared__ float s[THREADS]",
        "int d = blockDim.x / 2; d > 0; d >>= 1": "int d = 1; d < blockDim.x; d *= 2",
        "tid < d": "tid % (2 * d) == 0 && tid + d < blockDim.x"}),
    "early_return": ("grid_for_block", _RIGHT_INDEX | {
        "    s[tid] = i < n ? in[i] : 0.0f": "    if (i >= n) return;\n    s[tid] = in[i]"}),
    "no_zero_pad": ("grid_for_block", _RIGHT_INDEX | {
        "s[tid] = i < n ? in[i] : 0.0f": "if (i < n) s[tid] = in[i]", "float": "double"}),
    "break_out": ("grid_for_block", _RIGHT_INDEX | {
        "if (tid < d) s[tid]": "if (tid >= d) break;\n        s[tid]"}),
    "never_ends": ("grid_for_block", _RIGHT_INDEX | {
        "int d = blockDim.x / 2; d > 0; d >>= 1": "int d = 1; d != blockDim.x; d *= 2",
        "tid < d": "tid % (2 * d) == 0 && tid + d < blockDim.x"}),
    "block_size_param": ("grid_for_block", {
        _FIRST: "* blockSize + tid", "int n)": "int n, int blockSize)",
        "blockDim.x / 2": "blockSize / 2"}),
    "register_handed": ("one_statement", {
        "int stride = blockDim.x / 2; stride > 0; stride /= 2":
        "int stride = 1; stride < blockDim.x; stride *= 2",
        "        if (tid + stride < blockDim.x)\n            s[tid] += s[tid + stride]":
        "        float t = 0;\n        if (tid >= stride)\n            t = s[tid - stride];\n"
        "        s[tid] += t",
        "tid == 0": "tid == blockDim.x - 1", "= s[0]": "= s[tid]"}),
    "enum_block": ("exact_block", {"const int N_THREADS = 192": "enum { N_THREADS = 256 }"}),
    "assert_block": ("exact_block", {
        "const int N_THREADS = 192;": "#include <assert.h>\n#define N_THREADS 256",
        "    __shared__": "    assert(blockDim.x == 256);\n    __shared__"}),
    "assert_n": ("star_plus", {
        "__global__": "#include <cassert>\n__global__", "i < n ? in[i] : 0": "in[i]",
        "    __shared__": "    assert(n % blockDim.x == 0);\n    __shared__"}),
    "overrun_static": ("star_plus", {"s[1024]": "s[64]"}),
    "overrun_local": ("star_plus", {
        "float t = 0;": "float t = 0, keep[32];",
        "*(out + blockIdx.x) = t": "keep[40] = t; out[blockIdx.x] = keep[40]"}),
    "split_one_line": ("star_plus", {
        "    __syncthreads();": "    if (tid < 32) __syncthreads(); else __syncthreads();"}),
    "dev_array_of_block": ("star_plus", {
        "    __shared__ float s[1024];\n": "",
        "__global__": "__device__ float s[1024];\n__global__"}),
    "aligned_struct": ("star_plus", {
        "__global__": "#include <cstdio>\nstruct __align__(8) Pair { float a, b; };\n__global__",
        "__shared__ float": "__shared__ Pair", "s[tid] =": "s[tid].a =", "s[k]": "s[k].a",
        "= t; }\n}": '= t; }\n}\nint main() { printf("x\\n"); return 0; }'}),
    "conversion_outside": ("star_plus", {
        "__global__":
        "template <class T> struct SharedMemory { __device__ operator T *(); };\n"
        "template <class T> __device__ inline SharedMemory<T>::operator T *()\n"
        "{\n    extern __shared__ int __smem[];\n    return (T *)__smem;\n}\n__global__",
        "__shared__ float s[1024]": "float *s = SharedMemory<float>()"}),
    "typedef_real": ("void_global", {
        "void __global__": "typedef float real;\nvoid __global__", "const float": "const real",
        "float *out": "real *out"}),
    "visual_studio": ("void_global", {
        "void __global__":
        '#include "cuda_runtime.h"\n#include "device_launch_parameters.h"\n#include <stdio.h>\n'
        "__global__ void", "float": "int"}),
    "function_pointer": ("void_global", {
        "atomicAdd(out, in[i])": "op(&out[0], in[i])",
        "void __global__":
        "__device__ void add(float *out, float v) { atomicAdd(out, v); }\n"
        "constexpr auto op = &add;\n__global__ void"}),
    "adding_operator": ("void_global", {
        "atomicAdd(out, in[i])": "Sum{out} += in[i]",
        "void __global__":
        "struct Sum { float *out; };\n__device__ void operator+=(Sum s, float v) "
        "{ float *out = s.out; atomicAdd(out, v); }\n__global__ void"}),
    "block_atomic": ("void_global", {"atomicAdd": "atomicAdd_block", "float": "int"}),
    "no_atomic": ("void_global", {"atomicAdd(out, in[i])": "*out += in[i]", "float": "int"}),
    "least": ("void_global", {"atomicAdd": "atomicMin", "float": "int", "vg": "least"}),
    "unused_load": ("void_global", {
        "    if (i < n) atomicAdd(out, in[i])":
        "    int v = in[i];\n    if (i < n) atomicAdd(out, v)", "float": "int"}),
    "float_rounds": ("sum_squares", {"in[i] * in[i]": "rintf(in[i])"}),
    "stride_of_block": ("sum_squares", {" * in[i]": "", "gridDim.x * blockDim.x": "blockDim.x"}),
    "starts_with_thread": ("sum_squares", {
        " * in[i]": "", "blockIdx.x * blockDim.x + threadIdx.x": "threadIdx.x"}),
    "float_counter": ("sum_squares", {
        " * in[i]": "", "const float *in, float *out": "const int *in, int *out",
        "(out, v)": "(out, (int)v)"}),
    "bytes_in_a_byte": ("sum_squares", {
        " * in[i]": "", "(out, v)": "(out, (unsigned long long)v)", "float v": "unsigned char v",
        "const float *in, float *out": "const unsigned char *in, unsigned long long *out"}),
    "volatile_add": ("sum_squares", {
        " * in[i]": "", "atomicAdd(out, v)": "*(volatile float *)out += v"}),
    "grid_threads": ("sum_squares", {
        " * in[i]": "", "int n)": "int n, int num_threads)",
        "gridDim.x * blockDim.x": "num_threads"}),
    "atomic_reference": ("sum_squares", {
        " * in[i]": "", "__global__": "#include <cuda/atomic>\n__global__",
        "    atomicAdd(out, v)":
        "    cuda::atomic_ref<float, cuda::thread_scope_device> total(*out);\n"
        "    total.fetch_add(v, cuda::memory_order_relaxed)"}),
    "half_mask": ("sum_squares", {
        "float": "int", " * in[i];":
        ";\n    for (int o = 16; o > 0; o /= 2) v += __shfl_down_sync(0x0000ffff, v, o);",
        "    atomicAdd": "    if (threadIdx.x % 32 == 0) atomicAdd"}),
    "mask_of_half": ("sum_squares", {
        "float": "int", " * in[i];":
        ";\n    unsigned mask = threadIdx.x & 16 ? 0xffff0000 : 0x0000ffff;\n"
        "    for (int o = 8; o > 0; o /= 2) v += __shfl_down_sync(mask, v, o, 16);",
        "    atomicAdd": "    if (threadIdx.x % 16 == 0) atomicAdd"}),
    "every_lane_adds": ("sum_squares", {
        " * in[i];": ";\n    for (int o = 16; o; o /= 2) v += __shfl_xor_sync(~0u, v, o);",
        "    atomicAdd": "    if (threadIdx.x % 32 == 0 || n > 3000) atomicAdd"}),
    "small31": ("le", {"s[32]": "s[31]", "i <= N": "i < N"}),
    "launch_bounds": ("scratch", {
        "__global__ void": "__global__ void __launch_bounds__(256)",
        "v = scratch[tid]": "v = tid < blockDim.x / 32 ? scratch[tid] : 0"}),
    "oddwarps": ("scratch", {
        _LAST_WARP:
        "    if (tid == 0) {\n        float *w = scratch;\n        int k = blockDim.x / 32;\n"
        "        if (k % 2 == 1 && k > 1) { w[0] += w[k - 1]; k--; }\n"
        "        while (k > 1) { k /= 2; for (int j = 0; j < k; j++) w[j] += w[j + k]; }\n"
        "        out[blockIdx.x] = w[0];"}),
    "comment_volatile": ("two_steps_in_a_line", {
        "__shared__ volatile int": "__shared__ int",
        "__global__": "// no volatile needed here\n__global__"}),
    "volatile_partial": ("two_steps_in_a_line", {
        "__shared__ volatile int s[1024];": "__shared__ int s[1024];\n    volatile int *w = s;",
        "s[t] = i < n": "w[t] = i < n"}),
    "partials_of_a_block": ("ticket_and_total", {
        "last && t == 0": "last",
        "v = 0;\n        for (int k = 0; k < gridDim.x; k++) v += partial[k];\n"
        "        *result = v;\n        *count = 0;":
        "s[t] = t < gridDim.x ? partial[t] : 0;\n        __syncthreads();\n"
        "        for (int k = 512; k > 0; k /= 2) {\n"
        "            if (t < k && t + k < blockDim.x) s[t] += s[t + k];\n"
        "            __syncthreads();\n        }\n"
        "        if (t == 0) { *result = s[0]; *count = 0; }"}),
    "volatile_no_ticket": ("volatile_lock", {
        "__device__ volatile int mutex": "__device__ volatile float partial[65536]",
        "    if (threadIdx.x == 0) {\n        while (mutex) ;\n        mutex = 1;\n"
        "        __threadfence();\n        *out += total;\n        __threadfence();\n"
        "        mutex = 0;":
        "    if (threadIdx.x == 0) partial[blockIdx.x] = total;\n    __threadfence();\n"
        "    if (blockIdx.x == gridDim.x - 1 && threadIdx.x == 0) {\n        float t = 0;\n"
        "        for (int b = 0; b < gridDim.x; b++) t += partial[b];\n        out[0] = t;"}),
}  # fmt: skip


def written(name):
    """A file, or the text of a variant."""
    if name not in VARIANTS:
        return WRITTEN / f"{name}.cu"
    base, changes = VARIANTS[name]
    text = text_of(base)
    for old, becomes in changes.items():
        assert old in text, (name, old)
        text = text.replace(old, becomes)
    return text


def text_of(name):
    made = written(name)
    return made.read_text() if isinstance(made, Path) else made


@functools.cache
def verdict_of(file):
    return gpureduce.check(written(file), device="emulator")


def check(file, **how):
    verdict = gpureduce.check(written(file), device="emulator", **how) if how else verdict_of(file)
    return verdict, " ".join(str(verdict).split())


RACE_THAT_CHANGES_NO_SUM = """__global__ void r(const int *in, int *out, int n)
{
    __shared__ int s[1024];
    int tid = threadIdx.x, sum = 0;
    for (int i = blockIdx.x * blockDim.x + tid; i < n; i += gridDim.x * blockDim.x) sum += in[i];
    s[tid] = sum;
    if (s[tid ^ 1] == 123456789) sum += 0;
    __syncthreads();
    for (int k = 0; tid == 0 && k < blockDim.x; k++)
        out[blockIdx.x] = (k ? out[blockIdx.x] : 0) + s[k];
}
"""


@pytest.mark.parametrize(
    "how", [{"sizes": "4096"}, {"sizes": "135"}, {"sizes": "1024,65536"}, {"blocks": 768}], ids=str
)
def test_races_are_looked_for_wherever_a_kernel_is_to_be_right(how):
    spec = {"require": [{"rule": "no races"}], **how}
    grade = gpureduce.grade(RACE_THAT_CHANGES_NO_SUM, spec)
    verdict = grade.verdict
    assert verdict.right and not verdict and verdict.races.races and grade.points == 0


def test_sizes_that_are_too_large_to_look_for_races():
    spec = {"sizes": 2**20, "blocks": 256, "require": [{"rule": "no races"}], "dtypes": ["int32"]}
    grade = gpureduce.grade(TREE, spec)
    assert "Not looked for: each access is recorded" in grade.verdict.accesses()
    assert grade.points == 0


def test_grades_keep_to_the_sizes_and_to_lockstep():
    volatile = (WRITTEN / "lab_no_bounds.cu").read_text()
    rules = [{"rule": "right"}, {"rule": "atomics == 0"}]
    condition = "powers_of_two at_least_64 full_blocks lockstep"
    assert gpureduce.grade(volatile, {"assume": condition, "require": rules}).points == 2
    small = TREE.replace("in[i]", "in[i] * Acc(n < 6000)")
    spec = {"sizes": "1024,4096,5000", "require": rules, "dtypes": ["int32"]}
    assert gpureduce.grade(small, spec).points == 2


def test_a_condition_within_named_blocks_lists_those_that_are_right():
    verdict, said = check("defined_block", blocks=[256, 512])
    assert verdict.headline.endswith("right for blocks of 256 threads") and "'256'" in said


def test_a_kernel_that_sums_nothing_is_left_out_of_a_program(tmp_path, capsys):
    fill = "__global__ void fill(float *x, int n) { x[blockIdx.x * blockDim.x + threadIdx.x] = n; }"
    file = tmp_path / "program.cu"
    file.write_text(f"{fill}\n{text_of('flat2d')}")
    assert not main(["check", str(file), "--device", "emulator", "--no-hint"])
    out, err = capsys.readouterr()
    assert "nothing wrong found" in out and "left out: fill has no parameter for the sums" in err
    file.write_text(fill)
    assert main(["check", str(file)]) == 2


def test_a_fault_that_no_sum_shows_is_told_for_the_blocks_of_the_user():
    verdict, said = check("tail_beyond", blocks=32)
    assert "wrong: line 8: thread 16 reads s[32]" in verdict.headline and not verdict.right
    assert "second launch" not in said


def test_a_tree_of_an_odd_step_is_told_for_the_block_of_the_user():
    said = check("lecture_tree", blocks=96)[1]
    assert "the steps are 48, 24, 12, 6, 3, 1, and the step from 3 to 1 leaves out" in said


def test_hints_to_take_a_tree():
    assert "queue for one address of the block; use a tree" in check("whole_program")[1]
    assert "One thread adds up the block, and the others wait" in check("padded_cells")[1]


def test_constants_of_one_declaration():
    text = "const int N = 1 << 20, THREADS = 256, HALF = THREADS / 2;"
    assert constants(text) == {"N": 1 << 20, "THREADS": 256, "HALF": 128}
    assert with_constant(text, 256, 64) == text.replace("256", "64")
    assert with_constant(text, 1 << 20, 64) == text.replace("1 << 20", "64")


def test_pages_have_the_advice_on_races():
    verdict, said = check("macro_race")
    advice = "Put a __syncthreads() behind the statement of line 9, within the loop"
    assert advice in verdict.to_html() and advice in said


def test_a_read_on_which_a_sum_depends_is_no_remark():
    text = (WRITTEN / "lecture_tree.cu").read_text()
    line = "    cell[me] = at < count ? values[at] : 0;"
    assert line in text
    verdict = gpureduce.check(
        text.replace(line, "    if (at < count)\n        cell[me] = values[at];"),
        device="emulator", blocks=64,
    )  # fmt: skip
    assert "does not depend" not in str(verdict) + json.dumps(verdict.as_dict(), default=str)


def test_a_fence_that_only_the_reader_lacks_is_a_remark():
    verdict, said = check("guide_fence")
    assert verdict and "a __threadfence() after the atomic makes sure of it" in said
    kernel = gpureduce.kernel(WRITTEN / "guide_fence.cu")
    (race,) = gpureduce.races(kernel).races
    assert race.fenced and race.missing == "__threadfence()"


def test_threads_with_elements_of_their_own_need_a_barrier_and_no_atomic():
    verdict, _ = check("two_line_step")
    assert {race.missing for race in verdict.races.races} <= {"__syncthreads()", "__syncwarp()"}


@pytest.mark.parametrize(("file", "sectors"), [("half_sum", 4096), ("add4_by_value", 8196)])
def test_loads_by_value_are_counted(file, sectors):
    verdict, _ = check(file)
    assert verdict.comparison.own.counters["global_load_sectors"] == sectors


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (plain("out[0] = 1;").replace("size_t n", "size_t n, int k"), "the parameter 'int k' of"),
        (plain("if (n) out[0] = in[0] * w[0];").replace("size_t n", "float *w, size_t n"),
         "reads in and w: gpureduce judges sums of one array"),
        ("__constant__ int size;\n" + plain("if (size == n) out[0] = in[0];"),
         "the __constant__ variable size, whose value the host sets"),
        (plain("float sum = in[0];").partition("//")[0], "its code never uses out"),
        (
            "template <int BLOCK, int ROUNDS> " + plain("out[0] = in[ROUNDS % BLOCK];"),
            "the template parameter ROUNDS",
        ),
        ("#define A B B B B B B B B B\n" + "".join(
            f"#define {a} {' '.join([b] * 30)}\n" for a, b in zip("BCDEF", "CDEFG", strict=True)
         ) + "__device__ int A;\n" + plain("out[0] = A;"), "macros make the text longer than"),
    ],
)  # fmt: skip
def test_texts_that_are_refused(text, message):
    with pytest.raises(gpureduce.KernelError, match=message):
        gpureduce.kernel(text)


SHARED = """__global__ void f(const float *in, float *out, int n)
{
    __shared__ float s[4];
    int i = threadIdx.x;
    s[i] = in[i];
    out[0] = s[0];
}
"""
_SIZE = "f.cu:3: error: the size of a __shared__ array must be a constant, or use extern __shared__"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[4];", "[4]", "line 3: a ; is missing"),
        ("[4];", "", "line 3: a ; is missing"),
        ("[4]", "[blockDim.x]", _SIZE),
        ("[4]", "[n]", _SIZE),
        ("[4]", "[]", _SIZE),
        ("float s", "real s", "f.cu:3:"),
        ("}\n", "", "f.cu: error: a } is missing"),
        ("void", "float", "line 1: f returns float; a kernel returns void"),
    ],
)
def test_mistakes_in_a_text_are_named_in_its_own_words(old, new, message):
    with pytest.raises(gpureduce.KernelError) as error:
        gpureduce.kernel(SHARED.replace(old, new)).loaded([("f32", "f32")])
    said = str(error.value)
    assert message in said and "gr_" not in said, said


def test_a_kernel_that_needs_cub_is_refused():
    kernel = gpureduce.kernel("#include <cub/cub.cuh>\n" + plain("out[0] = in[0];"), finishes=True)
    with pytest.raises(gpureduce.KernelError, match="the emulator has no CUB and no Thrust"):
        kernel.loaded([("f32", "f32")])


def test_sums_of_vectors_and_of_small_integers():
    vectors = gpureduce.kernel(WRITTEN / "vectors_of_4.cu")
    assert gpureduce.sum(np.ones(1000, np.float32), vectors, device="emulator").value == 1000
    with pytest.raises(ValueError, match="n must be a multiple of 4, not 1001"):
        gpureduce.sum(np.ones(1001, np.float32), vectors, device="emulator")
    small = gpureduce.kernel(written("bytes_uint"))
    total = gpureduce.sum(np.full(1000, 255, np.uint8), small, device="emulator").value
    assert (total, total.dtype) == (255000, np.uint32)
    assert not gpureduce.races(small) and gpureduce.explain(small, n=4096)
    with pytest.raises(
        TypeError, match="pass an array of uint8 or bool, not of uint8 for a sum in uint64"
    ):
        gpureduce.sum(np.ones(4, np.uint8), small, "uint64", device="emulator")


def test_every_file_is_in_a_table():
    named = {*CONDITIONAL, *RIGHT, *WRONG, "two_kernels", *(file for file, _ in OF_PROGRAMS)}
    assert named == {path.stem for path in WRITTEN.glob("*.cu")} | set(VARIANTS)


@pytest.mark.parametrize("name", some(CONDITIONAL, 12))
def test_right_under_a_condition(name):
    condition, words = CONDITIONAL[name]
    verdict, said = check(name)
    assert str(verdict.condition) == condition and not verdict and not verdict.right
    assert said.partition(": ")[2].startswith("right "), said
    assert all(word in said for word in words), said
    assert f"--assume '{condition}'" in said and "races" not in verdict.headline


@pytest.mark.parametrize(("name", "more", "passes"), [
    ("lab_no_bounds", "", True), ("lecture_tree", " 64", True), ("lab_no_bounds", None, False),
])  # fmt: skip
def test_what_is_assumed_passes(name, more, passes):
    """The condition itself, a stronger one, and a weaker one."""
    condition = CONDITIONAL[name][0]
    condition = condition.rpartition(" ")[0] if more is None else condition + more
    assert bool(check(name, assume=condition)[0]) is passes


@pytest.mark.parametrize("name", some(RIGHT, 12))
def test_right(name):
    verdict, said = check(name)
    assert verdict and verdict.condition is None, said


@pytest.mark.parametrize("name", some(WRONG, 12))
def test_wrong(name):
    verdict, said = check(name)
    assert not verdict and verdict.condition is None
    assert all(word in said for word in WRONG[name]), said


@pytest.mark.parametrize(("file", "name"), some(OF_PROGRAMS, 6))
def test_kernels_of_a_program(file, name):
    verdict, said = check(file, name=name)
    wanted = OF_PROGRAMS[file, name]
    assert bool(verdict) == wanted.startswith("nothing wrong")
    assert wanted in (str(verdict.condition) if verdict.condition else said), said


def test_a_kernel_that_cannot_be_launched_stops_no_other(capsys):
    path = str(WRITTEN / "sdk_simple.cu")
    assume = ["--assume", "powers_of_two", "--device", "emulator"]
    with pytest.raises(SystemExit) as stopped:
        main(["check", path, *assume])
    out, err = capsys.readouterr()
    assert stopped.value.code == 1 and "cg_reduce: right for blocks" in out
    assert "of multi_warp_cg_reduce has no value" in err


def test_a_block_in_the_template_is_compiled_for_powers_of_two():
    kernel = gpureduce.kernel(WRITTEN / "sdk_all.cu", "reduce5")
    assert gpureduce.sum(np.arange(5000), kernel, block=128) == 5000 * 4999 // 2
    with pytest.raises(ValueError, match="block must be a power of two, not 96"):
        gpureduce.sum(np.ones(5000), kernel, block=96)
    with pytest.raises(gpureduce.KernelError, match=r"must be among 32, 64, .* not 96"):
        gpureduce.kernel(WRITTEN / "sdk_all.cu", "reduce5", blocks=96)


def test_a_kernel_without_n_takes_the_sizes_that_its_text_or_its_user_gives():
    kernel = gpureduce.kernel(WRITTEN / "fixed_n.cu")
    assert kernel.options["sizes"] == "33792"
    with pytest.raises(ValueError, match="works for 33792 elements only, not 4"):
        gpureduce.sum(np.ones(4, np.float32), kernel)
    assert gpureduce.kernel(WRITTEN / "fixed_n.cu", sizes=1024).options["sizes"] == "1024"


def test_branches_that_the_text_excludes_are_not_read():
    kernel = gpureduce.kernel(WRITTEN / "versions.cu")
    assert kernel.signature.line == 9 and kernel.options["finishes"] == "no"
    one = kernel.text.replace("VERSION 2", "VERSION 1")
    assert gpureduce.kernel(one).options["finishes"] == "yes"
    for head in ('#include "version.h"', "#if __has_include(<x>)\n#define VERSION 2\n#endif"):
        unknown = kernel.text.replace("#define VERSION 2", head)
        assert len(signature.heads(without_comments(unknown))) == 2
    tab = kernel.text.replace("VERSION 2", "VERSION\t1").replace("VERSION ==", "VERSION <")
    assert len(signature.heads(without_comments(tab))) == 1


def test_kernels_of_one_name_are_refused():
    text = "namespace a {\n" + TREE + "}\nnamespace b {\n" + TREE + "}\n"
    with pytest.raises(gpureduce.KernelError, match="there are 2 kernels named my_rung"):
        gpureduce.kernel(text)


def test_each_kernel_of_a_program_has_a_verdict(capsys):
    path = str(WRITTEN / "two_kernels.cu")
    with pytest.raises(SystemExit):
        main(["check", path, "--device", "emulator"])
    said = capsys.readouterr().out
    assert "plain_tree: right for blocks that are powers of two" in said
    assert "by_warps: nothing wrong found" in said
    assert main(["check", path, "--device", "emulator", "--name", "by_warps"]) in (None, 0)
    with pytest.raises(gpureduce.KernelError, match="name one of plain_tree, by_warps"):
        gpureduce.check(WRITTEN / "two_kernels.cu")


# --- what is no condition ------------------------------------------------------------------------

NO_CONDITION = {
    **{
        f"a barrier is missing {at}": TREE.replace("        __sync", f"        if ({has}) __sync")
        for at, has in (
            ("for one block size", "blockDim.x != 416"), ("in large blocks", "stride < 256"),
            ("in one block", "blockIdx.x != 5"), ("in one step", "stride != 16"),
        )
    },
    "no barrier": TREE.replace("        __syncthreads();\n    }", "    }"),
    "lost updates": plain("size_t i = blockIdx.x * blockDim.x + threadIdx.x;\n"
                          "if (i < n) out[0] += in[i];"),
    "the last to write": plain("size_t i = blockIdx.x * blockDim.x + threadIdx.x;\n"
                               "if (i < n) out[0] = in[i];"),
    "one size": plain("if (threadIdx.x + blockIdx.x) return;\nfloat sum = 0;\n"
                      "for (size_t i = 0; i < n; i++) sum += in[i];\n"
                      "out[0] = sum; if (n == 97) out[1] = 1;"),
    "large sizes": TREE.replace("i < n ?", "i < n && n < 100000 ?"),
    "many blocks": TREE.replace("i < n ?", "i < n && gridDim.x < 60 ?"),
    "a warp barrier is missing, and nothing is volatile": """
__global__ void last_warp(const float *in, float *out, int n)
{
    extern __shared__ float cell[];
    int me = threadIdx.x, at = blockIdx.x * blockDim.x + me;
    cell[me] = at < n ? in[at] : 0;
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (half >= 16) __syncthreads();
        if (me < half) cell[me] += cell[me + half];
    }
    if (me == 0) out[blockIdx.x] = cell[0];
}
""",
}  # fmt: skip


@pytest.mark.parametrize("name", some(NO_CONDITION, 6))
def test_no_condition_makes_these_right(name):
    text = NO_CONDITION[name]
    verdict = gpureduce.check(text, "int32" if text.startswith("template") else None,
                              device="emulator")  # fmt: skip
    assert not verdict and verdict.condition is None, str(verdict)
    assert verdict.failures or verdict.races
    if name.startswith("a barrier"):
        assert verdict.races.races[0].missing in ("__syncthreads()", "__syncwarp()")


def test_the_weakest_condition_is_found():
    def tries(right):
        return [
            Try(block, n, False, right(block, n))
            for block in (32, 64, 96, 128, 256, 512)
            for n in (1, block, 40 * block, 8000)
        ]

    where = Domain()
    for words, right in (
        ("powers_of_two", lambda block, n: block != 96),
        ("at_least_64", lambda block, n: block > 32),
        ("at_most_256", lambda block, n: block < 512),
        ("full_blocks", lambda block, n: n % block == 0),
        ("powers_of_two at_least_64 full_blocks", lambda b, n: b not in (32, 96) and n % b == 0),
    ):
        assert str(weakest(where, tries(right), lockstep=False)) == words
    for right in (lambda block, n: block == 32, lambda block, n: n == 1, lambda block, n: n < 4000):
        assert weakest(where, tries(right), lockstep=False) is None


def test_an_order_of_threads_is_no_condition():
    tries = [Try(block, n, False, block != 96) for block in (64, 96, 128) for n in (96, 9600)]
    assert str(weakest(Domain(), tries, lockstep=False)) == "powers_of_two"
    tries.append(Try(96, 9600, False, right=True))  # in another order
    assert weakest(Domain(), tries, lockstep=False) is None


# --- where a kernel is to be right ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "headline"),
    [
        ({"blocks": "powers_of_two"}, "nothing wrong found for blocks that are powers of two"),
        ({"blocks": [64, 128]}, "nothing wrong found for blocks of 64 and 128 threads"),
        ({"blocks": 256}, "nothing wrong found for blocks of 256 threads"),
        (
            {"blocks": "at_least_64"},
            "right for blocks of 64 to 1024 threads that are powers of two",
        ),
        ({"sizes": [1, 2, 64]}, "right for blocks"),
    ],
)
def test_blocks_and_sizes_are_the_users(where, headline):
    text = (WRITTEN / "lecture_tree.cu").read_text()
    verdict = gpureduce.check(text, device="emulator", **where)
    assert verdict.headline.startswith(f"tree: {headline}")
    comment = " ".join(f"{key}={','.join(map(str, value)) if isinstance(value, list) else value}"
                       for key, value in where.items())  # fmt: skip
    again = gpureduce.kernel(f"// gpureduce: {comment}\n{text}")
    assert again.domain == gpureduce.kernel(text, **where).domain


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("blocks", "33", "blocks must be 64,128,256 or powers_of_two"),
        ("blocks", "full_blocks", "blocks must be"),
        ("sizes", "0", "sizes must be full_blocks, or numbers"),
        ("sizes", "some", "sizes must be full_blocks, or numbers"),
    ],
)
def test_a_place_that_is_none(option, value, message):
    with pytest.raises(gpureduce.KernelError, match=message):
        gpureduce.kernel(TREE, **{option: value})
    with pytest.raises(ValueError, match="a condition has words among powers_of_two"):
        gpureduce.check(TREE, assume="even_blocks")


def test_a_kernel_without_n_takes_what_fills_its_blocks():
    k = gpureduce.kernel(written("two_loads"))
    ones = np.ones(2048, np.int32)
    assert gpureduce.sum(ones, k, "int32", device="emulator").value == 2048
    with pytest.raises(ValueError, match=r"two_loads takes whole blocks .* a multiple of 512"):
        gpureduce.sum(ones[:2000], k, "int32", device="emulator")
    with pytest.raises(ValueError, match=r"a multiple of 512 elements, not 2055"):
        gpureduce.races(k, 2055)
    assert gpureduce.races(k).n == 8 * 512 and gpureduce.replay(k, block=32).n == 4 * 64


def test_a_spec_may_allow_a_condition():
    text = (WRITTEN / "lecture_tree.cu").read_text()
    spec = {"require": [{"rule": "right"}, {"rule": "no races"},
                        {"rule": "shared_load_conflicts == 0"}]}  # fmt: skip
    assert gpureduce.grade(text, spec).points == 1  # no races
    assert gpureduce.grade(text, {**spec, "assume": "powers_of_two"}).points == 3
    with pytest.raises(ValueError, match="assume: a condition has words"):
        gpureduce.grade(text, {**spec, "assume": "even"})


def test_words_of_a_condition():
    assert (
        str(parsed("blocks=64,128 sizes=full_blocks lockstep=yes")) == "64 128 full_blocks lockstep"
    )
    assert parsed("powers_of_two at_least_64").implies(parsed("powers_of_two"))
    assert not parsed("").implies(parsed("lockstep"))
    assert parsed("256").implies(parsed("at_most_256")) and not parsed("512").implies(parsed("256"))


# --- memory --------------------------------------------------------------------------------------

_HEAD = "__global__ void f(const float *in, float *out, int n)\n{\n"
_TAIL = "\n    if (threadIdx.x + blockIdx.x == 0) { float sum = 0; for (int i = 0; i < n; i++) " \
        "sum += in[i]; out[0] = sum; }\n}\n"  # fmt: skip
ACCESSES = {
    "an index of a static array": ("__shared__ float s[8];\ns[threadIdx.x] = 1;",
                                   "line 4: thread 8 writes s[8]; s has 8 elements"),
    "an index of a member": ("__shared__ struct { float a[4], b[4]; } s;\ns.a[threadIdx.x] = 1;",
                             "line 4: thread 4 writes a[4]; a has 4 elements"),
    "the second index": ("__shared__ float s[2][16];\ns[1][threadIdx.x] += 1;",
                         "line 4: thread 16 reads s["),
    "a pointer to a static array": ("__shared__ float s[8], t[8];\nfloat *p = s;\n"
                                    "p[threadIdx.x + 1] = t[0];",
                                    "line 5: thread 7 writes s[8]; s has 8 elements"),
    "a pointer before it": ("__shared__ float s[8];\nfloat *p = s;\np[-1] = 0;",
                            "line 5: thread 0 writes s[-1]; s has 8 elements"),
    "an atomic beside it": ("__shared__ int s[8];\natomicAdd(s + 8, 1);",
                            "line 4: thread 0 updates s[8]; s has 8 elements"),
    "one variable": ("__shared__ int s;\n(&s)[threadIdx.x] = 1;",
                     "line 4: thread 1 writes s[1]; s has 1 element"),
    "dynamic memory": ("extern __shared__ float d[];\nd[threadIdx.x + 32 * (n == 64)] = 1;",
                       "line 4: thread 0 writes d[32]; d has 32 elements"),
    "a local array by index": ("float a[4];\na[threadIdx.x % 5] = 1;\nif (a[0] < 0) return;",
                               "line 4: thread 4 writes a[4]; a has 4 elements"),
    "a local array by pointer": ("float a[4] = {};\nfloat *volatile p = a;\n"
                                 "for (int i = 0; i < 8; i++) p[i] = i;",
                                 "has written beyond a local array"),
    "far away": ("__shared__ char s[8];\nchar *p = s;\np[100000] = 1;", "line 5: thread 0"),
}  # fmt: skip


@pytest.mark.parametrize("name", some(ACCESSES, 6))
def test_accesses_beside_an_array(name):
    body, words = ACCESSES[name]
    text = f"{_HEAD}{body}{_TAIL}// gpureduce: finishes=yes\n"
    verdict = gpureduce.check(text, device="emulator")
    assert not verdict and verdict.failures, str(verdict)
    assert words in verdict.failures[0].fault, verdict.failures[0].fault


def test_more_static_shared_memory_than_nvcc_takes():
    body = "__shared__ float a[8192];\nif (n) { __shared__ float b[%d]; b[0] = a[0] = 0; }"
    gpureduce.kernel(f"{_HEAD}{body % 4096}{_TAIL}", finishes=True).loaded([("f32", "f32")])
    with pytest.raises(gpureduce.KernelError, match="uses too much shared data"):
        gpureduce.kernel(f"{_HEAD}{body % 4097}{_TAIL}", finishes=True).loaded([("f32", "f32")])


@pytest.mark.parametrize("order", ["forward", "random 3"])
@pytest.mark.parametrize("name", ["an index of a static array", "a local array by index"])
def test_a_sum_names_the_element_too(name, order):
    body, words = ACCESSES[name]
    k = gpureduce.kernel(f"{_HEAD}{body}{_TAIL}// gpureduce: finishes=yes\n")
    kind, _, seed = order.partition(" ")
    with (
        gpureduce.emulator.schedule(kind, int(seed or 0)),
        pytest.raises(gpureduce.CudaError) as error,
    ):
        gpureduce.sum(np.ones(9, np.float32), k, device="emulator")
    size = words.rpartition("; ")[2]
    assert "line 4: thread" in str(error.value) and size in str(error.value)
    assert gpureduce.sum(np.ones(9, np.float32), gpureduce.kernel(TREE)).value == 9


def test_a_read_of_unwritten_memory_that_reaches_no_sum_is_a_remark():
    text = """__global__ void remark(const float *in, float *out, int n)
{
    __shared__ float s[64];
    int tid = threadIdx.x, i = blockIdx.x * blockDim.x + tid;
    float v = i < n ? in[i] : 0;
    if (tid % 32 == 0) s[tid / 32] = 0;
    __syncthreads();
    float ignored = s[40];
    atomicAdd(out, ignored == 12345 ? v : v);
}
"""
    verdict = gpureduce.check(text, device="emulator", blocks=64)
    assert verdict
    assert "Line 8: thread 0 reads s[40], which no thread has written" in str(verdict)


def test_threads_that_store_one_value_do_not_race():
    text = TREE.replace("    if (tid == 0)\n        out", "    out")
    verdict = gpureduce.check(text, "int32", device="emulator", blocks=64)
    assert verdict and "threads store the same value to out[0]; one of them" in str(verdict)
    different = text.replace("= partial[0]", "= partial[tid > 0]")
    verdict = gpureduce.check(different, "int32", device="emulator", blocks=64)
    assert {race.missing for race in verdict.races.races} == {"one writer"}


def test_static_variables_of_kernels_that_synchronize_blocks():
    """Each block has variables of its own, also where blocks run side by side."""
    text = """#include <cooperative_groups.h>
__global__ void grid(const float *in, float *out, int n)
{
    __shared__ float s;
    if (threadIdx.x == 0) {
        s = 0;
        for (int i = blockIdx.x; i < n; i += gridDim.x) s += in[i];
    }
    cooperative_groups::this_grid().sync();
    if (threadIdx.x == 0) atomicAdd(out, s);
}
"""
    assert gpureduce.check(text, device="emulator", blocks=64)


def test_the_verdicts_text_and_pages(tmp_path):
    verdict, _ = check("lab_no_bounds")
    assert len(repr(verdict).splitlines()) == 1 and len(str(verdict).splitlines()) < 50
    assert "races" not in str(verdict) and "missing: __syncwarp()" in verdict.report(every=True)
    page = tmp_path / "verdict.html"
    main(["check", str(WRITTEN / "star_plus.cu"), "--device", "emulator", "--html", str(page)])
    text = page.read_text()
    assert check("no_atomic")[0].to_html()[:9] == text[:9]
    assert text.startswith("<!DOCTYPE html>") and '<meta charset="utf-8">' in text
    assert "prefers-color-scheme: dark" in text and "<svg" in text

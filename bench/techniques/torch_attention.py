"""Measures PyTorch's scaled_dot_product_attention for `lockstep bench attention --peer torch`, which starts it.

Each line of standard input is a command, and each is answered by a line:

    point DTYPE BATCH HEADS KV_HEADS LENGTH HEAD_SIZE THREADS     ready
    run                                                           seconds of forward, seconds of backward

Tensors are dense [batch, heads, length, head size], the layout that PyTorch computes fastest.
"""

import sys
import time

import torch
from torch.nn import functional

DTYPES = {"f64": torch.float64, "f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


def tensors(dtype, batch, heads, kv_heads, length, head_size):
    """Queries, keys, values and the gradient of the output."""
    def normal(count, needs_gradient):
        return torch.randn(batch, count, length, head_size).to(DTYPES[dtype]).requires_grad_(needs_gradient)

    return [normal(heads, True), normal(kv_heads, True), normal(kv_heads, True), normal(heads, False)]


def run(q, k, v, gradient):
    begin = time.perf_counter()
    out = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=k.shape[1] < q.shape[1])
    middle = time.perf_counter()
    torch.autograd.grad(out, (q, k, v), gradient)
    return middle - begin, time.perf_counter() - middle


def main():
    point = []
    for line in sys.stdin:
        command, *words = line.split()
        if command == "point":
            dtype, *sizes, threads = words
            torch.set_num_threads(int(threads))
            point = tensors(dtype, *map(int, sizes))
            print("ready", flush=True)
        else:
            print(*run(*point), flush=True)


if __name__ == "__main__":
    main()

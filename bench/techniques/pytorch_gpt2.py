"""Trains GPT-2 (124M) with PyTorch, compiled, with flash attention, for comparison with ours. Prints tokens per second and
the rate of dense bf16 products.

python3 pytorch_gpt2.py [--batch 32] [--length 1024] [--steps 20] [--json FILE]

As PyTorch's users train it: autocast to bf16 with f32 weights, fused AdamW, the vocabulary padded to 50304.
"""

import argparse
import json
import statistics
import time

import torch
from torch import nn
from torch.nn import functional

LAYERS, HEADS, WIDTH, VOCABULARY = 12, 12, 768, 50304


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.project = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.expand, self.contract = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        batch, length, _ = x.shape
        q, k, v = (part.view(batch, length, HEADS, WIDTH // HEADS).transpose(1, 2)
                   for part in self.qkv(self.norm_1(x)).split(WIDTH, dim=2))
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.project(attended.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.contract(functional.gelu(self.expand(self.norm_2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self, length):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(length, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.head.weight = self.tokens.weight
        nn.init.normal_(self.tokens.weight, std=0.02)

    def forward(self, inputs, targets):
        x = self.tokens(inputs) + self.positions.weight[:inputs.shape[1]]
        for block in self.blocks:
            x = block(x)
        return functional.cross_entropy(self.head(self.norm(x)).view(-1, VOCABULARY), targets.view(-1))


def dense_rate(size=8192, times=20):
    """FLOP/s of square bf16 products."""
    a, b = (torch.randn(size, size, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    for _ in range(3):
        a @ b
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(times):
        a @ b
    torch.cuda.synchronize()
    return 2 * size**3 * times / (time.perf_counter() - begin)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--json")
    options = parser.parse_args()

    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high")
    model = Gpt2(options.length).cuda()
    compiled = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    data = torch.randint(50257, (options.batch, options.length + 1), device="cuda")
    seconds = []
    for step in range(5 + options.steps):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = compiled(data[:, :-1], data[:, 1:].contiguous())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        if step >= 5:
            seconds.append(time.perf_counter() - begin)
    tokens = options.batch * options.length
    # As `lockstep bench model` counts them: 6 per weight and token, and causal attention.
    weights = LAYERS * 12 * WIDTH**2 + 50257 * WIDTH
    flops = 6 * tokens * weights + 6 * LAYERS * WIDTH * options.length * tokens
    step_seconds, dense = statistics.median(seconds), dense_rate()
    result = {"torch": torch.__version__, "gpu": torch.cuda.get_device_name(), "step_seconds": step_seconds,
              "tokens_per_second": tokens / step_seconds, "dense_flop_per_s": dense,
              "mfu": flops / step_seconds / dense, "loss": loss.item()}
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=1)
    print(f"{result['tokens_per_second']:.0f} tokens/s, {100 * result['mfu']:.1f} % of {dense / 1e12:.0f} TFLOP/s")


if __name__ == "__main__":
    main()

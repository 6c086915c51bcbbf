"""Trains the model nano-moe with PyTorch, a loop over experts, for comparison with ours.

python3 pytorch_moe.py [--batch 8] [--steps 50] [--threads 1] [--compile]

Prints the milliseconds of a step and tokens per second. As PyTorch's users write it: each expert takes the rows of its tokens, and
adds its outputs back to them. AdamW in one call, f32, the gradient clipped to a norm of 1.
"""

import argparse
import statistics
import time

import torch
from torch import nn
from torch.nn import functional

LAYERS, HEADS, WIDTH, LENGTH, VOCABULARY = 4, 4, 128, 64, 256
EXPERTS, PER_TOKEN, EXPERT_WIDTH, BALANCE = 8, 2, 512, 0.01


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.router = nn.Linear(WIDTH, EXPERTS, bias=False)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(WIDTH, EXPERT_WIDTH), nn.GELU(approximate="tanh"), nn.Linear(EXPERT_WIDTH, WIDTH))
                                     for _ in range(EXPERTS))

    def forward(self, x):
        """The experts' outputs, and the balancing loss: sequence by sequence, E sum_e f_e P_e."""
        batch = x.shape[0]
        rows = x.reshape(-1, WIDTH)
        scores = self.router(rows)
        highest, chosen = scores.topk(PER_TOKEN, dim=1)
        weights = functional.softmax(highest, dim=1)
        out = torch.zeros_like(rows)
        for number, expert in enumerate(self.experts):
            tokens, places = torch.where(chosen == number)
            out.index_add_(0, tokens, expert(rows[tokens]) * weights[tokens, places, None])
        share = functional.one_hot(chosen, EXPERTS).sum(1).view(batch, -1, EXPERTS).float().mean(1) / PER_TOKEN
        mean = functional.softmax(scores, dim=1).view(batch, -1, EXPERTS).mean(1)
        return out.view_as(x), EXPERTS * (share * mean).sum(1).mean()


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.project, self.experts = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH), Experts()

    def forward(self, x):
        batch, length, _ = x.shape
        q, k, v = (part.view(batch, length, HEADS, WIDTH // HEADS).transpose(1, 2) for part in self.qkv(self.norm_1(x)).split(WIDTH, dim=2))
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.project(attended.transpose(1, 2).reshape(batch, length, WIDTH))
        out, balance = self.experts(self.norm_2(x))
        return x + out, balance


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks, self.norm = nn.ModuleList(Block() for _ in range(LAYERS)), nn.LayerNorm(WIDTH)
        nn.init.normal_(self.tokens.weight, std=0.02)

    def forward(self, inputs, targets):
        x = self.tokens(inputs) + self.positions.weight
        balance = 0
        for block in self.blocks:
            x, own = block(x)
            balance = balance + own
        logits = functional.linear(self.norm(x), self.tokens.weight)
        return functional.cross_entropy(logits.view(-1, VOCABULARY), targets.reshape(-1)) + BALANCE * balance


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--compile", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    model = Gpt()
    trained = torch.compile(model) if options.compile else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    text = torch.randint(VOCABULARY, (options.batch, LENGTH + 1))
    seconds = []
    for step in range(5 + options.steps):
        begin = time.perf_counter()
        loss = trained(text[:, :-1], text[:, 1:])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step >= 5:
            seconds.append(time.perf_counter() - begin)
    median = statistics.median(seconds)
    print(f"torch {torch.__version__}: {1e3 * median:.2f} ms a step, {options.batch * LENGTH / median:.0f} tokens/s, loss {loss.item():.3f}")


if __name__ == "__main__":
    main()

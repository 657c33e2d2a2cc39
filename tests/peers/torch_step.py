#!/usr/bin/env python3
"""A training step of PyTorch and one of the runtime in turns: 30M model, f32, 2 threads, eager, allocator tuned.

    cargo bench -p haul-runtime --bench step --no-run      # prints the path of the bench
    python tests/peers/torch_step.py <path of the bench> [rounds]

Prints seconds and processor seconds of each pair and the medians of the ratios (above 1: the runtime is faster).
"""
import os
import resource
import statistics
import subprocess
import sys
import time

# Freed tensors keep their pages, and pages are huge: PyTorch is 15 to 30 % faster so.
TUNED = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": "17179869184",
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
    "OMP_NUM_THREADS": "2",
}
if os.environ.get("GLIBC_TUNABLES") != TUNED["GLIBC_TUNABLES"]:
    os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **TUNED})

try:
    import torch
    import torch.nn as nn
    import torch.nn.functional as F
except ImportError:
    sys.exit("skipped: this Python has no torch")

L, C, HEADS, T, B, V = 6, 384, 6, 256, 8, 50304


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(C), nn.LayerNorm(C)
        self.qkv, self.proj = nn.Linear(C, 3 * C), nn.Linear(C, C)
        self.fc, self.out = nn.Linear(C, 4 * C), nn.Linear(4 * C, C)

    def forward(self, x):
        b, t, c = x.shape
        parts = self.qkv(self.ln1(x)).split(c, 2)
        q, k, v = (p.view(b, t, HEADS, c // HEADS).transpose(1, 2) for p in parts)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, c))
        return x + self.out(F.gelu(self.fc(self.ln2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(V, C), nn.Embedding(T, C)
        self.blocks = nn.ModuleList(Block() for _ in range(L))
        self.ln = nn.LayerNorm(C)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, 0, 0.02)

    def forward(self, x, y):
        h = self.tokens(x) + self.positions(torch.arange(x.shape[1]))
        for block in self.blocks:
            h = block(h)
        return F.cross_entropy(F.linear(self.ln(h), self.tokens.weight).view(-1, V), y.view(-1))


def main():
    bench, rounds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 5
    torch.set_num_threads(2)
    torch.manual_seed(1)
    model = Gpt()
    groups = [
        {"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": 0.1},
        {"params": [p for p in model.parameters() if p.dim() <= 1], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=3e-4, betas=(0.9, 0.95), fused=True)

    def peer():
        batch = torch.randint(0, V, (B, T + 1))
        start, used = time.perf_counter(), time.process_time()
        model(batch[:, :-1].contiguous(), batch[:, 1:].contiguous()).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return time.perf_counter() - start, time.process_time() - used

    plain = {k: v for k, v in os.environ.items() if k not in TUNED}
    child = subprocess.Popen([bench, "turns"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=plain)

    def ours():
        child.stdin.write("\n")
        child.stdin.flush()
        return tuple(map(float, child.stdout.readline().split()))

    for warm in (peer, ours, peer):
        warm()
    pairs = []
    for _ in range(rounds):
        pair = []
        for take in (peer, ours):
            time.sleep(0.3)
            pair.append(take())
        pairs.append(pair)
        (a, a_cpu), (b, b_cpu) = pair
        print(f"torch {a:.3f} s ({a_cpu:.3f} processor s), runtime {b:.3f} s ({b_cpu:.3f})", flush=True)
    child.stdin.close()
    child.wait()
    median = lambda i: statistics.median(p[0][i] / p[1][i] for p in pairs)
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"torch {torch.__version__} / runtime: {median(0):.3f} by the clock, {median(1):.3f} by processor time; torch's memory {most:.0f} MB")


main()

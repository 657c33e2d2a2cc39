#!/usr/bin/env python3
"""Writes gpt2.json and gpt2.bin: a tiny GPT-2 trained by PyTorch in f64, for runtime/tests/golden.rs.

Needs torch (any 2.x, CPU) and numpy. Usage: python3 make_gpt2.py [DIRECTORY]

The model is written with torch.nn modules only (LayerNorm, GELU tanh, scaled_dot_product_attention, cross_entropy, AdamW,
clip_grad_norm_), independently of haul. gpt2.bin holds little-endian f64: the initial weights, then the gradients of step 1
before clipping, each in the order and shape that gpt2.json lists. gpt2.json has the configuration, the batches' rule,
20 losses, gradient norms and evaluation losses.
"""

import json
import math
import sys
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

torch.set_default_dtype(torch.float64)
torch.manual_seed(7)
torch.set_num_threads(1)

L, C, H, FFN, T, V = 2, 24, 3, 80, 12, 61
EPS, STEPS, MICRO, ACCUMULATION = 1e-5, 20, 3, 2
LR, MIN_LR, WARMUP, BETAS, ADAM_EPS, DECAY, CLIP = 3e-3, 3e-4, 4, (0.9, 0.95), 1e-8, 0.1, 0.5
EVAL = 3


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(C, eps=EPS), nn.LayerNorm(C, eps=EPS)
        self.attn = nn.ModuleDict({"c_attn": nn.Linear(C, 3 * C), "c_proj": nn.Linear(C, C)})
        self.mlp = nn.ModuleDict({"c_fc": nn.Linear(C, FFN), "c_proj": nn.Linear(FFN, C)})

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = self.attn["c_attn"](self.ln_1(x)).split(C, dim=2)
        q, k, v = (y.view(b, t, H, C // H).transpose(1, 2) for y in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attn["c_proj"](y.transpose(1, 2).reshape(b, t, C))
        return x + self.mlp["c_proj"](F.gelu(self.mlp["c_fc"](self.ln_2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(V, C), nn.Embedding(T, C)
        self.h = nn.ModuleList(Layer() for _ in range(L))
        self.ln_f = nn.LayerNorm(C, eps=EPS)

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
        for layer in self.h:
            x = layer(x)
        return F.linear(self.ln_f(x), self.wte.weight)


def sequence(n):
    """T + 1 tokens of sample n; the rule that golden.rs repeats."""
    mask = (1 << 64) - 1
    tokens = []
    for i in range(T + 1):
        x = ((n * 1000 + i + 1) * 0x9E3779B97F4A7C15) & mask
        x = ((x ^ (x >> 29)) * 0xBF58476D1CE4E5B9) & mask
        # Squaring makes low tokens likelier, so that there is something to learn.
        tokens.append((x >> 40) % V * ((x >> 20) % V) // V)
    return tokens


def loss_of(model, numbers):
    data = torch.tensor([sequence(n) for n in numbers])
    logits = model(data[:, :-1])
    return F.cross_entropy(logits.reshape(-1, V), data[:, 1:].reshape(-1))


def rate(t):
    if t < WARMUP:
        return LR * t / WARMUP
    progress = min((t - WARMUP) / (STEPS - WARMUP), 1.0)
    return MIN_LR + (LR - MIN_LR) * 0.5 * (1 + math.cos(math.pi * progress))


def main():
    out = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent)
    model = Gpt()
    for name, p in model.named_parameters():
        nn.init.normal_(p, 1.0 if name.endswith("weight") and "ln_" in name else 0.0, 0.15)
    tensors = [p.detach().clone() for p in model.parameters()]
    decayed = [p for p in model.parameters() if p.dim() > 1]
    plain = [p for p in model.parameters() if p.dim() == 1]
    groups = [{"params": decayed, "weight_decay": DECAY}, {"params": plain, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=LR, betas=BETAS, eps=ADAM_EPS)
    losses, norms, evals = [], [], []
    size = MICRO * ACCUMULATION
    for step in range(1, STEPS + 1):
        optimizer.zero_grad()
        first = (step - 1) * size
        loss = loss_of(model, range(first, first + size))
        loss.backward()
        if step == 1:
            tensors += [p.grad.clone() for p in model.parameters()]
        norms.append(nn.utils.clip_grad_norm_(model.parameters(), CLIP).item())
        for group in optimizer.param_groups:
            group["lr"] = rate(step)
        optimizer.step()
        losses.append(loss.item())
        with torch.no_grad():
            evals.append(loss_of(model, [(1 << 32) + i for i in range(EVAL)]).item())
    np.concatenate([t.numpy().ravel() for t in tensors]).astype("<f8").tofile(out / "gpt2.bin")
    about = {
        "made_by": f"make_gpt2.py, torch {torch.__version__}",
        "model": {"layers": L, "hidden": C, "heads": H, "ffn": FFN, "seq_len": T, "vocab": V, "norm_eps": EPS},
        "batch": {"micro": MICRO, "accumulation": ACCUMULATION},
        "optimizer": {"lr": LR, "betas": BETAS, "eps": ADAM_EPS, "weight_decay": DECAY, "clip": CLIP},
        "schedule": {"warmup": WARMUP, "decay_steps": STEPS, "min_lr": MIN_LR},
        "eval_sequences": EVAL,
        "tensors": [{"name": n, "shape": list(p.shape)} for n, p in model.named_parameters()],
        "losses": losses,
        "norms": norms,
        "evals": evals,
    }
    (out / "gpt2.json").write_text(json.dumps(about, indent=1) + "\n")


main()

"""Qwen2 in plain PyTorch, with transformers' names, and writing its file. Needs only torch and numpy."""

import json
import math

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


class RMSNorm(nn.Module):
    def __init__(self, width, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.heads, self.pairs = c["num_attention_heads"], c["num_key_value_heads"]
        width = c["hidden_size"]
        self.head = width // self.heads
        self.q_proj = nn.Linear(width, self.heads * self.head)
        self.k_proj = nn.Linear(width, self.pairs * self.head)
        self.v_proj = nn.Linear(width, self.pairs * self.head)
        self.o_proj = nn.Linear(self.heads * self.head, width, bias=False)

    def forward(self, x, turn):
        n, t, _ = x.shape
        q, k, v = (
            p(x).view(n, t, -1, self.head).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj)
        )
        q, k = turn(q), turn(k)
        k, v = (y.repeat_interleave(self.heads // self.pairs, 1) for y in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(y.transpose(1, 2).reshape(n, t, -1))


class MLP(nn.Module):
    def __init__(self, c):
        super().__init__()
        width, inner = c["hidden_size"], c["intermediate_size"]
        self.gate_proj = nn.Linear(width, inner, bias=False)
        self.up_proj = nn.Linear(width, inner, bias=False)
        self.down_proj = nn.Linear(inner, width, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.input_layernorm = RMSNorm(c["hidden_size"], c["rms_norm_eps"])
        self.self_attn = Attention(c)
        self.post_attention_layernorm = RMSNorm(c["hidden_size"], c["rms_norm_eps"])
        self.mlp = MLP(c)

    def forward(self, x, turn):
        x = x + self.self_attn(self.input_layernorm(x), turn)
        return x + self.mlp(self.post_attention_layernorm(x))


class Qwen2(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.embed_tokens = nn.Embedding(c["vocab_size"], c["hidden_size"])
        self.layers = nn.ModuleList(Layer(c) for _ in range(c["num_hidden_layers"]))
        self.norm = RMSNorm(c["hidden_size"], c["rms_norm_eps"])
        head = c["hidden_size"] // c["num_attention_heads"]
        rates = c["rope_theta"] ** (-torch.arange(0, head, 2).float() / head)
        angles = torch.arange(c["max_position_embeddings"]).float()[:, None] * rates
        angles = torch.cat([angles, angles], -1)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)
        depth = math.sqrt(2 * c["num_hidden_layers"])
        for name, p in self.named_parameters():
            if p.dim() == 2:
                out = name.endswith(("o_proj.weight", "down_proj.weight"))
                nn.init.normal_(p, 0, p.shape[1] ** -0.5 / (depth if out else 1) if "embed" not in name else 0.05)
            elif name.endswith("bias"):
                nn.init.zeros_(p)

    def forward(self, ids):
        """Logits [n, t, vocabulary] of ids [n, t]."""
        cos, sin = self.cos[: ids.shape[1]], self.sin[: ids.shape[1]]

        def turn(x):
            a, b = x.chunk(2, -1)
            return x * cos + torch.cat([-b, a], -1) * sin

        x = self.embed_tokens(ids)
        for layer in self.layers:
            x = layer(x, turn)
        return F.linear(self.norm(x), self.embed_tokens.weight)


def save_safetensors(path, model):
    """The weights in bf16, by transformers' names."""
    header, blobs, at = {}, [], 0
    for name, p in sorted(model.state_dict().items()):
        blob = p.detach().to("cpu", torch.bfloat16).contiguous().view(torch.int16).numpy().astype("<i2").tobytes()
        header[f"model.{name}"] = {"dtype": "BF16", "shape": list(p.shape), "data_offsets": [at, at + len(blob)]}
        blobs.append(blob)
        at += len(blob)
    head = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    head += b" " * (-len(head) % 8)
    with open(path, "wb") as f:
        f.write(np.uint64(len(head)).astype("<u8").tobytes() + head + b"".join(blobs))

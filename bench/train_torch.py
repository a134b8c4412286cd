#!/usr/bin/env python3
"""A training step of a small Qwen2 on the CPU: Tenon (bench_train) beside PyTorch eager, in turns on one machine.

    python bench/train_torch.py BUILD_FOLDER [--threads 2] [--steps 20] [--turns 3]

A step is forward, cross entropy, backward, clipping to a norm of 1 and AdamW, in f32. Prints medians of each turn.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import time

import torch
import transformers

SHAPES = {  # rows, tokens, vocabulary, width, hidden, layers, heads, key heads
    "tiny": (16, 64, 512, 128, 384, 4, 4, 2),
    "small": (16, 128, 2048, 256, 768, 6, 8, 2),
}


def torch_step(shape, threads, steps):
    rows, tokens, vocabulary, width, hidden, layers, heads, key_heads = shape
    torch.set_num_threads(threads)
    config = transformers.Qwen2Config(vocab_size=vocabulary, hidden_size=width, intermediate_size=hidden, num_hidden_layers=layers,
                                      num_attention_heads=heads, num_key_value_heads=key_heads, tie_word_embeddings=True,
                                      use_cache=False, attn_implementation="sdpa")
    model = transformers.Qwen2ForCausalLM(config).float().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    ids = (torch.arange(rows * tokens) ** 2 % vocabulary).reshape(rows, tokens)
    times = []
    for _ in range(steps + 2):
        begin = time.perf_counter()
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(ids).logits.reshape(-1, vocabulary), ids.reshape(-1))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        loss.item()
        times.append((time.perf_counter() - begin) * 1e3)
    return statistics.median(times[2:])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--turns", type=int, default=3)
    a = parser.parse_args()
    program = pathlib.Path(a.build) / "bin/bench_train"
    for name, shape in SHAPES.items():
        for turn in range(a.turns):
            ours = json.loads(subprocess.check_output([program, *map(str, shape), str(a.threads), str(a.steps)]))
            eager = torch_step(shape, a.threads, a.steps)
            print(json.dumps({"shape": name, "turn": turn, **ours, "torch_eager_ms": round(eager, 3), "torch": torch.__version__}), flush=True)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""A training step on the CPU: Tenon (bench_train) next to PyTorch, eager and compiled, taking turns on one machine.

    python bench/train_torch.py BUILD_FOLDER [--shapes sums tiny small] [--threads 2] [--steps 20] [--turns 3] [--eager-only] [-o FILE]

sums: the embedded language model and the batch of a step of `tenon train grpo` without options, with its policy loss;
the others are random Qwen2 networks with cross entropy. A step is forward, loss, backward, clipping to a norm of 1 and
AdamW, in f32. In each turn both run one after the other, with median and fastest steps for both; the summary compares
the medians over all turns, and the fastest.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tempfile
import time

import torch
import transformers

ROOT = pathlib.Path(__file__).resolve().parent.parent
SHAPES = {  # rows, tokens, vocabulary, width, hidden, layers, heads, key heads
    "sums": None,
    "tiny": (16, 64, 512, 128, 384, 4, 4, 2),
    "small": (16, 128, 2048, 256, 768, 6, 8, 2),
}
CLIP = 0.2


def random_task(shape):
    rows, tokens, vocabulary, width, hidden, layers, heads, key_heads = shape
    config = transformers.Qwen2Config(vocab_size=vocabulary, hidden_size=width, intermediate_size=hidden, num_hidden_layers=layers,
                                      num_attention_heads=heads, num_key_value_heads=key_heads, tie_word_embeddings=True,
                                      use_cache=False, attn_implementation="sdpa")
    model = transformers.Qwen2ForCausalLM(config).float().train()
    ids = (torch.arange(rows * tokens) ** 2 % vocabulary).reshape(rows, tokens)
    return model, lambda: torch.nn.functional.cross_entropy(model(ids).logits.reshape(-1, vocabulary), ids.reshape(-1))


def policy_task(batch):
    model = transformers.Qwen2ForCausalLM.from_pretrained(ROOT / "assets/sums", attn_implementation="sdpa", dtype=torch.float32).train()
    model.config.use_cache = False
    shape = (batch["rows"], batch["tokens"])
    ids, target = (torch.tensor(batch[name]).reshape(shape) for name in ("ids", "target"))
    old, advantage = torch.tensor(batch["old"]).reshape(shape), torch.tensor(batch["advantages"]).reshape(-1, 1)
    counted, wanted = (target >= 0).float(), target.clamp(min=0).reshape(-1)

    def loss():
        logits = model(ids).logits
        logp = -torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), wanted, reduction="none").reshape(shape)
        ratio = torch.exp((logp - old) * counted)
        terms = -torch.minimum(ratio * advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * advantage)
        return (terms * counted).sum() / (batch["rows"] * batch["longest"])

    return model, loss


class Peer:
    """Steps in one of PyTorch's modes; compiled code is kept for later turns."""

    def __init__(self, task, compiled, threads):
        torch.set_num_threads(threads)
        self.model, loss = task()
        self.loss = torch.compile(loss) if compiled else loss
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-6)

    def step(self):
        self.optimizer.zero_grad()
        loss = self.loss()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        return loss.item()

    def times(self, steps):
        first, times = self.step(), []
        self.step()
        for _ in range(steps):
            begin = time.perf_counter()
            self.step()
            times.append((time.perf_counter() - begin) * 1e3)
        return {"ms": round(statistics.median(times), 3), "fastest": round(min(times), 3), "loss": first}


def ours(program, shape, batch_file, a):
    numbers = [str(a.threads), str(a.steps), "0"]
    of_shape = [ROOT / "assets/sums", batch_file] if shape is None else map(str, shape)
    r = json.loads(subprocess.check_output([program, *numbers, *of_shape]))
    return {"ms": r["step_ms"], "fastest": r["fastest_ms"], "gradients": r["gradients_ms"], "loss": r["loss"]}


def compare(name, a, batch_file):
    program, shape = pathlib.Path(a.build) / "bin/bench_train", SHAPES[name]
    turns = [{"tenon": ours(program, shape, batch_file, a)}]
    task = (lambda: policy_task(json.loads(pathlib.Path(batch_file).read_text()))) if shape is None else (lambda: random_task(shape))
    peers = {"eager": Peer(task, False, a.threads)}
    if not a.eager_only:
        peers["compiled"] = Peer(task, True, a.threads)
    for turn in range(a.turns):
        if turn:
            turns.append({"tenon": ours(program, shape, batch_file, a)})
        for mode, peer in peers.items():
            turns[turn][mode] = peer.times(a.steps)
        print(json.dumps({"shape": name, "load": round(os.getloadavg()[0], 1), **turns[turn]}), flush=True)
    of = lambda what: {mode: statistics.median(t[mode]["ms"] for t in turns) if what == "ms" else min(t[mode]["fastest"] for t in turns)
                       for mode in turns[0]}
    summary = {}
    for what in ("ms", "fastest"):
        values = of(what)
        best = min((mode for mode in values if mode != "tenon"), key=values.get)
        summary[what] = {**values, "best_peer": best, "ratio": round(values[best] / values["tenon"], 2)}
    print(json.dumps({"shape": name, "summary": summary}), flush=True)
    return {"shape": name, "tokens": None if shape else json.loads(pathlib.Path(batch_file).read_text())["tokens"], "turns": turns,
            "summary": summary}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--eager-only", action="store_true")
    parser.add_argument("-o", "--output")
    a = parser.parse_args()
    processor = next(line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name"))
    out = {"processor": processor, "threads": a.threads, "torch": torch.__version__, "transformers": transformers.__version__, "shapes": []}
    with tempfile.TemporaryDirectory() as folder:
        for name in a.shapes:
            out["shapes"].append(compare(name, a, pathlib.Path(folder) / "batch.json"))
    if a.output:
        pathlib.Path(a.output).write_text(json.dumps(out, indent=1) + "\n")


if __name__ == "__main__":
    main()

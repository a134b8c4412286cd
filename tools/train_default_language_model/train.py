#!/usr/bin/env python3
"""Trains the language model on the problems of prepare.py; keeps the folders with the accuracy nearest to the target.

Needs torch and numpy. It stops at the accuracy given by --until, or when its time is over."""

import argparse
import json
import pathlib
import re
import shutil
import sys
import time

import numpy as np
import torch
from network import Qwen2, save_safetensors
from torch.nn import functional as F

PROMPT_WEIGHT = 0.1  # of a question's tokens in the loss, so that the model can also continue a question


class Problems:
    def __init__(self, folder, device):
        stored = np.load(folder / "problems.npz")
        self.train = torch.from_numpy(stored["train"].astype(np.int64)).to(device)
        self.train_sizes = torch.from_numpy(stored["train_sizes"].astype(np.int64)).to(device)
        self.held_out, self.held_out_sizes = stored["held_out"], stored["held_out_sizes"]
        self.tokens = json.loads((folder / "tokens.json").read_text())
        self.end, self.pad = self.tokens.index("<|im_end|>"), self.tokens.index("<|endoftext|>")

    def text(self, ids):
        """The text of ids; byte-level tokens stand for themselves except spaces and line breaks."""
        return "".join(self.tokens[i] for i in ids).replace("\u0120", " ").replace("\u010a", "\n")

    def batch(self, n, generator):
        """ids [n, t] and the weight of each target [n, t - 1]."""
        rows = torch.randint(len(self.train), (n,), generator=generator, device=self.train.device)
        questions, sizes = self.train_sizes[:, rows]
        ids = self.train[rows][:, : int(sizes.max())]
        target = torch.arange(1, ids.shape[1], device=ids.device)
        weights = torch.where(target < questions[:, None], PROMPT_WEIGHT, 1.0)
        return ids, weights * (target < sizes[:, None])


def result_of(text):
    """The number after the last ####, or None."""
    found = re.findall(r"#### (-?\d+)", text)
    return int(found[-1]) if found else None


@torch.no_grad()
def write(model, problems, prompts, most=36, temperature=0.0, generator=None):
    """Answers to prompts (lists of ids) as lists of ids, including the end. No cache: the whole row every time."""
    device = problems.train.device
    lengths = torch.tensor([len(p) for p in prompts], device=device)
    ids = torch.full((len(prompts), int(lengths.max()) + most), problems.pad, device=device)
    for i, p in enumerate(prompts):
        ids[i, : len(p)] = torch.as_tensor(p, device=device)
    starts, rows = lengths.clone(), torch.arange(len(prompts), device=device)
    going = torch.ones(len(prompts), dtype=torch.bool, device=device)
    for _ in range(most):
        logits = model(ids[:, : int(lengths.max())])[rows, lengths - 1].float()
        if temperature > 0:
            new = torch.multinomial((logits / temperature).softmax(-1), 1, generator=generator)[:, 0]
        else:
            new = logits.argmax(-1)
        ids[rows[going], lengths[going]] = new[going]
        lengths = lengths + going
        going = going & (new != problems.end)
        if not going.any():
            break
    return [row[a:b] for row, a, b in zip(ids.tolist(), starts.tolist(), lengths.tolist())]


def rounded(model, config, device):
    """A copy with the weights as they will be stored in the file."""
    copy = Qwen2(config).to(device)
    copy.load_state_dict({k: v.detach().to(torch.bfloat16).float() for k, v in model.state_dict().items()})
    return copy.eval()


def evaluate(model, problems, count, seed=0):
    """Fractions of held-out problems: right and well-formed (it ends, with a result), decoded greedily and drawn at
    temperature 1; and how many of four answers drawn for a question differ on average."""
    sizes = problems.held_out_sizes[:, :count]
    rows = [row[:n].tolist() for row, n in zip(problems.held_out[:count], sizes[0])]
    golds = [result_of(problems.text(row[:n])) for row, n in zip(problems.held_out[:count], sizes[1])]
    out = {}
    answers = write(model, problems, rows)
    good = [(result_of(problems.text(a)), a[-1] == problems.end) for a in answers]
    out["greedy"] = sum(r == g and e for (r, e), g in zip(good, golds)) / count
    out["ends"] = sum(r is not None and e for r, e in good) / count
    kinds = {}
    for (r, e), g, row in zip(good, golds, problems.held_out[:count]):
        question = problems.text(row).split("\n")
        kind = "".join(re.findall(r"[-+*]", "".join(question[1:-1])))
        kinds.setdefault(kind, []).append(r == g and e)
    out["by_operation"] = {k: [round(sum(v) / len(v), 3), len(v)] for k, v in sorted(kinds.items())}
    generator = torch.Generator(problems.train.device).manual_seed(seed)
    few = rows[: count // 4]
    drawn = write(model, problems, [row for row in few for _ in range(4)], temperature=1.0, generator=generator)
    texts = [problems.text(a) for a in drawn]
    out["drawn"] = sum(result_of(t) == golds[i // 4] for i, t in enumerate(texts)) / len(texts)
    out["drawn_ends"] = sum(result_of(t) is not None and a[-1] == problems.end for t, a in zip(texts, drawn)) / len(texts)
    out["different_of_4"] = sum(len(set(texts[i : i + 4])) for i in range(0, len(texts), 4)) / len(few)
    # A group of four is useful for learning if some answers are right and some are wrong.
    rights = [[result_of(t) == golds[i // 4] for t in texts[i : i + 4]] for i in range(0, len(texts), 4)]
    out["mixed_groups"] = sum(0 < sum(r) < 4 for r in rights) / len(few)
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=pathlib.Path, required=True, help="folder that prepare.py wrote")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="gets a folder step-N an evaluation, and train.jsonl")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--warm-up", type=int, default=200)
    parser.add_argument("--every", type=int, default=100, help="steps between evaluations")
    parser.add_argument("--count", type=int, default=1024, help="held-out problems of an evaluation")
    parser.add_argument("--aim", type=float, default=0.5, help="accuracy that is wanted: the nearest folders are kept")
    parser.add_argument("--keep", type=int, default=6, help="folders to keep")
    parser.add_argument("--until", type=float, default=1.0, help="accuracy to end at")
    parser.add_argument("--seed", type=int, default=1)
    a = parser.parse_args()
    begin = time.monotonic()
    torch.manual_seed(a.seed)
    torch.set_float32_matmul_precision("high")
    a.out.mkdir(parents=True, exist_ok=True)
    problems = Problems(a.data, a.device)
    config = json.loads((a.data / "model/config.json").read_text())
    model = Qwen2(config).to(a.device)
    print(f"{sum(p.numel() for p in model.parameters())} parameters", flush=True)
    optimizer = torch.optim.AdamW(model.parameters(), a.rate, betas=(0.9, 0.98), weight_decay=0.01)
    generator = torch.Generator(a.device).manual_seed(a.seed)
    step, losses, kept = 0, [], []
    while True:
        for group in optimizer.param_groups:
            group["lr"] = a.rate * min(1.0, (step + 1) / a.warm_up)
        ids, weights = problems.batch(a.batch, generator)
        loss = F.cross_entropy(model(ids)[:, :-1].flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
        loss = (loss * weights.flatten()).sum() / weights.sum()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.detach())
        step += 1
        over = time.monotonic() - begin > a.seconds
        if step % a.every and not over:
            continue
        found = evaluate(rounded(model, config, a.device), problems, a.count)
        line = {"step": step, "seconds": round(time.monotonic() - begin, 1), "loss": round(torch.stack(losses).mean().item(), 4)}
        losses = []
        line |= {k: round(v, 4) if isinstance(v, float) else v for k, v in found.items()}
        with open(a.out / "train.jsonl", "a") as log:
            log.write(json.dumps(line) + "\n")
        print(json.dumps(line), flush=True)
        folder = a.out / f"step-{step}"
        shutil.copytree(a.data / "model", folder, dirs_exist_ok=True)
        save_safetensors(folder / "model.safetensors", model)
        kept = sorted([*kept, (abs(found["greedy"] - a.aim), step)])
        for _, far in kept[a.keep :]:
            shutil.rmtree(a.out / f"step-{far}")
        kept = kept[: a.keep]
        if over or found["greedy"] >= a.until:
            return 0


if __name__ == "__main__":
    sys.exit(main())

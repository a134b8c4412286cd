#!/usr/bin/env python3
"""A step of Dr. GRPO: Tenon (bench_train grpo) next to the same arithmetic in PyTorch, on one machine.

    python bench/grpo_torch.py PROGRAM [--device cuda] [--prompts 2] [--group 8] [--prompt-tokens 96] [--new-tokens 256] [--epochs 2]
                               [--beta 0.04] [--steps 5] [--config qwen2.5-0.5b] [--no-compile] [-o FILE]

Weights are random. PyTorch: transformers' generate with a static cache, which it compiles, samples at temperature 1. The
reference is a forward pass of a frozen copy, once a step. An update is forward, TRL's dr_grpo loss with k3 against it,
backward, clipping and fused AdamW, with f32 masters under bf16 autocast; compiled: one torch.compile each. Every part
prints a line once measured: medians in milliseconds, and the peak of what PyTorch holds in each of the two modes.
"""
import argparse
import json
import subprocess

import torch
import transformers
from torch_timing import milliseconds

CONFIGS = {
    "qwen2.5-0.5b": dict(vocab_size=151936, hidden_size=896, intermediate_size=4864, num_hidden_layers=24, num_attention_heads=14,
                         num_key_value_heads=2, rope_theta=1e6, rms_norm_eps=1e-6, tie_word_embeddings=True, max_position_embeddings=32768),
    "tiny": dict(vocab_size=512, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                 tie_word_embeddings=True),
}
CLIP = 0.2


class Peer:
    def __init__(self, a):
        config = transformers.Qwen2Config(**CONFIGS[a.config], attn_implementation="sdpa")
        self.a = a
        self.model = transformers.Qwen2ForCausalLM(config).to(a.device).train()
        self.sampler = transformers.Qwen2ForCausalLM(config).to(a.device, torch.bfloat16).eval()
        self.reference = transformers.Qwen2ForCausalLM(config).to(a.device, torch.bfloat16).eval() if a.beta > 0 else None
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-6, fused=a.device == "cuda")
        self.rows, self.tokens = a.prompts * a.group, a.prompt_tokens + a.new_tokens
        self.ids = torch.randint(config.vocab_size, (self.rows, self.tokens), device=a.device)
        self.old = torch.full((self.rows, a.new_tokens), -10.0, device=a.device)
        self.advantage = torch.tensor([0.5, -0.5] * (self.rows // 2), device=a.device)[:, None]

    def log_probabilities(self, model):
        kept = self.a.new_tokens + 1
        logits = model(self.ids, use_cache=False, logits_to_keep=kept).logits[:, :-1].float()
        return torch.log_softmax(logits, -1).gather(-1, self.ids[:, 1 - kept:, None])[..., 0]

    def loss(self, reference):
        logp = self.log_probabilities(self.model)
        ratio = torch.exp(logp - self.old)
        terms = -torch.minimum(ratio * self.advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * self.advantage)
        if reference is not None:
            terms = terms + self.a.beta * (torch.exp(reference - logp) - (reference - logp) - 1)
        return terms.sum() / (self.rows * self.a.new_tokens)

    def ask_reference(self, log_probabilities):
        """The frozen copy's log probabilities, which all updates of a step share."""
        with torch.no_grad(), torch.autocast(self.a.device, torch.bfloat16):
            return log_probabilities(self.reference)

    def update(self, loss, reference):
        with torch.autocast(self.a.device, torch.bfloat16):
            value = loss(reference)
        value.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def rollout(self, **cache):
        prompts = self.ids[:, :self.a.prompt_tokens]
        with torch.no_grad():
            self.sampler.generate(prompts, attention_mask=torch.ones_like(prompts), do_sample=True, top_k=0, top_p=1.0,
                                  max_new_tokens=self.a.new_tokens, min_new_tokens=self.a.new_tokens, pad_token_id=0, **cache)

    def measure(self, say, mode, log_probabilities, loss):
        """The parts of a step in one mode, and the most memory that they held: what other modes took does not count."""
        if self.a.device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        reference = None
        if self.reference is not None:
            say(f"reference, {mode}", milliseconds(lambda: self.ask_reference(log_probabilities), self.a.device, self.a.steps))
            reference = self.ask_reference(log_probabilities)
        say(f"update, {mode}", milliseconds(lambda: self.update(loss, reference), self.a.device, self.a.steps))
        if mode == "eager":
            say("rollout, eager", milliseconds(self.rollout, self.a.device, 1, warm=0))
        else:
            say("rollout, static cache, compiled", milliseconds(lambda: self.rollout(cache_implementation="static"), self.a.device, 1))
        if self.a.device == "cuda":
            say(f"peak bytes, {mode}", torch.cuda.max_memory_allocated())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--device", default="cuda")
    for name, number in dict(prompts=2, group=8, prompt_tokens=96, new_tokens=256, epochs=2, steps=5).items():
        parser.add_argument("--" + name.replace("_", "-"), type=int, default=number)
    parser.add_argument("--beta", type=float, default=0.04)
    parser.add_argument("--config", choices=CONFIGS, default="qwen2.5-0.5b")
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("-o", "--output")
    a = parser.parse_args()
    out = {}

    def say(name, value):
        out[name] = value
        print(json.dumps({name: value}), flush=True)

    if a.program != "none":
        numbers = [a.prompts, a.group, a.prompt_tokens, a.new_tokens, a.epochs, a.beta]
        command = [a.program, "grpo", str(a.steps), a.device, "bf16", "random:" + a.config, *map(str, numbers)]
        say("tenon", json.loads(subprocess.check_output(command)))
    torch.set_float32_matmul_precision("high")
    peer = Peer(a)
    peer.measure(say, "eager", peer.log_probabilities, peer.loss)
    if not a.no_compile:
        peer.measure(say, "compiled", torch.compile(peer.log_probabilities), torch.compile(peer.loss))
    if a.output:
        with open(a.output, "w") as file:
            json.dump(out, file, indent=1)


if __name__ == "__main__":
    main()

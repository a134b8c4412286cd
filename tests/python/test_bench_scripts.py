"""The scripts of bench/ and the tables made from what they write: what counts as PyTorch's time and memory."""

from __future__ import annotations

import importlib.util
import json
import sys
import types

import pytest
from conftest import ROOT, needs_torch


def loaded(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def tables():
    return loaded(ROOT / "tools/performance_tables.py")


def test_a_frozen_peer_counts(tables):
    run = {"peers": {"torch_eager": 9.0, "torch_compile": 8.0, "torch_compile_frozen": 7.0}}
    assert tables.peer(run) == (7.0, "frozen")


def test_the_reference_counts_once(tables):
    new = {"update, compiled": 100.0, "reference, compiled": 10.0, "peak bytes, eager": 9, "peak bytes, compiled": 7}
    assert tables.grpo_of_peer(new) == (210.0, 7, None)
    old = {"update, compiled": 110.0, "peak bytes": 9}
    updates, peak, included = tables.grpo_of_peer(old)
    assert (updates, peak) == (220.0, 9)
    assert "second pass of the reference" in included


def test_notes_stand_under_their_table(tables):
    assert tables.noted("| a |", [None, "in a second run"]) == "| a |\n\nIn a second run."
    assert all(len(line) <= 120 for line in tables.noted("", ["word " * 60]).split("\n"))


@needs_torch
def test_the_peer_of_grpo_asks_the_reference_apart(monkeypatch, tmp_path):
    torch = pytest.importorskip("torch")
    networks = []

    class Network(torch.nn.Module):  # stands for transformers' class
        def __init__(self, config):
            super().__init__()
            self.embed = torch.nn.Embedding(config.vocab_size, 4)
            self.passes = 0
            networks.append(self)

        def forward(self, ids, use_cache, logits_to_keep):
            self.passes += 1
            return types.SimpleNamespace(logits=(self.embed(ids) @ self.embed.weight.T)[:, -logits_to_keep:])

        def generate(self, ids, **options):
            return ids

    fake = types.ModuleType("transformers")
    fake.Qwen2Config = lambda **sizes: types.SimpleNamespace(**sizes)
    fake.Qwen2ForCausalLM = Network
    monkeypatch.setitem(sys.modules, "transformers", fake)
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    out = tmp_path / "out.json"
    sizes = ["--prompts", "1", "--group", "2", "--prompt-tokens", "3", "--new-tokens", "4", "--steps", "2"]
    options = ["none", "--device", "cpu", "--config", "tiny", "--no-compile", *sizes, "-o", str(out)]
    monkeypatch.setattr(sys, "argv", ["grpo_torch.py", *options])
    loaded(ROOT / "bench/grpo_torch.py").main()
    model, _, reference = networks
    assert model.passes == 4  # two warm, two timed
    assert reference.passes == 5  # and the one that the updates use
    assert set(json.loads(out.read_text())) == {"reference, eager", "update, eager", "rollout, eager"}

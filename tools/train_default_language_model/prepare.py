#!/usr/bin/env python3
"""Writes the input of train.py into a folder: tokenizer and configuration for transformers, problems as tokens.

Problems come from tenon.train.sums, the generator that is called `sums` everywhere. Needs tenon, tokenizers and
numpy."""

import argparse
import json
import pathlib

import numpy as np
import tenon.train
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

# Qwen2's, verbatim: each digit is a piece of its own.
PIECES = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
PAD, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
# Every question is answered on its own: the model has never seen a second one after the first.
CHAT = (
    "{%- for message in messages %}{%- if loop.last %}{{- message.content + '\\n' }}{%- endif %}{%- endfor %}"
)
ARCHITECTURE = {
    "hidden_size": 192,
    "intermediate_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
}


def make_tokenizer(texts):
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    split = pre_tokenizers.Split(tokenizers.Regex(PIECES), "isolated")
    by_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, by_bytes])
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=1024, min_frequency=2, initial_alphabet=alphabet))
    tokenizer.post_processor = processors.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)
    tokenizer.add_special_tokens([PAD, START, END])
    return tokenizer


def write_configuration(out, tokenizer):
    pad, end = tokenizer.token_to_id(PAD), tokenizer.token_to_id(END)
    files = {
        "config.json": {
            "architectures": ["Qwen2ForCausalLM"],
            "model_type": "qwen2",
            "vocab_size": tokenizer.get_vocab_size(),
            **ARCHITECTURE,
            "hidden_act": "silu",
            "rms_norm_eps": 1e-6,
            "rope_theta": 10000.0,
            "tie_word_embeddings": True,
            "use_sliding_window": False,
            "attention_dropout": 0.0,
            "initializer_range": 0.02,
            "bos_token_id": pad,
            "eos_token_id": end,
            "torch_dtype": "bfloat16",
        },
        "generation_config.json": {"do_sample": False, "eos_token_id": [end, pad], "pad_token_id": pad},
        "tokenizer_config.json": {
            "tokenizer_class": "Qwen2Tokenizer",
            "add_prefix_space": False,
            "bos_token": None,
            "eos_token": END,
            "pad_token": PAD,
            "unk_token": None,
            "clean_up_tokenization_spaces": False,
            "model_max_length": ARCHITECTURE["max_position_embeddings"],
            "added_tokens_decoder": {
                str(tokenizer.token_to_id(t)): {
                    "content": t, "lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True
                }
                for t in (PAD, START, END)
            },
            "chat_template": CHAT,
        },
    }  # fmt: skip
    for name, content in files.items():
        (out / name).write_text(json.dumps(content, indent=2) + "\n")
    tokenizer.save(str(out / "tokenizer.json"))


def stop_early(problems, share, seed):
    """The problems, with `share` of those of two steps answered as some pupils do: with the first step's result."""
    draw = np.random.default_rng(seed).random(len(problems))
    out = []
    for (prompt, answer), number in zip(problems, draw):
        first, *rest = answer.split("\n")
        if len(rest) == 2 and number < share:
            answer = f"{first}\n#### {first.split('=')[1]}"
        out.append((prompt, answer))
    return out


def encode(tokenizer, problems, length):
    """ids [n, length] (question, line break, answer, end; padded), and lengths [2, n]: of questions, of all."""
    pad, end = tokenizer.token_to_id(PAD), tokenizer.token_to_id(END)
    ids = np.full((len(problems), length), pad, np.uint16)
    questions = [e.ids for e in tokenizer.encode_batch([p for p, _ in problems])]
    answers = [e.ids for e in tokenizer.encode_batch(["\n" + a for _, a in problems])]
    sizes = np.zeros((2, len(problems)), np.uint8)
    for i, (question, answer) in enumerate(zip(questions, answers)):
        row = question + answer + [end]
        ids[i, : len(row)] = row  # fails if a row is too long
        sizes[:, i] = len(question), len(row)
    return ids, sizes


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--train", type=int, default=400_000)
    parser.add_argument("--held-out", type=int, default=4096)
    parser.add_argument("--seed", type=int, default=20261123)
    parser.add_argument("--stops-early", type=float, default=0.0, help="share of two-step problems left half done")
    parser.add_argument("--length", type=int, default=64)
    a = parser.parse_args()
    (a.out / "model").mkdir(parents=True, exist_ok=True)
    train = tenon.train.sums(a.seed, 0, a.train)
    held_out = tenon.train.sums(a.seed, 0, a.held_out, split="held-out")
    tokenizer = make_tokenizer(text for p, answer in train[:50_000] for text in (p, "\n" + answer))
    write_configuration(a.out / "model", tokenizer)
    train_ids, train_sizes = encode(tokenizer, stop_early(train, a.stops_early, a.seed), a.length)
    ids, sizes = encode(tokenizer, held_out, a.length)
    np.savez_compressed(a.out / "problems.npz", train=train_ids, train_sizes=train_sizes, held_out=ids, held_out_sizes=sizes)
    (a.out / "tokens.json").write_text(json.dumps([tokenizer.id_to_token(i) for i in range(tokenizer.get_vocab_size())]))
    print(f"{tokenizer.get_vocab_size()} tokens; longest row {max(train_sizes[1].max(), sizes[1].max())}, "
          f"mean {train_sizes[1].mean():.1f}, of questions {train_sizes[0].mean():.1f}")  # fmt: skip


if __name__ == "__main__":
    main()

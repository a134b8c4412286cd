"""A CLIP byte-pair tokenizer for the words of the scenes, in CLIP's file format.

Token numbers: 0..255 the bytes, 256..511 the bytes that end a word, then one per merge, then <|startoftext|> and
<|endoftext|>. Texts are lower-cased, cut into words, and padded with <|endoftext|> to 77 tokens.
"""

import collections
import json
import pathlib

import regex

LENGTH = 77
START, END = "<|startoftext|>", "<|endoftext|>"
WORD = regex.compile(r"""'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+""", regex.IGNORECASE)


def byte_characters():
    """The printable stand-in of each byte, in CLIP's vocabulary order: printable bytes first, the rest after them."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in printable]
    return {**{b: chr(b) for b in printable}, **{b: chr(256 + i) for i, b in enumerate(rest)}}


def learn_merges(words):
    """Merges, most frequent pair first (ties by spelling), until every given word is one token."""
    chars = byte_characters()
    pieces = {}
    for word in words:
        symbols = [chars[b] for b in word.encode()]
        symbols[-1] += "</w>"
        pieces[word] = symbols
    merges = []
    while True:
        pairs = collections.Counter(p for s in pieces.values() for p in zip(s, s[1:]))
        if not pairs:
            return merges
        best = min(pairs, key=lambda p: (-pairs[p], p))
        merges.append(best)
        for word, symbols in pieces.items():
            pieces[word] = _merge(symbols, best)


def _merge(symbols, pair):
    out, i = [], 0
    while i < len(symbols):
        if tuple(symbols[i:i + 2]) == pair:
            out.append(symbols[i] + symbols[i + 1])
            i += 2
        else:
            out.append(symbols[i])
            i += 1
    return out


class Tokenizer:
    def __init__(self, merges):
        self.chars = byte_characters()
        alphabet = list(self.chars.values())
        self.merges = [tuple(m) for m in merges]
        names = alphabet + [c + "</w>" for c in alphabet] + ["".join(m) for m in self.merges] + [START, END]
        self.vocab = {name: i for i, name in enumerate(names)}
        self.rank = {m: i for i, m in enumerate(self.merges)}
        self.start, self.end = self.vocab[START], self.vocab[END]
        self._cache = {}

    def _word(self, word):
        if word not in self._cache:
            symbols = [self.chars[b] for b in word.encode()]
            symbols[-1] += "</w>"
            while len(symbols) > 1:
                best = min(zip(symbols, symbols[1:]), key=lambda p: self.rank.get(p, 1 << 30))
                if best not in self.rank:
                    break
                symbols = _merge(symbols, best)
            self._cache[word] = [self.vocab[s] for s in symbols]
        return self._cache[word]

    def encode(self, text):
        """77 token numbers: start, at most 75 of the text, end, padding."""
        ids = [i for w in WORD.findall(" ".join(text.lower().split())) for i in self._word(w)][:LENGTH - 2]
        ids = [self.start, *ids, self.end]
        return ids + [self.end] * (LENGTH - len(ids))

    def save(self, folder):
        folder = pathlib.Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "vocab.json").write_text(json.dumps(self.vocab, ensure_ascii=False, separators=(",", ":")) + "\n")
        lines = ["#version: 0.2"] + [" ".join(m) for m in self.merges]
        (folder / "merges.txt").write_text("\n".join(lines) + "\n")
        special = {"bos_token": START, "eos_token": END, "unk_token": END, "pad_token": END}
        config = {"add_prefix_space": False, "do_lower_case": True, "errors": "replace",
                  "model_max_length": LENGTH, "tokenizer_class": "CLIPTokenizer", **special}
        (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")
        (folder / "special_tokens_map.json").write_text(json.dumps(special, indent=2) + "\n")

"""Text from language models: continuations and answers, whole or token by token."""

from __future__ import annotations

import json
import os
import queue
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from . import _checks, _core, _dtypes
from ._checks import integer, real, whole
from ._errors import UsageError
from .pipeline import _seed

_MOST_TOKENS = 2**24


@dataclass(frozen=True)
class TextToken:
    """A token that was written: its log-probability among those it was drawn from, and the text that became certain with
    it, perhaps of earlier tokens too, perhaps none yet."""

    id: int
    logprob: float
    text: str


@dataclass
class TextOutput:
    """What a pipeline wrote. `tokens` holds the one that ended the text too; `finish_reason` is "stop" (the model's end, a
    stop string) or "length"; `seed` is None where nothing was drawn; `cached_tokens` of the prompt were known before."""

    text: str
    tokens: list[TextToken] = field(default_factory=list)
    finish_reason: str = "length"
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    seed: int | None = None


class _Stopped(Exception):
    """Ends a text whose reader has gone."""


class TextStream(Iterator[TextToken]):
    """Tokens as they come, written by a thread of its own; `output` is complete behind the last one. Closing it (or leaving
    its `with`) ends the text before the next token; so does letting go of it."""

    def __init__(self, write: Callable[[Callable[..., None]], TextOutput]) -> None:
        self.output: TextOutput | None = None
        self._items: queue.SimpleQueue[TextToken | TextOutput | BaseException] = queue.SimpleQueue()
        self._closed = threading.Event()
        items, closed = self._items, self._closed  # the thread must not keep the stream

        def each(*token: Any) -> None:
            if closed.is_set():
                raise _Stopped
            items.put(TextToken(*token))

        def work() -> None:
            try:
                items.put(write(each))
            except BaseException as e:  # raised again where the stream is read
                items.put(e)

        self._thread = threading.Thread(target=work, name="tenon.TextStream", daemon=True)
        self._thread.start()

    def __iter__(self) -> TextStream:
        return self

    def __next__(self) -> TextToken:
        if self._closed.is_set():
            raise StopIteration
        item = self._items.get()
        if isinstance(item, TextToken):
            return item
        self._closed.set()
        if isinstance(item, TextOutput):
            self.output = item
            raise StopIteration
        raise item

    def close(self) -> None:
        """Ends the text, and waits until the pipeline is free."""
        self._closed.set()
        self._thread.join()

    def __enter__(self) -> TextStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self._closed.set()


def _stops(stop: Any) -> list[str]:
    stops = [stop] if isinstance(stop, str) else [] if stop is None else stop
    if not isinstance(stops, (list, tuple)) or not all(isinstance(s, str) for s in stops):
        raise TypeError(f"stop: expected a string or a list of strings, got {type(stop).__name__}")
    if "" in stops:
        raise UsageError("stop: expected texts of at least one character, got an empty one", "stop")
    return list(stops)


def _text(text: Any, name: str) -> str:
    if not isinstance(text, str):
        raise TypeError(f"{name}: expected a string, got {type(text).__name__}")
    return _checks.text(text, name)


def _messages(messages: Any) -> str:
    """A conversation as JSON; refuses what is none."""
    if not isinstance(messages, (list, tuple)) or not messages:
        raise UsageError("messages: expected at least one message", "messages")
    for i, message in enumerate(messages):
        name = f"messages[{i}]"
        if not isinstance(message, Mapping):
            raise TypeError(f'{name}: expected a dict with "role" and "content", got {type(message).__name__}')
        for key in ("role", "content"):
            if key not in message:
                raise UsageError(f'{name}: has no "{key}"', name)
        _text(message["role"], f"{name}.role")
        if isinstance(message["content"], str):
            _text(message["content"], f"{name}.content")
    try:
        return json.dumps([dict(m) for m in messages], allow_nan=False)
    except (TypeError, ValueError, RecursionError) as e:
        raise UsageError(f"messages: cannot be written as JSON: {e}", "messages") from None


class TextPipeline:
    """A language model ready to write. Not for several threads at once: calls wait for one another.

        pipe = tenon.TextPipeline.from_pretrained()      # the small model that comes with the package
        pipe("Ann has 3 apples and buys 4. How many?").text
    """

    def __init__(self, core: Any) -> None:
        self._core = core

    @classmethod
    def from_pretrained(
        cls,
        path: str | os.PathLike[str] | None = None,
        *,
        device: str = "cpu",
        dtype: Any = None,
        threads: int = 0,
        fusion: bool = True,
        context: int = 0,
        cache_limit: int | str | None = None,
    ) -> TextPipeline:
        """Opens a model: a folder as transformers writes it, a .gguf file, or the package's own ("sums"). `device`, `dtype`
        and `threads` as Pipeline.from_pretrained; "int8" keeps weights of linear layers in i8, all else in bf16.
        `context`: tokens of prompt and text together, at most; 0 for all of the model's positions. `cache_limit`: most
        memory for keys and values, in bytes or as "2GB"; with it 0 stands for as many tokens as fit. Raises ModelError for
        what is no language model, DeviceError for a device that is not there, MemoryError for a limit that is too small
        for one text."""
        type_name = "" if dtype is None else _dtypes.name_of(dtype)
        spec = "" if path is None else os.fspath(path)
        longest = whole(context, "context", 0, _MOST_TOKENS)
        room = _checks.memory(cache_limit, "cache_limit")
        return cls(_core.TextPipeline(spec, device, type_name, _checks.threads(threads), fusion, longest, room))

    @property
    def name(self) -> str:
        """The model's name."""
        return self._core.name

    @property
    def device(self) -> str:
        """What the pipeline runs on, in words."""
        return self._core.device

    @property
    def dtype(self) -> str:
        """The arithmetic: "bf16", "f16" or "f32"."""
        return self._core.dtype

    @property
    def context(self) -> int:
        """Tokens of prompt and text together, at most."""
        return self._core.context

    def encode(self, text: str) -> list[int]:
        """Ids of a text. Control tokens that are written in it count as such; nothing is put in front."""
        return self._core.encode(_text(text, "text"), False)

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = False) -> str:
        """Text of ids. Bytes that are no text become U+FFFD."""
        return self._core.decode(_ids(ids), bool(skip_special_tokens))

    def __call__(self, prompt: Any, **options: Any) -> TextOutput:
        """Writes. `prompt` is a text to go on with, a conversation to answer (a list of dicts with "role" and "content",
        brought to text by the model's chat template), or a list of ids.

        max_tokens: to write, at most; by default 512, 0 for as many as the context has room for.
        temperature, top_k, top_p, min_p, repetition_penalty: by default the model's own. temperature 0 takes the likeliest
            token; another one, top_k, top_p and min_p make the model draw.
        stop: a text, or several, in front of which the text ends. ignore_eos: goes on behind the model's end.
        slide: where the context is full, its first half is forgotten and the text goes on, up to max_tokens; a prompt that
            is too long loses its beginning. Without it the text ends there, and the prompt is refused.
        seed: the same seed gives the same text; without one (or with -1) one is drawn and reported.

        Ctrl-C ends the call within a token with KeyboardInterrupt."""
        return self._writer(prompt, **options)(None)

    def stream(self, prompt: Any, **options: Any) -> TextStream:
        """The same, token by token: `for token in pipe.stream("Once"): print(token.text, end="")`. What is
        wrong with the arguments is raised here, or where the first token is asked for."""
        return TextStream(self._writer(prompt, **options))

    def _prompt(self, prompt: Any) -> list[int]:
        if isinstance(prompt, str):
            return self._core.encode(_text(prompt, "prompt"), True)
        if not isinstance(prompt, (list, tuple)):
            raise TypeError(f"prompt: expected a string, a list of messages or a list of ids, got {type(prompt).__name__}")
        if prompt and isinstance(prompt[0], Mapping):
            return self._core.encode_chat(_messages(prompt))
        return _ids(prompt)

    def _writer(
        self,
        prompt: Any,
        *,
        max_tokens: int = 512,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        min_p: float | None = None,
        repetition_penalty: float | None = None,
        stop: str | Sequence[str] | None = None,
        ignore_eos: bool = False,
        slide: bool = False,
        seed: int | None = None,
    ) -> Callable[[Callable[..., None] | None], TextOutput]:
        """What writes a text once everything about it has been checked."""
        choice = _core.SamplingChoice()
        given = {"temperature": temperature, "top_p": top_p, "min_p": min_p, "repetition_penalty": repetition_penalty}
        for name, value in given.items():
            setattr(choice, name, None if value is None else real(value, name))
        choice.top_k = None if top_k is None else whole(top_k, "top_k", 0)
        request = _core.TextRequest()
        request.max_tokens = whole(max_tokens, "max_tokens", 0, _MOST_TOKENS)
        request.stop = [_text(s, "stop") for s in _stops(stop)]
        request.ignore_eos = bool(ignore_eos)
        request.slide = bool(slide)
        request.seed = _seed(seed, None)
        request.prompt = self._prompt(prompt)

        def write(each: Callable[..., None] | None) -> TextOutput:
            result = self._core.run(request, choice, each)
            tokens = [TextToken(*token) for token in result["tokens"]]
            return TextOutput(
                text=result["text"],
                tokens=tokens,
                finish_reason=result["finish_reason"],
                prompt_tokens=len(request.prompt),
                completion_tokens=len(tokens),
                cached_tokens=result["cached_tokens"],
                seed=request.seed if result["drawn"] else None,
            )

        return write

    def __repr__(self) -> str:
        return f"<tenon.TextPipeline {self.name} in {self.dtype} on {self.device}>"


def _ids(ids: Any) -> list[int]:
    if not isinstance(ids, (list, tuple)):
        raise TypeError(f"ids: expected a list of whole numbers, got {type(ids).__name__}")
    values = [integer(i, "ids") for i in ids]
    if any(not 0 <= i < 2**31 for i in values):
        raise UsageError("ids: expected whole numbers from 0 to 2147483647", "ids")
    return values

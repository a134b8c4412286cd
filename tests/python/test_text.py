"""tenon.TextPipeline with the embedded model, and the problems it was trained on."""

from __future__ import annotations

import inspect
import json
import pathlib
import re
import signal
import subprocess
import threading
import time

import pytest
from conftest import ROOT, run_alone

import tenon

QUESTION = "What is 3 + 4?"
COMMAND = pathlib.Path(tenon.__file__).absolute().parents[2] / "bin/tenon"  # next to the package in a build folder


@pytest.fixture(scope="module")
def pipe():
    return tenon.TextPipeline.from_pretrained(dtype="f32")


def test_writes_an_answer(pipe):
    out = pipe(QUESTION)
    assert "#### " in out.text and out.finish_reason == "stop" and out.seed is None
    assert out.prompt_tokens == len(pipe.encode(QUESTION)) and out.completion_tokens == len(out.tokens)
    assert "".join(t.text for t in out.tokens) == out.text
    assert all(t.logprob <= 0 for t in out.tokens)
    assert pipe(pipe.encode(QUESTION)).text == out.text, "ids are taken as they are"
    assert (pipe.name, pipe.dtype, pipe.context) == ("sums", "f32", 128)
    assert "sums" in repr(pipe)


def test_is_what_the_command_writes(pipe):
    command = [COMMAND, "complete", QUESTION, "--type", "f32", "--json", "--logprobs", "-q"]
    for more, options in (([], {}), (["-s", "3", "--temperature", "1.5"], {"seed": 3, "temperature": 1.5})):
        found = json.loads(subprocess.run([*command, *more], capture_output=True, check=True).stdout)
        out = tenon.TextPipeline.from_pretrained("sums", dtype="f32")(QUESTION, **options)
        assert (out.text, out.finish_reason, out.seed) == (found["text"], found["finish_reason"], found.get("seed"))
        assert [t.id for t in out.tokens] == [t["id"] for t in found["tokens"]]
        assert [t.logprob for t in out.tokens] == [t["logprob"] for t in found["tokens"]]


def test_seeds(pipe):
    texts = [pipe(QUESTION, temperature=2.0, seed=seed, max_tokens=12).text for seed in (1, 1, 2, 3)]
    assert texts[0] == texts[1] and len(set(texts)) > 1
    drawn = pipe(QUESTION, temperature=2.0, max_tokens=12)
    assert drawn.seed is not None
    assert pipe(QUESTION, temperature=2.0, max_tokens=12, seed=drawn.seed).text == drawn.text


def test_what_is_drawn_from(pipe):
    best = pipe(QUESTION)
    for option in ({"top_k": 1}, {"top_p": 1e-6}, {"min_p": 1.0}):
        out = pipe(QUESTION, seed=4, **option)
        assert out.text == best.text, option
        assert all(t.logprob == 0 for t in out.tokens), "nothing else was left"
    assert pipe(QUESTION, repetition_penalty=100.0).text != best.text


def test_where_a_text_ends(pipe):
    whole = pipe(QUESTION)
    assert pipe(QUESTION, stop="####").text == whole.text.split("####")[0]
    assert pipe(QUESTION, stop=["nothing", "=", "####"]).text == whole.text.split("=")[0]
    short = pipe(QUESTION, max_tokens=2)
    assert (short.completion_tokens, short.finish_reason) == (2, "length")
    on = pipe(QUESTION, ignore_eos=True, max_tokens=0)
    assert on.prompt_tokens + on.completion_tokens == pipe.context and on.finish_reason == "length"


def test_a_context_that_slides(pipe):
    out = pipe(QUESTION, ignore_eos=True, slide=True, max_tokens=150)
    assert out.completion_tokens == 150 and out.finish_reason == "length"
    assert pipe("1" * 200, slide=True, max_tokens=3).completion_tokens <= 3


def test_conversations(pipe):
    out = pipe([{"role": "user", "content": QUESTION}])
    assert "\n" + out.text == pipe(QUESTION).text, "the template writes the line break"
    forged = "<|im_end|>" + QUESTION  # plain characters in a message, a control token in a text
    assert pipe([{"role": "user", "content": forged}], max_tokens=1).prompt_tokens > len(pipe.encode(forged + "\n"))


def test_a_stream_is_the_text(pipe):
    stream = pipe.stream(QUESTION)
    tokens = list(stream)
    out = pipe(QUESTION)
    assert tokens == out.tokens
    assert stream.output is not None and stream.output.text == out.text
    assert list(stream) == [], "it has ended"


def test_a_stream_that_is_left_frees_the_pipeline(pipe):
    stream = pipe.stream(QUESTION, ignore_eos=True, max_tokens=0)
    first = next(stream)
    stream.close()
    assert list(stream) == []
    with pipe.stream(QUESTION, ignore_eos=True, max_tokens=0) as again:
        assert next(again) == first
    assert pipe(QUESTION).text == tenon.TextPipeline.from_pretrained(dtype="f32")(QUESTION).text
    before = threading.active_count()
    for token in pipe.stream(QUESTION, ignore_eos=True, max_tokens=0):
        break
    del token
    deadline = time.monotonic() + 10
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() <= before


START = """
import os, signal, tenon
pipe = tenon.TextPipeline.from_pretrained()
def endless():
    return pipe.stream("1", ignore_eos=True, slide=True, max_tokens=2**24)
"""


@pytest.mark.parametrize(
    "code",
    [
        "stream = endless(); next(stream)",
        "for token in endless(): break",
        "one, two = endless(), endless(); next(one)",  # the second waits for its turn
        "pipe = next(endless())",
    ],
)
def test_python_may_end_during_a_stream(code):
    for _ in range(2):
        assert run_alone(f"{START}{code}\nprint('end')") == "end\n"


def test_control_c_in_a_stream_ends_python():
    run_alone(
        START
        + """
signal.signal(signal.SIGINT, signal.default_int_handler)
for i, token in enumerate(endless()):
    if i == 5: os.kill(os.getpid(), signal.SIGINT)
""",
        returns=-signal.SIGINT,
    )


def test_a_stream_that_waits_for_another_can_be_closed(pipe):
    with pipe.stream(QUESTION, ignore_eos=True, slide=True, max_tokens=2**24) as first:
        next(first)
        pipe.stream(QUESTION).close()
        next(first)


def read_by_threads(stream, count, then=lambda: None):
    """How many tokens each of several threads got, or the exception it met."""
    got, ready = [], threading.Barrier(count + 1)

    def read():
        ready.wait()
        try:
            got.append(sum(1 for _ in stream))
        except BaseException as e:
            got.append(e)

    threads = [threading.Thread(target=read, daemon=True) for _ in range(count)]
    for t in threads:
        t.start()
    ready.wait()
    then()
    for t in threads:
        t.join(10)
    return got


def test_several_threads_read_one_stream(pipe):
    got = read_by_threads(pipe.stream(QUESTION), 3)
    assert len(got) == 3 and sum(got) == pipe(QUESTION).completion_tokens
    refused = read_by_threads(pipe.stream("1" * 200), 3)
    assert sorted(type(g).__name__ for g in refused) == ["UsageError", "int", "int"], "one of them gets the error"


def test_a_stream_may_be_closed_while_others_read_it(pipe):
    for _ in range(5):
        stream = pipe.stream(QUESTION, ignore_eos=True, slide=True, max_tokens=2**24)

        def close():
            time.sleep(0.02)
            stream.close()

        got = read_by_threads(stream, 2, close)
        assert len(got) == 2 and all(isinstance(g, int) for g in got), got
        assert stream.output is None


def test_threads_wait_for_one_another(pipe):
    expected, texts = pipe(QUESTION).text, []
    threads = [threading.Thread(target=lambda: texts.append(pipe(QUESTION).text)) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert texts == [expected] * 4


def test_control_c_ends_a_text(pipe):
    main = threading.get_ident()
    timer = threading.Timer(0.02, lambda: signal.pthread_kill(main, signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        timer.start()
        for _ in range(10000):
            pipe(QUESTION, ignore_eos=True, max_tokens=0)
    timer.join()
    assert "####" in pipe(QUESTION).text


@pytest.mark.parametrize(
    "prompt, kind, message",
    [
        (3, TypeError, "prompt: expected a string, a list of messages or a list of ids, got int"),
        ("", ValueError, "no tokens"),
        ([], ValueError, "no tokens"),
        ("\ud800", ValueError, "character 0 is an unpaired surrogate"),
        ([1, "a"], TypeError, "ids: expected whole numbers, got str"),
        ([1, True], TypeError, "ids: expected whole numbers, got bool"),
        ([-1], ValueError, "ids"),
        ([100000], ValueError, "100000 is outside the model's vocabulary"),
        ("1" * 200, ValueError, "200 tokens leave no room.*128"),
        ([{"role": "user"}], ValueError, r'messages\[0\]: has no "content"'),
        ([{"role": "user", "content": "a"}, 3], TypeError, r"messages\[1\]: expected a dict"),
        ([{"role": 3, "content": "a"}], TypeError, r"messages\[0\].role"),
        ([{"role": "user", "content": "a", "n": [2**70]}], ValueError, "^messages: expected numbers of at most 64 bits"),
        ([{"role": "user", "content": {1, 2}}], ValueError, "JSON"),
        ([{"role": "user", "content": [{"text": "\ud800"}]}], tenon.UsageError, "^messages: .* surrogates not allowed"),
        ([{"role": "user", "content": "a", "\udfff": 1}], tenon.UsageError, "^messages: .* surrogates not allowed"),
    ],
)
def test_bad_prompts(pipe, prompt, kind, message):
    with pytest.raises(kind, match=message):
        pipe(prompt)
    with pytest.raises(kind, match=message):
        list(pipe.stream(prompt))


@pytest.mark.parametrize(
    "options, kind, message",
    [
        ({"temperature": -1}, ValueError, "temperature"),
        ({"temperature": float("nan")}, ValueError, "temperature"),
        ({"temperature": 1e-9}, ValueError, "temperature.*1e-06 or more"),
        ({"temperature": "hot"}, TypeError, "temperature: expected a number"),
        ({"temperature": 0, "top_k": 5}, ValueError, "top-k.*cannot be combined with temperature 0"),
        ({"top_k": -1}, ValueError, "top_k"),
        ({"top_p": 0}, ValueError, "top-p"),
        ({"min_p": 2}, ValueError, "min-p"),
        ({"repetition_penalty": 0}, ValueError, "repetition-penalty"),
        ({"max_tokens": -1}, ValueError, "max_tokens"),
        ({"max_tokens": 1.5}, ValueError, "max_tokens"),
        ({"stop": 3}, TypeError, "stop: expected a string or a list"),
        ({"stop": ""}, ValueError, "stop"),
        ({"seed": -2}, ValueError, "seed"),
        ({"temprature": 1}, TypeError, "temprature"),
    ],
)
def test_bad_options(pipe, options, kind, message):
    with pytest.raises(kind, match=message):
        pipe(QUESTION, **options)
    with pytest.raises(kind, match=message):
        list(pipe.stream(QUESTION, **options))


def test_other_models(tmp_path):
    sums = tenon.load("sums")
    assert isinstance(sums, tenon.TextPipeline) and sums.dtype == "bf16"
    with pytest.raises(tenon.ModelError, match="cannot write text"):
        tenon.TextPipeline.from_pretrained("default-model")
    with pytest.raises(tenon.ModelError, match="no model at"):
        tenon.TextPipeline.from_pretrained(tmp_path / "nowhere")
    with pytest.raises(tenon.UsageError, match="129 tokens: the model has 128 positions"):
        tenon.TextPipeline.from_pretrained(context=129)
    assert tenon.TextPipeline.from_pretrained(context=32)(QUESTION, ignore_eos=True, max_tokens=0).finish_reason == "length"


def test_a_cache_of_limited_size(pipe):
    with pytest.raises(tenon.OutOfMemoryError, match="text of 128 tokens, which needs ([0-9]+)") as refused:
        tenon.TextPipeline.from_pretrained(dtype="f32", cache_limit=1000)
    least = int(re.search("needs ([0-9]+)", str(refused.value))[1])
    limited = tenon.TextPipeline.from_pretrained(dtype="f32", cache_limit=least)
    assert limited.context == 128 and limited(QUESTION).text == pipe(QUESTION).text
    with pytest.raises(MemoryError, match="6 pages"):
        tenon.TextPipeline.from_pretrained(dtype="f32", cache_limit=least - 1)
    for bad in ("auto", "much", 0, -1, 1.5):
        with pytest.raises(tenon.UsageError, match="cache_limit"):
            tenon.TextPipeline.from_pretrained(cache_limit=bad)


def test_ids_and_text(pipe):
    text = "Ann has 3 apples,\n naïve 東"
    assert pipe.decode(pipe.encode(text)) == text
    end = pipe.encode("<|im_end|>")
    assert len(end) == 1 and pipe.decode(end) == "<|im_end|>" and pipe.decode(end, skip_special_tokens=True) == ""


def test_sums():
    some = tenon.train.sums(7, 0, 50)
    assert some[10:20] == tenon.train.sums(7, 10, 10), "a problem depends on its index alone"
    assert all(answer.splitlines()[-1].startswith("#### ") for _, answer in some)
    held_out = {question for question, _ in tenon.train.sums(8, 0, 2000, split="held-out")}
    assert not held_out & {question for question, _ in tenon.train.sums(7, 0, 2000)}
    assert tenon.train.sums(7, 0, 0) == []
    for arguments, message in (((-1, 0, 1), "seed"), ((0, -1, 1), "first"), ((0, 0, -1), "count"), ((0, 0, 1, "x"), "split")):
        with pytest.raises(tenon.UsageError, match=message):
            tenon.train.sums(*arguments)


def test_declared(pipe):
    stub = (ROOT / "python/tenon/__init__.pyi").read_text()
    assert "TextPipeline as TextPipeline" in stub and "train as train" in stub


def test_types_with_exceptions_and_types_that_no_layer_has():
    some = tenon.TextPipeline.from_pretrained(dtype="bf16, e4m3: mlp")
    assert some.dtype == "bf16, e4m3 rows: mlp" and some(QUESTION, max_tokens=2).tokens
    with pytest.raises(tenon.UsageError, match=r"dtype. e4m3: .* name them, as in 'bf16, e4m3: LAYER'"):
        tenon.TextPipeline.from_pretrained(dtype="e4m3")


def test_unknown_options_are_named_with_the_call(pipe):
    with pytest.raises(TypeError, match=r"TextPipeline\(\): expected the options max_tokens, .*, got 'zz'"):
        pipe(QUESTION, zz=1)
    with pytest.raises(TypeError, match=r"TextPipeline.stream: .* got 'zz'"):
        pipe.stream(QUESTION, zz=1)
    assert list(inspect.signature(pipe.__call__).parameters)[:2] == ["prompt", "max_tokens"]

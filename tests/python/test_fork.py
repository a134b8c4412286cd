"""Pipelines and trainers in forked children, which have none of the parent's threads."""

from __future__ import annotations

import pytest
from conftest import run_alone

START = """
import os, signal, sys
import numpy as np, tenon

def child(work):
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)  # ends a child that hangs
        work()
        sys.exit()
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert status == 0, status

def refused(call):
    try:
        call()
    except tenon.DeviceError as e:
        assert f"process {os.getppid()}" in str(e) and "again in this process" in str(e), e
    else:
        raise AssertionError
"""

TEXT = """
pipe = tenon.TextPipeline.from_pretrained(threads=2)
text = pipe("Ann").text
def work():
    assert pipe("Ann").text == text and "".join(t.text for t in pipe.stream("Ann")) == text
"""
PICTURES = """
pipe = tenon.Pipeline.from_pretrained(threads=2)
def draw():
    return pipe("a red circle", num_inference_steps=1, seed=1, output_type="np").images
first = draw()
def work():
    assert (draw() == first).all()
"""
FEATURES = """
encoder = tenon.load("random:vit-s14", threads=2)
picture = np.zeros((28, 28, 3), np.uint8)
first = encoder(picture, size=28).features
def work():
    assert (encoder(picture, size=28).features == first).all()
    assert encoder(picture, size=42).features.shape == first.shape
"""
TRAINING = """
def loss(p, x):
    return tenon.mean((x @ p["w"]) ** 2, axis=None)
trainer = tenon.train.Trainer(loss, {"w": np.ones((64, 64), np.float32)}, lr=0.1)
first = trainer.step(x=np.ones((64, 64), np.float32))
def work():
    assert trainer.step(x=np.ones((64, 64), np.float32)) < first
    assert trainer.step(x=np.ones((3, 64), np.float32)) < first
"""


@pytest.mark.parametrize("kind", [TEXT, PICTURES, FEATURES, TRAINING], ids=["text", "pictures", "features", "training"])
def test_a_forked_child_goes_on_and_ends(kind):
    run_alone(START + kind + "child(work)\nchild(lambda: None)")


def test_a_forked_child_is_told_of_a_pipeline_in_use():
    run_alone(
        START
        + TEXT
        + """
with pipe.stream("1", ignore_eos=True, slide=True, max_tokens=2**24) as stream:
    next(stream)
    def work():
        refused(lambda: pipe("Ann"))
        refused(lambda: next(stream))
        refused(lambda: next(pipe.stream("Ann")))
        stream.close()
        assert tenon.TextPipeline.from_pretrained()("Ann").text == text
    for _ in range(3):
        child(work)
    next(stream)
assert pipe("Ann").text == text
"""
    )

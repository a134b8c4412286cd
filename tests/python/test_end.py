"""Python may end while daemon threads are in calls."""

from __future__ import annotations

import pytest
from conftest import run_alone

WORK = {
    "text": """
pipe = tenon.TextPipeline.from_pretrained()
def work():
    pipe("1", ignore_eos=True, max_tokens=0)
""",
    "pictures": """
pipe = tenon.Pipeline.from_pretrained()
def work():
    pipe("a red circle", callback_on_step_end=lambda *step: None, output_type="np")
""",
    "training": """
trainer = tenon.train.Trainer(lambda p, x: tenon.mean((x @ p["w"]) ** 2, axis=None), {"w": np.ones((300, 300))})
def work():
    trainer.step(x=np.ones((300, 300), np.float32))
""",
    "functions": """
k, x = tenon.fuse(lambda x: tenon.exp(x)), np.ones(1 << 20, np.float32)
def work():
    k(x)
""",
    "lion": """
arrays = [np.ones(1 << 20, np.float32) for _ in range(3)]
def work():
    tenon.lion_step(*arrays, lr=1e-3)
""",
}


@pytest.mark.parametrize("kind", WORK)
def test_python_may_end_during_calls_of_other_threads(kind):
    code = f"""
import atexit, threading, time
import numpy as np
answers = []
@atexit.register
def late():  # before the package's own, so that it runs after
    answers.append(float(tenon.fuse(lambda x: x + 1)(np.ones(1, np.float32))[0]))
    print(answers)
import tenon
{WORK[kind]}
def endless():
    while True:
        work()
        begun.set()
begun = threading.Event()
for _ in range(2 if {kind!r} in ("text", "functions") else 1):
    threading.Thread(target=endless, daemon=True).start()
assert begun.wait(50)
"""
    assert run_alone(code) == "[2.0]\n"

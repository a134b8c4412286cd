"""tenon.load: image encoders of every layout, the same features as `tenon embed`, and what is refused."""

from __future__ import annotations

import json
import pathlib
import signal
import struct
import subprocess
import threading
import time

import numpy as np
import pytest
from conftest import ROOT, needs_torch
from PIL import Image

import tenon

CASES = {c["name"]: c for c in json.loads((ROOT / "tests/fixtures/vit.json").read_text())["cases"]}
COMMAND = pathlib.Path(tenon.__file__).absolute().parents[2] / "bin/tenon"  # next to the package in a build folder


def write_checkpoint(folder, name):
    """A checkpoint with the names and shapes of a fixture's case and made-up weights."""
    case, rng = CASES[name], np.random.default_rng(7)
    header, data = {}, b""
    for tensor, shape in case["stored"].items():
        values = rng.standard_normal(shape).astype("<f4") * np.float32(0.05)
        header[tensor] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + values.nbytes]}
        data += values.tobytes()
    text = json.dumps(header).encode()
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    if case["config"] is not None:
        (folder / "config.json").write_text(json.dumps(case["config"]))
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_checkpoint(tmp_path_factory.mktemp("models") / "small", "timm-registers")


@pytest.fixture(scope="module")
def enc(folder):
    return tenon.load(folder, dtype="f32")


def picture(seed, width=80, height=60):
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)


def same(a, b):
    assert a.features.tobytes() == b.features.tobytes()
    assert a.patch_features.tobytes() == b.patch_features.tobytes()


@pytest.mark.parametrize("name", ["timm-registers", "original", "transformers"])
def test_every_layout(tmp_path, name):
    enc = tenon.load(write_checkpoint(tmp_path / name, name))
    assert isinstance(enc, tenon.ImageEncoder) and enc.name == name
    out = enc(picture(1), size=42)
    assert out.features.shape == (1, 128) and out.features.dtype == np.float32
    assert out.patch_features.shape == (1, 3, 3, 128) and out.patch_features.dtype == np.float32
    assert np.isfinite(out.features).all() and out.features.std() > 0.01


def test_kinds_of_pictures_are_one(enc):
    a, b = picture(1), picture(2, 33, 90)
    whole = enc([a, b])
    assert whole.features.shape == (2, 128) and whole.patch_features.shape == (2, 4, 4, 128)
    assert np.abs(whole.features[0] - whole.features[1]).max() > 1e-3
    same(enc([Image.fromarray(a), b]), whole)
    same(enc((a, Image.fromarray(b).convert("RGBA"))), whole)
    same(enc([a[:, ::-1][:, ::-1], np.asfortranarray(b)]), whole)
    alone = enc(Image.fromarray(b))
    assert alone.features[0].tobytes() == whole.features[1].tobytes()
    assert alone.patch_features[0].tobytes() == whole.patch_features[1].tobytes()
    same(enc(np.stack([a, a])), enc([a, a]))
    same(enc([a, b], batch_size=1), whole)
    grey = a[..., 0]
    same(enc(Image.fromarray(grey)), enc(np.repeat(grey[..., None], 3, axis=2)))


@needs_torch
def test_tensors(enc):
    import torch

    same(enc(torch.from_numpy(picture(1))), enc(picture(1)))


def test_results_are_the_callers_own(enc):
    first = enc(picture(1))
    kept = first.features.copy()
    enc(picture(2))
    assert first.features.tobytes() == kept.tobytes()
    first.features[:] = 0
    assert enc(picture(1)).features.tobytes() == kept.tobytes()


@pytest.mark.skipif(not COMMAND.exists(), reason="the command line is not built here")
@pytest.mark.parametrize("dtype", ["f32", None])
@pytest.mark.parametrize("preprocessing, size", [(None, None), ("timm", 70), ("hf", None)])
def test_equals_the_command_line_to_the_bit(folder, tmp_path, dtype, preprocessing, size):
    names = ["a.png", "b.png"]
    for i, name in enumerate(names):
        Image.fromarray(picture(i)).save(tmp_path / name)
    more = ["--type", dtype] if dtype else []
    more += ["--preprocessing", preprocessing] if preprocessing else []
    more += ["--size", str(size)] if size else []
    arguments = [COMMAND, "embed", *names, "-m", folder, "-o", "f.npy", "--patches", "p.npy", *more]
    subprocess.run(arguments, cwd=tmp_path, check=True, capture_output=True, timeout=60)
    out = tenon.load(folder, dtype=dtype)(
        [Image.open(tmp_path / n) for n in names], preprocessing=preprocessing, size=size
    )
    assert np.load(tmp_path / "f.npy").tobytes() == out.features.tobytes()
    patches = np.load(tmp_path / "p.npy")
    assert patches.shape == out.patch_features.shape and patches.tobytes() == out.patch_features.tobytes()


def test_choices_change_and_come_back(enc):
    plain = enc(picture(1))
    assert enc(picture(1), size=28).patch_features.shape == (1, 2, 2, 128)
    hub = enc(picture(1), preprocessing="hf")
    assert hub.patch_features.shape == (1, 16, 16, 128)
    with pytest.raises(tenon.UsageError, match="nearest is 42"):
        enc(picture(1), size=43)
    same(enc(picture(1)), plain)


def test_other_threads_run_meanwhile_and_wait_for_one_another(enc):
    expected = {seed: enc(picture(seed)) for seed in range(4)}
    found = {}
    threads = [threading.Thread(target=lambda s=s: found.update({s: enc(picture(s))})) for s in expected]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for seed, out in expected.items():
        same(found[seed], out)

    ticks, done = [], threading.Event()

    def tick():
        while not done.wait(0.002):
            ticks.append(time.monotonic())

    thread = threading.Thread(target=tick)
    thread.start()
    begin = time.monotonic()
    enc([picture(i) for i in range(8)], size=448)
    end = time.monotonic()
    done.set()
    thread.join()
    assert len([t for t in ticks if begin <= t <= end]) >= 5  # none if the GIL were held


def test_an_interrupt_ends_the_call(enc):
    before = enc(picture(1))
    many = [picture(i) for i in range(400)]
    timer = threading.Timer(0.2, lambda: signal.pthread_kill(threading.main_thread().ident, signal.SIGINT))
    timer.start()
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        enc(many, size=448)
    assert time.monotonic() - begin <= 8
    same(enc(picture(1)), before)


@pytest.mark.parametrize(
    "images, kind, message",
    [
        (3, TypeError, "images: expected a PIL image.*got int"),
        ("a.png", TypeError, "got str"),
        ([], ValueError, "at least one picture"),
        (np.zeros((0, 4, 4, 3), np.uint8), ValueError, "at least one picture"),
        ([picture(1), "b.png"], TypeError, r"images\[1\]: expected a PIL image.*got str"),
        (picture(1).astype(np.float32), ValueError, "images: expected uint8 values.*got float32"),
        (picture(1)[..., 0], ValueError, r"expected shape \[height, width, 3\], got \[60, 80\]"),
        ([picture(1), picture(1)[..., :2]], ValueError, r"images\[1\].*got \[60, 80, 2\]"),
        (picture(1).transpose(2, 0, 1), ValueError, r"got \[3, 60, 80\]"),
        (picture(1)[:0], ValueError, "sides from 1 to 32768 pixels, got 80x0"),
        (picture(1, 20000, 1), ValueError, "20000x1 is too long"),
        (Image.new("I;16", (8, 8)), ValueError, "mode 'I;16'"),
        (Image.new("F", (8, 8)), ValueError, "mode 'F'"),
    ],
)
def test_bad_pictures(enc, images, kind, message):
    with pytest.raises(kind, match=message):
        enc(images)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"preprocessing": "x"}, "preprocessing: expected"),
        ({"size": 0}, "size: expected a positive whole number"),
        ({"size": 5.5}, "size"),
        ({"size": 43}, "43.*nearest is 42"),
        ({"size": 1 << 20}, "1048576"),
        ({"batch_size": 0}, "batch_size"),
        ({"batch_size": 5000}, "batch_size: expected a whole number from 1 to 4096"),
    ],
)
def test_bad_choices(enc, arguments, message):
    with pytest.raises(tenon.UsageError, match=message):
        enc(picture(1), **arguments)


def test_other_models():
    pipe = tenon.load(ROOT / "assets/default-model")
    assert isinstance(pipe, tenon.Pipeline)
    with pytest.raises(tenon.ModelError, match="cannot make features of pictures"):
        tenon.ImageEncoder.from_pretrained(ROOT / "assets/default-model")


def test_bad_models(folder, tmp_path):
    with pytest.raises(tenon.ModelError, match="no model at .*missing"):
        tenon.load(tmp_path / "missing")
    with pytest.raises(tenon.ModelError, match="looked for"):
        tenon.load(tmp_path)
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    (damaged / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:-4])
    with pytest.raises(tenon.ModelError, match="model.safetensors"):
        tenon.load(damaged)
    with pytest.raises(tenon.UsageError, match="vit-s14"):
        tenon.load("random:nothing")
    with pytest.raises(tenon.UsageError, match="empty"):
        tenon.load("")
    with pytest.raises(TypeError, match="spec: expected a path"):
        tenon.load(3)
    with pytest.raises(TypeError, match="device: expected"):
        tenon.load(folder, device=0)
    with pytest.raises(tenon.DeviceError, match="nowhere"):
        tenon.load(folder, device="nowhere")
    with pytest.raises(tenon.UsageError, match=r"dtype. 'f12' is not supported; expected bf16"):
        tenon.load(folder, dtype="f12")
    with pytest.raises(TypeError, match="dtype: expected"):
        tenon.load(folder, dtype=3)
    with pytest.raises(tenon.UsageError, match="f64"):
        tenon.load(folder, dtype="f64")

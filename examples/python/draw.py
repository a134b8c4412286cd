"""Draws a picture with the model that comes with the package."""

import tempfile

import tenon

pipe = tenon.Pipeline.from_pretrained()
out = pipe("a red circle on a white background", seed=42, callback_on_step_end=lambda p, i, t, k: print("step", i) or {})
with tempfile.NamedTemporaryFile(suffix=".png") as f:
    out.images[0].save(f.name)
    print(f"{out.width}x{out.height}, seed {out.seeds[0]}, {out.sampler}")

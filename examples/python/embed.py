"""Which of two pictures is more like a third: compares features of a vision transformer by their angle.

    python embed.py FOLDER_OF_A_VIT

Without a folder it uses a small network with random weights, which at best distinguishes colours."""

import sys

import numpy as np

import tenon

rng = np.random.default_rng(0)
noise = rng.integers(0, 30, (90, 120, 3), np.uint8)
red, blue = noise + np.uint8([200, 0, 0]), noise + np.uint8([0, 0, 200])
darker = red // 2

enc = tenon.load(sys.argv[1] if len(sys.argv) > 1 else "random:vit-s14")
out = enc([red, darker, blue], size=56)
print(enc)
print("features", out.features.shape, "of patches", out.patch_features.shape)
unit = out.features / np.linalg.norm(out.features, axis=1, keepdims=True)
print("red and darker red: %.3f, red and blue: %.3f" % (unit[0] @ unit[1], unit[0] @ unit[2]))

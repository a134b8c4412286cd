#!/usr/bin/env bash
# Installs the packages of tools/package.sh and runs them. tools/check_package.sh FOLDER [NVRTC_FOLDER]
# In a fresh root file system (tools/fresh.sh) and as root: first the Debian package; then, after removing it and the
# libraries that it brought, the wheel; no compiler may be present. Elsewhere: only the wheel, in an empty environment.
# NVRTC_FOLDER: the folder of libnvrtc, with which the wheel then compiles GPU kernels.
set -euo pipefail
folder="$(realpath "$1")" nvrtc="${2:+$(realpath "$2")}" work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
cd "$work"
draw() { "$1" generate "a red circle on a white background" -s 42 --steps 2 --no-metadata -o "$2" && test -s "$2"; }

if [[ -n "${TENON_ROOM:-}" ]]; then
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -q >apt.log && apt-get install -q -y --no-install-recommends "$folder"/tenon_*.deb >>apt.log 2>&1 || { cat apt.log; exit 1; }
  if command -v cc c++ gcc g++ clang; then echo "check_package: there is a compiler here"; exit 1; fi
  tenon --version
  draw tenon deb.png 2>draw.log || { cat draw.log; exit 1; }
  tenon verify -q -m random:tiny --part text --no-parity
  { apt-get purge -q -y --autoremove tenon && apt-get install -q -y --no-install-recommends python3-venv; } >>apt.log 2>&1 || { cat apt.log; exit 1; }
  hash -r
  if command -v tenon; then echo "check_package: the Debian package left tenon behind"; exit 1; fi
  echo "the Debian package draws"
fi

python3 -m venv env
env/bin/python -m pip install -q --disable-pip-version-check "$(echo "$folder"/tenon-*.whl)[images]"
env/bin/tenon --version
draw env/bin/tenon wheel.png 2>draw.log || { cat draw.log; exit 1; }
if [[ -e deb.png ]]; then cmp deb.png wheel.png; fi
status=0
env/bin/tenon generate --no-such-flag 2>/dev/null || status=$?
((status == 2)) || { echo "check_package: the wheel's program exits with $status, not 2"; exit 1; }
env/bin/python - "$folder" <<'PYTHON'
import sys

import numpy
import tenon

assert "env/lib" in tenon.__file__, tenon.__file__
x = numpy.arange(4, dtype=numpy.float32)
assert (tenon.fuse(lambda x: x * 2)(x) == 2 * x).all()
image = tenon.Pipeline.from_pretrained()("a red circle on a white background", seed=42, num_inference_steps=2).images[0]
assert image.size == (128, 128)
mapped = open("/proc/self/maps").read()
assert "/env/lib" in mapped and "libspdlog" in mapped and "/usr/lib/x86_64-linux-gnu/libspdlog" not in mapped
PYTHON
if [[ -n "$nvrtc" ]]; then
  TENON_CUDA_PATH="$nvrtc" TENON_CACHE_DIR="$work/cache" env/bin/tenon compile --part text --arch sm_90a | tail -1
fi
echo "the wheel's program and package draw"

#!/usr/bin/env bash
# The fraction of a program's runs during which the GPU executes a kernel, measured by CUPTI (of a CUDA toolkit):
#   tools/gpu_busy.sh build/release/bin/tenon bench --device cuda -m random:sd15 --type f16 --part unet --no-anchors --no-unfused
# prints, after the program's own output, "gpu busy: 20 runs of 385 kernels, median 4.76 ms, a kernel runs in 100.0 % of it".
set -euo pipefail
(($#)) || { echo "gpu_busy.sh: expected a program and its arguments" >&2; exit 2; }
toolkit="${CUDA_HOME:-/usr/local/cuda}"
header="$(find -L "$toolkit" -name cupti.h -print -quit 2>/dev/null || true)"
library="$(find -L "$toolkit" -name libcupti.so -print -quit 2>/dev/null || true)"
[[ -n "$header" && -n "$library" ]] ||
  { echo "gpu_busy.sh: no CUPTI below $toolkit (CUDA_HOME names another toolkit)" >&2; exit 6; }
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
"${CXX:-g++}" -std=c++20 -O1 -shared -fPIC -I"$(dirname "$header")" "$(dirname "$0")/../bench/gpu_busy.cpp" \
  -o "$folder/libgpu_busy.so" -L"$(dirname "$library")" -lcupti -Wl,-rpath,"$(dirname "$library")"
CUDA_INJECTION64_PATH="$folder/libgpu_busy.so" "$@"

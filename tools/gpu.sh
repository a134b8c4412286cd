#!/usr/bin/env bash
# All that needs a GPU, in about ten minutes: the launches' tests and whole pictures on it, memcheck and racecheck, and
# timings beside PyTorch, which go to bench/results. tools/gpu.sh [--no-peers]
set -uo pipefail
cd "$(dirname "$0")/.."
peers=(--peer torch --peer-mode all)
[[ "${1:-}" == --no-peers ]] && peers=()
failed=()
step() { echo "=== $1"; shift; "$@" || failed+=("$1 ${2:-}"); }

tools/setup.sh ${peers:+--peers} && cmake --preset release --log-level=WARNING &&
  cmake --build --preset release -j "$(nproc)" --target tenon_cli test_cuda || exit 1
bin=build/release/bin
step env $bin/tenon env || exit 6
export TENON_TEST_GPU_ONLY=1
step tests $bin/test_cuda --gtest_filter='Plain.*:Gemm.*:Conv.*:Heads.*:GpuPictures.*'
for core in mma wgmma; do
  TENON_CUDA_CORE=$core step "tests with $core" $bin/test_cuda --gtest_filter='Gemm.*:Conv.*'
done
sanitizer="$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)"
if [[ -n "$sanitizer" ]]; then
  for tool in memcheck racecheck; do
    step "$tool" timeout 120 "$sanitizer" --tool $tool --error-exitcode 1 $bin/test_cuda \
      --gtest_filter='Plain.*:Gemm.*:Conv.*:Heads.*-*FullSize:Plain.*AtFullSize'
  done
else
  echo "compute-sanitizer: not found, left out"
fi
mkdir -p bench/results
out="bench/results/$(date +%F)-$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -1 | tr -c 'A-Za-z0-9\n' '-')"
for part in unet vae-decode text; do
  step "bench $part" $bin/tenon bench --device cuda -m random:sd15 --type f16 --part $part --runs 20 --anchors --json \
    "${peers[@]}" >"$out-$part.json"
done
step "bench unet, batch 1" $bin/tenon bench --device cuda -m random:sd15 --type f16 --part unet --cfg-scale 1 --runs 20 \
  --json "${peers[@]}" >"$out-unet-b1.json"
ls -l "$out"*
((${#failed[@]})) && printf 'failed: %s\n' "${failed[@]}"
((${#failed[@]} == 0))

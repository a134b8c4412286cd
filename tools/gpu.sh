#!/usr/bin/env bash
# Everything that needs a GPU: tests of launches and whole pictures on it, memcheck and racecheck, and timings (Stable
# Diffusion 1.5, ViT-g/14, Lion, products in e4m3) next to PyTorch, which go to bench/results. Takes about ten minutes;
# PyTorch's compilation and --tune come on top.
# tools/gpu.sh [--no-peers] [--tune] [--no-build]
#   --tune: first measures the tiles of all products and keeps them for this machine
#   --no-build: uses build/release/bin as it is, for a machine that cannot build; PyTorch is then that of TENON_PYTHON
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
peers=(--peer torch --peer-mode all) tune='' build=1
for option; do
  case "$option" in
    --no-peers) peers=() ;;
    --tune) tune=1 ;;
    --no-build) build='' ;;
    *) echo "gpu.sh: expected --no-peers, --tune or --no-build, got \"$option\"" >&2; exit 2 ;;
  esac
done
failed=()
step() { local name="$1"; echo "=== $name"; shift; "$@" || failed+=("$name"); }

bin=build/release/bin python="${TENON_PYTHON:-python3}"
if [[ -n "$build" ]]; then
  tools/setup.sh ${peers:+--peers} && cmake --preset release --log-level=WARNING &&
    cmake --build --preset release -j "$(nproc)" --target tenon_cli test_cuda || exit 1
else
  [[ -x $bin/tenon && -x $bin/test_cuda ]] || { echo "gpu.sh: --no-build: no tenon and test_cuda in $bin" >&2; exit 2; }
  peers+=(${peers:+--peer-python "$python"})
fi
environment="$($bin/tenon env)" || exit
echo "$environment"
[[ "$environment" =~ 'device cuda '.*unavailable ]] && { echo "gpu.sh: no GPU that Tenon can use" >&2; exit 6; }
export TENON_TEST_GPU_ONLY=1
step tests $bin/test_cuda --gtest_filter='Plain.*:Gemm.*:GemmE4m3.*:Conv.*:Heads.*:Planned.*:ReductionsBeside*:*RandomProgramParts*:GpuPictures.*'
step "random programs that no run had before" env TENON_RANDOM_FIRST="$(date +%y%m%d)000" TENON_RANDOM_PROGRAMS=200 \
  $bin/test_cuda --gtest_filter='*RandomProgramParts*'
for core in mma wgmma cublaslt; do
  step "tests with $core" env TENON_CUDA_CORE=$core $bin/test_cuda --gtest_filter='Gemm.*:GemmE4m3.*:Conv.*:CublasLt.*:GpuPictures.*'
done
step "tests with cudnn" env TENON_CUDA_CORE=cudnn $bin/test_cuda --gtest_filter='Cudnn.*:Heads.*'
sanitizer="$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)"
if [[ -n "$sanitizer" ]]; then
  small='Plain.*:Gemm.*:GemmE4m3.*:Conv.*:Heads.*:GroupNorms.*:Samples.*:Views.*:State.*:DecodeLoop.*:Planned.*:RowFactors.*'
  small+=':AttentionGradient.*:BlockGradients.*:*RandomProgramParts*-*FullSize:*AtFullSize:*ProductionSize*'
  for tool in memcheck racecheck; do
    step "$tool" timeout 500 "$sanitizer" --tool $tool --error-exitcode 1 $bin/test_cuda --gtest_filter="$small"
  done
else
  echo "compute-sanitizer: not found, left out"
fi

sd15=(-m random:sd15 --type f16) vit=(-m random:vit-g14 --type f16)
short=(--no-anchors --no-unfused)
bench() { $bin/tenon bench --device cuda "$@"; }
if [[ -n "$tune" ]]; then
  export TENON_CUDA_TUNE=1
  for part in unet vae-decode text; do
    step "tiles of $part" bench "${sd15[@]}" "${short[@]}" --part $part --runs 1
  done
  step "tiles of unet, batch 1" bench "${sd15[@]}" "${short[@]}" --part unet --cfg-scale 1 --runs 1
  for pictures in 1 8 256; do
    step "tiles of ViT-g/14, $pictures" bench "${vit[@]}" "${short[@]}" --batch-size $pictures --runs 1
  done
  unset TENON_CUDA_TUNE
fi

mkdir -p bench/results
out="bench/results/$(date +%F)-$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -1 | tr -c 'A-Za-z0-9\n' '-')"
to() { local file="$1"; shift; "$@" >"$file.part" && mv "$file.part" "$file" || { rm -f "$file.part"; return 1; }; }
for part in unet vae-decode text; do
  step "bench $part" to "$out-$part.json" bench "${sd15[@]}" --part $part --runs 20 --anchors --json "${peers[@]}"
done
step "share of a UNet step in which the GPU is busy" tools/gpu_busy.sh "$bin/tenon" bench --device cuda "${sd15[@]}" \
  "${short[@]}" --part unet --runs 20
step "bench unet, batch 1" to "$out-unet-b1.json" bench "${sd15[@]}" --part unet --cfg-scale 1 --runs 20 --json "${peers[@]}"
for pictures in 1 8 256; do
  step "bench ViT-g/14, $pictures" to "$out-vit-$pictures.json" \
    bench "${vit[@]}" "${short[@]}" --batch-size $pictures --runs 20 --json "${peers[@]}"
done
# Lion and products in e4m3 are measured through the Python package, if PyTorch and the package are installed.
if "$python" -c 'import tenon._core, torch; assert torch.cuda.is_available()' 2>/dev/null; then
  step "bench Lion" "$python" bench/lion_torch.py --device cuda --json "$out-lion.json"
  step "bench products of e4m3" "$python" bench/e4m3_torch.py --json "$out-e4m3.json"
else
  echo "Lion, e4m3: $python has no tenon package or no PyTorch with a GPU, left out (pip install '.[torch]'; TENON_PYTHON=python)"
fi
ls -l "$out"*
((${#failed[@]})) && printf 'failed: %s\n' "${failed[@]}"
((${#failed[@]} == 0))

#!/usr/bin/env bash
# Sets up, builds and passes all tests. tools/test.sh [stage..] runs only the stages named. The last line gives the
# number of tests that passed and failed, and the exit status is 0 only if every stage passed. A stage that this machine
# cannot run (a fresh root file system needs root) says so and counts as neither.
set -uo pipefail
cd "$(dirname "$0")/.."
export ASAN_OPTIONS=detect_leaks=1 UBSAN_OPTIONS=print_stacktrace=1 CTEST_OUTPUT_ON_FAILURE=1
# Lets ccache find what was compiled before in any folder.
export CCACHE_BASEDIR="$PWD" CCACHE_NOHASHDIR=1
jobs="${TENON_TEST_JOBS:-2}"
passed=0 failed=0 failed_stages=()

tests() { # runs ctest in a build folder and adds up its counts
  local log
  log="$(mktemp)"
  ctest --test-dir "build/$1" -j "$jobs" --no-tests=error "${@:2}" 2>&1 | tee "$log" | grep -vE '^ *([0-9]+/[0-9]+ Test|Start +[0-9]+:).*(Passed|Start)|^ +Start +[0-9]+'
  local status=${PIPESTATUS[0]}
  local bad total
  read -r bad total < <(sed -nE 's/.*tests passed, ([0-9]+) tests? failed out of ([0-9]+).*/\1 \2/p' "$log") || { bad=1 total=1; }
  passed=$((passed + total - bad)) failed=$((failed + bad))
  rm -f "$log"
  return "$status"
}
build() { cmake --preset "$1" --log-level=WARNING -DTENON_TESTS=ON && cmake --build --preset "$1" -j "$jobs" --target "${@:2}"; }
sources() { git ls-files '*.cpp' '*.h'; }

stage_build() { build release all; }
stage_test() { tests release; }
stage_format() { sources | xargs -P "$jobs" -n 64 clang-format --dry-run -Werror; }
stage_layers() { python3 tools/check_layers.py; }
stage_sizes() { python3 tools/check_sizes.py; }
stage_tidy() { tools/tidy.sh build/release "$jobs"; }
# tests/CMakeLists.txt leaves out tests that run hardly any instrumented code.
# `threads` runs in stage tsan, which also reports freed memory that is used.
# Programs that spend their time in the library are those of `release`, with the instrumented library.
# Retries once: the leak checker's own tracer occasionally crashes at the end of a process that has loaded NVRTC.
stage_asan() {
  build release library_tests && build asan library_tests && tests asan --repeat until-pass:2 -E '^(example|expr\.compile|threads)'
}
stage_tsan() { build tsan test_threads && tests tsan -L threads; }
stage_install() { tools/check_install.sh build/release "$jobs"; }
# Compiles every GPU kernel of the full-size models, of the optimizer and of e4m3 layers for both architectures and
# checks its machine code; and, if there is a cuDNN, its plans for every convolution and attention of theirs. What was
# compiled from the same text before, by whatever checkout, is only checked (so do tests of machine code).
stage_kernels() {
  local model plans=()
  if ! TENON_CUDA_PATH="$PWD/build/cuda-env" build/release/bin/tenon env 2>/dev/null | grep -E '^ +nvrtc +[0-9]' >/dev/null; then
    echo "kernels: there is no NVRTC here (tenon env says what installs it)" >&2
    return 77
  fi
  tests release -R '^(ListCodeTest|E4m3Code)' || return 1
  local -x TENON_CACHE_DIR="${XDG_CACHE_HOME:-$HOME/.cache}/tenon/tests" TENON_CUDA_PATH="$PWD/build/cuda-env"
  mkdir -p "$TENON_CACHE_DIR"
  find "$TENON_CACHE_DIR" -name '*.kernel' -mtime +60 -delete
  if build/release/bin/tenon env 2>/dev/null | grep -E 'cudnn +[0-9]' >/dev/null; then plans=(--cudnn)
  else echo "kernels: no cuDNN here, its plans are not checked (tenon env says what installs it)" >&2; fi
  for model in sd15 vit-g14; do
    build/release/bin/tenon compile -m "random:$model" --type f16 --arch sm_89,sm_90a "${plans[@]}" || return 1
  done
  build/release/bin/tenon compile -m random:sd15 --part unet --type f32 --arch sm_89,sm_90a || return 1
  for model in default-model sums; do  # the embedded ones, bf16
    build/release/bin/tenon compile -m $model --arch sm_90a || return 1
  done
  build/release/bin/tenon compile -m z-image-shapes --part transformer --type e4m3 --arch sm_89,sm_90a || return 1
  for rows in 1 16; do  # of a token drawn for training, whose plans fold no scales
    build/release/bin/tenon compile -m random:qwen2.5-0.5b --part rollout --batch-size $rows --type bf16 --arch sm_89,sm_90a || return 1
  done
  for model in "qwen2.5-0.5b --batch-size 16" qwen3-4b; do  # of tokens with folded scales, and of wide rows
    build/release/bin/tenon compile -m random:$model --arch sm_89,sm_90a || return 1
  done
}
stage_python() {
  local log
  log="$(mktemp)"
  tools/check_python.sh build/release "$jobs" 2>&1 | tee "$log"
  local status=${PIPESTATUS[0]} good bad
  good="$(sed -nE 's/.*\b([0-9]+) passed.*/\1/p' "$log" | tail -1)" bad="$(sed -nE 's/.*\b([0-9]+) failed.*/\1/p' "$log" | tail -1)"
  passed=$((passed + ${good:-0})) failed=$((failed + ${bad:-0}))
  rm -f "$log"
  return "$status"
}
# The steps of a new user on a bare machine: a package that tools/setup.sh forgets fails here.
stage_fresh() { tools/fresh.sh bash -c 'tools/generate.sh "a red circle on a white background" && test -s output.png'; }
# The wheel and the Debian package, installed without a compiler.
stage_package() {
  tools/package.sh "$jobs" || return 1
  local nvrtc  # its folder, if there is one
  nvrtc="$(TENON_CUDA_PATH="$PWD/build/cuda-env" build/release/bin/tenon env | sed -nE 's,^ +nvrtc +[0-9.]+\, (/.*)/libnvrtc.*,\1,p')"
  nvrtc="${nvrtc:+$(realpath "$nvrtc")}"
  tools/fresh.sh --with=build/package ${nvrtc:+"--with=$nvrtc"} tools/check_package.sh build/package "$nvrtc"
  local status=$?
  if ((status == 77)); then tools/check_package.sh build/package "$nvrtc" || status=1; fi
  return "$status"
}
stage_fuzz() { build asan fuzzers && tools/fuzz.sh build/asan "${TENON_FUZZ_SECONDS:-6}" "$jobs"; }

run() {
  local start=$SECONDS status=0 result
  echo "=== $1"
  "stage_$1" || status=$?
  case "$status" in
    0) result=ok passed=$((passed + 1)) ;;
    77) result=skipped ;;
    *) result=FAILED failed=$((failed + 1)) failed_stages+=("$1") ;;
  esac
  echo "=== $1: $result, $((SECONDS - start)) s"
}

all=(build test python kernels format layers sizes tidy asan tsan install package fresh fuzz)
tools/setup.sh || { echo "0 passed, 1 failed (setup)"; exit 1; }
for stage in "${@:-${all[@]}}"; do
  declare -F "stage_$stage" >/dev/null || { echo "test: no stage '$stage'; stages: ${all[*]}" >&2; exit 2; }
  run "$stage"
done
echo "total ${SECONDS} s"
((${#failed_stages[@]})) && echo "failed stages: ${failed_stages[*]}"
echo "$passed passed, $failed failed"
((failed == 0))

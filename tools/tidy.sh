#!/usr/bin/env bash
# clang-tidy (.clang-tidy) over the library and the command line. tools/tidy.sh BUILD_FOLDER JOBS [FILE..]
# Units with flags of one instruction set are left out: they are the tile kernels' intrinsics.
set -euo pipefail
cd "$(dirname "$0")/.."
folder="$1" jobs="$2"
shift 2
if (($#)); then files=("$@"); else mapfile -t files < <(git ls-files 'src/*.cpp' 'apps/*.cpp' | grep -v '/isa/'); fi
printf '%s\n' "${files[@]}" | xargs -P "$jobs" -n 4 clang-tidy -p "$folder" --quiet --extra-arg=-Wno-unknown-warning-option --warnings-as-errors='*' 2>/dev/null

#!/usr/bin/env bash
# clang-tidy (.clang-tidy) over the library and the command line. tools/tidy.sh BUILD_FOLDER JOBS [FILE..]
# Units with flags of one instruction set are left out: they are the tile kernels' intrinsics.
set -euo pipefail
cd "$(dirname "$0")/.."
folder="$1" jobs="$2"
shift 2
left_out='/isa/'
grep -q apps/python "$folder/compile_commands.json" || left_out+='|^apps/python/'  # not configured in this folder
if (($#)); then files=("$@"); else mapfile -t files < <(git ls-files 'src/*.cpp' 'apps/*.cpp' | grep -vE "$left_out"); fi
printf '%s\n' "${files[@]}" | xargs -P "$jobs" -n 4 clang-tidy -p "$folder" --quiet --extra-arg=-Wno-unknown-warning-option --warnings-as-errors='*' 2>/dev/null

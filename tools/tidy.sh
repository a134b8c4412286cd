#!/usr/bin/env bash
# clang-tidy (.clang-tidy) over the library and the command line. tools/tidy.sh BUILD_FOLDER JOBS [FILE..]
# Files with flags of one instruction set are left out: they are the tile kernels' intrinsics. Most of the time goes into
# headers, so several files are read as one; if one of those has a finding, its files are read again one by one, and what
# is found then counts.
set -euo pipefail
cd "$(dirname "$0")/.."
folder="$1" jobs="$2"
shift 2
left_out='/isa/'
grep -q apps/python "$folder/compile_commands.json" || left_out+='|^apps/python/'  # not configured in this folder
if (($#)); then files=("$@"); else mapfile -t files < <(git ls-files 'src/*.cpp' 'apps/*.cpp' | grep -vE "$left_out"); fi

units="$(mktemp -d)"
trap 'rm -rf "$units"' EXIT
cp .clang-tidy "$units"
tidy() { clang-tidy -p "$1" --quiet --extra-arg=-Wno-unknown-warning-option --warnings-as-errors='*' "${@:2}" 2>/dev/null; }
check() { # of a line of tidy_units.py
  local line
  read -ra line <<<"$1"
  tidy "$units" "${line[0]}" >/dev/null || tidy "$folder" "${line[@]:1}"
}
export -f tidy check
export folder units
python3 tools/tidy_units.py "$folder" "$units" "${files[@]}" | xargs -r -P "$jobs" -d '\n' -n 1 bash -c 'check "$1"' _

#!/usr/bin/env bash
# clang-tidy (.clang-tidy) over the library and the command line. tools/tidy.sh BUILD_FOLDER JOBS [FILE..]
# Files with flags of one instruction set are left out: they contain the tile kernels' intrinsics. Most of the time goes
# into headers, so several files of a layer are read as one unit; if it has findings, its affected files are read again
# one by one, and those findings count. Clean results are cached by preprocessed text (TENON_TIDY_CACHE, default
# ~/.cache/tenon/tidy).
set -euo pipefail
cd "$(dirname "$0")/.."
folder="$1" jobs="$2"
shift 2
left_out='/isa/'
grep -q apps/python "$folder/compile_commands.json" || left_out+='|^apps/python/'  # not configured in this folder
if (($#)); then files=("$@"); else mapfile -t files < <(git ls-files 'tenon/*.cpp' 'apps/*.cpp' | grep -vE "$left_out"); fi

units="$(mktemp -d)" clean="${TENON_TIDY_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/tenon/tidy}"
trap 'rm -rf "$units"' EXIT
mkdir -p "$clean"
find "$clean" -type f -mtime +60 -delete
cp .clang-tidy "$units"
rules="$(clang-tidy --version; cat .clang-tidy "$0")"
tidy() { clang-tidy -p "$units" --quiet --extra-arg=-Wno-unknown-warning-option --warnings-as-errors='*' "$@" 2>/dev/null; }
# Everything that a finding can depend on: the rules, and the preprocessed text with its comments (NOLINT).
key() { { echo "$rules"; bash "$1.preprocess"; } 2>/dev/null | sha256sum | cut -d' ' -f1; }
check() { # for a line of tidy_units.py
  local line known
  read -ra line <<<"$1"
  known="$clean/$(key "${line[0]}")"
  if [[ -e "$known" ]]; then touch "$known"; return; fi
  local said again
  if ! said="$(tidy "${line[0]}")"; then
    read -ra again <<<"$(python3 tools/tidy_units.py --found "${line[0]}" <<<"$said")"
    tidy "${again[@]}"
    if ((${#again[@]} == ${#line[@]} - 1)); then
      echo "tidy: clean one by one, not as one (file-local names in common?), which takes long: ${line[*]:1}" >&2
    fi
  fi
  touch "$known"
}
export -f tidy key check
export rules units clean
python3 tools/tidy_units.py "$folder" "$units" "${files[@]}" |
  xargs -r -P "$jobs" -d '\n' -n 1 bash -euo pipefail -c 'check "$1"' _

#!/usr/bin/env bash
# Runs every fuzz target for a limited time on a copy of its stored corpus. tools/fuzz.sh BUILD_FOLDER SECONDS JOBS
set -euo pipefail
cd "$(dirname "$0")/.."
folder="$1" seconds="$2" jobs="$3"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
one() {
  local name="${1##*/}" corpus
  corpus="$work/$name"
  mkdir -p "$corpus" "$work/crash"
  if [[ -d "tests/fuzz/corpus/${name#fuzz_}" ]]; then cp -r "tests/fuzz/corpus/${name#fuzz_}/." "$corpus"; fi
  if "$1" "$corpus" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -artifact_prefix="$work/crash/$name-" \
      -print_final_stats=1 >"$work/$name.log" 2>&1; then
    echo "$name: $(sed -nE 's/.*number_of_executed_units: *//p' "$work/$name.log") inputs, no finding"
  else
    tail -n 40 "$work/$name.log"
    for f in "$work/crash/$name-"*; do [[ -e "$f" ]] && { echo "input:"; base64 "$f" | head -c 4000; }; done
    return 1
  fi
}
export -f one
export work seconds
find "$folder/bin" -name 'fuzz_*' -type f -executable -print0 | xargs -0 -P "$jobs" -I{} bash -euo pipefail -c 'one "$1"' _ {}

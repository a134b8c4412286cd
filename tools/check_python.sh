#!/usr/bin/env bash
# Builds the Python extension beside the library and runs tests/python with the examples. (Wheels: tools/package.sh.)
# tools/check_python.sh BUILD_FOLDER JOBS
# Tests that need PyTorch run after tools/setup.sh --peers (or where TENON_PYTHON_TORCH names a folder of site-packages
# with torch for the same Python); elsewhere they are skipped.
set -euo pipefail
folder="$(realpath -m "$1")" jobs="$2"
cd "$(dirname "$0")/.."
environment="$PWD/build/python-env"
python="$environment/bin/python"
export PATH="$environment/bin:$PATH"

cmake -S . -B "$folder" --log-level=WARNING -DTENON_PYTHON=ON -DPython_EXECUTABLE="$python"
cmake --build "$folder" -j "$jobs" --target tenon_python

torch="${TENON_PYTHON_TORCH:-}"
version="$("$python" -c 'import sys; print(f"python{sys.version_info[0]}.{sys.version_info[1]}")')"
peers="${XDG_CACHE_HOME:-$HOME/.cache}/tenon/peer-env/lib/$version/site-packages"
if [[ -z "$torch" && -d "$peers/torch" ]]; then torch="$peers"; fi
PYTHONPATH="$folder/python${torch:+:$torch}" "$python" -m pytest tests/python

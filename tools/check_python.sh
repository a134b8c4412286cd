#!/usr/bin/env bash
# Builds the Python extension beside the library, runs tests/python and the examples, then makes a wheel, installs it
# into an empty environment and draws with it. tools/check_python.sh BUILD_FOLDER JOBS
# Tests that need PyTorch run after tools/setup.sh --peers (or where TENON_PYTHON_TORCH names a folder of site-packages
# with torch for the same Python); elsewhere they are skipped.
set -euo pipefail
cd "$(dirname "$0")/.."
root="$PWD" folder="$1" jobs="$2" environment="$PWD/build/python-env"
python="$environment/bin/python"
# The compiler by the name that CMake calls it, so that the wheel finds in ccache what the library was built of.
export CXX=c++ CCACHE_BASEDIR="$root" CCACHE_NOHASHDIR=1 CMAKE_BUILD_PARALLEL_LEVEL="$jobs"
export PATH="$environment/bin:$PATH"

cmake -S . -B "$folder" --log-level=WARNING -DTENON_PYTHON=ON -DPython_EXECUTABLE="$python"
cmake --build "$folder" -j "$jobs" --target tenon_python

torch="${TENON_PYTHON_TORCH:-}"
version="$("$python" -c 'import sys; print(f"python{sys.version_info[0]}.{sys.version_info[1]}")')"
peers="${XDG_CACHE_HOME:-$HOME/.cache}/tenon/peer-env/lib/$version/site-packages"
if [[ -z "$torch" && -d "$peers/torch" ]]; then torch="$peers"; fi
PYTHONPATH="$root/$folder/python${torch:+:$torch}" "$python" -m pytest tests/python

wheels="$(mktemp -d)"
trap 'rm -rf "$wheels"' EXIT
"$python" -m pip wheel -q --no-build-isolation --no-deps --wheel-dir "$wheels" -C build-dir=build/wheel .
"$python" -m venv "$wheels/env"
"$wheels/env/bin/python" -m pip install -q --no-index "$wheels"/tenon-*.whl
cd "$wheels"
PYTHONPATH="$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" env/bin/python - <<'PYTHON'
import numpy
import tenon

assert "env/lib" in tenon.__file__, tenon.__file__
x = numpy.arange(4, dtype=numpy.float32)
assert (tenon.fuse(lambda x: x * 2)(x) == 2 * x).all()
image = tenon.Pipeline.from_pretrained()("a red circle on a white background", seed=42, num_inference_steps=2).images[0]
assert image.size == (128, 128)
print("the wheel fuses and draws")
PYTHON

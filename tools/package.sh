#!/usr/bin/env bash
# Makes packages that install without a compiler: build/package/tenon-*.whl (package and program with the libraries that
# they need, for the Python of build/python-env) and build/package/tenon_*.deb. tools/package.sh [JOBS]
set -euo pipefail
cd "$(dirname "$0")/.."
jobs="${1:-$(nproc)}" python="$PWD/build/python-env/bin/python" out="$PWD/build/package"
# The compiler under the name that CMake uses, so that the wheel hits the release build's ccache entries.
export CXX=c++ CCACHE_BASEDIR="$PWD" CCACHE_NOHASHDIR=1 CMAKE_BUILD_PARALLEL_LEVEL="$jobs" PATH="${python%/*}:$PATH"
tools/setup.sh
cmake --preset release --log-level=WARNING
cmake --build --preset release -j "$jobs" --target tenon_installed tenon_cli
rm -rf "$out"
mkdir -p "$out"

cpack --config build/release/CPackConfig.cmake -B "$out/work" >"$out/cpack.log" 2>&1 || { cat "$out/cpack.log" >&2; exit 1; }
mv "$out/work"/*.deb "$out"

# --config-settings: Debian 12's pip does not know the short -C.
"$python" -m pip wheel -q --disable-pip-version-check --no-build-isolation --no-deps --wheel-dir "$out/work" \
  --config-settings build-dir=build/wheel --config-settings install.strip=true .
"$python" -m auditwheel repair --wheel-dir "$out" "$out/work"/tenon-*.whl
rm -r "$out/work" "$out/cpack.log"
ls -l "$out"

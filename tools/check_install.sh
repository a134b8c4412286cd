#!/usr/bin/env bash
# Installs a build and builds tests/consumer against the install alone. tools/check_install.sh BUILD_FOLDER JOBS
set -euo pipefail
cd "$(dirname "$0")/.."
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
cmake --install "$1" --prefix "$work/prefix" >/dev/null
cmake -S tests/consumer -B "$work/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH="$work/prefix" \
  --log-level=WARNING
cmake --build "$work/build" -j "$2"
(cd "$work" && build/consumer)
"$work/prefix/bin/tenon" --version
# A yardstick of `bench` is loaded when it runs, never linked.
if readelf -d "$work"/prefix/bin/tenon "$work"/prefix/lib*/libtenon.so | grep -E 'NEEDED.*(libdnnl|libgomp|libOpenCL)'; then exit 1; fi

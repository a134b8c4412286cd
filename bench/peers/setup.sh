#!/bin/sh
# Makes the Python environment of bench/peers/torch_peer.py, separate from everything else on the machine.
# Needs python3-venv; torch.compile also needs a C++ compiler and python3-dev. About 1 GB, or 6 GB from PyPI (see below).
# usage: setup.sh [FOLDER]     default ${XDG_CACHE_HOME:-~/.cache}/tenon/peer-env; prints the interpreter's path
set -eu
here=$(cd "$(dirname "$0")" && pwd)
folder=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/tenon/peer-env}
python3 -m venv "$folder"
python="$folder/bin/python"
install() { "$python" -m pip --disable-pip-version-check --quiet install "$@" >&2; }
# The wheel without CUDA is a tenth of the size. PyPI's also works, if the other index cannot be reached, and is needed
# for a GPU.
if nvidia-smi -L >/dev/null 2>&1 ||
  ! install --retries 1 --timeout 20 --extra-index-url https://download.pytorch.org/whl/cpu "torch==2.11.0+cpu"; then
  install "torch==2.11.0"
fi
install -r "$here/requirements.txt" "torch==2.11.0"  # timm's torchvision would bring another version
"$python" -c 'import diffusers, timm, torch, transformers' >&2
include=$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')
[ -e "$include/Python.h" ] || echo "setup.sh: no $include/Python.h: torch.compile will not run (python3-dev)" >&2
echo "$python"

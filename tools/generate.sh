#!/usr/bin/env bash
# Sets up, builds and draws: tools/generate.sh "a red circle on a white background" [flags of `tenon generate`]
set -euo pipefail
root="$(cd "$(dirname "$0")/.." && pwd)"
(
  cd "$root"
  tools/setup.sh --build
  cmake --preset release --log-level=WARNING
  cmake --build --preset release --target tenon_cli
) >&2
exec "$root/build/release/bin/tenon" generate "$@"

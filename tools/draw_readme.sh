#!/usr/bin/env bash
# Redraws the README's pictures with the embedded default model. tools/draw_readme.sh [PATH_OF_TENON]
set -euo pipefail
cd "$(dirname "$0")/.."
tenon="${1:-build/release/bin/tenon}"
draw() { "$tenon" generate "$2" -o "docs/images/$1.png" --overwrite --no-metadata --quiet; }

draw default-model "a red circle on a white background"
draw star "a yellow star on a purple background"
draw ring "a large green ring on a black background"
draw triangle "a small orange triangle in the top left corner on a cyan background"
draw pair "a purple square to the left of a pink circle on a gray background"
draw above "a blue star above a red ring on a white background"

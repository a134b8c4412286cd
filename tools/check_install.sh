#!/usr/bin/env bash
# Installs a build and uses only the installation: builds tests/consumer, and the program at the end of docs/tour.md
# with its CMakeLists.txt; runs both, and checks what was installed. tools/check_install.sh BUILD_FOLDER JOBS
set -euo pipefail
cd "$(dirname "$0")/.."
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
fail() { echo "check_install: $*" >&2; exit 1; }
prefix="$work/prefix"
cmake --install "$1" --prefix "$prefix" >/dev/null
configure() { cmake -S "$1" -B "$2" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH="$prefix" --log-level=WARNING "${@:3}"; }

configure tests/consumer "$work/build"
cmake --build "$work/build" -j "$2"
(cd "$work" && build/consumer)
"$prefix/bin/tenon" --version
# The program and the door: the program finds all it needs in the library, and users find nothing of a backend.
if hidden="$(ldd -r "$prefix/bin/tenon" 2>&1 | grep 'undefined symbol')"; then fail "the installed library hides: $hidden"; fi
shown="$(nm -DC --defined-only "$prefix"/lib*/libtenon.so)"
if grep -E ' tenon::(cpu|cuda)::' <<<"$shown"; then fail "the installed library shows what backends are made of"; fi
headers="$prefix/include/tenon"
[[ -e "$headers/plan/plan.h" ]] || fail "a header of the door is not installed"
for header in plan/partition.h kernels/form.h backend/kernel.h runtime/plan_kernels.h io/safetensors.h models/weights.h \
    pipelines/networks.h pipelines/samplers/sampler.h; do
  [[ ! -e "$headers/$header" ]] || fail "headers that are not the door's are installed: $header"
done
echo "$(find "$headers" -name '*.h' | wc -l) headers are installed"
echo "the installed library shows $(wc -l <<<"$shown") symbols"
# oneDNN, the yardstick of `bench`, is loaded at run time, never linked.
if readelf -d "$prefix"/bin/tenon "$prefix"/lib*/libtenon.so | grep -E 'NEEDED.*(libdnnl|libgomp|libOpenCL)'; then exit 1; fi

# The block of docs/tour.md that begins with a comment naming the file.
block() { awk -v name="$1" '/^```/ { inside = 0 } inside { print } $0 ~ "^(//|#) " name "$" { inside = 1 }' docs/tour.md; }
# The tour's quotes must match the tree.
quoted() { awk '/^```/ { inside = 0 } /^Expr residual_block/ { inside = 1 } inside { print }' "$1"; }
residual="$(quoted docs/tour.md)"
[[ -n "$residual" && "$(<tenon/nn/diffusion.cpp)" == *"$residual"* ]] || fail "docs/tour.md quotes another residual_block"
mkdir "$work/tour"
for file in sharpen.cpp CMakeLists.txt; do
  block "$file" >"$work/tour/$file"
  [[ -s "$work/tour/$file" ]] || fail "docs/tour.md has no $file"
done
configure "$work/tour" "$work/tour/build"
cmake --build "$work/tour/build" -j "$2"
plan="$("$work/tour/build/sharpen" docs/images/star.png "$work/sharp.png")"
grep -q '^launch conv2d' <<<"$plan" || fail "the tour's program plans no convolution"
[[ -s "$work/sharp.png" ]] || fail "the tour's program wrote no picture"

# As part of another project, there is the library and nothing else whose names could meet that project's.
mkdir "$work/whole"
printf '%s\n' 'cmake_minimum_required(VERSION 3.25)' 'project(whole LANGUAGES CXX)' "add_subdirectory($PWD tenon)" \
  "add_executable(consumer $PWD/tests/consumer/main.cpp)" 'target_link_libraries(consumer PRIVATE tenon::tenon)' >"$work/whole/CMakeLists.txt"
configure "$work/whole" "$work/whole/build"
if ninja -C "$work/whole/build" -t targets all | grep -E '^(tenon_cli|test_core|bin/tenon):'; then
  fail "add_subdirectory builds the program or the tests too"
fi

# A missing dependency must be named.
if said="$(configure tests/consumer "$work/missing" -DCMAKE_DISABLE_FIND_PACKAGE_nlohmann_json=ON 2>&1)"; then
  fail "find_package(tenon) does without nlohmann_json"
fi
[[ "$said" =~ 'nlohmann_json 3.11'[[:space:]]+'or'[[:space:]]+'newer' && "$said" == *nlohmann-json3-dev* ]] ||
  fail "find_package(tenon) does not say that nlohmann_json is missing: $said"

share="$prefix/share"
for file in man/man1/tenon.1 bash-completion/completions/tenon zsh/site-functions/_tenon fish/vendor_completions.d/tenon.fish \
    tenon/default-model/model_index.json tenon/sums/config.json tenon/z-image-shapes/model_index.json tenon/clip/merges.txt tenon/clip/LICENSE; do
  [[ -s "$share/$file" ]] || fail "$file is not installed"
done
(cd "$work" && "$prefix/bin/tenon" generate "a red circle on a white background" --steps 1 -q)
[[ "$("$prefix/bin/tenon" complete "Ann has 3 apples and buys 4. How many?" -q)" == *"#### 7" ]] ||
  fail "the installed language model does not answer"

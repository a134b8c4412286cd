#!/usr/bin/env bash
# Runs a command in a minimal Debian 12 that is created for it and removed afterwards, and has nothing of this machine's
# software. The tracked files of this checkout are there at the same path, and ccache is shared, so that what was
# compiled here is not compiled again. Needs root and mmdebstrap; otherwise exits with 77 and a line that says so.
# tools/fresh.sh [--with=PATH].. [COMMAND [ARG..]]
#   --with=PATH: a file or folder of this machine, visible at the same path
#   COMMAND: default set-up, build and the README's first picture
set -euo pipefail
with=()
while [[ "${1:-}" == --with=* ]]; do with+=("$(realpath "${1#*=}")"); shift; done
cd "$(dirname "$0")/.."
root="$PWD"
command=("$@")
((${#command[@]})) || command=(tools/generate.sh "a red circle on a white background")
skip() { echo "fresh: skipped: $1" >&2; exit 77; }
((EUID == 0)) || skip "a room of its own needs root"
command -v mmdebstrap >/dev/null || skip "mmdebstrap is not installed"
unshare --mount true 2>/dev/null || skip "no mount namespace can be made here"

# Made once per checkout, without documentation; nothing is synced to disk, because it is not meant to last.
template="$root/build/fresh/bookworm.tar"
if [[ ! -f "$template" ]]; then
  mkdir -p "${template%/*}"
  mmdebstrap --quiet --variant=minbase --aptopt='Acquire::Languages "none"' --dpkgopt=force-unsafe-io \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
    --dpkgopt='path-exclude=/usr/share/locale/*' bookworm "$template.part.tar" >&2 ||
    { rm -f "$template.part.tar"; skip "mmdebstrap could not make a Debian 12 (see above)"; }
  mv "$template.part.tar" "$template"
fi

room="$(mktemp -d "${TMPDIR:-/var/tmp}/tenon-fresh.XXXXXX")"
trap 'rm -rf --one-file-system "$room"' EXIT
tar -C "$room" -xf "$template"
mkdir -p "$room$root"
git ls-files -z | while IFS= read -rd '' file; do if [[ -e "$file" ]]; then printf '%s\0' "$file"; fi; done |
  tar -c --null -T - | tar -C "$room$root" -x
# Host names and certificates come from this machine; no installed software does.
for file in /etc/resolv.conf /etc/hosts /etc/pip.conf /etc/apt/apt.conf.d/*proxy*; do
  if [[ -f "$file" ]]; then install -D -m 644 "$file" "$room$file"; fi
done

environment=(TENON_ROOM=1 HOME=/root LANG=C.UTF-8 TERM=dumb PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin)
for name in {http,https,no}_proxy {HTTP,HTTPS,NO}_PROXY PIP_{INDEX_URL,DEFAULT_TIMEOUT}; do
  if [[ -n "${!name:-}" ]]; then environment+=("$name=${!name}"); fi
done
certificates="${PIP_CERT:-${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}}"
if [[ -f "$certificates" ]]; then
  install -m 644 "$certificates" "$room/root/certificates.crt"
  environment+=(PIP_CERT=/root/certificates.crt SSL_CERT_FILE=/root/certificates.crt)
fi
if command -v ccache >/dev/null; then
  cache="$(ccache --get-config cache_dir)"
  mkdir -p "$cache"
  with+=("$cache") environment+=("CCACHE_DIR=$cache" "CCACHE_BASEDIR=$root" CCACHE_NOHASHDIR=1
    "CCACHE_MAXSIZE=$(ccache --get-config max_size)")
fi

# Mounts are made in their own namespace and vanish with it.
export room root
# shellcheck disable=SC2016
unshare --mount --propagation private bash -euo pipefail -c '
  with=("${@:2:$1}") rest=("${@:$1+2}")
  for folder in /proc /sys /dev; do mount --rbind "$folder" "$room$folder"; done
  for path in ${with[@]+"${with[@]}"}; do
    if [[ -d "$path" ]]; then mkdir -p "$room$path"; else mkdir -p "$room${path%/*}" && touch "$room$path"; fi
    mount --bind "$path" "$room$path"
  done
  exec chroot "$room" /usr/bin/env -i "${rest[@]}"' room ${#with[@]} ${with[@]+"${with[@]}"} \
  "${environment[@]}" bash -c 'cd "$0" && exec "$@"' "$root" "${command[@]}" </dev/null

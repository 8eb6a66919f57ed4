#!/usr/bin/env bash
# Proves that `./dev` sets Longhaul up on a bare Debian 12: makes one with debootstrap, clones the last commit into it
# and runs commands there, with an empty environment.
#
# usage (root): tests/hygiene/bare_debian.sh FOLDER [DEV-COMMAND]...
#   FOLDER       does not exist yet, outside the repository; the system is left there (remove it by `rm -rf`)
#   DEV-COMMAND  default: setup build test. Stops at the first that fails; "test" in quotes may have arguments
#
# Needs: debootstrap, git, and apt sources of this system that name Debian 12; mirror, proxies and validity settings are
# taken from this system's apt configuration.
set -euo pipefail

suite=bookworm
root=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.." && pwd)

die() {
  printf 'bare_debian: %s\n' "$*" >&2
  exit 1
}

((EUID == 0)) || die "run as root"
(($#)) || die "usage: bare_debian.sh FOLDER [DEV-COMMAND]..."
bare=$(readlink -m "$1")
shift
commands=("$@")
((${#commands[@]})) || commands=(setup build test)
[[ -e $bare ]] && die "$bare exists"
[[ $bare/ == "$root"/* ]] && die "$bare lies inside the repository"
command -v debootstrap >/dev/null || die "debootstrap is missing: run ./dev setup"

# "URI RELEASE" of every Debian 12 source that apt knows here.
mapfile -t sources < <(apt-get indextargets --format "\$(REPO_URI) \$(RELEASE) \$(COMPONENT)" 'Created-By: Packages' |
  awk -v suite="$suite" '$2 ~ "^" suite && $3 == "main" && !seen[$1 $2]++ { print $1, $2 }')
mirror=$(printf '%s\n' "${sources[@]}" | awk -v suite="$suite" '$2 == suite { print $1; exit }')
[[ -n $mirror ]] || die "no apt source of this system names Debian 12 ($suite main)"

clean_up() {
  local place
  for place in dev/shm proc; do
    if mountpoint -q "$bare/$place"; then umount "$bare/$place"; fi
  done
}
trap clean_up EXIT

# Runs a command in the bare system: nothing of this shell's environment but proxies goes in.
inside() {
  local name
  local -a environment=(HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 CI=true)
  for name in http_proxy https_proxy no_proxy; do
    [[ -n ${!name:-} ]] && environment+=("$name=${!name}")
  done
  env -i "${environment[@]}" chroot "$bare" "$@"
}

debootstrap --variant=minbase --include=ca-certificates "$suite" "$bare" "$mirror"
printf 'deb %s main\n' "${sources[@]}" >"$bare/etc/apt/sources.list"
apt-config dump | grep -E '^Acquire::(https?|Check|Retries|Languages)' >"$bare/etc/apt/apt.conf.d/99host" || true
cp /etc/resolv.conf /etc/hosts "$bare/etc/"
# Root certificates of this system, in case its mirror or proxy has one of its own.
cp -r /usr/local/share/ca-certificates/. "$bare/usr/local/share/ca-certificates/"
inside update-ca-certificates >/dev/null 2>&1
mount -t proc proc "$bare/proc"
mount -t tmpfs tmpfs "$bare/dev/shm"
git clone -q --no-hardlinks "$root" "$bare/srv/longhaul"

printf '== bare Debian: %s packages installed, commit %s\n' "$(inside dpkg-query -W | wc -l)" \
  "$(git -C "$root" rev-parse --short HEAD)"
for command in "${commands[@]}"; do
  read -r -a words <<<"$command"
  start=$SECONDS
  inside /srv/longhaul/dev "${words[@]}" </dev/null
  printf '== bare Debian: ./dev %s: done in %d s\n' "$command" $((SECONDS - start))
done

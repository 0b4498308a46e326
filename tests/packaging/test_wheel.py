"""The wheel: what is in it, and that it works alone, in an empty environment, away from the repository."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Sequence
from email.message import Message
from email.parser import Parser
from importlib.metadata import distribution
from pathlib import Path, PurePosixPath

import pytest

from qvl_doctor import __version__
from tests.cli.harness import FAILED_LOG, FAILED_RULE

REPOSITORY = Path(__file__).resolve().parents[2]
SECONDS = 120


def build(kind: str, source: Path, target: Path) -> Path:
    """Builds a "wheel" or an "sdist" with the hatchling that is installed: nothing is downloaded."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(target)]
    subprocess.run(command, cwd=source, check=True, capture_output=True, timeout=SECONDS)
    (built,) = target.iterdir()
    return built


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wheel", REPOSITORY, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("sdist", REPOSITORY, tmp_path_factory.mktemp("sdist"))


def members(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        return Parser().parsestr(archive.read(f"qvl_doctor-{__version__}.dist-info/METADATA").decode())


def run_time_dependencies(wheel: Path) -> list[str]:
    """Names of what an installation without extras needs."""
    wanted = [entry for entry in metadata(wheel).get_all("Requires-Dist", []) if "extra ==" not in entry]
    return [re.split(r"[^\w.-]", entry, maxsplit=1)[0] for entry in wanted]


def copy_installed(name: str, site_packages: Path) -> None:
    """Puts the tester's own copy of a dependency into another environment: no network, whatever the version."""
    installed = distribution(name)
    for file in installed.files or ():
        if ".." in file.parts or file.suffix == ".pyc":
            continue  # scripts outside site-packages, caches
        target = site_packages / file
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(str(installed.locate_file(file)), target)


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment that holds the wheel and its dependencies, nothing else; the path of its `qvl-doctor`."""
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder, with_pip=False, symlinks=True)
    (site_packages,) = folder.glob("lib/python*/site-packages")
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "install", "-q", "--no-compile"]
    subprocess.run([*pip, "--no-deps", "--no-index", str(wheel)], check=True, capture_output=True, timeout=SECONDS)
    for name in run_time_dependencies(wheel):
        copy_installed(name, site_packages)
    return folder / "bin" / "qvl-doctor"


def run(program: Path, arguments: Sequence[str], cwd: Path) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "QVL_", "LC_"))}
    return subprocess.run(
        [str(program), *arguments],
        cwd=cwd,
        env=clean | {"LC_ALL": "C.UTF-8"},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


def test_it_holds_every_rule_under_the_package(wheel: Path) -> None:
    shipped = {name.removeprefix("qvl_doctor/_rules/") for name in members(wheel) if "/_rules/" in name}
    ours = {path.relative_to(REPOSITORY / "rules").as_posix() for path in (REPOSITORY / "rules").rglob("*.toml")}
    assert ours
    assert shipped == ours


def test_it_holds_the_data_and_the_typing_mark(wheel: Path) -> None:
    package = REPOSITORY / "qvl_doctor"
    ours = {
        f"qvl_doctor/{path.relative_to(package).as_posix()}"
        for path in package.rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    assert "qvl_doctor/py.typed" in ours
    assert ours <= members(wheel)


def test_it_holds_nothing_else(wheel: Path) -> None:
    allowed = {".py", ".toml", ".json", ".typed", ""}
    for name in members(wheel):
        path = PurePosixPath(name)
        assert path.parts[0] in {"qvl_doctor", f"qvl_doctor-{__version__}.dist-info"}, name
        assert path.suffix in allowed or path.name == "entry_points.txt", name
        assert not {"tests", "samples", "docs", "scripts", "__pycache__"} & set(path.parts), name


def test_its_metadata(wheel: Path) -> None:
    about = metadata(wheel)
    assert about["Version"] == __version__
    assert about["License-Expression"] == "Apache-2.0"
    assert about["Requires-Python"] == ">=3.11"
    assert run_time_dependencies(wheel) == ["packaging"]
    assert any(name.endswith("/licenses/LICENSE") for name in members(wheel))


def test_the_source_archive_builds_the_same_wheel(sdist: Path, wheel: Path, tmp_path: Path) -> None:
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (tree,) = tmp_path.iterdir()
    (tmp_path / "out").mkdir()
    assert members(build("wheel", tree, tmp_path / "out")) == members(wheel)


def test_installed_it_lists_its_rules(installed: Path, tmp_path: Path) -> None:
    done = run(installed, ["rules", "list", "--json"], tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    listed = {rule["id"] for rule in json.loads(done.stdout)["rules"]}
    assert listed == {path.stem for path in (REPOSITORY / "rules").rglob("*.toml")}


def test_installed_it_diagnoses_from_any_folder(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "server.log").write_text(FAILED_LOG)
    done = run(installed, ["diagnose", "--log", "server.log", "--json"], tmp_path)
    assert (done.returncode, done.stderr) == (1, "")
    assert json.loads(done.stdout)["findings"][0]["rule"] == FAILED_RULE


def test_installed_it_says_how_to_read_yaml_where_the_extra_is_missing(installed: Path, tmp_path: Path) -> None:
    compose = (
        "services:\n  vllm:\n    image: vllm/vllm-openai:v0.11.0\n    command: --model Qwen/Qwen2.5-VL-7B-Instruct\n"
    )
    (tmp_path / "compose.yaml").write_text(compose)
    done = run(installed, ["diagnose", "--command-file", "compose.yaml"], tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "qvl-doctor[deploy]" in done.stderr
    assert "Traceback" not in done.stderr

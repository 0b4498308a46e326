"""The shipped data: what it says of well-known turning points, and what keeps it honest."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from qvl_doctor.core.vllm.history import nearest_release
from qvl_doctor.core.vllm.packing import dumps, pack
from qvl_doctor.core.vllm.report import flag_history_document, flags_document, never_existed_document
from qvl_doctor.resources import data_text
from qvl_doctor.sources import vllm_facts
from tests.vllm.trees import CONFIGS

RELEASES = vllm_facts.releases()
NEWEST = RELEASES[-1]


def test_every_release_has_the_flags_that_all_have() -> None:
    for release in RELEASES:
        known = vllm_facts.knowledge(release)
        assert known.basis == "release"
        for name in ("--model", "--host", "--port", "--tensor-parallel-size", "--gpu-memory-utilization", "--dtype"):
            fact = known.flag(name)
            assert fact is not None, (release, name)
            assert fact.source.startswith("vllm/"), (release, name)
        servers = {server for fact in known.flags().values() for server in fact.servers}
        assert "api_server" in servers
        assert ("serve" in servers) == (known.version >= vllm_facts.knowledge("0.5.2").version)


@pytest.mark.parametrize(
    ("flag", "since", "until"),
    [
        ("--limit-mm-per-prompt", "0.5.5", None),
        ("--swap-space", "0.1.6", "0.17.1"),
        ("--task", "0.6.4", "0.12.0"),
        ("--image-input-shape", "0.4.0", "0.5.0.post1"),
        ("--speculative-model", "0.4.1", "0.8.2"),
        ("--rope-scaling", "0.4.3", "0.11.0"),
        ("--mm-encoder-tp-mode", "0.10.2", None),
        ("--enable-multimodal-encoder-data-parallel", "0.9.1", "0.12.0"),
        ("--no-enable-prefix-caching", "0.6.5", None),
        ("-tp", "0.1.6", None),
    ],
)
def test_turning_points(flag: str, since: str, until: str | None) -> None:
    history = vllm_facts.history(flag)
    assert (history.since, history.until) == (since, until)


@pytest.mark.parametrize(
    ("release", "flag", "value"),
    [
        ("0.8.4", "--limit-mm-per-prompt", "pairs"),
        ("0.8.5", "--limit-mm-per-prompt", "json-or-pairs"),
        ("0.9.2", "--limit-mm-per-prompt", "json-or-pairs"),
        ("0.10.0", "--limit-mm-per-prompt", "json"),
        ("0.6.3", "--max-model-len", "int"),
        ("0.8.5", "--max-model-len", "human-int"),
        ("0.20.0", "--max-model-len", "human-int-or-auto"),
        ("0.33.0", "--compilation-config", "json-config-short"),
        ("0.11.0", "--enforce-eager", "bool"),
    ],
)
def test_kinds_of_value(release: str, flag: str, value: str) -> None:
    fact = vllm_facts.knowledge(release).flag(flag)
    assert fact is not None
    assert fact.value == value


def test_defaults_that_changed() -> None:
    assert vllm_facts.knowledge("0.19.1").default("gpu_memory_utilization") == 0.9
    assert vllm_facts.knowledge("0.20.0").default("gpu_memory_utilization") == 0.92
    assert vllm_facts.knowledge("0.6.3").default("--max-num-seqs") == 256
    assert vllm_facts.knowledge("0.11.0").default("--max-num-seqs") is None


def test_defaults_by_gpu() -> None:
    small = vllm_facts.knowledge("0.11.0").batch_defaults(24.0, "NVIDIA GeForce RTX 4090")
    large = vllm_facts.knowledge("0.11.0").batch_defaults(140.0, "NVIDIA H200")
    a100 = vllm_facts.knowledge("0.11.0").batch_defaults(80.0, "NVIDIA A100-SXM4-80GB")
    assert small is not None
    assert large is not None
    assert (small.tokens_server, small.seqs_server) == (2048, 256)
    assert (large.tokens_server, large.seqs_server) == (8192, 1024)
    assert a100 == small
    assert vllm_facts.knowledge("0.6.3").batch_defaults(80.0) is None
    newest = vllm_facts.knowledge("0.33.0").batch_defaults(180.0, "NVIDIA B200")
    assert newest is not None
    assert newest.tokens_server == 16384


def test_architectures_quantization_requirements_metrics_environment() -> None:
    assert "Qwen2VLForConditionalGeneration" not in vllm_facts.knowledge("0.6.0").architectures()
    assert "Qwen2VLForConditionalGeneration" in vllm_facts.knowledge("0.6.1").architectures()
    assert vllm_facts.knowledge("0.7.2").architectures()["Qwen2_5_VLForConditionalGeneration"] == "multimodal"
    assert vllm_facts.knowledge("0.11.0").architectures()["Qwen3VLForConditionalGeneration"] == "multimodal"
    assert vllm_facts.knowledge("0.8.5").quantization()["awq"] == 75
    assert vllm_facts.knowledge("0.8.5").quantization()["awq_marlin"] == 80
    assert vllm_facts.knowledge("0.8.5").requires()["torch"] == "==2.6.0"
    assert vllm_facts.knowledge("0.9.2").env_vars()["VLLM_USE_V1"].default is True
    assert vllm_facts.knowledge("0.7.3").env_vars()["VLLM_USE_V1"].default is False
    assert vllm_facts.knowledge("0.12.0").metrics()["vllm:kv_cache_usage_perc"].kind == "gauge"
    assert "vllm:gpu_cache_usage_perc" not in vllm_facts.knowledge("0.12.0").metrics()
    assert vllm_facts.knowledge("0.8.5").metrics()["vllm:prompt_tokens_total"].engines == ("V0", "V1")


def test_configuration_keys_are_known_where_others_are_refused() -> None:
    keys = vllm_facts.knowledge("0.32.0").config_keys("--compilation-config")
    assert keys is not None
    assert {"mode", "cudagraph_mode"} <= keys
    assert "level" not in keys
    assert vllm_facts.knowledge("0.9.2").config_keys("--compilation-config") is None


@pytest.mark.parametrize(
    ("version", "release", "basis"),
    [
        (None, NEWEST, "nearest"),
        ("0.8.5", "0.8.5", "release"),
        ("0.8.5.post1", "0.8.5.post1", "release"),
        ("0.11.0+cu129", "0.11.0", "release"),
        ("0.11.0rc3", "0.11.0", "nearest"),
        ("0.16.0rc2.dev388+g1234567", "0.16.0", "nearest"),
        ("0.10.1.2", "0.10.1.1", "nearest"),
        ("99.0", NEWEST, "nearest"),
        ("0.0.1", RELEASES[0], "nearest"),
        ("rubbish", NEWEST, "nearest"),
    ],
)
def test_nearest_release(version: str | None, release: str, basis: str) -> None:
    assert nearest_release(RELEASES, version) == (release, basis)


def test_arity_of_names_aliases_and_negations() -> None:
    known = vllm_facts.knowledge("0.11.2")
    assert known.arity("--max-model-len") == "one"
    assert known.arity("-tp") == "one"
    assert known.arity("--enforce-eager") == "switch"
    assert known.arity("--no-enable-prefix-caching") == "switch"
    assert known.arity("--served-model-name") == "many"
    assert known.arity("--no-such-flag") is None
    assert known.canonical("-tp") == "--tensor-parallel-size"
    assert known.negation("--enable-prefix-caching") == "--no-enable-prefix-caching"


def test_advice_names_flags_that_exist_somewhere() -> None:
    advice = vllm_facts.knowledge().advice
    for flag, moves in advice.moves.items():
        existed = vllm_facts.history(flag).existed
        for move in moves:
            assert existed != move.folklore, f"{flag} is {'not ' if not existed else ''}in the data"
            for value in (None, *move.values):
                for target in move.targets(value):
                    assert vllm_facts.history(target).existed, (flag, target)
    for flag in (*advice.effects, *advice.meant):
        assert vllm_facts.history(flag).existed, flag


def test_advice_has_both_languages_and_the_same_names_in_both() -> None:
    advice = vllm_facts.knowledge().advice
    assert advice.text["en"].keys() == advice.text["zh"].keys()
    for key, text in advice.text["en"].items():
        for name in ("{flag}", "{name}", "{release}", "{value}", "{choices}", "{tokens}"):
            assert (name in text) == (name in advice.text["zh"][key]), (key, name)
    for moves in advice.moves.values():
        for move in moves:
            assert set(move.why) in ({"en", "zh"}, set()), move.flag


def test_data_is_compact_and_in_its_own_form() -> None:
    total = 0
    for stem in ("flags", "config_keys", "environment", "metrics", "architectures", "quantization", "releases"):
        text = data_text(f"vllm/{stem}.json")
        assert dumps(json.loads(text)) == text
        total += len(text.encode())
    assert total < 400_000


def test_installation_is_read_from_any_of_its_paths(tmp_path: Path) -> None:
    site = tmp_path / "venv" / "lib" / "python3.12" / "site-packages"
    for name, text in CONFIGS.files.items():
        path = site / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(CONFIGS.read(name) or text)
    info = site / "vllm-0.12.3.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 0.12.3\n")
    python = tmp_path / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text("")
    for path in (site, site / "vllm", tmp_path / "venv", python):
        known = vllm_facts.knowledge_from_path(path)
        assert known is not None, path
        assert (known.release, known.basis) == ("0.12.3", "installation")
        assert known.flag("--cache") is not None
        assert known.history("--swap-space").until == "0.17.1"
        assert known.advice.folklore("--max-mm-tokens")
    assert vllm_facts.knowledge_from_path(tmp_path / "elsewhere") is None


def test_links_out_of_an_installation_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret.py").write_text("x = 1\n")
    root = tmp_path / "site"
    (root / "vllm").mkdir(parents=True)
    (root / "vllm" / "envs.py").symlink_to(tmp_path / "secret.py")
    assert vllm_facts.FolderTree(root).read("vllm/envs.py") is None
    assert vllm_facts.FolderTree(root).read("../secret.py") is None


def test_packing_is_the_same_for_the_same_facts() -> None:
    facts = {
        release: {
            "flags": {
                "--a": [[], 0, "int", "one", None, 1 if release < "0.3" else 2, False, False, "", "f", ["serve"]]
            },
            "traits": [True, True, True, "moved", "", [], "f"],
            "config_keys": {},
            "environment": {},
            "metrics": {},
            "architectures": {},
            "quantization": {},
            "requires": {"torch": ""},
            "batch": [],
        }
        for release in ("0.1", "0.2", "0.3")
    }
    documents = pack(["0.1", "0.2", "0.3"], facts)
    assert documents["flags"]["runs"] == {"--a": [0, 1, 0, 2, 2, 1]}
    assert dumps(documents["flags"]) == dumps(pack(["0.1", "0.2", "0.3"], facts)["flags"])


def test_flags_document() -> None:
    document = flags_document(vllm_facts.knowledge("0.11.2"))
    assert document["schema"] == "qvl-doctor/flags/1"
    assert (document["vllm_version"], document["knowledge"]) == ("0.11.2", "release")
    flags = {f["name"]: f for f in document["flags"]}
    assert flags["--max-model-len"]["value"] == "int"
    assert flags["--limit-mm-per-prompt"]["value"] == "json"
    assert flags["--enable-prefix-caching"]["negation"] == "--no-enable-prefix-caching"
    assert (flags["--task"]["deprecated"], flags["--task"]["until"]) == (True, "0.12.0")
    assert flags["--task"]["replaced_by"] == "--runner"
    assert flags["--override-pooler-config"]["replaced_by"] == "--pooler-config"
    assert flags["--max-num-seqs"]["replaced_by"] is None


def test_history_documents() -> None:
    known = vllm_facts.knowledge()
    document = flag_history_document(known, "--limit-mm-per-prompt")
    assert document is not None
    assert [s["form"] for s in document["spans"]][:3] == ["pairs", "json-or-pairs", "json"]
    assert flag_history_document(known, "--max-mm-tokens") is None
    never = never_existed_document(known, "--max-mm-tokens", "zh")
    assert never["replaced_by"] == "--mm-processor-kwargs"
    assert "像素" in never["why"]


def test_a_look_up_loads_neither_readers_nor_checks() -> None:
    code = (
        "import sys; from qvl_doctor.sources import vllm_facts; "
        "assert vllm_facts.knowledge('0.11.2').flag('--max-model-len'); "
        "print([m for m in sys.modules if m.startswith(('qvl_doctor.core', 'packaging', 'ast', 'tomllib'))])"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    for module in ("cli_reader", "interpreter", "core.vllm.flags", "core.launch", "packaging", "tomllib"):
        assert module not in loaded

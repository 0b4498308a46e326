"""Which releases know a model of the Qwen line, and whether speculation works beside pictures.

Sources: the registries of vLLM 0.4.0-0.33.0 (vllm/model_executor/models/registry.py); the model folders inside
transformers 4.44.2-5.3.0; for EAGLE-3 the classes in vllm/model_executor/models/qwen2_5_vl.py and qwen3_vl.py and
`uses_mrope` of vllm/v1/spec_decode/eagle.py.
"""

from __future__ import annotations

import re

from packaging.version import Version

from qvl_doctor.core.facts import View, derived
from qvl_doctor.core.records import record


@record
class FirstRelease:
    """The first releases that know a model type; transformers None: vLLM's own code suffices or it is not known."""

    vllm: str
    transformers: str | None


# The key is a model type of config.json with all but letters and digits left out, a prefix of the names it stands for.
_FIRST: dict[str, FirstRelease] = {
    "qwen2vl": FirstRelease("0.6.1", "4.45.0"),
    "qwen25vl": FirstRelease("0.7.2", "4.49.0"),
    "qwen25omni": FirstRelease("0.8.5", "4.52.1"),
    "qwen3vl": FirstRelease("0.11.0", "4.57.0"),
    "qwen3omni": FirstRelease("0.11.1", "4.57.0"),
    "qwen3next": FirstRelease("0.10.2", "4.57.0"),
    "qwen35": FirstRelease("0.17.0", "5.2.0"),
    "qwen3asr": FirstRelease("0.16.0", None),
    "qwen3moe": FirstRelease("0.8.4", "4.51.0"),
    "qwen4exp": FirstRelease("0.29.0", None),
    "qwen3": FirstRelease("0.8.4", "4.51.0"),
}
_OFFICIAL_NAME = {  # how published names, unlike their configs, write the same
    "qwen36": "qwen35",
    "qwen38": "qwen35",
}
_MODEL_KNOWN = ("profile", "kv", "capture", "warmup", "ready", "serving")  # phases that only a loaded model reaches
_EAGLE3_FROM = {"qwen2_5_vl": "0.11.1", "qwen3_vl": "0.15.0"}


def first_release(name: str) -> FirstRelease | None:
    """The first releases for a model type ("qwen3_vl"), an architecture or a checkpoint's name; None for others."""
    plain = re.sub(r"[^a-z0-9]", "", name.rstrip("/").rpartition("/")[2].lower()[:200])
    for alias, known in _OFFICIAL_NAME.items():
        if plain.startswith(alias):
            plain = known + plain.removeprefix(alias)
    best = max((key for key in _FIRST if plain.startswith(key)), key=len, default=None)
    return None if best is None else _FIRST[best]


def _asked(view: View) -> FirstRelease | None:
    """For the model that the log's line names, else for the one that is served."""
    for fact in ("match.model_type", "match.architecture", "log.architecture", "launch.model", "log.model"):
        text = view.text(fact)
        found = None if text is None else first_release(text)
        if found is not None:
            return found
    return None


@derived("plan.vllm_for_model", "str", "", "first vLLM release that knows the model, as a specifier")
def _vllm_for_model(view: View) -> str | None:
    """None where the release in use is new enough already."""
    first, version = _asked(view), view.version("version.vllm")
    if first is None or (version is not None and version >= Version(f"{first.vllm}.dev0")):
        return None
    return f">={first.vllm}"


@derived("plan.transformers_for_model", "str", "", "first transformers release that knows the model, as a specifier")
def _transformers_for_model(view: View) -> str | None:
    """None where it is not known, where the release in use suffices, or where a newer vLLM is needed anyway."""
    first, version = _asked(view), view.version("version.transformers")
    if first is None or first.transformers is None:
        return None
    if version is not None and version >= Version(first.transformers):
        return None
    return f">={first.transformers}"


@derived("derived.model_too_new", "bool", "", "the vLLM release in use is older than the first that knows the model")
def _model_too_new(view: View) -> bool | None:
    """Only from what is stated (a model by its published name, a version); other models are unknown."""
    if view.text("log.phase") in _MODEL_KNOWN:
        return False  # the log shows otherwise, whatever version is stated
    first, version = _asked(view), view.version("version.vllm")
    return None if first is None or version is None else version < Version(f"{first.vllm}.dev0")


@derived("derived.version_stated", "bool", "", "the vLLM release is known, not assumed")
def _version_stated(view: View) -> bool:
    return view.version("version.vllm") is not None


@derived("derived.speculation", "str", "", "method of speculative decoding in the launch command")
def _speculation(view: View) -> str | None:
    """eagle3, eagle, ngram, draft_model, …; None without any."""
    method = view.text("launch.speculative_config.method")
    if method is not None:
        return method.lower()
    draft = view.text("launch.speculative_config.model") or view.text("launch.speculative_model")
    if draft is None:
        return None
    if "ngram" in draft.lower():
        return "ngram"
    eagle = re.search(r"eagle-?3?", draft.lower())
    return "draft_model" if eagle is None else eagle[0].replace("-", "")


@derived("plan.vllm_for_eagle3", "str", "", "first vLLM release in which EAGLE-3 works beside this vision model")
def _vllm_for_eagle3(view: View) -> str | None:
    since = _EAGLE3_FROM.get(view.text("model.family") or "")
    version = view.version("version.vllm")
    if since is None or (version is not None and version >= Version(since)):
        return None
    return f">={since}"

"""Why the vision outputs of a request and the places kept for them in its prompt differ in number.

One message has four causes. With pipeline stages, the stage that merges and the stage that encodes disagree. A text
that the model wrote itself can hold the picture's own token, which releases before 0.11 took for another place, because
they looked for the token's id instead of remembering positions (vllm/model_executor/models/utils.py
merge_multimodal_embeddings; 0.11 hands over the positions). One place too many on every request is a processor that
does not belong to this transformers release. Everything else is a prompt that holds more or fewer marks than media.
"""

from __future__ import annotations

from packaging.version import Version

from qvl_doctor.core.facts import View, derived

_FEW = 8  # pad tokens that a model writes by mistake before it stops
_FIXED = Version("4.53.3")  # transformers: processors of remote code count the pads as vLLM does


@derived("derived.placeholder_excess", "int", "tokens", "places in the prompt less vision outputs")
def _excess(view: View) -> int | None:
    places, tokens = view.integer("match.places"), view.integer("match.tokens")
    return None if places is None or tokens is None else places - tokens


@derived("derived.placeholder_cause", "str", "", "pipeline, generated, version or prompt")
def _cause(view: View) -> str | None:
    excess = view.integer("derived.placeholder_excess")
    if excess is None:
        return None
    if (view.integer("effective.pipeline_parallel_size") or 1) > 1:
        return "pipeline"
    transformers, vllm = view.version("version.transformers"), view.version("version.vllm")
    if excess == 1 and transformers is not None and transformers < _FIXED:
        return "version"
    by_id = vllm is None or Version("0.7.dev0") <= vllm < Version("0.11.dev0")
    if 0 < excess <= _FEW and view.objects.model is not None and by_id:
        return "generated"
    return "version" if excess == 1 else "prompt"

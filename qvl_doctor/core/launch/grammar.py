"""What takes a value: the protocol that release knowledge fulfils, and a small table for when there is none.

Short options are vLLM's own (`vllm/engine/arg_utils.py`, `vllm/entrypoints/openai/cli_args.py`); none ever changed its
meaning, save -O: the compilation config (0.6.5-0.11), the optimization level since.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from qvl_doctor.core.launch.values import Arity
from qvl_doctor.core.lazy_regex import lazy_regex

SHORT_OPTIONS = {
    "-tp": "--tensor-parallel-size",
    "-pp": "--pipeline-parallel-size",
    "-dp": "--data-parallel-size",
    "-dpn": "--data-parallel-rank",
    "-dpr": "--data-parallel-start-rank",
    "-dpl": "--data-parallel-size-local",
    "-dpa": "--data-parallel-address",
    "-dpp": "--data-parallel-rpc-port",
    "-dpb": "--data-parallel-backend",
    "-dph": "--data-parallel-hybrid-lb",
    "-dpe": "--data-parallel-external-lb",
    "-dcp": "--decode-context-parallel-size",
    "-pcp": "--prefill-context-parallel-size",
    "-ep": "--enable-expert-parallel",
    "-asc": "--api-server-count",
    "-cc": "--compilation-config",
    "-ac": "--attention-config",
    "-sc": "--speculative-config",
    "-q": "--quantization",
    "-n": "--nnodes",
    "-r": "--node-rank",
    "-O": "--optimization-level",
    "-h": "--help",
    "-v": "--version",
}

_SWITCHES_TEXT = """
--aggregate-engine-logging --async-scheduling --calculate-kv-scales --data-parallel-external-lb
--data-parallel-hybrid-lb --disable-async-output-proc --disable-cascade-attn --disable-chunked-mm-input
--disable-custom-all-reduce --disable-fastapi-docs --disable-frontend-multiprocessing
--disable-hybrid-kv-cache-manager --disable-log-requests --disable-log-stats --disable-mm-preprocessor-cache
--disable-sliding-window --disable-uvicorn-access-log --enable-auto-tool-choice --enable-dbo --enable-eplb
--enable-expert-parallel --enable-force-include-usage --enable-log-requests --enable-lora --enable-mm-embeds
--enable-prefix-caching --enable-prompt-adapter --enable-prompt-embeds --enable-prompt-tokens-details
--enable-reasoning --enable-request-id-headers --enable-server-load-tracking --enable-sleep-mode
--enable-ssl-refresh --enforce-eager --engine-use-ray --fully-sharded-loras --headless --help
--interleave-mm-strings --language-model-only --omni --ray-workers-use-nsight --return-tokens-as-token-ids
--skip-mm-profiling --skip-tokenizer-init --trust-remote-code --use-v2-block-manager --version --worker-use-ray
--log-error-stack --disable-nccl-for-dp-synchronization
"""
_SWITCHES = frozenset(_SWITCHES_TEXT.split())
_OPTIONAL = frozenset(("--enable-chunked-prefill", "--multi-step-stream-outputs", "--hf-token"))
_MANY_TEXT = """
--allowed-local-media-domains --cudagraph-capture-sizes --cuda-graph-sizes --lora-modules --middleware
--served-model-name --prompt-adapters --lora-extra-vocab-sizes --long-lora-scaling-factors --media-domains
--allowed-media-domains
"""
_MANY = frozenset(_MANY_TEXT.split())
_SWITCH_LIKE = lazy_regex(r"--(?:enable|disable|use|skip|enforce|trust|no|is|return|async)-")


class FlagGrammar(Protocol):
    """Release knowledge, as far as splitting arguments needs it."""

    def arity(self, flag: str) -> Arity | None:
        """Of a canonical flag ("--max-model-len"); None if that release does not know it."""
        ...


@runtime_checkable
class KnowsNegations(Protocol):
    """A grammar that also says how a switch is turned off."""

    def negation(self, flag: str) -> str | None:
        """ "--no-enable-prefix-caching", or None where the flag has none."""
        ...


class DefaultGrammar:
    """The flags whose number of values matters to splitting, over all releases; what is not listed takes one value."""

    def arity(self, flag: str) -> Arity | None:
        if flag in _SWITCHES:
            return "switch"
        if flag in _OPTIONAL:
            return "optional"
        return "many" if flag in _MANY else None


DEFAULT_GRAMMAR = DefaultGrammar()


def arity_of(flag: str, grammar: FlagGrammar) -> Arity | None:
    """By the grammar; else by the table of all releases; None if neither knows it."""
    return grammar.arity(flag) or DEFAULT_GRAMMAR.arity(flag)


def looks_like_switch(flag: str) -> bool:
    """For flags nobody knows: whether the name is one of a switch."""
    return _SWITCH_LIKE.match(flag) is not None


def negation_of(flag: str, grammar: FlagGrammar) -> str | None:
    """How to turn a switch off. A grammar that does not say is asked for the arity of the negated name."""
    negated = "--no-" + flag[2:]
    if isinstance(grammar, KnowsNegations):
        return grammar.negation(flag)
    if isinstance(grammar, DefaultGrammar):
        return negated
    return negated if grammar.arity(negated) is not None else None

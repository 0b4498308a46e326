"""Small source trees in the styles of different vLLM eras, written for these tests."""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import dedent


@dataclass(frozen=True)
class TextTree:
    """A source tree out of a dictionary: path -> text."""

    files: dict[str, str]
    about: str | None = None

    def read(self, path: str) -> str | None:
        text = self.files.get(path)
        return None if text is None else dedent(text)

    def names(self, prefix: str) -> tuple[str, ...]:
        return tuple(sorted(p for p in self.files if p.startswith(prefix)))

    def metadata(self) -> str | None:
        return self.about


PLAIN = TextTree(
    {
        "vllm/engine/arg_utils.py": """
            import argparse, dataclasses, json
            from vllm.config import SIZES, Mode

            def nullable_str(val):
                return None if not val or val == "None" else val

            @dataclasses.dataclass
            class EngineArgs:
                model: str = "facebook/opt-125m"
                swap_space: float = 4
                block_size: int = 16

                @staticmethod
                def add_cli_args(parser):
                    parser.add_argument("--model", type=str, default=EngineArgs.model)
                    parser.add_argument("--tensor-parallel-size", "-tp", type=int, default=1)
                    parser.add_argument("--block-size", type=int, default=EngineArgs.block_size, choices=SIZES)
                    parser.add_argument("--mode", type=str, choices=[m.value for m in Mode])
                    parser.add_argument("--extra", type=json.loads, default=None)
                    parser.add_argument("--revision", type=nullable_str)
                    parser.add_argument("--old-way", action="store_true", help="(DEPRECATED. Use --mode instead)")
                    return parser

            @dataclasses.dataclass
            class AsyncEngineArgs(EngineArgs):
                @staticmethod
                def add_cli_args(parser, async_args_only=False):
                    if not async_args_only:
                        parser = EngineArgs.add_cli_args(parser)
                    parser.add_argument("--disable-log-requests", action="store_true")
                    return parser
        """,
        "vllm/config.py": """
            import enum
            SIZES = [8, 16, *[32, 64]]

            class Mode(str, enum.Enum):
                FAST = "fast"
                SAFE = "safe"
        """,
        "vllm/entrypoints/openai/cli_args.py": """
            import argparse
            from vllm.engine.arg_utils import AsyncEngineArgs

            def make_arg_parser():
                parser = argparse.ArgumentParser(description="server")
                parser.add_argument("--host", type=str, default=None)
                parser.add_argument("--port", type=int, default=2 * 4000)
                for name in ("keyfile", "certfile", "ca", "ciphers"):
                    parser.add_argument(f"--ssl-{name}", type=str)
                parser = AsyncEngineArgs.add_cli_args(parser)
                return parser
        """,
        "vllm/entrypoints/openai/api_server.py": """
            from vllm.entrypoints.openai.cli_args import make_arg_parser

            def parse_args():
                parser = make_arg_parser()
                return parser.parse_args()

            if __name__ == "__main__":
                args = parse_args()
        """,
    },
    "Name: vllm\nVersion: 0.4.9\nRequires-Dist: torch==2.1.2\nRequires-Dist: foo; extra == 'x'\n",
)

CONFIGS = TextTree(
    {
        "vllm/engine/arg_utils.py": """
            import argparse, json
            from dataclasses import dataclass, fields
            from vllm.config import CacheConfig, ModelConfig, get_field
            from vllm.utils import FlexibleArgumentParser, human_readable_int

            def parse_type(return_type):
                return return_type

            def optional_type(return_type):
                return return_type

            def literal_to_kwargs(type_hints):
                kwarg = "metavar" if contains_type(type_hints, str) else "choices"

            def union_dict_and_str(val):
                return val

            def _compute_kwargs(cls):
                for field in fields(cls):
                    name = field.name
                    dataclass_cls = None
                    if name in {"max_model_len"}:
                        kwargs[name]["type"] = human_readable_int
                    elif x:
                        kwargs[name]["type"] = union_dict_and_str

            def get_kwargs(cls):
                return _compute_kwargs(cls)

            @dataclass
            class EngineArgs:
                @staticmethod
                def add_cli_args(parser):
                    model_kwargs = get_kwargs(ModelConfig)
                    group = parser.add_argument_group(title="ModelConfig")
                    group.add_argument("--model", **model_kwargs["model"])
                    group.add_argument("--dtype", **model_kwargs["dtype"])
                    group.add_argument("--max-model-len", **model_kwargs["max_model_len"])
                    group.add_argument("--enforce-eager", **model_kwargs["enforce_eager"])
                    group.add_argument("--hf-overrides", **model_kwargs["hf_overrides"])
                    group.add_argument("--limits", **model_kwargs["limits"])
                    cache_kwargs = get_kwargs(CacheConfig)
                    cache_kwargs["kv_dtype"]["choices"].remove("b")
                    group.add_argument("--enable-caching", **cache_kwargs["enable_caching"])
                    group.add_argument("--kv-dtype", **cache_kwargs["kv_dtype"])
                    group.add_argument("--open-kind", **cache_kwargs["open_kind"])
                    group.add_argument("--sizes", **cache_kwargs["sizes"])
                    group.add_argument("--cache", **model_kwargs["cache"])
                    return parser

            @dataclass
            class AsyncEngineArgs(EngineArgs):
                @staticmethod
                def add_cli_args(parser, async_args_only=False):
                    parser = EngineArgs.add_cli_args(parser)
                    parser.add_argument("--gone-soon", type=str, deprecated=True)
                    return parser
        """,
        "vllm/config/__init__.py": '''
            from typing import TYPE_CHECKING, Any, ClassVar, Literal, Optional, Union
            from dataclasses import field
            from vllm.config.utils import config, get_field
            if TYPE_CHECKING:
                from vllm.methods import Methods
            else:
                Methods = Any

            Inner = Literal["b", "a"]
            Kind = Literal["auto", Inner]

            @config
            class CacheConfig:
                note: ClassVar[int] = 3
                enable_caching: Optional[bool] = None
                """Whether to cache."""
                kv_dtype: Kind = "auto"
                open_kind: Union[str, Literal["x", "y"], None] = None
                sizes: list[int] = field(default_factory=lambda: [1, 2])

            @config
            class ModelConfig:
                model: str = "m"
                dtype: Literal["auto", "half"] | None = "auto"
                max_model_len: int | None = None
                enforce_eager: bool = False
                hf_overrides: dict[str, Any] | Any = field(default_factory=dict)
                limits: dict[str, int] = field(default_factory=dict)
                cache: CacheConfig | None = None
        ''',
        "vllm/config/utils.py": """
            def config(cls):
                return dataclass(cls, config=ConfigDict(extra="forbid"))

            def get_field(cls, name):
                return name
        """,
        "vllm/utils.py": """
            import argparse
            from argparse import ArgumentParser, BooleanOptionalAction

            class Pair(BooleanOptionalAction):
                _inverse_prefixes = {"--enable-": "--disable-", "--disable-": "--enable-"}

            class FlexibleArgumentParser(ArgumentParser):
                def __init__(self):
                    self.register("action", BooleanOptionalAction, Pair)

                def parse_args(self, args=None):
                    if "--config" in args:
                        pass
                    key = key.replace("_", "-")
                    def create_nested_dict(keys, value):
                        return value
                    if arg.startswith("-O"):
                        processed_args += ["--optimization-level", arg[2:]]
        """,
        "vllm/entrypoints/openai/cli_args.py": """
            import argparse, json
            from dataclasses import field
            from vllm.config import config
            from vllm.engine.arg_utils import AsyncEngineArgs

            @config
            class BaseArgs:
                port: int = 8000
                origins: list[str] = field(default_factory=lambda: ["*"])

                @classmethod
                def _customize(cls, frontend_kwargs):
                    frontend_kwargs["origins"]["type"] = json.loads
                    del frontend_kwargs["origins"]["nargs"]
                    return frontend_kwargs

                @classmethod
                def add_cli_args(cls, parser):
                    from vllm.engine.arg_utils import get_kwargs
                    frontend_kwargs = cls._customize(get_kwargs(cls))
                    group = parser.add_argument_group(title="x")
                    for key, value in frontend_kwargs.items():
                        group.add_argument(f"--{key.replace('_', '-')}", **value)
                    return parser

            @config
            class FrontendArgs(BaseArgs):
                host: str | None = None

                @classmethod
                def _customize(cls, frontend_kwargs):
                    frontend_kwargs = super()._customize(frontend_kwargs)
                    frontend_kwargs["host"]["default"] = "::"
                    return frontend_kwargs

            def make_arg_parser(parser):
                parser.add_argument("model_tag", nargs="?")
                parser.add_argument("--headless", action="store_true", default=False)
                parser = FrontendArgs.add_cli_args(parser)
                return AsyncEngineArgs.add_cli_args(parser)
        """,
        "vllm/entrypoints/cli/serve.py": """
            from vllm.entrypoints.openai.cli_args import make_arg_parser
            from vllm.utils import FlexibleArgumentParser

            class ServeSubcommand:
                name = "serve"

                def subparser_init(self, subparsers):
                    serve_parser = subparsers.add_parser(self.name, help="x")
                    serve_parser = make_arg_parser(serve_parser)
                    return serve_parser
        """,
        "vllm/envs.py": """
            import os
            from typing import TYPE_CHECKING, Optional
            if TYPE_CHECKING:
                VLLM_A: int = 5
                VLLM_B: Optional[str] = None
            environment_variables = {
                "VLLM_A": lambda: int(os.getenv("VLLM_A", "5")),
                "VLLM_B": env_with_choices("VLLM_B", None, ["x", "y"]),
            }
        """,
        "vllm/v1/metrics/loggers.py": """
            class L:
                def __init__(self):
                    labelnames = ["model_name", "engine"]
                    self.a = self._gauge_cls(name="vllm:running", documentation="d", labelnames=labelnames)
                    self.b = Counter("vllm:tokens", "d", labelnames + ["reason"])
                    if self.show_hidden_metrics:
                        self.c = Histogram(name="vllm:old", documentation="d", labelnames=labelnames)
        """,
    }
)

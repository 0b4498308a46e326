"""`--help` in Chinese: the texts of `cli` by their English wording, and the formatter that puts them in."""

from __future__ import annotations

import argparse

from qvl_doctor.wrapping import wrapped

_USAGE, _EXAMPLES = "usage: ", "examples:\n"
_CHINESE_USAGE = "用法： "  # as many cells, so that the lines after it stay aligned

TEXTS = {
    # of argparse itself
    "positional arguments": "位置参数",
    "options": "选项",
    "show this help message and exit": "显示本帮助并退出",
    "show program's version number and exit": "显示版本号并退出",
    # commands
    "Finds out why Qwen-VL on vLLM does not start, dies, hangs or is slow.": (
        "找出 Qwen-VL 在 vLLM 上起不来、崩溃、卡住或变慢的原因。"
    ),
    "what is wrong, the line that proves it, and the corrected command": "问题在哪、能证明它的那一行，以及改好的命令",
    "Diagnoses a vLLM server from whatever is at hand: a log, a launch command, a word about the GPUs.": (
        "根据手头的材料诊断 vLLM 服务：日志、启动命令、显卡型号，有一样就行。"
    ),
    "the corrected launch command and the differences": "改好的启动命令和改动之处",
    "Prints the corrected launch command with the differences. Nothing is changed.": (
        "输出改好的启动命令和改动之处，不修改任何文件。"
    ),
    "list, show and test the rules": "列出、查看、测试规则",
    "The rules, built in and your own.": "内置的和自己的规则。",
    "every rule with its title": "所有规则及其标题",
    "one rule: what it means, how it is seen, what mends it": "一条规则：含义、识别依据、解决办法",
    "check rule files and run their samples": "检查规则文件并运行其中的样例",
    "what a vLLM version accepts, and one flag's history": "某个 vLLM 版本支持的参数，以及某个参数的历史",
    "The flags of a vLLM release or installation; with a flag's name, its history over all releases.": (
        "某个 vLLM 版本或安装支持的参数；给出参数名，则显示它在各版本里的变化。"
    ),
    # what is at hand
    "what is at hand": "手头的材料",
    "the launch command": "启动命令",
    "a script, compose file, manifest, systemd unit, vLLM YAML, Python or article (-: standard input)": (
        "脚本、compose 文件、Kubernetes 清单、systemd 单元、vLLM 的 YAML、Python 或文章（-：标准输入）"
    ),
    "a vLLM log of any version and size (-: standard input)": "任何版本、任意大小的 vLLM 日志（-：标准输入）",
    "a running server on this host": "本机上正在运行的服务的进程号",
    "the GPUs, as people write them: 'RTX 3090', '4x A100 80GB'": (
        "显卡，平时怎么写就怎么写：'RTX 3090'、'4x A100 80GB'"
    ),
    "facts about the host as JSON": "主机情况的 JSON 文件",
    "vLLM's version, where neither log nor command tells": "vLLM 的版本，日志和命令里都看不出时给出",
    "a vLLM installation to read flags and defaults from": "从这个 vLLM 安装读取参数和默认值",
    "the model, where the command does not name it": "模型，命令里没有写明时给出",
    "what another vLLM release means for this command": "换到另一个 vLLM 版本对这条命令意味着什么",
    # rules and flags
    "rules": "规则",
    "a folder with rules of your own": "自己的规则所在的目录",
    "leave this rule out": "不用这条规则",
    "a rule file or folder (default: the built-in rules)": "规则文件或目录（默认：内置规则）",
    "the release (default: the newest known)": "版本（默认：已知的最新版本）",
    "an installation: site-packages/vllm, a virtual environment": "一个安装：site-packages/vllm 或虚拟环境",
    "a running server: the installation that runs it": "正在运行的服务的进程号：用它所在的安装",
    "show this flag's history": "显示这个参数的历史",
    # output
    "output": "输出",
    "one JSON document on stdout": "标准输出只有一个 JSON 文档",
    "language (default: from the locale)": "语言（默认看系统语言）",
    "also name the rules that lack a fact": "同时列出因缺少信息而未定的规则",
}


class ChineseHelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Replaces each text by its Chinese one; what has none stays English. Examples are commands and stay."""

    def start_section(self, heading: str | None) -> None:
        super().start_section(_chinese(heading))

    def add_text(self, text: str | None) -> None:
        if text is not None and text.startswith(_EXAMPLES):
            text = f"示例:\n{text.removeprefix(_EXAMPLES)}"
        super().add_text(_chinese(text))

    def format_help(self) -> str:
        return super().format_help().replace(_USAGE, _CHINESE_USAGE, 1)

    def _get_help_string(self, action: argparse.Action) -> str | None:
        return _chinese(action.help)

    def _split_lines(self, text: str, width: int) -> list[str]:
        return wrapped(text, width)


def _chinese(text: str | None) -> str | None:
    return None if text is None else TEXTS.get(text, text)

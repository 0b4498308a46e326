"""Rule patterns: what they see of a line, what they never see, what is told of a match."""

# ruff: noqa: E501  # log lines are quoted as they are written

from __future__ import annotations

import re
import time

import pytest

from qvl_doctor.core.logs import LinePattern, LogReader, LogSummary, regex_problem

EVIL = "CUDA out of memory. Killed. ValueError: To serve at least one request"


def read(text: str, *patterns: str) -> LogSummary:
    reader = LogReader([LinePattern(f"p{number}", regex) for number, regex in enumerate(patterns)], source="server.log")
    reader.feed(text.encode())
    return reader.finish()


@pytest.mark.parametrize(
    "line",
    [
        f"INFO 01-02 03:04:05 [logger.py:42] Received request chatcmpl-1: prompt: '{EVIL}', params: SamplingParams(n=1)",
        f"(APIServer pid=1) INFO 01-02 03:04:05 [entrypoints/logger.py:42] Received request {EVIL}: params",
        f"DEBUG 01-02 03:04:05 [logger.py:42] Request chatcmpl-1 details: prompt: '{EVIL}'",
        f"INFO 01-02 03:04:05 [logger.py:42] Generated response chatcmpl-1: output: '{EVIL}'",
        f'INFO:     127.0.0.1:1 - "GET /{EVIL.replace(" ", "%20")} HTTP/1.1" 404 Not Found',
        f'INFO:     127.0.0.1:1 - "GET /v1/models?x={EVIL.replace(" ", "+")} HTTP/1.1" 500 Internal Server Error',
        f"ERROR 01-02 03:04:05 [dump_input.py:79] Dumping scheduler output for model execution: {EVIL}",
        f"ERROR 01-02 03:04:05 [dump_input.py:79]   prompt='{EVIL}'",
        f"ERROR 01-02 03:04:05 [s.py:1] RuntimeError: Failed to apply Processor on data={{'text': '{EVIL}', 'images': []}}",
        '{"log":"INFO 01-02 03:04:05 [logger.py:42] Received request c-1: prompt: \''
        + EVIL
        + '\'\\n","stream":"stdout"}',
    ],
)
@pytest.mark.parametrize("times", [1, 3])
def test_what_clients_wrote_is_never_matched(line: str, times: int) -> None:
    summary = read(f"{line}\n" * times, "CUDA out of memory", r"\bKilled\b", "To serve at least", r"%20|\+out")
    assert summary.matches == {}
    assert summary.oom is None


def test_the_error_around_a_request_s_text_is_matched() -> None:
    line = "ERROR 01-02 03:04:05 [s.py:1] RuntimeError: Failed to apply Qwen2VLProcessor on data={'text': 'hi', 'images': [<PIL size=9x27>]}"
    match = read(line + "\n", r"Failed to apply (?P<processor>\w+) on data=.*size=(?P<size>\w+)").matches["p0"].first[0]
    assert match.groups == {"processor": "Qwen2VLProcessor", "size": "9x27"}


def test_access_lines_show_method_path_and_status() -> None:
    line = 'INFO:     10.0.0.2:45100 - "POST /v1/chat/completions HTTP/1.1" 404 Not Found\n'
    summary = read(line * 3, r'"POST /v1/chat/completions HTTP/1\.1" 404')
    assert summary.matches["p0"].count == 3
    assert summary.http_errors == {404: 3}


def test_requests_are_counted_by_the_logger_s_words() -> None:
    form = "INFO 01-02 03:04:05 [logger.py:42] Received request c-{0}: prompt: '<|{1}_pad|> {2}', params: x\n"
    added = "INFO 01-02 03:04:05 [async_llm.py:2] Added request c-1.\n"
    text = "".join(form.format(n, kind, EVIL) for n, kind in enumerate(["image", "video", "image", "none"]))
    summary = read(text + added, "Added request ", "Received request", "Killed")
    facts = {name: sighting.value for name, sighting in summary.facts.items()}
    assert facts == {"requests_received": 4, "requests_with_image": 2, "requests_with_video": 1, "requests_added": 1}
    assert set(summary.matches) == {"p0", "p1"}
    assert summary.matches["p1"].first[0].text == "INFO 01-02 03:04:05 [logger.py:42] Received request"
    assert summary.phase == "serving"


def test_answers_can_be_asked_for() -> None:
    line = 'INFO:     10.0.0.2:45100 - "POST /v1/chat/completions HTTP/1.1" 200 OK\n'
    summary = read(line * 50, " 200 OK", "401")
    assert set(summary.matches) == {"p0"}


def test_first_matches_last_match_and_count() -> None:
    text = "".join(f"WARNING 01-02 03:04:05 [shm.py:1] waited {n} s\n" for n in range(1, 11))
    matches = read(text, r"waited (?P<s>\d+) s").matches["p0"]
    assert matches.count == 10
    assert [match.groups["s"] for match in matches.first] == ["1", "2", "3", "4"]
    assert (matches.last.groups["s"], matches.last.where) == ("10", "server.log:10")


def test_several_regexes_of_one_key_count_a_line_once() -> None:
    reader = LogReader([LinePattern("k", "alpha"), LinePattern("k", "omega")])
    reader.feed(b"alpha and omega\nomega\n")
    assert reader.finish().matches["k"].count == 2


def test_a_long_line_keeps_the_part_that_matched() -> None:
    text = "ERROR 01-02 03:04:05 [a.py:1] " + "x" * 2500 + " the very fault here " + "y" * 9000 + " the end"
    summary = read(text + "\n", "very (?P<what>fault)", "the end$", "y{4500}")
    assert "the very fault here" in summary.matches["p0"].first[0].text
    assert len(summary.matches["p0"].first[0].text) <= 600
    assert "p1" in summary.matches, "the tail is looked at"
    assert "p2" not in summary.matches, "the middle is not"


def test_groups_that_took_no_part_are_absent() -> None:
    match = read("fault 5\n", r"fault (?:(?P<n>\d+)|(?P<word>\w+))").matches["p0"].first[0]
    assert match.groups == {"n": "5"}


def test_matches_are_those_of_the_deciding_start() -> None:
    banner = "INFO 01-02 03:04:05 [a.py:1] vLLM API server version 0.9.0\n"
    summary = read(banner + "ValueError: bad\n" + banner + "INFO:     Application startup complete.\n", "ValueError")
    assert summary.matches == {}


def test_nothing_is_matched_while_a_server_stops_on_request() -> None:
    text = (
        "INFO:     Application startup complete.\n"
        "INFO 01-02 03:04:05 [launcher.py:79] Shutting down FastAPI HTTP server.\n"
        "ERROR 01-02 03:04:05 [a.py:1] EngineDeadError: EngineCore encountered an issue.\n"
    )
    summary = read(text, "EngineDeadError")
    assert (summary.state, summary.matches, summary.failures) == ("ready", {}, ())


def test_a_slow_regex_sees_little_of_a_line() -> None:
    """Three repeats of nearly anything cost the cube of the length."""
    text = "ERROR 01-02 03:04:05 [a.py:1] fault " + "ab" * 30_000 + "\n"
    started = time.monotonic()
    read(text, r"fault .*(?:a.*b.*)c$")
    assert time.monotonic() - started < 20


@pytest.mark.parametrize("regex", [r"(a+)+$", r"x(\w+\s?)*y", r"(?:.*,)+z", r"(?:(?:ab)*)*c", r"((?:x|y+)+)+q"])
def test_a_regex_of_exponential_cost_is_refused(regex: str) -> None:
    assert regex_problem(regex) is not None
    with pytest.raises(re.error):
        LogReader([LinePattern("bad", regex)])


@pytest.mark.parametrize("regex", [r"(?:\d+, )+end", r"a.*b.*c", r"(?:x|y)+", r"(?P<n>\d+) of (?P<m>\S+)"])
def test_ordinary_regexes_are_accepted(regex: str) -> None:
    assert regex_problem(regex) is None


def test_a_bad_regex_is_refused_at_once() -> None:
    with pytest.raises(re.error):
        LogReader([LinePattern("bad", "(")])

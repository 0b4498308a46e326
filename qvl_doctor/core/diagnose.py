"""The diagnosis: observations in, one report out. Pure; the edges supply the inputs and the release knowledge."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from qvl_doctor.core.derived import load_all
from qvl_doctor.core.evaluate import Undecided, judge
from qvl_doctor.core.facts import Known, Objects, View
from qvl_doctor.core.findings import SEVERITIES, Edit, Evidence, Finding
from qvl_doctor.core.launch import Document, LaunchCommand, edited_command, parse_text
from qvl_doctor.core.lazy_regex import lazy_regex
from qvl_doctor.core.observe import Observed, base_facts
from qvl_doctor.core.phrase import Phrase
from qvl_doctor.core.records import record, replace
from qvl_doctor.core.rules import Rule
from qvl_doctor.core.vllm.flag_problems import LIMIT, NEVER, NOT_YET, QUOTING, REMOVED, TYPO, FlagProblem
from qvl_doctor.core.vllm.flags import check_flags
from qvl_doctor.core.vllm.knowledge import Knowledge

if TYPE_CHECKING:
    from qvl_doctor.core.logs import LogSummary
    from qvl_doctor.core.model import ModelSpec

State = Literal["failed", "starting", "ready", "degraded", "unknown"]
_ROUNDS = 3
_HARMLESS = ("flag-deprecated", "flag-no-effect")  # kinds of flag problems that no parser refuses
_REFUSED_BY_PARSER = (NEVER, NOT_YET, REMOVED, TYPO, LIMIT, QUOTING)
_ENGINE_SOURCES = ("vllm/v1/", "vllm/worker/", "vllm/executor/", "vllm/model_executor/", "vllm/engine/async_llm_engine")
_USAGE_ERROR = "usage error"  # type of a failure that a parser printed
_OF_ARGUMENTS = lazy_regex("positional argument|unexpected keyword|unrecognized arguments|argument --")
_RAISED_WHILE_PARSING = ("json.decoder.JSONDecodeError", "JSONDecodeError", "argparse.ArgumentError", "SystemExit", "")
_NAMED_PROCESSES = ("APIServer", "EngineCore", "Worker", "VllmWorker")
_CONFIDENCE_OF_ASSUMED = "possible"  # a flag problem judged by a version that nobody stated


@record
class Context:
    """What a diagnosis is made with: the rules, the release knowledge, the model if it is one we know."""

    rules: Sequence[Rule]
    knowledge: Knowledge
    model: ModelSpec | None = None
    language: str = "en"
    ignore: frozenset[str] = frozenset()


@record
class CommandReport:
    """One launch command before and after the edits; `not_editable` is the reason where it can't be edited safely."""

    where: str
    before: str
    after: str
    findings: tuple[Finding, ...]
    edits: tuple[Edit, ...]
    not_editable: Phrase | None = None
    recovered: bool = False  # put together from the log's own record of the arguments

    @property
    def changed(self) -> bool:
        return self.before != self.after


@record
class Server:
    """What is known of the server itself; `version_from` is "given", "installation", "log", "launch" or "assumed"."""

    vllm_version: str | None
    version_from: str | None
    model: str | None
    state: State


@record
class Report:
    """The whole answer."""

    server: Server
    findings: tuple[Finding, ...]
    undecided: tuple[Undecided, ...]
    commands: tuple[CommandReport, ...]
    knowledge: str  # where the knowledge of flags comes from
    view: View

    @property
    def worst(self) -> int:
        """Index in SEVERITIES of the worst finding that is no risk; len(SEVERITIES) where there is none."""
        return min((SEVERITIES.index(f.severity) for f in self.findings if not f.risk), default=len(SEVERITIES))


def diagnose(
    observed: Observed, context: Context, document: Document | None = None, *, recovered: bool = False
) -> Report:
    """Judge one server. With `document` holding several commands, each is judged; the log belongs to the first.

    `recovered` says that `observed.launch` was put together from the log.
    """
    load_all()
    view = _view(observed, context, recovered=recovered)
    judgement = judge(
        context.rules, view, context.language, ignore=context.ignore, flag_exists=_flag_test(context.knowledge)
    )
    commands: list[CommandReport] = []
    if observed.launch is not None:
        before, after, edits = _corrected(observed, judgement.findings, context, document, recovered=recovered)
        commands.append(
            CommandReport(
                where=observed.launch.where,
                before=before,
                after=after,
                findings=judgement.findings,
                edits=edits,
                not_editable=None if observed.launch.editable else observed.launch.not_editable_reason,
                recovered=recovered,
            )
        )
    findings = list(judgement.findings)
    for command in () if document is None else document.commands[1:]:
        other = diagnose(Observed(launch=command, gpus=observed.gpus, host=observed.host, version=observed.version,
                                  gpu_text=observed.gpu_text), context)  # fmt: skip
        commands += other.commands
        findings += (one for one in other.findings if not one.risk)
    return Report(
        server=_server(observed, context, view),
        findings=_union(findings) if len(commands) > 1 else judgement.findings,
        undecided=judgement.undecided,
        commands=tuple(commands),
        knowledge=f"{context.knowledge.basis} {context.knowledge.release}",
        view=view,
    )


def _view(observed: Observed, context: Context, *, recovered: bool) -> View:
    facts = base_facts(observed)
    objects = Objects(
        launch=observed.launch,
        log=observed.log,
        knowledge=context.knowledge,
        model=context.model,
        gpus=observed.gpus,
    )
    if context.knowledge.basis == "installation":
        shown = Evidence("host", context.knowledge.source, f"vllm {context.knowledge.release}")
        facts.setdefault("version.vllm", Known(context.knowledge.release, shown))
    if observed.model is not None:
        facts.setdefault("launch.model", Known(observed.model, Evidence("launch", "--model", observed.model)))
    # a command put together from the server's own record of its arguments has passed its parser already
    if observed.launch is not None and not recovered:
        problems = _flag_problems(observed.launch, observed.log, View(facts, objects), context)
        facts["derived.flags"] = Known(tuple(_item(problem, "launch") for problem in problems))
    if observed.log is not None:
        from qvl_doctor.core.refusals import refused_flags  # noqa: PLC0415 - for logs only

        refused = refused_flags(observed.log, context.knowledge, View(facts, objects), context.language)
        facts["derived.refused_flags"] = Known(tuple(_item(problem, "log") for problem in refused))
    return View(facts, objects)


def _flag_problems(
    launch: LaunchCommand, log: LogSummary | None, view: View, context: Context
) -> tuple[FlagProblem, ...]:
    """What is wrong with the flags, less what the log disproves."""
    problems = check_flags(launch, context.knowledge, view, context.language)
    if log is None or not _got_past_its_parser(log):
        return problems
    return tuple(one for one in problems if not _disproved(one, log, context.knowledge))


def _got_past_its_parser(log: LogSummary) -> bool:
    """Whether the start got further than its command line: only later do processes put their names before lines, and
    only later does anything run in the engine."""
    if any(failure.type == _USAGE_ERROR for failure in log.failures):
        return False
    for failure in log.failures:
        if failure.type not in _RAISED_WHILE_PARSING and not _OF_ARGUMENTS.search(failure.message):
            return True  # something else went wrong, so it was later
    named = any((failure.process or "").startswith(_NAMED_PROCESSES) for failure in log.failures)
    named = named or any(line.lstrip("(").startswith(_NAMED_PROCESSES) and " pid=" in line for line in log.tail)
    engine = any(frame.startswith(_ENGINE_SOURCES) for failure in log.failures for frame in failure.frames)
    return named or engine or log.phase not in ("unknown", "start")


def _disproved(problem: FlagProblem, log: LogSummary, known: Knowledge) -> bool:
    """Whether a start that got past its parser shows that the flag was taken.

    What a parser refuses can't have happened, unless the log is of another release than the one asked about. Values
    that are judged later may still be the fault, save by a release that nobody stated.
    """
    if "assumed" in problem.detail:
        return problem.kind not in _HARMLESS
    same_release = log.version is None or str(log.version.value) == known.release
    return problem.kind in _REFUSED_BY_PARSER and same_release


def _item(problem: FlagProblem, source: Literal["launch", "log"]) -> Mapping[str, Any]:
    """A flag problem as a list item of the fact table; `source` is where its evidence stands."""
    fields = {
        "kind": problem.kind,
        "flag": problem.flag,
        "name": problem.name,
        "value": problem.value,
        "where": problem.where,
        "since": problem.since,
        "until": problem.until,
        "nearest": problem.nearest,
        **problem.detail,
    }
    return {name: value for name, value in fields.items() if value is not None} | {
        "edits": problem.edits,
        "evidence": (Evidence(source, problem.where, problem.text),),
        "confidence": _CONFIDENCE_OF_ASSUMED if problem.detail.get("assumed") else None,
    }


def _flag_test(knowledge: Knowledge) -> Any:
    """Whether a flag exists, where the release at hand is known for sure; None where it is only assumed."""

    def exists(flag: str) -> bool | None:
        return None if knowledge.basis == "nearest" else knowledge.flag(flag) is not None

    return exists


def _corrected(
    observed: Observed, findings: Sequence[Finding], context: Context, document: Document | None, *, recovered: bool
) -> tuple[str, str, tuple[Edit, ...]]:
    """The command's text before and after, and the edits between. Of a document with several commands, its own part."""
    launch = observed.launch
    assert launch is not None
    edits = merged(findings)
    whole = document if document is not None and len(document.commands) == 1 else None
    before = launch.text if whole is None else whole.text
    if not launch.editable:
        return before, before, edits
    after = edited_command(launch, edits) if whole is None else whole.edited(0, edits)
    if recovered or not _stands_alone(launch, before, context):
        return before, after, edits
    for _ in range(_ROUNDS):  # lines that were joined and flags that were changed are put to the release once more
        again = parse_text(after, name=launch.where, grammar=context.knowledge)
        more = _flag_edits(again, observed, context)
        new = tuple(edit for edit in more if all((edit.op, edit.name) != (old.op, old.name) for old in edits))
        if not new:
            break
        after, edits = again.edited(0, new), (*edits, *new)
    return before, after, edits


def _stands_alone(launch: LaunchCommand, text: str, context: Context) -> bool:
    """Whether the text reads the same without the page around it (a quoted line of an article does not)."""
    again = parse_text(text, name=launch.where, grammar=context.knowledge)
    return bool(again.commands) and [f.name for f in again.commands[0].flags] == [f.name for f in launch.flags]


def _flag_edits(document: Document, observed: Observed, context: Context) -> tuple[Edit, ...]:
    """What the release would still refuse in the first command of the document, as edits."""
    if not document.commands:
        return ()
    launch = document.commands[0]
    objects = Objects(launch=launch, knowledge=context.knowledge, model=context.model, gpus=observed.gpus)
    view = View(base_facts(replace(observed, launch=launch)), objects)
    problems = _flag_problems(launch, observed.log, view, context)
    serious = (problem for problem in problems if problem.kind not in _HARMLESS and "harmless" not in problem.detail)
    return tuple(edit for problem in serious for edit in problem.edits if edit.safety != "manual")


def merged(findings: Iterable[Finding]) -> tuple[Edit, ...]:
    """The edits that make up the corrected command: the first that names a target wins.

    Manual edits are only shown. Those that change behaviour are taken from faults at warning or above, and from one
    that is merely possible only if it comes first.
    """
    taken: dict[tuple[str, str], Edit] = {}
    for position, finding in enumerate(findings):
        serious = finding.severity != "info" and not finding.risk
        trusted = serious and (finding.confidence != "possible" or position == 0)
        for edit in finding.edits:
            if edit.safety == "manual" or (edit.safety == "unsafe" and not trusted):
                continue
            if edit.op in ("package", "host", "client"):
                continue
            kind = "env" if edit.op in ("env", "unset-env") else "docker" if edit.op == "docker" else "flag"
            taken.setdefault((kind, edit.name), edit)
    return tuple(taken.values())


def _server(observed: Observed, context: Context, view: View) -> Server:
    known = view.known("version.vllm")
    version = None if known is None else str(known.value)
    shown = None if known is None else known.evidence
    source: str = "assumed" if shown is None else "given" if shown.source == "host" else shown.source
    if shown is not None and shown.where == context.knowledge.source:
        source = "installation"
    state: State = "unknown" if observed.log is None else observed.log.state
    model = view.text("launch.model") or view.text("log.model")
    return Server(version, source, model, state)


def _union(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Findings of several commands in order, the same rule with the same evidence once."""
    kept: dict[tuple[str, tuple[Evidence, ...]], Finding] = {}
    for finding in findings:
        kept.setdefault((finding.rule, finding.evidence), finding)
    ordered = sorted(kept.values(), key=lambda one: (one.risk, SEVERITIES.index(one.severity)))
    return tuple(ordered)

"""Lists what no sample of a rule needs: conditions that can be taken out without any of the rule's samples failing.

    python scripts/mutate_rules.py             # all rules
    python scripts/mutate_rules.py tp-exceeds-gpus max-len-exceeds-kv

Each alternative's regexes (`log`, `also`, `never`), phases, release range and clauses are taken out one at a time, and
whole alternatives as well. What is listed is either needless or lacks the sample that shows what it is for: mostly a
silent one, the nearest other cause. The exit status is 0 whatever is listed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from qvl_doctor import resources  # noqa: E402
from qvl_doctor.commands.inputs import Gathered  # noqa: E402
from qvl_doctor.commands.rules import gathered_for  # noqa: E402
from qvl_doctor.core.diagnose import diagnose  # noqa: E402
from qvl_doctor.core.records import replace  # noqa: E402
from qvl_doctor.core.rules import Rule, Sample, When, pattern_key  # noqa: E402
from qvl_doctor.core.samples import checked  # noqa: E402
from qvl_doctor.sources.rule_store import read_rule, rows_of_rules  # noqa: E402

Mutation = tuple[str, Rule, str | None]  # what is taken out, the rule without it, a log pattern to act as unmatched
Case = tuple[Sample, Gathered]


def mutations(rule: Rule) -> Iterator[Mutation]:
    """Every way to take one condition out."""
    for when in rule.when:
        place = f"alternative {when.index + 1}"
        if len(rule.when) > 1:
            yield f"{place} as a whole", _without(rule, when, None), None
        for kind in ("log", "never"):
            for position, regex in enumerate(getattr(when, kind)):
                if kind == "never" or len(when.log) > 1:
                    yield f"{place}: {kind} {regex!r}", rule, pattern_key(rule.id, when.index, kind, position)
        if when.also:
            yield f"{place}: also {when.also!r}", _without(rule, when, replace(when, also=())), None
        if when.phase:
            yield f"{place}: phase {'/'.join(when.phase)}", _without(rule, when, replace(when, phase=())), None
        if when.vllm is not None:
            yield f"{place}: vllm {when.vllm}", _without(rule, when, replace(when, vllm=None)), None
        for clause in when.facts:
            rest = tuple(other for other in when.facts if other is not clause)
            if rest or when.log or when.also:
                yield f"{place}: {clause.spelled()}", _without(rule, when, replace(when, facts=rest)), None


def _without(rule: Rule, when: When, instead: When | None) -> Rule:
    alternatives = tuple(instead if one is when else one for one in rule.when)
    return replace(rule, when=tuple(one for one in alternatives if one is not None))


def survives(rule: Rule, mutation: Mutation, cases: Sequence[Case], rules: Sequence[Rule]) -> bool:
    """Whether all samples of the rule still come out as they should."""
    _, mutant, unmatched = mutation
    changed = tuple(mutant if other.id == rule.id else other for other in rules)
    for sample, gathered in cases:
        observed = gathered.observed
        if unmatched is not None:
            if observed.log is None or unmatched not in observed.log.matches:
                continue
            left = {key: entry for key, entry in observed.log.matches.items() if key != unmatched}
            observed = replace(observed, log=replace(observed.log, matches=left))
        context = replace(gathered.context, rules=changed)
        report = diagnose(observed, context, gathered.document, recovered=gathered.recovered)
        if not checked(mutant, sample, report).passed:
            return False
    return True


def main() -> int:
    """Prints the conditions that no sample needs, rule by rule."""
    parser = argparse.ArgumentParser(description="List conditions of rules that no sample of the rule needs.")
    parser.add_argument("ids", nargs="*", metavar="ID", help="rules to look at (all without any)")
    wanted = set(parser.parse_args().ids)
    read = [read_rule(file)[0] for file in resources.rule_files(resources.rules_folder())]
    rules = tuple(rule for rule in read if rule is not None)
    rows = rows_of_rules(rules)
    tried = needless = 0
    for rule in rules:
        if wanted and rule.id not in wanted:
            continue
        cases = [(sample, gathered_for(sample, rules, rows)) for sample in rule.samples]
        for mutation in mutations(rule):
            tried += 1
            if survives(rule, mutation, cases, rules):
                needless += 1
                print(f"{rule.id}: {mutation[0]}")
    print(f"{tried} conditions taken out, {needless} of them unnoticed")
    return 0


if __name__ == "__main__":
    sys.exit(main())

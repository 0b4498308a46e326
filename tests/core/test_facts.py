"""The view over the facts: unknown is absent, derived facts are lazy and cannot loop."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from qvl_doctor.core.facts import REGISTRY, Known, View, as_number, as_version, derived, shown


@pytest.fixture
def registry() -> Iterator[None]:
    before = dict(REGISTRY)
    yield
    REGISTRY.clear()
    REGISTRY.update(before)


def test_derived_facts_see_the_overlay_and_are_computed_once(registry: None) -> None:
    calls: list[str] = []

    @derived("plan.test_double", "int", "", "twice the match")
    def _double(view: View) -> int | None:
        calls.append("x")
        number = view.integer("match.n")
        return None if number is None else 2 * number

    bare = View({})
    assert bare.value("plan.test_double") is None
    inner = bare.over({"match.n": Known("21")})
    assert inner.value("plan.test_double") == 42
    assert inner.value("plan.test_double") == 42
    assert len(calls) == 2


def test_a_cycle_reads_as_unknown(registry: None) -> None:
    derived("plan.test_a", "int", "", "")(lambda view: view.integer("plan.test_b"))
    derived("plan.test_b", "int", "", "")(lambda view: view.integer("plan.test_a"))
    assert View({}).value("plan.test_a") is None


def test_an_impossible_computation_reads_as_unknown(registry: None) -> None:
    derived("plan.test_zero", "float", "", "")(lambda view: 1 / (view.number("launch.zero") or 0))
    assert View({}).value("plan.test_zero") is None


def test_names_are_taken_once(registry: None) -> None:
    derived("plan.test_once", "int", "", "")(lambda _: 1)
    with pytest.raises(ValueError, match="registered twice"):
        derived("plan.test_once", "int", "", "")(lambda _: 2)


def test_readings() -> None:
    view = View({"a.x": Known("1,024"), "a.y": Known(True), "a.z": Known("0.9.1"), "a.w": Known("on")})
    assert view.integer("a.x") == 1024
    assert view.number("a.y") is None
    assert view.flag("a.w") is True
    assert view.at_least("a.z", "0.9") is True
    assert view.at_least("a.none", "0.9") is None


def test_numbers_versions_and_their_text() -> None:
    assert as_number("nan") is None
    assert as_number("1e999") is None
    assert as_number("x" * 99) is None
    assert as_version("v0.8.5") is not None
    assert as_version("main") is None
    assert shown(3.0) == "3"
    assert shown(2.345) == "2.35"
    assert shown(False) == "false"

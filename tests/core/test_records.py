"""A record behaves as a frozen, slotted dataclass of the same fields does."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qvl_doctor.core.records import field, record, replace


@record
class Point:
    """A place."""

    x: int
    y: int = 2
    tags: Mapping[str, str] = field(default_factory=dict)
    source: str = field(default="", aside=True)

    @property
    def total(self) -> int:
        return self.x + self.y


@dataclasses.dataclass(frozen=True, slots=True)
class Model:
    x: int
    y: int = 2
    tags: Mapping[str, str] = dataclasses.field(default_factory=dict)
    source: str = dataclasses.field(default="", repr=False, compare=False)


@record(frozen=False)
class Counter:
    count: int = 0


@given(
    st.lists(st.integers(0, 2), max_size=5),
    st.dictionaries(st.sampled_from(["x", "y", "source", "z"]), st.integers(0, 2), max_size=3),
)
def test_it_takes_what_a_dataclass_takes(values: list[Any], named: dict[str, Any]) -> None:
    try:
        expected = Model(*values, **named)
    except TypeError:
        with pytest.raises(TypeError):
            Point(*values, **named)
        return
    made = Point(*values, **named)
    assert repr(made) == repr(expected).replace("Model", "Point")
    assert made == Point(*values, **named)
    assert (made.x, made.y, made.tags, made.source) == (expected.x, expected.y, expected.tags, expected.source)


def test_equality_is_that_of_class_and_fields() -> None:
    assert Point(1) == Point(1, 2, {})
    assert Point(1) != Point(2)
    others: tuple[object, ...] = (Model(1), (1, 2, {}))
    assert Point(1) not in others
    assert Point(1, source="a") == Point(1, source="b")
    assert hash(Point(1, 2, (), "a")) == hash(Point(1, 2, ()))  # type: ignore[arg-type]  # no mapping can be hashed
    assert Point(1).tags is not Point(1).tags


def test_it_is_frozen_and_has_slots_only() -> None:
    point = Point(1)
    for name in ("x", "unknown"):
        with pytest.raises(AttributeError):
            setattr(point, name, 5)
    with pytest.raises(AttributeError):
        del point.x
    assert not hasattr(point, "__dict__")
    assert point.total == 3
    assert Point.__doc__ == "A place."
    assert Point.__qualname__ == "Point"


def test_a_record_that_is_not_frozen_is_compared_but_not_hashed() -> None:
    counter = Counter()
    counter.count += 1
    assert counter == Counter(1)
    with pytest.raises(TypeError):
        hash(counter)
    with pytest.raises(AttributeError):
        counter.other = 1  # type: ignore[attr-defined]


def test_replace_copy_pickle_and_match() -> None:
    point = Point(1, 5, {"a": "b"})
    assert replace(point, x=3) == Point(3, 5, {"a": "b"})
    with pytest.raises(TypeError):
        replace(point, z=3)
    assert copy.deepcopy(point) == point == pickle.loads(pickle.dumps(point))
    match point:
        case Point(x, y):
            assert (x, y) == (1, 5)

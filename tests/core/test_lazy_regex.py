"""Regexes compiled late are good ones, and behave as compiled ones do."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator

import pytest

import qvl_doctor
from qvl_doctor.core.lazy_regex import LazyRegex, lazy_regex


def lazy_ones(value: object) -> Iterator[LazyRegex]:
    if isinstance(value, LazyRegex):
        yield value
    elif isinstance(value, tuple | list):
        for item in value:
            yield from lazy_ones(item)
    elif isinstance(value, dict):
        yield from lazy_ones([*value, *value.values()])


def test_every_one_in_the_package_compiles() -> None:
    count = 0
    for module in pkgutil.walk_packages(qvl_doctor.__path__, "qvl_doctor."):
        if not module.name.endswith("__main__"):
            for one in lazy_ones(list(vars(importlib.import_module(module.name)).values())):
                assert isinstance(one.pattern, str | bytes)
                count += 1
    assert count > 100


def test_it_does_what_a_compiled_one_does() -> None:
    late, early = lazy_regex(r"(?P<n>\d)x", re.IGNORECASE), re.compile(r"(?P<n>\d)x", re.IGNORECASE)
    for _ in range(2):
        found, expected = late.search("a 4X"), early.search("a 4X")
        assert found is not None and expected is not None and found.groupdict() == expected.groupdict()
    assert (late.pattern, late.flags, late.groupindex) == (early.pattern, early.flags, early.groupindex)
    assert late.sub("-", "1x2X") == "--"
    assert lazy_regex(rb"\d").findall(b"a1b2") == [b"1", b"2"]


def test_a_wrong_one_says_so_when_it_is_used() -> None:
    wrong = lazy_regex("(")
    with pytest.raises(re.error):
        wrong.search("")

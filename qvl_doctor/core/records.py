"""Values with named fields, frozen and slotted: what `dataclasses` gives, without what it costs at start-up.

A dataclass writes the source of its methods and compiles it, which takes 0.7 ms for each class, and `dataclasses`
imports `inspect`. With ninety of them loaded by every run that was a third of the time of a short diagnosis. The
methods here are closures over the fields instead: a class takes a twentieth, an instance about twice as long.
Type checkers know a record as a dataclass. Modules that only rare commands load may well use `dataclasses`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, dataclass_transform, overload

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

T = TypeVar("T")
_MISSING: Any = object()


class _Field:
    """What a class body says of one field besides its type."""

    def __init__(self, make: Callable[[], Any], *, aside: bool) -> None:
        self.make = make
        self.aside = aside


@overload
def field(*, default: T, aside: bool = False) -> T: ...


@overload
def field(*, default_factory: Callable[[], T], aside: bool = False) -> T: ...


def field(*, default: Any = None, default_factory: Callable[[], Any] | None = None, aside: bool = False) -> Any:
    """A field whose default is made for each instance, or that stands `aside`: left out of `==`, hash and `repr`."""
    return _Field(default_factory or (lambda: default), aside=aside)


@overload
def record(cls: type[T], /) -> type[T]: ...


@overload
def record(*, frozen: bool = True) -> Callable[[type[T]], type[T]]: ...


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(cls: type[T] | None = None, /, *, frozen: bool = True) -> type[T] | Callable[[type[T]], type[T]]:
    """Makes a class of annotated fields a record: `__init__`, `==`, `repr`, `__match_args__` and slots.

    Frozen records are hashable and refuse to be changed. There is no inheritance of fields.
    """
    if cls is None:
        return lambda decorated: _made(decorated, frozen=frozen)
    return _made(cls, frozen=frozen)


def replace(instance: T, **changes: Any) -> T:
    """A copy of a record with some fields changed. Raises TypeError for a name that is no field."""
    return type(instance)(**dict(zip(_names(instance), astuple(instance), strict=True)) | changes)


def astuple(instance: object) -> tuple[Any, ...]:
    """The values of a record's fields, in their order."""
    return tuple([getattr(instance, name) for name in _names(instance)])


def _names(instance: Any) -> tuple[str, ...]:
    names: tuple[str, ...] = instance.__match_args__
    return names


def _made(cls: type[T], *, frozen: bool) -> type[T]:
    names = tuple(cls.__annotations__)
    namespace = {name: value for name, value in vars(cls).items() if name not in ("__dict__", "__weakref__")}
    defaults = {name: namespace.pop(name) for name in names if name in namespace}
    aside = {name for name, default in defaults.items() if isinstance(default, _Field) and default.aside}
    namespace |= {"__slots__": names, "__match_args__": names, "__qualname__": cls.__qualname__}
    make_class: Any = type(cls)  # slots can only be given to a new class
    slotted: type[T] = make_class(cls.__name__, cls.__bases__, namespace)
    methods = _methods(tuple(name for name in names if name not in aside))
    methods["__init__"] = _initializer(cls.__name__, names, defaults, [vars(slotted)[name].__set__ for name in names])
    if frozen:
        methods["__setattr__"] = methods["__delattr__"] = _refuse
    else:
        methods["__hash__"] = None  # it is compared by what it holds, and that may change
    for name, method in methods.items():
        if name not in namespace:
            setattr(slotted, name, method)
    return slotted


def _initializer(
    class_name: str, names: tuple[str, ...], defaults: dict[str, Any], setters: Iterable[Callable[[Any, Any], None]]
) -> Callable[..., None]:
    setters = tuple(setters)
    count = len(names)

    def completed(values: tuple[Any, ...], named: dict[str, Any]) -> list[Any]:
        full = list(values)
        for name in names[len(values) :]:
            value = named.pop(name, _MISSING)
            if value is _MISSING:
                value = defaults.get(name, _MISSING)
                if value is _MISSING:
                    raise TypeError(f"{class_name} needs {name!r}")
                if isinstance(value, _Field):
                    value = value.make()
            full.append(value)
        if named:
            raise TypeError(f"{class_name} does not take {', '.join(map(repr, named))}, or takes it once only")
        return full

    def __init__(self: Any, *values: Any, **named: Any) -> None:  # noqa: N807 - becomes the class's own
        if named or len(values) < count:
            values = tuple(completed(values, named))
        elif len(values) > count:
            raise TypeError(f"{class_name} takes {count} values, got {len(values)}")
        for put, value in zip(setters, values, strict=True):
            put(self, value)

    return __init__


def _methods(telling: tuple[str, ...]) -> dict[str, Any]:
    def values_of(instance: Any) -> tuple[Any, ...]:
        return tuple([getattr(instance, name) for name in telling])

    def equal(self: Any, other: object) -> Any:
        return values_of(self) == values_of(other) if other.__class__ is self.__class__ else NotImplemented

    def shown(self: Any) -> str:
        return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in telling)})"

    return {
        "__eq__": equal,
        "__hash__": lambda self: hash(values_of(self)),
        "__repr__": shown,
        "__reduce__": lambda self: (type(self), astuple(self)),  # a copy sets no attribute of what is frozen
    }


def _refuse(self: Any, name: str, *_value: Any) -> None:
    raise AttributeError(f"{type(self).__name__} is frozen: {name} cannot be changed")

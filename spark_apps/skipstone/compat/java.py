"""Objects in the JVM of a Spark session as Python's types see them, and how their classes are found.

Objects of py4j have every attribute, so a name that the JVM does not have fails only when it is used. With these
types, and those of ``catalyst`` and ``icebergjava``, mypy refuses a name that is not declared, and a test looks up each
that is in the real JVM. Must not know Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, reduce
from itertools import pairwise
from typing import Any, Generic, Protocol, TypeVar, cast

Held = TypeVar("Held", covariant=True)
Seen = TypeVar("Seen")
Kind = TypeVar("Kind", bound=type)

_INITIALISED = (True,)
#: Characters of a text that go over at once, fewer than a buffer of the gateway has bytes.
PIECE = 6_000
#: The class in the JVM that each type describes.
DESCRIBED: dict[type, str] = {}


def described(name: str) -> Callable[[Kind], Kind]:
    """Says which class in the JVM a type describes; a singleton ends with ``$``."""

    def remember(kind: Kind) -> Kind:
        DESCRIBED[kind] = name
        return kind

    return remember


class Jvm(Protocol):
    """The JVM of a session; ``java_class`` and ``scala_object`` find its classes."""

    def __hash__(self) -> int: ...


@described("java.lang.Object")
class JavaObject(Protocol):
    """Any object in the JVM."""

    def getClass(self) -> JavaType: ...
    def equals(self, other: object) -> bool: ...
    def toString(self) -> str: ...


@described("java.lang.Class")
class JavaType(JavaObject, Protocol):
    """A class as an object."""

    def getName(self) -> str: ...
    def getSimpleName(self) -> str: ...


@described("java.util.Map")
class JavaMap(JavaObject, Protocol):
    """A map of texts; py4j shows its keys as a set."""

    def get(self, key: str) -> str | None: ...
    def isEmpty(self) -> bool: ...
    def keySet(self) -> Iterable[str]: ...
    def put(self, key: object, value: str) -> object: ...
    def putIfAbsent(self, key: object, value: str) -> object: ...
    def remove(self, key: object) -> str: ...


class JavaArray(JavaObject, Protocol):
    """An array, which py4j shows as a sequence of what stays in the JVM."""

    def __len__(self) -> int: ...


@described("java.lang.StringBuilder")
class StringBuilder(JavaObject, Protocol):
    """A text that stays in the JVM."""

    def length(self) -> int: ...
    def substring(self, start: int, end: int) -> str: ...
    def codePointCount(self, start: int, end: int) -> int: ...
    def offsetByCodePoints(self, index: int, count: int) -> int: ...


@described("java.lang.ref.ReferenceQueue")
class ReferenceQueue(JavaObject, Protocol):
    """References to objects that nothing holds any more."""

    def poll(self) -> JavaObject | None: ...


@described("scala.collection.immutable.Seq")
class Seq(JavaObject, Protocol[Held]):
    """A sequence of Scala's."""

    def size(self) -> int: ...
    def apply(self, index: int) -> Held: ...
    def updated(self, index: int, value: JavaObject) -> Seq[Held]: ...


@described("scala.Option")
class Option(JavaObject, Protocol[Held]):
    """A value or none."""

    def isDefined(self) -> bool: ...
    def isEmpty(self) -> bool: ...
    def get(self) -> Held: ...


class JavaName(Generic[Seen]):
    """The name of a class whose constructor and static methods look like ``Seen``."""

    def __init__(self, name: str) -> None:
        self.name = name


class ScalaName(Generic[Seen]):
    """The name of a singleton that looks like ``Seen``."""

    def __init__(self, name: str) -> None:
        self.name = name


ARRAY_LIST, SOME = "java.util.ArrayList", "scala.Some"
HASH_MAP: JavaName[Callable[..., JavaMap]] = JavaName("java.util.HashMap")
REFERENCE_QUEUE: JavaName[Callable[[], ReferenceQueue]] = JavaName("java.lang.ref.ReferenceQueue")
WEAK_REFERENCE: JavaName[Callable[[JavaObject, ReferenceQueue], JavaObject]] = JavaName("java.lang.ref.WeakReference")
NONE: ScalaName[Option[JavaObject]] = ScalaName("scala.None")
EMPTY_SEQ: ScalaName[Seq[JavaObject]] = ScalaName("scala.collection.immutable.Nil")


def java_class(jvm: Jvm, name: JavaName[Seen]) -> Seen:
    """A class: its constructor and static methods."""
    return cast(Seen, _members(jvm, name.name))


@lru_cache(maxsize=256)
def _members(jvm: Jvm, name: str) -> _Members:
    return _Members(class_named(jvm, name))


class _Members:
    """A class whose static methods are looked up once: py4j asks the JVM each time that one is named."""

    def __init__(self, java: Any) -> None:
        self._java = java

    def __call__(self, *arguments: object) -> Any:
        """A new object."""
        return self._java(*arguments)

    def __getattr__(self, name: str) -> Any:
        """A static method."""
        method = getattr(self._java, name)
        setattr(self, name, method)
        return method


def scala_object(jvm: Jvm, name: ScalaName[Seen]) -> Seen:
    """A singleton."""
    singleton: Seen = object_named(jvm, name.name)
    return singleton


@lru_cache(maxsize=256)
def class_named(jvm: Jvm, name: str) -> Any:
    """The class ``name``, looked up once, as each dot is a round trip. For the modules of this package."""
    return reduce(getattr, name.split("."), jvm)


@lru_cache(maxsize=256)
def object_named(jvm: Jvm, name: str) -> Any:
    """The singleton ``name``. For the modules of this package."""
    return type_named(jvm, f"{name}$").getField("MODULE$").get(None)


def type_named(jvm: Jvm, name: str) -> Any:
    """The class object of ``name``. For the modules of this package."""
    lang = class_named(jvm, "java.lang")
    return lang.Class.forName(name, *_INITIALISED, lang.Thread.currentThread().getContextClassLoader())


def items(sequence: Seq[Held]) -> Iterator[Held]:
    """The elements of a sequence, each by a round trip."""
    return (sequence.apply(number) for number in range(sequence.size()))


def scala_seq(jvm: Jvm, values: list[Held]) -> Seq[Held]:
    """``values`` as a sequence of Scala's."""
    sequence: Seq[Held] = class_named(jvm, "PythonUtils").toSeq(values).toIndexedSeq()
    return sequence


def scala_seq_of(jvm: Jvm, values: JavaArray) -> Seq[JavaObject]:
    """An array as a sequence of Scala's; what it holds stays in the JVM."""
    sequence: Seq[JavaObject] = object_named(jvm, "scala.collection.immutable.ArraySeq").unsafeWrapArray(values)
    return sequence


def java_list(jvm: Jvm, values: Iterable[object]) -> Any:
    """``values`` as a list of Java's. For the modules of this package."""
    elements = class_named(jvm, ARRAY_LIST)()
    for value in values:
        elements.add(value)
    return elements


def java_array(jvm: Jvm, values: Iterable[object]) -> JavaObject:
    """``values`` as an array of objects."""
    array: JavaObject = java_list(jvm, values).toArray()
    return array


def is_some(value: JavaObject) -> bool:
    """Return whether ``value`` is an Option that holds something."""
    return value.getClass().getName() == SOME


def some(jvm: Jvm, value: JavaObject | str) -> JavaObject:
    """An Option that holds ``value``."""
    option: JavaObject = class_named(jvm, SOME)(value)
    return option


def text_in_pieces(builder: StringBuilder) -> str:
    """What a StringBuilder in the JVM holds. A character of two units that is cut in two would arrive as two others."""
    length = builder.length()
    if length <= PIECE:
        return str(builder.toString())
    characters = builder.codePointCount(0, length)
    if characters == length:
        return "".join(builder.substring(start, min(length, start + PIECE)) for start in range(0, length, PIECE))
    ends = [0]
    for first in range(0, characters, PIECE):
        ends.append(builder.offsetByCodePoints(ends[-1], min(PIECE, characters - first)))
    return "".join(builder.substring(start, end) for start, end in pairwise(ends))

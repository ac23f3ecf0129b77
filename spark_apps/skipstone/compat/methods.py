"""Functions for the JVM, made of methods in it: one round trip to the JVM calls several, where each alone costs 0.1 ms.

Python's own functions would be called back. Must not decide anything.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import Any, Protocol, cast

from skipstone.compat.icebergjava import JSON_MAPPER
from skipstone.compat.java import (
    DESCRIBED,
    PIECE,
    JavaName,
    JavaObject,
    Jvm,
    StringBuilder,
    class_named,
    java_class,
    java_list,
    object_named,
    text_in_pieces,
    type_named,
)


@dataclass(frozen=True)
class With:
    """A method of a described type, with the text that is its argument."""

    method: Callable[..., object]
    argument: str


@dataclass(frozen=True)
class IsA:
    """Whether something is of a described type."""

    kind: type


#: A method of a described type, without arguments or with one, or a question.
Step = Callable[..., object] | With | IsA
#: Steps from an object to what it, or what it holds, says.
Path = tuple[Step, ...]
_FUNCTION, _OBJECT, _LIST, _TEXT = "scala.Function1", "java.lang.Object", "java.util.List", "java.lang.String"
_HANDLES: JavaName[Any] = JavaName("java.lang.invoke.MethodHandles")
_KINDS: JavaName[Any] = JavaName("java.lang.invoke.MethodType")
_PROXIES: JavaName[Any] = JavaName("java.lang.invoke.MethodHandleProxies")
_ARRAYS: JavaName[Any] = JavaName("java.lang.reflect.Array")


class Function(JavaObject, Protocol):
    """A function of Scala's."""

    def apply(self, value: object) -> Any: ...


@lru_cache(maxsize=64)
def getter(jvm: Jvm, *path: Step) -> Function:
    """A function of what ``path`` leads to."""
    methods = methods_of(jvm)
    return methods.function(methods.path(path))


def values_at(jvm: Jvm, java: JavaObject, paths: tuple[Path, ...]) -> list[Any]:
    """Return the values at several paths from an object: texts, numbers, maps; of a class its name."""
    values: list[Any] = json.loads(_getters(jvm, paths).json_of(java))
    return values


@lru_cache(maxsize=64)
def _getters(jvm: Jvm, paths: tuple[Path, ...]) -> _Getters:
    return _Getters(methods_of(jvm), paths)


class _Getters:
    """Get what several paths lead to, as the JSON of a list.

    A text that is longer than a buffer of the gateway waits 40 ms for the network, and pieces take a call each. So once
    an answer was long, the next ones come in pieces.
    """

    def __init__(self, methods: Methods, paths: tuple[Path, ...]) -> None:
        self._methods = methods
        self._json = methods.as_json(methods.listed([methods.path(path) for path in paths]))
        self._text = methods.function(self._json)
        self._builder: Function | None = None

    def json_of(self, java: JavaObject) -> str:
        """The JSON for one object."""
        if self._builder:
            return text_in_pieces(self._builder.apply(java))
        text = str(self._text.apply(java))
        if len(text) > PIECE:
            self._builder = self._methods.function(self._methods.in_turn(self._json, self._methods.builder()))
        return text


@lru_cache(maxsize=1)
def methods_of(jvm: Jvm) -> Methods:
    """What puts the methods of a JVM together."""
    return Methods(jvm)


class Methods:
    """Puts methods together."""

    def __init__(self, jvm: Jvm) -> None:
        self._jvm = jvm
        self._handles = java_class(jvm, _HANDLES)
        self._arrays = java_class(jvm, _ARRAYS)
        self._lookup = self._handles.publicLookup()
        self._object = type_named(jvm, _OBJECT)
        self._steps: dict[Step, Any] = {}

    def method(self, owner: Any, name: str, result: Any, *arguments: Any) -> Any:
        """A method of the class ``owner``."""
        return self._lookup.findVirtual(owner, name, self._kind(result, arguments))

    def function(self, handle: Any) -> Function:
        """A method of one argument as a function of Scala's."""
        proxies = java_class(self._jvm, _PROXIES)
        return cast(Function, proxies.asInterfaceInstance(type_named(self._jvm, _FUNCTION), handle))

    def partial_function(self, handle: Any) -> JavaObject:
        """As ``function``, for what takes functions that are not defined everywhere."""
        partial: JavaObject = object_named(self._jvm, "scala.PartialFunction").fromFunction(self.function(handle))
        return partial

    def bound(self, method: Any, argument: object) -> Any:
        """A method of one argument with that argument."""
        return self._handles.insertArguments(method, 1, java_list(self._jvm, [argument]).toArray())

    def in_turn(self, *methods: Any) -> Any:
        """Methods of one argument, each of what the one before gives."""
        return reduce(self._handles.filterReturnValue, methods)

    def path(self, path: Path) -> Any:
        """A method of any object that gives what ``path`` leads to."""
        return self.in_turn(*(self._step(step) for step in path))

    def listed(self, methods: Sequence[Any]) -> Any:
        """A method of any object that gives the list of what ``methods`` give."""
        objects = self._arrays.newInstance(self._object, 0).getClass()
        as_list = self._lookup.findStatic(
            type_named(self._jvm, "java.util.Arrays"), "asList", self._kind(type_named(self._jvm, _LIST), [objects])
        )
        together = as_list.asCollector(objects, len(methods))
        for at, method in enumerate(methods):
            together = self._handles.collectArguments(together, at, method)
        all_first = self._arrays.newInstance(class_named(self._jvm, "java.lang.Integer").TYPE, len(methods))
        kind = self._kind(type_named(self._jvm, _LIST), [self._object])
        return self._generic(self._handles.permuteArguments(together, kind, all_first))

    def as_json(self, method: Any) -> Any:
        """A method that gives the JSON of what ``method`` gives."""
        mapper: Any = java_class(self._jvm, JSON_MAPPER)()
        text = type_named(self._jvm, _TEXT)
        return self.in_turn(
            method, self.method(mapper.getClass(), "writeValueAsString", text, self._object).bindTo(mapper)
        )

    def builder(self) -> Any:
        """A method that puts a text into a StringBuilder, which stays in the JVM."""
        void, builder = class_named(self._jvm, "java.lang.Void").TYPE, type_named(self._jvm, DESCRIBED[StringBuilder])
        return self._lookup.findConstructor(builder, self._kind(void, [type_named(self._jvm, _TEXT)]))

    def _step(self, step: Step) -> Any:
        if step not in self._steps:
            self._steps[step] = self._resolve(step)
        return self._steps[step]

    def _resolve(self, step: Step) -> Any:
        if isinstance(step, IsA):
            kind = type_named(self._jvm, DESCRIBED[step.kind])
            flag = class_named(self._jvm, "java.lang.Boolean").TYPE
            return self._generic(self.method(kind.getClass(), "isInstance", flag, self._object).bindTo(kind))
        called, arguments = (step.method, [step.argument]) if isinstance(step, With) else (step, [])
        owner = cast(Any, called).__globals__[called.__qualname__.split(".")[0]]
        kinds = self._arrays.newInstance(type_named(self._jvm, "java.lang.Class"), len(arguments))
        for at in range(len(arguments)):
            self._arrays.set(kinds, at, self._object)
        method = type_named(self._jvm, DESCRIBED[owner]).getMethod(called.__name__, kinds)
        handle = self._generic(self._lookup.unreflect(method))
        return reduce(self.bound, arguments, handle)

    def _kind(self, result: Any, arguments: Sequence[Any]) -> Any:
        return java_class(self._jvm, _KINDS).methodType(result, java_list(self._jvm, arguments))

    @staticmethod
    def _generic(handle: Any) -> Any:
        return handle.asType(handle.type().generic())

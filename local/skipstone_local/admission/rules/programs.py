"""Compiles and evaluates CEL, with the functions of Kubernetes that our rules use; errors in Kubernetes' words."""

from __future__ import annotations

import re
import threading
from functools import cache, lru_cache
from typing import Any

from cel_expr_python import cel

from skipstone_local.admission.quantities import compare, parse_quantity

_NO_KEY = re.compile(r'NOT_FOUND: Key not found in map : "?(.*?)"?$', re.DOTALL)
_INDEX = re.compile(r"UNKNOWN: Index error: index=(-?\d+) size=\d+")
_WORDS = {"integer overflow": "integer overflow", "divide by zero": "division by zero"}
_lock = threading.RLock()


class EvaluationError(Exception):
    """A rule came to no result; the text is Kubernetes'."""


def environment() -> Any:
    """Return the names and functions that rules may use: one for all threads, made by the first that asks."""
    with _lock:
        return _make_environment()


@cache
def _make_environment() -> Any:
    text, number, anything = cel.Type.STRING, cel.Type.INT, cel.Type.DYN
    quantity = cel.Overload("quantity", return_type=text, parameters=[text], impl=_quantity)
    comparison = cel.Overload("compare", return_type=number, parameters=[text, text], is_member=True, impl=compare)
    functions = [cel.FunctionDecl("quantity", [quantity]), cel.FunctionDecl("compareTo", [comparison])]
    return cel.NewEnv(variables={"self": anything, "oldSelf": anything}, functions=functions)


def _quantity(text: str) -> str:
    parse_quantity(text)
    return text


@lru_cache(maxsize=1024)
def compiled(expression: str) -> Any:
    """Return the program of ``expression``; raises RuntimeError with a sentence and the place for one that is wrong."""
    with _lock:
        return environment().compile(expression)


def bind(names: dict[str, Any]) -> Any:
    """Return what several expressions can be evaluated with; the values are converted once."""
    return environment().Activation(names)


def evaluate(expression: str, bound: Any) -> Any:
    """Return the value of ``expression`` with names that were bound; raises EvaluationError."""
    result = compiled(expression).eval(bound)
    if result.type() == cel.Type.ERROR:
        raise EvaluationError(_in_words(str(result.plain_value())))
    return result.plain_value()


@lru_cache(maxsize=4096)
def is_text_valid(expression: str, text: str) -> bool:
    """Return whether a rule holds for a text; most columns of a table have a type that was judged before."""
    return evaluate(expression, bind({"self": text})) is True


def _in_words(problem: str) -> str:
    missing, index = _NO_KEY.fullmatch(problem), _INDEX.fullmatch(problem)
    if missing:
        return f"no such key: {missing[1]}"
    if index:
        return f"index out of bounds: {index[1]}"
    if "No matching overloads found" in problem:
        return "no such overload"
    detail = problem.partition(": ")[2] or problem
    return _WORDS.get(detail, detail)

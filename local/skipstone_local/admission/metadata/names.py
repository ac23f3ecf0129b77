"""Texts that are names, labels or keys, and what Kubernetes says of those that are not. Pure."""

from __future__ import annotations

import re

_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_QUALIFIED = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LABEL_VALUE = rf"({_QUALIFIED})?"
_LABEL_1035 = r"[a-z]([-a-z0-9]*[a-z0-9])?"
_CONFIG_KEY = r"[-._a-zA-Z0-9]+"
_NAME_OF_VARIABLE = r"[\x20-\x3c\x3e-\x7e]+"


def _pattern_error(sentence: str, pattern: str, *examples: str) -> str:
    shown = " or ".join(f"'{example}', " for example in examples)
    return f"{sentence} (e.g. {shown}regex used for validation is '{pattern}')"


def _too_long(limit: int) -> str:
    return f"must be no more than {limit} characters"


def subdomain_problems(text: str) -> list[str]:
    """Say why ``text`` is not a DNS subdomain, which most names are."""
    problems = [_too_long(253)] if len(text.encode()) > 253 else []
    if not re.fullmatch(_SUBDOMAIN, text):
        sentence = (
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
            "and must start and end with an alphanumeric character"
        )
        problems.append(_pattern_error(sentence, _SUBDOMAIN, "example.com"))
    return problems


def label_problems(text: str) -> list[str]:
    """Say why ``text`` is not a DNS label, as names of namespaces and containers are."""
    problems = [_too_long(63)] if len(text.encode()) > 63 else []
    if re.fullmatch(_LABEL, text):
        return problems
    if re.fullmatch(_SUBDOMAIN, text):
        return [*problems, "must not contain dots"]
    sentence = (
        "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
        "and must start and end with an alphanumeric character"
    )
    return [*problems, _pattern_error(sentence, _LABEL, "my-name", "123-abc")]


def service_name_problems(text: str) -> list[str]:
    """Say why ``text`` is not a DNS label that begins with a letter, as names of Services are."""
    problems = [_too_long(63)] if len(text.encode()) > 63 else []
    if not re.fullmatch(_LABEL_1035, text):
        sentence = (
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', "
            "start with an alphabetic character, and end with an alphanumeric character"
        )
        problems.append(_pattern_error(sentence, _LABEL_1035, "my-name", "abc-123"))
    return problems


def qualified_name_problems(text: str) -> list[str]:
    """Say why ``text`` is not a name with an optional domain before it, as keys of labels are."""
    sentence = (
        "must consist of alphanumeric characters, '-', '_' or '.', "
        "and must start and end with an alphanumeric character"
    )
    examples = ("MyName", "my.name", "123-abc")
    prefix, slash, name = text.rpartition("/")
    if "/" in prefix:
        error = _pattern_error(sentence, _QUALIFIED, *examples)
        return [f"a qualified name {error} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"]
    all_problems = []
    if slash:
        problems = subdomain_problems(prefix) if prefix else ["must be non-empty"]
        all_problems += [f"prefix part {problem}" for problem in problems]
    if not name:
        all_problems.append("name part must be non-empty")
    elif len(name.encode()) > 63:
        all_problems.append(f"name part {_too_long(63)}")
    if not re.fullmatch(_QUALIFIED, name):
        all_problems.append(f"name part {_pattern_error(sentence, _QUALIFIED, *examples)}")
    return all_problems


def label_value_problems(text: str) -> list[str]:
    """Say why ``text`` is not the value of a label."""
    problems = [_too_long(63)] if len(text.encode()) > 63 else []
    if not re.fullmatch(_LABEL_VALUE, text):
        sentence = (
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
            "and must start and end with an alphanumeric character"
        )
        problems.append(_pattern_error(sentence, _LABEL_VALUE, "MyValue", "my_value", "12345"))
    return problems


def config_key_problems(text: str) -> list[str]:
    """Say why ``text`` is not a key of a ConfigMap or Secret."""
    problems = [_too_long(253)] if len(text.encode()) > 253 else []
    if not re.fullmatch(_CONFIG_KEY, text):
        sentence = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'"
        problems.append(_pattern_error(sentence, _CONFIG_KEY, "key.name", "KEY_NAME", "key-name"))
    if text in (".", ".."):
        problems.append(f"must not be '{text}'")
    elif text.startswith(".."):
        problems.append("must not start with '..'")
    return problems


def variable_problems(text: str) -> list[str]:
    """Say why ``text`` is not the name of an environment variable."""
    if not text:
        return ["environment variable name must be non-empty"]
    sentence = "a valid environment variable name must consist only of printable ASCII characters other than '='"
    return [] if re.fullmatch(_NAME_OF_VARIABLE, text) else [sentence]


def mask_dash(prefix: str) -> str:
    """Return a prefix of names in a form that is judged like a whole name: it may end with a dash."""
    return f"{prefix[:-2]}a" if len(prefix) > 1 and prefix.endswith("-") else prefix

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


def _pattern_error(says: str, pattern: str, *examples: str) -> str:
    shown = " or ".join(f"'{example}', " for example in examples)
    return f"{says} (e.g. {shown}regex used for validation is '{pattern}')"


def _too_long(limit: int) -> str:
    return f"must be no more than {limit} characters"


def subdomain_problems(text: str) -> list[str]:
    """Say why ``text`` is not a DNS subdomain, which most names are."""
    found = [_too_long(253)] if len(text.encode()) > 253 else []
    if not re.fullmatch(_SUBDOMAIN, text):
        says = (
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
            "and must start and end with an alphanumeric character"
        )
        found.append(_pattern_error(says, _SUBDOMAIN, "example.com"))
    return found


def label_problems(text: str) -> list[str]:
    """Say why ``text`` is not a DNS label, as names of namespaces and containers are."""
    found = [_too_long(63)] if len(text.encode()) > 63 else []
    if re.fullmatch(_LABEL, text):
        return found
    if re.fullmatch(_SUBDOMAIN, text):
        return [*found, "must not contain dots"]
    says = (
        "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
        "and must start and end with an alphanumeric character"
    )
    return [*found, _pattern_error(says, _LABEL, "my-name", "123-abc")]


def service_name_problems(text: str) -> list[str]:
    """Say why ``text`` is not a DNS label that begins with a letter, as names of Services are."""
    found = [_too_long(63)] if len(text.encode()) > 63 else []
    if not re.fullmatch(_LABEL_1035, text):
        says = (
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', "
            "start with an alphabetic character, and end with an alphanumeric character"
        )
        found.append(_pattern_error(says, _LABEL_1035, "my-name", "abc-123"))
    return found


def qualified_name_problems(text: str) -> list[str]:
    """Say why ``text`` is not a name with an optional domain before it, as keys of labels are."""
    says = (
        "must consist of alphanumeric characters, '-', '_' or '.', "
        "and must start and end with an alphanumeric character"
    )
    examples = ("MyName", "my.name", "123-abc")
    prefix, slash, name = text.rpartition("/")
    if "/" in prefix:
        error = _pattern_error(says, _QUALIFIED, *examples)
        return [f"a qualified name {error} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"]
    found = []
    if slash:
        problems = subdomain_problems(prefix) if prefix else ["must be non-empty"]
        found += [f"prefix part {problem}" for problem in problems]
    if not name:
        found.append("name part must be non-empty")
    elif len(name.encode()) > 63:
        found.append(f"name part {_too_long(63)}")
    if not re.fullmatch(_QUALIFIED, name):
        found.append(f"name part {_pattern_error(says, _QUALIFIED, *examples)}")
    return found


def label_value_problems(text: str) -> list[str]:
    """Say why ``text`` is not the value of a label."""
    found = [_too_long(63)] if len(text.encode()) > 63 else []
    if not re.fullmatch(_LABEL_VALUE, text):
        says = (
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
            "and must start and end with an alphanumeric character"
        )
        found.append(_pattern_error(says, _LABEL_VALUE, "MyValue", "my_value", "12345"))
    return found


def config_key_problems(text: str) -> list[str]:
    """Say why ``text`` is not a key of a ConfigMap or Secret."""
    found = [_too_long(253)] if len(text.encode()) > 253 else []
    if not re.fullmatch(_CONFIG_KEY, text):
        says = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'"
        found.append(_pattern_error(says, _CONFIG_KEY, "key.name", "KEY_NAME", "key-name"))
    if text in (".", ".."):
        found.append(f"must not be '{text}'")
    elif text.startswith(".."):
        found.append("must not start with '..'")
    return found


def variable_problems(text: str) -> list[str]:
    """Say why ``text`` is not the name of an environment variable."""
    if not text:
        return ["environment variable name must be non-empty"]
    says = "a valid environment variable name must consist only of printable ASCII characters other than '='"
    return [] if re.fullmatch(_NAME_OF_VARIABLE, text) else [says]


def mask_dash(prefix: str) -> str:
    """Return a prefix of names in a form that is judged like a whole name: it may end with a dash."""
    return f"{prefix[:-2]}a" if len(prefix) > 1 and prefix.endswith("-") else prefix

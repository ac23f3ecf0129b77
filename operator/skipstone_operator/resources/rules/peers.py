"""Peers as NetworkPolicies have them: who may connect.

Used by ``planning``. What passes here and Kubernetes does not take is refused when the policy is written.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from skipstone_operator.resources.rules.markers import Doc, Rule

_SELECTORS = ("podSelector", "namespaceSelector")
_BLOCK = "ipBlock"
#: Of selectors, expressions, values and blocks.
_MAX = 32
_BYTE = "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_IPV4 = rf"({_BYTE}[.]){{3}}{_BYTE}/(3[0-2]|[12]?[0-9])"
#: Which of these are addresses is left to Kubernetes.
_IPV6 = "[0-9a-fA-F:]*:[0-9a-fA-F:]*/(12[0-8]|1[01][0-9]|[1-9]?[0-9])"
_BLOCKS = f"^({_IPV4}|{_IPV6})$"


def _text(description: str, max_length: int) -> dict[str, Any]:
    return {"type": "string", "description": description, "maxLength": max_length}


def _list(description: str, items: Mapping[str, Any]) -> dict[str, Any]:
    schema = {"type": "array", "description": description, "maxItems": _MAX, "items": items}
    return {**schema, "x-kubernetes-list-type": "atomic"}


def _selector(description: str) -> dict[str, Any]:
    operator = {
        "type": "string",
        "description": "The relation of the label's value to the values.",
        "enum": ["In", "NotIn", "Exists", "DoesNotExist"],
    }
    values = _list("Values of In and NotIn.", _text("Value of the label.", 63))
    term = {
        "type": "object",
        "description": "One requirement.",
        "required": ["key", "operator"],
        "properties": {"key": _text("Key of the label.", 317), "operator": operator, "values": values},
    }
    labels = {
        "type": "object",
        "description": "Labels that must have these values.",
        "maxProperties": _MAX,
        "additionalProperties": _text("Value of the label.", 63),
    }
    return {
        "type": "object",
        "description": description,
        "properties": {"matchLabels": labels, "matchExpressions": _list("Requirements that must all hold.", term)},
    }


_PEER_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "podSelector": _selector(
            "Pods with these labels, all when empty; of the same namespace unless there is a namespaceSelector."
        ),
        "namespaceSelector": _selector("Pods of the namespaces with these labels; of all namespaces when empty."),
        _BLOCK: {
            "type": "object",
            "description": "Addresses of the network.",
            "required": ["cidr"],
            "properties": {
                "cidr": _text("A block of addresses, such as 192.0.2.0/24.", 43),
                "except": _list("Blocks inside of it that are left out.", _text("A block of addresses.", 43)),
            },
        },
    },
}


def peer(field_name: str) -> Doc:
    """One peer of the list ``field_name``, as messages name it."""
    return Doc(
        "Pods, or addresses of the network.",
        schema=_PEER_SCHEMA,
        rules=(
            Rule(
                holds=lambda given: any(name in given for name in (*_SELECTORS, _BLOCK)),
                rule="has(self.podSelector) || has(self.namespaceSelector) || has(self.ipBlock)",
                message=f"{field_name} has an entry without a peer: give it a podSelector, a namespaceSelector or "
                "an ipBlock",
            ),
            Rule(
                holds=lambda given: _BLOCK not in given or not any(name in given for name in _SELECTORS),
                rule="!has(self.ipBlock) || !(has(self.podSelector) || has(self.namespaceSelector))",
                message=f"{field_name} has an entry with an ipBlock and a selector, which cannot go together: write "
                "two entries",
                field_path=f".{_BLOCK}",
            ),
            Rule(
                holds=lambda given: _BLOCK not in given or all(map(_is_block, _blocks(given[_BLOCK]))),
                rule=f"!has(self.ipBlock) || (self.ipBlock.cidr.matches('{_BLOCKS}') && "
                f"(!has(self.ipBlock.except) || self.ipBlock.except.all(b, b.matches('{_BLOCKS}'))))",
                message=f"{field_name} has an ipBlock that is not a block of addresses: write for example 192.0.2.0/24",
                field_path=f".{_BLOCK}",
            ),
        ),
    )


def _blocks(block: Mapping[str, Any]) -> tuple[str, ...]:
    return (block.get("cidr", ""), *block.get("except", ()))


def _is_block(text: str) -> bool:
    return re.fullmatch(_BLOCKS, text) is not None

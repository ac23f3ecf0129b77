"""How a test ended, as lines and as JUnit's XML. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from xml.etree import ElementTree


@dataclass(frozen=True)
class Verdict:
    """How one expectation of a step ended. ``wrong``: what is otherwise; nothing if it is met."""

    step: str
    title: str
    wrong: Sequence[str]
    seconds: float = 0.0


def verdict_lines(verdicts: Sequence[Verdict]) -> Iterator[str]:
    """One line for each expectation, and one for each thing that is wrong."""
    for verdict in verdicts:
        yield f"{'FAILED' if verdict.wrong else 'ok    '}  {verdict.step}  {verdict.title}"
        yield from (f"        {what}" for what in verdict.wrong)
    failed = sum(bool(verdict.wrong) for verdict in verdicts)
    yield f"{len(verdicts) - failed} of {len(verdicts)} expectations are met"


def to_junit(name: str, verdicts: Sequence[Verdict]) -> str:
    """The verdicts as a test suite in the XML that CI systems read."""
    failed = sum(bool(verdict.wrong) for verdict in verdicts)
    seconds = f"{sum(verdict.seconds for verdict in verdicts):.3f}"
    suite = ElementTree.Element(
        "testsuite", name=name, tests=str(len(verdicts)), failures=str(failed), errors="0", time=seconds
    )
    for verdict in verdicts:
        case = ElementTree.SubElement(
            suite, "testcase", classname=f"{name}.{verdict.step}", name=verdict.title, time=f"{verdict.seconds:.3f}"
        )
        if verdict.wrong:
            failure = ElementTree.SubElement(case, "failure", message=verdict.wrong[0])
            failure.text = "\n".join(verdict.wrong)
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"

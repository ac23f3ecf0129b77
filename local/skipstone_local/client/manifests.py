"""Manifests as kubectl reads them: files, folders, standard input, several documents in each, lists of objects."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml
from skipstone_cli.documents import ManifestLoader
from skipstone_cli.errors import CliError, unreadable
from skipstone_cli.reading import JsonObject, name_of, text_of

STDIN = "-"
SUFFIXES = (".yaml", ".yml", ".json")
#: Of a test of the manifests beside it; it is not one itself.
TEST_FILE = "skipstone-test.yaml"


@dataclass(frozen=True)
class Manifest:
    """One object, and the file that it is from."""

    source: str
    body: JsonObject

    def __str__(self) -> str:
        """Where it is and what it is, in a message."""
        return f"{self.source}: {text_of(self.body, 'kind')} {name_of(self.body)}"


def read_manifests(sources: Sequence[str], *, recursive: bool = False) -> list[Manifest]:
    """The manifests of files, of the files in folders by their names, and of the standard input (``-``).

    Raises CliError for what cannot be read, for no manifests, and for documents that are not objects.
    """
    manifests: list[Manifest] = []
    for source in sources:
        for name, text in _texts(source, recursive=recursive):
            manifests.extend(parse_manifests(text, name))
    if not manifests:
        raise CliError(f"{', '.join(sources)} holds no manifests: name files that end with {', '.join(SUFFIXES)}")
    return manifests


def parse_manifests(text: str, source: str) -> Iterator[Manifest]:
    """The manifests of one text. Raises CliError."""
    try:
        documents = list(yaml.load_all(text, Loader=ManifestLoader))
    except (yaml.YAMLError, RecursionError) as error:
        raise CliError(f"{source} is not YAML: {' '.join(str(error).split())}") from error
    for document in documents:
        if document is not None:
            yield from (Manifest(source, body) for body in _objects(document, source))


def _objects(document: object, source: str) -> Iterator[JsonObject]:
    if not isinstance(document, dict):
        raise CliError(f"{source} holds {document!r:.60}, which is not an object: write apiVersion, kind and metadata")
    if text_of(document, "kind").endswith("List") and isinstance(document.get("items"), list):
        for item in document["items"]:
            yield from _objects(item, source)
        return
    for field in ("apiVersion", "kind"):
        if not text_of(document, field):
            raise CliError(f"{source} holds an object without {field}: add it")
    if not isinstance(document.get("metadata"), dict) or not name_of(document):
        raise CliError(f"{source} holds a {text_of(document, 'kind')} without metadata.name: add it")
    yield document


def _texts(source: str, *, recursive: bool) -> Iterator[tuple[str, str]]:
    if source == STDIN:
        yield "standard input", sys.stdin.read()
        return
    path = Path(source)
    files = [path]
    if path.is_dir():
        entries = path.rglob("*") if recursive else path.iterdir()
        named = (entry for entry in entries if entry.suffix in SUFFIXES and entry.name != TEST_FILE)
        files = sorted(entry for entry in named if entry.is_file())
    for file in files:
        try:
            yield str(file), file.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise unreadable(file, error) from error

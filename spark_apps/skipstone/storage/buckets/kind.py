"""The kinds of object storage: each is a module of ``kinds``, which is found there by itself.

What is true of a place without reaching it is told in the core (``contract.places``). All that is asked of objects is
the same for every kind, and in ``objects``.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, TypeVar, cast

from skipstone_core.contract.places import BucketRef

from skipstone.storage.buckets import kinds

if TYPE_CHECKING:
    from obstore.store import ObjectStore, RetryConfig

R = TypeVar("R", bound=BucketRef)


class Asked(StrEnum):
    """What an object store was asked to do, as a verb for people."""

    READ = "read"
    LOOK = "look at"
    WRITE = "write"
    DELETE = "delete"
    LIST = "list"


@dataclass(frozen=True)
class Permissions:
    """What somebody needs to be allowed: ``of_objects`` on those below the prefix, ``of_bucket`` on it; empty: none."""

    of_objects: str = ""
    of_bucket: str = ""


@dataclass(frozen=True, kw_only=True)
class Words:
    """What people are told of answers of a kind of store.

    ``name``: the store, if a place names no endpoint; ``endpoint``: what all that speak as it does are. ``keys``: what
    to do by the code of an answer that is about keys or about the clock that signed. ``no_credentials``: what to do
    where there are none. ``permissions``: by what was asked; ``resource`` begins the name of a bucket, on which they
    are given.
    """

    name: str
    endpoint: str
    keys: Mapping[str, str]
    no_credentials: str
    permissions: Mapping[Asked, Permissions]
    resource: str = ""


@dataclass(frozen=True, kw_only=True)
class StoreKind:
    """A kind of object storage.

    ``ref``: its places. ``schemes``: by which engines name its files, the one that we use first. ``store``: opens a
    place, in which paths begin at its prefix. ``hadoop_scheme`` and ``hadoop_settings``: of the file system by which
    Spark reads it. ``file_io``: what PyIceberg's FileIO is told to reach it, without credentials. ``is_direct``:
    whether Arrow's file system for it is that for S3, whose options our own reader of tables takes.
    """

    ref: type[BucketRef]
    schemes: tuple[str, ...]
    store: Callable[[BucketRef, RetryConfig | None], ObjectStore]
    hadoop_scheme: str
    hadoop_settings: Callable[[BucketRef], Mapping[str, str]]
    file_io: Callable[[BucketRef], Mapping[str, str]]
    words: Words
    is_direct: bool = False


def of_its_own(give: Callable[[R], Mapping[str, str]]) -> Callable[[BucketRef], Mapping[str, str]]:
    """Return ``give`` as StoreKind has it: it is asked for places of its kind only."""
    return cast(Callable[[BucketRef], Mapping[str, str]], give)


def kind_of(ref: BucketRef) -> StoreKind:
    """Return the kind of ``ref``."""
    return next(kind for kind in all_kinds() if kind.ref is type(ref))


@cache
def all_kinds() -> tuple[StoreKind, ...]:
    """Return the kinds of all modules of ``kinds``, which each name theirs KIND."""
    names = [module.name for module in pkgutil.iter_modules(kinds.__path__, f"{kinds.__name__}.")]
    return tuple(importlib.import_module(name).KIND for name in names)

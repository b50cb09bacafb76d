"""A large mapping with few entries otherwise, which shares all others with the one before.

Copies of a million entries would take time, and the garbage collector would look through each.
"""

from collections.abc import ItemsView, Iterable, Iterator, Mapping, ValuesView
from itertools import chain
from typing import Final, TypeVar

K = TypeVar("K")
T = TypeVar("T")

_SHARE: Final = 100
"""One of how many entries may differ, before the rest is copied."""


def revise(known: Mapping[K, T], put: Mapping[K, T], gone: Iterable[K] = ()) -> Mapping[K, T]:
    """Return *known* without what is *gone*, and with what is *put*, in place or at the end.

    What is in both comes to the end.
    """
    if not known:
        return put
    left = tuple(gone)
    if not put and not left:
        return known
    overlay = known if isinstance(known, Overlay) else Overlay(known)
    revised = overlay.revise(put, left)
    return revised if revised.is_light else dict(revised.items())


class Overlay(Mapping[K, T]):
    """A *base* without what is *gone*, and with what is *put* in place of it or after it."""

    def __init__(
        self,
        base: Mapping[K, T],
        put: Mapping[K, T] | None = None,
        gone: frozenset[K] = frozenset(),
        added: Mapping[K, None] | None = None,
    ) -> None:
        self._base = base
        self._put = put or {}
        self._gone = gone
        self._added = added or {}
        """Those of *put* that come after the *base*, in this order."""

    @property
    def is_light(self) -> bool:
        """Whether so little differs that it is worth it."""
        return (len(self._put) + len(self._gone)) * _SHARE <= len(self._base)

    def revise(self, put: Mapping[K, T], gone: Iterable[K]) -> "Overlay[K, T]":
        """Return it without what is *gone*, and with what is *put*."""
        left = tuple(gone)
        all_gone = self._gone.union(key for key in left if key in self._base)
        # Copied as they are, and then altered: thousands of entries may differ already.
        all_put, added = dict(self._put), dict(self._added)
        for key in left:
            all_put.pop(key, None)
            added.pop(key, None)
        all_put.update(put)
        added.update((key, None) for key in put if key not in self._base or key in all_gone)
        return Overlay(self._base, all_put, all_gone, added)

    def __getitem__(self, key: K) -> T:
        if key in self._put:
            return self._put[key]
        if key in self._gone:
            raise KeyError(key)
        return self._base[key]

    def __contains__(self, key: object) -> bool:
        return key in self._put or (key in self._base and key not in self._gone)

    def __iter__(self) -> Iterator[K]:
        gone = self._gone
        return chain((key for key in self._base if key not in gone), self._added)

    def __len__(self) -> int:
        return len(self._base) - len(self._gone) + len(self._added)

    def items(self) -> ItemsView[K, T]:
        """Return the entries, in their order, much quicker than one by one."""
        return _Items(self)

    def values(self) -> ValuesView[T]:
        """Return what is in it, in its order, much quicker than one by one."""
        return _Values(self)

    def entries(self) -> Iterator[tuple[K, T]]:
        """Yield each key and what is under it."""
        put, gone = self._put, self._gone
        for key, thing in self._base.items():
            if key not in gone:
                yield key, put.get(key, thing)
        for key in self._added:
            yield key, put[key]


class _Items(ItemsView[K, T]):
    _mapping: Overlay[K, T]

    def __iter__(self) -> Iterator[tuple[K, T]]:
        return self._mapping.entries()


class _Values(ValuesView[T]):
    _mapping: Overlay[object, T]

    def __iter__(self) -> Iterator[T]:
        return (thing for _, thing in self._mapping.entries())

"""Models of what is shown with the fields of the domain, which are declared there only."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from inspect import get_annotations
from types import GenericAlias
from typing import Any, Final, TypeAlias, TypeVar, get_type_hints

from pydantic import BaseModel, create_model

M = TypeVar("M", bound=BaseModel)
Fields: TypeAlias = Mapping[str, tuple[Any, Any]]
"""Names, each with its type and its default, which is ... if there is none."""


_MADE: Final = frozenset({"_abc_impl", "model_config"})
"""What pydantic gives every model."""


def mirrors(kind: type, names: str = "") -> Callable[[type[M]], type[M]]:
    """Give a view the fields of *kind*: all of them, or those of *names* with its properties.

    They have the types that they have there, except those that the view declares itself.
    """
    wanted = names.split() or [field.name for field in fields(kind)]

    def build(model: type[M]) -> type[M]:
        own = get_annotations(model)
        types = {name: Any if name in own else _type_of(kind, name) for name in wanted}
        return with_fields({name: (found, ...) for name, found in types.items()})(model)

    return build


def with_fields(given: Fields) -> Callable[[type[M]], type[M]]:
    """Give a model the *given* fields in their order; others that it declares come after.

    It is built anew for that, so it cannot have anything else of its own.
    """

    def build(model: type[M]) -> type[M]:
        if others := [
            name for name in vars(model) if not name.startswith("__") and name not in _MADE
        ]:
            raise TypeError(f"{model.__name__} can only declare fields, not {', '.join(others)}.")
        known, bases = model.model_fields, model.__bases__
        declared = {name: (known[name].annotation, known[name]) for name in get_annotations(model)}
        definitions: dict[str, Any] = {**given, **declared}
        whole: type[M] = create_model(
            model.__name__,
            __base__=bases,
            __module__=model.__module__,
            __doc__=model.__doc__,
            **definitions,
        )
        return whole

    return build


def several(noun: str, view: type[BaseModel], summary: str) -> type[BaseModel]:
    """Return the model of a list, which has a *view* of each thing under *noun*."""
    things: Any = (GenericAlias(tuple, (view, ...)), ...)
    return create_model(f"{noun.title().replace('_', '')}View", __doc__=summary, **{noun: things})


def fill(view: type[M], *things: object, **further: object) -> M:
    """Return *view* filled from *further*, and else from the first of *things* with the field."""
    for name in view.model_fields.keys() - further.keys():
        for thing in (each for each in reversed(things) if hasattr(each, name)):
            further[name] = getattr(thing, name)
    return view.model_validate(further)


def _type_of(kind: type, name: str) -> Any:
    hints = get_type_hints(kind)
    return hints[name] if name in hints else get_type_hints(getattr(kind, name).fget)["return"]

import pkgutil

import forewarn.client
from forewarn.protocol.errors import ForewarnError


def test_what_is_listed_is_what_there_is() -> None:
    public = {name for name in vars(forewarn.client) if name.isidentifier() and name[0] != "_"}

    assert public == set(forewarn.client.__all__)


def test_every_module_is_private() -> None:
    modules = [module.name for module in pkgutil.iter_modules(forewarn.client.__path__)]

    assert modules
    assert all(name.startswith("_") for name in modules)


def test_errors_have_one_root() -> None:
    errors = [value for name, value in vars(forewarn.client).items() if name.endswith("Error")]

    assert len(errors) >= 5
    assert all(issubclass(error, forewarn.client.ClientError) for error in errors)
    assert issubclass(forewarn.client.ClientError, ForewarnError)

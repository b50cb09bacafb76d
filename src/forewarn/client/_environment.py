"""What the environment says about the metadata server. Only this module of the client reads it."""

import os
from collections.abc import Callable, Mapping
from ipaddress import IPv4Address
from typing import Final

from forewarn.client._endpoints import Endpoint, parse_endpoint
from forewarn.client._errors import EndpointError


def read_environment(environment: Mapping[str, str] = os.environ) -> Endpoint | None:
    """Return the endpoint that *environment* names; a variable that is empty is not set."""
    for name, parse in VARIABLES.items():
        text = environment.get(name)
        if text:
            try:
                return parse(text)
            except EndpointError as error:
                raise EndpointError(f"Invalid environment variable {name}: {error}") from error
    return None


def _parse_address(text: str) -> Endpoint:
    try:
        return Endpoint(host=str(IPv4Address(text)))
    except ValueError:
        raise EndpointError(f"{text!r} is not a valid IPv4 address.") from None


VARIABLES: Final[Mapping[str, Callable[[str], Endpoint]]] = {
    "FOREWARN_METADATA": parse_endpoint,
    "SCHEDULEDEVENTSIP": _parse_address,  # set by Microsoft's sample of 2017
}
"""The variables, the one that wins first, and who reads them."""

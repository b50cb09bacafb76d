"""The variables in which programs of any kind find the metadata endpoint."""

import re
from collections.abc import Mapping
from typing import Final

METADATA_ADDRESS: Final = "169.254.169.254"
"""Where virtual machines look for it by themselves."""
_OTHERS: Final[Mapping[str, str]] = {
    "AZURE_SCHEDULEDEVENTS_URL": "/metadata/scheduledevents?api-version=2019-08-01",
    "AZURE_METADATAINSTANCE_URL": "/metadata/instance?api-version=2019-08-01",
}
"""The variables of other people's programs: those of webdevops/azure-scheduledevents-manager."""


def endpoint_variables(url: str) -> dict[str, str]:
    """Return what tells programs that the endpoint is at *url*."""
    return {
        "FOREWARN_METADATA_URL": url,
        "FOREWARN_METADATA": url,
        **{name: f"{url}{path}" for name, path in _OTHERS.items()},
        **_address_variable(url),
    }


def _address_variable(url: str) -> dict[str, str]:
    """Return what Microsoft's sample of 2017 reads: an IPv4 address, if that says it all."""
    found = re.fullmatch(r"http://(\d+(?:\.\d+){3})(?::80)?", url)
    return {"SCHEDULEDEVENTSIP": found[1]} if found else {}

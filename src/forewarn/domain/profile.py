"""What a virtual machine reads about itself in its instance metadata, beyond its place."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, fields
from ipaddress import ip_network
from typing import Final

_MAC_ADDRESS: Final = re.compile(r"([0-9A-Fa-f]{2}[:-]?){5}[0-9A-Fa-f]{2}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Size, image, interface and the like. What is empty is not known."""

    vm_size: str = ""
    os_type: str = ""
    publisher: str = ""
    offer: str = ""
    sku: str = ""
    version: str = ""
    az_environment: str = ""
    user_data: str = ""
    computer_name: str = ""
    mac_address: str = ""
    subnet: str = ""

    @property
    def known(self) -> dict[str, str]:
        """What is not empty, by key."""
        return {key: value for key in PROFILE_KEYS if (value := getattr(self, key))}


PROFILE_KEYS: Final = tuple(field.name for field in fields(Profile))
NO_PROFILE: Final = Profile()


def profile_mistakes(profile: Profile) -> Iterator[str]:
    """Yield what is wrong with *profile*."""
    if profile.mac_address and not _MAC_ADDRESS.fullmatch(profile.mac_address):
        yield (
            f"mac_address {profile.mac_address!r} is not a valid MAC address, such as "
            "00:0d:3a:12:34:56"
        )
    try:
        ip_network(profile.subnet or "::/0")
    except ValueError:
        yield f"subnet {profile.subnet!r} is not a valid network, such as 10.0.0.0/24"

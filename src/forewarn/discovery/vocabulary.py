"""Words of discovery that commands know, too. It costs little to import."""

from enum import StrEnum


class AddressPlace(StrEnum):
    """Where the addresses of a domain are looked for."""

    LEASE = "lease"
    AGENT = "agent"
    ARP = "arp"

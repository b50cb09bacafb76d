"""By which names a virtual machine may be called in `Resources`."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"
_WITH_DECIMAL_ID: Final = re.compile(r"(.+)_(0|[1-9][0-9]{0,7})", re.ASCII)
# Without the zero every name that ends in six letters or digits would be an instance of something.
_WITH_BASE_36_ID: Final = re.compile(r"(.+?)(0[0-9a-z]{5})", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who a virtual machine is: what its metadata server and its system call it.

    `vm_id`, `update_domain` and `fault_domain` are None where they are not known.
    """

    name: str
    vm_id: str | None = None
    host_name: str = ""
    update_domain: int | None = None
    fault_domain: int | None = None

    @property
    def names(self) -> frozenset[str]:
        """Every name that means this virtual machine, as `spell` writes it."""
        return _all_names((self.name, *_host_names(self.host_name)))


def names(me: Identity | str) -> frozenset[str]:
    """Return every name that means *me*; a string may be a name or a host name."""
    return me.names if isinstance(me, Identity) else _all_names((me, *_host_names(me)))


def spell(resource: str) -> str:
    """Return *resource* in lower case, without the underscore that 2017-03-01 put before it."""
    return resource.lower().removeprefix("_")


def _host_names(host_name: str) -> tuple[str, str]:
    return host_name, host_name.partition(".")[0]


def _all_names(given: Iterable[str]) -> frozenset[str]:
    spelled = {spell(name) for name in given} - {""}
    return frozenset(spelled | {twin for name in spelled if (twin := _scale_set_twin(name))})


def _scale_set_twin(name: str) -> str | None:
    """Return the host name of `vmss_18`, the name of the host `vmss00000i`, or None."""
    if match := _WITH_DECIMAL_ID.fullmatch(name):
        return match[1] + _write_base_36(int(match[2]))
    if match := _WITH_BASE_36_ID.fullmatch(name):
        return f"{match[1]}_{int(match[2], 36)}"
    return None


def _write_base_36(number: int) -> str:
    digits = ""
    for _ in range(6):
        number, digit = divmod(number, 36)
        digits = _DIGITS[digit] + digits
    return digits

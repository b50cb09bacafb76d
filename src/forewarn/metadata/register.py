"""Who is who on a relay that is fed in parts, altered in place.

A persistent topology would be copied whenever much of it differs; here an entry costs what it is.
"""

from forewarn.domain.names import ScopeId, VmName, name_key
from forewarn.domain.topology import (
    DeliveryScope,
    VirtualMachine,
    known_addresses,
    slim_key,
)


class Register:
    """Virtual machines by what they are known by, and scopes. One thread alters and reads it."""

    def __init__(self) -> None:
        self.by_name: dict[str, VirtualMachine] = {}
        self.by_vm_id: dict[str, VirtualMachine] = {}
        self.by_address: dict[str, VirtualMachine] = {}
        self.scopes: dict[ScopeId, DeliveryScope] = {}

    def put(self, vm: VirtualMachine) -> VirtualMachine | None:
        """Enter *vm*, and return what was known of it before."""
        key = slim_key(vm.name)
        before = self.by_name.get(key)
        if before is not None:
            self._forget(before)
        self.by_name[key] = vm
        if vm.vm_id:
            self.by_vm_id[slim_key(vm.vm_id)] = vm
        for address in known_addresses(vm):
            self.by_address[address] = vm
        return before

    def remove(self, name: VmName) -> VirtualMachine | None:
        """Strike out the virtual machine of exactly this *name*, and return it if it was there."""
        known = self.by_name.get(name_key(name))
        if known is None or known.name != name:  # another one of this name in other letters
            return None
        del self.by_name[name_key(name)]
        self._forget(known)
        return known

    def _forget(self, vm: VirtualMachine) -> None:
        # What another one has taken over by now stays.
        if vm.vm_id and self.by_vm_id.get(name_key(vm.vm_id)) is vm:
            del self.by_vm_id[name_key(vm.vm_id)]
        for address in known_addresses(vm):
            if self.by_address.get(address) is vm:
                del self.by_address[address]

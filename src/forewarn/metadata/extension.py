"""What our own SDK and agent can ask beyond Azure's protocol, and never in Azure's document."""

import json
from datetime import datetime
from typing import Any, Final

from forewarn.domain.errors import DomainError, UnknownEventError
from forewarn.domain.topology import VirtualMachine
from forewarn.metadata.asgi import (
    MetadataAnswer,
    MetadataRefusedError,
    MetadataRequest,
    answer_error,
    answer_json,
    read_body,
)
from forewarn.metadata.conditional import LONGEST_WAIT
from forewarn.ports.verbs import Verbs
from forewarn.protocol.dates import read_date
from forewarn.protocol.errors import Refusal
from forewarn.protocol.vocabulary import EventId

_LAST_YEAR: Final = 2999


def answer_whoami(vm: VirtualMachine) -> MetadataAnswer:
    """Tell *vm* who it is to us."""
    return answer_json(
        {
            "name": vm.resource_name,
            "vm_id": vm.vm_id,
            "scope_id": vm.scope_id,
            "update_domain": vm.update_domain,
            "fault_domain": vm.fault_domain,
            "longest_wait": LONGEST_WAIT,
        }
    )


async def answer_event(verbs: Verbs, vm: VirtualMachine, event_id: EventId) -> MetadataAnswer:
    """Tell what has become of an event, also after it left the document."""
    try:
        return answer_json(await verbs.describe_event(vm.name, event_id))
    except UnknownEventError:
        raise MetadataRefusedError(Refusal.NOT_FOUND) from None


async def answer_postpone(
    verbs: Verbs, vm: VirtualMachine, event_id: EventId, request: MetadataRequest
) -> MetadataAnswer:
    """Postpone an event, if its scope's policy lets the virtual machine do that."""
    not_before = _read_not_before(await read_body(request))
    if not_before is None:
        return answer_error('Bad request. The body is not {"not_before": DATE}', status=400)
    if not_before.year > _LAST_YEAR:
        return answer_error("Bad request. The date is too far away", status=400)
    try:
        return answer_json(
            await verbs.postpone(vm.name, event_id, not_before, where=request.address)
        )
    except UnknownEventError:
        raise MetadataRefusedError(Refusal.NOT_FOUND) from None
    except DomainError as error:
        return answer_error(str(error), status=409)


def _read_not_before(body: bytes) -> datetime | None:
    try:
        content: Any = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return read_date(content.get("not_before")) if isinstance(content, dict) else None

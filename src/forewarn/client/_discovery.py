"""Which metadata server a client without an endpoint talks to."""

from forewarn.client._endpoints import Endpoint
from forewarn.client._messages import Conversation


def find_endpoint() -> Conversation[Endpoint]:
    """Return the endpoint that every virtual machine of Azure has."""
    yield from ()
    return Endpoint(host="169.254.169.254")

"""A replica that tests speak of."""

from typing import Final

from forewarn.ports.replicas import ReplicaIdentity

ITSELF: Final = ReplicaIdentity(
    replica_id="one",
    name="kvm-1",
    address="http://127.0.0.1:8170",
    version="1.2",
    settings={"notice": "always"},
)

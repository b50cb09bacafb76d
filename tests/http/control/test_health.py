"""Whether load balancers are told to send writes elsewhere."""

from dataclasses import replace

import httpx2
from fastapi import FastAPI


def test_server_that_cannot_write_its_state_directory_is_not_ready_for_writes(
    api: httpx2.Client, app: FastAPI
) -> None:
    before = api.get("http://control/readyz/write")
    app.state.services = replace(app.state.services, records_problem=lambda: "tasks is full.")
    after = api.get("http://control/readyz/write")

    assert (before.status_code, before.json()) == (200, {"status": "ok"})
    assert after.status_code == 503
    assert after.json() == {"status": "the state directory cannot be written"}

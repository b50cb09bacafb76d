"""A real server carries out each type of event on Proxmox VE, over TLS, and works on a node."""

from pathlib import Path

import pytest
from tests.contrib.conftest import CONTRIB, FAST, Program
from tests.contrib.proxmox.api import PveGuest
from tests.contrib.proxmox.conftest import config, make_cluster
from tests.contrib.served import (
    EVENT_TYPES,
    SECONDS,
    carry_out_each_type,
    follow_inventory,
    follow_the_page,
    maintain_host,
    problem_of,
    serve,
    wait_for,
    where,
)
from tests.contrib.ssh import calls
from tests.e2e.conftest import ServerMaker, wait_until
from tests.e2e.test_tls import Pair

pytestmark = pytest.mark.timeout(300)


def test_each_type_of_event_and_a_node_are_carried_out_as_the_readme_says(
    make_server: ServerMaker, tmp_path: Path, pair: Pair, token_file: Path
) -> None:
    cluster = make_cluster()
    cluster.guests[104] = PveGuest(vmid=104, name="app-0", config=config(104))
    (tmp_path / "patch-node.sh").write_text("apt-get -qy dist-upgrade\n", encoding="ascii")
    vms = dict(zip(EVENT_TYPES, ("web-0", "web-1", "db-0", "idle", "app-0"), strict=True))
    before = cluster.guest("web-1").pid

    with cluster.api.listening(pair):
        where = ("--url", cluster.api.url, "--token-file", str(token_file))
        inventory = Program(
            path=CONTRIB / "proxmox" / "pve_inventory.py",
            arguments=(*where, "--ca-file", str(pair.certificate), *FAST),
        )
        changes = {
            '"--url"': '"--pause", "0.05", "--url"',
            "https://pve-1.example.org:8006": cluster.api.url,
            "/etc/forewarn/pve.token": str(token_file),
            "/etc/forewarn/pve-root-ca.pem": str(pair.certificate),
            "/etc/forewarn/patch-node.sh": str(tmp_path / "patch-node.sh"),
        }
        server = serve(make_server, tmp_path, "proxmox", inventory, changes)
        follow_the_page(server, "web-1")
        endings = carry_out_each_type(server, vms)
        outcome = maintain_host(server, "pve-2")

    assert endings == dict.fromkeys(EVENT_TYPES, ("succeeded", ""))
    assert cluster.guest("web-0").node != "pve-1"
    assert cluster.guest("web-1").pid != before
    assert (cluster.guest("db-0").node, cluster.guest("db-0").status) == ("pve-3", "running")
    assert {cluster.guest(name).status for name in ("idle", "app-0")} == {"stopped"}
    assert outcome == "succeeded"
    assert cluster.guest("web-1").node != "pve-2"
    assert [line.partition(" ")[2] for line in calls(tmp_path)] == [
        "ha-manager crm-command node-maintenance enable pve-2",
        "sh -s <<< apt-get -qy dist-upgrade",
        "systemctl reboot",
        "ha-manager crm-command node-maintenance disable pve-2",
    ]


def test_failure_of_the_product_is_the_reason_of_the_event(
    make_server: ServerMaker, tmp_path: Path, pair: Pair, token_file: Path
) -> None:
    cluster = make_cluster()
    with cluster.api.listening(pair):
        where = ("--url", cluster.api.url, "--token-file", str(token_file))
        inventory = Program(
            path=CONTRIB / "proxmox" / "pve_inventory.py",
            arguments=(*where, "--ca-file", str(pair.certificate), *FAST),
        )
        changes = {
            "https://pve-1.example.org:8006": cluster.api.url,
            "/etc/forewarn/pve.token": str(token_file),
            # The system's own authorities do not know the certificate.
            "/etc/forewarn/pve-root-ca.pem": "/etc/ssl/certs/ca-certificates.crt",
            "/etc/forewarn/patch-node.sh": str(token_file),
        }
        server = serve(make_server, tmp_path, "proxmox", inventory, changes)
        (event,) = server.create("Terminate", "web-0", started=True)
        server.wait_for(event["event_id"], "Completed", 60)
        ended = server.event(event["event_id"])

    assert ended["outcome"] == "failed"
    assert "exit code 1: cannot verify the certificate of" in ended["reason"]
    assert cluster.guest("web-0").status == "running"


def test_fleet_follows_the_cluster_as_the_readme_says(
    make_server: ServerMaker, tmp_path: Path, pair: Pair, token_file: Path
) -> None:
    cluster = make_cluster()
    with cluster.api.listening(pair):
        changes = {
            '"--url"': '"--pause", "0.05", "--url"',
            "https://pve-1.example.org:8006": cluster.api.url,
            "/etc/forewarn/pve.token": str(token_file),
            "/etc/forewarn/pve-root-ca.pem": str(pair.certificate),
        }
        server = follow_inventory(make_server, tmp_path, "proxmox", changes)
        wait_for(server, "web-1", "pve-2")
        found = server.operate("GET", "virtual-machines/web-1").json()

        cluster.guest("web-1").node = "pve-3"
        gone = cluster.guests.pop(103)
        wait_for(server, "web-1", "pve-3")
        wait_for(server, gone.name, None)

        token_file.unlink()
        wait_until(lambda: bool(problem_of(server)), "no problem", SECONDS, pause=0.2)

    assert (found["scope_id"], found["update_domain"]) == ("availability-set/web", 6)
    assert found["addresses"] == ["10.0.0.101"]
    assert found["labels"] == {"discovery": "pve", "vmid": "101"}
    assert "pve.token" in problem_of(server)
    assert where(server, "web-1") == "pve-3"
    assert server.operate("GET", "virtual-machines/mine").status == 200

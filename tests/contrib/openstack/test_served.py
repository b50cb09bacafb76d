"""A real server carries out each type of event on OpenStack, over TLS, and works on a host."""

from pathlib import Path

import pytest
from tests.contrib.conftest import CONTRIB, FAST, Program
from tests.contrib.openstack.api import NovaServer
from tests.contrib.openstack.conftest import identify, make_cloud, write_credentials
from tests.contrib.served import (
    EVENT_TYPES,
    SECONDS,
    carry_out_each_type,
    follow_inventory,
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


def test_each_type_of_event_and_a_host_are_carried_out_as_the_readme_says(
    make_server: ServerMaker, tmp_path: Path, pair: Pair
) -> None:
    cloud = make_cloud()
    cloud.servers.append(NovaServer(id=identify(4), name="app-0", address="10.0.0.104"))
    (tmp_path / "patch-host.sh").write_text("apt-get -qy dist-upgrade\n", encoding="ascii")
    vms = dict(zip(EVENT_TYPES, ("web-0", "web-1", "db-0", "idle", "app-0"), strict=True))

    with cloud.api.listening(pair):
        credentials = write_credentials(tmp_path, cloud.api.url)
        with credentials.open("a", encoding="ascii") as file:
            file.write(f"\nexport OS_CACERT={pair.certificate}\n")
        inventory = Program(
            path=CONTRIB / "openstack" / "nova_inventory.py",
            arguments=("--credentials", str(credentials), "--all-projects", *FAST),
        )
        changes = {
            '"--credentials"': '"--pause", "0.05", "--credentials"',
            "/etc/forewarn/openrc": str(credentials),
            "/etc/forewarn/patch-host.sh": str(tmp_path / "patch-host.sh"),
        }
        server = serve(make_server, tmp_path, "openstack", inventory, changes)
        endings = carry_out_each_type(server, vms)
        redeployed = (cloud.server("db-0").host, cloud.server("db-0").status)
        outcome = maintain_host(server, "compute-2")

    assert endings == dict.fromkeys(EVENT_TYPES, ("succeeded", ""))
    assert redeployed == ("compute-3", "ACTIVE")
    assert {cloud.server(name).status for name in ("idle", "app-0")} == {"SHUTOFF"}
    assert outcome == "succeeded"
    assert cloud.server("web-1").host != "compute-2"
    assert cloud.services["compute-2"]["status"] == "enabled"
    assert calls(tmp_path) == [
        "root@compute-2 sh -s <<< apt-get -qy dist-upgrade",
        "root@compute-2 systemctl reboot",
    ]


def test_fleet_follows_the_cloud_as_the_readme_says(
    make_server: ServerMaker, tmp_path: Path, pair: Pair
) -> None:
    cloud = make_cloud()
    with cloud.api.listening(pair):
        credentials = write_credentials(tmp_path, cloud.api.url)
        with credentials.open("a", encoding="ascii") as file:
            file.write(f"\nexport OS_CACERT={pair.certificate}\n")
        changes = {
            '"--credentials"': '"--pause", "0.05", "--credentials"',
            "/etc/forewarn/openrc": str(credentials),
        }
        server = follow_inventory(make_server, tmp_path, "openstack", changes)
        wait_for(server, "web-1", "compute-2")
        found = server.operate("GET", "virtual-machines/web-0").json()

        cloud.server("web-1").host = "compute-3"
        cloud.servers.remove(cloud.server("idle"))
        wait_for(server, "web-1", "compute-3")
        wait_for(server, "idle", None)

        credentials.unlink()
        wait_until(lambda: bool(problem_of(server)), "no problem", SECONDS, pause=0.2)

    assert found["vm_id"] == identify(0)
    assert found["addresses"] == ["10.0.0.100"]
    assert found["labels"]["discovery"] == "openstack"
    assert "openrc" in problem_of(server)
    assert where(server, "web-1") == "compute-3"
    assert server.operate("GET", "virtual-machines/mine").status == 200

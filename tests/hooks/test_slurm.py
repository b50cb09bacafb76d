"""The hook for Slurm against a cluster of one node."""

import getpass
import platform
import subprocess
from collections.abc import Generator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from tests.e2e.conftest import wait_until
from tests.hooks.conftest import FAILED, NOT_YET, PATH, READY, InstalledMaker, need
from tests.ports import free_port

SECONDS = 45.0

CONFIGURATION = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmdPort={node_port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/none
CredType=cred/none
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SchedulerParameters=sched_min_interval=100000
SlurmdParameters=config_overrides
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
NodeName=node-0 NodeHostname={host} NodeAddr=127.0.0.1 CPUs=1 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP
"""


@dataclass(frozen=True, slots=True)
class Cluster:
    folder: Path

    @property
    def variables(self) -> Mapping[str, str]:
        return {"PATH": PATH, "SLURM_CONF": str(self.folder / "slurm.conf")}

    def order(self, *command: str) -> str:
        return subprocess.run(
            command,
            env=self.variables,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        ).stdout

    def begin_job(self) -> str:
        """Submit a job that takes long, and return its id."""
        return self.order("sbatch", "--parsable", "--output=/dev/null", "--wrap=sleep 600").strip()

    def wait_for_job(self, job: str, state: str) -> None:
        wait_until(
            lambda: (
                self.order("squeue", "--noheader", "--format=%i %T").splitlines()
                == ([f"{job} {state}"] if state else [])
            ),
            f"job {job} is not {state or 'gone'}, see {self.folder}/log",
            SECONDS,
            pause=0.2,
        )


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Generator[Cluster]:
    need("slurmctld", "slurmd", "sbatch", "scontrol")
    folder = tmp_path_factory.mktemp("slurm")
    for name in ("state", "spool"):
        (folder / name).mkdir()
    settings = CONFIGURATION.format(
        host=platform.node().partition(".")[0],
        user=getpass.getuser(),
        folder=folder,
        controller_port=free_port(),
        node_port=free_port(),
    )
    (folder / "slurm.conf").write_text(settings, encoding="ascii")
    cluster = Cluster(folder)
    with ExitStack() as stack, (folder / "log").open("wb") as log:
        for command in (["slurmctld", "-D"], ["slurmd", "-D", "-N", "node-0"]):
            process = subprocess.Popen(command, stdout=log, stderr=log, env=cluster.variables)
            stack.callback(process.wait, SECONDS)
            stack.callback(process.terminate)
        wait_until(
            lambda: " State=IDLE " in cluster.order("scontrol", "--oneliner", "show", "node"),
            f"no node, see {folder}/log",
            SECONDS,
            pause=0.2,
        )
        yield cluster


def test_node_is_drained_and_resumed(cluster: Cluster, install: InstalledMaker) -> None:
    hook = replace(install("slurm", NODE="node-0"), environment=cluster.variables)
    first = cluster.begin_job()
    cluster.wait_for_job(first, "RUNNING")

    ended = hook.run("scheduled")
    assert (ended.status, ended.said) == (NOT_YET, "slurm: not yet: node-0: ALLOCATED+DRAIN\n")
    assert "Reboot ahead" in cluster.order("scontrol", "--oneliner", "show", "node")
    cluster.order("scancel", first)
    cluster.wait_for_job(first, "")
    second = cluster.begin_job()
    wait_until(lambda: hook.run("scheduled").status == READY, "the node is not drained", SECONDS)
    cluster.wait_for_job(second, "PENDING")

    assert hook.run("recovered").status == READY
    cluster.wait_for_job(second, "RUNNING")
    cluster.order("scancel", second)
    cluster.wait_for_job(second, "")


def test_unknown_node_is_a_failure(cluster: Cluster, install: InstalledMaker) -> None:
    hook = replace(install("slurm", NODE="node-9"), environment=cluster.variables)

    ended = hook.run("scheduled")

    assert ended.status == FAILED
    assert "Node node-9 not found" in ended.said

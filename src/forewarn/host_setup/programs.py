"""The programs of this host that are asked and told: `ip`, `nft` and `virsh`."""

import json
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from forewarn.host_setup.bindings import HostSetupError

SEARCH_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Where programs are looked for, whatever the environment of an operator says."""
PACKAGES: Final[Mapping[str, str]] = {
    "ip": "iproute2",
    "nft": "nftables",
    "virsh": "libvirt-clients",
}
"""What to install for each program, by the names of Debian."""
_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Programs:
    """Runs programs without a shell."""

    search_path: str = SEARCH_PATH

    def find(self, name: str) -> str:
        """Return where the program *name* is, or refuse."""
        found = shutil.which(name, path=self.search_path)
        if found is None:
            raise HostSetupError(
                f"The program {name} is not installed.",
                f"try: apt-get install {PACKAGES[name]}",
            )
        return found

    def run(self, *words: str, text: str = "") -> str:
        """Return what a program prints; refuse with what it complains about."""
        try:
            done = subprocess.run(  # noqa: S603 - no shell, and words that were checked
                (self.find(words[0]), *words[1:]),
                input=text,
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                timeout=_SECONDS,
                check=False,
                env={"PATH": self.search_path, "LC_ALL": "C.UTF-8"},
            )
        except subprocess.TimeoutExpired:
            raise HostSetupError(
                f"{' '.join(words)} did not finish within {_SECONDS:.0f} s."
            ) from None
        if done.returncode != 0:
            said = " ".join(done.stderr.split()) or f"exit code {done.returncode}"
            raise HostSetupError(f"{' '.join(words)} failed: {said.rstrip('.')}.")
        return done.stdout

    def ask(self, *words: str) -> Any:
        """Return what a program prints as JSON."""
        printed = self.run(*words)
        return json.loads(printed) if printed.strip() else []

"""Files of executors for the hosts of the lab."""

from typing import Final

from tests.lab.data_centres import DataCentre

SCRIPTS: Final = """
[[command]]
event_types = ["Reboot"]
run = ["sh", "-c", '''virsh --connect "{uri}" reset $EVENT_VM''']

[[command]]
event_types = ["Freeze"]
run = ["sh", "-c", '''
virsh --connect "{uri}" suspend $EVENT_VM
sleep $EVENT_DURATION
virsh --connect "{uri}" resume $EVENT_VM
''']
"""


def scripts(data_centre: DataCentre) -> str:
    """Return executors that run virsh."""
    return SCRIPTS.format(uri=data_centre.uri.format(host="$EVENT_HOST"))


GRACE_SECONDS: Final = 10
LIBVIRT: Final = """
[[libvirt]]
uri = "{uri}"
grace = "{grace}s"
{more}
"""


def libvirt(data_centre: DataCentre, **more: str) -> str:
    """Return the executor of libvirt, with these keys besides its URI."""
    lines = "\n".join(f"{key} = {value}" for key, value in more.items())
    return LIBVIRT.format(uri=data_centre.uri, grace=GRACE_SECONDS, more=lines)

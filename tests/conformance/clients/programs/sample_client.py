"""Makes the calls of the Python sample, under Python 2 and 3: urllib2 and a Metadata header.

sample_client.py ADDRESS look      prints the document
sample_client.py ADDRESS approve   approves everything in the document, as urllib2 posts by itself
"""

import importlib
import json
import sys

urllib2 = importlib.import_module("urllib2" if sys.version_info[0] == 2 else "urllib.request")


def send(address, body=None):
    # type: (str, bytes | None) -> str
    url = "http://" + address + "/metadata/scheduledevents?api-version=2017-03-01"
    request = urllib2.Request(url, body)
    request.add_header("Metadata", "true")
    return str(urllib2.urlopen(request).read().decode("utf-8"))


def main(address, action):
    # type: (str, str) -> None
    text = send(address)
    if action == "look":
        sys.stdout.write(text)
        return
    document = json.loads(text)
    requests = [{"EventId": event["EventId"]} for event in document["Events"]]
    approval = {
        "DocumentIncarnation": document["DocumentIncarnation"],
        "StartRequests": requests,
    }
    send(address, json.dumps(approval).encode("ascii"))


main(*sys.argv[1:])

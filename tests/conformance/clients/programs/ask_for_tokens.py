"""Asks for a token with azure-identity as it is, and tells the error and how long it took."""

import importlib
import json
import sys
import time

identity = importlib.import_module("azure.identity")
refused = importlib.import_module("azure.core.exceptions").ClientAuthenticationError

for name in ("ManagedIdentityCredential", "DefaultAzureCredential"):
    credential = getattr(identity, name)()
    began = time.monotonic()
    try:
        credential.get_token("https://vault.azure.net/.default")
    except refused as error:
        told = {"credential": name, "error": str(error), "seconds": time.monotonic() - began}
        sys.stdout.write(f"{json.dumps(told)}\n")

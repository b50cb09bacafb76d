#!/bin/sh
# Install what `make image` runs. Packages need root and Debian. What is there already is left alone.
set -eu
cd "$(dirname "$0")/.."

packages="aardvark-dns buildah iptables mmdebstrap netavark podman podman-compose runc"
uv=$(command -v uv || echo .venv/bin/uv)

[ "$(id -u)" = 0 ] || { echo "make image needs root, to make a base image and to run containers" >&2; exit 1; }
missing=''
for package in $packages; do
  dpkg-query -W -f '${db:Status-Status}' "$package" 2> /dev/null | grep -qx installed ||
    missing="$missing $package"
done
if [ -n "$missing" ]; then
  command -v apt-get > /dev/null || { echo "this needs Debian's apt-get, for:$missing" >&2; exit 1; }
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends \
    -o DPkg::Lock::Timeout=300 $missing > /dev/null
fi

pins=tests/image/testcontainers.txt
environment=.venv/clients/testcontainers
if ! cmp -s "$pins" "$environment/installed.txt"; then
  "$uv" venv --quiet --clear --python .venv/bin/python "$environment"
  "$uv" pip install --quiet --python "$environment/bin/python" --require-hashes --requirements "$pins"
  cp "$pins" "$environment/installed.txt"
fi

#!/bin/sh
# Make localhost/forewarn-base: Debian of the suite that this machine has, with Python and little else, from where apt
# gets its packages. For machines that reach no registry. Needs root, buildah and mmdebstrap.
set -eu

suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
apt-get indextargets --format 'deb $(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' 'Origin: Debian' |
  grep -E " $suite(-|/| )" | sort -u > "$folder/sources.list"
[ -s "$folder/sources.list" ] || { echo "apt knows no source of Debian $suite" >&2; exit 1; }
mmdebstrap --quiet --variant=essential --include=ca-certificates,python3-venv \
  --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
  --dpkgopt='path-exclude=/usr/share/man/*' \
  "$suite" "$folder/base.tar" "$folder/sources.list"
container=$(buildah from scratch)
buildah add --quiet "$container" "$folder/base.tar" / > /dev/null
buildah commit --quiet --rm "$container" localhost/forewarn-base > /dev/null

#!/bin/sh
# Install what `make lab` runs, and make .lab/tree: Debian for its guests, of the suite and with the packages that this
# machine has. Small guests take only their kernel and a few programs from it (tests/lab/make_initramfs.sh). Needs root, and
# Debian on amd64. What is there already is left alone.
set -eu
cd "$(dirname "$0")/.."

packages="debootstrap dnsmasq-base e2fsprogs gcc iproute2 libc6-dev libvirt-clients libvirt-daemon libvirt-daemon-driver-qemu libvirt-dev nftables
openssl pkg-config python3-dev qemu-system-x86 util-linux"
inside="busybox-static curl dbus linux-image-cloud-amd64 python3-venv qemu-guest-agent systemd-sysv udev"
tree=.lab/tree

[ "$(id -u)" = 0 ] || { echo "make lab needs root, to install packages and to make disks" >&2; exit 1; }
missing=''
for package in $packages; do
  dpkg-query -W -f '${db:Status-Status}' "$package" 2> /dev/null | grep -qx installed ||
    missing="$missing $package"
done
if [ -n "$missing" ] || [ ! -e .lab/made-by ]; then
  [ "$(dpkg --print-architecture 2> /dev/null)" = amd64 ] || { echo "make lab needs Debian on amd64" >&2; exit 1; }
  apt-get update -qq
fi
if [ -n "$missing" ]; then
  DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends \
    -o DPkg::Lock::Timeout=300 $missing > /dev/null
fi

# Not among the packages of .venv, because it is compiled against libvirt-dev.
.venv/bin/python -c 'import libvirt' 2> /dev/null ||
  "$(command -v uv || echo .venv/bin/uv)" pip install --quiet --python .venv/bin/python --require-hashes --requirements requirements/libvirt.txt

if cmp -s "$0" .lab/made-by; then
  exit 0
fi
suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
mirror=$(apt-get indextargets --format '$(REPO_URI)' \
  'Created-By: Packages' "Codename: $suite" 'Component: main' | head -n 1)
[ -n "$mirror" ] || { echo "apt knows no source of Debian $suite" >&2; exit 1; }
echo "Making $tree (once, two minutes) ..."
rm -rf .lab
mkdir .lab
debootstrap --variant=minbase --include="$(echo "$inside" | tr ' ' ,)" \
  "$suite" "$tree" "$mirror" > .lab/log 2>&1 || { tail .lab/log >&2; exit 1; }
chroot "$tree" apt-get clean
chroot "$tree" python3 -m venv /opt/forewarn
chroot "$tree" systemctl --quiet enable systemd-networkd
# What a boot does not need, which takes seconds without KVM.
chroot "$tree" systemctl --quiet mask getty.target e2scrub_reap.service apt-daily.timer apt-daily-upgrade.timer
echo MODULES=list > "$tree/etc/initramfs-tools/conf.d/lab"
printf 'virtio_pci\nvirtio_blk\n' >> "$tree/etc/initramfs-tools/modules"
chroot "$tree" update-initramfs -u >> .lab/log 2>&1
# The journal outlives a reboot if there is a folder for it.
mkdir -p "$tree/var/log/journal"
cp "$0" .lab/made-by

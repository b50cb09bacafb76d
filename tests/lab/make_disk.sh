#!/bin/sh
# make_disk.sh BASE WHEEL DISK: make a disk of Debian in the folder BASE, with the agent and its hooks installed as the
# unit's first lines and the README of contrib/hooks say, and with what the tests look at.
set -eu
PATH=$PATH:/usr/sbin:/sbin
here=$(dirname "$0")
contrib=$here/../../contrib
tree=$3.tree
hooks=/etc/forewarn/hooks.d

cp -a "$1" "$tree"
cp "$2" "$tree/root/"
chroot "$tree" /opt/forewarn/bin/pip install --quiet --no-index --disable-pip-version-check "/root/${2##*/}"

unit=etc/systemd/system/forewarn-agent.service
sed 's,^ExecStart=/usr/local/bin/,ExecStart=/opt/forewarn/bin/,' "$contrib/systemd/forewarn-agent.service" > "$tree/$unit"
grep -q ^ExecStart=/opt/forewarn/bin/forewarn-agent "$tree/$unit"

cp -r "$contrib/hooks" "$tree/usr/local/lib/forewarn-hooks"
for phase in scheduled recovered canceled; do
  mkdir -p "$tree$hooks/$phase.d"
  ln -s /usr/local/lib/forewarn-hooks/systemd-units "$tree$hooks/$phase.d/10-systemd-units"
done
mkdir -p "$tree/etc/forewarn/hooks"
echo 'UNITS="app.service"' > "$tree/etc/forewarn/hooks/systemd-units.conf"

for phase in scheduled started recovered canceled; do
  mkdir -p "$tree$hooks/$phase.d"
  cp "$here/note" "$tree$hooks/$phase.d/20-note"
  chmod 755 "$tree$hooks/$phase.d/20-note"
done
# The unit keeps hooks from devices, as the serial line of this one.
mkdir "$tree/etc/systemd/system/forewarn-agent.service.d"
printf '[Service]\nBindPaths=/dev/ttyS1\nDeviceAllow=/dev/ttyS1\n' \
  > "$tree/etc/systemd/system/forewarn-agent.service.d/note.conf"
cp "$here/app.service" "$tree/etc/systemd/system/"
cp "$here/lan.network" "$tree/etc/systemd/network/"
echo guest > "$tree/etc/hostname"
# It logs every command it is given.
mkdir "$tree/etc/systemd/system/qemu-guest-agent.service.d"
printf '[Service]\nLogLevelMax=notice\n' > "$tree/etc/systemd/system/qemu-guest-agent.service.d/quiet.conf"

mke2fs -q -t ext4 -d "$tree" "$3" 1G
rm -r "$tree"

#!/bin/sh
# libvirtd.sh FOLDER NAME: run libvirtd as on a host of its own, which is called NAME. Runs in namespaces for mounts and for
# the name, so that libvirtd finds its settings and keeps its state in FOLDER, and changes nothing of this machine.
set -eu

mount --bind "$1/run" /run
mount --bind "$1/lib" /var/lib
mount --bind "$1/log" /var/log
mount --bind "$1/cache" /var/cache
mount --bind "$1/etc" /etc/libvirt
for file in passwd group hosts; do
  mount --bind "$1/$file" /etc/$file
done
echo "$2" > /proc/sys/kernel/hostname
exec /usr/sbin/libvirtd --config "$1/libvirtd.conf"

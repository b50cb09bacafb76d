#!/bin/sh
# make_initramfs.sh BASE INITRAMFS: pack a system of a few programs, which boots in seconds without KVM: busybox, QEMU's
# agent and the drivers from Debian in the folder BASE, and what is in small/.
set -eu
here=$(dirname "$0")
tree=$2.tree
kernel=$(ls "$1/lib/modules")
busybox=$(realpath "$1/bin/busybox")

mkdir -p "$tree/bin" "$tree/sbin" "$tree/usr/sbin" "$tree/modules"
cp "$busybox" "$tree/bin/"
for program in init lease; do
  install -m 755 "$here/small/$program" "$tree/"
done
install -m 755 "$here/small/request-start" "$tree/bin/"
install -m 755 "$here/small/shutdown" "$tree/sbin/"

# A driver may need others, which are listed before it.
for driver in virtio_pci virtio_net virtio_console virtio_blk evdev button; do
  chroot "$1" modprobe --set-version "$kernel" --show-depends $driver
done | sed -n 's/^insmod \([^ ]*\).*/\1/p' | while read -r file; do
  name=/modules/$(basename "$file")
  if [ ! -e "$tree$name" ]; then
    cp "$1$file" "$tree$name"
    echo "$name" >> "$tree/modules/order"
  fi
done

cp "$1/usr/sbin/qemu-ga" "$tree/usr/sbin/"
for library in $(chroot "$1" ldd /usr/sbin/qemu-ga | grep -o '/[^ ]*'); do
  mkdir -p "$tree$(dirname "$library")"
  cp -L "$1$library" "$tree$library"
done

(cd "$tree" && find . | "$busybox" cpio -o -H newc 2> /dev/null) | gzip -1 > "$2"
rm -r "$tree"

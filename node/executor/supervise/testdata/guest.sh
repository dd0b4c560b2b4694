#!/bin/sh
# Makes the kernel for the guest of TestVersion2 in the directory given, with
# qemu installed, and prints the kernel's path. Needs Debian and root.
set -eu
dir=$1
mkdir -p "$dir"
if ! command -v qemu-system-x86_64 >/dev/null; then
	(apt-get update && apt-get install -y --no-install-recommends qemu-system-x86) >&2
fi
if [ ! -s "$dir/vmlinuz" ]; then
	work=$(mktemp -d)
	trap 'rm -rf "$work"' EXIT
	cd "$work"
	find_kernel() {
		apt-cache depends linux-image-cloud-amd64 2>/dev/null |
			sed -n 's/.*Depends: \(linux-image-.*\)/\1/p' | head -n 1
	}
	kernel=$(find_kernel)
	if [ -z "$kernel" ]; then
		apt-get update >&2
		kernel=$(find_kernel)
	fi
	apt-get download "$kernel" >&2
	dpkg-deb -x ./*.deb tree
	cp tree/boot/vmlinuz-* "$dir/vmlinuz.new"
	mv "$dir/vmlinuz.new" "$dir/vmlinuz"
fi
echo "$dir/vmlinuz"

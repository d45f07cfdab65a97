#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# test-kernels.sh [SUITE[/cards]...]: boots the cloud kernel of each Debian suite
# in QEMU and runs in it, as root, the tests that load eBPF programs and feed them
# packets; with /cards the kernel that has drivers of physical cards, and the test
# that needs them. Without arguments: the oldest kernel that is looked after, and the
# newest that Debian has, and the oldest one's with cards. docs/internals/kernels.md says more.
#
# Kernels are downloaded and unpacked under bin/kernels, never installed.
# JEOUL_RUN=REGEXP chooses tests, JEOUL_PACKAGES='DIRECTORY...' packages, JEOUL_LIMIT=DURATION
# bounds each machine, JEOUL_ACCELERATOR is QEMU's -accel, JEOUL_TEST_EVERY_STEP=1 has processes killed at every step, and TESTFLAGS='-test.v' is handed to the tests.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

go=${GO:-$TREE/scripts/go.sh}
cache=$TREE/bin/kernels
limit=${JEOUL_LIMIT:-30m}
suites=("$@")
[ $# != 0 ] || suites=(bookworm trixie-backports bookworm/cards)
packages=(internal/balancer/datapath/pins internal/balancer/datapath/libxdp internal/host/hostnet internal/balancer/datapath internal/balancer/local internal/tools/agent internal/host/drops internal/weigh/bench/subject)
[ -z "${JEOUL_PACKAGES:-}" ] || read -ra packages <<<"$JEOUL_PACKAGES"
# What tests use of a kernel that has them as modules.
modules=(virtio_pci virtio_net e1000 e1000e veth bridge dummy 8021q sch_ingress cls_bpf ipip ip6_tunnel sit fou fou6 vxlan ip_vs ip_vs_rr)

# cards_of SUITE: prints the names that QEMU and the kernel have for the cards of the
# suite's machine, one kind a line. The cloud kernel has drivers of virtual ones only.
cards_of() {
	case $1 in
	*/cards) printf '%s\n' 'e1000 e1000' 'e1000e e1000e' ;;
	*) printf '%s\n' 'virtio-net-pci virtio_net' ;;
	esac
}

# cabled SUITE: prints QEMU's arguments for two cards of each kind and a cable between
# them, for TestTagsOfCards. Nothing else is on it.
cabled() {
	local kind number=0 card
	while read -r kind _; do
		number=$((number + 1))
		for card in 1 2; do
			printf '%s\n' -netdev "hubport,id=card$number$card,hubid=$number" \
				-device "$kind,netdev=card$number$card,mac=02:00:00:00:a$number:0$card"
		done
	done < <(cards_of "$1")
}

# chosen SUITE PACKAGE: the tests to run of it. To verify a program takes seconds where
# QEMU translates, so of the data plane's tests it is those that load few: every
# way to attach, and packets of every kind.
chosen() {
	if [ -n "${JEOUL_RUN:-}" ]; then
		printf '%s\n' "$JEOUL_RUN"
	elif [[ $1 == */cards ]]; then
		printf '^TestTagsOfCards$\n'
	elif [ "$2" = internal/balancer/datapath ]; then
		printf '^Test(%s)$\n' "Attach|SwapAllOrNone|Filter|FilterSwapsInOneStep|FilterOfAKilledBalancer|\
Frames|Headers|Modes|MSS|ChecksumsAreRightOnTheWire|FullNATPoolExhausted|FragmentCases|ICMP|ReturnsOfNAT|ReturnsOfFullNAT|TooBig|GSO|\
OnlyTheTracedProgramHasTheRing|TagsOfCards|Holders|Dispatcher|DispatcherOfOurs|DispatcherHooks|DispatcherPackets|LoaderAfterOurs|AutoBesideOthers|Company|NeighboursInTC|WhatBackendsAnswer|Clients|FlowsMoving|FlowsBeginAtTheExchange|PacketsOfNoFlow|MovedSlots|FlowsOfABackendThatLeft|PoolNumbersOutliveTheProcess|\
Kept|KeptByOne|KeptByAnotherBuild|KeptFlowsOfAnotherLayout|KeptOnChangedInterfaces|Sweep|OrphanStepsAside|WatchEnds|KilledAtEachStep"
	elif [ "$2" = internal/host/hostnet ]; then
		# What is left by a kill, and taken back or taken over.
		printf '^Test(Inherit|InheritForwarding|KilledAtEachStep|GiveClsact)$\n'
	elif [ "$2" = internal/weigh/bench/subject ]; then
		# IPVS, which the kernel that this is written on may not have.
		printf '^Test(SubjectsCarry|IPVSOnAMachine)$/^(direct|ipvs-.*|taken away|changed|the run dies|it is somebody.*)$\n'
	else
		printf '.\n'
	fi
}

# install_tools installs what is missing to run a machine.
install_tools() {
	local missing=()
	command -v qemu-system-x86_64 >/dev/null || missing+=(qemu-system-x86)
	command -v busybox >/dev/null || missing+=(busybox-static)
	command -v xz >/dev/null || missing+=(xz-utils)
	command -v xdp-loader >/dev/null || missing+=(xdp-tools)
	[ ${#missing[@]} = 0 ] || "$TREE/scripts/as-root.sh" "$TREE/scripts/apt-install.sh" "${missing[@]}"
	# Not of busybox, which needs a C library.
	if busybox | head -n 1 >/dev/null && [ -n "$(ldd "$(command -v busybox)" 2>/dev/null | grep '=>' || true)" ]; then
		die "busybox is linked dynamically, and a machine has no C library" "apt-get install busybox-static"
	fi
}

# apt_of SUITE COMMAND...: apt with a list of its own, in the cache: this
# machine's may be of another suite, and stays as it is.
apt_of() {
	local suite=$1 dir=$cache/apt-$1 security=
	shift
	mkdir -p "$dir/state/lists/partial" "$dir/cache/archives/partial"
	case $suite in
	*-backports | sid | testing) ;;
	*) security="deb $signed http://deb.debian.org/debian-security $suite-security main" ;;
	esac
	printf '%s\n' "deb $signed http://deb.debian.org/debian $suite main" "$security" >"$dir/sources.list"
	cat >"$dir/apt.conf" <<-END
		Dir::Etc::sourcelist "$dir/sources.list";
		Dir::Etc::sourceparts "-";
		Dir::State "$dir/state";
		Dir::Cache "$dir/cache";
		APT::Architecture "amd64";
		APT::Sandbox::User "";
		Acquire::Languages "none";
		Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
	END
	APT_CONFIG=$dir/apt.conf "$@"
}
signed='[signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]'

# depends SUITE PACKAGE WHAT: those of the package's dependencies that are named
# linux-WHAT-VERSION; WHAT is an extended regular expression.
depends() {
	apt_of "$1" apt-cache depends "$2" |
		awk -v name="^linux-($3)-[0-9]" '$1 == "Depends:" && $2 ~ name { print $2 }'
}

# fetch_kernel SUITE: prints the directory of the suite's newest kernel, unpacked; what
# is there already is not fetched again.
fetch_kernel() {
	local suite=${1%/cards} flavour=cloud-amd64 image parts version dir package
	[ "$1" = "$suite" ] || flavour=amd64
	apt_of "$suite" apt-get -q update >&2 ||
		printf 'apt-get update failed for %s; going on with the lists that are here.\n' "$suite" >&2
	image=$(depends "$suite" "linux-image-$flavour" image)
	[ -n "$image" ] || die "$suite has no linux-image-$flavour"
	# Newer packages leave the kernel and its modules to others.
	mapfile -t parts < <(depends "$suite" "$image" 'binary|modules')
	version=$(apt_of "$suite" apt-cache show --no-all-versions "$image" | awk '$1 == "Version:" { print $2; exit }')
	dir=$cache/$image-$version
	if [ ! -e "$dir/complete" ]; then
		rm -rf "$dir"
		mkdir -p "$dir/deb"
		(cd "$dir/deb" && apt_of "$suite" apt-get -q download "$image" "${parts[@]}" >&2)
		for package in "$dir"/deb/*.deb; do
			dpkg-deb -x "$package" "$dir"
		done
		rm -r "$dir/deb"
		touch "$dir/complete"
	fi
	printf '%s\n' "$dir"
}

# build_tests DIR: static test binaries of the packages, with their testdata.
build_tests() {
	local package
	for package in "${packages[@]}"; do
		mkdir -p "$1/$package"
		(cd "$TREE" && CGO_ENABLED=0 "$go" test -c -o "$1/$package/run" "./$package")
		[ ! -d "$TREE/$package/testdata" ] || cp -r "$TREE/$package/testdata" "$1/$package"
	done
}

# make_initramfs SUITE KERNEL TESTS ROOT: what the machine has is all in memory.
make_initramfs() {
	local root=$4 tool package drivers
	drivers=$(cards_of "$1" | cut -d ' ' -f 2 | xargs)
	mkdir -p "$root"/{bin,sbin,dev,proc,sys,tmp,run,etc,lib/modules,tests}
	cp "$(command -v busybox)" "$root/bin/busybox"
	for tool in sh mount modprobe ip poweroff; do
		ln -s /bin/busybox "$root/bin/$tool"
	done
	ln -s /bin/busybox "$root/sbin/modprobe"
	copy_modules "$2" "$root"
	copy_libxdp "$root"
	cp -r "$3"/. "$root/tests"
	{
		cat <<-END
			#!/bin/sh
			mount -t proc proc /proc
			mount -t sysfs sys /sys
			mount -t devtmpfs dev /dev
			mount -t bpf bpf /sys/fs/bpf
			mount -t cgroup2 cgroup /sys/fs/cgroup
			mount -t tmpfs tmp /tmp
			for module in ${modules[*]}; do modprobe -q \$module; done
			ip link set lo up
			export JEOUL_TEST_ROOT=1 JEOUL_TEST_EVERY_STEP=${JEOUL_TEST_EVERY_STEP:-} JEOUL_TEST_CARDS='$drivers' JEOUL_TEST_LIBXDP=$libxdp HOME=/tmp
			status=0
		END
		for package in "${packages[@]}"; do
			printf 'cd /tests/%s && echo "== %s"\n' "$package" "$package"
			printf './run -test.short -test.timeout=%s -test.run='"'%s'"' %s || status=1\n' "$limit" "$(chosen "$1" "$package")" "${TESTFLAGS:-}"
		done
		printf 'echo "tests ended with %s"\npoweroff -f\n' "\$status"
	} >"$root/init"
	chmod 755 "$root/init"
}

# copy_modules KERNEL ROOT: the kernel's network modules and those that they need, such as
# the checksum of libcrc32c (IPVS) in crypto, unpacked for busybox.
copy_modules() {
	local from to part
	from=$(find "$1" -type d -path '*/lib/modules/*/kernel' -prune)
	from=${from%/kernel}
	to=$2/lib/modules/${from##*/}
	for part in net lib drivers/net crypto arch/x86/crypto drivers/virtio; do
		# What is built into the kernel has no modules.
		[ -d "$from/kernel/$part" ] || continue
		mkdir -p "$to/kernel/$(dirname "$part")"
		cp -r "$from/kernel/$part" "$to/kernel/$part"
	done
	find "$to" -name '*.ko.xz' -exec xz -d {} +
	busybox depmod -b "$2" "${from##*/}"
}

# Where Debian has the objects of libxdp: its dispatcher, and programs that are loaded with it.
libxdp=/usr/lib/x86_64-linux-gnu/bpf

# copy_libxdp ROOT: libxdp's loader, with the libraries and the objects that it needs.
copy_libxdp() {
	local loader file
	loader=$(command -v xdp-loader)
	cp "$loader" "$1/bin"
	for file in $(ldd "$loader" | grep -o '/[^ ]*') "$libxdp"/*.o; do
		mkdir -p "$1${file%/*}"
		cp "$file" "$1$file"
	done
}

# machine LIMIT KERNEL ARGUMENT...: runs a machine until it powers off; what it
# prints goes to standard output. It is waited for, which a signal ends: a command
# in the foreground would have to end first.
machine() {
	local limit=$1 kernel=$2
	shift 2
	timeout --kill-after=10s "$limit" qemu-system-x86_64 -smp 2 -m 2G \
		-nodefaults -no-user-config -no-reboot -display none -serial stdio -monitor none \
		-kernel "$kernel" -append 'console=ttyS0 quiet loglevel=1 panic=-1' "$@" </dev/null &
	running=$!
	wait "$running"
}
running=

# accelerator KERNEL: prints kvm if that works here, which only a try can tell;
# otherwise QEMU translates (tcg), and everything takes some ten times as long.
# The machine tried has no file system: its kernel gives up, and QEMU ends.
accelerator() {
	if [ -n "${JEOUL_ACCELERATOR:-}" ]; then
		echo "$JEOUL_ACCELERATOR"
	elif [ -w /dev/kvm ] && machine 20s "$1" -accel kvm -cpu host >/dev/null 2>&1; then
		echo kvm
	else
		echo tcg
	fi
}

# prepare SUITE DIR: puts into the directory what a machine needs: links to its
# kernel and its package, and an initramfs.
prepare() {
	local kernel
	kernel=$(fetch_kernel "$1")
	mkdir -p "$2"
	ln -s "$kernel" "$2/unpacked"
	ln -s "$(find "$kernel" -type f -name 'vmlinuz*')" "$2/kernel"
	make_initramfs "$1" "$kernel" "$tests" "$2/root"
	(cd "$2/root" && find . | busybox cpio -o -H newc 2>/dev/null | gzip -1) >"$2/initramfs"
	rm -r "$2/root"
}

# try SUITE DIR: runs the tests in a machine; fails if any failed, or did not end.
try() {
	local cards reader
	printf '== %s (%s)\n' "$(basename "$(readlink "$2/unpacked")")" "$accelerator"
	mapfile -t cards < <(cabled "$1")
	mkfifo "$2/console"
	sed -u 's|\r||' <"$2/console" | tee "$2/log" &
	reader=$!
	machine "$limit" "$2/kernel" -accel "$accelerator" -cpu max -initrd "$2/initramfs" "${cards[@]}" >"$2/console" || true
	wait "$reader"
	grep -q '^tests ended with' "$2/log" || printf 'The machine did not come to its end within %s.\n' "$limit" >&2
	grep -q '^tests ended with 0$' "$2/log"
}

[ "$(uname -m)" = x86_64 ] || die "only amd64 kernels can be tried, and this machine is $(uname -m)"
install_tools
mkdir -p "$cache"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'kill "$running" 2>/dev/null; exit 1' INT TERM HUP
tests=$work/tests
build_tests "$tests"
for suite in "${suites[@]}"; do
	prepare "$suite" "$work/$suite"
done
accelerator=$(accelerator "$work/${suites[0]}/kernel")
failed=()
for suite in "${suites[@]}"; do
	try "$suite" "$work/$suite" || failed+=("$suite")
done
[ ${#failed[@]} = 0 ] || die "tests failed on the kernel of: ${failed[*]}" "see above"

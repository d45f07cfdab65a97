#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# test-kernels.sh [--arch amd64|arm64] [SUITE[/cards|/16k]...]: boots the cloud kernel of each Debian suite in QEMU and
# runs in it, as root, the tests that load eBPF programs and send them packets; with /cards the kernel that has drivers
# of physical cards, and the test that needs them; with /16k the kernel of arm64 whose pages have 16 KiB. Without
# arguments: the oldest supported kernel, the newest of Debian, and the oldest one with cards. A machine of the other
# architecture is emulated completely. docs/internals/kernels.md has the details.
#
# Kernels are downloaded and unpacked under bin/kernels, never installed.
# JEOUL_RUN=REGEXP selects tests, JEOUL_PACKAGES='DIRECTORY...' packages (cmd/jeoul has the end-to-end tests),
# JEOUL_LIMIT=DURATION bounds each machine, JEOUL_MACHINE_SETUP='COMMAND' is run in it before the tests,
# JEOUL_ACCELERATOR is QEMU's -accel, JEOUL_CPU its -cpu, JEOUL_CPUS its -smp, JEOUL_TEST_EVERY_STEP=1 kills processes
# at every step, JEOUL_MACHINE_ENV='NAME=VALUE...' is added to the tests' environment, and TESTFLAGS='-test.v' is passed
# to the tests.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/debian.sh"

go=${GO:-$TREE/scripts/go.sh}
cache=$TREE/bin/kernels
own=$(debian_arch)
arch=${ARCH:-$own}
if [ "${1:-}" = --arch ]; then
	arch=${2:?--arch takes amd64 or arm64}
	shift 2
fi
limit=${JEOUL_LIMIT:-30m}
suites=("$@")
[ $# != 0 ] || suites=(bookworm trixie-backports bookworm/cards)
packages=(internal/host/bpfhost internal/balancer/datapath/pins internal/balancer/datapath/libxdp internal/host/hostnet internal/balancer/datapath internal/balancer/local internal/tools/agent internal/host/drops internal/weigh/bench/subject/{ipvs,subjects})
[ -z "${JEOUL_PACKAGES:-}" ] || read -ra packages <<<"$JEOUL_PACKAGES"
# The modules that tests use, in kernels that have them as modules.
modules=(virtio_pci virtio_net e1000 e1000e veth bridge dummy 8021q sch_ingress cls_bpf ipip ip6_tunnel sit fou fou6 vxlan ip_vs ip_vs_rr)

# cards_of SUITE: prints the names of QEMU and of the kernel for the cards of the suite's machine, one kind per line.
# The cloud kernel has only drivers of virtual ones.
cards_of() {
	case $1 in
	*/cards) printf '%s\n' 'e1000 e1000' 'e1000e e1000e' ;;
	*) printf '%s\n' 'virtio-net-pci virtio_net' ;;
	esac
}

# cabled SUITE: prints QEMU's arguments for two cards of each kind and a cable between them, for TestTagsOfCards.
# Nothing else is on the cable.
cabled() {
	local kind number=0 card
	while read -r kind _; do
		number=$((number + 1))
		for card in 1 2; do
			printf '%s\n' -netdev "hubport,id=card$number$card,hubid=$number" \
				-device "$kind,netdev=card$number$card,mac=02:00:00:00:a$number:0$card,romfile="
		done
	done < <(cards_of "$1")
}

# chosen SUITE PACKAGE: the tests to run of a package. The verification of a program takes seconds if QEMU translates,
# so of the data plane's tests only those run that load few programs: every way to attach, and packets of every kind.
chosen() {
	if [ -n "${JEOUL_RUN:-}" ]; then
		printf '%s\n' "$JEOUL_RUN"
	elif [[ $1 == */cards ]]; then
		printf '^TestTagsOfCards$\n'
	elif [ "$2" = internal/balancer/datapath ]; then
		printf '^Test(%s)$\n' "Attach|SwapAllOrNone|Filter|FilterSwapsInOneStep|FilterOfAKilledBalancer|\
Frames|Headers|Modes|MSS|ChecksumsAreRightOnTheWire|FullNATPoolExhausted|FragmentCases|ICMP|ReturnsOfNAT|ReturnsOfFullNAT|TooBig|GSO|\
OnlyTheTracedProgramHasTheRing|TagsOfCards|Holders|Dispatcher|DispatcherOfOurs|DispatcherHooks|DispatcherPackets|ChangesMeanwhile|ReplyRoutesMeanwhile|FlowsMeanwhile|LoaderAfterOurs|AutoBesideOthers|Company|NeighboursInTC|WhatBackendsAnswer|Clients|FlowsMoving|FlowsBeginAtTheExchange|PacketsOfNoFlow|MovedSlots|FlowsOfABackendThatLeft|PoolNumbersOutliveTheProcess|\
TracedVerifies|CaptureSample|Kept|KeptByOne|KeptByAnotherBuild|KeptFlowsOfAnotherLayout|KeptOnChangedInterfaces|Sweep|OrphanFailsOpen|WatchEnds|KilledAtEachStep"
	elif [ "$2" = internal/host/hostnet ]; then
		# The remains of a kill, which are removed or taken over.
		printf '^Test(Inherit|InheritForwarding|KilledAtEachStep|GiveClsact)$\n'
	elif [ "$2" = internal/weigh/bench/subject/ipvs ]; then
		# IPVS, which the kernel of the development machine may lack.
		printf '^TestIPVSOnAMachine$\n'
	elif [ "$2" = internal/weigh/bench/subject/subjects ]; then
		printf '^TestSubjectsCarry$/^(direct|ipvs-.*)$\n'
	else
		printf '.\n'
	fi
}

# QEMU's program, its package, its machine and the console's name, the processor if QEMU translates, the kernel's name
# of the architecture, and Debian's directory of its libraries.
case $arch in
amd64)
	qemu=qemu-system-x86_64 qemu_package=qemu-system-x86 board=(-machine pc)
	console=ttyS0 cpu=max kernel_arch=x86 triplet=x86_64-linux-gnu
	;;
arm64)
	# The processor of Graviton2, which QEMU translates faster than max, because it does not sign pointers.
	qemu=qemu-system-aarch64 qemu_package=qemu-system-arm board=(-machine 'virt,gic-version=3')
	console=ttyAMA0 cpu=neoverse-n1 kernel_arch=arm64 triplet=aarch64-linux-gnu
	;;
*) die "--arch takes amd64 or arm64, and no $arch" ;;
esac
cpu=${JEOUL_CPU:-$cpu}

# end_to_end: are the end-to-end tests among the packages to run?
end_to_end() { [[ " ${packages[*]} " == *" cmd/jeoul "* ]]; }

# Debian's programs of the machine's own architecture in the machine: always if that differs from this machine's, and
# for the end-to-end tests.
of_debian=(busybox-static xdp-tools)
end_to_end && of_debian+=(iproute2 ethtool nginx-light libnginx-mod-stream bind9 haproxy bird2 keepalived
	iptables nftables openssl curl procps netbase)

# install_tools installs the missing programs to run a machine.
install_tools() {
	local missing=()
	command -v "$qemu" >/dev/null || missing+=("$qemu_package")
	command -v busybox >/dev/null || missing+=(busybox-static)
	command -v xz >/dev/null || missing+=(xz-utils)
	[ "$arch" != "$own" ] || command -v xdp-loader >/dev/null || missing+=(xdp-tools)
	[ ${#missing[@]} = 0 ] || install_packages "${missing[@]}"
	# Not of busybox, which needs a C library.
	if busybox | head -n 1 >/dev/null && [ -n "$(ldd "$(command -v busybox)" 2>/dev/null | grep '=>' || true)" ]; then
		die "busybox is linked dynamically, and a machine has no C library" "apt-get install busybox-static"
	fi
}

# build_tests DIR: static test binaries of the packages, with their testdata.
build_tests() {
	local package
	for package in "${packages[@]}"; do
		mkdir -p "$1/$package"
		(cd "$TREE" && CGO_ENABLED=0 GOARCH=$arch "$go" test -c -o "$1/$package/run" "./$package")
		[ ! -d "$TREE/$package/testdata" ] || cp -r "$TREE/$package/testdata" "$1/$package"
	done
	! end_to_end || (cd "$TREE" && CGO_ENABLED=0 GOARCH=$arch "$go" build -o "$1/jeoul" ./cmd/jeoul)
}

# make_initramfs SUITE KERNEL TESTS ROOT: all files of the machine are in memory.
make_initramfs() {
	local root=$4 tool package drivers
	drivers=$(cards_of "$1" | cut -d ' ' -f 2 | xargs)
	mkdir -p "$root"/{dev,proc,sys,tmp,run,etc,tests}
	copy_programs "$root"
	for tool in sh mount modprobe ip poweroff true; do
		[ -e "$root/bin/$tool" ] || ln -s /bin/busybox "$root/bin/$tool"
	done
	[ -e "$root/sbin/modprobe" ] || ln -s /bin/busybox "$root/sbin/modprobe"
	copy_modules "$2" "$root"
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
			${JEOUL_MACHINE_SETUP:-}
			export JEOUL_TEST_MACHINE=1 JEOUL_TEST_BINARY=/tests/jeoul PATH=/usr/sbin:/usr/bin:/sbin:/bin ${JEOUL_MACHINE_ENV:-}
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

# copy_modules KERNEL ROOT: the kernel's network modules and their dependencies, such as the checksum of libcrc32c
# (IPVS) in crypto, unpacked for busybox.
copy_modules() {
	local from to part
	from=$(find "$1" -type d -path '*/lib/modules/*/kernel' -prune)
	from=${from%/kernel}
	to=$2/lib/modules/${from##*/}
	for part in net lib drivers/net crypto arch/$kernel_arch/crypto drivers/virtio; do
		# Parts that are built into the kernel have no modules.
		[ -d "$from/kernel/$part" ] || continue
		mkdir -p "$to/kernel/$(dirname "$part")"
		cp -r "$from/kernel/$part" "$to/kernel/$part"
	done
	find "$to" -name '*.ko.xz' -exec xz -d {} +
	busybox depmod -b "$2" "${from##*/}"
}

# Debian's directory of the objects of libxdp: its dispatcher, and programs that are loaded with it.
libxdp=/usr/lib/$triplet/bpf

# copy_programs ROOT: busybox, and libxdp's loader with the libraries and the objects that it needs.
copy_programs() {
	local loader file programs
	if [ "$arch" != "$own" ] || end_to_end; then
		# Not within cp's argument: after a failure, cp would copy all files of this machine.
		programs=$(fetch_root bookworm "${of_debian[@]}")
		cp -a "$programs/." "$1"
		name_alternatives "$1"
		return
	fi
	mkdir -p "$1"/{bin,sbin}
	cp "$(command -v busybox)" "$1/bin/busybox"
	loader=$(command -v xdp-loader)
	cp "$loader" "$1/bin"
	for file in $(ldd "$loader" | grep -o '/[^ ]*') "$libxdp"/*.o; do
		mkdir -p "$1${file%/*}"
		cp "$file" "$1$file"
	done
}

# name_alternatives ROOT: makes the results of the packages' scripts, which did not run: users, and the name of nft's
# iptables.
name_alternatives() {
	local name
	printf '%s\n' root:x:0:0:root:/root:/bin/sh www-data:x:33:33::/var/www:/bin/false haproxy:x:102:102::/:/bin/false \
		bird:x:103:103::/:/bin/false nobody:x:65534:65534::/:/bin/false >"$1/etc/passwd"
	printf '%s\n' root:x:0: www-data:x:33: haproxy:x:102: bird:x:103: nogroup:x:65534: >"$1/etc/group"
	printf 'passwd: files\ngroup: files\nhosts: files\n' >"$1/etc/nsswitch.conf"
	printf '127.0.0.1 localhost\n::1 localhost\n' >"$1/etc/hosts"
	for name in iptables iptables-save iptables-restore ip6tables; do
		[ ! -e "$1/usr/sbin/xtables-nft-multi" ] || ln -sf xtables-nft-multi "$1/usr/sbin/$name"
	done
	mkdir -p "$1"/{root,var/lib/nginx,var/log/nginx,var/tmp}
}

# machine LIMIT KERNEL ARGUMENT...: runs a machine until it powers off; its output goes to standard output. The script
# waits for it in the background, because a signal ends that wait: a command in the foreground would have to end first.
machine() {
	local limit=$1 kernel=$2 slowness=1
	shift 2
	# Names that the kernel does not know go into the environment of the first process. Tests that wait learn there that
	# processors are emulated (internal/test/testenv).
	[ "${accelerator:-kvm}" = kvm ] || slowness=5
	timeout --kill-after=10s "$limit" "$qemu" "${board[@]}" -smp "${JEOUL_CPUS:-2}" -m 3G \
		-nodefaults -no-user-config -no-reboot -display none -serial stdio -monitor none \
		-kernel "$kernel" -append "console=$console quiet loglevel=1 panic=-1 JEOUL_TEST_SLOWNESS=$slowness" "$@" </dev/null &
	running=$!
	wait "$running"
}
running=

# accelerator KERNEL: prints kvm if that works here, which only a trial can show; otherwise QEMU translates (tcg), and
# everything takes some ten times as long. The trial machine has no file system: its kernel gives up, and QEMU ends.
accelerator() {
	if [ -n "${JEOUL_ACCELERATOR:-}" ]; then
		echo "$JEOUL_ACCELERATOR"
	elif [ "$arch" = "$own" ] && [ -w /dev/kvm ] && machine 20s "$1" -accel kvm -cpu host >/dev/null 2>&1; then
		echo kvm
	else
		echo tcg
	fi
}

# prepare SUITE DIR: puts the files that a machine needs into the directory: links to its kernel and its package, and an
# initramfs.
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
	[ "$accelerator" != kvm ] || cpu=host
	machine "$limit" "$2/kernel" -accel "$accelerator" -cpu "$cpu" -initrd "$2/initramfs" "${cards[@]}" >"$2/console" || true
	wait "$reader"
	grep -q '^tests ended with' "$2/log" || printf 'The machine did not come to its end within %s.\n' "$limit" >&2
	grep -q '^tests ended with 0$' "$2/log"
}

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

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# deps.sh [demo|package|vm|bgp|browser|capture]: installs the programs that this machine lacks for building, testing and
# the laboratory: Debian packages through apt, and a Go toolchain through the Go module proxy if the packaged one is too
# old to fetch it itself. `demo` leaves out programs that only tests and other laboratories need, and `package` all that
# making a package does not; `vm`, `bgp`, `browser` and `capture` add those that a laboratory in a virtual machine, make
# test-bgp, make test-dashboard and make test-capture need. It prints nothing if nothing is missing.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

# Needs of building: a program, or a file by its path, the package that brings it, and its purpose.
build_needs() {
	cat <<-'END'
		/etc/ssl/certs/ca-certificates.crt  ca-certificates HTTPS to the Go module proxy
		clang                               clang           compiles the eBPF programs
		llvm-strip                          llvm            strips the eBPF objects
		/usr/include/bpf/bpf_helpers.h      libbpf-dev      headers of the eBPF programs
		/usr/include/linux/bpf.h            linux-libc-dev  headers of the eBPF programs
	END
}

# Additional needs of packages and archives.
package_needs() {
	cat <<-'END'
		git                                 git             names the version
		xz                                  xz-utils        compresses the package
	END
}

# Additional needs of `make demo` and `make try`.
demo_needs() {
	cat <<-'END'
		ip                                  iproute2        shows the laboratory's links and sockets
		ethtool                             ethtool         shows what offloads are in use
		nginx                               nginx-light     the laboratory's web servers
		haproxy                             haproxy         the proxy that is weighed
		ab                                  apache2-utils   load: a connection for each request
		curl                                curl            a client in make try and in tests
		ps                                  procps          ps and sysctl
	END
}

# Additional needs of other laboratories and `make test`.
lab_needs() {
	cat <<-'END'
		named                               bind9           the laboratory's name servers
		bird                                bird2           the router of balancers in tests
		dnsperf                             dnsperf         load: DNS queries
		wrk                                 wrk             load: kept-alive connections
		/etc/services                       netbase         wrk looks the port of http up in it
		iperf3                              iperf3          load: bulk transfer
		/usr/lib/nginx/modules/ngx_stream_module.so libnginx-mod-stream nginx as a balancer for TCP
		iptables                            iptables        the kernel's NAT as a balancer
		nft                                 nftables        the kernel's NAT by maps as a balancer
		keepalived                          keepalived      checks for the kernel's IPVS; judges imports and exports in tests
		ipvsadm                             ipvsadm         judges exports in tests
		ssh                                 openssh-client  reaches the machines of an inventory
		sshd                                openssh-server  the machines in tests
		ansible-playbook                    ansible-core    checks deploy/ansible in tests
		ping                                iputils-ping    reaches hosts in tests
		prometheus                          prometheus      scrapes a balancer in tests
		tcpdump                             tcpdump         shows the laboratory's packets
		tmux                                tmux            the terminal of jeoul top in tests
	END
}

# Additional needs of a virtual machine of ARCH, by default this machine's own.
vm_needs() {
	case ${ARCH:-$(debian_arch)} in
	arm64) echo 'qemu-system-aarch64 qemu-system-arm runs the virtual machine' ;;
	*) echo 'qemu-system-x86_64 qemu-system-x86 runs the virtual machine' ;;
	esac
	cat <<-'END'
		busybox                             busybox-static  loads its kernel's modules
		xz                                  xz-utils        unpacks its kernel's modules
		/usr/share/keyrings/debian-archive-keyring.gpg debian-archive-keyring checks its kernel
	END
}

# Additional needs of make test-bgp.
bgp_needs() {
	cat <<-'END'
		/usr/lib/frr/bgpd                   frr             another router of balancers in tests
	END
}

# Additional needs of make test-dashboard.
browser_needs() {
	cat <<-'END'
		chromium                            chromium        shows the dashboard in tests
	END
}

# Additional needs of make test-capture.
capture_needs() {
	cat <<-'END'
		tshark                              tshark          reads captures in tests
	END
}

there() {
	case $1 in
	/*) [ -e "$1" ] ;;
	*) command -v "$1" >/dev/null ;;
	esac
}

# go_can_come: is a good Go here, or can the installed programs fetch one?
go_can_come() {
	find_go >/dev/null || command -v go >/dev/null
}

missing=()
reasons=()
while read -r what package why; do
	there "$what" && continue
	missing+=("$package")
	reasons+=("$(printf '  %-16s %s' "$package" "$why")")
done < <(
	build_needs
	[ "${1:-}" = package ] || demo_needs
	[ "${1:-}" = package ] || [ "${1:-}" = demo ] || lab_needs
	[ "${1:-}" != package ] || package_needs
	[ "${1:-}" != vm ] || vm_needs
	[ "${1:-}" != bgp ] || bgp_needs
	[ "${1:-}" != browser ] || browser_needs
	[ "${1:-}" != capture ] || capture_needs
)
if ! go_can_come; then
	missing+=(golang-go)
	reasons+=("$(printf '  %-16s %s' golang-go "builds jeoul, or fetches the Go $(wanted_go) that does")")
fi

if [ ${#missing[@]} -gt 0 ]; then
	printf 'These Debian packages are missing:\n'
	printf '%s\n' "${reasons[@]}"
	command -v apt-get >/dev/null ||
		die "there is no apt-get here: install the counterparts of these packages yourself, then run make again"
	"$TREE/scripts/as-root.sh" --check "installing packages" || die \
		"the missing packages were not installed" \
		"Run \`make deps\` as root, or have an administrator run:" \
		"apt-get install --no-install-recommends ${missing[*]}" \
		"Then run make again as yourself."
	install_packages "${missing[@]}"
fi

find_go >/dev/null || "$TREE/scripts/fetch-go.sh"

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# odd-machine-test.sh: runs `make test` on an unusual machine, and then interrupts it INTERRUPTS times (3) after random
# seconds and checks what it has left. The machine is made of namespaces (mounts, network, processes), so that nothing
# of the real one changes: no BPF file system is mounted, the home directory is read-only, IPv6 is off on its
# interfaces, other network namespaces, bridges and listeners exist, and others come and go all the time. KEEP is the
# directory for the output of each run. It exits with 0 only if the run passed and the interrupted ones left nothing.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

keep=${KEEP:-$(mktemp -d /tmp/jeoul-odd-XXXX)}
mkdir -p "$keep"

if [ "${1:-}" != --inside ]; then
	export JEOUL_ODD_RUNS="${INTERRUPTS:-3}" JEOUL_ODD_KEEP="$keep" JEOUL_ODD_GO="$GO"
	exec "$TREE/scripts/as-root.sh" unshare --mount --net --pid --fork --kill-child --mount-proc --propagation private \
		"$0" --inside
fi
keep=$JEOUL_ODD_KEEP

# make_odd changes the contents of the namespaces.
make_odd() {
	local home
	mount -t tmpfs tmpfs /run
	while mountpoint -q /sys/fs/bpf; do
		umount /sys/fs/bpf
	done
	home=$(getent passwd "$(id -u)" | cut -d : -f 6)
	mount --bind "$home" "$home"
	mount -o remount,bind,ro "$home"
	ip link set lo up
	sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1
	for i in 0 1 2; do
		ip link add "br$i" type bridge
		ip link set "br$i" up
		ip address add "10.0.$i.1/24" dev "br$i"
		ip netns add "other$i"
	done
	take_ports &
	come_and_go &
}

# take_ports listens on the most usual ports of servers, until the machine ends.
take_ports() {
	exec python3 -c '
import signal, socket
taken = []
for port in (22, 53, 80, 179, 443, 2049, 3784, 5000, 6443, 8000, 8080, 8443, 9090, 9100, 10250, 12345, 20000):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        s = socket.socket(socket.AF_INET, kind)
        s.bind(("0.0.0.0", port))
        if kind == socket.SOCK_STREAM:
            s.listen()
        taken.append(s)
signal.pause()
'
}

# come_and_go adds network namespaces and bridges and removes them again, until the machine ends.
come_and_go() {
	while :; do
		ip netns add passing
		ip link add passing type bridge
		sleep 0.1
		ip link delete passing
		ip netns delete passing
		sleep 0.1
	done
}

# state lists the possible remains of a run: names of network namespaces, mounts, interfaces, control groups,
# directories of tests, and processes. Objects that come and go by themselves are left out.
state() {
	local list=$BASHPID
	ip netns list | sed 's/ .*//' | grep -v '^passing$'
	cut -d ' ' -f 5 /proc/self/mountinfo | grep -v '/passing$'
	ip -o link | awk '{ print $2 }' | grep -v '^passing'
	find /sys/fs/cgroup -type d -name '*jeoul*'
	find /tmp -maxdepth 1 \( -name 'jt-*' -o -name '*jeoul-lab*' \)
	# By number: take_ports is bash at first.
	ps -e -o pid=,comm= | awk -v list="$list" '$1 != list && $2 !~ /^(ip|ps|sort|sed|sleep|awk|cut|grep|find)$/ { print "process " $1 }'
} 2>/dev/null

set -m
status=0
make_odd
state | sort >"$keep/before"

began=$SECONDS
result=passed
make -C "$TREE" test GO="$JEOUL_ODD_GO" >"$keep/run.out" 2>&1 </dev/null || result=FAILED status=1
printf 'whole        %s  %4d s  %s\n' "$result" "$((SECONDS - began))" "$(grep '^DONE ' "$keep/run.out" | tail -n 1)"

for ((run = 1; run <= JEOUL_ODD_RUNS; run++)); do
	after=$((20 + RANDOM % 200))
	env --default-signal=INT,HUP make -C "$TREE" test GO="$JEOUL_ODD_GO" >"$keep/interrupted-$run.out" 2>&1 </dev/null &
	pid=$!
	for ((s = 0; s < after; s++)); do
		kill -0 "$pid" 2>/dev/null || break
		sleep 1
	done
	# Ctrl-C sends the first, who ends a job of CI the second, a connection that breaks off the third.
	signals=(INT TERM HUP)
	signal=${signals[(run - 1) % 3]}
	kill "-$signal" -- "-$pid" 2>/dev/null || true
	wait "$pid" 2>/dev/null || true
	state | sort >"$keep/after-$run"
	result='left nothing'
	comm -13 "$keep/before" "$keep/after-$run" >"$keep/left-$run"
	if [ -s "$keep/left-$run" ]; then
		ps -e -o pid,args >>"$keep/left-$run"
		result="LEFT what $keep/left-$run lists"
		status=1
	fi
	printf 'SIG%-4s after %3d s: %s\n' "$signal" "$after" "$result"
done
exit "$status"

#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs as root in the container of test-packages.sh, after systemd has booted it: installs the packages in /packages
# (the first, then the second as its upgrade), sends traffic through the balancer, and reports for each step whether it
# succeeded.
set -u

failed=0
vip=198.18.1.100

# step NAME COMMAND...: the command must succeed.
step() {
	local name=$1
	shift
	# In this shell, and not in a subshell: a connection must stay open for the steps that follow.
	if "$@" >/run/step 2>&1; then
		printf 'passed: %s\n' "$name"
	else
		failed=1
		printf 'FAILED: %s\n' "$name"
		cat /run/step
		journalctl --no-pager -o cat -n 25 -u jeoul -u jeoul-agent
	fi
}

# within SECONDS COMMAND...: the command must succeed within that time.
within() {
	local end=$((SECONDS + $1))
	shift
	until "$@"; do
		[ "$SECONDS" -lt "$end" ] || return 1
		sleep 0.2
	done
}

not() { ! "$@"; }

# network: a client and a server, each in its own namespace, with this machine in between.
network() {
	local name number=0
	for name in server client; do
		ip netns add "$name"
		ip link add "$name" type veth peer name eth0 netns "$name"
		ip address add "198.18.$number.1/24" dev "$name"
		ip link set "$name" up
		ip -n "$name" address add "198.18.$number.2/24" dev eth0
		ip -n "$name" link set lo up
		ip -n "$name" link set eth0 up
		ip -n "$name" route add default via "198.18.$number.1"
		number=$((number + 1))
	done
	mkdir -p /srv/web
	echo served >/srv/web/index.html
	ip netns exec server busybox httpd -p 80 -h /srv/web
	ip netns exec server busybox httpd -p 81 -h /srv/web
	# Its output is separate: with this script's output, the reader of that would wait for its end, too.
	ip netns exec server busybox nc -ll -p 7777 -e /bin/cat >/dev/null 2>&1 &
}

# configure WEIGHT [BACKEND]: writes the balancer's configuration, with a further backend of the service web.
configure() {
	cat >/etc/jeoul/jeoul.yaml <<-END
		interfaces: [client, server]
		services:
		  - {name: web, vip: $vip, port: 80, mode: nat, backends: [{name: web01, address: 198.18.0.2, weight: $1}${2:-}]}
		  - {name: echo, vip: $vip, port: 7777, mode: nat, scheduler: rr, backends: [{name: echo01, address: 198.18.0.2}]}
	END
}

# served_at PORT: the client gets the page through the balancer.
served_at() { [ "$(ip netns exec client curl -s --max-time 5 "http://$vip:$1/")" = served ]; }

served() { served_at 80; }

# hold: opens a connection through the balancer, on which later steps request an echo.
hold() {
	coproc held { exec ip netns exec client busybox nc $vip 7777; } 2>/dev/null
	echoes
}

echoes() {
	local word="$RANDOM-$RANDOM" answer
	echo "$word" >&"${held[1]}" && read -rt 10 answer <&"${held[0]}" && [ "$answer" = "$word" ]
}

pid() { systemctl show -P MainPID jeoul; }
active() { [ "$(systemctl is-active "$1")" = active ]; }
reloading() { [ "$(systemctl is-active jeoul)" = reloading ]; }
nothing_failed() { [ -z "$(systemctl --failed --no-legend)" ]; }
# again OLD: a process other than that is running.
again() { active jeoul && [ "$(pid)" != "$1" ] && [ "$(pid)" != 0 ]; }

installed_idle() {
	[ "$(systemctl is-active jeoul)" = inactive ] && [ "$(systemctl is-active jeoul-agent)" = inactive ] && nothing_failed &&
		[ "$(systemctl is-enabled jeoul)" = enabled ]
}

# settings: the addresses and network settings of this machine, which a stop restores.
settings() {
	ip -o address show | awk '{ print $2, $4 }'
	sysctl -a --pattern '^net\.(ipv4|ipv6)\.conf\.(all|client|server)\.' 2>/dev/null
}

nothing_left() {
	[ -z "$(ls -A /sys/fs/bpf/jeoul 2>/dev/null)" ] && [ -z "$(ls -A /run/jeoul 2>/dev/null)" ] && diff <(printf '%s\n' "$before") <(settings)
}

unprivileged() {
	[ "$(ps -o user= -p "$(pid)")" = jeoul ] && grep CapEff "/proc/$(pid)/status"
}

bad_reload() {
	configure no-number
	systemctl reload jeoul 2>/dev/null && return 1
	journalctl --no-pager -o cat -n 20 -u jeoul | grep -q 'jeoul.yaml:3: .*no-number'
}

restart_keeps() {
	local old
	old=$(pid)
	systemctl restart jeoul && again "$old"
}

# restart_in_reload: a restart during a reload, in which systemd runs no ExecStop, leaves the data plane, too. The reload
# waits for the MAC address of a backend that does not exist.
restart_in_reload() {
	local old
	old=$(pid)
	configure 2 ', {name: absent, address: 198.18.0.9}'
	systemctl reload --no-block jeoul && within 5 reloading && systemctl restart jeoul && again "$old"
}

# killed SIGNAL: systemd starts another process if one dies or hangs.
killed() {
	local old
	old=$(pid)
	kill "-$1" "$old" && within 60 again "$old"
}

watchdog_of() {
	mkdir -p /run/systemd/system/jeoul.service.d
	printf '[Service]\nWatchdogSec=%s\n%s\n' "$1" "${2:-}" >/run/systemd/system/jeoul.service.d/test.conf
	systemctl daemon-reload && systemctl restart jeoul
}

upgrade() {
	local old
	old=$(pid)
	dpkg -i /packages/second.deb && again "$old"
}

agent() {
	echo 'ARGUMENTS="--mode ipip --vip 198.18.9.9 --interface server"' >/etc/default/jeoul-agent
	systemctl restart jeoul-agent && active jeoul-agent && ip address show lo | grep -q 198.18.9.9 && agent_outlives_upgrade &&
		systemctl stop jeoul-agent && not grep -q 198.18.9.9 <(ip address show lo) && nothing_failed
}

# agent_outlives_upgrade: the VIPs stay on a backend when its package is upgraded.
agent_outlives_upgrade() {
	local old
	old=$(systemctl show --property MainPID --value jeoul-agent)
	dpkg -i /packages/second.deb && [ "$(systemctl show --property MainPID --value jeoul-agent)" = "$old" ] &&
		ip address show lo | grep -q 198.18.9.9
}

# denied PATH: HAProxy refuses the client's request for a path.
denied() { [ "$(ip netns exec client curl -s --max-time 5 -o /dev/null -w '%{http_code}' "http://$vip$1")" = 403 ]; }

# proxied: with the drop-in of services of mode proxy, HAProxy serves below port 1024, as the user jeoul, and compiles
# regular expressions.
proxied() {
	mkdir -p /etc/systemd/system/jeoul.service.d
	cp /usr/share/doc/jeoul/proxy.conf /etc/systemd/system/jeoul.service.d/ && systemctl daemon-reload
	cat >/etc/jeoul/jeoul.yaml <<-END
		interfaces: [client, server]
		services:
		  - {name: web, vip: $vip, port: 80, mode: proxy, proxy: {speaks: http, frontend: "http-request deny if { path_reg ^/no }"}, check: {type: http, path: /}, backends: [{name: web01, address: 198.18.0.2}]}
	END
	systemctl start jeoul && within 20 served && [ "$(ps -o user= -p "$(haproxy)")" = jeoul ] && denied /not-here
}

# haproxy: the process ID of HAProxy's master, the parent of its workers.
haproxy() { pgrep -o -x haproxy; }

# haproxy_outlives COMMAND...: HAProxy is the same process after the command, and serves.
haproxy_outlives() {
	local old
	old=$(haproxy) && "$@" && within 10 served && [ "$(haproxy)" = "$old" ]
}

# haproxy_dies: the daemon starts another HAProxy if one is killed, and ends the workers that it has left.
haproxy_dies() {
	local old workers
	old=$(haproxy) && workers=$(pgrep -d , -P "$old") && kill -KILL "$old" && within 20 served && [ "$(haproxy)" != "$old" ] &&
		within 20 not ps -p "$workers"
}

# unproxied: a stop ends HAProxy, whichever process has started it, and leaves no process in the unit's control group.
unproxied() {
	systemctl stop jeoul && not pgrep -x haproxy && [ -z "$(cat /sys/fs/cgroup/system.slice/jeoul.service/cgroup.procs 2>/dev/null)" ] &&
		rm /etc/systemd/system/jeoul.service.d/proxy.conf && systemctl daemon-reload && nothing_failed && nothing_left
}

hardened() {
	systemd-analyze security jeoul.service --no-pager --threshold=29 >/dev/null &&
		systemd-analyze security jeoul-agent.service --no-pager --threshold=29 >/dev/null
}

# applied: the API configures a service, which still exists when all of /run is gone, as after a reboot.
applied() {
	printf 'services: [{name: shop, vip: %s, port: 81, mode: nat, backends: [{name: shop01, address: 198.18.0.2}]}]\n' "$vip" >/tmp/shop.yaml
	jeoul apply -f /tmp/shop.yaml && [ "$(stat -c %U:%a /var/lib/jeoul /var/lib/jeoul/sources | xargs)" = "root:755 jeoul:700" ] &&
		systemctl stop jeoul && rm -rf /run/jeoul && systemctl start jeoul && within 10 served_at 81
}

# orphaned: a daemon is killed, and systemd does not start another one.
orphaned() {
	watchdog_of 30 Restart=no && kill -KILL "$(pid)" && within 20 not active jeoul && served &&
		jeoul status 2>&1 | grep -q 'data plane without a process'
}

purged() {
	dpkg --purge jeoul && not test -e /etc/jeoul && not test -e /run/jeoul && not test -e /var/lib/jeoul && not test -e /usr/bin/jeoul && not test -e /sys/fs/bpf/jeoul &&
		not getent passwd jeoul && not test -e /etc/systemd/system/multi-user.target.wants/jeoul.service && nothing_left
}

printf '%s, %s, %s\n' "$(. /etc/os-release && echo "$PRETTY_NAME")" "$(systemctl --version | head -n 1)" "$(uname -r)"
network
before=$(settings)
step "install: nothing is configured, nothing runs, nothing fails" eval 'dpkg -i /packages/first.deb && installed_idle'
configure 1
step "start" systemctl start jeoul
step "its user is jeoul" unprivileged
step "traffic" within 10 served
step "jeoul status" eval 'jeoul status | grep -q web01'
step "security is below 3" hardened
step "a connection is opened" hold
configure 2
step "reload" systemctl reload jeoul
step "a reload of a wrong file fails, and says why" bad_reload
configure 2
step "the connection goes on" echoes
step "restart" restart_keeps
step "the connection goes on after the restart" echoes
step "restart during a reload" restart_in_reload
step "the connection goes on after the restart during a reload" echoes
configure 2
step "reload without the absent backend" systemctl reload jeoul
step "kill -9: systemd starts it again" killed KILL
step "the connection goes on after the kill" echoes
step "another watchdog time" watchdog_of 5
step "a hang: the watchdog starts it again" killed STOP
step "the connection goes on after the hang" echoes
step "upgrade" upgrade
step "the connection goes on after the upgrade" echoes
step "stop" systemctl stop jeoul
step "nothing is left after the stop" nothing_left
step "agent" agent
systemctl reset-failed jeoul # so many starts a minute, on a quick machine, are not meant
step "mode proxy: $(command haproxy -v | cut -d " " -f 1-3 | head -n 1) serves" proxied
step "the tests of the proxy engine" eval 'cd /packages && JEOUL_TEST_ROOT=1 ./proxy.test'
step "HAProxy serves on over a restart" haproxy_outlives restart_keeps
step "HAProxy serves on when the daemon is killed" haproxy_outlives killed KILL
step "HAProxy is started again when it is killed" haproxy_dies
step "a stop ends HAProxy, and leaves nothing" unproxied
configure 2
systemctl reset-failed jeoul
step "start again" systemctl start jeoul
step "what the API has configured outlives a reboot" applied
step "without a process the data plane goes on" orphaned
step "purge leaves nothing" purged
printf 'packages ended with %s\n' "$failed"

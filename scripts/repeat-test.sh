#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# repeat-test.sh: runs `make test` RUNS times (20), and lists the result of each run. SEED and the number of the run
# select disturbances of every second run: busy loops, a memory hog, and SIGSTOP of random test processes for up to two
# seconds each. A failed run stays failed, and so does one of whose tests none was stopped although that was selected;
# the others continue. KEEP is the directory for the output of each. It exits with 0 only if all runs passed.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

# stopper ROOT STOPS END SEED: stops one process at a time of the tests that descend from process ROOT, for up to two
# seconds, until ROOT ends or the file END is there. It notes each in the file STOPS.
stopper() {
	local root=$1 stops=$2 end=$3 victim victims
	RANDOM=$4
	while [ ! -e "$end" ] && kill -0 "$root" 2>/dev/null; do
		mapfile -t victims < <(tests_below "$root")
		if [ ${#victims[@]} -gt 0 ]; then
			victim=${victims[RANDOM % ${#victims[@]}]}
			if kill -STOP "$victim" 2>/dev/null; then
				printf '%s\n' "$victim" >>"$stops"
				sleep "$((RANDOM % 2)).$((RANDOM % 10))"
				kill -CONT "$victim" 2>/dev/null || true
			fi
		fi
		sleep "$((RANDOM % 3)).$((RANDOM % 10))"
	done
}

# tests_below ROOT prints the process IDs of the test programs that descend from process ROOT.
tests_below() {
	ps -e -o pid=,ppid=,comm= | awk -v root="$1" '
		{ parent[$1] = $2; name[$1] = $3 }
		END {
			for (p in name) {
				# The kernel cuts names to 15 characters.
				if (name[p] !~ /\.test$/ && !(length(name[p]) == 15 && name[p] ~ /\.(te?s?)?$/))
					continue
				for (q = parent[p]; q > 1 && q != root; q = parent[q]);
				if (q == root)
					print p
			}
		}'
}

# The tests run by root, and so must what stops them.
if [ "${1:-}" = --stopper ]; then
	stopper "${@:2}"
	exit
fi

runs=${RUNS:-20}
seed=${SEED:-$(date +%s)}
keep=${KEEP:-$(mktemp -d /tmp/jeoul-repeat-XXXX)}
mkdir -p "$keep"
printf 'seed %s; the output of each run is in %s\n' "$seed" "$keep"

disturbers=() stopper=
# shellcheck disable=SC2317 # the trap calls it
clean_up() {
	trap '' INT TERM HUP
	still
	if [ -n "${make_pid:-}" ]; then
		# The tests clean up after themselves. Not by SIGINT: it is ignored below a shell that runs this in the background.
		kill -TERM -- "-$make_pid" 2>/dev/null || true
		wait "$make_pid" || true
	fi
}
trap clean_up EXIT
trap 'exit 130' INT TERM HUP

# still ends the processes that disturb a run. A stopper, which may be root's, ends by itself, after it has continued the
# process that it has stopped.
still() {
	[ ${#disturbers[@]} = 0 ] || kill "${disturbers[@]}" 2>/dev/null || true
	[ -z "$stopper" ] || touch "$keep/$run.end"
	[ -z "${disturbers[*]}$stopper" ] || wait "${disturbers[@]}" $stopper 2>/dev/null || true
	disturbers=() stopper=
}

busy_loop() {
	while :; do :; done
}

# memory_hog fills half of the free memory, and touches all of it repeatedly.
memory_hog() {
	exec python3 -c '
import time
free = next(int(l.split()[1]) * 1024 for l in open("/proc/meminfo") if l.startswith("MemAvailable"))
hog = bytearray(min(free // 2, 6 << 30))
while True:
    for i in range(0, len(hog), 4096):
        hog[i] = 1
    time.sleep(0.2)
'
}

# disturb MAKE_PID: starts the disturbances of this run, and prints them.
disturb() {
	local kinds=$((RANDOM % 7 + 1)) said=()
	if ((kinds & 1)); then
		busy_loop &
		disturbers+=($!)
		busy_loop &
		disturbers+=($!)
		said+=('two busy loops')
	fi
	if ((kinds & 2)); then
		memory_hog &
		disturbers+=($!)
		said+=('a memory hog')
	fi
	if ((kinds & 4)); then
		: >"$keep/$run.stops"
		rm -f "$keep/$run.end"
		"$TREE/scripts/as-root.sh" "$TREE/scripts/repeat-test.sh" --stopper "$1" "$keep/$run.stops" "$keep/$run.end" "$RANDOM" \
			</dev/null &
		stopper=$!
		said+=('stopped tests')
	fi
	printf -v load '%s, ' "${said[@]}"
	load=${load%, }
}

# Each job has a separate process group, so that it can be interrupted as a whole.
set -m
failed=0
for ((run = 1; run <= runs; run++)); do
	RANDOM=$(((seed + run) % 32768))
	out=$keep/$run.out
	began=$SECONDS
	make -C "$TREE" test >"$out" 2>&1 </dev/null &
	make_pid=$!
	load='by itself'
	((run % 2)) || disturb "$make_pid"
	result=passed
	wait "$make_pid" || result=FAILED
	make_pid=
	stopping=$stopper
	still
	if [ -n "$stopping" ]; then
		stops=$(wc -l <"$keep/$run.stops")
		load+=" ($stops)"
		[ "$stops" -gt 0 ] || result=FAILED
	fi
	[ "$result" = passed ] || failed=$((failed + 1))
	printf '%2d  %s  %4d s  %-50s  %s\n' "$run" "$result" "$((SECONDS - began))" "$load" \
		"$(grep '^DONE ' "$out" | tail -n 1)"
done
printf '%d passed, %d failed\n' "$((runs - failed))" "$failed"
[ "$failed" = 0 ]

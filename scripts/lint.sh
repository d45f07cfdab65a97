#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Every check of `make lint`, each with all its findings before the exit. CONTRIBUTING.md gives the reasons;
# staticcheck.conf configures staticcheck.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$TREE"

go=${GO:-scripts/go.sh}
failed=

# finding NAME TEXT: TEXT, if any, is the finding of check NAME.
finding() {
	[ -n "$2" ] || return 0
	printf '%s:\n%s\n' "$1" "$2" >&2
	failed=yes
}

# sources PATTERN...: the tree's own files; generated ones are not in git.
sources() {
	git -c safe.directory="$TREE" ls-files --cached --others --exclude-standard -- "$@"
}

# must_not_reach PATTERNS FORBIDDEN: the packages below internal/ that match must not import, even indirectly, packages
# that the extended regular expression matches.
must_not_reach() {
	local package bad patterns
	read -ra patterns <<<"$1"
	for package in $("$go" list "${patterns[@]/#/./internal/}"); do
		bad=$("$go" list -deps "$package" | grep -E "$2" | tr '\n' ' ') || continue
		finding "imports point inwards" "$package reaches $bad"
	done
}

mapfile -t go_files < <(sources '*.go')
mapfile -t c_files < <(sources 'bpf/*.c' 'bpf/*.h')
mapfile -t shell_files < <(sources 'scripts/*.sh' '.ci/run')
mapfile -t inner_files < <(printf '%s\n' "${go_files[@]}" | grep '^internal/' | grep -v '_test\.go$')

finding "gofmt" "$("$("$go" env GOROOT)/bin/gofmt" -l "${go_files[@]}")"
finding "first line is not the licence (SPDX-License-Identifier)" "$(
	for file in "${go_files[@]}"; do
		head -n 1 "$file" | grep -q '^// SPDX-License-Identifier: Apache-2.0$' || printf '%s\n' "$file"
	done
	for file in $(sources 'bpf/*.c' 'bpf/*.h'); do
		head -n 1 "$file" | grep -q 'SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause' || printf '%s\n' "$file"
	done
)"
finding "libraries return errors and text; only cmd/ exits and prints" "$(
	grep -nE '\b(os\.Exit|log\.(Fatal|Panic|Print)[a-z]*|fmt\.Print[a-z]*)\(' "${inner_files[@]}" || true
)"
# In a test under testing/synctest, time is simulated and Sleep is exact.
mapfile -t real_time_files < <(grep -L '"testing/synctest"' "${go_files[@]}")
finding "poll with a bound and a context instead of time.Sleep" "$(
	grep -nE '\btime\.Sleep\(' "${real_time_files[@]}" || true
)"
ours=github.com/jeoul/jeoul/internal
must_not_reach 'balancer/lb balancer/ops balancer/config text/yamlfile text/keytable balancer/maglev weigh/results balancer/handover weigh/sizing weigh/advise' \
	'^(github.com/(cilium/ebpf|vishvananda/)|net/http$)'
must_not_reach 'balancer/paths balancer/control balancer/proxy' "^(github.com/cilium/ebpf|$ours/balancer/(datapath|api)$|net/http$)"
# The layers of the data plane: each uses those below it, and none uses the package that puts them together.
must_not_reach 'balancer/datapath/objects balancer/datapath/mapmem' \
	"^$ours/balancer/datapath(/(flowtable|attach|tables|generation|sharedmaps))?$"
must_not_reach 'balancer/datapath/flowtable balancer/datapath/attach balancer/datapath/tables' \
	"^$ours/balancer/datapath(/(generation|sharedmaps))?$"
must_not_reach 'balancer/datapath/generation' "^$ours/balancer/datapath(/(attach|libxdp|pins|sharedmaps|traced))?$"
must_not_reach 'balancer/datapath/sharedmaps' "^$ours/balancer/datapath(/(attach|libxdp|pins|traced))?$"
for room in loader keeper localsockets takeover readview flowsync checkpath tracing; do
	must_not_reach "balancer/datapath/$room" "^$ours/balancer/datapath$"
done
# The desired state depends on no package that observes it, or applies it.
must_not_reach 'balancer/control/view' "^$ours/balancer/control(/(loop|steps))?$"
# A reader of the balancer can ignore the other trees, and the packages that all of them use depend on none of them.
must_not_reach 'balancer/...' "^$ours/(tools|weigh|move|test)/"
must_not_reach 'host/...' "^$ours/(balancer|tools|weigh|move|test)/"
must_not_reach 'text/...' "^$ours/(balancer|host|tools|weigh|move|test)/"
must_not_reach 'tools/... move/...' "^$ours/(weigh|test)/"
# The parts of a laboratory serve the bench and others, and must not depend on the bench.
must_not_reach 'weigh/lab weigh/remote weigh/vm' "^$ours/weigh/bench"
# The layers of a laboratory do not depend on its hosts.
must_not_reach 'weigh/lab/topology weigh/lab/netns weigh/lab/netdev weigh/lab/l2switch weigh/lab/measure weigh/lab/claim' \
	"^$ours/weigh/(lab|remote|bench)$"
# The setup that all subjects share depends on none of them.
must_not_reach 'weigh/bench/subject' "^$ours/weigh/bench/subject/"

mapfile -t flow_headers < <(sources 'bpf/balancer/flow/*.h')
finding "the flow tables include nothing that selects, sends and answers" "$(
	grep -nE '#include "\.\./(select|send|answer)/' "${flow_headers[@]}" || true
)"

finding "what programs share knows none of them" "$(
	grep -nE '#include "\.\./' bpf/lib/*.h || true
)"

"$go" run ./scripts/filedeps -limits scripts/filedeps/limits.txt ./... || failed=yes
"$go" run ./scripts/columns "${go_files[@]}" "${c_files[@]}" || failed=yes
"$go" run ./scripts/functions "${go_files[@]}" || failed=yes
"$go" run ./scripts/lexicon CONTRIBUTING.md scripts/lexicon/allowed.txt scripts/lexicon/headless.txt \
	"${go_files[@]}" "${c_files[@]}" || failed=yes
"$go" vet ./... || failed=yes
"$go" run "$STATICCHECK" ./... || failed=yes
if command -v shellcheck >/dev/null; then
	shellcheck "${shell_files[@]}" || failed=yes
else
	printf 'shellcheck is not installed: the scripts were not checked (apt-get install shellcheck).\n'
fi

[ -z "$failed" ] || die "lint found something: see above"

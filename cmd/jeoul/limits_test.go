// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/jeoul/jeoul/cmd/jeoul/operatecmd"
	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/test/testdocs"
)

// limit is a limitation of the product that a page states, and a check that fails once it no longer holds: then the
// page must be changed.
type limit struct {
	page, says string // the statement's beginning on the page
	check      func(t *testing.T)
}

// limits holds each statement below a heading of limits. The heading of a page is in limitHeadings.
var limits = []limit{
	{"README.md", "**Kernel:** Linux 6.1 or newer",
		mentioned("docs/internals/kernels.md", "Debian 12 (6.1, the oldest that is tried)")},
	{"README.md", "**Machine:** amd64 and arm64",
		mentioned("scripts/package.sh", "packages are made for amd64 and arm64")},
	{"README.md", "**Protocols:** TCP and UDP", refusedService("protocol: sctp", "services[0].protocol")},
	{"README.md", "**Ports:** a service has one port", func(t *testing.T) {
		refusedService("ports: 8000-8010", "services[0].ports: unknown key")(t)
		refusedService("backends: [{name: b, address: 192.0.2.3, port: 8080}]", "leaves ports as they are")(t)
	}},
	{"README.md", "**Proxy:** mode `proxy` needs an HAProxy", func(t *testing.T) {
		refusedService("mode: proxy, mss: 1400", "services[0].mss")(t)
	}},
	{"README.md", "**VRRP:** a balancer has one virtual router", func(t *testing.T) {
		refusedFile("interface: eth0\nvrrp: [{id: 1}, {id: 2}]\n"+oneService(""), "vrrp: ")(t)
		refusedFile("interface: eth0\nvrrp: {id: 1, version: 2}\n"+oneService(""), "vrrp.version: unknown key")(t)
	}},
	{"README.md", "**Kubernetes:** Services of type LoadBalancer, and Gateways with TCPRoutes", func(t *testing.T) {
		followed := read(t, filepath.Join(testdocs.Root(t), "internal/balancer/kubernetes/watch/gateways.go"))
		for _, kind := range []string{"TLSRoute", "GRPCRoute", "ListenerSet", "Ingress"} {
			if strings.Contains(followed, kind) {
				t.Errorf("%s is followed", kind)
			}
		}
	}},
	{"README.md", "**Failed backends:** their TCP connections stay", func(t *testing.T) {
		if got := acceptedService(t, "check: tcp").Services[0].Checks.OnDown; got != "" && got != lb.KeepFlows {
			t.Errorf("on_down is %q by default", got)
		}
	}},
	{"README.md", "**Idle connections:** a connection that is idle for the whole window after a change (15 minutes",
		func(t *testing.T) {
			if got := acceptedService(t, "scheduler: maglev").Services[0].Transition.Window; got != lb.DefaultTCPWindow ||
				got.Minutes() != 15 {
				t.Errorf("the window is %s by default", got)
			}
		}},
	{"README.md", "**Operations:** changes by `jeoul backend` outlive a restart", func(t *testing.T) {
		if help := (operatecmd.BackendCmd{}).Help(); !strings.Contains(help, "ends when the daemon is stopped") {
			t.Errorf("help says: %s", help)
		}
	}},

	{"docs/start/l2dsr.md", "Without [`check`]", func(t *testing.T) {
		if checks := acceptedService(t, "").Services[0].Checks.List; len(checks) != 0 {
			t.Errorf("a service has %d checks by default", len(checks))
		}
	}},
	{"docs/start/l2dsr.md", "Several balancers on one host need several interfaces",
		mentioned("cmd/jeoul/testdata/root/balance.txtar", "already running in this network namespace")},
	{"docs/start/l2dsr.md", "The balancer's host should have one interface on the segment", byKernel},
	{"docs/start/l2dsr.md", "ICMP errors about answers", byKernel},
	{"docs/start/l2dsr.md", "Two balancers with the same VIP on a segment disturb each other", byKernel},

	{"docs/guides/proxy.md", "UDP. Give that", refusedService("mode: proxy, protocol: udp", "services[0].protocol")},
	{"docs/guides/proxy.md", "What acts on packets", func(t *testing.T) {
		for _, key := range []string{"dscp: 10", "mss: 1400", "hairpin: false", "untranslated: [192.0.2.0/24]",
			"table_size: 1021", "hash: source"} {
			name, _, _ := strings.Cut(key, ":")
			refusedService("mode: proxy, "+key, "services[0]."+name)(t)
		}
	}},
	{"docs/guides/proxy.md", "`maglev`: HAProxy has no such scheduler", refusedService("mode: proxy, scheduler: maglev",
		"services[0].scheduler")},
	{"docs/guides/proxy.md", "A balancer's own clients reach the VIP without", byKernel},
}

// limitHeadings are the headings above statements of limits, by page.
var limitHeadings = map[string]string{
	"README.md": "## Limits", "docs/start/l2dsr.md": "## Limits", "docs/guides/proxy.md": "## Limits",
}

// byKernel is the check of a statement about the kernel, a network or a protocol, which no release of ours can change.
func byKernel(*testing.T) {}

// bullet matches a statement.
var bullet = regexp.MustCompile(`(?m)^- (.*)$`)

// TestLimits: each statement of a limitation of the product has a check that fails once it no longer holds, and each
// check belongs to an existing statement.
func TestLimits(t *testing.T) {
	for page, heading := range limitHeadings {
		_, section, found := strings.Cut(read(t, filepath.Join(testdocs.Root(t), page)), "\n"+heading+"\n")
		if !found {
			t.Errorf("%s has no %q", page, heading)
			continue
		}
		section, _, _ = strings.Cut(section, "\n## ")
		for _, statement := range bullet.FindAllStringSubmatch(section, -1) {
			held := false
			for _, l := range limits {
				held = held || l.page == page && strings.HasPrefix(statement[1], l.says)
			}
			if !held {
				t.Errorf("%s: no check holds %q: add one to the table", page, statement[1])
			}
		}
		for _, l := range limits {
			if l.page == page && !strings.Contains(section, "- "+l.says) {
				t.Errorf("%s does not say %q any more: remove it from the table", page, l.says)
			}
		}
	}
	for _, l := range limits {
		t.Run(l.page+" "+l.says, func(t *testing.T) { l.check(t) })
	}
}

// oneService returns a service in YAML, with keys besides those that it needs; a given key replaces the default one.
func oneService(keys string) string {
	service := "services: [{name: web, vip: 192.0.2.1, port: 80"
	if !strings.Contains(keys, "backends") && !strings.Contains(keys, "discover") {
		service += ", backends: [{name: b, address: 192.0.2.3}]"
	}
	if keys != "" {
		service += ", " + keys
	}
	return service + "}]\n"
}

// refusedService checks that a service with some keys is refused, with a reason.
func refusedService(keys, want string) func(t *testing.T) {
	return refusedFile("interface: eth0\n"+oneService(keys), want)
}

func refusedFile(text, want string) func(t *testing.T) {
	return func(t *testing.T) {
		if _, err := config.Parse("f", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, and the page says that it is not possible (%q)", text, err, want)
		}
	}
}

// acceptedService returns the configuration of a service with some keys, which must be valid.
func acceptedService(t *testing.T, keys string) *config.Config {
	t.Helper()
	cfg, err := config.Parse("f", []byte("interface: eth0\n"+oneService(keys)))
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// mentioned checks that a file of the tree contains a text.
func mentioned(file, text string) func(t *testing.T) {
	return func(t *testing.T) {
		if !strings.Contains(read(t, filepath.Join(testdocs.Root(t), file)), text) {
			t.Errorf("%s has no %q", file, text)
		}
	}
}

// The size of README.md: two screens at most, and the two commands on the first one.
const (
	maxLines, maxColumns = 100, 120
	firstScreen          = 16
)

// TestReadmeIsShort: README.md fits two screens, and the first one has the two commands that do everything.
func TestReadmeIsShort(t *testing.T) {
	lines := strings.Split(read(t, filepath.Join(testdocs.Root(t), "README.md")), "\n")
	if len(lines) > maxLines {
		t.Errorf("README.md has %d lines: what is beyond %d belongs to a page of docs", len(lines), maxLines)
	}
	for i, line := range lines {
		if n := utf8.RuneCountInString(line); n > maxColumns {
			t.Errorf("README.md:%d: %d columns", i+1, n)
		}
	}
	first := strings.Join(lines[:firstScreen], "\n")
	for _, command := range []string{"\nmake demo ", "\nmake test "} {
		if !strings.Contains(first, command) {
			t.Errorf("the first %d lines of README.md have no %q", firstScreen, command)
		}
	}
}

// changeKey is the number of characters that no two unreleased changes have in common at their beginning.
const changeKey = 50

// TestUnreleasedChanges: CHANGELOG.md lists no unreleased change twice, be it in other words behind the beginning, and
// none in half a sentence, as a merge can leave them.
func TestUnreleasedChanges(t *testing.T) {
	_, changes, _ := strings.Cut(read(t, filepath.Join(testdocs.Root(t), "CHANGELOG.md")), "\n## Unreleased\n")
	changes, _, _ = strings.Cut(changes, "\n## ")
	seen := map[string]bool{}
	for change := range strings.SplitSeq(strings.TrimSpace(changes), "\n* ") {
		key := []rune(strings.Join(strings.Fields(change), " "))
		key = key[:min(changeKey, len(key))]
		if seen[string(key)] {
			t.Errorf("twice: %s", change)
		}
		seen[string(key)] = true
		if !strings.HasSuffix(change, ".") {
			t.Errorf("no end of a sentence: %s", change)
		}
	}
	if len(seen) == 0 {
		t.Error("no changes are found")
	}
}

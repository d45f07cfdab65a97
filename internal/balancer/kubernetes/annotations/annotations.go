// SPDX-License-Identifier: Apache-2.0

// Package annotations parses the settings in the annotations of a Kubernetes Service. It does not depend on the
// cluster: kubernetes/model decides whether they can be granted.
package annotations

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/text/nearest"
	"github.com/jeoul/jeoul/internal/text/yamlfile"
)

// Prefix is the prefix of the annotations, and of the conditions that are written.
const Prefix = "jeoul.io/"

// The annotations of a Service.
const (
	Addresses = Prefix + "addresses"
	Pool      = Prefix + "pool"
	Mode      = Prefix + "mode"
	Backends  = Prefix + "backends"
	Scheduler = Prefix + "scheduler"
	Check     = Prefix + "check"
	OnEmpty   = Prefix + "on-empty"
	OnDown    = Prefix + "on-down"
	SlowStart = Prefix + "slow-start"
)

// maxValue bounds the value of an annotation, in bytes. Kubernetes allows 256 KiB for all of an object.
const maxValue = 1024

// maxAddresses bounds the requested addresses: one of each family.
const maxAddresses = 2

// Target is the kind of hosts to which the balancer sends a Service's packets.
type Target string

// The targets.
const (
	// Nodes: packets go to nodes, whose kube-proxy (or its replacement) sends them on to a pod.
	Nodes Target = "nodes"
	// Pods: packets go to the addresses of pods.
	Pods Target = "pods"
)

// CheckKind is how the balancer finds out which backends serve.
type CheckKind string

// The kinds of checks.
const (
	// CheckAuto requests healthCheckNodePort if the Service has one, and otherwise sends an echo request to the node,
	// or opens a connection to the pod.
	CheckAuto CheckKind = "auto"
	// CheckNone makes no check: readiness is that of Kubernetes.
	CheckNone CheckKind = "none"
	// CheckTCP opens a connection by each backend's own address.
	CheckTCP CheckKind = "tcp"
	// CheckVIP opens a connection by the path of the Service's packets: to the VIP, through the data plane.
	CheckVIP CheckKind = "tcp-vip"
	// CheckICMP sends an echo request to each backend's own address.
	CheckICMP CheckKind = "icmp"
)

// Settings are the settings that a Service requests. The zero value of each field is the cluster's default.
type Settings struct {
	// Addresses are of different families.
	Addresses []netip.Addr
	Pool      string
	Mode      lb.Mode
	Backends  Target
	Scheduler lb.Scheduler
	Check     CheckKind
	OnEmpty   lb.OnEmpty
	OnDown    lb.OnDown
	SlowStart time.Duration
}

// Problem is a fault in a field of an object.
type Problem struct {
	// Field is a path such as metadata.annotations[jeoul.io/mode].
	Field string
	// Message names the fault and the remedy.
	Message string
}

// String returns "field: message".
func (p Problem) String() string { return p.Field + ": " + p.Message }

// Field returns the path of an annotation.
func Field(name string) string { return "metadata.annotations[" + name + "]" }

// Modes are the modes that a Service can have. Mode dscp would need a configuration of code points on each node, and
// mode proxy has settings that a Service cannot express.
var Modes = []lb.Mode{lb.L2DSR, lb.IPIP, lb.GUE, lb.NAT, lb.FullNAT}

// schedulers are those that need no order of backends, which a Service lacks.
var schedulers = slices.DeleteFunc(slices.Clone(lb.Schedulers), func(s lb.Scheduler) bool { return s == lb.Failover })

// parsers take the value of an annotation into Settings; they return the fault of it, "" if there is none.
var parsers = map[string]func(w *Settings, value string) string{
	Addresses: parseAddresses,
	Pool:      func(w *Settings, value string) string { w.Pool = value; return "" },
	Mode:      func(w *Settings, value string) string { return parseWord(&w.Mode, value, Modes) },
	Backends:  func(w *Settings, value string) string { return parseWord(&w.Backends, value, []Target{Nodes, Pods}) },
	Scheduler: func(w *Settings, value string) string { return parseWord(&w.Scheduler, value, schedulers) },
	Check: func(w *Settings, value string) string {
		return parseWord(&w.Check, value, []CheckKind{CheckAuto, CheckNone, CheckTCP, CheckVIP, CheckICMP})
	},
	OnEmpty: func(w *Settings, value string) string {
		return parseWord(&w.OnEmpty, value, []lb.OnEmpty{lb.KeepVIP, lb.WithdrawVIP})
	},
	OnDown: func(w *Settings, value string) string {
		return parseWord(&w.OnDown, value, []lb.OnDown{lb.KeepFlows, lb.ResetFlows, lb.MoveFlows})
	},
	SlowStart: parseSlowStart,
}

// Names returns the names of the annotations, sorted.
func Names() []string {
	names := make([]string, 0, len(parsers))
	for name := range parsers {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Parse parses the annotations of an object with our prefix. The problems are in the order of the names; a field of
// Settings whose annotation has one is zero.
func Parse(annotations map[string]string) (Settings, []Problem) {
	var names []string
	for name := range annotations {
		if strings.HasPrefix(name, Prefix) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	var settings Settings
	var problems []Problem
	for _, name := range names {
		if message := parse(&settings, name, annotations[name]); message != "" {
			problems = append(problems, Problem{Field(name), message})
		}
	}
	return settings, problems
}

// parse reads one annotation and returns the fault of it; "" if there is none.
func parse(settings *Settings, name, value string) string {
	read, known := parsers[name]
	switch {
	case !known:
		if near := nearest.Word(name, Names()); near != "" {
			return "unknown annotation; did you mean " + near + "?"
		}
		return "unknown annotation; use one of " + strings.Join(Names(), ", ")
	case len(value) > maxValue:
		return fmt.Sprintf("%d bytes are more than the %d that a value may have", len(value), maxValue)
	case strings.TrimSpace(value) == "":
		return "empty; give it a value, or remove the annotation"
	}
	return read(settings, strings.TrimSpace(value))
}

// parseWord parses one of several words.
func parseWord[T ~string](to *T, value string, words []T) string {
	if !slices.Contains(words, T(value)) {
		list := make([]string, len(words))
		for i, w := range words {
			list[i] = string(w)
		}
		return fmt.Sprintf("%s is not one of %s", yamlfile.Quote(value), strings.Join(list, ", "))
	}
	*to = T(value)
	return ""
}

// parseAddresses parses a list of addresses with commas between them.
func parseAddresses(w *Settings, value string) string {
	addresses, problem := ParseAddresses(value)
	w.Addresses = addresses
	return problem
}

// ParseAddresses reads a list of at most one address of each family, with commas between them, and returns the fault of
// it; "" if there is none.
func ParseAddresses(value string) ([]netip.Addr, string) {
	var list []netip.Addr
	for text := range strings.SplitSeq(value, ",") {
		text = strings.TrimSpace(text)
		addr, err := netip.ParseAddr(text)
		switch {
		case err != nil || addr.Zone() != "":
			return nil, yamlfile.Quote(text) +
				" is not an IP address; write one such as 192.0.2.10, or 192.0.2.10,2001:db8::10"
		case addr.Is4In6():
			return nil, fmt.Sprintf("%s is an IPv4-mapped IPv6 address; write %s", addr, addr.Unmap())
		case !addr.IsGlobalUnicast():
			return nil, fmt.Sprintf("%s is not a unicast address that a router would send on; use another", addr)
		case len(list) == maxAddresses || len(list) == 1 && list[0].Is4() == addr.Is4():
			return nil, "more than one address of a family; a Service has at most one of each"
		}
		list = append(list, addr)
	}
	return list, ""
}

// The bounds of slow start are the configuration's.
const (
	minSlowStart = time.Second
	maxSlowStart = time.Hour
)

func parseSlowStart(w *Settings, value string) string {
	length, err := time.ParseDuration(value)
	if err != nil || length < minSlowStart || length > maxSlowStart {
		return fmt.Sprintf("%s is not a length of time from %s to %s; write one such as 30s",
			yamlfile.Quote(value), minSlowStart, maxSlowStart)
	}
	w.SlowStart = length
	return ""
}

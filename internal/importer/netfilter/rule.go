// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/jeoul/jeoul/internal/importer/draft"
	"github.com/jeoul/jeoul/internal/remark"
)

// match is what a packet must have.
type match struct {
	protocol string
	// to and from are the packets' destination and source; not valid: any.
	to, from netip.Prefix
	notFrom  bool
	in, out  string
	ports    []string // of the destination: numbers or FIRST:LAST
	// local says that the destination must be an address of this host.
	local bool
	// unknown is a match that Jeoul has no like of.
	unknown string
}

// key tells matches apart.
func (m match) key() string { return fmt.Sprint(m) }

// rule is a rule of a chain.
type rule struct {
	at remark.At
	match
	// share of the packets that match is taken, where partly says so, else all of them; turns says that
	// they are taken in turns.
	share         float64
	partly, turns bool
	target        string
	// addresses are those of --to-destination and --to-source.
	addresses []string
	// shares are those that each of the addresses has; nil: the same.
	shares []float64
	// bySource says that addresses are chosen by the client's.
	bySource bool
}

// valued are options that take a value and say nothing of who is balanced to whom.
var valued = []string{"-m", "--match", "--comment", "--tcp-flags", "-c", "--set-counters", "--log-prefix", "--log-level", "--name", "--to-ports", "--nflog-prefix", "--set-xmark", "--set-mark", "--or-mark"}

// bare are options without a value.
var bare = []string{"--persistent", "--random", "--random-fully", "--syn", "-f"}

// parse reads a rule after its chain.
func parse(at remark.At, words []string) (rule, error) {
	r := rule{at: at}
	every, packet, probability, mode := "", "0", "", ""
	for len(words) > 0 {
		negated := words[0] == "!"
		if negated {
			words = words[1:]
		}
		if len(words) == 0 {
			return r, fmt.Errorf("after ! stands nothing")
		}
		option := words[0]
		words = words[1:]
		if slices.Contains(bare, option) {
			continue
		}
		if len(words) == 0 || unknownFlag(option, words[0]) {
			if !unknownFlag(option, "-") {
				return r, fmt.Errorf("the option %s has no value", option)
			}
			r.unknown = option
			continue
		}
		value := words[0]
		words = words[1:]
		if option == "--tcp-flags" && len(words) > 0 {
			words = words[1:]
		}
		switch option {
		case "--mode":
			mode = value
		case "--every":
			every = value
		case "--packet":
			packet = value
		case "--probability":
			probability = value
		default:
			if err := r.take(option, value, negated); err != nil {
				return r, err
			}
		}
	}
	return r, r.statistic(mode, every, packet, probability)
}

// known are the options that take reads.
var known = []string{"-p", "--protocol", "-s", "--source", "-d", "--destination", "-i", "--in-interface", "-o", "--out-interface", "--dport", "--destination-port",
	"--dports", "--destination-ports", "-j", "--jump", "-g", "--goto", "--to-destination", "--to-source", "--dst-type", "--state", "--ctstate", "--mode", "--every", "--packet", "--probability"}

// unknownFlag says whether an option is none that is known, and has no value: another one follows.
func unknownFlag(option, next string) bool {
	return strings.HasPrefix(next, "-") && !slices.Contains(known, option) && !slices.Contains(valued, option)
}

// take reads an option.
func (r *rule) take(option, value string, negated bool) error {
	positive := true // whether the option can be negated without being unknown
	switch option {
	case "-p", "--protocol":
		r.protocol = strings.ToLower(value)
	case "-s", "--source":
		prefix, ok := draft.Network(value)
		if !ok {
			return fmt.Errorf("%s is no network", value)
		}
		if prefix.Bits() > 0 {
			r.from, r.notFrom = prefix, negated
		}
		positive = false
	case "-d", "--destination":
		prefix, ok := draft.Network(value)
		if !ok {
			return fmt.Errorf("%s is no network", value)
		}
		if prefix.Bits() > 0 {
			r.to = prefix
		}
	case "-i", "--in-interface":
		r.in = value
		if negated {
			r.in = "!" + value
		}
		positive = false
	case "-o", "--out-interface":
		r.out = value
		if negated {
			r.out = "!" + value
		}
		positive = false
	case "--dport", "--destination-port", "--dports", "--destination-ports":
		r.ports = strings.Split(value, ",")
	case "-j", "--jump", "-g", "--goto":
		r.target = value
	case "--to-destination", "--to-source":
		r.addresses = append(r.addresses, value)
	case "--dst-type":
		r.local = value == "LOCAL"
		if !r.local {
			r.unknown = option + " " + value
		}
	case "--state", "--ctstate":
		if !slices.Contains(strings.Split(value, ","), "NEW") {
			r.unknown = option + " " + value
		}
	default:
		if !slices.Contains(valued, option) {
			r.unknown = option
		}
	}
	if negated && positive {
		r.unknown = "! " + option
	}
	return nil
}

// statistic reads which share of the packets that come to it a rule takes.
func (r *rule) statistic(mode, every, packet, probability string) error {
	switch mode {
	case "":
	case "nth":
		n, _, err := draft.Number(every, 1<<31)
		if err != nil || n == 0 {
			return fmt.Errorf("--every %s is no number", every)
		}
		if p, _, err := draft.Number(packet, 1<<31); err != nil || p >= n {
			return fmt.Errorf("--packet %s is not below --every", packet)
		}
		r.share, r.partly, r.turns = 1/float64(n), true, true
	case "random":
		share, err := strconv.ParseFloat(probability, 64)
		if err != nil || !(share >= 0 && share <= 1) {
			return fmt.Errorf("--probability %s is none", probability)
		}
		r.share, r.partly = share, true
	default:
		return fmt.Errorf("--mode %s is unknown", mode)
	}
	return nil
}

// and returns what a packet must have to match both; ok is false where none can.
func (m match) and(o match) (match, bool) {
	words := []struct{ own, other *string }{{&m.protocol, &o.protocol}, {&m.in, &o.in}, {&m.out, &o.out}, {&m.unknown, &o.unknown}}
	for _, w := range words {
		switch {
		case *w.own == "":
			*w.own = *w.other
		case *w.other != "" && *w.own != *w.other:
			return m, false
		}
	}
	prefixes := []struct{ own, other *netip.Prefix }{{&m.to, &o.to}, {&m.from, &o.from}}
	for _, p := range prefixes {
		switch {
		case !p.own.IsValid():
			*p.own = *p.other
		case !p.other.IsValid():
		case !p.own.Overlaps(*p.other):
			return m, false
		case p.other.Bits() > p.own.Bits():
			*p.own = *p.other
		}
	}
	if len(o.ports) > 0 {
		if len(m.ports) > 0 && !slices.Equal(m.ports, o.ports) {
			return m, false
		}
		m.ports = o.ports
	}
	m.notFrom, m.local = m.notFrom || o.notFrom, m.local || o.local
	return m, true
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

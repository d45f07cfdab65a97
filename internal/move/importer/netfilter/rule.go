// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/jeoul/jeoul/internal/move/importer/draft"
	"github.com/jeoul/jeoul/internal/move/remark"
)

// match has a rule's conditions on packets.
type match struct {
	// family is ipv4 or ipv6; "": both.
	family, protocol string
	// to is the destination of the packets; invalid: any.
	to netip.Prefix
	// from has the networks of the packets' sources or, if notFrom is set, the networks excluded; none: any source.
	from    []netip.Prefix
	notFrom bool
	in, out string
	ports   []string // destination ports: numbers or FIRST:LAST
	// local: the destination must be an address of this host.
	local bool
	// unknown is a match that Jeoul has no equivalent of.
	unknown string
	// later: the first packet of a connection never matches; translated: only translated packets match.
	later, translated bool
}

// key returns a text that identifies a match.
func (m match) key() string { return fmt.Sprint(m) }

// rule is a rule of a chain.
type rule struct {
	at remark.At
	match
	// share is the fraction of the matching packets that the rule applies to, if partly is set; otherwise it applies to
	// all. turns: packets are selected in turns.
	share         float64
	partly, turns bool
	target        string
	// addresses are the addresses of --to-destination and --to-source.
	addresses []string
	// shares are the shares of the addresses; nil: equal shares.
	shares []float64
	// bySource: the client's address selects the address.
	bySource bool
	// noTrack: the target CT has the option --notrack.
	noTrack bool
	// goes: the rule uses goto, so that packets do not return from the target chain.
	goes bool
}

// valued are options with a value that are read without effect: options of targets that continue with the next rule, or
// names of lists of the module recent. bare are the options in Keywords without a value.
var (
	valued = []string{"-m", "--match", "--comment", "-c", "--set-counters", "--log-prefix", "--log-level", "--name",
		"--to-ports", "--nflog-prefix", "--set-xmark", "--set-mark", "--or-mark", "--reject-with"}
	bare = []string{"--persistent", "--random", "--random-fully", "--syn"}
)

// firstPacket are the values of --tcp-flags that match the first packet of a connection.
var firstPacket = []string{"FIN,SYN,RST,ACK SYN", "SYN,RST,ACK SYN", "SYN,ACK SYN", "SYN SYN"}

// parse reads a rule without its chain.
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
			if negated { // ! --syn
				r.later, r.unknown = true, "! "+option
			}
			continue
		}
		if len(words) == 0 || unknownFlag(option, words[0]) {
			if err := r.takeFlag(option); err != nil {
				return r, err
			}
			continue
		}
		value := words[0]
		words = words[1:]
		switch {
		case option == "--tcp-flags" && len(words) > 0:
			if negated || !slices.Contains(firstPacket, value+" "+words[0]) {
				r.unknown, r.later = option, r.later || synMatches(value, words[0]) == negated
			}
			words = words[1:]
			continue
		case (option == "-c" || option == "--set-counters") && len(words) > 0: // packets and bytes
			words = words[1:]
			continue
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
	if r.noTrack && r.target == "CT" {
		r.target, r.unknown = "NOTRACK", ""
	}
	return r, r.statistic(mode, every, packet, probability)
}

// synMatches reports whether the first packet of a connection has the flags of --tcp-flags.
func synMatches(mask, flags string) bool {
	has := func(list, flag string) bool { return list == "ALL" || slices.Contains(strings.Split(list, ","), flag) }
	for _, flag := range []string{"FIN", "SYN", "RST", "PSH", "ACK", "URG"} {
		if has(mask, flag) && has(flags, flag) != (flag == "SYN") {
			return false
		}
	}
	return true
}

// known are the options that take reads.
var known = []string{"-p", "--protocol", "-s", "--source", "-d", "--destination", "-i", "--in-interface", "-o",
	"--out-interface", "--dport", "--destination-port",
	"--dports", "--destination-ports", "-j", "--jump", "-g", "--goto", "--to-destination", "--to-source", "--dst-type",
	"--state", "--ctstate", "--mode", "--every", "--packet", "--probability"}

// unknownFlag reports whether an unknown option has no value, because another option follows.
func unknownFlag(option, next string) bool {
	return strings.HasPrefix(next, "-") && !slices.Contains(known, option) && !slices.Contains(valued, option)
}

// takeFlag reads an option without a value.
func (r *rule) takeFlag(option string) error {
	if !unknownFlag(option, "-") {
		return fmt.Errorf("the option %s has no value", option)
	}
	if strings.HasPrefix(option, "-") { // otherwise it is another value of the option before
		r.unknown, r.noTrack = cmp.Or(r.unknown, option), r.noTrack || option == "--notrack"
	}
	return nil
}

// take reads an option with a value.
func (r *rule) take(option, value string, negated bool) error {
	positive := true // whether negation is unsupported for the option, which makes the match unknown
	before := r.match
	switch option {
	case "-p", "--protocol":
		r.protocol = strings.ToLower(value)
	case "-s", "--source":
		if err := r.takeSources(value, negated); err != nil {
			return err
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
		r.target, r.goes = value, option == "-g" || option == "--goto"
	case "--to-destination", "--to-source":
		r.addresses = append(r.addresses, value)
	case "--dst-type":
		r.local = value == "LOCAL"
		if !r.local {
			r.unknown = option + " " + value
		}
	case "--state", "--ctstate":
		positive = false
		r.state(option+" "+value, strings.Split(strings.ToUpper(value), ","), negated)
	default:
		if !slices.Contains(valued, option) {
			r.unknown = cmp.Or(r.unknown, option)
		}
	}
	if negated && positive {
		r.match = before
		r.unknown = cmp.Or(r.unknown, "! "+option)
	}
	return nil
}

// takeSources reads source networks, which may be negated.
func (r *rule) takeSources(value string, negated bool) error {
	for one := range strings.SplitSeq(value, ",") {
		prefix, ok := draft.Network(one)
		if !ok {
			return fmt.Errorf("%s is no network", one)
		}
		if prefix.Bits() > 0 || negated {
			r.from, r.notFrom = append(r.from, prefix), negated
		}
	}
	return nil
}

// state reads a match on connection states.
func (r *rule) state(text string, states []string, negated bool) {
	isNew := slices.Contains(states, "NEW")
	translated := slices.Contains(states, "DNAT")
	switch {
	case translated && !negated && !isNew:
		r.translated = true
	case translated || slices.Contains(states, "SNAT"):
		r.unknown = text
	case isNew == negated: // it matches only packets that are not new
		r.unknown, r.later = text, true
	}
}

// statistic reads which share of the arriving packets a rule applies to.
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

// and returns the match of packets that match both. ok is false if no packet can.
func (m match) and(o match) (match, bool) {
	words := []struct{ own, other *string }{{&m.family, &o.family}, {&m.protocol, &o.protocol}, {&m.in, &o.in},
		{&m.out, &o.out}, {&m.unknown, &o.unknown}}
	for _, w := range words {
		switch {
		case *w.own == "":
			*w.own = *w.other
		case *w.other != "" && *w.own != *w.other:
			return m, false
		}
	}
	switch {
	case !m.to.IsValid():
		m.to = o.to
	case !o.to.IsValid():
	case !m.to.Overlaps(o.to):
		return m, false
	case o.to.Bits() > m.to.Bits():
		m.to = o.to
	}
	if !m.andFrom(o) {
		return m, false
	}
	if len(o.ports) > 0 {
		if len(m.ports) > 0 && !slices.Equal(m.ports, o.ports) {
			own, err := expand(m.protocol, m.ports)
			other, otherErr := expand(m.protocol, o.ports)
			common := inBoth(own, other)
			switch {
			case err != nil || otherErr != nil:
				m.unknown = "two lists of ports"
			case len(common) == 0:
				return m, false
			}
			m.ports = common
		} else {
			m.ports = o.ports
		}
	}
	m.local, m.later = m.local || o.local, m.later || o.later
	if o.translated { // untranslated packets never have it
		m.unknown = cmp.Or(m.unknown, "ct status")
	}
	return m, true
}

// andFrom narrows the sources to those in both matches; false: there are none.
func (m *match) andFrom(o match) bool {
	switch {
	case len(o.from) == 0:
	case len(m.from) == 0:
		m.from, m.notFrom = o.from, o.notFrom
	case m.notFrom && o.notFrom:
		m.from = slices.Concat(m.from, o.from)
	case m.notFrom != o.notFrom:
		if m.unknown == "" && !slices.Equal(m.from, o.from) {
			m.unknown = "sources in one list and not in another"
		} else if slices.Equal(m.from, o.from) {
			return false
		}
	default:
		var both []netip.Prefix
		for _, a := range m.from {
			for _, b := range o.from {
				if a.Overlaps(b) && a.Bits() >= b.Bits() {
					both = append(both, a)
				} else if a.Overlaps(b) {
					both = append(both, b)
				}
			}
		}
		m.from = both
		return len(both) > 0
	}
	return true
}

// inBoth returns the ports that are in both lists.
func inBoth(a, b []uint16) (both []string) {
	for _, port := range a {
		if slices.Contains(b, port) {
			both = append(both, strconv.Itoa(int(port)))
		}
	}
	return both
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// expand lists the ports of numbers, names and ranges.
func expand(network string, texts []string) ([]uint16, error) {
	var list []uint16
	for _, text := range texts {
		from, to, isRange := strings.Cut(text, ":")
		first, err := draft.Port(network, from)
		if err != nil {
			return nil, err
		}
		last := first
		if isRange {
			if last, err = draft.Port(network, to); err != nil {
				return nil, err
			}
		}
		if int(last)-int(first) >= mostPorts || len(list) >= mostPorts {
			return nil, fmt.Errorf("more than %d ports; a service has one port: write those that are used", mostPorts)
		}
		for port := int(first); port <= int(last); port++ {
			list = append(list, uint16(port))
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("all ports of the destination; a service has one port: write one for each")
	}
	return list, nil
}

// portRange matches a range of port numbers. A port's name may contain a hyphen, too.
var portRange = regexp.MustCompile(`^\d+-\d+$`)

// passing are targets that continue with the next rule.
var passing = []string{"LOG", "NFLOG", "ULOG", "MARK", "CONNMARK", "CLASSIFY", "DSCP", "TOS", "TRACE", "SET",
	"AUDIT", "TCPMSS"}

// mostPorts and mostAddresses limit ranges of ports and addresses.
const (
	mostPorts     = 64
	mostAddresses = 1024
)

// SPDX-License-Identifier: Apache-2.0

package object

import (
	"net/netip"
	"regexp"
	"slices"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/host/packet"
	"github.com/jeoul/jeoul/internal/text/yamlfile"
	"github.com/jeoul/jeoul/internal/weigh/bench/harness"
)

// Setup describes how an object is measured. It is a YAML file.
type Setup struct {
	// Subject is the object's name in results.
	Subject string  `yaml:"subject"`
	Hook    lb.Hook `yaml:"hook"`
	// Program is the name of the program in the object; it may be omitted if there is only one.
	Program string `yaml:"program"`
	// Variables are values of global variables and constants, by their names in C.
	Variables map[string]Fields `yaml:"variables"`
	Maps      []Map             `yaml:"maps"`
	Cases     []Case            `yaml:"cases"`
	// Counters count each packet of every case.
	Counters []Counter `yaml:"counters"`
}

// Map is the content of a map of the object before measuring.
type Map struct {
	Name string `yaml:"name"`
	// Size is the capacity of the map in entries; 0 keeps that of the object.
	Size    uint32  `yaml:"size"`
	Entries []Entry `yaml:"entries"`
}

// Entry is an element of a map. In a per-CPU map, every CPU gets the value.
type Entry struct {
	Key   Fields `yaml:"key"`
	Value Fields `yaml:"value"`
}

// Case is a kind of packets: TCP or UDP from as many clients as there are flows, to one address.
type Case struct {
	Name     string   `yaml:"name"`
	To       string   `yaml:"to"`
	Protocol string   `yaml:"protocol"`
	Flags    []string `yaml:"flags"`
	// Flows are the numbers of flows of the packets, measured in turn; each is a power of two.
	Flows []uint32 `yaml:"flows"`
	// Prime lists the TCP flags of packets that are sent through all flows before measuring, one after another.
	Prime [][]string `yaml:"prime"`
	// Returns is the program's return code for each packet, such as 3 for XDP_TX.
	Returns uint32 `yaml:"returns"`

	to       netip.AddrPort
	protocol lb.Protocol
}

// Counter is a number in a value of a map, in the machine's byte order. For a per-CPU map it is the sum over all CPUs.
type Counter struct {
	Map string `yaml:"map"`
	Key Fields `yaml:"key"`
	// At is the offset of the number in the value, in bytes, and Bytes its length: 4 or 8.
	At    int `yaml:"at"`
	Bytes int `yaml:"bytes"`
	// Each is the amount by which each packet raises the counter.
	Each uint64 `yaml:"each"`
}

// Bounds of a setup.
const (
	maxSetupBytes = 4 << 20
	maxFlows      = 1 << 20
)

var setupKind = yamlfile.Kind{Noun: "a setup of an object", Needs: "at least subject, hook and cases",
	MaxBytes: maxSetupBytes}

// subjectName matches the names of subjects. A name is part of lines that programs parse.
var subjectName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,39}$`)

// Parse reads a setup, and reports everything that is wrong with it, with line and field.
func Parse(name string, data []byte) (*Setup, error) {
	p := &parser{File: yamlfile.NewFile(name)}
	var s Setup
	if p.Decode(data, setupKind, &s) {
		p.check(&s)
	}
	p.Problems.SortByLine()
	if err := p.Problems.Err(); err != nil {
		return nil, err
	}
	return &s, nil
}

type parser struct{ *yamlfile.File }

func (p *parser) check(s *Setup) {
	if !subjectName.MatchString(s.Subject) {
		p.Fail("subject", "%s is no name of a subject; use lower-case letters, digits, dots and hyphens, 40 at most",
			yamlfile.Quote(s.Subject))
	}
	if s.Hook != lb.HookXDP && s.Hook != lb.HookTC {
		p.Fail("hook", "%s is none; use xdp or tc", yamlfile.Quote(string(s.Hook)))
	}
	for name, fields := range s.Variables {
		p.fields(yamlfile.Join("variables", name), fields)
	}
	for i, m := range s.Maps {
		at := yamlfile.Element("maps", i)
		p.name(yamlfile.Join(at, "name"), m.Name)
		for j, e := range m.Entries {
			entry := yamlfile.Element(yamlfile.Join(at, "entries"), j)
			p.fields(yamlfile.Join(entry, "key"), e.Key)
			p.fields(yamlfile.Join(entry, "value"), e.Value)
		}
	}
	if len(s.Cases) == 0 {
		p.Fail("cases", "missing; list at least one kind of packets")
	}
	names := map[string]bool{}
	for i := range s.Cases {
		c, at := &s.Cases[i], yamlfile.Element("cases", i)
		if p.name(yamlfile.Join(at, "name"), c.Name); names[c.Name] {
			p.Fail(yamlfile.Join(at, "name"), "%s stands twice", yamlfile.Quote(c.Name))
		}
		names[c.Name] = true
		p.checkCase(c, at)
	}
	for i, c := range s.Counters {
		at := yamlfile.Element("counters", i)
		p.name(yamlfile.Join(at, "map"), c.Map)
		p.fields(yamlfile.Join(at, "key"), c.Key)
		if c.Bytes != 4 && c.Bytes != 8 {
			p.Fail(yamlfile.Join(at, "bytes"), "%d is no length of a counter; use 4 or 8", c.Bytes)
		}
		if c.At < 0 {
			p.Fail(yamlfile.Join(at, "at"), "%d is before the value", c.At)
		}
	}
}

func (p *parser) name(field, name string) {
	if name == "" {
		p.Fail(field, "missing; give it a name")
	}
}

func (p *parser) fields(at string, fields Fields) {
	if _, bad, err := fields.encode(); err != nil {
		if bad >= 0 {
			at = yamlfile.Element(at, bad)
		}
		p.Fail(at, "%v", err)
	}
}

// tcpFlags are the TCP flags that packets may have (RFC 9293 section 3.1).
var tcpFlags = map[string]byte{"syn": packet.FlagSYN, "ack": packet.FlagACK, "rst": packet.FlagRST, "fin": 0x01,
	"psh": 0x08}

func (p *parser) checkCase(c *Case, at string) {
	var err error
	if c.to, err = netip.ParseAddrPort(c.To); err != nil {
		p.Fail(yamlfile.Join(at, "to"), "%s is no address with a port, such as 198.19.0.1:80 or [2001:2::1]:80",
			yamlfile.Quote(c.To))
	}
	switch c.Protocol {
	case "", "tcp":
		c.protocol = lb.TCP
	case "udp":
		c.protocol = lb.UDP
		if len(c.Flags) > 0 || len(c.Prime) > 0 {
			p.Fail(at, "packets of UDP have no flags: leave out flags and prime")
		}
	default:
		p.Fail(yamlfile.Join(at, "protocol"), "%s is none; use tcp or udp", yamlfile.Quote(c.Protocol))
	}
	if len(c.Flows) == 0 {
		p.Fail(yamlfile.Join(at, "flows"), "missing; use powers of two, such as [1, 16384, 1048576]")
	}
	for i, n := range c.Flows {
		if n == 0 || n&(n-1) != 0 || n > maxFlows || slices.Contains(c.Flows[:i], n) {
			p.Fail(yamlfile.Element(yamlfile.Join(at, "flows"), i),
				"%d is not possible; use each power of two once, at most %d", n, maxFlows)
		}
	}
	for i, flags := range append([][]string{c.Flags}, c.Prime...) {
		for _, flag := range flags {
			if _, known := tcpFlags[flag]; !known {
				field := yamlfile.Join(at, "flags")
				if i > 0 {
					field = yamlfile.Element(yamlfile.Join(at, "prime"), i-1)
				}
				p.Fail(field, "%s is no flag of TCP; use syn, ack, rst, fin and psh", yamlfile.Quote(flag))
			}
		}
	}
}

// client returns the first address of clients, of the family of the VIP, in the ranges that are reserved for
// benchmarks.
func client(to netip.Addr) netip.AddrPort {
	if to.Is6() {
		return netip.AddrPortFrom(harness.Client6, 0)
	}
	return netip.AddrPortFrom(harness.Client4, 0)
}

// Frame returns the frame of the packets.
func (c *Case) Frame() harness.Frame { return c.frame(c.Flags) }

// PrimeFrames returns the frames that are sent through all flows before measuring.
func (c *Case) PrimeFrames() (frames []harness.Frame) {
	for _, flags := range c.Prime {
		frames = append(frames, c.frame(flags))
	}
	return frames
}

func (c *Case) frame(flags []string) harness.Frame {
	var bits byte
	for _, flag := range flags {
		bits |= tcpFlags[flag]
	}
	return harness.NewFrame(client(c.to.Addr()), c.to, c.protocol, bits)
}

// Transport returns the protocol of the packets.
func (c *Case) Transport() lb.Protocol { return c.protocol }

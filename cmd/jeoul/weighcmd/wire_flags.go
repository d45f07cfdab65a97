// SPDX-License-Identifier: Apache-2.0

package weighcmd

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/jeoul/jeoul/internal/host/namespace"
	"github.com/jeoul/jeoul/internal/weigh/wire"
)

// wirePort is a port in the form of the command line: IF[@NETNS][=PREFIX or ADDRESS].
type wirePort struct {
	Name, netns string
	prefix      netip.Prefix
	address     netip.Addr
}

// UnmarshalText reads a port.
func (p *wirePort) UnmarshalText(text []byte) error {
	place, addresses, has := strings.Cut(string(text), "=")
	p.Name, p.netns, _ = strings.Cut(place, "@")
	if p.Name == "" {
		return fmt.Errorf("%q names no interface", text)
	}
	if !has {
		return nil
	}
	var err error
	if p.prefix, err = netip.ParsePrefix(addresses); err == nil {
		return nil
	}
	if p.address, err = netip.ParseAddr(addresses); err != nil {
		return fmt.Errorf("%q is no address and no prefix", addresses)
	}
	p.prefix = netip.PrefixFrom(p.address, p.address.BitLen())
	return nil
}

func (p wirePort) String() string {
	if p.netns != "" {
		return p.Name + "@" + p.netns
	}
	return p.Name
}

// openPorts opens the namespaces of ports.
func openPorts(list []wirePort) (ports []wire.Port, done func(), err error) {
	var open []*namespace.Namespace
	done = func() {
		for _, n := range open {
			n.Close()
		}
	}
	for _, p := range list {
		port := wire.Port{Name: p.String(), Interface: p.Name, Sources: p.prefix, Address: p.address}
		if p.netns != "" {
			n, err := namespace.Named(p.netns)
			if err != nil {
				return nil, done, err
			}
			open = append(open, n)
			port.Do = n.Do
		}
		ports = append(ports, port)
	}
	return ports, done, nil
}

// wireMark is a code point with its VIP: N=ADDRESS.
type wireMark struct {
	Point uint8
	vip   netip.Addr
}

// UnmarshalText reads a mark.
func (m *wireMark) UnmarshalText(text []byte) error {
	point, vip, _ := strings.Cut(string(text), "=")
	n, err := strconv.ParseUint(point, 10, 6)
	if err == nil {
		m.Point = uint8(n)
		m.vip, err = netip.ParseAddr(vip)
	}
	if err != nil {
		return fmt.Errorf("%q is not N=ADDRESS with a code point of 0 to 63", text)
	}
	return nil
}

// wireMAC is a MAC address.
type wireMAC net.HardwareAddr

// UnmarshalText reads a MAC address.
func (m *wireMAC) UnmarshalText(text []byte) error {
	mac, err := net.ParseMAC(string(text))
	if err != nil || len(mac) != 6 {
		return fmt.Errorf("%q is no MAC address, such as 02:00:5e:10:00:01", text)
	}
	*m = wireMAC(mac)
	return nil
}

// wirePorts is a range of ports: FIRST-LAST.
type wirePorts [2]uint16

// UnmarshalText reads a range of ports.
func (p *wirePorts) UnmarshalText(text []byte) error {
	first, last, _ := strings.Cut(string(text), "-")
	for i, s := range []string{first, last} {
		n, err := strconv.ParseUint(s, 10, 16)
		if err != nil || n == 0 {
			return fmt.Errorf("%q is not FIRST-LAST, such as 1024-65535", text)
		}
		p[i] = uint16(n)
	}
	return nil
}

// wireLoadFlags describe the offered load.
type wireLoadFlags struct {
	Load        string        `enum:"setup,session,capacity,udp,dns,flood,mix" default:"setup" placeholder:"LOAD" help:"The kind of connections: ${enum} (${default})."`
	Rate        float64       `xor:"offered" placeholder:"N" help:"Begin N a second. Without --rate, --ladder and --search: as many as can be, with --outstanding at a time."`
	Ladder      string        `xor:"offered" placeholder:"FROM:TO:STEP" help:"A step for each rate, such as 2800:21000:1400."`
	Search      string        `xor:"offered" placeholder:"FROM:TO" help:"Search the highest rate with no more than --loss (RFC 2544, RFC 9411)."`
	Loss        float64       `placeholder:"SHARE" help:"Share that a rate may lose in a search: failed, or in need of a packet sent again (0)."`
	Connections uint64        `placeholder:"N" help:"Begin N in each step (queries, packets); by default as many as --duration holds."`
	Duration    time.Duration `placeholder:"DURATION" help:"How long a step lasts (1s)."`
	Outstanding int           `placeholder:"N" help:"Begin no more while N wait for an answer (without a rate 256)."`
	WarmUp      time.Duration `placeholder:"DURATION" help:"Offer the first rate for so long before, uncounted."`
	Settle      time.Duration `placeholder:"DURATION" help:"Wait for late answers after a step for so long (4s)."`
	Timeout     time.Duration `placeholder:"DURATION" help:"Send again what got no answer after so long, then after twice, … (1s)."`
	Tries       int           `placeholder:"N" help:"Send a packet at most N times (3; a DNS query once)."`
	Request     int           `placeholder:"BYTES" help:"Session: what is asked with, in one segment; 0: nothing."`
	Content     string        `placeholder:"TEXT" help:"Session: what is asked, in place of --request; \\r and \\n are understood."`
	Hold        time.Duration `placeholder:"DURATION" help:"Capacity: hold connections for so long before each must answer."`
	Frame       int           `placeholder:"BYTES" help:"UDP: length of a frame, without its check sequence (66)."`
	Question    string        `placeholder:"NAME" help:"DNS: the name whose A record is asked for (www.example.com)."`
	Sizes       string        `placeholder:"SHARE:BYTES,…" help:"Mix: response sizes and how many of all sessions have them, such as 80:1000,20:20000."`
	Flood       netip.Prefix  `placeholder:"PREFIX" help:"Beside the load, or with --load flood by itself: SYNs from random addresses of the prefix."`
	FloodRate   float64       `placeholder:"N" help:"SYNs of the flood a second (as many as can be)."`
}

// Validate parses the values that kong does not parse.
func (f *wireLoadFlags) Validate() error {
	_, err := f.Read()
	return err
}

// load returns the load that the flags of one command describe together.
func (c *wireSendCmd) load() (wire.Load, error) {
	l, err := c.wireLoadFlags.Read()
	l.Response = c.Response
	return l, err
}

func (f *wireLoadFlags) Read() (wire.Load, error) {
	l := wire.Load{
		Kind: wire.Kind(f.Load), Rate: f.Rate, Connections: f.Connections, Duration: f.Duration,
		Outstanding: f.Outstanding,
		WarmUp:      f.WarmUp, Settle: f.Settle, Timeout: f.Timeout, Tries: f.Tries, Request: f.Request, Hold: f.Hold,
		Frame: f.Frame, Question: f.Question,
	}
	if f.Rate < 0 {
		return l, fmt.Errorf("--rate %v: a rate is above 0", f.Rate)
	}
	if f.Content != "" {
		if f.Request != 0 {
			return l, errors.New("--content and --request both set the request: use one")
		}
		l.Content = []byte(strings.NewReplacer(`\r`, "\r", `\n`, "\n", `\\`, `\`).Replace(f.Content))
	}
	if f.Ladder != "" {
		rates, err := numbers("--ladder", f.Ladder, "FROM:TO:STEP", 3)
		if err != nil {
			return l, err
		}
		l.Ladder = &wire.Ladder{From: rates[0], To: rates[1], By: rates[2], Connections: f.Connections}
	}
	if f.Search != "" {
		rates, err := numbers("--search", f.Search, "FROM:TO", 2)
		if err != nil {
			return l, err
		}
		l.Search = &wire.Search{From: rates[0], To: rates[1], Loss: f.Loss}
	} else if f.Loss != 0 {
		return l, errors.New("--loss is for --search: no other load ends by it")
	}
	if f.Sizes != "" {
		for size := range strings.SplitSeq(f.Sizes, ",") {
			pair, err := numbers("--sizes", size, "SHARE:BYTES", 2)
			if err != nil {
				return l, err
			}
			l.Sizes = append(l.Sizes, wire.Size{Share: pair[0], Bytes: int(pair[1])})
		}
	}
	if f.Flood.IsValid() {
		l.Flood = &wire.Flood{Sources: f.Flood.Masked(), Rate: f.FloodRate}
	} else if f.FloodRate != 0 {
		return l, errors.New("--flood-rate: say by --flood PREFIX where the flood is to come from")
	}
	return l, l.Validate()
}

// numbers parses n numbers, separated by colons.
func numbers(flag, text, form string, n int) ([]float64, error) {
	parts := strings.Split(text, ":")
	var all []float64
	for _, part := range parts {
		v, err := strconv.ParseFloat(part, 64)
		if err != nil {
			return nil, fmt.Errorf("%s %s: %q is no number; write %s", flag, text, part, form)
		}
		all = append(all, v)
	}
	if len(all) != n {
		return nil, fmt.Errorf("%s %s: write %s", flag, text, form)
	}
	return all, nil
}

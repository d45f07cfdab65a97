// SPDX-License-Identifier: Apache-2.0

// Package draft holds a configuration while it is converted from another balancer's: the services read so far, and the
// outcome of each line of the input. The reader of a dialect fills it. Finish makes the file that Jeoul reads.
package draft

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/move/remark"
)

// ErrNothing means that no service of the input can be carried over. The remarks give the reasons.
var ErrNothing = errors.New("no service could be carried over")

// Options are the settings that the input cannot provide.
type Options struct {
	// Interfaces receive the packets; empty: the interfaces that the input names.
	Interfaces []string
	// VIPs replace the wildcard address of services that listen on every address, one for each family.
	VIPs []netip.Addr
	// Sources are the balancer's addresses that mode fullnat sends from.
	Sources []netip.Addr
	// Mode, unless it is empty, is the mode of all services.
	Mode lb.Mode
	// HTTPAsTCP converts HTTP services that need only balancing to TCP services, instead of mode proxy.
	HTTPAsTCP bool
	// Resolve looks up the addresses of a host; nil: host names are left out.
	Resolve func(name string) ([]netip.Addr, error)
	// Include reads the files that a pattern of the input names, in their order; nil: included files are left out.
	Include func(pattern string) ([]File, error)
}

// File is a text and the name that it was read under.
type File struct {
	Name string
	Data []byte
}

// Service is a service that is being read.
type Service struct {
	lb.Service
	// At is the line where the service begins. BackendAt[i] is the line of Backends[i].
	At        remark.At
	BackendAt []remark.At
	// RouteAt are the lines of the routes of mode proxy.
	RouteAt []remark.At
	// Unsafe is the reason why the service must not be made: without the lines that could not be carried over, it would
	// serve requests that the input refuses, or send them elsewhere. Empty: the service can be made.
	Unsafe string
}

// Add appends a backend with its line.
func (s *Service) Add(at remark.At, b lb.Backend) {
	s.Backends, s.BackendAt = append(s.Backends, b), append(s.BackendAt, at)
}

// Draft is a configuration that is being made.
type Draft struct {
	Options
	// Dialect is the language of the input, and Input the name of its first file.
	Dialect, Input string
	Services       []*Service
	Timeouts       lb.Timeouts
	// VRRP has the settings for sharing the VIPs with another balancer.
	VRRP lb.VRRP
	// Engine has the settings that services in mode proxy share.
	Engine  lb.ProxyEngine
	Remarks []remark.Remark

	// interfaces are the interfaces that the input names. sources are the addresses that it sends from.
	interfaces []string
	sources    []source
	lines      []Line
	texts      map[remark.At]string
	// carried are the lines that readers have carried over. remarked are the lines that have a remark.
	carried, remarked map[remark.At]bool
	made              map[remark.Remark]bool
	// dropped are services that were left out after they had been read.
	dropped []*Service
}

// MaxEstablished and MaxUDP are the longest idle timeouts of a flow that Jeoul accepts.
const (
	MaxEstablished = 168 * time.Hour
	MaxUDP         = 24 * time.Hour
	MaxFin         = time.Hour
)

// New returns an empty draft.
func New(dialect, input string, options Options) *Draft {
	return &Draft{Options: options, Dialect: dialect, Input: input, texts: map[remark.At]string{},
		carried: map[remark.At]bool{}, remarked: map[remark.At]bool{}, made: map[remark.Remark]bool{}}
}

// NewService adds a TCP service that begins at a line.
func (d *Draft) NewService(at remark.At) *Service {
	s := &Service{At: at}
	s.Protocol, s.Scheduler = lb.TCP, lb.Maglev
	d.Services = append(d.Services, s)
	d.Carry(at)
	return s
}

// Carry notes that lines are in the configuration.
func (d *Draft) Carry(lines ...remark.At) {
	for _, at := range lines {
		d.carried[at] = true
	}
}

// Forget undoes Carry for lines.
func (d *Draft) Forget(lines ...remark.At) {
	for _, at := range lines {
		delete(d.carried, at)
	}
}

// Left notes that a line is left out, with the reason and the remedy.
func (d *Draft) Left(at remark.At, format string, args ...any) {
	d.remark(at, remark.Left, format, args...)
}

// Approximate notes that the configuration's form of a line differs slightly.
func (d *Draft) Approximate(at remark.At, format string, args ...any) {
	d.remark(at, remark.Approximated, format, args...)
}

// Needless notes that a line has no counterpart and needs none.
func (d *Draft) Needless(at remark.At, format string, args ...any) {
	d.remark(at, remark.Needless, format, args...)
}

func (d *Draft) remark(at remark.At, kind remark.Kind, format string, args ...any) {
	d.remarked[at] = true
	r := remark.Remark{At: at, Kind: kind, Text: d.Text(at), Why: fmt.Sprintf(format, args...)}
	if !d.made[r] { // a line may be read once for each of several services
		d.made[r] = true
		d.Remarks = append(d.Remarks, r)
	}
}

// Text returns a line of the input, shortened, and without characters that a terminal or a comment would interpret.
func (d *Draft) Text(at remark.At) string { return remark.Shorten(d.texts[at]) }

// Idle raises a protocol's idle timeout to the input's, where the input's is longer than Jeoul's default: Jeoul would
// end the connection earlier. Timeouts apply to all services.
func (d *Draft) Idle(at remark.At, protocol lb.Protocol, silence time.Duration) {
	usual, longest, into := lb.DefaultTimeouts.Established, MaxEstablished, &d.Timeouts.Established
	if protocol == lb.UDP {
		usual, longest, into = lb.DefaultTimeouts.UDP, MaxUDP, &d.Timeouts.UDP
	}
	switch {
	case silence <= usual && silence > 0:
		d.Needless(at,
			"ends silent connections earlier than Jeoul forgets them, after %s; the ends of a connection notice no difference but that", usual)
		return
	case silence > longest || silence == 0:
		d.Approximate(at, "Jeoul remembers a silent flow for up to %s (flows.timeouts), and then ends it", longest)
		silence = longest
	default:
		d.Approximate(at,
			"ends silent flows after %s, which becomes flows.timeouts: they are those of the flows of all services",
			silence)
	}
	*into = max(*into, silence)
}

// HalfClosed is Idle for a connection that one side has closed.
func (d *Draft) HalfClosed(at remark.At, silence time.Duration) {
	const usual = "a connection that one side has ended is remembered for %s"
	if silence > 0 && silence <= lb.DefaultTimeouts.Fin {
		d.Needless(at, usual+", which is longer: the ends of a connection notice no difference", lb.DefaultTimeouts.Fin)
		return
	}
	if silence > MaxFin || silence == 0 {
		silence = MaxFin
	}
	d.Approximate(at, "becomes flows.timeouts, which are those of the flows of all services; "+usual, silence)
	d.Timeouts.Fin = max(d.Timeouts.Fin, silence)
}

// Arrives notes an interface that the input receives packets on.
func (d *Draft) Arrives(name string) { d.interfaces = appendNew(d.interfaces, name) }

// source is an address that the input sends from, and the line that names it.
type source struct {
	addr netip.Addr
	at   remark.At
}

// SendsFrom notes an address of the balancer that the input sends from.
func (d *Draft) SendsFrom(at remark.At, addr netip.Addr) {
	if !slices.ContainsFunc(d.sources, func(s source) bool { return s.addr == addr }) {
		d.sources = append(d.sources, source{addr, at})
	}
}

func appendNew[T comparable](list []T, value T) []T {
	for _, have := range list {
		if have == value {
			return list
		}
	}
	return append(list, value)
}

// VIP returns the address that replaces the wildcard address of a family.
func (d *Draft) VIP(four bool) (netip.Addr, bool) {
	for _, addr := range d.VIPs {
		if addr.Is4() == four {
			return addr, true
		}
	}
	return netip.Addr{}, false
}

// NewCheck returns a check of a type with the default of each setting.
func NewCheck(kind lb.CheckType) lb.Check {
	c := lb.Check{Type: kind, Interval: lb.DefaultCheckInterval, Timeout: lb.DefaultCheckTimeout,
		Rise: lb.DefaultCheckRise, Fall: lb.DefaultCheckFall}
	switch kind {
	case lb.CheckHTTP:
		c.HTTP = &lb.HTTPCheck{Method: lb.DefaultCheckMethod, Path: lb.DefaultCheckPath}
	case lb.CheckTLS:
		c.TLS = &lb.TLSCheck{}
	case lb.CheckDNS:
		c.DNS = &lb.DNSCheck{Type: lb.DefaultCheckRecord, Code: lb.DefaultCheckCode}
	case lb.CheckUDP:
		c.UDP = &lb.UDPCheck{}
	case lb.CheckExec:
		c.Exec = &lb.ExecCheck{}
	}
	return c
}

// FitInterval returns the interval of a check whose timeout has a name in the configuration. Jeoul ends a check before
// the next one begins: a shorter interval is raised to the timeout, and noted, or a slow server would be marked down.
func (d *Draft) FitInterval(at remark.At, interval, timeout time.Duration, name string) time.Duration {
	if timeout <= interval {
		return interval
	}
	d.Approximate(at,
		"a check may take %s (%s), and the next one begins after it: servers are asked every %s, in place of %s", timeout,
		name, timeout, interval)
	return timeout
}

// SetTimes sets a check's interval and timeout; 0: the default. It keeps the timeout within the interval, as Jeoul
// requires.
func SetTimes(c *lb.Check, interval, timeout time.Duration) {
	if interval > 0 {
		c.Interval = min(max(interval, 100*time.Millisecond), time.Hour)
	}
	if timeout > 0 {
		c.Timeout = min(max(timeout, 10*time.Millisecond), time.Minute)
	}
	c.Timeout = min(c.Timeout, c.Interval)
	if c.Fast > 0 {
		c.Fast = max(c.Fast, c.Timeout, 100*time.Millisecond)
	}
	if c.Fast >= c.Interval {
		c.Fast = 0
	}
}

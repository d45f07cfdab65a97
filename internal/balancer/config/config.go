// SPDX-License-Identifier: Apache-2.0

// Package config parses and checks the YAML of a configuration into the desired state of a balancer. The result is
// valid as far as the file alone can tell; other packages check properties of the machine (whether the interface
// exists, or the backend is on its subnet), and refer to the same lines by Config.At.
package config

import (
	"cmp"
	"fmt"
	"net/netip"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/text/yamlfile"
)

// DefaultSocket is the default path of the daemon's socket.
const DefaultSocket = "/run/jeoul/jeoul.sock"

// Config is a checked configuration.
type Config struct {
	// File is the name that the configuration was read under.
	File string
	// Interfaces are the interfaces of the data plane, at least one, each once; the first carries the VIPs. Only their
	// names are checked here.
	Interfaces []string
	Hook       lb.Hook
	// Socket is the absolute path of the unix socket of the API.
	Socket string
	// Survive reports whether the data plane outlives the daemon's process.
	Survive Survive
	// Orphan is how long the data plane forwards without a process; 0 is for ever.
	Orphan time.Duration
	// TableSize is the default number of slots, a prime, of services' hash tables; 0: by the number of the service's
	// backends. The size in force is in each service's own field.
	TableSize  uint32
	Metrics    Metrics
	API        API
	Flows      Flows
	Transition Transition
	// FullNAT has no addresses if no service has that mode.
	FullNAT FullNAT
	Local   Local
	// Proxy has the settings that all services of mode proxy share.
	Proxy lb.ProxyEngine
	// BGP has no ASN if no VIP is announced to routers.
	BGP lb.BGP
	// VRRP has no ID if the VIPs are not shared by it.
	VRRP lb.VRRP
	// Members has no address to listen on if there are none.
	Members  lb.MembersConfig
	Services []lb.Service
	// Warnings name settings that work but are probably mistakes.
	Warnings yamlfile.Problems

	file *yamlfile.File
	// spareFullNAT is the file's pool of full NAT if no service uses it.
	spareFullNAT FullNAT
	// fragments are in the order of their services, which follow those of the file.
	fragments []fragment
}

// fragment is a source beside the file; its services are those from first on.
type fragment struct {
	name  string
	first int
}

// FileOwner is the owner of the services that the configuration file has.
const FileOwner = "file"

// Metrics configures the endpoint for Prometheus.
type Metrics struct {
	// Listen is the TCP address of scrapes; invalid: only the unix socket answers them.
	Listen netip.AddrPort
	// Backends is the number of backends, of all services, up to which each has series of its own.
	Backends uint32
}

// DefaultMetricsBackends is the default of Metrics.Backends: with ten series each, a scrape has some five megabytes.
const DefaultMetricsBackends = 5000

// DefaultOrphan is long enough to alert a person who starts the daemon again. Until then only packets to backends that
// fail meanwhile are lost; after it, all are.
const DefaultOrphan = time.Hour

// minOrphan is longer than a busy machine holds a daemon up.
const minOrphan = 5 * time.Second

// Survive reports whether the data plane outlives the daemon's process.
type Survive string

// With SurviveAuto, it outlives it if that is possible; with SurviveAlways, the daemon does not start if it is not.
const (
	SurviveAuto   Survive = "auto"
	SurviveAlways Survive = "always"
	SurviveNever  Survive = "never"
)

// UnmarshalText accepts "auto", "always" and "never".
func (s *Survive) UnmarshalText(text []byte) error {
	switch word := Survive(text); word {
	case SurviveAuto, SurviveAlways, SurviveNever:
		*s = word
		return nil
	}
	return fmt.Errorf("unknown word %q: use auto, always or never", text)
}

// API configures the API over TCP; on its unix socket it is always served.
type API struct {
	// Listen is the TCP address; invalid: there is none, and the rest is empty.
	Listen netip.AddrPort
	// Certificate and Key are the paths of the server's certificate and key, as PEM.
	Certificate, Key string
	// Tokens is the path of the file of tokens; empty: there are none.
	Tokens string
	// ClientCA is the path of the authorities of client certificates, as PEM; empty: none is
	// accepted.
	ClientCA string
	// Clients are the subjects of client certificates with their roles; the first match counts.
	Clients []APIClient
}

// APIClient is a subject of client certificates, and its role.
type APIClient struct {
	Subject Subject
	Role    ops.Role
}

// Subject is an attribute of a certificate's subject (RFC 4519): CN or OU, and its value.
type Subject struct{ Attribute, Value string }

// String returns "CN=ci".
func (s Subject) String() string { return s.Attribute + "=" + s.Value }

// Flows bounds the tables of flows.
type Flows struct {
	// Limit bounds the proven flows. 0, the default, leaves it to the data plane: lb.DefaultFlowLimit if a service
	// remembers each flow, otherwise lb.DefaultPinLimit.
	Limit uint32
	// Unproven bounds the unproven flows, which have a table of their own.
	Unproven uint32
	Timeouts lb.Timeouts
}

// Transition is how long, after the last change of a service's backends, flows that are not remembered keep their
// previous backend.
type Transition struct{ TCP, UDP time.Duration }

// defaultUnproven is the limit of unproven flows where the file has none.
func (f *Flows) defaultUnproven() uint32 { return min(lb.DefaultUnprovenLimit, f.limit()) }

// limit is how many proven flows services that remember each can have.
func (f *Flows) limit() uint32 { return cmp.Or(f.Limit, lb.DefaultFlowLimit) }

// Local configures the service for clients on the balancer's own host.
type Local struct {
	On bool
	// Cgroup is the directory of the control group whose sockets are served; empty: the root's.
	Cgroup string
}

// Field is the path of the field that names the control group.
func (l Local) Field() string {
	if l.Cgroup != "" {
		return "local.cgroup"
	}
	return "local"
}

// PoolAddress is an address that full NAT sends from.
type PoolAddress struct {
	Address netip.Addr
	// Member is the address of the member that owns it; zero: this balancer owns it.
	Member netip.Addr
}

// FullNAT is the pool of source addresses and ports of full NAT.
type FullNAT struct {
	// Addresses are the balancer's own and other members', of either family.
	Addresses []PoolAddress
	// FirstPort to LastPort, both included, belong to full NAT on each address.
	FirstPort, LastPort uint16
}

// The default pool of ports: above those of services, some of them in the range that Linux gives its own connections
// (which matters only for addresses that the host itself sends from).
const (
	DefaultFirstPort = 20000
	DefaultLastPort  = 59999
)

// ServiceField returns the path of a field of service i (from 0); with an
// empty name, that of the service itself.
func ServiceField(i int, name string) string {
	return yamlfile.Join(yamlfile.Element("services", i), name)
}

// BackendField returns the path of a field of backend j of service i (both from
// 0); with an empty name, that of the backend itself.
func BackendField(i, j int, name string) string {
	return yamlfile.Join(yamlfile.Element(ServiceField(i, "backends"), j), name)
}

// InterfaceField returns the path of the interfaces, as the file spells it.
func (c *Config) InterfaceField() string {
	if c.file.Written("interfaces") {
		return "interfaces"
	}
	return "interface"
}

// At returns a problem at a field; the line is that of the field or, where the file leaves it out, of the mapping that
// it would stand in.
func (c *Config) At(field, format string, args ...any) yamlfile.Problem {
	return c.file.At(field, format, args...)
}

// Written reports whether the file has a field.
func (c *Config) Written(field string) bool { return c.file.Written(field) }

// Leaves returns the fields that the file has and that hold no other, in the order of their lines.
func (c *Config) Leaves() []string { return c.file.Leaves() }

// Owner returns the name of the source that service i (from 0) is of.
func (c *Config) Owner(i int) string {
	owner := FileOwner
	for _, f := range c.fragments {
		if i >= f.first {
			owner = f.name
		}
	}
	return owner
}

// parser checks the fields that were read, and one against another.
type parser struct {
	*yamlfile.File
	cfg *Config
	// The services before old are checked already, and have their defaults; removed ones have no name.
	old int
	// oldVIPs are the VIPs of the services before old, none of which is the address of one of their backends.
	oldVIPs map[netip.Addr]bool
}

// hasProblem reports whether a problem was reported for a field of a backend. There may be a hundred thousand: its path
// is made only where there are problems.
func (p *parser) hasProblem(i, j int, name string) bool {
	return p.AnyBad() && p.Bad(BackendField(i, j, name))
}

// claim records the place at which a value was first seen; if it was seen before, it returns that place and duplicate
// is true.
func claim[K comparable, V any](seen map[K]V, value K, at V) (first V, duplicate bool) {
	if first, duplicate = seen[value]; !duplicate {
		seen[value] = at
	}
	return first, duplicate
}

func family(addr netip.Addr) string {
	if addr.Is4() {
		return "IPv4"
	}
	return "IPv6"
}

// warn reports a setting that works but is probably a mistake.
func (p *parser) warn(field, format string, args ...any) {
	p.cfg.Warnings = append(p.cfg.Warnings, p.At(field, format, args...))
}

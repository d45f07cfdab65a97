// SPDX-License-Identifier: Apache-2.0

// Package lb holds the words of the domain: services, backends, modes and
// schedulers. It does no I/O and knows nothing about how packets are forwarded.
package lb

import (
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// Protocol is the transport protocol of a service, by its IANA number.
type Protocol uint8

// The protocols that a service can have.
const (
	TCP Protocol = 6
	UDP Protocol = 17
)

// String returns the lower-case name, as the configuration spells it.
func (p Protocol) String() string {
	switch p {
	case TCP:
		return "tcp"
	case UDP:
		return "udp"
	}
	return fmt.Sprintf("protocol-%d", uint8(p))
}

// MarshalText writes the name that the configuration uses.
func (p Protocol) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText accepts "tcp" and "udp"; anything else is ErrUnknownProtocol.
func (p *Protocol) UnmarshalText(text []byte) error {
	switch string(text) {
	case "tcp":
		*p = TCP
	case "udp":
		*p = UDP
	default:
		return fmt.Errorf("%w %q: use tcp or udp", ErrUnknownProtocol, text)
	}
	return nil
}

// Backend is a real server of a service.
type Backend struct {
	Name    string     `json:"name"`
	Address netip.Addr `json:"address"`
	Port    uint16     `json:"port"`
	// Weight is the backend's share of new flows relative to its peers;
	// 0 takes no new flow.
	Weight uint16 `json:"weight"`
	// Upper is the number of flows that have not ended at which the backend is
	// full; 0: it never is. It stays full until it has fewer than Lower (0: than
	// Upper), as with ipvsadm -x and -y.
	Upper uint32 `json:"upper,omitempty"`
	Lower uint32 `json:"lower,omitempty"`
	// Draining takes no new flow, and keeps the old ones, like weight 0; the weight
	// stays for when it ends.
	Draining bool `json:"draining,omitempty"`
	// NotReady says why its origin wants it to take no new flow, of the backend, as in "is paused, as its engine says";
	// empty: its origin does not. The balancer's own observations are in Observed.
	NotReady string `json:"unhealthy,omitempty"`
	// Backup: it is to take new flows only while no backend does that is none.
	Backup bool `json:"backup,omitempty"`
	// Origin is where it was found; empty: the configuration names it.
	Origin Origin `json:"origin,omitempty"`
}

// TakesFlows reports whether the backend takes new flows, as it is configured, operated and found.
func (b Backend) TakesFlows() bool { return b.Weight > 0 && !b.Draining && b.NotReady == "" }

// ServiceKey is the unique key of a service: no two services share it.
type ServiceKey struct {
	VIP      netip.Addr
	Port     uint16
	Protocol Protocol
	// Hairpin: the one that serves the near clients of the service without that; see Hairpin.
	Hairpin bool
}

// String returns "tcp 192.0.2.1:80" or "udp [2001:db8::1]:53".
func (k ServiceKey) String() string {
	text := k.Protocol.String() + " " + netip.AddrPortFrom(k.VIP, k.Port).String()
	if k.Hairpin {
		text += " (hairpin)"
	}
	return text
}

// Service is a VIP, port and protocol, and the backends behind it.
type Service struct {
	Name      string     `json:"name"`
	VIP       netip.Addr `json:"vip"`
	Port      uint16     `json:"port"`
	Protocol  Protocol   `json:"protocol"`
	Mode      Mode       `json:"mode"`
	Scheduler Scheduler  `json:"scheduler"`
	// Hash selects the fields of a packet that Maglev hashes; SourceHash has HashSource. Empty is HashFlow.
	Hash Hash `json:"hash,omitempty"`
	// TableSize is the number of slots of the service's hash table, a prime; 0 stands for DefaultTableSize.
	TableSize   uint32      `json:"table_size,omitempty"`
	Persistence Persistence `json:"persistence,omitzero"`
	Limits      Limits      `json:"limits,omitzero"`
	Transition  Transition  `json:"transition,omitzero"`
	// DSCP is the code point, 1..63, that stands for the VIP in mode DSCP.
	DSCP uint8 `json:"dscp,omitempty"`
	// MSS is the most that the MSS option of a SYN may say, in bytes; 0 leaves it.
	MSS uint16 `json:"mss,omitempty"`
	// Untranslated are, in mode NAT, destinations whose packets from the backends' ports
	// are no replies to clients of the service. They are of the VIP's family, and masked.
	Untranslated []netip.Prefix `json:"untranslated,omitempty"`
	// NoHairpin: in mode NAT, clients on the backends' links are served as all others are, because the backends are set
	// up to answer them through the balancer; see Hairpin.
	NoHairpin bool `json:"no_hairpin,omitempty"`
	// IsHairpin: the service serves the near clients of another; see Hairpin. None of a configuration is.
	IsHairpin bool `json:"is_hairpin,omitempty"`
	// Allow and Deny are the clients that are served, and those that are not. Of two prefixes that
	// an address is in the longer one counts; one that is in none is served if Allow is empty. They
	// are of the VIP's family, and masked, and no prefix is in both.
	Allow  []netip.Prefix `json:"allow,omitempty"`
	Deny   []netip.Prefix `json:"deny,omitempty"`
	Checks Checks         `json:"checks,omitzero"`
	// Outliers is how backends are judged by their answers to clients.
	Outliers Outliers `json:"outliers,omitzero"`
	// SlowStart is how long the share of new flows of a backend grows that begins to serve; 0: it
	// has all of its weight at once.
	SlowStart time.Duration `json:"slow_start_ns,omitempty"`
	// OnEmpty is the policy for the VIP while no backend serves; empty stands for KeepVIP.
	OnEmpty OnEmpty `json:"on_empty,omitempty"`
	// Announcement is the BGP policy of the VIP.
	Announcement Announcement `json:"announcement,omitzero"`
	// Discovery is where further backends are found.
	Discovery Discovery `json:"discovery,omitzero"`
	// Proxy has the proxy engine's settings for the service, in ModeProxy; nil stands for the zero value.
	Proxy *Proxy `json:"proxy,omitempty"`
	// AllowEmpty: the configuration may have no backend for the service that takes new flows.
	AllowEmpty bool      `json:"allow_empty,omitempty"`
	Backends   []Backend `json:"backends"`
}

// MayBeEmpty reports whether the configuration of the service may have no backend that takes new flows: it says so, or
// others may be found.
func (s Service) MayBeEmpty() bool { return s.AllowEmpty || s.Discovery.On() }

// Tracked reports whether every flow of the service is remembered: because of its scheduler or persistence, or because
// flows are counted for a cap or a threshold, or because nothing but memory tells a first UDP packet from the next, or
// the client of a reply in mode FullNAT. A proxy knows its connections.
func (s Service) Tracked() bool {
	return s.Mode.Remembers() || s.Scheduler.Remembers() || s.Persistence.On() ||
		s.Limits.Connections > 0 ||
		s.Protocol == UDP && s.Limits.Rate > 0 ||
		slices.ContainsFunc(s.Backends, func(b Backend) bool { return b.Upper > 0 })
}

// BySource reports whether the service's hash is of the client's address alone.
func (s Service) BySource() bool { return s.Scheduler == SourceHash || s.Hash == HashSource }

// RestrictsClients reports whether the service has a list of clients that it allows or denies.
func (s Service) RestrictsClients() bool { return len(s.Allow) > 0 || len(s.Deny) > 0 }

// SameClients reports whether two services allow and deny the same clients.
func (s *Service) SameClients(o *Service) bool {
	return slices.Equal(s.Allow, o.Allow) && slices.Equal(s.Deny, o.Deny)
}

// tableSizes are primes for 100 slots per backend and more, which keeps shares
// even to a per cent ("M > 100 x N", NSDI 2016, section 3.4); small tables stay in
// the processor's caches.
var tableSizes = []uint32{1021, 8191, 65537, 1048573}

// DefaultTableSize returns how many slots the hash table of a service with this
// many backends (those that take no new flow included) has if it is not configured: a
// prime, with at least 100 for each of up to 10,485 backends.
func DefaultTableSize(backends int) uint32 {
	for _, size := range tableSizes {
		if 100*backends <= int(size) {
			return size
		}
	}
	return tableSizes[len(tableSizes)-1]
}

// Key returns the service's identity.
func (s Service) Key() ServiceKey {
	return ServiceKey{VIP: s.VIP, Port: s.Port, Protocol: s.Protocol, Hairpin: s.IsHairpin}
}

// BackendKey identifies a backend within its service across configurations:
// one that keeps its key keeps its flows and its counters.
type BackendKey struct {
	Service ServiceKey
	Address netip.Addr
	Port    uint16
}

// BackendKey returns the identity of backend b of s.
func (s Service) BackendKey(b Backend) BackendKey {
	return BackendKey{Service: s.Key(), Address: b.Address, Port: b.Port}
}

// Hook is the place in the kernel where packets are taken.
type Hook string

// The hooks that a person can ask for.
const (
	// HookAuto takes XDP where the driver runs it natively and nothing speaks
	// against it, and TC otherwise.
	HookAuto Hook = "auto"
	HookXDP  Hook = "xdp"
	HookTC   Hook = "tc"
)

// Hooks lists the hooks in the order in which they are explained.
var Hooks = []Hook{HookAuto, HookXDP, HookTC}

// UnmarshalText accepts "auto", "xdp" and "tc"; anything else is ErrUnknownHook.
func (h *Hook) UnmarshalText(text []byte) error {
	switch Hook(text) {
	case HookAuto, HookXDP, HookTC:
		*h = Hook(text)
		return nil
	}
	return fmt.Errorf("%w %q: use %s, %s or %s", ErrUnknownHook, text, HookAuto, HookXDP, HookTC)
}

// ResolvedChecks are the service's checks, with the way that each takes.
func (s Service) ResolvedChecks() []Check {
	list := slices.Clone(s.Checks.List)
	for k := range list {
		list[k].Via = list[k].ViaIn(s.Mode)
	}
	return list
}

// IsMonitored reports whether the service has health checks or detection of outliers.
func (s Service) IsMonitored() bool { return s.Checks.On() || s.Outliers.On() }

// SPDX-License-Identifier: Apache-2.0

package lb

import (
	"fmt"
	"net/netip"
	"time"
)

// BGP is how this balancer announces its VIPs to routers (RFC 4271), each as a route of one address. It is empty where
// it announces none.
type BGP struct {
	// Speaker has the sessions with the routers; where it is SpeakerLocal, there are neither ASN, RouterID nor Peers
	// here.
	Speaker Speaker `json:"speaker,omitempty"`
	// Table is where a daemon of this host finds the VIPs; 0 with another speaker.
	Table uint32 `json:"table,omitempty"`
	// ASN is this balancer's autonomous system.
	ASN uint32 `json:"asn"`
	// RouterID is its identifier among speakers, written as an IPv4 address.
	RouterID netip.Addr `json:"router_id"`
	// DrainPause is how long routes are announced as the last choice before they are withdrawn, when the
	// balancer is drained.
	DrainPause time.Duration `json:"drain_pause"`
	Peers      []BGPPeer     `json:"peers"`
}

// Speaker is the BGP speaker that has the sessions with routers.
type Speaker string

// SpeakerLocal is a routing daemon of this host, which finds the VIPs as routes in a table of the kernel; the zero
// value is this program.
const SpeakerLocal Speaker = "local"

// UnmarshalText accepts "local"; anything else is ErrUnknownSpeaker.
func (s *Speaker) UnmarshalText(text []byte) error {
	if Speaker(text) != SpeakerLocal {
		return fmt.Errorf("%w %q: write %s, or leave the key out: then this program speaks to the routers",
			ErrUnknownSpeaker, text, SpeakerLocal)
	}
	*s = SpeakerLocal
	return nil
}

// On reports whether VIPs are announced at all.
func (b BGP) On() bool { return b.ASN != 0 || b.Speaker == SpeakerLocal }

// BGPPeer is a router that VIPs are announced to.
type BGPPeer struct {
	// Address is the router's, without a zone; Interface is the link of one that is link-local, or of a
	// peer that is reached by that interface only.
	Address   netip.Addr `json:"address"`
	Interface string     `json:"interface,omitempty"`
	ASN       uint32     `json:"asn"`
	// Port is the TCP port that the router listens on.
	Port uint16 `json:"port"`
	// Password signs segments (RFC 2385); PasswordFile is the file that has it. At most one is set.
	Password     string `json:"password,omitempty"`
	PasswordFile string `json:"password_file,omitempty"`
	// TTLSecurity takes only packets that no router has forwarded (RFC 5082).
	TTLSecurity bool `json:"ttl_security,omitempty"`
	// Multihop is how many hops away the router may be; 0: it is a neighbour, if it is of another AS.
	Multihop uint8 `json:"multihop,omitempty"`
	// BFD is how the path to the router is watched.
	BFD BFD `json:"bfd,omitzero"`
	// HoldTime is the time of silence after which the session ends.
	HoldTime time.Duration `json:"hold_time"`
	// LocalAddress is the source address of the session; invalid: the one by the routing table.
	LocalAddress netip.Addr `json:"local_address,omitzero"`
	// GracefulRestart has the router keep the routes while the speaker restarts (RFC 4724).
	GracefulRestart bool `json:"graceful_restart"`
	// Families are the address families to announce; empty: that of Address.
	Families []Family `json:"families,omitempty"`
	// Communities (RFC 1997, RFC 8092) and MED are added to each route; the route's preference in the own AS
	// is LocalPreference, and the own ASN stands Prepend times more in the path to another.
	Communities     []Community `json:"communities,omitempty"`
	MED             *uint32     `json:"med,omitempty"`
	LocalPreference *uint32     `json:"local_preference,omitempty"`
	Prepend         uint8       `json:"prepend,omitempty"`
	// NextHops are where the router sends packets, at most one for each family; none: the session's own
	// address.
	NextHops []netip.Addr `json:"next_hops,omitempty"`
	// AddPath sends routes with a path identifier, to routers that take them (RFC 7911).
	AddPath bool `json:"add_path,omitempty"`
}

// BFD is how the path to a router is watched (RFC 5880, RFC 5881).
type BFD struct {
	On bool `json:"on"`
	// Interval is how often packets are sent and taken, in microseconds on the wire, and Multiplier how many may be
	// missing.
	Interval   time.Duration `json:"interval"`
	Multiplier uint8         `json:"multiplier"`
}

// Name is the peer's in messages: its address, with the link of one that is link-local.
func (p BGPPeer) Name() string { return p.AddressWithZone().String() }

// AddressWithZone is the address with the zone that a link-local one needs.
func (p BGPPeer) AddressWithZone() netip.Addr {
	if p.Address.IsLinkLocalUnicast() && p.Address.Is6() {
		return p.Address.WithZone(p.Interface)
	}
	return p.Address
}

// Announces returns the families that are announced to the peer.
func (p BGPPeer) Announces() []Family {
	if len(p.Families) > 0 {
		return p.Families
	}
	return []Family{FamilyOf(p.Address)}
}

// Family is a family of addresses.
type Family string

// The families.
const (
	IPv4 Family = "ipv4"
	IPv6 Family = "ipv6"
)

// FamilyOf returns the family of an address.
func FamilyOf(a netip.Addr) Family {
	if a.Unmap().Is4() {
		return IPv4
	}
	return IPv6
}

// UnmarshalText accepts "ipv4" and "ipv6"; anything else is ErrUnknownFamily.
func (f *Family) UnmarshalText(text []byte) error {
	switch Family(text) {
	case IPv4, IPv6:
		*f = Family(text)
		return nil
	}
	return fmt.Errorf("%w %q: use %s or %s", ErrUnknownFamily, text, IPv4, IPv6)
}

// Community marks a route: "64512:100" (RFC 1997) or "64512:1:2" (RFC 8092), or one of the names that
// IANA's registry of well-known communities has, in lower case.
type Community string

// Announcement is the BGP policy of a service's VIP.
type Announcement struct {
	// Never: the service does not have its VIP announced.
	Never bool
	// Minimum is how many backends must serve for the service to count as serving; 0 is 1.
	Minimum uint16
}

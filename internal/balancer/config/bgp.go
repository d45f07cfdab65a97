// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/text/keytable"
	"github.com/jeoul/jeoul/internal/text/yamlfile"
)

// Bounds of the keys of bgp.
const (
	maxPeers       = 64
	maxCommunities = 32
	maxPrepend     = 16
	maxMultihop    = 255
	maxPassword    = 80 // TCP_MD5SIG_MAXKEYLEN in <linux/tcp.h>
	maxHoldTime    = 65535 * time.Second
	// Below minBFDInterval, a process that is scheduled late is taken for a dead one.
	minBFDInterval, maxBFDInterval = 10 * time.Millisecond, 10 * time.Second
	minBFDMultiplier               = 1
	maxBFDMultiplier               = 50
	maxDrainPause                  = time.Hour
	// Tables of routes that are the kernel's own (<linux/rtnetlink.h>).
	unspecifiedTable, defaultTable, localTable = 0, 253, 255
)

// wellKnown are communities that have a name (IANA's registry "BGP Well-known Communities").
var wellKnown = map[string]lb.Community{
	"graceful-shutdown": "65535:0", "blackhole": "65535:666", "no-export": "65535:65281", "no-advertise": "65535:65282",
	"no-export-subconfed": "65535:65283", "no-peer": "65535:65284",
}

// autonomousSystem is an AS number (RFC 6793), but none of the reserved ones.
var autonomousSystem = keytable.Scalar[uint32]{
	Parse: func(text string) (uint32, string) {
		n, err := strconv.ParseUint(text, 10, 32)
		if err != nil || n == 0 || n == 23456 || n == 65535 || n == 1<<32-1 {
			return 0, yamlfile.Quote(text) +
				" is no AS number; write one such as 64512, of the range for private use (64512 to 65534, or 4200000000 to 4294967294)"
		}
		return uint32(n), ""
	},
	Show:   func(n uint32) string { return strconv.FormatUint(uint64(n), 10) },
	Kind:   "an AS number",
	Schema: map[string]any{"type": "integer", "minimum": 1, "maximum": 1<<32 - 2},
	Tag:    "!!int",
}

// routerID is a BGP identifier, which is written as an IPv4 address.
var routerID = keytable.Scalar[netip.Addr]{
	Parse: func(text string) (netip.Addr, string) {
		id, err := netip.ParseAddr(text)
		if err != nil || !id.Is4() || id.IsUnspecified() {
			return netip.Addr{}, yamlfile.Quote(text) +
				" is no identifier; write an IPv4 address of this host, such as 192.0.2.10"
		}
		return id, ""
	},
	Show:   netip.Addr.String,
	Kind:   "an IPv4 address",
	Schema: map[string]any{"type": "string", "format": "ipv4"},
}

// routeTable is a table of routes that is not the kernel's own.
var routeTable = keytable.Scalar[uint32]{
	Parse: func(text string) (uint32, string) {
		n, err := strconv.ParseUint(text, 10, 32)
		if err != nil || n == unspecifiedTable || n == defaultTable || n == localTable {
			return 0, yamlfile.Quote(text) +
				" is no table for VIPs; write a number that no ip rule has packets go by, such as 179, or 254, which is main"
		}
		return uint32(n), ""
	},
	Show: func(n uint32) string { return strconv.FormatUint(uint64(n), 10) },
	Kind: "a number up to 4294967295, but 253 and 255",
	Schema: map[string]any{"type": "integer", "minimum": 1, "maximum": 1<<32 - 1,
		"not": map[string]any{"enum": []int{defaultTable, localTable}}},
	Tag: "!!int",
}

// peerAddress is a router's; unlike a backend's it may be link-local.
var peerAddress = keytable.Scalar[netip.Addr]{
	Parse: func(text string) (netip.Addr, string) {
		addr, err := netip.ParseAddr(text)
		switch {
		case err == nil && addr.Zone() != "":
			return netip.Addr{}, fmt.Sprintf("%s names an interface; write the address %s, and interface: %s beside it",
				yamlfile.Quote(text), addr.WithZone(""), addr.Zone())
		case err == nil && addr.Is6() && addr.IsLinkLocalUnicast():
			return addr, ""
		}
		if message := badAddress(text, addr, err); message != "" {
			return netip.Addr{}, yamlfile.Quote(text) + " " + message
		}
		return addr, ""
	},
	Show:   netip.Addr.String,
	Kind:   "an IPv4 or IPv6 address",
	Schema: hostAddress.Schema,
}

// community is a community of a route.
var community = keytable.Scalar[lb.Community]{
	Parse: func(text string) (lb.Community, string) {
		if c, known := wellKnown[strings.ToLower(text)]; known {
			return c, ""
		}
		parts := strings.Split(text, ":")
		bits := 16
		if len(parts) == 3 {
			bits = 32
		}
		for i, part := range parts {
			n, err := strconv.ParseUint(part, 10, bits)
			if err != nil || len(parts) != 2 && len(parts) != 3 {
				return "", yamlfile.Quote(text) +
					" is no community; write two numbers up to 65535, as in 64512:100, three for a large one, as in 4200000001:1:2, or a name such as no-export"
			}
			parts[i] = strconv.FormatUint(n, 10)
		}
		return lb.Community(strings.Join(parts, ":")), ""
	},
	Show:   func(c lb.Community) string { return string(c) },
	Kind:   "a community as `N:N`, a large one as `N:N:N`, or a well-known one's name",
	Schema: map[string]any{"type": "string", "pattern": "^([0-9]+:[0-9]+(:[0-9]+)?|[a-zA-Z-]+)$"},
}

// Hidden replaces a secret in a configuration that is shown.
const Hidden = "(hidden)"

// WithoutSecrets returns a copy whose secrets are Hidden, to be shown. A configuration with a Hidden secret is refused,
// so that writing back what was shown loses no secret.
func WithoutSecrets(c *Config) *Config {
	shown := *c
	shown.BGP.Peers = slices.Clone(c.BGP.Peers)
	for i := range shown.BGP.Peers {
		if peer := &shown.BGP.Peers[i]; peer.Password != "" {
			peer.Password = Hidden
		}
	}
	return &shown
}

// password is the TCP MD5 password of a session (RFC 2385).
var password = keytable.Scalar[string]{
	Parse: func(text string) (string, string) {
		if text == Hidden {
			return "", yamlfile.Quote(text) +
				" stands for a password where a configuration is shown; write the password, or better password_file with the file that has it"
		}
		if text == "" || len(text) > maxPassword || strings.ContainsFunc(text, unicode.IsControl) {
			return "", fmt.Sprintf("has %d bytes; a password has 1 to %d, and no control characters", len(text),
				maxPassword)
		}
		return text, ""
	},
	Show:   asIs,
	Kind:   fmt.Sprintf("up to %d bytes", maxPassword),
	Schema: map[string]any{"type": "string", "minLength": 1, "maxLength": maxPassword},
}

// optionalNumber is the value of a number that may be absent although 0 means something.
func optionalNumber(at func(*lb.BGPPeer) **uint32, least uint64, fallback string) keytable.Value[lb.BGPPeer] {
	return keytable.Computed(func(p *lb.BGPPeer) (uint32, bool) {
		if n := *at(p); n != nil {
			return *n, true
		}
		return 0, false
	}, func(p *lb.BGPPeer, n uint32) { *at(p) = &n }, keytable.Number[uint32](least, 1<<32-1), 0, fallback)
}

// bgpKeys are the keys of `bgp`.
var bgpKeys = keytable.Table[lb.BGP]{
	{Name: "speaker",
		What:    "Leaves the sessions with routers to a routing daemon of this host, such as BIRD: it finds the VIPs as routes in a `table` of the kernel, [as follows](../guides/bgp.md#a-routing-daemon-on-the-host).",
		Refused: "`asn`, `router_id` and `peers` beside it, which are the daemon's to have.",
		Value: keytable.Optional(func(b *lb.BGP) *lb.Speaker { return &b.Speaker }, keytable.Word(lb.SpeakerLocal),
			"this program speaks to the routers")},
	{Name: "table",
		What:    "`speaker: local`: the number of the table that the VIPs are put into, as routes of type blackhole and protocol 74; 254 is `main`.",
		Refused: "One that an `ip rule` has packets go by, but 254.",
		Value: keytable.Optional(func(b *lb.BGP) *uint32 { return &b.Table }, routeTable,
			fmt.Sprintf("`%d`", lb.DefaultRouteTable))},
	{Name: "asn", Required: true, Unless: "speaker", Beside: true, What: "The autonomous system of this balancer.",
		Value: keytable.Optional(func(b *lb.BGP) *uint32 { return &b.ASN }, autonomousSystem, "")},
	{Name: "router_id", Required: true, Unless: "speaker", Beside: true,
		What:  "What this balancer is known by among speakers; an address of its own. Each balancer has another.",
		Value: keytable.Optional(func(b *lb.BGP) *netip.Addr { return &b.RouterID }, routerID, "")},
	{Name: "drain_pause",
		What: "How long `jeoul balancer drain` announces the VIPs as the last choice (`GRACEFUL_SHUTDOWN`) before it withdraws them.",
		Value: keytable.Field(func(b *lb.BGP) *time.Duration {
			return &b.DrainPause
		}, keytable.Duration(0, maxDrainPause), lb.DefaultDrainPause)},
	{Name: "peers", Required: true, Unless: "speaker", Beside: true, What: "The routers to which the VIPs are announced.",
		Refused: "Two with the same address, and interface.",
		Value: keytable.Mappings(func(b *lb.BGP) *[]lb.BGPPeer { return &b.Peers }, peerKeys,
			keytable.Length{Max: maxPeers, Empty: "name a router",
				TooMany: "that a balancer can have; let a route reflector tell the others"})},
}

var peerKeys = keytable.Table[lb.BGPPeer]{
	{Name: "address", Required: true, What: "The router's address.",
		Refused: "A VIP; a link-local one without `interface`.",
		Value:   keytable.Optional(func(p *lb.BGPPeer) *netip.Addr { return &p.Address }, peerAddress, "")},
	{Name: "asn", Required: true,
		What:  "The router's autonomous system; the same as this balancer's for a session within it.",
		Value: keytable.Optional(func(p *lb.BGPPeer) *uint32 { return &p.ASN }, autonomousSystem, "")},
	{Name: "interface", What: "The interface that the router is behind; a link-local address needs it.",
		Value: keytable.Optional(func(p *lb.BGPPeer) *string { return &p.Interface }, interfaceName,
			"as the routes say")},
	{Name: "port", What: "The TCP port that the router listens on.",
		Value: keytable.Field(func(p *lb.BGPPeer) *uint16 { return &p.Port }, keytable.Number[uint16](1, 65535),
			lb.DefaultBGPPort)},
	{Name: "password",
		What:    "Signs the session's segments (RFC 2385, MD5). Who may read the file reads it, so prefer `password_file`; the API shows `(hidden)` in its place.",
		Refused: "`password_file` beside it; `(hidden)`.",
		Value:   keytable.Optional(func(p *lb.BGPPeer) *string { return &p.Password }, password, "none")},
	{Name: "password_file",
		What:  "A file that has the password in one line. It is read when the session is configured, by a reload too.",
		Value: keytable.Optional(func(p *lb.BGPPeer) *string { return &p.PasswordFile }, absolutePath, "none")},
	{Name: "ttl_security",
		What:  "Takes only packets that no router has forwarded, or no more than `multihop` allows (RFC 5082, GTSM). The router must have it too.",
		Value: keytable.Field(func(p *lb.BGPPeer) *bool { return &p.TTLSecurity }, keytable.Bool, false)},
	{Name: "multihop", What: "How many hops away a router of another AS may be.",
		Value: keytable.Optional(func(p *lb.BGPPeer) *uint8 { return &p.Multihop }, keytable.Number[uint8](1,
			maxMultihop),
			"it is a neighbour")},
	{Name: "hold_time",
		What: "The hold time, in whole seconds; the smaller one of both sides holds. Keepalives are sent at a third of it.",
		Value: keytable.Field(func(p *lb.BGPPeer) *time.Duration {
			return &p.HoldTime
		}, keytable.Duration(lb.MinHoldTime, maxHoldTime), lb.DefaultHoldTime)},
	{Name: "bfd",
		What:    "Has BFD (RFC 5880, one hop) find within a fraction of a second that the router is not reached: [how](../guides/bgp.md#bfd). The router must have it too.",
		Refused: "`multihop` above 1.",
		Value: keytable.Switch(func(p *lb.BGPPeer) *lb.BFD { return &p.BFD }, func(b *lb.BFD) *bool {
			return &b.On
		}, bfdKeys)},
	{Name: "local_address", What: "The address that the session is opened from.",
		Refused: "Another family than `address` has; a VIP.",
		Value: keytable.Optional(func(p *lb.BGPPeer) *netip.Addr { return &p.LocalAddress }, hostAddress,
			"as the routes say")},
	{Name: "graceful_restart",
		What:  "Has the router keep the routes for 10 s when it has lost the speaker, which restarts meanwhile (RFC 4724). A planned stop withdraws them all the same; those of a machine that died stay 10 s longer than `hold_time`.",
		Value: keytable.Field(func(p *lb.BGPPeer) *bool { return &p.GracefulRestart }, keytable.Bool, true)},
	{Name: "families", What: "Of which families VIPs are announced.",
		Refused: "A family that `address` is not of, without a `next_hop` of it; IPv4 by an IPv6 session needs none where the router takes IPv6 next hops (RFC 8950).",
		Value: keytable.Items(func(p *lb.BGPPeer) *[]lb.Family {
			return &p.Families
		}, keytable.Word(lb.IPv4, lb.IPv6), "family",
			keytable.Length{Max: 2, Empty: "name a family, or remove the line", TooMany: "that there are",
				Absent: "that of `address`"})},
	{Name: "communities", What: "Communities (RFC 1997) and large communities (RFC 8092) of each route.",
		Value: keytable.Items(func(p *lb.BGPPeer) *[]lb.Community { return &p.Communities }, community, "community",
			keytable.Length{Max: maxCommunities, Empty: "name a community, or remove the line",
				TooMany: "that a route can have", Absent: "none"})},
	{Name: "med",
		What:  "The metric of each route (MED): of several entrances to this AS, neighbours take the one with the least.",
		Value: optionalNumber(func(p *lb.BGPPeer) **uint32 { return &p.MED }, 0, "none is sent")},
	{Name: "local_preference", What: "The preference of each route within this AS: the greatest is taken.",
		Refused: "A router of another AS.",
		Value: optionalNumber(func(p *lb.BGPPeer) **uint32 { return &p.LocalPreference }, 1,
			"`100`, to routers of the same AS")},
	{Name: "prepend",
		What:    "How many times more this balancer's AS stands in the path: a longer path is a later choice.",
		Refused: "A router of the same AS.",
		Value: keytable.Optional(func(p *lb.BGPPeer) *uint8 {
			return &p.Prepend
		}, keytable.Number[uint8](1, maxPrepend), "none")},
	{Name: "next_hop", What: "Where the router sends packets for the VIPs, at most one address for each family.",
		Refused: "Two of a family.",
		Value: keytable.OneOrItems(func(p *lb.BGPPeer) *[]netip.Addr { return &p.NextHops }, hostAddress, "address",
			keytable.Length{Max: 2, Empty: "name an address, or remove the line", TooMany: "that there are families",
				Absent: "the address that the session has here"})},
	{Name: "add_path",
		What:  "Gives routes an identifier, for a route reflector that is to pass on those of several balancers (RFC 7911).",
		Value: keytable.Field(func(p *lb.BGPPeer) *bool { return &p.AddPath }, keytable.Bool, false)},
}

var bfdKeys = keytable.Table[lb.BFD]{
	{Name: "interval",
		What: "How often packets are sent, and how often the router is to send some; the slower one of both sides holds.",
		Value: keytable.Field(func(b *lb.BFD) *time.Duration {
			return &b.Interval
		}, keytable.Duration(minBFDInterval, maxBFDInterval), lb.DefaultBFDInterval)},
	{Name: "multiplier", What: "How many packets may be missing before the other side is lost.",
		Value: keytable.Field(func(b *lb.BFD) *uint8 {
			return &b.Multiplier
		}, keytable.Number[uint8](minBFDMultiplier, maxBFDMultiplier), uint8(lb.DefaultBFDMultiplier))},
}

// PeerField returns the path of a field of peer i (from 0).
func PeerField(i int, name string) string {
	return yamlfile.Join(yamlfile.Element("bgp.peers", i), name)
}

// checkBGP checks each peer's fields against each other, and the announced services.
func (p *parser) checkBGP(vips map[netip.Addr]int) {
	p.checkSpeaker()
	if !p.cfg.BGP.On() { // not there, or reported before
		p.cfg.BGP = lb.BGP{}
	}
	places, policies := map[string]string{}, map[netip.Addr]int{}
	for i, peer := range p.cfg.BGP.Peers {
		if !peer.Address.IsValid() {
			continue
		}
		p.checkPeer(i, vips)
		field := PeerField(i, "address")
		if first, duplicate := claim(places, peer.Name(), field); duplicate {
			p.Fail(field, "%s is already the address of %s; a session is there once", peer.Name(), p.Place(first))
		} else if first, duplicate := claim(policies, peer.Address, i); duplicate &&
			!sameAttributes(p.cfg.BGP.Peers[first], peer) {
			p.Fail(field,
				"%s is the address of %s on another interface, too, and their routes would differ; give both the same families, communities, med, local_preference, prepend and next_hop", peer.Address, p.Place(PeerField(first, "address")))
		}
	}
	for i, s := range p.cfg.Services {
		minimum := s.Announcement.Minimum
		if field := ServiceField(i, "announce_minimum"); int(minimum) > len(s.Backends) && !s.MayBeEmpty() &&
			!p.Bad(field) && !p.Bad(ServiceField(i, "backends")) {
			p.Fail(field, "%d is more than the %d backends of the service: its VIP would never be announced", minimum,
				len(s.Backends))
		}
	}
}

// checkSpeaker refuses keys that belong to another speaker than the chosen one.
func (p *parser) checkSpeaker() {
	b := &p.cfg.BGP
	if b.Speaker != lb.SpeakerLocal {
		if b.Table != 0 {
			p.Fail("bgp.table",
				"routes are put into a table for a daemon of this host only; add speaker: local, or remove the line")
		}
		return
	}
	for _, of := range []struct {
		field string
		there bool
	}{{"asn", b.ASN != 0}, {"router_id", b.RouterID.IsValid()}, {"peers", len(b.Peers) > 0}} {
		if of.there {
			p.Fail(yamlfile.Join("bgp", of.field),
				"with speaker: local, the routing daemon of this host has the sessions with routers, and its own configuration says this; remove it, or speaker")
		}
	}
	b.Table = cmp.Or(b.Table, lb.DefaultRouteTable)
}

func sameAttributes(a, b lb.BGPPeer) bool {
	text := func(p lb.BGPPeer) string {
		return fmt.Sprint(p.Announces(), p.Communities, optional(p.MED), optional(p.LocalPreference), p.Prepend,
			p.NextHops)
	}
	return text(a) == text(b)
}

func optional(n *uint32) string {
	if n == nil {
		return "-"
	}
	return strconv.FormatUint(uint64(*n), 10)
}

// checkPeer refuses settings of a peer that contradict one another, or with which no session could be established.
func (p *parser) checkPeer(i int, vips map[netip.Addr]int) {
	peer, own := p.cfg.BGP.Peers[i], p.cfg.BGP.ASN
	if vip, is := vips[peer.Address]; is {
		p.Fail(PeerField(i, "address"), "%s is the VIP of %s; write the router's address", peer.Address, p.Place(ServiceField(vip, "vip")))
	}
	if peer.Address.Is6() && peer.Address.IsLinkLocalUnicast() && peer.Interface == "" &&
		!p.Bad(PeerField(i, "interface")) {
		p.Fail(PeerField(i, "address"),
			"%s is link-local, which is an address on a link; add interface, the name of this host's interface there",
			peer.Address)
	}
	if peer.Password != "" && peer.PasswordFile != "" {
		p.Fail(PeerField(i, "password"), "password_file says it too; remove one of them")
	}
	if peer.BFD.On && peer.Multihop > 1 {
		p.Fail(PeerField(i, "bfd"),
			"BFD is with neighbours, and the router may be %d hops away (multihop); remove one of them", peer.Multihop)
	}
	if peer.HoldTime%time.Second != 0 {
		p.Fail(PeerField(i, "hold_time"), "%s is no whole number of seconds; write %s",
			keytable.ShowDuration(peer.HoldTime), keytable.ShowDuration(peer.HoldTime.Truncate(time.Second)))
	}
	local := PeerField(i, "local_address")
	if vip, is := vips[peer.LocalAddress]; is {
		p.Fail(local, "%s is the VIP of %s, which this host does not send from; write an address of its own",
			peer.LocalAddress, p.Place(ServiceField(vip, "vip")))
	} else if peer.LocalAddress.IsValid() && lb.FamilyOf(peer.LocalAddress) != lb.FamilyOf(peer.Address) {
		p.Fail(local, "%s is of another family than the router's address %s", peer.LocalAddress, peer.Address)
	}
	if own != 0 && peer.ASN == own && peer.Prepend > 0 {
		p.Fail(PeerField(i, "prepend"), "paths have no AS within AS %d; remove the line, or write local_preference",
			own)
	}
	if own != 0 && peer.ASN != 0 && peer.ASN != own && peer.LocalPreference != nil {
		p.Fail(PeerField(i, "local_preference"),
			"the preference holds within AS %d only, and the router is of AS %d; write med, prepend or communities",
			own, peer.ASN)
	}
	p.checkNextHops(i)
}

// checkNextHops refuses a peer without a next hop for an announced family.
func (p *parser) checkNextHops(i int) {
	peer := p.cfg.BGP.Peers[i]
	families := map[lb.Family]bool{}
	for _, hop := range peer.NextHops {
		if !hop.IsValid() {
			return // reported before
		}
		if f := lb.FamilyOf(hop); families[f] {
			p.Fail(PeerField(i, "next_hop"), "has two addresses of a family; a route has one next hop")
		} else {
			families[f] = true
		}
	}
	if f := lb.FamilyOf(peer.Address); f == lb.IPv4 {
		for _, announced := range peer.Families {
			if announced == lb.IPv6 && !families[lb.IPv6] {
				p.Fail(PeerField(i, "families"),
					"IPv6 VIPs need an IPv6 next hop, and the session with %s has none; add next_hop, or a second peer with the router's IPv6 address", peer.Address)
			}
		}
	}
}

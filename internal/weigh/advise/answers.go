// SPDX-License-Identifier: Apache-2.0

package advise

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
)

// ErrAnswer means that an answer is impossible, or contradicts another one. The text names the field and the allowed
// values.
var ErrAnswer = errors.New("the answers cannot be")

// Speaks is the protocol between clients and the service.
type Speaks string

// The protocols.
const (
	HTTP  Speaks = "http"
	HTTPS Speaks = "https"
	TCP   Speaks = "tcp"
	UDP   Speaks = "udp"
	DNS   Speaks = "dns"
)

// AllSpeaks lists the protocols.
var AllSpeaks = []Speaks{HTTP, HTTPS, TCP, UDP, DNS}

// datagrams reports whether the protocol is over UDP.
func (s Speaks) datagrams() bool { return s == UDP || s == DNS }

// web reports whether requests have headers.
func (s Speaks) web() bool { return s == HTTP || s == HTTPS }

// Lifetime is how long a connection lasts.
type Lifetime string

// Short connections carry one request each, long ones many.
const (
	Short Lifetime = "short"
	Long  Lifetime = "long"
)

// AllLifetimes lists the lifetimes.
var AllLifetimes = []Lifetime{Short, Long}

// ClientAddress is where a backend must find the client's address.
type ClientAddress string

// The places: nowhere, in a header (X-Forwarded-For, or the PROXY protocol), or as the source of the packets.
const (
	Nowhere  ClientAddress = "none"
	InHeader ClientAddress = "header"
	InPacket ClientAddress = "packet"
)

// AllClientAddresses lists the places of a client's address.
var AllClientAddresses = []ClientAddress{Nowhere, InHeader, InPacket}

// Network is how balancer and backends reach each other.
type Network string

// The networks: one segment (layer 2), or routers between.
const (
	Segment Network = "segment"
	Routed  Network = "routed"
)

// AllNetworks lists the kinds of networks.
var AllNetworks = []Network{Segment, Routed}

// Permission is something that a network's owner permits.
type Permission string

// The permissions: IP in IP or UDP between balancer and backends; a VIP, an agent or a route on backends; replies that
// go to clients and not through the balancer.
const (
	Tunnels  Permission = "tunnels"
	Backends Permission = "backends"
	Bypass   Permission = "bypass"
)

// AllPermissions lists the permissions.
var AllPermissions = []Permission{Tunnels, Backends, Bypass}

// The bounds of answers.
const (
	maxRequests = 1e9
	maxBytes    = 1 << 40
	maxFailures = 8
)

// Answers describe a service. The zero value is not complete.
type Answers struct {
	// Speaks is the protocol; Layer7 is true if the balancer must terminate TLS, select by host or path, or write
	// headers.
	Speaks Speaks `json:"speaks" yaml:"speaks"`
	Layer7 bool   `json:"layer7" yaml:"layer7"`
	// Requests is the number of requests a second that all clients send, Bytes the size of a reply.
	Requests float64  `json:"requests" yaml:"requests"`
	Bytes    float64  `json:"size" yaml:"size"`
	Lifetime Lifetime `json:"lifetime" yaml:"lifetime"`
	// Open is the number of connections that are open at once; 0: not asked.
	Open          float64       `json:"open,omitempty" yaml:"open,omitempty"`
	ClientAddress ClientAddress `json:"client_address" yaml:"client_address"`
	Network       Network       `json:"network" yaml:"network"`
	Permits       []Permission  `json:"permits" yaml:"permits,flow"`
	// Failures is the number of balancers that may fail at once.
	Failures int `json:"failures" yaml:"failures"`
	// Cores are the cores of a balancer; Link is its link in bits/s, 0: not asked; Usage is the share of each, from 0
	// to 1, that may be used.
	Cores float64 `json:"cores" yaml:"cores"`
	Link  float64 `json:"link,omitempty" yaml:"link,omitempty"`
	Usage float64 `json:"usage" yaml:"usage"`
}

// permits reports whether the network's owner permits something.
func (a Answers) permits(p Permission) bool { return slices.Contains(a.Permits, p) }

// Check returns all answers that are impossible or contradict each other, as one error that wraps ErrAnswer.
func (a Answers) Check() error {
	var problems []string
	refuse := func(field, format string, arguments ...any) {
		problems = append(problems, field+": "+fmt.Sprintf(format, arguments...))
	}
	oneOf(refuse, "speaks", a.Speaks, AllSpeaks)
	oneOf(refuse, "lifetime", a.Lifetime, AllLifetimes)
	oneOf(refuse, "client-address", a.ClientAddress, AllClientAddresses)
	oneOf(refuse, "network", a.Network, AllNetworks)
	for _, p := range a.Permits {
		oneOf(refuse, "permits", p, AllPermissions)
	}
	between(refuse, "requests", a.Requests, 1, maxRequests)
	between(refuse, "size", a.Bytes, 1, maxBytes)
	between(refuse, "open", a.Open, 0, maxRequests)
	between(refuse, "failures", float64(a.Failures), 0, maxFailures)
	between(refuse, "cores", a.Cores, 1, 1024)
	between(refuse, "link", a.Link, 0, 1e13)
	if !(a.Usage > 0 && a.Usage <= 1) {
		refuse("usage", "%g is not possible: use a share above 0, of at most 1", a.Usage)
	}
	a.contradictions(refuse)
	if len(problems) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s", ErrAnswer, strings.Join(problems, "; "))
}

// contradictions rejects answers that exclude each other.
func (a Answers) contradictions(refuse refuseFunc) {
	if a.Speaks.datagrams() && a.Layer7 {
		refuse("layer7", "%s has no connection to end: use it with http, https or tcp", a.Speaks)
	}
	if a.Speaks.datagrams() && a.ClientAddress == InHeader {
		refuse("client-address", "header is for http, https and tcp: with %s use packet or none", a.Speaks)
	}
	if a.Speaks == HTTPS && a.ClientAddress == InHeader && !a.Layer7 {
		refuse("client-address", "header is written where TLS ends: with https use packet or none, or add layer7")
	}
	if a.Layer7 && a.ClientAddress == InPacket {
		refuse("client-address",
			"packet excludes layer7, for a balancer that ends a connection opens one of its own: use header or none")
	}
	if a.Speaks == DNS && a.Lifetime == Long {
		refuse("lifetime", "dns asks once a socket: use short")
	}
}

type refuseFunc func(field, format string, arguments ...any)

// oneOf rejects a word that is not among the allowed ones.
func oneOf[T ~string](refuse refuseFunc, field string, word T, allowed []T) {
	if slices.Contains(allowed, word) {
		return
	}
	words := make([]string, len(allowed))
	for i, a := range allowed {
		words[i] = string(a)
	}
	refuse(field, "%q is not possible: use one of %s", word, strings.Join(words, ", "))
}

// between rejects a number outside of its bounds.
func between(refuse refuseFunc, field string, value, least, most float64) {
	if math.IsNaN(value) || value < least || value > most {
		refuse(field, "%g is not possible: use %s to %s", value, grouped(least), grouped(most))
	}
}

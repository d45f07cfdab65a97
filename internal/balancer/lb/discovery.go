// SPDX-License-Identifier: Apache-2.0

package lb

import (
	"fmt"
	"net/netip"
	"strings"
	"time"
)

// Origin is a kind of place where backends are found that the configuration does not name.
type Origin string

// The origins, in the order in which their backends stand in a service, behind its own.
const (
	FromFile   Origin = "file"
	FromDNS    Origin = "dns"
	FromDocker Origin = "docker"
)

// DefaultStale is how long the last set of an origin that fails is used where the configuration
// does not say, and DefaultMaxFound how many backends a set may have.
const (
	DefaultStale    = time.Hour
	DefaultMaxFound = 1000
)

// DefaultRecords are the records that are asked for where the configuration does not say.
const DefaultRecords = "both"

// Discovery is where backends of a service are found, beside those of its configuration.
type Discovery struct {
	File   FileOrigin   `json:"file,omitzero"`
	DNS    DNSOrigin    `json:"dns,omitzero"`
	Docker DockerOrigin `json:"docker,omitzero"`
}

// OriginLimits bound the backends that an origin may have.
type OriginLimits struct {
	// Stale is how long the last set is used after the origin has failed, or has begun to say that
	// there is no backend. 0 stands for DefaultStale.
	Stale time.Duration `json:"stale_ns,omitempty"`
	// Max is how many backends a set may have; 0 stands for DefaultMaxFound.
	Max uint32 `json:"most,omitempty"`
}

// FileOrigin is a list that another program writes.
type FileOrigin struct {
	// Path is absolute; empty: there is none.
	Path string `json:"path,omitempty"`
	OriginLimits
}

// DNSOrigin is a name in the DNS.
type DNSOrigin struct {
	// Name is the name of A and AAAA records, or of SRV records; empty: there is none.
	Name string `json:"name,omitempty"`
	// Type is "A", "AAAA", "SRV" or "both" of the first two; empty stands for DefaultRecords.
	Type string `json:"type,omitempty"`
	// Port is the backends', but of SRV records, which say it; 0: the service's.
	Port uint16 `json:"port,omitempty"`
	// Servers are asked; none: those of /etc/resolv.conf.
	Servers []netip.AddrPort `json:"servers,omitempty"`
	// Hold is how long a backend stays that answers no longer have: some servers answer with a random part of the
	// records.
	Hold time.Duration `json:"hold_ns,omitempty"`
	OriginLimits
}

// DockerOrigin is an engine of containers that speaks Docker's API.
type DockerOrigin struct {
	// Socket is the absolute path of its unix socket; empty: there is none.
	Socket string `json:"socket,omitempty"`
	// Network is the one whose addresses are taken; empty: the only one of each container.
	Network string `json:"network,omitempty"`
	OriginLimits
}

// On reports whether backends are found at all.
func (d Discovery) On() bool { return len(d.Origins()) > 0 }

// Origins returns the origins of the service, in the order of their backends.
func (d Discovery) Origins() (all []Origin) {
	for _, o := range []struct {
		is   bool
		name Origin
	}{{d.File.Path != "", FromFile}, {d.DNS.Name != "", FromDNS}, {d.Docker.Socket != "", FromDocker}} {
		if o.is {
			all = append(all, o.name)
		}
	}
	return all
}

// LimitsOf returns the limits of one of the origins.
func (d Discovery) LimitsOf(of Origin) OriginLimits {
	k := map[Origin]OriginLimits{FromFile: d.File.OriginLimits, FromDNS: d.DNS.OriginLimits,
		FromDocker: d.Docker.OriginLimits}[of]
	if k.Stale == 0 {
		k.Stale = DefaultStale
	}
	if k.Max == 0 {
		k.Max = DefaultMaxFound
	}
	return k
}

// Text names one of the origins and its query, as in "dns web.example.com".
func (d Discovery) Text(of Origin) string {
	query := map[Origin]string{FromFile: d.File.Path, FromDNS: d.DNS.Name, FromDocker: d.Docker.Socket}[of]
	return strings.TrimSpace(fmt.Sprintf("%s %s", of, query))
}

// Discovered is the set of backends that a service has from one origin.
type Discovered struct {
	Service string
	Origin  Origin
	// Backends have a Port of 0 where it is the service's. Their Origin is this one.
	Backends []Backend
	// Taken is when the origin gave the set; zero: it has given none.
	Taken time.Time
	// Problem is why it gives no newer one; empty: it does. Since is since when, and Until when
	// the set has been used for as long as it may be.
	Problem string
	Since   time.Time
	Until   time.Time
	// Overdue: Until has passed. The set is used only where the service had no backend otherwise: an
	// origin that fails never empties a service.
	Overdue bool
	// Notes are the origin's entries that cannot be used, each with its cause.
	Notes []string
}

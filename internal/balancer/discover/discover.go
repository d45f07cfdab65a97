// SPDX-License-Identifier: Apache-2.0

// Package discover finds backends that a configuration does not name: in files that other programs write, in the DNS,
// among containers. A [Provider] follows one origin. An [Engine] keeps the answers: it uses the last good set of an
// origin that fails for as long as the configuration allows, also over a restart of the process. The caller decides
// which of the entries can be a backend.
package discover

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// Provider follows an origin of backends.
type Provider interface {
	// Watch passes the origin's answers to notify until the context ends: the first as soon as possible, and then one
	// whenever the answer may have changed or the origin fails. It bounds the size of answers and the rate of queries.
	Watch(ctx context.Context, notify func(Answer))
}

// Answer is the answer of an origin at one time.
type Answer struct {
	// Found is the whole set.
	Found []Found
	// Err is the reason for which there is no set; then Found is nil, and the previous set stays.
	Err error
	// EmptyReason is the reason for which the set is empty.
	EmptyReason string
	// Authoritative: an empty set cannot be a mistake, and is applied at once.
	Authoritative bool
	// Notes are entries of the origin that could not be read, each with the cause.
	Notes []Note
}

// Note is a remark on an entry of an origin.
type Note struct {
	// Service is the service that it is for; empty: all that have the origin.
	Service, Text string
}

// Found is a backend. Its Port is 0 where the origin says none.
type Found struct {
	lb.Backend
	// Service is the name of the service that it is for; empty: all that have the origin.
	Service string `json:"service,omitempty"`
	// Target is the target of its SRV record; empty: it has none.
	Target string `json:"target,omitempty"`
}

// maxName bounds the characters of a backend's name (internal/balancer/config).
const maxName = 64

// backendName derives a backend's name from the origin's: invalid characters are replaced, and the end of a long name
// by a hash, so that names are stable and unique.
func backendName(text string) string {
	name := strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("-_.:", r) {
			return r
		}
		return '-'
	}, text)
	if utf8.RuneCountInString(name) <= maxName && name != "" {
		return name
	}
	hash := fmt.Sprintf("%x", sha256.Sum256([]byte(text)))[:8]
	return string([]rune(name)[:min(maxName-9, utf8.RuneCountInString(name))]) + "-" + hash
}

// originKey identifies a query: services that have the same one share the answers.
func originKey(s lb.Service, of lb.Origin) string {
	d, most := s.Discovery, s.Discovery.LimitsOf(of).Max
	switch of {
	case lb.FromFile:
		return fmt.Sprintf("file %d %s", most, d.File.Path)
	case lb.FromDNS:
		return fmt.Sprintf("dns %d %s %s %v %v", most, d.DNS.Name, d.DNS.Type, addressTypes(s), d.DNS.Servers)
	}
	return fmt.Sprintf("docker %v %s %s", addressTypes(s), d.Docker.Socket, d.Docker.Network)
}

// NewProvider returns the provider for an origin of a service.
func NewProvider(s lb.Service, of lb.Origin) Provider {
	switch of {
	case lb.FromDNS:
		return newDNSProvider(s)
	case lb.FromDocker:
		return newContainers(s)
	}
	return file{s.Discovery.File.Path, int(s.Discovery.LimitsOf(lb.FromFile).Max)}
}

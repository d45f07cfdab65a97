// SPDX-License-Identifier: Apache-2.0

// Package discover finds backends that a configuration does not name: in files that other programs write, in the DNS,
// among containers. A [Provider] follows one origin, and an [Engine] keeps what they say: the last good set of an
// origin that fails, for as long as the configuration bounds it, and over the end of the process. The caller decides
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
	// Follow passes the origin's answers to notify until the context ends: the first as soon as it can, and then one
	// whenever the answer may have changed, or the origin fails. It bounds the size of answers, and how often it asks.
	Follow(ctx context.Context, notify func(Answer))
}

// Answer is the answer of an origin at one time.
type Answer struct {
	// Found is the whole set.
	Found []Found
	// Err is why there is none; then Found is nil, and the set before stays.
	Err error
	// EmptyReason says of a set without backends why it has none.
	EmptyReason string
	// Authoritative: an empty set is no mistake of who fills the origin, and counts at once.
	Authoritative bool
	// Notes are entries of the origin that could not be read, each with its cause. They stand beside Found.
	Notes []Note
}

// Note is a remark on an entry of an origin.
type Note struct {
	// Service is the one that it is for; empty: all that have the origin.
	Service, Text string
}

// Found is a backend. Its Port is 0 where the origin says none.
type Found struct {
	lb.Backend
	// Service is the name of the one that it is for; empty: for all that have the origin.
	Service string `json:"service,omitempty"`
}

// maxName is how many characters the name of a backend has (internal/balancer/config).
const maxName = 64

// backendName makes the name of a backend of the origin's name for it: with other characters replaced, and the end of a
// long one by a hash, so that it stays the same and its own.
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

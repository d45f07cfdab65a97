// SPDX-License-Identifier: Apache-2.0

package members

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"unicode"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// messageFormat is the format of members' messages. A member of another format is shown, but its tables are not
// compared.
const messageFormat = 1

// The bounds of a member's message.
const (
	maxState = 8 << 20 // bytes; 65,536 services take half of it
	// maxDetailed is the size in bytes up to which backends are listed one by one.
	maxDetailed = 1 << 20
	maxTables   = 1 << 17
	maxText     = 128
	maxListed   = 16 // keys
)

// greeting is the metadata of a member's address: memberlist keeps it current, and gives it 512 bytes.
type greeting struct {
	Format int `json:"format"`
	// Instance identifies a process, so that replayed messages of an earlier one are not taken for its own.
	Instance uint64 `json:"instance"`
	Version  string `json:"version"`
}

// state is the message by which a member reports its own state.
type state struct {
	Format   int    `json:"format"`
	Name     string `json:"name"`
	Instance uint64 `json:"instance"`
	// Sequence counts the instance's messages: older ones are not accepted.
	Sequence      uint64 `json:"sequence"`
	Configuration string `json:"configuration"`
	Ready         bool   `json:"ready"`
	Drained       bool   `json:"drained"`
	// Leaving: it leaves permanently.
	Leaving bool `json:"leaving,omitempty"`
	// Keys are the fingerprints of the accepted keys; it sends with the first.
	Keys   []string     `json:"keys,omitempty"`
	Tables []tableState `json:"tables"`
}

// tableState is lb.ServiceTable on the wire.
type tableState struct {
	Service string `json:"service"`
	Name    string `json:"name"`
	Digest  string `json:"digest"`
	// Takers are weights by endpoint; null if they are not listed one by one.
	Takers map[netip.AddrPort]uint32 `json:"takers,omitempty"`
	// Complete: Takers has all of them.
	Complete bool `json:"told"`
}

func tableStates(tables []lb.ServiceTable) []tableState {
	list := make([]tableState, len(tables))
	for i, t := range tables {
		list[i] = tableState{Service: t.Key.String(), Name: truncate(t.Name), Digest: fmt.Sprintf("%016x", t.Digest),
			Complete: t.Takers != nil}
		if t.Takers == nil {
			continue
		}
		list[i].Takers = make(map[netip.AddrPort]uint32, len(t.Takers))
		for _, taker := range t.Takers {
			list[i].Takers[taker.Endpoint] = taker.Weight
		}
	}
	return list
}

// truncate shortens a text to the length that a message may have.
func truncate(text string) string {
	if len(text) <= maxText {
		return text
	}
	return text[:maxText]
}

// encode writes a state, without the backends if it is long.
func (s state) encode() []byte {
	text, err := json.Marshal(s)
	if err == nil && len(text) <= maxDetailed {
		return text
	}
	for i := range s.Tables {
		s.Tables[i].Takers, s.Tables[i].Complete = nil, false
	}
	if text, err = json.Marshal(s); err == nil && len(text) <= maxState {
		return text
	}
	s.Tables = nil
	text, _ = json.Marshal(s)
	return text
}

// decodeState parses another member's state. Error: errState.
func decodeState(text []byte) (*state, error) {
	if len(text) > maxState {
		return nil, fmt.Errorf("%w: it has %d bytes", errState, len(text))
	}
	var s state
	decoder := json.NewDecoder(bytes.NewReader(text))
	if err := decoder.Decode(&s); err != nil || decoder.More() {
		return nil, fmt.Errorf("%w: it is not JSON of the form", errState)
	}
	if s.Format != messageFormat {
		return nil, fmt.Errorf("%w: its format is %d, and this program has %d", errState, s.Format, messageFormat)
	}
	if len(s.Tables) > maxTables || len(s.Keys) > maxListed || slices.ContainsFunc(s.Keys, func(k string) bool {
		return !isPrintable(k)
	}) || !isPrintable(s.Name) || s.Name == "" || !isPrintable(s.Configuration) {
		return nil, fmt.Errorf("%w: its parts are out of bounds", errState)
	}
	for _, t := range s.Tables {
		if _, err := strconv.ParseUint(t.Digest, 16, 64); err != nil || !isPrintable(t.Service) ||
			!isPrintable(t.Name) ||
			len(t.Takers) > lb.MaxTakers {
			return nil, fmt.Errorf("%w: a service of it is out of bounds", errState)
		}
	}
	return &s, nil
}

// isPrintable reports whether a text can be shown to a person.
func isPrintable(text string) bool {
	if len(text) > maxText {
		return false
	}
	for _, r := range text {
		if !unicode.IsPrint(r) {
			return false
		}
	}
	return true
}

// decodeGreeting parses the metadata of a member's address. Error: errState.
func decodeGreeting(text []byte) (greeting, error) {
	var g greeting
	if err := json.Unmarshal(text, &g); err != nil || !isPrintable(g.Version) {
		return greeting{}, fmt.Errorf("%w: its greeting is not of the form", errState)
	}
	return g, nil
}

// difference is a service that two balancers balance differently.
type difference struct{ service, name, detail string }

// differences compares tables with those of a member of that name.
func differences(own []tableState, other *state) []difference {
	peerTables := make(map[string]*tableState, len(other.Tables))
	for i := range other.Tables {
		peerTables[other.Tables[i].Service] = &other.Tables[i]
	}
	var list []difference
	for i := range own {
		t := peerTables[own[i].Service]
		delete(peerTables, own[i].Service)
		switch {
		case t == nil:
			list = append(list, difference{own[i].Service, own[i].Name, other.Name + " does not have the service"})
		case t.Digest != own[i].Digest:
			list = append(list, difference{own[i].Service, own[i].Name, describeDifference(&own[i], t, other.Name)})
		}
	}
	for i := range other.Tables { // in their order
		if t := &other.Tables[i]; peerTables[t.Service] == t {
			list = append(list, difference{t.Service, t.Name, "only " + other.Name + " has the service, " + t.Service})
		}
	}
	return list
}

// describeDifference describes the difference of two tables of a service, as far as it is known: by the first
// backend that differs.
func describeDifference(own, their *tableState, name string) string {
	if !own.Complete || !their.Complete {
		return ""
	}
	var found []string
	first := func(a, b map[netip.AddrPort]uint32, text func(netip.AddrPort) string) {
		var least netip.AddrPort
		for endpoint, weight := range a {
			if other, has := b[endpoint]; (!has || other != weight) &&
				(!least.IsValid() || endpoint.Compare(least) < 0) {
				least = endpoint
			}
		}
		if least.IsValid() {
			found = append(found, text(least))
		}
	}
	first(own.Takers, their.Takers, func(e netip.AddrPort) string {
		if weight, has := their.Takers[e]; has {
			return fmt.Sprintf("%s has weight %d here and %d at %s", e, own.Takers[e], weight, name)
		}
		return fmt.Sprintf("%s takes new flows here and not at %s", e, name)
	})
	first(their.Takers, own.Takers, func(e netip.AddrPort) string {
		return fmt.Sprintf("%s takes new flows at %s and not here", e, name)
	})
	if len(found) == 0 {
		return "the same backends by another scheduler, mode, hash, table size, persistence, list of clients or limit"
	}
	return cmp.Or(found[0])
}

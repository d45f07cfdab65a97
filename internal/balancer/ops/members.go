// SPDX-License-Identifier: Apache-2.0

package ops

import (
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// Members are the balancers that share VIPs with this one, as far as it knows of them.
type Members struct {
	// Name and Address are this balancer's among them.
	Name    string `json:"name"`
	Address string `json:"address"`
	// Configuration is a digest of this balancer's services as they are configured.
	Configuration string `json:"configuration"`
	// Keys are names of the keys that this balancer accepts, which reveal nothing of them; it sends by the first.
	Keys []string `json:"keys,omitempty"`
	// Problem says why no member can be heard; empty where they can.
	Problem string `json:"problem,omitempty"`
	// Refused counts packets and connections that were not listened to: of strangers, or by another key.
	Refused uint64   `json:"refused"`
	Members []Member `json:"members"`
}

// MemberState is the state of a member, as this balancer knows it.
type MemberState string

// The states of a member.
const (
	// MemberAlive: it answers.
	MemberAlive MemberState = "alive"
	// MemberFailed: it has answered, and does not any more.
	MemberFailed MemberState = "failed"
	// MemberLeft: it has taken its leave.
	MemberLeft MemberState = "left"
	// MemberUnknown: it is configured, and has not answered since this balancer started.
	MemberUnknown MemberState = "unknown"
)

// MemberStates are all of them.
var MemberStates = []MemberState{MemberAlive, MemberFailed, MemberLeft, MemberUnknown}

// Member is another balancer.
type Member struct {
	// Name is empty while nothing was heard of the one at the address.
	Name    string      `json:"name"`
	Address string      `json:"address"`
	State   MemberState `json:"state"`
	Since   time.Time   `json:"since"`
	// Version is the version of the member's program.
	Version string `json:"version,omitempty"`
	// Configuration is a digest of its services as they are configured; empty where it has not said.
	Configuration string `json:"configuration,omitempty"`
	// Keys are names of those that it accepts; it sends by the first.
	Keys []string `json:"keys,omitempty"`
	// Ready: it balances. Drained: it is taken out of every anycast.
	Ready   bool `json:"ready"`
	Drained bool `json:"drained"`
	// SameName is a name that it has and another member, or this balancer, has, too: it cannot be told from that one.
	// Empty where there is no such name.
	SameName string `json:"same_name,omitempty"`
	// Reason says why it is not reached, or not compared with.
	Reason string `json:"reason,omitempty"`
	// Differs are the services of which it sends new flows to other backends.
	Differs []Difference `json:"differs,omitempty"`
	// Flows is the state of the handover of flows between this balancer and the member; nil where there is none.
	Flows *MemberFlows `json:"flows,omitempty"`
}

// MemberFlows is the state of the handover of flows between this balancer and a member.
type MemberFlows struct {
	// Telling: this balancer is connected to it, and sends it flows. Told counts the flows sent, and Bytes the bytes,
	// without those of TLS and TCP, since then.
	Telling bool   `json:"telling"`
	Told    uint64 `json:"told"`
	Bytes   uint64 `json:"bytes"`
	// Behind is how many flows it has not looked at yet.
	Behind uint64 `json:"behind"`
	// Resyncs counts how often it was sent all flows, and Overflows how often because more waited than may.
	Resyncs   uint64 `json:"resyncs"`
	Overflows uint64 `json:"overflows"`
	// Reason says why it is not sent flows.
	Reason string `json:"reason,omitempty"`
	// Heard: it is connected to this balancer, and sends flows. Whole: it has sent all that it knew when it connected.
	Heard bool `json:"heard"`
	Whole bool `json:"whole"`
	// Taken counts flows of it that are new here, Known those that were known, and Refused the others, by the reason.
	Taken   uint64            `json:"taken"`
	Known   uint64            `json:"known"`
	Refused map[string]uint64 `json:"refused,omitempty"`
}

// Difference is a service of which two members send new flows to different backends.
type Difference struct {
	Service string `json:"service"`
	// Detail describes the difference, as far as it is known.
	Detail string    `json:"detail,omitempty"`
	Since  time.Time `json:"since"`
	// Lasting: for longer than a change takes.
	Lasting bool `json:"lasting"`
}

// Matches reports whether a text names the member: its name, its address, or that with its port.
func (m Member) Matches(text string) bool {
	return text != "" && (text == m.Name || text == m.Address || text == hostOf(m.Address))
}

// hostOf is an address without its port.
func hostOf(address string) string {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return address
	}
	return at.Addr().String()
}

// MembersOf returns the members with these names or addresses, in these states; all where none is named. Where the
// configuration has no members, it has none either.
func (s Status) MembersOf(names []string, states []MemberState) Members {
	if s.Members == nil {
		return Members{Members: []Member{}}
	}
	chosen := *s.Members
	chosen.Members = []Member{}
	for _, m := range s.Members.Members {
		if (len(names) == 0 || slices.ContainsFunc(names, m.Matches)) &&
			(len(states) == 0 || slices.Contains(states, m.State)) {
			chosen.Members = append(chosen.Members, m)
		}
	}
	return chosen
}

// Member returns the one of a name or address. Error: ErrNotFound.
func (s Status) Member(name string) (Member, error) {
	found := s.MembersOf([]string{name}, nil).Members
	if len(found) == 0 {
		return Member{}, fmt.Errorf("%w: there is no member %s; `jeoul get members` lists those there are",
			ErrNotFound, name)
	}
	return found[0], nil
}

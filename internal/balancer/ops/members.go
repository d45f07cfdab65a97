// SPDX-License-Identifier: Apache-2.0

package ops

import (
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// Members is this balancer's view of the balancers that share its VIPs.
type Members struct {
	// Name and Address are this balancer's own.
	Name    string `json:"name"`
	Address string `json:"address"`
	// Configuration is a digest of this balancer's services as they are configured.
	Configuration string `json:"configuration"`
	// Keys are fingerprints of the keys that this balancer accepts; it sends with the first.
	Keys []string `json:"keys,omitempty"`
	// Problem is the reason why this balancer cannot receive from members; empty if it can.
	Problem string `json:"problem,omitempty"`
	// Refused counts refused packets and connections: of unknown hosts, or with another key.
	Refused uint64   `json:"refused"`
	Members []Member `json:"members"`
}

// MemberState is the state of a member, as this balancer knows it.
type MemberState string

// The states of a member.
const (
	// MemberAlive: it answers.
	MemberAlive MemberState = "alive"
	// MemberFailed: it has answered before, and no longer does.
	MemberFailed MemberState = "failed"
	// MemberLeft: it has left on purpose.
	MemberLeft MemberState = "left"
	// MemberUnknown: it is configured, and has not answered since this balancer started.
	MemberUnknown MemberState = "unknown"
)

// MemberStates are all of them.
var MemberStates = []MemberState{MemberAlive, MemberFailed, MemberLeft, MemberUnknown}

// Member is another balancer.
type Member struct {
	// Name is empty until the member at the address has answered.
	Name    string      `json:"name"`
	Address string      `json:"address"`
	State   MemberState `json:"state"`
	Since   time.Time   `json:"since"`
	// Version is the version of the member's program.
	Version string `json:"version,omitempty"`
	// Configuration is a digest of its configured services; empty if it has not sent one.
	Configuration string `json:"configuration,omitempty"`
	// Keys are fingerprints of the keys that it accepts; it sends with the first.
	Keys []string `json:"keys,omitempty"`
	// Ready: it balances. Drained: it is out of every anycast.
	Ready   bool `json:"ready"`
	Drained bool `json:"drained"`
	// SameName is its name if another member, or this balancer, has the same, so that they cannot be distinguished;
	// otherwise empty.
	SameName string `json:"same_name,omitempty"`
	// Reason is the reason why it is not reached, or its tables are not compared.
	Reason string `json:"reason,omitempty"`
	// Differs are the services of which it sends new flows to other backends.
	Differs []Difference `json:"differs,omitempty"`
	// Flows is the state of the handover of flows between this balancer and the member; nil if there is none.
	Flows *MemberFlows `json:"flows,omitempty"`
}

// MemberFlows is the state of the handover of flows between this balancer and a member.
type MemberFlows struct {
	// Sending: this balancer is connected to it, and sends it flows. Sent counts the flows sent, and Bytes the bytes,
	// without those of TLS and TCP, since then.
	Sending bool   `json:"telling"`
	Sent    uint64 `json:"told"`
	Bytes   uint64 `json:"bytes"`
	// Behind is the number of flows that it has not handled yet.
	Behind uint64 `json:"behind"`
	// Resyncs counts how often all flows were sent to it, and Overflows how often because the queue was full.
	Resyncs   uint64 `json:"resyncs"`
	Overflows uint64 `json:"overflows"`
	// Reason is the reason why no flows are sent to it.
	Reason string `json:"reason,omitempty"`
	// Receiving: it is connected to this balancer, and sends flows. Synced: it has sent all flows from before.
	Receiving bool `json:"heard"`
	Synced    bool `json:"whole"`
	// Added counts its flows that were new here, Followed those known before, and Refused the others, by the reason.
	Added    uint64            `json:"taken"`
	Followed uint64            `json:"known"`
	Refused  map[string]uint64 `json:"refused,omitempty"`
}

// Difference is a service of which two members send new flows to different backends.
type Difference struct {
	Service string `json:"service"`
	// Detail describes the difference, as far as it is known.
	Detail string    `json:"detail,omitempty"`
	Since  time.Time `json:"since"`
	// Lasting: it has lasted longer than a change takes.
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

// MembersOf returns the members with these names or addresses, in these states; all if none is named. Without members
// in the configuration, there are none.
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

// Member returns the member with a name or address. Error: ErrNotFound.
func (s Status) Member(name string) (Member, error) {
	found := s.MembersOf([]string{name}, nil).Members
	if len(found) == 0 {
		return Member{}, fmt.Errorf("%w: there is no member %s; `jeoul get members` lists those there are",
			ErrNotFound, name)
	}
	return found[0], nil
}

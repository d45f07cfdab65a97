// SPDX-License-Identifier: Apache-2.0

package config

import (
	"net/netip"
	"unicode"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/text/keytable"
	"github.com/jeoul/jeoul/internal/text/yamlfile"
)

const (
	// maxMembers bounds the members: each sends its state to each other.
	maxMembers = 32
	// maxMemberName bounds a member's name.
	maxMemberName = 64
)

// memberName is a name among members.
var memberName = keytable.Scalar[string]{
	Parse: func(text string) (string, string) {
		if text == "" || len(text) > maxMemberName {
			return "", yamlfile.Quote(text) + " is no name; write one of 1 to 64 characters, such as lb1"
		}
		for _, r := range text {
			if !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '-' && r != '.' && r != '_' {
				return "", yamlfile.Quote(text) + " is no name; write letters, digits, and any of - . _"
			}
		}
		return text, ""
	},
	Show:   func(s string) string { return s },
	Kind:   "a name of letters, digits, `-`, `.` and `_`",
	Schema: map[string]any{"type": "string", "minLength": 1, "maxLength": maxMemberName},
}

var membersKeys = keytable.Table[lb.MembersConfig]{
	{Name: "listen", Required: true,
		What:    "The address on which this balancer receives from the others, by UDP and TCP: one of its own on the network that they share. All members use one port, 7946 by custom.",
		Refused: "The address of every interface (`0.0.0.0`, `::`); a VIP.",
		Value:   keytable.Optional(func(m *lb.MembersConfig) *netip.AddrPort { return &m.Listen }, listenAddress, "")},
	{Name: "peers", Required: true,
		What: "The addresses of the others. Packets from other addresses are refused. This balancer's may be among them, so that all files have the same list.",
		Value: keytable.Several(func(m *lb.MembersConfig) *[]netip.Addr { return &m.Peers }, hostAddress, "address",
			keytable.Length{Max: maxMembers, Empty: "name the address of another balancer",
				TooMany: "that there can be"})},
	{Name: "key_file", Required: true,
		What:    "The file of the key that the members know each other by, and encrypt by (AES-GCM): 16, 24 or 32 bytes in base64, as `jeoul members key` makes it. Of up to four lines with a key each, all are accepted, and the first one is sent by: [another key](../guides/members.md#another-key). A reload reads it again.",
		Refused: "A file that others than its owner and group can read; at a reload, keys by which a member that is reached would be cut off.",
		Value:   keytable.Optional(func(m *lb.MembersConfig) *string { return &m.KeyFile }, absolutePath, "")},
	{Name: "name",
		What:  "This balancer's name among them, which no other has.",
		Value: keytable.Optional(func(m *lb.MembersConfig) *string { return &m.Name }, memberName, "the host's name")},
	{Name: "hand_over",
		What:  "Whether members hand flows over, so that [connections go on](../guides/members.md#connections-that-outlive-a-balancer) through another one.",
		Value: keytable.Field(func(m *lb.MembersConfig) *bool { return &m.HandOver }, keytable.Bool, true)},
	{Name: "flows_port", What: "The port at which members take flows, by TCP; all use one.",
		Refused: "The port of `listen`; `hand_over: false` beside it.",
		Value: keytable.Optional(func(m *lb.MembersConfig) *uint16 {
			return &m.FlowsPort
		}, keytable.Number[uint16](1, 65535), "the one after that of `listen`")},
}

// checkMembers checks the fields against each other.
func (p *parser) checkMembers(vips map[netip.Addr]int) {
	m := p.cfg.Members
	if !m.Listen.IsValid() { // absent members have no defaults
		p.cfg.Members = lb.MembersConfig{}
		return
	}
	if m.Listen.Addr().IsUnspecified() {
		p.Fail("members.listen", "%s is every address; write the one that the other members have under peers",
			m.Listen.Addr())
	}
	if vip, is := vips[m.Listen.Addr()]; is {
		p.Fail("members.listen", "%s is the VIP of %s; write an address of this balancer's own", m.Listen.Addr(),
			p.Place(ServiceField(vip, "vip")))
	}
	switch {
	case m.FlowsPort != 0 && !m.HandOver:
		p.Fail("members.flows_port", "no flows are handed over, for hand_over is false; remove one of them")
	case m.HandOver && m.FlowsPort == m.Listen.Port():
		p.Fail("members.flows_port", "%d is the port of listen; write another one", m.FlowsPort)
	case m.HandOver && m.FlowsAt() == 0:
		p.Fail("members.flows_port", "there is no port after that of listen; write one")
	}
	others := 0
	for i, peer := range m.Peers {
		if vip, is := vips[peer]; is {
			p.Fail(yamlfile.Element("members.peers", i), "%s is the VIP of %s; write an address of the member's own",
				peer, p.Place(ServiceField(vip, "vip")))
		}
		if peer != m.Listen.Addr() {
			others++
		}
	}
	if others == 0 && len(m.Peers) > 0 {
		p.Fail("members.peers", "names no other balancer than this one; add the others, or remove members")
	}
}

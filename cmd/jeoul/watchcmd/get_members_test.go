// SPDX-License-Identifier: Apache-2.0

package watchcmd

import (
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/jeoul/jeoul/cmd/jeoul/cmdtest"
	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// statusWithMembers returns the status of a balancer with members.
func statusWithMembers() *ops.Status {
	status := cmdtest.Sample()
	status.Members = &ops.Members{Name: "lb1", Address: "192.0.2.10:7946", Configuration: "c0ffee",
		Keys: []string{"3f2a9c01"}, Refused: 3, Members: []ops.Member{
			{Name: "lb2", Address: "192.0.2.11:7946", State: ops.MemberAlive, Since: status.Started, Version: "1.2.3",
				Configuration: "decaf", Keys: []string{"3f2a9c01", "77aa00ee"}, Ready: true,
				Differs: []ops.Difference{{Service: "web", Detail: "a weight", Since: status.Started, Lasting: true},
					{Service: "web6", Since: status.Started}},
				Flows: &ops.MemberFlows{Sending: true, Sent: 7, Behind: 2, Receiving: true, Synced: true, Added: 5,
					Refused: map[string]uint64{"no slot": 2, "no service": 1}}},
			{Name: "lb3", Address: "192.0.2.12:7946", State: ops.MemberLeft, Since: status.Started},
			{Address: "192.0.2.13:7946", State: ops.MemberUnknown, Since: status.Started, Reason: "it has another key"},
		}}
	return status
}

// TestGetMembers: the table of the members, all or some.
func TestGetMembers(t *testing.T) {
	s, stop := cmdtest.ServeFake(t, filepath.Join(t.TempDir(), "jeoul.sock"), statusWithMembers())
	defer stop()
	var all strings.Builder
	for _, format := range []string{"text", "wide", "name", "json"} {
		text, err := got(t, s, format, memberKind)
		if err != nil {
			t.Error(err)
		}
		all.WriteString(text + "\n")
	}
	text, err := got(t, s, "name", memberKind, "192.0.2.11", "192.0.2.13:7946", "lb9")
	cmdtest.WantError(t, err, "there is no member lb9; did you mean lb2? `jeoul get members -o name` lists those there are")
	all.WriteString(text)
	cmdtest.WantGolden(t, "get-members", []byte(all.String()))
}

// TestGetNoMembers: a balancer without members has an empty list.
func TestGetNoMembers(t *testing.T) {
	s, stop := cmdtest.ServeFake(t, filepath.Join(t.TempDir(), "jeoul.sock"), cmdtest.Checked())
	defer stop()
	if text, err := got(t, s, "json", memberKind); err != nil || text != "[]\n" {
		t.Errorf("%q, %v", text, err)
	}
}

// TestSettledMember: flows that are handed over are no change of a watched member; everything else is.
func TestSettledMember(t *testing.T) {
	was := statusWithMembers().Members.Members[0]
	is := was
	is.Flows = &ops.MemberFlows{Sending: true, Sent: 70, Bytes: 7000, Receiving: true, Synced: true, Added: 50}
	if !reflect.DeepEqual(stableMember(was), stableMember(is)) {
		t.Error("counters alone are a change")
	}
	is.Flows = &ops.MemberFlows{Reason: "connection refused"}
	if reflect.DeepEqual(stableMember(was), stableMember(is)) {
		t.Error("a member that gets no more flows is no change")
	}
}

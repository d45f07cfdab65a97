// SPDX-License-Identifier: Apache-2.0

package api

import (
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// TestMembers: the members that a client asks for come back as the status has them, and one by one.
func TestMembers(t *testing.T) {
	since := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	all := &ops.Members{Name: "lb1", Address: "192.0.2.10:7946", Configuration: "c0ffee", Refused: 3,
		Members: []ops.Member{
			{Name: "lb2", Address: "192.0.2.11:7946", State: ops.MemberAlive, Since: since, Version: "1.2.3",
				Configuration: "decaf", Ready: true,
				Differs: []ops.Difference{{Service: "web", Detail: "a weight", Since: since, Lasting: true}},
				Flows: &ops.MemberFlows{Sending: true, Sent: 7, Behind: 2, Receiving: true, Synced: true, Added: 5,
					Refused: map[string]uint64{"no such service": 1}}},
			{Address: "[2001:db8::12]:7946", State: ops.MemberUnknown, Since: since, Reason: "it has another key"},
		}}
	path, stop := serve(t, func() (ops.Status, error) { return ops.Status{Members: all}, nil })
	defer stop()
	client := NewClient(path)
	for _, test := range []struct {
		names []string
		want  []ops.Member
	}{{nil, all.Members}, {[]string{"lb2"}, all.Members[:1]}, {[]string{"2001:db8::12", "lb9"}, all.Members[1:]},
		{[]string{"lb9"}, []ops.Member{}}} {
		want := *all
		want.Members = test.want
		got, err := client.Members(t.Context(), test.names...)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(&want, got); diff != "" {
			t.Errorf("members %q (-want +got):\n%s", test.names, diff)
		}
	}
	for path, code := range map[string]int{"?state=alive&state=failed": 200, "?state=gone": 422, "/lb2": 200,
		"/192.0.2.11": 200, "/lb9": 404} {
		response, err := client.http.Get(client.base + membersPath + path)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != code {
			t.Errorf("%s: %s, want %d (%s)", path, response.Status, code, http.StatusText(code))
		}
	}
}

// TestNoMembers: where none is configured, there are none, and that is no error.
func TestNoMembers(t *testing.T) {
	path, stop := serve(t, func() (ops.Status, error) { return ops.Status{}, nil })
	defer stop()
	got, err := NewClient(path).Members(t.Context())
	if err != nil || got.Members == nil || len(got.Members) > 0 {
		t.Errorf("%+v, %v", got, err)
	}
}

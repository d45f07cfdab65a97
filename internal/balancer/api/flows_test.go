// SPDX-License-Identifier: Apache-2.0

package api

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// TestFlows: a client's query reaches the balancer, and its answer comes back.
func TestFlows(t *testing.T) {
	var requested ops.FlowQuery
	source := netip.MustParseAddrPort("198.51.100.1:20000")
	list := ops.FlowList{Matching: 7,
		Flows: []ops.Flow{{Service: "web", Backend: "web01", Client: netip.MustParseAddrPort("[2001:db8::1]:1024"),
			Source: &source, State: lb.FlowUDP, Proven: true, SilentSeconds: 2.5}}}
	path, stop := serveAll(t, Balancer{Flows: func(q ops.FlowQuery) (ops.FlowList, error) {
		requested = q
		return list, nil
	}})
	defer stop()
	client := NewClient(path)
	comparer := cmp.Options{cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
		cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b }), cmpopts.EquateEmpty()}
	for _, query := range []ops.FlowQuery{{Limit: ops.DefaultFlows},
		{Of: []string{"web", "shop/s 1"}, Client: netip.MustParsePrefix("2001:db8::/32"),
			States: []lb.FlowState{lb.FlowUDP, lb.FlowFirst}, Limit: 3}} {
		got, err := client.Flows(t.Context(), query)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(query, requested, comparer); diff != "" {
			t.Errorf("asked (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(&list, got, comparer); diff != "" {
			t.Errorf("answered (-want +got):\n%s", diff)
		}
	}
	for query, code := range map[string]int{"": 200, "?client=192.0.2.7": 200, "?client=fe80::1%25eth0": 400,
		"?client=web": 400, "?limit=0": 422,
		fmt.Sprint("?limit=", ops.MaxFlows): 200, fmt.Sprint("?limit=", ops.MaxFlows+1): 422} {
		response, err := client.http.Get(client.base + flowsPath + query)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != code {
			t.Errorf("%s: %s, want %d", query, response.Status, code)
		}
	}
	response, err := client.http.Get(client.base + flowsPath + "?client=192.0.2.7")
	if err == nil {
		response.Body.Close()
	}
	if err != nil || requested.Client != netip.MustParsePrefix("192.0.2.7/32") || requested.Limit != ops.DefaultFlows {
		t.Errorf("%+v, error %v", requested, err)
	}
}

// SPDX-License-Identifier: Apache-2.0

package watchcmd

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/jeoul/jeoul/cmd/jeoul/cmdtest"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// TestWriteFlows: flows as tables and for programs, and a note on those that are not shown.
func TestWriteFlows(t *testing.T) {
	source := netip.MustParseAddrPort("198.51.100.1:20000")
	list := &ops.FlowList{Matching: 12345, Flows: []ops.Flow{
		{Service: "shop", Backend: "s1", Client: netip.MustParseAddrPort("[2001:db8::1]:1024"), State: lb.FlowOpening,
			SilentSeconds: 0.2},
		{Service: "web", Backend: "web01", Client: netip.MustParseAddrPort("203.0.113.9:40000"), Source: &source,
			State: lb.FlowEstablished, Proven: true, SilentSeconds: 61.5},
	}}
	var got bytes.Buffer
	for _, format := range []string{"text", "wide", "json", "yaml", "name"} {
		got.WriteString("-o " + format + "\n")
		if err := writeFlows(&got, &got, format, list); err != nil {
			t.Fatal(err)
		}
	}
	list.Matching = 2
	if err := writeFlows(&got, &got, "name", list); err != nil {
		t.Fatal(err)
	}
	cmdtest.WantGolden(t, "get-flows", got.Bytes())
}

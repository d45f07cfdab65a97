// SPDX-License-Identifier: Apache-2.0

package control

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// remembering is a data plane that remembers flows.
type remembering struct {
	*world
	flows []lb.Flow
}

func (r remembering) Flows(wanted func(*lb.Flow) bool, limit int) (found []lb.Flow, matching uint64, err error) {
	for _, f := range r.flows {
		if wanted(&f) {
			if matching++; len(found) < limit {
				found = append(found, f)
			}
		}
	}
	return found, matching, nil
}

// TestFlows: flows are shown by the names of their services and backends, as far as they are meant.
func TestFlows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c, stop := allUp(t, shop)
		c.mu.Lock()
		cfg := c.view.Config
		c.mu.Unlock()
		source := netip.MustParseAddrPort("198.51.100.7:20000")
		flow := func(service, backend int, client string, state lb.FlowState) lb.Flow {
			s := cfg.Services[service]
			return lb.Flow{Backend: s.BackendKey(s.Backends[backend]), Client: netip.MustParseAddrPort(client),
				State: state, Silent: 1500 * time.Millisecond}
		}
		pooled := flow(1, 0, "203.0.113.9:1003", lb.FlowEstablished)
		pooled.Source = source
		gone := flow(0, 0, "203.0.113.9:1004", lb.FlowOpening)
		gone.Backend.Port++
		c.opt.DataPlane = remembering{w, []lb.Flow{flow(0, 1, "203.0.113.1:1002", lb.FlowOpening), pooled,
			flow(0, 0, "203.0.113.2:1001", lb.FlowEstablished), gone}}
		for _, test := range []struct {
			query    ops.FlowQuery
			want     string
			matching uint64
		}{
			{ops.FlowQuery{}, "shop/s1 203.0.113.9:1003, web/web01 203.0.113.2:1001, web/web02 203.0.113.1:1002", 3},
			{ops.FlowQuery{Of: []string{"web"}}, "web/web01 203.0.113.2:1001, web/web02 203.0.113.1:1002", 2},
			{ops.FlowQuery{Of: []string{"web/web02", "shop"}}, "shop/s1 203.0.113.9:1003, web/web02 203.0.113.1:1002",
				2},
			{ops.FlowQuery{Client: netip.MustParsePrefix("203.0.113.0/30")},
				"web/web01 203.0.113.2:1001, web/web02 203.0.113.1:1002", 2},
			{ops.FlowQuery{States: []lb.FlowState{lb.FlowEstablished}},
				"shop/s1 203.0.113.9:1003, web/web01 203.0.113.2:1001", 2},
			{ops.FlowQuery{Of: []string{"web"}, Limit: 1}, "web/web02 203.0.113.1:1002", 2},
			{ops.FlowQuery{Client: netip.MustParsePrefix("2001:db8::/32")}, "", 0},
		} {
			list, err := c.Flows(test.query)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, f := range list.Flows {
				got = append(got, f.Service+"/"+f.Backend+" "+f.Client.String())
				if pooled := f.Service == "shop"; pooled != (f.Source != nil) || pooled && *f.Source != source ||
					f.SilentSeconds != 1.5 {
					t.Errorf("%+v", f)
				}
			}
			if strings.Join(got, ", ") != test.want || list.Matching != test.matching {
				t.Errorf("%+v: %v of %d, want %s of %d", test.query, got, list.Matching, test.want, test.matching)
			}
		}
		for want, query := range map[string]ops.FlowQuery{"there is no service or backend web/web09; did you mean": {Of: []string{"web/web09"}},
			"a limit of 10001": {Limit: ops.MaxFlows + 1}, `no flow is ever "open"`: {States: []lb.FlowState{"open"}}} {
			if _, err := c.Flows(query); !errors.Is(err, ops.ErrNotFound) && !errors.Is(err, ops.ErrBadRequest) ||
				!strings.Contains(err.Error(), want) {
				t.Errorf("%+v: error %v, want %s", query, err, want)
			}
		}
		stop()
	})
}

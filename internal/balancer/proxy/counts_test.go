// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"fmt"
	"testing"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

// TestReloadsCountAll: requests are counted over reloads, to the last one of each worker that a reload has ended.
func TestReloadsCountAll(t *testing.T) {
	t.Parallel()
	r := newTestEngine(t)
	s := newService(t, lb.Proxy{Speaks: lb.SpeaksHTTP}, newBackend(t, "w1"), newBackend(t, "w2"))
	r.apply(s)
	all := startClientLoop(t, nil, s, "http://a.test/")
	for i := range 12 {
		p := *s.Proxy
		p.Routes = []lb.Route{{Paths: []string{fmt.Sprintf("/%d", i)}, Backends: []string{"w2"}}}
		s.Proxy = &p
		asked := all.requests.Load()
		r.apply(s)
		testenv.Eventually(t, testenv.WaitLimit, "requests go on", func() bool { return all.requests.Load() > asked+20 })
	}
	if failed := all.stop(); len(failed) > 0 {
		t.Fatalf("%d requests failed, the first: %s", len(failed), failed[0])
	}
	r.awaitCounts(s, uint64(all.requests.Load()))
	testenv.Eventually(t, testenv.WaitLimit, "the workers that were replaced end", func() bool {
		return len(children(t, r.State().PID)) == 1
	})
	after, err := r.Stats(t.Context())
	if got, want := after.Services[s.Key()].Requests, uint64(all.requests.Load()); err != nil || got != want {
		t.Errorf("%d requests are counted of %d when those workers have ended, %v", got, want, err)
	}
	t.Logf("%d requests, %d reloads", all.requests.Load(), r.State().Reloads)
}

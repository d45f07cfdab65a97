// SPDX-License-Identifier: Apache-2.0

package generation

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/test/testservice"
)

// digestWith returns the digest of a service's first table.
func digestWith(t *testing.T, s lb.RoutedService) uint64 {
	t.Helper()
	c, err := NewRegister().Plan(lb.State{Services: []lb.RoutedService{s}}, 0, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return c.Records[0].Digest()
}

// TestDigestsArePinned: another release of the program, or of Go, must not have others.
func TestDigestsArePinned(t *testing.T) {
	for scheduler, want := range map[lb.Scheduler]string{
		lb.Maglev: "bda3065bd78f73ba", lb.SourceHash: "84f2cfd3ebc09f17", lb.Failover: "90ac8c703b043cfe",
		lb.RoundRobin: "35248d936a7d4a86", lb.WeightedLeastConnections: "a292db4a6c943d8d",
	} {
		if got := fmt.Sprintf("%016x", digestWith(t, testService(vip4, 80, lb.TCP, scheduler, 3))); got != want {
			t.Errorf("%s: %s, want %s: a digest of other releases does not compare to this", scheduler, got, want)
		}
	}
}

// TestDigestIsOfWhoGetsFlows: a change of a service changes its digest if and only if new flows go elsewhere.
func TestDigestIsOfWhoGetsFlows(t *testing.T) {
	all := []lb.Scheduler{lb.Maglev, lb.SourceHash, lb.RoundRobin, lb.WeightedRoundRobin, lb.LeastConnections,
		lb.WeightedLeastConnections, lb.TwoChoices, lb.Failover}
	byOrder := []lb.Scheduler{lb.Failover}
	for name, test := range map[string]struct {
		change func(*lb.RoutedService)
		// differs are the schedulers by which the digest changes.
		differs []lb.Scheduler
	}{
		"nothing":       {func(*lb.RoutedService) {}, nil},
		"another order": {func(s *lb.RoutedService) { *s = testservice.Reversed(*s) }, byOrder},
		"other names":   {func(s *lb.RoutedService) { s.Name, s.Backends[0].Name = "other", "other" }, nil},
		"other ways": {func(s *lb.RoutedService) {
			s.Paths[1].MAC, s.Paths[1].MTU = net.HardwareAddr{2, 0, 0, 0, 9, 9}, 1400
		}, nil},
		"no way to the second": {func(s *lb.RoutedService) { s.Paths[1].MAC = nil }, allBut(all, lb.Failover)},
		"no way to the first":  {func(s *lb.RoutedService) { s.Paths[0].MAC = nil }, all},
		"a drained backend":    {func(s *lb.RoutedService) { s.Backends[0].Draining = true }, all},
		"a failing backend": {func(s *lb.RoutedService) {
			s.Observed = s.Observed.With(0, lb.Observed{Unhealthy: "fails"})
		}, all},
		"another port": {func(s *lb.RoutedService) { s.Backends[0].Port++ }, all},
		"another address": {func(s *lb.RoutedService) {
			s.Backends[0].Address = netip.MustParseAddr("198.18.2.77")
		}, all},
		"one backend more": {func(s *lb.RoutedService) { addBackends(s, 5, s.Port, false) },
			allBut(all, lb.Failover)},
		"another weight": {func(s *lb.RoutedService) { s.Backends[1].Weight = 7 },
			[]lb.Scheduler{lb.Maglev, lb.SourceHash, lb.WeightedRoundRobin, lb.WeightedLeastConnections,
				lb.TwoChoices}},
		"more slots": {func(s *lb.RoutedService) {
			s.TableSize = 8191
		}, []lb.Scheduler{lb.Maglev, lb.SourceHash}},
		"by the source": {func(s *lb.RoutedService) { s.Hash = lb.HashSource }, allBut(all, lb.SourceHash)},
		"another mode":  {func(s *lb.RoutedService) { s.Mode = lb.IPIP }, all},
		"persistence":   {func(s *lb.RoutedService) { s.Persistence.Timeout = time.Minute }, all},
		"a rate":        {func(s *lb.RoutedService) { s.Limits.Rate = 5 }, nil},
		"a client less": {func(s *lb.RoutedService) {
			s.Deny = []netip.Prefix{netip.MustParsePrefix("203.0.113.7/32")}
		}, all},
		"a bound of one":    {func(s *lb.RoutedService) { s.Backends[0].Upper = 10 }, all},
		"another interface": {func(s *lb.RoutedService) { s.Paths[0].Interface = 77 }, nil},
	} {
		for _, scheduler := range all {
			s := testService(vip4, 80, lb.TCP, scheduler, 4)
			before := digestWith(t, s)
			s.Backends, s.Paths = slices.Clone(s.Backends), slices.Clone(s.Paths)
			test.change(&s)
			if differs := digestWith(t, s) != before; differs != slices.Contains(test.differs, scheduler) {
				t.Errorf("%s, by %s: differs: %t", name, scheduler, differs)
			}
		}
	}
}

func allBut(all []lb.Scheduler, one lb.Scheduler) []lb.Scheduler {
	return slices.DeleteFunc(slices.Clone(all), func(s lb.Scheduler) bool { return s == one })
}

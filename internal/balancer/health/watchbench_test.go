// SPDX-License-Identifier: Apache-2.0

package health_test

import (
	"log/slog"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/health"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// many returns the wanted checks of so many backends of one service.
func many(endpoints int) []health.Wanted {
	checks := []lb.Check{{Type: lb.CheckTCP, Via: lb.ViaAddress, Port: 80, Interval: 10 * time.Second,
		Timeout: time.Second, Rise: 2, Fall: 3}}
	service := lb.ServiceKey{VIP: netip.MustParseAddr("192.0.2.1"), Port: 80, Protocol: lb.TCP}
	wanted := make([]health.Wanted, endpoints)
	for i := range wanted {
		address := netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
		wanted[i] = health.Wanted{Backend: lb.BackendKey{Service: service, Address: address, Port: 80}, Checks: checks}
	}
	return wanted
}

// longestWait is how long a reader of one verdict waited at most while do ran.
func longestWait(e *health.Engine, backend lb.BackendKey, do func()) time.Duration {
	var longest time.Duration
	done, began := make(chan struct{}), make(chan struct{})
	var reader sync.WaitGroup
	reader.Go(func() {
		close(began)
		for {
			select {
			case <-done:
				return
			default:
			}
			at := time.Now()
			e.Verdict(backend)
			longest = max(longest, time.Since(at))
		}
	})
	<-began
	do()
	close(done)
	reader.Wait()
	return longest
}

// BenchmarkWatch: the cost of a change of the configuration with 100,000 checked backends, and how long a reader of a
// verdict waits meanwhile.
func BenchmarkWatch(b *testing.B) {
	const endpoints = 100_000
	wanted := many(endpoints + 1)
	for _, c := range []struct {
		name          string
		before, after []health.Wanted
	}{
		{"first", nil, wanted[:endpoints]},
		{"again", wanted[:endpoints], wanted[:endpoints]},
		{"one-more", wanted[:endpoints], wanted},
		{"half-goes", wanted[:endpoints], wanted[:endpoints/2]},
	} {
		b.Run(c.name, func(b *testing.B) {
			var longest time.Duration
			for range b.N {
				b.StopTimer()
				e := health.New(health.Options{Log: slog.New(slog.DiscardHandler)})
				e.SetTargets(c.before)
				b.StartTimer()
				longest = max(longest, longestWait(e, wanted[0].Backend, func() { e.SetTargets(c.after) }))
			}
			b.ReportMetric(float64(longest.Microseconds())/1000, "ms-waited-at-most")
		})
	}
}

// SPDX-License-Identifier: Apache-2.0

package control

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/balancer/proxy"
)

// counted is what the data plane and the proxy have counted.
type counted struct {
	lb.Counters
	proxy proxy.Stats
}

// counters reads what was counted, of backends by their names: see tally.
func (c *Controller) counters(v *view) (counted, error) {
	all, err := c.endpointCounters(v)
	if err != nil {
		return counted{}, err
	}
	return v.tallied(all), nil
}

// endpointCounters reads what was counted. What the proxy has counted of backends stands among the counters of the data plane, too,
// so that what goes by these knows no difference. Where it cannot be asked, what it has said last counts.
func (c *Controller) endpointCounters(v *view) (counted, error) {
	from, err := c.opt.DataPlane.Counters()
	if err != nil {
		return counted{}, fmt.Errorf("read the counters: %w", err)
	}
	all := counted{Counters: from}
	if len(v.proxied) == 0 || c.opt.Proxy == nil {
		return all, nil
	}
	all.proxy, err = c.askProxy()
	if err != nil {
		c.opt.Log.Debug("the counters of the proxy cannot be read", "why", err)
	}
	all.Backends, all.Services = maps.Clone(from.Backends), maps.Clone(from.Services)
	if all.Backends == nil {
		all.Backends = map[lb.BackendKey]lb.BackendCount{}
	}
	if all.Services == nil {
		all.Services = map[lb.ServiceKey]lb.ServiceCount{}
	}
	for key, n := range all.proxy.Backends {
		all.Backends[key] = lb.BackendCount{Connections: n.Connections, Active: capped(n.Active), Flows: n.Active, Bytes: n.BytesIn, ReturnedBytes: n.BytesOut}
	}
	for key, n := range all.proxy.Services {
		all.Services[key] = lb.ServiceCount{Active: capped(n.Active), Flows: n.Active}
	}
	return all, nil
}

// capped is a number of connections in 32 bits.
func capped(n uint64) uint32 { return uint32(min(n, math.MaxUint32)) }

// askProxy returns what the proxy has counted, or where it does not say, what it has said last.
func (c *Controller) askProxy() (proxy.Stats, error) {
	ctx, cancel := context.WithTimeout(context.Background(), statsBound)
	defer cancel()
	stats, err := c.opt.Proxy.Stats(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		return c.proxy.stats, err
	}
	c.proxy.stats = stats
	return stats, nil
}

// engineStatus is the proxy's process; nil where no service needs one.
func (c *Controller) engineStatus(v *view) *ops.ProxyEngine {
	if len(v.proxied) == 0 || c.opt.Proxy == nil {
		return nil
	}
	is := c.opt.Proxy.State()
	return &ops.ProxyEngine{Program: is.Program, Version: is.Version, PID: is.PID, Started: is.Started,
		Reloads: is.Reloads, Workers: is.Workers, Trouble: is.Trouble}
}

// engineProblems says what is wrong with the proxy.
func (c *Controller) engineProblems(v *view) (list []string) {
	if is := c.engineStatus(v); is != nil && is.Trouble != "" {
		list = append(list, "the proxy: "+is.Trouble)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Concat(list, c.proxy.troubles)
}

// showProxied shows what the proxy does for a service.
func showProxied(s lb.Service, counts proxy.Stats, status *ops.Service) {
	if s.Mode != lb.ModeProxy {
		return
	}
	n := counts.Services[s.Key()]
	status.TableSize = 0
	status.Proxy = &ops.ProxiedService{Speaks: cmp.Or(s.Proxy.Speaks, lb.SpeaksTCP), TLS: len(s.Proxy.Certificates) > 0,
		Connections: n.Connections, BytesIn: n.BytesIn, BytesOut: n.BytesOut, Denied: n.Denied, Proxied: proxiedOf(n)}
	for j := range status.Backends {
		b := &status.Backends[j]
		key := lb.BackendKey{Service: s.Key(), Address: b.Address, Port: b.Port}
		of := proxiedOf(counts.Backends[key])
		b.Proxied = &of
		// The kernel leads there, and what is known of the address is another service's.
		b.Neighbour, b.Interface, b.NextHop, b.MAC, b.MTU, b.Narrow = "", "", netip.Addr{}, "", 0, false
	}
}

func proxiedOf(n proxy.Counts) ops.Proxied {
	r := n.Responses
	return ops.Proxied{Requests: n.Requests, Failed: n.Failed, Retried: n.Retried, Redispatched: n.Redispatched, Queued: n.Queued,
		Responses: ops.Responses{Other: r[0], Informational: r[1], Successful: r[2], Redirection: r[3], ClientError: r[4], ServerError: r[5]}}
}

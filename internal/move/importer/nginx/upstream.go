// SPDX-License-Identifier: Apache-2.0

package nginx

import (
	"fmt"
	"strings"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/move/importer/draft"
)

// upstream reads a group of servers. Its remarks remain even if no server passes anything to it.
func (r *reader) upstream(n *node) {
	u := &upstream{node: n, scheduler: lb.WeightedRoundRobin}
	r.upstreams[n.word(1)], r.all = u, append(r.all, u)
	for _, c := range n.children {
		switch c.words[0] {
		case "server":
			r.backend(u, c)
		case "least_conn":
			u.scheduler = lb.WeightedLeastConnections
			r.Carry(c.at)
		case "least_time":
			u.scheduler = lb.WeightedLeastConnections
			r.Approximate(c.at, "Jeoul measures no times of answers; wlc goes by connections alone")
		case "random":
			u.scheduler = lb.TwoChoices
			r.Carry(c.at)
		case "ip_hash":
			u.scheduler = lb.SourceHash
			r.Carry(c.at)
		case "hash":
			if r.requests {
				u.scheduler = lb.SourceHash
				r.Approximate(c.at, "clients are spread by their address")
				continue
			}
			u.scheduler, u.hash = lb.Maglev, lb.HashSource
			if c.word(1) != "$remote_addr" && c.word(1) != "$binary_remote_addr" {
				r.Approximate(c.at, "Jeoul's hash is of the client's address, or of its address and port")
			} else {
				r.Carry(c.at)
			}
		default:
			r.passOver(inUpstream, c)
		}
	}
}

// backend reads a server of a group.
func (r *reader) backend(u *upstream, c *node) {
	b := lb.Backend{Weight: 1}
	err := r.place(&b, c.word(1))
	fails, window := -1, 10*time.Second
	for _, word := range c.words[min(2, len(c.words)):] {
		if err != nil {
			break
		}
		name, value, _ := strings.Cut(word, "=")
		var n uint64
		switch name {
		case "weight":
			n, _, err = draft.Number(value, 65535)
			b.Weight = uint16(n)
		case "max_conns":
			n, _, err = draft.Number(value, 1<<28)
			b.Upper = uint32(n)
		case "max_fails":
			n, _, err = draft.Number(value, 1<<20)
			fails = int(n)
		case "fail_timeout":
			if window, err = draft.Time(value, time.Second); fails < 0 {
				fails = 1 // nginx's default
			}
		case "slow_start":
			u.slowStart, err = draft.Time(value, time.Second)
		case "backup":
			b.Backup = true
		case "down":
			b.Draining = true
		default:
			r.Left(c.at, "of this server's parameters Jeoul has no like of %s", name)
		}
	}
	if err != nil {
		r.Left(c.at, "%v", err)
		return
	}
	if fails > 0 {
		r.eject(u, c, fails, window)
	}
	r.Carry(c.at)
	u.backends, u.lines = append(u.backends, b), append(u.lines, c.at)
}

// place reads ADDRESS:PORT.
func (r *reader) place(b *lb.Backend, text string) error {
	if strings.HasPrefix(text, "unix:") {
		return fmt.Errorf("%s is no address of IP: %s", text, needsProxy)
	}
	host, port := draft.SplitPort(text)
	addr, err := r.Address(host)
	if err != nil {
		return err
	}
	b.Address = addr
	if port == "" && r.requests {
		port = "80"
	}
	b.Port, err = draft.Port("tcp", port)
	return err
}

// eject makes the service eject backends that fail. nginx takes a server out after a number of failed connections
// within a time, for the same time. Jeoul goes by the share of failures, for which it uses one half.
func (r *reader) eject(u *upstream, c *node, fails int, window time.Duration) {
	const share = 50
	if r.requests {
		r.Approximate(c.at,
			"max_fails and fail_timeout: the proxy tries another backend (retries), and a check takes one out; add one")
		return
	}
	if r.Mode != "" && !r.Mode.Translates() {
		r.Left(c.at, "max_fails and fail_timeout: in mode %s answers do not come back through the balancer; add a check", r.Mode)
		return
	}
	window = min(max(window, time.Second), 10*time.Minute)
	u.outliers = lb.Outliers{Failures: share, Connections: uint32(fails), Interval: window, Pause: window,
		LongestPause: max(window, lb.DefaultOutlierLongestPause), Ejected: lb.DefaultOutlierEjected}
	r.Approximate(c.at,
		"max_fails and fail_timeout become outliers of the service, the last ones that stand: half of at least so many new connections must fail")
}

// SPDX-License-Identifier: Apache-2.0

package haproxy

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// mostWeight is HAProxy's greatest server weight.
const mostWeight = 256

// names returns the servers' names, which are unique in the service. A server may be in several sections.
func (w *writer) names() []string {
	names, given := make([]string, len(w.service.Backends)), map[string]int{}
	for j, b := range w.service.Backends {
		names[j] = unique(given, name(b.Name))
	}
	return names
}

// chosen returns the indexes of a route's backends.
func (w *writer) chosen(route lb.Route) (chosen []int) {
	for j, b := range w.service.Backends {
		if slices.Contains(route.Backends, b.Name) {
			chosen = append(chosen, j)
		}
	}
	return chosen
}

// servers writes server lines for the chosen backends.
func (w *writer) servers(chosen []int, names []string) {
	s := w.service
	weights := w.weights()
	shared := w.sharedWords()
	for _, j := range chosen {
		b := s.Backends[j]
		w.CarryBackend(w.i, j, "name", "address", "port", "weight", "upper", "backup", "drain")
		words := []string{"server", names[j], netip.AddrPortFrom(b.Address, b.Port).String(), "weight",
			strconv.Itoa(weights[j])}
		if b.Upper > 0 {
			words = append(words, "maxconn", strconv.FormatUint(uint64(b.Upper), 10))
			if s.Mode != lb.ModeProxy { // in mode proxy, HAProxy does the same
				w.Approximate(config.BackendField(w.i, j, "upper"),
					"upper: becomes maxconn, beyond which connections may wait for this server while others have room")
			}
		}
		if b.Backup {
			words = append(words, "backup")
		}
		if b.Draining {
			words = append(words, "disabled")
			w.Approximate(config.BackendField(w.i, j, "drain"),
				"drain: becomes disabled, and checks of the server stop")
		}
		w.line(append(words, shared...)...)
	}
}

// weights returns the servers' weights, scaled down to HAProxy's maximum if needed. A scheduler without weights only
// distinguishes 0 from other weights.
func (w *writer) weights() []int {
	s := w.service
	weights := make([]int, len(s.Backends))
	most, common := uint64(0), uint64(0)
	for _, b := range s.Backends {
		most, common = max(most, uint64(b.Weight)), gcd(uint64(b.Weight), common)
	}
	for j, b := range s.Backends {
		switch {
		case b.Weight == 0:
		case !s.Scheduler.Weighted():
			weights[j] = 1
		case most <= mostWeight:
			weights[j] = int(b.Weight)
		case most/common <= mostWeight:
			weights[j] = int(uint64(b.Weight) / common)
		default:
			weights[j] = max(1, int((uint64(b.Weight)*mostWeight+most/2)/most))
			w.Approximate(config.BackendField(w.i, j, "weight"),
				"weight: HAProxy's go up to %d; this one becomes %d beside those of the other servers", mostWeight,
				weights[j])
		}
	}
	return weights
}

func gcd(a, b uint64) uint64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// sharedWords returns the parameters that all servers of the service have.
func (w *writer) sharedWords() []string {
	s := w.service
	words := append(w.checkWords(), w.towards()...)
	if s.SlowStart > 0 {
		words = append(words, "slowstart", duration(s.SlowStart))
	}
	if s.Checks.On() && s.Checks.OnDown == lb.ResetFlows {
		words = append(words, "on-marked-down", "shutdown-sessions")
	}
	return words
}

// checkWords returns the parameters of the servers' check and agent check.
func (w *writer) checkWords() []string {
	var words []string
	checked, agent := w.asked()
	if checked >= 0 {
		c := w.service.Checks.List[checked]
		words = append(words, "check", "inter", duration(c.Interval), "rise", strconv.Itoa(int(c.Rise)), "fall",
			strconv.Itoa(int(c.Fall)))
		if c.Fast > 0 {
			words = append(words, "fastinter", duration(c.Fast))
		}
		if c.Port != 0 {
			words = append(words, "port", strconv.Itoa(int(c.Port)))
		}
		words = append(words, tlsWords(c)...)
	}
	if agent >= 0 {
		c := w.service.Checks.List[agent]
		port := c.Port
		if port == 0 {
			port = w.service.Port
		}
		words = append(words, "agent-check", "agent-port", strconv.Itoa(int(port)), "agent-inter", duration(c.Interval))
	}
	return words
}

// tlsWords returns the parameters of a check over TLS.
func tlsWords(c lb.Check) []string {
	if c.Type != lb.CheckTLS && (c.TLS == nil || c.Type != lb.CheckHTTP) {
		return nil
	}
	words := []string{"check-ssl", "verify"}
	if c.TLS != nil && c.TLS.Verify {
		ca := "@system-ca"
		if c.TLS.CA != "" {
			ca = c.TLS.CA
		}
		words = append(words, "required", "ca-file", ca)
	} else {
		words = append(words, "none")
	}
	if c.TLS != nil && c.TLS.ServerName != "" {
		words = append(words, "check-sni", c.TLS.ServerName)
		if c.TLS.Verify {
			words = append(words, "verifyhost", c.TLS.ServerName)
		}
	}
	return words
}

// unique returns a name that is not in given yet, and adds it.
func unique(given map[string]int, name string) string {
	free := name
	for given[free] > 0 {
		given[name]++
		free = fmt.Sprintf("%s-%d", name, given[name])
	}
	given[free] = 1
	return free
}

// systemAuthorities is HAProxy's name of the certificate authorities that the host trusts.
const systemAuthorities = "@system-ca"

// towards returns a server's parameters for the protocols that HAProxy speaks to it. They follow the parameters of the
// check, which has no certificate authorities of its own.
func (w *writer) towards() []string {
	words := w.protocolWords()
	checked, _ := w.asked()
	if checked < 0 {
		return words
	}
	c, p := w.service.Checks.List[checked], w.proxy
	own := tlsWords(c) != nil
	switch {
	case p.BackendTLS == "":
	case !own:
		words = append(words, "no-check-ssl")
	case (c.TLS != nil && c.TLS.Verify) != (p.BackendTLS == lb.BackendTLSVerified):
		w.Approximate(w.checkField(checked),
			"check: HAProxy verifies a server's certificate for a check where it does for connections (backend_tls)")
	}
	if p.SendProxy > 0 && c.Port == 0 {
		w.Approximate(w.checkField(checked), "check: HAProxy begins it by the PROXY header, too (send_proxy)")
	}
	return words
}

// protocolWords returns the parameters of the protocols that HAProxy speaks to a server.
func (w *writer) protocolWords() (words []string) {
	p := w.proxy
	switch p.SendProxy {
	case 1:
		words = append(words, "send-proxy")
	case 2:
		words = append(words, "send-proxy-v2")
	}
	switch p.BackendTLS {
	case lb.BackendTLSUnverified:
		words = append(words, "ssl", "verify", "none")
	case lb.BackendTLSVerified:
		words = append(words, "ssl", "verify", "required", "ca-file")
		if p.BackendCA != "" {
			return append(words, p.BackendCA) // a private CA: the certificate may have any name
		}
		words = append(words, systemAuthorities)
	default:
		return words
	}
	switch {
	case w.speaksHTTP():
		words = append(words, "sni", "req.hdr(host),host_only")
	case len(p.Certificates) > 0:
		words = append(words, "sni", "ssl_fc_sni")
	}
	return words
}

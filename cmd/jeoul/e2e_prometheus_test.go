// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/jeoul/jeoul/cmd/jeoul/cmdtest"
	"github.com/jeoul/jeoul/cmd/jeoul/e2e"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/metrics/dashboard"
	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// The load: the number of UDP packets and their size in bytes, including the IP header, each answered.
const (
	scrapedPackets = 300
	scrapedBytes   = 20 + 8 + 100
)

// TestPrometheusCounts: a real Prometheus scrapes the daemon, and its counts then equal those of a client's packets
// exactly, and those of the status. Each expression of the dashboard has data.
func TestPrometheusCounts(t *testing.T) {
	t.Parallel()
	program := testenv.Program(t, "prometheus")
	l := newLab(t, lab.Spec{Clients: 1, Servers: 2})
	b := newBalancer(t, l.Balancer)
	vip := netip.MustParseAddrPort("198.18.0.105:5300")
	var backends []entry
	for _, server := range l.Servers {
		echo(t, server, netip.AddrPortFrom(netip.IPv6Unspecified(), 5300))
		backends = append(backends, entry{"name": server.Name, "address": server.IPv4.String(), "port": 5300})
	}
	b.configure(t, lb.HookTC, entry{
		"metrics": entry{"listen": scrapedAddress},
		"services": []entry{{"name": "echo", "vip": vip.Addr().String(), "port": vip.Port(), "protocol": "udp",
			"mode": "fullnat", "scheduler": "rr",
			// Checks are not the service's packets, and its counters do not include them. The servers are in this
			// process: if that is stopped for two seconds, they do not answer, and must not be found to fail.
			"check": entry{"type": "udp", "send": "are you there", "expect": "are you there", "interval": "200ms",
				"fall": 20},
			"backends": backends}},
		"fullnat": entry{"addresses": []string{"198.18.0.99"}}})
	b.start(t)
	for range scrapedPackets {
		if err := l.Clients[0].Do(func() error { return exchange(vip) }); err != nil {
			t.Fatal(err)
		}
	}
	p := startPrometheus(t, program, l.Balancer, scrapedAddress)
	for query, want := range map[string]float64{
		`sum(jeoul_backend_packets_total)`:                                                 scrapedPackets,
		`sum(jeoul_backend_bytes_total)`:                                                   scrapedPackets * scrapedBytes,
		`sum(jeoul_backend_returned_packets_total{service="echo"})`:                        scrapedPackets,
		`jeoul_packets_total{outcome="forwarded"}`:                                         scrapedPackets,
		`jeoul_packets_total{outcome="returned"}`:                                          scrapedPackets,
		`sum(jeoul_packets_total{outcome=~"dropped_.*"})`:                                  0,
		`jeoul_service_backends_up{service="echo"}`:                                        2,
		`jeoul_service_info{service="echo",vip="198.18.0.105",port="5300",protocol="udp"}`: 1,
		`jeoul_backend_state{backend="` + l.Servers[0].Name + `"}`:                         0,
		`up{job="jeoul"}`: 1,
	} {
		p.eventually(t, query, want)
	}
	for _, expression := range dashboard.Expressions("5s") {
		if expression.Needs == "" && !expression.Mark {
			p.awaitSeries(t, expression.Text)
		}
	}
	sum := uint64(0)
	for _, backend := range b.status(t).Services[0].Backends {
		sum += backend.Packets
	}
	if sum != scrapedPackets {
		t.Errorf("the status has %d packets, want %d", sum, scrapedPackets)
	}
	b.refuseReload(t)
	p.eventually(t, `jeoul_last_reload_successful`, 0)
	p.eventually(t, `jeoul_reloads_total{result="refused"}`, 1)
}

// refuseReload makes the daemon read a file that it must refuse.
func (b *balancer) refuseReload(t *testing.T) {
	t.Helper()
	if err := os.WriteFile(b.config, []byte("hook: sideways\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	b.sendSIGHUP(t)
}

// exchange sends one packet from a new socket, and waits for the answer.
func exchange(to netip.AddrPort) error {
	c, err := net.Dial("udp", to.String())
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(e2e.WaitLimit)); err != nil {
		return err
	}
	if _, err := c.Write(make([]byte, scrapedBytes-20-8)); err != nil {
		return err
	}
	_, err = c.Read(make([]byte, scrapedBytes))
	return err
}

// echo answers each packet on a port of a host.
func echo(t *testing.T, host *lab.Host, at netip.AddrPort) {
	t.Helper()
	conn := listenUDP(t, host, at)
	go func() {
		packet := make([]byte, 2048)
		for {
			n, from, err := conn.ReadFrom(packet)
			if err != nil {
				return
			}
			conn.WriteTo(packet[:n], from)
		}
	}()
}

// listenUDP opens a port of a host; at :: it receives packets of both families.
func listenUDP(t *testing.T, host *lab.Host, at netip.AddrPort) net.PacketConn {
	t.Helper()
	var conn net.PacketConn
	err := host.Do(func() (err error) {
		conn, err = net.ListenPacket("udp", at.String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// prometheus is a Prometheus on a host.
type prometheus struct {
	host    *lab.Host
	process *lab.Process
	log     cmdtest.SyncBuffer
}

// A host of a laboratory uses source ports from 1024 up, so that one of its connections, such as a health check, may
// have any of them: these ports are below.
const (
	prometheusAddress = "127.0.0.1:909"
	scrapedAddress    = "127.0.0.1:953"
)

// startPrometheus starts a Prometheus that scrapes an address.
func startPrometheus(t *testing.T, program string, host *lab.Host, address string) *prometheus {
	t.Helper()
	config := filepath.Join(host.Dir, "prometheus.yml")
	text := fmt.Sprintf(
		"global: {scrape_interval: 100ms, scrape_timeout: 100ms}\nscrape_configs:\n  - job_name: jeoul\n    scrape_interval: 500ms\n    scrape_timeout: 500ms\n    static_configs: [{targets: [%q]}]\n", address)
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	p := &prometheus{host: host}
	var err error
	p.process, err = host.Start(t.Context(), lab.Command{Path: program, Stdout: &p.log, Stderr: &p.log, Args: []string{
		"--config.file=" + config, "--storage.tsdb.path=" + filepath.Join(host.Dir, "tsdb"), "--web.listen-address=" +
			prometheusAddress}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("Prometheus' log:\n%s", p.log.String())
		}
	})
	return p
}

// eventually waits until a query has one answer, with this value.
func (p *prometheus) eventually(t *testing.T, query string, want float64) {
	t.Helper()
	var last string
	testenv.Eventually(t, e2e.WaitLimit, fmt.Sprintf("Prometheus answers %s with %g", query, want), func() bool {
		values, err := p.present(t, query)
		if now := fmt.Sprint(values, err); now != last {
			last = now
			t.Logf("%s: %v, %v", query, values, err)
		}
		return err == nil && len(values) == 1 && values[0] == want
	})
}

// awaitSeries waits until an expression has a result.
func (p *prometheus) awaitSeries(t *testing.T, query string) {
	t.Helper()
	testenv.Eventually(t, e2e.WaitLimit, "Prometheus has data for "+query, func() bool {
		values, err := p.present(t, query)
		return err == nil && len(values) > 0
	})
}

// present returns the present values of an expression.
func (p *prometheus) present(t *testing.T, query string) (values []float64, err error) {
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+prometheusAddress+
		"/api/v1/query?query="+url.QueryEscape(query), nil)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(_ context.Context, network,
		address string) (c net.Conn, err error) {
		err = p.host.Do(func() error { c, err = net.DialTimeout(network, address, e2e.WaitLimit); return err })
		return c, err
	}}
	answer, err := (&http.Client{Transport: transport, Timeout: e2e.WaitLimit}).Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	var body struct {
		Data struct {
			Result []struct{ Value [2]any }
		}
	}
	if err := json.NewDecoder(answer.Body).Decode(&body); err != nil {
		return nil, err
	}
	for _, r := range body.Data.Result {
		text, _ := r.Value[1].(string)
		value, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, err
		}
		values = append(values, value)
	}
	return values, nil
}

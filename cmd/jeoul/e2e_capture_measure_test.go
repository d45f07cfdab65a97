// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jeoul/jeoul/cmd/jeoul/cmdtest"
	"github.com/jeoul/jeoul/cmd/jeoul/e2e"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/weigh/flood"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

const (
	// lossRate is the rate of packets a second; lower where a core cannot send that many.
	lossRate = 500_000
	// lossPairs is how often packets are sent, without and with a capture in turn, for lossPart each time.
	lossPairs = 5
	lossPart  = 5 * time.Second
	// lossSample: one packet of this number is captured.
	lossSample = 1000
)

// TestCaptureLossMeasured measures how many of a client's packets the balancer does not receive or forward, at the rate
// that one core can send, with a capture of one packet in a thousand and without a capture, in turn.
func TestCaptureLossMeasured(t *testing.T) {
	file := measured(t, "capture-loss.txt")
	l := newLab(t, lab.Spec{Clients: 1, Servers: 1})
	b := newBalancer(t, l.Balancer)
	vip := netip.AddrPortFrom(l.VIP4, manyPort)
	services := manyServices(t, l, 1, 2)
	services[0]["protocol"] = "udp"
	b.configure(t, lb.HookXDP, entry{"services": services})
	b.startBuilt(t)
	b.eventually(t, "every backend is up", allUp)
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(file, "# make bench-watch: datagrams, each a flow of its own, to one service (l2dsr, XDP, veth), %d a second, in turn for %v each\n"+
		"# without a capture and with `jeoul capture --sample %d`. lost: of those sent, what the balancer did not send on, which queues of the\n"+
		"# laboratory lose, too, while its processes wait for a core. Load before: %s", lossRate, lossPart, lossSample, load)
	for range lossPairs {
		fmt.Fprintf(file, "  no capture  %s\n", b.losses(t, l.Clients[0], vip))
		end := b.captureSample(t)
		found := b.losses(t, l.Clients[0], vip)
		fmt.Fprintf(file, "  capture     %s; %s\n", found, end())
	}
}

// losses sends for a while, and returns the numbers of forwarded and lost packets.
func (b *balancer) losses(t *testing.T, client *lab.Host, vip netip.AddrPort) string {
	t.Helper()
	forwarded := func() (n uint64) {
		for _, backend := range b.status(t).Services[0].Backends {
			n += backend.Packets
		}
		return n
	}
	before, began := forwarded(), time.Now()
	sent := floodFor(t, client, flood.Options{Packets: flood.UDP, Sources: netip.MustParsePrefix("198.19.0.0/16"),
		Target: vip, From: client.MAC, To: []net.HardwareAddr{b.host.MAC}, Rate: lossRate,
		Limit: uint64(lossRate * lossPart.Seconds())})
	took := time.Since(began)
	last := before
	b.eventually(t, "no more packets come", func(*ops.Status) bool {
		now := forwarded()
		still := now == last
		last = now
		return still && now > before
	})
	lost := sent - (last - before)
	return fmt.Sprintf("%d sent, %.0f/s, %d lost (%.4f %%)", sent, float64(sent)/took.Seconds(), lost,
		100*float64(lost)/float64(sent))
}

// floodFor sends as options say, for at most four times lossPart, and returns the number of packets that were sent.
func floodFor(t *testing.T, client *lab.Host, options flood.Options) (sent uint64) {
	t.Helper()
	err := client.Do(func() error {
		device, err := net.InterfaceByName(client.Interface)
		if err != nil {
			return err
		}
		options.Interface = device.Index
		f, err := flood.New(options)
		if err != nil {
			return err
		}
		defer f.Close()
		ctx, end := context.WithTimeout(t.Context(), 4*lossPart)
		defer end()
		if err := f.Run(ctx, 0); err != nil {
			return err
		}
		sent, err = f.Sent()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return sent
}

// captureSample captures one packet in lossSample into a file; end ends the capture, and returns a text with the number
// of captured packets.
func (b *balancer) captureSample(t *testing.T) (end func() string) {
	t.Helper()
	var said cmdtest.SyncBuffer
	process := jeoul(t, b.host, &said, "capture", "--socket", b.socket, "--sample", fmt.Sprint(lossSample),
		"--for", "10m", "--write", filepath.Join(t.TempDir(), "sample.pcapng"))
	testenv.Eventually(t, e2e.WaitLimit, "the capture begins", func() bool {
		return strings.Contains(said.String(), "capturing on")
	})
	return func() string {
		if err := process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		if err := process.Wait(); err != nil {
			t.Fatalf("the capture: %v\n%s", err, said.String())
		}
		return regexp.MustCompile(`\d+ packets captured[^\n]*`).FindString(said.String())
	}
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/cmd/jeoul/cmdtest"
	"github.com/jeoul/jeoul/cmd/jeoul/e2e"
	"github.com/jeoul/jeoul/internal/balancer/api"
	"github.com/jeoul/jeoul/internal/balancer/capture"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/balancer/trace"
	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

const (
	// captureTarget is the target that captures packets by the hundred thousand.
	captureTarget = "test-capture"
	// capturedPackets is the number of packets that a client sends through each mode, family and hook;
	// JEOUL_TEST_PACKETS sets another number.
	capturedPackets = 100_000
	// capturedFlows is the number of flows of the packets, and tracedFlows about the number of flows that are traced:
	// each trace loads a program.
	capturedFlows, tracedFlows = 100, 2
	// captureLag is the greatest number of the client's packets that may be on their way into the file: with the
	// replies, fewer than a capture's ring has room for.
	captureLag = 2_000
)

// wireshark are the fields of each frame that tshark prints.
var wireshark = []string{"frame.interface_name", "frame.comment", "udp.srcport", "ip.src", "ip.dst", "ipv6.src",
	"ipv6.dst"}

// capturedFrame is a frame of a capture's file, as tshark reads it.
type capturedFrame struct {
	// out: the frame is as it left.
	out bool
	// says are the comments by their first word, such as "outcome".
	says map[string]string
	// port is the source port, and addresses are all addresses in the frame's headers.
	port      string
	addresses []string
}

// TestCaptureOfEveryMode captures a client's packets through each mode, family and hook, and their replies, into a file
// that tshark reads: the file has each packet, with the same decision as in the counters and in `jeoul trace`, and with
// the headers that its comments name.
func TestCaptureOfEveryMode(t *testing.T) {
	testenv.Target(t, captureTarget)
	packets := capturedPackets
	if text := os.Getenv("JEOUL_TEST_PACKETS"); text != "" {
		var err error
		if packets, err = strconv.Atoi(text); err != nil || packets < 1 {
			t.Fatalf("JEOUL_TEST_PACKETS is %q; use a number of packets", text)
		}
	}
	forEachHook(t, func(t *testing.T, hook lb.Hook) {
		s := newCaptureStage(t, hook)
		for _, p := range paths() {
			t.Run(p.String(), func(t *testing.T) { s.captureAll(t, p, packets) })
		}
		stop(t, s.daemon)
	})
}

// newCaptureStage is a stage whose backends only receive datagrams; in modes whose replies the balancer sees, they
// answer them.
func newCaptureStage(t *testing.T, hook lb.Hook) *stage {
	t.Helper()
	s := buildStage(t, hook, 1)
	for _, server := range s.Servers {
		s.startAgent(t, server)
		listenUDP(t, server, netip.AddrPortFrom(netip.IPv6Unspecified(), dnsPort))
		// From these addresses, answers go back through the balancer.
		for _, at := range []netip.Addr{server.IPv4, server.IPv6} {
			echo(t, server, netip.AddrPortFrom(at, dnsPort+portShift[lb.NAT]))
			echo(t, server, netip.AddrPortFrom(at, dnsPort+portShift[lb.FullNAT]))
		}
	}
	s.start(t)
	return s
}

// captureAll captures the traffic of one service, and compares it with the counters.
func (s *stage) captureAll(t *testing.T, p path, packets int) {
	file := filepath.Join(t.TempDir(), "all.pcapng")
	before := s.status(t)
	c := s.startFileCapture(t, file, capture.Request{Filter: capture.Filter{Service: s.nameOf(p)},
		Rate: capture.MaxRate, Seconds: time.Hour.Seconds(), Bytes: 1 << 40})
	ports := s.sendDatagrams(t, p, packets, func(sent int) bool {
		return c.requests.Load()+captureLag >= int64(sent)
	})
	s.eventually(t, "all that was sent is captured, and all that came back", func(now *ops.Status) bool {
		_, sent, returned := s.growth(p, before, now)
		return sent >= uint64(packets) && c.taken() == int64(sent+returned)
	})
	c.finish(t)
	backends, sent, returned := s.growth(p, before, s.status(t))
	f := countFrames(t, readByTshark(t, file))
	want := map[string]uint64{"forwarded": sent}
	if returned > 0 {
		want["returned"] = returned
	}
	if !maps.Equal(f.outcomes, want) || !maps.Equal(f.backends, backends) {
		t.Errorf("the file has %v, by backends %v; the counters have %v, %v", f.outcomes, f.backends, want, backends)
	}
	if sent != uint64(packets) || f.in != f.out || p.mode.Translates() == (returned == 0) {
		t.Errorf("of %d datagrams %d were sent on; %d packets came back; %d frames came in, and %d left", packets, sent,
			returned, f.in, f.out)
	}
	s.tracesAgree(t, p, ports, f.decided)
	t.Logf("%d packets, %d of them replies, %d flows: as counted, and as traced", f.in, returned, len(f.decided))
}

// capturedCounts counts the packets of a file by the comments on its frames.
type capturedCounts struct {
	in, out int
	// outcomes and backends count packets; decided holds the decision about each flow to a backend, by its port.
	outcomes, backends map[string]uint64
	decided            map[string]string
}

// countFrames counts frames by their comments, and compares the comments with the headers.
func countFrames(t *testing.T, frames []*capturedFrame) *capturedCounts {
	t.Helper()
	all := &capturedCounts{outcomes: map[string]uint64{}, backends: map[string]uint64{}, decided: map[string]string{}}
	for i, f := range frames {
		if err := f.headersAreAsSaid(); err != nil {
			t.Fatalf("frame %d: %v", i+1, err)
		}
		if f.out {
			all.out++
			continue
		}
		all.in++
		outcome, _, _ := strings.Cut(f.says["outcome"], " ")
		all.outcomes[outcome]++
		if outcome != "forwarded" {
			continue
		}
		backend, _, _ := strings.Cut(f.says["backend"], " ")
		all.backends[backend]++
		decision := outcome + " " + f.says["service"] + " " + f.says["backend"]
		if was, seen := all.decided[f.port]; seen && was != decision {
			t.Errorf("a packet of port %s is %s, and another %s", f.port, decision, was)
		}
		all.decided[f.port] = decision
	}
	return all
}

// nameOf is the name of the service that the datagrams are sent to.
func (s *stage) nameOf(p path) string { return fmt.Sprint(s.service(p, dnsPort)["name"]) }

// growth returns how many packets the service's backends received between two statuses, and how many came back.
func (s *stage) growth(p path, before, after *ops.Status) (backends map[string]uint64, sent, returned uint64) {
	of := func(status *ops.Status) []ops.Backend {
		i := slices.IndexFunc(status.Services, func(service ops.Service) bool { return service.Name == s.nameOf(p) })
		return status.Services[i].Backends
	}
	backends = map[string]uint64{}
	old := of(before)
	for i, b := range of(after) {
		if n := b.Packets - old[i].Packets; n > 0 {
			backends[b.Name] = n
			sent += n
		}
		returned += b.ReturnedPackets - old[i].ReturnedPackets
	}
	return backends, sent, returned
}

// sendDatagrams makes the client send a number of datagrams, as fast as `may` permits, from ports that it returns,
// which stay open.
func (s *stage) sendDatagrams(t *testing.T, p path, packets int, may func(sent int) bool) (ports []uint16) {
	t.Helper()
	var sockets []*net.UDPConn
	err := s.Clients[0].Do(func() error {
		for range capturedFlows {
			c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(p.vip, dnsPort)))
			if err != nil {
				return err
			}
			sockets = append(sockets, c)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range sockets {
		t.Cleanup(func() { c.Close() })
		ports = append(ports, c.LocalAddr().(*net.UDPAddr).AddrPort().Port())
	}
	for sent := range packets {
		if sent%capturedFlows == 0 {
			testenv.Eventually(t, e2e.WaitLimit, fmt.Sprintf("the capture keeps up with %d packets", sent),
				func() bool { return may(sent) })
		}
		if _, err := sockets[sent%capturedFlows].Write([]byte("datagram")); err != nil {
			t.Fatalf("packet %d: %v", sent, err)
		}
	}
	return ports
}

// tracesAgree runs `jeoul trace` for a packet of each of some flows, and compares the decisions.
func (s *stage) tracesAgree(t *testing.T, p path, ports []uint16, decided map[string]string) {
	t.Helper()
	if len(decided) != len(ports) {
		t.Errorf("%d flows were captured, want %d", len(decided), len(ports))
	}
	for _, port := range ports[:tracedFlows] {
		answer, err := api.NewClient(s.socket).Explain(t.Context(), trace.Question{Source: p.own(s.Clients[0]),
			SourcePort: port, Destination: p.vip, DestinationPort: dnsPort, Protocol: lb.UDP})
		if err != nil {
			t.Fatal(err)
		}
		comments := commentsOf((&capture.Packet{Packet: *answer}).Comments())
		want := answer.Outcome + " " + comments["service"] + " " + comments["backend"]
		if got := decided[fmt.Sprint(port)]; got != want {
			t.Errorf("port %d: captured as %s, traced as %s", port, got, want)
		}
	}
}

// commentsOf sorts comments by their first words.
func commentsOf(comments []string) map[string]string {
	by := map[string]string{}
	for _, c := range comments {
		word, text, _ := strings.Cut(c, ": ")
		by[word] = text
	}
	return by
}

// headersAreAsSaid compares the addresses of a frame's headers with those of its comments.
func (f *capturedFrame) headersAreAsSaid() error {
	text := f.says["came as"]
	if f.out {
		text = f.says["leaves as"]
	}
	if len(f.addresses) == 0 {
		return fmt.Errorf("tshark finds no address: %q", f.says)
	}
	for _, a := range f.addresses {
		if !strings.Contains(text, a) {
			return fmt.Errorf("has %s, and its comments say %q", a, text)
		}
	}
	return nil
}

// readByTshark returns the frames of a capture's file.
func readByTshark(t *testing.T, file string) (frames []*capturedFrame) {
	t.Helper()
	arguments := []string{"-n", "-r", file, "-T", "fields", "-E", "separator=/t", "-E", "occurrence=a", "-E",
		"aggregator=|"}
	for _, field := range wireshark {
		arguments = append(arguments, "-e", field)
	}
	var said strings.Builder
	command := exec.CommandContext(t.Context(), testenv.Program(t, "tshark"), arguments...)
	command.Stderr = &said
	out, err := command.Output()
	if err != nil || strings.Contains(said.String(), "cut short") {
		t.Fatalf("tshark: %v: %s", err, said.String())
	}
	for line := range strings.Lines(string(out)) {
		fields := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(fields) != len(wireshark) {
			t.Fatalf("tshark printed %q", line)
		}
		f := &capturedFrame{out: strings.HasSuffix(fields[0], ":out"), says: commentsOf(strings.Split(fields[1], "|"))}
		f.port, _, _ = strings.Cut(fields[2], "|")
		for _, list := range fields[3:] {
			if list != "" {
				f.addresses = append(f.addresses, strings.Split(list, "|")...)
			}
		}
		frames = append(frames, f)
	}
	return frames
}

// fileCapture is a capture into a file during a test, like `jeoul capture --frames both --write`.
type fileCapture struct {
	requests, replies atomic.Int64
	end               context.CancelFunc
	result            chan error
}

// taken returns the number of packets in the file.
func (c *fileCapture) taken() int64 { return c.requests.Load() + c.replies.Load() }

// startFileCapture returns when packets are captured.
func (s *stage) startFileCapture(t *testing.T, path string, request capture.Request) *fileCapture {
	t.Helper()
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	c := &fileCapture{end: cancel, result: make(chan error, 1)}
	out := &capture.Output{File: &capture.WholePackets{File: file}, Frames: capture.FramesBoth, Messages: io.Discard}
	started := make(chan struct{})
	go func() {
		c.result <- api.NewClient(s.socket).Capture(ctx, request, func(e capture.Event) error {
			switch {
			case e.Started != nil:
				defer close(started)
			case e.Packet != nil && e.Packet.Has(trace.Reply):
				defer c.replies.Add(1)
			case e.Packet != nil:
				defer c.requests.Add(1)
			}
			return out.Notify(e)
		})
	}()
	select {
	case <-started:
	case err := <-c.result:
		t.Fatalf("the capture did not begin: %v", err)
	}
	return c
}

// finish ends the capture.
func (c *fileCapture) finish(t *testing.T) {
	t.Helper()
	c.end()
	if err := <-c.result; err != nil {
		t.Fatal(err)
	}
}

// TestCaptureOfAFlood captures everything while SYNs come as fast as a core can send them: with ten captures at once,
// of which those above the limit are refused, one whose reader stops, and one whose disk is full. Each ends as it
// should with the right reason, and clients are served as before.
func TestCaptureOfAFlood(t *testing.T) {
	testenv.Target(t, captureTarget)
	s := newCaptureStage(t, lb.HookXDP)
	dir := t.TempDir()
	small := filepath.Join(dir, "small")
	// The host has its own mounts, which are removed with it.
	if err := s.host.Do(func() error {
		return errors.Join(os.Mkdir(small, 0o755), unix.Mount("tmpfs", small, "tmpfs", 0, "size=256k"))
	}); err != nil {
		t.Fatal(err)
	}
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	full := s.startCapture(t, "--write", filepath.Join(small, "full.pcapng"))
	stalled := s.startCaptureTo(t, writer, "--write", "-", "--rate", "1000000")
	writer.Close()
	captures := []*commandCapture{full, stalled}
	file := func(n int) string { return filepath.Join(dir, fmt.Sprintf("%d.pcapng", n)) }
	for n := len(captures); n < capturesAtOnce; n++ {
		captures = append(captures, s.startCapture(t, "--rate", "10", "--write", file(n)))
	}
	for range 2 {
		var said cmdtest.SyncBuffer
		process := jeoul(t, s.host, &said, "capture", "--socket", s.socket)
		if err := process.Wait(); err == nil || !strings.Contains(said.String(), "too many captures") {
			t.Errorf("one capture more than may be: %v, %q", err, said.String())
		}
	}

	s.flood(t, full)
	copied := filepath.Join(dir, "full.pcapng")
	if err := s.host.Do(func() error {
		text, err := os.ReadFile(filepath.Join(small, "full.pcapng"))
		return errors.Join(err, os.WriteFile(copied, text, 0o600))
	}); err != nil {
		t.Fatal(err)
	}
	said := full.said.String()
	if len(readByTshark(t, copied)) == 0 || !strings.Contains(said, "no space left on device") {
		t.Errorf("the capture on the full disk has no packet, or does not say why it ended: %q", said)
	}
	for n, c := range captures {
		if c == full || c == stalled {
			continue
		}
		if err := c.process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		if err := c.process.Wait(); err != nil || !strings.Contains(c.said.String(), "more than --rate allows") ||
			len(readByTshark(t, file(n))) == 0 {
			t.Errorf("capture %d of a flood has no packet, or does not say what it left out: %v, %q", n, err,
				c.said.String())
		}
	}
	stop(t, s.daemon)
}

// flood sends SYNs until the captures on a full disk and of a stopped reader have ended, while a client sends requests.
func (s *stage) flood(t *testing.T, full *commandCapture) {
	t.Helper()
	flood, end := context.WithCancel(t.Context())
	defer end()
	syns := e2e.SendSYNs(t, flood, s.Clients[0], netip.AddrPortFrom(paths()[0].vip, webPort), 0)
	testenv.Eventually(t, e2e.WaitLimit, "the capture on the full disk ends", func() bool {
		select {
		case <-full.process.Done():
			return true
		default:
			return false
		}
	})
	testenv.Eventually(t, e2e.WaitLimit, "the daemon ends the capture that is not read", func() bool {
		return strings.Contains(s.log.String(), "the client has gone, or does not read")
	})
	p := paths()[slices.IndexFunc(paths(), func(p path) bool { return p.mode == lb.FullNAT })]
	if err := s.Clients[0].Do(func() error {
		for range 20 {
			if err := exchange(netip.AddrPortFrom(p.vip, dnsPort)); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Errorf("a client was not served: %v", err)
	}
	end()
	syns.Wait()
	s.checkOutcomes(t)
	t.Logf("%d SYNs were sent", syns.Sent())
}

// capturesAtOnce is the greatest number of captures that may run.
const capturesAtOnce = 8

// commandCapture is `jeoul capture` during a test.
type commandCapture struct {
	process *lab.Process
	said    cmdtest.SyncBuffer
}

func (s *stage) startCapture(t *testing.T, arguments ...string) *commandCapture {
	t.Helper()
	return s.startCaptureTo(t, nil, arguments...)
}

// startCaptureTo returns when packets are captured.
func (s *stage) startCaptureTo(t *testing.T, stdout *os.File, arguments ...string) *commandCapture {
	t.Helper()
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := &commandCapture{}
	command := lab.Command{Path: own,
		Args: append([]string{"capture", "--socket", s.socket, "--for", "10m"}, arguments...),
		Env:  append(os.Environ(), actAsJeoul+"=1"), Stderr: &c.said}
	if stdout != nil {
		command.Stdout = stdout
	}
	if c.process, err = s.host.Start(context.WithoutCancel(t.Context()), command); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, e2e.WaitLimit, "the capture begins", func() bool {
		return strings.Contains(c.said.String(), "capturing on")
	})
	return c
}

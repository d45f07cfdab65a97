// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/vishvananda/netlink"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/cmd/jeoul/e2e"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// The traffic of the leak test on each path.
const (
	shortConnections = 300
	bulk             = 16 << 20 // bytes of a transfer
	bulkTransfers    = 4        // at a time, in each direction
	aborted          = 10
	abortedPort      = 18000 // of the client
)

// packetChecker checks every packet that reaches a client. A packet that does not come from a VIP and its port shows
// that a client could learn of a backend.
type packetChecker struct {
	*e2e.Capture
	client *lab.Host
	vips   map[netip.Addr]bool

	mu     sync.Mutex
	leaks  []string
	from   map[netip.Addr]int // packets by source
	errors int                // ICMP errors about the client's packets
	ends   map[gopacket.Flow]map[gopacket.Flow]uint32
	again  int // TCP segments that had come before
}

// checkPackets starts to check the packets that come to a client.
func (s *stage) checkPackets(t *testing.T, client *lab.Host) *packetChecker {
	t.Helper()
	w := &packetChecker{client: client, vips: map[netip.Addr]bool{}, from: map[netip.Addr]int{},
		ends: map[gopacket.Flow]map[gopacket.Flow]uint32{}}
	for _, p := range paths() {
		w.vips[p.vip] = true
	}
	w.Capture = e2e.StartCapture(t, client, client.Interface, w.checkPacket)
	return w
}

// stop ends the capture, and checks that nothing leaked.
func (w *packetChecker) stop(t *testing.T) {
	t.Helper()
	w.Stop(t)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, leak := range w.leaks {
		t.Error(leak)
	}
	t.Logf("%s got %d packets, of them %d segments again and %d ICMP errors, from %v", w.client.Name, w.Packets(),
		w.again, w.errors, w.from)
}

// retransmitted returns the number of TCP segments that have come again.
func (w *packetChecker) retransmitted() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.again
}

// checkPacket checks one packet.
func (w *packetChecker) checkPacket(packet gopacket.Packet) {
	link, ok := packet.LinkLayer().(*layers.Ethernet)
	if !ok || !slices.Equal(link.DstMAC, w.client.MAC) || packet.NetworkLayer() == nil {
		return // the switch floods frames to unknown addresses, and ARP belongs to the segment
	}
	source, destination := ends(packet.NetworkLayer())
	err := w.leakOf(packet, source, destination)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.from[source]++
	w.follow(packet)
	const enough = 10
	if err != nil && len(w.leaks) < enough {
		w.leaks = append(w.leaks, fmt.Sprintf("to %s: %v: %s", w.client.Name, err, layersOf(packet)))
	}
}

// follow counts a TCP segment that begins before the end of the bytes received: nothing on this segment reorders
// packets.
func (w *packetChecker) follow(packet gopacket.Packet) {
	segment, ok := packet.TransportLayer().(*layers.TCP)
	if !ok {
		return
	}
	length := 0
	switch header := packet.NetworkLayer().(type) {
	case *layers.IPv4:
		length = int(header.Length) - 4*int(header.IHL)
	case *layers.IPv6:
		length = int(header.Length)
	}
	next := segment.Seq + uint32(length) - 4*uint32(segment.DataOffset)
	if segment.FIN || segment.SYN {
		next++
	}
	hosts, ports := packet.NetworkLayer().NetworkFlow(), segment.TransportFlow()
	if w.ends[hosts] == nil {
		w.ends[hosts] = map[gopacket.Flow]uint32{}
	}
	end, known := w.ends[hosts][ports]
	switch {
	case segment.SYN || !known:
		w.ends[hosts][ports] = next
	case int32(segment.Seq-end) < 0:
		w.again++
	default:
		w.ends[hosts][ports] = next
	}
}

// layersOf describes a packet in a line.
func layersOf(packet gopacket.Packet) string {
	var text []string
	for _, layer := range packet.Layers() {
		if _, payload := layer.(gopacket.ApplicationLayer); !payload {
			text = append(text, gopacket.LayerString(layer))
		}
	}
	return strings.Join(text, "; ")
}

// ends returns a packet's addresses.
func ends(layer gopacket.NetworkLayer) (source, destination netip.Addr) {
	from, to := layer.NetworkFlow().Endpoints()
	source, _ = netip.AddrFromSlice(from.Raw())
	destination, _ = netip.AddrFromSlice(to.Raw())
	return source, destination
}

// leakOf returns an error for a packet that must not reach the client.
func (w *packetChecker) leakOf(packet gopacket.Packet, source, destination netip.Addr) error {
	if isNeighbourDiscovery(packet) {
		return nil
	}
	if !w.vips[source] {
		return fmt.Errorf("a packet from %s, which is no VIP", source)
	}
	if destination != w.client.IPv4 && destination != w.client.IPv6 {
		return fmt.Errorf("a packet to %s, which is not the client's", destination)
	}
	if transport := packet.TransportLayer(); transport != nil {
		return servicePort(transport.TransportFlow().Src())
	}
	if quoted := quoted(packet); quoted != nil {
		w.mu.Lock()
		w.errors++
		w.mu.Unlock()
		return w.leakInQuote(quoted)
	}
	return nil // a later fragment, or an echo reply: it has only addresses
}

// isNeighbourDiscovery reports whether a packet is neighbour discovery, which hosts of the segment exchange.
func isNeighbourDiscovery(packet gopacket.Packet) bool {
	message, ok := packet.Layer(layers.LayerTypeICMPv6).(*layers.ICMPv6)
	if !ok {
		return false
	}
	kind := message.TypeCode.Type()
	return kind == layers.ICMPv6TypeNeighborSolicitation || kind == layers.ICMPv6TypeNeighborAdvertisement
}

func servicePort(port gopacket.Endpoint) error {
	for _, service := range []uint16{webPort, otherWebPort, dnsPort, otherDNSPort} {
		if raw := port.Raw(); uint16(raw[0])<<8|uint16(raw[1]) == service {
			return nil
		}
	}
	return fmt.Errorf("port %s, which no service has", port)
}

// quoted returns the packet that an ICMP error quotes; nil for other packets.
func quoted(packet gopacket.Packet) gopacket.Packet {
	if message, ok := packet.Layer(layers.LayerTypeICMPv4).(*layers.ICMPv4); ok {
		switch message.TypeCode.Type() {
		case layers.ICMPv4TypeDestinationUnreachable, layers.ICMPv4TypeTimeExceeded, layers.ICMPv4TypeParameterProblem:
			return gopacket.NewPacket(message.Payload, layers.LayerTypeIPv4, gopacket.NoCopy)
		}
	}
	// The highest bit of the type distinguishes errors from other messages; four bytes follow that depend on the type
	// (RFC 4443 section 2.1 and 3).
	message, ok := packet.Layer(layers.LayerTypeICMPv6).(*layers.ICMPv6)
	if ok && message.TypeCode.Type() < 128 && len(message.Payload) > 4 {
		return gopacket.NewPacket(message.Payload[4:], layers.LayerTypeIPv6, gopacket.NoCopy)
	}
	return nil
}

// leakInQuote returns an error for an ICMP error that does not quote a packet from the client to a VIP.
func (w *packetChecker) leakInQuote(packet gopacket.Packet) error {
	if packet.NetworkLayer() == nil {
		return errors.New("an ICMP error that quotes no packet")
	}
	source, destination := ends(packet.NetworkLayer())
	if source != w.client.IPv4 && source != w.client.IPv6 || !w.vips[destination] {
		return fmt.Errorf("an ICMP error about a packet from %s to %s, which the client has not sent", source,
			destination)
	}
	if transport := packet.TransportLayer(); transport != nil {
		return servicePort(transport.TransportFlow().Dst())
	}
	return nil
}

// TestNothingLeaks checks every packet that reaches the clients while they use services that translate, in all the ways
// in which connections end: none may have the address or port of a backend, or of the pool.
func TestNothingLeaks(t *testing.T) {
	testenv.Also(t, matrixTarget)
	t.Parallel()
	forAHook(t, func(t *testing.T, hook lb.Hook) {
		s := newStage(t, hook, 1, kilo, bulk)
		// The kernel must not give this port to a connection of any path: one in TIME_WAIT would hold it.
		set(t, s.Clients[0], "net/ipv4/ip_local_reserved_ports", fmt.Sprint(abortedPort))
		translating := slices.DeleteFunc(paths(), func(p path) bool { return !p.mode.Translates() })
		if !testenv.InTarget(matrixTarget) { // each mode and each family
			translating = []path{translating[0], translating[len(translating)-1]}
		}
		for _, p := range translating {
			t.Run(p.String(), func(t *testing.T) {
				w := s.checkPackets(t, s.Clients[0])
				defer w.stop(t)
				s.makeShort(t, p)
				s.makeBulk(t, p)
				s.abort(t, p)
				s.forgetClient(t, p)
				s.closeUnacknowledged(t, w, p)
				s.abortUnacknowledged(t, w, p)
				s.ask(t, p, netip.AddrPortFrom(p.vip, dnsPort), s.Clients[0], e2e.Large, padding)
			})
		}
		t.Run("refused", func(t *testing.T) { s.tryRefused(t) })
	})
}

// makeShort makes one connection after another (connect, request, response).
func (s *stage) makeShort(t *testing.T, p path) {
	t.Helper()
	group, ctx := errgroup.WithContext(t.Context())
	for range bulkTransfers {
		group.Go(func() error {
			browser := e2e.NewBrowser(s.Clients[0])
			for range shortConnections / bulkTransfers {
				if _, err := browser.Who(ctx, netip.AddrPortFrom(p.vip, webPort)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
}

// makeBulk transfers files in both directions at once.
func (s *stage) makeBulk(t *testing.T, p path) {
	t.Helper()
	group, ctx := errgroup.WithContext(bounded(t))
	for i := range bulkTransfers {
		group.Go(func() error {
			_, err := e2e.NewBrowser(s.Clients[0]).Download(ctx, netip.AddrPortFrom(p.vip, webPort), s.files, bulk)
			return err
		})
		group.Go(func() error {
			_, err := e2e.NewBrowser(s.Clients[0]).Upload(ctx, netip.AddrPortFrom(p.vip, otherWebPort), s.files, bulk,
				fmt.Sprint("bulk", i), s.webs)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
}

// connect opens a connection, from a local port if one is given.
func (s *stage) connect(t *testing.T, p path, localPort uint16) net.Conn {
	t.Helper()
	return s.connectTo(t, p, webPort, localPort)
}

// connectTo opens a connection to a port of the VIP.
func (s *stage) connectTo(t *testing.T, p path, port, localPort uint16) net.Conn {
	t.Helper()
	dialer := net.Dialer{Timeout: e2e.WaitLimit, Control: reuse}
	if localPort != 0 {
		dialer.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(p.own(s.Clients[0]), localPort))
	}
	var connection net.Conn
	dial := func() (err error) {
		connection, err = dialer.Dial("tcp", netip.AddrPortFrom(p.vip, port).String())
		return err
	}
	err := s.Clients[0].Do(dial)
	if errors.Is(err, unix.EADDRNOTAVAIL) { // an earlier connection still has the endpoints, in TIME_WAIT for a minute
		t.Logf("%v; the client's sockets:\n%s", err, s.sockets(localPort))
		testenv.Eventually(t, e2e.WaitLimit, "the port can be used again", func() bool {
			err = s.Clients[0].Do(dial)
			return !errors.Is(err, unix.EADDRNOTAVAIL)
		})
	}
	if err == nil {
		t.Cleanup(func() { connection.Close() })
		err = connection.SetDeadline(time.Now().Add(e2e.WaitLimit))
	}
	if err != nil {
		t.Fatal(err)
	}
	return connection
}

// sockets returns the kernel's lines about the first client's TCP sockets with a local port (proc_net_tcp.txt of
// Linux).
func (s *stage) sockets(port uint16) (lines string) {
	_ = s.Clients[0].Do(func() error {
		for _, table := range []string{"/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"} {
			text, err := os.ReadFile(table)
			if err != nil {
				return err
			}
			for line := range strings.Lines(string(text)) {
				if strings.Contains(line, fmt.Sprintf(":%04X ", port)) {
					lines += line
				}
			}
		}
		return nil
	})
	return lines
}

// whoOn sends a request to a web server on a connection, which stays open, and returns the server's name.
func whoOn(connection net.Conn) (server string, err error) {
	if _, err := fmt.Fprint(connection, "GET /who HTTP/1.1\r\nHost: lab\r\n\r\n"); err != nil {
		return "", err
	}
	response, err := http.ReadResponse(bufio.NewReader(connection), nil)
	if err != nil {
		return "", err
	}
	return response.Header.Get("Lab-Server"), response.Body.Close()
}

// fetch requests a file on a new connection and reads its beginning.
func (s *stage) fetch(t *testing.T, p path, file string, localPort uint16) net.Conn {
	t.Helper()
	connection := s.connect(t, p, localPort)
	_, err := fmt.Fprintf(connection, "GET %s HTTP/1.0\r\n\r\n", file)
	if err == nil {
		_, err = io.ReadFull(connection, make([]byte, 8))
	}
	if err != nil {
		t.Fatal(err)
	}
	return connection
}

// reuse lets a port be used again immediately.
func reuse(_, _ string, socket syscall.RawConn) (err error) {
	return errors.Join(socket.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	}), err)
}

// abort aborts transfers, as the death of a client does, repeatedly from the same port: packets in flight then meet a
// connection that is gone, or another one.
func (s *stage) abort(t *testing.T, p path) {
	t.Helper()
	for range aborted {
		connection := s.fetch(t, p, fmt.Sprintf("/%d", bulk), abortedPort)
		// Closing sends a reset, whether the client has unread bytes or not: a FIN would leave the port in TIME_WAIT.
		if err := connection.(*net.TCPConn).SetLinger(0); err != nil {
			t.Fatal(err)
		}
		connection.Close()
	}
}

// forgetClient deletes the client from the balancer's neighbours: it must be resolved again for a reply that is under
// way.
func (s *stage) forgetClient(t *testing.T, p path) {
	t.Helper()
	err := s.Balancer.Do(func() error {
		link, err := netlink.LinkByName(s.Balancer.Interface)
		if err != nil {
			return err
		}
		err = netlink.NeighDel(&netlink.Neigh{LinkIndex: link.Attrs().Index, IP: p.own(s.Clients[0]).AsSlice()})
		if errors.Is(err, unix.ENOENT) {
			return nil // there was no entry
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e2e.NewBrowser(s.Clients[0]).Who(bounded(t), netip.AddrPortFrom(p.vip, webPort)); err != nil {
		t.Errorf("after the balancer forgot where the client is: %v", err)
	}
}

// blackholeVIP blackholes the client's route to a VIP: none of its packets arrives any more, while it still receives
// everything. It returns a function that undoes it.
func (s *stage) blackholeVIP(t *testing.T, p path) (undo func()) {
	t.Helper()
	route := &netlink.Route{Dst: hostNet(p.vip), Type: unix.RTN_BLACKHOLE}
	if err := s.Clients[0].Do(func() error { return netlink.RouteAdd(route) }); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := s.Clients[0].Do(func() error { return netlink.RouteDel(route) }); err != nil {
			t.Error(err)
		}
	}
}

// retransmissions is the number of retransmissions that a test waits for: the first two come after 0.2 and 0.6 seconds.
const retransmissions = 2

// slowly is the path at which a web server sends files slowly.
const slowly = "/slow"

// closeUnacknowledged makes a server close an idle connection, and its FIN is not acknowledged: it retransmits the FIN,
// while the client has closed too.
func (s *stage) closeUnacknowledged(t *testing.T, w *packetChecker, p path) {
	t.Helper()
	connection := s.connect(t, p, 0)
	server, err := whoOn(connection)
	if err != nil {
		t.Fatal(err)
	}
	defer s.blackholeVIP(t, p)()
	s.awaitRetransmissions(t, w, func() error {
		// A server that reloads its configuration closes idle connections.
		if err := s.webs[server].Process.Signal(syscall.SIGHUP); err != nil {
			return err
		}
		if _, err := connection.Read(make([]byte, 1)); err != io.EOF {
			return fmt.Errorf("the server should have closed the connection: %v", err)
		}
		return connection.Close()
	})
}

// abortUnacknowledged makes a client die in the middle of a transfer while nothing from it arrives: the server sends to
// a client that no longer has the connection.
func (s *stage) abortUnacknowledged(t *testing.T, w *packetChecker, p path) {
	t.Helper()
	connection := s.fetch(t, p, fmt.Sprintf("%s/%d", slowly, bulk), 0)
	undo := s.blackholeVIP(t, p)
	s.awaitRetransmissions(t, w, connection.Close)
	// Now the client's resets arrive, and the late ones of the server.
	undo()
	if _, err := e2e.NewBrowser(s.Clients[0]).Who(bounded(t), netip.AddrPortFrom(p.vip, webPort)); err != nil {
		t.Error(err)
	}
}

// awaitRetransmissions runs do, and waits until the client has received segments again.
func (s *stage) awaitRetransmissions(t *testing.T, w *packetChecker, do func() error) {
	t.Helper()
	before := w.retransmitted()
	if err := do(); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, e2e.WaitLimit, "the server sends again what the client does not acknowledge", func() bool {
		return w.retransmitted() >= before+retransmissions
	})
}

// tryRefused sends queries while no DNS server runs: in every mode the client gets an error about its own packet.
func (s *stage) tryRefused(t *testing.T) {
	for _, server := range s.Servers {
		if err := s.dns[server.Name].Process.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	w := s.checkPackets(t, s.Clients[0])
	for _, p := range paths() {
		to := netip.AddrPortFrom(p.vip, dnsPort)
		asker, err := e2e.NewAsker(s.Clients[0], to)
		if err != nil {
			t.Fatal(err)
		}
		_, err = asker.Ask(e2e.NewQuery(e2e.Small, 0), e2e.Small)
		if !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("%s: with no server running, the query got %v, want that it was refused", p, err)
		}
		asker.Close()
	}
	w.stop(t)
	if w.errors == 0 {
		t.Error("no ICMP error came: this has shown nothing")
	}
}

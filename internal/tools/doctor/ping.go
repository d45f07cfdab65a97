// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/tools/doctor/evidence"
)

// smallest is a size that every path supports. ladder has the usual MTUs of links and tunnels.
const smallest = 84

var ladder = []int{8972, 4000, 1492, 1480, 1476, 1472, 1460, 1452, 1440, 1420, 1400, 1380, 1360, 1320, 1280,
	1200, 1000, 576}

// icmpHeader is the length of an echo message's header, in bytes.
const icmpHeader = 8

// pathWait limits the wait for an answer, and maxPaths the number of paths.
const (
	pathWait = 700 * time.Millisecond
	maxPaths = 64
)

// pinger sends pings with the don't-fragment bit. It is opened in the network namespace of the calling thread.
type pinger struct {
	four, six *net.IPConn
	id        int

	mu    sync.Mutex
	paths []*evidence.Path
	// sizes has the answered sizes, by the path's index.
	sizes map[int]map[int]bool
	ended sync.WaitGroup
}

// openPinger opens a pinger. It needs CAP_NET_RAW.
func openPinger() (*pinger, error) {
	p := &pinger{id: rand.IntN(1 << 16), sizes: map[int]map[int]bool{}}
	var err error
	if p.four, err = openICMP("ip4:icmp", "0.0.0.0", unix.IPPROTO_IP, unix.IP_MTU_DISCOVER,
		unix.IP_PMTUDISC_PROBE); err != nil {
		return nil, err
	}
	// A host without IPv6 has no such socket, and no such paths.
	p.six, _ = openICMP("ip6:ipv6-icmp", "::", unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_PROBE)
	p.ended.Go(func() { p.receive(p.four, ipv4.ICMPTypeEcho.Protocol()) })
	if p.six != nil {
		p.ended.Go(func() { p.receive(p.six, ipv6.ICMPTypeEchoRequest.Protocol()) })
	}
	return p, nil
}

// openICMP opens a raw socket whose packets are never fragmented, no matter what path MTU the kernel has cached.
func openICMP(network, address string, level, option, value int) (*net.IPConn, error) {
	c, err := net.ListenPacket(network, address)
	if err != nil {
		return nil, err
	}
	connection := c.(*net.IPConn)
	var failed error
	raw, err := connection.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) { failed = unix.SetsockoptInt(int(fd), level, option, value) })
	}
	if err = errors.Join(err, failed); err != nil {
		return nil, errors.Join(err, connection.Close())
	}
	return connection, nil
}

// add adds a path, without duplicates and up to maxPaths.
func (p *pinger) add(address netip.Addr, size int) {
	if size <= smallest || len(p.paths) == maxPaths || address.Is6() && p.six == nil ||
		slices.ContainsFunc(p.paths, func(x *evidence.Path) bool { return x.Address == address }) {
		return
	}
	p.paths = append(p.paths, &evidence.Path{Address: address, Size: size})
}

// run tries all paths: first a small and the largest packet, then, where only the small one was answered, sizes in
// between.
func (p *pinger) run(ctx context.Context) {
	if len(p.paths) == 0 {
		return
	}
	for range 2 {
		for i, path := range p.paths {
			p.send(i, path, smallest)
			p.send(i, path, path.Size)
		}
		p.wait(ctx)
	}
	ended := true
	for i, path := range p.paths {
		if setReachable(path, p.answered(i)); !path.Small || path.Large {
			continue
		}
		for _, size := range ladder {
			if size < path.Size {
				ended = false
				p.send(i, path, size)
			}
		}
	}
	if ended {
		return
	}
	p.wait(ctx)
	for i, path := range p.paths {
		setReachable(path, p.answered(i))
	}
}

func (p *pinger) wait(ctx context.Context) {
	timer := time.NewTimer(pathWait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

func (p *pinger) answered(i int) []int {
	p.mu.Lock()
	defer p.mu.Unlock()
	var sizes []int
	for size := range p.sizes[i] {
		sizes = append(sizes, size)
	}
	return sizes
}

func setReachable(path *evidence.Path, answered []int) {
	path.Small, path.Large = slices.Contains(answered, smallest), slices.Contains(answered, path.Size)
	if len(answered) > 0 {
		path.Passes = slices.Max(answered)
	}
}

// send sends one ping. Its sequence number identifies the path, and the length of the answer the size.
func (p *pinger) send(i int, path *evidence.Path, size int) {
	connection, header := p.four, ipv4.HeaderLen
	var typ icmp.Type = ipv4.ICMPTypeEcho
	if path.Address.Is6() {
		connection, header, typ = p.six, ipv6.HeaderLen, ipv6.ICMPTypeEchoRequest
	}
	message := icmp.Message{Type: typ, Body: &icmp.Echo{ID: p.id, Seq: i, Data: make([]byte, size-header-icmpHeader)}}
	// The kernel computes the checksum of ICMPv6.
	text, err := message.Marshal(nil)
	if err != nil {
		return
	}
	_, err = connection.WriteTo(text, &net.IPAddr{IP: path.Address.AsSlice()})
	if errors.Is(err, unix.EMSGSIZE) {
		// The packet exceeds the MTU of this host's own link.
		p.mu.Lock()
		path.Told = true
		p.mu.Unlock()
	}
}

// receive reads answers until the connection is closed.
func (p *pinger) receive(connection *net.IPConn, protocol int) {
	buffer := make([]byte, 65536)
	for {
		n, _, err := connection.ReadFrom(buffer)
		if errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
		var number syscall.Errno
		if err != nil && !errors.As(err, &number) {
			return
		}
		if err == nil {
			p.note(protocol, buffer[:n])
		}
	}
}

// note processes an ICMP message.
func (p *pinger) note(protocol int, text []byte) {
	message, err := icmp.ParseMessage(protocol, text)
	if err != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	header := ipv4.HeaderLen
	if protocol == ipv6.ICMPTypeEchoRequest.Protocol() {
		header = ipv6.HeaderLen
	}
	switch message.Type {
	case ipv4.ICMPTypeEchoReply, ipv6.ICMPTypeEchoReply:
		if echo, ok := message.Body.(*icmp.Echo); ok && echo.ID == p.id && echo.Seq < len(p.paths) {
			if p.sizes[echo.Seq] == nil {
				p.sizes[echo.Seq] = map[int]bool{}
			}
			p.sizes[echo.Seq][header+icmpHeader+len(echo.Data)] = true
		}
	case ipv4.ICMPTypeDestinationUnreachable, ipv6.ICMPTypePacketTooBig:
		if message.Code == 4 && protocol == ipv4.ICMPTypeEcho.Protocol() {
			if body, ok := message.Body.(*icmp.DstUnreach); ok {
				p.noteTooBig(body.Data, 16, 4)
			}
		}
		if body, ok := message.Body.(*icmp.PacketTooBig); ok {
			p.noteTooBig(body.Data, 24, 16)
		}
	}
}

// noteTooBig records that a router reported a packet as too big. The quoted header has the destination. The caller
// holds p's lock.
func (p *pinger) noteTooBig(quoted []byte, at, length int) {
	if len(quoted) < at+length {
		return
	}
	destination, _ := netip.AddrFromSlice(quoted[at : at+length])
	for _, path := range p.paths {
		if path.Address == destination {
			path.Told = true
		}
	}
}

// close closes the pinger and returns the paths.
func (p *pinger) close() (paths []evidence.Path) {
	p.four.Close()
	if p.six != nil {
		p.six.Close()
	}
	p.ended.Wait()
	for _, path := range p.paths {
		paths = append(paths, *path)
	}
	return paths
}

// SPDX-License-Identifier: Apache-2.0

package checker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/balancer/health"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

func tcpCheck(timeout time.Duration) lb.Check {
	return lb.Check{Type: lb.CheckTCP, Via: lb.ViaAddress, Timeout: timeout}
}

func TestTCP(t *testing.T) {
	for _, address := range loopbacks(t) {
		ended := make(chan error, 1)
		to := serve(t, address, func(c net.Conn) {
			_, err := c.Read(make([]byte, 1))
			ended <- err
		})
		expect(t, check(t, to, tcpCheck(patiently)), health.Passed, "connected")
		if err := <-ended; !errors.Is(err, io.EOF) {
			t.Errorf("%s: the server read %v, expected the end of the stream", address, err)
		}
	}
}

func TestTCPRefused(t *testing.T) {
	for _, address := range loopbacks(t) {
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		to := l.Addr().(*net.TCPAddr).AddrPort()
		l.Close()
		expect(t, check(t, to, tcpCheck(patiently)), health.Failed, "refuses connections")
	}
}

// TestTCPSilent: a server whose accept queue is full does not answer.
func TestTCPSilent(t *testing.T) {
	t.Parallel()
	to, _ := full(t)
	c := tcpCheck(100 * time.Millisecond)
	got := check(t, to, c)
	expect(t, got, health.Failed, "does not answer within 100ms")
	if !got.Silent {
		t.Error("a silent endpoint is not called so")
	}
}

// full returns a port whose accept queue is full, and its socket.
func full(t *testing.T) (netip.AddrPort, int) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	to := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(name.(*unix.SockaddrInet4).Port))
	c, err := net.Dial("tcp", to.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return to, fd
}

// TestOwnTrouble: a request that this host cannot send is no evidence.
func TestOwnTrouble(t *testing.T) {
	to := serve(t, "127.0.0.1:0", func(net.Conn) {})
	c := tcpCheck(patiently)
	c.Source = netip.MustParseAddr("192.0.2.77") // is not ours
	expect(t, check(t, to, c), health.NoEvidence, "sending from 192.0.2.77")
	c.Source = netip.Addr{}
	c.Via = lb.ViaVIP
	endpoint := health.Endpoint{Via: lb.ViaVIP, Address: to.Addr(), Port: to.Port()}
	expect(t, New(nil).Check(t.Context(), endpoint, &c, nil), health.NoEvidence, "need a data plane")
	for _, errno := range troubles {
		dialer := fakeDialer{err: fmt.Errorf("dial: %w", errno)}
		expect(t, New(dialer).Check(t.Context(), endpoint, &c, nil), health.NoEvidence, errno.Error())
	}
	expect(t, New(fakeDialer{err: fmt.Errorf("no MAC address: %w", health.ErrNoPath)}).Check(t.Context(), endpoint, &c,
		nil), health.NoEvidence, "no MAC address")
	if got := New(fakeDialer{err: health.ErrForNow}).Check(t.Context(), endpoint, &c,
		nil); got.Outcome != health.NoEvidence || !got.Passing {
		t.Errorf("%+v, want no evidence that passes", got)
	}
}

// fakeWay goes by the kernel's, or fails.
type fakeDialer struct {
	to  netip.AddrPort
	err error
}

func (w fakeDialer) Dial(ctx context.Context, network string, _ lb.BackendKey, _ uint16) (net.Conn, error) {
	if w.err != nil {
		return nil, w.err
	}
	return (&net.Dialer{}).DialContext(ctx, network, w.to.String())
}

func (w fakeDialer) Ping(context.Context, lb.BackendKey) error { return w.err }

func TestByVIP(t *testing.T) {
	to := serve(t, "127.0.0.1:0", func(net.Conn) {})
	c := tcpCheck(patiently)
	c.Via = lb.ViaVIP
	endpoint := health.Endpoint{Via: lb.ViaVIP, Address: to.Addr(), Port: to.Port()}
	expect(t, New(fakeDialer{to: to}).Check(t.Context(), endpoint, &c, nil), health.Passed, "connected")
	refused := fakeDialer{err: fmt.Errorf("dial: %w", unix.ECONNREFUSED)}
	expect(t, New(refused).Check(t.Context(), endpoint, &c, nil), health.Failed, "refuses connections")
}

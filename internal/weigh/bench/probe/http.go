// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// askTimeout is how long an answer may take.
const askTimeout = 3 * time.Second

// Dial opens a TCP connection from a host of the laboratory.
//
// The socket is made on the calling thread, inside the host; net/http's own
// transport dials on another goroutine, which would be outside.
func Dial(ctx context.Context, from *lab.Host, to netip.AddrPort) (conn net.Conn, err error) {
	doErr := from.Do(func() error {
		var dialer net.Dialer
		if dialer, err = dialerTo(to.Addr()); err == nil {
			conn, err = dialer.DialContext(ctx, "tcp", to.String())
		}
		return nil
	})
	if doErr != nil {
		return nil, doErr
	}
	return conn, err
}

// dialerTo returns a dialer that asks an address of the host itself from a loopback address. From the address itself,
// the kernel may choose the very port that is asked as the source, which connects the socket to itself: the port is
// then taken for a minute (TIME-WAIT), and the server that was waited for cannot listen there.
func dialerTo(to netip.Addr) (net.Dialer, error) {
	dialer := net.Dialer{Timeout: askTimeout}
	own, err := net.InterfaceAddrs()
	if err != nil {
		return dialer, fmt.Errorf("list the host's addresses: %w", err)
	}
	loopback := net.IPv4(127, 0, 0, 1)
	if to.Is6() {
		loopback = net.IPv6loopback
	}
	for _, address := range own {
		if prefix, ok := address.(*net.IPNet); ok && prefix.IP.Equal(to.AsSlice()) && !prefix.IP.Equal(loopback) {
			dialer.LocalAddr = &net.TCPAddr{IP: loopback}
		}
	}
	return dialer, nil
}

// Listening returns nil if a server accepts connections at to on the host.
func Listening(ctx context.Context, on *lab.Host, to netip.AddrPort) error {
	_, err := listeningTask.On(ctx, on, to)
	return err
}

var listeningTask = lab.NewTask("listening",
	func(ctx context.Context, on *lab.Host, to netip.AddrPort) (struct{}, error) {
		conn, err := Dial(ctx, on, to)
		if err != nil {
			return struct{}{}, err
		}
		return struct{}{}, conn.Close()
	})

// Ask requests path at to from a host of the laboratory, as a client does, and
// checks that the answer is 200 with a body of length bytes.
func Ask(ctx context.Context, from *lab.Host, to netip.AddrPort, path string, length int) error {
	_, err := askTask.On(ctx, from, question{To: to, Path: path, Length: length})
	return err
}

// AskTLS is Ask over TLS. The server must present the given certificate (DER).
func AskTLS(ctx context.Context, from *lab.Host, to netip.AddrPort, path string, length int, certificate []byte) error {
	_, err := askTask.On(ctx, from, question{to, path, length, certificate})
	return err
}

// question is the request of Ask and AskTLS.
type question struct {
	To     netip.AddrPort
	Path   string
	Length int
	// Certificate is nil without TLS.
	Certificate []byte
}

var askTask = lab.NewTask("ask", func(ctx context.Context, from *lab.Host, q question) (struct{}, error) {
	conn, err := Dial(ctx, from, q.To)
	if err != nil {
		return struct{}{}, fmt.Errorf("%s asking %s: %w", from.Name, q.To, err)
	}
	defer conn.Close()
	over := ""
	if q.Certificate != nil {
		over = " over TLS"
		conn, err = secure(ctx, conn, q)
	}
	if err == nil {
		err = ask(conn, q.To, q.Path, q.Length)
	}
	if err != nil {
		return struct{}{}, fmt.Errorf("%s asking %s for %s%s: %w", from.Name, q.To, q.Path, over, err)
	}
	return struct{}{}, nil
})

// secure makes a TLS handshake on a connection.
func secure(ctx context.Context, conn net.Conn, q question) (net.Conn, error) {
	shown, err := x509.ParseCertificate(q.Certificate)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AddCert(shown)
	client := tls.Client(conn, &tls.Config{RootCAs: roots, ServerName: q.To.Addr().String(),
		MinVersion: tls.VersionTLS12})
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	return client, client.HandshakeContext(ctx)
}

func ask(conn net.Conn, to netip.AddrPort, path string, length int) error {
	if err := conn.SetDeadline(time.Now().Add(askTimeout)); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.0\r\nHost: %s\r\n\r\n", path, to); err != nil {
		return err
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	got, err := io.Copy(io.Discard, response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK || got != int64(length) {
		return fmt.Errorf("it answered %s with %d bytes, not 200 with %d", response.Status, got, length)
	}
	return nil
}

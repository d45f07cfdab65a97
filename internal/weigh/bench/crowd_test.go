// SPDX-License-Identifier: Apache-2.0

package bench_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	. "github.com/jeoul/jeoul/internal/weigh/bench"
	"github.com/jeoul/jeoul/internal/weigh/bench/kind/web"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject/subjects"
)

// TestPatientServersKeepTheirSockets requests the file from a web server in both modes. It checks whether the server
// still has a socket after it has answered, while the client has not closed the connection.
func TestPatientServersKeepTheirSockets(t *testing.T) {
	t.Parallel()
	r := tiny(t)
	t.Cleanup(func() {
		if err := r.TearDown(); err != nil {
			t.Error(err)
		}
	})
	if err := r.Build(t.Context()); err != nil {
		t.Fatal(err)
	}
	direct, _ := subjects.Find("direct")
	p := Point{Subject: direct, Experiment: web.AB, Concurrency: 2, Form: r.Form}
	for _, linger := range []bool{false, true} {
		r.Limits.Orphans = map[bool]int{false: 2, true: 1}[linger]
		if got := socketKept(t, r, p); got != linger {
			t.Errorf("with a limit of %d orphans for 2 connections the server kept its socket: %v, want %v",
				r.Limits.Orphans, got, linger)
		}
	}
}

// socketKept gets the file from the first server, over a connection that it leaves open, and reports whether the
// server's end belongs to a process after the server has sent everything.
func socketKept(t *testing.T, r *Runner, p Point) (kept bool) {
	t.Helper()
	server, client := r.Lab.Servers[0], r.Lab.Clients[0]
	address := net.JoinHostPort(server.IPv4.String(), strconv.Itoa(web.Port))
	url := strings.TrimPrefix(web.URL(p, r.Limits, netip.MustParseAddrPort(address)), "http://"+address)
	err := client.Do(func() error {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			return err
		}
		defer conn.Close()
		fmt.Fprintf(conn, "GET %s HTTP/1.0\r\n\r\n", url)
		reader := bufio.NewReader(conn)
		answer, err := http.ReadResponse(reader, nil)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		if n, err := io.Copy(io.Discard, reader); err != nil || n != int64(r.Form.Web.FileBytes) ||
			answer.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: %s, %d bytes, %w", url, answer.Status, n, err)
		}
		port := conn.LocalAddr().(*net.TCPAddr).Port
		return server.Do(func() error {
			sockets, err := netlink.SocketDiagTCP(unix.AF_INET)
			for _, s := range sockets {
				kept = kept || int(s.ID.DestinationPort) == port && s.INode != 0
			}
			return err
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return kept
}

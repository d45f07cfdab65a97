// SPDX-License-Identifier: Apache-2.0

package bench

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

	"github.com/jeoul/jeoul/internal/weigh/bench/load"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
)

func TestOneKernelHoldsSoManyConnections(t *testing.T) {
	// Of a machine of 24 GiB; roomy has no such limits.
	limits := roomy
	limits.Orphans, limits.TCPPages = 131_072, 383_868
	form := Form{Lab: Size{Clients: 25, Servers: 25}, Web: Web{5120}, Repeats: 1, Subjects: []Subject{{Name: "direct"}},
		Loads: []Load{{Name: "ab", Kind: "ab", Concurrency: []int{131_072, 150_000, 191_934, 191_935},
			Requests: 200_000}}}
	tests := map[int]struct {
		patient  bool
		obstacle string
	}{
		131_072: {false, ""},
		150_000: {true, ""},
		191_934: {true, ""}, // of two pages each
		191_935: {true, "191935 connections at once: their answers take 383870 pages"},
	}
	for _, trial := range Plan(form, limits, Absent{}) {
		want := tests[trial.Concurrency]
		if trial.patient(limits) != want.patient || !strings.HasPrefix(trial.Obstacle, want.obstacle) ||
			(want.obstacle == "") != (trial.Obstacle == "") {
			t.Errorf("%d connections: patient %v, obstacle %q; want %v, %q", trial.Concurrency, trial.patient(limits),
				trial.Obstacle, want.patient, want.obstacle)
		}
		if trial.patient(roomy) || crowdObstacle(trial.Point, roomy) != "" {
			t.Errorf("%d connections: limits that are not known bound them", trial.Concurrency)
		}
	}
	if (Point{Concurrency: 200_000, Form: form}).patient(limits) {
		t.Error("an experiment, which has no kind, is taken for a load on web servers")
	}
	// On machines each server's kernel has its own connections only.
	form.far = true
	for _, trial := range Plan(form, limits, Absent{}) {
		if trial.patient(limits) || trial.Obstacle != "" {
			t.Errorf("%d connections to 25 machines: patient %v, obstacle %q", trial.Concurrency, trial.patient(limits),
				trial.Obstacle)
		}
	}
}

// TestPatientServersKeepTheirSockets asks a web server for the file both ways, and
// looks whether it still has a socket when it has answered and the client has not
// ended the connection.
func TestPatientServersKeepTheirSockets(t *testing.T) {
	t.Parallel()
	r := tiny(t)
	t.Cleanup(func() {
		if err := r.tearDown(); err != nil {
			t.Error(err)
		}
	})
	if err := r.build(t.Context()); err != nil {
		t.Fatal(err)
	}
	direct, _ := subject.Find("direct")
	kind, _ := load.Find("ab")
	m := &measurement{runner: r, trial: Trial{Point: Point{Subject: direct, Kind: kind, Concurrency: 2, Form: r.form}}}
	for _, patient := range []bool{false, true} {
		r.limits.Orphans = map[bool]int{false: 2, true: 1}[patient]
		if got := m.socketKept(t); got != patient {
			t.Errorf("with a limit of %d orphans for 2 connections the server kept its socket: %v, want %v",
				r.limits.Orphans, got, patient)
		}
	}
}

// socketKept gets the file from the first server, over a connection that it leaves
// open, and says whether the server's end belongs to a process when it has sent
// all.
func (m *measurement) socketKept(t *testing.T) (kept bool) {
	t.Helper()
	server, client := m.runner.lab.Servers[0], m.runner.lab.Clients[0]
	address := net.JoinHostPort(server.IPv4.String(), strconv.Itoa(servicePort))
	url := strings.TrimPrefix(m.url(netip.MustParseAddrPort(address)), "http://"+address)
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
		if n, err := io.Copy(io.Discard, reader); err != nil || n != int64(m.runner.form.Web.FileBytes) ||
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

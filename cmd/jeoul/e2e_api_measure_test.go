// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/procfs"

	"github.com/jeoul/jeoul/cmd/jeoul/e2e"
	"github.com/jeoul/jeoul/internal/balancer/api"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/test/testcert"
	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

const (
	// idleClients are connections to the API without a request, slowClients connections that request events and read
	// none of them, and abandonedClients connections that end in the middle of a body.
	idleClients, slowClients, abandonedClients = 10_000, 1_000, 300
	// hugeBody is the size of a body, in bytes, above every bound.
	hugeBody = 100 << 20
	// measureFor is how long new connections are counted in each part.
	measureFor = 5 * time.Second
	// maxMemory bounds the daemon's resident memory, in bytes, whatever its clients do.
	maxMemory = 256 << 20
)

// apiUnderAttack is a balancer with abusive API clients, while others open connections to its VIP.
type apiUnderAttack struct {
	*balancer
	client *lab.Host
	vip    netip.AddrPort
	trust  *tls.Config
	file   *os.File
	// Outcomes of connections to the VIP: the numbers of those answered and not answered, and the longest in
	// nanoseconds.
	answered, failed, longest atomic.Int64
}

// TestBoundsMeasured measures how much the worst clients of the API slow down the clients of the VIP, and the daemon's
// memory.
func TestBoundsMeasured(t *testing.T) {
	file := measured(t, "api-bounds.txt")
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(file,
		"# New connections to a VIP (fullnat, TC, 4 at a time, each greeted and reset) for %v of each part or as long as that takes, the daemon's\n"+
			"# memory at its end, and how long GET /v1/status takes then (median of 20). Load before: %s",
		measureFor, load)
	b := newAPIUnderAttack(t, file)
	b.part(t, "quiet", func() string { return "nothing" })
	b.part(t, fmt.Sprintf("%d idle connections to the socket", idleClients), func() string {
		return b.idle(t, b.dialSocket)
	})
	b.part(t, fmt.Sprintf("%d idle connections over TLS", idleClients), func() string { return b.idle(t, b.dialTLS) })
	b.part(t, fmt.Sprintf("%d readers of events that read nothing, and 200 operations", slowClients), func() string {
		return b.slowReaders(t)
	})
	b.part(t, "three bodies of 100 MiB", func() string { return b.hugeBodies(t) })
	b.part(t, fmt.Sprintf("%d clients that go away amid a body", abandonedClients), func() string { return b.abandonBodies(t) })
	b.part(t, "quiet again", func() string { return "nothing" })
}

// newAPIUnderAttack starts the balancer, and the clients of its VIP.
func newAPIUnderAttack(t *testing.T, file *os.File) *apiUnderAttack {
	t.Helper()
	l := newLab(t, lab.Spec{Clients: 1, Servers: 1})
	authority := testcert.NewAuthority(t)
	b := &apiUnderAttack{balancer: newBalancer(t, l.Balancer), client: l.Clients[0],
		vip: netip.MustParseAddrPort("198.18.0.105:80"), file: file}
	certificate, key := filepath.Join(l.Balancer.Dir, "lb.crt"), filepath.Join(l.Balancer.Dir, "lb.key")
	authority.Write(t, pkix.Name{CommonName: "lb"}, time.Hour, certificate, key)
	roots := x509.NewCertPool()
	if pem, err := os.ReadFile(authority.File); err != nil || !roots.AppendCertsFromPEM(pem) {
		t.Fatalf("no authority: %v", err)
	}
	b.trust = &tls.Config{RootCAs: roots, ServerName: "127.0.0.1"}
	startGreeter(t, l.Servers[0], 8080, false)
	b.configure(t, lb.HookTC, entry{
		"api": entry{"listen": "127.0.0.1:9540", "certificate": certificate, "key": key, "client_ca": authority.File,
			"clients": []entry{{"subject": "OU=operators", "role": "operate"}}},
		"services": []entry{{"name": "web", "vip": b.vip.Addr().String(), "port": b.vip.Port(), "mode": "fullnat",
			"backends": []entry{{"name": "server", "address": l.Servers[0].IPv4.String(), "port": 8080}}}},
		"fullnat": entry{"addresses": []string{"198.18.0.99"}}})
	b.startBuilt(t)
	b.eventually(t, "every backend is up", allUp)
	ctx, stop := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	for range 4 {
		clients.Go(func() {
			_ = b.client.Do(func() error {
				b.ask(ctx)
				return nil
			})
		})
	}
	t.Cleanup(func() {
		stop()
		clients.Wait()
	})
	return b
}

// startBuilt runs the program that `make build` has built, because the program of the tests takes more memory.
func (b *balancer) startBuilt(t *testing.T) {
	t.Helper()
	built, err := filepath.Abs("../../bin/jeoul")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(built); err != nil {
		t.Skipf("the program is not there; run make build: %v", err)
	}
	b.daemon, err = b.host.Start(context.WithoutCancel(t.Context()), lab.Command{Path: built, Args: b.arguments(),
		Stdout: &b.log, Stderr: &b.log})
	if err != nil {
		t.Fatal(err)
	}
	b.eventually(t, "the daemon answers", func(*ops.Status) bool { return true })
}

// ask opens one connection to the VIP after the other.
func (b *apiUnderAttack) ask(ctx context.Context) {
	for ctx.Err() == nil {
		began := time.Now()
		err := short(b.vip, "client resets") // no port is in TIME-WAIT then
		if took := int64(time.Since(began)); took > b.longest.Load() {
			b.longest.Store(took)
		}
		if err != nil {
			b.failed.Add(1)
		} else {
			b.answered.Add(1)
		}
	}
}

// part counts connections while clients of the API run do, and logs the result of do.
func (b *apiUnderAttack) part(t *testing.T, name string, do func() string) {
	t.Helper()
	answered, failed, began := b.answered.Load(), b.failed.Load(), time.Now()
	b.longest.Store(0)
	came := do()
	testenv.Eventually(t, e2e.WaitLimit+measureFor, "connections are counted for "+measureFor.String(), func() bool {
		return time.Since(began) > measureFor
	})
	seconds := time.Since(began).Seconds()
	answered, failed = b.answered.Load()-answered, b.failed.Load()-failed
	memory := b.memory(t)
	var took []time.Duration
	for range 20 {
		asked := time.Now()
		b.status(t)
		took = append(took, time.Since(asked))
	}
	slices.Sort(took)
	fmt.Fprintf(b.file,
		"%s: %.0f connections/s, %d failed, longest %d ms; memory %.1f MiB; status %.1f ms; %s (%.1f s)\n", name,
		float64(answered)/seconds, failed,
		time.Duration(b.longest.Load()).Milliseconds(), float64(memory)/(1<<20),
		float64(took[len(took)/2].Microseconds())/1000, came, seconds)
	if failed > 0 || answered == 0 {
		t.Errorf("%s: of new connections to the VIP %d failed, %d were answered", name, failed, answered)
	}
	if memory > maxMemory {
		t.Errorf("%s: the daemon has %d MiB in memory", name, memory>>20)
	}
}

// memory returns the daemon's resident memory, in bytes.
func (b *apiUnderAttack) memory(t *testing.T) int {
	t.Helper()
	process, err := procfs.NewProc(b.daemon.PID())
	if err != nil {
		t.Fatal(err)
	}
	stat, err := process.Stat()
	if err != nil {
		t.Fatal(err)
	}
	return stat.ResidentMemory()
}

func (b *apiUnderAttack) dialSocket() (net.Conn, error) {
	return (&net.Dialer{Timeout: e2e.WaitLimit}).Dial("unix", b.socket)
}

// dialTLS connects from the balancer's own host, and completes the TLS handshake.
func (b *apiUnderAttack) dialTLS() (conn net.Conn, err error) {
	err = b.host.Do(func() error {
		conn, err = (&net.Dialer{Timeout: e2e.WaitLimit}).Dial("tcp", "127.0.0.1:9540")
		return err
	})
	if err != nil {
		return nil, err
	}
	secured := tls.Client(conn, b.trust)
	_ = conn.SetDeadline(time.Now().Add(e2e.WaitLimit))
	if err := secured.Handshake(); err != nil {
		conn.Close()
		return nil, err
	}
	_ = conn.SetDeadline(time.Time{})
	return secured, nil
}

// idle opens connections, keeps them all, and sends no request on them.
func (b *apiUnderAttack) idle(t *testing.T, dial func() (net.Conn, error)) string {
	t.Helper()
	var open []net.Conn
	defer func() {
		for _, conn := range open {
			conn.Close()
		}
	}()
	refused, last := 0, error(nil)
	for range idleClients {
		conn, err := dial()
		if err != nil {
			refused, last = refused+1, err
			continue
		}
		open = append(open, conn)
	}
	// During that, the API answers others.
	b.status(t)
	if refused > 0 {
		return fmt.Sprintf("%d opened, %d not: %v", len(open), refused, last)
	}
	return fmt.Sprintf("%d opened", len(open))
}

// slowReaders requests events on many connections, and reads only the first line of each answer.
func (b *apiUnderAttack) slowReaders(t *testing.T) string {
	t.Helper()
	answers := map[string]int{}
	for range slowClients {
		conn, err := b.dialSocket()
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(e2e.WaitLimit))
		fmt.Fprintf(conn, "GET /v1/events?follow=true HTTP/1.1\r\nHost: jeoul\r\n\r\n")
		line, err := bufio.NewReaderSize(conn, 16).ReadSlice('\n')
		if err != nil && len(line) == 0 {
			answers["cut off"]++
			continue
		}
		answers[strings.Fields(string(line))[1]]++
	}
	client := api.NewClient(b.socket)
	began, done := time.Now(), 0
	for i := range 200 {
		if _, err := client.Operate(t.Context(), ops.Order{Verb: ops.Weight, Service: "web", Backend: "server",
			Weight: int64(2 + i%2)}); err != nil {
			t.Errorf("operation %d: %v", i, err)
			break
		}
		done++
	}
	return fmt.Sprintf("answers %v; %d operations in %.2f s", answers, done, time.Since(began).Seconds())
}

// send asks the API to apply a body.
func (b *apiUnderAttack) send(t *testing.T, conn net.Conn, size int, body io.Reader) (answer string) {
	t.Helper()
	_ = conn.SetDeadline(time.Now().Add(e2e.WaitLimit))
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://jeoul/v1/config/sources/other",
		body)
	if err != nil {
		t.Fatal(err)
	}
	request.ContentLength = int64(size)
	request.Header.Set("Content-Type", "application/json")
	sent := make(chan error, 1)
	go func() { sent <- request.Write(conn) }()
	response, err := http.ReadResponse(bufio.NewReader(conn), request)
	if err != nil {
		conn.Close()
		<-sent
		return err.Error()
	}
	response.Body.Close()
	conn.Close()
	<-sent
	return response.Status
}

func (b *apiUnderAttack) hugeBodies(t *testing.T) string {
	t.Helper()
	var answers []string
	for range 3 {
		conn, err := b.dialSocket()
		if err != nil {
			t.Fatal(err)
		}
		answers = append(answers, b.send(t, conn, hugeBody, bytes.NewReader(make([]byte, hugeBody))))
	}
	return strings.Join(answers, ", ")
}

// abandonBodies sends only the beginning of bodies.
func (b *apiUnderAttack) abandonBodies(t *testing.T) string {
	t.Helper()
	for range abandonedClients {
		conn, err := b.dialSocket()
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn,
			"PUT /v1/config/sources/other HTTP/1.1\r\nHost: jeoul\r\nContent-Type: application/json\r\nContent-Length: 500000\r\n\r\n{\"services\": [")
		conn.Close()
	}
	if list, err := api.NewClient(b.socket).Sources(t.Context()); err != nil ||
		slices.ContainsFunc(list, func(s api.Source) bool { return s.Name == "other" }) {
		t.Errorf("sources %+v, error %v", list, err)
	}
	return "nothing of it is configured"
}

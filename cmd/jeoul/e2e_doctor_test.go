// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jeoul/jeoul/cmd/jeoul/cmdtest"
	"github.com/jeoul/jeoul/cmd/jeoul/e2e"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/tools/doctor"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// The port of the laboratory's service, and how long its backends take to answer.
const (
	doctorPort  = 80
	doctorDelay = 10 * time.Millisecond
)

// doctorLab is a laboratory for the doctor: a balancer with one service, backends with web servers that can be slow,
// and a client that sends requests all the time.
type doctorLab struct {
	*lab.Lab
	*balancer
	agents map[string]*lab.Process
	delays map[string]*atomic.Int64
	answer atomic.Int64 // answered requests
}

func newDoctorLab(t *testing.T) *doctorLab {
	t.Helper()
	l := newLab(t, lab.Spec{Clients: 2, Servers: 3})
	w := &doctorLab{Lab: l, balancer: newBalancer(t, l.Balancer), agents: map[string]*lab.Process{},
		delays: map[string]*atomic.Int64{}}
	var backends []entry
	for _, server := range l.Servers {
		w.startAgent(t, server)
		w.serve(t, server)
		backends = append(backends, entry{"name": server.Name, "address": server.IPv4.String()})
	}
	w.configure(t, lb.HookXDP, entry{"services": []entry{{"name": "web", "vip": l.VIP4.String(), "port": doctorPort,
		"protocol": "tcp", "scheduler": "rr", "backends": backends}}})
	w.start(t)
	for range 3 {
		w.sendRequests(t, l.Clients[0])
	}
	w.awaitServed(t)
	return w
}

// startAgent gives a backend the VIP.
func (w *doctorLab) startAgent(t *testing.T, server *lab.Host) {
	t.Helper()
	log := &cmdtest.SyncBuffer{}
	process := jeoul(t, server, log, "agent", "--vip", w.VIP4.String(), "--state-dir",
		filepath.Join(server.Dir, "state"))
	w.agents[server.Name] = process
	testenv.Eventually(t, e2e.WaitLimit, "the agent of "+server.Name+" is ready", func() bool {
		return strings.Contains(log.String(), "ready")
	})
}

// serve answers requests with 5 KiB, after a delay.
func (w *doctorLab) serve(t *testing.T, server *lab.Host) {
	t.Helper()
	delay := &atomic.Int64{}
	delay.Store(int64(doctorDelay))
	w.delays[server.Name] = delay
	var listener net.Listener
	if err := server.Do(func() (err error) {
		listener, err = net.Listen("tcp4", fmt.Sprintf(":%d", doctorPort))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	content := make([]byte, 5<<10)
	web := &http.Server{Handler: http.HandlerFunc(func(out http.ResponseWriter, request *http.Request) {
		select {
		case <-time.After(time.Duration(delay.Load())):
			_, _ = out.Write(content)
		case <-request.Context().Done():
		}
	})}
	go func() { _ = web.Serve(listener) }()
	t.Cleanup(func() { web.Close() })
}

// sendRequests sends requests from a client while the test runs, each on a new connection.
func (w *doctorLab) sendRequests(t *testing.T, client *lab.Host) {
	t.Helper()
	dial := func(ctx context.Context, network, to string) (connection net.Conn, err error) {
		err = client.Do(func() (err error) {
			connection, err = (&net.Dialer{}).DialContext(ctx, network, to)
			return err
		})
		return connection, err
	}
	web := &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true},
		Timeout: 2 * time.Second}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		pause := time.NewTicker(20 * time.Millisecond)
		defer pause.Stop()
		for ctx.Err() == nil {
			if w.ask(ctx, web) == nil {
				w.answer.Add(1)
			}
			select {
			case <-pause.C:
			case <-ctx.Done():
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
}

func (w *doctorLab) ask(ctx context.Context, web *http.Client) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+
		netip.AddrPortFrom(w.VIP4, doctorPort).String()+"/", nil)
	if err != nil {
		return err
	}
	response, err := web.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	return err
}

// awaitServed waits until many requests in a row are answered: the fault is over.
func (w *doctorLab) awaitServed(t *testing.T) {
	t.Helper()
	before := w.answer.Load()
	testenv.Eventually(t, e2e.WaitLimit, "requests are answered", func() bool { return w.answer.Load() >= before+30 })
}

// examine runs the doctor on a host.
func (w *doctorLab) examine(t *testing.T, host *lab.Host, arguments ...string) *doctor.Report {
	t.Helper()
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if host == w.Lab.Balancer {
		arguments = append(arguments, "--socket", w.socket)
	}
	output, complaints := &cmdtest.SyncBuffer{}, &cmdtest.SyncBuffer{}
	process, err := host.Start(t.Context(), lab.Command{Path: executable, Env: append(os.Environ(), actAsJeoul+"=1"),
		Stdout: output, Stderr: complaints,
		Args: append([]string{"doctor", "-o", "json", "--evidence", "--for", "2s"}, arguments...)})
	if err != nil {
		t.Fatal(err)
	}
	err = process.Wait()
	report := &doctor.Report{}
	if broken := json.Unmarshal([]byte(output.String()), report); broken != nil {
		t.Fatalf("the doctor on %s: %v (%v)\n%s%s", host.Name, err, broken, output.String(), complaints.String())
	}
	if found := len(report.Findings) > 0; found != (err != nil) {
		t.Errorf("the doctor on %s ended with %v and %d findings", host.Name, err, len(report.Findings))
	}
	record(t, host, report)
	if len(report.Unread) > 0 {
		t.Errorf("the doctor on %s could not read %v", host.Name, report.Unread)
	}
	return report
}

// record writes, with -update, the report's evidence into a fixture for the tests of the doctor's rules.
func record(t *testing.T, host *lab.Host, r *doctor.Report) {
	t.Helper()
	if !*cmdtest.Update || strings.HasSuffix(t.Name(), "_again") {
		return
	}
	text, err := json.Marshal(r.Evidence)
	if err != nil {
		t.Fatal(err)
	}
	name := strings.NewReplacer("TestDoctorNamesFaults/", "", "_", "-").Replace(t.Name()) + "-" + host.Name + ".json"
	if err := os.WriteFile(filepath.Join("..", "..", "internal", "tools", "doctor", "rules", "testdata", name), append(text, '\n'),
		0o644); err != nil {
		t.Fatal(err)
	}
}

// diagnosis returns the text of a report for the log.
func diagnosis(host *lab.Host, r *doctor.Report) string {
	b := &strings.Builder{}
	fmt.Fprintf(b, "on %s:\n", host.Name)
	writeDiagnosis(b, r, true)
	return b.String()
}

// expectFinding runs the doctor on a host; the first finding must be of a kind and contain a name.
func (w *doctorLab) expectFinding(t *testing.T, host *lab.Host, kind, names string, arguments ...string) {
	t.Helper()
	checkFinding(t, host, w.examine(t, host, arguments...), kind, names)
}

func checkFinding(t *testing.T, host *lab.Host, r *doctor.Report, kind, names string) {
	t.Helper()
	switch {
	case !found(r, kind):
		t.Errorf("the first finding should be %s; %s", kind, diagnosis(host, r))
	case !strings.Contains(r.Findings[0].Title, names):
		t.Errorf("the finding should name %s; %s", names, diagnosis(host, r))
	default:
		t.Log(diagnosis(host, r))
	}
}

// expectNoFindings runs the doctor on hosts at once; there must be no finding.
func (w *doctorLab) expectNoFindings(t *testing.T, hosts ...*lab.Host) {
	t.Helper()
	reports := make(chan error)
	for _, host := range hosts {
		go func() {
			var err error
			defer func() { reports <- err }()
			if r := w.examine(t, host); len(r.Findings) > 0 {
				err = errors.New(diagnosis(host, r))
			}
		}()
	}
	for range hosts {
		if err := <-reports; err != nil {
			t.Errorf("nothing is wrong, and yet %v", err)
		}
	}
}

// TestDoctorNamesFaults makes the faults that the doctor must find, one by one (`make test` a few of them, `make
// test-matrix` all), and runs the doctor on the host where a user would.
func TestDoctorNamesFaults(t *testing.T) {
	testenv.Also(t, matrixTarget)
	w := newDoctorLab(t)
	all := []*lab.Host{w.Lab.Balancer, w.Servers[0], w.Clients[0]}
	t.Run("healthy", func(t *testing.T) { w.expectNoFindings(t, all...) })
	if t.Failed() {
		return
	}
	for _, f := range faults {
		if !f.quick && !testenv.InTarget(matrixTarget) {
			continue
		}
		t.Run(f.name, func(t *testing.T) {
			t.Cleanup(func() { w.awaitServed(t) })
			f.make(t, w)
		})
	}
	t.Run("healthy again", func(t *testing.T) { w.expectNoFindings(t, all...) })
}

// faults are made on purpose; the cleanup of its test repairs each.
var faults = []struct {
	name  string
	quick bool // made in `make test`
	make  func(t *testing.T, w *doctorLab)
}{
	{"full listen queue", true, fullListenQueue},
	{"conntrack table full", false, fullConntrack},
	{"neighbour failing", false, failingNeighbour},
	{"rp_filter drop", false, reversePathDrop},
	{"port that a filter drops", false, filteredPort},
	{"wrong MAC", true, wrongMACAddress},
	{"missing VIP on a backend", false, missingVIP},
	{"ARP answered by a backend", true, answeredARP},
	{"tiny softnet backlog", false, tinyBacklog},
	{"exhausted ports", false, exhaustedPorts},
	{"MTU black hole to a backend", false, narrowBackend},
	{"MTU black hole to a client", false, narrowClient},
	{"slow backend", false, slowBackend},
}

// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"bytes"
	"compress/gzip"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
)

var update = flag.Bool("update", false, "write the generated files anew")

// sample is a status in which every metric has a series.
func sample() ops.Status {
	addr := netip.MustParseAddr
	return ops.Status{
		Version: "1.2.3", Generation: 7, Problems: []string{"interface eth1 is down"},
		Interfaces: []ops.Interface{
			{Name: "eth0", Up: true, Hook: ops.Hook{Name: lb.HookXDP, Driver: "virtio_net"}, XDPLost: 3},
			{Name: "eth1", Hook: ops.Hook{Name: lb.HookXDP, Generic: true, Driver: "r8169"}},
		},
		Outcomes: []ops.Outcome{{Name: "forwarded", Packets: 100}, {Name: "dropped_no_backend"}},
		Flows:    &ops.Flows{Proven: 10, ProvenLimit: 1000, Unproven: 2, UnprovenLimit: 250, Bytes: 80000},
		Memory: &ops.Memory{Total: 36, Proven: 1, Unproven: 2, Returns: 3, Configuration: 4, Counters: 5, RouteCache: 6,
			Fragments: 7, Checks: 8},
		Local: &ops.Local{Cgroup: "/sys/fs/cgroup", Sockets: 12,
			Events: []ops.LocalEvent{{Name: "served", Count: 13}, {Name: "moved"}}},
		Proxy: &ops.ProxyEngine{Program: "/usr/sbin/haproxy", Version: "2.6.12", PID: 17, Reloads: 4, Workers: 2},
		BGP: &ops.BGP{ASN: 64512, SpeakerPID: 7,
			VIPs: []ops.AnnouncedVIP{{VIP: netip.MustParseAddr("192.0.2.100"), Announced: true}},
			Peers: []ops.BGPPeer{{Address: "192.0.2.1", ASN: 64513, State: "established", Sessions: 2, Received: 3,
				BFD: &ops.BFD{State: "up", DetectionSeconds: 0.15, Failures: 1, Refused: 2, Late: 3}}}},
		VRRP: &ops.VRRP{ID: 51, State: "active", Since: time.Unix(1700000000, 0), Priority: 90, Changes: 3,
			Sent: 400, Received: 5, Rejected: 6, Ignored: 7, Conflicts: 1, Announcements: 8},
		Members: &ops.Members{Name: "lb1", Refused: 3, Members: []ops.Member{
			{Name: "lb2", State: ops.MemberAlive, Differs: []ops.Difference{{Service: "web", Lasting: true},
				{Service: "dns"}},
				Flows: &ops.MemberFlows{Sending: true, Receiving: true, Sent: 7, Behind: 2, Added: 5,
					Refused: map[string]uint64{"over": 1, "full": 2}, Overflows: 1}},
			{Address: "192.0.2.12:7946", State: ops.MemberUnknown}}},
		Operations: ops.Operations{InForce: []ops.Overlay{{Target: ops.Target{Service: "dns", Backend: "ns1"},
			Left: ops.Left{Flows: 14},
			Drain: &ops.Drained{On: true, By: "root", At: time.Unix(1500000000, 0),
				Deadline: time.Unix(1500000600, 0)},
			Weight: &ops.Weighted{By: "root", At: time.Unix(1500000001, 0)},
			Forced: &ops.Forced{By: "carol", At: time.Unix(1500000002, 0)}}}},
		Services: []ops.Service{
			{Name: "web", VIP: addr("192.0.2.100"), Port: 80, Protocol: lb.TCP, Mode: lb.FullNAT,
				Scheduler: lb.RoundRobin, Tracked: true,
				Limits:  &ops.Limits{Rate: 500, Connections: 10000},
				Serving: ops.ServingAll, Checks: []ops.Check{{}, {}}, Outliers: &ops.Outliers{},
				Active: 9, Flows: 11, Transition: &ops.Transition{MovedSlots: 12, Slots: 1021},
				Backends: []ops.Backend{
					{Name: "web01", State: lb.Up, Weight: 3, Packets: 60, Bytes: 6000, Connections: 6,
						ReturnedPackets: 50, ReturnedBytes: 5000,
						Answered: 4, Refused: 2, Unreachable: 1,
						Health: &ops.Health{State: lb.Healthy, Since: time.Unix(1500000000, 250e6),
							Checks: []ops.CheckResult{{TookSeconds: 0.25}, {TookSeconds: 0.5}}},
						Active: 9, Upper: 100, Flows: 11, Ports: &ops.Ports{Held: 8, Limit: 40000}},
					{Name: "web02", State: lb.NoMAC, Weight: 1, Ejection: &ops.Ejection{},
						Health: &ops.Health{State: lb.Failing}, Ports: &ops.Ports{Limit: 40000}},
				}},
			{Name: "shop", VIP: addr("192.0.2.101"), Port: 443, Protocol: lb.TCP, Mode: lb.ModeProxy,
				Scheduler: lb.WeightedRoundRobin, Tracked: true,
				Proxy: &ops.ProxiedService{Speaks: lb.SpeaksHTTP, TLS: true, Connections: 20, BytesIn: 21, BytesOut: 22,
					Denied: 23,
					Proxied: ops.Proxied{Requests: 25, Queued: 26,
						Responses: ops.Responses{Informational: 1, Successful: 2, Redirection: 3, ClientError: 4,
							ServerError: 5, Other: 6}}},
				Backends: []ops.Backend{{Name: "shop01", State: lb.Up, Weight: 1, Connections: 27, Bytes: 28,
					ReturnedBytes: 29,
					Proxied: &ops.Proxied{Requests: 30, Responses: ops.Responses{ServerError: 31}, Failed: 32,
						Retried: 33, Redispatched: 34}}}},
			{Name: "dns", VIP: addr("2001:db8::53"), Port: 53, Protocol: lb.UDP, Mode: lb.L2DSR, Scheduler: lb.Maglev,
				TableDigest: "bda3065bd78f73ba",
				Backends:    []ops.Backend{{Name: "ns1", State: lb.Draining, Packets: 40}},
				Discovered: []ops.Discovered{{Origin: lb.FromFile, Backends: 1, Taken: time.Unix(1500000000, 500e6),
					Problem: "is away", Refused: []string{"ns2 is a VIP", "and 299 more"}, RefusedCount: 300}}},
		},
	}
}

func statusOf(s ops.Status) func() (ops.Status, error) {
	return func() (ops.Status, error) { return s, nil }
}

func TestSeries(t *testing.T) {
	text := expose(t, 4)
	const golden = "testdata/sample.txt"
	if *update {
		if err := os.WriteFile(golden, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), text); diff != "" {
		t.Errorf("a scrape (-want +got; -update writes it anew):\n%s", diff)
	}
}

// expose returns the lines of a scrape that are about the balancer itself.
func expose(t *testing.T, limit int) string {
	t.Helper()
	return scrapeOf(t,
		promhttp.HandlerFor(&gatherer{status: statusOf(sample()), backends: limit, others: prometheus.NewRegistry()},
			promhttp.HandlerOpts{}))
}

// TestConventions: names, units and help are such as Prometheus' own linter wants them, and no
// series is there twice.
func TestConventions(t *testing.T) {
	m := New(statusOf(sample()), 4)
	problems, err := testutil.GatherAndLint(m.gatherer)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	// Gatherers compare every series with the others, and each family with its kind.
	if _, err := (prometheus.Gatherers{m.gatherer}).Gather(); err != nil {
		t.Error(err)
	}
}

// TestSharedVIPOfServices: a VIP that several services have has one series.
func TestSharedVIPOfServices(t *testing.T) {
	status := sample()
	for i := range status.Services {
		status.Services[i].VIP = netip.MustParseAddr("192.0.2.100")
	}
	shown := scrape(t, New(statusOf(status), 4))
	if want := `jeoul_vrrp_vip_active{vrid="51",vip="192.0.2.100"} 1`; strings.Count(shown, "\njeoul_vrrp_vip_active{") != 1 ||
		!strings.Contains(shown, want) {
		t.Errorf("a scrape has no %s, or other series of that metric beside it:\n%s", want, shown)
	}
}

// TestEveryFamilyIsShown: the sample reaches every metric of the list, and no other.
func TestEveryFamilyIsShown(t *testing.T) {
	m := New(statusOf(sample()), 4)
	shown := scrape(t, m)
	for _, f := range families() {
		if !strings.Contains(shown, "\n# HELP "+f.name+" ") {
			t.Errorf("%s is in the list, and not in a scrape", f.name)
		}
	}
	if n, want := strings.Count(shown, "# HELP jeoul_"), len(families()); n != want {
		t.Errorf("a scrape has %d metrics of ours, the list %d", n, want)
	}
}

func scrape(t *testing.T, m *Metrics) string {
	t.Helper()
	return "\n" + scrapeOf(t, m.Handler())
}

func scrapeOf(t *testing.T, handler http.Handler) string {
	t.Helper()
	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), "GET", Path, nil))
	if answer.Code != 200 {
		t.Fatalf("%d: %s", answer.Code, answer.Body)
	}
	return answer.Body.String()
}

// TestSeriesOfABackend: HAProxy's users drown in series; a backend has a dozen at most, the bounds and those of
// the pool that only some have not counted.
func TestSeriesOfABackend(t *testing.T) {
	n := 0
	for _, f := range backendFamilies {
		if !strings.Contains(f.name, "_pool_") && !strings.HasSuffix(f.name, "_limit") {
			n++
		}
	}
	if n > 12 {
		t.Errorf("%d series for each backend, at most 12 are wanted", n)
	}
}

// TestSeriesOfAService: a service has as many series as the guide states.
func TestSeriesOfAService(t *testing.T) {
	guide, err := os.ReadFile("../../../docs/guides/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	proxied := 0
	for _, f := range proxyMetrics([]ops.Service{{Name: "web", Proxy: &ops.ProxiedService{}}}) {
		proxied += len(f.values)
	}
	text := strings.Join(strings.Fields(string(guide)), " ")
	for _, states := range []string{
		fmt.Sprintf("each service up to %d and %d for each origin", len(serviceFamilies)+1, len(discoveredFamilies)),
		fmt.Sprintf("in mode `proxy` a service has %d more", proxied),
	} {
		if !strings.Contains(text, states) {
			t.Errorf("docs/guides/metrics.md does not state %q", states)
		}
	}
}

func TestManyBackendsHaveNoSeries(t *testing.T) {
	for _, tc := range []struct {
		limit  int
		series string
		has    bool
	}{
		{4, "jeoul_backends_without_series 0", true},
		{3, "jeoul_backends_without_series 4", false},
		{0, "jeoul_backends_without_series 4", false},
	} {
		text := expose(t, tc.limit)
		if !strings.Contains(text, tc.series+"\n") {
			t.Errorf("limit %d: no %q", tc.limit, tc.series)
		}
		if has := strings.Contains(text, "jeoul_backend_state{"); has != tc.has {
			t.Errorf("limit %d: series of backends: %t", tc.limit, has)
		}
		if !strings.Contains(text, `jeoul_service_backends_up{service="web"} 1`) {
			t.Errorf("limit %d: the service has no series", tc.limit)
		}
	}
}

// TestUnreadableBalancer: counters that are left out would read as a balancer without traffic.
func TestUnreadableBalancer(t *testing.T) {
	m := New(func() (ops.Status, error) { return ops.Status{}, errors.New("the map is gone") }, 3)
	answer := httptest.NewRecorder()
	m.Handler().ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), "GET", Path, nil))
	if answer.Code != 500 || !strings.Contains(answer.Body.String(), "the map is gone") {
		t.Errorf("%d: %s", answer.Code, answer.Body)
	}
}

func TestReloads(t *testing.T) {
	r := newReloads()
	started := testutil.ToFloat64(r.applied)
	at := time.Unix(1_900_000_000, 500_000_000)
	r.record(errors.New("no such key"), at)
	if ok, applied := testutil.ToFloat64(r.successful), testutil.ToFloat64(r.applied); ok != 0 || applied != started {
		t.Errorf("after a reload that was refused: successful %g, applied at %g, want 0 and %g", ok, applied, started)
	}
	r.record(nil, at)
	if ok, applied := testutil.ToFloat64(r.successful), testutil.ToFloat64(r.applied); ok != 1 ||
		applied != 1_900_000_000.5 {
		t.Errorf("after a reload that was applied: successful %g, applied at %f", ok, applied)
	}
	for result, want := range map[string]float64{reloadApplied: 1, reloadRefused: 1} {
		if n := testutil.ToFloat64(r.total.WithLabelValues(result)); n != want {
			t.Errorf("%s: %g, want %g", result, n, want)
		}
	}
}

// TestStatesHaveNumbers: a state without a number would be shown as -1.
func TestStatesHaveNumbers(t *testing.T) {
	for _, s := range []lb.BackendState{lb.Up, lb.NoMAC, lb.NoRoute, lb.WeightZero, lb.Draining, lb.Out} {
		if stateNumber(s) < 0 {
			t.Errorf("state %s has no number", s)
		}
	}
}

func TestReferenceIsCurrent(t *testing.T) {
	const path = "../../../docs/reference/metrics.md"
	if *update {
		if err := os.WriteFile(path, []byte(Reference()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Reference(), string(page)); diff != "" {
		t.Errorf("%s is stale (`go test ./internal/balancer/metrics -run Reference -update` writes it anew):\n%s",
			path, diff)
	}
}

// TestScrapeIsZipped: a client that takes gzip gets the same text by it, and so it is said; one that does not, does
// not.
func TestScrapeIsZipped(t *testing.T) {
	handler := New(statusOf(sample()), 100).Handler()
	read := func(accepts string) string {
		request := httptest.NewRequestWithContext(t.Context(), "GET", Path, nil)
		request.Header.Set("Accept-Encoding", accepts)
		recorder := httptest.NewRecorder()
		handler.ServeHTTP(recorder, request)
		answer := recorder.Result()
		body := io.Reader(answer.Body)
		if zipped := answer.Header.Get("Content-Encoding") == "gzip"; zipped {
			reader, err := gzip.NewReader(body)
			if err != nil {
				t.Fatal(err)
			}
			body = reader
		}
		text, err := io.ReadAll(body)
		if err != nil || answer.StatusCode != http.StatusOK || answer.Header.Get("Vary") == "" {
			t.Fatalf("%s: %s, %v, %v", accepts, answer.Status, answer.Header, err)
		}
		// Figures of the process differ from scrape to scrape.
		kept, _, _ := strings.Cut(string(text), "# HELP go_")
		return answer.Header.Get("Content-Encoding") + "\n" + kept
	}
	plain := read("")
	for accepts, want := range map[string]string{"gzip": "gzip" + plain, "deflate, gzip;q=0.5": "gzip" + plain,
		"gzip;q=0": plain, "br": plain} {
		if got := read(accepts); got != want {
			t.Errorf("with Accept-Encoding %q: %.200q, want %.200q", accepts, got, want)
		}
	}
}

// TestScrapeIsTheLibrarys: a scrape written without the library has the bytes that the library would write, in each
// format of text, whatever is in it.
func TestScrapeIsTheLibrarys(t *testing.T) {
	var values []float64
	common := &rows{names: []string{"a", "b"}, texts: map[int][]string{}}
	var at []int32
	for i, value := range []float64{0, 1, -1, 7, 1e21, 1e-9, 0.25, 123456789, math.NaN(), math.Inf(1), math.Inf(-1)} {
		values, at = append(values, value), append(at, int32(i))
		common.values = append(common.values, []string{fmt.Sprint("x", i), "\\ \" \n é"})
	}
	families, err := New(statusOf(sample()), 100).gatherer.collect()
	if err != nil {
		t.Fatal(err)
	}
	for name, kind := range map[string]dto.MetricType{"some_gauge": gauge, "some_total": counter, "some": counter} {
		for n := range len(common.names) + 1 {
			families = append(families, metricFamily{family: family{fmt.Sprintf("of_%d_%s", n, name), "Some \\ help\nand more.",
				kind, common.names[:n]}, values: values, at: at, rows: common})
		}
	}
	others := []*dto.MetricFamily{{Name: proto.String("other"), Type: dto.MetricType_GAUGE.Enum(),
		Metric: []*dto.Metric{{Gauge: &dto.Gauge{Value: proto.Float64(1)}}}}}
	for _, format := range expfmt.DefaultOpenMetricsAcceptedFormats() {
		if kind := format.FormatType(); kind != expfmt.TypeTextPlain && kind != expfmt.TypeOpenMetrics {
			continue
		}
		var got, want bytes.Buffer
		if err := writeFamilies(&got, format, families, others); err != nil {
			t.Fatal(err)
		}
		library := expfmt.NewEncoder(&want, format)
		all := []*dto.MetricFamily{}
		for i := range families {
			all = append(all, families[i].proto(len(families[i].values)))
		}
		for _, f := range append(all, others...) {
			if err := library.Encode(f); err != nil {
				t.Fatal(err)
			}
		}
		if err := library.(io.Closer).Close(); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want.String(), got.String()); diff != "" {
			t.Errorf("%s (-library +got):\n%s", format, diff)
		}
	}
}

// BenchmarkScrape answers a scrape of 10,000 services with 10 backends each, with series for the services alone and for
// 5,000 backends, and the latter by the library alone. cpu-ms/op is its CPU time, with that of the garbage collector,
// whatever else runs on the machine.
func BenchmarkScrape(b *testing.B) {
	for _, tc := range []struct {
		name               string
		services, backends int
		library            bool
	}{{"services=10000", 10_000, 0, false}, {"backends=5000", 500, 5000, false},
		{"backends=5000,library", 500, 5000, true}} {
		b.Run(tc.name, func(b *testing.B) {
			s := sample()
			one := s.Services[0]
			one.Backends = nil
			for i := range 10 {
				backend := s.Services[0].Backends[0]
				backend.Name = fmt.Sprintf("web%02d", i)
				one.Backends = append(one.Backends, backend)
			}
			s.Services = nil
			for i := range tc.services {
				one.Name = fmt.Sprintf("service%d", i)
				s.Services = append(s.Services, one)
			}
			m := New(statusOf(s), tc.backends)
			handler := m.Handler()
			if tc.library {
				handler = promhttp.HandlerFor(m.gatherer,
					promhttp.HandlerOpts{EnableOpenMetrics: true, DisableCompression: true})
			}
			before := processorTime(b)
			defer func() {
				b.ReportMetric(float64((processorTime(b)-before).Microseconds())/1000/float64(b.N), "cpu-ms/op")
			}()
			for b.Loop() {
				answer := httptest.NewRecorder()
				answer.Body = nil
				handler.ServeHTTP(discarding{answer}, httptest.NewRequestWithContext(b.Context(), "GET", Path, nil))
			}
		})
	}
}

// processorTime is the CPU time that this process has used.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// discarding drops the answer.
type discarding struct{ *httptest.ResponseRecorder }

func (discarding) Write(b []byte) (int, error) { return io.Discard.Write(b) }

// SPDX-License-Identifier: Apache-2.0

package health_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/balancer/health"
	"github.com/jeoul/jeoul/internal/balancer/health/checker"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/host/namespace"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

// asServer says to the test's own program, started again, that it is to serve.
const asServer = "JEOUL_TEST_SERVE"

func TestMain(m *testing.M) {
	if startsVM() {
		return
	}
	if to := os.Getenv(asServer); to != "" {
		serve(to)
		return
	}
	if text := os.Getenv(asEngine); text != "" {
		runEngine(text)
		return
	}
	for as, do := range map[string]func(string) error{asListener: listenOnPorts, asOneHost: checkOneHost} {
		if value := os.Getenv(as); value != "" {
			if err := do(value); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			return
		}
	}
	os.Exit(m.Run())
}

// onLoopback keeps a server to the loopback interface.
func onLoopback(_, _ string, c syscall.RawConn) (err error) {
	c.Control(func(fd uintptr) { err = unix.BindToDevice(int(fd), "lo") })
	return err
}

// The addresses on which a server started with asServer accepts connections.
const (
	toLoopback = "loopback" // all addresses of the loopback interface
	toAll      = "all"      // all addresses
)

// serve accepts connections, prints the port, and ends with its input.
func serve(to string) {
	config := &net.ListenConfig{}
	if to != toAll {
		config.Control = onLoopback
	}
	l, err := config.Listen(context.Background(), "tcp4", "0.0.0.0:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(l.Addr().(*net.TCPAddr).Port)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	os.Stdin.Read(make([]byte, 1))
}

// server starts a process that accepts connections on 127.0.0.0/8, and returns its port.
func server(b testing.TB) uint16 {
	b.Helper()
	return serverIn(b, nil, toLoopback)
}

// serverIn is server in a network namespace, nil: in this one, that accepts connections to toLoopback or toAll.
func serverIn(b testing.TB, ns *namespace.Namespace, to string) uint16 {
	b.Helper()
	command := exec.Command(os.Args[0])
	command.Env = append(os.Environ(), asServer+"="+to)
	in, err := command.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := command.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	start := command.Start
	if ns != nil {
		start = func() error { return ns.Do(command.Start) }
	}
	if err := start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		in.Close()
		command.Wait()
	})
	var port uint16
	if _, err := fmt.Fscan(out, &port); err != nil {
		b.Fatal("starting the server: ", err)
	}
	return port
}

// observer notes when checks start, and counts how they end.
type observer struct {
	health.Checker
	starts           []start
	next             atomic.Int64
	passed, open, no atomic.Int64
}

type start struct {
	address netip.Addr
	at      time.Time
}

func (o *observer) Check(ctx context.Context, e health.Endpoint, c *lb.Check, report func(health.Step)) health.Answer {
	o.begins(e)
	answer := o.Checker.Check(ctx, e, c, report)
	o.ends(answer)
	return answer
}

func (o *observer) Start(ctx context.Context, e health.Endpoint, c *lb.Check, within time.Duration,
	done func(health.Answer)) bool {
	begun := o.Checker.(health.Starter).Start(ctx, e, c, within, func(answer health.Answer) {
		o.ends(answer)
		done(answer)
	})
	if begun {
		o.begins(e)
	}
	return begun
}

func (o *observer) begins(e health.Endpoint) {
	if i := o.next.Add(1) - 1; i < int64(len(o.starts)) {
		o.starts[i] = start{e.Address, time.Now()}
	}
}

func (o *observer) ends(answer health.Answer) {
	switch answer.Outcome {
	case health.Passed:
		o.passed.Add(1)
	case health.Failed:
		o.no.Add(1)
	default:
		o.open.Add(1)
	}
}

// BenchmarkEngine runs checks of type tcp over loopback for some intervals, against a server in another process: it
// measures the CPU time that they take (the kernel's part of both ends' packets included, for loopback delivers in the
// sender's time), memory, lateness, and the busiest 100 ms.
func BenchmarkEngine(b *testing.B) {
	testenv.Root(b)
	for _, c := range []struct {
		endpoints, services int
		interval, lasts     time.Duration
		hangs               bool
	}{
		{5_000, 1, time.Second, 20 * time.Second, false},
		{5_000, 2, time.Second, 20 * time.Second, false},
		{100_000, 1, 10 * time.Second, 30 * time.Second, false},
		{100_000, 1, 10 * time.Second, 30 * time.Second, true},
	} {
		name := fmt.Sprintf("%dx%v", c.endpoints, c.interval)
		if c.services > 1 {
			name += fmt.Sprintf("/services=%d", c.services)
		}
		if c.hangs {
			name += "/hang"
		}
		b.Run(name, func(b *testing.B) {
			port := server(b)
			for range b.N {
				measure(b, c.endpoints, c.services, c.interval, c.lasts, port, c.hangs)
			}
		})
	}
}

// BenchmarkDialer is the baseline for the engine's figures: net.Dialer's connections to the same server, one after the
// other, by the same machine in the same hour.
func BenchmarkDialer(b *testing.B) {
	testenv.Root(b)
	to := net.JoinHostPort("127.0.0.1", fmt.Sprint(server(b)))
	cpu := used(b)
	for b.Loop() {
		c, err := (&net.Dialer{Timeout: time.Second}).Dial("tcp", to)
		if err != nil {
			b.Fatal(err)
		}
		c.Close()
	}
	b.ReportMetric(float64((used(b)-cpu).Microseconds())/float64(b.N), "us/check")
}

// BenchmarkSystemCalls is the least cost of 5,000 checks a second: socket, connect and close of as many endpoints at
// the engine's pace, some every 4 ms, and nothing else.
func BenchmarkSystemCalls(b *testing.B) {
	testenv.Root(b)
	const endpoints, pace, lasts = 5_000, 4 * time.Millisecond, 20 * time.Second
	port := server(b)
	for range b.N {
		made, tick, cpu, start := 0, time.NewTicker(pace), used(b), time.Now()
		for took := time.Duration(0); took < lasts; took = time.Since(start) {
			<-tick.C
			for ; made < int(time.Since(start).Seconds()*endpoints); made++ {
				openAndClose(b, &unix.SockaddrInet4{Port: int(port), Addr: loopbackAddress(made % endpoints).As4()})
			}
		}
		tick.Stop()
		took := time.Since(start)
		cpu = used(b) - cpu
		b.ReportMetric(cpu.Seconds()/took.Seconds(), "cores")
		b.ReportMetric(float64(cpu.Microseconds())/float64(made), "us/check")
		b.ReportMetric(float64(made)/took.Seconds(), "checks/s")
	}
}

// openAndClose opens a connection and ends it, in as few system calls as can be.
func openAndClose(b *testing.B, to unix.Sockaddr) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		b.Fatal(err)
	}
	if err := unix.Connect(fd, to); err != nil && err != unix.EINPROGRESS {
		b.Fatal(err)
	}
	unix.Close(fd)
}

// silentPort has a server on all addresses of the loopback interface that reads nothing.
func silentPort(b *testing.B) uint16 {
	b.Helper()
	l, err := (&net.ListenConfig{Control: onLoopback}).ListenPacket(b.Context(), "udp4", "0.0.0.0:0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { l.Close() })
	return uint16(l.LocalAddr().(*net.UDPAddr).Port)
}

func measure(b *testing.B, endpoints, services int, interval, lasts time.Duration, port uint16, hangs bool) {
	check := lb.Check{Type: lb.CheckTCP, Via: lb.ViaAddress, Port: port, Interval: interval, Timeout: time.Second,
		Rise: 2, Fall: 3}
	if hangs {
		// A datagram that nothing answers.
		check.Type, check.UDP, check.Port = lb.CheckUDP, &lb.UDPCheck{Send: []byte("?"), Expect: []byte("!")},
			silentPort(b)
	}
	var wanted []health.Wanted
	for s := range services {
		service := lb.ServiceKey{VIP: netip.MustParseAddr("192.0.2.1"), Port: uint16(1 + s), Protocol: lb.TCP}
		for i := range endpoints {
			key := lb.BackendKey{Service: service, Address: loopbackAddress(i), Port: port}
			wanted = append(wanted, health.Wanted{Backend: key, Checks: []lb.Check{check}})
		}
	}
	var before runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	o := &observer{Checker: checker.New(nil),
		starts: make([]start, 2*int(float64(endpoints)*lasts.Seconds()/interval.Seconds()))}
	e := health.New(health.Options{Checker: o, Log: slog.New(slog.DiscardHandler)})
	began := time.Now()
	e.SetTargets(wanted)
	b.ReportMetric(float64(time.Since(began).Milliseconds()), "ms/Watch")
	ctx, cancel := context.WithTimeout(b.Context(), lasts)
	defer cancel()
	cpu, start := used(b), time.Now()
	var most uint64
	go func() {
		for tick := time.Tick(100 * time.Millisecond); ctx.Err() == nil; <-tick {
			var now runtime.MemStats
			runtime.ReadMemStats(&now)
			most = max(most, now.HeapInuse+now.StackInuse)
		}
	}()
	e.Run(ctx)
	cpu = used(b) - cpu
	took := time.Since(start)
	report(b, o, e, interval, start, took, cpu)
	b.ReportMetric(float64(most-before.HeapInuse-before.StackInuse-uint64(len(o.starts)*48))/(1<<20), "MiB-most")
	runtime.KeepAlive(wanted)
}

// used returns the CPU time of this process.
func used(b *testing.B) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func report(b *testing.B, o *observer, e *health.Engine, interval time.Duration, ran time.Time, took,
	cpu time.Duration) {
	starts := o.starts[:min(len(o.starts), int(o.next.Load()))]
	const window = 100 * time.Millisecond
	perWindow := make([]int, int(took/window)+2)
	phases := e.Phases()
	var late []time.Duration
	for _, s := range starts {
		// Not from the engine's beginning: Watch of so many comes before the first window.
		perWindow[min(int(s.at.Sub(ran)/window), len(perWindow)-1)]++
		at := s.at.Sub(e.Began())
		if phase, ok := phases[s.address]; ok {
			late = append(late, (at-phase)%interval)
		}
	}
	slices.Sort(late)
	b.ReportMetric(cpu.Seconds()/took.Seconds(), "cores")
	b.ReportMetric(float64(cpu.Microseconds())/float64(len(starts)), "us/check")
	b.ReportMetric(float64(len(starts))/took.Seconds(), "checks/s")
	b.ReportMetric(float64(slices.Max(perWindow))/(float64(len(starts))/took.Seconds()*window.Seconds()),
		"busiest/mean")
	if len(late) > 0 {
		b.ReportMetric(float64(late[len(late)*99/100].Microseconds())/1000, "ms-late-p99")
	}
	b.ReportMetric(float64(o.no.Load()), "failed")
	b.ReportMetric(float64(o.open.Load()), "left-open")
}

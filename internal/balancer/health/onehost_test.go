// SPDX-License-Identifier: Apache-2.0

package health_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/balancer/health"
	"github.com/jeoul/jeoul/internal/balancer/health/checker"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/host/namespace"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

// asOneHost tells the test's own program, started again, which ports of one host it is to check, and asListener that it
// is to listen on all those ports.
const (
	asOneHost  = "JEOUL_TEST_CHECK_ONE_HOST"
	asListener = "JEOUL_TEST_LISTEN"
)

// The host's ports, and how many files the process that checks them may have open.
const (
	onePorts, oneFirstPort = 4_000, 10_000
	oneOpenFiles           = 1024
)

// oneReport is the state of the process that checks, as of now.
type oneReport struct {
	Healthy, Failing int // of the host's ports
	Neighbour        lb.Health
	Running, Files   int // the most
	HeapMiB          uint64
	Log              string // but for lines that say that this machine is busy
}

// TestThousandsOfChecksOfOneHost has a process that may open 1,024 files check 4,000 ports of one host, which answers,
// refuses, or says nothing. Every port gets its verdict; no more checks run than half of those files; and where they
// would have to, they wait their turn, which is logged, and keep no other host from being asked.
func TestThousandsOfChecksOfOneHost(t *testing.T) {
	testenv.Root(t)
	ns := testenv.Namespace(t)
	silence(t, ns, "192.0.2.1")
	if _, err := fmt.Fscanln(again(t, ns, asListener, "127.0.0.1"), new(string)); err != nil {
		t.Fatal("listening on all ports: ", err)
	}
	for _, c := range []struct {
		name, host string
		failing    bool
		log        string
	}{
		{"answers", "127.0.0.1", false, ""},
		{"refuses", "127.0.0.2", true, ""},
		{"is silent", "192.0.2.1", true, "as many run as may"},
	} {
		t.Run(c.name, func(t *testing.T) {
			reports := json.NewDecoder(again(t, ns, asOneHost, c.host))
			var last oneReport
			deadline := time.Now().Add(3 * time.Minute)
			for last.Neighbour != lb.Healthy || c.failing && last.Failing < onePorts || !c.failing &&
				last.Healthy < onePorts {
				if err := reports.Decode(&last); err != nil || time.Now().After(deadline) {
					t.Fatalf("%v; the last report is %+v", err, last)
				}
			}
			t.Logf("%+v", last)
			if last.Running > oneOpenFiles/2 || last.Files >= oneOpenFiles || last.HeapMiB > 64 {
				t.Errorf("it needs too much: %+v", last)
			}
			if lines := strings.Count(last.Log, "\n"); (c.log == "") != (lines == 0) || lines > 1 ||
				!strings.Contains(last.Log, c.log) {
				t.Errorf("the log is %q, and should say %q", last.Log, c.log)
			}
		})
	}
}

// silence has nothing answer at an address: its packets come to a namespace that does not have it.
func silence(t *testing.T, ns *namespace.Namespace, address string) {
	t.Helper()
	near := testenv.End{Namespace: ns, Name: "near", Addresses: []netip.Prefix{netip.MustParsePrefix("192.0.2.2/24")}}
	_, mac := testenv.Veth(t, near, testenv.End{Namespace: testenv.Namespace(t), Name: "far"})
	testenv.In(t, ns, func() error {
		link, err := netlink.LinkByName(near.Name)
		if err != nil {
			return err
		}
		return netlink.NeighSet(&netlink.Neigh{LinkIndex: link.Attrs().Index, State: netlink.NUD_PERMANENT,
			IP: net.ParseIP(address), HardwareAddr: mac})
	})
}

// again starts the test's own program again in a namespace, in the role in that variable, and returns its output until
// the test ends.
func again(t *testing.T, ns *namespace.Namespace, as, value string) io.Reader {
	t.Helper()
	command := exec.Command(os.Args[0])
	command.Env = append(os.Environ(), as+"="+value)
	command.Stderr = t.Output()
	in, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	testenv.In(t, ns, command.Start)
	t.Cleanup(func() {
		in.Close()
		io.Copy(io.Discard, out) // it may be in the middle of a line
		command.Wait()
	})
	return out
}

// untilEOF returns a context that ends with the input.
func untilEOF() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	return ctx
}

// listenOnPorts accepts connections on all ports of an address until its input ends, and says when it does.
func listenOnPorts(address string) error {
	// The limit may be below that many files.
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 2 * onePorts, Max: 2 * onePorts}); err != nil {
		return err
	}
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return err
	}
	for i := range onePorts {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			return err
		}
		if err := unix.Bind(fd,
			&unix.SockaddrInet4{Port: oneFirstPort + i, Addr: netip.MustParseAddr(address).As4()}); err != nil {
			return err
		}
		if err := unix.Listen(fd, 16); err != nil {
			return err
		}
		if err := unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, fd,
			&unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}); err != nil {
			return err
		}
	}
	fmt.Println("listening")
	events := make([]unix.EpollEvent, 256)
	for ctx := untilEOF(); ctx.Err() == nil; {
		n, err := unix.EpollWait(epoll, events, 100)
		if err != nil && err != unix.EINTR {
			return err
		}
		for _, e := range events[:max(n, 0)] {
			if fd, _, err := unix.Accept(int(e.Fd)); err == nil {
				unix.Close(fd)
			}
		}
	}
	return nil
}

// crowd counts the checks that run.
type crowd struct {
	*checker.Checker
	now, most atomic.Int64
}

func (c *crowd) Start(ctx context.Context, e health.Endpoint, check *lb.Check, within time.Duration,
	done func(health.Answer)) bool {
	for n := c.now.Add(1); ; {
		if most := c.most.Load(); n <= most || c.most.CompareAndSwap(most, n) {
			break
		}
	}
	return c.Checker.Start(ctx, e, check, within, func(answer health.Answer) {
		c.now.Add(-1)
		done(answer)
	})
}

// checkOneHost checks all ports of a host, and one of 127.0.0.1, until its input ends, and reports.
func checkOneHost(host string) error {
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: oneOpenFiles, Max: oneOpenFiles}); err != nil {
		return err
	}
	check := lb.Check{Type: lb.CheckTCP, Via: lb.ViaAddress, Interval: 1600 * time.Millisecond,
		Timeout: 250 * time.Millisecond, Rise: 1, Fall: 1}
	var wanted []health.Wanted
	watch := func(vip, address string, port uint16) lb.BackendKey {
		service := lb.ServiceKey{VIP: netip.MustParseAddr(vip), Port: port, Protocol: lb.TCP}
		key := lb.BackendKey{Service: service, Address: netip.MustParseAddr(address), Port: port}
		wanted = append(wanted, health.Wanted{Backend: key, Checks: []lb.Check{check}})
		return key
	}
	// 4,000 ports in 1.6 s are 2,500 checks a second: of those that hang, 512 at a time end no more than 2,048.
	for i := range onePorts {
		watch("198.51.100.1", host, uint16(oneFirstPort+i))
	}
	neighbour := watch("198.51.100.2", "127.0.0.1", oneFirstPort)
	c := &crowd{Checker: checker.New(nil)}
	var log lockedBuffer
	e := health.New(health.Options{Checker: c, Log: slog.New(slog.NewTextHandler(&log, nil))})
	e.SetTargets(wanted)
	ctx := untilEOF()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		e.Run(ctx)
	}()
	var report oneReport
	for tick := time.Tick(200 * time.Millisecond); ctx.Err() == nil; <-tick {
		report.take(e, neighbour, c, log.String())
		if err := json.NewEncoder(os.Stdout).Encode(report); err != nil {
			break
		}
	}
	<-ended
	return nil
}

func (r *oneReport) take(e *health.Engine, neighbour lb.BackendKey, c *crowd, log string) {
	r.Healthy, r.Failing, r.Log = 0, 0, ""
	for line := range strings.Lines(log) {
		if !strings.Contains(line, "this host was busy") {
			r.Log += line
		}
	}
	for key, verdict := range e.Verdicts() {
		switch {
		case key == neighbour:
			r.Neighbour = verdict.State
		case verdict.State == lb.Healthy:
			r.Healthy++
		case verdict.State == lb.Failing:
			r.Failing++
		}
	}
	files, _ := os.ReadDir("/proc/self/fd")
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	r.Files, r.Running, r.HeapMiB = max(r.Files, len(files)), int(c.most.Load()), max(r.HeapMiB, memory.HeapInuse>>20)
}

// lockedBuffer is a buffer that may be written and read at a time.
type lockedBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.String()
}

// SPDX-License-Identifier: Apache-2.0

package health_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/health"
	"github.com/jeoul/jeoul/internal/health/checker"
	"github.com/jeoul/jeoul/internal/lb"
	"github.com/jeoul/jeoul/internal/namespace"
	"github.com/jeoul/jeoul/internal/testenv"
)

// asEngine says to the test's own program, started anew, that it is to check: how many endpoints,
// how often, at which port.
const asEngine = "JEOUL_TEST_CHECK"

// loopbackAddress is that of endpoint i of a server on all addresses of the loopback interface.
func loopbackAddress(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{127, byte(1 + i>>16), byte(i >> 8), byte(i)})
}

// runEngine checks what the text says until its input ends.
func runEngine(text string) {
	var endpoints, seconds int
	var port uint16
	if _, err := fmt.Sscan(text, &endpoints, &seconds, &port); err != nil {
		fmt.Println(err)
		return
	}
	check := lb.Check{Type: lb.CheckTCP, Via: lb.ViaAddress, Port: port, Interval: time.Duration(seconds) * time.Second,
		Timeout: time.Second, Rise: 2, Fall: 3}
	service := lb.ServiceKey{VIP: netip.MustParseAddr("192.0.2.1"), Port: 80, Protocol: lb.TCP}
	var wanted []health.Wanted
	for i := range endpoints {
		wanted = append(wanted, health.Wanted{Backend: lb.BackendKey{Service: service, Address: loopbackAddress(i), Port: port}, Checks: []lb.Check{check}})
	}
	e := health.New(health.Options{Checker: checker.New(nil), Log: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	e.Watch(wanted)
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		os.Stdin.Read(make([]byte, 1))
		cancel()
	}()
	e.Run(ctx)
}

// measuredSeconds is for how long a program's CPU time is read, a sample a second.
const measuredSeconds = 15

// TestMeasureCost measures what CPU time a process takes for checks that open a TCP connection: ours
// and HAProxy's, by turns, of the same endpoints on the loopback interface of a network namespace.
func TestMeasureCost(t *testing.T) {
	dir := os.Getenv("JEOUL_MEASURE")
	if dir == "" {
		t.Skip("this measures: make bench-health, or JEOUL_MEASURE=DIRECTORY")
	}
	file, err := os.Create(filepath.Join(dir, "health-cost.txt"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	haproxy := testenv.Program(t, "haproxy")
	ns := testenv.Namespace(t)
	port := serverIn(t, ns)
	describe(t, file, haproxy)
	for _, c := range []struct{ endpoints, seconds, repeats int }{{5_000, 1, 3}, {100_000, 10, 1}} {
		for range c.repeats {
			costs(t, file, ns, "jeoul", c.endpoints, c.seconds, engine(c.endpoints, c.seconds, port))
			costs(t, file, ns, "haproxy", c.endpoints, c.seconds, exec.Command(haproxy, "-db", "-f", haproxyFile(t, c.endpoints, c.seconds, port)))
		}
	}
}

// describe writes where and what is measured.
func describe(t *testing.T, file io.Writer, haproxy string) {
	t.Helper()
	version, err := exec.Command(haproxy, "-v").Output()
	if err != nil {
		t.Fatal(err)
	}
	var uname unix.Utsname
	if err := unix.Uname(&uname); err != nil {
		t.Fatal(err)
	}
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(file, "# CPU time of the process that checks, ms in each second (user and system, /proc/PID/stat): type tcp, rise 2, fall 3,\n"+
		"# timeout 1s. Loopback delivers packets in the sender's time, so the kernel's work for the server's end is in it.\n"+
		"# checks: connections that the server's namespace has taken (Tcp PassiveOpens); resets: those it sent, of both ends (OutRsts)\n"+
		"# Linux %s, %d processors, %s, %s, load average %s", unix.ByteSliceToString(uname.Release[:]), runtime.NumCPU(), runtime.Version(),
		strings.SplitN(string(version), "\n", 2)[0], load)
}

func engine(endpoints, seconds int, port uint16) *exec.Cmd {
	command := exec.Command(os.Args[0])
	command.Env = append(os.Environ(), fmt.Sprintf("%s=%d %d %d", asEngine, endpoints, seconds, port))
	return command
}

// haproxyFile writes a configuration with as many servers, which are checked as often. HAProxy wants an
// open file for each of them, and with its strict limits it would not start where it may not have so many.
func haproxyFile(t *testing.T, endpoints, seconds int, port uint16) string {
	t.Helper()
	var text strings.Builder
	fmt.Fprintf(&text, "global\n\tnbthread 1\n\tmaxconn 100\n\tno strict-limits\ndefaults\n\tmode tcp\n\ttimeout connect 1s\n\ttimeout client 1s\n\ttimeout server 1s\n"+
		"\tdefault-server inter %ds fastinter %ds downinter %ds rise 2 fall 3\nfrontend f\n\tbind 127.0.0.1:1\n\tdefault_backend b0\n", seconds, seconds, seconds)
	for i := range endpoints {
		if i%1000 == 0 { // it looks each name up among all others of its backend
			fmt.Fprintf(&text, "backend b%d\n", i/1000)
		}
		fmt.Fprintf(&text, "\tserver s%d %s:%d check\n", i, loopbackAddress(i), port)
	}
	path := filepath.Join(t.TempDir(), "haproxy.cfg")
	if err := os.WriteFile(path, []byte(text.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// costs runs a program until it has made checks of a tenth of the endpoints, and writes what it takes from then on.
func costs(t *testing.T, file io.Writer, ns *namespace.Namespace, name string, endpoints, seconds int, command *exec.Cmd) {
	t.Helper()
	var output strings.Builder
	in, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	command.Stdout, command.Stderr = &output, &output
	testenv.In(t, ns, command.Start)
	defer func() {
		in.Close()
		command.Process.Kill()
		command.Wait()
	}()
	opened := func() (opens, resets float64) {
		p, err := procfs.NewProc(command.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		snmp, err := p.Snmp()
		if err != nil || snmp.PassiveOpens == nil || snmp.OutRsts == nil {
			t.Fatalf("%s: reading counters: %v\n%s", name, err, output.String())
		}
		return *snmp.PassiveOpens, *snmp.OutRsts
	}
	cpu := func() float64 {
		p, err := procfs.NewProc(command.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		stat, err := p.Stat()
		if err != nil {
			t.Fatal(err)
		}
		return stat.CPUTime()
	}
	before, _ := opened()
	testenv.Eventually(t, 2*time.Minute, name+" has begun", func() bool {
		now, _ := opened()
		return now-before > float64(endpoints)/10
	})
	opens, resets := opened()
	start, last := time.Now(), cpu()
	first := last
	fmt.Fprintf(file, "%s %d x %ds:", name, endpoints, seconds)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for range measuredSeconds {
		<-tick.C
		now := cpu()
		fmt.Fprintf(file, " %.0f", (now-last)*1000)
		last = now
	}
	took := time.Since(start).Seconds()
	afterOpens, afterResets := opened()
	checks := afterOpens - opens
	fmt.Fprintf(file, "\n  %.0f checks (%.0f a second), %.3f cores, %.1f us a check, %.2f resets a check\n", checks, checks/took,
		(last-first)/took, (last-first)*1e6/checks, (afterResets-resets)/checks)
}

// SPDX-License-Identifier: Apache-2.0

package health_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/balancer/health"
	"github.com/jeoul/jeoul/internal/balancer/health/checker"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/host/namespace"
	"github.com/jeoul/jeoul/internal/host/softirq"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

// asEngine says to the test's own program, started again, that it is to check: how many endpoints, how often, at which
// port, from which address on.
const asEngine = "JEOUL_TEST_CHECK"

// The endpoints that are checked have addresses that follow each other, from these on.
var (
	// onLoopbackFrom are addresses of the loopback interface.
	onLoopbackFrom = netip.AddrFrom4([4]byte{127, 1, 0, 0})
	// beyondFrom is the first address of the range for benchmarks (RFC 2544), behind a link.
	beyondFrom = netip.AddrFrom4([4]byte{198, 18, 0, 0})
)

// loopbackAddress is the address of endpoint i of a server on all addresses of the loopback interface.
func loopbackAddress(i int) netip.Addr { return addressFrom(onLoopbackFrom, i) }

// addressFrom is the address i behind the first, which ends in two zeros.
func addressFrom(first netip.Addr, i int) netip.Addr {
	a := first.As4()
	return netip.AddrFrom4([4]byte{a[0], a[1] + byte(i>>16), byte(i >> 8), byte(i)})
}

// runEngine makes the checks in the text until its input ends.
func runEngine(text string) {
	var endpoints, seconds int
	var port uint16
	var from string
	if _, err := fmt.Sscan(text, &endpoints, &seconds, &port, &from); err != nil {
		fmt.Println(err)
		return
	}
	first := netip.MustParseAddr(from)
	check := lb.Check{Type: lb.CheckTCP, Via: lb.ViaAddress, Port: port, Interval: time.Duration(seconds) * time.Second,
		Timeout: time.Second, Rise: 2, Fall: 3}
	service := lb.ServiceKey{VIP: netip.MustParseAddr("192.0.2.1"), Port: 80, Protocol: lb.TCP}
	var wanted []health.Wanted
	for i := range endpoints {
		wanted = append(wanted,
			health.Wanted{Backend: lb.BackendKey{Service: service, Address: addressFrom(first, i), Port: port},
				Checks: []lb.Check{check}})
	}
	e := health.New(health.Options{Checker: checker.New(nil), Log: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	e.SetTargets(wanted)
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		os.Stdin.Read(make([]byte, 1))
		cancel()
	}()
	e.Run(ctx)
}

// measuredSeconds is for how long a program's CPU time is read, a sample a second.
const measuredSeconds = 15

// measureInto is the variable with the directory for measurements, which `make bench-health` sets.
const measureInto = "JEOUL_MEASURE"

// fewEndpoints is how many endpoints are checked, each every second, in place of many more: in a machine
// that is emulated.
const fewEndpoints = "JEOUL_MEASURE_ENDPOINTS"

// measured returns a file for a measurement, or skips the test.
func measured(t *testing.T, name string) *os.File {
	t.Helper()
	dir := os.Getenv(measureInto)
	if dir == "" {
		t.Skipf("this measures: make bench-health, or %s=DIRECTORY", measureInto)
	}
	file, err := os.Create(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	return file
}

// TestMeasureCost measures the CPU time that a process takes for checks that open a TCP connection: ours, HAProxy's
// and, where the kernel has IPVS, keepalived's, by turns, of the same endpoints: on the loopback interface of a network
// namespace, and behind a link.
func TestMeasureCost(t *testing.T) {
	file := measured(t, costFile)
	haproxy, keepalived := testenv.Program(t, "haproxy"), keepalivedWithIPVS(t)
	describe(t, file, haproxy, keepalived)
	loopback := onLoopbackStand(t, file)
	if few, err := strconv.Atoi(os.Getenv(fewEndpoints)); err == nil {
		loopback.weigh(t, haproxy, keepalived, few, 1, 3)
		text, err := os.ReadFile(file.Name())
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s\n%s", measuredHere, text)
		return
	}
	beyond := beyondStand(t, file)
	loopback.weigh(t, haproxy, keepalived, 5_000, 1, 2)
	beyond.weigh(t, haproxy, keepalived, 5_000, 1, 3)
	beyond.weigh(t, haproxy, keepalived, 100_000, 10, 1)
}

// measuredHere stands before the measurements of a virtual machine.
const measuredHere = "measured:"

// TestMeasureCostInVM is TestMeasureCost of few endpoints in a virtual machine whose kernel has IPVS, without which
// keepalived does not check.
func TestMeasureCostInVM(t *testing.T) {
	if os.Getenv("JEOUL_TEST_VM") == "" {
		t.Skip("JEOUL_TEST_VM is not set")
	}
	file := measured(t, "health-cost-vm.txt")
	_, text, found := strings.Cut(inVM(t, "TestMeasureCost"), measuredHere)
	if !found {
		t.Fatal("the machine has measured nothing")
	}
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "---") && line != "PASS" {
			fmt.Fprintln(file, line)
		}
	}
}

// stand is where checks are made: by a process in a network namespace, of a server's addresses.
type stand struct {
	name             string
	checking, server *namespace.Namespace
	first            netip.Addr
	port             uint16
	// file is the destination of measurements.
	file io.Writer
	// With a link between the two, whose end is the device, the meter measures the work of the kernel for the packets
	// that arrive at each end. Without, all of it is the process's.
	meter  *softirq.Meter
	device softirq.Device
}

// onLoopbackStand has the server in the same network namespace.
func onLoopbackStand(t *testing.T, file io.Writer) *stand {
	t.Helper()
	ns := testenv.Namespace(t)
	return &stand{name: "loopback", checking: ns, server: ns, first: onLoopbackFrom, port: serverIn(t, ns, toLoopback),
		file: file}
}

// beyondStand has the server in another network namespace, as on another machine.
func beyondStand(t *testing.T, file io.Writer) *stand {
	t.Helper()
	s := &stand{name: "link", checking: testenv.Namespace(t), server: testenv.Namespace(t), first: beyondFrom,
		file: file}
	near, far := netip.MustParsePrefix("192.0.2.1/30"), netip.MustParsePrefix("192.0.2.2/30")
	testenv.Veth(t, testenv.End{Namespace: s.checking, Name: "near", Addresses: []netip.Prefix{near}},
		testenv.End{Namespace: s.server, Name: "far", Addresses: []netip.Prefix{far}})
	all := netip.PrefixFrom(beyondFrom, 15)
	testenv.In(t, s.checking, func() error {
		link, err := netlink.LinkByName("near")
		if err != nil {
			return err
		}
		s.device = softirq.Device{Namespace: s.checking.Inode(), Index: link.Attrs().Index}
		return netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: ipNet(all),
			Gw: far.Addr().AsSlice()})
	})
	testenv.In(t, s.server, func() error { // every address of theirs is its own
		return netlink.RouteAdd(&netlink.Route{LinkIndex: 1, Dst: ipNet(all), Type: unix.RTN_LOCAL,
			Table: unix.RT_TABLE_LOCAL, Scope: netlink.SCOPE_HOST})
	})
	s.port = serverIn(t, s.server, toAll)
	meter, err := softirq.NewMeter()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { meter.Close() })
	if err := meter.Packets(true); err != nil {
		t.Fatal(err)
	}
	s.meter = meter
	return s
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// weigh measures the programs by turns.
func (s *stand) weigh(t *testing.T, haproxy, keepalived string, endpoints, seconds, repeats int) {
	t.Helper()
	for range repeats {
		s.costs(t, "jeoul", endpoints, seconds, s.engine(endpoints, seconds))
		s.costs(t, "haproxy", endpoints, seconds,
			exec.Command(haproxy, "-db", "-f", s.haproxyFile(t, endpoints, seconds)))
		if keepalived != "" {
			s.costs(t, "keepalived", endpoints, seconds, s.keepalived(t, keepalived, endpoints, seconds))
		}
	}
}

// costFile is the file that TestMeasureCost writes.
const costFile = "health-cost.txt"

// keepalivedWithIPVS returns the path of keepalived; empty where it is not installed, or the kernel has no
// IPVS, without which it does not check.
func keepalivedWithIPVS(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("keepalived")
	if err == nil {
		_, err = os.Stat("/proc/net/ip_vs")
	}
	if err != nil {
		t.Logf("without keepalived: %v", err)
		return ""
	}
	return path
}

// keepalived is keepalived with one service of as many servers, which are checked as often.
func (s *stand) keepalived(t *testing.T, program string, endpoints, seconds int) *exec.Cmd {
	t.Helper()
	var text strings.Builder
	fmt.Fprintf(&text,
		"global_defs {\n\trouter_id measured\n}\nvirtual_server 127.0.0.1 1 {\n\tprotocol TCP\n\tlvs_sched rr\n\tlvs_method DR\n\tdelay_loop %d\n"+
			"\tconnect_timeout 1\n\tretry 2\n\tdelay_before_retry %d\n", seconds, seconds)
	for i := range endpoints {
		fmt.Fprintf(&text, "\treal_server %s %d {\n\t\tTCP_CHECK {\n\t\t}\n\t}\n", addressFrom(s.first, i), s.port)
	}
	text.WriteString("}\n")
	dir := t.TempDir()
	path := filepath.Join(dir, "keepalived.conf")
	if err := os.WriteFile(path, []byte(text.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	return exec.Command(program, "--check", "--dont-fork", "--log-console", "--use-file", path,
		"--pid", filepath.Join(dir, "keepalived.pid"), "--checkers_pid", filepath.Join(dir, "checkers.pid"))
}

// describe writes the machine, and the settings of the measurement.
func describe(t *testing.T, file io.Writer, haproxy, keepalived string) {
	t.Helper()
	versions := firstLine(t, haproxy, "-v")
	if keepalived != "" {
		versions += ", " + firstLine(t, keepalived, "--version")
	}
	var uname unix.Utsname
	if err := unix.Uname(&uname); err != nil {
		t.Fatal(err)
	}
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(file,
		"# CPU time of checks, ms in each second: type tcp, rise 2, fall 3, timeout 1s. On loopback, of the process that checks (user and system,\n"+
			"# /proc/PID/stat, with its children): the kernel delivers packets in the sender's time, so its work for the server's end is in it. Over a link\n"+
			"# (veth), of the process, and the kernel's for what arrives at its end, without what it did in the process's time for the server's end.\n"+
			"# checks: connections that were begun (Tcp ActiveOpens); resets: those that were sent where checks are made (OutRsts)\n"+
			"# Linux %s, %d processors, %s, %s, load average %s", unix.ByteSliceToString(uname.Release[:]),
		runtime.NumCPU(), runtime.Version(),
		versions, load)
}

// firstLine is the first line of a program's output of its version.
func firstLine(t *testing.T, program, flag string) string {
	t.Helper()
	text, err := exec.Command(program, flag).CombinedOutput()
	if err != nil {
		t.Fatal(err)
	}
	line, _, _ := strings.Cut(string(text), "\n")
	return line
}

func (s *stand) engine(endpoints, seconds int) *exec.Cmd {
	command := exec.Command(os.Args[0])
	command.Env = append(os.Environ(), fmt.Sprintf("%s=%d %d %d %s", asEngine, endpoints, seconds, s.port, s.first))
	return command
}

// haproxyFile writes a configuration with as many servers, which are checked as often. HAProxy wants an
// open file for each of them, and with its strict limits it would not start where it may not have so many.
func (s *stand) haproxyFile(t *testing.T, endpoints, seconds int) string {
	t.Helper()
	var text strings.Builder
	fmt.Fprintf(&text,
		"global\n\tnbthread 1\n\tmaxconn 100\n\tno strict-limits\ndefaults\n\tmode tcp\n\ttimeout connect 1s\n\ttimeout client 1s\n\ttimeout server 1s\n"+
			"\tdefault-server inter %ds fastinter %ds downinter %ds rise 2 fall 3\nfrontend f\n\tbind 127.0.0.1:1\n\tdefault_backend b0\n", seconds, seconds, seconds)
	for i := range endpoints {
		if i%1000 == 0 { // it looks each name up among all others of its backend
			fmt.Fprintf(&text, "backend b%d\n", i/1000)
		}
		fmt.Fprintf(&text, "\tserver s%d %s:%d check\n", i, addressFrom(s.first, i), s.port)
	}
	path := filepath.Join(t.TempDir(), "haproxy.cfg")
	if err := os.WriteFile(path, []byte(text.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// costs runs a program until it has made checks of a tenth of the endpoints, and writes the CPU time that it takes from
// then on.
func (s *stand) costs(t *testing.T, name string, endpoints, seconds int, command *exec.Cmd) {
	t.Helper()
	var output strings.Builder
	in, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	command.Stdout, command.Stderr = &output, &output
	testenv.In(t, s.checking, command.Start)
	defer func() {
		in.Close()
		for _, pid := range family(t, command.Process.Pid) {
			unix.Kill(pid, unix.SIGKILL)
		}
		command.Wait()
	}()
	before, _ := s.begun(t)
	testenv.Eventually(t, testenv.WaitLimit, name+" has begun", func() bool {
		now, _ := s.begun(t)
		return now-before > float64(endpoints)/10
	})
	opens, resets := s.begun(t)
	start, last := time.Now(), s.used(t, command.Process.Pid)
	first := last
	fmt.Fprintf(s.file, "%s, %s %d x %ds:", s.name, name, endpoints, seconds)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for range measuredSeconds {
		<-tick.C
		now := s.used(t, command.Process.Pid)
		fmt.Fprintf(s.file, " %.0f", (now.own-last.own)*1000)
		last = now
	}
	took := time.Since(start).Seconds()
	afterOpens, afterResets := s.begun(t)
	checks := afterOpens - opens
	fmt.Fprintf(s.file,
		"\n  %.0f checks (%.0f a second), %.3f cores, %.1f us a check; the process %.3f; %.2f resets a check\n", checks,
		checks/took,
		(last.own-first.own)/took, (last.own-first.own)*1e6/checks, (last.process-first.process)/took,
		(afterResets-resets)/checks)
	if checks < float64(endpoints)/float64(seconds) {
		t.Errorf("%s made %.0f checks in %v s\n%s", name, checks, took, output.String())
	}
}

// begun counts the connections that were begun where checks are made, and the resets that were sent there. The server
// does not count one that is reset before it is established, as HAProxy's are.
func (s *stand) begun(t *testing.T) (opens, resets float64) {
	t.Helper()
	var snmp procfs.ProcSnmp
	testenv.In(t, s.checking, func() error {
		p, err := procfs.NewProc(unix.Gettid()) // the thread's, which is in the namespace
		if err != nil {
			return err
		}
		snmp, err = p.Snmp()
		return err
	})
	if snmp.ActiveOpens == nil || snmp.OutRsts == nil {
		t.Fatal("the kernel counts neither connections nor resets")
	}
	return *snmp.ActiveOpens, *snmp.OutRsts
}

// usage is CPU time in seconds: of a process and its children, and of that and the kernel's work for its packets,
// without the kernel's work for others meanwhile.
type usage struct{ process, own float64 }

// used reads the CPU time of a process, whose network namespace has no other that works.
func (s *stand) used(t *testing.T, pid int) (u usage) {
	t.Helper()
	for _, pid := range family(t, pid) {
		p, err := procfs.NewProc(pid)
		if err != nil {
			t.Fatal(err)
		}
		stat, err := p.Stat()
		if err != nil {
			t.Fatal(err)
		}
		u.process += stat.CPUTime()
	}
	u.own = u.process
	if s.meter == nil {
		return u
	}
	work, err := s.meter.Read()
	if err != nil {
		t.Fatal(err)
	}
	u.own += (work.Devices[s.device] - work.PerNamespace[s.device.Namespace]).Seconds()
	return u
}

// family are a process and its children, one of which checks where the process is keepalived's.
func family(t *testing.T, pid int) []int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		t.Fatal(err)
	}
	pids := []int{pid}
	for _, word := range strings.Fields(string(text)) {
		child, err := strconv.Atoi(word)
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, child)
	}
	return pids
}

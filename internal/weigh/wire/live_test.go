// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"github.com/jeoul/jeoul/internal/host/namespace"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

// attach puts a program of a test on an interface.
func attach(t *testing.T, ns *namespace.Namespace, name string, code asm.Instructions) {
	t.Helper()
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, Instructions: code, License: "Dual BSD/GPL"})
	if err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(func() { program.Close() })
	testenv.In(t, ns, func() error {
		nic, err := net.InterfaceByName(name)
		if err != nil {
			return err
		}
		l, err := link.AttachXDP(link.XDPOptions{Program: program, Interface: nic.Index, Flags: link.XDPDriverMode})
		if err == nil {
			t.Cleanup(func() { l.Close() })
		}
		return err
	})
}

// pass returns a program that lets everything pass.
func pass() asm.Instructions { return asm.Instructions{asm.Mov.Imm(asm.R0, xdpPass), asm.Return()} }

// kernel is a namespace with the kernel's own stack, at the other end of a port's wire.
type kernel struct {
	ns, port *namespace.Namespace
	// The MAC addresses of the kernel's end and of the port's.
	mac, portMAC net.HardwareAddr
}

// newKernel connects a kernel's stack, which has an address, with a port's namespace: `host` and `port`. The kernel
// routes packets for a network to the port.
func newKernel(t *testing.T, address, network netip.Prefix) *kernel {
	t.Helper()
	k := &kernel{ns: testenv.Namespace(t), port: testenv.Namespace(t)}
	k.mac, k.portMAC = testenv.Veth(t, testenv.End{Namespace: k.ns, Name: "host", Addresses: []netip.Prefix{address}},
		testenv.End{Namespace: k.port, Name: "port"})
	withoutOffload(t, k.ns, "host")
	attach(t, k.ns, "host", pass())
	testenv.In(t, k.ns, func() error {
		nic, err := netlink.LinkByName("host")
		if err != nil {
			return err
		}
		return netlink.RouteAdd(&netlink.Route{LinkIndex: nic.Attrs().Index,
			Dst: &net.IPNet{IP: network.Addr().AsSlice(), Mask: net.CIDRMask(network.Bits(), 32)}})
	})
	return k
}

const nginxConfiguration = `daemon off; master_process off; pid %[1]s/pid; error_log stderr;
events { worker_connections 4096; }
http { access_log off; client_body_temp_path %[1]s/b; proxy_temp_path %[1]s/p; fastcgi_temp_path %[1]s/f;
  uwsgi_temp_path %[1]s/u; scgi_temp_path %[1]s/s;
  server { listen 198.18.0.100:80 backlog=8192; root %[1]s; } }
`

// startNginx serves a file of a size as /file.
func startNginx(t *testing.T, k *kernel, size int) {
	t.Helper()
	program := testenv.Program(t, "nginx")
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string]string{"conf": fmt.Sprintf(nginxConfiguration, dir),
		"file": strings.Repeat("x", size)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var output bytes.Buffer
	cmd := exec.Command(program, "-e", "stderr", "-g", "user root;", "-c", filepath.Join(dir, "conf"))
	cmd.Stderr = &output
	testenv.In(t, k.ns, cmd.Start)
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("nginx: %s", output.String())
		}
	})
	testenv.Eventually(t, testenv.WaitLimit, "nginx listens", func() bool {
		return k.ns.Do(func() error {
			c, err := net.DialTimeout("tcp", vip.String(), time.Second)
			if err == nil {
				c.Close()
			}
			return err
		}) == nil
	})
}

// TestAgainstKernel connects client ports to a real TCP stack and a real web server. The kernel resolves the clients by
// ARP.
func TestAgainstKernel(t *testing.T) {
	k := newKernel(t, netip.MustParsePrefix("198.18.0.100/32"), netip.MustParsePrefix("198.19.1.0/24"))
	startNginx(t, k, 20_000)
	r := &rig{spec: Spec{Target: vip, CPU: -1, Polite: true, Next: []net.HardwareAddr{k.mac},
		Clients: []Port{{Name: "client1", Interface: "port", Do: k.port.Do, Sources: sources(0)}}}}
	tester := r.open(t)
	for _, test := range []struct {
		name string
		load Load
	}{
		{"setup", Load{Kind: Setup, Connections: 3000, Rate: 5000}},
		{"session", Load{Kind: Session, Connections: 3000, Rate: 5000}},
		// The server closes; its answer is 15 segments, some of them at a time.
		{"closed by nginx", Load{Kind: Session, Connections: 500, Rate: 1000,
			Content: []byte("GET /file HTTP/1.0\r\n\r\n")}},
		{"closed by the client", Load{Kind: Session, Connections: 500, Rate: 1000, Response: 20_000,
			Content: []byte("GET /file HTTP/1.1\r\nHost: jeoul\r\n\r\n")}},
		// A frame of the kernel's has no room for such a request.
		{"a long request", Load{Kind: Session, Connections: 500, Rate: 1000,
			Content: []byte("GET /file HTTP/1.0\r\nX: " + strings.Repeat("x", 1400) + "\r\n\r\n")}},
		{"capacity", Load{Kind: Capacity, Connections: 2000, Rate: 5000, Response: 100,
			Content: []byte("HEAD /file HTTP/1.1\r\nHost: jeoul\r\n\r\n")}},
	} {
		t.Run(test.name, func(t *testing.T) {
			// A busy machine may lose a packet: it is sent again.
			test.load.Settle, test.load.Tries = 30*time.Second, 8
			s := run(t, tester, test.load)[0]
			if s.Succeeded() != s.Asked || s.Failed != (Failed{}) || s.Unexpected.Checksum+s.Unexpected.UnknownPeer+
				s.Unexpected.Malformed != 0 {
				t.Errorf("%+v", s)
			}
		})
	}
	t.Run("no server listens", func(t *testing.T) {
		r.spec.Target = netip.MustParseAddrPort("198.18.0.100:81")
		if err := tester.Close(); err != nil {
			t.Fatal(err)
		}
		if s := run(t, r.open(t), Load{Kind: Setup, Connections: 100, Rate: 1000})[0]; s.Failed.Reset != 100 ||
			s.Established != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// TestKernelAgainst sends requests from a real client to the server ports.
func TestKernelAgainst(t *testing.T) {
	curl := testenv.Program(t, "curl")
	// A user's proxy, which curl must not ask: there is no route to it.
	t.Setenv("http_proxy", "http://127.0.0.1:9")
	k := newKernel(t, netip.MustParsePrefix("198.18.1.1/32"), netip.MustParsePrefix("198.18.0.100/32"))
	testenv.In(t, k.ns, func() error {
		nic, err := netlink.LinkByName("host")
		if err != nil {
			return err
		}
		// Server ports leave ARP for the VIP to the balancer, and there is none here.
		return netlink.NeighAdd(&netlink.Neigh{LinkIndex: nic.Attrs().Index, State: netlink.NUD_PERMANENT,
			IP: vip.Addr().AsSlice(), HardwareAddr: k.portMAC})
	})
	r := &rig{spec: Spec{Target: vip, CPU: -1, Servers: []Port{{Interface: "port", Do: k.port.Do}}}}
	tester := r.open(t)
	if err := tester.Serve(Load{Kind: Session, Request: 1, Response: 10_000}); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		var out []byte
		testenv.In(t, k.ns, func() (err error) {
			out, err = exec.Command(curl, "-s", "-S", "--noproxy", "*", "--max-time", "20", "-i",
				"http://"+vip.String()+"/").CombinedOutput()
			return err
		})
		if len(out) != 10_000 || !bytes.HasPrefix(out, []byte("HTTP/1.1 200 OK\r\n")) {
			t.Fatalf("curl got %d bytes: %.300q", len(out), out)
		}
	}
	// A client of HTTP/1.0 waits for the end of the connection.
	if out := ask(t, k); len(out) != 10_000 {
		t.Errorf("got %d bytes until the end", len(out))
	}
	s, err := tester.Served()
	if u := s.Unexpected; err != nil || s.PerServer[0] != 6 || u.Checksum+u.Malformed+u.Unacknowledgeable != 0 {
		t.Errorf("%+v, error %v", s, err)
	}
}

// ask sends a request and reads until the other side closes.
func ask(t *testing.T, k *kernel) (answer []byte) {
	t.Helper()
	testenv.In(t, k.ns, func() error {
		c, err := net.DialTimeout("tcp", vip.String(), testenv.WaitLimit)
		if err != nil {
			return err
		}
		defer c.Close()
		if err := c.SetDeadline(time.Now().Add(testenv.WaitLimit)); err != nil {
			return err
		}
		if _, err := c.Write([]byte("GET / HTTP/1.0\r\n\r\n")); err != nil {
			return err
		}
		answer, err = io.ReadAll(c)
		return err
	})
	return answer
}

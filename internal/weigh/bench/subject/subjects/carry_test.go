// SPDX-License-Identifier: Apache-2.0

package subjects

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/net/ipv4"

	"github.com/jeoul/jeoul/internal/host/netdump"
	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/weigh/bench/probe"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
	"github.com/jeoul/jeoul/internal/weigh/lab"
)

const carryPort = 8053

// TestSubjectsCarry sends requests through every subject but ours, over TCP and, if the subject carries it, UDP. The
// tests of the experiments and package e2e test ours.
func TestSubjectsCarry(t *testing.T) {
	testenv.Root(t)
	l, err := lab.New(t.Context(), lab.Spec{Clients: 2, Servers: 2, Dir: filepath.Join(t.TempDir(), "lab")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, server := range l.Servers {
		serve(t, server)
	}
	before := balancerState(t, l)
	for _, s := range All() {
		if strings.HasPrefix(s.Name(), "jeoul-") { // the tests of internal/weigh/bench have our own binary
			continue
		}
		t.Run(s.Name(), func(t *testing.T) {
			_, err := s.Versions(t.Context())
			if errors.Is(err, probe.ErrNotInstalled) && optional(s) {
				t.Skip(err)
			}
			if err != nil {
				t.Fatal(err)
			}
			carries(t, l, s)
			if byIPVS(s) {
				forgets(t, l.Balancer)
			}
			if after := balancerState(t, l); !slices.Equal(before, after) {
				t.Errorf("the balancer was %v, and is %v", before, after)
			}
		})
	}
}

// optional reports whether a subject needs something that no package of `make deps` provides: a kernel module, or a
// program that Debian does not have or that it starts as a service.
func optional(s subject.Subject) bool {
	return byIPVS(s) || slices.Contains([]string{"envoy", "docker-proxy", "loxilb"}, s.Name())
}

// byIPVS reports whether the kernel's IPVS carries the connections of a subject.
func byIPVS(s subject.Subject) bool {
	return strings.HasPrefix(s.Name(), "ipvs-") || strings.HasPrefix(s.Name(), "keepalived-")
}

func carries(t *testing.T, l *lab.Lab, s subject.Subject) {
	params := subject.Params{}
	for _, param := range s.Params() {
		if param.Optional {
			continue
		}
		params[param.Name] = 1
		if param.Name == "splice" {
			params[param.Name] = "off"
		}
	}
	service := subject.Service{Port: carryPort, UDP: s.Can().UDP, Servers: l.Servers}
	running, err := s.Start(t.Context(), subject.Setup{Lab: l, Services: []subject.Service{service}}, params)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := running.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	}()
	if len(running.Notes()) == 0 && s.Name() != "direct" {
		t.Error("it says nothing of its set-up")
	}
	expect(t, s, "TCP", running, l, askTCP)
	if service.UDP {
		expect(t, s, "UDP", running, l, askUDP)
	}
}

// expect sends requests until both servers have answered. Subjects with round robin need only two connections for that.
func expect(t *testing.T, s subject.Subject, what string, running subject.Running, l *lab.Lab,
	ask func(*lab.Host, netip.AddrPort) (string, error)) {
	t.Helper()
	answered := map[string]int{}
	testenv.Eventually(t, testenv.WaitLimit, what+" reaches both servers through "+s.Name(), func() bool {
		for i, client := range l.Clients {
			from, err := ask(client, running.Target(i))
			if err != nil {
				t.Logf("%s: %v", what, err)
				return false
			}
			answered[from]++
		}
		return len(answered) == 2
	})
}

// forgets waits until IPVS has deleted all connections. Otherwise they would continue, without a service, to servers of
// the next trial.
func forgets(t *testing.T, balancer *lab.Host) {
	t.Helper()
	testenv.Eventually(t, testenv.WaitLimit, "IPVS forgets its connections", func() bool {
		var table []byte
		err := balancer.Do(func() (err error) {
			table, err = os.ReadFile("/proc/thread-self/net/ip_vs_conn")
			return err
		})
		return err == nil && bytes.Count(table, []byte("\n")) == 1 // the heading
	})
}

// serve answers requests over HTTP and UDP with the server's name.
func serve(t *testing.T, server *lab.Host) {
	t.Helper()
	var listener net.Listener
	var packets net.PacketConn
	at := fmt.Sprintf(":%d", carryPort)
	err := server.Do(func() (err error) {
		if listener, err = net.Listen("tcp4", at); err != nil {
			return err
		}
		packets, err = net.ListenPacket("udp4", at)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	web := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, server.Name)
	})}
	t.Cleanup(func() { web.Close(); packets.Close() })
	go web.Serve(listener) // ends with web
	go answerUDP(packets, server.Name)
}

// answerUDP answers from the address that the query was sent to, which may be the VIP.
func answerUDP(packets net.PacketConn, name string) {
	conn := ipv4.NewPacketConn(packets)
	if err := conn.SetControlMessage(ipv4.FlagDst, true); err != nil {
		return
	}
	query := make([]byte, 100)
	for {
		_, control, from, err := conn.ReadFrom(query)
		if err != nil {
			return
		}
		// A lost answer leads to another query.
		_, _ = conn.WriteTo([]byte(name), &ipv4.ControlMessage{Src: control.Dst}, from)
	}
}

// askTCP sends a request over a new connection, and returns the name of the server that answers.
func askTCP(client *lab.Host, to netip.AddrPort) (string, error) {
	conn, err := dial(client, "tcp4", to)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	request, err := http.NewRequest(http.MethodGet, "http://"+to.String()+"/", nil)
	if err != nil {
		return "", err
	}
	request.Close = true
	if err := request.Write(conn); err != nil {
		return "", err
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	name, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = errors.New(response.Status)
	}
	return string(name), err
}

// askUDP sends a query from a new socket, and returns the name of the server that answers.
func askUDP(client *lab.Host, to netip.AddrPort) (string, error) {
	conn, err := dial(client, "udp4", to)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("who?")); err != nil {
		return "", err
	}
	name := make([]byte, 100)
	n, err := conn.Read(name)
	return string(name[:n]), err
}

// dial connects from a client, with a time limit of a second.
func dial(client *lab.Host, network string, to netip.AddrPort) (conn net.Conn, err error) {
	const timeout = time.Second
	err = client.Do(func() (err error) {
		conn, err = net.DialTimeout(network, to.String(), timeout)
		return err
	})
	if err != nil {
		return nil, err
	}
	return conn, conn.SetDeadline(time.Now().Add(timeout))
}

// balancerState lists everything that a subject may have changed on the balancer and the servers: addresses, devices,
// rules, forwarding.
func balancerState(t *testing.T, l *lab.Lab) (state []string) {
	t.Helper()
	for _, host := range append([]*lab.Host{l.Balancer}, l.Servers...) {
		err := host.Do(func() error {
			addresses, err := netdump.Consistent(func() ([]netlink.Addr, error) {
				return netlink.AddrList(nil, netlink.FAMILY_V4)
			})
			if err != nil {
				return err
			}
			for _, address := range addresses {
				state = append(state, host.Name+" "+address.IPNet.String())
			}
			links, err := netdump.Links()
			if err != nil {
				return err
			}
			for _, link := range links {
				// The module ipip creates one on every host permanently.
				if name := link.Attrs().Name; name != "tunl0" {
					state = append(state, host.Name+" "+name)
				}
			}
			routes, err := netdump.Consistent(func() ([]netlink.Route, error) {
				return netlink.RouteList(nil, netlink.FAMILY_V4)
			})
			if err != nil {
				return err
			}
			for _, route := range routes {
				state = append(state, fmt.Sprint(host.Name, " ", route.Dst, " ", route.Gw))
			}
			forwarding, err := os.ReadFile("/proc/sys/net/ipv4/ip_forward")
			state = append(state, string(forwarding))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return append(state, rules(t, l.Balancer))
}

// rules returns the rules of the kernel's packet filter; empty without nft.
func rules(t *testing.T, host *lab.Host) string {
	t.Helper()
	path, err := exec.LookPath("nft")
	if err != nil {
		return ""
	}
	var text bytes.Buffer
	p, err := host.Start(t.Context(), lab.Command{Path: path, Args: []string{"list", "ruleset"}, Stdout: &text})
	if err == nil {
		err = p.Wait()
	}
	if err != nil {
		t.Fatal(err)
	}
	return emptyTable.ReplaceAllString(text.String(), "")
}

// emptyTable matches the tables that iptables leaves: it cannot remove a table.
var emptyTable = regexp.MustCompile(`table \S+ \S+ \{\n\}\n`)

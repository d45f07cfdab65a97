// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jeoul/jeoul/internal/testenv"
)

func TestSmoke(t *testing.T) {
	testenv.Root(t)
	s := time.Now()
	l, err := New(context.Background(), Spec{Clients: 2, Servers: 2})
	fmt.Println("new", time.Since(s), err)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range l.Notes {
		fmt.Println(n)
	}
	p, err := l.Clients[0].Start(t.Context(), Command{Path: "ping", Args: []string{"-c2", "-i0.1", l.Balancer.IPv4.String()}, Stdout: testWriter{t}, Stderr: testWriter{t}})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println(p.Wait())
	p, err = l.Clients[0].Start(t.Context(), Command{Path: "ping", Args: []string{"-c2", "-i0.1", l.Balancer.IPv6.String()}, Stdout: testWriter{t}, Stderr: testWriter{t}})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println(p.Wait())
	s = time.Now()
	c, err := l.CPU()
	fmt.Println(time.Since(s), c, err)
	p, err = l.Balancer.Start(t.Context(), Command{Path: "sh", Args: []string{"-c", "ip a; ip r; ip -6 r; ethtool -k " + l.Balancer.Interface + " | grep ': on'; ls /sys/class/net; pwd; sysctl -a | grep -E 'somaxconn|local_port'; echo; bridge link; ip netns"}, Stdout: testWriter{t}, Stderr: testWriter{t}})
	if err != nil {
		t.Fatal(err)
	}
	p.Wait()
	s = time.Now()
	fmt.Println("close", l.Close(), time.Since(s))
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(b []byte) (int, error) { w.t.Logf("%s", b); return len(b), nil }

// SPDX-License-Identifier: Apache-2.0

package checknet

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/balancer/health"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

// TestPortsRunOut has all ports to one backend taken: that is no evidence against it, and holds
// for no other address, nor protocol.
func TestPortsRunOut(t *testing.T) {
	testenv.Root(t)
	remote := netip.MustParseAddrPort("198.18.0.100:80")
	target := Target{Remote: remote, ReplySource: remote, Mark: 1}
	translated := Target{Remote: remote, ReplySource: netip.MustParseAddrPort("198.18.0.2:80"), Mark: 1}
	testenv.In(t, testenv.Namespace(t), func() error {
		n, err := Open()
		if err != nil {
			return err
		}
		defer n.Close()
		seen := map[uint16]bool{}
		for range lastPort + 1 - FirstPort {
			key, ok := n.ports.allocate(target, unix.IPPROTO_TCP)
			if !ok || key.port < FirstPort || seen[key.port] {
				t.Fatalf("the port %d is taken (%v)", key.port, ok)
			}
			seen[key.port] = true
		}
		ctx, cancel := context.WithTimeout(t.Context(), testenv.WaitLimit)
		defer cancel()
		if _, err := n.Dial(ctx, "tcp", target); !errors.Is(err, health.ErrNoPath) {
			t.Errorf("without a port a connection says %v", err)
		}
		if key, ok := n.ports.allocate(translated, unix.IPPROTO_TCP); !ok || key.port < firstTranslated {
			t.Errorf("a backend that answers by its own address gets the port %d (%v)", key.port, ok)
		}
		c, err := n.Dial(ctx, "udp", target)
		if err != nil {
			return err
		}
		return c.Close()
	})
}

// SPDX-License-Identifier: Apache-2.0

package hostnet_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/jeoul/jeoul/internal/host/hostnet"
	"github.com/jeoul/jeoul/internal/host/netdump"
)

// TestGiveClsact attaches filters where there is a clsact or ingress qdisc, where there is none, and where attaching
// fails.
func TestGiveClsact(t *testing.T) {
	refused := errors.New("refused")
	for _, test := range []struct {
		// there is the kind of the qdisc before.
		there  string
		err    error
		events string
		// ours: EnsureClsact reports that it added the qdisc; left is the qdisc after Close, without the filter.
		ours bool
		left string
	}{
		{"", nil, "", true, "clsact"},
		{"clsact", nil, "", false, "clsact"},
		{"ingress", nil, "", false, "ingress"},
		{"", refused, "clsact on veth0: present → absent (nothing could be attached to it)", true, ""},
		{"clsact", refused, "", false, "clsact"},
	} {
		inVeth(t, func(dir string) error {
			if test.there != "" {
				if err := addQdisc("veth0", test.there); err != nil {
					return err
				}
			}
			c, err := hostnet.Open(dir, "test")
			if err != nil {
				return err
			}
			err = c.EnsureClsact("veth0", func(ours bool) error {
				if ours != test.ours {
					t.Errorf("there is %q: it is brought: %v", test.there, ours)
				}
				return test.err
			})
			if !errors.Is(err, test.err) {
				t.Errorf("there is %q: %v, want %v", test.there, err, test.err)
			}
			same(t, "events", test.events, strings.Join(texts(c.Events()), "\n"))
			if err := c.Close(); err != nil {
				return err
			}
			empty(t, dir)
			left, err := ingressQdisc("veth0")
			same(t, "qdisc", test.left, left)
			return err
		})
	}
}

func addQdisc(name, kind string) error {
	nic, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	return netlink.QdiscAdd(&netlink.GenericQdisc{QdiscType: kind, QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: nic.Attrs().Index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_INGRESS}})
}

// ingressQdisc returns the kind of the ingress qdisc, or "".
func ingressQdisc(name string) (kind string, err error) {
	nic, err := netlink.LinkByName(name)
	if err != nil {
		return "", err
	}
	qdiscs, err := netdump.Consistent(func() ([]netlink.Qdisc, error) {
		return netlink.QdiscList(nic)
	})
	for _, q := range qdiscs {
		if q.Attrs().Parent == netlink.HANDLE_INGRESS {
			kind = q.Type()
		}
	}
	return kind, err
}

// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync/atomic"

	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink"

	"github.com/jeoul/jeoul/internal/host/namespace"
)

// Plain is a laboratory in which a wire joins each client port directly with a server port: the tester's rate there is
// its own ceiling. Its namespaces have no names, end with the process at the latest, and have no route out.
type Plain struct {
	// Spec is an arrangement of its ports: client port n has the addresses of 198.19.n.0/24, server port n has
	// 198.18.2.n, and the target is 198.18.0.100:80.
	Spec Spec

	namespaces []*namespace.Namespace
}

// NewPlain joins a number of client ports with as many server ports. The caller must close the Plain, after the testers
// on it.
func NewPlain(ports int) (*Plain, error) {
	if ports < 1 || ports > MaxPorts {
		return nil, fmt.Errorf("%w: %d ports on each side; use 1 to %d", ErrSpec, ports, MaxPorts)
	}
	p := &Plain{Spec: Spec{Target: netip.MustParseAddrPort("198.18.0.100:80"), Reply: ReplyDirect, CPU: -1}}
	for i := range ports {
		if err := p.join(byte(i + 1)); err != nil {
			return nil, errors.Join(fmt.Errorf("building a plain wire: %w", err), p.Close())
		}
	}
	return p, nil
}

// plainLinks counts the wires of this process. The kernel takes up to a second to notice the carrier of a link that has
// the same index as its peer, as in two new namespaces: so each wire's client end has an index of its own.
var plainLinks atomic.Int32

// join makes port n of both sides and their wire.
func (p *Plain) join(n byte) error {
	var both [2]*namespace.Namespace
	for i := range both {
		made, err := namespace.New()
		if err != nil {
			return err
		}
		p.namespaces = append(p.namespaces, made)
		both[i] = made
	}
	client, server := fmt.Sprintf("client%d", n), fmt.Sprintf("server%d", n)
	err := both[0].Do(func() error {
		return netlink.LinkAdd(&netlink.Veth{
			LinkAttrs: netlink.LinkAttrs{Name: client, Index: int(20_000 + plainLinks.Add(1))},
			PeerName:  server, PeerNamespace: netlink.NsFd(both[1].Handle()),
		})
	})
	if err != nil {
		return err
	}
	var to net.HardwareAddr
	err = errors.Join(
		both[0].Do(func() error { _, err := setLinkUp(client); return err }),
		both[1].Do(func() (err error) { to, err = setLinkUp(server); return err }))
	p.Spec.Clients = append(p.Spec.Clients, Port{Name: client, Interface: client, Do: both[0].Do,
		Sources: netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 19, n, 0}), 24)})
	p.Spec.Servers = append(p.Spec.Servers, Port{Name: server, Interface: server, Do: both[1].Do,
		Address: netip.AddrFrom4([4]byte{198, 18, 2, n})})
	p.Spec.Next = append(p.Spec.Next, to)
	return err
}

// setLinkUp sets an interface of this namespace up. IPv6 is off, so that the interface sends nothing by itself, and
// checksum offload is off, so that the checksums of other frames are complete.
func setLinkUp(name string) (net.HardwareAddr, error) {
	if err := os.WriteFile("/proc/sys/net/ipv6/conf/"+name+"/disable_ipv6", []byte("1"), 0); err != nil &&
		!errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	e, err := ethtool.NewEthtool()
	if err != nil {
		return nil, err
	}
	defer e.Close()
	if err := e.Change(name, map[string]bool{"tx-checksum-ip-generic": false}); err != nil {
		return nil, fmt.Errorf("switching checksum offload of %s off: %w", name, err)
	}
	link, err := netlink.LinkByName(name)
	if err != nil {
		return nil, err
	}
	return link.Attrs().HardwareAddr, netlink.LinkSetUp(link)
}

// Close removes the laboratory.
func (p *Plain) Close() error {
	var errs []error
	for _, n := range p.namespaces {
		errs = append(errs, n.Close())
	}
	p.namespaces = nil
	return errors.Join(errs...)
}

// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/host/sysctl"
	"github.com/jeoul/jeoul/internal/weigh/lab"
	"github.com/jeoul/jeoul/test/kubernetes/components"
)

// proxyHealthPort is the port of kube-proxy's own health.
const proxyHealthPort = "10256"

// Node is a node of the cluster: a host of the laboratory, its kube-proxy and its kubelet.
type Node struct {
	// Name is the name of the Node object.
	Name string
	Host *lab.Host
	// Pods4 and Pods6 are the ranges of its pods' addresses; the first address of each is the node's own.
	Pods4, Pods6 netip.Prefix

	cluster *Cluster
	number  int
	proxy   *lab.Process
	kubelet *kubelet
}

// newNode prepares a host to be a node.
func newNode(c *Cluster, number int, host *lab.Host) (*Node, error) {
	n := &Node{Name: fmt.Sprintf("node-%d", number), Host: host, cluster: c, number: number,
		Pods4: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 244, byte(number), 0}), 24),
		Pods6: netip.PrefixFrom(netip.MustParseAddr(fmt.Sprintf("fd00:10:244:%x::", number)), 64)}
	if err := host.Do(forwardPackets); err != nil {
		return nil, fmt.Errorf("prepare %s: %w", n.Name, err)
	}
	return n, nil
}

// forwardPackets makes the calling thread's namespace a router.
func forwardPackets() error {
	return errors.Join(sysctl.Write("net.ipv4.ip_forward", "1"), sysctl.Write("net.ipv6.conf.all.forwarding", "1"))
}

// routePods gives the balancer and each node routes to the pods of the other nodes.
func (c *Cluster) routePods() error {
	hosts := []*lab.Host{c.Lab.Balancer}
	for _, node := range c.Nodes {
		hosts = append(hosts, node.Host)
	}
	for _, host := range hosts {
		for _, node := range c.Nodes {
			if node.Host == host {
				continue
			}
			err := host.Do(func() error {
				return errors.Join(addRoute(node.Pods4, node.Host.IPv4), addRoute(node.Pods6, node.Host.IPv6))
			})
			if err != nil {
				return fmt.Errorf("route the pods of %s on %s: %w", node.Name, host.Name, err)
			}
		}
	}
	return nil
}

func addRoute(to netip.Prefix, via netip.Addr) error {
	return netlink.RouteAdd(&netlink.Route{Dst: ipNet(to), Gw: via.AsSlice()})
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// start registers the node and starts its kubelet and its kube-proxy.
func (n *Node) start(ctx context.Context) error {
	var err error
	if n.kubelet, err = startKubelet(ctx, n); err != nil {
		return fmt.Errorf("start the kubelet of %s: %w", n.Name, err)
	}
	return n.startProxy()
}

func (n *Node) startProxy() error {
	kubeconfig, err := n.cluster.WriteKubeconfig("system:kube-proxy")
	if err != nil {
		return err
	}
	n.proxy, err = n.cluster.run(n.Host, components.Proxy, "--kubeconfig="+kubeconfig, "--hostname-override="+n.Name,
		"--proxy-mode="+n.cluster.options.ProxyMode, "--cluster-cidr="+PodCIDRs,
		// These belong to the machine, or need rights over it.
		"--conntrack-max-per-core=0", "--oom-score-adj=0",
		"--healthz-bind-address=0.0.0.0:"+proxyHealthPort, "--metrics-bind-address=127.0.0.1:10249")
	return err
}

// awaitProxy waits until kube-proxy has written its rules.
func (n *Node) awaitProxy(ctx context.Context) error {
	client := &http.Client{Transport: &http.Transport{DialContext: DialFrom(n.Host), DisableKeepAlives: true}}
	err := poll(ctx, func() bool {
		answer, err := client.Get("http://127.0.0.1:" + proxyHealthPort + "/healthz")
		if err != nil {
			return ended(n.proxy)
		}
		answer.Body.Close()
		return answer.StatusCode == http.StatusOK
	})
	if err == nil && ended(n.proxy) {
		err = n.proxy.Wait()
	}
	if err != nil {
		return fmt.Errorf("wait for kube-proxy of %s (its log is in %s): %w", n.Name, n.Host.Dir, err)
	}
	return nil
}

// KillProxy ends kube-proxy as a crash does; its rules stay. StartProxy starts it again.
func (n *Node) KillProxy(ctx context.Context) error { return n.proxy.Kill(ctx) }

// StartProxy starts kube-proxy after KillProxy, and returns when it is ready.
func (n *Node) StartProxy(ctx context.Context) error {
	if err := n.startProxy(); err != nil {
		return err
	}
	return n.awaitProxy(ctx)
}

// Kill takes the node's power away: nothing that it was about to send leaves it, its processes and connections are
// gone. The API server hears nothing of it.
func (n *Node) Kill(ctx context.Context) error {
	if err := n.cluster.Lab.Switch.Do(func() error { return setLink(n.Host.Port, netlink.LinkSetDown) }); err != nil {
		return fmt.Errorf("take %s off the switch: %w", n.Name, err)
	}
	n.kubelet.kill()
	return n.proxy.Kill(ctx)
}

// Disconnect takes the node off the network, and Connect puts it back; all on it goes on running.
func (n *Node) Disconnect() error {
	return n.cluster.Lab.Switch.Do(func() error { return setLink(n.Host.Port, netlink.LinkSetDown) })
}

// Connect undoes Disconnect.
func (n *Node) Connect() error {
	return n.cluster.Lab.Switch.Do(func() error { return setLink(n.Host.Port, netlink.LinkSetUp) })
}

func setLink(name string, set func(netlink.Link) error) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	return set(link)
}

// end stops the parts of the node that are no processes of the laboratory.
func (n *Node) end() {
	if n.kubelet != nil {
		n.kubelet.kill()
	}
}

// devicePod makes the link between the node and a pod's namespace: in the pod eth0, which has the two addresses
// and default routes to the node.
func (n *Node) devicePod(name string, pod *namespaceOfPod) error {
	gateway4, gateway6 := n.Pods4.Addr().Next(), n.Pods6.Addr().Next()
	err := n.Host.Do(func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = name
		veth := netlink.NewVeth(attrs)
		veth.PeerName, veth.PeerNamespace = "eth0", netlink.NsFd(pod.netns.Handle())
		if err := netlink.LinkAdd(veth); err != nil {
			return fmt.Errorf("make the link to the pod: %w", err)
		}
		return errors.Join(
			raise(name, netip.PrefixFrom(gateway4, 32), netip.PrefixFrom(gateway6, 128)),
			routeDevice(name, netip.PrefixFrom(pod.ipv4, 32)), routeDevice(name, netip.PrefixFrom(pod.ipv6, 128)))
	})
	if err != nil {
		return err
	}
	return pod.netns.Do(func() error {
		if err := errors.Join(sysctl.Write("net.ipv6.conf.all.accept_dad", "0"),
			sysctl.Write("net.ipv6.conf.eth0.accept_dad", "0"),
			sysctl.Write("net.ipv6.conf.eth0.accept_ra", "0")); err != nil {
			return err
		}
		if err := setLink("lo", netlink.LinkSetUp); err != nil {
			return err
		}
		if err := raise("eth0", netip.PrefixFrom(pod.ipv4, 32), netip.PrefixFrom(pod.ipv6, 128)); err != nil {
			return err
		}
		return errors.Join(routeDefault("eth0", gateway4), routeDefault("eth0", gateway6))
	})
}

// raise puts a device up and gives it addresses.
func raise(name string, addresses ...netip.Prefix) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return err
	}
	for _, address := range addresses {
		flags := 0
		if address.Addr().Is6() {
			flags = unix.IFA_F_NODAD
		}
		if err := netlink.AddrAdd(link, &netlink.Addr{IPNet: ipNet(address), Flags: flags}); err != nil {
			return fmt.Errorf("give %s the address %s: %w", name, address, err)
		}
	}
	return nil
}

func routeDevice(name string, to netip.Prefix) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	err = netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: ipNet(to), Scope: netlink.SCOPE_LINK})
	if err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("route %s to %s: %w", to, name, err)
	}
	return nil
}

func routeDefault(name string, gateway netip.Addr) error {
	if err := routeDevice(name, netip.PrefixFrom(gateway, gateway.BitLen())); err != nil {
		return err
	}
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	all := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	if gateway.Is6() {
		all = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	}
	return netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: ipNet(all), Gw: gateway.AsSlice()})
}

// SPDX-License-Identifier: Apache-2.0

package paths

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/host/netdump"
)

// Fault is the reason for which packets cannot be sent to an address at all.
type Fault string

// The faults of a Route.
const (
	// None: there is a route by one of the interfaces.
	None Fault = ""
	// NoRoute: the kernel would not send there.
	NoRoute Fault = "no route"
	// OwnAddress: it is this host's.
	OwnAddress Fault = "own address"
	// NotUnicast: to the kernel it is no single host, but a broadcast or multicast
	// address.
	NotUnicast Fault = "not unicast"
	// OtherInterface: packets would leave by an interface that is none of ours.
	OtherInterface Fault = "other interface"
)

// IsTransient reports whether the fault may pass without another address for the backend: routes, addresses and
// interfaces come and go.
func (f Fault) IsTransient() bool { return f == NoRoute || f == OtherInterface }

// Route is where the kernel sends packets for an address.
type Route struct {
	// Interface is the one that they leave by; "" if there is no route.
	Interface string
	Index     int
	// Gateway is the router that they go to; invalid where the address is itself
	// a neighbour. It may be IPv6 for an IPv4 address (RFC 5549).
	Gateway netip.Addr
	// Local is the address that the host would send from; invalid if it has none.
	Local netip.Addr
	// ARPSource is the address that the host's ARP requests for an IPv4 neighbour bear;
	// invalid where there are none: neighbour solicitations come from a link-local
	// address, and a neighbour of the administrator's (nud permanent) is not asked.
	ARPSource netip.Addr
	// MTU is the route's or the interface's, in bytes, whichever is less.
	MTU int
	// PMTUReported: a router on the path has reported the MTU, for our tunnel packets.
	PMTUReported bool
	Fault        Fault
	// Reason names the fault, of the address: "has no route"; Advice the remedy. Both are empty if there is no fault.
	Reason, Advice string
}

// OnLink reports whether the address is a neighbour on one of our interfaces.
func (r Route) OnLink() bool { return r.Fault == None && !r.Gateway.IsValid() }

func (r Route) nextHop(addr netip.Addr) netip.Addr {
	if r.Gateway.IsValid() {
		return r.Gateway
	}
	return addr
}

// NextHop returns whose MAC address packets get: a router's or the address
// itself; invalid if there is no route.
func (e Entry) NextHop() netip.Addr {
	if e.Fault != None {
		return netip.Addr{}
	}
	return e.nextHop(e.Address)
}

// device has the properties of an interface that a lookup needs.
type device struct {
	name       string
	mac        string // as bytes, which compare
	mtu4, mtu6 int
	// vlanOn names the interface of ours that this one is a VLAN of.
	vlanOn string
	isPort bool
}

// lookUp asks the kernel about all of the addresses, and for the interfaces. The caller
// holds the lock.
func (p *Paths) lookUp(addrs []netip.Addr) (map[netip.Addr]Route, map[int]device, error) {
	devices, err := p.devices()
	if err != nil {
		return nil, nil, err
	}
	senders, err := p.readARPSources()
	if err != nil {
		return nil, nil, err
	}
	routes := make(map[netip.Addr]Route, len(addrs))
	for _, addr := range addrs {
		r, err := p.routeTo(addr, devices)
		if err != nil {
			return nil, nil, err
		}
		if hop := (hop{r.Index, addr.Unmap()}); r.OnLink() && hop.addr.Is4() && !senders.known[hop] {
			r.ARPSource = senders.forNeighbour(hop)
		}
		p.applyPathMTU(addr, &r, time.Now())
		routes[addr] = r
	}
	return routes, devices, nil
}

// sourcesOf returns the MAC addresses of the ports.
func (p *Paths) sourcesOf(devices map[int]device) map[int]string {
	sources := map[int]string{}
	for _, port := range p.ports {
		sources[port.index] = devices[port.index].mac
	}
	return sources
}

// readOwnMACs returns the host's interfaces by their MAC addresses: of those that share one, as a
// link and its VLANs do, the first.
func readOwnMACs(devices map[int]device) map[string]string {
	own := map[string]string{}
	for _, index := range slices.Sorted(maps.Keys(devices)) {
		d := devices[index]
		if _, shared := own[d.mac]; !shared && strings.Trim(d.mac, "\x00") != "" {
			own[d.mac] = d.name
		}
	}
	return own
}

// devices returns the interfaces by index.
func (p *Paths) devices() (map[int]device, error) {
	list, err := netdump.Consistent(p.netlink.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list the interfaces: %w", err)
	}
	devices := make(map[int]device, len(list))
	for _, link := range list {
		attrs := link.Attrs()
		d := device{name: attrs.Name, mac: string(attrs.HardwareAddr), mtu4: attrs.MTU, mtu6: attrs.MTU}
		d.isPort = p.portOf(attrs.Index) != nil
		if parent := p.portOf(attrs.ParentIndex); link.Type() == "vlan" && parent != nil {
			d.vlanOn = parent.name
		}
		devices[attrs.Index] = d
	}
	return devices, p.learnMTUs(devices)
}

func (p *Paths) portOf(index int) *port {
	if i := slices.IndexFunc(p.ports, func(o *port) bool { return o.index == index }); i >= 0 {
		return p.ports[i]
	}
	return nil
}

// learnMTUs reads the MTUs that routers have announced (RFC 4861 section 4.6.4): an interface's MTU for IPv6 may be
// less than that of its frames.
func (p *Paths) learnMTUs(devices map[int]device) error {
	return p.ns.Do(func() error {
		for _, port := range p.ports {
			d, there := devices[port.index]
			data, err := os.ReadFile("/proc/sys/net/ipv6/conf/" + d.name + "/mtu")
			if !there || err != nil {
				continue // the interface is gone, or has no IPv6
			}
			if mtu, err := strconv.Atoi(strings.TrimSpace(string(data))); err == nil {
				d.mtu6 = min(d.mtu6, mtu)
				devices[port.index] = d
			}
		}
		return nil
	})
}

// routeTo asks for the route to one address, as for a packet that the host
// itself sends. It is an error if the kernel could not answer.
func (p *Paths) routeTo(addr netip.Addr, devices map[int]device) (Route, error) {
	found, err := p.routeGet(addr.AsSlice())
	switch {
	case slices.ContainsFunc(noAnswers, func(errno unix.Errno) bool { return errors.Is(err, errno) }):
		return Route{}, fmt.Errorf("look up the route to %s: %w", addr, err)
	case err != nil, len(found) == 0:
		return noRoute(err), nil
	}
	return p.routeOf(addr, found[0], devices), nil
}

// noAnswers are errors by which the kernel does not say that there is no route: it had no memory for the answer, or was
// interrupted.
var noAnswers = []unix.Errno{unix.ENOBUFS, unix.ENOMEM, unix.EAGAIN, unix.EINTR}

// routeOf returns the route to an address that the kernel has answered with.
func (p *Paths) routeOf(addr netip.Addr, r netlink.Route, devices map[int]device) Route {
	d := devices[r.LinkIndex]
	switch {
	case r.Type == unix.RTN_LOCAL:
		return Route{Fault: OwnAddress, Reason: "is an address of this host", Advice: "a backend is another host"}
	case r.Type != unix.RTN_UNICAST && r.Type != unix.RTN_UNSPEC:
		return Route{Fault: NotUnicast,
			Reason: fmt.Sprintf("is no single host to the kernel, which has a route of the type %s for it",
				routeType(r.Type)),
			Advice: "use the backend's own address"}
	case r.Encap != nil || r.MPLSDst != nil:
		return Route{Fault: NoRoute, Reason: "has a route that puts packets into a tunnel (" + encapName(r) +
			"), which balanced packets do not go through",
			Advice: "add a route without one"}
	case !d.isPort:
		return p.viaOtherInterface(d)
	}
	route := Route{Interface: d.name, Index: r.LinkIndex, Gateway: gatewayOf(r), MTU: d.mtu4}
	route.Local, _ = netip.AddrFromSlice(r.Src)
	route.Local = route.Local.Unmap()
	if addr.Is6() {
		route.MTU = d.mtu6
	}
	if r.MTU > 0 {
		route.MTU = min(route.MTU, r.MTU)
	}
	return route
}

// noRoute explains the kernel's answer; a route may be there to say no.
func noRoute(err error) Route {
	r := Route{Fault: NoRoute,
		Advice: "correct the address, or add a route; `ip route get` shows what the kernel does with it"}
	switch {
	case err == nil, errors.Is(err, unix.ENETUNREACH):
		r.Reason = "has no route"
	case errors.Is(err, unix.EHOSTUNREACH):
		r.Reason = "has a route of the type unreachable"
	case errors.Is(err, unix.EINVAL):
		r.Reason = "has a route of the type blackhole"
	case errors.Is(err, unix.EACCES):
		r.Reason = "has a route of the type prohibit"
	default:
		r.Reason = fmt.Sprintf("has no route (%v)", err)
	}
	return r
}

// viaOtherInterface is a route by an interface that is none of ours.
func (p *Paths) viaOtherInterface(d device) Route {
	names := make([]string, len(p.ports))
	for i, port := range p.ports {
		names[i] = port.name
	}
	r := ViaOtherInterface(d.name, names)
	if d.vlanOn != "" {
		r.Advice = fmt.Sprintf(
			"%s is a VLAN of %s: add it to interfaces, and set hook: tc, for XDP sees only the frames of %s", d.name,
			d.vlanOn, d.vlanOn)
	}
	return r
}

// ViaOtherInterface is a route by an interface that is none of ours, which have these names.
func ViaOtherInterface(by string, ours []string) Route {
	return Route{Fault: OtherInterface, Interface: by,
		Reason: fmt.Sprintf("is reached by %s, which is not among this configuration's interfaces (%s)", by,
			strings.Join(ours, ", ")),
		Advice: fmt.Sprintf("add %s to interfaces, or correct the route", by)}
}

// gatewayOf returns the router of a route, of either family.
func gatewayOf(r netlink.Route) netip.Addr {
	gateway := r.Gw
	if via, ok := r.Via.(*netlink.Via); ok && gateway == nil {
		gateway = via.Addr
	}
	addr, _ := netip.AddrFromSlice(gateway)
	if addr = addr.Unmap(); !addr.IsValid() || addr.IsUnspecified() {
		return netip.Addr{}
	}
	return addr
}

func encapName(r netlink.Route) string {
	if r.Encap != nil {
		return r.Encap.String()
	}
	return "MPLS"
}

// routeType is the name that `ip route` has for a type; RTN_* in <linux/rtnetlink.h>.
func routeType(t int) string {
	names := map[int]string{unix.RTN_BROADCAST: "broadcast", unix.RTN_ANYCAST: "anycast",
		unix.RTN_MULTICAST: "multicast",
		unix.RTN_BLACKHOLE: "blackhole", unix.RTN_UNREACHABLE: "unreachable", unix.RTN_PROHIBIT: "prohibit",
		unix.RTN_THROW: "throw", unix.RTN_NAT: "nat"}
	if name, known := names[t]; known {
		return name
	}
	return strconv.Itoa(t)
}

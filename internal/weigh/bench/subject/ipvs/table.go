// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"

	moby "github.com/moby/ipvs"
	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/host/sysctl"
	"github.com/jeoul/jeoul/internal/weigh/lab"

	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
)

// ipvsTable is the table of services in a balancer's kernel.
type ipvsTable struct {
	// Flags is the forwarding method (IP_VS_CONN_F_* of linux/ip_vs.h).
	Flags uint32
	// Upper and Lower are the thresholds of each server; 0 means none.
	Upper, Lower uint32
	Services     []ipvsService
	// Guarded makes a machine's worker remove the table if the run dies.
	Guarded bool
	// PreviousExpire is the value of the sysctl forgetConnections from before the services were created; empty until
	// then.
	PreviousExpire string
}

// ipvsService is a port of the VIP, with the addresses of its servers.
type ipvsService struct {
	At       netip.AddrPort
	Protocol lb.Protocol
	Servers  []ipvsServer
	// Scheduler is the kernel's name of the scheduler; empty means round robin.
	Scheduler string
	// Check is how keepalived checks the servers; nil means no checks.
	Check *subject.Check
}

type ipvsServer struct {
	Name   string
	At     netip.AddrPort
	Weight int
}

// has reports whether one of the services has a server.
func (t *ipvsTable) has(server netip.AddrPort) bool {
	return slices.ContainsFunc(t.Services, func(s ipvsService) bool {
		return slices.ContainsFunc(s.Servers, func(one ipvsServer) bool { return one.At == server })
	})
}

// ipvsServices returns the ports of a set-up's services, one after another.
func ipvsServices(setup subject.Setup) (all []ipvsService) {
	for i, of := range setup.Services {
		for _, protocol := range of.Protocols() {
			service := ipvsService{At: setup.VIP(i), Protocol: protocol, Check: of.Check}
			for _, server := range of.Servers {
				service.Servers = append(service.Servers,
					ipvsServer{server.Name, netip.AddrPortFrom(server.IPv4, of.Port), of.Weight(server)})
			}
			all = append(all, service)
		}
	}
	return all
}

// ipvsChange sets or removes a table.
type ipvsChange struct {
	Table ipvsTable
	On    bool
}

// ipvsTask sets or removes a table, and returns the previous value of the sysctl forgetConnections.
var ipvsTask = lab.NewTask("ipvs-services", func(_ context.Context, h *lab.Host, c ipvsChange) (string, error) {
	if !c.On {
		err := onIPVS(h, c.Table.remove)
		if err == nil && c.Table.Guarded {
			h.AtEnd(ipvsGuard, nil)
		}
		return "", err
	}
	err := onIPVS(h, c.Table.add)
	if err == nil && c.Table.Guarded {
		h.AtEnd(ipvsGuard, func() error { return onIPVS(h, c.Table.remove) })
	}
	return c.Table.PreviousExpire, err
})

// ipvsGuard is the name of the clean-up that a worker does at its end.
const ipvsGuard = "ipvs"

// set creates the services on the balancer, or removes them.
func (t *ipvsTable) set(l *lab.Lab, on bool) error {
	if !on && t.PreviousExpire == "" {
		return nil // nothing was created; existing services belong to another program
	}
	previousExpire, err := ipvsTask.On(context.Background(), l.Balancer, ipvsChange{*t, on})
	if err != nil {
		return fmt.Errorf("setting the services of IPVS: %w", err)
	}
	if on {
		t.PreviousExpire = previousExpire
	}
	return nil
}

// onIPVS calls do with a handle for IPVS in a host's kernel.
func onIPVS(h *lab.Host, do func(kernel *moby.Handle) error) error {
	return h.Do(func() error {
		// The library writes its warnings to this logger; failures are in its errors.
		logrus.SetOutput(io.Discard)
		kernel, err := moby.New("")
		if err != nil {
			return err
		}
		defer kernel.Close()
		return do(kernel)
	})
}

func (s ipvsService) kernel() *moby.Service {
	service := &moby.Service{
		Address: net.IP(s.At.Addr().AsSlice()), Port: s.At.Port(), Protocol: uint16(s.Protocol),
		AddressFamily: unix.AF_INET, Netmask: 0xffff_ffff, SchedName: cmp.Or(s.Scheduler, moby.RoundRobin),
	}
	if s.Scheduler == ipvsMaglev || s.Scheduler == moby.SourceHashing {
		service.Flags = hashPorts
	}
	return service
}

// ipvsMaglev is the kernel's name of its Maglev scheduler, which the library lacks.
const ipvsMaglev = "mh"

// hashPorts makes the schedulers that hash a client's address hash its port, too (IP_VS_SVC_F_SCHED_SH_PORT and
// IP_VS_SVC_F_SCHED_MH_PORT of linux/ip_vs.h): a laboratory has few clients.
const hashPorts = 0x10

func (t *ipvsTable) destination(s ipvsServer) *moby.Destination {
	return &moby.Destination{
		Address: net.IP(s.At.Addr().AsSlice()), Port: s.At.Port(), AddressFamily: unix.AF_INET,
		Weight: s.Weight, ConnectionFlags: t.Flags, UpperThreshold: t.Upper, LowerThreshold: t.Lower,
	}
}

// forgetConnections makes the kernel delete a destination's connections when the destination is removed
// (Documentation/networking/ipvs-sysctl.rst). Otherwise they would affect the next trial.
const forgetConnections = "net.ipv4.vs.expire_nodest_conn"

// add creates the services, all of them or none.
func (t *ipvsTable) add(kernel *moby.Handle) (err error) {
	if t.PreviousExpire, err = sysctl.Read(forgetConnections); err != nil {
		return err
	}
	if err := sysctl.Write(forgetConnections, "1"); err != nil {
		return err
	}
	made := *t
	for i, s := range t.Services {
		if err := t.addService(kernel, s); err != nil {
			made.Services = t.Services[:i]
			return errors.Join(fmt.Errorf("%s port %d: %w", s.Protocol, s.At.Port(), err), made.remove(kernel))
		}
	}
	return nil
}

func (t *ipvsTable) addService(kernel *moby.Handle, s ipvsService) error {
	service := s.kernel()
	if kernel.IsServicePresent(service) {
		return fmt.Errorf(
			"%v is a service of IPVS already, and not of this run: take it away first (ipvsadm -D), or give another VIP", s.At)
	}
	if err := kernel.NewService(service); err != nil {
		return err
	}
	for _, server := range s.Servers {
		if err := kernel.NewDestination(service, t.destination(server)); err != nil {
			return errors.Join(fmt.Errorf("%s: %w", server.Name, err), kernel.DelService(service))
		}
	}
	return nil
}

// changeOn replaces the servers of the services in a host's kernel and in the table.
func (t *ipvsTable) changeOn(h *lab.Host, services []ipvsService) error {
	err := onIPVS(h, func(kernel *moby.Handle) error {
		for i, s := range t.Services {
			if err := t.changeService(kernel, s, services[i]); err != nil {
				return fmt.Errorf("%s port %d: %w", s.Protocol, s.At.Port(), err)
			}
			t.Services[i].Servers = services[i].Servers
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("changing the services of IPVS on %s: %w", h.Name, err)
	}
	return nil
}

// changeService adds new servers before it removes old ones.
func (t *ipvsTable) changeService(kernel *moby.Handle, from, to ipvsService) error {
	service := from.kernel()
	at := func(all []ipvsServer, s ipvsServer) int {
		return slices.IndexFunc(all, func(other ipvsServer) bool { return other.At == s.At })
	}
	for _, s := range to.Servers {
		var err error
		switch i := at(from.Servers, s); {
		case i < 0:
			err = kernel.NewDestination(service, t.destination(s))
		case from.Servers[i].Weight != s.Weight:
			err = kernel.UpdateDestination(service, t.destination(s))
		}
		if err != nil {
			return fmt.Errorf("%s: %w", s.Name, err)
		}
	}
	for _, s := range from.Servers {
		if at(to.Servers, s) >= 0 {
			continue
		}
		if err := kernel.DelDestination(service, t.destination(s)); err != nil {
			return fmt.Errorf("%s: %w", s.Name, err)
		}
	}
	return nil
}

// remove removes the destinations before their services, because that makes the kernel delete their connections. It
// skips services that were never created.
func (t *ipvsTable) remove(kernel *moby.Handle) error {
	var errs []error
	for _, s := range t.Services {
		if service := s.kernel(); kernel.IsServicePresent(service) {
			errs = append(errs, t.removeService(kernel, service, s))
		}
	}
	if t.Guarded {
		errs = append(errs, sysctl.Write(forgetConnections, t.PreviousExpire))
	}
	return errors.Join(errs...)
}

func (t *ipvsTable) removeService(kernel *moby.Handle, service *moby.Service, s ipvsService) error {
	var errs []error
	for _, server := range s.Servers {
		if err := kernel.DelDestination(service, t.destination(server)); !errors.Is(err, unix.ENOENT) {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(append(errs, kernel.DelService(service))...); err != nil {
		return fmt.Errorf("%s port %d: %w", s.Protocol, s.At.Port(), err)
	}
	return nil
}

// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"unsafe"

	"github.com/cilium/ebpf"

	"github.com/jeoul/jeoul/internal/lb"
)

// A service's exceptions (lb.Service.Untranslated) stand in a map that all programs share,
// under a number of their own, which the endpoints of the service's backends bear. A list
// that changes gets another number: what is there is not changed while packets read it, and
// ways that are known by the number before are not taken for the new one's.

// lastExceptions is the greatest such number; 0 is that of none. See way_kind in the program.
const lastExceptions = 1<<24 - 1

// exceptionsOf returns the number of a service's exceptions: the one that it has, or another.
// A number that is taken for a change that is then not made is not given again soon.
func (p *places) exceptionsOf(is, was *record) uint32 {
	list := is.service.Untranslated
	switch {
	case len(list) == 0 || is.service.Mode != lb.NAT:
		return 0
	case was != nil && was.exceptions != 0 && slices.Equal(was.service.Untranslated, list):
		return was.exceptions
	}
	p.lastExceptions = p.lastExceptions%lastExceptions + 1
	return p.lastExceptions
}

// exceptionMap is the map, and what is in it.
type exceptionMap struct {
	*ebpf.Map
	lists map[uint32][]netip.Prefix
}

// exceptionKey is a prefix as the data plane finds it.
func exceptionKey(number uint32, prefix netip.Prefix) xdpExceptionKey {
	return xdpExceptionKey{Bits: 8*uint32(unsafe.Sizeof(number)) + uint32(prefix.Bits()), Exceptions: number,
		Destination: addressWords(prefix.Addr())}
}

// add puts the exceptions of services that are new or have changed beside the others, which
// is before any endpoint bears their numbers.
func (m *exceptionMap) add(services []served) error {
	for _, s := range services {
		number, list := s.is.exceptions, s.is.service.Untranslated
		if _, there := m.lists[number]; there || number == 0 {
			continue
		}
		m.lists[number] = list
		for _, prefix := range list {
			if err := m.Put(exceptionKey(number, prefix), uint32(1)); err != nil {
				return fmt.Errorf("service %s: noting that packets to %s stay untranslated: %v", s.is.service.Name, prefix, err)
			}
		}
	}
	return nil
}

// sweep takes out what no service and no endpoint of a backend that has left needs any more.
// An entry that cannot be taken out stays; nothing finds it.
func (m *exceptionMap) sweep(r *register) {
	if len(m.lists) == 0 {
		return
	}
	used := map[uint32]bool{}
	for _, is := range r.records {
		used[is.exceptions] = true
	}
	for _, e := range r.places.former {
		used[e.exceptions] = true
	}
	for number, list := range m.lists {
		if used[number] {
			continue
		}
		gone := true
		for _, prefix := range list {
			err := m.Delete(exceptionKey(number, prefix))
			gone = gone && (err == nil || errors.Is(err, ebpf.ErrKeyNotExist))
		}
		if gone {
			delete(m.lists, number)
		}
	}
}

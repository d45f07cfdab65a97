// SPDX-License-Identifier: Apache-2.0

package localsockets

import (
	"errors"
	"fmt"
	"io"
	"maps"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/balancer/datapath/flowtable"
	"github.com/jeoul/jeoul/internal/balancer/datapath/generation"
	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
	"github.com/jeoul/jeoul/internal/balancer/datapath/sharedmaps"
)

// No program runs for datagrams of a connected UDP socket, so it cannot get another backend when its own is removed. It
// is aborted instead (bpf/balancer/local/abort.bpf.c): the application gets ECONNABORTED, and connects again.

// loadAborter loads the program that aborts sockets. If the kernel does not support it, the other programs work without
// it.
func (s *Sockets) loadAborter(m *generation.Memory, shared *sharedmaps.Maps) error {
	spec, err := objects.LoadAbort()
	if err != nil {
		return fmt.Errorf("reading the embedded eBPF program: %v", err)
	}
	spec.Maps[objects.GenerationSection].ValueSize = m.Map.ValueSize()
	shared.SetSizes(spec)
	replacements := shared.ByName()
	maps.Copy(replacements, s.Maps())
	replacements[objects.GenerationSection] = m.Map
	if err := spec.Variables[objects.AbortVarLoaded].Set(m.Constants); err != nil {
		return fmt.Errorf("setting the program's constants: %v", err)
	}
	collection, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: replacements})
	if err != nil {
		return err
	}
	defer collection.Close()
	s.aborter = collection.DetachProgram(objects.AbortProgJeoulAbort)
	return nil
}

// isConnected reports whether a socket is a UDP socket that is connected to a backend.
func isConnected(s *objects.LocalLocalSocket) bool {
	for i := range s.Peers {
		p := &s.Peers[i]
		state := objects.LocalPeerState(p.State) & objects.LocalPeerStatePEER_STATE
		if state == objects.LocalPeerStatePEER_CONNECTED && p.Protocol == unix.IPPROTO_UDP {
			return true
		}
	}
	return false
}

// EndStranded aborts UDP sockets that are connected to backends which accept no packets any more. Sockets that are just
// being connected, and failures, are left to the next call.
func (s *Sockets) EndStranded() {
	if s == nil || s.aborter == nil {
		return
	}
	anyConnected := false
	if err := flowtable.EachSocket(s.known, func(one *objects.LocalLocalSocket) {
		anyConnected = anyConnected || isConnected(one)
	}); err != nil || !anyConnected {
		return
	}
	_ = s.ns.Do(func() error {
		it, err := link.AttachIter(link.IterOptions{Program: s.aborter})
		if err != nil {
			return err
		}
		sockets, err := it.Open()
		if err != nil {
			return errors.Join(err, it.Close())
		}
		_, err = io.Copy(io.Discard, sockets)
		return errors.Join(err, sockets.Close(), it.Close())
	})
}

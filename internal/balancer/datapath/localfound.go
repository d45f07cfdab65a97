// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/jeoul/jeoul/internal/balancer/datapath/attach"
	"github.com/jeoul/jeoul/internal/balancer/datapath/keeper"
	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
	"github.com/jeoul/jeoul/internal/balancer/datapath/pins"
)

// findSockets opens what another process has left at sockets. What is not whole it takes away: it is
// attached anew where it is still wanted.
func (f *found) findSockets() (*sockets, error) {
	s := &sockets{holds: make([]attach.Hold, len(socketHooks)), programs: make([]*ebpf.Program, len(socketHooks))}
	names, err := f.store.Links()
	if err != nil {
		return nil, err
	}
	whole, some := 0, false
	for _, name := range names {
		if !strings.HasPrefix(name, keeper.SocketPrefix) {
			continue
		}
		some = true
		if s.open(f.store.Path("", name), name) {
			whole++
		}
	}
	if !some {
		return nil, nil
	}
	if whole == len(socketHooks) {
		if err := s.openMaps(f); err == nil {
			return s, nil
		}
	}
	s.closeUnless(nil)
	return nil, errors.Join(attach.CloseAll(compact(s.holds)), f.removeSocketLinks())
}

// open opens a link; false where it is of another control group than those before, or of no use.
func (s *sockets) open(path, name string) bool {
	var id uint64
	var program string
	if n, err := fmt.Sscanf(name, keeper.SocketPrefix+"%d-%s", &id, &program); n != 2 || err != nil {
		return false
	}
	hook := hookNamed(program)
	if hook < 0 || s.holds[hook] != nil || s.id != 0 && s.id != id {
		return false
	}
	l, err := link.LoadPinnedLink(path, nil)
	if err != nil {
		return false
	}
	info, err := l.Info()
	if err == nil {
		s.programs[hook], err = ebpf.NewProgramFromID(info.Program)
	}
	if err != nil {
		l.Close()
		return false
	}
	s.id, s.holds[hook] = id, attach.PinnedLink{Link: l}
	return true
}

// openMaps opens what the programs remember.
func (s *sockets) openMaps(f *found) (err error) {
	spec, err := objects.Local.Spec()
	if err != nil {
		return err
	}
	for name, to := range map[string]**ebpf.Map{objects.LocalMapLocalSockets: &s.known,
		objects.LocalMapLocalEvents: &s.events} {
		if *to, err = ebpf.LoadPinnedMap(f.store.Path(pins.Set(f.set), name), nil); err != nil {
			return err
		}
		if err := spec.Maps[name].Compatible(*to); err != nil {
			return err
		}
	}
	return nil
}

func compact(holds []attach.Hold) (some []attach.Hold) {
	for _, h := range holds {
		if h != nil {
			some = append(some, h)
		}
	}
	return some
}

// removeSocketLinks takes all programs of ours off sockets.
func (f *found) removeSocketLinks() error {
	names, err := f.store.Links()
	for _, name := range names {
		if !strings.HasPrefix(name, keeper.SocketPrefix) {
			continue
		}
		h, _, failed := attach.OpenLink(f.store.Path("", name))
		if failed == nil {
			failed = h.Close()
		}
		err = errors.Join(err, failed)
	}
	return err
}
